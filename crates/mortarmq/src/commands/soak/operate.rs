//! What operators do meanwhile: they read the counters, bring dead letters back, and empty a path once.

use std::borrow::Cow;
use std::time::Duration;

use mortarmq_history::{Operate, OperateKind, Outcome, Record, Scrape};
use serde::Deserialize;
use serde_json::{Value, json};

use super::ground::{AUDIT, BILLING, Ground, Phase};
use crate::admin::Route;
use crate::commands::balance::{Balance, Books};
use crate::errors::Failure;

/// Reads the counters until the end, also while the node starts again.
pub(super) fn scrape(ground: &Ground) {
    let Ok(admin) = ground.operator() else { return };
    while ground.phase() < Phase::End {
        let call = Ground::now_ns();
        if let Ok(balance) = Balance::ask(&admin, None) {
            record_scrape(ground, &balance, call, Ground::now_ns());
        }
        std::thread::sleep(SCRAPE_EVERY);
    }
}

pub(super) fn record_scrape(ground: &Ground, balance: &Balance, call: u64, ret: u64) {
    for books in balance.paths.iter().filter(|books| is_ours(ground, books)) {
        ground.recorder.record(&Record::Scrape(Scrape {
            path: format!("{}/{}", books.topic, books.group).into(),
            node: None,
            call,
            ret: Some(ret),
            commit: Some(balance.commit_index),
            epoch: Some(balance.epoch),
            counters: books.counters(),
            stale: false,
        }));
    }
}

pub(super) fn is_ours(ground: &Ground, books: &Books) -> bool {
    books.topic == *ground.topic || books.topic == *ground.dlq
}

/// Redrives again and again, and purges one path in the middle.
pub(super) async fn run(ground: Ground, limit: Duration) {
    let steps = (limit.as_millis() / REDRIVE_EVERY.as_millis()).max(2);
    for step in 1..=steps {
        tokio::time::sleep(limit / u32::try_from(steps + 1).unwrap_or(u32::MAX)).await;
        let is_middle = step == steps / 2 + 1;
        let ground = ground.clone();
        let done = tokio::task::spawn_blocking(move || {
            if is_middle {
                purge(&ground);
            }
            redrive(&ground);
        });
        // A panic in it was printed; the next step goes on.
        let _ = done.await;
    }
}

/// One at a time: the answer to many rests on the index of the last, and the first may be delivered again before it.
fn redrive(ground: &Ground) {
    let body = json!({"action": "redrive", "limit": 1});
    let [billing, audit] = [BILLING, AUDIT].map(|group| ground.path(group));
    for _ in 0..REDRIVES {
        operate(ground, OperateKind::Redrive, &[&billing, &audit], "dlq", &body);
    }
}

fn purge(ground: &Ground) {
    operate(ground, OperateKind::Purge, &[&ground.path(AUDIT)], "purge", &json!({"group": AUDIT}));
}

fn operate(ground: &Ground, kind: OperateKind, paths: &[&str], route: &str, body: &Value) {
    let call = Ground::now_ns();
    let route = Route { path: &["v1", "topics", &ground.topic, route], query: &[] };
    let answer = ground.operator().and_then(|admin| admin.post_of_topic::<Answer>(&ground.topic, route, body));
    let ret = Ground::now_ns();
    // Without an answer nobody knows what was done; one that says no may follow an attempt that did something.
    let outcome = if answer.is_ok() { Outcome::Ok } else { Outcome::Unknown };
    for path in paths {
        ground.recorder.record(&Record::Operate(Operate {
            client: Some(Cow::Borrowed("operator")),
            kind,
            path: Cow::Borrowed(path),
            msg: None,
            call,
            ret: answer.is_ok().then_some(ret),
            outcome,
            commit: answer.as_ref().ok().map(|answer| answer.commit_index),
            epoch: answer.as_ref().ok().map(|answer| answer.epoch),
        }));
    }
}

/// Where the answer to a change stands.
#[derive(Deserialize)]
struct Answer {
    commit_index: u64,
    epoch: u64,
}

/// What the broker owes by its own books.
pub(super) fn books(ground: &Ground) -> Result<Balance, Failure> {
    let mut balance = Balance::ask(&ground.operator()?, None)?;
    balance.paths.retain(|books| is_ours(ground, books));
    balance.without_group.clear();
    Ok(balance)
}

const SCRAPE_EVERY: Duration = Duration::from_millis(100);
const REDRIVE_EVERY: Duration = Duration::from_millis(700);
const REDRIVES: u32 = 10;
