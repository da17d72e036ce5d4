//! How a delivery ends without an ack: its time ran out, it was refused or given back, its member went away. And when that
//! was one time too many: the message is dead.

use mortarmq_types::{Attempt, Cause, ClusterTime, DeliveryId, DropReason, KeyHash, MemberId, Mutant, Seq};

use crate::{
    backoff::backoff_ms,
    entry::{Entry, Lease, State},
    path_partition::PathPartition,
    rules::{Grant, Now, PathRules},
    tenure::Granted,
};

/// A delivery that ended. There is exactly one for each delivery that was leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The message.
    pub seq: Seq,
    /// The delivery.
    pub delivery_id: DeliveryId,
    /// Which attempt it was.
    pub attempt: Attempt,
    /// Who held it.
    pub member: MemberId,
    /// How it was asked for: the end of a push returns its credit.
    pub grant: Grant,
    /// The hash of the message's key.
    pub key_hash: KeyHash,
    /// What it took of the byte window.
    pub size_bytes: u32,
    /// What ended it.
    pub end: End,
    /// The dead letter that holds the message's bytes, if it was redriven.
    pub source: Option<Seq>,
}

/// What ended a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The message is settled (P6).
    Acked,
    /// The message will be delivered again, for this cause (P7).
    Ended(Cause),
    /// The message is settled: it goes to the dead-letter topic and comes no more on this path (P4, P6).
    Dead(Death),
    /// The message could not be read and never left: it waits until it can be. Its next delivery is `released`.
    Held,
    /// The delivery ended for this cause, and retention had passed its message meanwhile: it is settled, dropped by that rule.
    Trimmed(Cause),
}

/// Why a message is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// It used up its attempts; this ended the last one.
    Exhausted(Cause),
    /// Its consumer said so, whatever the attempt.
    Rejected,
}

impl Death {
    /// The word used in text and headers: that of the last cause, or `rejected`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Exhausted(cause) => cause.word(),
            Self::Rejected => "rejected",
        }
    }
}

/// Why a delivery ends without settling its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Its lease ran out.
    Expired,
    /// Its member's session ended without a word.
    Lost,
    /// Its consumer refused it; 0 asks for the group's backoff.
    Nacked { delay_ms: u32 },
    /// It was given back, by its consumer or because the partition was revoked.
    GivenBack,
    /// An earlier message of its key, leased together with it, failed (P8).
    Follower,
    /// It could not be read, so it never left.
    Held,
    /// Its consumer says that no attempt will do.
    Rejected,
}

impl Failure {
    pub(crate) const fn cause(self) -> Cause {
        match self {
            Self::Expired => Cause::LeaseExpired,
            Self::Lost => Cause::ConsumerLost,
            // What is rejected is not delivered again: this cause is never told.
            Self::Nacked { .. } | Self::Rejected => Cause::Nacked,
            Self::GivenBack | Self::Follower | Self::Held => Cause::Released,
        }
    }

    /// Whether the message is dead when this ends its delivery of this attempt. Only a cause that counts uses up the last.
    const fn death(self, attempt: Attempt, rules: &PathRules) -> Option<Death> {
        let cause = self.cause();
        match self {
            Self::Rejected => Some(Death::Rejected),
            _ if cause.counts() && rules.max_attempts != 0 && attempt.get() >= rules.max_attempts => {
                Some(Death::Exhausted(cause))
            }
            Self::Expired | Self::Lost | Self::Nacked { .. } | Self::GivenBack | Self::Follower | Self::Held => None,
        }
    }
}

