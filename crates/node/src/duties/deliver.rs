//! `Deliver`: messages for members with credit and for parked pulls. It joins the batch of the publishes that feed it
//! and of the settles that free its credit, so that a message costs one fsync from producer to consumer.

use mortarmq_delivery::PathPartition;
use mortarmq_shard::command::{Deliver, STEPS_MAX};
use mortarmq_shard::{Command, DeliverEffect, Grant, Outcome, Path, Stretch};
use mortarmq_types::{MemberId, Mutant, Partition, PathId};
use mortarmq_wire::ErrorCode;

use crate::config::Now;
use crate::node::Node;
use crate::open_batch::WaiterKind;
use crate::output::ReadJob;
use crate::reply::Failure;
use crate::sends::Destination;
use crate::stretches::READ_ENTRIES;

/// Most `Deliver` commands of one batch; the paths that are left have their turn in the next.
const DELIVERS_MAX: usize = 256;
/// Facts that stretches carry beyond the messages they are to lease: some are passed over.
const STRETCH_MARGIN: usize = 64;
/// Facts of every other partition that lags, so that none waits for one in which nothing can be leased.
const STRETCH_LEAST: usize = 16;

/// One member, or one pull, that can be given messages.
struct Receiver {
    member: MemberId,
    grant: Grant,
    max_messages: u32,
    /// About how many it can be given once the open batch is applied.
    room: u64,
    waiter: WaiterKind,
}

impl Node {
    /// Adds a `Deliver` for every receiver of a path where something may be deliverable.
    pub(crate) fn add_delivers(&mut self) {
        for topic in &self.open.published {
            if let Some(topic) = self.shard.state().topics.get(topic) {
                self.attention.extend(topic.paths.values());
            }
        }
        self.attention.extend(self.open.settled.keys());
        if self.unwritten_bytes > self.unwritten_bytes_of_deliveries() {
            // The segment writer is far behind: what is delivered now would have to be kept in memory too.
            return;
        }
        let mut left = DELIVERS_MAX;
        for id in std::mem::take(&mut self.attention) {
            if left == 0 || self.open.is_full() {
                self.attention.insert(id);
                continue;
            }
            left = left.saturating_sub(self.add_path(id, left));
        }
    }

    /// Adds the `Deliver`s of one path, at most `most`; says how many. What is left over is looked at again when they are
    /// applied, as all of them that do something tell.
    fn add_path(&mut self, id: PathId, most: usize) -> usize {
        self.pulls.looked_at(id);
        let Some(path) = self.shard.state().paths.get(&id) else { return 0 };
        let published = if self.open.published.contains(&path.topic) { self.open.publishes } else { 0 };
        let waiting = self.may_lease(id, path) + published;
        if waiting == 0 {
            if !self.proposed.is_empty() && !Mutant::LookedEarlyForgotten.is_on() {
                self.looked_early.insert(id);
            }
            self.forget_caught_up(id);
            return 0;
        }
        let mut receivers = self.receivers(id);
        if receivers.is_empty() {
            return 0;
        }
        let turn = self.turns.entry(id).or_default();
        *turn = turn.wrapping_add(1);
        let first = usize::try_from(*turn % receivers.len() as u64).expect("less than the number of receivers");
        receivers.rotate_left(first);
        receivers.truncate(most);
        let share = waiting.div_ceil(receivers.len() as u64).clamp(1, u64::from(STEPS_MAX));
        let mut planned = 0;
        let mut added = 0;
        for receiver in receivers {
            if added >= most || self.open.is_full() {
                break;
            }
            let max_messages = receiver.max_messages.min(u32::try_from(share).expect("clamped above"));
            planned += usize::try_from(receiver.room.min(u64::from(max_messages))).expect("at most STEPS_MAX");
            let stretches = self.stretches_for(id, planned + STRETCH_MARGIN, most - added);
            added += self.add_deliver(id, &receiver, max_messages, stretches);
        }
        added
    }

    fn add_deliver(&mut self, path: PathId, receiver: &Receiver, max_messages: u32, stretches: Vec<Stretch>) -> usize {
        let mut grant = receiver.grant;
        if let WaiterKind::Pull { pull_id } = receiver.waiter
            && let Grant::Pull { pull_id: carried, .. } = &mut grant
            && let Some(number) = self.pulls.propose(pull_id)
        {
            *carried = number;
        }
        let command = |stretch| {
            let member = receiver.member;
            Command::Deliver(Deliver { path, member, grant, max_messages, stretch })
        };
        // A pull is one grant, so it gets one command; a window is looked at anew by each.
        let is_pull = matches!(receiver.grant, Grant::Pull { .. });
        let mut stretches = stretches.into_iter();
        let first = stretches.next();
        self.open.add(&command(first), receiver.waiter.clone());
        let mut added = 1;
        for stretch in stretches.filter(|_| !is_pull) {
            if self.open.is_full() {
                self.attention.insert(path);
                break;
            }
            self.open.add(&command(Some(stretch)), WaiterKind::Nobody);
            added += 1;
        }
        added
    }

