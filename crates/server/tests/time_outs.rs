//! The time-outs of a connection over a real socket. They are those of the protocol but for their length: a test that waits
//! 45 s is one that nobody runs.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::{BufMut, BytesMut};
use mortarmq_server::config::Timeouts;
use mortarmq_server::{Running, Server};
use mortarmq_wire::Op;
use mortarmq_wire::ops::{Ping, StartPolicy, Subscribe};
use support::{Client, config, publish_frame};

/// Longer than any of these tests takes.
const NEVER: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(800);

struct Node {
    running: Running,
    _folder: tempfile::TempDir,
}

impl Node {
    /// A node on which only what is named runs out.
    fn start(change: impl FnOnce(&mut Timeouts)) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut config = config(folder.path(), &[("receive-budget-bytes", "32MiB")]);
        let mut timeouts = Timeouts {
            connect: NEVER,
            keepalive: NEVER,
            half_frame_idle: NEVER,
            half_frame_total: NEVER,
            crawl: NEVER,
        };
        change(&mut timeouts);
        config.timeouts = timeouts;
        Self { running: Server::start(config).expect("the node starts"), _folder: folder }
    }

    fn client(&self) -> Client {
        Client::connect(self.running.addresses().client)
    }
}

/// What a client says that lives.
fn ping(client: &mut Client) {
    client.send(|out| Ping.encode(out));
    assert_eq!(client.ok().0, Op::Ping);
}

/// Waits until the node has closed the connection without a word; says how long that took.
fn closed_without_err(client: &mut Client) -> Duration {
    let begun = Instant::now();
    assert_eq!(client.try_frame(), None, "it closes without an ERR");
    begun.elapsed()
}

#[test]
fn the_time_outs_of_a_node_are_those_of_the_protocol() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let seconds = Duration::from_secs;
    let protocol = Timeouts {
        connect: seconds(5),
        keepalive: seconds(45),
        half_frame_idle: seconds(10),
        half_frame_total: seconds(120),
        crawl: seconds(10),
    };
    assert_eq!(config(folder.path(), &[]).timeouts, protocol);
}

