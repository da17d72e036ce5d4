//! The state of one path in one partition.
//!
//! # Invariants
//! 1. All entries lie between the start and the end of the replay, which is at least the position and not above what was
//!    published (P10).
//! 2. The leased entries are exactly those with a deadline, and those with a holder (P5).
//! 3. The scheduled entries are exactly those with a due time.
//! 4. Under key order the keyed entries are exactly those in a key's queue; otherwise no queue has any. While the order
//!    changes, the new order holds below one message, and the former from there on.
//! 5. The ready messages are exactly the waiting ones that no earlier message of their key holds back, nor a lease of
//!    their key that was granted in key order (P8).
//! 6. Before a lease that was granted in key order, all that is unsettled in its key is leased to the same member, by
//!    earlier deliveries of key order, or was brought back or fell due since and waits for that lease (P8).
//! 7. The books balance (P9).
//! 8. A message is on its first delivery, or on its first since a replay, exactly if there is none before; its live
//!    delivery is younger than the one before, and no two live deliveries have one number (P7).
//! 9. What is remembered of settles is consistent in itself, and names no live delivery (P6).
//! 10. The held entries are exactly those among the held; each was delivered before (failure rule 3).
//! 11. What is marked as settled ahead lies at or above the position, was published, and has no entry; with the entries
//!     there it is what the position will skip.
//! 12. The leased keys are exactly the keyed messages whose lease was granted in key order.
//! 13. The delayed messages that were skipped are as many as stand in the partition's schedule behind the due position, from
//!     the due start to below the position, and have no entry (P4, P9). [`PathPartition::check_delayed`] asserts it: the
//!     schedule is not part of this state. The due start lies between the start and the position.
//! 14. What has a source has an entry: a redriven message until it is settled.
//! 15. Retention's bound does not lie above the due start, and below it only leased and redriven messages are unsettled.

use std::collections::{BTreeMap, BTreeSet};

use imbl::{OrdMap, OrdSet};
use mortarmq_types::{
    Attempt, Cause, ClusterTime, DeliveryId, DropReason, KeyHash, LeaseTime, MemberId, Position, Seq,
};

use crate::{
    books::end_of,
    entry::{Entry, State},
    key_order::Ahead,
    lease::{DuePosition, Facts},
    moves::Moving,
    rules::{Now, Order, PathRules},
    runs::Runs,
};

