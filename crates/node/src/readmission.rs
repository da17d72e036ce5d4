//! A node whose data is gone comes back: an operator has it admitted as a later life, and it is promoted when it has what the others have.
//!
//! Such a node draws a number above that of every life it hears of, makes it durable, and asks the others as that life until one of them says
//! that it was admitted. The operator names the node; which life is meant the leader knows from who asks. One entry of the log takes the old
//! life out and the new one in as a learner; the promotion is a second one, proposed by whichever node leads.
//!
//! # Invariants
//! 1. One change of members is under way at a time.
//! 2. Nothing here is remembered beyond the office but what nodes ask: who is a learner stands in the log.
//!
//! # Source
//! Failure rule 4; docs/decisions/019-readmission.md.

use std::collections::BTreeMap;

use mortarmq_replica::{Change, Follower, MemberRole};
use mortarmq_types::{Epoch, MonotonicTime, NodeId};
use mortarmq_wire::ErrorCode;

use crate::config::{Now, Peer, node_of, peer_of};
use crate::node::Node;
use crate::output::Output;
use crate::peers::{NO_MAJORITY_TICKS, PeerView};
use crate::refusal::{not_leading, unknown};
use crate::reply::{Failure, QueryAnswer};
use crate::views::{AskingView, ClusterView, NodeView};

/// Nodes that ask, and what is done about them.
#[derive(Debug, Default)]
pub(crate) struct Readmissions {
    /// By node: the lives that it was heard asking as, and when last.
    asking: BTreeMap<NodeId, BTreeMap<u32, MonotonicTime>>,
    /// What is to be proposed as soon as the log takes it.
    wanted: Option<Wanted>,
    /// What was proposed and is not applied yet.
    proposed: Option<Proposal>,
}

#[derive(Clone, Copy, Debug)]
struct Wanted {
    change: Change,
    /// Who waits for it, if it is an operator.
    query: Option<u64>,
    since: MonotonicTime,
}

#[derive(Clone, Copy, Debug)]
struct Proposal {
    log_index: u64,
    epoch: Epoch,
    query: Option<u64>,
}

impl Readmissions {
    /// Nobody waits for this answer any more.
    pub(crate) fn forget(&mut self, query: u64) {
        for waiting in [
            self.wanted.as_mut().map(|wanted| &mut wanted.query),
            self.proposed.as_mut().map(|proposed| &mut proposed.query),
        ] {
            if let Some(waiting) = waiting.filter(|waiting| **waiting == Some(query)) {
                *waiting = None;
            }
        }
    }

    /// The lives that a node asks as at present.
    fn lives(&self, node: NodeId) -> impl Iterator<Item = u32> + '_ {
        self.asking.get(&node).into_iter().flat_map(|lives| lives.keys().copied())
    }
}

impl Node {
    /// A node with an empty folder asks to be readmitted, as this life.
    pub fn handle_asking(&mut self, now: Now, peer: Peer) {
        self.turn(now);
        let is_peer = self.config.peers.iter().any(|known| known.node_id == peer.node_id);
        if !is_peer || peer.node_id == self.config.node_id || peer.data_incarnation == 0 {
            return;
        }
        let lives = self.readmissions.asking.entry(peer.node_id).or_default();
        if lives.len() < LIVES_MAX || lives.contains_key(&peer.data_incarnation) {
            lives.insert(peer.data_incarnation, now.monotonic);
        }
    }

    /// An operator has a node readmitted.
    pub(crate) fn begin_readmission(&mut self, now: Now, query: u64, node: NodeId) {
        match self.check_readmission(node) {
            Err(failure) => self.reply(query, Err(failure)),
            // It was admitted before, and is on its way.
            Ok(None) => self.tell_cluster(query),
            Ok(Some(change)) => {
                self.readmissions.wanted = Some(Wanted { change, query: Some(query), since: now.monotonic });
            }
        }
    }

