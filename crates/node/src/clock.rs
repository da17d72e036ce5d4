//! Cluster time on this node: how the leader stamps its batches, and what it declares a gap.
//!
//! # Invariants
//! 1. Stamps never go back.
//! 2. A stamp's gap is never longer than the time since the stamp before.

use mortarmq_shard::Stamp;
use mortarmq_types::{ClusterTime, MonotonicTime, Mutant};

use crate::config::Now;

/// The longest turn of the driver's loop in which members could still settle and renew. What exceeds it is a gap.
pub(crate) const STALL_MS: u64 = 1000;

/// Maps the node's own clock to cluster time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterClock {
    anchor_cluster: ClusterTime,
    anchor_monotonic: MonotonicTime,
    last_stamp: ClusterTime,
    last_turn: MonotonicTime,
    gap_ms: u64,
    /// When a leader was last heard, or this node last led.
    contact: MonotonicTime,
    /// Whether an office has begun, and nothing was stamped in it.
    is_new: bool,
}

impl ClusterClock {
    /// A clock that goes on from the highest stamp in the log, which was received at `received`; since then nobody could
    /// settle or renew.
    pub(crate) fn after(last_stamp: ClusterTime, received: MonotonicTime, now: MonotonicTime) -> Self {
        let outage_ms = if Mutant::LeaseShortened.is_on() { 0 } else { now.since_ms(received) };
        Self {
            anchor_cluster: last_stamp,
            anchor_monotonic: received.min(now),
            last_stamp,
            last_turn: now,
            gap_ms: outage_ms,
            contact: received.min(now),
            is_new: false,
        }
    }

    /// A leader was heard.
    pub(crate) fn heard(&mut self, now: MonotonicTime) {
        self.contact = self.contact.max(now);
    }

    /// An entry with this stamp came into the log.
    pub(crate) fn received(&mut self, stamp: ClusterTime, now: MonotonicTime) {
        self.heard(now);
        if stamp >= self.last_stamp {
            (self.anchor_cluster, self.anchor_monotonic, self.last_stamp) = (stamp, now, stamp);
        }
    }

    /// This node leads from now on: since a leader was last heard, nobody could settle or renew.
    pub(crate) fn begin_office(&mut self) {
        (self.is_new, self.gap_ms) = (true, 0);
        if Mutant::LeaseShortenedOnFailover.is_on() {
            self.anchor_cluster = self.anchor_cluster.after_ms(3000);
        }
    }

    /// This node leads no longer, and up to that moment members could settle and renew. What of its office comes later is a
    /// gap, if it is the next leader itself.
    pub(crate) fn end_office(&mut self, contact: MonotonicTime) {
        self.contact = self.contact.max(contact);
    }

    /// Notes that the loop turned. Returns for how long since the turn before nobody could be heard: all of it while nothing
    /// is committed, else what was too long.
    pub(crate) fn turn(&mut self, now: MonotonicTime, is_halted: bool) -> u64 {
        let bearable_ms = if is_halted { 0 } else { STALL_MS };
        let stalled_ms = now.since_ms(self.last_turn).saturating_sub(bearable_ms);
        self.gap_ms += stalled_ms;
        self.last_turn = self.last_turn.max(now);
        stalled_ms
    }

    /// When the loop turned last.
    pub(crate) const fn last_turn(&self) -> MonotonicTime {
        self.last_turn
    }

    /// Notes how long the journal took for a batch. Turns that were too long meanwhile may be counted twice: a stamp's
    /// gap ends at the stamp before (invariant 2), and what is too much lengthens leases and never shortens them.
    pub(crate) fn journal_took(&mut self, took_ms: u64) {
        self.gap_ms += took_ms.saturating_sub(STALL_MS);
    }

