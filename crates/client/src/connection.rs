//! The task that owns the socket: it connects, moves bytes between socket and engine, and connects again.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use mortarmq_transport::{Connector, Stream, TlsFault};
use mortarmq_wire::frame::KEEPALIVE_TIMEOUT_MS;
use mortarmq_wire::ops::{Connect, ConnectOk};
use mortarmq_wire::{Op, Outcome, ServerFrame, Split, split_frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::time::{Duration, Instant, Sleep, sleep, sleep_until, timeout};

use crate::backoff::Backoff;
use crate::engine::{Shared, Turn};
use crate::errors::{ClientError, ServerError};
use crate::options::ClientOptions;

/// Opens connections, to one server after the other.
#[derive(Debug)]
pub(crate) struct Dialer {
    options: ClientOptions,
    /// Speaks TLS, if it is asked for.
    connector: Option<Connector>,
    /// The server that is tried next: after a failure the one behind it.
    next_server: usize,
    backoff: Backoff,
}

/// A connection whose CONNECT was answered OK, and what was read behind that.
#[derive(Debug)]
pub(crate) struct Connected {
    stream: Stream,
    read: BytesMut,
    /// When the broker was last heard.
    heard_at: Instant,
}

/// Why a connection could not be opened.
#[derive(Debug)]
enum DialError {
    /// The broker does not want this client; trying again changes nothing.
    Refused(ServerError),
    /// TLS on one side only, or another certificate. Somebody has to change that, on whichever side.
    Tls {
        reason: String,
        remedy: &'static str,
    },
    Failed(String),
}

impl DialError {
    /// The reason with the server in front, except for a refusal, which is the broker's own text.
    fn at(self, server: &str) -> Self {
        match self {
            Self::Refused(error) => Self::Refused(error),
            Self::Tls { reason, remedy } => Self::Tls { reason: format!("{server}: {reason}"), remedy },
            Self::Failed(reason) => Self::Failed(format!("{server}: {reason}")),
        }
    }
}

impl Dialer {
    pub(crate) fn new(options: ClientOptions) -> Result<Self, ClientError> {
        let connector = options.tls.as_ref().map(|tls| Connector::new(&tls.roots)).transpose();
        let connector = connector.map_err(|error| ClientError::Tls { reason: chain(&error), remedy: ROOTS_REMEDY })?;
        Ok(Self { backoff: Backoff::new(&options.reconnect), next_server: 0, connector, options })
    }

    /// Opens the first connection: each server once, and again until `give_up_after` if that is set.
    pub(crate) async fn connect(&mut self) -> Result<Connected, ClientError> {
        let started = Instant::now();
        loop {
            let failed = match self.round().await {
                Ok(connected) => return Ok(connected),
                Err(DialError::Refused(error)) => return Err(Box::new(error).into()),
                Err(DialError::Tls { reason, remedy }) => ClientError::Tls { reason, remedy },
                Err(DialError::Failed(reason)) => {
                    ClientError::Unreachable { servers: self.options.servers.join(", "), reason }
                }
            };
            let give_up_after = self.options.reconnect.give_up_after.unwrap_or_default();
            if started.elapsed() >= give_up_after {
                return Err(failed);
            }
            sleep(self.backoff.next_wait()).await;
        }
    }

    /// Opens a connection in place of a lost one. If that was a good one and there are several servers, the first try does not
    /// wait: another node may serve already.
    async fn reconnect(&mut self, was_steady: bool) -> Result<Connected, ClientError> {
        let lost_at = Instant::now();
        let mut waits = !was_steady || self.options.servers.len() == 1;
        loop {
            if std::mem::replace(&mut waits, true) {
                sleep(self.backoff.next_wait()).await;
            }
            let reason = match self.round().await {
                Ok(connected) => return Ok(connected),
                Err(DialError::Refused(error)) => return Err(Box::new(error).into()),
                // A broker whose certificate is being changed is not given up sooner than one that is away.
                Err(DialError::Tls { reason, .. } | DialError::Failed(reason)) => reason,
            };
            let waited = lost_at.elapsed();
            if self.options.reconnect.give_up_after.is_some_and(|limit| waited >= limit) {
                return Err(ClientError::GaveUp { waited, reason, outcome: Outcome::Unknown });
            }
        }
    }

    /// The server that is tried, or was tried last with success.
    fn server(&self) -> &str {
        &self.options.servers[self.next_server % self.options.servers.len()]
    }

    /// Tries each server once. Refused only if every one of them refuses; else the last other reason.
    async fn round(&mut self) -> Result<Connected, DialError> {
        let mut refused = None;
        let mut failed = None;
        for _ in 0..self.options.servers.len() {
            let server = self.server();
            let opening = open(server, &self.options, self.connector.as_ref());
            let error = match timeout(self.options.connect_timeout, opening).await {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(error)) => error,
                Err(_) => DialError::Failed(format!("no answer for {:?}", self.options.connect_timeout)),
            };
            let error = error.at(server);
            self.next_server = self.next_server.wrapping_add(1);
            match error {
                DialError::Refused(_) => refused = Some(error),
                DialError::Tls { .. } | DialError::Failed(_) => failed = Some(error),
            }
        }
        Err(failed.or(refused).unwrap_or_else(|| DialError::Failed("no address is given".to_owned())))
    }
}

