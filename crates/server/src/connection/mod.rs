//! One client connection: one task that reads frames, hands them to the shard's loop, and writes what comes back.
//!
//! # Invariants
//! 1. Answers leave in the order of the requests; a closing ERR is the last frame.
//! 2. A delivery of which no byte was written is given back if it is too late for its lease, or if the connection is ended
//!    for taking its messages too slowly. Any other stays with its member, who is sent it again when it resumes.
//! 3. What one connection keeps is bounded: one read and one frame in, [`outbox`]'s limit out, open requests by
//!    [`expected`]. Messages in its channel are bounded by [`crate::outlet`].

mod ack_latency;
mod answers;
pub(crate) mod deadlines;
mod deliveries;
mod expected;
pub(crate) mod intake;
pub(crate) mod line;
mod outbox;
pub(crate) mod receive_budget;
mod requests;
pub(crate) mod session;

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use mortarmq_http::access::WRONG_TOKEN_DELAY;
use mortarmq_node::Failure;
use mortarmq_transport::TlsFault;
use mortarmq_types::{ConnectionId, NodeId};
use mortarmq_wire::ops::ErrorAnswer;
use mortarmq_wire::{ErrorCode, Op};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::event::Event;
use crate::outlet::{Inlet, outlet};
use crate::relay::{self, Moving};
use crate::shared::Shared;
use crate::web_socket::WebFault;
use answers::Behind;
use deadlines::{Deadlines, Verdict};
use deliveries::Backlog;
use intake::{NO_OP, take_frames};
use line::{Line, Moved, Wants};
use outbox::Outbox;
use receive_budget::Grant;
use session::{Identity, Session, Stage};

/// Serves one connection until it ends.
pub(crate) async fn serve(
    stream: Line,
    id: ConnectionId,
    identity: Identity,
    shared: Arc<Shared>,
    stopping: watch::Receiver<bool>,
) {
    let (outlet, inbox) = outlet(&shared.piles);
    shared.send(Event::Connected { connection: id, outlet });
    shared.metrics.count_connection_opened();
    let mut connection = Connection::new(stream, id, identity, Arc::clone(&shared), inbox);
    let end = connection.run(stopping.clone()).await;
    match &end {
        Ok(reason) => tracing::debug!(connection = id.get(), reason, "connection ended"),
        Err(error) => tracing::debug!(connection = id.get(), %error, "connection broke"),
    }
    // Not given back: whoever resumes is sent it again, unchanged.
    connection.take_back();
    shared.send(Event::Disconnected { connection: id });
    shared.metrics.count_connection_closed();
    let Connection { mut stream, input, session, moves_to, .. } = connection;
    if let (Ok(_), Some(to), Some(moving)) = (&end, moves_to, &session.moving) {
        let carried;
        (stream, carried) = relay::go_on(stream, input, moving, to, stopping).await;
        if let Err(error) = carried {
            tracing::debug!(connection = id.get(), leader = %to, %error, "a carried connection broke");
        }
    }
    match end {
        Ok(_) => linger(stream.finish()).await,
        Err(error) => end_tls(stream, &error).await,
    }
}

struct Connection {
    stream: Line,
    id: ConnectionId,
    shared: Arc<Shared>,
    inbox: Inlet,
    session: Session,
    input: BytesMut,
    /// Nothing was read since time-outs were looked at.
    is_quiet: bool,
    /// `input` holds frames that wait for room among the open requests.
    is_held: bool,
    /// `input` holds frames for another node: it goes on there once everything before is answered.
    moves_to: Option<NodeId>,
    grant: Grant,
    outbox: Outbox,
    backlog: Backlog,
    deadlines: Deadlines,
    /// The last answer closes the connection: once it is written, that is all.
    is_last_written: bool,
    /// The system took less than there was; more can be written when it says so.
    is_blocked: bool,
    /// When a wrong token is told so.
    reject_at: Option<tokio::time::Instant>,
}

