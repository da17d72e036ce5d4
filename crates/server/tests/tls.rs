//! TLS on both listeners: what goes through it, who is turned away, and what they are told.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use mortarmq_client::{
    Client as TlsClient, ClientError, ClientOptions, ConsumerOptions, Message, ProducerOptions, Roots, TlsOptions,
    TopicOptions,
};
use mortarmq_server::{Config, Running, Server, StartError};
use mortarmq_wire::ops::{OkAnswer, PublishOk};
use mortarmq_wire::{ErrorCode, Op, ServerFrame, Split, split_frame};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use support::{Client, config, connect_frame, declare_frame, publish_frame, subscribe_frame};
use tungstenite::Message as Web;
use tungstenite::client::IntoClientRequest;

/// Writes a CA, a certificate of this machine and its key, and gives a node's configuration with them.
fn tls_config(folder: &Path) -> Config {
    let ca_key = rcgen::KeyPair::generate().expect("a key");
    let mut ca = rcgen::CertificateParams::new(Vec::new()).expect("no names");
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().expect("a key");
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let params = rcgen::CertificateParams::new(names).expect("names");
    let certificate = params.signed_by(&key, &rcgen::Issuer::from_params(&ca, &ca_key)).expect("signed");
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("text").to_owned()
    };
    write("ca.pem", ca.self_signed(&ca_key).expect("signed").pem());
    let (certificate, key) = (write("cert.pem", certificate.pem()), write("key.pem", key.serialize_pem()));
    config(&folder.join("data"), &[("tls-cert", &certificate), ("tls-key", &key), ("listen-ws", "127.0.0.1:0")])
}

struct Node {
    running: Running,
    folder: tempfile::TempDir,
}

impl Node {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let running = Server::start(tls_config(folder.path())).expect("it starts");
        Self { running, folder }
    }

    fn client(&self) -> SocketAddr {
        self.running.addresses().client
    }

    fn options(&self) -> ClientOptions {
        ClientOptions {
            servers: vec![self.client().to_string()],
            tls: Some(TlsOptions { roots: Roots::File(self.folder.path().join("ca.pem")) }),
            ..ClientOptions::default()
        }
    }
}

/// A stream of TLS that trusts the CA of this node alone.
fn tls_stream(node: &Node, address: SocketAddr) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(node.folder.path().join("ca.pem")).expect("a certificate");
    roots.add(ca).expect("a CA");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("1.2, 1.3");
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a client");
    let socket = TcpStream::connect(address).expect("the node listens");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
    StreamOwned::new(connection, socket)
}

/// A node has a runtime of its own, and may not be started inside another.
fn block_on<T>(client: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().expect("a runtime").block_on(client)
}

/// Reads to the end; a connection that breaks is at its end too.
fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
    let mut told = Vec::new();
    match stream.read_to_end(&mut told) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("it stays open: {error}"),
        _ => told,
    }
}

#[test]
fn messages_of_every_size_pass_over_tls_in_order() {
    let node = Node::start();
    block_on(async {
        let client = TlsClient::connect(node.options()).await.expect("connected");
        client.declare_topic("orders", TopicOptions::partitions(1)).await.expect("declared");
        let producer = client.producer("orders", ProducerOptions::default()).await.expect("a producer");
        let value = |index: usize| vec![index as u8; [0, 1, 100, 16_384, 16_385, 70_000, 900_000][index % 7]];
        let mut receipts = Vec::new();
        for index in 0..70 {
            let value = value(index);
            receipts.push(producer.send(Message { value: &value, ..Message::default() }).await.expect("sent"));
        }
        for receipt in receipts {
            receipt.await.expect("stored");
        }
        let mut consumer = client.consumer("orders", "billing", ConsumerOptions::default()).await.expect("a consumer");
        for index in 0..70 {
            let delivery = consumer.next().await.expect("it is open").expect("a message");
            assert!(delivery.value == value(index), "message {index}");
            delivery.ack().await.expect("acked");
        }
        client.close().await;
    });
}

