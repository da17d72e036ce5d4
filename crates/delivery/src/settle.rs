//! What a consumer says about a message it holds: done, refused, hopeless, given back, still at work. And what the broker says about
//! one that it cannot read.

use mortarmq_types::{DeliveryId, Mutant, Seq};

use crate::{
    ending::{End, Ended, Failure},
    entry::{Entry, Lease, State},
    path_partition::PathPartition,
    rules::{Now, PathRules},
    runs::Kind,
};

/// What a consumer says about a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settle {
    /// The message is done (P6).
    Ack,
    /// The message is to be delivered again; counts an attempt.
    Nack {
        /// After this long; 0 = after the group's backoff.
        delay_ms: u32,
    },
    /// No attempt will do: the message is dead, whatever the attempt.
    DeadLetter,
    /// The message is given back; does not count.
    Release,
    /// The consumer is still at work: the lease runs `lease_ms` from now.
    Extend,
    /// The broker cannot read the message, which never left: it is neither delivered nor dropped (failure rule 3).
    Hold,
    /// The broker tries a held message again. It names the delivery that found it unreadable.
    Resume,
}

/// That a settle is answered with OK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It was done now.
    Done,
    /// It was done before; this is a repetition and changed nothing.
    Again,
}

/// Why a settle is refused. The message is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettleError {
    /// The message was delivered again since: `STALE_OWNER`.
    #[error("the message was delivered again since")]
    Stale,
    /// The delivery is not live and how it ended is not known: `UNKNOWN_DELIVERY`, outcome unknown.
    #[error("no such delivery is live, and how it ended is not remembered")]
    Unknown,
}

impl PathPartition {
    /// Applies what a consumer says about the delivery `delivery_id` of the message `seq`.
    ///
    /// All deliveries that end by it are pushed to `ended`: the settled one first, then those of its key that end with it.
    /// A settle of a lease whose deadline has come ends that lease as expired, and is then refused.
    ///
    /// # Durability
    /// Nothing yet: the caller confirms to the client only after this command is committed.
    /// # Errors
    /// [`SettleError::Stale`] if the message was delivered again since, else [`SettleError::Unknown`].
    /// # Source
    /// P5, P6; wire rule 3. Settles name the delivery, not the message, so that one delayed on an old connection cannot
    /// settle a later attempt.
    pub fn settle(
        &mut self,
        seq: Seq,
        delivery_id: DeliveryId,
        how: Settle,
        rules: &PathRules,
        now: Now,
        ended: &mut Vec<Ended>,
    ) -> Result<Settled, SettleError> {
        if how == Settle::Resume {
            return self.resume_held(seq, delivery_id);
        }
        let lease = self.entries.get(&seq).and_then(Entry::lease).copied();
        // What a purge has still to take away is dropped already.
        let is_it = |lease: &Lease| {
            lease.delivery_id == delivery_id || (Mutant::LateAckHonoured.is_on() && lease.delivery_id > delivery_id)
        };
        let is_live = |lease: &Lease| is_it(lease) && !self.is_purged(seq);
        let Some(lease) = lease.filter(is_live) else {
            let answer = self.answer_settled(seq, delivery_id, how, now);
            if Mutant::DeliveredTwice.is_on() && how == Settle::Ack && answer == Ok(Settled::Again) {
                self.delivered += 1;
            }
            return answer;
        };
        if lease.deadline <= now.lease {
            self.fail(seq, Failure::Expired, rules, now, ended);
            return Err(SettleError::Unknown);
        }
        match how {
            Settle::Ack => {
                self.ack(seq, lease, ended);
                self.runs.remember(seq, delivery_id, Kind::Ack, now.cluster);
            }
            Settle::Nack { delay_ms } => {
                self.fail(seq, Failure::Nacked { delay_ms }, rules, now, ended);
                self.runs.remember(seq, delivery_id, Kind::Nack, now.cluster);
            }
            Settle::DeadLetter => {
                self.fail(seq, Failure::Rejected, rules, now, ended);
                self.runs.remember(seq, delivery_id, Kind::DeadLetter, now.cluster);
            }
            Settle::Release => {
                self.fail(seq, Failure::GivenBack, rules, now, ended);
                self.runs.remember(seq, delivery_id, Kind::Release, now.cluster);
            }
            Settle::Extend => self.extend(seq, lease, rules, now),
            Settle::Hold => _ = self.fail(seq, Failure::Held, rules, now, ended),
            Settle::Resume => unreachable!("a message that is leased is not held, see above"),
        }
        Ok(Settled::Done)
    }

    /// Answers a settle whose delivery is not live, from what is remembered.
    fn answer_settled(&self, seq: Seq, delivery_id: DeliveryId, how: Settle, now: Now) -> Result<Settled, SettleError> {
        let remembered = self.runs.kind_of(seq, delivery_id, now.cluster);
        if remembered.is_some() && remembered == how.kind() {
            return Ok(Settled::Again);
        }
        match self.entries.get(&seq) {
            Some(entry) if entry.was_delivered_after(delivery_id) => Err(SettleError::Stale),
            Some(_) | None => Err(SettleError::Unknown),
        }
    }

    fn resume_held(&mut self, seq: Seq, delivery_id: DeliveryId) -> Result<Settled, SettleError> {
        let is_held = |entry: &Entry| entry.state == State::Held && entry.previous == delivery_id;
        if !self.entries.get(&seq).is_some_and(is_held) {
            return Err(SettleError::Unknown);
        }
        self.resume(seq);
        Ok(Settled::Done)
    }

    fn ack(&mut self, seq: Seq, lease: Lease, ended: &mut Vec<Ended>) {
        ended.push(self.ended_by(seq, &lease, End::Acked));
        self.forget_lease(seq, &lease);
        let entry = self.remove(seq);
        self.delivered += 1;
        self.leave_key(entry.key_hash, seq);
    }

    fn extend(&mut self, seq: Seq, lease: Lease, rules: &PathRules, now: Now) {
        let deadline = now.lease.after_ms(rules.lease_ms);
        self.deadlines.remove(&(lease.deadline, seq));
        self.deadlines.insert((deadline, seq));
        self.entry_mut(seq).state = State::Leased(Lease { deadline, ..lease });
    }
}

impl Settle {
    /// What is remembered of it: not an extension, which ends nothing, nor what the broker says itself.
    const fn kind(self) -> Option<Kind> {
        match self {
            Self::Ack => Some(Kind::Ack),
            Self::Nack { .. } => Some(Kind::Nack),
            Self::DeadLetter => Some(Kind::DeadLetter),
            Self::Release => Some(Kind::Release),
            Self::Extend | Self::Hold | Self::Resume => None,
        }
    }
}
