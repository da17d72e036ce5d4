//! The sockets of the admin listener: so many and no more, and none that is held open by doing nothing.
//!
//! HTTP is spoken above; what can be told from the bytes alone is when a peer last moved. With TLS the bytes are those
//! inside it: a handshake has to be through before the first of them is late.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use axum::serve::IncomingStream;
use mortarmq_transport::{Acceptor, Stream, TlsFault};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

use crate::listener::with_tls;
use crate::turn_away::TurnAway;

/// Accepts the connections of operators.
pub(crate) struct AdminListener {
    listener: TcpListener,
    /// With it nothing but TLS is spoken.
    acceptor: Option<Acceptor>,
    places: Arc<Semaphore>,
    turn_away: TurnAway,
}

impl AdminListener {
    pub(crate) fn new(listener: TcpListener, acceptor: Option<Acceptor>, most: u32) -> Self {
        let text = format!("this listener has its {most} connections (max_connections): close some\n");
        let turn_away = TurnAway::new(answer("503 Service Unavailable", &text).into());
        Self { listener, acceptor, places: Arc::new(Semaphore::new(most as usize)), turn_away }
    }

    /// With TLS a connection too many is closed without a word: the words would cost a handshake.
    fn refuse(&self, socket: TcpStream) {
        if self.acceptor.is_none() {
            self.turn_away.refuse(socket);
        }
    }
}

/// An answer in plain text behind which the connection closes.
fn answer(status: &str, text: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{text}",
        text.len()
    )
}

impl axum::serve::Listener for AdminListener {
    type Io = AdminStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (AdminStream, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((socket, address)) => {
                    let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
                        self.refuse(socket);
                        continue;
                    };
                    let Some(stream) = with_tls(self.acceptor.as_ref(), socket) else { continue };
                    return (AdminStream::new(stream, Patience::DEFAULT, place), address);
                }
                Err(error) => crate::listener::pause_after(&error).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Whether the request under way on a connection may take as long as it takes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Patient(Arc<AtomicBool>);

impl Connected<IncomingStream<'_, AdminListener>> for Patient {
    fn connect_info(stream: IncomingStream<'_, AdminListener>) -> Self {
        stream.io().is_patient.clone()
    }
}

/// Gives a redrive or purge of dead letters its time: it goes at the pace that was asked for. The headers are read by then,
/// and a body has a time limit of its own, so nobody holds the connection by sending slowly.
pub(crate) async fn give_time(ConnectInfo(patient): ConnectInfo<Patient>, request: Request, next: Next) -> Response {
    let takes_long = request.method() == Method::POST && request.uri().path().ends_with("/dlq");
    patient.0.store(takes_long, Ordering::Relaxed);
    let response = next.run(request).await;
    patient.0.store(false, Ordering::Relaxed);
    response
}

/// How long a peer may do nothing.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// Before its first byte, its handshake included.
    first: Duration,
    /// From the first byte of a request to the first byte of its answer.
    request: Duration,
    /// While an answer waits for it to read.
    stall: Duration,
    /// From the last byte of an answer to the next request.
    idle: Duration,
}

impl Patience {
    /// A request is at most some headers, which arrive at once, and a body that has 10 s; an answer takes a moment. Those
    /// who scrape once a minute keep their connection.
    const DEFAULT: Self = Self {
        first: Duration::from_secs(10),
        request: Duration::from_secs(30),
        stall: Duration::from_secs(30),
        idle: Duration::from_secs(90),
    };
}

/// What a connection is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The first byte of a request.
    Idle,
    /// The rest of a request, or its answer.
    Request,
    /// The peer, to read its answer.
    Stalled,
}

