//! `Deliver`: leases what is next on a path to a member, over its partitions in turn.

use super::alone::{self, Share};
use super::delayed;
use super::pull_again;
use super::record::{Happened, record};
use crate::command::{Deliver, Grant, STEPS_MAX};
use crate::effect::{DeliverEffect, Effect};
use crate::facts::FactView;
use crate::ledger::LedgerKind;
use crate::outcome::Outcome;
use crate::state::{Asks, Member, Pulled, State, topic_of};
use mortarmq_delivery::{Dropped, Handed, LeaseLimits, LeaseRequest, LeaseStop, Leased};
use mortarmq_types::{
    Attempt, DeliveryId, MemberId, Mutant, Partition, PathId, Position, Seq, TopicIncarnation, mutants,
};

pub(super) fn apply(state: &mut State, deliver: &Deliver, effects: &mut Vec<Effect>) -> Outcome {
    let nothing = Outcome::Delivered { count: 0, too_large: None };
    let Some(path) = state.paths.get(&deliver.path) else { return nothing };
    let Some(member) = path.members.get(&deliver.member) else { return nothing };
    match member.asks(&deliver.grant) {
        Asks::New => {}
        Asks::Again(granted_at) => return pull_again::apply(state, deliver, granted_at, effects),
        Asks::Stale => return nothing,
    }
    let mut room = Room::of(deliver, member);
    super::room::make(state, 1);
    match alone::share(state, deliver, effects) {
        Share::Others => {}
        Share::Alone => (room.alone, room.messages) = (true, room.messages.min(1)),
        Share::Nothing => return nothing,
    }
    let path = &state.paths[&deliver.path];
    let partitions = state.topics[&path.topic].partitions.len();
    let first = path.cursor;
    let (granted_at, mut count) = (state.position(), 0);
    for offset in 0..partitions {
        if room.is_spent() {
            break;
        }
        let number = (first + offset) % partitions;
        let Handed { leased, dropped, .. } = lease(state, deliver, number, &mut room);
        report_dropped(state, deliver.path, Partition::from_index(number), &dropped, effects);
        if leased.is_empty() {
            continue;
        }
        count += u32::try_from(leased.len()).expect("at most STEPS_MAX messages");
        let path = state.path_mut(deliver.path).expect("looked up above; leasing removes no path");
        path.cursor = (number + 1) % partitions;
        if room.alone {
            // Its lease tells from here on who gets nothing more.
            path.reserved = None;
        }
        hold(path.members.get_mut(&deliver.member).expect("looked up above"), deliver.grant, granted_at, &leased);
        report(state, deliver, Partition::from_index(number), leased, effects);
    }
    if room.steps < STEPS_MAX {
        // It leased messages, or passed some over: there may be more behind them, for this member or another.
        effects.push(Effect::PathMoved(deliver.path));
    }
    Outcome::Delivered { count, too_large: room.too_large.filter(|_| count == 0) }
}

/// One `Deliver` leases at most so many bytes, whatever the window: it is sent, and held in memory, as a whole. Every
/// message fits.
const DELIVER_MAX_BYTES: u64 = 16 << 20;

/// What one `Deliver` may still lease.
struct Room {
    messages: u32,
    bytes: u64,
    steps: u32,
    /// A message larger than the byte window is delivered alone, when the window is empty.
    empty_window: bool,
    /// Whether it is for one message that is delivered alone.
    alone: bool,
    /// The smallest message that was next in its partition and did not fit.
    too_large: Option<u32>,
}

impl Room {
    fn of(deliver: &Deliver, member: &Member) -> Self {
        let messages = deliver.max_messages.min(STEPS_MAX);
        let (messages, bytes, empty_window) = match deliver.grant {
            Grant::Push { window_messages, window_bytes } => (
                messages.min(window_messages.saturating_sub(member.held_messages)),
                window_bytes.saturating_sub(member.held_bytes),
                member.held_messages == 0,
            ),
            Grant::Pull { max_bytes: 0, .. } => (messages, u64::MAX, true),
            Grant::Pull { max_bytes, .. } => (messages, max_bytes, false),
        };
        let cached = if Mutant::ConfigInApply.is_on() { mutants::leaked_config() } else { u64::MAX };
        let bytes = bytes.min(DELIVER_MAX_BYTES).min(cached);
        Self { messages, bytes, steps: STEPS_MAX, empty_window, alone: false, too_large: None }
    }

    fn is_spent(&self) -> bool {
        self.messages == 0 || self.steps == 0 || (self.bytes == 0 && !self.empty_window)
    }

    fn limits(&self) -> LeaseLimits {
        LeaseLimits {
            messages: self.messages,
            bytes: self.bytes,
            steps: self.steps,
            first_may_exceed_bytes: self.empty_window,
        }
    }

    fn take(&mut self, leased: &[Leased]) {
        for lease in leased {
            self.messages -= 1;
            self.bytes = self.bytes.saturating_sub(u64::from(lease.size_bytes));
            self.empty_window = false;
        }
    }
}

