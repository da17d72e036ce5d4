//! The wire protocol over WebSocket: the same frames, one in each binary message.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::BytesMut;
use mortarmq_server::{Running, Server};
use mortarmq_types::Partition;
use mortarmq_wire::ops::{Message, OkAnswer, Ping, PublishOk, SubscribeOk};
use mortarmq_wire::{ErrorCode, Op, ServerFrame, Split, split_frame};
use support::{Client, config, connect_frame, declare_frame, publish_frame, subscribe_frame};
use tungstenite::client::IntoClientRequest;
use tungstenite::{Message as Web, WebSocket};

struct Browser {
    socket: WebSocket<TcpStream>,
}

impl Browser {
    fn open(address: SocketAddr) -> Self {
        Self::of_origin(address, None).expect("it is accepted")
    }

    fn of_origin(address: SocketAddr, origin: Option<&str>) -> Result<Self, String> {
        let stream = TcpStream::connect(address).expect("the node listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
        let mut request = format!("ws://{address}/").into_client_request().expect("a request");
        if let Some(origin) = origin {
            request.headers_mut().insert("origin", origin.parse().expect("text"));
        }
        let opened = tungstenite::client::client(request, stream);
        opened.map(|(socket, _)| Self { socket }).map_err(|error| error.to_string())
    }

    fn connect(address: SocketAddr) -> Self {
        let mut browser = Self::open(address);
        assert_eq!(browser.ask(connect_frame).0, Op::Connect);
        browser
    }

    fn send(&mut self, encode: impl FnOnce(&mut BytesMut)) {
        let mut out = BytesMut::new();
        encode(&mut out);
        self.socket.send(Web::Binary(out.freeze())).expect("the node takes what is sent");
    }

    /// The next binary message, which is one whole frame: op and payload; none at the end.
    fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            match self.socket.read() {
                Ok(Web::Binary(message)) => {
                    let Ok(Split::Frame { op, payload, consumed }) = split_frame(&message) else { panic!("no frame") };
                    assert_eq!(consumed, message.len(), "one frame in each message");
                    return Some((op, payload.to_vec()));
                }
                Ok(Web::Close(_)) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    fn ask(&mut self, encode: impl FnOnce(&mut BytesMut)) -> (Op, Vec<u8>) {
        self.send(encode);
        self.ok()
    }

    fn ok(&mut self) -> (Op, Vec<u8>) {
        let (op, payload) = self.frame().expect("an answer");
        match ServerFrame::decode(op, &payload).expect("a good frame") {
            ServerFrame::Ok(OkAnswer { request_op, result }) => (request_op, result.to_vec()),
            other => panic!("OK expected, got {other:?}"),
        }
    }
}

fn start(folder: &std::path::Path) -> (Running, SocketAddr) {
    let node = Server::start(config(folder, &[("listen-ws", "127.0.0.1:0")])).expect("the node starts");
    let address = node.addresses().ws.expect("it listens");
    (node, address)
}

#[test]
fn messages_of_all_sizes_go_both_ways_and_to_clients_of_the_plain_listener() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, address) = start(folder.path());
    let mut browser = Browser::connect(address);
    browser.ask(|out| declare_frame(out, "orders", "{\"partitions\":1,\"max_message_bytes\":16776192}"));
    // Around the places where headers and buffers change their size, and the largest there is.
    let sizes = [0, 1, 60, 125, 126, 65_000, 65_535, 65_536, 70_000, 1 << 20, (16 << 20) - 1024];
    for (number, size) in sizes.into_iter().enumerate() {
        let fill = u8::try_from(number).expect("small");
        let (op, result) = browser.ask(|out| publish_frame(out, 1, 0, 0, b"", &vec![fill; size]));
        let published = PublishOk::decode(&result).expect("a good result");
        assert_eq!((op, published.seq.get(), published.partition), (Op::Publish, number as u64 + 1, Partition::ZERO));
    }
    let options = "{\"credit_bytes\":40000000,\"order\":\"none\"}";
    let (_, result) = browser.ask(|out| support::subscribe_frame_with(out, 1, "web", u16::MAX, options));
    SubscribeOk::decode(&result).expect("a good result");
    for (number, size) in sizes.into_iter().enumerate() {
        let (op, payload) = browser.frame().expect("a message");
        let Ok(ServerFrame::Message(Message { body, .. })) = ServerFrame::decode(op, &payload) else { panic!("a MSG") };
        assert!(body.value().len() == size && body.value().iter().all(|byte| usize::from(*byte) == number), "{number}");
    }
    let mut plain = Client::connect(node.addresses().client);
    let topic = plain.declare("orders", "");
    plain.send(|out| subscribe_frame(out, topic, "plain", 5));
    assert_eq!(plain.ok().0, Op::Subscribe);
    assert_eq!(plain.message().value, b"");
    node.stop();
}

