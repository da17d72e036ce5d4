//! Consuming: takes messages and acks them, many acks under way at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mortarmq_client::{Client, Consumer, ConsumerOptions, SettleReceipt};
use tokio::task::JoinSet;

use super::measure::Plan;
use super::payload::made_at;
use crate::bench::Recorder;
use crate::errors::Failure;
use crate::session;

/// What was consumed in the span.
pub(super) struct Consumed {
    /// Each message, from the call that published it to its delivery.
    pub(super) delivered: Recorder,
    /// Each ack, from its call to its answer.
    pub(super) acked: Recorder,
}

/// Makes the group, so that what is published from now on is owed to it, also by a floor.
pub(super) async fn make_group(client: &Client, plan: &Plan) -> Result<(), Failure> {
    let options = ConsumerOptions { credit_messages: Some(0), ..ConsumerOptions::default() };
    let consumer = client.consumer(&plan.topic, GROUP, options).await.map_err(|error| session::failure(&error))?;
    consumer.close().await.map_err(|error| session::failure(&error))
}

/// A consumer on each connection.
pub(super) async fn subscribe(clients: Vec<Client>, plan: &Plan) -> Result<Vec<Consumer>, Failure> {
    let mut consumers = Vec::with_capacity(clients.len());
    for client in clients {
        let options = ConsumerOptions {
            credit_messages: Some(plan.load.credit),
            credit_bytes: Some(CREDIT_BYTES),
            ..ConsumerOptions::default()
        };
        let consumer = client.consumer(&plan.topic, GROUP, options).await;
        consumers.push(consumer.map_err(|error| session::failure(&error))?);
    }
    Ok(consumers)
}

/// Consumes until the span is over, or so many messages are acked.
pub(super) async fn run(consumers: Vec<Consumer>, plan: &Plan, backlog: Option<u64>) -> Result<Consumed, Failure> {
    let left = Arc::new(AtomicU64::new(backlog.unwrap_or(u64::MAX)));
    let mut tasks = JoinSet::new();
    for consumer in consumers {
        tasks.spawn(one(consumer, plan.clone(), Arc::clone(&left)));
    }
    let mut all = Consumed { delivered: Recorder::new(plan.span), acked: Recorder::new(plan.span) };
    while let Some(ended) = tasks.join_next().await {
        let part = ended.expect("a consumer does not panic")?;
        all.delivered.add(&part.delivered);
        all.acked.add(&part.acked);
    }
    Ok(all)
}

async fn one(mut consumer: Consumer, plan: Plan, left: Arc<AtomicU64>) -> Result<Consumed, Failure> {
    let mut all = Consumed { delivered: Recorder::new(plan.span), acked: Recorder::new(plan.span) };
    let mut open = VecDeque::new();
    let mut check = tokio::time::interval(CHECK_PERIOD);
    while !plan.span.is_over() && left.load(Ordering::Relaxed) > 0 {
        tokio::select! {
            biased;
            begun = first(&mut open), if !open.is_empty() => {
                all.acked.record(begun?, 1);
                // Another may have taken the last one: it stays at 0.
                let _ = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            }
            next = consumer.next() => {
                let Some(delivery) = next else { break };
                let delivery = delivery.map_err(|error| session::failure(&error))?;
                let now = Instant::now();
                if let Some(made) = made_at(plan.epoch, &delivery.value) {
                    all.delivered.record_at(made, now, 1);
                }
                open.push_back((now, delivery.ack()));
            }
            _ = check.tick() => {}
        }
    }
    consumer.close().await.map_err(|error| session::failure(&error))?;
    Ok(all)
}

/// When the oldest ack was sent, once it is answered. It stays in the queue until then, because `select!` may drop this
/// future.
async fn first(open: &mut VecDeque<(Instant, SettleReceipt)>) -> Result<Instant, Failure> {
    let (begun, receipt) = open.front_mut().expect("the caller has looked");
    let begun = *begun;
    receipt.await.map_err(|error| session::failure(&error))?;
    open.pop_front();
    Ok(begun)
}

const GROUP: &str = "bench";
/// Large enough never to be what limits.
const CREDIT_BYTES: u32 = 64 * 1024 * 1024;
/// How soon a consumer that gets nothing sees that it is over.
const CHECK_PERIOD: Duration = Duration::from_millis(50);
