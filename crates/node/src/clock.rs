//! Cluster time on this node: how the leader stamps its batches, and what it declares a gap.
//!
//! # Invariants
//! 1. Stamps never go back.
//! 2. A stamp's gap is never too short. It may be longer than the time since the stamp before: apply takes of it what fits
//!    behind the stamp that was applied last, and whether one before was lost it alone knows.

use std::collections::VecDeque;

use mortarmq_shard::Stamp;
use mortarmq_types::{ClusterTime, Epoch, MonotonicTime, Mutant};

use crate::config::Now;

/// The longest turn of the driver's loop in which members could still settle and renew. What exceeds it is a gap.
pub(crate) const STALL_MS: u64 = 1000;

/// Maps the node's own clock to cluster time.
#[derive(Clone, Debug)]
pub(crate) struct ClusterClock {
    anchor_cluster: ClusterTime,
    anchor_monotonic: MonotonicTime,
    last_stamp: ClusterTime,
    last_turn: MonotonicTime,
    gap_ms: u64,
    /// Until when members could settle and renew, as far as this node knows: a leader was heard that had stamped, or this
    /// node led.
    contact: MonotonicTime,
    /// The latest epoch of which a stamp came into the log.
    stamped: Epoch,
    /// Until then what is heard may have waited while this node stood still, and is no witness.
    deaf_until: MonotonicTime,
    /// Stamped entries in the log that are not known to be committed: since the first of them came nobody was confirmed
    /// anything.
    uncommitted: VecDeque<Uncommitted>,
    /// Whether an office has begun, and nothing was stamped in it.
    is_new: bool,
}

/// A stamped entry that another leader may still replace.
#[derive(Clone, Copy, Debug)]
struct Uncommitted {
    log_index: u64,
    came: MonotonicTime,
    /// What stood before it, and stands again when it is replaced: anchor and last stamp.
    before: (ClusterTime, MonotonicTime, ClusterTime),
}

impl ClusterClock {
    /// A clock that goes on from the highest stamp in the log, which was received at `received`; since then nobody could
    /// settle or renew. It was a leader of the epoch `stamped` that gave it.
    pub(crate) fn after(
        (last_stamp, stamped): (ClusterTime, Epoch),
        received: MonotonicTime,
        now: MonotonicTime,
    ) -> Self {
        let outage_ms = if Mutant::LeaseShortened.is_on() { 0 } else { now.since_ms(received) };
        Self {
            anchor_cluster: last_stamp,
            anchor_monotonic: received.min(now),
            last_stamp,
            last_turn: now,
            gap_ms: outage_ms,
            contact: received.min(now),
            stamped,
            deaf_until: MonotonicTime::ZERO,
            uncommitted: VecDeque::new(),
            is_new: false,
        }
    }

    /// The leader of an epoch was heard. Before its first stamp it takes nothing, and the time since the leader before is
    /// still to be declared a gap; if that stamp never comes, by the next leader.
    pub(crate) fn heard(&mut self, epoch: Epoch, now: MonotonicTime) {
        if epoch <= self.stamped && now >= self.deaf_until {
            self.contact = self.contact.max(now);
        }
    }

    /// An entry of the log, with this stamp of a leader of this epoch, came in.
    pub(crate) fn received(&mut self, log_index: u64, stamp: ClusterTime, epoch: Epoch, now: MonotonicTime) {
        self.stamped = self.stamped.max(epoch);
        self.waits(log_index, stamp, now);
        self.heard(epoch, now);
    }

    /// What stood in the log from this index on is replaced. A stamp that was replaced never was: time that only it told of
    /// is not over, or leases would end by it.
    pub(crate) fn replaced(&mut self, log_index: u64) {
        while let Some(gone) = self.uncommitted.pop_back_if(|last| last.log_index >= log_index) {
            (self.anchor_cluster, self.anchor_monotonic, self.last_stamp) = gone.before;
        }
    }

    /// The state is another leader's now, up to this entry and this stamp, which was given before `offered`. Whoever lacked the
    /// log acknowledged nothing, so what it heard of its leader since then proves nothing: all of that time is a gap.
    pub(crate) fn go_on_from(&mut self, (stamp, epoch): (ClusterTime, Epoch), offered: MonotonicTime) {
        self.replaced(0);
        self.stamped = self.stamped.max(epoch);
        self.contact = offered;
        if stamp >= self.last_stamp {
            (self.anchor_cluster, self.anchor_monotonic, self.last_stamp) = (stamp, offered, stamp);
        }
    }

