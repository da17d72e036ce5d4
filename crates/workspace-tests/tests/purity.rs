//! The core has no clock, randomness, thread, socket, file or unordered map; storage does I/O in `src/disk/` only.

use mortarmq_workspace_tests::purity::{PURE_CRATES, check, check_file};
use mortarmq_workspace_tests::{RustFile, Workspace, report};

fn file(crate_name: &str, path_in_crate: &str, text: &str) -> RustFile {
    RustFile {
        crate_name: crate_name.to_owned(),
        path: format!("crates/{crate_name}/{path_in_crate}"),
        path_in_crate: path_in_crate.to_owned(),
        text: text.to_owned(),
        is_test: false,
    }
}

#[test]
fn the_core_of_this_workspace_is_pure() {
    let findings = check(&Workspace::here()).expect("the sources of this repository are readable");
    assert!(findings.is_empty(), "\n{}", report(findings));
}

#[test]
fn the_rule_looks_at_every_pure_crate() {
    // Goal: the test above cannot pass because it saw nothing.
    let files = Workspace::here().rust_files().expect("the sources of this repository are readable");
    for name in PURE_CRATES.iter().chain(&["storage"]) {
        assert!(files.iter().any(|file| file.crate_name == *name && !file.is_test), "no source of {name}");
    }
}

#[test]
fn each_impurity_is_found_with_line_and_reason() {
    let samples = [
        ("use std::time::{Duration, Instant};", "a clock"),
        ("let now = std::time::SystemTime::now();", "a clock"),
        ("let x = rand::random::<u64>();", "randomness"),
        ("getrandom::fill(&mut bytes)?;", "randomness"),
        ("use std::{rc::Rc, thread};\nthread::spawn(work);", "threads"),
        ("use std::net::TcpStream;", "sockets"),
        ("use std::fs;", "Disk"),
        ("let file = File::open(path)?;", "Disk"),
        ("use std::collections::{BTreeMap, HashMap};", "BTreeMap"),
        ("let home = std::env::var(\"HOME\");", "environment"),
    ];
    for crate_name in PURE_CRATES {
        for (sample, reason) in samples {
            let text = format!("// A first line.\n{sample}\n");
            let findings = report(check_file(&file(crate_name, "src/lease.rs", &text)));
            assert!(findings.contains(reason), "{crate_name}: {sample}\n{findings}");
            assert!(findings.starts_with(&format!("crates/{crate_name}/src/lease.rs:")), "{findings}");
        }
    }
}

#[test]
fn words_in_comments_strings_and_tests_are_no_impurity() {
    let sample = "\
//! No Instant and no HashMap here.
fn text() -> &'static str { \"std::fs and tokio\" }
struct InstantNoodles;
#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    fn now() { std::time::Instant::now(); }
}
";
    assert_eq!(check_file(&file("delivery", "src/lease.rs", sample)), []);
}

#[test]
fn storage_touches_files_in_its_disk_only() {
    let sample = "use std::fs::{File, OpenOptions};";
    assert_eq!(check_file(&file("storage", "src/disk/real.rs", sample)), []);
    assert_eq!(check_file(&file("storage", "src/journal/writer.rs", sample)).len(), 1);
    assert_eq!(check_file(&file("server", "src/threads.rs", sample)), []);
}
