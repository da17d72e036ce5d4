//! Producers of a soak: keys and none, delays, batches.

use std::time::Duration;

use mortarmq_client::{Message, ProducerOptions, PublishError};
use tokio::task::JoinSet;

use super::chance::Chance;
use super::ground::{Ground, Phase, value_of};
use crate::errors::Failure;
use crate::session;

/// Publishes until the load is over; returns how many were confirmed.
pub(super) async fn run(ground: Ground, number: u32, rate: u32, mut chance: Chance) -> Result<u64, Failure> {
    let client = ground.connect(&format!("producer-{number}")).await?;
    let options = ProducerOptions { max_outstanding: 128, ..ProducerOptions::default() };
    let producer = client.producer(&ground.topic, options).await.map_err(|error| session::failure(&error))?;
    let mut answers = JoinSet::new();
    let mut tick = tokio::time::interval(Duration::from_secs_f64(f64::from(PRODUCERS) / f64::from(rate)));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut count, mut confirmed) = (0_u64, 0_u64);
    while ground.phase() == Phase::Load {
        tick.tick().await;
        let messages = if chance.below(50) == 0 { 1 + chance.below(4) } else { 1 };
        let drafts: Vec<Draft> = (0..messages).map(|_| Draft::next(number, &mut count, &mut chance)).collect();
        let batch: Vec<Message<'_>> = drafts.iter().map(Draft::message).collect();
        if let [message] = &*batch {
            let receipt = producer.send(message.clone()).await.map_err(|error| session::failure(&error))?;
            answers.spawn(async move { receipt.await.map(|_| 1) });
        } else {
            // A batch is waited for: what follows is sent behind it.
            confirmed += producer.publish_batch(&batch).await.map_or(0, |published| published.len() as u64);
        }
        while let Some(answer) = answers.try_join_next() {
            confirmed += stored(answer);
        }
    }
    while let Some(answer) = answers.join_next().await {
        confirmed += stored(answer);
    }
    drop(producer);
    client.close().await;
    Ok(confirmed)
}

/// One that is refused is in the history, and no failure of the soak.
fn stored(answer: Result<Result<u64, PublishError>, tokio::task::JoinError>) -> u64 {
    answer.ok().and_then(Result::ok).unwrap_or(0)
}

struct Draft {
    key: String,
    value: Vec<u8>,
    delay_ms: Option<u64>,
}

impl Draft {
    fn next(producer: u32, count: &mut u64, chance: &mut Chance) -> Self {
        let id = format!("p{producer}-{count}");
        *count += 1;
        let key = match chance.below(KEYS * 3 / 2) {
            key if key < KEYS => format!("key-{key}"),
            _ => String::new(),
        };
        let value = value_of(&id, usize::try_from(chance.below(200)).unwrap_or_default());
        let delay_ms = (chance.below(25) == 0).then(|| 50 + chance.below(500));
        Self { key, value, delay_ms }
    }

    fn message(&self) -> Message<'_> {
        Message { key: self.key.as_bytes(), delay_ms: self.delay_ms, ..Message::of(&self.value) }
    }
}

pub(super) const PRODUCERS: u32 = 3;
const KEYS: u64 = 60;
