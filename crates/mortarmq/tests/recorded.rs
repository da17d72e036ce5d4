//! Goal: what a client writes down of a run against a real broker that is killed in the middle has what a judge needs: each
//! answer its position, each delivery its cause, each message its end. Method: the binary under SIGKILL, a client that records,
//! and the history read back.

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use mortarmq_client::{
    Client, ClientOptions, Consumer, ConsumerOptions, Delivery, Message, ProducerOptions, ReconnectOptions, Recording,
};
use mortarmq_history::{Cause, Deliver, Limits, Options, Outcome, Reader, Record, Recorder};
use support::Broker;

const MESSAGES: usize = 60;

async fn next(consumer: &mut Consumer) -> Delivery {
    let waited = tokio::time::timeout(Duration::from_secs(20), consumer.next()).await;
    waited.expect("a message within 20 s").expect("the consumer goes on").expect("and does not fail")
}

/// Publishes, kills the broker while messages are held, goes on, refuses some, and acks all.
async fn run(broker: &mut Broker, file: &Path) {
    let recorder = Recorder::create(file, Options::default()).expect("a file of our own");
    let options = ClientOptions {
        recording: Some(Recording::by_header(recorder.clone(), "id")),
        reconnect: ReconnectOptions { initial_ms: 20, max_ms: 100, give_up_after: None },
        ..ClientOptions::to(&broker.client_addr)
    };
    let client = Client::connect(options).await.expect("the broker runs");
    let producer = client.producer("orders", ProducerOptions::default()).await.expect("the topic exists");
    let settings = ConsumerOptions::default().set("retry_backoff_base_ms", 10).set("retry_backoff_max_ms", 10);
    let mut consumer = client.consumer("orders", "billing", settings).await.expect("the topic exists");
    let mut receipts = Vec::new();
    for number in 0..MESSAGES {
        let (id, key) = (format!("m{number}"), format!("k{}", number % 7));
        let message = Message::of(b"value").key(key.as_bytes()).header("id", id.as_bytes());
        receipts.push(producer.send(message).await.expect("it fits"));
        if number == MESSAGES / 2 {
            broker.kill();
            broker.restart();
        }
    }
    for receipt in receipts {
        receipt.await.expect("it is repeated until it is answered");
    }
    let mut acked = 0;
    while acked < MESSAGES {
        let delivery = next(&mut consumer).await;
        if delivery.seq.get() % 5 == 0 && delivery.attempt.get() == 1 {
            delivery.nack(0, "once more").await.expect("its lease is live");
        } else {
            delivery.ack().await.expect("its lease is live");
            acked += 1;
        }
    }
    consumer.close().await.expect("the broker runs");
    client.close().await;
    recorder.finish().expect("the disk has room");
}

/// What a history says of one message.
#[derive(Default)]
struct Life {
    /// Where its publish was confirmed to be, and from which index on it can have been delivered.
    published: Option<(u32, u64, u64)>,
    /// By delivery: index, attempt, cause, the one before, and whether a nack of it was confirmed.
    deliveries: BTreeMap<u64, (u64, u32, Cause, Option<u64>)>,
    nacked: Vec<u64>,
    /// The delivery that was acked, and at which index.
    acked: Vec<(u64, u64)>,
}

fn lives(file: &Path) -> BTreeMap<String, Life> {
    let mut reader = Reader::open(&[file.to_owned()], Limits::default()).expect("it is there");
    let mut lives: BTreeMap<String, Life> = BTreeMap::new();
    let mut leaves = 0;
    while let Some(line) = reader.next_line().expect("it can be read") {
        match line.content.expect("a judge can read every line") {
            // The answer of an attempt was lost with the broker; the next attempt is a record of its own.
            Record::Publish(publish) if publish.outcome == Outcome::Unknown => assert_eq!(publish.ret, None),
            Record::Publish(publish) => {
                assert_eq!((publish.outcome, publish.epoch.is_some()), (Outcome::Ok, true));
                let place = publish.partition.zip(publish.seq).zip(publish.commit);
                let ((partition, seq), commit) = place.expect("an ok has its place and position");
                assert!(publish.client.is_some() && publish.ret > Some(publish.call));
                // An attempt after one whose answer was lost says when it was asked, not when the message was stored.
                let stored_at = if publish.dedup == Some(true) { 0 } else { commit };
                lives.entry(publish.msg.into_owned()).or_default().published = Some((partition, seq, stored_at));
            }
            Record::Deliver(deliver) => {
                let life = lives.entry(deliver.msg.clone().into_owned()).or_default();
                life.deliveries.insert(deliver.delivery_id.expect("it has an id"), seen(&deliver));
            }
            Record::Ack(ack) if ack.outcome == Outcome::Ok => {
                let acked = ack.delivery_id.zip(ack.commit).expect("an ok names its delivery and position");
                lives.entry(ack.msg.into_owned()).or_default().acked.push(acked);
            }
            Record::Nack(nack) if nack.settle.outcome == Outcome::Ok => {
                let nacked = nack.settle.delivery_id.expect("it names its delivery");
                lives.entry(nack.settle.msg.into_owned()).or_default().nacked.push(nacked);
            }
            Record::Operate(_) => leaves += 1,
            Record::Ack(_) | Record::Nack(_) | Record::Extend(_) => {}
            other => panic!("nobody recorded {other:?}"),
        }
    }
    assert_eq!(leaves, 1, "the consumer left once");
    lives
}

