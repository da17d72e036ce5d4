//! What fails, and how a node comes back.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use mortarmq_node::drive::{
    DriveOptions, JournalKeeper, RecoverStage, RecoverWatch, RecoveredNode, Room, RoomNews, SegmentKeeper, SlowReader,
    Turns, chain, claim, claim_as_peer, recover,
};
use mortarmq_node::{NodeConfig, Now, Peer};
use mortarmq_storage::{Disk, Identity, JournalOptions, Scrub, SegmentOptions};
use mortarmq_types::{NodeId, ShardId};

use super::World;
use super::event::{Event, Healed, Input};
use super::node::{JournalState, Process, SegmentsState};
use super::rot::can_rot_alive;
use crate::plan::{FaultKind, Part, Site};

/// How a process ended.
#[derive(Clone, Copy, Debug, Default)]
struct Down {
    down_ms: u64,
    loses_power: bool,
    is_new_boot: bool,
}

impl World {
    /// A fault strikes.
    pub(crate) fn strike(&mut self, node: usize, kind: FaultKind) {
        if self.nodes[node].is_healed {
            return;
        }
        match kind {
            FaultKind::Kill { .. } | FaultKind::Power { .. } => {
                if self.nodes[node].process.is_some() {
                    self.tally.fault(kind);
                    self.crash(node, down_of(kind));
                }
            }
            FaultKind::IoError { .. } | FaultKind::ShortWrite { .. } => {
                let machine = &mut self.nodes[node];
                if machine.process.is_some() && machine.armed.is_none() {
                    machine.arm(kind, 0, Site::Journal);
                }
            }
            FaultKind::DiskFull { room_bytes, ms } => {
                self.tally.fault(kind);
                let disk = &self.nodes[node].disk;
                disk.set_capacity(Some(HUGE_BYTES));
                let free_bytes = disk.free_bytes(Path::new(DATA_DIR)).unwrap_or(HUGE_BYTES);
                disk.set_capacity(Some(HUGE_BYTES - free_bytes + room_bytes));
                self.nodes[node].is_full = true;
                self.fault_began(node, "disk_full", self.now_us + ms * 1000);
                self.at(self.now_us + ms * 1000, Event::Heal { node, what: Healed::DiskFull });
            }
            FaultKind::SlowSync { us, ms } => {
                self.tally.fault(kind);
                self.nodes[node].slow_sync_us = Some(us);
                self.at(self.now_us + ms * 1000, Event::Heal { node, what: Healed::SlowSync });
            }
            FaultKind::Pause { ms } => {
                self.tally.fault(kind);
                self.nodes[node].paused_until_us = self.now_us + ms * 1000;
                self.fault_began(node, "pause", self.now_us + ms * 1000);
            }
            FaultKind::ClockJump { to_ms } => {
                self.tally.fault(kind);
                self.nodes[node].clock.wall_base_ms = to_ms;
                self.fault_began(node, "clock", self.now_us);
            }
            FaultKind::Stop { down_ms } => self.stop(node, kind, down_ms),
            FaultKind::Cut { .. } | FaultKind::HandOver => self.strike_cluster(node, kind),
            // No more than one of several: the others have to have what it lost.
            FaultKind::Rot { .. } if self.has_peers() && !self.may_rot(node) => {}
            FaultKind::Wipe { .. } => {
                if self.has_peers() && self.nodes[node].process.is_some() && self.may_wipe(node) {
                    self.tally.fault(kind);
                    self.crash(node, down_of(kind));
                    self.wipe(node);
                }
            }
            FaultKind::Rot { part, way, down_ms, .. } => {
                let process = self.nodes[node].process.as_ref();
                let end = process.map(|process| process.journal.end()).map(|(path, end)| (path.to_path_buf(), end));
                let down_ms = if can_rot_alive(part, way) { down_ms } else { down_ms.max(1) };
                if down_ms > 0 && self.nodes[node].process.is_some() {
                    self.crash(node, down_of(kind));
                }
                self.rot(node, kind, end.filter(|_| part == Part::Journal));
            }
        }
        if let FaultKind::DiskFull { ms, .. } | FaultKind::SlowSync { ms, .. } | FaultKind::Pause { ms } = kind {
            let until_us = self.now_us + ms * 1000 + TROUBLED_US;
            self.nodes[node].troubled_until_us = self.nodes[node].troubled_until_us.max(until_us);
        }
        self.trace.note(self.now_us, "fault", &[node as u64]);
        self.trace.explain(|| format!("{kind:?}"));
    }

