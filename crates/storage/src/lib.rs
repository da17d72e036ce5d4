//! Journal, segments, ledger files and checkpoints; all I/O goes through a [`Disk`].
//!
//! This crate keeps bytes and gives them back, or says with file and offset why it cannot (P11). It knows nothing of
//! what the bytes mean: entries, records, ledger payloads and images are opaque.
//!
//! How it is driven: lock the data directory ([`DirectoryLock`]), open the [`Reserve`], read the directory's [`Identity`]
//! or write one, [`load_checkpoint`], open a [`SegmentWriter`] and `restore` it (without a checkpoint, `reset` it), then
//! [`Journal::recover`], whose callback rebuilds the segments batch by batch from the checkpoint on. From then on one
//! thread owns the [`Journal`] (the only thing fsynced on the hot path), one owns the [`SegmentWriter`], and any number
//! hold a clone of the [`SegmentReader`]. Once [`SegmentWriter::checkpoint`] has returned, [`Journal::release`] may free
//! the files below it.
//!
//! A [`Staging`] brings a data directory to another node's checkpoint; a start asks [`resume_install`] before it loads its own.
//!
//! [`verify()`] reads a data directory that no node uses and names what is damaged; a [`Scrub`] does so bit by bit while
//! a node uses it.
//!
//! Start reading at [`disk`] (what a disk promises, and the one that loses power on command), then
//! `journal/layout.rs` (the bytes), `journal/recover.rs` (torn or rotten), [`segment`] and [`checkpoint`].

pub mod checkpoint;
pub mod disk;
mod identity;
pub mod journal;
mod ledger;
mod repairing;
mod reserve;
mod scrub;
pub mod segment;
mod staging;
mod stretch;
mod verify;

pub use checkpoint::{
    CheckpointError, CheckpointFile, CheckpointFiles, CheckpointMeta, CheckpointWritten, LoadedCheckpoint,
    load_checkpoint,
};
pub use disk::{DirectoryLock, LockError};
pub use disk::{Disk, DiskFile, MemoryDisk, PowerLossOutcomes, RealDisk};
pub use identity::{Identity, IdentityError, IdentityState, has_data};
pub use journal::{
    Clock, Covered, HardState, Journal, JournalBatch, JournalEntry, JournalError, JournalOptions, RecoverStop,
    Recovered, Released, TornTail,
};
pub use ledger::LedgerRecord;
pub use repairing::{Repairing, RepairingError};
pub use reserve::{Reserve, ReserveOptions};
pub use scrub::{PassDone, Scrub, ScrubStep};
pub use segment::{
    AppendError, FlushError, FolderError, IndexEntry, ReadError, RepairError, RepairOutcome, SegmentOptions,
    SegmentReader, SegmentRecord, SegmentWriter, StoredRecord,
};
pub use staging::{Staging, StagingError, StagingStep, finish_install, resume_install};
pub use stretch::Stretch;
pub use verify::{Finding, FindingAt, Summary, VerifyError, verify};
