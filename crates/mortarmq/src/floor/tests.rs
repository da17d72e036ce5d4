//! The floors, asked by the client that asks the broker.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use mortarmq_client::{Client, ClientOptions, ConsumerOptions, ErrorCode, Message, ProducerOptions, TopicOptions};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::follow::cut;
use super::{Floor, Kind};

async fn client(floor: &Floor) -> Client {
    let options = ClientOptions { servers: vec![floor.address.to_string()], ..ClientOptions::default() };
    Client::connect(options).await.expect("it listens")
}

/// Goal: both floors answer all that `bench` asks for. Method: the real client publishes singles and batches, consumes
/// with a window that is smaller than the backlog, and acks.
async fn serves_a_client(kind: Kind) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let floor = Floor::start(kind, folder.path(), &[]).await.expect("a port");
    let client = client(&floor).await;
    let made = client.declare_topic("orders", TopicOptions::partitions(4)).await.expect("a topic");
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
    for number in 0..10 {
        let delivery = consumer.next().await.expect("open").expect("a message");
        assert_eq!(delivery.value, number.to_string());
        delivery.ack().await.expect("its lease is live");
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
    let floor = Floor::start(Kind::Commit, folder.path(), &[]).await.expect("a port");
    let (left, right) = (client(&floor).await, client(&floor).await);
    left.declare_topic("orders", TopicOptions::partitions(1)).await.expect("a topic");
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

/// A follower that the test answers for: it takes the leader's link, and what comes over it.
struct Hand {
    listener: TcpListener,
    stream: Option<TcpStream>,
    input: BytesMut,
}

impl Hand {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        Self { listener, stream: None, input: BytesMut::new() }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("it listens")
    }

    /// The next batch: its number and its bytes.
    async fn batch(&mut self) -> (u64, Bytes) {
        if self.stream.is_none() {
            self.stream = Some(self.listener.accept().await.expect("the leader connects").0);
        }
        let stream = self.stream.as_mut().expect("it is there");
        loop {
            if let Some(batch) = cut(&mut self.input).expect("a frame") {
                return batch;
            }
            assert!(stream.read_buf(&mut self.input).await.expect("the link holds") > 0, "the leader is gone");
        }
    }

    async fn answer(&mut self, number: u64) {
        self.stream.as_mut().expect("it is there").write_u64(number).await.expect("the link holds");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_floor_of_three_answers_when_one_follower_has_the_batch_and_not_before() {
    // Goal: what is measured against waits for a majority. Method: the followers are in the test's hand. Both get the batch; the
    // publish is answered only when one of them says that it is on disk, and does not wait for the other.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mut one, mut other) = (Hand::new().await, Hand::new().await);
    let followers = [one.address(), other.address()];
    let floor = Floor::start(Kind::Commit, folder.path(), &followers).await.expect("a port");
    let client = client(&floor).await;
    client.declare_topic("orders", TopicOptions::partitions(1)).await.expect("a topic");
    let producer = client.producer("orders", ProducerOptions::default()).await.expect("the topic is there");
    for (round, value) in (1..).zip([b"first message", b"other message"]) {
        let mut receipt = producer.send(Message::of(value)).await.expect("sent");
        for follower in [&mut one, &mut other] {
            let (number, records) = follower.batch().await;
            assert_eq!(number, round);
            assert!(records.windows(value.len()).any(|bytes| bytes == value), "the message is in it");
        }
        let early = tokio::time::timeout(Duration::from_millis(200), &mut receipt).await;
        assert!(early.is_err(), "no follower has it, and it is answered: {early:?}");
        // One that is behind answers for an earlier batch: that does not count.
        one.answer(round - 1).await;
        let early = tokio::time::timeout(Duration::from_millis(50), &mut receipt).await;
        assert!(early.is_err(), "only an earlier batch is on a follower's disk, and it is answered: {early:?}");
        one.answer(round).await;
        receipt.await.expect("stored");
    }
    assert!(floor.failed.try_recv().is_err(), "the disk is fine");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_floor_of_three_serves_a_client_and_its_followers_have_what_it_has() {
    let folders = [(); 3].map(|()| tempfile::tempdir().expect("a temporary folder"));
    let [own, one, other] = folders.each_ref().map(tempfile::TempDir::path);
    let first = Floor::start(Kind::Follow, one, &[]).await.expect("a port");
    let second = Floor::start(Kind::Follow, other, &[]).await.expect("a port");
    let followers = [first.address, second.address];
    let floor = Floor::start(Kind::Commit, own, &followers).await.expect("a port");
    let client = client(&floor).await;
    client.declare_topic("orders", TopicOptions::partitions(1)).await.expect("a topic");
    let producer = client.producer("orders", ProducerOptions::default()).await.expect("the topic is there");
    for _ in 0..100 {
        producer.publish(Message::of(b"a message of the floor")).await.expect("stored");
    }
    let copies = |folder: &Path| {
        let file = std::fs::read(folder.join("floor-journal")).expect("it is there");
        file.windows(22).filter(|bytes| *bytes == b"a message of the floor").count()
    };
    assert_eq!(copies(own), 100);
    let (of_one, of_other) = (copies(one), copies(other));
    assert!(of_one == 100 || of_other == 100, "all is confirmed, and the followers have {of_one} and {of_other}");
    // The other one may be behind by what is under way.
    let begun = std::time::Instant::now();
    while copies(one) < 100 || copies(other) < 100 {
        assert!(begun.elapsed() < Duration::from_secs(20), "a follower never gets it");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
