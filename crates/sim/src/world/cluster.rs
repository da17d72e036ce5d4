//! Several nodes as one: who leads, what must be the same on all of them, and how long it takes until another leads.

use std::collections::BTreeMap;

use bytes::BytesMut;
use mortarmq_node::{ErrorCode, Failure, Node};
use mortarmq_types::{ClusterTime, CommitIndex, ConnectionId, Epoch, Position, WallTime};
use xxhash_rust::xxh3::xxh3_64;

use super::World;
use super::event::{Client, Event};

/// What is known of all nodes together.
#[derive(Default)]
pub(crate) struct Cluster {
    /// Who led each epoch.
    leaders: BTreeMap<Epoch, usize>,
    /// What the state was at a moment of the log, as the first node that came there had it.
    digests: BTreeMap<Moment, u64>,
    /// Where each node was last seen, in its present life.
    seen: BTreeMap<(usize, u64), Moment>,
    /// A leader that was lost while a majority could go on without it.
    loss: Option<Loss>,
    /// Whom each client asks next.
    targets: BTreeMap<Client, usize>,
}

/// Commit index, epoch, cluster time, the sum of gaps, and wall time: a batch without commands has no commit index of its own.
type Moment = (CommitIndex, Epoch, ClusterTime, u64, WallTime);

#[derive(Clone, Copy, Debug)]
struct Loss {
    since_us: u64,
    node: usize,
    epoch: Epoch,
    /// Since when another one serves: whoever asks it is answered.
    served_us: Option<u64>,
}

impl World {
    /// Whether there is more than one node.
    pub(crate) fn has_peers(&self) -> bool {
        self.nodes.len() > 1
    }

    /// The node that leads the latest epoch and serves.
    pub(crate) fn leader(&self) -> Option<usize> {
        let leads = |node: usize| {
            let process = self.nodes[node].process.as_ref()?;
            process.node.is_ready().then(|| (process.node.position().epoch, node))
        };
        (0..self.nodes.len()).filter_map(leads).max().map(|(_, node)| node)
    }

    /// The node that led the latest epoch of which any is known.
    pub(super) fn last_leader(&self) -> Option<usize> {
        self.cluster.leaders.values().next_back().copied()
    }

    /// The node whose word counts: the leader; of one node, that one, if it is up.
    pub(crate) fn main_node(&self) -> Option<&Node> {
        let node = if self.has_peers() { self.leader()? } else { 0 };
        self.nodes[node].process.as_ref().map(|process| &process.node)
    }

    /// Counts lives of a single node, and offices of several: what an answer of another rests on has come through.
    pub(crate) fn era(&self) -> u64 {
        if self.has_peers() { self.cluster.leaders.len() as u64 } else { self.nodes[0].life }
    }

    /// A rare state: called one thing after a restart of a single node, and another after a change of leader.
    pub(crate) fn reach_across(&mut self, restart: &'static str, failover: &'static str) {
        self.tally.reach(if self.has_peers() { failover } else { restart });
    }

    /// The highest position that anybody was told, and the highest commit index.
    pub(super) fn told(&self) -> (Position, CommitIndex) {
        let told = self.nodes.iter().map(|machine| machine.told).max().unwrap_or_default();
        (told, self.nodes.iter().map(|machine| machine.told_commit).max().unwrap_or_default())
    }

    /// A node won an office: nobody else ever has one of that epoch.
    pub(super) fn note_leader(&mut self, node: usize, epoch: Epoch) {
        if let Some(before) = self.cluster.leaders.insert(epoch, node)
            && before != node
        {
            self.fail(format!("P10: nodes {} and {} lead in epoch {epoch}", before + 1, node + 1));
        }
    }

    /// After a turn of one of several: it never goes back, and is what the others are at the same moment.
    pub(super) fn compare(&mut self, node: usize) {
        if !self.has_peers() {
            return;
        }
        self.note_votes(node);
        let key = (node, self.nodes[node].life);
        let Some(process) = &self.nodes[node].process else { return };
        let moment = moment(&process.node);
        let seen = self.cluster.seen.insert(key, moment).unwrap_or_default();
        // The wall clock may jump, and stands for no order.
        let in_order = |(commit, epoch, time, gaps_ms, _): Moment| (commit, epoch, time, gaps_ms);
        if in_order(moment) < in_order(seen) {
            return self.fail(format!("P10: node {} goes back from {seen:?} to {moment:?}", node + 1));
        }
        // An image is made of all that there is: some of the moments are enough, the same ones on all nodes.
        if moment != seen && moment.0.get().is_multiple_of(COMPARE_EVERY) {
            self.compare_now(node);
        }
    }

