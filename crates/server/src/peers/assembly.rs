//! How a node finds its place in its cluster before it recovers: it asks the others what their folders hold. What follows from the
//! answers, `mortarmq_node::drive` decides.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::BytesMut;
use mortarmq_node::drive::{ForeignData, Outsider, Standing, Step, find_as_peer, next_step, promise};
use mortarmq_storage::{Disk, Identity};
use mortarmq_transport::sealed::{Opener, Sealer, read_length, read_payload};
use mortarmq_types::NodeId;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::handshake::{Lane, OwnSide};
use super::incoming::{Gate, read_standing};
use super::outgoing::{Dial, DialError, connect};
use crate::threads::chain;

/// Why a node does not come into its cluster.
#[derive(Debug, thiserror::Error)]
pub enum AssemblyError {
    /// What its folder holds is not this node's.
    #[error(transparent)]
    Folder(ForeignData),
    /// The others say that it is none of them.
    #[error(transparent)]
    Outsider(Outsider),
    /// The system has no random numbers.
    #[error("the system gives no random numbers")]
    Random(#[source] io::Error),
}

/// The identity of this node's data, once its cluster is there; before that it waits for the others and says for whom.
pub(super) async fn assemble(
    disk: &dyn Disk,
    data_dir: &Path,
    own: &OwnSide,
    others: &[Dial],
    gate: &Gate,
) -> Result<Identity, AssemblyError> {
    let found = || find_as_peer(disk, data_dir, own.node, &own.nodes).map_err(AssemblyError::Folder);
    let mut identity = found()?;
    let nodes: Vec<NodeId> = others.iter().map(|dial| dial.node).collect();
    let mut said = (None, Instant::now());
    loop {
        let standing = standing(identity.as_ref());
        gate.show(standing);
        let (heard, failed) = match standing {
            // It needs no word of the others.
            Standing::Member(_) => Default::default(),
            Standing::Empty | Standing::Promised(_) => ask_all(own, others).await,
        };
        let step = next_step(own.node, standing, &nodes, &heard);
        match (&step, &identity) {
            (Step::Begin(_), Some(identity)) => return Ok(identity.clone()),
            (Step::Promise(cluster), _) => {
                let cluster = cluster.map_or_else(draw, Ok).map_err(AssemblyError::Random)?;
                identity = Some(promise(disk, data_dir, own.node, &own.nodes, cluster).map_err(AssemblyError::Folder)?);
                continue;
            }
            (Step::Stop(outsider), _) => return Err(AssemblyError::Outsider(*outsider)),
            (Step::Wait(_) | Step::Begin(_), _) => {}
        }
        if said.0.as_ref() != Some(&step) || said.1.elapsed() > SAY_AGAIN {
            if let Step::Wait(open) = &step {
                let why =
                    |node: &NodeId| failed.get(node).map_or_else(|| "is not as far".to_owned(), |error| chain(error));
                let open: Vec<String> = open.iter().map(|node| format!("node {node} ({})", why(node))).collect();
                tracing::info!("waiting for {}: a new cluster begins when all of its nodes are there", open.join(", "));
            }
            said = (Some(step), Instant::now());
        }
        sleep(ASK_PAUSE).await;
    }
}

fn standing(identity: Option<&Identity>) -> Standing {
    match identity {
        None => Standing::Empty,
        Some(Identity { is_promise: true, cluster_id, .. }) => Standing::Promised(*cluster_id),
        Some(Identity { cluster_id, .. }) => Standing::Member(*cluster_id),
    }
}

fn draw() -> io::Result<[u8; 16]> {
    let mut cluster = [0; 16];
    getrandom::fill(&mut cluster).map_err(io::Error::other)?;
    Ok(cluster)
}

/// What the others' folders hold, and why others did not say.
async fn ask_all(own: &OwnSide, others: &[Dial]) -> (BTreeMap<NodeId, Standing>, BTreeMap<NodeId, DialError>) {
    let mut asked = JoinSet::new();
    for dial in others {
        let (own, dial) = (own.clone(), dial.clone());
        asked.spawn(async move { (dial.node, ask(&own, &dial).await) });
    }
    let (mut heard, mut failed) = (BTreeMap::new(), BTreeMap::new());
    while let Some(answer) = asked.join_next().await {
        match answer.expect("asking does not panic and is not cancelled") {
            (node, Ok(standing)) => drop(heard.insert(node, standing)),
            (node, Err(error)) => drop(failed.insert(node, error)),
        }
    }
    (heard, failed)
}

async fn ask(own: &OwnSide, dial: &Dial) -> Result<Standing, DialError> {
    let (mut stream, keys) = connect(own, dial, Lane::Ask).await?;
    let asked = async {
        let mut out = BytesMut::new();
        Sealer::new(&keys.of_dialler).seal(&mut out, |_| ());
        stream.write_all(&out).await?;
        stream.flush().await?;
        let mut opener = Opener::new(&keys.of_listener);
        let length = read_length(&mut stream).await?.min(ANSWER_MAX);
        let answer = read_payload(&mut stream, &mut opener, length).await?;
        read_standing(&answer).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an answer of no known kind"))
    };
    let late = |_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"));
    Ok(timeout(ANSWER_TIME, asked).await.unwrap_or_else(late)?)
}

const ASK_PAUSE: Duration = Duration::from_millis(100);
const SAY_AGAIN: Duration = Duration::from_secs(10);
const ANSWER_TIME: Duration = Duration::from_secs(1);
const ANSWER_MAX: usize = 64;
