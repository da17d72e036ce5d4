//! What this node says to the others: a queue for each of two links to each node, and the task that keeps a link up.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use mortarmq_node::{Peer, PeerWord};
use mortarmq_transport::sealed::{Opener, Sealer, read_length, read_payload};
use mortarmq_transport::{Mutual, Stream};
use mortarmq_types::{NodeId, ShardId};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::card::{SIGN_MAX, wall_ms};
use super::handshake::{Hello, Keys, Lane, OwnSide, Refusal, answered, nonce};
use super::known::Known;
use super::lives::Lives;
use super::messages::{read_message, write_message};
use super::tls::{self, TlsRefusal};
use crate::threads::{AbortOnPanic, chain};

/// The loop's end of all links; none on a node that is alone. Dropping it ends them.
#[derive(Default)]
pub(crate) struct PeerLinks {
    queues: BTreeMap<NodeId, [Arc<Queue>; 2]>,
    lives: Lives,
}

/// A node to dial, and where.
#[derive(Clone, Debug)]
pub(crate) struct Dial {
    pub(crate) node: NodeId,
    pub(crate) address: String,
    /// With it nothing but TLS is spoken.
    pub(crate) tls: Option<Mutual>,
}

impl PeerLinks {
    /// Begins to dial the other nodes.
    pub(crate) fn begin(own: &OwnSide, others: &[Dial], known: &Arc<Known>, runtime: &Handle) -> Self {
        let to = |dial: &Dial| {
            let queue = |lane| {
                let queue = Arc::new(Queue::new(lane));
                let (own, dial, known) = (own.clone(), dial.clone(), Arc::clone(known));
                let line = OutgoingLine { own, dial, lane, known, queue: Arc::clone(&queue) };
                runtime.spawn(line.keep());
                queue
            };
            (dial.node, [queue(Lane::Words), queue(Lane::Log)])
        };
        Self { queues: others.iter().map(to).collect(), lives: own.lives.clone() }
    }

    /// Whether there are other nodes.
    pub(crate) fn is_any(&self) -> bool {
        !self.queues.is_empty()
    }

    /// The members are these from now on.
    pub(crate) fn tell_lives(&self, members: &[Peer]) {
        self.lives.tell(members);
    }

    /// Says something to another node. What there is no room for is dropped, as a network would.
    pub(crate) fn send(&self, to: NodeId, word: PeerWord) {
        let Some([words, log]) = self.queues.get(&to) else { return };
        let queue = if word.is_bulk() { log } else { words };
        queue.push(word);
    }
}

impl Drop for PeerLinks {
    fn drop(&mut self) {
        for queue in self.queues.values().flatten() {
            queue.waiting().is_over = true;
            queue.wake.notify_one();
        }
    }
}

/// What waits for a link.
struct Queue {
    lane: Lane,
    waiting: Mutex<Waiting>,
    wake: Notify,
}

#[derive(Default)]
struct Waiting {
    messages: VecDeque<PeerWord>,
    bytes: usize,
    is_up: bool,
    is_over: bool,
}

impl Queue {
    fn new(lane: Lane) -> Self {
        Self { lane, waiting: Mutex::default(), wake: Notify::new() }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, message: PeerWord) {
        let mut waiting = self.waiting();
        let bytes = message.held_bytes();
        match self.lane {
            // A vote that is asked for once is worth keeping until the link is up again; of old words the newest are.
            Lane::Words | Lane::Ask | Lane::Clients | Lane::Operators => {
                if waiting.messages.len() >= WORDS_MAX {
                    waiting.bytes -= waiting.messages.pop_front().map_or(0, |message| message.held_bytes());
                }
            }
            Lane::Log if !waiting.is_up || waiting.bytes + bytes > LOG_BYTES_MAX => return,
            Lane::Log => {}
        }
        let was_empty = waiting.messages.is_empty();
        waiting.messages.push_back(message);
        waiting.bytes += bytes;
        drop(waiting);
        if was_empty {
            self.wake.notify_one();
        }
    }