    /// The stamp of the batch that is closed now.
    pub(crate) fn stamp(&mut self, now: Now) -> Stamp {
        let time = self.time(now.monotonic).max(self.last_stamp);
        if std::mem::take(&mut self.is_new) {
            self.gap_ms = self.gap_ms.max(now.monotonic.since_ms(self.contact));
        }
        let gap_ms = self.gap_ms.min(time.since_ms(self.last_stamp));
        self.gap_ms = 0;
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

#[cfg(test)]
mod tests {
    use super::ClusterClock;
    use crate::config::Now;
    use mortarmq_types::{ClusterTime, MonotonicTime, WallTime};

    fn at(ms: u64) -> Now {
        Now { monotonic: MonotonicTime::new(ms), wall: WallTime::ZERO }
    }

    #[test]
    fn p5_an_outage_is_a_gap_and_counts_for_cluster_time() {
        let mut clock =
            ClusterClock::after(ClusterTime::new(500), MonotonicTime::new(10_000), MonotonicTime::new(17_000));
        let stamp = clock.stamp(at(17_040));
        assert_eq!((stamp.time.get(), stamp.gap_ms), (7540, 7000));
        let next = clock.stamp(at(17_050));
        assert_eq!((next.time.get(), next.gap_ms), (7550, 0));
    }

    #[test]
    fn p5_a_stall_beyond_a_second_is_a_gap() {
        let mut clock = ClusterClock::after(ClusterTime::ZERO, MonotonicTime::ZERO, MonotonicTime::ZERO);
        assert_eq!(clock.turn(MonotonicTime::new(900), false), 0);
        assert_eq!(clock.stamp(at(900)).gap_ms, 0);
        assert_eq!(clock.turn(MonotonicTime::new(5900), false), 4000);
        let stamp = clock.stamp(at(5900));
        assert_eq!((stamp.time.get(), stamp.gap_ms), (5900, 4000));
    }

    #[test]
    fn p5_a_journal_that_takes_longer_than_a_second_is_a_gap() {
        let mut clock = ClusterClock::after(ClusterTime::ZERO, MonotonicTime::ZERO, MonotonicTime::ZERO);
        assert_eq!(clock.stamp(at(100)).gap_ms, 0);
        clock.journal_took(900);
        assert_eq!(clock.stamp(at(1000)).gap_ms, 0);
        clock.journal_took(60_000);
        assert_eq!(clock.stamp(at(61_000)).gap_ms, 59_000);
    }

    #[test]
    fn p5_a_new_leader_goes_on_from_what_it_received_and_the_time_without_one_is_a_gap() {
        let mut clock = ClusterClock::after(ClusterTime::ZERO, MonotonicTime::ZERO, MonotonicTime::ZERO);
        clock.received(ClusterTime::new(70_000), MonotonicTime::new(1000));
        // What its former leader stamped earlier, and what comes twice, sets nothing back.
        clock.received(ClusterTime::new(60_000), MonotonicTime::new(1100));
        clock.heard(MonotonicTime::new(1500));
        clock.turn(MonotonicTime::new(2400), false);
        clock.begin_office();
        let stamp = clock.stamp(at(2600));
        assert_eq!((stamp.time.get(), stamp.gap_ms), (71_600, 1100), "600 ms are over, of 1700 since the stamp");
        assert_eq!(clock.stamp(at(2700)).gap_ms, 0);
        // It is cut off at 3000, and gets the office back.
        clock.end_office(MonotonicTime::new(3000));
        clock.begin_office();
        let stamp = clock.stamp(at(4000));
        assert_eq!((stamp.time.get(), stamp.gap_ms), (73_000, 1000));
    }

    #[test]
    fn p5_while_nothing_is_committed_all_time_is_a_gap() {
        let mut clock = ClusterClock::after(ClusterTime::ZERO, MonotonicTime::ZERO, MonotonicTime::ZERO);
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
        let mut clock = ClusterClock::after(ClusterTime::ZERO, MonotonicTime::ZERO, MonotonicTime::ZERO);
        assert_eq!(clock.stamp(at(50)).time.get(), 50);
        assert_eq!(clock.stamp(at(20)).time.get(), 50);
    }
}
