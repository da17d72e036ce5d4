//! What an operator's act did: the answers to purge, seek and delete.

/// Counts of messages over all partitions and groups that were moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovedView {
    /// Messages that are owed once more.
    pub replayed: u64,
    /// Messages that are dropped.
    pub dropped: u64,
    /// Whether the move goes on and will concern more messages than these.
    pub is_partial: bool,
}
