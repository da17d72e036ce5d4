//! What a node is deployed with says what is true of this version: settings that exist, the ports that are the defaults, the Rust
//! that the workspace needs, its version.
//!
//! Settings are those of the tables of docs/reference/configuration.md and docs/reference/settings.md, which are printed from the
//! code. In a file a setting is `MORTARMQ_` with its name in capitals, a key of TOML, a key below `config:` of the chart's values, or a
//! flag of `mortarmq serve`.

use std::collections::BTreeSet;
use std::io;

use crate::{Finding, Workspace};

/// The files, and whether each names every port.
const FILES: &[(&str, bool)] = &[
    ("Dockerfile", true),
    ("ops/compose.yaml", true),
    ("ops/mortarmq.service", false),
    ("ops/helm/mortarmq/values.yaml", false),
    ("ops/helm/mortarmq/templates/configmap.yaml", true),
    ("ops/helm/mortarmq/templates/statefulset.yaml", true),
    ("ops/helm/mortarmq/templates/services.yaml", true),
    ("docs/deploying.md", true),
];
const CONFIGURATION: &str = "docs/reference/configuration.md";
const SETTINGS: &str = "docs/reference/settings.md";
const CHART: &str = "ops/helm/mortarmq/Chart.yaml";
/// What `serve` takes beside settings, and what commands read of the environment for their own requests.
const OF_COMMANDS: &[&str] = &["config", "dev", "server", "admin", "token", "tls_ca", "context"];

/// Checks all files.
///
/// # Errors
/// When a file cannot be read.
pub fn check(workspace: &Workspace) -> io::Result<Vec<Finding>> {
    let configuration = workspace.read(CONFIGURATION)?;
    let ports = ports(&configuration);
    let mut known = keys(&configuration);
    known.extend(keys(&workspace.read(SETTINGS)?));
    let mut findings = Vec::new();
    for (file, names_ports) in FILES {
        let text = workspace.read(file)?;
        for (line, name) in named(file, &text) {
            if !known.contains(&name) && !OF_COMMANDS.contains(&name.as_str()) {
                findings.push(Finding::at(file, line, format!("{name} is no setting: {CONFIGURATION} has all")));
            }
        }
        let found = numbers(&text);
        for (line, port) in found.iter().filter(|(_, port)| (7100..7200).contains(port) && !ports.contains(port)) {
            findings.push(Finding::at(file, *line, format!("port {port} is the default of no listener")));
        }
        for port in ports.iter().filter(|port| *names_ports && !found.iter().any(|(_, found)| found == *port)) {
            findings.push(Finding::in_file(file, format!("port {port} is not named: a listener has it by default")));
        }
    }
    findings.extend(versions(workspace)?);
    Ok(findings)
}

/// The image is built with the Rust that the workspace asks for, and the chart is of the same version as the binary.
fn versions(workspace: &Workspace) -> io::Result<Vec<Finding>> {
    let manifest = workspace.read("Cargo.toml")?;
    let value = |text: &str, key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix(['=', ':']));
        line.map(|value| value.trim().trim_matches('"').to_owned()).unwrap_or_default()
    };
    let (rust, version) = (value(&manifest, "rust-version"), value(&manifest, "version"));
    let (image, chart) = (workspace.read("Dockerfile")?, workspace.read(CHART)?);
    let mut findings = Vec::new();
    if !image.lines().any(|line| line.starts_with(&format!("FROM rust:{rust}-"))) {
        findings.push(Finding::in_file("Dockerfile", format!("it builds with another Rust than {rust} of Cargo.toml")));
    }
    for key in ["version", "appVersion"] {
        let found = value(&chart, key);
        if found != version {
            findings.push(Finding::in_file(CHART, format!("{key} is {found}, and that of Cargo.toml {version}")));
        }
    }
    Ok(findings)
}

/// The settings of a reference page: the first cells of its tables, up to what is refused by name.
fn keys(page: &str) -> BTreeSet<String> {
    let rows = page.lines().take_while(|line| !line.starts_with("## Known, and refused"));
    rows.filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned())).collect()
}

/// The ports that listeners have by default.
fn ports(configuration: &str) -> BTreeSet<u32> {
    let rows = configuration.lines().filter(|line| line.starts_with("| `listen_"));
    rows.filter_map(|row| row.split('|').nth(2)?.trim().trim_matches('`').rsplit_once(':')?.1.parse().ok()).collect()
}

/// Every setting that a file names, each with its line.
fn named(file: &str, text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut is_below_config = false;
    for (index, line) in text.lines().enumerate() {
        let mut add = |name: &str| found.push((index + 1, name.to_ascii_lowercase()));
        for (at, prefix) in line.match_indices("MORTARMQ_") {
            let name = word(&line[at + prefix.len()..]);
            // `MORTARMQ_` alone stands for all of them.
            if !name.is_empty() {
                add(name);
            }
        }
        if line.contains("mortarmq serve") || line.contains("\"serve\"") {
            line.match_indices(" --").for_each(|(at, dashes)| add(&flag(&line[at + dashes.len()..])));
            line.match_indices("\"--").for_each(|(at, dashes)| add(&flag(&line[at + dashes.len()..])));
        }
        let key = word(line.trim_start());
        if file.ends_with("values.yaml") {
            if !line.starts_with([' ', '#']) && !line.is_empty() {
                is_below_config = line.starts_with("config:");
            } else if is_below_config && !key.is_empty() && line.starts_with("  ") {
                add(key);
            }
        } else if !key.is_empty() && line.starts_with("    ") && line.trim_start()[key.len()..].starts_with(" = ") {
            add(key);
        }
    }
    found
}

/// The letters and underscores that a text begins with.
fn word(text: &str) -> &str {
    &text[..text.find(|c: char| !c.is_ascii_alphabetic() && c != '_').unwrap_or(text.len())]
}

fn flag(text: &str) -> String {
    let end = text.find(|c: char| !c.is_ascii_alphabetic() && c != '-').unwrap_or(text.len());
    text[..end].replace('-', "_")
}

/// Every whole number of a text, each with its line.
fn numbers(text: &str) -> Vec<(usize, u32)> {
    let lines = text.lines().enumerate();
    let of_line = |(index, line): (usize, &str)| {
        let found = line.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok());
        found.map(|number| (index + 1, number)).collect::<Vec<_>>()
    };
    lines.flat_map(of_line).collect()
}
