//! What the world knows must be so, and neither a history nor a module's own invariants tell: what it planned itself, and what
//! lies between two parts of the state.

use std::collections::BTreeSet;

use mortarmq_node::{Delivery, Output};
use mortarmq_shard::{Path, State};
use mortarmq_types::{ConnectionId, DeliveryId, MemberId, Partition, Seq};

use super::World;
use super::event::Event;

impl World {
    /// By how much a delivery comes before its message's delay is over; none if it does not. The node's clock is never fast,
    /// and counts whole milliseconds.
    pub(crate) fn is_early(&self, message: &str) -> Option<u64> {
        let due_us = self.not_before.get(&message.parse().ok()?)?;
        due_us.checked_sub(self.now_us + CLOCK_STEP_US).filter(|early_us| *early_us > 0)
    }

    /// Whether nothing is to be published yet: what retention takes before a group is made, that group never owed, and no
    /// history tells.
    pub(crate) fn waits_for_groups(&self, topic: usize) -> bool {
        self.settings.retention_bytes > 0 && self.topics.get(topic).groups.iter().any(|group| !group.is_made)
    }

    /// A member has resumed and holds these deliveries: all else that is leased to it is sent to it, or given back.
    pub(crate) fn expect_sent(&mut self, connection: ConnectionId, member: MemberId, held: &BTreeSet<u64>) {
        let Some(link) = self.links.get(&connection) else { return };
        let (node, life) = (link.node, link.life);
        let owed: Vec<DeliveryId> =
            self.leased_to(node, member).into_iter().filter(|delivery| !held.contains(&delivery.get())).collect();
        if !owed.is_empty() {
            self.tally.reach("a resumed member was owed messages");
            self.at(self.now_us + SENT_WITHIN_US, Event::LookResumed { connection, life, member, owed });
        }
    }

    /// Looks whether it was. What waits for a read, or for a reader that is slow, is on its way.
    pub(crate) fn look_resumed(&mut self, connection: ConnectionId, life: u64, member: MemberId, owed: &[DeliveryId]) {
        let Some(link) = self.links.get(&connection).filter(|link| link.is_open) else { return };
        let machine = &self.nodes[link.node];
        let Some(process) = machine.process.as_ref().filter(|_| machine.life == life) else { return };
        if machine.troubled_until_us > self.now_us || process.node.has_unsent(connection) {
            return;
        }
        let leased = self.leased_to(link.node, member);
        let is_lost = |delivery: &&DeliveryId| leased.contains(*delivery) && !link.handed.contains(*delivery);
        if let Some(lost) = owed.iter().find(is_lost) {
            self.fail(format!("P7: {member} has resumed and holds delivery {lost}, which is not sent to it"));
        }
    }

    /// For how long a single node was up until now: no lease runs while it is down. Of several, the world does not know which
    /// time is none for leases.
    pub(crate) fn served_us(&self) -> Option<u64> {
        let [machine] = self.nodes.as_slice() else { return None };
        let down_us = machine.down_since_us.map_or(0, |since_us| self.now_us - since_us);
        Some(self.now_us - machine.down_us - down_us)
    }

    /// What is sent is leased under that delivery (P5, P8). In a turn in which something was applied, it may have ended meanwhile.
    pub(super) fn expect_live(&mut self, node: usize, output: &Output) {
        let (Output::Deliveries { messages, .. }, Some(process)) = (output, &self.nodes[node].process) else { return };
        if process.node.position().commit_index != process.turn_began_at {
            return;
        }
        let paths = &process.node.shard().state().paths;
        let is_live = |path: &Path, found: &Delivery| {
            let entry =
                path.partitions.get(found.partition.index()).and_then(|partition| partition.lease_of(found.seq));
            entry.and_then(|entry| entry.lease()).is_some_and(|lease| lease.delivery_id == found.delivery_id)
        };
        let is_ended = |found: &&Delivery| {
            !paths.values().filter(|path| path.topic == found.topic).any(|path| is_live(path, found))
        };
        if let Some(ended) = messages.iter().find(is_ended) {
            let text = format!("P5: delivery {} is sent, and its lease has ended", ended.delivery_id);
            self.fail(text);
        }
    }

    /// The live leases of a member.
    fn leased_to(&self, node: usize, member: MemberId) -> BTreeSet<DeliveryId> {
        let Some(process) = &self.nodes[node].process else { return BTreeSet::new() };
        let of_member = process.node.shard().state().paths.values().filter(|path| path.members.contains_key(&member));
        let made = of_member.flat_map(|path| path.partitions.made());
        made.flat_map(|(_, partition)| partition.held_by(member))
            .filter_map(|(_, entry)| entry.lease().map(|lease| lease.delivery_id))
            .collect()
    }
}

/// What died on a topic's paths is in its dead-letter topic, partition by partition. No group of a world is deleted by itself,
/// so no counter goes.
pub(crate) fn check_letters(state: &State) {
    for (id, topic) in &state.topics {
        let letters = state.dead_letters_of(*id).and_then(|letters| state.topics.get(&letters));
        for number in 0..topic.partitions.len() {
            let stored = letters.map_or(Seq::ZERO, |letters| letters.partitions[number].last_seq);
            let of_path = |path| state.paths[path].partitions.get(number);
            let last_seq = topic.partitions[number].last_seq;
            let died: u64 =
                topic.paths.values().filter_map(of_path).map(|partition| partition.books(last_seq).dlq).sum();
            let place = Partition::from_index(number);
            assert_eq!(
                died,
                stored.get(),
                "P4: {died} died in partition {place} of {}, and {stored} are there",
                topic.name
            );
        }
    }
}

/// What a start adds is rounded once more.
const CLOCK_STEP_US: u64 = 3_000;
/// Longer than a read and whatever is before it take, without a fault.
const SENT_WITHIN_US: u64 = 200_000;
