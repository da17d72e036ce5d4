//! What both drivers do with the outputs that go to the disk, one step at a time and through a `Disk`: which thread takes
//! the steps, when, and what of it is logged, is the driver's.
//!
//! Reading order: `identity.rs` (whose data it is), `formation.rs` (how nodes with empty folders become a cluster), `recover.rs` (from a data directory to a node), `rejoin.rs` (from one whose journal has rotted), `journal_keeper.rs` and `segment_keeper.rs` (one batch,
//! one flush, one checkpoint), `room.rs` (who gets what of the reserve when the disk is full), `read.rs`, `turns.rs` (what the loop decides between turns).

mod formation;
mod identity;
mod journal_keeper;
mod read;
mod recover;
mod rejoin;
mod room;
mod segment_keeper;
mod segments;
mod turns;

pub use formation::{Outsider, Standing, Step, Told, data_gone, next_step};
pub use identity::{ForeignData, ask_to_return, claim, claim_as_peer, find_as_peer, next_life, promise};
pub use journal_keeper::JournalKeeper;
pub use read::read;
pub use recover::{DriveOptions, RecoverError, RecoverStage, RecoverWatch, RecoveredNode, recover};
pub use room::{Room, RoomNews, Use, Waiting};
pub use segment_keeper::{Checkpointed, Flushed, PutOff, SegmentKeeper};
pub use segments::{SegmentError, Segments, Stuck, UnreadableCopy};
pub use turns::{SlowReader, Turns};

/// An error with everything it was caused by, in one line.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text.push_str(": ");
        text.push_str(&source.to_string());
        cause = source.source();
    }
    text
}

/// One flush writes about this much at most before it is told, so that memory stays small and readers near.
pub const FLUSH_BYTES: u64 = 8 << 20;
/// As much as a journal file is filled ahead.
pub const STEP_BYTES: u64 = 4 << 20;
