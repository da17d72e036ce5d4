//! The end of a run: everything is healed, read until it is empty, compared and judged.

use std::path::Path;

use mortarmq_check::{AsText, Options, Verdict, check};
use mortarmq_history::{Limits, Operate, OperateKind, Reader, Record};

use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome, ensure};
use crate::load::Load;
use crate::operator::Books;
use crate::run::Run;
use crate::wait::wait_for;

/// Heals, drains and compares; then everything of the run is in the history, and all nodes are down.
///
/// # Errors
/// Whatever does not come back, is left over or does not add up.
pub(crate) fn conclude(run: &mut Run) -> Outcome {
    run.heal_all()?;
    run.goes_on()?;
    let standing = run.standing();
    let (cluster, load) = run.parts();
    load.calm()?;
    wait_for("everything that is owed comes", DRAIN_LIMIT, || {
        cluster.check_alive()?;
        load.check_alive()?;
        let (_, books) = cluster.books()?;
        Ok((Load::owed(&books) == 0).then_some(()))
    })?;
    load.drain()?;
    let call_ns = Load::now_ns();
    let (leader, books) = cluster.books()?;
    load.finish(&books, leader, call_ns)?;
    compare(load, &books)?;
    hand_over(cluster, leader, &books, &standing)?;
    for node in standing {
        if cluster.up().contains(&node) {
            cluster.take(node)?.stop()?;
        }
        cluster.verify(node)?;
    }
    Ok(())
}

/// The books balance, nothing is left, and everything that was confirmed came.
fn compare(load: &Load, books: &Books) -> Outcome {
    for path in &books.paths {
        let counters = path.counters();
        ensure(counters.balances() && counters.depth == 0, || format!("P9: {}: {counters:?}", path.path()))?;
    }
    for path in Load::paths() {
        let missing = load.tally().missing(&path);
        let first = &missing[..missing.len().min(5)];
        ensure(missing.is_empty(), || {
            format!("P1, P4: {} confirmed messages never came on {path}: {first:?} …", missing.len())
        })?;
    }
    Ok(())
}

/// The leader stops as an operator stops it: the books are the same on whoever leads next.
fn hand_over(cluster: &mut Cluster, leader: usize, books: &Books, standing: &[usize]) -> Outcome {
    cluster.take(leader)?.stop()?;
    if standing.len() < 3 {
        // One alone has no majority.
        return Ok(());
    }
    let (heir, told) = cluster.books()?;
    for (before, after) in books.paths.iter().zip(&told.paths) {
        ensure(before.path() == after.path() && before.counters() == after.counters(), || {
            format!("P9: node {leader} told {before:?}, node {heir} tells {after:?}")
        })?;
    }
    ensure(books.paths.len() == told.paths.len(), || format!("node {heir} knows other paths: {told:?}"))
}

/// The checker's word on a history, as strictly as it can be: faults excuse nothing.
///
/// # Errors
/// Every verdict that is not OK, with the whole report.
pub(crate) fn judge(history: &Path) -> Outcome {
    let files = [history.to_path_buf()];
    let open = || Reader::open(&files, Limits::default());
    let options = Options { is_strict: true, ..Options::default() };
    let report = check(&open, &options, &mut |_| {}).map_err(|error| Failure::History(error.to_string()))?;
    let aside = history.with_file_name("report.txt");
    std::fs::write(&aside, AsText(&report).to_string()).map_err(crate::failure::machine("cannot write the report"))?;
    ensure(report.verdict == Verdict::Ok && report.read.publishes > 0, || {
        format!("the checker says {}: {} ({})", report.verdict.word(), report.reason, aside.display())
    })?;
    let lost = lost_sessions(open().map_err(|error| Failure::History(error.to_string()))?)?;
    ensure(lost.is_empty(), || {
        format!("P7: consumers that were never silent for so long lost their sessions: {lost:?}")
    })
}

/// Consumers that lost a session which outlives every failover, and every silence of a client that lives. The checker takes their
/// word for it, as it knows nothing of who is alive.
fn lost_sessions(mut reader: Reader) -> Outcome<Vec<String>> {
    let mut lost = Vec::new();
    while let Some(line) = reader.next_line().map_err(|error| Failure::History(error.to_string()))? {
        if let Ok(Record::Operate(Operate { client: Some(client), kind: OperateKind::Leave, ret: None, .. })) =
            line.content
            && client.starts_with(Load::LASTING)
        {
            lost.push(client.into_owned());
        }
    }
    Ok(lost)
}

/// Longer than leases, sessions and every backoff together, on a machine that is busy.
const DRAIN_LIMIT: std::time::Duration = std::time::Duration::from_secs(90);

#[cfg(test)]
mod tests {
    use super::judge;

    /// A history of one message that was published and acked, and what else is said.
    fn judged(more: &str) -> Result<(), String> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let history = folder.path().join("history.jsonl");
        let whole = r#"{"op":"run","v":1,"paths":[{"path":"orders/billing","topic":"orders","lease_ms":2000}]}
{"op":"publish","topic":"orders","msg":"a","call":1,"ret":2,"outcome":"ok","commit":1,"epoch":1}
{"op":"deliver","client":"billing-1","path":"orders/billing","msg":"a","call":1,"ret":3,"delivery_id":1,"attempt":1,"cause":"first","commit":2,"epoch":1}
{"op":"ack","client":"billing-1","path":"orders/billing","msg":"a","delivery_id":1,"call":4,"ret":5,"outcome":"ok","commit":3,"epoch":1}
{"op":"end","at":100,"drained":true}
"#;
        std::fs::write(&history, format!("{whole}{more}")).expect("there is room");
        judge(&history).map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_whole_history_is_ok_and_what_is_missing_or_comes_again_is_not() {
        assert_eq!(judged(""), Ok(()));
        let lost =
            r#"{"op":"publish","topic":"orders","msg":"b","call":1,"ret":2,"outcome":"ok","commit":4,"epoch":1}"#;
        assert!(judged(&format!("{lost}\n")).is_err_and(|why| why.contains("found: loss")));
        // A fault excuses nothing.
        let again = r#"{"op":"fault","kind":"kill","node":0,"call":6,"ret":7}
{"op":"deliver","client":"billing-1","path":"orders/billing","msg":"a","call":1,"ret":9,"delivery_id":2,"attempt":2,"cause":"lease_expired","prev":1,"commit":5,"epoch":1}"#;
        let told = judged(&format!("{again}\n"));
        assert!(told.as_ref().is_err_and(|why| why.contains("ANOMALY")), "{told:?}");
    }

    #[test]
    fn p7_a_session_that_outlives_every_failover_may_not_be_lost() {
        let leave = |client: &str, end: &str| {
            let head = r#"{"op":"operate","kind":"leave","path":"orders/billing","call":6"#;
            judged(&format!("{head},\"client\":\"{client}\",{end}}}\n"))
        };
        assert!(leave("billing-1", r#""outcome":"unknown""#).is_err_and(|why| why.contains("P7")));
        assert_eq!(leave("mortal-1", r#""outcome":"unknown""#), Ok(()), "it died");
        assert_eq!(leave("billing-1", r#""outcome":"ok","ret":7"#), Ok(()), "it left");
    }
}
