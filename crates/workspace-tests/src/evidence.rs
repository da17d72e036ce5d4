//! Every statement of docs/reference/wire.md has a place in the code that keeps it and a test that proves it.
//!
//! docs/reference/wire-evidence.md has a row for each statement, named by its beginning: where it is kept, and by which tests it is
//! proved. A statement is a sentence, or a row of a table, from the section "Frames" on. A row says instead what has to be there
//! first, where this version refuses a thing by name.
//!
//! A place is `path#text` below `crates/`: the file has that text. A test is `path#name`: the file has a function of that name
//! that is a test; or `path#"row"`, a row of a table of cases.
//!
//! docs/failures-of-others.md names tests in the same way, and planted bugs by the schedule that notices them.

use std::io;

use crate::{Finding, Workspace};

/// The page with the statements.
const STATED: &str = "docs/reference/wire.md";
/// The page with the evidence.
const EVIDENCE: &str = "docs/reference/wire-evidence.md";
/// The page on what happened elsewhere.
const FAILURES: &str = "docs/failures-of-others.md";
/// Why a statement may have no evidence.
const EXCUSES: &[&str] =
    &["exclusive groups", "transactions", "several nodes", "the HTTP queue API", "never sent", "a definition"];

/// A row of the page with the evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its line, from 1.
    pub line: usize,
    /// How the statement begins.
    pub begins: String,
    /// Where it is kept; empty if it is excused.
    pub places: Vec<String>,
    /// What proves it.
    pub tests: Vec<String>,
    /// Why there is nothing; empty if there is.
    pub excuse: String,
}

/// Checks that each statement has one row, that each row speaks of one statement, and that places and tests exist.
///
/// # Errors
/// When a page cannot be read.
pub fn check(workspace: &Workspace) -> io::Result<Vec<Finding>> {
    let statements = statements(&workspace.read(STATED)?);
    let rows = rows(&workspace.read(EVIDENCE)?);
    let mut findings = Vec::new();
    for (line, statement) in &statements {
        let found = rows.iter().filter(|row| statement.starts_with(&row.begins)).count();
        if found != 1 {
            let text = format!("{found} rows of {EVIDENCE} are for this statement, one should be: {statement}");
            findings.push(Finding::at(STATED, *line, text));
        }
    }
    for row in &rows {
        let mut find = |text: String| findings.push(Finding::at(EVIDENCE, row.line, text));
        if !statements.iter().any(|(_, statement)| statement.starts_with(&row.begins)) {
            find(format!("no statement of {STATED} begins like this: {}", row.begins));
        }
        if row.excuse.is_empty() && (row.places.is_empty() || row.tests.is_empty()) {
            find("a row needs a place and a test, or what has to be there first".to_owned());
        } else if !row.excuse.is_empty() && !EXCUSES.contains(&row.excuse.as_str()) {
            find(format!("{:?} is no excuse; those are: {}", row.excuse, EXCUSES.join(", ")));
        }
        row.places.iter().filter_map(|place| missing_place(workspace, place)).for_each(&mut find);
        row.tests.iter().filter_map(|test| missing_test(workspace, test)).for_each(&mut find);
    }
    Ok(findings)
}

/// Checks that each row of the page on the failures of others names a test or a planted bug, and that all of these exist.
///
/// # Errors
/// When the page cannot be read.
pub fn check_failures(workspace: &Workspace) -> io::Result<Vec<Finding>> {
    let page = workspace.read(FAILURES)?;
    let mut findings = Vec::new();
    let rows = page.lines().enumerate().filter(|(_, line)| line.starts_with("| ") && !line.starts_with("| elsewhere"));
    for (index, line) in rows {
        let mut find = |text: String| findings.push(Finding::at(FAILURES, index + 1, text));
        let shown_by = line.trim_matches('|').rsplit('|').next().unwrap_or_default();
        let names: Vec<&str> = shown_by.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            find("a failure of others needs a test or a planted bug here".to_owned());
        }
        for name in names {
            if name.contains('#') {
                missing_test(workspace, name).into_iter().for_each(&mut find);
            } else if workspace.read(&format!("crates/sim/schedules/{name}.sim")).is_err() {
                find(format!("{name} is no planted bug with a schedule in crates/sim/schedules"));
            }
        }
    }
    Ok(findings)
}

/// The names of the error codes that the page with the evidence says are never sent.
///
/// # Errors
/// When a page cannot be read.
pub fn never_sent(workspace: &Workspace) -> io::Result<Vec<String>> {
    let statements = statements(&workspace.read(STATED)?);
    let rows = rows(&workspace.read(EVIDENCE)?);
    let is_excused =
        |statement: &str| rows.iter().any(|row| row.excuse == "never sent" && statement.starts_with(&row.begins));
    let names = statements.iter().filter(|(_, statement)| is_excused(statement));
    let names = names.filter_map(|(_, statement)| statement.split(" · ").nth(1));
    Ok(names.flat_map(|names| names.split(", ")).map(str::to_owned).collect())
}

