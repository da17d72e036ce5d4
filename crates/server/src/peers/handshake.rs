//! The first bytes of a link: who connects to whom, in which version, and the keys of both directions.
//!
//! Three messages of fixed shape, numbers big-endian, each behind its length as u16. Whoever dials says `hello`; the other answers `welcome` with
//! a proof that it knows the secret; whoever dialled proves it too. All proofs and keys are HMAC-SHA-256 under the secret over a word of
//! their own and both messages: they bind cluster, both nodes, the incarnations of their data, lane, direction, and a nonce of each.
//!
//! | hello | welcome |
//! |---|---|
//! | magic `MMQL` u32 | version u16, the highest that both know |
//! | lowest and highest version u16 each | verdict u8: 0 it may go on, else why not |
//! | lane u8, from u16, to u16, incarnation u32 | node u16, incarnation u32 |
//! | cluster 16 bytes, zeros on the lane for asking | cluster 16 bytes, or zeros |
//! | nonce 32 bytes | nonce 32 bytes |
//! | peer_count u8, node ids u16 each, rising | proof 32 bytes |

use bytes::{Buf, BufMut};
use hmac::{Hmac, KeyInit, Mac};
use mortarmq_types::NodeId;
use sha2::Sha256;

use super::lives::Lives;

/// The secret that the nodes of a cluster share.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes a secret; none that could be guessed.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        (SECRET_LEAST..=SECRET_MOST).contains(&text.len()).then(|| Self(text.to_owned()))
    }

    fn mac(&self, word: &str, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = Hmac::new_from_slice(self.0.as_bytes()).expect("a key of any length");
        mac.update(word.as_bytes());
        parts.iter().for_each(|part| mac.update(part));
        mac
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Secret(...)")
    }
}

/// What a link carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Questions what the other's folder holds, and their answers.
    Ask,
    /// Votes, heartbeats and answers.
    Words,
    /// Entries of the log.
    Log,
    /// What a client says and is told that connected to another node than the leader.
    Clients,
    /// The same of an operator.
    Operators,
}

impl Lane {
    const ALL: [Self; 5] = [Self::Ask, Self::Words, Self::Log, Self::Clients, Self::Operators];

    fn number(self) -> u8 {
        self as u8
    }

    fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Whether there is one from each node, which takes the place of the one before.
    pub(crate) fn is_single(self) -> bool {
        !matches!(self, Self::Clients | Self::Operators)
    }
}

/// A node as it shows itself to the others.
#[derive(Clone, Debug)]
pub(crate) struct OwnSide {
    pub(crate) node: NodeId,
    /// Which life of its data it has; 0 while it has none.
    pub(crate) incarnation: u32,
    /// Its cluster; none while it is not known.
    pub(crate) cluster: Option<[u8; 16]>,
    /// All nodes of the cluster, rising.
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) secret: Secret,
    /// Which life of each node belongs to the cluster.
    pub(crate) lives: Lives,
}

/// What whoever dials says first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    versions: (u16, u16),
    pub(crate) lane: Lane,
    pub(crate) from: NodeId,
    to: NodeId,
    /// Which life of its data it has; on the lane for asking, the one that it asks to be readmitted as.
    pub(crate) incarnation: u32,
    cluster: [u8; 16],
    nonce: Nonce,
    nodes: Vec<NodeId>,
}

type Nonce = [u8; 32];

/// The keys of a link, by who seals with them.
pub(crate) struct Keys {
    pub(crate) of_dialler: [u8; 32],
    pub(crate) of_listener: [u8; 32],
}

/// Why a link is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// It is no message of this protocol.
    #[error("what answers there is no node of MortarMQ")]
    Garbage,
    /// It does not know the secret.
    #[error("the other node has another peer_secret")]
    Secret,
    /// No version that both know.
    #[error("the nodes have no version of the peer protocol in common; bring all to the same release")]
    Version,
    /// Another node is meant.
    #[error("another node answers at this address: are the addresses in peers right?")]
    OtherNode,
    /// The nodes are configured with other peers.
    #[error("the nodes disagree about who is in the cluster; peers must be the same on every node")]
    OtherPeers,
    /// The nodes have data of different clusters, or one has lost its data.
    #[error("the nodes have data of different clusters or earlier lives of it")]
    OtherCluster,
    /// It is still starting.
    #[error("the other node is still starting")]
    NotOpen,
    /// The log says that a later life of the dialling node belongs to the cluster.
    #[error(
        "this node was replaced: a later life of it was readmitted. What is in its data_dir is of no use to the cluster any more; with an \
         empty one it can be readmitted"
    )]
    Replaced,
    /// The same of the node that answers.
    #[error("that node has data of an earlier life of it, which was replaced")]
    Earlier,
}

