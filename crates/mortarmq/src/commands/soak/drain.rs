//! The end of a soak: every path is read until it is empty twice, and the books are compared.

use std::time::{Duration, Instant};

use mortarmq_client::{ConsumerOptions, PullOptions};
use tokio::task::JoinSet;

use super::ground::{DLQ_GROUP, GROUPS, Ground};
use super::operate;
use crate::commands::balance;
use crate::errors::Failure;
use crate::output::{RowArgs, note};
use crate::session;

/// Waits until nothing is owed but dead letters, which nobody reads yet.
pub(super) async fn wait_until_empty(
    ground: &Ground,
    workers: &mut JoinSet<Result<(), Failure>>,
) -> Result<(), Failure> {
    let start = Instant::now();
    loop {
        if let Some(ended) = workers.try_join_next() {
            ended.map_err(|error| super::failed(&error))??;
        }
        let of_ground = ground.clone();
        let asked = tokio::task::spawn_blocking(move || operate::books(&of_ground)).await;
        let books = asked.map_err(|error| super::failed(&error))??;
        let owed: u64 = books.paths.iter().filter(|books| books.topic == *ground.topic).map(|books| books.depth).sum();
        if owed == 0 {
            return Ok(());
        }
        if start.elapsed() > EMPTY_LIMIT {
            let what = format!("{owed} messages did not come for {} s", EMPTY_LIMIT.as_secs());
            return Err(super::failed(&what));
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// Reads every path until it is empty twice, writes the end, and prints the books.
pub(super) async fn run(ground: &Ground, rows: RowArgs) -> Result<(), Failure> {
    for group in GROUPS {
        let options = ConsumerOptions { credit_messages: Some(0), ..group.options() };
        empty(ground, &ground.topic, group.name, options).await?;
    }
    let options = ConsumerOptions { credit_messages: Some(0), ..ConsumerOptions::default() };
    empty(ground, &ground.dlq, DLQ_GROUP, options).await?;

    let books = operate::books(ground)?;
    ground.recorder.record(&books.end(Ground::now_ns()));
    balance::print(&books, rows)?;
    let left: u64 = books.paths.iter().map(|books| books.depth).sum();
    if left > 0 {
        note(format_args!("{left} messages are left over"));
    }
    if left == 0 && books.unbalanced() == 0 { Ok(()) } else { Err(Failure::Verdict) }
}

async fn empty(ground: &Ground, topic: &str, group: &str, options: ConsumerOptions) -> Result<(), Failure> {
    let client = ground.connect("last").await?;
    let consumer = client.consumer(topic, group, options).await.map_err(|error| session::failure(&error))?;
    let mut empty_times = 0;
    while empty_times < 2 {
        let pull = PullOptions { max_messages: 256, wait_ms: 300, ..PullOptions::default() };
        let deliveries = consumer.pull(pull).await.map_err(|error| session::failure(&error))?;
        empty_times = if deliveries.is_empty() { empty_times + 1 } else { 0 };
        let acks: Vec<_> = deliveries.iter().map(|delivery| delivery.ack()).collect();
        for ack in acks {
            // How it was answered is in the history.
            let _ = ack.await;
        }
    }
    consumer.close().await.map_err(|error| session::failure(&error))?;
    client.close().await;
    Ok(())
}

/// Longer than a lease, a session and every backoff together, on a machine that is busy.
const EMPTY_LIMIT: Duration = Duration::from_secs(60);
const ASK_EVERY: Duration = Duration::from_millis(100);
