//! Arrows between crates only point down.

use std::io;

use crate::{Finding, Workspace};

/// Every crate, lowest first. Test code may use any crate below its own.
pub const ORDER: &[&str] = &[
    "types",
    "transport",
    "lossyfs",
    "history",
    "wire",
    "client",
    "delivery",
    "shard",
    "replica",
    "storage",
    "node",
    "http",
    "server",
    "check",
    "sim",
    "mortarmq",
    "torture",
    "workspace-tests",
];

/// The arrows that exist: a crate, and all it may depend on. `ARCHITECTURE.md` gives the reasons.
pub const ARROWS: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("transport", &[]),
    ("lossyfs", &[]),
    ("history", &[]),
    ("wire", &["types"]),
    ("client", &["types", "wire", "transport", "history"]),
    ("delivery", &["types"]),
    ("shard", &["types", "delivery"]),
    ("replica", &["types"]),
    ("storage", &["types"]),
    ("node", &["types", "wire", "delivery", "shard", "replica", "storage"]),
    ("http", &["types", "delivery", "shard", "node"]),
    ("server", &["types", "wire", "delivery", "shard", "replica", "storage", "node", "http", "transport"]),
    ("check", &["history"]),
    ("sim", &["types", "wire", "delivery", "shard", "replica", "storage", "node", "history", "check"]),
    ("mortarmq", &["types", "wire", "transport", "client", "server", "history", "check", "sim"]),
    ("torture", &["types", "wire", "client", "history", "check", "lossyfs"]),
    ("workspace-tests", &[]),
];

/// Checks the manifest of every crate, and that `ARCHITECTURE.md` knows the crate.
///
/// # Errors
/// When a manifest cannot be read.
pub fn check(workspace: &Workspace) -> io::Result<Vec<Finding>> {
    let architecture = workspace.read("ARCHITECTURE.md").unwrap_or_default();
    let mut findings = Vec::new();
    for name in workspace.crate_names()? {
        let file = format!("crates/{name}/Cargo.toml");
        findings.extend(check_manifest(&name, &file, &workspace.read(&file)?));
        if !architecture.contains(&format!("| `{name}` |")) {
            findings.push(Finding::in_file(&file, format!("crate {name} has no row in ARCHITECTURE.md")));
        }
    }
    Ok(findings)
}

/// Checks one manifest against the table.
#[must_use]
pub fn check_manifest(crate_name: &str, file: &str, manifest: &str) -> Vec<Finding> {
    let Some(allowed) = allowed(crate_name) else {
        return vec![Finding::in_file(file, format!("crate {crate_name} is unknown: {ADD_IT}"))];
    };
    let table = match manifest.parse::<toml::Table>() {
        Ok(table) => table,
        Err(error) => return vec![Finding::in_file(file, format!("is no TOML: {error}"))],
    };
    let mut findings = Vec::new();
    for (section, dependency) in our_dependencies(&table) {
        let Some(rank) = rank(&dependency) else {
            findings.push(Finding::in_file(file, format!("{section}: crate {dependency} is unknown: {ADD_IT}")));
            continue;
        };
        let points_up = Some(rank) >= self::rank(crate_name);
        let is_listed = allowed.contains(&dependency.as_str()) || section == "dev-dependencies";
        if points_up {
            findings
                .push(Finding::in_file(file, format!("{section}: the arrow {crate_name} → {dependency} points up")));
        } else if !is_listed {
            let allowed = allowed.join(", ");
            let text =
                format!("{section}: the arrow {crate_name} → {dependency} is not in the table (it has: {allowed})");
            findings.push(Finding::in_file(file, text));
        }
    }
    findings
}

fn allowed(crate_name: &str) -> Option<&'static [&'static str]> {
    ARROWS.iter().find(|(name, _)| *name == crate_name).map(|(_, allowed)| *allowed)
}

fn rank(crate_name: &str) -> Option<usize> {
    ORDER.iter().position(|name| *name == crate_name)
}

/// Each dependency on a crate of this workspace, with the section it stands in; target tables included.
fn our_dependencies(manifest: &toml::Table) -> Vec<(&'static str, String)> {
    let mut tables = vec![manifest];
    if let Some(targets) = manifest.get("target").and_then(toml::Value::as_table) {
        tables.extend(targets.values().filter_map(toml::Value::as_table));
    }
    let mut found = Vec::new();
    for table in tables {
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(dependencies) = table.get(section).and_then(toml::Value::as_table) else { continue };
            let names = dependencies.iter().filter_map(|(key, value)| our_crate(key, value));
            found.extend(names.map(|name| (section, name)));
        }
    }
    found
}

/// The folder name of the crate a dependency means, if it is ours: by package name, also when it is renamed.
fn our_crate(key: &str, value: &toml::Value) -> Option<String> {
    let package = value.get("package").and_then(toml::Value::as_str).unwrap_or(key);
    if package == "mortarmq" {
        return Some(package.to_owned());
    }
    package.strip_prefix("mortarmq-").map(str::to_owned)
}

const ADD_IT: &str = "add it to ARCHITECTURE.md and here (crates/workspace-tests/src/boundaries.rs)";