    fn set_up(&self, is_up: bool) {
        let mut waiting = self.waiting();
        waiting.is_up = is_up;
        if !is_up && self.lane == Lane::Log {
            // The follower says from where on it lacks something.
            waiting.messages.clear();
            waiting.bytes = 0;
        }
    }

    /// Seals what waits, but not much more than a buffer full; `false` once nothing more will come.
    async fn take(&self, sealer: &mut Sealer, out: &mut BytesMut) -> bool {
        loop {
            let taken: Vec<PeerWord> = {
                let mut waiting = self.waiting();
                if waiting.is_over {
                    return false;
                }
                let (mut taken, mut bytes) = (Vec::new(), 0);
                while bytes < WRITE_BYTES
                    && let Some(message) = waiting.messages.pop_front()
                {
                    bytes += message.held_bytes();
                    taken.push(message);
                }
                waiting.bytes -= bytes;
                taken
            };
            if taken.is_empty() {
                self.wake.notified().await;
                continue;
            }
            for message in taken {
                sealer.seal(out, |out| message.encode(ShardId::ZERO, out));
            }
            return true;
        }
    }
}

/// A link to another node, again and again.
struct OutgoingLine {
    own: OwnSide,
    dial: Dial,
    lane: Lane,
    known: Arc<Known>,
    queue: Arc<Queue>,
}

impl OutgoingLine {
    async fn keep(self) {
        let _guard = AbortOnPanic;
        let mut said = None;
        while !self.queue.waiting().is_over {
            match connect(&self.own, &self.dial, self.lane).await {
                Ok((stream, keys)) => {
                    said = None;
                    tracing::info!(peer = %self.dial.node, lane = ?self.lane, "connected");
                    self.queue.set_up(true);
                    self.known.connected(self.dial.node);
                    let ended = self.run(stream, &keys).await;
                    self.queue.set_up(false);
                    let text = ended.as_ref().err().map_or_else(String::new, ToString::to_string);
                    self.known.broke(self.dial.node, &text);
                    if let Err(error) = ended {
                        tracing::warn!(peer = %self.dial.node, lane = ?self.lane, %error, "the link broke; it is dialled again");
                    }
                }
                // Once for each reason: it is dialled several times a second.
                Err(error) => {
                    let text = chain(&error);
                    self.known.failed(self.dial.node, &text);
                    if matches!(error, DialError::Refused(Refusal::Replaced)) && self.known.replaced(&text) {
                        tracing::error!(peer = %self.dial.node, "{text}");
                    }
                    if said.as_ref() != Some(&text) {
                        tracing::warn!(peer = %self.dial.node, address = self.dial.address, "no link: {text}");
                        said = Some(text);
                    }
                }
            }
            sleep(pause()).await;
        }
    }

    /// Sends until the link breaks or nothing more will come.
    async fn run(&self, stream: Stream, keys: &Keys) -> io::Result<()> {
        let (reader, writer) = split(stream);
        let answers = Answers(Mutex::new(None));
        let opener = Opener::new(&keys.of_listener);
        tokio::select! {
            written = self.write(writer, Sealer::new(&keys.of_dialler), &answers) => written,
            read = answers.read(reader, opener, |sign| self.heard(sign)) => read,
            () = answers.missed() => Err(io::Error::new(io::ErrorKind::TimedOut, "the other node answers nothing")),
        }
    }

    /// The other node gave a sign of life, and may have said something of itself with it.
    fn heard(&self, sign: &[u8]) {
        if self.known.heard(self.dial.node, sign, wall_ms()) {
            tracing::warn!(
                peer = %self.dial.node,
                "this node and that one keep their data on the same device: when that is lost, both are; give each a disk of its own"
            );
        }
    }

