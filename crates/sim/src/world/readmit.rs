//! A disk that is replaced: the node has nothing, asks to be readmitted, and an operator of this world has it so.
//!
//! Only one node at a time, and only while all others vote, have everything and know it: two lost disks of three are more than is
//! promised. Until the node votes again no other one's journal rots either.

use std::collections::BTreeMap;
use std::path::Path;

use mortarmq_node::drive::{Standing, Step, Told, ask_to_return, chain, find_as_peer, next_life, next_step, promise};
use mortarmq_node::{Act, Peer};
use mortarmq_storage::{Identity, IdentityState, MemoryDisk};
use mortarmq_types::NodeId;

use super::World;
use super::event::{Event, Input};
use super::faults::{CLUSTER_ID, DATA_DIR};
use super::promises::Promises;

impl World {
    /// Whether every node votes, and whoever leads knows that all others know it.
    pub(super) fn all_vote(&self) -> bool {
        let Some(leader) = self.leader().filter(|_| self.nodes.iter().all(|machine| !machine.is_wiped)) else {
            // Whoever leads may not have heard of it.
            return false;
        };
        let process = self.nodes[leader].process.as_ref();
        let members = process.map(|process| process.node.cluster_view().members).unwrap_or_default();
        members.len() == self.nodes.len() && members.iter().all(|member| member.role == "voter")
    }

    /// Looks whether a node that was readmitted counts by now: its leader says that all vote, and know it.
    pub(super) fn note_votes(&mut self, node: usize) {
        let is_told = self.nodes.iter().any(|machine| !machine.counts) && self.leader() == Some(node);
        if is_told && self.all_vote() {
            self.nodes.iter_mut().for_each(|machine| machine.counts = true);
        }
    }

    /// Whether the disk of a node may be lost.
    pub(super) fn may_wipe(&self, node: usize) -> bool {
        self.may_rot(node) && self.all_vote()
    }

    /// The machine gets an empty disk.
    pub(super) fn wipe(&mut self, node: usize) {
        let machine = &mut self.nodes[node];
        machine.disk = MemoryDisk::new();
        (machine.is_wiped, machine.counts) = (true, false);
        machine.damages.clear();
        machine.rotten_dirs.clear();
        machine.former = None;
        machine.fetches_in = None;
        self.trace.note(self.now_us, "wiped", &[node as u64]);
    }

    /// The promise that is all a node has until something is durable, if it is no more.
    pub(super) fn promise_of(&self, node: usize) -> Option<Identity> {
        let found = Identity::read(&self.nodes[node].disk, Path::new(DATA_DIR)).ok().flatten();
        found.filter(|identity| identity.state == IdentityState::Promise)
    }

    /// Something is durable, and nobody was told.
    pub(super) fn fulfil(&mut self, node: usize) -> Result<(), String> {
        let machine = &mut self.nodes[node];
        let promise = machine.process.as_mut().and_then(|process| process.promise.take());
        let Some(mut promise) = promise else { return Ok(()) };
        promise.fulfil(&machine.disk, Path::new(DATA_DIR)).map_err(|error| chain(&error))
    }

    /// A node without data asks all that run and can be reached, and does what follows; it begins once it is admitted.
    pub(super) fn enter(&mut self, node: usize) {
        match self.try_to_enter(node) {
            Ok(true) => {
                self.nodes[node].is_wiped = false;
                self.tally.reach("wiped node rejoined");
                self.start(node);
            }
            Ok(false) => self.at(self.now_us + ASK_US, Event::Start { node }),
            Err(error) => self.fail(format!("rule 4: node {} cannot ask to be readmitted: {error}", node + 1)),
        }
    }

    fn try_to_enter(&mut self, node: usize) -> Result<bool, String> {
        let (disk, dir) = (self.nodes[node].disk.clone(), Path::new(DATA_DIR));
        let ids: Vec<NodeId> = (0..self.nodes.len()).map(node_id).collect();
        let failed = |error: &dyn std::error::Error| chain(error);
        let mut identity = find_as_peer(&disk, dir, node_id(node), &ids).map_err(|error| failed(&error))?;
        let own = standing(identity.as_ref());
        let heard = self.told_to(node, own);
        let others: Vec<NodeId> = ids.iter().copied().filter(|id| *id != node_id(node)).collect();
        match (next_step(node_id(node), own, &others, &heard), &mut identity) {
            (Step::Ask { cluster, above }, identity) => {
                let life = next_life(above, self.loss.next() as u32).ok_or("no life is left")?;
                match identity {
                    Some(identity) => identity.ask_as(&disk, dir, life).map_err(|error| failed(&error))?,
                    None => {
                        let asks = ask_to_return(&disk, dir, node_id(node), &ids, (cluster, life));
                        asks.map_err(|error| failed(&error))?;
                    }
                }
                self.trace.note(self.now_us, "asks", &[node as u64, u64::from(life)]);
            }
            (Step::Admitted, Some(identity)) => {
                identity.admit(&disk, dir).map_err(|error| failed(&error))?;
                // What an earlier life promised, it promised as another member.
                self.nodes[node].promises = Promises::default();
            }
            (Step::Promise(cluster), _) => {
                promise(&disk, dir, node_id(node), &ids, cluster.unwrap_or(CLUSTER_ID))
                    .map_err(|error| failed(&error))?;
            }
            (Step::Begin(_), _) => return Ok(true),
            (Step::Outside(_), _) => self.have_readmitted(node),
            (Step::Wait(_), _) => {}
            (step, _) => return Err(format!("{step:?}")),
        }
        Ok(false)
    }

    /// What the others say to one that asks, which they take note of.
    fn told_to(&mut self, node: usize, (standing, life): (Standing, u32)) -> BTreeMap<NodeId, Told> {
        let mut heard = BTreeMap::new();
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            let is_cut = self.peers.is_cut(node, other) || self.peers.is_cut(other, node);
            let machine = &self.nodes[other];
            let stands_still = machine.paused_until_us > self.now_us;
            let Some(process) = machine.process.as_ref().filter(|_| !is_cut && !stands_still) else { continue };
            let members = process.node.cluster_view().members;
            let known = members.iter().find(|member| usize::from(member.id) == node);
            let life_of_asker = known.map_or(0, |member| member.incarnation);
            heard.insert(node_id(other), Told { standing: Standing::Member(CLUSTER_ID), life_of_asker });
            if matches!(standing, Standing::Asks(_)) {
                let peer = Peer { node_id: node_id(node), data_incarnation: life };
                self.give(other, Input::Asking { peer });
            }
        }
        heard
    }

    /// The operator tries, as whoever waits for an answer that does not come asks again.
    fn have_readmitted(&mut self, node: usize) {
        let Some(leader) = self.leader() else { return };
        self.give(leader, Input::Act { query: READMISSION, act: Act::Readmit { node: node_id(node) } });
    }
}

fn standing(identity: Option<&Identity>) -> (Standing, u32) {
    let Some(identity) = identity else { return (Standing::Empty, 0) };
    let standing = match identity.state {
        IdentityState::Asks => Standing::Asks(CLUSTER_ID),
        IdentityState::Promise => Standing::Promised(CLUSTER_ID),
        IdentityState::Made => Standing::Member(CLUSTER_ID),
    };
    (standing, identity.incarnation)
}

fn node_id(node: usize) -> NodeId {
    NodeId::new(u16::try_from(node).expect("few"))
}

/// How often it asks.
const ASK_US: u64 = 100_000;
/// What names the operator's acts here: nobody in this world waits for their answers.
pub(super) const READMISSION: u64 = u64::MAX;
