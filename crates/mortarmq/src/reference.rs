//! The pages of docs/reference that are printed from the code, and the pages that must agree with it.
//!
//! `MORTARMQ_WRITE_DOCS=1 cargo test -p mortarmq reference` writes the pages anew; without it a page that differs is a
//! failure, so what is in the code and not in the page, or the other way round, cannot stay.

mod commands;
mod configuration;
mod errors;
mod examples;
mod metrics;
mod settings;

use std::path::PathBuf;

/// A file of the repository.
fn file(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(file(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Compares a page with what the code says, or writes it.
fn holds(path: &str, page: &str) {
    if std::env::var_os("MORTARMQ_WRITE_DOCS").is_some() {
        std::fs::write(file(path), page).expect("the repository can be written");
        return;
    }
    let found = read(path);
    let differs = found.lines().zip(page.lines()).find(|(found, wanted)| found != wanted);
    assert!(
        found == page,
        "{path} is not what the code says, first here: {differs:?}; write it: MORTARMQ_WRITE_DOCS=1"
    );
}

/// A cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
