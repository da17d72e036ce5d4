//! The publishing phases.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use mortarmq_client::{Client, Message, Producer, ProducerOptions};
use tokio::task::JoinSet;

use super::{Load, Measured};
use crate::bench::Latency;
use crate::errors::Failure;
use crate::session::{self, ServerArgs};

/// Publishes from all connections until the time is up and everything is answered.
pub(super) async fn run(server: &ServerArgs, topic: &str, load: Load) -> Result<Measured, Failure> {
    let mut clients = Vec::new();
    for _ in 0..load.connections {
        clients.push(server.connect().await?);
    }
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for client in clients {
        let topic = topic.to_owned();
        tasks.spawn(async move {
            if load.batch == 1 { singles(&client, &topic, load).await } else { batches(&client, &topic, load).await }
        });
    }
    let (mut messages, mut latency) = (0, Latency::new());
    while let Some(ended) = tasks.join_next().await {
        let (count, part) = ended.expect("a producer does not panic")?;
        messages += count;
        latency.add(&part);
    }
    Ok(Measured { messages, elapsed: started.elapsed(), latency })
}

async fn singles(client: &Client, topic: &str, load: Load) -> Result<(u64, Latency), Failure> {
    let (producer, value) = prepared(client, topic, load).await?;
    let (mut messages, mut latency) = (0, Latency::new());
    let mut open = VecDeque::with_capacity(usize::from(load.outstanding));
    let started = Instant::now();
    loop {
        let is_over = started.elapsed() >= load.limit;
        if !is_over && open.len() < usize::from(load.outstanding) {
            let begun = Instant::now();
            let receipt = producer.send(Message::of(&value)).await.map_err(|error| session::failure(&error))?;
            open.push_back((begun, receipt));
            continue;
        }
        let Some((begun, receipt)) = open.pop_front() else { return Ok((messages, latency)) };
        receipt.await.map_err(|error| session::failure(&error.error))?;
        latency.record(begun.elapsed());
        messages += 1;
    }
}

/// As many loops as batches fit what may be unanswered: each publishes a batch and waits for its answer.
async fn batches(client: &Client, topic: &str, load: Load) -> Result<(u64, Latency), Failure> {
    let (producer, value) = prepared(client, topic, load).await?;
    let (producer, value) = (Arc::new(producer), Arc::new(value));
    let mut loops = JoinSet::new();
    let started = Instant::now();
    for _ in 0..load.batches_under_way() {
        let (producer, value) = (Arc::clone(&producer), Arc::clone(&value));
        loops.spawn(async move {
            let batch = vec![Message::of(&value); usize::from(load.batch)];
            let (mut messages, mut latency) = (0, Latency::new());
            while started.elapsed() < load.limit {
                let begun = Instant::now();
                let stored = producer.publish_batch(&batch).await.map_err(|error| session::failure(&error.error))?;
                latency.record(begun.elapsed());
                messages += stored.len() as u64;
            }
            Ok::<_, Failure>((messages, latency))
        });
    }
    let (mut messages, mut latency) = (0, Latency::new());
    while let Some(ended) = loops.join_next().await {
        let (count, part) = ended.expect("a loop does not panic")?;
        messages += count;
        latency.add(&part);
    }
    Ok((messages, latency))
}

async fn prepared(client: &Client, topic: &str, load: Load) -> Result<(Producer, Vec<u8>), Failure> {
    let outstanding = load.outstanding.max(load.batch);
    let options = ProducerOptions { max_outstanding: usize::from(outstanding), ..ProducerOptions::default() };
    let producer = client.producer(topic, options).await.map_err(|error| session::failure(&error))?;
    Ok((producer, vec![b'm'; load.value_bytes as usize]))
}
