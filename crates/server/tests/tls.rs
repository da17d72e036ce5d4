//! TLS on both listeners: what goes through it, who is turned away, and what they are told.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use mortarmq_client::{
    Client as TlsClient, ClientError, ClientOptions, ConsumerOptions, Message, ProducerOptions, Roots, TlsOptions,
    TopicOptions,
};
use mortarmq_server::{Config, Running, Server, StartError};
use mortarmq_wire::ErrorCode;
use support::{Client, config};

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
    config(&folder.join("data"), &[("tls-cert", &certificate), ("tls-key", &key)])
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
