//! One message below the path's position that is not settled.

use mortarmq_types::{Attempt, Cause, ClusterTime, DeliveryId, KeyHash, LeaseTime, Mutant};

use crate::{ending::Failure, lease::Fact};

/// What a path remembers of a message that it has passed and that is not settled.
///
/// While the message is leased, `attempt`, `cause` and `previous` describe this delivery; otherwise the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The hash of the message's key; [`KeyHash::NONE`] neither waits nor makes others wait.
    pub key_hash: KeyHash,
    /// Key, headers and value, in bytes: what the message takes of a byte window.
    pub size_bytes: u32,
    /// When the message loses its worth, cluster time in milliseconds; 0 = never.
    pub expires_at_ms: u64,
    /// Which attempt this or the next delivery is.
    pub attempt: Attempt,
    /// What ended the delivery before (P7).
    pub cause: Cause,
    /// The delivery before, 0 if there was none (P7).
    pub previous: DeliveryId,
    /// How often in a row the message was given back; from the second on it backs off.
    pub given_back: u16,
    /// Whether it is delivered alone: the last of its deliveries that counted ended without a word, and it was not the first.
    pub alone: bool,
    /// Where the message stands.
    pub state: State,
}

/// Where an unsettled message stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It can be leased as soon as no earlier message of its key is unsettled.
    Waiting {
        /// When it fell due, if it came late into its key's order and was not delivered since; 0 otherwise.
        fell_due: ClusterTime,
    },
    /// It backs off, or was nacked with a delay.
    Scheduled {
        /// From when on it may be delivered again.
        due: ClusterTime,
    },
    /// A member holds it.
    Leased(Lease),
    /// Its bytes cannot be read: it is neither delivered nor dropped, and its key waits (failure rule 3).
    Held,
}

/// A live lease: at most one per message and path (P5). To whom it was granted,
/// [`PathPartition::granted`](crate::PathPartition::granted) tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Names this delivery; settles carry it.
    pub delivery_id: DeliveryId,
    /// The lease is over when lease time reaches this.
    pub deadline: LeaseTime,
    /// Whether it was granted in key order, so that everything unsettled before it in its key is leased with it.
    pub ordered: bool,
    /// The number of what it has in common with other leases of its holder.
    pub(crate) tenure: u16,
    /// The lower half of the commit index of the command that granted it.
    pub(crate) commit_low: u32,
}

impl Entry {
    /// The entry of a message that was never delivered. `due` is 0 unless it was delayed.
    pub(crate) const fn new(fact: Fact, due: ClusterTime) -> Self {
        Self {
            key_hash: fact.key_hash,
            size_bytes: fact.size_bytes,
            expires_at_ms: fact.expires_at_ms,
            attempt: Attempt::FIRST,
            cause: Cause::First,
            previous: DeliveryId::ZERO,
            given_back: 0,
            alone: false,
            state: State::Waiting { fell_due: due },
        }
    }

    /// The entry of a message that the path is obliged to deliver once more: attempts start again.
    pub(crate) fn replayed(fact: Fact) -> Self {
        Self { cause: Cause::Replayed, ..Self::new(fact, ClusterTime::ZERO) }
    }

    /// The entry of a dead message that an operator brought back: attempts start again, and its next delivery follows the one
    /// that it died by (P7).
    pub(crate) fn redriven(fact: Fact, previous: DeliveryId) -> Self {
        Self { cause: Cause::Redriven, previous, ..Self::new(fact, ClusterTime::ZERO) }
    }

    /// The lease, if the message is leased.
    #[must_use]
    pub fn lease(&self) -> Option<&Lease> {
        match &self.state {
            State::Leased(lease) => Some(lease),
            State::Waiting { .. } | State::Scheduled { .. } | State::Held => None,
        }
    }

    /// When it fell due, if it came late into its key's order, waits, and was not delivered since; 0 otherwise.
    #[must_use]
    pub const fn fell_due(&self) -> ClusterTime {
        match self.state {
            State::Waiting { fell_due } => fell_due,
            State::Scheduled { .. } | State::Leased(_) | State::Held => ClusterTime::ZERO,
        }
    }

    /// Whether only an earlier message of its key can keep this one from being leased.
    pub(crate) const fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting { .. })
    }

    /// Whether it came late into its key's order, because it was delayed or brought back, and was not delivered since: what
    /// was leased before may be behind it.
    pub(crate) fn is_late(&self) -> bool {
        let came_back = matches!(self.cause, Cause::Replayed | Cause::Redriven);
        self.is_waiting() && (came_back || self.fell_due() != ClusterTime::ZERO)
    }

    /// Whether the message has lost its worth.
    pub(crate) const fn is_expired(&self, now: ClusterTime) -> bool {
        has_expired(self.expires_at_ms, now)
    }

    /// Whether `delivery_id` is older than the message's latest delivery.
    ///
    /// Only the last two deliveries are known by name; that an older number was this message's is taken on trust, as the
    /// answer that rests on it changes nothing.
    pub(crate) fn was_delivered_after(&self, delivery_id: DeliveryId) -> bool {
        // A first delivery has none before it; one of a replay has those of before the replay.
        if delivery_id == DeliveryId::ZERO || self.cause == Cause::First {
            return false;
        }
        let latest = self.lease().map_or(self.previous, |lease| lease.delivery_id);
        delivery_id < latest
    }

    /// Turns the description of the delivery that ended into that of the next one (P7).
    pub(crate) fn follow(&mut self, ended: DeliveryId, failure: Failure) {
        self.cause = if Mutant::CauseAlwaysExpired.is_on() { Cause::LeaseExpired } else { failure.cause() };
        self.previous = ended;
        let is_forgiven = Mutant::NackCountsNoAttempt.is_on() && self.cause == Cause::Nacked;
        if self.cause.counts() && !is_forgiven {
            self.attempt = Attempt::new(self.attempt.get().saturating_add(1));
            self.given_back = 0;
        } else if failure == Failure::GivenBack {
            self.given_back = self.given_back.saturating_add(1);
        }
        self.alone = self.is_alone_after(failure);
    }
}

/// Whether an expiry has come; 0 is none.
pub(crate) const fn has_expired(expires_at_ms: u64, now: ClusterTime) -> bool {
    expires_at_ms != 0 && expires_at_ms <= now.get()
}

// Many entries are in memory at once: none may grow unseen (failure rule 9).
const _: () = assert!(size_of::<Lease>() == 24 && size_of::<State>() == 24 && size_of::<Entry>() == 64);
