//! A leader whose disk hangs gives the office away.
//!
//! The library applies only what the leader itself has persisted, so a leader with a hanging disk would hold up a
//! majority that works. It hands the office over when those others could elect and commit without it, and otherwise
//! stays: an election could then only make things worse.

use std::collections::BTreeMap;

/// What the leader remembers of its followers' disks.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    heard: BTreeMap<u64, Heard>,
    /// The epoch in which the office was already offered.
    offered_in: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    /// The tick of the last message of any kind.
    any: Option<u64>,
    /// The tick of the last acknowledged append.
    append: Option<u64>,
    /// Whether its disk was nearly full when it was heard last.
    is_short_of_room: bool,
}

/// What the leader knows when it decides.
#[derive(Clone, Debug)]
pub(crate) struct OfficeView {
    /// The present tick.
    pub(crate) tick: u64,
    /// The tick of the oldest append that is not persisted.
    pub(crate) oldest_unsynced_tick: Option<u64>,
    /// The leader's epoch.
    pub(crate) term: u64,
    /// The leader's last log index.
    pub(crate) last_log_index: u64,
    /// Whether a follower was asked to take over and may still do so.
    pub(crate) transfer_running: bool,
    /// Each follower and how far it has acknowledged.
    pub(crate) followers: Vec<(u64, u64)>,
}

/// What the leader does about its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfficeStep {
    /// Nothing: the disk works, or nobody could do better, or an offer is running.
    Stay,
    /// Ask this follower to stand for election at once.
    HandTo(u64),
    /// The offer was not taken: stop leading, so that the others' time-outs decide.
    StepDown,
}

impl Handover {
    /// Notes a message of a follower.
    pub(crate) fn heard(&mut self, from: u64, tick: u64, acknowledges_append: bool) {
        let heard = self.heard.entry(from).or_default();
        heard.any = Some(tick);
        if acknowledges_append {
            heard.append = Some(tick);
        }
    }

    /// Notes how the disk of a follower stands.
    pub(crate) fn note_room(&mut self, from: u64, is_short_of_room: bool) {
        self.heard.entry(from).or_default().is_short_of_room = is_short_of_room;
    }

    /// Whether the disk of a follower was nearly full when it was heard last.
    pub(crate) fn is_short_of_room(&self, id: u64) -> bool {
        self.heard.get(&id).is_some_and(|heard| heard.is_short_of_room)
    }

    /// How many ticks ago a follower said anything; `None` if it never did.
    pub(crate) fn silent_ticks(&self, id: u64, tick: u64) -> Option<u64> {
        self.heard.get(&id).and_then(|heard| heard.any).map(|heard| tick - heard)
    }

    /// The follower that could lead soonest, of those that are heard: one with room, and of these the one that has
    /// acknowledged most.
    pub(crate) fn heir(&self, view: &OfficeView) -> Option<u64> {
        let is_heard = |id: u64| self.silent_ticks(id, view.tick).is_some_and(|silent| silent <= FRESH_TICKS);
        let heard = view.followers.iter().filter(|(id, _)| is_heard(*id));
        let rank = |id: u64, acknowledged: u64| (!self.is_short_of_room(id), acknowledged, std::cmp::Reverse(id));
        heard.max_by_key(|(id, acknowledged)| rank(*id, *acknowledged)).map(|(id, _)| *id)
    }

    /// Decides, once per tick while leader.
    ///
    /// # Source
    /// Failure rule 2. A follower counts as working if it acknowledged an append lately, or if it is alive and has
    /// acknowledged all there is: without that second half an idle shard would never be handed over, because nothing is
    /// left to acknowledge after the 500 ms.
    pub(crate) fn decide(&mut self, view: &OfficeView) -> OfficeStep {
        let hangs = view.oldest_unsynced_tick.is_some_and(|since| view.tick - since >= HANGING_TICKS);
        if !hangs || view.transfer_running {
            return OfficeStep::Stay;
        }
        let working: Vec<(u64, u64)> = view.followers.iter().copied().filter(|f| self.works(*f, view)).collect();
        let voters = view.followers.len() + 1;
        // They must be a majority without this node: its vote and its acknowledgements hang with its disk.
        if working.len() < raft::majority(voters) {
            return OfficeStep::Stay;
        }
        if self.offered_in == Some(view.term) {
            return OfficeStep::StepDown;
        }
        self.offered_in = Some(view.term);
        let best = working.iter().max_by_key(|(id, acknowledged)| (*acknowledged, std::cmp::Reverse(*id)));
        best.map_or(OfficeStep::Stay, |(id, _)| OfficeStep::HandTo(*id))
    }