fn lease(state: &mut State, deliver: &Deliver, number: usize, room: &mut Room) -> Handed {
    let now = state.now();
    let may_pass_over = state.has_room();
    let path = &state.paths[&deliver.path];
    let partition = &state.topics[&path.topic].partitions[number];
    let rules = path.settings.rules();
    let id = Partition::from_index(number);
    let stretch = deliver.stretch.as_ref().filter(|stretch| stretch.partition == id);
    let facts = FactView { stretch, window: &partition.facts, schedule: &partition.schedule };
    if !path.partitions[number].may_lease(partition.last_seq, &rules, &facts, now) {
        return Handed::default();
    }
    let request = LeaseRequest {
        member: deliver.member,
        grant: match deliver.grant {
            Grant::Push { .. } => mortarmq_delivery::Grant::Push,
            Grant::Pull { .. } => mortarmq_delivery::Grant::Pull,
        },
        limits: room.limits(),
        may_pass_over,
        last_seq: partition.last_seq,
        now,
        granted_at: state.position(),
        alone: room.alone,
    };
    let topic = path.topic;
    let mut handed = Handed::default();
    let path = state.paths.get_mut(&deliver.path).expect("looked up by the caller");
    let path_partition = path.partitions.make(number);
    let before = (path_partition.position(), path_partition.due_position());
    let stop = path_partition.lease(&request, &rules, &facts, &mut state.last_delivery, &mut handed);
    if let LeaseStop::TooLarge { size_bytes } = stop {
        room.too_large = Some(room.too_large.map_or(size_bytes, |other| other.min(size_bytes)));
    }
    let after = (path_partition.position(), path_partition.due_position());
    room.steps -= handed.steps;
    room.take(&handed.leased);
    if after.0 != before.0 {
        forget_facts(state, topic, number);
    }
    if after.1 != before.1 {
        delayed::forget_passed(state, topic, number);
    }
    state.retime(deliver.path, id);
    handed
}

/// Forgets the facts that every path has passed. Only a position that moved can have been the lowest.
pub(super) fn forget_facts(state: &mut State, incarnation: TopicIncarnation, number: usize) {
    let Some(lowest) = lowest_position(state, incarnation, number) else { return };
    if lowest > state.topics[&incarnation].partitions[number].facts.base() {
        let topic = topic_of(&mut state.topics, incarnation).expect("invariant 1: a path's topic exists");
        let facts = &mut topic.partition_mut(number).expect("paths have the partitions of their topic").facts;
        let before = facts.len();
        facts.forget_below(lowest);
        let after = facts.len();
        topic.facts = topic.facts - before as u64 + after as u64;
        state.entries.count_facts((incarnation, Partition::from_index(number)), before, after);
    }
}

/// The lowest position of any path of the topic: below it nobody asks for facts again.
fn lowest_position(state: &State, incarnation: TopicIncarnation, number: usize) -> Option<Seq> {
    let topic = state.topics.get(&incarnation)?;
    topic.paths.values().map(|id| state.paths[id].partitions[number].position()).min()
}

fn hold(member: &mut Member, grant: Grant, granted_at: Position, leased: &[Leased]) {
    match grant {
        Grant::Push { .. } => {
            member.held_messages += u32::try_from(leased.len()).expect("at most STEPS_MAX messages");
            member.held_bytes += leased.iter().map(|lease| u64::from(lease.size_bytes)).sum::<u64>();
        }
        Grant::Pull { node_incarnation, pull_id, .. } => {
            member.pulled = Some(Pulled { node_incarnation, pull_id, granted_at });
        }
    }
}

fn report_dropped(state: &State, path: PathId, partition: Partition, dropped: &[Dropped], effects: &mut Vec<Effect>) {
    let happened = dropped.iter().map(|one| Happened {
        kind: LedgerKind::Dropped(one.reason),
        seq: one.seq,
        delivery_id: DeliveryId::ZERO,
        attempt: Attempt::ZERO,
        member: MemberId::ZERO,
        previous: one.previous,
        detail: "",
    });
    record(state, path, partition, happened, effects);
}

fn report(state: &State, deliver: &Deliver, partition: Partition, leased: Vec<Leased>, effects: &mut Vec<Effect>) {
    let path = &state.paths[&deliver.path];
    let happened = leased.iter().map(|lease| Happened {
        kind: LedgerKind::Leased(lease.cause),
        seq: lease.seq,
        delivery_id: lease.delivery_id,
        attempt: lease.attempt,
        member: deliver.member,
        previous: lease.previous,
        detail: "",
    });
    record(state, deliver.path, partition, happened, effects);
    effects.push(Effect::Deliver(DeliverEffect {
        topic: path.topic,
        path: deliver.path,
        member: deliver.member,
        grant: deliver.grant,
        partition,
        commit_index: state.commit_index,
        granted_at: state.position(),
        leases: leased,
    }));
}
