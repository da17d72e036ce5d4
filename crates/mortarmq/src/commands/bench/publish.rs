//! Publishing: singles with some of them unanswered, or batches.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use mortarmq_client::{Client, Producer, ProducerOptions};
use tokio::task::JoinSet;

use super::measure::Plan;
use super::payload::Payload;
use crate::bench::Recorder;
use crate::errors::Failure;
use crate::session;

/// Publishes on all connections until the span is over and everything is answered.
pub(super) async fn run(clients: Vec<Client>, plan: &Plan) -> Result<Recorder, Failure> {
    let mut tasks = JoinSet::new();
    for client in clients {
        for _ in 0..plan.load.lines {
            let (client, plan, number) = (client.clone(), plan.clone(), tasks.len());
            tasks.spawn(async move {
                let producer = producer(&client, &plan).await?;
                if plan.load.batch > 1 {
                    batches(producer, &plan).await
                } else {
                    singles(&producer, &plan, number).await
                }
            });
        }
    }
    let mut all = Recorder::new(plan.span);
    while let Some(ended) = tasks.join_next().await {
        all.add(&ended.expect("a producer does not panic")?);
    }
    Ok(all)
}

/// Publishes so many messages in batches, as fast as it goes.
pub(super) async fn fill(client: &Client, plan: &Plan, messages: u64) -> Result<(), Failure> {
    let load = super::phase::Load { outstanding: 1000, batch: FILL_BATCH, ..plan.load };
    let plan = Plan { load, ..plan.clone() };
    let producer = Arc::new(producer(client, &plan).await?);
    let mut loops = JoinSet::new();
    let of_each = messages.div_ceil(u64::from(FILL_BATCH)).div_ceil(u64::from(load.batches_under_way()));
    for _ in 0..load.batches_under_way() {
        let (producer, mut payload) = (Arc::clone(&producer), Payload::new(&plan, loops.len()));
        loops.spawn(async move {
            for _ in 0..of_each {
                payload.next();
                let batch = vec![payload.message(); usize::from(FILL_BATCH)];
                producer.publish_batch(&batch).await.map_err(|error| session::failure(&error.error))?;
            }
            Ok::<_, Failure>(())
        });
    }
    while let Some(ended) = loops.join_next().await {
        ended.expect("a loop does not panic")?;
    }
    Ok(())
}

async fn singles(producer: &Producer, plan: &Plan, number: usize) -> Result<Recorder, Failure> {
    let mut recorder = Recorder::new(plan.span);
    let mut payload = Payload::new(plan, number);
    let mut open = VecDeque::with_capacity(usize::from(plan.load.outstanding));
    loop {
        if open.len() < usize::from(plan.load.outstanding) && !plan.span.is_over() {
            let begun = payload.next();
            let receipt = producer.send(payload.message()).await.map_err(|error| session::failure(&error))?;
            open.push_back((begun, receipt));
            continue;
        }
        let Some((begun, receipt)) = open.pop_front() else { return Ok(recorder) };
        receipt.await.map_err(|error| session::failure(&error.error))?;
        recorder.record(begun, 1);
    }
}

/// As many loops as batches fit what may be unanswered: each publishes a batch and waits for its answer.
async fn batches(producer: Producer, plan: &Plan) -> Result<Recorder, Failure> {
    let producer = Arc::new(producer);
    let mut loops = JoinSet::new();
    for _ in 0..plan.load.batches_under_way() {
        let (producer, plan) = (Arc::clone(&producer), plan.clone());
        let mut payload = Payload::new(&plan, loops.len());
        loops.spawn(async move {
            payload.next();
            let batch = vec![payload.message(); usize::from(plan.load.batch)];
            let mut recorder = Recorder::new(plan.span);
            while !plan.span.is_over() {
                let begun = Instant::now();
                let stored = producer.publish_batch(&batch).await.map_err(|error| session::failure(&error.error))?;
                recorder.record(begun, stored.len() as u64);
            }
            Ok::<_, Failure>(recorder)
        });
    }
    let mut all = Recorder::new(plan.span);
    while let Some(ended) = loops.join_next().await {
        all.add(&ended.expect("a loop does not panic")?);
    }
    Ok(all)
}

async fn producer(client: &Client, plan: &Plan) -> Result<Producer, Failure> {
    let outstanding = plan.load.outstanding.max(plan.load.batch);
    let options = ProducerOptions { max_outstanding: usize::from(outstanding), ..ProducerOptions::default() };
    client.producer(&plan.topic, options).await.map_err(|error| session::failure(&error))
}

/// Messages of a batch when a backlog is made.
const FILL_BATCH: u16 = 100;
