//! Messages that are delivered alone, because they may kill whoever works on them (wire rule 6).
//!
//! When a worker dies with 256 messages in its hands, nobody knows which of them did it: all are charged an attempt. What
//! was twice among those is delivered alone from its third attempt on, so that the one that kills uses up its attempts by
//! itself, and those beside it are done one after another.
//!
//! Here is only which messages these are, and that a call which asks for one gets one and nothing else. Who asks, so that
//! its member holds nothing beside it, is decided where the whole path is known.

use std::collections::BTreeSet;

use mortarmq_types::{Attempt, DeliveryId, MemberId, Seq};

use crate::{
    ending::Failure,
    entry::Entry,
    lease::{Call, Handed, LeaseStop},
    path_partition::PathPartition,
    rules::PathRules,
};

/// From this attempt on a message is delivered alone if its last delivery that counted ended without a word.
const ALONE_FROM: Attempt = Attempt::new(3);

impl PathPartition {
    /// Whether something is ready that is to be delivered alone, and nothing stands in its way: neither a limit of leases,
    /// nor, while the path replays, what comes before it (P8). `may_pass_over` is what the request would say.
    #[must_use]
    pub fn has_alone(&self, rules: &PathRules, may_pass_over: bool) -> bool {
        let is_free = || !self.is_moving() && !self.is_in_flight_full(rules);
        self.next_alone(rules, may_pass_over).is_some() && is_free()
    }

    /// Messages that are ready and are to be delivered alone.
    #[must_use]
    pub fn ready_alone(&self) -> u64 {
        self.lone.len() as u64
    }

    /// Whether the member holds a message that was delivered alone.
    #[must_use]
    pub fn holds_alone(&self, member: MemberId) -> bool {
        self.lone_leases.range((member, Seq::ZERO)..=(member, Seq::MAX)).next().is_some()
    }

    /// Who holds a message that was delivered alone.
    pub fn alone_with(&self) -> impl Iterator<Item = MemberId> {
        self.lone_leases.iter().map(|(member, _)| *member)
    }

    pub(crate) fn is_in_flight_full(&self, rules: &PathRules) -> bool {
        let is_limit = rules.max_in_flight != 0 && self.in_flight() >= u64::from(rules.max_in_flight);
        is_limit || self.entries.tenures().is_full()
    }

    /// Leases the next message that is to be delivered alone.
    pub(crate) fn serve_alone(
        &mut self,
        call: &mut Call<'_>,
        last_delivery_id: &mut DeliveryId,
        handed: &mut Handed,
    ) -> LeaseStop {
        while handed.leased.is_empty() && call.messages_left > 0 {
            if self.is_in_flight_full(call.rules) {
                return LeaseStop::InFlightFull;
            }
            if call.steps_left == 0 {
                return LeaseStop::StepsSpent;
            }
            let Some(seq) = self.next_alone(call.rules, call.request.may_pass_over) else {
                return LeaseStop::NothingReady;
            };
            if let Err(stop) = self.lease_passed(seq, call, last_delivery_id, handed) {
                return stop;
            }
            call.steps_left -= 1;
        }
        LeaseStop::LimitReached
    }

    /// Notes that a message can be leased; says whether that is new.
    pub(crate) fn make_ready(&mut self, seq: Seq) -> bool {
        let entry = self.entry(seq);
        let (due, alone) = (entry.fell_due(), entry.alone);
        if alone { self.lone.insert(seq) } else { self.ready.insert((due, seq)) }
    }

    /// Notes that a message cannot be leased, or is.
    pub(crate) fn make_unready(&mut self, seq: Seq) {
        let entry = self.entry(seq);
        let (due, alone) = (entry.fell_due(), entry.alone);
        if alone {
            self.lone.remove(&seq);
        } else {
            self.ready.remove(&(due, seq));
        }
    }

    /// The lowest of them that can be leased. One above the position waits for what the path replays, unless the path may
    /// offer nothing new, or not all of it: then only what was offered makes room.
    fn next_alone(&self, rules: &PathRules, may_pass_over: bool) -> Option<Seq> {
        let is_stuck = || !may_pass_over || !self.may_offer(rules);
        self.lone.first().copied().filter(|seq| *seq < self.position || is_stuck())
    }

    pub(crate) fn check_alone(&self) {
        let of_lone =
            |(seq, entry): (&Seq, &Entry)| Some((self.granted(entry.lease()?).member, *seq)).filter(|_| entry.alone);
        let leases: BTreeSet<(MemberId, Seq)> = self.entries.iter().filter_map(of_lone).collect();
        assert_eq!(self.lone_leases, leases, "invariant 16: leases of messages that are delivered alone");
        let too_early = self.entries.iter().find(|(_, entry)| entry.alone && entry.attempt < ALONE_FROM);
        assert!(too_early.is_none(), "invariant 16: {too_early:?} is delivered alone without a reason");
    }
}

impl Entry {
    /// Whether the message is delivered alone next, after a delivery that ended by `failure`. One that was only given back
    /// says nothing new.
    pub(crate) fn is_alone_after(&self, failure: Failure) -> bool {
        match failure {
            Failure::Expired | Failure::Lost => self.attempt >= ALONE_FROM,
            Failure::Nacked { .. } | Failure::Rejected => false,
            Failure::GivenBack | Failure::Follower | Failure::Held => self.alone,
        }
    }

    /// Whether it can be that a message of this attempt is delivered alone.
    pub(crate) fn may_be_alone(attempt: Attempt) -> bool {
        attempt >= ALONE_FROM
    }
}
