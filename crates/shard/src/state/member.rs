//! A member of a path, and the pull that it was given something by last.

use crate::command::Grant;
use mortarmq_types::Position;
use std::cmp::Ordering;

/// One consumer's session on a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Hash of the secret by which it can resume.
    pub secret_hash: u64,
    /// Messages it holds by pushes.
    pub held_messages: u32,
    /// Bytes it holds by pushes.
    pub held_bytes: u64,
    /// The last of its pulls that leased something.
    pub pulled: Option<Pulled>,
}

/// A pull that leased something. A member has one at most, however many it pulls, and it goes with the member: so they take
/// 32 bytes a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// The node that took the pull, in its life of then.
    pub node_incarnation: u64,
    /// The pull's number on that node.
    pub pull_id: u64,
    /// The command that served it: its leases carry that.
    pub granted_at: Position,
}

/// What a `Deliver` is to the member that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// Something new.
    New,
    /// The last pull again: it gets what that leased.
    Again(Position),
    /// A pull before the last again: it gets nothing, least of all something new.
    Stale,
}

impl Member {
    /// What this grant asks for. The numbers of one node rise; another node's, or those of another life, are new.
    pub(crate) fn asks(&self, grant: &Grant) -> Asks {
        let Grant::Pull { node_incarnation, pull_id, .. } = *grant else { return Asks::New };
        let Some(last) = self.pulled.filter(|last| last.node_incarnation == node_incarnation) else { return Asks::New };
        match pull_id.cmp(&last.pull_id) {
            Ordering::Less => Asks::Stale,
            Ordering::Equal => Asks::Again(last.granted_at),
            Ordering::Greater => Asks::New,
        }
    }
}
