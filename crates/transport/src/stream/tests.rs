use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::Stream;
use crate::sealed::{Opener, Sealer};
use crate::{Acceptor, Connector, FileFault, Roots, TlsFault};

/// A CA, and a certificate of `localhost` that it issued, as files.
struct Files {
    folder: tempfile::TempDir,
    ca: String,
}

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let ca_key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca = params.self_signed(&ca_key).expect("signed").pem();
        let issuer = rcgen::Issuer::from_params(&params, &ca_key);
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &issuer).expect("signed").pem();
        let files = Self { folder, ca };
        std::fs::write(files.path("cert.pem"), certificate).expect("written");
        std::fs::write(files.path("key.pem"), key.serialize_pem()).expect("written");
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn acceptor(&self) -> Acceptor {
        Acceptor::from_files(&self.path("cert.pem"), &self.path("key.pem")).expect("they are right")
    }

    fn connector(&self) -> Connector {
        Connector::new(&Roots::Pem(self.ca.clone().into_bytes())).expect("it is right")
    }
}

async fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let (ours, theirs) = tokio::join!(TcpStream::connect(address), listener.accept());
    let sockets = (ours.expect("connected"), theirs.expect("accepted").0);
    // As server and client do: else the end of each write waits for an answer to its begin.
    sockets.0.set_nodelay(true).expect("a socket");
    sockets.1.set_nodelay(true).expect("a socket");
    sockets
}

/// A client and a server, before their handshake.
async fn pair() -> (Stream, Stream) {
    let files = Files::new();
    let (ours, theirs) = sockets().await;
    let client = files.connector().connect(ours, "localhost").expect("a name");
    (client, files.acceptor().accept(theirs).expect("a server"))
}

/// A client and a server whose handshake is done.
async fn greeted_pair() -> (Stream, Stream) {
    let (mut client, mut server) = pair().await;
    let (asked, answered) = tokio::join!(client.handshake(), server.handshake());
    asked.expect("they agree");
    answered.expect("they agree");
    (client, server)
}

/// As `pair`, with somebody between them who passes on a few bytes at a time.
async fn pair_in_pieces(sizes: &'static [usize]) -> (Stream, Stream) {
    let files = Files::new();
    let (ours, near) = sockets().await;
    let (far, theirs) = sockets().await;
    let (near_in, near_out) = near.into_split();
    let (far_in, far_out) = far.into_split();
    for (mut from, mut to) in [(near_in, far_out), (far_in, near_out)] {
        tokio::spawn(async move {
            for size in sizes.iter().cycle() {
                let mut piece = vec![0; *size];
                match from.read(&mut piece).await {
                    Ok(0) | Err(_) => return,
                    Ok(bytes) => to.write_all(&piece[..bytes]).await.expect("passed on"),
                }
            }
        });
    }
    let client = files.connector().connect(ours, "localhost").expect("a name");
    (client, files.acceptor().accept(theirs).expect("a server"))
}