/// The statements of a page, each with the line on which its paragraph or row begins.
#[must_use]
pub fn statements(page: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut paragraph = (0, String::new());
    let end = |paragraph: &mut (usize, String), found: &mut Vec<(usize, String)>| {
        let (line, text) = std::mem::take(paragraph);
        found.extend(sentences(&text).into_iter().map(|sentence| (line, sentence)));
    };
    let lines = page.lines().enumerate().skip_while(|(_, line)| *line != "## Frames").peekable();
    let lines: Vec<(usize, &str)> = lines.map(|(index, line)| (index + 1, line.trim())).collect();
    for (at, (line, text)) in lines.iter().enumerate() {
        if let Some(row) = text.strip_prefix('|') {
            end(&mut paragraph, &mut found);
            // The heading of a table is the row before its rule.
            let is_heading = lines.get(at + 1).is_some_and(|(_, next)| next.starts_with("|---"));
            if !is_heading && !text.starts_with("|---") {
                let cells: Vec<&str> = row.trim_end_matches('|').split('|').map(str::trim).collect();
                found.push((*line, cells.join(" · ")));
            }
            continue;
        }
        let item = text.strip_prefix("- ").or_else(|| numbered_item(text));
        if text.is_empty() || text.starts_with('#') || item.is_some() {
            end(&mut paragraph, &mut found);
        }
        if !text.is_empty() && !text.starts_with('#') {
            if paragraph.1.is_empty() {
                paragraph.0 = *line;
            } else {
                paragraph.1.push(' ');
            }
            paragraph.1.push_str(item.unwrap_or(text));
        }
    }
    end(&mut paragraph, &mut found);
    found
}

/// The rows of the page with the evidence.
#[must_use]
pub fn rows(page: &str) -> Vec<Row> {
    let lines = page.lines().enumerate().filter(|(_, line)| line.starts_with("| ") && !line.starts_with("| statement"));
    let row = |(index, line): (usize, &str)| {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let mut cell = || cells.next().unwrap_or_default();
        let (begins, places, tests) = (cell().to_owned(), cell(), cell());
        let excuse = if places == "–" { tests.trim_start_matches("not there: ").to_owned() } else { String::new() };
        let listed = |cell: &str| -> Vec<String> {
            if excuse.is_empty() { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() } else { Vec::new() }
        };
        let (places, tests) = (listed(places), listed(tests));
        Row { line: index + 1, begins, places, tests, excuse }
    };
    lines.map(row).collect()
}

/// Cuts a paragraph behind each full stop that a blank follows.
fn sentences(paragraph: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut rest = paragraph;
    while let Some(at) = rest.find(". ") {
        found.push(rest[..=at].to_owned());
        rest = rest[at + 1..].trim_start();
    }
    if !rest.is_empty() {
        found.push(rest.to_owned());
    }
    found
}

/// What stands behind the number of a numbered item.
fn numbered_item(text: &str) -> Option<&str> {
    let (number, rest) = text.split_once(". ")?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(rest)
}

fn missing_place(workspace: &Workspace, place: &str) -> Option<String> {
    let Some((path, text)) = place.split_once('#') else { return Some(format!("{place} has no #text")) };
    match workspace.read(&format!("crates/{path}")) {
        Err(_) => Some(format!("there is no crates/{path}")),
        Ok(file) => (!file.contains(text)).then(|| format!("crates/{path} has no {text}")),
    }
}

fn missing_test(workspace: &Workspace, test: &str) -> Option<String> {
    let Some((path, name)) = test.split_once('#') else { return Some(format!("{test} has no #name")) };
    let Ok(file) = workspace.read(&format!("crates/{path}")) else { return Some(format!("there is no crates/{path}")) };
    if name.starts_with('"') {
        return (!file.contains(name)).then(|| format!("crates/{path} has no row {name}"));
    }
    let lines: Vec<&str> = file.lines().map(str::trim).collect();
    let is_it = |line: &&str| {
        let rest = line.trim_start_matches("async ").strip_prefix("fn ");
        rest.and_then(|rest| rest.strip_prefix(name)).is_some_and(|rest| rest.starts_with('('))
    };
    let Some(at) = lines.iter().position(is_it) else { return Some(format!("crates/{path} has no test {name}")) };
    // Its attributes stand right before it.
    let attributes = lines[..at].iter().rev().take_while(|line| line.starts_with("#["));
    let is_test = attributes.clone().any(|line| line.contains("test]") || line.contains("::test("));
    let is_run = !attributes.clone().any(|line| line.contains("ignore"));
    (!is_test || !is_run).then(|| format!("crates/{path}: {name} is no test that runs"))
}
