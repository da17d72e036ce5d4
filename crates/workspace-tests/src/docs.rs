//! Links that lead somewhere, and no word of the machine that the text was written on.

use std::fs;
use std::io;

use crate::{Finding, Workspace};

/// The pages outside `docs/` whose links are checked.
const PAGES: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];

/// Checks the relative links of every page of the repository. A page of the root that is missing is a finding too.
///
/// # Errors
/// When a page cannot be read.
pub fn check_links(workspace: &Workspace) -> io::Result<Vec<Finding>> {
    let files = workspace.repository_files()?;
    let mut findings = Vec::new();
    for page in PAGES.iter().filter(|page| !files.iter().any(|file| file == *page)) {
        findings.push(Finding::in_file(page, "the page is missing".to_owned()));
    }
    let is_page = |file: &&String| {
        PAGES.contains(&file.as_str())
            || (file.starts_with("docs/") && file.rsplit_once('.').is_some_and(|x| x.1 == "md"))
    };
    for page in files.iter().filter(is_page) {
        for (line, target) in links(&workspace.read(page)?) {
            if let Some(text) = broken(workspace, page, &target) {
                findings.push(Finding::at(page, line, format!("link {target}: {text}")));
            }
        }
    }
    Ok(findings)
}

/// Checks that no file of the repository names a place of the machine it was written on.
///
/// # Errors
/// When a file cannot be read.
pub fn check_places(workspace: &Workspace) -> io::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for file in workspace.repository_files()? {
        let bytes = fs::read(workspace.path(&file))?;
        for (line, place) in places(&String::from_utf8_lossy(&bytes)) {
            let text = format!("names {place}, which exists only where this was written: the project stands alone");
            findings.push(Finding::at(&file, line, text));
        }
    }
    Ok(findings)
}

/// The relative and in-page links of a Markdown text, each with its line. Code is not looked at.
#[must_use]
pub fn links(markdown: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, text) in prose(markdown) {
        for (at, _) in text.match_indices("](") {
            let Some(end) = text[at + 2..].find(')') else { continue };
            // A title may follow the target: `(page.md "Title")`.
            let target = text[at + 2..at + 2 + end].split_whitespace().next().unwrap_or_default();
            found.push((line, target.to_owned()));
        }
        if let Some(target) = reference_target(&text) {
            found.push((line, target.to_owned()));
        }
    }
    found.retain(|(_, target)| !["http://", "https://", "mailto:"].iter().any(|start| target.starts_with(start)));
    found
}

/// The places named in a text, each with its line.
#[must_use]
pub fn places(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for place in forbidden_places() {
            let starts_path = |at: usize| {
                let before = line[..at].chars().next_back();
                // A folder of the same name inside another path is another place; a way up is the same anywhere.
                place.starts_with("..") || !before.is_some_and(|c| c.is_alphanumeric() || "._-/".contains(c))
            };
            if line.match_indices(&place).any(|(at, _)| starts_path(at)) {
                found.push((index + 1, place));
            }
        }
    }
    found
}

/// Put together from pieces, so that this file does not name them.
fn forbidden_places() -> Vec<String> {
    vec![["/wo", "rk/"].concat(), ["../sha", "red"].concat(), ["/tmp", "/mq"].concat(), ["/ro", "ot/"].concat()]
}

/// The lines of a Markdown text outside code, each with its number; inline code is taken out.
fn prose(markdown: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut fence: Option<&str> = None;
    for (index, line) in markdown.lines().enumerate() {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
            (None, None) => lines.push((index + 1, without_inline_code(line))),
        }
    }
    lines
}

fn without_inline_code(line: &str) -> String {
    // Every second piece between backticks is code. A line with an odd number of them has none that is closed.
    if !line.matches('`').count().is_multiple_of(2) {
        return line.to_owned();
    }
    line.split('`').step_by(2).collect()
}

/// The target of a reference definition, `[name]: target`.
fn reference_target(line: &str) -> Option<&str> {
    let (name, target) = line.strip_prefix('[')?.split_once("]:")?;
    let is_definition = !name.contains('[') && !name.contains(']');
    is_definition.then(|| target.split_whitespace().next()).flatten()
}

/// What is wrong with a link of a page, if anything.
fn broken(workspace: &Workspace, page: &str, target: &str) -> Option<String> {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let Some(file) = resolve(page, path) else {
        return Some("leaves the repository".to_owned());
    };
    let full = workspace.path(&file);
    if !full.exists() {
        return Some(format!("there is no {file}"));
    }
    if anchor.is_empty() {
        return None;
    }
    let text = fs::read_to_string(&full).ok()?;
    let is_there = prose_headings(&text).iter().any(|heading| heading == anchor);
    (!is_there).then(|| format!("{file} has no heading #{anchor}"))
}

/// The path from the root that a link of a page means; `None` if it leaves the root.
fn resolve(page: &str, target: &str) -> Option<String> {
    if target.is_empty() {
        return Some(page.to_owned());
    }
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The anchors of a page's headings, as GitHub makes them.
fn prose_headings(markdown: &str) -> Vec<String> {
    let mut fenced = false;
    let mut anchors = Vec::new();
    for line in markdown.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if !fenced && line.starts_with('#') {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            anchors.push(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
        }
    }
    anchors
}
