//! The office: who leads, how its holder stands with the others, and how it is given away.

use mortarmq_types::Epoch;
use raft::StateRole;
use thiserror::Error;

use super::{Office, Replica};
use crate::election::ELECTION_TICKS;
use crate::handover::{OfficeStep, OfficeView};
use crate::membership::MemberRole;
use crate::output::Output;

/// How a follower stands, as its leader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follower {
    /// Its Raft id.
    pub id: u64,
    /// Whether it is brought up, and neither votes nor counts.
    pub learns: bool,
    /// The last log index that it has acknowledged in this office; 0 before it acknowledged any.
    pub acknowledged: u64,
    /// The last log index of which it has said in this office that it knows it to be committed.
    pub committed: u64,
    /// How long it said nothing; `None` if it never said anything to this process.
    ///
    /// # Units
    /// Ticks of 50 ms.
    pub silent_ticks: Option<u64>,
    /// What it lacks of the log, of applied entries too; `None` if that is more than is kept in memory for it: no append
    /// can bring it up any more.
    ///
    /// # Units
    /// Bytes.
    pub lag_bytes: Option<u64>,
    /// How many entries of the log it has not acknowledged.
    pub lag_entries: u64,
}

/// Why the office was not given away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HandOverError {
    /// This replica has no office.
    #[error("this replica is not the leader")]
    NotLeader,
    /// The one that was named is no other voter, or no other voter is heard.
    #[error("there is no follower to hand over to")]
    Nobody,
}

impl Replica {
    /// Asks a follower to take over: the one that is named, or of those that are heard the one that has acknowledged most.
    /// Until it has done so, or 500 ms are over, proposals are dropped; the end comes out as [`Output::Role`].
    ///
    /// # Errors
    /// [`HandOverError`]: nothing has changed.
    pub fn hand_over(&mut self, to: Option<u64>) -> Result<u64, HandOverError> {
        if !self.is_leader() {
            return Err(HandOverError::NotLeader);
        }
        let named = to.filter(|id| *id != self.id() && self.members.voters().contains(id));
        let heir = if to.is_some() { named } else { self.handover.heir(&self.office_view()) };
        let heir = heir.ok_or(HandOverError::Nobody)?;
        self.raw.transfer_leader(heir);
        self.after_input();
        Ok(heir)
    }

    /// Whether a follower was asked to take the office, and may still do so.
    #[must_use]
    pub fn is_handing_over(&self) -> bool {
        self.raw.raft.lead_transferee.is_some()
    }

    /// From now on this replica wants no office: it stands for election only where nobody else could be elected, declines what it
    /// is offered, and asks others to take over what it has until one does. It votes and acknowledges as before. A single voter
    /// leads all the same.
    ///
    /// # Source
    /// P12: a process that is being stopped serves no new client, and may take seconds to stop. Were it elected meanwhile,
    /// nobody could write.
    pub fn stand_aside(&mut self) {
        self.stands_aside = !self.is_alone();
        self.decline_office();
        self.after_input();
    }

    /// Gives up a candidacy, or offers the office to whoever could take it soonest.
    pub(super) fn decline_office(&mut self) {
        if !self.stands_aside {
            return;
        }
        match self.raw.raft.state {
            // It asked whether it would be voted for, which binds nobody. The second time that its time-out is over, the others
            // have had theirs too: then it may be the only one that has all that is committed, and nobody leads without it.
            StateRole::PreCandidate if self.leaderless_ticks < ELECTION_TICKS as u64 => {
                let term = self.raw.raft.term;
                self.raw.raft.become_follower(term, raft::INVALID_ID);
            }
            StateRole::Leader if self.raw.raft.lead_transferee.is_none() => {
                let heir = self.handover.heir(&self.office_view());
                heir.into_iter().for_each(|heir| self.raw.transfer_leader(heir));
            }
            StateRole::PreCandidate | StateRole::Candidate | StateRole::Leader | StateRole::Follower => {}
        }
    }

    /// Whether a proposal of so many bytes would enter the log now: the office is not being handed over, and not too much
    /// is uncommitted.
    #[must_use]
    pub fn takes_proposal(&self, bytes: usize) -> bool {
        let raft = &self.raw.raft;
        let uncommitted = raft.uncommitted_size();
        let has_room = uncommitted == 0 || (uncommitted + bytes) as u64 <= self.uncommitted_limit_bytes;
        self.is_leader() && raft.lead_transferee.is_none() && has_room
    }

    /// For how many ticks a majority that could acknowledge what is proposed, this replica among it, was not heard; 0 for a
    /// single voter. A follower that lacks what no append can bring it counts as never heard: it votes, as what it has and
    /// promised is whole, and it answers heartbeats, but it can acknowledge nothing.
    #[must_use]
    pub fn ticks_without_majority(&self) -> u64 {
        let others = self.members.voters().iter().filter(|id| **id != self.id());
        let silent = |id: &u64| {
            let heard = self.handover.silent_ticks(*id, self.tick).filter(|_| !self.needs_files(*id));
            heard.unwrap_or(self.tick)
        };
        let mut silent: Vec<u64> = others.map(silent).collect();
        silent.push(0);
        silent.sort_unstable();
        silent[raft::majority(self.members.voters().len()) - 1]
    }