    /// What only one of several nodes can meet.
    fn strike_cluster(&mut self, node: usize, kind: FaultKind) {
        if !self.has_peers() {
            return;
        }
        self.tally.fault(kind);
        match kind {
            FaultKind::Cut { shape, ms, flap_ms } => self.cut_links(node, shape, ms, flap_ms),
            _ => self.give(node, Input::HandOver),
        }
    }

    /// A fault that lasted is over.
    pub(crate) fn heal(&mut self, node: usize, what: Healed) {
        match what {
            Healed::DiskFull => {
                self.nodes[node].disk.set_capacity(None);
                if std::mem::take(&mut self.nodes[node].is_full) {
                    self.tally.reach("disk full and back");
                }
            }
            Healed::SlowSync => self.nodes[node].slow_sync_us = None,
        }
    }

    /// An operation of the disk failed: by a fault, or for no reason, which is a finding.
    pub(crate) fn disk_failed(&mut self, node: usize, error: &str) {
        match self.nodes[node].struck() {
            Some(armed) => {
                self.tally.fault(armed.kind);
                self.tally.struck_at(armed.site);
                self.trace.note(self.now_us, "disk failed", &[node as u64, armed.operation]);
                self.trace.explain(|| error.to_owned());
                self.crash(node, down_of(armed.kind));
            }
            None if self.is_refusal(node, error) => self.crash(node, Down { down_ms: 10, ..Down::default() }),
            None => self.fail(format!("the disk failed though no fault had struck: {error}")),
        }
    }

    /// The process ends as it stands.
    fn crash(&mut self, node: usize, down: Down) {
        self.check_all(node);
        self.note_crash(node);
        let machine = &mut self.nodes[node];
        machine.process = None;
        machine.down_since_us.get_or_insert(self.now_us);
        machine.life += 1;
        machine.armed = None;
        machine.paused_until_us = 0;
        let kept = if down.loses_power {
            machine.disk.after_power_loss(self.loss.next())
        } else {
            machine.disk.after_process_kill()
        };
        if machine.is_full {
            // What is full stays full.
            kept.set_capacity(Some(HUGE_BYTES));
            let free_bytes = kept.free_bytes(Path::new(DATA_DIR)).unwrap_or(HUGE_BYTES);
            kept.set_capacity(Some(HUGE_BYTES - free_bytes));
        }
        machine.disk = kept;
        if down.is_new_boot {
            machine.clock.boot = machine.clock.boot.wrapping_add(1);
            machine.clock.boot_ms = self.loss.between(1, 100_000_000);
            machine.clock.booted_at_us = self.now_us;
        }
        let kind = if down.loses_power { "power" } else { "kill" };
        self.trace.note(self.now_us, kind, &[node as u64, self.nodes[node].life]);
        let back_at_us = self.now_us + down.down_ms.max(1) * 1000;
        self.fault_began(node, kind, back_at_us);
        self.break_all(node);
        self.at(back_at_us, Event::Start { node });
    }

    /// The process ends and starts again at once.
    pub(super) fn restart(&mut self, node: usize) {
        if self.nodes[node].process.is_some() {
            self.crash(node, Down { down_ms: 1, ..Down::default() });
        }
    }

    /// The process has ended by itself.
    pub(super) fn end_process(&mut self, node: usize, down_ms: u64) {
        self.crash(node, Down { down_ms, ..Down::default() });
    }

    /// Takes back a fault that waits for an operation of the disk. The one that struck already is none that waits.
    pub(crate) fn disarm(&mut self, node: usize) {
        let machine = &mut self.nodes[node];
        if machine.armed.is_some() && machine.struck().is_none() {
            machine.armed = None;
            machine.disk.clear_faults();
        }
    }

    pub(crate) fn fault_began(&mut self, node: usize, kind: &'static str, until_us: u64) {
        let now_ns = self.now_ns();
        self.histories.fault(kind, node, now_ns, (until_us + 1) * 1000);
    }

    /// A node starts, as the server does: whose data it is, the room, the recovery, the threads.
    pub(crate) fn start(&mut self, node: usize) {
        if self.nodes[node].process.is_some() {
            return;
        }
        if self.nodes[node].is_wiped {
            return self.enter(node);
        }
        self.nodes[node].enter(Site::Recovery);
        let before = self.damaged_files(node);
        let recovered = self.recover(node);
        if let Err(error) = &recovered
            && self.nodes[node].struck().is_none()
        {
            self.expect_unchanged(node, &before, error);
        }
        match recovered {
            Ok((recovered, room, room_news)) => self.begin(node, recovered, room, room_news),
            Err(_) if self.nodes[node].struck().is_some() => {
                self.tally.reach("recovery cut");
                self.disk_failed(node, "recovery cut");
            }
            Err(error) if self.nodes[node].is_full && (error.contains("full") || error.contains("no room")) => {
                // It says so and ends; somebody starts it again.
                self.tally.reach("a start was refused for want of room");
                let disk = self.nodes[node].disk.after_process_kill();
                self.nodes[node].disk = disk;
                self.nodes[node].disk.set_capacity(None);
                self.nodes[node].is_full = false;
                self.at(self.now_us + 500_000, Event::Start { node });
            }
            Err(error) if self.is_refusal(node, &error) => {
                self.at(self.now_us + MENDING_US, Event::Start { node });
            }
            Err(error) => self.fail(format!("P1: the node does not start: {error}")),
        }
    }