impl Connection {
    fn new(stream: Line, id: ConnectionId, identity: Identity, shared: Arc<Shared>, inbox: Inlet) -> Self {
        let grant = Grant::new(Arc::clone(&shared.receive_budget));
        let deadlines = Deadlines::new(shared.timeouts, Instant::now());
        // One hop: what was carried here goes no further.
        let relay = shared.relay.as_ref().filter(|_| !identity.is_carried);
        let moving = relay.map(|relay| Box::new(Moving::new(Arc::clone(relay))));
        let mut session = Session::new(identity, Arc::clone(&shared.access), Arc::clone(&shared.metrics));
        session.moving = moving;
        Self {
            stream,
            id,
            session,
            shared,
            inbox,
            input: BytesMut::new(),
            is_quiet: true,
            is_held: false,
            moves_to: None,
            grant,
            outbox: Outbox::default(),
            backlog: Backlog::default(),
            deadlines,
            is_last_written: false,
            is_blocked: false,
            reject_at: None,
        }
    }

    /// Runs until nothing is left to do. The reason is for the log.
    async fn run(&mut self, stopping: watch::Receiver<bool>) -> io::Result<&'static str> {
        // Made once: they stay in their queues while others wake this task, which is twice for each request.
        let pile = self.inbox.pile();
        let (mut too_high, mut stop) = (pin!(pile.too_high()), pin!(asked_to_stop(stopping)));
        let mut check = tokio::time::interval(CHECK_PERIOD);
        check.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            self.flush()?;
            if self.is_done() {
                return Ok("everything is answered");
            }
            if self.moves_to.is_some() && self.is_answered() {
                // Who leads may have changed meanwhile.
                self.take_input();
                if self.moves_to.is_some() {
                    return Ok("it goes on at the node that leads");
                }
                continue;
            }
            if self.is_held && self.has_room() {
                self.take_input();
                continue;
            }
            let wants = Wants { read: self.may_read(), write: self.is_blocked || self.stream.wants_write() };
            tokio::select! {
                moved = poll_fn(|context| self.stream.poll_moved(context, wants, &mut self.input)),
                    if wants.read || wants.write => match moved
                {
                    Moved::Read(read) => self.handle_read(read)?,
                    Moved::Writable(ready) => {
                        ready?;
                        self.is_blocked = false;
                    }
                },
                message = self.inbox.recv(), if self.may_take() => match message {
                    Some(message) => self.backlog.push(message),
                    None => return Ok("the node has stopped"),
                },
                () = &mut too_high, if !self.is_last_written => self.turn_out(),
                () = self.grant.granted(), if self.grant.is_waiting() => {}
                () = sleep_until(self.reject_at), if self.reject_at.is_some() => self.reject(),
                () = &mut stop, if self.session.stage != Stage::Ending => self.end_requests(),
                _ = check.tick() => {
                    // What lies in the socket was sent in time, even if this task did not come to read it.
                    if self.may_read() {
                        self.read()?;
                    }
                    self.give_back_input();
                    if let Some(reason) = self.check_deadlines() {
                        return Ok(reason);
                    }
                }
            }
        }
    }

    fn has_room(&self) -> bool {
        let takes_more = matches!(self.session.stage, Stage::BeforeConnect | Stage::Open);
        !self.session.expected.is_full() && !self.outbox.is_full() && takes_more
    }

    fn may_read(&self) -> bool {
        self.has_room() && !self.is_held && self.moves_to.is_none() && !self.grant.is_waiting()
    }

    /// Whether the client waits for nothing, and everything it was told is written.
    fn is_answered(&self) -> bool {
        let is_written = self.outbox.is_empty() && self.backlog.is_empty() && !self.stream.wants_write();
        is_written && self.session.expected.is_empty() && self.session.stage == Stage::Open
    }

    fn may_take(&self) -> bool {
        self.backlog.is_empty() && !self.is_last_written
    }

    fn is_done(&self) -> bool {
        let is_answered = self.session.stage == Stage::Ending && self.session.expected.is_empty();
        self.outbox.is_empty() && !self.stream.wants_write() && (self.is_last_written || is_answered)
    }

    /// Reads once, and hands over what came as one event.
    fn read(&mut self) -> io::Result<()> {
        self.input.reserve(READ_BYTES);
        let read = self.stream.try_read_buf(&mut self.input);
        self.handle_read(read)
    }

    fn handle_read(&mut self, read: io::Result<usize>) -> io::Result<()> {
        match read {
            // The peer sends nothing more, but it may still read its answers.
            Ok(0) => self.end_requests(),
            Ok(_) => {
                self.is_quiet = false;
                self.take_input();
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => match WebFault::of(&error) {
                Some(fault) => {
                    self.session.refuse(NO_OP, 0, Failure::new(ErrorCode::BadLength, fault.to_string()));
                    self.send_requests();
                }
                None => return Err(error),
            },
        }
        Ok(())
    }

    /// Nothing more is taken: what was asked is answered, a pull with what there is now, and then the connection closes.
    fn end_requests(&mut self) {
        if self.session.stage == Stage::Rejected {
            // Now or never: whoever stops does not wait for the moment.
            self.reject();
        }
        self.session.stage = Stage::Ending;
        self.shared.send(Event::NoMoreRequests { connection: self.id });
    }

    /// A connection that says nothing keeps no room to read into (failure rule 9): there are thousands of them.
    fn give_back_input(&mut self) {
        if self.is_quiet && self.input.is_empty() {
            self.input = BytesMut::new();
        }
        self.is_quiet = true;
    }

    fn take_input(&mut self) {
        let now = Instant::now();
        let taken = take_frames(&mut self.session, &mut self.input, self.outbox.answers(), now);
        if self.session.stage != Stage::BeforeConnect {
            self.deadlines.handle_connect();
        }
        if self.session.stage == Stage::Rejected {
            self.reject_at = Some(tokio::time::Instant::now() + WRONG_TOKEN_DELAY);
        }
        (self.is_held, self.moves_to) = (taken.is_held, taken.moves_to);
        self.deadlines.handle_read(now, taken.frames > 0, taken.pending_bytes > 0);
        self.send_requests();
        // Who has not shown who it is takes nothing from the budget; its frames are small.
        let is_early = self.session.stage == Stage::BeforeConnect;
        self.grant.ask(if is_early { 0 } else { taken.pending_bytes });
        if self.input.is_empty() && self.input.capacity() > KEPT_INPUT_BYTES {
            self.input = BytesMut::new();
        }
    }

    fn send_requests(&mut self) {
        let requests = self.session.take_requests();
        if !requests.is_empty() {
            self.shared.send(Event::Requests { connection: self.id, requests });
        }
    }

    /// Says that the token is none; one text for every reason.
    fn reject(&mut self) {
        self.reject_at = None;
        let text = "the token is not accepted; check it, or ask who runs the broker for one";
        self.session.refuse(Op::Connect.number(), 0, Failure::new(ErrorCode::AuthFailed, text));
        self.send_requests();
    }

    /// Writes what there is until the system takes no more.
    fn flush(&mut self) -> io::Result<()> {
        if self.stream.wants_write() {
            self.flush_stream()?;
        }
        loop {
            self.fill_outbox();
            self.write()?;
            if self.is_blocked || self.is_last_written || self.backlog.is_empty() {
                return Ok(());
            }
        }
    }

    /// Moves answers and messages into the outbox until it is full or nothing is there.
    fn fill_outbox(&mut self) {
        while !self.outbox.is_full() && !self.is_last_written {
            if self.backlog.is_empty() {
                match self.inbox.try_recv() {
                    Some(message) => self.backlog.push(message),
                    None => return,
                }
            }
            let behind = self.backlog.write_some(&mut self.session, &mut self.outbox, self.shared.clock);
            self.is_last_written = behind == Behind::Closes;
            self.send_unsent();
        }
    }

    fn write(&mut self) -> io::Result<()> {
        while !self.outbox.is_empty() && !self.is_blocked {
            if self.outbox.has_messages() {
                let spent = self.outbox.take_spent(self.shared.clock.monotonic());
                self.backlog.add_unsent(spent);
                self.send_unsent();
            }
            if self.outbox.is_empty() {
                if !self.stream.wants_write() {
                    // Nothing waits for the peer any more, so it is not to blame.
                    self.deadlines.handle_written();
                }
                break;
            }
            match self.stream.try_write(self.outbox.unwritten()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    self.outbox.handle_written(bytes);
                    self.deadlines.handle_written();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_blocked = true;
                    self.deadlines.handle_stalled(Instant::now());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes what TLS has taken and the system has not.
    fn flush_stream(&mut self) -> io::Result<()> {
        match self.stream.try_flush() {
            Ok(()) => self.deadlines.handle_written(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.deadlines.handle_stalled(Instant::now()),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn check_deadlines(&mut self) -> Option<&'static str> {
        let now = Instant::now();
        if !self.may_read() {
            self.deadlines.handle_not_reading(now);
        }
        if self.grant.is_contended() && self.deadlines.is_crawling(now, self.input.len()) {
            return Some("a large frame comes too slowly while others wait for room");
        }
        match self.deadlines.verdict(now) {
            Verdict::GoOn => None,
            Verdict::Close(reason) => Some(reason),
            Verdict::NoConnect => {
                self.deadlines.handle_connect();
                let failure = Failure::new(ErrorCode::AuthTimeout, "no CONNECT came within 5 s; connect again");
                self.session.refuse(NO_OP, 0, failure);
                self.send_requests();
                None
            }
        }
    }

    /// Hands leases of messages that were not sent back to the node.
    fn send_unsent(&mut self) {
        for (subscription, unsent) in self.backlog.take_unsent() {
            self.shared.send(Event::Unsent { connection: self.id, subscription, unsent });
        }
    }

    /// Ends a connection that takes its messages too slowly: the answers that are there are written, then the reason.
    fn turn_out(&mut self) {
        self.shared.send(Event::TurnedOut { connection: self.id });
        self.take_back();
        self.send_unsent();
        let text =
            "the connection takes its messages too slowly; reconnect with a smaller window, or pull less at once";
        ErrorAnswer::new(ErrorCode::SlowConsumer, NO_OP, text.as_bytes()).encode(self.outbox.answers());
        self.session.stage = Stage::Ending;
        self.is_last_written = true;
    }

    /// Takes back every message of which no byte was written. Answers that are there go to the outbox.
    fn take_back(&mut self) {
        self.inbox.close();
        while let Some(message) = self.inbox.try_recv() {
            self.backlog.push(message);
        }
        self.backlog.end(&mut self.session, &mut self.outbox);
        let unwritten = self.outbox.take_unwritten();
        self.backlog.add_unsent(unwritten);
    }
}

/// Guessing a token is slow.
async fn sleep_until(moment: Option<tokio::time::Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

async fn asked_to_stop(mut stopping: watch::Receiver<bool>) {
    // An error says that nobody is left who could ask.
    let _ = stopping.wait_for(|is_stopping| *is_stopping).await;
}

/// What a peer is told that TLS did not go on with: by TLS itself, or, if it does not speak it, in a frame.
async fn end_tls(line: Line, error: &io::Error) {
    let Some(fault) = TlsFault::of(error) else { return };
    if fault != TlsFault::NotTls {
        return linger(line.finish()).await;
    }
    let socket = match line.without_tls() {
        Err(socket) => socket,
        Ok(mut stream) => {
            let text = "this address speaks TLS only; connect with TLS (command line: --tls-ca FILE)";
            let mut out = BytesMut::new();
            ErrorAnswer::new(ErrorCode::BadLength, NO_OP, text.as_bytes()).encode(&mut out);
            // It fits what the system buffers. Where it does not, nobody reads it.
            let _ = stream.try_write(&out);
            stream.finish()
        }
    };
    linger(socket).await;
}

/// Closes so that the peer can read the last frames: bytes of it that were never read would make the system drop them.
pub(crate) async fn linger(mut stream: TcpStream) {
    let drain = async {
        stream.shutdown().await?;
        let mut rest = vec![0; LINGER_READ_BYTES];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    // Whatever goes wrong now, everything there was to say was said.
    let _ = tokio::time::timeout(LINGER, drain).await;
}

/// How much one read takes at most, unless a frame is larger: enough for many small publishes, little for an idle
/// connection.
const READ_BYTES: usize = 64 << 10;
/// A receive buffer that one large frame made is not kept.
const KEPT_INPUT_BYTES: usize = 256 << 10;
/// How often time-outs are looked at.
const CHECK_PERIOD: Duration = Duration::from_millis(250);
/// How long a closed connection waits for its peer to close too.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_READ_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::{Connection, Identity, Line, Stage, Verdict};
    use crate::config::Config;
    use crate::event::Event;
    use crate::inbox::{Inbox, inbox};
    use crate::metrics::Metrics;
    use crate::outlet::{Outlet, outlet};
    use crate::shared::{Shared, Status};
    use mortarmq_node::{ErrorCode, Request, Unsent};
    use mortarmq_transport::Stream;
    use mortarmq_types::{ConnectionId, DeliveryId, MonotonicTime, NodeId, Partition, Seq};
    use std::sync::Arc;
    use std::time::{Duration, Instant};
    use tokio::net::{TcpListener, TcpStream};

    /// A connection that nobody serves, and its ends: of its peer, and of the loop.
    struct Bench {
        connection: Connection,
        events: Inbox,
        _ends: (TcpStream, Outlet),
    }

    async fn bench() -> Bench {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let client_address = listener.local_addr().expect("bound");
        let peer = TcpStream::connect(client_address).await.expect("it listens");
        let (socket, _) = listener.accept().await.expect("it has connected");
        let (sender, events) = inbox();
        let (config, _) = Config::load(None, [], []).expect("the defaults");
        let shared = Arc::new(Shared::new(sender, &config, Arc::new(Metrics::new()), Arc::new(Status::new())));
        let (outlet, inlet) = outlet(&shared.piles);
        let identity = Identity { node_id: NodeId::ZERO, client_address, poll_max_wait_ms: 1000, is_carried: false };
        let line = Line::plain(Stream::plain(socket));
        let connection = Connection::new(line, ConnectionId::new(1), identity, shared, inlet);
        Bench { connection, events, _ends: (peer, outlet) }
    }

    #[tokio::test]
    async fn a_peer_is_not_blamed_once_what_it_did_not_take_was_taken_back() {
        let mut bench = bench().await;
        let connection = &mut bench.connection;
        let unsent = Unsent { partition: Partition::ZERO, seq: Seq::FIRST, delivery_id: DeliveryId::new(1) };
        let encode = |out: &mut bytes::BytesMut| out.extend_from_slice(b"a message whose lease is half spent");
        connection.outbox.push_message(1, unsent, MonotonicTime::ZERO, encode);
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        connection.deadlines.handle_connect();
        connection.deadlines.handle_stalled(begun);
        connection.deadlines.handle_read(at(40), true, false);
        assert!(matches!(connection.deadlines.verdict(at(50)), Verdict::Close(_)), "it takes nothing");
        connection.write().expect("nothing is written");
        assert!(connection.outbox.is_empty(), "too late for it");
        assert_eq!(connection.deadlines.verdict(at(50)), Verdict::GoOn, "nothing waits for the peer");
    }

    #[tokio::test]
    async fn a_wrong_token_is_told_so_even_if_the_node_stops_meanwhile() {
        let Bench { mut connection, mut events, _ends } = bench().await;
        connection.session.stage = Stage::Rejected;
        connection.reject_at = Some(tokio::time::Instant::now() + Duration::from_secs(1));
        connection.end_requests();
        assert!(!connection.is_done() && connection.reject_at.is_none(), "the answer is on its way");
        let Some(Event::Requests { requests, .. }) = events.pop() else { panic!("the refusal comes first") };
        let [Request::Refused(failure)] = &requests[..] else { panic!("{requests:?}") };
        assert_eq!(failure.code, ErrorCode::AuthFailed);
        assert!(matches!(events.pop(), Some(Event::NoMoreRequests { .. })));
        // And only once.
        connection.end_requests();
        assert!(matches!(events.pop(), Some(Event::NoMoreRequests { .. })));
    }
}
