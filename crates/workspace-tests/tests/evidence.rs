//! Each statement of the protocol's page is kept somewhere and proved by a test that exists.

use std::fs;

use mortarmq_workspace_tests::evidence::{check, check_failures, never_sent, statements};
use mortarmq_workspace_tests::{Workspace, report, source};

#[test]
fn every_statement_of_the_protocol_has_a_place_and_a_test() {
    let workspace = Workspace::here();
    let findings = check(&workspace).expect("the pages of this repository are readable");
    assert!(findings.is_empty(), "\n{}", report(findings));
    let page = workspace.read("docs/reference/wire.md").expect("it is there");
    assert!(statements(&page).len() > 200, "{}", statements(&page).len());
}

#[test]
fn every_failure_of_others_is_stopped_by_something_that_exists() {
    let workspace = Workspace::here();
    let findings = check_failures(&workspace).expect("the page of this repository is readable");
    assert!(findings.is_empty(), "\n{}", report(findings));
}

#[test]
fn what_is_said_to_be_never_sent_is_made_nowhere() {
    // Goal: the page tells the truth about codes without evidence. Method: outside the registry, and the table of HTTP that has
    // them all, no code of the broker makes one. The client knows them: a newer broker may send them.
    let workspace = Workspace::here();
    let names = never_sent(&workspace).expect("the pages of this repository are readable");
    assert!(names.iter().any(|name| name == "NO_CREDIT") && names.len() > 10, "{names:?}");
    let broker = ["wire", "delivery", "shard", "node", "http", "server"];
    let files = workspace.rust_files().expect("the files of this repository are readable");
    let is_looked_at = |path: &str| !["crates/wire/src/errors.rs", "crates/http/src/refusal.rs"].contains(&path);
    let mut looked = 0;
    for file in files.iter().filter(|file| broker.contains(&file.crate_name.as_str()) && !file.is_test) {
        if !is_looked_at(&file.path) {
            continue;
        }
        looked += 1;
        let code = source::without_tests(&source::code_only(&file.text));
        for name in &names {
            let made = format!("ErrorCode::{}", camel_case(name));
            let is_made = code
                .match_indices(&made)
                .any(|(at, _)| !code[at + made.len()..].starts_with(|letter: char| letter.is_alphanumeric()));
            assert!(!is_made, "{}: {name} is said to be never sent", file.path);
        }
    }
    assert!(looked > 100, "{looked}");
}

/// `NO_CREDIT` as the registry's variant is called: `NoCredit`.
fn camel_case(name: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at(1);
        format!("{first}{}", rest.to_lowercase())
    };
    name.split('_').map(word).collect()
}

#[test]
fn a_statement_without_a_row_and_a_row_without_its_test_are_found() {
    // Goal: each way in which evidence can be missing is found. Method: a small repository with each of them once.
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("the path has a folder")).expect("a folder can be made");
        fs::write(path, text).expect("a file can be written");
    };
    write(
        "docs/reference/wire.md",
        "Before. Not a statement.\n\n## Frames\n\nKept and proved. Without a row.\n\n| name | value |\n|---|---|\n| MAX | 1 |\n\n\
         1. A rule that goes\n   on. Its second sentence.\n- Excused. Badly excused. Twice here.\n",
    );
    write(
        "docs/reference/wire-evidence.md",
        "| statement | code | tests |\n|---|---|---|\n\
         | Kept and | `a/src/lib.rs#fn keep` | `a/src/lib.rs#kept`, `a/tests/t.rs#\"a row\"` |\n\
         | MAX · 1 | `a/src/lib.rs#fn lost` | `a/src/lib.rs#keep`, `a/src/lib.rs#sleeps` |\n\
         | A rule that goes on. | `a/src/gone.rs#x` | `a/tests/gone.rs#x`, `a/tests/t.rs#\"no row\"` |\n\
         | Its second | | `a/src/lib.rs#kept` |\n\
         | Excused. | – | not there: transactions |\n\
         | Badly | – | not there: no time |\n\
         | Twice | – | not there: transactions |\n\
         | Twice here | – | not there: transactions |\n\
         | Nowhere said | – | not there: transactions |\n",
    );
    write("crates/a/src/lib.rs", "fn keep() {}\n#[test]\nfn kept() {}\n#[test]\n#[ignore]\nfn sleeps() {}\n");
    write("crates/a/tests/t.rs", "const ROWS: &[&str] = &[\"a row\"];\n");
    let findings = report(check(&Workspace::at(folder.path().to_owned())).expect("the pages are readable"));
    let expected = "\
docs/reference/wire-evidence.md:4: crates/a/src/lib.rs has no fn lost
docs/reference/wire-evidence.md:4: crates/a/src/lib.rs: keep is no test that runs
docs/reference/wire-evidence.md:4: crates/a/src/lib.rs: sleeps is no test that runs
docs/reference/wire-evidence.md:5: crates/a/tests/t.rs has no row \"no row\"
docs/reference/wire-evidence.md:5: there is no crates/a/src/gone.rs
docs/reference/wire-evidence.md:5: there is no crates/a/tests/gone.rs
docs/reference/wire-evidence.md:6: a row needs a place and a test, or what has to be there first
docs/reference/wire-evidence.md:8: \"no time\" is no excuse; those are: exclusive groups, transactions, several nodes, the HTTP queue API, never sent, a definition
docs/reference/wire-evidence.md:11: no statement of docs/reference/wire.md begins like this: Nowhere said
docs/reference/wire.md:5: 0 rows of docs/reference/wire-evidence.md are for this statement, one should be: Without a row.
docs/reference/wire.md:13: 2 rows of docs/reference/wire-evidence.md are for this statement, one should be: Twice here.
";
    assert_eq!(findings, expected);
}