/// One connection of an operator. It breaks when its peer does nothing for too long.
pub(crate) struct AdminStream {
    stream: Stream,
    /// The peer does not speak TLS, and was told that this is what is spoken here.
    is_told: bool,
    patience: Patience,
    phase: Phase,
    is_patient: Patient,
    alarm: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl AdminStream {
    fn new(stream: Stream, patience: Patience, place: OwnedSemaphorePermit) -> Self {
        let alarm = Box::pin(sleep(patience.first));
        let (phase, is_patient) = (Phase::Idle, Patient::default());
        Self { stream, is_told: false, patience, phase, is_patient, alarm, _place: place }
    }

    /// The same for a stream that another node carries here.
    pub(crate) fn carried(stream: Stream, place: OwnedSemaphorePermit) -> Self {
        Self::new(stream, Patience::DEFAULT, place)
    }

    /// Whether it may take its time is for whoever answers to say.
    pub(crate) fn patience(&self) -> Patient {
        self.is_patient.clone()
    }

    fn enter(&mut self, phase: Phase, patience: Duration) {
        self.phase = phase;
        self.alarm.as_mut().reset(Instant::now() + patience);
    }

    /// Pending until the peer has done nothing for too long.
    fn poll_alarm<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        ready!(self.alarm.as_mut().poll(context));
        if self.phase == Phase::Request && self.is_patient.0.load(Ordering::Relaxed) {
            self.enter(Phase::Request, self.patience.request);
            ready!(self.alarm.as_mut().poll(context));
        }
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Says in plain HTTP that this is not the way.
    fn tell_of_tls(&mut self) {
        self.is_told = true;
        self.stream.drop_tls();
        let text = "this address speaks TLS only: ask https://, with the CA of this broker\n";
        // It fits what the system buffers. Where it does not, nobody reads it.
        let _ = self.stream.try_write(answer("400 Bad Request", text).as_bytes());
    }

    /// Takes no requests any more, until the peer closes: bytes that were never read would make the system drop the answer.
    fn poll_drained(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut rest = [0; 1024];
            let mut rest = ReadBuf::new(&mut rest);
            match Pin::new(&mut self.stream).poll_read(context, &mut rest) {
                Poll::Ready(Ok(())) if !rest.filled().is_empty() => {}
                Poll::Ready(ended) => return Poll::Ready(ended),
                Poll::Pending => return self.poll_alarm(context),
            }
        }
    }

    fn after_write<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match written {
            Poll::Ready(_) => self.enter(Phase::Idle, self.patience.idle),
            Poll::Pending => {
                if self.phase != Phase::Stalled {
                    self.enter(Phase::Stalled, self.patience.stall);
                }
                return self.poll_alarm(context);
            }
        }
        written
    }
}

impl AsyncRead for AdminStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_told {
            return self.poll_drained(context);
        }
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(Err(error)) if TlsFault::of(&error) == Some(TlsFault::NotTls) => {
                self.tell_of_tls();
                self.poll_drained(context)
            }
            Poll::Ready(result) => {
                if self.phase == Phase::Idle && buffer.filled().len() > before {
                    let patience = self.patience.request;
                    self.enter(Phase::Request, patience);
                }
                // One byte from time to time is no progress: the alarm of the request goes on.
                if let Poll::Ready(late) = self.poll_alarm(context) {
                    return Poll::Ready(late);
                }
                Poll::Ready(result)
            }
            Poll::Pending => self.poll_alarm(context),
        }
    }
}