    fn compare_now(&mut self, node: usize) {
        let Some(process) = &self.nodes[node].process else { return };
        let (moment, digest) = (moment(&process.node), digest(&process.node));
        let first = *self.cluster.digests.entry(moment).or_insert(digest);
        if first != digest {
            self.fail(format!("P4: node {} has another state than the others at {moment:?}", node + 1));
        }
    }

    /// Whether all nodes are up and at one moment; then they are the same. If not, who is behind.
    pub(super) fn look_equal(&mut self) -> Option<String> {
        let main = self.main_node().map(moment);
        let Some(main) = main else { return Some("nobody leads".to_owned()) };
        for node in 0..self.nodes.len() {
            let Some(process) = &self.nodes[node].process else { return Some(format!("node {} is down", node + 1)) };
            if moment(&process.node) != main {
                return Some(format!("node {} is behind", node + 1));
            }
        }
        if self.has_peers() {
            (0..self.nodes.len()).for_each(|node| self.compare_now(node));
        }
        None
    }

    /// A node may be lost by what struck: if it led, and a majority can go on without it, the next leader is waited for.
    pub(super) fn note_losses(&mut self, leader: Option<usize>) {
        if !self.has_peers() {
            return;
        }
        self.forget_loss();
        let epoch = self.cluster.leaders.keys().next_back().copied().unwrap_or_default();
        // The next leader may be lost before it has confirmed anything: then it is that one that is waited for.
        let is_waited_for = self.cluster.loss.is_some_and(|loss| loss.epoch == epoch);
        let Some(node) = leader.filter(|leader| !is_waited_for && self.is_lost(*leader)) else { return };
        if self.can_go_on_without(node) {
            self.cluster.loss = Some(Loss { since_us: self.now_us, node, epoch, served_us: None });
            // Whoever publishes meets it.
            (0..self.producers.len()).for_each(|number| self.publish(number, 1, 0, Default::default(), false));
        }
    }

    /// A loss is none that counts any more when the others cannot go on either, or when the leader is back in its office.
    pub(super) fn forget_loss(&mut self) {
        let Some(loss) = self.cluster.loss else { return };
        let is_back = !self.is_lost(loss.node) && self.leader() == Some(loss.node);
        if is_back || !self.can_go_on_without(loss.node) {
            self.cluster.loss = None;
        }
    }

    /// Whether a leader cannot go on: it is down, stands still, or reaches nobody.
    fn is_lost(&self, leader: usize) -> bool {
        let machine = &self.nodes[leader];
        let is_away = machine.process.is_none() || machine.paused_until_us > self.now_us + LONG_US;
        let others = (0..self.nodes.len()).filter(|node| *node != leader);
        is_away || others.into_iter().all(|node| self.peers.is_cut(leader, node))
    }

    /// A node begins to be brought up by files: until it is, it confirms nothing, so nobody can say how long that may take.
    pub(super) fn note_fetch(&mut self) {
        self.cluster.loss = None;
    }

    /// Whether a majority without a node is up, undisturbed, connected, and not being brought up.
    fn can_go_on_without(&self, lost: usize) -> bool {
        let is_well = |node: &usize| {
            let machine = &self.nodes[*node];
            machine.process.as_ref().is_some_and(|process| !process.node.is_rejoining())
                && machine.counts
                && machine.paused_until_us <= self.now_us
                && machine.slow_sync_us.is_none()
                && !machine.is_full
                && machine.fetches_in.is_none()
        };
        let well: Vec<usize> = (0..self.nodes.len()).filter(|node| *node != lost).filter(is_well).collect();
        let is_joined = |a: usize| {
            let hears = |b: &usize| a == *b || !(self.peers.is_cut(a, *b) || self.peers.is_cut(*b, a));
            well.iter().all(hears)
        };
        well.iter().filter(|node| is_joined(**node)).count() > self.nodes.len() / 2
    }