    fn works(&self, (id, acknowledged): (u64, u64), view: &OfficeView) -> bool {
        let heard = self.heard.get(&id).copied().unwrap_or_default();
        let fresh = |tick: Option<u64>| tick.is_some_and(|tick| view.tick - tick <= FRESH_TICKS);
        fresh(heard.append) || (fresh(heard.any) && acknowledged >= view.last_log_index)
    }
}

/// An append older than this many ticks hangs: 500 ms.
const HANGING_TICKS: u64 = 10;
/// A follower heard within this many ticks is working: 250 ms.
const FRESH_TICKS: u64 = 5;

#[cfg(test)]
mod tests {
    use super::{Handover, OfficeStep, OfficeView};

    fn view(tick: u64) -> OfficeView {
        OfficeView {
            tick,
            oldest_unsynced_tick: Some(100),
            term: 3,
            last_log_index: 50,
            transfer_running: false,
            followers: vec![(2, 50), (3, 49)],
        }
    }

    #[test]
    fn rule_2_a_leader_whose_disk_hangs_offers_the_office_once_and_then_steps_down() {
        let mut handover = Handover::default();
        handover.heard(2, 109, true);
        handover.heard(3, 109, true);
        assert_eq!(handover.decide(&view(109)), OfficeStep::Stay, "499 ms are no hang");
        assert_eq!(handover.decide(&view(110)), OfficeStep::HandTo(2));
        let running = OfficeView { transfer_running: true, ..view(111) };
        assert_eq!(handover.decide(&running), OfficeStep::Stay);
        assert_eq!(handover.decide(&view(112)), OfficeStep::StepDown);
        assert_eq!(handover.decide(&OfficeView { term: 4, ..view(112) }), OfficeStep::HandTo(2), "a later office");
    }

    #[test]
    fn rule_2_it_stays_while_the_others_are_as_slow_or_no_majority() {
        let mut handover = Handover::default();
        assert_eq!(handover.decide(&view(110)), OfficeStep::Stay, "nobody was heard");
        handover.heard(2, 110, true);
        assert_eq!(handover.decide(&view(110)), OfficeStep::Stay, "one of three cannot elect alone");
        handover.heard(3, 104, true);
        assert_eq!(handover.decide(&view(110)), OfficeStep::Stay, "300 ms are stale");
        assert_eq!(handover.decide(&OfficeView { oldest_unsynced_tick: None, ..view(110) }), OfficeStep::Stay);
    }

    #[test]
    fn the_heir_is_heard_and_has_acknowledged_most() {
        let mut handover = Handover::default();
        assert_eq!(handover.heir(&view(110)), None, "nobody was heard");
        handover.heard(3, 108, false);
        assert_eq!(handover.heir(&view(110)), Some(3), "2 has more and is silent");
        handover.heard(2, 105, true);
        assert_eq!(handover.heir(&view(110)), Some(2));
        assert_eq!(handover.heir(&view(111)), Some(3), "300 ms are stale");
    }

    #[test]
    fn a_follower_that_has_acknowledged_all_and_is_alive_works() {
        let mut handover = Handover::default();
        handover.heard(2, 110, false);
        handover.heard(3, 110, false);
        assert_eq!(handover.decide(&view(110)), OfficeStep::Stay, "3 lacks an entry and acknowledges nothing");
        let both = OfficeView { followers: vec![(2, 50), (3, 50)], ..view(110) };
        assert_eq!(handover.decide(&both), OfficeStep::HandTo(2));
    }
}
