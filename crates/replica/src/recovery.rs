//! From journal batches to a running replica.
//!
//! # Invariants
//! 1. A committed entry is handed out once, in log order, and never replaced afterwards.
//! 2. Term and commit index never fall from batch to batch, and there is one vote per term (P10).
//! 3. The log has no gap, and it meets the checkpoint at the applied index.
//! 4. The members are those of the checkpoint and of the changes handed out behind it, and no others.

use mortarmq_types::Epoch;
use thiserror::Error;

use crate::config::{ConfigError, ReplicaConfig};
use crate::entry::{Entry, EntryKind, HardState};
use crate::log_tail::LogTail;
use crate::membership::Membership;
use crate::replica::{Replica, Started};

/// A replica that is being rebuilt from what is durable.
///
/// The driver calls [`Recovery::handle_batch`] for every valid journal batch in order, applies what it returns, and
/// ends with [`Recovery::finish`].
#[derive(Debug)]
pub struct Recovery {
    config: ReplicaConfig,
    tail: LogTail,
    /// Whether any entry was fed.
    seeded: bool,
    /// Whether the term of the entry before the first held one is known. It is not when the journal begins in the middle.
    base_known: bool,
    hard_state: HardState,
    /// The checkpoint covers, or this recovery has handed out, everything up to here.
    handed_out: u64,
    /// The last entry behind which the journal says that the log begins anew.
    begun_behind: u64,
    /// The members, by what was handed out.
    members: Membership,
    /// The last entry handed out that changed them.
    changed_at: u64,
    /// Who became a voter by it.
    promoted: Option<u64>,
}

