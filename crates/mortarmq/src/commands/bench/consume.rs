//! The consuming phase: takes what was published before and acks it, until all of it is acked or the time is up.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use mortarmq_client::{Client, ConsumerOptions, SettleReceipt};
use tokio::task::JoinSet;

use super::Measured;
use crate::bench::Latency;
use crate::errors::Failure;
use crate::session::{self, ServerArgs};

/// Messages that a connection may hold unsettled.
pub(super) const WINDOW: u16 = 2048;

/// Consumes on all connections.
pub(super) async fn run(
    server: &ServerArgs,
    topic: &str,
    connections: u16,
    limit: Duration,
) -> Result<Measured, Failure> {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        let client = server.connect().await?;
        let topic = topic.to_owned();
        tasks.spawn(async move { one(&client, &topic, limit).await });
    }
    let (mut messages, mut latency, mut elapsed) = (0, Latency::new(), Duration::ZERO);
    while let Some(ended) = tasks.join_next().await {
        let (count, part, last) = ended.expect("a consumer does not panic")?;
        messages += count;
        latency.add(&part);
        elapsed = elapsed.max(last - started);
    }
    Ok(Measured { messages, elapsed, latency })
}

/// Acked messages, the latency of each ack, and when the last was answered.
async fn one(client: &Client, topic: &str, limit: Duration) -> Result<(u64, Latency, Instant), Failure> {
    let options = ConsumerOptions {
        credit_messages: Some(WINDOW),
        credit_bytes: Some(CREDIT_BYTES),
        ..ConsumerOptions::default()
    };
    let mut consumer = client.consumer(topic, "bench", options).await.map_err(|error| session::failure(&error))?;
    let (mut acked, mut latency, mut last) = (0, Latency::new(), Instant::now());
    let mut open = VecDeque::new();
    let deadline = tokio::time::Instant::now() + limit;
    loop {
        let idle = tokio::time::Instant::now() + IDLE_LIMIT;
        tokio::select! {
            biased;
            begun = first(&mut open), if !open.is_empty() => {
                let begun = begun?;
                last = Instant::now();
                latency.record(last - begun);
                acked += 1;
            }
            next = consumer.next() => {
                let Some(delivery) = next else { break };
                let delivery = delivery.map_err(|error| session::failure(&error))?;
                open.push_back((Instant::now(), delivery.ack()));
            }
            () = tokio::time::sleep_until(idle.min(deadline)) => break,
        }
        if tokio::time::Instant::now() >= deadline {
            break;
        }
    }
    consumer.close().await.map_err(|error| session::failure(&error))?;
    Ok((acked, latency, last))
}

/// When the oldest ack was sent, once it is answered. It stays in the queue until then, because `select!` may drop this
/// future.
async fn first(open: &mut VecDeque<(Instant, SettleReceipt)>) -> Result<Instant, Failure> {
    let (begun, receipt) = open.front_mut().expect("the caller has looked");
    let begun = *begun;
    session::is_settled(receipt.await)?;
    open.pop_front();
    Ok(begun)
}

/// Large enough never to be what limits.
const CREDIT_BYTES: u32 = 64 * 1024 * 1024;
/// When nothing comes for so long, everything has come.
const IDLE_LIMIT: Duration = Duration::from_millis(500);
