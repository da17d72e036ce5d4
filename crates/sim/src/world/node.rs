//! A node of the world: its disk and clock, which outlive it, and the process, which does not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use mortarmq_node::drive::{JournalKeeper, Room, SegmentKeeper, Turns, Waiting};
use mortarmq_node::{DiskState, Node, Now, ReadJob};
use mortarmq_shard::Image;
use mortarmq_storage::{CheckpointMeta, Identity, JournalBatch, MemoryDisk, Scrub, SegmentReader};
use mortarmq_types::{CommitIndex, MonotonicTime, Position, WallTime};

use super::event::Input;
use super::promises::Promises;
use super::rot::Damage;
use crate::plan::{Fault, FaultKind, Site};

/// A machine with a disk, and perhaps a node on it.
pub(crate) struct Machine {
    pub(crate) disk: MemoryDisk,
    pub(crate) clock: MachineClock,
    pub(crate) process: Option<Process>,
    /// Counts processes: what an earlier one began is nothing to a later.
    pub(crate) life: u64,
    /// How often each thing was begun.
    pub(crate) sites: BTreeMap<Site, u64>,
    /// Faults that wait for such a beginning.
    pub(crate) faults: Vec<Fault>,
    /// The fault that strikes at a coming operation of the disk.
    pub(crate) armed: Option<Armed>,
    /// How long a sync takes while it is slow.
    pub(crate) slow_sync_us: Option<u64>,
    /// Since when there is no process.
    pub(crate) down_since_us: Option<u64>,
    /// How long there was none before.
    pub(crate) down_us: u64,
    /// Until when the process stands still.
    pub(crate) paused_until_us: u64,
    /// Until when it may be slow, because the disk was full or slow or the process stood still.
    pub(crate) troubled_until_us: u64,
    /// The highest position that anybody was told.
    pub(crate) told: Position,
    /// The highest commit index of them, whatever the epoch.
    pub(crate) told_commit: CommitIndex,
    /// What it promised to the others.
    pub(crate) promises: Promises,
    /// Whether nothing fails any more.
    pub(crate) is_healed: bool,
    /// The life in which a snapshot was begun that is not installed yet.
    pub(crate) fetches_in: Option<u64>,
    /// Whether the disk is full on purpose.
    pub(crate) is_full: bool,
    /// Whether its data is gone, and it is none of the cluster yet.
    pub(crate) is_wiped: bool,
    /// Whether it votes, as far as is known.
    pub(crate) counts: bool,
    /// What rotted and may still matter.
    pub(crate) damages: Vec<Damage>,
    /// Folders of files that rotted at any time.
    pub(crate) rotten_dirs: BTreeSet<PathBuf>,
    /// The disk as it was some time before, if files are to become what they were.
    pub(crate) former: Option<MemoryDisk>,
}

/// A fault that strikes at an operation of the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Armed {
    pub(crate) operation: u64,
    pub(crate) kind: FaultKind,
    pub(crate) site: Site,
}

/// The clocks of a machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachineClock {
    pub(crate) boot: u8,
    pub(crate) boot_ms: u64,
    pub(crate) booted_at_us: u64,
    pub(crate) slow_ppm: u64,
    /// What the wall clock shows at time 0 of the world.
    pub(crate) wall_base_ms: u64,
}

impl MachineClock {
    pub(crate) fn now(&self, now_us: u64) -> Now {
        let passed_us = u128::from(now_us - self.booted_at_us) * u128::from(1_000_000 - self.slow_ppm) / 1_000_000;
        let passed_ms = u64::try_from(passed_us / 1000).expect("far below the end of time");
        Now {
            monotonic: MonotonicTime::new(self.boot_ms + passed_ms),
            wall: WallTime::new(self.wall_base_ms + now_us / 1000),
        }
    }
}

