//! Every link of the docs leads somewhere, and no file names a place of the machine it was written on.

use std::fs;

use mortarmq_workspace_tests::docs::{check_links, check_places, links, places};
use mortarmq_workspace_tests::{Workspace, report};

#[test]
fn the_links_of_this_repository_lead_somewhere() {
    let findings = check_links(&Workspace::here()).expect("the pages of this repository are readable");
    assert!(findings.is_empty(), "\n{}", report(findings));
}

#[test]
fn no_file_of_this_repository_names_a_foreign_place() {
    let findings = check_places(&Workspace::here()).expect("the files of this repository are readable");
    assert!(findings.is_empty(), "\n{}", report(findings));
}

#[test]
fn a_link_to_nowhere_is_found() {
    // Goal: each kind of broken link is found, each good one is not. Method: a small repository of its own.
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("the path has a folder")).expect("a folder can be made");
        fs::write(path, text).expect("a file can be written");
    };
    write(
        "README.md",
        "# Title\n[good](docs/a.md#one-two) [self](#title) [out](https://example.org/x)\n[gone](docs/b.md)\n",
    );
    write("ARCHITECTURE.md", "[ref]\n\n[ref]: docs/none.md\n");
    write("CONTRIBUTING.md", "`[code](nowhere.md)`\n```\n[code](nowhere.md)\n```\n");
    write("docs/a.md", "## One, two\n[up](../README.md) [away](../../x.md)\n[bad](#three)\n");
    let findings = report(check_links(&Workspace::at(folder.path().to_owned())).expect("the pages are readable"));
    let expected = "\
ARCHITECTURE.md:3: link docs/none.md: there is no docs/none.md
README.md:3: link docs/b.md: there is no docs/b.md
docs/a.md:2: link ../../x.md: leaves the repository
docs/a.md:3: link #three: docs/a.md has no heading #three
";
    assert_eq!(findings, expected);
}

#[test]
fn a_missing_page_of_the_root_is_found() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let findings = check_links(&Workspace::at(folder.path().to_owned())).expect("an empty folder is readable");
    assert_eq!(findings.len(), 3, "{}", report(findings));
}

#[test]
fn links_are_taken_with_title_and_without_code() {
    let text = "a [b](c.md \"Title\") `[x](y.md)` [d](e.md)\n";
    assert_eq!(links(text), [(1, "c.md".to_owned()), (1, "e.md".to_owned())]);
}

#[test]
fn a_foreign_place_is_found_and_a_similar_path_is_not() {
    // The places are put together here, so that this file does not name them.
    let bad = [["/wo", "rk/main"].concat(), ["see ../sha", "red/page.md"].concat(), ["(/wo", "rk/x)"].concat()];
    for text in bad {
        assert_eq!(places(&format!("fine\n{text}\n")).len(), 1, "{text}");
    }
    let near = ["net", "wo", "rk/", " ./wo", "rk/ shared/"].concat();
    assert_eq!(places(&near), []);
}
