//! What orders things: sequences, commit indexes, epochs, delivery numbers.

use crate::numbers::{number, step};

number! {
    /// A message's place in its partition. The first is 1; 0 means "none".
    Seq(u64)
}
step!(Seq(u64));

impl Seq {
    /// The sequence of a partition's first message.
    pub const FIRST: Self = Self::new(1);
}

number! {
    /// The number of an applied command of a shard. Each command gets the next one, so no two share one.
    ///
    /// Every answer carries the index it rests on; 0 means that nothing was looked up.
    CommitIndex(u64)
}
step!(CommitIndex(u64));

number! {
    /// The leader's term, called `leader_epoch` on the wire. It never goes back (P10).
    Epoch(u64)
}

number! {
    /// Names one delivery attempt: one counter per shard, growing, never reused (P10). 0 means "none".
    DeliveryId(u64)
}
step!(DeliveryId(u64));

number! {
    /// Which try of a message on a path this is; the first is 1. Releases do not count.
    Attempt(u32)
}
step!(Attempt(u32));

impl Attempt {
    /// The first attempt.
    pub const FIRST: Self = Self::new(1);
}

number! {
    /// A producer's own number for a publish, 1, 2, 3 …; 0 means "not idempotent".
    ProducerSeq(u64)
}
step!(ProducerSeq(u64));

/// The shard position an answer rests on: evidence that lets clients and checkers order events without clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The leader's term when the answer was given.
    pub epoch: Epoch,
    /// The last command the answer rests on.
    pub commit_index: CommitIndex,
}
