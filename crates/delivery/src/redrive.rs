//! An operator's acts on single messages: one is dropped, or brought back after it died.
//!
//! A dead letter that is redriven or purged leaves its own path one by one, whatever was offered there: what was not leaves a
//! mark behind, which the position skips when it comes by. A mark is 8 bytes of state; there are at most [`MARKS_MAX`].
//!
//! A redriven message is owed once more under its old sequence, at attempt 1. It takes its place in its key's order now, as
//! a delayed one does when it falls due: it waits for what is leased of its key, and what waits behind it waits for it (P8).
//! It does not lose its worth: whoever brings it back wants it delivered. Its bytes are those of its dead letter, which
//! [`PathPartition::sources`] names until the message is settled, in whichever way; then [`PathPartition::take_freed`] does.

use mortarmq_types::{ClusterTime, DeliveryId, DropReason, KeyHash, Seq};

use crate::{
    books::end_of,
    entry::{Entry, State},
    lease::{DuePosition, Fact, Facts},
    path_partition::PathPartition,
    rules::PathRules,
};

/// A dead message that is to be delivered once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redriven {
    /// The message.
    pub seq: Seq,
    /// The hash of its key.
    pub key_hash: KeyHash,
    /// Key, headers and value, in bytes.
    pub size_bytes: u32,
    /// The delivery that it died by.
    pub previous: DeliveryId,
    /// Its dead letter, which holds its bytes.
    pub source: Seq,
}

/// Why a single message stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A purge or seek of the path goes on.
    #[error("a purge or seek of the path is not done yet")]
    Moving,
    /// There is no such message, or it cannot have died here.
    #[error("there is no such message")]
    Unknown,
    /// It is settled already.
    #[error("the message is settled already")]
    Settled,
    /// A member holds it.
    #[error("a member holds the message")]
    Leased,
    /// It is owed already.
    #[error("the message is not settled")]
    Unsettled,
    /// The path has as many unsettled messages, or marks, as it may.
    #[error("the path has as many unsettled messages as it may")]
    Full,
}

impl PathPartition {
    /// Whether [`Self::drop_single`] would drop the message.
    ///
    /// # Errors
    /// Why not.
    pub fn check_drop(&self, seq: Seq, last_seq: Seq, facts: &dyn Facts) -> Result<(), Refused> {
        if self.is_moving() {
            return Err(Refused::Moving);
        }
        if seq < self.start || seq >= end_of(last_seq) {
            return Err(Refused::Unknown);
        }
        if let Some(entry) = self.entries.get(&seq) {
            return if entry.lease().is_some() { Err(Refused::Leased) } else { Ok(()) };
        }
        if self.packed.contains(seq) {
            return Ok(());
        }
        // What is delayed is skipped by other means, and waits.
        let due = facts.due_of(seq);
        if due.is_some_and(|due| self.is_delayed(due, seq)) {
            return Err(Refused::Unsettled);
        }
        if !self.owes(seq, due) {
            return Err(Refused::Settled);
        }
        if self.settled_ahead.len() >= MARKS_MAX { Err(Refused::Full) } else { Ok(()) }
    }