/// The process of a node: what the server has as threads.
pub(crate) struct Process {
    pub(crate) node: Node,
    pub(crate) journal: JournalKeeper,
    pub(crate) segments: SegmentKeeper,
    pub(crate) reader: SegmentReader,
    pub(crate) room: Arc<Room>,
    pub(crate) room_news: Arc<Mutex<Vec<DiskState>>>,
    pub(crate) inbox: VecDeque<Input>,
    pub(crate) turns: Turns,
    pub(crate) turn_at_us: Option<u64>,
    pub(crate) journal_jobs: VecDeque<JournalJob>,
    pub(crate) journal_state: JournalState,
    pub(crate) segment_jobs: VecDeque<SegmentJob>,
    pub(crate) segments_state: SegmentsState,
    pub(crate) reads: BTreeMap<u64, ReadJob>,
    /// Whether it is asked to stop: nobody may connect any more.
    pub(crate) stopping: Option<Stopping>,
    /// Whether the loop has ended and only the threads behind it go on.
    pub(crate) is_loop_over: bool,
    /// Commands applied when the last turn began.
    pub(crate) turn_began_at: CommitIndex,
    /// Commands applied when everything was last checked.
    pub(crate) checked_at: CommitIndex,
    pub(crate) was_ready: bool,
    /// Whether it led, and its answers rested on its own epoch, after its last turn.
    pub(crate) led: bool,
    pub(crate) scrub: Scrub,
    /// What becomes the identity when something is durable.
    pub(crate) promise: Option<Identity>,
}

/// One thing for the journal to do, as in the server.
pub(crate) enum JournalJob {
    Append { ready_number: u64, batch: JournalBatch },
    Release { log_index: u64, keep_bytes: u64, frees_spares: bool },
}

/// What the journal thread is about.
pub(crate) enum JournalState {
    Idle,
    Busy,
    /// Its first job waits for room, as long as it holds this.
    NoRoom {
        _waiting: Waiting,
    },
}

/// One thing for the segment writer to do, as in the server.
pub(crate) enum SegmentJob {
    Work { ticket: u64, work: Vec<mortarmq_node::SegmentWork> },
    Checkpoint { meta: CheckpointMeta, image: Box<Image>, holds: Option<u64> },
    CatchUp { work: mortarmq_node::CatchUpWork },
}

/// How a process is stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopping {
    pub(crate) down_ms: u64,
    /// Whether the loop was told: its connections are closed, or took too long.
    pub(crate) is_loop_told: bool,
}

/// What the segment writer is about.
pub(crate) enum SegmentsState {
    Idle,
    Busy,
}

impl Machine {
    /// Somebody is told something that rests on a position.
    pub(crate) fn tell(&mut self, position: Position) {
        self.told = self.told.max(position);
        self.told_commit = self.told_commit.max(position.commit_index);
    }

    /// Notes that something begins, and arms a fault that waits for it.
    pub(crate) fn enter(&mut self, site: Site) -> u64 {
        use crate::plan::Anchor;
        let number = self.sites.entry(site).or_insert(0);
        *number += 1;
        let number = *number;
        if self.is_healed || self.armed.is_some() {
            return number;
        }
        let found = self.faults.iter().position(
            |fault| matches!(fault.anchor, Anchor::Nth { site: at, number: nth, .. } if at == site && nth == number),
        );
        if let Some(place) = found {
            let fault = self.faults.remove(place);
            if let Anchor::Nth { operation, .. } = fault.anchor {
                self.arm(fault.kind, operation, site);
            }
        }
        number
    }

    /// Makes an operation of the disk the one that a fault strikes at; `ahead` many are before it.
    pub(crate) fn arm(&mut self, kind: FaultKind, ahead: u64, site: Site) {
        let operation = self.disk.operations() + 1 + ahead;
        match kind {
            FaultKind::Kill { .. } | FaultKind::Power { .. } => self.disk.crash_at(operation),
            FaultKind::IoError { .. } => self.disk.fail_at(operation),
            FaultKind::ShortWrite { bytes, .. } => {
                self.disk.short_write_before_last_sector_at(operation, usize::try_from(bytes).unwrap_or(usize::MAX));
            }
            FaultKind::DiskFull { .. }
            | FaultKind::SlowSync { .. }
            | FaultKind::Pause { .. }
            | FaultKind::ClockJump { .. }
            | FaultKind::Rot { .. }
            | FaultKind::Wipe { .. }
            | FaultKind::Cut { .. }
            | FaultKind::HandOver
            | FaultKind::Stop { .. } => return,
        }
        self.armed = Some(Armed { operation, kind, site });
    }

    /// The armed fault, if it has struck.
    pub(crate) fn struck(&self) -> Option<Armed> {
        self.armed.filter(|armed| self.disk.operations() >= armed.operation)
    }
}
