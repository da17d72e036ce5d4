//! The floors, asked by the client that asks the broker.

use mortarmq_client::{Client, ClientOptions, ConsumerOptions, ErrorCode, Message, ProducerOptions, SettleOutcome};

use super::{Floor, Kind};

async fn client(floor: &Floor) -> Client {
    let options = ClientOptions { servers: vec![floor.address.to_string()], ..ClientOptions::default() };
    Client::connect(options).await.expect("it listens")
}

/// Goal: both floors answer all that `bench` asks for. Method: the real client publishes singles and batches, consumes
/// with a window that is smaller than the backlog, and acks.
async fn serves_a_client(kind: Kind) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let floor = Floor::start(kind, folder.path()).await.expect("a port");
    let client = client(&floor).await;
    let made = client.declare_topic("orders", 4, "").await.expect("a topic");
    assert!(!made.existed && made.partitions == 4);
    let producer = client.producer("orders", ProducerOptions::default()).await.expect("the topic is there");
    producer.publish(Message::of(b"before anybody subscribed")).await.expect("stored");
    let options = ConsumerOptions { credit_messages: Some(3), ..ConsumerOptions::default() };
    let mut consumer = client.consumer("orders", "bench", options).await.expect("subscribed");
    let first = producer.publish(Message { key: b"k", ..Message::of(b"0") }).await.expect("stored");
    let batch: Vec<Vec<u8>> = (1..10).map(|number: u8| number.to_string().into_bytes()).collect();
    let batch: Vec<Message<'_>> = batch.iter().map(|value| Message::of(value)).collect();
    let stored = producer.publish_batch(&batch).await.expect("stored");
    assert_eq!(stored.len(), 9);
    assert!(stored.iter().zip(2..).all(|(one, after)| one.seq.get() == first.seq.get() + after - 1));
    let settler = consumer.settler();
    for number in 0..10 {
        let delivery = consumer.next().await.expect("open").expect("a message");
        assert_eq!(delivery.value, number.to_string());
        assert_eq!(settler.ack(&delivery).await.expect("answered"), SettleOutcome::Done);
    }
    consumer.close().await.expect("it leaves");
    assert!(client.delete_topic("orders").await.expect("answered"));
    let gone = client.producer("orders", ProducerOptions::default()).await.expect_err("it is gone");
    assert_eq!(gone.code(), Some(ErrorCode::UnknownTopic));
    assert!(floor.failed.try_recv().is_err(), "the disk is fine");
    client.close().await;
}

#[tokio::test]
async fn echo_serves_a_client() {
    serves_a_client(Kind::Echo).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_serves_a_client() {
    serves_a_client(Kind::Commit).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_go_to_subscribers_in_turn_and_never_beyond_their_window() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let floor = Floor::start(Kind::Commit, folder.path()).await.expect("a port");
    let (left, right) = (client(&floor).await, client(&floor).await);
    left.declare_topic("orders", 1, "").await.expect("a topic");
    let options = || ConsumerOptions { credit_messages: Some(2), ..ConsumerOptions::default() };
    let mut first = left.consumer("orders", "bench", options()).await.expect("subscribed");
    let mut second = right.consumer("orders", "bench", options()).await.expect("subscribed");
    let producer = left.producer("orders", ProducerOptions::default()).await.expect("the topic is there");
    let batch: Vec<Message<'_>> = vec![Message::of(b"m"); 5];
    producer.publish_batch(&batch).await.expect("stored");
    let mut seqs = Vec::new();
    for consumer in [&mut first, &mut second] {
        for _ in 0..2 {
            seqs.push(consumer.next().await.expect("open").expect("a message").seq.get());
        }
    }
    seqs.sort_unstable();
    assert_eq!(seqs, [1, 2, 3, 4], "both windows are full, and the fifth waits");
    // The floor forgets what a member that leaves has held; what waits goes to who is left.
    second.close().await.expect("it leaves");
    let third = right.consumer("orders", "bench", options()).await;
    let fifth = third.expect("subscribed").next().await.expect("open").expect("a message");
    assert_eq!(fifth.seq.get(), 5);
}
