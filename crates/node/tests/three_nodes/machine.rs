//! A machine: disk and clock, which outlive the process, and the process, whose threads take one step at a time.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use bytes::BytesMut;
use mortarmq_node::drive::{
    Checkpointed, DriveOptions, Flushed, JournalKeeper, PutOff, RecoverStage, RecoverWatch, Room, SegmentKeeper, chain,
    claim_as_peer, read, recover,
};
use mortarmq_node::{CatchUpDone, CatchUpWork, Node, NodeConfig, Now, Peer, ReadJob, ReadResult, SegmentWork};
use mortarmq_shard::Image;
use mortarmq_storage::{
    CheckpointMeta, Disk, Identity, IdentityState, JournalBatch, JournalOptions, MemoryDisk, SegmentOptions,
    SegmentReader, Stretch,
};
use mortarmq_types::{MonotonicTime, NodeId, ShardId, WallTime};

/// A machine, and what runs on it.
pub(crate) struct Machine {
    pub(crate) disk: MemoryDisk,
    pub(crate) clock: MachineClock,
    pub(crate) process: Option<Process>,
    /// Counts processes: what an earlier one began is nothing to a later.
    pub(crate) life: u64,
    pub(crate) paused_until_us: u64,
    /// How long a sync takes, about.
    pub(crate) sync_us: u64,
    /// Its disk stops at so many operations behind the beginning of a job, once.
    pub(crate) crash: Option<Crash>,
    /// Whether its segment writer stands still.
    pub(crate) holds_segments: bool,
    /// Writes to its journal.
    pub(crate) journal_writes: u64,
    /// Whether its disk may stop anywhere, once.
    pub(crate) crash_anywhere: bool,
    /// Whether its data is gone, and it is none of the cluster yet.
    pub(crate) is_wiped: bool,
}

/// The clocks of a machine: each runs a little differently.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachineClock {
    pub(crate) boot: u8,
    pub(crate) boot_ms: u64,
    pub(crate) booted_at_us: u64,
    pub(crate) slow_ppm: u64,
}

/// The process of a node.
pub(crate) struct Process {
    pub(crate) node: Node,
    pub(crate) journal: JournalKeeper,
    pub(crate) segments: SegmentKeeper,
    pub(crate) reader: SegmentReader,
    pub(crate) journal_jobs: VecDeque<JournalJob>,
    pub(crate) journal_is_busy: bool,
    pub(crate) segment_jobs: VecDeque<SegmentJob>,
    pub(crate) segments_are_busy: bool,
    pub(crate) next_tick: MonotonicTime,
    /// What becomes the identity when something is durable.
    promise: Option<(Identity, Arc<dyn Disk>)>,
}

/// When the disk of a machine stops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crash {
    /// Counts the pieces that are written before; `None`: at the install.
    pub(crate) pieces: Option<u64>,
    /// The operation from there on.
    pub(crate) operation: u64,
    /// Whether the power goes, or only the process dies.
    pub(crate) is_power: bool,
    /// Whether it has begun to count.
    pub(crate) is_armed: bool,
}

impl Crash {
    /// Looks at what the segment writer is about to do.
    fn look(&mut self, disk: &MemoryDisk, job: &SegmentJob) {
        let SegmentJob::CatchUp { work } = job else { return };
        let is_it = match (work, &mut self.pieces) {
            (CatchUpWork::Install | CatchUpWork::Repair { .. }, None) => true,
            (CatchUpWork::Write { .. }, Some(pieces)) => {
                *pieces = pieces.wrapping_sub(1);
                *pieces == u64::MAX
            }
            _ => false,
        };
        if is_it && !self.is_armed {
            self.is_armed = true;
            disk.crash_at(disk.operations() + self.operation);
        }
    }
}

pub(crate) enum JournalJob {
    Append { ready_number: u64, batch: JournalBatch },
    Release { log_index: u64, keep_bytes: u64, frees_spares: bool },
}

pub(crate) enum SegmentJob {
    Work { ticket: u64, work: Vec<SegmentWork> },
    Checkpoint { meta: CheckpointMeta, image: Box<Image>, holds: Option<u64> },
    CatchUp { work: CatchUpWork },
}

/// What a step of a thread tells the loop.
pub(crate) enum Told {
    Journal { ready_number: u64 },
    Segments { ticket: u64 },
    Checkpoint { log_index: u64, bytes: u64 },
    PutOff { log_index: u64 },
    CatchUp { done: CatchUpDone },
    Damaged { stretch: Stretch, is_waited_for: bool },
    Read { ticket: u64, result: ReadResult },
}

