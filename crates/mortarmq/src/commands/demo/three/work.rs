//! The load: a producer of numbered orders, and consumers of two groups.

use std::time::{Duration, Instant};

use mortarmq_client::{Client, Consumer, ConsumerOptions, Delivery, Message, ProducerOptions};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::tally::Tally;
use super::{BILLING, DEAD_ORDER, MAX_ATTEMPTS, TOPIC};
use crate::commands::demo::failed;
use crate::errors::Failure;
use crate::session;

/// Something that goes on until it is told to stop.
pub(super) struct Work {
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), Failure>>,
}

impl Work {
    /// Sends orders at a steady pace, whether they are confirmed or not. Its end waits for every answer.
    pub(super) fn produce(client: Client, tally: Tally) -> Self {
        let (stop, stopped) = watch::channel(false);
        Self { stop, task: tokio::spawn(produce(client, tally, stopped)) }
    }

    /// Consumes for a group. Its end waits until what it has asked for is answered, and gives back the rest.
    pub(super) fn consume(client: Client, consumer: Consumer, group: &'static str, tally: Tally) -> Self {
        let (stop, stopped) = watch::channel(false);
        Self { stop, task: tokio::spawn(consume(client, consumer, group, tally, stopped)) }
    }

    /// Ends it.
    pub(super) async fn end(self) -> Result<(), Failure> {
        self.stop.send_replace(true);
        self.task.await.map_err(|error| failed(&error.to_string()))?
    }
}

/// Joins a group, with settings that keep the demonstration short.
pub(super) async fn subscribe(client: &Client, group: &'static str) -> Result<Consumer, Failure> {
    let options = ConsumerOptions::default()
        .set("max_attempts", MAX_ATTEMPTS)
        .set("retry_backoff_base_ms", 100)
        .set("retry_backoff_max_ms", 1000);
    client.consumer(TOPIC, group, options).await.map_err(|error| session::failure(&error))
}

/// The number of an order.
pub(super) fn order_of(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.strip_prefix("order ")?.parse().ok()
}

async fn produce(client: Client, tally: Tally, stopped: watch::Receiver<bool>) -> Result<(), Failure> {
    let producer = client.producer(TOPIC, ProducerOptions::default()).await;
    let producer = producer.map_err(|error| session::failure(&error))?;
    let mut answers = JoinSet::new();
    let mut pace = tokio::time::interval(PACE);
    for number in 0_u64.. {
        pace.tick().await;
        if *stopped.borrow() {
            break;
        }
        let (key, value) = (format!("customer-{}", number % KEYS), format!("order {number}"));
        let message = Message { key: key.as_bytes(), ..Message::of(value.as_bytes()) };
        let sent = Instant::now();
        tally.sent();
        let receipt = producer.send(message).await.map_err(|error| session::failure(&error))?;
        let tally = tally.clone();
        answers.spawn(async move { receipt.await.map(|_| tally.confirmed(sent)) });
    }
    while let Some(answer) = answers.join_next().await {
        let answer = answer.map_err(|error| failed(&error.to_string()))?;
        answer.map_err(|error| session::failure(&error.error))?;
    }
    producer.close().await;
    client.close().await;
    Ok(())
}

async fn consume(
    client: Client,
    mut consumer: Consumer,
    group: &'static str,
    tally: Tally,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), Failure> {
    let mut settles = JoinSet::new();
    loop {
        let delivery = tokio::select! {
            _ = stopped.wait_for(|is_stopped| *is_stopped) => break,
            delivery = consumer.next() => delivery,
        };
        let delivery = delivery.ok_or_else(|| failed("a subscription ended"))?;
        let delivery = delivery.map_err(|error| session::failure(&error))?;
        tally.came(group, delivery.cause);
        settles.spawn(settle(delivery, group, tally.clone()));
        while let Some(settled) = settles.try_join_next() {
            settled.map_err(|error| failed(&error.to_string()))??;
        }
    }
    while let Some(settled) = settles.join_next().await {
        settled.map_err(|error| failed(&error.to_string()))??;
    }
    consumer.close().await.map_err(|error| session::failure(&error))?;
    client.close().await;
    Ok(())
}

/// Billing refuses one order each time, and some others the first time; everything else is done.
async fn settle(delivery: Delivery, group: &'static str, tally: Tally) -> Result<(), Failure> {
    let order = order_of(&delivery.value).ok_or_else(|| failed("something came that is no order"))?;
    if group == BILLING && order == DEAD_ORDER {
        tally.dies((delivery.partition.get(), delivery.seq.get()));
        return session::is_settled(delivery.nack(0, NO_CUSTOMER).await).map(drop);
    }
    if group == BILLING && order % REFUSED_ONCE == 0 && delivery.attempt.get() == 1 {
        return session::is_settled(delivery.nack(0, "the card reader is offline").await).map(drop);
    }
    if session::is_settled(delivery.ack().await)? {
        tally.acked(group, order);
    }
    Ok(())
}

/// Orders a second: enough to have many under way when the node is killed, and nothing for a slow machine.
pub(super) const RATE: u32 = 500;
const PACE: Duration = Duration::from_millis(1000 / RATE as u64);
const KEYS: u64 = 50;
/// One order of so many is refused the first time that it comes.
const REFUSED_ONCE: u64 = 40;
/// Why the one order is refused.
pub(super) const NO_CUSTOMER: &str = "no such customer";