    /// What admits a node, nothing if that is done, or why it cannot be.
    fn check_readmission(&self, node: NodeId) -> Result<Option<Change>, Failure> {
        let Some(old) = self.replica.members().life_of(node.get().into()).filter(|_| self.config.has_peers()) else {
            let nodes: Vec<String> = self.replica.members().ids().map(|id| node_of(id).to_string()).collect();
            let text = format!("node {node} is none of this cluster; its nodes are {}", nodes.join(", "));
            return Err(Failure::new(ErrorCode::MalformedPayload, text));
        };
        if !self.leads {
            return Err(not_leading(self.office.leader));
        }
        if node == self.config.node_id {
            return Err(not_readmitted(&format!("node {node} leads: it is up with its data")));
        }
        if let Some(failure) = self.refusal_to_serve() {
            return Err(failure);
        }
        let lives: Vec<u32> = self.readmissions.lives(node).collect();
        let life = match lives[..] {
            [] if self.is_heard(old) => return Err(not_readmitted(&format!("node {node} is up with its data"))),
            [] => {
                return Err(not_readmitted(&format!(
                    "node {node} does not ask for it: start it with an empty data folder, then try again"
                )));
            }
            [life] => life,
            [_, _, ..] => {
                return Err(not_readmitted(&format!(
                    "{} processes with empty folders ask as node {node}: stop all but one of them",
                    lives.len()
                )));
            }
        };
        let new = Peer { node_id: node, data_incarnation: life }.raft_id();
        if new == old {
            return Ok(None);
        }
        if new < old {
            return Err(not_readmitted(&format!(
                "node {node} asks as life {life}, which is not later than its last one; it will ask anew in a moment"
            )));
        }
        if self.is_heard(old) {
            return Err(not_readmitted(&format!(
                "node {node} was heard a moment ago with its data, and another process asks in its name: if it is up, stop that one; if it \
                 went down, try again"
            )));
        }
        let is_other = |id: &u64| node_of(*id) != node;
        if let Some(other) = self.replica.members().learners().iter().copied().find(is_other) {
            let other = node_of(other);
            return Err(not_readmitted(&format!("node {other} is being readmitted: wait until it votes")));
        }
        if self.readmissions.wanted.is_some() || self.readmissions.proposed.is_some() || !self.replica.takes_change() {
            return Err(not_readmitted("another change of members is under way: try again in a moment"));
        }
        if !self.replica.has_majority_without(old, NO_MAJORITY_TICKS) {
            return Err(not_readmitted(&format!(
                "without node {node} too few of the others are up and have the log: bring them up first"
            )));
        }
        Ok(Some(Change::Replace { old, new }))
    }

    fn is_heard(&self, id: u64) -> bool {
        let is_it = |follower: &Follower| {
            follower.id == id && follower.silent_ticks.is_some_and(|ticks| ticks < NO_MAJORITY_TICKS)
        };
        self.replica.followers().iter().any(is_it)
    }

    /// Time passed: a learner that has what the others have is to be promoted, and who asks no more is forgotten.
    pub(crate) fn tick_readmissions(&mut self, now: Now) {
        self.readmissions.asking.retain(|_, lives| {
            lives.retain(|_, heard| now.monotonic.since_ms(*heard) < ASKING_MS);
            !lives.is_empty()
        });
        if !self.leads {
            return;
        }
        if let Some(wanted) = self.readmissions.wanted
            && now.monotonic.since_ms(wanted.since) >= WANTED_MS
        {
            self.readmissions.wanted = None;
            if let Some(query) = wanted.query {
                self.reply(query, Err(not_readmitted("the log took no change in time: try again")));
            }
        }
        let is_idle = self.readmissions.wanted.is_none() && self.readmissions.proposed.is_none();
        if is_idle && self.settled_in && !self.replica.members().learners().is_empty() {
            let change = self.replica.followers().into_iter().find(|found| self.has_caught_up(found));
            let change = change.map(|follower| Change::Promote { id: follower.id });
            self.readmissions.wanted = change.map(|change| Wanted { change, query: None, since: now.monotonic });
        }
    }

    /// Whether a learner has about all there is, and knows what is committed beyond its own admission.
    fn has_caught_up(&self, follower: &Follower) -> bool {
        let admitted = self.replica.changed_at();
        let is_heard = follower.silent_ticks.is_some_and(|ticks| ticks < NO_MAJORITY_TICKS);
        let has_log = follower.lag_bytes.is_some() && follower.lag_entries <= LAG_ENTRIES_MAX;
        follower.learns && is_heard && has_log && follower.acknowledged.min(follower.committed) >= admitted.max(1)
    }

    /// Proposes a change of members when the log takes one; says whether it did.
    pub(crate) fn poll_change(&mut self, _now: Now) -> bool {
        if self.readmissions.wanted.is_none() || !self.can_propose() || !self.replica.takes_change() {
            return false;
        }
        let Some(Wanted { change, query, .. }) = self.readmissions.wanted.take() else { return false };
        match self.replica.propose_change(change) {
            Ok(proposed) => {
                let (log_index, epoch) = (proposed.log_index, proposed.epoch);
                self.readmissions.proposed = Some(Proposal { log_index, epoch, query });
            }
            Err(error) => {
                if let Some(query) = query {
                    self.reply(query, Err(not_readmitted(&format!("{error}: try again"))));
                }
            }
        }
        true
    }

