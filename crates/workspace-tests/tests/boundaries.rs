//! Arrows between crates only point down; `ARCHITECTURE.md` shows them.

use mortarmq_workspace_tests::boundaries::{ARROWS, ORDER, check, check_manifest};
use mortarmq_workspace_tests::{Workspace, report};

#[test]
fn no_arrow_of_this_workspace_points_up() {
    let findings = check(&Workspace::here()).expect("the manifests of this repository are readable");
    assert!(findings.is_empty(), "\n{}", report(findings));
}

#[test]
fn the_table_itself_points_down() {
    let rank = |name: &str| ORDER.iter().position(|other| *other == name);
    assert_eq!(ARROWS.len(), ORDER.len());
    for (name, allowed) in ARROWS {
        for target in *allowed {
            assert!(rank(target) < rank(name), "{name} → {target}");
        }
    }
}

#[test]
fn an_arrow_that_points_up_is_found_in_every_section() {
    // Goal: no way of writing a dependency hides it. Method: the same bad arrow in each.
    let samples = [
        "[dependencies]\nmortarmq-node.workspace = true",
        "[dependencies]\nmortarmq-node = { path = \"../node\" }",
        "[dependencies]\nupper = { package = \"mortarmq-node\", path = \"../node\" }",
        "[dependencies.mortarmq-node]\nworkspace = true",
        "[build-dependencies]\nmortarmq-node.workspace = true",
        "[dev-dependencies]\nmortarmq-node.workspace = true",
        "[target.'cfg(unix)'.dependencies]\nmortarmq-node.workspace = true",
    ];
    for sample in samples {
        let findings = report(check_manifest("delivery", "Cargo.toml", sample));
        assert!(findings.contains("the arrow delivery → node points up"), "{sample}\n{findings}");
    }
}

#[test]
fn an_arrow_down_that_nobody_agreed_on_is_found() {
    for (name, target) in [("http", "wire"), ("http", "replica"), ("http", "storage"), ("client", "types-of-others")] {
        let manifest = format!("[dependencies]\nmortarmq-{target}.workspace = true");
        let findings = check_manifest(name, "Cargo.toml", &manifest);
        assert_eq!(findings.len(), 1, "{name} → {target}");
    }
}

#[test]
fn test_code_may_use_lower_crates_and_no_other() {
    let manifest = "[dev-dependencies]\nmortarmq-wire.workspace = true\ntempfile.workspace = true";
    assert_eq!(check_manifest("delivery", "Cargo.toml", manifest), []);
    let own = "[dev-dependencies]\nmortarmq-server.workspace = true";
    assert_eq!(check_manifest("client", "Cargo.toml", own).len(), 1);
}

#[test]
fn an_unknown_crate_is_found() {
    let findings = report(check_manifest("gossip", "crates/gossip/Cargo.toml", ""));
    assert!(findings.contains("add it to ARCHITECTURE.md and here"), "{findings}");
    let findings = report(check_manifest("node", "Cargo.toml", "[dependencies]\nmortarmq-gossip = \"1\""));
    assert!(findings.contains("add it to ARCHITECTURE.md and here"), "{findings}");
}
