//! What a node does with clients that take more than their part: each is held to a bound, and the others go on.

mod support;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::BytesMut;
use mortarmq_server::{Config, Running, Server};
use mortarmq_types::Cause;
use mortarmq_wire::ops::{Message, Metadata, Ping, StartPolicy, Subscribe};
use mortarmq_wire::{ErrorCode, List, Op, ServerFrame};
use support::{Client, config, connect_frame, start};

/// One partition, and failures of consumers that are retried at once.
const EAGER: &str = "{\"partitions\":1,\"retry_backoff_base_ms\":0}";
/// More than the sockets of both sides hold together.
const MESSAGES: u64 = 40;
const VALUE_BYTES: usize = 1 << 20;

fn start_with(config: Config) -> Running {
    Server::start(config).expect("the node starts")
}

/// Publishes more than a stalled socket takes.
fn fill(node: &Running, options: &str) {
    let mut producer = Client::connect(node.addresses().client);
    let topic = producer.declare("orders", options);
    let value = vec![7; VALUE_BYTES];
    for _ in 0..MESSAGES {
        producer.publish(topic, &value);
    }
}

/// A consumer whose window takes all of it, and which reads nothing behind the answer to SUB.
fn greedy(node: &Running) -> Client {
    let mut client = Client::connect(node.addresses().client);
    let topic_id = client.declare("orders", "");
    let subscribe = Subscribe {
        group: "g",
        topic_id,
        start: StartPolicy::Earliest,
        credit_count: 1000,
        credit_bytes: u32::MAX - 1,
        is_shared: true,
        options: b"",
    };
    client.send(|out| subscribe.encode(out).expect("it fits"));
    assert_eq!(client.ok().0, Op::Subscribe);
    client
}

/// Reads on until `is_end` says so of a frame that is no message; returns the messages' sequences and causes.
fn read_until(client: &mut Client, is_end: impl Fn(&ServerFrame<'_>) -> bool) -> Vec<(u64, Cause)> {
    let mut messages = Vec::new();
    loop {
        let (op, payload) = client.frame();
        match ServerFrame::decode(op, &payload).expect("a good frame") {
            ServerFrame::Message(Message { seq, cause, .. }) => messages.push((seq.get(), cause)),
            other if is_end(&other) => return messages,
            ServerFrame::Ok(_) | ServerFrame::Error(_) => panic!("another frame"),
        }
    }
}

#[test]
fn rule_9_a_slow_consumer_is_told_so_and_what_it_did_not_take_goes_to_another() {
    // Goal: memory is bounded by turning out who piles it up, and not one message is lost by that. Method: a small
    // bound, a consumer that reads nothing, and another one that has to get exactly the rest, at once.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut config = config(folder.path(), &[]);
    config.send_budget_bytes = 4 << 20;
    let node = start_with(config);
    let mut producer = Client::connect(node.addresses().client);
    producer.declare("orders", EAGER);
    let mut slow = greedy(&node);
    fill(&node, EAGER);
    let mut other = Client::connect(node.addresses().client);
    let handle = other.declare("orders", "");
    let joined = other.subscribe(handle, "g", u16::MAX);
    let (mut rest, mut released) = (BTreeSet::new(), 0);
    while other.has_message_within(Duration::from_millis(300)) {
        let message = other.message();
        assert_eq!(message.attempt, 1, "what was not sent was no attempt");
        assert!(rest.insert(message.seq.get()), "once each");
        released += u64::from(message.cause == Cause::Released);
        assert_eq!(other.ack_all(joined.subscription_id, &[message]), [0]);
    }
    assert!(released > 0, "some had been leased to the slow consumer");
    let is_turned_out = |frame: &ServerFrame<'_>| matches!(frame, ServerFrame::Error(error) if error.known_code() == Some(ErrorCode::SlowConsumer));
    let taken: BTreeSet<u64> = read_until(&mut slow, is_turned_out).into_iter().map(|(seq, _)| seq).collect();
    assert_eq!(slow.try_frame(), None, "the connection closes behind SLOW_CONSUMER");
    assert!(taken.is_disjoint(&rest), "{taken:?} {rest:?}");
    assert_eq!(&taken | &rest, (1..=MESSAGES).collect());
    assert!(!taken.is_empty() && !rest.is_empty());
    node.stop();
}

#[test]
fn rule_7_what_a_stalled_socket_held_up_is_not_sent_once_its_lease_is_spent() {
    // Goal: a lease is checked just before each write. Method: a consumer reads nothing until its leases have ended and
    // another one got the messages; what had not left by then must not reach it any more.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start(folder.path());
    fill(&node, "{\"partitions\":1,\"retry_backoff_base_ms\":0,\"lease_ms\":1000,\"credit_count\":1}");
    let mut stalled = greedy(&node);
    assert!(stalled.has_message_within(Duration::from_secs(5)));
    let mut other = Client::connect(node.addresses().client);
    let handle = other.declare("orders", "");
    let joined = other.subscribe(handle, "g", u16::MAX);
    // What the stalled consumer was not leased any more comes first; what it was leased comes when that has ended.
    loop {
        let message = other.message();
        let (attempt, cause) = (message.attempt, message.cause);
        assert_eq!(other.ack_all(joined.subscription_id, &[message]), [0]);
        if cause != Cause::First {
            assert_eq!((attempt, cause), (2, Cause::LeaseExpired));
            break;
        }
    }
    stalled.send(|out| Ping.encode(out));
    let is_pong = |frame: &ServerFrame<'_>| matches!(frame, ServerFrame::Ok(answer) if answer.request_op == Op::Ping);
    let taken = read_until(&mut stalled, is_pong);
    let in_time = taken.iter().filter(|(_, cause)| *cause == Cause::First).count() as u64;
    assert!((1..MESSAGES).contains(&in_time), "{in_time} of {MESSAGES} left before the socket stalled");
    node.stop();
}

#[test]
fn rule_9_a_flood_of_metadata_is_answered_one_by_one_while_others_are_served() {
    // Goal: large answers do not pile up. Method: thousands of questions for all topics in one write, none of the answers
    // read; another client is served at once, and then every answer comes in its order.
    const QUESTIONS: usize = 3000;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start(folder.path());
    let mut client = Client::connect(node.addresses().client);
    for number in 0..40 {
        client.declare(&format!("{number}-{}", "long".repeat(40)), "{\"partitions\":1}");
    }
    let mut flood = BytesMut::new();
    for _ in 0..QUESTIONS {
        Metadata { topics: List::default() }.encode(&mut flood).expect("it fits");
    }
    Ping.encode(&mut flood);
    client.write(&flood);
    let mut other = Client::connect(node.addresses().client);
    let topic = other.declare("orders", EAGER);
    other.publish(topic, b"at once");
    for _ in 0..QUESTIONS {
        assert_eq!(client.ok().0, Op::Metadata);
    }
    assert_eq!(client.ok().0, Op::Ping);
    node.stop();
}

#[test]
fn requests_beyond_those_that_may_be_open_are_taken_in_their_turn_and_answered_before_the_end() {
    // Goal: frames that were read while too many requests were open are neither lost nor forgotten. Method: more pings than
    // may be open arrive in few reads, and the peer sends nothing behind them.
    const PINGS: usize = 30_000;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start(folder.path());
    let mut client = Client::connect(node.addresses().client);
    let mut pings = BytesMut::new();
    for _ in 0..PINGS {
        Ping.encode(&mut pings);
    }
    client.write(&pings);
    client.stream.shutdown(std::net::Shutdown::Write).expect("half closed");
    for _ in 0..PINGS {
        assert_eq!(client.ok().0, Op::Ping);
    }
    assert_eq!(client.try_frame(), None);
    node.stop();
}

#[test]
fn rule_9_a_client_without_a_place_is_told_why_even_if_it_speaks_first() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start_with(config(folder.path(), &[("max-connections", "1")]));
    let address = node.addresses().client;
    let first = Client::connect(address);
    let mut second = Client::open(address);
    second.send(connect_frame);
    let refused = second.closing_err();
    assert_eq!(refused.code, Some(ErrorCode::QuotaExceeded));
    assert!(refused.text.contains("max_connections"), "{}", refused.text);
    drop((first, second));
    while is_refused(address) {}
    node.stop();
}