#[test]
fn many_clients_of_which_some_read_nothing_do_not_hold_each_other() {
    let node = Node::start();
    block_on(async {
        let client = TlsClient::connect(node.options()).await.expect("connected");
        client.declare_topic("orders", TopicOptions::partitions(1)).await.expect("declared");
        // Connections that begin a handshake and go no further.
        let stalled: Vec<_> = (0..50)
            .map(|_| {
                let mut stream = TcpStream::connect(node.client()).expect("it listens");
                stream.write_all(&[22, 3, 1]).expect("sent");
                stream
            })
            .collect();
        let producer = client.producer("orders", ProducerOptions::default()).await.expect("a producer");
        let begun = Instant::now();
        for _ in 0..100 {
            let receipt = producer.send(Message { value: b"x", ..Message::default() }).await.expect("sent");
            receipt.await.expect("stored");
        }
        assert!(begun.elapsed() < Duration::from_secs(5), "it took {:?}", begun.elapsed());
        drop(stalled);
    });
}

#[test]
fn rule_9_a_handshake_that_is_not_done_in_5_s_ends_the_connection() {
    let node = Node::start();
    let begun = Instant::now();
    let mut silent = TcpStream::connect(node.client()).expect("it listens");
    let mut slow = TcpStream::connect(node.client()).expect("it listens");
    slow.write_all(&[22, 3, 1, 2, 0, 1]).expect("sent");
    assert!(!read_to_end(&mut slow).is_empty(), "an alert says that it is the end");
    let waited = begun.elapsed();
    assert!((Duration::from_millis(4900)..Duration::from_secs(10)).contains(&waited), "it took {waited:?}");
    assert_eq!(read_to_end(&mut silent), b"");
}

#[test]
fn garbage_ends_a_connection_and_nothing_else() {
    let node = Node::start();
    for garbage in [&[22, 3, 1, 0, 5, 1, 2, 3, 4, 5][..], &[22; 70_000], &[0xff; 100], b"\x16\x03\x01\xff\xff"] {
        let begun = Instant::now();
        let mut stream = TcpStream::connect(node.client()).expect("it listens");
        // It may be ended before all is sent.
        let _ = stream.write_all(garbage);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        read_to_end(&mut stream);
        assert!(begun.elapsed() < Duration::from_secs(4), "at once, not after a time-out");
    }
    block_on(async { TlsClient::connect(node.options()).await.expect("others are served") });
}

#[test]
fn a_client_without_tls_is_told_to_speak_it() {
    let node = Node::start();
    let mut client = Client::open(node.client());
    client.send(support::connect_frame);
    let refused = client.err();
    assert_eq!(refused.code, Some(ErrorCode::BadLength));
    assert!(refused.text.contains("speaks TLS only") && refused.text.contains("--tls-ca"), "{}", refused.text);
    assert!(client.try_frame().is_none(), "it is closed");

    let mut admin = TcpStream::connect(node.running.addresses().admin).expect("it listens");
    admin.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").expect("sent");
    admin.shutdown(std::net::Shutdown::Write).expect("open");
    let told = String::from_utf8(read_to_end(&mut admin)).expect("text");
    assert!(told.starts_with("HTTP/1.1 400 ") && told.contains("https://"), "{told}");
}