impl AsyncWrite for AdminStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.after_write(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.after_write(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // With TLS bytes may still wait here, and so for the peer.
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if flushed.is_ready() && self.phase != Phase::Stalled {
            return flushed;
        }
        self.after_write(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_shutdown(context) {
            Poll::Pending => self.after_write(context, Poll::Pending),
            shut @ Poll::Ready(_) => shut,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AdminStream, Patience};
    use mortarmq_transport::{Acceptor, Connector, Roots, Stream};
    use std::io::ErrorKind;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::Semaphore;

    const SHORT: Duration = Duration::from_millis(40);
    const LONG: Duration = Duration::from_secs(60);

    async fn pair(patience: Patience) -> (AdminStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (peer, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().expect("a place");
        let accepted = Stream::plain(accepted.expect("accepted").0);
        (AdminStream::new(accepted, patience, place), peer.expect("connected"))
    }

    const PATIENT: Patience = Patience { first: LONG, request: LONG, stall: LONG, idle: LONG };

    #[tokio::test]
    async fn rule_9_an_operator_connection_that_says_nothing_breaks() {
        let (mut stream, _peer) = pair(Patience { first: SHORT, ..PATIENT }).await;
        assert_eq!(stream.read_u8().await.expect_err("nothing comes").kind(), ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn rule_9_a_request_that_comes_byte_by_byte_breaks_its_connection() {
        let (mut stream, mut peer) = pair(Patience { request: 4 * SHORT, ..PATIENT }).await;
        let drip = tokio::spawn(async move {
            while peer.write_all(b"G").await.is_ok() {
                tokio::time::sleep(SHORT / 4).await;
            }
        });
        let mut last = Ok(0);
        while last.is_ok() {
            last = stream.read_u8().await;
        }
        assert_eq!(last.expect_err("it took too long").kind(), ErrorKind::TimedOut);
        drop(stream);
        drip.await.expect("the peer noticed");
    }

    #[tokio::test]
    async fn rule_9_a_peer_that_does_not_read_its_answer_breaks_its_connection() {
        let (mut stream, mut peer) = pair(Patience { stall: SHORT, ..PATIENT }).await;
        peer.write_all(b"GET").await.expect("written");
        assert_eq!(stream.read_u8().await.expect("a byte"), b'G');
        let answer = vec![0; 64 << 20];
        assert_eq!(stream.write_all(&answer).await.expect_err("nobody reads").kind(), ErrorKind::TimedOut);
    }

    /// As `pair`, over TLS; the handshake is not done.
    async fn tls_pair(patience: Patience) -> (AdminStream, Stream, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
        std::fs::write(&certificate, made.cert.pem()).expect("written");
        std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
        let (mut stream, peer) = pair(patience).await;
        let acceptor = Acceptor::from_files(&certificate, &key).expect("they are right");
        let plain = std::mem::replace(&mut stream.stream, Stream::plain(unused().await));
        stream.stream = acceptor.accept(plain.finish()).expect("a server");
        let connector = Connector::new(&Roots::File(certificate)).expect("it is right");
        (stream, connector.connect(peer, "localhost").expect("a name"), folder)
    }

    async fn unused() -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        TcpStream::connect(listener.local_addr().expect("an address")).await.expect("connected")
    }

    #[tokio::test]
    async fn rule_9_over_tls_a_peer_that_does_not_read_cannot_keep_its_connection() {
        let (mut stream, mut peer, _folder) = tls_pair(Patience { stall: SHORT, ..PATIENT }).await;
        let (greeted, read) = tokio::join!(peer.handshake(), async {
            // Lets the handshake go on: nothing comes yet.
            tokio::time::timeout(SHORT, stream.read_u8()).await
        });
        greeted.expect("they agree");
        assert!(read.is_err(), "{read:?}");
        peer.write_all(b"G").await.expect("written");
        assert_eq!(stream.read_u8().await.expect("a byte"), b'G');
        let answer = vec![0; 64 << 20];
        assert_eq!(stream.write_all(&answer).await.expect_err("nobody reads").kind(), ErrorKind::TimedOut);
        for _ in 0..2 {
            let ended = tokio::time::timeout(LONG / 2, stream.shutdown()).await.expect("it does not hang");
            assert_eq!(ended.expect_err("nobody reads").kind(), ErrorKind::TimedOut);
            let flushed = tokio::time::timeout(LONG / 2, stream.flush()).await.expect("it does not hang");
            assert_eq!(flushed.expect_err("nobody reads").kind(), ErrorKind::TimedOut);
        }
    }

    #[tokio::test]
    async fn over_tls_an_operator_who_reads_late_keeps_the_connection_for_the_next_request() {
        let (mut stream, mut peer, _folder) = tls_pair(Patience { stall: 10 * SHORT, ..PATIENT }).await;
        let (greeted, read) = tokio::join!(peer.handshake(), tokio::time::timeout(SHORT, stream.read_u8()));
        greeted.expect("they agree");
        assert!(read.is_err(), "{read:?}");
        // Writes until nothing more is taken: what TLS has is left for the flush.
        let (piece, mut written) = (vec![0; 64 << 10], 0);
        while let Ok(bytes) = tokio::time::timeout(SHORT, stream.write(&piece)).await {
            written += bytes.expect("it is open");
        }
        let mut answer = vec![0; written];
        let (flushed, read) = tokio::join!(stream.flush(), peer.read_exact(&mut answer));
        flushed.expect("it goes");
        read.expect("all of it");
        tokio::time::sleep(15 * SHORT).await;
        peer.write_all(b"G").await.expect("written");
        assert_eq!(stream.read_u8().await.expect("a byte"), b'G');
    }

    #[tokio::test]
    async fn rule_9_a_handshake_counts_for_the_time_to_the_first_byte() {
        let (mut stream, mut peer, _folder) = tls_pair(Patience { first: 4 * SHORT, ..PATIENT }).await;
        let (greeted, read) = tokio::join!(peer.handshake(), stream.read_u8());
        greeted.expect("they agree");
        assert_eq!(read.expect_err("nothing comes behind it").kind(), ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_request_that_takes_its_time_keeps_its_connection_until_it_is_answered() {
        let (mut stream, mut peer) = pair(Patience { request: SHORT, ..PATIENT }).await;
        peer.write_all(b"POST").await.expect("written");
        stream.read_exact(&mut [0; 4]).await.expect("a request");
        let patient = stream.is_patient.clone();
        patient.0.store(true, std::sync::atomic::Ordering::Relaxed);
        let read = tokio::time::timeout(5 * SHORT, stream.read_u8()).await;
        assert!(read.is_err(), "nothing came and nothing broke: {read:?}");
        patient.0.store(false, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(stream.read_u8().await.expect_err("it took too long").kind(), ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn an_operator_who_asks_again_in_time_keeps_the_connection() {
        let (mut stream, mut peer) = pair(Patience { first: SHORT, ..PATIENT }).await;
        for _ in 0..2 {
            peer.write_all(b"G").await.expect("written");
            assert_eq!(stream.read_u8().await.expect("a byte"), b'G');
            stream.write_all(b"ok").await.expect("written");
            tokio::time::sleep(2 * SHORT).await;
        }
    }
}