/// Why a journal cannot be what a replica wrote. None of these is repaired here: the replica must not start.
#[derive(Debug, Error)]
pub enum RecoveryError {
    /// The configuration cannot be used.
    #[error("the replica's configuration cannot be used")]
    Config(#[from] ConfigError),
    /// An entry does not follow the one before, or the checkpoint.
    #[error("the journal has entry {found} where {expected} follows")]
    Gap {
        /// The log index that would have followed.
        expected: u64,
        /// The log index that was found.
        found: u64,
    },
    /// An entry would replace a committed one (P1).
    #[error("the journal replaces entry {log_index}, which is committed")]
    OverwritesCommitted {
        /// The entry's log index.
        log_index: u64,
    },
    /// An entry's term is lower than its predecessor's, or above the hard state it was written with.
    #[error("entry {log_index} of the journal has an impossible term {term}")]
    Term {
        /// The entry's log index.
        log_index: u64,
        /// Its term.
        term: u64,
    },
    /// Term or commit index fell, or a second vote was given in a term (P10).
    #[error("the journal's hard state goes back from {before:?} to {after:?}")]
    HardStateWentBack {
        /// The hard state before.
        before: HardState,
        /// The hard state of the batch.
        after: HardState,
    },
    /// The hard state calls entries committed that the journal does not have.
    #[error("the journal calls {commit} committed and ends at {last}")]
    CommitAhead {
        /// The committed log index.
        commit: u64,
        /// The last log index there is.
        last: u64,
    },
    /// The journal and the checkpoint are not of one history.
    #[error("the checkpoint was made at log index {applied} of epoch {expected}; the journal has epoch {found} there")]
    NotTheCheckpoint {
        /// The checkpoint's log index.
        applied: u64,
        /// The checkpoint's epoch.
        expected: Epoch,
        /// The epoch of the journal's entry.
        found: Epoch,
    },
    /// The journal ends before the checkpoint.
    #[error("the checkpoint was made at log index {applied}; the journal ends at {last}")]
    EndsBeforeCheckpoint {
        /// The checkpoint's log index.
        applied: u64,
        /// The journal's last log index.
        last: u64,
    },
    /// No hard state covers the last entry's term: the replica could vote twice in it.
    #[error("the last entry has epoch {last}; the journal's hard state has only {term}")]
    HardStateMissing {
        /// The last entry's epoch.
        last: Epoch,
        /// The hard state's term.
        term: u64,
    },
    /// A change of members in no way that this version knows.
    #[error("entry {log_index} of the journal changes members in an unknown way; this version cannot follow it")]
    MembershipChange {
        /// The entry's log index.
        log_index: u64,
    },
    /// The library refuses the state.
    #[error("the raft library refuses the recovered state")]
    Library(#[source] raft::Error),
}

impl Recovery {
    pub(crate) fn begin(config: ReplicaConfig) -> Result<Self, RecoveryError> {
        config.validate()?;
        let tail = LogTail::new(config.applied, config.applied_epoch.get(), config.keep_bytes());
        let handed_out = config.applied;
        let hard_state = HardState::default();
        let members = config.members.clone();
        let (seeded, base_known, begun_behind, changed_at, promoted) = (false, true, 0, 0, None);
        Ok(Self {
            config,
            tail,
            seeded,
            base_known,
            hard_state,
            handed_out,
            begun_behind,
            members,
            changed_at,
            promoted,
        })
    }

    /// Takes the next journal batch and returns, in order, the entries that are now known to be committed and that the
    /// checkpoint does not cover. Entries without payload are left out.
    ///
    /// Batches from before the checkpoint may be fed, and should be where followers could need them; they are not handed
    /// out again. A batch with no entries brings a hard state alone, as the head of a journal file does.
    ///
    /// # Errors
    /// [`RecoveryError`]: the batches are not what a replica wrote. The recovery must then be dropped.
    /// # Source
    /// P1, P11. Entries above the commit index stay in the log and come out as committed later, or are replaced.
    pub fn handle_batch(&mut self, hard_state: HardState, entries: Vec<Entry>) -> Result<Vec<Entry>, RecoveryError> {
        let before = self.hard_state;
        let second_vote = hard_state.term == before.term && before.vote != 0 && hard_state.vote != before.vote;
        if hard_state.term < before.term || hard_state.commit < before.commit || second_vote {
            return Err(RecoveryError::HardStateWentBack { before, after: hard_state });
        }
        for entry in entries {
            self.append(entry, hard_state.term)?;
        }
        let last = self.tail.last_log_index().max(self.config.applied);
        if hard_state.commit > last {
            return Err(RecoveryError::CommitAhead { commit: hard_state.commit, last });
        }
        if hard_state.commit > self.handed_out && self.tail.base_index() > self.handed_out {
            let (expected, found) = (self.handed_out + 1, self.tail.base_index() + 1);
            return Err(RecoveryError::Gap { expected, found });
        }
        self.hard_state = hard_state;
        if hard_state.commit >= self.config.applied {
            // Before the entry there is forgotten.
            self.meet_checkpoint()?;
        }
        let committed = self.take_committed();
        // Not up to the checkpoint: older entries below it may still be replaced by later batches.
        let base_before = self.tail.base_index();
        self.tail.compact(hard_state.commit);
        self.base_known |= self.tail.base_index() != base_before;
        Ok(committed)
    }

    /// The checkpoint was installed: what the journal holds is older, or no part of the log, unless it says that the log begins
    /// anew behind that checkpoint. Where it does not, what it has to say so is returned: it must be durable before the replica
    /// starts.
    ///
    /// # Errors
    /// [`RecoveryError::HardStateMissing`] if the journal never knew the checkpoint's epoch: it is of another replica.
    pub fn begin_at_checkpoint(&mut self) -> Result<Option<(HardState, Entry)>, RecoveryError> {
        let (log_index, epoch) = (self.config.applied, self.config.applied_epoch);
        if self.begun_behind == log_index {
            return Ok(None);
        }
        let term = self.hard_state.term;
        if term < epoch.get() {
            return Err(RecoveryError::HardStateMissing { last: epoch, term });
        }
        let entry = Entry { log_index, term: epoch.get(), kind: EntryKind::Snapshot, data: bytes::Bytes::new() };
        self.begin_behind(log_index, epoch.get());
        self.hard_state.commit = log_index;
        Ok(Some((self.hard_state, entry)))
    }

    /// Ends the recovery: everything handed out counts as applied. A single voter stands for election at once.
    ///
    /// # Errors
    /// [`RecoveryError`]: journal and checkpoint do not fit together. The replica must not start.
    /// # Source
    /// P1, P10, P11; failure rule 4: an empty log where a checkpoint was is refused, not trusted.
    pub fn finish(mut self) -> Result<Replica, RecoveryError> {
        let applied = self.config.applied;
        let last = self.tail.last_log_index();
        if last < applied {
            return Err(RecoveryError::EndsBeforeCheckpoint { applied, last });
        }
        self.find_base()?;
        self.meet_checkpoint()?;
        let HardState { term, vote, commit } = self.hard_state;
        if term < self.tail.last_term() {
            return Err(RecoveryError::HardStateMissing { last: Epoch::new(self.tail.last_term()), term });
        }
        // The checkpoint proves as committed what the last hard state had not yet recorded.
        let hard_state = HardState { term, vote, commit: commit.max(applied) };
        self.tail.compact(self.handed_out);
        self.tail.check();
        let (changed_at, promoted) = (self.changed_at, self.promoted);
        let started = Started { hard_state, applied: self.handed_out, members: self.members, changed_at, promoted };
        Replica::start(&self.config, self.tail, started).map_err(RecoveryError::Library)
    }

    /// The members, by the checkpoint and what was handed out since.
    #[must_use]
    pub const fn members(&self) -> &Membership {
        &self.members
    }

    fn append(&mut self, entry: Entry, batch_term: u64) -> Result<(), RecoveryError> {
        let Entry { log_index, term, kind, .. } = entry;
        if kind == EntryKind::Snapshot {
            return self.snapshot(log_index, term, batch_term);
        }
        if kind == EntryKind::ConfChange && entry.change().is_none() {
            return Err(RecoveryError::MembershipChange { log_index });
        }
        if log_index == 0 || log_index == u64::MAX {
            // Neither can be an entry: the first is 1, and each must have room for a next.
            return Err(RecoveryError::Gap { expected: self.tail.last_log_index() + 1, found: log_index });
        }
        if log_index <= self.hard_state.commit {
            return Err(RecoveryError::OverwritesCommitted { log_index });
        }
        if !self.seeded || log_index <= self.tail.base_index() {
            self.seed(log_index)?;
        }
        let last = self.tail.last_log_index();
        if log_index > last + 1 {
            return Err(RecoveryError::Gap { expected: last + 1, found: log_index });
        }
        let previous_term = self.tail.term_at(log_index - 1).unwrap_or(0);
        if term == 0 || term < previous_term || term > batch_term {
            return Err(RecoveryError::Term { log_index, term });
        }
        self.tail.append(entry.into_raft());
        Ok(())
    }

    /// The log begins anew behind an entry that a checkpoint holds.
    fn snapshot(&mut self, log_index: u64, term: u64, batch_term: u64) -> Result<(), RecoveryError> {
        if log_index > self.config.applied {
            // The checkpoint that held the log up to there is gone.
            return Err(RecoveryError::Gap { expected: self.config.applied + 1, found: log_index });
        }
        if log_index <= self.hard_state.commit {
            return Err(RecoveryError::OverwritesCommitted { log_index });
        }
        if term == 0 || term > batch_term {
            return Err(RecoveryError::Term { log_index, term });
        }
        self.begin_behind(log_index, term);
        Ok(())
    }

    fn begin_behind(&mut self, log_index: u64, term: u64) {
        self.tail.begin_behind(log_index, term);
        (self.seeded, self.base_known, self.begun_behind) = (true, true, log_index);
    }

    /// Begins the log at this entry: it is the first one, or it replaces all that was fed.
    ///
    /// Nothing is concluded from where it lies: it may be of a suffix that a later batch replaces from below the
    /// checkpoint on. What remains in the end has to meet the checkpoint.
    fn seed(&mut self, log_index: u64) -> Result<(), RecoveryError> {
        if self.seeded && self.base_known {
            return Err(RecoveryError::OverwritesCommitted { log_index });
        }
        let base = log_index - 1;
        self.tail = LogTail::new(base, 0, self.config.keep_bytes());
        self.base_known = base == 0;
        self.seeded = true;
        Ok(())
    }

    /// Finds the term of the entry before the log, which a journal that begins in the middle does not tell.
    fn find_base(&mut self) -> Result<(), RecoveryError> {
        let (applied, epoch) = (self.config.applied, self.config.applied_epoch);
        let base = self.tail.base_index();
        if self.base_known {
            return Ok(());
        }
        if base > applied {
            return Err(RecoveryError::Gap { expected: applied + 1, found: base + 1 });
        }
        if base == applied {
            let first = self.tail.term_at(base + 1).unwrap_or(epoch.get());
            if first < epoch.get() {
                return Err(RecoveryError::Term { log_index: base + 1, term: first });
            }
            self.tail.set_base_term(epoch.get());
        } else {
            // The first entry is at or below the checkpoint: its term serves, and nothing else of it is needed.
            self.tail.forget_first();
        }
        self.base_known = true;
        Ok(())
    }

    /// The entry at the checkpoint, where the log has it, is the one the checkpoint was made with.
    fn meet_checkpoint(&self) -> Result<(), RecoveryError> {
        let (applied, expected) = (self.config.applied, self.config.applied_epoch);
        let is_base = self.base_known && self.tail.base_index() == applied;
        let found = if is_base { self.tail.term_at(applied) } else { self.tail.get(applied).map(|entry| entry.term) };
        match found.map(Epoch::new) {
            Some(found) if found != expected => Err(RecoveryError::NotTheCheckpoint { applied, expected, found }),
            Some(_) | None => Ok(()),
        }
    }

    fn take_committed(&mut self) -> Vec<Entry> {
        let from = self.handed_out + 1;
        self.handed_out = self.handed_out.max(self.hard_state.commit);
        let entries = (from..=self.handed_out).map(|log_index| {
            self.tail.get(log_index).expect("the commit index was checked against the end of the log")
        });
        let entries: Vec<Entry> = entries.map(Entry::from_raft).filter(Entry::has_payload).collect();
        for (log_index, change) in entries.iter().filter_map(|entry| Some((entry.log_index, entry.change()?))) {
            self.members.apply(change);
            (self.changed_at, self.promoted) = (log_index, change.promotes());
        }
        entries
    }
}

#[cfg(test)]
mod tests;
