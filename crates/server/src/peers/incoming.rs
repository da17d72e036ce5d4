//! What the other nodes say: the listener, and the task of each link that reads.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use mortarmq_node::PeerWord;
use mortarmq_node::drive::Standing;
use mortarmq_transport::Stream;
use mortarmq_transport::sealed::{Opener, Sealer, read_length, read_payload};
use mortarmq_types::NodeId;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::card::wall_ms;
use super::handshake::{Hello, Keys, Lane, MESSAGE_MAX, OwnSide, Welcome, nonce, proved};
use super::known::Known;
use super::messages::{read_message, write_message};
use crate::event::Event;
use crate::inbox::EventSender;
use crate::listener::pause_after;
use crate::relay::Doors;
use crate::threads::AbortOnPanic;

/// What the links of this node are told of it, while it starts and later.
pub(crate) struct Gate(Mutex<Shown>);

struct Shown {
    own: OwnSide,
    /// What it says of itself with each sign of life.
    known: Arc<Known>,
    /// What its folder holds, once it was looked at.
    standing: Option<Standing>,
    /// Where what is said goes, once the loop runs.
    events: Option<EventSender>,
    /// Who serves those that came to another node, once this one serves.
    doors: Option<Arc<Doors>>,
}

impl Gate {
    pub(crate) fn new(own: OwnSide, known: Arc<Known>) -> Self {
        Self(Mutex::new(Shown { own, known, standing: None, events: None, doors: None }))
    }

    /// What the folder holds has changed, and that is durable.
    pub(crate) fn show(&self, standing: Standing) {
        self.shown().standing = Some(standing);
    }

    /// The loop runs: from now on it hears the others.
    pub(crate) fn open(&self, own: OwnSide, events: EventSender) {
        let mut shown = self.shown();
        (shown.own, shown.events) = (own, Some(events));
    }

