//! Producers with numbers: each message is repeated until it is answered, and stored once.

use std::time::{Duration, Instant};

use mortarmq_client::{Message, ProducerOptions, PublishError, Published};
use tokio::task::JoinSet;

use super::site::{Phase, Site, TOPIC, value_of};
use crate::chance::Chance;

/// Publishes until the load is over, and waits for every answer.
///
/// # Errors
/// What no repeat helps against.
pub(crate) async fn run(site: Site, number: usize, mut chance: Chance) -> Result<(), String> {
    let told = |error: &dyn std::fmt::Display| format!("producer {number}: {error}");
    let client = site.connect(&format!("producer-{number}"), number).await;
    let options = ProducerOptions { max_outstanding: OUTSTANDING, ..ProducerOptions::default() };
    let producer = client.producer(TOPIC, options).await.map_err(|error| told(&error))?;
    let mut answers = JoinSet::new();
    let mut tick = tokio::time::interval(BETWEEN_SENDS);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut count = 0_u64;
    while site.phase() == Phase::Load {
        tick.tick().await;
        let messages = if chance.below(50) == 0 { 1 + chance.below(4) } else { 1 };
        let drafts: Vec<Draft> = (0..messages).map(|_| Draft::next(number, &mut count, &mut chance)).collect();
        let called = Instant::now();
        if let [draft] = &*drafts {
            let receipt = producer.send(draft.message()).await.map_err(|error| told(&error))?;
            let (site, id) = (site.clone(), draft.id.clone());
            answers.spawn(async move { note(&site, &[id], called, receipt.await.map(|one| vec![one])) });
        } else {
            // A batch is waited for: what follows is sent behind it.
            let batch: Vec<Message<'_>> = drafts.iter().map(Draft::message).collect();
            let ids: Vec<String> = drafts.iter().map(|draft| draft.id.clone()).collect();
            note(&site, &ids, called, producer.publish_batch(&batch).await);
        }
        while answers.try_join_next().is_some() {}
    }
    while answers.join_next().await.is_some() {}
    drop(producer);
    client.close().await;
    Ok(())
}

/// Publishes so many large messages without keys, a few at a time.
///
/// # Errors
/// What no repeat helps against.
pub(crate) async fn bulk(site: &Site, number: usize, messages: usize) -> Result<(), String> {
    let client = site.connect(&format!("bulk-{number}"), 0).await;
    let producer = client.producer(TOPIC, ProducerOptions::default()).await.map_err(|error| error.to_string())?;
    for first in (0..messages).step_by(BULK_AT_ONCE) {
        let ids: Vec<String> = (first..first + BULK_AT_ONCE).map(|count| format!("b{number}-{count}")).collect();
        let values: Vec<Vec<u8>> = ids.iter().map(|id| value_of(id, BULK_BYTES)).collect();
        let batch: Vec<Message<'_>> = values.iter().map(|value| Message::of(value)).collect();
        let called = Instant::now();
        note(site, &ids, called, producer.publish_batch(&batch).await);
    }
    drop(producer);
    client.close().await;
    Ok(())
}

/// Counts what was confirmed. What was refused is in the history.
fn note(site: &Site, ids: &[String], called: Instant, answer: Result<Vec<Published>, PublishError>) {
    if answer.is_ok() {
        ids.iter().for_each(|id| site.tally.published(id, called));
    }
}

struct Draft {
    id: String,
    key: String,
    value: Vec<u8>,
    delay_ms: Option<u64>,
}

impl Draft {
    fn next(producer: usize, count: &mut u64, chance: &mut Chance) -> Self {
        let id = format!("p{producer}-{count}");
        *count += 1;
        let key = match chance.below(KEYS * 3 / 2) {
            key if key < KEYS => format!("key-{key}"),
            _ => String::new(),
        };
        let value = value_of(&id, usize::try_from(chance.below(MOST_FILLER_BYTES)).unwrap_or_default());
        let delay_ms = (chance.below(25) == 0).then(|| 50 + chance.below(500));
        Self { id, key, value, delay_ms }
    }

    fn message(&self) -> Message<'_> {
        Message { key: self.key.as_bytes(), delay_ms: self.delay_ms, ..Message::of(&self.value) }
    }
}

const BULK_AT_ONCE: usize = 5;
const BULK_BYTES: usize = 800 << 10;
/// How many there are.
pub(crate) const PRODUCERS: usize = 3;
/// How many of a producer may wait: what gathers in an outage, and has to be drained after it.
const OUTSTANDING: usize = 64;
/// Some hundred a second in all: enough for every batch to hold several, few enough for a busy machine.
const BETWEEN_SENDS: Duration = Duration::from_millis(12);
const KEYS: u64 = 60;
/// Some kilobytes a second of journal, so that checkpoints and roll-overs come by.
const MOST_FILLER_BYTES: u64 = 2_000;