/// Serves a client until it is closed or gives up.
pub(crate) async fn run(shared: Arc<Shared>, mut dialer: Dialer, mut connected: Connected) {
    let _ending = Ending(Arc::clone(&shared));
    loop {
        let connected_at = Instant::now();
        shared.with(|engine| engine.connected(connected_at));
        let Err(reason) = serve(&shared, &mut connected, &dialer.options).await else { return };
        if shared.with(|engine| engine.is_to_be_left()) {
            dialer.next_server = dialer.next_server.wrapping_add(1);
        }
        tracing::warn!(reason, "the connection is lost; what is not answered will be sent again");
        shared.with(|engine| engine.disconnected());
        let was_steady = connected_at.elapsed() >= STEADY;
        if was_steady {
            dialer.backoff.reset();
        }
        connected = tokio::select! {
            dialed = dialer.reconnect(was_steady) => match dialed {
                Ok(connected) => {
                    tracing::info!(server = dialer.server(), "connected again");
                    connected
                }
                Err(error) => return shared.end(&error),
            },
            () = given_up(&shared) => return,
        };
    }
}

/// Waits until nobody needs a connection any more.
async fn given_up(shared: &Shared) {
    while !shared.with(|engine| engine.is_given_up()) {
        shared.wake.notified().await;
    }
}

/// Ends the client with its task, however that ends: a receipt must not wait for a task that is gone.
#[derive(Debug)]
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end(&ClientError::Closed { outcome: Outcome::Unknown });
    }
}

/// Connects to one server and introduces the client.
async fn open(server: &str, options: &ClientOptions, connector: Option<&Connector>) -> Result<Connected, DialError> {
    let told = |error: &dyn std::fmt::Display| DialError::Failed(error.to_string());
    let socket = TcpStream::connect(server).await.map_err(|error| told(&error))?;
    // Frames are gathered here already; waiting for more in the kernel only adds delay.
    socket.set_nodelay(true).map_err(|error| told(&error))?;
    let mut stream = match connector {
        None => Stream::plain(socket),
        Some(connector) => secured(connector, socket, server).await.map_err(|error| tls_error(&error))?,
    };
    let mut write = BytesMut::new();
    let name = &options.name[..options.name.floor_char_boundary(usize::from(u8::MAX))];
    let connect = Connect { token: &options.token, client_name: name.as_bytes() };
    connect.encode(&mut write).map_err(|error| told(&error))?;
    stream.write_all(&write).await.map_err(|error| told(&error))?;
    stream.flush().await.map_err(|error| told(&error))?;
    let mut read = BytesMut::with_capacity(READ_CHUNK);
    loop {
        if let Some(consumed) = introduced(&read)? {
            read.advance(consumed);
            return Ok(Connected { stream, read, heard_at: Instant::now() });
        }
        if stream.read_buf(&mut read).await.map_err(|error| tls_error(&error))? == 0 {
            return Err(told(&"the connection was closed before CONNECT was answered"));
        }
    }
}

/// A stream whose peer has shown that it is the server of this address.
async fn secured(connector: &Connector, socket: TcpStream, server: &str) -> io::Result<Stream> {
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
    let mut stream = connector.connect(socket, host)?;
    stream.handshake().await?;
    Ok(stream)
}