    /// A change of members is applied.
    pub(crate) fn members_changed(&mut self, log_index: u64, term: u64) {
        self.tell_members();
        // What is proposed now tells the others that the change is committed.
        self.first_batch_due |= self.leads;
        let Some(proposal) = self.readmissions.proposed.take_if(|proposal| proposal.log_index <= log_index) else {
            return;
        };
        let is_it = (proposal.log_index, proposal.epoch) == (log_index, Epoch::new(term));
        match proposal.query {
            Some(query) if is_it => self.tell_cluster(query),
            Some(query) => self.reply(query, Err(not_known())),
            None => {}
        }
    }

    /// The office is over: whoever leads goes on with what is in the log.
    pub(crate) fn end_readmissions(&mut self) {
        let (wanted, proposed) = (self.readmissions.wanted.take(), self.readmissions.proposed.take());
        if let Some(query) = wanted.and_then(|wanted| wanted.query) {
            self.reply(query, Err(not_leading(self.office.leader)));
        }
        if let Some(query) = proposed.and_then(|proposed| proposed.query) {
            self.reply(query, Err(not_known()));
        }
    }

    /// Tells the driver who belongs to the group.
    pub(crate) fn tell_members(&mut self) {
        let members = self.replica.members();
        let (membership, members) = (members.encode(), members.ids().map(peer_of).collect());
        self.outputs.push_back(Output::Members { membership, members });
    }

    fn tell_cluster(&mut self, query: u64) {
        let view = self.cluster_view();
        self.reply(query, Ok(QueryAnswer::Members(view)));
    }

    /// The members as this node knows them; how they stand only their leader knows.
    #[must_use]
    pub fn cluster_view(&self) -> ClusterView {
        let views = self.peers();
        let members = self.replica.members();
        let mut listed: Vec<NodeView> = members.ids().map(|id| self.node_view(id, members.role(id), &views)).collect();
        listed.sort_by_key(|view| (view.id, view.incarnation));
        let asking = self
            .readmissions
            .asking
            .iter()
            .flat_map(|(node, lives)| lives.keys().map(|life| AskingView { id: node.get(), incarnation: *life }));
        let is_member = |asking: &AskingView| {
            listed.iter().any(|view| (view.id, view.incarnation) == (asking.id, asking.incarnation))
        };
        let asking = asking.filter(|asking| !is_member(asking)).collect();
        ClusterView { members: listed, asking }
    }

    fn node_view(&self, id: u64, role: Option<MemberRole>, views: &[PeerView]) -> NodeView {
        let Peer { node_id, data_incarnation } = peer_of(id);
        let (is_self, view) = (id == self.replica.id(), views.iter().find(|view| view.node_id == node_id));
        let is_promoted_here = self.readmissions_promoted(id);
        let role = match role {
            Some(MemberRole::Voter) if is_promoted_here && !self.replica.is_change_known() => "promoting",
            Some(MemberRole::Voter) => "voter",
            Some(MemberRole::Learner) | None => "learner",
        };
        let state = if is_self && self.leads { Some("leading") } else { view.map(|view| view.state.word()) };
        NodeView {
            id: node_id.get(),
            incarnation: data_incarnation,
            role,
            leads: self.office.leader == Some(node_id),
            reached: is_self || view.is_some_and(|view| view.silent_ms.is_some_and(|ms| ms < SILENT_MS)),
            state,
            lag_bytes: if is_self { Some(0) } else { view.and_then(|view| view.lag_bytes) },
            lag_entries: if is_self { Some(0) } else { view.map(|view| view.lag_entries) },
            silent_ms: view.and_then(|view| view.silent_ms),
        }
    }

    /// Whether the last change that this process has seen applied made this one a voter.
    fn readmissions_promoted(&self, id: u64) -> bool {
        self.leads && self.replica.promoted() == Some(id)
    }
}

/// Nothing has changed.
fn not_readmitted(why: &str) -> Failure {
    Failure::new(ErrorCode::MutationFenced, format!("the node was not readmitted: {why}"))
}

fn not_known() -> Failure {
    let text = "the office changed before this was decided: see mortarmq members list, then try again if need be";
    unknown(ErrorCode::MutationFenced, text)
}

/// Whoever asks does so several times a second.
const ASKING_MS: u64 = 3000;
/// More than anybody starts by mistake.
const LIVES_MAX: usize = 8;
/// How long the log may take to take a change.
const WANTED_MS: u64 = 3000;
/// What a learner may lack when it is promoted: some batches that are on their way.
const LAG_ENTRIES_MAX: u64 = 64;
const SILENT_MS: u64 = NO_MAJORITY_TICKS * crate::node::TICK_MS;