/// How nodes are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeOptions {
    pub(crate) nodes: usize,
    pub(crate) checkpoint_after_bytes: u64,
    pub(crate) recent_bytes: u64,
    pub(crate) publish_timeout_ms: u64,
    pub(crate) peer_lag_bytes: u64,
    pub(crate) unwritten_bytes_max: u64,
    pub(crate) journal_keep_bytes: u64,
}

impl MachineClock {
    pub(crate) fn now(&self, now_us: u64) -> Now {
        let passed_us = u128::from(now_us - self.booted_at_us) * u128::from(1_000_000 - self.slow_ppm) / 1_000_000;
        let passed_ms = u64::try_from(passed_us / 1000).expect("far below the end of time");
        Now {
            monotonic: MonotonicTime::new(self.boot_ms + passed_ms),
            wall: WallTime::new(1_700_000_000_000 + now_us / 1000),
        }
    }
}

impl Machine {
    pub(crate) fn new(node: usize) -> Self {
        let place = u64::try_from(node).expect("few");
        let boot = u8::try_from(node + 1).expect("few");
        let clock = MachineClock { boot, boot_ms: 1_000_000 * (place + 1), booted_at_us: 0, slow_ppm: 50 * place };
        Self {
            disk: MemoryDisk::new(),
            clock,
            process: None,
            life: 0,
            paused_until_us: 0,
            sync_us: 300,
            crash: None,
            holds_segments: false,
            journal_writes: 0,
            is_wiped: false,
            crash_anywhere: false,
        }
    }

    /// Starts the node, as a server does: whose data it is, the room, the recovery.
    pub(crate) fn start(&mut self, node: usize, now_us: u64, options: NodeOptions) -> Result<(), String> {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let data_dir = Path::new(DATA_DIR);
        let ids: Vec<NodeId> = (0..options.nodes).map(node_id).collect();
        let identity = claim_as_peer(&*disk, data_dir, node_id(node), &ids, CLUSTER).map_err(|error| chain(&error))?;
        assert_ne!(identity.state, IdentityState::Asks, "rule 4: it was not admitted");
        let room = Room::open(Arc::clone(&disk), data_dir, 4 << 20, 1 << 20, |_| {});
        let room = Arc::new(room.map_err(|error| format!("the reserve: {error}"))?);
        let mut config = NodeConfig::new(node_id(node), [self.clock.boot; 16], self.life * 100 + node as u64);
        config.data_incarnation = identity.incarnation;
        config.peers = ids.iter().map(|id| Peer { node_id: *id, data_incarnation: 1 }).collect();
        config.checkpoint_after_bytes = options.checkpoint_after_bytes;
        config.recent_bytes = options.recent_bytes;
        config.publish_timeout_ms = options.publish_timeout_ms;
        config.peer_lag_bytes = options.peer_lag_bytes;
        config.unwritten_bytes_max = options.unwritten_bytes_max;
        config.journal_keep_bytes = options.journal_keep_bytes;
        config.initial.segment_max_bytes = 1 << 16;
        let journal = JournalOptions {
            file_bytes: 1 << 20,
            zero_step_bytes: 1 << 18,
            spare_files: 1,
            ..JournalOptions::new(ShardId::ZERO)
        };
        let segments = SegmentOptions { push_bytes: 1 << 16, ..SegmentOptions::default() };
        let mut watch = Watch(self.clock.now(now_us));
        let options = DriveOptions { journal, segments };
        let made = recover(&disk, data_dir, config, options, &room, &mut watch).map_err(|error| chain(&error))?;
        let keeper = SegmentKeeper::new(made.segments, made.unwritten, Arc::clone(&room));
        self.process = Some(Process {
            reader: keeper.reader(),
            node: made.node,
            journal: JournalKeeper::new(made.journal, room),
            segments: keeper,
            journal_jobs: VecDeque::new(),
            journal_is_busy: false,
            segment_jobs: VecDeque::new(),
            segments_are_busy: false,
            next_tick: MonotonicTime::ZERO,
            promise: (identity.state == IdentityState::Promise).then_some((identity, disk)),
        });
        Ok(())
    }

    /// The process dies; what it wrote stays.
    pub(crate) fn kill(&mut self) {
        self.process = None;
        self.life += 1;
        self.disk = self.disk.after_process_kill();
    }