    /// Whether somebody waits for messages of the path that are there, whatever is published next; for a parked pull that is
    /// not looked at.
    pub(crate) fn is_awaited(&self, id: PathId) -> bool {
        let Some(path) = self.shard.state().paths.get(&id) else { return false };
        if path.members.len() > MEMBERS_LOOKED_AT {
            return true;
        }
        !self.pulls.of_path(id).is_empty() || (self.may_lease(id, path) > 0 && !self.receivers(id).is_empty())
    }

    /// About how many messages the path could lease once the open batch is applied, but for those that it publishes.
    fn may_lease(&self, id: PathId, path: &Path) -> u64 {
        let state = self.shard.state();
        let topic = &state.topics[&path.topic];
        let rules = path.settings.rules();
        let flight = path.settings.get(mortarmq_shard::Setting::MaxInFlight);
        let mut waiting = 0;
        for (partition, found) in path.partitions_of(topic) {
            if flight != 0 && partition.in_flight() >= flight && !self.open.settled.contains_key(&id) {
                continue;
            }
            if partition.is_moving() {
                // It leases nothing until it stands where it is to be; then the path is looked at again.
                continue;
            }
            waiting += partition.ready_messages();
            let may_offer = partition.may_offer(&rules);
            if partition.has_room(&rules) {
                let due = found.schedule.places_after(partition.due_position()).take_while(|at| at.due <= state.time);
                waiting += due.take(STEPS_MAX as usize).count() as u64;
            }
            if may_offer {
                waiting += found.last_seq.next().above(partition.position());
            }
            if self.open.settled.contains_key(&id) {
                // A settle may free what waits behind its key, or room below the limit.
                let idle = partition.passed_over().saturating_sub(still(partition));
                waiting += idle + u64::from(!may_offer);
            }
        }
        waiting
    }

    /// Parked pulls first, then members whose window has room, now or once the open batch is applied.
    fn receivers(&self, id: PathId) -> Vec<Receiver> {
        let path = &self.shard.state().paths[&id];
        let mut receivers = Vec::new();
        for pull_id in self.pulls.of_path(id) {
            let Some(pull) = self.pulls.get(pull_id) else { continue };
            if self.connections.is_congested(pull.connection) {
                continue;
            }
            let max_messages = (pull.max_messages - pull.got_messages).min(STEPS_MAX);
            receivers.push(Receiver {
                member: pull.member,
                grant: Grant::Pull {
                    node_incarnation: self.config.node_incarnation,
                    pull_id,
                    max_bytes: pull.max_bytes.saturating_sub(pull.got_bytes).max(u64::from(pull.max_bytes != 0)),
                },
                max_messages,
                room: u64::from(max_messages),
                waiter: WaiterKind::Pull { pull_id },
            });
        }
        let freed = self.open.settled.get(&id).copied().unwrap_or(0);
        for (member, session) in self.sessions.pushable(id) {
            let Some(held) = path.members.get(&member) else { continue };
            if session.connection.is_some_and(|(connection, _)| self.connections.is_congested(connection)) {
                continue;
            }
            let has_room = held.held_messages < session.window_messages && held.held_bytes < session.window_bytes;
            if has_room || freed > 0 {
                let (window_messages, window_bytes) = (session.window_messages, session.window_bytes);
                receivers.push(Receiver {
                    member,
                    grant: Grant::Push { window_messages, window_bytes },
                    max_messages: window_messages.min(STEPS_MAX),
                    room: u64::from(window_messages.saturating_sub(held.held_messages)) + freed,
                    waiter: WaiterKind::Nobody,
                });
            }
        }
        receivers
    }

