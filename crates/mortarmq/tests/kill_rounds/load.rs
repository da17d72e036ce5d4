//! Producers and consumers that go on through every kill.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mortarmq_client::{Client, ClientOptions, ConsumerOptions, Delivery, Message, ProducerOptions, SettleError};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::message::{id_of, value_of};
use crate::random::Random;
use crate::record::{GROUPS, Record, path_of};

const PRODUCERS: u64 = 3;
/// Consumers by group.
const CONSUMERS: [u64; 2] = [2, 1];
const KEYS: u64 = 40;

/// Producers and consumers, until they are stopped.
pub(crate) struct Load {
    runtime: Runtime,
    producers: Vec<JoinHandle<()>>,
    consumers: Vec<JoinHandle<()>>,
    stop_producers: Arc<AtomicBool>,
    stop_consumers: Arc<tokio::sync::Notify>,
}

impl Load {
    pub(crate) fn start(server: &str, record: &Arc<Record>, seed: u64) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let stop_producers = Arc::new(AtomicBool::new(false));
        let stop_consumers = Arc::new(tokio::sync::Notify::new());
        let producers = (0..PRODUCERS)
            .map(|number| {
                let (record, stop) = (Arc::clone(record), Arc::clone(&stop_producers));
                runtime.spawn(produce(server.to_owned(), number, record, stop, Random::new(seed + number)))
            })
            .collect();
        let mut consumers = Vec::new();
        for (group, count) in GROUPS.iter().zip(CONSUMERS) {
            for number in 0..count {
                let (record, stop) = (Arc::clone(record), Arc::clone(&stop_consumers));
                let random = Random::new(seed * 31 + number);
                consumers.push(runtime.spawn(consume(server.to_owned(), group, record, stop, random)));
            }
        }
        Self { runtime, producers, consumers, stop_producers, stop_consumers }
    }

    /// Fails as soon as a task has: a broken promise is not waited out.
    pub(crate) fn check_alive(&self) {
        let is_stopping = self.stop_producers.load(Ordering::Acquire);
        assert!(is_stopping || !self.producers.iter().any(JoinHandle::is_finished), "a producer failed, see above");
        assert!(!self.consumers.iter().any(JoinHandle::is_finished), "a consumer failed, see above");
    }

    /// Ends the producers once everything they sent is answered.
    pub(crate) fn stop_producers(&self) {
        self.stop_producers.store(true, Ordering::Release);
        while !self.producers.iter().all(JoinHandle::is_finished) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the consumers; a failed assertion in any task fails the test.
    pub(crate) fn stop(&mut self) {
        self.stop_consumers.notify_waiters();
        let (producers, consumers) = (self.producers.drain(..), self.consumers.drain(..));
        self.runtime.block_on(async {
            for task in producers.chain(consumers) {
                task.await.expect("no promise is broken");
            }
        });
    }
}

async fn connect(server: String, name: &str) -> Client {
    let options = ClientOptions { servers: vec![server], name: name.to_owned(), ..ClientOptions::default() };
    Client::connect(options).await.expect("the broker runs")
}

async fn produce(server: String, number: u64, record: Arc<Record>, stop: Arc<AtomicBool>, mut random: Random) {
    let client = connect(server, "kill-rounds-producer").await;
    let options = ProducerOptions { max_outstanding: 64, ..ProducerOptions::default() };
    let producer = client.producer("orders", options).await.expect("the topic exists");
    let mut answers = tokio::task::JoinSet::new();
    for count in 0_u64.. {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let id = format!("p{number}-{count}");
        let key = match random.below(KEYS * 2) {
            key if key < KEYS => format!("key-{key}"),
            _ => String::new(),
        };
        record.sending(&id);
        let value = value_of(&id);
        let message = Message { key: key.as_bytes(), ..Message::of(&value) };
        let receipt = producer.send(message).await.expect("the message fits");
        let record = Arc::clone(&record);
        answers.spawn(async move {
            let published = receipt.await.unwrap_or_else(|error| panic!("{id} was not stored: {error}"));
            record.confirmed(&id, &published);
        });
        while let Some(answer) = answers.try_join_next() {
            answer.expect("no promise is broken");
        }
        // About 2,000 a second each: the broker is to be killed in the middle of work, not buried in it.
        if count % 16 == 0 {
            tokio::time::sleep(Duration::from_millis(8)).await;
        }
    }
    while let Some(answer) = answers.join_next().await {
        answer.expect("no promise is broken");
    }
    client.close().await;
}

async fn consume(
    server: String,
    group: &'static str,
    record: Arc<Record>,
    stop: Arc<tokio::sync::Notify>,
    mut random: Random,
) {
    let client = connect(server, "kill-rounds-consumer").await;
    let options = ConsumerOptions {
        options_json: "{\"max_attempts\":0,\"session_ms\":2000,\"retry_backoff_base_ms\":50}".to_owned(),
        ..ConsumerOptions::default()
    };
    let mut consumer = client.consumer("orders", group, options).await.expect("the topic exists");
    let path = path_of(group);
    let mut settles = tokio::task::JoinSet::new();
    loop {
        let delivery = tokio::select! {
            () = stop.notified() => break,
            next = consumer.next() => match next {
                Some(Ok(delivery)) => delivery,
                Some(Err(error)) => panic!("the consumer of {group} failed: {error}"),
                None => break,
            },
        };
        let id = id_of(&delivery.value);
        record.delivered(path, &id, &delivery);
        settles.spawn(settle(delivery, path, Arc::clone(&record), random.below(100)));
        while let Some(settled) = settles.try_join_next() {
            settled.expect("no promise is broken");
        }
    }
    while let Some(settled) = settles.join_next().await {
        settled.expect("no promise is broken");
    }
    consumer.close().await.expect("the broker runs");
    client.close().await;
}

async fn settle(delivery: Delivery, path: usize, record: Arc<Record>, choice: u64) {
    if choice < 4 {
        tokio::time::sleep(Duration::from_millis(choice * 20)).await;
    }
    let outcome = match choice {
        90..95 => {
            record.giving_up(path, &delivery, true);
            delivery.nack(0, "not now").await
        }
        95..98 => {
            record.giving_up(path, &delivery, false);
            delivery.release().await
        }
        _ => {
            record.acking(path, &delivery);
            delivery.ack().await
        }
    };
    match outcome {
        Ok(()) if (90..98).contains(&choice) => record.gave_up(),
        Ok(()) => record.acked(path, &delivery),
        // The delivery ended before, with its session or with an earlier message of its key.
        Err(SettleError::LeaseLost | SettleError::UnknownDelivery) => {}
        Err(error) => panic!("a settle is repeated until it is answered: {error}"),
    }
}
