//! A node whose journal or checkpoint has rotted: it is brought up anew by the others, and until then it is no witness of anything.
//!
//! It may have acknowledged what it no longer has. So it neither votes nor acknowledges, whatever it hears, until it has installed a
//! checkpoint of its leader that stands at or behind the last entry that this leader had when it first heard of it, in an epoch not below
//! any that this node has known. Why that is enough is in the decision.
//!
//! # Invariants
//! 1. While this lasts, no message of the replica leaves, no time passes for it, and it hears nobody but of who leads.
//! 2. It ends with the install, once the data directory says so.
//!
//! # Source
//! Failure rule 3; P1; docs/decisions/018-repair.md.

use mortarmq_replica::{CatchUpWord, PeerMessage, Snapshot};
use mortarmq_types::{Epoch, MonotonicTime, Mutant};

use crate::config::Now;
use crate::node::Node;

/// How far a node is that is brought up anew.
#[derive(Debug, Default)]
pub(crate) struct Rejoin {
    /// The leader that was asked, its epoch, and how far its log reached then.
    contact: Option<Contact>,
    next_word: MonotonicTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Contact {
    leader: u64,
    epoch: Epoch,
    /// Nothing before the leader has answered.
    reach: Option<u64>,
}

impl Node {
    /// What this node had has rotted: it begins with nothing, and is brought up by the others.
    pub(crate) fn begin_rejoin(&mut self) {
        self.catch_up.rejoin = Some(Rejoin::default());
    }

    /// Whether this node is brought up anew, because its journal or its checkpoint has rotted: it neither votes nor acknowledges.
    #[must_use]
    pub fn is_rejoining(&self) -> bool {
        self.catch_up.rejoin.is_some()
    }

    /// Hears a message of the log while it is brought up: who leads, and nothing else of it.
    pub(crate) fn hear_while_rejoining(&mut self, now: Now, message: &PeerMessage) {
        if self.is_installing() || !self.replica.follow(message) {
            return;
        }
        let found = Contact { leader: message.from(), epoch: message.epoch(), reach: None };
        let Some(rejoin) = &mut self.catch_up.rejoin else { return };
        if rejoin.contact.is_none_or(|known| (known.leader, known.epoch) != (found.leader, found.epoch)) {
            *rejoin = Rejoin { contact: Some(found), next_word: now.monotonic };
        }
        self.ask_for_all(now);
    }

    /// Tells the leader that this node lacks everything, now and then.
    pub(crate) fn ask_for_all(&mut self, now: Now) {
        let Some(rejoin) = &mut self.catch_up.rejoin else { return };
        let Some(contact) = rejoin.contact.filter(|_| now.monotonic >= rejoin.next_word) else { return };
        rejoin.next_word = now.monotonic.after_ms(WORD_MS);
        self.say(contact.leader, Snapshot::default(), CatchUpWord::Lost);
    }

    /// The leader says how far its log reached when it first heard of this node.
    pub(crate) fn hear_reach(&mut self, from: u64, reach: u64) {
        let epoch = self.replica.epoch();
        if let Some(contact) = self.catch_up.rejoin.as_mut().and_then(|rejoin| rejoin.contact.as_mut())
            && (contact.leader, contact.epoch) == (from, epoch)
        {
            contact.reach.get_or_insert(reach);
        }
    }

    /// Whether a snapshot of the leader may be taken: a node that lost what it had needs one that holds all that it can have promised.
    pub(crate) fn may_take(&self, snapshot: Snapshot) -> bool {
        let Some(rejoin) = &self.catch_up.rejoin else { return true };
        let reach = rejoin.contact.and_then(|contact| contact.reach);
        reach.is_some_and(|reach| snapshot.log_index >= reach) || Mutant::RejoinTooEarly.is_on()
    }

    /// The install is over and the data directory says so: this node is one as any other.
    pub(crate) fn end_rejoin(&mut self) {
        self.catch_up.rejoin = None;
    }
}

const WORD_MS: u64 = 500;
