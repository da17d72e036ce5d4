//! Every refusal of the wire protocol over a real socket: its code, its outcome, the op it answers, a text that says what
//! to do, whether the connection stays, and that nothing was stored. One row per refusal, in the files beside this one.
//!
//! The disk that is full has a test of its own, with a real full disk (crates/mortarmq/tests/full_disk.rs); a client
//! without a place stands in `limits.rs`.

#[path = "../support/mod.rs"]
mod support;

mod consume;
mod early;
mod publish;
mod settle;
mod topics;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use bytes::{BufMut, BytesMut};
use mortarmq_server::{Running, Server};
use mortarmq_wire::ops::{Connect, Ping};
use mortarmq_wire::{ErrorCode, Op, Outcome};
use serde_json::{Map, Value};
use support::{Client, config};

/// One refusal.
struct Row {
    name: &'static str,
    code: ErrorCode,
    /// The op that ERR names; 0 where none was read.
    op: u8,
    outcome: Outcome,
    /// What stands in the text: what is wrong, and what to do.
    says: &'static [&'static str],
    closes: bool,
    /// Makes what must be there, and says what to send on which connection.
    ask: fn(&Node) -> (Client, BytesMut),
}

/// A row of a request that a connection survives.
const fn refused(
    name: &'static str,
    code: ErrorCode,
    op: Op,
    says: &'static [&'static str],
    ask: fn(&Node) -> (Client, BytesMut),
) -> Row {
    Row { name, code, op: op as u8, outcome: Outcome::Refused, says, closes: false, ask }
}

/// A row of a request that ends its connection.
const fn closing(
    name: &'static str,
    code: ErrorCode,
    op: u8,
    says: &'static [&'static str],
    ask: fn(&Node) -> (Client, BytesMut),
) -> Row {
    Row { name, code, op, outcome: Outcome::Refused, says, closes: true, ask }
}

impl Row {
    const fn unknown(self) -> Self {
        Self { outcome: Outcome::Unknown, ..self }
    }
}

/// A node, and the token of who asks.
struct Node {
    running: Running,
    token: &'static [u8],
    folder: tempfile::TempDir,
}

impl Node {
    /// Asks nobody for a token.
    fn open() -> Self {
        Self::start(&[], b"")
    }

    /// Has a token for everything on topics `shop*`, one that only consumes there, and an operator's.
    fn guarded() -> Self {
        let token = |name: &str, sha256: &str, grants: &str| {
            format!("{{\"name\":\"{name}\",\"sha256\":\"{sha256}\",\"grants\":[{grants}]}}")
        };
        let reader = "{\"action\":\"consume\",\"patterns\":[\"orders\"]}";
        let operator = "{\"action\":\"admin\"}";
        let tokens = format!("[{},{}]", token("reader", READER_SHA256, reader), token("ops", OPS_SHA256, operator));
        Self::start(&[("tokens", &tokens)], OPS)
    }

    fn start(flags: &[(&str, &str)], token: &'static [u8]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let running = Server::start(config(folder.path(), flags)).expect("the node starts");
        Self { running, token, folder }
    }

    fn address(&self) -> SocketAddr {
        self.running.addresses().client
    }

    /// A connection without CONNECT.
    fn stranger(&self) -> Client {
        Client::open(self.address())
    }

    /// A connection that has greeted.
    fn client(&self) -> Client {
        self.client_with(self.token)
    }

    fn client_with(&self, token: &[u8]) -> Client {
        let mut client = self.stranger();
        client.send(|out| Connect { token, client_name: b"refusals" }.encode(out).expect("it fits"));
        assert_eq!(client.ok().0, Op::Connect);
        client
    }

    /// A connection, and its handle of a new topic with one partition.
    fn with_topic(&self, name: &str) -> (Client, u16) {
        let mut client = self.client();
        let topic = client.declare(name, "{\"partitions\":1}");
        (client, topic)
    }