/// One path in one partition: which messages are owed, who holds which, and what became of the others.
///
/// A driver calls [`Self::end_due`] at every stamp, then [`Self::lease`], [`Self::settle`] and [`Self::end_member`] as the
/// commands come. The size grows with the unsettled messages below the position and the lately settled ones, never with
/// the backlog.
///
/// Entries and runs are persistent maps: [`Self::image`] shares them, and what changes while the image lives is copied node
/// by node, never as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPartition {
    /// The first sequence the path owes.
    pub(crate) start: Seq,
    /// All below was offered, dropped, or skipped because it is delayed. Only an operator moves it back.
    pub(crate) position: Seq,
    /// The highest position ever; it never goes back (P10). From the position up to here, what has no entry and is not
    /// marked as settled is replayed.
    pub(crate) replay_end: Seq,
    /// Messages above the position that are settled: since it moved back, or one by one before they were ever offered. They
    /// are skipped.
    pub(crate) settled_ahead: OrdSet<Seq>,
    /// How many messages the position will skip: those marks, and the entries above it.
    pub(crate) ahead: u64,
    /// The second position: what the partition's schedule holds up to here has fallen due for this path. It never goes
    /// back.
    pub(crate) due_position: DuePosition,
    /// What the schedule holds below was never owed, or is settled: an operator had it dropped.
    pub(crate) due_start: Seq,
    /// Delayed messages below the position that have not fallen due for this path.
    pub(crate) delayed: u64,
    /// Retention has dropped what was unsettled below, but for what is leased. It never goes back.
    pub(crate) kept_from: Seq,
    /// What an operator asked for and is not done.
    pub(crate) moving: Option<Moving>,
    /// Every message that was offered, or fell due behind the position, and is not settled.
    pub(crate) entries: OrdMap<Seq, Entry>,
    /// The order that the indexes below are made for.
    pub(crate) order: Order,
    /// While the order changes: what lies below stands as the new order asks, the rest as the old one did.
    pub(crate) reordering: Option<Seq>,
    /// The queue of each key: its unsettled messages that were offered.
    pub(crate) keyed: BTreeSet<(KeyHash, Seq)>,
    /// Those of them whose lease was granted in key order.
    pub(crate) leased_keys: BTreeSet<(KeyHash, Seq)>,
    /// What can be leased now: retries, by sequence, then what was delayed, by when it fell due.
    pub(crate) ready: BTreeSet<(ClusterTime, Seq)>,
    /// What waits for a time.
    pub(crate) schedule: BTreeSet<(ClusterTime, Seq)>,
    /// When each lease ends.
    pub(crate) deadlines: BTreeSet<(LeaseTime, Seq)>,
    /// What each member holds.
    pub(crate) holders: BTreeSet<(MemberId, Seq)>,
    /// What cannot be read.
    pub(crate) held: BTreeSet<Seq>,
    /// Where the bytes of redriven messages lie: their dead letters, by sequence in the partition of the same number of the
    /// dead-letter topic.
    pub(crate) sources: OrdMap<Seq, Seq>,
    /// Dead letters that were sources and are not any more, until the caller takes them.
    pub(crate) freed: Vec<Seq>,
    /// Settles that may be repeated.
    pub(crate) runs: Runs,
    /// Messages that were acked.
    pub(crate) delivered: u64,
    /// Messages that left by a stated rule, by the number of its reason.
    pub(crate) dropped_by: [u64; DropReason::ALL.len()],
    /// Messages that were moved to the dead-letter topic.
    pub(crate) dlq: u64,
    /// Messages that the path was obliged to deliver once more.
    pub(crate) again: u64,
    /// Deliveries after a message's first, by the number of their cause.
    pub(crate) retries_by: [u64; Cause::ALL.len()],
}

impl PathPartition {
    /// A path that owes every message from `start` on.
    #[must_use]
    pub fn new(start: Seq) -> Self {
        Self::kept(start, Seq::FIRST)
    }

    /// As [`Self::new`], in a partition that keeps nothing below `kept_from`.
    #[must_use]
    pub fn kept(start: Seq, kept_from: Seq) -> Self {
        // Sequence 0 is nobody's: a path that starts "at 0" starts at the first message.
        let kept_from = kept_from.max(Seq::FIRST);
        let start = start.max(kept_from);
        Self {
            start,
            position: start,
            replay_end: start,
            settled_ahead: OrdSet::new(),
            ahead: 0,
            due_position: DuePosition::default(),
            due_start: start,
            delayed: 0,
            kept_from,
            moving: None,
            entries: OrdMap::new(),
            order: Order::Key,
            reordering: None,
            keyed: BTreeSet::new(),
            leased_keys: BTreeSet::new(),
            ready: BTreeSet::new(),
            schedule: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            holders: BTreeSet::new(),
            held: BTreeSet::new(),
            sources: OrdMap::new(),
            freed: Vec::new(),
            runs: Runs::default(),
            delivered: 0,
            dropped_by: [0; DropReason::ALL.len()],
            dlq: 0,
            again: 0,
            retries_by: [0; Cause::ALL.len()],
        }
    }

    /// The first sequence that the path owes.
    #[must_use]
    pub const fn start(&self) -> Seq {
        self.start
    }

    /// The sequence that is looked at next: all below was offered.
    #[must_use]
    pub const fn position(&self) -> Seq {
        self.position
    }

    /// The lowest sequence that was never offered: the position, unless an operator moved that back.
    #[must_use]
    pub const fn replay_end(&self) -> Seq {
        self.replay_end
    }