    fn recover(&mut self, node: usize) -> Result<(RecoveredNode, Arc<Room>, RoomNewsBox), String> {
        let settings = self.settings.clone();
        let machine = &self.nodes[node];
        let disk: Arc<dyn Disk> = Arc::new(machine.disk.clone());
        let (data_dir, node_id) = (Path::new(DATA_DIR), NodeId::new(u16::try_from(node).expect("few")));
        let ids: Vec<NodeId> = (0..self.nodes.len()).map(|node| NodeId::new(node as u16)).collect();
        let claimed = if self.has_peers() {
            claim_as_peer(&*disk, data_dir, node_id, &ids, CLUSTER_ID)
        } else {
            claim(&*disk, data_dir, node_id, || Ok(CLUSTER_ID))
        };
        let identity = claimed.map_err(|error| chain(&error))?;
        let room_news: RoomNewsBox = Arc::default();
        let told = Arc::clone(&room_news);
        let teller = move |news: RoomNews<'_>| {
            if let RoomNews::State(state) = news {
                told.lock().expect("one thread").push(state);
            }
        };
        let room = Room::open(Arc::clone(&disk), data_dir, settings.reserve_bytes, settings.journal_file_bytes, teller);
        let room = Arc::new(room.map_err(|error| format!("the reserve: {error}"))?);
        room.check();
        let mut config = NodeConfig::new(node_id, [machine.clock.boot; 16], self.loss.next());
        config.data_incarnation = identity.incarnation;
        let is_later = machine.life % 2 == 1 && settings.recent_bytes_later > 0;
        config.recent_bytes = if is_later { settings.recent_bytes_later } else { settings.recent_bytes };
        config.publish_timeout_ms = settings.timeout_ms;
        config.unwritten_bytes_max = settings.unwritten_bytes;
        config.checkpoint_after_bytes = settings.checkpoint_after_bytes;
        config.initial.segment_max_bytes = settings.segment_bytes;
        if self.has_peers() {
            let first = Identity::FIRST_INCARNATION;
            config.peers = ids.iter().map(|id| Peer { node_id: *id, data_incarnation: first }).collect();
            config.journal_keep_bytes = settings.journal_keep_bytes;
            config.peer_lag_bytes = settings.peer_lag_bytes;
        }
        let journal = JournalOptions {
            file_bytes: settings.journal_file_bytes,
            zero_step_bytes: settings.journal_file_bytes / 4,
            spare_files: 1,
            ..JournalOptions::new(ShardId::ZERO)
        };
        let segments = SegmentOptions { push_bytes: settings.push_bytes, ..SegmentOptions::default() };
        let options = DriveOptions { journal, segments };
        let mut watch = Watch(self.nodes[node].clock.now(self.now_us));
        let recovered = recover(&disk, data_dir, config, options, &room, &mut watch).map_err(|error| chain(&error))?;
        Ok((recovered, room, room_news))
    }

    fn begin(&mut self, node: usize, recovered: RecoveredNode, room: Arc<Room>, room_news: RoomNewsBox) {
        let RecoveredNode { node: made, journal, segments, unwritten, is_new, checkpoint, found } = recovered;
        if found.torn.is_some() {
            self.tally.reach("torn tail cut");
        }
        if checkpoint.is_some() {
            self.tally.reach("start from a checkpoint");
        }
        if unwritten.is_some() {
            self.tally.reach("start with segments that wait for room");
        }
        if made.is_rejoining() {
            self.tally.reach("began anew after rot");
            if self.nodes[node].rotten_dirs.is_empty() {
                self.fail(format!("P11: node {} begins anew, and nothing of it has rotted", node + 1));
            }
        }
        let position = made.position();
        self.trace.note(self.now_us, "start", &[node as u64, position.commit_index.get(), u64::from(is_new)]);
        let keeper = SegmentKeeper::new(segments, unwritten, Arc::clone(&room));
        let process = Process {
            reader: keeper.reader(),
            node: made,
            journal: JournalKeeper::new(journal, Arc::clone(&room)),
            segments: keeper,
            room,
            room_news,
            inbox: std::collections::VecDeque::new(),
            turns: Turns::new(SlowReader {
                congested_bytes: self.settings.congested_bytes as usize,
                relieved_bytes: self.settings.congested_bytes as usize / 4,
            }),
            turn_at_us: None,
            journal_jobs: std::collections::VecDeque::new(),
            journal_state: JournalState::Idle,
            segment_jobs: std::collections::VecDeque::new(),
            segments_state: SegmentsState::Idle,
            reads: std::collections::BTreeMap::new(),
            stopping: None,
            is_loop_over: false,
            turn_began_at: position.commit_index,
            checked_at: position.commit_index,
            was_ready: false,
            led: false,
            scrub: Scrub::new(Arc::new(self.nodes[node].disk.clone()), PathBuf::from(DATA_DIR)),
            promise: self.promise_of(node),
        };
        self.nodes[node].process = Some(process);
        self.look_at_promises(node);
        let down_us = self.nodes[node].down_since_us.take().map_or(0, |since_us| self.now_us - since_us);
        self.nodes[node].down_us += down_us;
        self.rot_let_it_start(node);
        self.check_all(node);
        let life = self.nodes[node].life;
        self.at(self.now_us + 1_000_000, Event::Look { node, life });
        if self.settings.scrub_ms > 0 {
            self.at(self.now_us + self.settings.scrub_ms * 500, Event::Scrub { node, life });
        }
        if unwritten.is_some() {
            self.segments_done(node);
        }
        self.after_disk(node);
        self.wake(node);
        if self.settings.scrape_at_start > 0 {
            self.scrape(node);
        }
    }
}