#[test]
fn a_ping_is_answered_and_a_close_ends_behind_the_answers() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, address) = start(folder.path());
    let mut browser = Browser::connect(address);
    browser.socket.send(Web::Ping(b"there?".to_vec().into())).expect("sent");
    assert_eq!(browser.socket.read().expect("an answer"), Web::Pong(b"there?".to_vec().into()));
    for _ in 0..100 {
        browser.send(|out| Ping.encode(out));
    }
    browser.socket.close(None).expect("sent");
    for _ in 0..100 {
        assert_eq!(browser.ok().0, Op::Ping);
    }
    assert_eq!(browser.frame(), None);
    node.stop();
}

#[test]
fn a_message_that_is_no_frame_is_told_so_and_closed_behind_earlier_answers() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, address) = start(folder.path());
    let mut two = BytesMut::new();
    Ping.encode(&mut two);
    Ping.encode(&mut two);
    for (message, is_whole_first, says) in [
        (Web::Binary(two.freeze()), true, "exactly one frame"),
        (Web::Binary(b"\0\0\0\x09\x07".to_vec().into()), false, "exactly one frame"),
        (Web::Text("{}".into()), false, "binary messages"),
        (Web::Binary(b"\0\0\0\0".to_vec().into()), false, "outside 1..="),
    ] {
        let mut browser = Browser::connect(address);
        browser.send(|out| Ping.encode(out));
        browser.socket.send(message).expect("sent");
        assert_eq!(browser.ok().0, Op::Ping, "{says}");
        if is_whole_first {
            assert_eq!(browser.ok().0, Op::Ping, "the first of two is whole");
        }
        let (op, payload) = browser.frame().expect("the reason");
        let Ok(ServerFrame::Error(error)) = ServerFrame::decode(op, &payload) else { panic!("ERR expected") };
        assert_eq!(error.known_code(), Some(ErrorCode::BadLength));
        let text = String::from_utf8_lossy(error.message);
        assert!(text.contains(says), "{text}");
        assert_eq!(browser.frame(), None, "{says}");
    }
    node.stop();
}

#[test]
fn pages_of_other_origins_may_not_connect() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, address) = start(folder.path());
    let refused = Browser::of_origin(address, Some("https://evil.example")).map(|_| ()).expect_err("another origin");
    assert!(refused.contains("403"), "{refused}");
    Browser::of_origin(address, Some("http://localhost:3000")).expect("this machine");
    node.stop();
}

#[test]
fn rule_9_a_web_socket_without_a_place_is_told_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let flags = [("listen-ws", "127.0.0.1:0"), ("max-connections", "1")];
    let node = Server::start(config(folder.path(), &flags)).expect("the node starts");
    let address = node.addresses().ws.expect("it listens");
    let _first = Browser::connect(address);
    let refused = Browser::of_origin(address, None).map(|_| ()).expect_err("no place");
    assert!(refused.contains("503"), "{refused}");
    Client::connect(node.addresses().client);
    node.stop();
}

#[test]
fn pings_of_a_web_socket_are_no_frames_and_keep_no_connection_alive() {
    // Goal: what a proxy or a browser sends by itself does not hide that nobody speaks. Method: a keepalive time that is short,
    // and pings of both kinds in time: those of the WebSocket end with the connection, those of the protocol keep it.
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(folder.path(), &[("listen-ws", "127.0.0.1:0")]);
    config.timeouts.keepalive = Duration::from_millis(800);
    let node = Server::start(config).expect("the node starts");
    let address = node.addresses().ws.expect("it listens");
    let (mut browser, mut alive) = (Browser::connect(address), Browser::connect(address));
    let begun = std::time::Instant::now();
    loop {
        assert_eq!(alive.ask(|out| Ping.encode(out)).0, Op::Ping);
        let answered = browser.socket.send(Web::Ping(b"there?".to_vec().into())).is_ok()
            && browser.socket.read().is_ok_and(|answer| matches!(answer, Web::Pong(_)));
        if !answered {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "pings kept it alive");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(begun.elapsed() >= Duration::from_millis(700), "too early");
    assert_eq!(alive.ask(|out| Ping.encode(out)).0, Op::Ping);
    node.stop();
}

#[test]
fn rule_9_a_handshake_that_is_not_done_in_time_ends_the_connection() {
    // Goal: the handshake counts for the CONNECT time-out. Method: nothing, half a head, a whole head without a CONNECT behind it.
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(folder.path(), &[("listen-ws", "127.0.0.1:0")]);
    config.timeouts.connect = Duration::from_millis(800);
    let node = Server::start(config).expect("the node starts");
    let address = node.addresses().ws.expect("it listens");
    for begun in ["", "GET / HTTP/1.1\r\nhost: a\r\n"] {
        let mut stream = TcpStream::connect(address).expect("the node listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
        let since = std::time::Instant::now();
        stream.write_all(begun.as_bytes()).expect("written");
        let mut told = Vec::new();
        stream.read_to_end(&mut told).expect("it ends");
        assert!(since.elapsed() >= Duration::from_millis(700), "{begun:?}: too early");
    }
    let mut silent = Browser::open(address);
    let (op, payload) = silent.frame().expect("the reason");
    let Ok(ServerFrame::Error(error)) = ServerFrame::decode(op, &payload) else { panic!("ERR expected") };
    assert_eq!(error.known_code(), Some(ErrorCode::AuthTimeout));
    assert_eq!(silent.frame(), None);
    node.stop();
}
