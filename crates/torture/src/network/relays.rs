//! A relay on every link between two nodes, which delays, holds and resets.
//!
//! A node that dials another dials the relay of that pair. What is read is written in order, not before its delay has passed and
//! not while the way is held: as on a long line, or one that hangs without anybody closing it.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::{Addresses, NODES};
use crate::failure::{Outcome, machine};

/// The relays of a cluster. They end with this value.
pub(crate) struct Relays {
    /// By who dials and who is dialled; none of a node to itself.
    listen: Vec<Vec<Option<SocketAddr>>>,
    ways: Vec<Vec<watch::Sender<Way>>>,
    _runtime: Runtime,
}

/// One direction between two nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Way {
    delay: Duration,
    is_held: bool,
    /// How often its connections were reset.
    resets: u64,
}

/// What a connection of a pair goes by: there, and back.
#[derive(Clone)]
struct Pair {
    there: watch::Receiver<Way>,
    back: watch::Receiver<Way>,
}

impl Relays {
    /// Makes a relay for each node that dials and each that is dialled.
    pub(crate) fn make(addresses: &[Addresses]) -> Outcome<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(machine("no runtime for relays"))?;
        let ways: Vec<Vec<watch::Sender<Way>>> =
            (0..NODES).map(|_| (0..NODES).map(|_| watch::Sender::new(Way::default())).collect()).collect();
        let mut listen = vec![vec![None; NODES]; NODES];
        for (from, row) in listen.iter_mut().enumerate() {
            for (to, place) in row.iter_mut().enumerate().filter(|(to, _)| *to != from) {
                let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).map_err(machine("no free port"))?;
                *place = Some(listener.local_addr().map_err(machine("a relay's address"))?);
                let pair = Pair { there: ways[from][to].subscribe(), back: ways[to][from].subscribe() };
                runtime.spawn(accept(listener, addresses[to].peer.clone(), pair));
            }
        }
        Ok(Self { listen, ways, _runtime: runtime })
    }

    /// Where a node dials another.
    pub(crate) fn address(&self, from: usize, to: usize) -> String {
        self.listen[from][to].map_or_else(String::new, |address| address.to_string())
    }

    pub(crate) fn hold(&self, from: usize, to: usize) {
        self.ways[from][to].send_modify(|way| way.is_held = true);
    }

    pub(crate) fn delay(&self, from: usize, to: usize, delay: Duration) {
        self.ways[from][to].send_modify(|way| way.delay = delay);
    }

    pub(crate) fn reset(&self, one: usize, other: usize) {
        for (from, to) in [(one, other), (other, one)] {
            self.ways[from][to].send_modify(|way| way.resets += 1);
        }
    }

    pub(crate) fn heal(&self) {
        for way in self.ways.iter().flatten() {
            way.send_modify(|way| *way = Way { resets: way.resets, ..Way::default() });
        }
    }
}

/// Takes connections for ever.
async fn accept(listener: TcpListener, target: String, pair: Pair) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Too many open files, most likely: they become fewer.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        tokio::spawn(relay(stream, target.clone(), pair.clone()));
    }
}

/// One connection, from end to end. Where the other end does not answer, the dialler sees its connection closed.
async fn relay(mut dialler: TcpStream, target: String, pair: Pair) {
    let Ok(mut dialled) = TcpStream::connect(&target).await else { return };
    let _ = (dialler.set_nodelay(true), dialled.set_nodelay(true));
    let is_reset = {
        let (dialler_reads, dialler_writes) = dialler.split();
        let (dialled_reads, dialled_writes) = dialled.split();
        let there = pump(dialler_reads, dialled_writes, pair.there.clone());
        let back = pump(dialled_reads, dialler_writes, pair.back);
        tokio::select! {
            _ = async { tokio::join!(there, back) } => false,
            () = reset(pair.there) => true,
        }
    };
    if is_reset {
        // Closed without a farewell, inside whatever frame was under way.
        let _ = (dialler.set_zero_linger(), dialled.set_zero_linger());
    }
}

/// Waits until the pair is reset; for ever if the relays go.
async fn reset(mut way: watch::Receiver<Way>) {
    let before = way.borrow().resets;
    if way.wait_for(|way| way.resets != before).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// One direction of one connection, until it is closed.
async fn pump(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, mut way: watch::Receiver<Way>) {
    let (sender, mut chunks) = mpsc::channel::<(Instant, Vec<u8>)>(CHUNKS_UNDER_WAY);
    let read = async move {
        let mut buffer = vec![0; CHUNK_BYTES];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            if sender.send((Instant::now(), buffer[..count].to_vec())).await.is_err() {
                return;
            }
        }
    };
    let write = async {
        while let Some((arrived, chunk)) = chunks.recv().await {
            let delay = way.borrow().delay;
            tokio::time::sleep_until(arrived + delay).await;
            if way.wait_for(|way| !way.is_held).await.is_err() || to.write_all(&chunk).await.is_err() {
                break;
            }
        }
        chunks.close();
        let _ = to.shutdown().await;
    };
    tokio::join!(read, write);
}

const CHUNK_BYTES: usize = 16 << 10;
/// Bounds what a held or slow way keeps in memory; then the sender's own buffers fill.
const CHUNKS_UNDER_WAY: usize = 64;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::Relays;
    use crate::network::Addresses;

    /// A relay from node 0 to a listener that stands for node 1.
    fn joined() -> (Relays, TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let peer = listener.local_addr().expect("bound").to_string();
        let addresses = Addresses { client: String::new(), admin: String::new(), peer };
        let relays = Relays::make(&[addresses.clone(), addresses.clone(), addresses]).expect("loopback");
        let dialler = TcpStream::connect(relays.address(0, 1)).expect("the relay listens");
        let (dialled, _) = listener.accept().expect("it dials");
        for end in [&dialler, &dialled] {
            end.set_read_timeout(Some(Duration::from_millis(200))).expect("a socket");
        }
        (relays, dialler, dialled)
    }

    #[test]
    fn what_is_held_arrives_after_the_heal_and_the_way_back_is_free() {
        let (relays, mut dialler, mut dialled) = joined();
        relays.hold(0, 1);
        dialler.write_all(b"there").expect("sent");
        assert!(dialled.read(&mut [0; 8]).is_err(), "the way there is held");
        dialled.write_all(b"back").expect("sent");
        let mut word = [0; 4];
        dialler.read_exact(&mut word).expect("the way back is free");
        relays.heal();
        let mut word = [0; 5];
        dialled.read_exact(&mut word).expect("nothing was lost");
        assert_eq!(&word, b"there");
    }

    #[test]
    fn a_delay_counts_from_the_arrival_and_a_reset_is_no_orderly_end() {
        let (relays, mut dialler, mut dialled) = joined();
        relays.delay(0, 1, Duration::from_millis(100));
        let begun = Instant::now();
        dialler.write_all(b"late").expect("sent");
        let mut word = [0; 4];
        dialled.read_exact(&mut word).expect("it arrives");
        assert!(begun.elapsed() >= Duration::from_millis(100));
        relays.reset(0, 1);
        dialled.set_read_timeout(None).expect("a socket");
        let error = dialled.read(&mut word).expect_err("no orderly end");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
}
