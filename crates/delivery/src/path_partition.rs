//! The state of one path in one partition.
//!
//! # Invariants
//! 1. All entries lie between the start and the end of the replay, which is at least the position and not above what was
//!    published (P10).
//! 2. The leased entries are exactly those with a deadline, and those with a holder (P5).
//! 3. The scheduled entries are exactly those with a due time.
//! 4. Under key order the keyed entries are exactly those in a key's queue; otherwise no queue has any. While the order
//!    changes, the new order holds below one message, and the former from there on. A queue has two parts: what is leased in
//!    key order, and all else.
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
//! 12. The leased keys are exactly the keyed messages whose lease was granted in key order, and no others are in both parts.
//! 13. The delayed messages that were skipped are as many as stand in the partition's schedule behind the due position, from
//!     the due start to below the position, and have no entry (P4, P9). [`PathPartition::check_delayed`] asserts it: the
//!     schedule is not part of this state. The due start lies between the start and the position.
//! 14. What has a source has an entry: a redriven message until it is settled.
//! 15. Retention's bound does not lie above the due start, and below it only leased and redriven messages are unsettled.
//! 16. What is delivered alone is at its third attempt or a later one; its leases are exactly those among the lone leases.
//! 17. Packed are only messages with a key that stand in its queue, behind its first entry. They have no entry, and count
//!     like those (P8, P9).

mod check;

use std::collections::BTreeSet;

use imbl::{OrdMap, OrdSet};
use mortarmq_types::{Cause, ClusterTime, CommitIndex, DeliveryId, DropReason, KeyHash, LeaseTime, MemberId, Seq};

use crate::{
    crowd::Packed,
    entries::Entries,
    entry::{Entry, Lease},
    lease::{DuePosition, Facts},
    moves::Moving,
    pair_set::PairSet,
    rules::{Now, Order, PathRules},
    runs::Runs,
    tenure::Granted,
};

