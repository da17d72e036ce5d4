//! What a replica asks of its driver.

use mortarmq_types::Epoch;

use crate::entry::{Entry, HardState};
use crate::peer_message::PeerMessage;

/// One thing for the driver to do or to know, in the order in which it was decided.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Write and fsync, in order; then call [`crate::Replica::handle_persisted`] with the number. Several may share one
    /// write and one fsync: report the highest.
    ///
    /// # Durability
    /// Entries first, hard state after them, in one batch: a commit index never gets to disk before the entries it
    /// speaks of. An entry whose log index was written before replaces that one and all that followed it.
    /// # Source
    /// P1; failure rule 1.
    Append {
        /// Names this append in `handle_persisted`.
        ready_number: u64,
        /// The hard state from now on.
        hard_state: HardState,
        /// The entries, contiguous; possibly none, when only vote or term changed.
        entries: Vec<Entry>,
    },
    /// Apply these, then call [`crate::Replica::handle_applied`] with the last one's log index. Never empty, and
    /// entries without payload are left out.
    Committed {
        /// Committed entries in log order, each exactly once in the life of a process.
        entries: Vec<Entry>,
    },
    /// Send to a peer, now. What promises durable state comes out only once that state is persisted.
    Send {
        /// The receiver's Raft id.
        to: u64,
        /// The message.
        message: PeerMessage,
    },
    /// A read requested by [`crate::Replica::request_read`] may be answered from the state as it is: everything up to
    /// `log_index` was reported as applied before this comes out.
    ReadReady {
        /// The token of the request.
        token: u64,
        /// The log index that was committed when the majority confirmed the leader.
        log_index: u64,
    },
    /// The leader, the epoch or this replica's office changed. The epoch is durable here (P10), so it never goes back,
    /// not even across a restart.
    ///
    /// When the office ended, nothing tells the proposals apart that will be committed from those that will not: they
    /// are answered `unknown` (failure rule 6). Reads asked for before this that have not come out as ready are lost,
    /// unless only the name of the leader became known.
    Role {
        /// The leader of the epoch, if known.
        leader: Option<u64>,
        /// The epoch.
        epoch: Epoch,
        /// Whether this replica is that leader.
        is_leader: bool,
    },
}
