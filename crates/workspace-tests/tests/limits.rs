//! A file has at most 500 lines without its tests, a function at most 70, and `lib.rs` is only a map.

use mortarmq_workspace_tests::limits::{MAX_FILE_LINES, MAX_FUNCTION_LINES, check, check_file};
use mortarmq_workspace_tests::{RustFile, Workspace, report};

fn file(path_in_crate: &str, text: &str) -> RustFile {
    RustFile {
        crate_name: "sample".to_owned(),
        path: format!("crates/sample/{path_in_crate}"),
        path_in_crate: path_in_crate.to_owned(),
        text: text.to_owned(),
        is_test: false,
    }
}

fn function_of(lines: usize) -> String {
    format!("fn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
}

#[test]
fn the_files_and_functions_of_this_workspace_keep_the_limits() {
    let findings = check(&Workspace::here()).expect("the sources of this repository are readable");
    assert!(findings.is_empty(), "\n{}", report(findings));
}

#[test]
fn a_file_one_line_too_long_is_found() {
    let text = "const A: u8 = 1;\n".repeat(MAX_FILE_LINES);
    assert_eq!(check_file(&file("src/a.rs", &text)), []);
    let findings = report(check_file(&file("src/a.rs", &format!("{text}\n"))));
    assert!(
        findings.contains("crates/sample/src/a.rs: the file: 501 lines without its tests, limit 500"),
        "{findings}"
    );
}

#[test]
fn tests_do_not_count_as_length_of_the_file() {
    let code = "const A: u8 = 1;\n".repeat(MAX_FILE_LINES - 10);
    let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    const B: u8 = 1;\n".repeat(100));
    assert_eq!(check_file(&file("src/a.rs", &format!("{code}{tests}"))), []);
    let more = "const C: u8 = 1;\n".repeat(11);
    assert_eq!(check_file(&file("src/a.rs", &format!("{code}{tests}{more}"))).len(), 1);
}

#[test]
fn a_function_one_line_too_long_is_found_by_name() {
    assert_eq!(check_file(&file("src/a.rs", &function_of(MAX_FUNCTION_LINES))), []);
    let findings = report(check_file(&file("src/a.rs", &function_of(MAX_FUNCTION_LINES + 1))));
    assert_eq!(findings, "crates/sample/src/a.rs:1: fn long: 71 lines, limit 70\n");
}

#[test]
fn a_function_of_a_test_keeps_the_limit_too() {
    let text = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function_of(MAX_FUNCTION_LINES + 1));
    assert_eq!(check_file(&file("src/a.rs", &text)).len(), 1);
}

#[test]
fn a_body_in_lib_rs_is_found() {
    let text = "//! A map.\nmod a;\npub use a::A;\n#[cfg(test)]\nmod tests {\n    fn helper() {}\n}\n";
    assert_eq!(check_file(&file("src/lib.rs", text)), []);
    let findings = report(check_file(&file("src/lib.rs", &format!("{text}fn logic() {{}}\n"))));
    assert!(findings.contains("src/lib.rs:8: fn logic: 1 body in lib.rs, limit 0"), "{findings}");
}