impl Refusal {
    const ALL: [Self; 9] = [
        Self::Garbage,
        Self::Secret,
        Self::Version,
        Self::OtherNode,
        Self::OtherPeers,
        Self::OtherCluster,
        Self::NotOpen,
        Self::Replaced,
        Self::Earlier,
    ];

    fn number(self) -> u8 {
        Self::ALL.iter().position(|refusal| *refusal == self).map_or(0, |place| place as u8 + 1)
    }

    fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

impl Hello {
    /// What this node says to another.
    pub(crate) fn new(own: &OwnSide, to: NodeId, lane: Lane, nonce: Nonce) -> Self {
        let cluster = if lane == Lane::Ask { None } else { own.cluster };
        Self {
            versions: (VERSION, VERSION),
            lane,
            from: own.node,
            to,
            incarnation: own.incarnation,
            cluster: cluster.unwrap_or_default(),
            nonce,
            nodes: own.nodes.clone(),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HELLO_BYTES + 2 * self.nodes.len());
        bytes.put_u32(MAGIC);
        bytes.put_u16(self.versions.0);
        bytes.put_u16(self.versions.1);
        bytes.put_u8(self.lane.number());
        bytes.put_u16(self.from.get());
        bytes.put_u16(self.to.get());
        bytes.put_u32(self.incarnation);
        bytes.put_slice(&self.cluster);
        bytes.put_slice(&self.nonce);
        bytes.put_u8(self.nodes.len() as u8);
        self.nodes.iter().for_each(|node| bytes.put_u16(node.get()));
        bytes
    }

    pub(crate) fn decode(mut bytes: &[u8]) -> Result<Self, Refusal> {
        if bytes.len() < HELLO_BYTES || bytes.get_u32() != MAGIC {
            return Err(Refusal::Garbage);
        }
        let versions = (bytes.get_u16(), bytes.get_u16());
        let lane = Lane::of(bytes.get_u8()).ok_or(Refusal::Garbage)?;
        let (from, to) = (NodeId::new(bytes.get_u16()), NodeId::new(bytes.get_u16()));
        let incarnation = bytes.get_u32();
        let (mut cluster, mut nonce) = ([0; 16], [0; 32]);
        bytes.copy_to_slice(&mut cluster);
        bytes.copy_to_slice(&mut nonce);
        let count = usize::from(bytes.get_u8());
        if bytes.len() != 2 * count {
            return Err(Refusal::Garbage);
        }
        let nodes = (0..count).map(|_| NodeId::new(bytes.get_u16())).collect();
        Ok(Self { versions, lane, from, to, incarnation, cluster, nonce, nodes })
    }