    /// This node serves: from now on it also serves those that came to another one.
    pub(crate) fn open_doors(&self, doors: Doors) {
        self.shown().doors = Some(Arc::new(doors));
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the links of the others.
pub(crate) struct PeerListener {
    pub(crate) listener: TcpListener,
    pub(crate) gate: Arc<Gate>,
}

impl PeerListener {
    /// Accepts for as long as the process runs.
    pub(crate) async fn run(self) {
        let _guard = AbortOnPanic;
        let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
        let links: Arc<Mutex<BTreeMap<(NodeId, u8), AbortHandle>>> = Arc::default();
        loop {
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    pause_after(&error).await;
                    continue;
                }
            };
            // Whoever has not shown yet who it is takes one of a few places.
            let Ok(place) = Arc::clone(&strangers).try_acquire_owned() else { continue };
            let (gate, links) = (Arc::clone(&self.gate), Arc::clone(&links));
            tokio::spawn(async move {
                let _guard = AbortOnPanic;
                let met = timeout(MEET_TIME, meet(stream, &gate)).await;
                drop(place);
                match met {
                    Ok(Ok(Some(link))) if !link.lane.is_single() => {
                        let doors = gate.shown().doors.clone();
                        if let Some(doors) = doors {
                            link.serve(&doors).await;
                        }
                    }
                    Ok(Ok(Some(link))) => {
                        let key = (link.from, link.lane as u8);
                        let task = tokio::spawn(async move {
                            let _guard = AbortOnPanic;
                            let from = link.from;
                            if let Err(error) = link.run(&gate).await {
                                tracing::debug!(peer = %from, %error, "a link of another node ended");
                            }
                        });
                        // Whoever dials again has given up the link before.
                        let before = lock(&links).insert(key, task.abort_handle());
                        before.iter().for_each(AbortHandle::abort);
                    }
                    Ok(Ok(None)) => {}
                    Ok(Err(error)) => tracing::debug!(%error, "a link could not be made"),
                    Err(_) => tracing::debug!("whoever connected did not show in time who it is"),
                }
            });
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A link of another node that has shown who it is.
struct Link {
    stream: TcpStream,
    keys: Keys,
    from: NodeId,
    lane: Lane,
}

/// Answers whoever connected; the link, if one is made.
async fn meet(mut stream: TcpStream, gate: &Gate) -> io::Result<Option<Link>> {
    stream.set_nodelay(true)?;
    let bytes = read_message(&mut stream, MESSAGE_MAX).await?;
    let Ok(hello) = Hello::decode(&bytes) else { return Ok(None) };
    let (own, is_open) = {
        let shown = gate.shown();
        (shown.own.clone(), shown.events.is_some())
    };
    let welcome = Welcome::new(&own, &hello, &bytes, is_open, nonce()?);
    write_message(&mut stream, &welcome.bytes).await?;
    if welcome.verdict.is_err() {
        return Ok(None);
    }
    let proof = read_message(&mut stream, MESSAGE_MAX).await?;
    match proved(&own, &bytes, &welcome.bytes, &proof) {
        Ok(keys) => Ok(Some(Link { stream, keys, from: hello.from, lane: hello.lane })),
        Err(refusal) => {
            tracing::warn!(claims = %hello.from, "a link was refused: {refusal}");
            Ok(None)
        }
    }
}

impl Link {
    async fn run(self, gate: &Gate) -> io::Result<()> {
        if self.lane == Lane::Ask {
            return timeout(MEET_TIME, self.answer(gate)).await?;
        }
        let (known, events) = {
            let shown = gate.shown();
            (Arc::clone(&shown.known), shown.events.clone())
        };
        let Some(events) = events else { return Ok(()) };
        let Self { stream, keys, from, lane } = self;
        let (mut reader, mut writer) = stream.into_split();
        let (mut opener, mut sealer) = (Opener::new(&keys.of_dialler), Sealer::new(&keys.of_listener));
        let bytes_max = if lane == Lane::Log { LOG_BYTES_MAX } else { WORD_BYTES_MAX };
        let places = Arc::new(Semaphore::new(bytes_max));
        // When the other node is told that it is heard.
        let mut sign_at: Option<Instant> = None;
        loop {
            let length = {
                // Not cancelled when the time for a sign comes: a length that was read in part would be lost.
                let read = read_length(&mut reader);
                tokio::pin!(read);
                loop {
                    tokio::select! {
                        length = &mut read => break length?,
                        () = sleep_until(sign_at.unwrap_or_else(Instant::now)), if sign_at.is_some() => {
                            sign_at = None;
                            let mut out = BytesMut::new();
                            sealer.seal(&mut out, |out| known.own().put(wall_ms(), out));
                            writer.write_all(&out).await?;
                            known.sent(from, out.len());
                        }
                    }
                }
            };
            let weight = u32::try_from(length.clamp(1, bytes_max)).unwrap_or(u32::MAX);
            let place = Arc::clone(&places).acquire_many_owned(weight).await.expect("the places are never closed");
            let payload = read_payload(&mut reader, &mut opener, length).await?;
            sign_at.get_or_insert_with(|| Instant::now() + SIGN_PAUSE);
            match PeerWord::decode(payload) {
                Ok((_, word)) => events.send(Event::Peer { word: Box::new(word), place }),
                Err(error) => tracing::warn!(peer = %from, %error, "dropped what another node said"),
            }
        }
    }

    /// Serves somebody who came to the other node.
    async fn serve(self, doors: &Doors) {
        let Self { stream, keys, lane, .. } = self;
        let stream = Stream::sealed(stream, Opener::new(&keys.of_dialler), Sealer::new(&keys.of_listener));
        match lane {
            Lane::Operators => doors.operators.serve(stream).await,
            _ => doors.clients.serve_relayed(stream).await,
        }
    }

    /// Says what this node's folder holds, once.
    async fn answer(self, gate: &Gate) -> io::Result<()> {
        let Self { mut stream, keys, .. } = self;
        let mut opener = Opener::new(&keys.of_dialler);
        let length = read_length(&mut stream).await?.min(QUESTION_MAX);
        read_payload(&mut stream, &mut opener, length).await?;
        let mut out = BytesMut::new();
        // Whoever asked comes again.
        let Some(standing) = gate.shown().standing else { return Ok(()) };
        Sealer::new(&keys.of_listener).seal(&mut out, |out| put_standing(out, standing));
        stream.write_all(&out).await
    }
}

fn put_standing(out: &mut BytesMut, standing: Standing) {
    let (kind, cluster) = match standing {
        Standing::Empty => (0, [0; 16]),
        Standing::Promised(cluster) => (1, cluster),
        Standing::Member(cluster) => (2, cluster),
    };
    out.put_u8(kind);
    out.put_slice(&cluster);
}

/// What another node's folder holds, as it said.
pub(super) fn read_standing(bytes: &Bytes) -> Option<Standing> {
    let (kind, cluster) = bytes.split_first()?;
    let cluster: [u8; 16] = cluster.try_into().ok()?;
    match kind {
        0 => Some(Standing::Empty),
        1 => Some(Standing::Promised(cluster)),
        2 => Some(Standing::Member(cluster)),
        _ => None,
    }
}

/// Connections of which it is not known yet who they are.
const STRANGERS_MAX: usize = 64;
/// How long they have to show it.
const MEET_TIME: Duration = Duration::from_secs(2);
/// What was read and not taken by the loop, of one link.
const LOG_BYTES_MAX: usize = 32 << 20;
const WORD_BYTES_MAX: usize = 1 << 20;
/// How often the other node is told that it is heard, at most.
const SIGN_PAUSE: Duration = Duration::from_millis(250);
const QUESTION_MAX: usize = 64;