    /// Drops one message that nobody holds, whether it was offered or not. Says which delivery was its last, 0 without one.
    ///
    /// # Errors
    /// When it cannot be dropped; it stays as it is.
    /// # Source
    /// P4, P9; DESIGN section 2, "Dead letters, fan-out, delay".
    pub fn drop_single(
        &mut self,
        seq: Seq,
        reason: DropReason,
        last_seq: Seq,
        facts: &dyn Facts,
    ) -> Result<DeliveryId, Refused> {
        self.check_drop(seq, last_seq, facts)?;
        self.dropped_by[usize::from(reason.number())] += 1;
        if self.packed.take(seq).is_some() {
            if seq >= self.position {
                // The position skips the mark as it would have skipped the message.
                self.settled_ahead.insert(seq);
            }
            return Ok(DeliveryId::ZERO);
        }
        let Some(entry) = self.entries.get(&seq) else {
            self.settled_ahead.insert(seq);
            self.ahead += 1;
            for _ in 0..SKIPPED_PER_DROP {
                if !self.skip_at_position() {
                    break;
                }
            }
            return Ok(DeliveryId::ZERO);
        };
        let (key, previous, state) = (entry.key_hash, entry.previous, entry.state.clone());
        match state {
            State::Waiting { .. } => self.make_unready(seq),
            State::Scheduled { due } => _ = self.schedule.remove(&(due, seq)),
            State::Held => _ = self.held.remove(&seq),
            State::Leased(lease) => unreachable!("P5: {seq} is held by {lease:?} and was not refused above"),
        }
        self.remove(seq);
        self.leave_key(key, seq);
        Ok(previous)
    }

    /// Whether [`Self::redrive`] would bring the message back.
    ///
    /// # Errors
    /// Why not.
    pub fn check_redrive(&self, redriven: &Redriven, rules: &PathRules, facts: &dyn Facts) -> Result<(), Refused> {
        let seq = redriven.seq;
        if self.is_moving() {
            return Err(Refused::Moving);
        }
        let was_offered = seq >= self.start && seq < self.replay_end;
        if !was_offered || redriven.previous == DeliveryId::ZERO || redriven.source == Seq::ZERO {
            return Err(Refused::Unknown);
        }
        let due = facts.due_of(seq);
        if self.owes(seq, due) || due.is_some_and(|due| DuePosition { due, seq } > self.due_position) {
            return Err(Refused::Unsettled);
        }
        if self.has_room(rules) { Ok(()) } else { Err(Refused::Full) }
    }

    /// Owes a message once more that died here.
    ///
    /// # Errors
    /// When it cannot have died here, is unsettled, or may not be passed over too; the path stays as it is.
    /// # Source
    /// P4, P7, P8, P9; DESIGN section 2, "Dead letters, fan-out, delay".
    pub fn redrive(&mut self, redriven: &Redriven, rules: &PathRules, facts: &dyn Facts) -> Result<(), Refused> {
        self.check_redrive(redriven, rules, facts)?;
        let Redriven { seq, key_hash, size_bytes, previous, source } = *redriven;
        // Above the position its mark becomes an entry: the position skips the one as it skips the other.
        self.settled_ahead.remove(&seq);
        self.entries.insert(seq, Entry::redriven(Fact { key_hash, size_bytes, expires_at_ms: 0 }, previous));
        self.sources.insert(seq, source);
        self.again += 1;
        self.join_key(key_hash, seq);
        self.wait(seq);
        assert_eq!(self.entry(seq).fell_due(), ClusterTime::ZERO, "invariant 8: {seq} was delivered before");
        Ok(())
    }

    /// The dead letter that holds a message's bytes, if it was redriven and is not settled.
    #[must_use]
    pub fn source_of(&self, seq: Seq) -> Option<Seq> {
        self.sources.get(&seq).copied()
    }

    /// Every redriven message that is not settled, lowest first, with its dead letter.
    pub fn sources(&self) -> impl Iterator<Item = (Seq, Seq)> {
        self.sources.iter().map(|(seq, source)| (*seq, *source))
    }

    /// Dead letters whose redriven messages were settled since this was asked last. Whoever changes a path asks.
    #[must_use]
    pub fn take_freed(&mut self) -> Vec<Seq> {
        std::mem::take(&mut self.freed)
    }
}

/// The most messages of one path and partition that are settled ahead of its position, about: what they take is state.
pub const MARKS_MAX: usize = 1 << 20;

/// Marks that one drop takes the position past: more than the one it makes, so that they go, and few enough for one step.
const SKIPPED_PER_DROP: usize = 16;

#[cfg(test)]
mod tests;
