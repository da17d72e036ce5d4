use super::{code_only, functions, test_module_files, without_tests, words};

#[test]
fn comments_strings_and_characters_are_blanked_and_code_stays_in_place() {
    // Goal: a brace or a word counts only where it is code. Each line hides one `{` in another way.
    let samples = [
        "let a = 1; // { line",
        "let a = 1; /* { /* nested { */ { */ let b = 2;",
        "let a = \"{ \\\" {\"; let b = 2;",
        "let a = '{'; let b = '\\''; let c = '\\u{7b}';",
        "let a = r\"{\\\"; let b = 2;",
        "let a = r#\"{ \" {\"#; let b = br##\"{ \"# {\"##;",
        "let a = b'{'; let b = b\"{\";",
    ];
    for sample in samples {
        let code = code_only(sample);
        assert_eq!(code.len(), sample.len(), "{sample}");
        assert!(!code.contains('{'), "{sample} left {code}");
        assert!(code.starts_with("let a = "), "{sample} left {code}");
    }
    assert!(code_only(samples[1]).ends_with("let b = 2;"));
    assert!(code_only(samples[4]).ends_with("let b = 2;"));
}

#[test]
fn lifetimes_and_raw_names_hide_nothing() {
    let sample = "fn read<'a>(r#fn: &'a str, order: &'static [u8]) -> &'a str { r#fn }";
    assert_eq!(code_only(sample), sample);
    let sample = "let number = r#number; let filter\n= bar; 'outer: loop { break 'outer; }";
    assert_eq!(code_only(sample), sample);
}

#[test]
fn text_that_is_not_ascii_survives() {
    let sample = "// ≤ 4 \u{2013} {\nlet a = 'ß'; let b = \"→\"; done();";
    let code = code_only(sample);
    assert!(code.ends_with("done();"), "{code}");
    assert!(!code.contains('{'));
}

#[test]
fn functions_are_measured_from_fn_to_closing_brace() {
    let sample = "\
/// A doc comment does not count { }.
#[must_use]
pub fn one(bytes: [u8; 4]) -> fn(u32) -> u32 {
    let closure = |x: u32| { x };
    fn inner() {
    }
    closure
}
trait Shape {
    fn area(&self) -> [u8; 2];
    fn name(&self) -> &str { \"}\" }
}
";
    let found: Vec<(String, usize, usize)> =
        functions(&code_only(sample)).into_iter().map(|f| (f.name, f.first_line, f.lines)).collect();
    let expected = [("one", 3, 6), ("inner", 5, 2), ("name", 11, 1)];
    assert_eq!(found, expected.map(|(name, line, lines)| (name.to_owned(), line, lines)));
}

#[test]
fn items_for_tests_are_blanked_and_the_rest_is_not() {
    let sample = "\
#[cfg(test)]
use std::{fs, thread};
use std::rc::Rc;
#[cfg(test)]
fn helper() { spawn(); }
#[cfg(any(test, feature = \"slow\"))]
fn kept() { }
#[cfg(test)]
mod tests {
    mod deep { fn a() {} }
}
fn last() {}
";
    let code = without_tests(&code_only(sample));
    for gone in ["thread", "helper", "tests", "deep"] {
        assert!(!code.contains(gone), "{gone} stayed in {code}");
    }
    for kept in ["Rc", "kept", "last"] {
        assert!(code.contains(kept), "{kept} went from {code}");
    }
    assert_eq!(code.lines().count(), sample.lines().count());
}

#[test]
fn test_modules_in_files_of_their_own_are_named() {
    let sample =
        "#[cfg(test)]\nmod tests;\n#[cfg(test)]\npub(crate) mod support;\nmod real;\n#[cfg(test)]\nmod here {}\n";
    assert_eq!(test_module_files(sample), ["tests", "support"]);
}

#[test]
fn words_are_whole() {
    let code = "Instant MyInstant Instants std::fs::read vfs::read";
    assert_eq!(words(code, "Instant"), [0]);
    assert_eq!(words(code, "fs::").len(), 1);
}
