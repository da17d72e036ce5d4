//! Changes of the members: how one gets into the log, and when it is known to all.
//!
//! The library uses changed members from when the change is *applied*, and knows of one change at a time. So a majority of the old members
//! may have committed a change of which the others that would elect somebody do not know yet that it is. Before they do, a leader whose disk
//! is lost may leave nobody who can be elected; [`Replica::is_change_known`] says from when on that is over.

use raft::eraftpb::{self, ConfChangeV2, EntryType};
use thiserror::Error;

use super::{ProposeError, Proposed, Replica};
use crate::membership::{Change, MemberRole, Membership};

/// Why a change of members did not enter the log: nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChangeError {
    /// It is no proposal that this log takes now.
    #[error(transparent)]
    Propose(#[from] ProposeError),
    /// A change before it is not applied yet, or may be in the log.
    #[error("another change of members is under way")]
    UnderWay,
    /// The membership is not the one that it would change.
    #[error("the members are not those that this would change")]
    Members,
}

impl Replica {
    /// Puts a change of members into the log if this replica is the leader. It takes effect on each member when that applies it.
    ///
    /// # Durability
    /// As of [`Replica::propose`].
    /// # Errors
    /// [`ChangeError`]: it did not enter the log and never will.
    pub fn propose_change(&mut self, change: Change) -> Result<Proposed, ChangeError> {
        if !self.is_leader() {
            return Err(ProposeError::NotLeader { leader: self.leader() }.into());
        }
        if !self.takes_change() {
            return Err(ChangeError::UnderWay);
        }
        let fits = match change {
            Change::Replace { old, new } => {
                old != self.id() && self.members.role(old).is_some() && old < new && self.members.may_speak(new)
            }
            Change::Promote { id } => self.members.role(id) == Some(MemberRole::Learner),
        };
        if !fits {
            return Err(ChangeError::Members);
        }
        let mut entry = eraftpb::Entry { data: change.encode(), ..eraftpb::Entry::default() };
        entry.set_entry_type(EntryType::EntryConfChangeV2);
        self.propose_entry(entry).map_err(ChangeError::from)
    }

    /// Whether a change could enter the log: the last one, and what a leader found in its log, is applied.
    #[must_use]
    pub fn takes_change(&self) -> bool {
        self.is_leader() && !self.raw.raft.has_pending_conf()
    }

    /// The members, as far as the log is applied here.
    #[must_use]
    pub const fn members(&self) -> &Membership {
        &self.members
    }

    /// The last applied entry that changed the members; 0 if that was before what this process has seen.
    #[must_use]
    pub const fn changed_at(&self) -> u64 {
        self.changed_at
    }

    /// Who became a voter by the last change, if anybody did and this process has seen it.
    #[must_use]
    pub const fn promoted(&self) -> Option<u64> {
        self.promoted
    }

    /// Whether every other voter has durably what says that the last change is committed: from then on whoever of them are a majority
    /// can elect one of them, and go by the new members. Only its leader knows.
    #[must_use]
    pub fn is_change_known(&self) -> bool {
        let mut others = self.members.voters().iter().filter(|id| **id != self.id());
        self.is_leader() && others.all(|id| self.matched(*id) >= self.told_from)
    }

    /// Whether, without one of them, a majority of the other voters was heard lately and can acknowledge.
    #[must_use]
    pub fn has_majority_without(&self, id: u64, within_ticks: u64) -> bool {
        let voters = self.members.voters().iter().filter(|voter| **voter != id);
        let is_heard = |voter: &&u64| {
            let silent = self.handover.silent_ticks(**voter, self.tick);
            **voter == self.id() || (silent.is_some_and(|ticks| ticks < within_ticks) && !self.needs_files(**voter))
        };
        voters.clone().filter(is_heard).count() >= raft::majority(voters.count())
    }

    /// Whether no other member is there, or will be.
    pub(super) const fn is_alone(&self) -> bool {
        self.places == 1
    }

    /// Everything up to an entry is applied: so are the changes among it. The library is told before it hears that they are applied.
    pub(super) fn apply_changes(&mut self, applied: u64) {
        while let Some((log_index, change)) = self.changes.pop_front_if(|(log_index, _)| *log_index <= applied) {
            let before = self.members.clone();
            self.members.apply(change);
            for single in before.steps_to(&self.members) {
                let step = ConfChangeV2 { changes: vec![single].into(), ..ConfChangeV2::default() };
                let applied = self.raw.apply_conf_change(&step);
                applied.expect("one id at a time, and never the last voter: the others' majority proposed it");
            }
            self.changed_at = log_index;
            self.promoted = change.promotes();
            // What was sent up to here may have been sent before this was known to be committed.
            self.told_from = self.last_log_index() + 1;
        }
    }

    pub(super) fn check_members(&self) {
        let (of_library, own) = (self.raw.raft.prs().conf().to_conf_state(), self.members.conf_state());
        let sorted = |ids: &[u64]| {
            let mut ids = ids.to_vec();
            ids.sort_unstable();
            ids
        };
        assert_eq!(sorted(&of_library.voters), own.voters, "the library's voters");
        assert_eq!(sorted(&of_library.learners), own.learners, "the library's learners");
        assert!(of_library.voters_outgoing.is_empty(), "no change is joint");
    }
}