/// What TLS did not go on with has its own remedy.
fn tls_error(error: &io::Error) -> DialError {
    match TlsFault::of(error) {
        Some(TlsFault::NotTls) => {
            DialError::Tls { reason: "the broker does not speak TLS here".to_owned(), remedy: NO_TLS_REMEDY }
        }
        Some(fault @ TlsFault::Certificate { .. }) => {
            DialError::Tls { reason: fault.to_string(), remedy: CERTIFICATE_REMEDY }
        }
        Some(TlsFault::Broken { .. }) | None => DialError::Failed(error.to_string()),
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {}", chain(cause)))
}

/// Looks for the answer to CONNECT. Returns how many bytes it takes once it is there.
fn introduced(read: &[u8]) -> Result<Option<usize>, DialError> {
    let failed = |error: &dyn std::fmt::Display| DialError::Failed(error.to_string());
    // An alert: it speaks TLS, and CONNECT was none.
    if read.starts_with(&TLS_ALERT) {
        return Err(DialError::Tls { reason: "the broker speaks TLS here".to_owned(), remedy: WITH_TLS_REMEDY });
    }
    let Split::Frame { op, payload, consumed } = split_frame(read).map_err(|error| failed(&error))? else {
        return Ok(None);
    };
    match ServerFrame::decode(op, payload).map_err(|error| failed(&error))? {
        ServerFrame::Ok(answer) if answer.request_op == Op::Connect => {
            ConnectOk::decode(answer.result).map_err(|error| failed(&error))?;
            Ok(Some(consumed))
        }
        ServerFrame::Error(answer) => {
            let error = ServerError::from_answer(&answer);
            Err(if error.retry_helps() { failed(&error) } else { DialError::Refused(error) })
        }
        ServerFrame::Ok(_) | ServerFrame::Message(_) => Err(failed(&"CONNECT was not what the broker answered")),
    }
}

/// Moves bytes until the client is closed (`Ok`) or the connection is of no more use.
async fn serve(shared: &Shared, connected: &mut Connected, options: &ClientOptions) -> Result<(), String> {
    let Connected { stream, read, heard_at } = connected;
    let mut write = BytesMut::new();
    let mut timer = std::pin::pin!(sleep_until(*heard_at));
    let mut owed_since = None;
    loop {
        let turn = write_out(shared, stream, &mut write)?;
        owed_since = turn.is_waiting.then(|| owed_since.unwrap_or_else(Instant::now));
        let silent_at = silent_at(*heard_at, owed_since, options.answer_timeout);
        if turn.is_finished && write.is_empty() {
            // All is answered; how the peer takes the end does not matter any more.
            let _ = timeout(CLOSE_TIME, stream.shutdown()).await;
            return Ok(());
        }
        arm(timer.as_mut(), turn.deadline.min(silent_at));
        let has_more = !write.is_empty() || stream.wants_write();
        let interest = if has_more { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        tokio::select! {
            ready = stream.ready(interest) => {
                let ready = ready.map_err(|error| error.to_string())?;
                if ready.is_readable() {
                    let is_to_be_left = read_in(shared, stream, read, heard_at)?;
                    if is_to_be_left && options.servers.len() > 1 {
                        return Err("this server takes nothing now".to_owned());
                    }
                }
                if ready.is_writable() {
                    // There was no room: so the peer has taken what was written before, and lives.
                    *heard_at = Instant::now();
                }
            }
            // Others get to run first: what they add meanwhile goes out with the same write.
            () = shared.wake.notified(), if write.is_empty() => tokio::task::yield_now().await,
            () = timer.as_mut() => {
                let now = Instant::now();
                if now >= silent_at {
                    return Err(format!("the broker was silent for {:?}", now - *heard_at));
                }
                shared.with(|engine| engine.on_timer(now));
            }
        }
    }
}

/// When a peer that says nothing is taken for dead: sooner while it owes an answer.
fn silent_at(heard_at: Instant, owed_since: Option<Instant>, answer_timeout: Duration) -> Instant {
    let asleep_at = heard_at + SILENCE;
    owed_since.map_or(asleep_at, |owed_since| asleep_at.min(heard_at.max(owed_since) + answer_timeout))
}

/// Writes what there is until the socket takes no more, many frames at a time.
fn write_out(shared: &Shared, stream: &mut Stream, write: &mut BytesMut) -> Result<Turn, String> {
    match stream.try_flush() {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error.to_string()),
        _ => {}
    }
    loop {
        while !write.is_empty() {
            match stream.try_write(write) {
                Ok(written) => write.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.to_string()),
            }
        }
        if !write.is_empty() {
            return Ok(shared.with(|engine| engine.turn()));
        }
        write.clear();
        let turn = shared.with(|engine| engine.take_turn(write));
        if write.is_empty() {
            return Ok(turn);
        }
    }
}