#[test]
fn a_client_with_tls_is_told_what_is_wrong_on_which_side() {
    let (node, other) = (Node::start(), Node::start());
    let folder = tempfile::tempdir().expect("a folder");
    let plain = support::start(&folder.path().join("data"));
    block_on(async {
        let refused = TlsClient::connect(ClientOptions { tls: other.options().tls, ..node.options() }).await;
        let error = refused.expect_err("another CA");
        assert!(matches!(error, ClientError::Tls { .. }), "{error}");
        assert!(
            error.to_string().contains("none of the given CAs") && error.to_string().contains("--tls-ca"),
            "{error}"
        );
        let refused = TlsClient::connect(ClientOptions { tls: None, ..node.options() }).await;
        assert!(refused.expect_err("no TLS").to_string().contains("--tls-ca"));

        let servers = vec![plain.addresses().client.to_string()];
        let error = TlsClient::connect(ClientOptions { servers, ..node.options() }).await.expect_err("TLS on one side");
        assert!(matches!(error, ClientError::Tls { .. }), "{error}");
        assert!(error.to_string().contains("does not speak TLS"), "{error}");

        let missing = Some(TlsOptions { roots: Roots::File("/no/such.pem".into()) });
        let error = TlsClient::connect(ClientOptions { tls: missing, ..node.options() }).await.expect_err("no file");
        assert!(error.to_string().contains("/no/such.pem"), "{error}");
    });
}

#[test]
fn files_that_are_wrong_stop_the_start_before_anything_is_touched() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = tls_config(folder.path());
    std::fs::write(folder.path().join("key.pem"), "no key").expect("written");
    let Err(error) = Server::start(config) else { panic!("it started") };
    assert!(matches!(&error, StartError::Tls(fault) if fault.to_string().contains("key.pem")), "{error:?}");
    assert!(!folder.path().join("data").exists(), "the data folder was made");
}

/// The next binary message of a WebSocket, which is one whole frame: op and payload; none at the end.
fn web_frame<S: Read + Write>(socket: &mut tungstenite::WebSocket<S>) -> Option<(u8, Vec<u8>)> {
    loop {
        match socket.read() {
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

#[test]
fn with_a_certificate_a_web_socket_is_wss_and_nothing_else() {
    // Goal: the same frames, inside messages, inside TLS. Method: a client that is none of ours, with messages of sizes around
    // those of a record of TLS and of a read; then one without TLS.
    let node = Node::start();
    let address = node.running.addresses().ws.expect("it listens");
    let request = format!("wss://localhost:{}/", address.port()).into_client_request().expect("a request");
    let (mut socket, _) = tungstenite::client::client(request, tls_stream(&node, address)).expect("it is accepted");
    let mut ask = |encode: &dyn Fn(&mut BytesMut), op: Op| {
        let mut out = BytesMut::new();
        encode(&mut out);
        socket.send(Web::Binary(out.freeze())).expect("the node takes what is sent");
        let (number, payload) = web_frame(&mut socket).expect("an answer");
        match ServerFrame::decode(number, &payload).expect("a good frame") {
            ServerFrame::Ok(OkAnswer { request_op, result }) if request_op == op => result.to_vec(),
            other => panic!("OK to {op:?} expected, got {other:?}"),
        }
    };
    ask(&connect_frame, Op::Connect);
    ask(&|out| declare_frame(out, "orders", "{\"partitions\":1}"), Op::Declare);
    let sizes = [0, 1, 16_000, 16_384, 17_000, 70_000, 1 << 20];
    for (number, size) in sizes.into_iter().enumerate() {
        let fill = u8::try_from(number).expect("small");
        let result = ask(&|out| publish_frame(out, 1, 0, 0, b"", &vec![fill; size]), Op::Publish);
        assert_eq!(PublishOk::decode(&result).expect("a good result").seq.get(), number as u64 + 1);
    }
    ask(&|out| subscribe_frame(out, 1, "web", u16::MAX), Op::Subscribe);
    for (number, size) in sizes.into_iter().enumerate() {
        let (op, payload) = web_frame(&mut socket).expect("a message");
        let Ok(ServerFrame::Message(message)) = ServerFrame::decode(op, &payload) else { panic!("a MSG") };
        let value = message.body.value();
        assert!(value.len() == size && value.iter().all(|byte| usize::from(*byte) == number), "{number}");
    }
    let plain = TcpStream::connect(address).expect("the node listens");
    plain.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
    let request = format!("ws://{address}/").into_client_request().expect("a request");
    assert!(tungstenite::client::client(request, plain).is_err(), "it speaks TLS only");
    node.running.stop();
}
