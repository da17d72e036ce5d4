//! How a node finds its place in its cluster before it recovers: it asks the others what their folders hold. What follows from the
//! answers, `mortarmq_node::drive` decides.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::BytesMut;
use mortarmq_node::drive::{
    ForeignData, Outsider, Standing, Step, Told, ask_to_return, data_gone, find_as_peer, next_life, next_step, promise,
};
use mortarmq_storage::{Disk, Identity, IdentityState};
use mortarmq_transport::sealed::{Opener, Sealer, read_length, read_payload};
use mortarmq_types::NodeId;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::handshake::{Lane, OwnSide};
use super::incoming::{Gate, read_told};
use super::outgoing::{Dial, DialError, connect};
use super::waiting_room::Why;
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
    /// The node was readmitted so often that no later life of it can be numbered.
    #[error("this node was readmitted too often: no later life of it can be numbered")]
    NoLifeLeft,
    /// The system has no random numbers.
    #[error("the system gives no random numbers")]
    Random(#[source] io::Error),
}

/// The identity of this node's data, once its cluster is there; before that it waits for the others and says for whom. One whose data is gone
/// asks the others to be readmitted, and waits for that.
pub(super) async fn assemble(
    (disk, data_dir): (&dyn Disk, &Path),
    own: &OwnSide,
    others: &[Dial],
    gate: &Gate,
    why: &Why,
) -> Result<Identity, AssemblyError> {
    let found = || find_as_peer(disk, data_dir, own.node, &own.nodes).map_err(AssemblyError::Folder);
    let mut identity = found()?;
    let nodes: Vec<NodeId> = others.iter().map(|dial| dial.node).collect();
    let mut said = (None, Instant::now());
    loop {
        let (standing, life) = standing(identity.as_ref());
        gate.show(standing);
        let (heard, failed) = match standing {
            // It needs no word of the others.
            Standing::Member(_) => Default::default(),
            Standing::Empty | Standing::Promised(_) => ask_all(own, others).await,
            // Its hello says which life it asks as.
            Standing::Asks(_) => ask_all(&OwnSide { incarnation: life, ..own.clone() }, others).await,
        };
        let step = next_step(own.node, (standing, life), &nodes, &heard);
        if let Some(next) = go_on(&step, (disk, data_dir), own, identity.as_ref())? {
            if matches!(step, Step::Begin(_)) {
                return Ok(next);
            }
            identity = Some(next);
            continue;
        }
        if said.0.as_ref() != Some(&step) || said.1.elapsed() > SAY_AGAIN {
            let is_gone = matches!(step, Step::Outside(_));
            let text = reason(&step, own.node, &failed);
            if is_gone {
                tracing::warn!("{text}")
            } else {
                tracing::info!("{text}")
            }
            why.say(&text);
            said = (Some(step), Instant::now());
        }
        sleep(ASK_PAUSE).await;
    }
}

/// Carries out a step that changes what the folder says, or ends the way; the identity from then on, and none where there is only to wait.
fn go_on(
    step: &Step,
    (disk, data_dir): (&dyn Disk, &Path),
    own: &OwnSide,
    identity: Option<&Identity>,
) -> Result<Option<Identity>, AssemblyError> {
    let folder = |error| AssemblyError::Folder(ForeignData::Identity(error));
    match (step, identity) {
        (Step::Begin(_), Some(identity)) => Ok(Some(identity.clone())),
        (Step::Promise(cluster), _) => {
            let cluster = cluster.map_or_else(draw, Ok).map_err(AssemblyError::Random)?;
            promise(disk, data_dir, own.node, &own.nodes, cluster).map(Some).map_err(AssemblyError::Folder)
        }
        (Step::Ask { cluster, above }, identity) => {
            let random = getrandom::u32().map_err(|error| AssemblyError::Random(io::Error::other(error)))?;
            let life = next_life(*above, random).ok_or(AssemblyError::NoLifeLeft)?;
            tracing::info!(
                incarnation = life,
                "this node has no data, and asks to be readmitted as another life of it"
            );
            let Some(mut identity) = identity.cloned() else {
                let asks = ask_to_return(disk, data_dir, own.node, &own.nodes, (*cluster, life));
                return asks.map(Some).map_err(AssemblyError::Folder);
            };
            identity.ask_as(disk, data_dir, life).map_err(folder)?;
            Ok(Some(identity))
        }
        (Step::Admitted, Some(identity)) => {
            let mut identity = identity.clone();
            identity.admit(disk, data_dir).map_err(folder)?;
            tracing::info!(incarnation = identity.incarnation, "readmitted: the others bring this node up");
            Ok(Some(identity))
        }
        (Step::Stop(outsider), _) => Err(AssemblyError::Outsider(*outsider)),
        (Step::Wait(_) | Step::Outside(_) | Step::Begin(_) | Step::Admitted, _) => Ok(None),
    }
}