    /// A node leads and has committed something of its office: it can confirm from now on.
    pub(super) fn note_serving(&mut self) {
        if let Some(loss) = &mut self.cluster.loss {
            loss.served_us.get_or_insert(self.now_us);
        }
    }

    /// A publish was confirmed: if a leader had been lost, another does its work now. Links that carry what they are given
    /// leave it two seconds until it can; whoever still waits for a node that stands still is confirmed later.
    pub(crate) fn note_confirmed(&mut self, position: Position) {
        if let Some(loss) = self.cluster.loss.take_if(|loss| position.epoch > loss.epoch) {
            let took_ms = (self.now_us - loss.since_us) / 1000;
            let is_lossy = self.settings.peer_lost_permille > LOST_SELDOM_PERMILLE;
            let all = if is_lossy { &mut self.tally.lossy_failovers_ms } else { &mut self.tally.failovers_ms };
            all.push(took_ms);
            let served_ms = (loss.served_us.unwrap_or(self.now_us) - loss.since_us) / 1000;
            if !is_lossy && served_ms > FAILOVER_LIMIT_MS {
                self.fail(format!("P12: {served_ms} ms from the loss of a leader until the next can confirm"));
            }
        }
    }

    /// Whom a client asks.
    pub(super) fn target(&self, client: Client) -> usize {
        let first = match client {
            Client::Producer(number) | Client::Consumer(number) => number,
        };
        *self.cluster.targets.get(&client).unwrap_or(&first) % self.nodes.len()
    }

    /// A client asks the next node from now on.
    pub(super) fn turn_to_next(&mut self, client: Client) {
        let next = (self.target(client) + 1) % self.nodes.len();
        self.cluster.targets.insert(client, next);
    }

    /// A client leaves a node that does not serve it, for the next one.
    pub(crate) fn go_elsewhere(&mut self, connection: Option<ConnectionId>) {
        let Some(connection) = connection else { return };
        let Some(link) = self.links.get(&connection).filter(|link| link.is_open) else { return };
        let client = link.client;
        self.turn_to_next(client);
        self.break_link(connection);
    }

    /// Whether a failure says that another node is to be asked.
    pub(crate) fn sends_elsewhere(&self, failure: &Failure) -> bool {
        let says_so = matches!(failure.code, ErrorCode::ReadOnlyDegraded | ErrorCode::InSyncReplicasNotEnough);
        self.has_peers() && says_so
    }

    /// Clients that wait for an answer and hear nothing for too long go elsewhere.
    pub(super) fn lose_patience(&mut self) {
        let mut silent = Vec::new();
        for (connection, link) in &mut self.links {
            let waits = match link.client {
                Client::Producer(number) => self.producers[number].waits(),
                Client::Consumer(number) => self.consumers[number].waits(),
            };
            let is_reading = link.is_open && link.stalled_until_us <= self.now_us;
            link.silent_looks = if waits && is_reading { link.silent_looks + 1 } else { 0 };
            if link.silent_looks > SILENT_LOOKS {
                silent.push(*connection);
            }
        }
        for connection in silent {
            self.tally.reach("a client heard nothing and went elsewhere");
            self.go_elsewhere(Some(connection));
        }
        self.at(self.now_us + PATIENCE_US, Event::Patience);
    }
}

fn moment(node: &Node) -> Moment {
    let state = node.shard().state();
    (state.commit_index, state.epoch, state.time, state.gaps_ms, state.wall)
}

/// What stands for a whole state.
fn digest(node: &Node) -> u64 {
    let mut bytes = BytesMut::new();
    node.shard().image().encode(&mut bytes);
    xxh3_64(&bytes)
}

/// Links that lose no more than that carry what they are given.
const LOST_SELDOM_PERMILLE: u64 = 10;
/// How long a failover may take.
const FAILOVER_LIMIT_MS: u64 = 2000;
/// How often clients look whether they were answered.
pub(super) const PATIENCE_US: u64 = 200_000;
/// After so many looks in vain they go.
const SILENT_LOOKS: u64 = 4;
/// A leader that stands still for less keeps its office.
const LONG_US: u64 = 2_000_000;
/// Commands applied between two looks at whether states are equal.
const COMPARE_EVERY: u64 = 64;