    /// Whether a node takes this; `is_open` is whether its loop runs.
    fn judge(&self, own: &OwnSide, is_open: bool) -> Result<(), Refusal> {
        if !(self.versions.0..=self.versions.1).contains(&VERSION) {
            return Err(Refusal::Version);
        }
        if self.to != own.node || self.from == own.node {
            return Err(Refusal::OtherNode);
        }
        if self.nodes != own.nodes || !own.nodes.contains(&self.from) {
            return Err(Refusal::OtherPeers);
        }
        if self.lane == Lane::Ask {
            return Ok(());
        }
        match own.cluster {
            Some(cluster) if cluster == self.cluster && own.lives.is_over(self.from, self.incarnation) => {
                Err(Refusal::Replaced)
            }
            Some(cluster) if is_open && cluster == self.cluster => Ok(()),
            Some(cluster) if cluster != self.cluster => Err(Refusal::OtherCluster),
            _ => Err(Refusal::NotOpen),
        }
    }
}

/// What is answered to a hello, whether it is taken, and what its sender has to prove.
pub(crate) struct Welcome {
    pub(crate) bytes: Vec<u8>,
    pub(crate) verdict: Result<(), Refusal>,
}

impl Welcome {
    pub(crate) fn new(own: &OwnSide, hello: &Hello, hello_bytes: &[u8], is_open: bool, nonce: Nonce) -> Self {
        let verdict = hello.judge(own, is_open);
        let mut bytes = Vec::with_capacity(WELCOME_BYTES);
        bytes.put_u16(VERSION);
        bytes.put_u8(verdict.err().map_or(0, Refusal::number));
        bytes.put_u16(own.node.get());
        bytes.put_u32(own.incarnation);
        bytes.put_slice(&own.cluster.unwrap_or_default());
        bytes.put_slice(&nonce);
        let proof = own.secret.mac(LISTENER_PROVES, &[hello_bytes, &bytes]).finalize().into_bytes();
        bytes.put_slice(&proof);
        Self { bytes, verdict }
    }
}

/// Whoever dialled has been answered: the proof that it sends and the keys, or why there is no link.
pub(crate) fn answered(
    own: &OwnSide,
    hello: &Hello,
    hello_bytes: &[u8],
    welcome: &[u8],
) -> Result<(Vec<u8>, Keys), Refusal> {
    let Some((fields, proof)) =
        welcome.split_at_checked(WELCOME_BYTES - PROOF_BYTES).filter(|(_, proof)| proof.len() == PROOF_BYTES)
    else {
        return Err(Refusal::Garbage);
    };
    own.secret.mac(LISTENER_PROVES, &[hello_bytes, fields]).verify_slice(proof).map_err(|_| Refusal::Secret)?;
    if let Some(refusal) = Refusal::of(fields[2]) {
        return Err(refusal);
    }
    let mut fields = fields;
    let (version, _, node) = (fields.get_u16(), fields.get_u8(), fields.get_u16());
    let incarnation = fields.get_u32();
    if version != VERSION {
        return Err(Refusal::Version);
    }
    if NodeId::new(node) != hello.to {
        return Err(Refusal::OtherNode);
    }
    if hello.lane != Lane::Ask && own.lives.is_over(hello.to, incarnation) {
        return Err(Refusal::Earlier);
    }
    let proof = own.secret.mac(DIALLER_PROVES, &[hello_bytes, welcome]).finalize().into_bytes().to_vec();
    Ok((proof, keys(&own.secret, hello_bytes, welcome)))
}

/// Whoever dialled has proved that it knows the secret, or not.
pub(crate) fn proved(own: &OwnSide, hello_bytes: &[u8], welcome: &[u8], proof: &[u8]) -> Result<Keys, Refusal> {
    own.secret.mac(DIALLER_PROVES, &[hello_bytes, welcome]).verify_slice(proof).map_err(|_| Refusal::Secret)?;
    Ok(keys(&own.secret, hello_bytes, welcome))
}

fn keys(secret: &Secret, hello: &[u8], welcome: &[u8]) -> Keys {
    let key = |word| secret.mac(word, &[hello, welcome]).finalize().into_bytes().into();
    Keys { of_dialler: key(DIALLER_SEALS), of_listener: key(LISTENER_SEALS) }
}

/// Random bytes for one handshake.
pub(crate) fn nonce() -> std::io::Result<Nonce> {
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(std::io::Error::other)?;
    Ok(nonce)
}

/// The longest message of a handshake.
pub(crate) const MESSAGE_MAX: usize = HELLO_BYTES + 2 * u8::MAX as usize;
/// Fewer characters are guessed.
const SECRET_LEAST: usize = 16;
const SECRET_MOST: usize = 1024;
const MAGIC: u32 = u32::from_be_bytes(*b"MMQL");
/// The only version of the peer protocol so far.
const VERSION: u16 = 1;
const HELLO_BYTES: usize = 4 + 2 + 2 + 1 + 2 + 2 + 4 + 16 + 32 + 1;
const PROOF_BYTES: usize = 32;
const WELCOME_BYTES: usize = 2 + 1 + 2 + 4 + 16 + 32 + PROOF_BYTES;
const LISTENER_PROVES: &str = "mortarmq peer 1: listener proves";
const DIALLER_PROVES: &str = "mortarmq peer 1: dialler proves";
const LISTENER_SEALS: &str = "mortarmq peer 1: listener seals";
const DIALLER_SEALS: &str = "mortarmq peer 1: dialler seals";

#[cfg(test)]
mod tests {
    use super::{Hello, Lane, OwnSide, Refusal, Secret, Welcome, answered, proved};
    use crate::peers::lives::Lives;
    use mortarmq_node::Peer;
    use mortarmq_types::NodeId;

    const CLUSTER: [u8; 16] = [7; 16];

    fn node(node: u16) -> OwnSide {
        let nodes = [0, 1, 2].map(NodeId::new).to_vec();
        let secret = Secret::new("a secret of the cluster").expect("long enough");
        let lives = Lives::default();
        OwnSide { node: NodeId::new(node), incarnation: 1, cluster: Some(CLUSTER), nodes, secret, lives }
    }

    /// A whole handshake; the keys of both are equal then.
    fn shake(dialler: &OwnSide, to: u16, listener: &OwnSide, lane: Lane, is_open: bool) -> Result<(), Refusal> {
        let bytes = Hello::new(dialler, NodeId::new(to), lane, [1; 32]).encode();
        let hello = Hello::decode(&bytes)?;
        let welcome = Welcome::new(listener, &hello, &bytes, is_open, [2; 32]);
        let (proof, keys) = answered(dialler, &hello, &bytes, &welcome.bytes)?;
        welcome.verdict?;
        let others = proved(listener, &bytes, &welcome.bytes, &proof)?;
        assert_eq!((keys.of_dialler, keys.of_listener), (others.of_dialler, others.of_listener));
        assert_ne!(keys.of_dialler, keys.of_listener);
        Ok(())
    }