/// What a room had to tell the loop and has not told yet.
type RoomNewsBox = Arc<Mutex<Vec<mortarmq_node::DiskState>>>;

/// The clocks of a start.
struct Watch(Now);

impl RecoverWatch for Watch {
    fn now(&self) -> Now {
        self.0
    }

    fn note(&mut self, _: RecoverStage) {}
}

fn down_of(kind: FaultKind) -> Down {
    match kind {
        FaultKind::Kill { down_ms } => Down { down_ms, loses_power: false, is_new_boot: false },
        FaultKind::Power { down_ms, is_new_boot } => Down { down_ms, loses_power: true, is_new_boot },
        FaultKind::IoError { down_ms, loses_power } | FaultKind::ShortWrite { down_ms, loses_power, .. } => {
            Down { down_ms, loses_power, is_new_boot: loses_power }
        }
        FaultKind::Rot { down_ms, .. } | FaultKind::Wipe { down_ms } | FaultKind::Stop { down_ms } => {
            Down { down_ms, ..Down::default() }
        }
        FaultKind::DiskFull { .. }
        | FaultKind::SlowSync { .. }
        | FaultKind::Pause { .. }
        | FaultKind::Cut { .. }
        | FaultKind::HandOver
        | FaultKind::ClockJump { .. } => Down { down_ms: 0, loses_power: false, is_new_boot: false },
    }
}

impl FaultKind {
    /// The kind in one word, as in a schedule.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Kill { .. } => "kill",
            Self::Power { .. } => "power",
            Self::IoError { .. } => "io-error",
            Self::ShortWrite { .. } => "short-write",
            Self::DiskFull { .. } => "disk-full",
            Self::SlowSync { .. } => "slow-sync",
            Self::Pause { .. } => "pause",
            Self::ClockJump { .. } => "clock",
            Self::Rot { .. } => "rot",
            Self::Wipe { .. } => "wipe",
            Self::Stop { .. } => "stop",
            Self::Cut { .. } => "cut",
            Self::HandOver => "hand-over",
        }
    }

    /// The kind as reports have it.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Rot { part, way, .. } => format!("rot {part} {way}"),
            Self::Cut { shape, flap_ms: 0, .. } => format!("cut {shape}"),
            Self::Cut { shape, .. } => format!("cut {shape}, flapping"),
            _ => self.word().to_owned(),
        }
    }
}

pub(crate) const DATA_DIR: &str = "data";
pub(crate) const CLUSTER_ID: [u8; 16] = [9; 16];
const HUGE_BYTES: u64 = 1 << 40;
/// How long after a fault that lasts what it kept from happening may still be under way.
const TROUBLED_US: u64 = 5_000_000;
/// How long it takes until somebody has put right what a start was refused for.
const MENDING_US: u64 = 20_000;