    async fn write(&self, mut writer: WriteHalf<Stream>, mut sealer: Sealer, answers: &Answers) -> io::Result<()> {
        let mut out = BytesMut::new();
        while self.queue.take(&mut sealer, &mut out).await {
            answers.owed();
            writer.write_all(&out).await?;
            writer.flush().await?;
            self.known.sent(self.dial.node, out.len());
            out.clear();
            if out.capacity() > KEPT_BYTES {
                out = BytesMut::new();
            }
        }
        Ok(())
    }
}

/// Since when the other node owes a sign that it reads: a connection through a network that swallows everything looks as any other.
struct Answers(Mutex<Option<Instant>>);

impl Answers {
    fn since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owed(&self) {
        self.since().get_or_insert_with(Instant::now);
    }

    async fn read(&self, mut reader: ReadHalf<Stream>, mut opener: Opener, heard: impl Fn(&[u8])) -> io::Result<()> {
        loop {
            let length = read_length(&mut reader).await?;
            let sign = read_payload(&mut reader, &mut opener, length.min(SIGN_MAX)).await?;
            *self.since() = None;
            heard(&sign);
        }
    }

    async fn missed(&self) {
        loop {
            sleep(PATIENCE / 4).await;
            if self.since().is_some_and(|since| since.elapsed() > PATIENCE) {
                return;
            }
        }
    }
}

/// Why a node could not be reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// Nobody answers there.
    #[error("nobody answers")]
    Unreachable(#[source] io::Error),
    /// It answers, and makes no link.
    #[error(transparent)]
    Refused(Refusal),
    /// One of both asks for TLS that the other does not have, or not so.
    #[error(transparent)]
    Tls(TlsRefusal),
}

impl From<io::Error> for DialError {
    fn from(error: io::Error) -> Self {
        Self::Unreachable(error)
    }
}

/// Connects to another node: the stream and the keys of both directions.
pub(crate) async fn connect(own: &OwnSide, dial: &Dial, lane: Lane) -> Result<(Stream, Keys), DialError> {
    let begun = async {
        let socket = TcpStream::connect(&dial.address).await?;
        socket.set_nodelay(true)?;
        let mut stream = tls::begin(socket, &dial.address, dial.tls.as_ref()).await?;
        let hello = Hello::new(own, dial.node, lane, nonce()?);
        let bytes = hello.encode();
        write_message(&mut stream, &bytes).await?;
        let welcome = read_message(&mut stream, super::handshake::MESSAGE_MAX).await.map_err(tls::failed)?;
        TlsRefusal::of_notice(&welcome).map_or(Ok(()), |refusal| Err(DialError::Tls(refusal)))?;
        let bytes = tls::bound(bytes, &stream)?;
        let (proof, keys) = answered(own, &hello, &bytes, &welcome).map_err(DialError::Refused)?;
        write_message(&mut stream, &proof).await?;
        Ok((stream, keys))
    };
    let late = || DialError::Unreachable(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"));
    timeout(CONNECT_TIME, begun).await.unwrap_or_else(|_| Err(late()))
}

/// Not all at one moment: after a failure all nodes dial each other.
fn pause() -> Duration {
    let jitter = getrandom::u32().unwrap_or_default() % PAUSE_JITTER_MS;
    Duration::from_millis(u64::from(PAUSE_LEAST_MS + jitter))
}

/// Words that wait for a link: more than a node says between two looks at a clock.
const WORDS_MAX: usize = 256;
/// Entries on their way to one node.
const LOG_BYTES_MAX: usize = 32 << 20;
/// As much is sealed before it is written.
const WRITE_BYTES: usize = 256 << 10;
/// A larger buffer is not kept.
const KEPT_BYTES: usize = 2 << 20;
const CONNECT_TIME: Duration = Duration::from_secs(1);
/// A node that reads nothing for so long is dialled anew.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE_LEAST_MS: u32 = 50;
const PAUSE_JITTER_MS: u32 = 100;