#[test]
fn a_connection_without_a_complete_frame_is_closed_without_an_err_and_one_that_pings_is_not() {
    let node = Node::start(|timeouts| timeouts.keepalive = SHORT);
    let (mut silent, mut alive) = (node.client(), node.client());
    silent.stream.set_nonblocking(true).expect("a flag");
    let begun = Instant::now();
    // Pings go on for several times as long as silence may last, and at least until the silent one is closed.
    let mut closed_after = None;
    while closed_after.is_none() || begun.elapsed() < 3 * SHORT {
        ping(&mut alive);
        // The end is there to be read; as long as it is not, reading would wait.
        if closed_after.is_none() && silent.stream.peek(&mut [0]).is_ok() {
            closed_after = Some(begun.elapsed());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    silent.stream.set_nonblocking(false).expect("a flag");
    closed_without_err(&mut silent);
    assert!(closed_after >= Some(SHORT - Duration::from_millis(100)), "too early: {closed_after:?}");
    ping(&mut alive);
    node.running.stop();
}

#[test]
fn rule_9_half_a_frame_that_brings_nothing_more_ends_its_connection_without_an_err() {
    let node = Node::start(|timeouts| timeouts.half_frame_idle = SHORT);
    // The beginning of a length, a whole length, an op, and a part of the payload.
    for begun in [&[0][..], &[0, 0, 0, 9], &[0, 0, 0, 9, 3], &[0, 0, 0, 9, 3, 0, 1]] {
        let mut client = node.client();
        client.write(begun);
        assert!(closed_without_err(&mut client) >= SHORT - Duration::from_millis(100), "{begun:?}: too early");
    }
    // Whoever has begun nothing may be silent.
    let mut quiet = node.client();
    let mut half = node.client();
    half.write(&[0, 0]);
    closed_without_err(&mut half);
    ping(&mut quiet);
    node.running.stop();
}

#[test]
fn rule_9_a_frame_that_is_never_complete_ends_its_connection_however_many_bytes_come() {
    let node = Node::start(|timeouts| (timeouts.half_frame_idle, timeouts.half_frame_total) = (SHORT, 3 * SHORT));
    let mut client = node.client();
    client.write(&[0, 0, 0xFF, 0xFF, Op::Publish as u8]);
    let begun = Instant::now();
    // A byte now and then, always in time for the shorter of the two. Writing to what is closed fails, sooner or later.
    let mut stream = client.stream.try_clone().expect("a handle");
    while stream.write_all(&[0]).is_ok() {
        assert!(begun.elapsed() < 25 * SHORT, "it was never closed");
        std::thread::sleep(SHORT / 8);
    }
    assert!(begun.elapsed() >= 3 * SHORT - Duration::from_millis(100), "bytes came in time, and it was closed early");
    closed_without_err(&mut client);
    node.running.stop();
}

#[test]
fn a_slow_frame_that_becomes_whole_in_time_is_taken() {
    let node = Node::start(|timeouts| (timeouts.half_frame_idle, timeouts.half_frame_total) = (2 * SHORT, 20 * SHORT));
    let mut client = node.client();
    let topic = client.declare("orders", "{\"partitions\":1}");
    let mut out = BytesMut::new();
    publish_frame(&mut out, topic, 0, 0, b"key", b"value");
    let begun = Instant::now();
    for piece in out.chunks(out.len().div_ceil(12)) {
        client.write(piece);
        std::thread::sleep(SHORT / 4);
    }
    assert!(begun.elapsed() > 2 * SHORT, "it took longer than a single gap may");
    assert_eq!(client.published().seq.get(), 1);
    node.running.stop();
}

#[test]
fn rule_9_a_peer_that_takes_nothing_of_what_is_sent_to_it_is_given_up() {
    let node = Node::start(|timeouts| timeouts.keepalive = SHORT);
    let mut producer = node.client();
    let topic_id = producer.declare("orders", "{\"partitions\":1}");
    // More than the sockets of both sides hold together.
    for _ in 0..24 {
        producer.publish(topic_id, &vec![7; 1 << 20]);
    }
    let mut stalled = node.client();
    stalled.declare("orders", "");
    let subscribe = Subscribe {
        group: "g",
        topic_id: 1,
        start: StartPolicy::Earliest,
        credit_count: 1000,
        credit_bytes: u32::MAX - 1,
        is_shared: true,
        options: b"",
    };
    stalled.send(|out| subscribe.encode(out).expect("it fits"));
    // It speaks all the time, so that it is not its silence that ends it, and it never reads.
    let begun = Instant::now();
    while connections(&node) > 1 {
        assert!(begun.elapsed() < Duration::from_secs(20), "it was never given up");
        ping(&mut producer);
        let mut out = BytesMut::new();
        Ping.encode(&mut out);
        // Once it is given up this fails.
        let _ = stalled.stream.write_all(&out);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(begun.elapsed() >= SHORT - Duration::from_millis(100), "too early");
    node.running.stop();
}

#[test]
fn rule_9_a_large_frame_that_crawls_makes_room_for_one_that_does_not() {
    let node = Node::start(|timeouts| timeouts.crawl = SHORT);
    let mut client = node.client();
    let topic = client.declare("orders", "{\"partitions\":1,\"max_message_bytes\":16000000}");
    // Two of them hold nearly all of the budget, and bring a byte now and then.
    let mut crawling: Vec<Client> = (0..2).map(|_| node.client()).collect();
    for client in &mut crawling {
        client.write(&[0, 0xF0, 0, 0, Op::Publish as u8, 0, 1]);
    }
    let begun = Instant::now();
    // It waits for room, and gets it when one of them is closed.
    assert_eq!(client.publish(topic, &vec![7; 15_000_000]).seq.get(), 1);
    assert!(begun.elapsed() >= SHORT, "there was room for it without that");
    let is_closed = |client: &mut Client| {
        client.stream.set_nonblocking(true).expect("a flag");
        matches!(client.stream.read(&mut [0]), Ok(0))
    };
    assert!(crawling.iter_mut().any(is_closed), "one of them made room");
    node.running.stop();
}

#[test]
fn connect_is_due_in_time_whatever_else_comes_and_its_time_out_is_told() {
    let node = Node::start(|timeouts| timeouts.connect = SHORT);
    let address = node.running.addresses().client;
    let (mut silent, mut half) = (Client::open(address), Client::open(address));
    let mut greeted = node.client();
    let mut begun = BytesMut::new();
    begun.put_slice(&[0, 0, 0, 40, Op::Connect as u8, 1]);
    half.write(&begun);
    for client in [&mut silent, &mut half] {
        let refused = client.closing_err();
        assert_eq!(refused.code, Some(mortarmq_wire::ErrorCode::AuthTimeout), "{}", refused.text);
    }
    ping(&mut greeted);
    node.running.stop();
}

/// How many connections the node has, as it says itself.
fn connections(node: &Node) -> u64 {
    let mut stream = TcpStream::connect(node.running.addresses().admin).expect("the node listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let row = answer.lines().find_map(|line| line.strip_prefix("mortarmq_connections ")).expect("a row");
    row.parse().expect("a number")
}