    /// What is stored: the last sequence of every partition, and every path's books.
    fn books(&self) -> Value {
        let mut stream = TcpStream::connect(self.running.addresses().admin).expect("the node listens");
        let token = String::from_utf8_lossy(self.token);
        let head = format!("authorization: Bearer {token}\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(format!("GET /stats HTTP/1.1\r\n{head}").as_bytes()).expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let body = answer.split_once("\r\n\r\n").expect("a body").1;
        let stats: Value = serde_json::from_str(body).expect("JSON");
        let topic = |topic: &Value| {
            let last: Vec<&Value> = items(&topic["partitions"]).iter().map(|found| &found["last_seq"]).collect();
            let book = |group: &Value| -> Map<String, Value> {
                let keys = ["group", "produced", "delivered", "dropped", "dlq", "depth"];
                keys.iter().map(|key| ((*key).to_owned(), group[*key].clone())).collect()
            };
            let books: Vec<_> = items(&topic["groups"]).iter().map(book).collect();
            serde_json::json!({"topic": topic["topic"], "id": topic["id"], "last_seq": last, "books": books})
        };
        items(&stats["topics"]).iter().map(topic).collect()
    }

    fn judge(&self, row: &Row) {
        let name = row.name;
        // Shown when a test fails: the last one is the row that did.
        println!("row: {name}");
        let (mut client, request) = (row.ask)(self);
        let before = self.books();
        client.write(&request);
        let refused = client.err();
        assert_eq!(refused.code, Some(row.code), "{name}: {}", refused.text);
        assert_eq!((refused.request_op, refused.outcome), (row.op, row.outcome), "{name}: {}", refused.text);
        for part in row.says {
            assert!(refused.text.contains(part), "{name}: {part:?} is not in {:?}", refused.text);
        }
        assert!(refused.text.len() <= 512, "{name}");
        for inside in [".rs", "::", "panicked", "Some(", "Error", self.folder.path().to_str().expect("text")] {
            assert!(!refused.text.contains(inside), "{name}: {inside:?} is nobody's business: {:?}", refused.text);
        }
        assert_eq!(row.code.closes(), row.closes, "{name}: the registry says otherwise");
        if row.closes {
            assert_eq!(client.try_frame(), None, "{name}: the closing ERR is the last frame");
        } else {
            client.send(|out| Ping.encode(out));
            assert_eq!(client.ok().0, Op::Ping, "{name}: the connection stays open");
        }
        assert_eq!(self.books(), before, "{name}: nothing was stored");
    }
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// A frame as it stands on the wire, good or not.
fn raw(op: u8, payload: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_u32(u32::try_from(payload.len() + 1).expect("short"));
    out.put_u8(op);
    out.put_slice(payload);
    out
}

/// A frame that `encode` writes.
fn frame(encode: impl FnOnce(&mut BytesMut)) -> BytesMut {
    let mut out = BytesMut::new();
    encode(&mut out);
    out
}

/// The same frame with one byte of its payload set.
fn with_byte(mut frame: BytesMut, at: usize, byte: u8) -> BytesMut {
    frame[5 + at] = byte;
    frame
}

#[test]
fn every_refusal_has_its_code_says_what_to_do_and_stores_nothing() {
    let node = Node::open();
    let tables = [early::ROWS, topics::ROWS, publish::ROWS, consume::ROWS, settle::ROWS];
    for row in tables.into_iter().flatten() {
        node.judge(row);
    }
    node.running.stop();
}

#[test]
fn every_refusal_of_a_guarded_node_has_its_code_says_what_to_do_and_stores_nothing() {
    let node = Node::guarded();
    node.client().declare("orders", "");
    for row in early::GUARDED_ROWS {
        node.judge(row);
    }
    node.running.stop();
}

#[test]
fn whoever_does_not_send_connect_in_time_is_told_so_and_closed() {
    let node = Node::open();
    let mut silent = node.stranger();
    let mut chatty = node.stranger();
    chatty.send(|out| Ping.encode(out));
    assert_eq!(chatty.ok().0, Op::Ping, "a sign of life is no CONNECT");
    for client in [&mut silent, &mut chatty] {
        let refused = client.closing_err();
        assert_eq!((refused.code, refused.request_op), (Some(ErrorCode::AuthTimeout), 0), "{}", refused.text);
        assert!(refused.text.contains("connect again"), "{}", refused.text);
    }
    node.running.stop();
}

const READER: &[u8] = b"reader-secret-0001";
const READER_SHA256: &str = "15094cd11dc641b129d1af641544e51bbb5c9580f16a723cac3274ec2944e014";
const OPS: &[u8] = b"operator-secret-1";
const OPS_SHA256: &str = "e67e512bb7fb256fc192194cad8c1774acbb2290da0e5ad1d5b72e34628db110";