    /// Whether a majority that was heard within so many ticks and can acknowledge has room on its disks: with this node, or
    /// without it.
    ///
    /// # Source
    /// Failure rule 8: the leader goes by the fullest member of the best majority.
    #[must_use]
    pub fn has_majority_with_room(&self, within_ticks: u64, with_this_node: bool) -> bool {
        let is_heard = |id: u64| self.handover.silent_ticks(id, self.tick).is_some_and(|ticks| ticks < within_ticks);
        let has_room = |id: &&u64| {
            let id = **id;
            if id == self.id() {
                return with_this_node && !self.is_short_of_room;
            }
            is_heard(id) && !self.needs_files(id) && !self.handover.is_short_of_room(id)
        };
        let voters = self.members.voters();
        voters.iter().filter(has_room).count() >= raft::majority(voters.len())
    }

    /// The others, voters first, as this leader sees them; none where there is no office.
    #[must_use]
    pub fn followers(&self) -> Vec<Follower> {
        if !self.is_leader() {
            return Vec::new();
        }
        let follower = |id: u64| {
            let acknowledged = self.matched(id);
            let silent_ticks = self.handover.silent_ticks(id, self.tick);
            // Before it has acknowledged anything, what is sent next says how far it is; and where it has said that it lacks
            // more, that comes from what is forgotten.
            let next = self.raw.raft.prs().get(id).map_or(1, |progress| progress.next_idx);
            let has_until = if acknowledged == 0 { next.saturating_sub(1) } else { acknowledged };
            let lag_bytes = if self.needs_files(id) { None } else { self.raw.store().bytes_above(has_until) };
            let lag_entries = self.raw.raft.raft_log.last_index().saturating_sub(has_until);
            let committed = self.raw.raft.prs().get(id).map_or(0, |progress| progress.committed_index);
            let learns = self.members.role(id) == Some(MemberRole::Learner);
            Follower { id, learns, acknowledged, committed, silent_ticks, lag_bytes, lag_entries }
        };
        self.members.ids().filter(|id| *id != self.id()).map(follower).collect()
    }

    /// Whether a follower lacks what is no longer in memory. That it lacks anything is known to its leader only.
    pub(super) fn needs_files(&self, id: u64) -> bool {
        let raft = &self.raw.raft;
        let next = raft.prs().get(id).map_or(1, |progress| progress.next_idx);
        raft.state == StateRole::Leader && next <= self.raw.store().base_index()
    }

    pub(super) fn present_office(&self) -> Office {
        let raft = &self.raw.raft;
        if raft.term != self.durable_term {
            // A term that a crash could still take back is nobody's business yet.
            return Office { leader: None, epoch: Epoch::new(self.durable_term), is_leader: false };
        }
        let leader = (raft.leader_id != raft::INVALID_ID).then_some(raft.leader_id);
        Office { leader, epoch: Epoch::new(raft.term), is_leader: raft.state == StateRole::Leader }
    }

    pub(super) fn note_office(&mut self) {
        let office = self.present_office();
        if office == self.office {
            return;
        }
        assert!(office.epoch >= self.office.epoch, "P10: epoch {} after {}", office.epoch, self.office.epoch);
        if office.epoch != self.office.epoch || !office.is_leader {
            self.reads.clear();
        }
        if office.is_leader && !self.office.is_leader {
            // What it has sent in this office so far may not say yet what is committed.
            self.told_from = self.last_log_index() + 1;
        }
        self.office = office;
        let Office { leader, epoch, is_leader } = office;
        self.outputs.push_back(Output::Role { leader, epoch, is_leader });
    }

    pub(super) fn give_way_if_the_disk_hangs(&mut self) {
        if self.raw.raft.state != StateRole::Leader || self.is_alone() {
            return;
        }
        let view = self.office_view();
        match self.handover.decide(&view) {
            OfficeStep::Stay => {}
            OfficeStep::HandTo(follower) => self.raw.transfer_leader(follower),
            OfficeStep::StepDown => self.raw.raft.become_follower(view.term, raft::INVALID_ID),
        }
    }

    fn office_view(&self) -> OfficeView {
        let raft = &self.raw.raft;
        let followers = self.members.voters().iter().filter(|id| **id != raft.id);
        OfficeView {
            tick: self.tick,
            oldest_unsynced_tick: self.ready_queue.oldest_tick(),
            term: raft.term,
            last_log_index: raft.raft_log.last_index(),
            transfer_running: raft.lead_transferee.is_some(),
            followers: followers.map(|id| (*id, self.matched(*id))).collect(),
        }
    }

    pub(super) fn matched(&self, id: u64) -> u64 {
        self.raw.raft.prs().get(id).map_or(0, |progress| progress.matched)
    }
}
