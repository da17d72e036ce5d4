//! What a replica is told at its start: who it is, who belongs to its group, what is applied, and its limits.

use mortarmq_types::Epoch;
use thiserror::Error;

use crate::election::{ELECTION_TICKS, HEARTBEAT_TICKS, MAX_ELECTION_TICKS};
use crate::membership::Membership;

/// Who a replica is and where it stands when it is recovered.
#[derive(Clone, Debug)]
pub struct ReplicaConfig {
    /// This replica's Raft id, made of node id and incarnation; never 0.
    pub id: u64,
    /// The members at `applied`, this one among them.
    pub members: Membership,
    /// This node's place in the configured `peers`, from 0; it sets the election time-out.
    pub place: usize,
    /// How many peers are configured, whether all of them vote or not.
    pub places: usize,
    /// The log index up to which the recovered checkpoint is applied; 0 without a checkpoint.
    pub applied: u64,
    /// The epoch of the entry at `applied`; zero without a checkpoint. It is what ties the journal to the checkpoint when
    /// the journal no longer holds that entry.
    pub applied_epoch: Epoch,
    /// Memory and message limits.
    pub limits: Limits,
}

/// The bounds on what a replica holds and sends.
///
/// # Units
/// Bytes of entry payload, unless the name says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Applied entries kept in memory for followers that lag. A single voter has none and keeps nothing.
    pub keep_bytes: u64,
    /// Entries in one append message; one entry may exceed it.
    pub message_bytes: u64,
    /// Append messages on their way to one follower.
    pub inflight_messages: usize,
    /// Proposed and not yet committed; beyond it proposals are dropped, which is the back-pressure.
    pub uncommitted_bytes: u64,
    /// Handed out in one [`crate::Output::Committed`]; one entry may exceed it.
    pub committed_bytes: u64,
    /// Received from a leader and not yet persisted; beyond it appends are ignored as if the network had lost them, so
    /// that a hanging disk costs no memory without end.
    pub unsynced_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            keep_bytes: 64 * MIB,
            message_bytes: MIB,
            inflight_messages: 256,
            uncommitted_bytes: 64 * MIB,
            committed_bytes: 16 * MIB,
            unsynced_bytes: 64 * MIB,
        }
    }
}

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// Id 0 means "nobody" to the library.
    #[error("a replica's id is never 0")]
    ZeroId,
    /// The replica is no member: it must neither vote nor acknowledge (failure rule 4).
    #[error("replica {id} is not among the members {members:?}")]
    NotAMember {
        /// This replica.
        id: u64,
        /// The members as given.
        members: Vec<u64>,
    },
    /// Two members have one id.
    #[error("member {id} is named twice")]
    DuplicateMember {
        /// The repeated id.
        id: u64,
    },
    /// The place is none of those that are configured: two nodes could share an election time-out.
    #[error("place {place} lies outside the {places} places")]
    PlaceOutside {
        /// The place as given.
        place: usize,
        /// How many there are.
        places: usize,
    },
    /// An applied index without its epoch, or the other way round.
    #[error("applied log index {applied} does not go with epoch {applied_epoch}")]
    AppliedWithoutEpoch {
        /// The applied log index as given.
        applied: u64,
        /// The epoch as given.
        applied_epoch: Epoch,
    },
    /// The library refuses the limits.
    #[error("limits: {reason}")]
    Limits {
        /// The library's words.
        reason: String,
    },
}

impl ReplicaConfig {
    /// A replica with nothing applied and the default limits.
    #[must_use]
    pub fn new(id: u64, voters: Vec<u64>, place: usize) -> Self {
        let places = voters.len();
        let members = Membership::new(voters, Vec::new());
        Self { id, members, place, places, applied: 0, applied_epoch: Epoch::ZERO, limits: Limits::default() }
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let fault = self.members.find_fault();
        if self.id == 0 || fault == Some(0) {
            return Err(ConfigError::ZeroId);
        }
        if self.members.role(self.id).is_none() {
            return Err(ConfigError::NotAMember { id: self.id, members: self.members.ids().collect() });
        }
        if let Some(id) = fault {
            return Err(ConfigError::DuplicateMember { id });
        }
        if self.place >= self.places {
            return Err(ConfigError::PlaceOutside { place: self.place, places: self.places });
        }
        if (self.applied == 0) != (self.applied_epoch == Epoch::ZERO) {
            let (applied, applied_epoch) = (self.applied, self.applied_epoch);
            return Err(ConfigError::AppliedWithoutEpoch { applied, applied_epoch });
        }
        self.raft_config(0).validate().map_err(|error| ConfigError::Limits { reason: error.to_string() })
    }

    /// The library's configuration: its defaults that are unsafe or unbounded are all replaced here.
    pub(crate) fn raft_config(&self, applied: u64) -> raft::Config {
        raft::Config {
            id: self.id,
            election_tick: ELECTION_TICKS,
            min_election_tick: ELECTION_TICKS,
            max_election_tick: MAX_ELECTION_TICKS,
            heartbeat_tick: HEARTBEAT_TICKS,
            applied,
            max_size_per_msg: self.limits.message_bytes,
            max_inflight_msgs: self.limits.inflight_messages,
            max_uncommitted_size: self.limits.uncommitted_bytes,
            max_committed_size_per_ready: self.limits.committed_bytes,
            pre_vote: true,
            check_quorum: true,
            read_only_option: raft::ReadOnlyOption::Safe,
            ..raft::Config::default()
        }
    }

    /// Bytes of applied entries to keep: a single voter has no follower to keep them for.
    pub(crate) fn keep_bytes(&self) -> u64 {
        if self.is_alone() { 0 } else { self.limits.keep_bytes }
    }

    /// Whether there is no other member, and none will come.
    pub(crate) const fn is_alone(&self) -> bool {
        self.places == 1
    }
}

const MIB: u64 = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::{ConfigError, Epoch, ReplicaConfig};

    #[test]
    fn a_configuration_that_could_vote_wrongly_is_refused() {
        assert_eq!(ReplicaConfig::new(0, vec![0], 0).validate(), Err(ConfigError::ZeroId));
        assert_eq!(
            ReplicaConfig::new(4, vec![1, 2, 3], 0).validate(),
            Err(ConfigError::NotAMember { id: 4, members: vec![1, 2, 3] })
        );
        assert_eq!(ReplicaConfig::new(1, vec![1, 2, 1], 0).validate(), Err(ConfigError::DuplicateMember { id: 1 }));
        assert_eq!(
            ReplicaConfig::new(1, vec![1, 2, 3], 3).validate(),
            Err(ConfigError::PlaceOutside { place: 3, places: 3 })
        );
        let mut config = ReplicaConfig::new(1, vec![1], 0);
        config.applied = 5;
        assert_eq!(config.validate(), Err(ConfigError::AppliedWithoutEpoch { applied: 5, applied_epoch: Epoch::ZERO }));
        config.applied_epoch = Epoch::new(2);
        assert_eq!(config.validate(), Ok(()));
        config.limits.inflight_messages = 0;
        assert!(matches!(config.validate(), Err(ConfigError::Limits { .. })));
    }
}