/// Reads a chunk and lets the engine take the frames that are whole. Says whether the server takes nothing now.
fn read_in(shared: &Shared, stream: &mut Stream, read: &mut BytesMut, heard_at: &mut Instant) -> Result<bool, String> {
    if read.capacity() - read.len() < READ_CHUNK / 4 {
        read.reserve(READ_CHUNK);
    }
    match stream.try_read_buf(read) {
        Ok(0) => Err("the broker closed the connection".to_owned()),
        Ok(_) => {
            *heard_at = Instant::now();
            let (needed, is_to_be_left) =
                shared.with(|engine| (engine.on_bytes(read, *heard_at), engine.is_to_be_left()));
            read.reserve(needed?);
            Ok(is_to_be_left)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

fn arm(timer: Pin<&mut Sleep>, deadline: Instant) {
    if timer.deadline() != deadline {
        timer.reset(deadline);
    }
}

const ROOTS_REMEDY: &str = "give a PEM file with the CA that issued the broker's certificate";
const NO_TLS_REMEDY: &str = "connect without TLS (command line: no --tls-ca or MORTARMQ_TLS_CA), or give the broker a certificate (tls_cert, tls_key)";
const CERTIFICATE_REMEDY: &str =
    "give the CA that issued it (command line: --tls-ca FILE), and reach the broker by a name that it has";
const WITH_TLS_REMEDY: &str = "connect with TLS, and the CA of the broker (command line: --tls-ca FILE)";
/// How every alert of TLS begins.
const TLS_ALERT: [u8; 2] = [21, 3];
/// How long the announcement of the end may take.
const CLOSE_TIME: Duration = Duration::from_secs(1);
/// How much is read at once.
const READ_CHUNK: usize = 256 * 1024;
/// A connection that held so long was a good one, so the next is tried without a long wait. One that is closed as
/// soon as it stands must not be opened again and again in a hurry.
const STEADY: Duration = Duration::from_secs(2);
/// A peer that says nothing for so long, though it is asked every 15 s, is taken for dead.
const SILENCE: Duration = Duration::from_millis(KEEPALIVE_TIMEOUT_MS);

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use mortarmq_transport::Stream;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::{Duration, Instant};

    use super::{Connected, DialError, SILENCE, introduced, serve, silent_at};
    use crate::engine::Shared;
    use crate::options::{ClientOptions, ReconnectOptions};

    #[test]
    fn an_alert_of_tls_in_place_of_an_answer_says_what_to_do() {
        for read in [&[21, 3, 3, 0, 2, 2, 10][..], &[21, 3]] {
            let Err(DialError::Tls { remedy, .. }) = introduced(read) else { panic!("{read:?}") };
            assert!(remedy.contains("--tls-ca"), "{remedy}");
        }
        assert!(matches!(introduced(&[21]), Ok(None)), "it may still be a frame");
    }

    #[test]
    fn silence_is_short_only_for_a_peer_that_owes_an_answer() {
        let (limit, heard_at) = (Duration::from_secs(8), Instant::now());
        let later = |seconds| heard_at + Duration::from_secs(seconds);
        assert_eq!(silent_at(heard_at, None, limit), later(45), "it was asked nothing");
        assert_eq!(silent_at(heard_at, Some(heard_at), limit), later(8));
        assert_eq!(silent_at(heard_at, Some(later(20)), limit), later(28), "counted from the question");
        assert_eq!(silent_at(later(30), Some(later(20)), limit), later(38), "it speaks");
        assert_eq!(silent_at(heard_at, Some(later(40)), limit), later(45));
    }

    #[tokio::test]
    async fn a_connection_is_given_up_when_the_broker_was_silent_for_45_s() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("it listens");
        let shared = Shared::new(ReconnectOptions::default(), None);
        shared.with(|engine| engine.connected(Instant::now()));
        let heard_at = Instant::now().checked_sub(SILENCE).expect("the machine is up for 45 s");
        let mut connected = Connected { stream: Stream::plain(stream), read: BytesMut::new(), heard_at };
        let options = ClientOptions { answer_timeout: Duration::from_secs(3600), ..ClientOptions::default() };
        let reason = serve(&shared, &mut connected, &options).await.expect_err("nobody answers");
        assert!(reason.starts_with("the broker was silent for 45"), "{reason}");
    }
}
