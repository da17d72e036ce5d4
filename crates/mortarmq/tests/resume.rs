//! Goal: a broker that is killed and starts again within the session time costs a consumer nothing: no redelivery of what it
//! holds, and acks by the deliveries of before (P5, P7). Method: the binary under SIGKILL, and the Rust client.

#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use mortarmq_client::{
    Client, ClientOptions, Consumer, ConsumerOptions, Delivery, Message, ProducerOptions, ReconnectOptions,
};
use mortarmq_types::Cause;
use support::Broker;

async fn connect(broker: &Broker) -> Client {
    // So that it is back well within the session.
    let reconnect = ReconnectOptions { initial_ms: 20, max_ms: 100, give_up_after: None };
    let options = ClientOptions { servers: vec![broker.client_addr.clone()], reconnect, ..ClientOptions::default() };
    Client::connect(options).await.expect("the broker runs")
}

async fn next(consumer: &mut Consumer) -> Delivery {
    let waited = tokio::time::timeout(Duration::from_secs(20), consumer.next()).await;
    waited.expect("a message within 20 s").expect("the consumer goes on").expect("and does not fail")
}

async fn publish(client: &Client, numbers: std::ops::Range<u32>) {
    let producer = client.producer("orders", ProducerOptions::default()).await.expect("the topic exists");
    for number in numbers {
        let (key, value) = (format!("key-{}", number % 7), number.to_string());
        let message = Message { key: key.as_bytes(), ..Message::of(value.as_bytes()) };
        producer.send(message).await.expect("it fits").await.expect("it is stored");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn p5_p7_a_killed_broker_that_starts_again_redelivers_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut broker = Broker::start(&folder.path().join("data"));
    broker.rows(&["topics", "create", "orders", "--partitions", "3"]);
    let client = connect(&broker).await;
    let options = ConsumerOptions {
        // What a lost session cost would come again at once.
        options_json: r#"{"session_ms":3000,"retry_backoff_base_ms":0}"#.to_owned(),
        ..ConsumerOptions::default()
    };
    let mut consumer = client.consumer("orders", "billing", options).await.expect("the topic exists");
    let mut seen = BTreeSet::new();
    let mut taken = 0;
    for round in 0..2 {
        publish(&client, round * 100..(round + 1) * 100).await;
        // Of a key one at a time: the others wait in the client, or are on their way when the broker dies.
        let held = [next(&mut consumer).await, next(&mut consumer).await, next(&mut consumer).await];
        broker.kill();
        broker.restart();
        // Longer than a session: were this another member now, the former one would be lost with all it held.
        tokio::time::sleep(Duration::from_millis(4500)).await;
        let mut all: Vec<Delivery> = held.into();
        while taken < (round + 1) * 100 {
            let delivery = match all.pop() {
                Some(delivery) => delivery,
                None => next(&mut consumer).await,
            };
            assert_eq!((delivery.cause, delivery.attempt.get()), (Cause::First, 1), "{delivery:?}");
            assert!(seen.insert(delivery.delivery_id), "{delivery:?} came twice");
            let outcome = delivery.ack().await;
            assert_eq!(outcome, Ok(()), "{delivery:?}, which is of before the kill or after it");
            taken += 1;
        }
    }
    let waited = tokio::time::timeout(Duration::from_millis(300), consumer.next()).await;
    assert!(waited.is_err(), "all is acked: {waited:?}");
    client.close().await;
}