impl PathPartition {
    /// Ends the leases whose deadline has come, makes due retries ready, and forgets old settles.
    ///
    /// Each ended delivery and each retry takes one step of the budget; without budget the rest stays for the next call,
    /// where it is still due. A lease and those that end with it (P8) are never torn apart, so the last ones may
    /// overdraw the budget, which then is 0.
    ///
    /// # Source
    /// DESIGN section 2, "Time".
    pub fn end_due(&mut self, now: Now, budget: &mut u32, rules: &PathRules, ended: &mut Vec<Ended>) {
        while *budget > 0
            && let Some((deadline, seq)) = self.deadlines.first()
            && deadline <= now.lease
        {
            let steps = self.fail(seq, Failure::Expired, rules, now, ended);
            *budget = budget.saturating_sub(steps);
        }
        while *budget > 0
            && let Some((due, seq)) = self.schedule.first()
            && due <= now.cluster
        {
            self.retry_is_due(seq);
            *budget -= 1;
        }
        self.runs.forget(now.cluster, FORGET_PER_CALL);
    }

    /// Ends the leases of a member: `ConsumerLost` if its session ended without a word, else `Released`.
    ///
    /// A lease whose deadline has come ended by that, and says so. The budget is as in [`Self::end_due`].
    ///
    /// Returns whether the member holds nothing any more; if not, the budget is spent and the call is to be repeated.
    ///
    /// # Source
    /// Wire rule 6.
    pub fn end_member(
        &mut self,
        member: MemberId,
        cause: Cause,
        budget: &mut u32,
        rules: &PathRules,
        now: Now,
        ended: &mut Vec<Ended>,
    ) -> bool {
        let left = if cause == Cause::ConsumerLost { Failure::Lost } else { Failure::GivenBack };
        while let Some(seq) = self.first_held_by(member) {
            if *budget == 0 {
                return false;
            }
            let failure = if self.is_past_deadline(seq, now) { Failure::Expired } else { left };
            let steps = self.fail(seq, failure, rules, now, ended);
            *budget = budget.saturating_sub(steps);
        }
        true
    }

    /// Ends a lease, and with it the later ones of its key that were leased together (P8). Returns how many ended.
    pub(crate) fn fail(
        &mut self,
        seq: Seq,
        failure: Failure,
        rules: &PathRules,
        now: Now,
        ended: &mut Vec<Ended>,
    ) -> u32 {
        let key = self.entry(seq).key_hash;
        let followers = if Mutant::KeyOrderLost.is_on() { Vec::new() } else { self.followers(key, seq) };
        self.end_one(seq, failure, rules, now, ended);
        let mut count = 1_u32;
        for follower in followers {
            self.end_one(follower, Failure::Follower, rules, now, ended);
            count = count.saturating_add(1);
        }
        // Nothing of the key is leased in key order any more, so its earliest moves if it waits.
        self.free_head(key);
        count
    }

    /// The lowest message that a member holds.
    fn first_held_by(&self, member: MemberId) -> Option<Seq> {
        self.holders.range((member, Seq::ZERO)..=(member, Seq::MAX)).next().map(|(_, seq)| seq)
    }

    /// A retry's time has come: it waits only for its key now.
    pub(crate) fn retry_is_due(&mut self, seq: Seq) {
        let State::Scheduled { due } = self.entry(seq).state else {
            panic!("invariant 3: message {seq} has a due time and is not scheduled");
        };
        self.schedule.remove(&(due, seq));
        self.wait(seq);
    }

    /// Takes a lease out of the indexes: from here on nobody holds it.
    pub(crate) fn forget_lease(&mut self, seq: Seq, lease: &Lease) {
        let had_deadline = self.deadlines.remove(&(lease.deadline, seq));
        let member = self.granted(lease).member;
        let had_holder = self.holders.remove(&(member, seq));
        let key = self.entry(seq).key_hash;
        if self.leased_keys.remove(&(key, seq)) {
            self.keyed.insert((key, seq));
        }
        self.lone_leases.remove(&(member, seq));
        self.entries.tenures_mut().end(lease);
        assert!(had_deadline && had_holder, "P5: the lease {} of message {seq} is not indexed", lease.delivery_id);
    }

    pub(crate) fn is_past_deadline(&self, seq: Seq, now: Now) -> bool {
        self.entry(seq).lease().is_some_and(|lease| lease.deadline <= now.lease)
    }