#[test]
fn rule_9_the_admin_listener_has_a_bound_of_its_own_and_says_so() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start_with(config(folder.path(), &[("max-connections", "2")]));
    let address = node.addresses().admin;
    let ask = || {
        let mut stream = TcpStream::connect(address).expect("the node listens");
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    };
    assert!(ask().starts_with("HTTP/1.1 200"), "{}", ask());
    let silent: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(address).expect("the node listens")).collect();
    let refused = ask();
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("max_connections"), "{refused}");
    // Clients have places of their own.
    Client::connect(node.addresses().client);
    drop(silent);
    while !ask().starts_with("HTTP/1.1 200") {}
    node.stop();
}

/// Whether there is no place yet.
fn is_refused(address: std::net::SocketAddr) -> bool {
    let mut client = Client::open(address);
    client.send(connect_frame);
    let (op, payload) = client.frame();
    matches!(ServerFrame::decode(op, &payload).expect("a good frame"), ServerFrame::Error(_))
}

#[test]
fn rule_9_strangers_take_nothing_of_the_receive_budget() {
    // Goal: who has not shown who it is cannot keep large frames of others out. Method: the smallest budget, as many
    // strangers that begin the largest frame as would use it up, and a client with a large frame, while they wait.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start_with(config(folder.path(), &[("receive-budget-bytes", "32MiB")]));
    let mut client = Client::connect(node.addresses().client);
    let topic = client.declare("orders", EAGER);
    let strangers: Vec<Client> = (0..8)
        .map(|number| {
            let mut stranger = Client::open(node.addresses().client);
            // The length alone, and a frame of which much is to come and some is there.
            let begun: &[u8] = if number % 2 == 0 { &[1, 0, 0, 0] } else { &[0, 1, 7, 0, 1, 1, 0, 0] };
            stranger.write(begun);
            stranger
        })
        .collect();
    client.publish(topic, &vec![7; VALUE_BYTES]);
    for stranger in &strangers {
        stranger.stream.set_nonblocking(true).expect("a flag");
        let found = stranger.stream.peek(&mut [0]).expect_err("the client did not wait for its time-out");
        assert_eq!(found.kind(), std::io::ErrorKind::WouldBlock);
    }
    node.stop();
}
