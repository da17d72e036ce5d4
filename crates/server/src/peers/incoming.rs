//! What the other nodes say: the listener, and the task of each link that reads.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use mortarmq_node::drive::{Standing, Told};
use mortarmq_node::{Peer, PeerWord};
use mortarmq_transport::Stream;
use mortarmq_transport::sealed::{Opener, Sealer, read_length, read_payload};
use mortarmq_types::NodeId;
use tokio::io::{AsyncWriteExt, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::card::wall_ms;
use super::handshake::{Hello, Keys, Lane, MESSAGE_MAX, OwnSide, Welcome, nonce, proved};
use super::known::Known;
use super::messages::{read_message, write_message};
use super::tls::{Threshold, bound, carried};
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
    pub(super) threshold: Arc<Threshold>,
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
            let (gate, links, threshold) = (Arc::clone(&self.gate), Arc::clone(&links), Arc::clone(&self.threshold));
            tokio::spawn(async move {
                let _guard = AbortOnPanic;
                let met = timeout(MEET_TIME, meet(stream, &gate, &threshold)).await;
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
pub(super) struct Link {
    pub(super) stream: Stream,
    pub(super) keys: Keys,
    from: NodeId,
    /// Which life of its data it has, or asks as.
    incarnation: u32,
    lane: Lane,
}

/// Answers whoever connected; the link, if one is made.
pub(super) async fn meet(socket: TcpStream, gate: &Gate, threshold: &Threshold) -> io::Result<Option<Link>> {
    socket.set_nodelay(true)?;
    let Some(mut stream) = threshold.accept(socket).await? else { return Ok(None) };
    let bytes = read_message(&mut stream, MESSAGE_MAX).await?;
    let Ok(hello) = Hello::decode(&bytes) else { return Ok(None) };
    let Some(mut stream) = threshold.recognise(stream, hello.from).await? else { return Ok(None) };
    let bytes = bound(bytes, &stream)?;
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
        Ok(keys) => {
            let Hello { from, incarnation, lane, .. } = hello;
            Ok(Some(Link { stream, keys, from, incarnation, lane }))
        }
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
        let (known, events, lives) = {
            let shown = gate.shown();
            (Arc::clone(&shown.known), shown.events.clone(), shown.own.lives.clone())
        };
        let Some(events) = events else { return Ok(()) };
        let Self { stream, keys, from, incarnation, lane } = self;
        let (mut reader, mut writer) = split(stream);
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
                            writer.flush().await?;
                            known.sent(from, out.len());
                        }
                    }
                }
            };
            let weight = u32::try_from(length.clamp(1, bytes_max)).unwrap_or(u32::MAX);
            let place = Arc::clone(&places).acquire_many_owned(weight).await.expect("the places are never closed");
            let payload = read_payload(&mut reader, &mut opener, length).await?;
            if lives.is_over(from, incarnation) {
                return Err(io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    "a later life of this node was readmitted",
                ));
            }
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
        let stream = carried(stream, Opener::new(&keys.of_dialler), Sealer::new(&keys.of_listener));
        match lane {
            Lane::Operators => doors.operators.serve(stream).await,
            _ => doors.clients.serve_relayed(stream).await,
        }
    }

    /// Says what this node's folder holds, once.
    async fn answer(self, gate: &Gate) -> io::Result<()> {
        let Self { mut stream, keys, from, incarnation, .. } = self;
        let mut opener = Opener::new(&keys.of_dialler);
        let length = read_length(&mut stream).await?.min(QUESTION_MAX);
        read_payload(&mut stream, &mut opener, length).await?;
        let mut out = BytesMut::new();
        // Whoever asked comes again.
        let (standing, life_of_asker) = {
            let shown = gate.shown();
            let Some(standing) = shown.standing else { return Ok(()) };
            if let Some(events) = shown.events.as_ref().filter(|_| incarnation > 0) {
                events.send(Event::Asking { peer: Peer { node_id: from, data_incarnation: incarnation } });
            }
            (standing, shown.own.lives.of(from))
        };
        let told = Told { standing, life_of_asker };
        Sealer::new(&keys.of_listener).seal(&mut out, |out| put_told(out, told));
        stream.write_all(&out).await?;
        stream.flush().await
    }
}

/// An answer: kind u8, cluster 16 bytes; of a member, kind 3, the life u32 of the asking node that it knows of. Kind 2 is a member of
/// before, which told none.
fn put_told(out: &mut BytesMut, told: Told) {
    let (kind, cluster) = match told.standing {
        Standing::Empty => (0, [0; 16]),
        Standing::Promised(cluster) => (1, cluster),
        Standing::Member(cluster) => (3, cluster),
        Standing::Asks(cluster) => (4, cluster),
    };
    out.put_u8(kind);
    out.put_slice(&cluster);
    if matches!(told.standing, Standing::Member(_)) {
        out.put_u32(told.life_of_asker);
    }
}

/// What another node's folder holds, as it said.
pub(super) fn read_told(bytes: &Bytes) -> Option<Told> {
    let (kind, rest) = bytes.split_first()?;
    let (cluster, life) = rest.split_first_chunk::<16>()?;
    let (cluster, life) =
        (*cluster, if life.is_empty() { None } else { Some(u32::from_be_bytes(life.try_into().ok()?)) });
    let (standing, life_of_asker) = match (kind, life) {
        (0, None) => (Standing::Empty, 0),
        (1, None) => (Standing::Promised(cluster), 0),
        (2, None) => (Standing::Member(cluster), 0),
        (3, Some(life)) => (Standing::Member(cluster), life),
        (4, None) => (Standing::Asks(cluster), 0),
        _ => return None,
    };
    Some(Told { standing, life_of_asker })
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

#[cfg(test)]
mod tests {
    use super::{Bytes, BytesMut, Standing, Told, put_told, read_told};

    #[test]
    fn what_a_node_is_told_comes_back_as_it_was_and_nothing_else_does() {
        let cluster = [7; 16];
        let standings = [
            (Standing::Empty, 0),
            (Standing::Promised(cluster), 0),
            (Standing::Member(cluster), 9),
            (Standing::Asks(cluster), 0),
        ];
        for (standing, life_of_asker) in standings {
            let (told, mut out) = (Told { standing, life_of_asker }, BytesMut::new());
            put_told(&mut out, told);
            let bytes = out.freeze();
            assert_eq!(read_told(&bytes), Some(told));
            assert!((0..bytes.len()).all(|cut| read_told(&bytes.slice(..cut)).is_none()), "{standing:?}");
        }
        let of_before: Bytes = [2].into_iter().chain(cluster).collect();
        assert_eq!(read_told(&of_before).map(|told| told.life_of_asker), Some(0));
        let unknown: Bytes = [5].into_iter().chain(cluster).collect();
        assert_eq!(read_told(&unknown), None);
    }
}