    fn end_one(&mut self, seq: Seq, failure: Failure, rules: &PathRules, now: Now, ended: &mut Vec<Ended>) {
        let entry = self.entry(seq);
        let Some(lease) = entry.lease().copied() else {
            panic!("P5: a delivery of message {seq} ends and none is live");
        };
        let death = failure.death(entry.attempt, rules);
        let end = match death {
            Some(death) => End::Dead(death),
            None if seq < self.kept_from && self.source_of(seq).is_none() => End::Trimmed(failure.cause()),
            None if failure == Failure::Held => End::Held,
            None => End::Ended(failure.cause()),
        };
        ended.push(self.ended_by(seq, &lease, end));
        self.forget_lease(seq, &lease);
        let counter = match end {
            End::Dead(_) if Mutant::DeadNotSettled.is_on() => None,
            End::Dead(_) => Some(&mut self.dlq),
            End::Trimmed(_) => Some(&mut self.dropped_by[usize::from(DropReason::Retention.number())]),
            End::Acked | End::Ended(_) | End::Held => None,
        };
        if let Some(counter) = counter {
            *counter += 1;
            let entry = self.remove(seq);
            self.leave_key(entry.key_hash, seq);
            return;
        }
        let entry = self.entry_mut(seq);
        entry.follow(lease.delivery_id, failure);
        if failure == Failure::Held {
            entry.state = State::Held;
            self.held.insert(seq);
            return;
        }
        let delay_ms = match failure {
            Failure::Nacked { delay_ms } if delay_ms != 0 => u64::from(delay_ms),
            Failure::Nacked { .. } | Failure::Expired | Failure::Lost => {
                backoff_ms(rules, entry.attempt.get(), seq, lease.delivery_id)
            }
            // The first time may be an accident; what is given back again and again must not spin.
            Failure::GivenBack if entry.given_back >= 2 => {
                backoff_ms(rules, u32::from(entry.given_back), seq, lease.delivery_id)
            }
            Failure::GivenBack | Failure::Follower | Failure::Held | Failure::Rejected => 0,
        };
        if delay_ms == 0 {
            self.wait(seq);
        } else {
            let due = now.cluster.after_ms(delay_ms);
            entry.state = State::Scheduled { due };
            self.schedule.insert((due, seq));
        }
    }

    /// Takes every lease for one that never was: what [`Mutant::LeaseForgotten`] does at a start.
    pub fn forget_leases(&mut self) {
        let leased = |(seq, entry): (Seq, &Entry)| entry.lease().map(|lease| (seq, *lease));
        for (seq, lease) in self.unsettled().filter_map(leased).collect::<Vec<_>>() {
            self.forget_lease(seq, &lease);
            self.wait(seq);
        }
    }

    /// A message that was held is tried again, once it is its turn.
    pub(crate) fn resume(&mut self, seq: Seq) {
        let was_held = self.held.remove(&seq);
        assert!(was_held, "invariant 10: message {seq} is held and not among the held");
        self.wait(seq);
    }

    /// Lets a message wait for its turn, which has come unless an earlier one of its key is unsettled.
    pub(crate) fn wait(&mut self, seq: Seq) {
        let entry = self.entry_mut(seq);
        if !entry.is_waiting() {
            entry.state = State::Waiting { fell_due: ClusterTime::ZERO };
        }
        let key = entry.key_hash;
        if self.stands_in_queue(key, seq) {
            self.free_head(key);
        } else {
            self.make_ready(seq);
        }
    }

    /// The end of a message's live delivery.
    pub(crate) fn ended_by(&self, seq: Seq, lease: &Lease, end: End) -> Ended {
        let entry = self.entry(seq);
        let Granted { member, grant, .. } = self.granted(lease);
        Ended {
            seq,
            delivery_id: lease.delivery_id,
            attempt: entry.attempt,
            member,
            grant,
            key_hash: entry.key_hash,
            size_bytes: entry.size_bytes,
            end,
            source: self.source_of(seq),
        }
    }
}

/// Old runs of settles that one call forgets: well above what a batch makes, so that they cannot pile up.
const FORGET_PER_CALL: usize = 128;