    /// The power goes: what was not synced may be gone, and the clock begins anew.
    pub(crate) fn lose_power(&mut self, seed: u64, now_us: u64) {
        self.process = None;
        self.life += 1;
        self.disk = self.disk.after_power_loss(seed);
        let boot = self.clock.boot.wrapping_add(16);
        self.clock = MachineClock { boot, boot_ms: 1000, booted_at_us: now_us, ..self.clock };
    }
}

impl Process {
    /// The journal thread carries out its next job.
    pub(crate) fn journal_step(&mut self) -> Result<Option<Told>, String> {
        match self.journal_jobs.pop_front() {
            None => Ok(None),
            Some(JournalJob::Append { ready_number, batch }) => {
                let full = self.journal.append(&batch).map_err(|error| chain(&error))?;
                assert!(full.is_none(), "these disks have room");
                if let Some((mut identity, disk)) = self.promise.take() {
                    identity.fulfil(&*disk, Path::new(DATA_DIR)).map_err(|error| chain(&error))?;
                }
                Ok(Some(Told::Journal { ready_number }))
            }
            Some(JournalJob::Release { log_index, keep_bytes, frees_spares }) => {
                self.journal.release(log_index, keep_bytes, frees_spares).map_err(|error| chain(&error))?;
                Ok(None)
            }
        }
    }

    /// The segment thread carries out all that it has.
    pub(crate) fn segment_step(&mut self, disk: &MemoryDisk, crash: &mut Option<Crash>) -> Result<Vec<Told>, String> {
        let mut told = Vec::new();
        while let Some(job) = self.segment_jobs.pop_front() {
            if let Some(crash) = crash {
                crash.look(disk, &job);
            }
            match job {
                SegmentJob::Work { ticket, work } => {
                    self.segments.take(ticket, work).map_err(|error| chain(&error))?;
                }
                SegmentJob::CatchUp { work } => {
                    let done = self.segments.catch_up(work).map_err(|error| chain(&error))?;
                    told.push(Told::CatchUp { done });
                }
                SegmentJob::Checkpoint { meta, image, holds } => {
                    self.segments.hold(holds);
                    let mut bytes = BytesMut::new();
                    image.encode(&mut bytes);
                    match self.segments.checkpoint(&meta, &bytes).map_err(|error| chain(&error))? {
                        Checkpointed::Written { ticket, checkpoint } => {
                            told.extend(ticket.map(|ticket| Told::Segments { ticket }));
                            told.push(Told::Checkpoint { log_index: meta.log_index, bytes: checkpoint.bytes });
                        }
                        Checkpointed::PutOff(PutOff::Damaged { .. }) => {
                            told.push(Told::PutOff { log_index: meta.log_index });
                        }
                        Checkpointed::PutOff(error) => return Err(format!("these disks have room: {error}")),
                    }
                }
            }
        }
        match self.segments.flush().map_err(|error| chain(&error))? {
            Flushed::Written { ticket } => told.push(Told::Segments { ticket }),
            Flushed::Damaged { stretch, .. } => told.push(Told::Damaged { stretch, is_waited_for: true }),
            Flushed::Nothing => {}
            Flushed::NoRoom(error) => return Err(format!("these disks have room: {error}")),
        }
        assert!(
            self.segments.take_unreadable().is_empty(),
            "what rots here is repaired, so every copy finds its source"
        );
        Ok(told)
    }

    pub(crate) fn read(&self, ticket: u64, job: &ReadJob) -> Told {
        Told::Read { ticket, result: read(&self.reader, job) }
    }
}

pub(crate) fn node_id(node: usize) -> NodeId {
    NodeId::new(u16::try_from(node).expect("few"))
}

/// Everything below the folder that holds records, indexes and ledgers, by name.
pub(crate) fn files(disk: &MemoryDisk) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(DATA_DIR).join("topics")];
    while let Some(folder) = folders.pop() {
        for name in disk.list(&folder).unwrap_or_default() {
            let path = folder.join(&name);
            if let Ok(file) = disk.open_to_read(&path) {
                let mut bytes = vec![0; usize::try_from(file.len().expect("it is there")).expect("small")];
                file.read_exact_at(&mut bytes, 0).expect("it is there");
                found.push((path.display().to_string(), bytes));
            } else {
                folders.push(path);
            }
        }
    }
    found.sort();
    found
}

struct Watch(Now);

impl RecoverWatch for Watch {
    fn now(&self) -> Now {
        self.0
    }

    fn note(&mut self, _stage: RecoverStage) {}
}

pub(crate) const DATA_DIR: &str = "/data";
pub(crate) const CLUSTER: [u8; 16] = [9; 16];