    /// Up to where the partition's schedule has fallen due for this path.
    #[must_use]
    pub const fn due_position(&self) -> DuePosition {
        self.due_position
    }

    /// What the partition's schedule holds below was never owed to this path, or is settled.
    #[must_use]
    pub const fn due_start(&self) -> Seq {
        self.due_start
    }

    /// Whether a message that stands in the partition's schedule is still ahead of this path: owed, and not due for it yet.
    #[must_use]
    pub fn is_delayed(&self, due: ClusterTime, seq: Seq) -> bool {
        seq >= self.due_start && DuePosition { due, seq } > self.due_position
    }

    /// Whether the path still has to settle this message, whether it was offered or not. `due` is when it falls due, if it
    /// stands in the partition's schedule.
    #[must_use]
    pub fn owes(&self, seq: Seq, due: Option<ClusterTime>) -> bool {
        self.entries.contains_key(&seq)
            || (seq >= self.position && !self.settled_ahead.contains(&seq))
            || due.is_some_and(|due| self.is_delayed(due, seq))
    }

    /// Live leases.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.deadlines.len() as u64
    }

    /// Messages whose backoff, or the delay of a nack, runs. Messages that were published with a delay are not among them.
    #[must_use]
    pub fn scheduled(&self) -> u64 {
        self.schedule.len() as u64
    }

    /// Messages that are held because they cannot be read.
    #[must_use]
    pub fn unreadable(&self) -> u64 {
        self.held.len() as u64
    }

    /// Those messages, lowest first, each with the delivery that found it unreadable.
    pub fn held(&self) -> impl Iterator<Item = (Seq, DeliveryId)> {
        self.held.iter().map(|seq| (*seq, self.entry(*seq).previous))
    }

    /// Unsettled messages that were offered.
    #[must_use]
    pub fn passed_over(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Whether a message that was never offered may be offered, as far as the limits of the group say.
    #[must_use]
    pub fn may_offer(&self, rules: &PathRules) -> bool {
        self.passed_over() < u64::from(rules.max_passed_over) && !self.is_far_ahead(rules)
    }

    /// Whether as many messages are settled past the oldest unsettled one as the group allows.
    ///
    /// What is delayed, and not due, holds nothing back and is not looked at one by one: all of it is taken for unsettled and
    /// ahead, so that there may be a few settled ones more.
    pub(crate) fn is_far_ahead(&self, rules: &PathRules) -> bool {
        let limit = u64::from(rules.max_acked_ahead);
        let Some((oldest, _)) = self.entries.get_min().filter(|(seq, _)| limit != 0 && *seq < self.position) else {
            return false;
        };
        let unsettled = self.entries.len() as u64 - (self.ahead - self.settled_ahead.len() as u64);
        self.position.above(*oldest).saturating_sub(unsettled + self.delayed) >= limit
    }

    /// Messages that were offered and could be leased right now.
    #[must_use]
    pub fn ready_messages(&self) -> u64 {
        self.ready.len() as u64
    }

    /// Runs of settles that are remembered: what this path has of the shard's entries, next to [`Self::passed_over`].
    #[must_use]
    pub fn settled_runs(&self) -> u64 {
        self.runs.len() as u64
    }

    /// When the oldest run of settles that is remembered began.
    #[must_use]
    pub fn oldest_run(&self) -> Option<ClusterTime> {
        self.runs.oldest()
    }

    /// Forgets at most so many runs of settles whose time is over.
    pub fn forget_settles(&mut self, now: ClusterTime, at_most: usize) {
        self.runs.forget(now, at_most);
    }

    /// When the next lease ends or the next retry is due, given the sum of all gaps; at once while a move or a change of order goes on.
    ///
    /// It says nothing of old settles, which may wait to be forgotten until something else happens.
    #[must_use]
    pub fn next_due(&self, gaps_ms: u64) -> Option<ClusterTime> {
        if self.is_moving() {
            return Some(ClusterTime::ZERO);
        }
        let lease = self.deadlines.first().map(|(deadline, _)| ClusterTime::new(deadline.get()).after_ms(gaps_ms));
        let retry = self.schedule.first().map(|(due, _)| *due);
        match (lease, retry) {
            (Some(lease), Some(retry)) => Some(lease.min(retry)),
            (lease, retry) => lease.or(retry),
        }
    }

    /// Where a message stands; `None` if it is settled, or was never offered, or is delayed, or does not exist.
    #[must_use]
    pub fn lease_of(&self, seq: Seq) -> Option<&Entry> {
        self.entries.get(&seq)
    }

    /// Every message that was offered and is not settled, lowest first.
    pub fn unsettled(&self) -> impl Iterator<Item = (Seq, &Entry)> {
        self.entries.iter().map(|(seq, entry)| (*seq, entry))
    }

    /// Whether the member holds a message. If not, [`Self::end_member`] has nothing to end.
    #[must_use]
    pub fn holds(&self, member: MemberId) -> bool {
        self.held_by(member).next().is_some()
    }

    /// What a member holds, lowest message first.
    pub fn held_by(&self, member: MemberId) -> impl Iterator<Item = (Seq, &Entry)> {
        self.holders.range((member, Seq::ZERO)..=(member, Seq::MAX)).map(|(_, seq)| (*seq, self.entry(*seq)))
    }

    /// Whether there is anything to look at for [`Self::lease`]; if not, it would lease nothing and change nothing.
    #[must_use]
    pub fn may_lease(&self, last_seq: Seq, rules: &PathRules, facts: &dyn Facts, now: Now) -> bool {
        let is_something_due = || {
            self.schedule.first().is_some_and(|(due, _)| *due <= now.cluster)
                || facts.next_delayed(self.due_position).is_some_and(|next| next.at.due <= now.cluster)
        };
        !self.is_moving()
            && (!self.ready.is_empty() || self.order != rules.order || self.position <= last_seq || is_something_due())
    }

    /// The highest delivery number that is remembered, 0 without any. Looks at every entry and run.
    #[must_use]
    pub fn latest_delivery(&self) -> DeliveryId {
        let of_entry = |entry: &Entry| entry.lease().map_or(entry.previous, |lease| lease.delivery_id);
        let entries = self.entries.values().map(of_entry).max();
        let runs = self.runs.iter().map(|(first, run)| first.plus(run.count - 1)).max();
        entries.max(runs).unwrap_or(DeliveryId::ZERO)
    }

    /// The latest command that granted a live lease, the default without any. Looks at every entry.
    #[must_use]
    pub fn latest_grant(&self) -> Position {
        self.entries.values().filter_map(Entry::lease).map(|lease| lease.granted_at).max().unwrap_or_default()
    }

    /// When the latest run of settles that is remembered began, 0 without any. Looks at every run.
    #[must_use]
    pub fn latest_run(&self) -> ClusterTime {
        self.runs.iter().map(|(_, run)| run.opened).max().unwrap_or(ClusterTime::ZERO)
    }

    /// Checks every numbered invariant. Costs far more than any other call: for tests and the simulator.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self, last_seq: Seq) {
        self.check_indexes();
        self.check_key_order();
        self.check_bounds(last_seq);
        let books = self.books(last_seq);
        assert_eq!(books.difference(), 0, "invariant 7, P9: {books:?}");
        self.check_deliveries();
    }

    /// Checks invariant 13 against the partition's schedule.
    ///
    /// # Panics
    /// When it does not hold.
    pub fn check_delayed(&self, schedule: impl Iterator<Item = DuePosition>) {
        match self.skipped(schedule) {
            Ok(count) => {
                assert_eq!(self.delayed, count, "invariant 13, P4: delayed messages that the path has skipped")
            }
            Err(seq) => panic!("invariant 13, P4: message {seq} is delayed and was offered"),
        }
    }

    /// How many messages of a schedule the path has skipped, and waits for.
    ///
    /// # Errors
    /// The message, if one that is not due for the path was offered all the same.
    pub fn skipped(&self, schedule: impl Iterator<Item = DuePosition>) -> Result<u64, Seq> {
        let mut count = 0;
        for at in schedule.filter(|at| *at > self.due_position) {
            if self.entries.contains_key(&at.seq) || self.settled_ahead.contains(&at.seq) {
                return Err(at.seq);
            }
            // What lies below the due start is nothing to this path, until it is set back.
            count += u64::from((self.due_start..self.position).contains(&at.seq));
        }
        Ok(count)
    }

    fn check_bounds(&self, last_seq: Seq) {
        let end = end_of(last_seq).max(self.start);
        let (position, replay_end) = (self.position, self.replay_end);
        assert!(replay_end <= end, "invariant 1, P10: position {replay_end} passed {last_seq}");
        assert!(
            position <= replay_end,
            "invariant 1, P10: position {position} passed {replay_end}, where it never was"
        );
        let lowest = self.entries.get_min().map_or(position, |(seq, _)| *seq).min(position);
        let highest = self.entries.get_max().map(|(seq, _)| *seq);
        assert!(self.start <= lowest, "invariant 1: message {lowest} lies below the start {}", self.start);
        assert!(highest < Some(replay_end), "invariant 1: {highest:?} lies above what was offered, {replay_end}");
        let due_start = self.due_start;
        let is_in_place = self.start <= due_start && due_start <= position;
        assert!(is_in_place, "invariant 13: the due start {due_start} lies outside of {}..={position}", self.start);
        self.check_kept();
        let marks = self.settled_ahead.len();
        let in_place = self.settled_ahead.range(position..end).count();
        assert_eq!(in_place, marks, "invariant 11: a mark lies outside of {position}..{end}");
        let is_owed = self.settled_ahead.iter().find(|seq| self.entries.contains_key(*seq));
        assert_eq!(is_owed, None, "invariant 11, P6: a message is both settled and owed");
        let skipped = (marks + self.entries.range(position..).count()) as u64;
        assert_eq!(self.ahead, skipped, "invariant 11: messages that the position will skip");
        let sourceless = self.sources.keys().find(|seq| !self.entries.contains_key(*seq));
        assert_eq!(sourceless, None, "invariant 14: a dead letter is kept for a message that is settled");
        if let Some(moving) = &self.moving {
            moving.check(position, end);
        }
    }

    fn check_indexes(&self) {
        let (mut leased, mut scheduled, mut held) = (0, 0, 0);
        for (seq, entry) in &self.entries {
            match &entry.state {
                State::Waiting => {}
                State::Held => {
                    held += 1;
                    let was_delivered = entry.previous != DeliveryId::ZERO;
                    assert!(self.held.contains(seq) && was_delivered, "invariant 10: {seq} would be held for ever");
                }
                State::Scheduled { due } => {
                    scheduled += 1;
                    assert!(self.schedule.contains(&(*due, *seq)), "invariant 3: {seq} is scheduled without a time");
                }
                State::Leased(lease) => {
                    leased += 1;
                    let has_deadline = self.deadlines.contains(&(lease.deadline, *seq));
                    let has_holder = self.holders.contains(&(lease.member, *seq));
                    assert!(has_deadline && has_holder, "invariant 2, P5: the lease of {seq} would never end");
                }
            }
        }
        assert_eq!(self.deadlines.len(), leased, "invariant 2, P5: deadlines without a lease");
        assert_eq!(self.holders.len(), leased, "invariant 2, P5: holders without a lease");
        assert_eq!(self.schedule.len(), scheduled, "invariant 3: due times without a scheduled message");
        assert_eq!(self.held.len(), held, "invariant 10: messages among the held that are not");
    }

    fn check_key_order(&self) {
        let mut ahead: BTreeMap<KeyHash, Ahead<'_>> = BTreeMap::new();
        let (mut queued, mut ready, mut leased) = (0, 0, 0);
        for (seq, entry) in &self.entries {
            let has_queue = self.stands_in_queue(entry.key_hash, *seq);
            queued += usize::from(has_queue);
            let is_queued = self.keyed.contains(&(entry.key_hash, *seq));
            assert_eq!(is_queued, has_queue, "invariant 4: message {seq} in the queue of its key");
            let before = has_queue.then(|| ahead.entry(entry.key_hash).or_default());
            let is_first = before.as_ref().is_none_or(|before| before.is_empty());
            let is_busy = has_queue && self.leased_of_key(entry.key_hash).is_some();
            let is_free = entry.is_waiting() && is_first && !is_busy;
            ready += usize::from(is_free);
            assert_eq!(
                self.ready.contains(&(entry.due, *seq)),
                is_free,
                "invariant 5, P8: message {seq} among the ready"
            );
            let ordered = entry.lease().filter(|lease| lease.ordered);
            let is_leased = self.leased_keys.contains(&(entry.key_hash, *seq));
            assert_eq!(is_leased, has_queue && ordered.is_some(), "invariant 12: message {seq} among the leased keys");
            leased += usize::from(is_leased);
            let was_delivered = entry.previous != DeliveryId::ZERO;
            let is_late = entry.due != ClusterTime::ZERO;
            assert!(!is_late || !was_delivered, "invariant 8: {seq} was delivered, and is only due");
            if let Some(before) = before {
                assert!(before.leads(entry), "invariant 6, P8: message {seq} overtook {before:?}");
                before.push(entry);
            }
        }
        assert_eq!(self.keyed.len(), queued, "invariant 4: queues hold messages that are not there");
        assert_eq!(self.ready.len(), ready, "invariant 5: ready messages that are not there");
        assert_eq!(self.leased_keys.len(), leased, "invariant 12: leased keys that are not there");
    }

    fn check_deliveries(&self) {
        let mut live: BTreeSet<DeliveryId> = BTreeSet::new();
        for (seq, entry) in &self.entries {
            let is_first = matches!(entry.cause, Cause::First | Cause::Replayed);
            assert_eq!(is_first, entry.previous == DeliveryId::ZERO, "invariant 8, P7: {seq} has a cause and no past");
            assert!(entry.attempt >= Attempt::FIRST, "invariant 8, P7: {seq} has attempt 0");
            if let Some(lease) = entry.lease() {
                let is_younger = entry.previous < lease.delivery_id;
                assert!(is_younger, "invariant 8, P7: delivery {} of {seq} follows itself", lease.delivery_id);
                assert!(live.insert(lease.delivery_id), "invariant 8, P5: two leases are number {}", lease.delivery_id);
                let settled = self.runs.kind_of(*seq, lease.delivery_id, ClusterTime::ZERO);
                assert_eq!(settled, None, "invariant 9, P6: the live delivery {} was settled", lease.delivery_id);
            }
        }
        self.runs.check();
    }

    /// The entry of a message that an index names.
    pub(crate) fn entry(&self, seq: Seq) -> &Entry {
        self.entries.get(&seq).unwrap_or_else(|| panic!("an index names message {seq}, which has no entry"))
    }

    /// Takes out a message that is settled. Above the position it leaves a mark, so that it is not replayed (P6); if it was
    /// redriven, its dead letter is needed no more.
    pub(crate) fn remove(&mut self, seq: Seq) -> Entry {
        let entry = self.entries.remove(&seq).unwrap_or_else(|| panic!("P6: message {seq} is settled and not there"));
        self.freed.extend(self.sources.remove(&seq));
        if seq >= self.position {
            self.settled_ahead.insert(seq);
        }
        entry
    }

    /// As [`Self::entry`], to change it.
    pub(crate) fn entry_mut(&mut self, seq: Seq) -> &mut Entry {
        self.entries.get_mut(&seq).unwrap_or_else(|| panic!("an index names message {seq}, which has no entry"))
    }
}

#[cfg(test)]
mod tests;