/// Writes as server and client do: try, and wait when the socket takes no more.
async fn write_all(stream: &mut Stream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() || stream.wants_write() {
        let tried = if bytes.is_empty() { stream.try_flush().map(|_| 0) } else { stream.try_write(bytes) };
        match tried {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => stream.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads until `into` has so many bytes, or to the end.
async fn read_until(stream: &mut Stream, into: &mut BytesMut, bytes: usize) -> io::Result<()> {
    while into.len() < bytes {
        stream.readable().await?;
        match stream.try_read_buf(into) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// As [`read_until`], in the way of a server.
async fn poll_until(stream: &mut Stream, into: &mut BytesMut, bytes: usize) -> io::Result<()> {
    while into.len() < bytes {
        match std::future::poll_fn(|context| stream.poll_read_buf(context, 1000, into)).await {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn text(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index * 31 % 251) as u8).collect()
}

/// Client and server write `bytes` to each other at the same time.
async fn both_ways(mut client: Stream, mut server: Stream, bytes: usize) {
    let sent = text(bytes);
    let expected = sent.clone();
    // Echo: what comes is sent back, so both directions are busy.
    let echo = tokio::spawn(async move {
        let mut into = BytesMut::new();
        let mut passed = 0;
        while passed < bytes {
            poll_until(&mut server, &mut into, 1).await.expect("it comes");
            passed += into.len();
            write_all(&mut server, &into).await.expect("it goes");
            into.clear();
        }
        server
    });
    client.handshake().await.expect("they agree");
    let mut received = BytesMut::new();
    for piece in sent.chunks(100_000) {
        write_all(&mut client, piece).await.expect("it goes");
        let want = received.len() + piece.len();
        read_until(&mut client, &mut received, want).await.expect("it comes");
    }
    assert!(received == expected, "the bytes are others");
    let mut server = echo.await.expect("it ended");
    drop(client.finish());
    let mut rest = BytesMut::new();
    read_until(&mut server, &mut rest, 1).await.expect("an end");
    assert_eq!(rest.len(), 0);
}

#[tokio::test]
async fn bytes_arrive_whatever_the_network_cuts() {
    for sizes in [&[1][..], &[3, 1, 7, 2], &[5, 1000, 1], &[16_384 + 22, 1]] {
        let (client, server) = pair_in_pieces(sizes).await;
        both_ways(client, server, 5_000).await;
    }
}

#[tokio::test]
async fn rule_9_a_stream_on_which_nothing_comes_gets_no_room() {
    let (client, server) = sockets().await;
    let (mut client, mut server) = (Stream::plain(client), Stream::plain(server));
    let mut into = BytesMut::new();
    assert!(poll_until(&mut server, &mut into, 1).now_or_never().is_none());
    assert_eq!(into.capacity(), 0);
    write_all(&mut client, b"at last").await.expect("it goes");
    poll_until(&mut server, &mut into, 7).await.expect("it comes");
    assert_eq!(&into[..], b"at last");
    drop(client.finish());
    poll_until(&mut server, &mut into, 8).await.expect("an end");
    assert_eq!(into.len(), 7);
}

#[tokio::test]
async fn many_mib_pass_both_ways() {
    let (client, server) = pair().await;
    both_ways(client, server, 24 << 20).await;
    let (client, server) = sockets().await;
    both_ways(Stream::plain(client), Stream::plain(server), 24 << 20).await;
}

#[tokio::test]
async fn rule_9_what_waits_for_a_peer_that_reads_nothing_is_bounded() {
    let (mut client, mut server) = greeted_pair().await;
    let mut sent = Vec::new();
    loop {
        let piece = text(1 << 20);
        match server.try_write(&piece) {
            Ok(written) => {
                assert!(written <= 64 << 10, "one write took {written}");
                sent.extend_from_slice(&piece[..written]);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(server.wants_write(), "something waits");
    let stuck = server.try_flush().expect_err("the socket is full");
    assert_eq!(stuck.kind(), ErrorKind::WouldBlock);
    let before = sent.len();
    assert_eq!(server.try_write(b"more").expect_err("it is full").kind(), ErrorKind::WouldBlock);
    // Once the peer reads, all of it arrives, and then what was refused.
    let reader = tokio::spawn(async move {
        let mut received = BytesMut::new();
        read_until(&mut client, &mut received, before + 4).await.expect("it comes");
        received
    });
    write_all(&mut server, b"more").await.expect("it goes");
    sent.extend_from_slice(b"more");
    assert!(reader.await.expect("it ended") == sent, "the bytes are others");
    assert!(!server.wants_write());
}

#[tokio::test]
async fn what_was_decrypted_and_not_taken_is_readable_at_once() {
    let (mut client, mut server) = greeted_pair().await;
    write_all(&mut client, &text(1_000)).await.expect("it goes");
    let (mut received, mut waited) = (Vec::new(), 0);
    while received.len() < 1_000 {
        // That the socket has nothing more is known once it was asked: then only the stream knows that there is.
        if server.can_read_now() {
            let nothing = server.socket.try_read(&mut [0]).expect_err("all of it was read");
            assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
            waited += 1;
        }
        timeout(Duration::from_secs(5), server.readable()).await.expect("it is readable").expect("it is open");
        let mut little = BytesMut::with_capacity(64);
        match server.try_read_buf(&mut little) {
            Ok(bytes) => assert!((1..=64).contains(&bytes), "{bytes} in the room of 64"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        received.extend_from_slice(&little);
    }
    assert!(received == text(1_000) && waited > 10, "{waited} times");
}

#[tokio::test]
async fn an_end_is_an_end_whether_it_was_announced_or_not() {
    for is_announced in [true, false] {
        let (mut client, mut server) = greeted_pair().await;
        // What the server sends behind its handshake has to be read, or the system breaks the connection.
        let mut received = BytesMut::new();
        let _ = timeout(Duration::from_millis(50), read_until(&mut client, &mut received, 1)).await;
        write_all(&mut client, b"last words").await.expect("it goes");
        if is_announced {
            drop(client.finish())
        } else {
            drop(client)
        };
        read_until(&mut server, &mut received, usize::MAX).await.expect("an end");
        assert_eq!(&received[..], b"last words", "announced: {is_announced}");
        assert_eq!(server.try_read_buf(&mut received).expect("still the end"), 0);
    }
}

#[tokio::test]
async fn a_peer_that_stalls_in_its_handshake_holds_nobody() {
    let (mut socket, theirs) = sockets().await;
    let mut server = Files::new().acceptor().accept(theirs).expect("a server");
    // The begin of a record that never comes.
    socket.write_all(&[22, 3, 1, 2, 0, 1]).await.expect("sent");
    let stalled = timeout(Duration::from_millis(200), server.handshake()).await;
    assert!(stalled.is_err(), "it waits: {stalled:?}");
    server.readable().now_or_never();
    let error = server.try_read_buf(&mut BytesMut::new()).expect_err("nothing is there");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    drop(socket);
    let error = server.handshake().await.expect_err("the peer is gone");
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
}

/// Polls once.
trait NowOrNever: Future + Sized {
    fn now_or_never(self) -> Option<Self::Output> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match std::pin::pin!(self).poll(&mut context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }
}

impl<F: Future> NowOrNever for F {}

#[tokio::test]
async fn a_peer_without_tls_is_told_apart_and_sent_nothing() {
    let (mut socket, theirs) = sockets().await;
    let mut server = Files::new().acceptor().accept(theirs).expect("a server");
    socket.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("sent");
    let error = server.handshake().await.expect_err("no TLS");
    assert_eq!(TlsFault::of(&error), Some(TlsFault::NotTls));
    let mut theirs = server.finish();
    theirs.write_all(b"plain").await.expect("sent");
    drop(theirs);
    let mut told = Vec::new();
    // Bytes that were not read may break the connection behind what was said.
    let _ = socket.read_to_end(&mut told).await;
    assert_eq!(told, b"plain");
}

#[tokio::test]
async fn a_server_without_tls_and_one_with_another_certificate_are_told_apart() {
    let files = Files::new();
    let (ours, mut theirs) = sockets().await;
    let mut client = files.connector().connect(ours, "localhost").expect("a name");
    theirs.write_all(b"\0\0\0\x05hello").await.expect("sent");
    let error = client.handshake().await.expect_err("no TLS");
    assert_eq!(TlsFault::of(&error), Some(TlsFault::NotTls));

    for (connector, host, told) in [
        (Files::new().connector(), "localhost", "none of the given CAs"),
        (files.connector(), "127.0.0.1", "not for 127.0.0.1, but for localhost"),
        (files.connector(), "elsewhere", "not for elsewhere, but for localhost"),
    ] {
        let (ours, theirs) = sockets().await;
        let mut client = connector.connect(ours, host).expect("a name");
        let mut server = files.acceptor().accept(theirs).expect("a server");
        let (refused, alerted) = tokio::join!(client.handshake(), server.handshake());
        let error = refused.expect_err("another certificate");
        let Some(TlsFault::Certificate { reason }) = TlsFault::of(&error) else { panic!("{error}") };
        assert!(reason.contains(told), "{reason}");
        // TLS 1.3 ends the server's handshake with the client's: it hears of it then or with its next read.
        if let Err(error) = alerted {
            assert!(matches!(TlsFault::of(&error), Some(TlsFault::Broken { .. })), "{error}");
        }
    }
    let (ours, _theirs) = sockets().await;
    assert!(files.connector().connect(ours, "no name").is_err());
}

#[test]
fn a_file_that_is_wrong_is_named_with_what_to_do() {
    let files = Files::new();
    let other = Files::new();
    let told =
        |certificate: PathBuf, key: PathBuf| Acceptor::from_files(&certificate, &key).expect_err("wrong").to_string();
    let missing = told(files.path("nowhere.pem"), files.path("key.pem"));
    assert!(missing.contains("nowhere.pem") && missing.contains("may read"), "{missing}");
    let swapped = told(files.path("key.pem"), files.path("cert.pem"));
    assert!(swapped.contains("key.pem holds no certificate") && swapped.contains("PEM form"), "{swapped}");
    let no_key = told(files.path("cert.pem"), files.path("cert.pem"));
    assert!(no_key.contains("cert.pem holds no private key"), "{no_key}");
    let mixed = told(files.path("cert.pem"), other.path("key.pem"));
    assert!(mixed.contains("made together"), "{mixed}");
    std::fs::write(files.path("broken.pem"), "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n")
        .expect("written");
    let broken = Connector::new(&Roots::File(files.path("broken.pem"))).expect_err("no base64");
    assert!(matches!(broken, FileFault::NoPem { .. }) && broken.to_string().contains("broken.pem"), "{broken}");
    std::fs::write(files.path("empty.pem"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
        .expect("written");
    let empty = Connector::new(&Roots::File(files.path("empty.pem"))).expect_err("no certificate");
    assert!(matches!(empty, FileFault::Unusable { .. }), "{empty}");
}

/// Two ends that share their keys.
async fn sealed_pair() -> (Stream, Stream) {
    let (ours, theirs) = sockets().await;
    let (first, second) = ([1; 32], [2; 32]);
    let ours = Stream::sealed(ours, Opener::new(&second), Sealer::new(&first));
    (ours, Stream::sealed(theirs, Opener::new(&first), Sealer::new(&second)))
}

#[tokio::test]
async fn sealed_streams_carry_bytes_of_any_length_both_ways_and_announce_their_end() {
    let (mut ours, mut theirs) = sealed_pair().await;
    let said: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    let mut heard = Vec::new();
    let (written, read) = tokio::join!(
        async {
            ours.write_all(&said).await?;
            ours.flush().await?;
            ours.shutdown().await
        },
        theirs.read_to_end(&mut heard)
    );
    written.expect("written");
    read.expect("read to the end");
    assert!(heard == said, "all of it, in order");
    theirs.write_all(b"the other way it goes on").await.expect("written");
    theirs.shutdown().await.expect("written");
    let mut answer = Vec::new();
    ours.read_to_end(&mut answer).await.expect("read to the end");
    assert_eq!(answer, b"the other way it goes on");
}

#[tokio::test]
async fn p11_bytes_that_the_other_end_has_not_sealed_are_never_handed_out() {
    let (ours, theirs) = sockets().await;
    let mut theirs = Stream::sealed(theirs, Opener::new(&[1; 32]), Sealer::new(&[2; 32]));
    let mut stranger = Stream::sealed(ours, Opener::new(&[2; 32]), Sealer::new(&[3; 32]));
    stranger.write_all(b"from somebody else").await.expect("written");
    stranger.flush().await.expect("written");
    let read = theirs.read_u8().await;
    assert_eq!(read.expect_err("it is refused").kind(), ErrorKind::InvalidData);
    // Nor a length that no frame has.
    let (mut ours, theirs) = sockets().await;
    let mut theirs = Stream::sealed(theirs, Opener::new(&[1; 32]), Sealer::new(&[2; 32]));
    ours.write_all(&u32::MAX.to_be_bytes()).await.expect("written");
    assert_eq!(theirs.read_u8().await.expect_err("it is refused").kind(), ErrorKind::InvalidData);
}

#[tokio::test]
async fn rule_9_a_sealed_stream_whose_peer_reads_nothing_takes_no_more() {
    let (mut ours, _theirs) = sealed_pair().await;
    let piece = vec![0; 64 << 10];
    let mut taken = 0;
    while let Ok(written) = timeout(Duration::from_millis(200), ours.write(&piece)).await {
        taken += written.expect("it is open");
    }
    assert!(taken > 0 && ours.wants_write());
    assert_eq!(ours.try_write(&piece).expect_err("nothing is taken").kind(), ErrorKind::WouldBlock);
}