    /// An entry with this stamp, that came in at this moment, is not known to be committed; what is stamped goes on from it.
    pub(crate) fn waits(&mut self, log_index: u64, stamp: ClusterTime, came: MonotonicTime) {
        self.replaced(log_index);
        // The first of them counts. A stamp that could not be taken back is not gone by: then time lags, and ends nothing.
        if self.uncommitted.len() < UNCOMMITTED_MAX {
            let before = (self.anchor_cluster, self.anchor_monotonic, self.last_stamp);
            self.uncommitted.push_back(Uncommitted { log_index, came, before });
            (self.anchor_cluster, self.anchor_monotonic, self.last_stamp) = (stamp, came, stamp);
        }
    }

    /// All entries up to this one are committed.
    pub(crate) fn committed(&mut self, log_index: u64) {
        while self.uncommitted.pop_front_if(|first| first.log_index <= log_index).is_some() {}
    }

    /// This node leads from now on: since a leader was last heard, or since what is not committed yet, nobody could settle or
    /// renew.
    pub(crate) fn begin_office(&mut self) {
        if let Some(first) = self.uncommitted.front() {
            self.contact = self.contact.min(first.came);
        }
        (self.is_new, self.gap_ms) = (true, 0);
        if Mutant::LeaseShortenedOnFailover.is_on() {
            self.anchor_cluster = self.anchor_cluster.after_ms(3000);
        }
    }

    /// This node leads no longer, and up to that moment members could settle and renew, but for so long a part of it that no
    /// applied stamp has declared a gap. What of its office comes later is one too, if it is the next leader itself.
    pub(crate) fn end_office(&mut self, contact: MonotonicTime, undeclared_ms: u64) {
        let gap_ms = std::mem::take(&mut self.gap_ms) + undeclared_ms;
        self.contact = self.contact.max(MonotonicTime::new(contact.get().saturating_sub(gap_ms)));
    }

    /// Notes that the loop turned. Returns for how long since the turn before nobody could be heard: all of it while nothing
    /// is committed, else what was too long.
    pub(crate) fn turn(&mut self, now: MonotonicTime, is_halted: bool) -> u64 {
        let bearable_ms = if is_halted { 0 } else { STALL_MS };
        let stalled_ms = now.since_ms(self.last_turn).saturating_sub(bearable_ms);
        self.gap_ms += stalled_ms;
        if stalled_ms > 0 && !is_halted {
            self.deaf_until = now.after_ms(DEAF_MS);
        }
        self.last_turn = self.last_turn.max(now);
        stalled_ms
    }

    /// When the loop turned last.
    pub(crate) const fn last_turn(&self) -> MonotonicTime {
        self.last_turn
    }

    /// The last stamp.
    pub(crate) const fn last_stamp(&self) -> ClusterTime {
        self.last_stamp
    }

    /// Notes how long the journal took for a batch. Turns that were too long meanwhile may be counted twice: what is too much
    /// lengthens leases and never shortens them.
    pub(crate) fn journal_took(&mut self, took_ms: u64) {
        self.gap_ms += took_ms.saturating_sub(STALL_MS);
    }

    /// The stamp of the batch that is closed now.
    pub(crate) fn stamp(&mut self, now: Now) -> Stamp {
        let time = self.time(now.monotonic).max(self.last_stamp);
        if std::mem::take(&mut self.is_new) {
            self.gap_ms = self.gap_ms.max(now.monotonic.since_ms(self.contact));
        }
        let gap_ms = std::mem::take(&mut self.gap_ms);
        self.last_stamp = time;
        Stamp { time, gap_ms, wall: now.wall }
    }

    /// Cluster time now.
    pub(crate) fn time(&self, now: MonotonicTime) -> ClusterTime {
        self.anchor_cluster.after_ms(now.since_ms(self.anchor_monotonic))
    }

    /// When this node's clock shows a cluster time.
    pub(crate) fn monotonic(&self, time: ClusterTime) -> MonotonicTime {
        self.anchor_monotonic.after_ms(time.since_ms(self.anchor_cluster))
    }
}

/// When the node's own ticks were: what is told in ticks is told in time. After a stall there are fewer than time has passed.
#[derive(Debug, Default)]
pub(crate) struct Ticks {
    last: VecDeque<MonotonicTime>,
}

impl Ticks {
    pub(crate) fn note(&mut self, now: MonotonicTime) {
        self.last.push_front(now);
        self.last.truncate(TICKS_MAX);
    }

    /// The earliest moment that may be called so many ticks ago.
    pub(crate) fn ago(&self, ticks: u64) -> MonotonicTime {
        let place = usize::try_from(ticks).unwrap_or(usize::MAX);
        self.last.get(place).copied().unwrap_or(MonotonicTime::ZERO)
    }
}