/// Why a node waits.
fn reason(step: &Step, node: NodeId, failed: &BTreeMap<NodeId, DialError>) -> String {
    let open = match step {
        Step::Outside(member) => return data_gone(node, *member),
        Step::Wait(open) => open.as_slice(),
        Step::Begin(_) | Step::Promise(_) | Step::Ask { .. } | Step::Admitted | Step::Stop(_) => &[],
    };
    let why = |node: &NodeId| failed.get(node).map_or_else(|| "is not as far".to_owned(), |error| chain(error));
    let open: Vec<String> = open.iter().map(|node| format!("node {node} ({})", why(node))).collect();
    format!("waiting for {}: a new cluster begins when all of its nodes are there", open.join(", "))
}

fn standing(identity: Option<&Identity>) -> (Standing, u32) {
    let Some(identity) = identity else { return (Standing::Empty, 0) };
    let standing = match identity.state {
        IdentityState::Promise => Standing::Promised(identity.cluster_id),
        IdentityState::Asks => Standing::Asks(identity.cluster_id),
        IdentityState::Made => Standing::Member(identity.cluster_id),
    };
    (standing, identity.incarnation)
}

fn draw() -> io::Result<[u8; 16]> {
    let mut cluster = [0; 16];
    getrandom::fill(&mut cluster).map_err(io::Error::other)?;
    Ok(cluster)
}

/// What the others' folders hold, and why others did not say.
async fn ask_all(own: &OwnSide, others: &[Dial]) -> (BTreeMap<NodeId, Told>, BTreeMap<NodeId, DialError>) {
    let mut asked = JoinSet::new();
    for dial in others {
        let (own, dial) = (own.clone(), dial.clone());
        asked.spawn(async move { (dial.node, ask(&own, &dial).await) });
    }
    let (mut heard, mut failed) = (BTreeMap::new(), BTreeMap::new());
    while let Some(answer) = asked.join_next().await {
        match answer.expect("asking does not panic and is not cancelled") {
            (node, Ok(told)) => drop(heard.insert(node, told)),
            (node, Err(error)) => drop(failed.insert(node, error)),
        }
    }
    (heard, failed)
}

async fn ask(own: &OwnSide, dial: &Dial) -> Result<Told, DialError> {
    let (mut stream, keys) = connect(own, dial, Lane::Ask).await?;
    let asked = async {
        let mut out = BytesMut::new();
        Sealer::new(&keys.of_dialler).seal(&mut out, |_| ());
        stream.write_all(&out).await?;
        stream.flush().await?;
        let mut opener = Opener::new(&keys.of_listener);
        let length = read_length(&mut stream).await?.min(ANSWER_MAX);
        let answer = read_payload(&mut stream, &mut opener, length).await?;
        read_told(&answer).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an answer of no known kind"))
    };
    let late = |_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"));
    Ok(timeout(ANSWER_TIME, asked).await.unwrap_or_else(late)?)
}

const ASK_PAUSE: Duration = Duration::from_millis(100);
const SAY_AGAIN: Duration = Duration::from_secs(10);
const ANSWER_TIME: Duration = Duration::from_secs(1);
const ANSWER_MAX: usize = 64;
