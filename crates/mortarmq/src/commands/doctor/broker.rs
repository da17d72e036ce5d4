//! A running broker, by what its operator routes tell.

use serde::Deserialize;

use mortarmq_server::known_file_system;

use super::histogram::Scrape;
use super::{Row, cluster, limits};
use crate::admin::{Admin, AdminArgs, Route};
use crate::commands::broker::Broker;
use crate::errors::Failure;

#[derive(Deserialize)]
struct Ready {
    #[serde(default)]
    degraded: Vec<String>,
    #[serde(default)]
    error: String,
}

/// Asks for version, readiness and metrics.
pub(super) fn examine(args: &AdminArgs) -> Result<Vec<Row>, Failure> {
    let admin = Admin::new(args)?;
    let broker = Broker::ask(&admin)?;
    let mut rows = vec![version(&broker.version), who_may(args)?, ready(&admin)?];
    rows.extend(cluster::examine(&broker));
    rows.extend(by_metrics(&Scrape::new(admin.text(METRICS)?.1)));
    Ok(rows)
}

fn version(theirs: &str) -> Row {
    let ours = env!("CARGO_PKG_VERSION");
    if theirs == ours {
        return Row::ok("version", format!("{ours}, this command and the broker"));
    }
    let detail = format!("the broker is {theirs}, this command {ours}: one may not understand the other");
    Row::finding("version", detail, "mortarmq version      (take this command from the broker's release)")
}

/// An open broker listens on its own machine only; a proxy or a forwarded port can let others in all the same.
fn who_may(args: &AdminArgs) -> Result<Row, Failure> {
    const CHECK: &str = "access";
    if args.is_loopback() {
        return Ok(Row::ok(CHECK, "asked over this machine's own address"));
    }
    let stranger = Admin::new(&AdminArgs { token: None, ..args.clone() })?;
    Ok(match stranger.text(BROKER)?.0 {
        401 => Row::ok(CHECK, "credentials are asked for"),
        _ => Row::finding(
            CHECK,
            format!("{} answers whoever asks: anybody who reaches it can read and change everything", args.admin),
            "mortarmq init      (then: mortarmq serve --config mortarmq.toml)",
        ),
    })
}

fn ready(admin: &Admin) -> Result<Row, Failure> {
    const CHECK: &str = "ready";
    let (status, text) = admin.text(Route { path: &["readyz"], query: &[] })?;
    let found: Option<Ready> = serde_json::from_str(&text).ok();
    let found = found.unwrap_or_else(|| Ready { degraded: Vec::new(), error: format!("answered {status}") });
    Ok(match (status, found.degraded.is_empty()) {
        (200, true) => Row::ok(CHECK, "it serves"),
        (200, false) => Row::finding(CHECK, format!("it serves, but: {}", found.degraded.join(", ")), RUNBOOKS),
        _ => Row::finding(CHECK, found.error, RUNBOOKS),
    })
}

fn by_metrics(scrape: &Scrape) -> Vec<Row> {
    if scrape.value("mortarmq_broker_uptime_seconds").is_none() {
        let switch_on = "mortarmq serve --metrics-enabled true";
        return vec![Row::unknown("metrics", "switched off: disk, limits and fsync cannot be looked at", switch_on)];
    }
    let number = |name: &str| scrape.value(name).map(whole);
    let mut rows = Vec::new();
    if let Some(limit) = number("mortarmq_open_files_limit") {
        // How many connections are wanted is not told; every one that was turned away is.
        rows.push(limits::open_files(limit, u32::from(limit < DEFAULT_FILES) * DEFAULT_CONNECTIONS, 1));
    }
    rows.extend(
        scrape
            .label("mortarmq_data_file_system_info", "type")
            .map(|name| limits::file_system(&known_file_system(&name))),
    );
    if let Some(free) = number("mortarmq_disk_free_bytes") {
        rows.push(limits::free_space(free, WANTED_BYTES, None));
    }
    if let Some((count, [p50, p99])) = scrape.quantiles("mortarmq_journal_fsync_seconds", [0.5, 0.99])
        && count > 0.0
    {
        rows.push(limits::fsync(whole(p50 * 1e6), whole(p99 * 1e6), whole(count)));
    }
    rows.push(match number("mortarmq_connections_refused_total").unwrap_or(0) {
        0 => Row::ok("connections", "none was turned away"),
        refused => Row::finding(
            "connections",
            format!("{refused} were turned away at the limit (max_connections) since the start"),
            "mortarmq serve --max-connections N      (and ulimit -n above it)",
        ),
    });
    rows.push(match number("mortarmq_group_unreadable").unwrap_or(0) {
        0 => Row::ok("damage", "no message is held back"),
        held => Row::finding(
            "damage",
            format!("{held} messages are held back because their record is damaged"),
            "mortarmq verify DATA_DIR      (of the stopped node, or of a copy)",
        ),
    });
    rows
}

/// What is below nothing or above all is the nearest there is.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast of a float saturates")]
const fn whole(value: f64) -> u64 {
    value as u64
}

const BROKER: Route<'static> = Route { path: &["v1", "broker"], query: &[] };
const METRICS: Route<'static> = Route { path: &["metrics"], query: &[] };
const RUNBOOKS: &str = "mortarmq broker status      (what to do: docs/runbooks)";
/// The defaults of `max_connections`, and of the files that go with it.
const DEFAULT_CONNECTIONS: u32 = 4096;
const DEFAULT_FILES: u64 = mortarmq_server::FILES_WANTED as u64;
/// Journal up to the next checkpoint, with the defaults; the reserve is held already.
const WANTED_BYTES: u64 = 640 << 20;

#[cfg(test)]
mod tests {
    use super::{Scrape, by_metrics, version};
    use crate::commands::doctor::State;

    #[test]
    fn another_version_is_a_finding() {
        assert_eq!(version(env!("CARGO_PKG_VERSION")).state, State::Ok);
        assert_eq!(version("9.9.9").state, State::Finding);
    }

    #[test]
    fn metrics_that_are_off_are_no_finding_and_no_all_clear() {
        let rows = by_metrics(&Scrape::new("# metrics are switched off\n".to_owned()));
        assert!(rows.len() == 1 && rows[0].state == State::Unknown, "{rows:?}");
    }

    #[test]
    fn what_a_scrape_shows_is_judged() {
        let text = |free: u64, fs: &str, files: u64| {
            format!(
                "mortarmq_broker_uptime_seconds 1\nmortarmq_disk_free_bytes {free}\nmortarmq_open_files_limit {files}\n\
                 mortarmq_data_file_system_info{{type=\"{fs}\"}} 1\nmortarmq_group_unreadable{{topic=\"a\"}} 0\n"
            )
        };
        let states = |text: String| by_metrics(&Scrape::new(text)).iter().map(|row| row.state).collect::<Vec<_>>();
        assert_eq!(states(text(1 << 40, "ext4", 1 << 20)), [State::Ok; 5]);
        let bad = states(text(1 << 20, "nfs", 1024));
        assert_eq!(bad, [State::Finding, State::Finding, State::Finding, State::Ok, State::Ok]);
    }
}