/// Far more than a leader has under way.
const UNCOMMITTED_MAX: usize = 4096;
/// After a stall, what had come in meanwhile is heard within this time.
const DEAF_MS: u64 = 500;
/// An office ends after twenty ticks of silence at the latest.
const TICKS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::ClusterClock;
    use crate::config::Now;
    use mortarmq_types::{ClusterTime, Epoch, MonotonicTime, WallTime};

    fn fresh() -> ClusterClock {
        ClusterClock::after((ClusterTime::ZERO, Epoch::ZERO), MonotonicTime::ZERO, MonotonicTime::ZERO)
    }

    fn at(ms: u64) -> Now {
        Now { monotonic: MonotonicTime::new(ms), wall: WallTime::ZERO }
    }

    #[test]
    fn p5_a_snapshot_makes_a_gap_of_all_time_since_it_was_offered() {
        let mut clock = fresh();
        clock.received(5, ClusterTime::new(10_000), Epoch::new(1), MonotonicTime::new(1000));
        clock.waits(6, ClusterTime::new(10_050), MonotonicTime::new(1100));
        // The leader is heard all the while, but nothing of this node counted for what it took.
        clock.heard(Epoch::new(1), MonotonicTime::new(8000));
        clock.go_on_from((ClusterTime::new(15_000), Epoch::new(2)), MonotonicTime::new(5000));
        clock.begin_office();
        let stamp = clock.stamp(at(9000));
        assert_eq!((stamp.time, stamp.gap_ms), (ClusterTime::new(19_000), 4000));
        // Whom it hears afterwards had this node: that is a contact again.
        let mut clock = fresh();
        clock.go_on_from((ClusterTime::new(15_000), Epoch::new(2)), MonotonicTime::new(5000));
        clock.heard(Epoch::new(2), MonotonicTime::new(8000));
        clock.begin_office();
        assert_eq!(clock.stamp(at(9000)).gap_ms, 1000);
    }

    #[test]
    fn p5_an_outage_is_a_gap_and_counts_for_cluster_time() {
        let mut clock = ClusterClock::after(
            (ClusterTime::new(500), Epoch::ZERO),
            MonotonicTime::new(10_000),
            MonotonicTime::new(17_000),
        );
        let stamp = clock.stamp(at(17_040));
        assert_eq!((stamp.time.get(), stamp.gap_ms), (7540, 7000));
        let next = clock.stamp(at(17_050));
        assert_eq!((next.time.get(), next.gap_ms), (7550, 0));
    }

    #[test]
    fn p5_a_stall_beyond_a_second_is_a_gap() {
        let mut clock = fresh();
        assert_eq!(clock.turn(MonotonicTime::new(900), false), 0);
        assert_eq!(clock.stamp(at(900)).gap_ms, 0);
        assert_eq!(clock.turn(MonotonicTime::new(5900), false), 4000);
        let stamp = clock.stamp(at(5900));
        assert_eq!((stamp.time.get(), stamp.gap_ms), (5900, 4000));
    }

    #[test]
    fn p5_a_journal_that_takes_longer_than_a_second_is_a_gap() {
        let mut clock = fresh();
        assert_eq!(clock.stamp(at(100)).gap_ms, 0);
        clock.journal_took(900);
        assert_eq!(clock.stamp(at(1000)).gap_ms, 0);
        clock.journal_took(60_000);
        assert_eq!(clock.stamp(at(61_000)).gap_ms, 59_000);
    }

    #[test]
    fn p5_a_new_leader_goes_on_from_what_it_received_and_the_time_without_one_is_a_gap() {
        let mut clock = fresh();
        clock.received(5, ClusterTime::new(70_000), Epoch::new(1), MonotonicTime::new(1000));
        clock.committed(5);
        clock.heard(Epoch::new(1), MonotonicTime::new(1500));
        clock.turn(MonotonicTime::new(2400), false);
        clock.begin_office();
        let stamp = clock.stamp(at(2600));
        assert_eq!((stamp.time.get(), stamp.gap_ms), (71_600, 1100), "600 ms are over, of 1700 since the stamp");
        assert_eq!(clock.stamp(at(2700)).gap_ms, 0);
        // It is cut off at 3000, and gets the office back.
        clock.end_office(MonotonicTime::new(3000), 0);
        clock.begin_office();
        let stamp = clock.stamp(at(4000));
        assert_eq!((stamp.time.get(), stamp.gap_ms), (73_000, 1000));
    }

    #[test]
    fn p5_a_leader_that_was_heard_and_never_stamped_ends_no_outage() {
        let mut clock = fresh();
        clock.received(5, ClusterTime::new(70_000), Epoch::new(1), MonotonicTime::new(1000));
        clock.committed(5);
        clock.heard(Epoch::new(2), MonotonicTime::new(21_000));
        clock.begin_office();
        assert_eq!(clock.stamp(at(21_500)).gap_ms, 20_500);
    }

    #[test]
    fn p5_what_waited_while_a_node_stood_still_is_no_word_of_a_leader() {
        let mut clock = fresh();
        clock.received(5, ClusterTime::new(70_000), Epoch::new(1), MonotonicTime::new(1000));
        clock.committed(5);
        clock.turn(MonotonicTime::new(1000), false);
        clock.turn(MonotonicTime::new(11_000), false);
        clock.heard(Epoch::new(1), MonotonicTime::new(11_000));
        clock.begin_office();
        assert_eq!(clock.stamp(at(11_400)).gap_ms, 10_400);
    }

    #[test]
    fn p5_a_leader_that_was_heard_and_confirmed_nothing_ends_no_outage() {
        let mut clock = fresh();
        for (log_index, at) in [(5, 1000), (6, 1500), (7, 2000)] {
            clock.received(log_index, ClusterTime::new(at), Epoch::new(1), MonotonicTime::new(at));
        }
        clock.committed(5);
        // Another leader's entry takes the place of the last.
        clock.received(7, ClusterTime::new(3000), Epoch::new(2), MonotonicTime::new(3000));
        clock.heard(Epoch::new(2), MonotonicTime::new(21_000));
        clock.begin_office();
        assert_eq!(clock.stamp(at(21_500)).gap_ms, 20_000);
    }

    #[test]
    fn p5_time_that_only_a_stamp_told_of_that_was_replaced_is_not_over() {
        // The leader of epoch 1 stood still: the stamp in which it says so came to this node alone, and another leads.
        let begin = |replace: &dyn Fn(&mut ClusterClock)| {
            let mut clock = fresh();
            clock.received(5, ClusterTime::new(1000), Epoch::new(1), MonotonicTime::new(1000));
            clock.committed(5);
            clock.received(6, ClusterTime::new(1500), Epoch::new(1), MonotonicTime::new(1500));
            clock.received(7, ClusterTime::new(9000), Epoch::new(1), MonotonicTime::new(1600));
            replace(&mut clock);
            clock.begin_office();
            let stamp = clock.stamp(at(3000));
            (stamp.time.get(), stamp.gap_ms)
        };
        // By a stamp that tells of less.
        let by_stamp = |clock: &mut ClusterClock| {
            clock.received(6, ClusterTime::new(1400), Epoch::new(2), MonotonicTime::new(2000));
            clock.committed(6);
        };
        assert_eq!(begin(&by_stamp), (2400, 1000));
        // By an entry without a stamp: what the log holds before it counts.
        assert_eq!(begin(&|clock| clock.replaced(7)), (3000, 1500));
        assert_eq!(begin(&|clock| clock.replaced(6)), (3000, 1400));
        // Also if this node led meanwhile, and nothing that it stamped came to a majority.
        let after_an_office = |clock: &mut ClusterClock| {
            clock.begin_office();
            assert_eq!(clock.stamp(at(1700)).time.get(), 9100);
            clock.end_office(MonotonicTime::new(1700), 0);
            clock.replaced(6);
        };
        assert_eq!(begin(&after_an_office).0, 3000);
    }

    #[test]
    fn p5_a_stall_that_no_applied_stamp_tells_of_is_a_gap_of_the_next_office_too() {
        // One stall is told by no stamp, and another by a stamp that was lost.
        for is_stamped in [false, true] {
            let mut clock = fresh();
            clock.turn(MonotonicTime::new(1000), false);
            clock.turn(MonotonicTime::new(11_000), false);
            let undeclared_ms = if is_stamped { clock.stamp(at(11_000)).gap_ms } else { 0 };
            clock.end_office(MonotonicTime::new(11_000), undeclared_ms);
            clock.begin_office();
            assert_eq!(clock.stamp(at(11_500)).gap_ms, 9500, "stamped: {is_stamped}");
        }
    }

    #[test]
    fn ticks_before_a_stall_are_as_long_ago_as_they_are() {
        let mut ticks = super::Ticks::default();
        [100, 150, 10_150, 10_200].map(MonotonicTime::new).into_iter().for_each(|at| ticks.note(at));
        assert_eq!([0, 1, 2, 3, 4].map(|count| ticks.ago(count).get()), [10_200, 10_150, 150, 100, 0]);
    }

    #[test]
    fn p5_while_nothing_is_committed_all_time_is_a_gap() {
        let mut clock = fresh();
        let mut gap_ms = 0;
        for turn in 1..=100 {
            let is_halted = turn > 20;
            assert_eq!(clock.turn(MonotonicTime::new(turn * 50), is_halted), if is_halted { 50 } else { 0 });
            gap_ms += clock.stamp(at(turn * 50)).gap_ms;
        }
        assert_eq!(gap_ms, 4000, "however often it is stamped meanwhile");
    }

    #[test]
    fn p10_stamps_never_go_back_even_if_the_node_clock_does() {
        let mut clock = fresh();
        assert_eq!(clock.stamp(at(50)).time.get(), 50);
        assert_eq!(clock.stamp(at(20)).time.get(), 50);
    }
}
