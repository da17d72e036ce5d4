//! What a node is deployed with names settings, ports and versions of this workspace and no others.

use std::fs;
use std::path::Path;

use mortarmq_workspace_tests::deployment::check;
use mortarmq_workspace_tests::{Workspace, report};

#[test]
fn the_deployment_files_say_what_is_true_of_this_version() {
    let findings = check(&Workspace::here()).expect("the files are there");
    assert!(findings.is_empty(), "\n{}", report(findings));
}

/// A copy of what is checked, with one text changed in one file, and what is found in it.
fn found_with(file: &str, from: &str, to: &str) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let here = Workspace::here();
    for checked in [
        "Cargo.toml",
        "Dockerfile",
        "docs/deploying.md",
        "docs/reference/configuration.md",
        "docs/reference/settings.md",
        "ops/compose.yaml",
        "ops/mortarmq.service",
        "ops/helm/mortarmq/Chart.yaml",
        "ops/helm/mortarmq/values.yaml",
        "ops/helm/mortarmq/templates/configmap.yaml",
        "ops/helm/mortarmq/templates/services.yaml",
        "ops/helm/mortarmq/templates/statefulset.yaml",
    ] {
        let mut text = here.read(checked).expect("the file is there");
        if checked == file {
            assert!(text.contains(from), "{file} has no {from:?}");
            text = text.replace(from, to);
        }
        let path = folder.path().join(checked);
        fs::create_dir_all(path.parent().unwrap_or(Path::new(""))).expect("a folder can be made");
        fs::write(path, text).expect("a file can be written");
    }
    report(check(&Workspace::at(folder.path().to_owned())).expect("the files are there"))
}

#[test]
fn a_setting_that_does_not_exist_is_found_wherever_it_stands() {
    let chart = "ops/helm/mortarmq";
    for (file, from, to, found) in [
        ("Dockerfile", "MORTARMQ_DATA_DIR", "MORTARMQ_DATA_FOLDER", "data_folder"),
        ("ops/compose.yaml", "MORTARMQ_LOG_FORMAT", "MORTARMQ_LOG_STYLE", "log_style"),
        ("ops/mortarmq.service", "--data-dir", "--data-folder", "data_folder"),
        (&format!("{chart}/values.yaml"), "  log_level:", "  log_lvel:", "log_lvel"),
        (&format!("{chart}/templates/configmap.yaml"), "listen_peer =", "listen_peers =", "listen_peers"),
        (&format!("{chart}/templates/configmap.yaml"), "listen_peer =", "listen_http =", "listen_http"),
        (&format!("{chart}/templates/statefulset.yaml"), "MORTARMQ_NODE_ID", "MORTARMQ_NODE", "node"),
    ] {
        let report = found_with(file, from, to);
        assert!(report.starts_with(file) && report.contains(&format!(": {found} is no setting")), "{file}: {report}");
        assert_eq!(report.lines().count(), 1, "{report}");
    }
}

#[test]
fn another_port_another_rust_and_another_version_are_found() {
    let report = found_with("Dockerfile", "7190", "7191");
    assert!(report.contains("port 7191 is the default of no listener"), "{report}");
    assert!(report.contains("port 7190 is not named"), "{report}");
    let report = found_with("Cargo.toml", "rust-version = \"1.95\"", "rust-version = \"1.96\"");
    assert_eq!(report, "Dockerfile: it builds with another Rust than 1.96 of Cargo.toml\n");
    let report = found_with("ops/helm/mortarmq/Chart.yaml", "appVersion: \"", "appVersion: \"9");
    assert!(report.starts_with("ops/helm/mortarmq/Chart.yaml: appVersion is 9"), "{report}");
}