fn seen(deliver: &Deliver<'_>) -> (u64, u32, Cause, Option<u64>) {
    assert_eq!((&*deliver.path, deliver.key.is_some()), ("orders/billing", true));
    let said = deliver.commit.zip(deliver.attempt).zip(deliver.cause);
    let ((commit, attempt), cause) = said.expect("a delivery says its position, attempt and cause");
    (commit, attempt, cause, deliver.prev)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn p7_a_recorded_run_with_a_kill_tells_every_message_from_its_publish_to_its_ack() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut broker = Broker::start(&folder.path().join("data"));
    broker.rows(&["topics", "create", "orders", "--partitions", "3"]);
    let file = folder.path().join("history.jsonl.zst");
    run(&mut broker, &file).await;
    let lives = lives(&file);
    assert_eq!(lives.len(), MESSAGES);
    let mut again = 0;
    for (msg, life) in &lives {
        let (_, seq, stored_at) = life.published.unwrap_or_else(|| panic!("{msg} was published"));
        let [(acked, acked_at)] = life.acked[..] else { panic!("{msg} was acked once: {:?}", life.acked) };
        assert!(life.deliveries.contains_key(&acked), "{msg}");
        let mut before: Option<(u64, u32)> = None;
        for (delivery_id, (commit, attempt, cause, previous)) in &life.deliveries {
            assert!(stored_at < *commit && *commit < acked_at, "{msg}: {stored_at} {commit} {acked_at}");
            match before {
                None => assert_eq!((*attempt, *cause, *previous), (1, Cause::First, None), "{msg}"),
                Some((earlier, attempts)) => {
                    assert_eq!(*previous, Some(earlier), "{msg}: every delivery arrived, a kill loses none");
                    let is_nack = *cause == Cause::Nacked && life.nacked.contains(&earlier);
                    assert!(is_nack || *cause == Cause::Released, "{msg} came again as {cause}");
                    assert_eq!(*attempt, attempts + u32::from(is_nack), "{msg}");
                    again += 1;
                }
            }
            before = Some((*delivery_id, *attempt));
        }
        assert!(seq % 5 != 0 || life.deliveries.len() >= 2, "{msg} was refused once");
    }
    assert!(again >= MESSAGES / 7, "{again} deliveries came again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_recorded_dead_letter_says_on_which_path_it_died_and_no_other_delivery_does() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let broker = Broker::start(&folder.path().join("data"));
    broker.rows(&["topics", "create", "orders", "--partitions", "1"]);
    let file = folder.path().join("history.jsonl");
    let recorder = Recorder::create(&file, Options::default()).expect("a file of our own");
    let recording = Some(Recording::by_header(recorder.clone(), "id"));
    let options = ClientOptions { recording, ..ClientOptions::to(&broker.client_addr) };
    let client = Client::connect(options).await.expect("the broker runs");
    let producer = client.producer("orders", ProducerOptions::default()).await.expect("the topic exists");
    // A header of that name by somebody else says nothing: only in a dead-letter topic it is the broker's.
    let message = Message::of(b"value").header("id", b"m1").header("mortarmq-dlq-path", b"made/up");
    producer.publish(message).await.expect("stored");
    for (topic, group) in [("orders", "billing"), ("$dlq.orders", "default")] {
        let mut consumer = client.consumer(topic, group, ConsumerOptions::default()).await.expect("the topic exists");
        next(&mut consumer).await.dead_letter("no such customer").await.expect("its lease is live");
        consumer.close().await.expect("the broker runs");
    }
    client.close().await;
    recorder.finish().expect("the disk has room");
    let mut reader = Reader::open(&[file], Limits::default()).expect("it is there");
    let mut origins = Vec::new();
    while let Some(line) = reader.next_line().expect("it can be read") {
        if let Record::Deliver(deliver) = line.content.expect("a judge can read every line") {
            origins.push((deliver.path.into_owned(), deliver.origin.map(|origin| origin.into_owned())));
        }
    }
    let expected = [("orders/billing", None), ("$dlq.orders/default", Some("orders/billing"))];
    assert_eq!(origins, expected.map(|(path, origin)| (path.to_owned(), origin.map(str::to_owned))));
}