    #[test]
    fn nodes_of_one_cluster_make_a_link_and_others_are_told_why_not() {
        assert_eq!(shake(&node(0), 1, &node(1), Lane::Log, true), Ok(()));
        assert_eq!(shake(&node(0), 1, &node(1), Lane::Words, false), Err(Refusal::NotOpen));
        assert_eq!(shake(&node(0), 1, &node(1), Lane::Ask, false), Ok(()), "a node that starts can be asked");
        let other = OwnSide { secret: Secret::new("another secret of it").expect("long enough"), ..node(1) };
        assert_eq!(shake(&node(0), 1, &other, Lane::Words, true), Err(Refusal::Secret));
        assert_eq!(shake(&node(0), 1, &node(2), Lane::Words, true), Err(Refusal::OtherNode));
        assert_eq!(shake(&node(0), 0, &node(0), Lane::Words, true), Err(Refusal::OtherNode), "itself");
        let other = OwnSide { nodes: [1, 2, 3].map(NodeId::new).to_vec(), ..node(1) };
        assert_eq!(shake(&node(0), 1, &other, Lane::Ask, true), Err(Refusal::OtherPeers));
        let other = OwnSide { cluster: Some([8; 16]), ..node(1) };
        assert_eq!(shake(&node(0), 1, &other, Lane::Log, true), Err(Refusal::OtherCluster));
        assert_eq!(shake(&node(0), 1, &OwnSide { cluster: None, ..node(1) }, Lane::Log, true), Err(Refusal::NotOpen));
    }

    #[test]
    fn rule_4_an_earlier_life_makes_no_link_in_either_direction() {
        let knows = |node: OwnSide, life: u32| {
            node.lives.tell(&[Peer { node_id: NodeId::new(2), data_incarnation: life }]);
            node
        };
        let later = OwnSide { incarnation: 9, ..node(2) };
        for lane in [Lane::Words, Lane::Log, Lane::Clients, Lane::Operators] {
            assert_eq!(shake(&node(2), 1, &knows(node(1), 9), lane, true), Err(Refusal::Replaced));
            assert_eq!(shake(&knows(node(1), 9), 2, &node(2), lane, true), Err(Refusal::Earlier));
            assert_eq!(shake(&later, 1, &knows(node(1), 9), lane, true), Ok(()));
            assert_eq!(shake(&later, 1, &knows(node(1), 1), lane, true), Ok(()), "whoever lags hears it");
            assert_eq!(shake(&knows(node(1), 9), 2, &later, lane, true), Ok(()));
        }
        assert_eq!(shake(&node(2), 1, &knows(node(1), 9), Lane::Ask, true), Ok(()), "it may ask");
    }

    #[test]
    fn a_handshake_of_which_one_bit_was_changed_makes_no_link() {
        let (dialler, listener) = (node(0), node(1));
        let bytes = Hello::new(&dialler, NodeId::new(1), Lane::Log, [1; 32]).encode();
        let hello = Hello::decode(&bytes).expect("sound");
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let Ok(heard) = Hello::decode(&changed) else { continue };
            let welcome = Welcome::new(&listener, &heard, &changed, true, [2; 32]);
            assert!(answered(&dialler, &hello, &bytes, &welcome.bytes).is_err(), "bit {bit} of the hello");
        }
        let welcome = Welcome::new(&listener, &hello, &bytes, true, [2; 32]).bytes;
        let (proof, _) = answered(&dialler, &hello, &bytes, &welcome).expect("sound");
        for bit in 0..welcome.len() * 8 {
            let mut changed = welcome.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(answered(&dialler, &hello, &bytes, &changed).is_err(), "bit {bit} of the welcome");
        }
        for bit in 0..proof.len() * 8 {
            let mut changed = proof.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(proved(&listener, &bytes, &welcome, &changed).is_err(), "bit {bit} of the proof");
        }
        for cut in 0..welcome.len() {
            assert!(answered(&dialler, &hello, &bytes, &welcome[..cut]).is_err());
        }
        assert!((0..bytes.len()).all(|cut| Hello::decode(&bytes[..cut]).is_err()));
    }

    #[test]
    fn a_short_secret_is_none_and_none_is_shown() {
        assert_eq!(Secret::new("fifteen letters"), None);
        let secret = Secret::new("sixteen letters!").expect("long enough");
        assert!(!format!("{secret:?}").contains("letters"));
    }
}
