//! Files and functions that fit in a reader's head, and a `lib.rs` that is only a map.

use std::io;

use crate::source::{code_only, functions, line_of, test_items, without_tests};
use crate::{Finding, RustFile, Workspace};

/// The most lines a file of `src/` may have without its tests.
pub const MAX_FILE_LINES: usize = 500;

/// The most lines a function may have from its `fn` to its closing brace, tests included.
pub const MAX_FUNCTION_LINES: usize = 70;

/// Checks every Rust file of every crate.
///
/// # Errors
/// When a file cannot be read.
pub fn check(workspace: &Workspace) -> io::Result<Vec<Finding>> {
    Ok(workspace.rust_files()?.iter().flat_map(check_file).collect())
}

/// Checks one file.
#[must_use]
pub fn check_file(file: &RustFile) -> Vec<Finding> {
    let code = code_only(&file.text);
    let mut findings = Vec::new();
    if !file.is_test {
        findings.extend(check_length(file, &code));
    }
    for function in functions(&code) {
        if function.lines > MAX_FUNCTION_LINES {
            let text = format!("fn {}: {} lines, limit {MAX_FUNCTION_LINES}", function.name, function.lines);
            findings.push(Finding::at(&file.path, function.first_line, text));
        }
    }
    if file.path_in_crate == "src/lib.rs" {
        for function in functions(&without_tests(&code)) {
            let text =
                format!("fn {}: 1 body in lib.rs, limit 0: lib.rs is a map, logic lives elsewhere", function.name);
            findings.push(Finding::at(&file.path, function.first_line, text));
        }
    }
    findings
}

fn check_length(file: &RustFile, code: &str) -> Option<Finding> {
    let test_lines: usize = test_items(code)
        .into_iter()
        .map(|range| line_of(code, range.end.saturating_sub(1)) - line_of(code, range.start) + 1)
        .sum();
    let lines = file.text.lines().count().saturating_sub(test_lines);
    (lines > MAX_FILE_LINES).then(|| {
        let text = format!("the file: {lines} lines without its tests, limit {MAX_FILE_LINES}: split it by idea");
        Finding::in_file(&file.path, text)
    })
}
