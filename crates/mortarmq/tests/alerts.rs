//! The alert rules: each fires on the series it is for and not before. The series stand in ops/alerts.test.yaml, and `promtool`
//! plays them; where it is not installed, only that no rule lacks them is tested.

use std::path::Path;
use std::process::Command;

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops").join(name);
    std::fs::read_to_string(path).expect("it is there")
}

#[test]
fn every_alert_has_series_on_which_it_fires_and_some_on_which_it_does_not() {
    let (rules, series) = (read("alerts.yaml"), read("alerts.test.yaml"));
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    for alert in alerts {
        // In flow style nothing is expected; in block style what fires stands below.
        let quiet = format!("alertname: {alert}}}");
        let fires = series.split(&format!("alertname: {alert}\n")).nth(1);
        let fires = fires.is_some_and(|rest| rest.trim_start().starts_with("exp_alerts:"));
        assert!(series.contains(&quiet) && fires, "{alert} has no series");
    }
}

#[test]
fn promtool_plays_the_series_as_they_are_expected() {
    let ops = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops");
    for args in [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts.test.yaml"]] {
        let done = match Command::new("promtool").args(args).current_dir(&ops).output() {
            Ok(done) => done,
            Err(error) => return println!("promtool is not here ({error}): nothing was played"),
        };
        let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "promtool {args:?}: {said}");
    }
}