    /// Facts for the partitions in which the path lags further than the state remembers; reads on where they run short. All of
    /// them together hold `most` messages where there are so many, and a few more: what a command carries is written, synced
    /// and read again, whether it is leased or not. At most `stretches_max` of them, as each needs a command.
    fn stretches_for(&mut self, id: PathId, mut most: usize, stretches_max: usize) -> Vec<Stretch> {
        let path = &self.shard.state().paths[&id];
        let (topic, now) = (path.topic, self.shard.state().time);
        let mut lagging: Vec<_> = path
            .partitions_of(&self.shard.state().topics[&topic])
            .enumerate()
            .filter(|(_, (partition, found))| partition.position() < found.facts.base())
            .map(|(number, (partition, found))| (number, partition.position(), found.facts.base()))
            .collect();
        if !lagging.is_empty() {
            // Each has its turn to be the first, which carries the most.
            let turn = self.turns.get(&id).copied().unwrap_or(0);
            let first = usize::try_from(turn % lagging.len() as u64).expect("less than the number of partitions");
            lagging.rotate_left(first);
        }
        let mut stretches = Vec::new();
        for (number, position, base) in lagging {
            let partition = Partition::from_index(number);
            if stretches.len() >= stretches_max {
                break;
            }
            let place = (id, partition);
            let facts_max = most.clamp(STRETCH_LEAST, STEPS_MAX as usize);
            // What is in memory needs no read, and may not be written yet.
            if let Some(facts) = self.recent.facts(topic, partition, position, facts_max, now) {
                most = most.saturating_sub(facts.len());
                stretches.push(Stretch { partition, first: position, facts });
                continue;
            }
            if let Some(from) = self.stretches.wants(place, position, base) {
                // What the state forgot may not be written yet: a read before that would find nothing, again and again.
                // What is not in memory is written, or a copy under way; the former is found although the segment writer
                // waits for room.
                let is_written = self.recent.first(topic, partition).is_none_or(|first| from < first);
                let copied = self.recent.needed_ticket(topic, partition);
                let needed = if is_written { copied } else { self.last_ticket };
                let ticket = self.read(needed, ReadJob::Index { topic, partition, from, max: READ_ENTRIES });
                self.stretches.reading(ticket, place, from);
            }
            if let Some(stretch) = self.stretches.stretch(place, position, facts_max, now) {
                most = most.saturating_sub(stretch.facts.len());
                stretches.push(stretch);
            }
        }
        stretches
    }

    fn forget_caught_up(&mut self, id: PathId) {
        let Some(path) = self.shard.state().paths.get(&id) else { return };
        for number in 0..self.shard.state().topics[&path.topic].partitions.len() {
            let place = (id, Partition::from_index(number));
            self.stretches.forget(place);
            self.ahead.forget(place);
        }
    }

    /// Counts what the pull got that this `Deliver` was for; says where it goes.
    pub(crate) fn note_pulled(&mut self, number: u64, deliver: &DeliverEffect) -> Option<Destination> {
        let pull = self.pulls.of_number(number)?;
        pull.got_messages += u32::try_from(deliver.leases.len()).expect("at most STEPS_MAX messages");
        pull.got_bytes += deliver.leases.iter().map(|lease| u64::from(lease.size_bytes)).sum::<u64>();
        Some((pull.connection, pull.subscription))
    }

    /// A `Deliver` of a pull is applied: it is answered if it has enough or has waited long enough, else it waits on.
    pub(crate) fn pull_delivered(&mut self, now: Now, pull_id: u64, outcome: &Outcome) {
        self.pulls.applied(pull_id);
        let Some(pull) = self.pulls.get(pull_id) else { return };
        if let Outcome::Delivered { too_large: Some(size_bytes), .. } = outcome
            && pull.got_messages == 0
        {
            let (connection, subscription) = (pull.connection, pull.subscription);
            let text = format!(
                "the next message takes {size_bytes} bytes, max_bytes is {}; pull with at least so many, or with 0 for no limit",
                pull.max_bytes
            );
            self.pulls.remove(pull_id);
            return self.end_pull(connection, subscription, Err(Failure::new(ErrorCode::MessageExceedsCredit, text)));
        }
        // What comes next does not fit behind what it got: waiting on would bring nothing.
        let is_full = matches!(outcome, Outcome::Delivered { too_large: Some(_), .. });
        // If it waits on, its path is looked at again when it moves. It may just have done so, by this very command.
        if is_full || pull.is_filled() || pull.deadline <= now.monotonic {
            self.finish_pull(pull_id);
        }
    }

    pub(crate) fn finish_pull(&mut self, pull_id: u64) {
        let Some(pull) = self.pulls.remove(pull_id) else { return };
        let count = u16::try_from(pull.got_messages).expect("max_messages has 16 bits");
        self.end_pull(pull.connection, pull.subscription, Ok(count));
    }
}

/// Messages that no settle of others sets free.
fn still(partition: &PathPartition) -> u64 {
    partition.in_flight() + partition.scheduled() + partition.unreadable()
}

/// Of a path with more members, whether one of them waits is not looked at while a batch gathers: it is taken for so.
const MEMBERS_LOOKED_AT: usize = 64;