/// One path in one partition: which messages are owed, who holds which, and what became of the others.
///
/// A driver calls [`Self::end_due`] at every stamp, then [`Self::lease`], [`Self::settle`] and [`Self::end_member`] as the
/// commands come. The size grows with the unsettled messages below the position and the lately settled ones, never with
/// the backlog.
///
/// Entries and runs are persistent: [`Self::image`] shares them, and what changes while the image lives is copied node
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
    pub(crate) entries: Entries,
    /// What waits behind a crowded key.
    pub(crate) packed: Packed,
    /// The order that the indexes below are made for.
    pub(crate) order: Order,
    /// While the order changes: what lies below stands as the new order asks, the rest as the old one did.
    pub(crate) reordering: Option<Seq>,
    /// The queue of each key: its unsettled messages that were offered, but for those that are leased in key order.
    pub(crate) keyed: PairSet<KeyHash>,
    /// Those: they stand in the queue as well.
    pub(crate) leased_keys: PairSet<KeyHash>,
    /// What can be leased now: retries, by sequence, then what was delayed, by when it fell due.
    pub(crate) ready: PairSet<ClusterTime>,
    /// What can be leased now, but only alone.
    pub(crate) lone: BTreeSet<Seq>,
    /// Who holds which message that was delivered alone.
    pub(crate) lone_leases: BTreeSet<(MemberId, Seq)>,
    /// What waits for a time.
    pub(crate) schedule: PairSet<ClusterTime>,
    /// When each lease ends.
    pub(crate) deadlines: PairSet<LeaseTime>,
    /// What each member holds.
    pub(crate) holders: PairSet<MemberId>,
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
            entries: Entries::default(),
            packed: Packed::default(),
            order: Order::Key,
            reordering: None,
            keyed: PairSet::new(),
            leased_keys: PairSet::new(),
            ready: PairSet::new(),
            lone: BTreeSet::new(),
            lone_leases: BTreeSet::new(),
            schedule: PairSet::new(),
            deadlines: PairSet::new(),
            holders: PairSet::new(),
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
        self.is_passed(seq)
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

    /// Unsettled messages that were offered and are not packed: those that `max_passed_over` speaks of.
    #[must_use]
    pub fn passed_over(&self) -> u64 {
        self.entries.len() as u64
    }

    /// What the path has of the shard's entries here: each unsettled message that was offered is one, but 16 packed ones are
    /// one together, as they take no more; and each run of settles is one.
    #[must_use]
    pub fn kept_entries(&self) -> u64 {
        self.passed_over() + self.packed().div_ceil(16) + self.settled_runs()
    }

    /// Whether a message that was never offered may be offered, as far as the limits of the group say.
    #[must_use]
    pub fn may_offer(&self, rules: &PathRules) -> bool {
        self.has_room(rules) && !self.is_far_ahead(rules)
    }

    /// Whether as many messages are settled past the oldest unsettled one as the group allows.
    ///
    /// What is delayed, and not due, holds nothing back and is not looked at one by one: all of it is taken for unsettled and
    /// ahead, so that there may be a few settled ones more.
    pub(crate) fn is_far_ahead(&self, rules: &PathRules) -> bool {
        let limit = u64::from(rules.max_acked_ahead);
        let oldest = (limit != 0).then(|| self.first_passed(Seq::ZERO..self.position)).flatten();
        let Some(oldest) = oldest else { return false };
        let unsettled = self.all_passed() - (self.ahead - self.settled_ahead.len() as u64);
        self.position.above(oldest).saturating_sub(unsettled + self.delayed) >= limit
    }

    /// Messages that were offered and could be leased right now, those included that are delivered alone.
    #[must_use]
    pub fn ready_messages(&self) -> u64 {
        (self.ready.len() + self.lone.len()) as u64
    }

    /// The messages among which the one is that can be leased and has waited longest, each with when it fell due; 0 if that was
    /// when it was stored.
    pub fn longest_ready(&self, last_seq: Seq) -> impl Iterator<Item = (Seq, ClusterTime)> {
        let retry = self.ready.first().filter(|(due, _)| *due == ClusterTime::ZERO);
        let fell_due = self.ready.range((ClusterTime::new(1), Seq::ZERO)..).next();
        let alone = self.lone.first().map(|seq| (ClusterTime::ZERO, *seq));
        let next = (self.position <= last_seq).then_some((ClusterTime::ZERO, self.position));
        [retry, fell_due, alone, next].into_iter().flatten().map(|(due, seq)| (seq, due))
    }

    /// The command that granted the first of the live leases, among the `at_most` unsettled messages with the lowest sequences.
    #[must_use]
    pub fn first_granted(&self, at_most: usize) -> Option<CommitIndex> {
        if self.deadlines.len() == 0 {
            return None;
        }
        let leases = self.unsettled().take(at_most).filter_map(|(_, entry)| entry.lease());
        leases.map(|lease| self.granted(lease).granted_at.commit_index).min()
    }

    /// Runs of settles that are remembered.
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
        let retry = self.schedule.first().map(|(due, _)| due);
        match (lease, retry) {
            (Some(lease), Some(retry)) => Some(lease.min(retry)),
            (lease, retry) => lease.or(retry),
        }
    }

    /// Where a message stands; `None` if it is settled, was never offered, is delayed, waits packed, or does not exist.
    #[must_use]
    pub fn lease_of(&self, seq: Seq) -> Option<&Entry> {
        self.entries.get(&seq)
    }

    /// Every message that was offered, is not settled and is not packed, lowest first.
    pub fn unsettled(&self) -> impl Iterator<Item = (Seq, &Entry)> {
        self.entries.iter().map(|(seq, entry)| (*seq, entry))
    }

    /// Whether the member holds a message. If not, [`Self::end_member`] has nothing to end.
    #[must_use]
    pub fn holds(&self, member: MemberId) -> bool {
        self.held_by(member).next().is_some()
    }

    /// What a member holds, lowest message first.
    pub fn held_by(&self, member: MemberId) -> impl DoubleEndedIterator<Item = (Seq, &Entry)> {
        self.holders.range((member, Seq::ZERO)..=(member, Seq::MAX)).map(|(_, seq)| (seq, self.entry(seq)))
    }

    /// Whether there is anything to look at for [`Self::lease`]; if not, it would lease nothing and change nothing.
    #[must_use]
    pub fn may_lease(&self, last_seq: Seq, rules: &PathRules, facts: &dyn Facts, now: Now) -> bool {
        let is_something_due = || {
            self.schedule.first().is_some_and(|(due, _)| due <= now.cluster)
                || facts.next_delayed(self.due_position).is_some_and(|next| next.at.due <= now.cluster)
        };
        !self.is_moving()
            && (self.ready_messages() > 0
                || self.order != rules.order
                || self.position <= last_seq
                || is_something_due())
    }

    /// How many messages of a schedule the path has skipped, and waits for.
    ///
    /// # Errors
    /// The message, if one that is not due for the path was offered all the same.
    pub fn skipped(&self, schedule: impl Iterator<Item = DuePosition>) -> Result<u64, Seq> {
        let mut count = 0;
        for at in schedule.filter(|at| *at > self.due_position) {
            if self.is_passed(at.seq) || self.settled_ahead.contains(&at.seq) {
                return Err(at.seq);
            }
            // What lies below the due start is nothing to this path, until it is set back.
            count += u64::from((self.due_start..self.position).contains(&at.seq));
        }
        Ok(count)
    }

    /// To whom a live lease of this path was granted.
    #[must_use]
    pub fn granted(&self, lease: &Lease) -> Granted {
        self.entries.tenures().of(lease)
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
