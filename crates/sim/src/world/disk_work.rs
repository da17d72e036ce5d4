//! The threads that work with the disk: journal writer, segment writer, reads and the disk watch, each a step at a moment.
//! How a step is taken is the node's (`mortarmq_node::drive`), as in the server.

use std::time::Duration;

use bytes::BytesMut;
use mortarmq_node::drive::{Checkpointed, Flushed, chain, read};
use mortarmq_node::{CatchUpDone, CatchUpWork, ReadJob, ReadResult};
use mortarmq_storage::RepairOutcome;

use super::World;
use super::event::{Event, Input};
use super::node::{JournalJob, JournalState, SegmentJob, SegmentsState};
use crate::plan::{FaultKind, Site};

impl World {
    /// Lets the journal thread begin, if it has something to do.
    pub(crate) fn poke_journal(&mut self, node: usize) {
        let life = self.nodes[node].life;
        let sync_us = self.nodes[node].slow_sync_us.unwrap_or(self.settings.sync_us);
        let took_us = self.disk_chance.delay(sync_us / 4 + 10, sync_us);
        let is_early = self.disk_chance.one_in(2);
        let Some(process) = &mut self.nodes[node].process else { return };
        match &process.journal_state {
            JournalState::Busy => return,
            JournalState::NoRoom { .. } => {
                // What a checkpoint lets go is room.
                if matches!(process.journal_jobs.back(), Some(JournalJob::Release { .. }))
                    && let Some(JournalJob::Release { log_index, keep_bytes, frees_spares }) =
                        process.journal_jobs.pop_back()
                {
                    self.release(node, log_index, keep_bytes, frees_spares);
                }
                return;
            }
            JournalState::Idle if process.journal_jobs.is_empty() => return,
            JournalState::Idle => process.journal_state = JournalState::Busy,
        }
        let at_us = self.now_us + took_us;
        if is_early {
            // It is on the disk before anybody hears of it.
            self.journal(node, took_us);
        } else {
            self.at(at_us, Event::Journal { node, life });
        }
    }

    /// Carries out the journal's next job; that it is done is told after a while.
    pub(crate) fn journal(&mut self, node: usize, told_after_us: u64) {
        let life = self.nodes[node].life;
        let Some(process) = &mut self.nodes[node].process else { return };
        process.journal_state = JournalState::Busy;
        let Some(job) = process.journal_jobs.pop_front() else { return };
        match job {
            JournalJob::Append { ready_number, batch } => {
                let number = self.nodes[node].enter(Site::Journal);
                let process = self.nodes[node].process.as_mut().expect("looked at above");
                match process.journal.append(&batch) {
                    Ok(None) => {
                        if let Err(error) = self.fulfil(node) {
                            return self.disk_failed(node, &error);
                        }
                        self.trace.note(self.now_us, "journal written", &[node as u64, number, ready_number]);
                        let written = Some((ready_number, Duration::from_micros(told_after_us.max(1))));
                        let done = Event::JournalDone { node, life, written };
                        self.at(self.now_us + told_after_us, done);
                    }
                    Ok(Some(_)) => {
                        process.journal_jobs.push_front(JournalJob::Append { ready_number, batch });
                        process.journal_state = JournalState::NoRoom { _waiting: process.room.wait() };
                        self.tally.reach("the journal waited for room");
                        self.at(self.now_us + FULL_PAUSE_US, Event::Journal { node, life });
                    }
                    Err(error) => return self.disk_failed(node, &chain(&error)),
                }
            }
            JournalJob::Release { log_index, keep_bytes, frees_spares } => {
                self.release(node, log_index, keep_bytes, frees_spares);
                let done = Event::JournalDone { node, life, written: None };
                self.at(self.now_us + told_after_us, done);
            }
        }
        self.after_disk(node);
    }

    fn release(&mut self, node: usize, log_index: u64, keep_bytes: u64, frees_spares: bool) {
        self.nodes[node].enter(Site::Release);
        let Some(process) = &mut self.nodes[node].process else { return };
        match process.journal.release(log_index, keep_bytes, frees_spares) {
            Ok(released) => self.trace.note(self.now_us, "released", &[node as u64, log_index, released.files]),
            Err(error) => self.disk_failed(node, &chain(&error)),
        }
    }

    /// The journal thread is done with a job.
    pub(crate) fn journal_done(&mut self, node: usize, written: Option<(u64, Duration)>) {
        let Some(process) = &mut self.nodes[node].process else { return };
        process.journal_state = JournalState::Idle;
        if let Some((ready_number, took)) = written {
            self.give(node, Input::JournalWritten { ready_number, took });
        }
        self.poke_journal(node);
        self.end_if_stopped(node);
    }

    /// Lets the segment writer begin, if it has something to do.
    pub(crate) fn poke_segments(&mut self, node: usize) {
        let life = self.nodes[node].life;
        let flush_us = self.nodes[node].slow_sync_us.unwrap_or(self.settings.flush_us);
        let at_us = self.now_us + self.disk_chance.delay(flush_us / 8 + 10, flush_us);
        let Some(process) = &mut self.nodes[node].process else { return };
        if matches!(process.segments_state, SegmentsState::Idle) && !process.segment_jobs.is_empty() {
            process.segments_state = SegmentsState::Busy;
            self.at(at_us, Event::Segments { node, life });
        }
    }

    /// One round of the segment writer, as the server's thread takes it.
    pub(crate) fn segments(&mut self, node: usize) {
        let mut told = Vec::new();
        let first = self.nodes[node].process.as_mut().and_then(|process| process.segment_jobs.pop_front());
        let mut next = first;
        while let Some(job) = next.take() {
            let done = match job {
                SegmentJob::Work { ticket, work } => {
                    self.gather(node, ticket, work).map(|checkpoint| next = checkpoint)
                }
                SegmentJob::CatchUp { work } => self.catch_up(node, work, &mut told),
                SegmentJob::Checkpoint { meta, image, holds } => {
                    if let Some(process) = &mut self.nodes[node].process {
                        process.segments.hold(holds);
                    }
                    self.nodes[node].enter(Site::Checkpoint);
                    let mut bytes = BytesMut::new();
                    image.encode(&mut bytes);
                    self.checkpoint(node, &meta, &bytes, &mut told)
                }
            };
            if let Err(error) = done.and_then(|()| self.flush(node, &mut told)) {
                return self.disk_failed(node, &error);
            }
        }
        if let Err(error) = self.flush(node, &mut told) {
            return self.disk_failed(node, &error);
        }
        let life = self.nodes[node].life;
        let later_us = self.disk_chance.delay(1, 200);
        for input in told {
            self.at(self.now_us + later_us, Event::Input { node, life, input });
        }
        self.at(self.now_us + later_us, Event::SegmentsDone { node, life });
        self.after_disk(node);
    }

    /// Something for a snapshot of another node.
    fn catch_up(&mut self, node: usize, work: CatchUpWork, told: &mut Vec<Input>) -> Result<(), String> {
        let site = match work {
            CatchUpWork::Install | CatchUpWork::Finish { .. } => Site::Install,
            CatchUpWork::Repair { .. } | CatchUpWork::GiveUp { .. } => Site::Segments,
            CatchUpWork::Begin { .. } | CatchUpWork::Check | CatchUpWork::Write { .. } | CatchUpWork::Abandon => {
                Site::Fetch
            }
        };
        self.nodes[node].enter(site);
        if matches!(work, CatchUpWork::Begin { .. }) {
            let life = self.nodes[node].life;
            let begun_in = self.nodes[node].fetches_in.replace(life);
            self.note_fetch();
            if begun_in.is_some_and(|begun_in| begun_in != life) {
                self.tally.reach("catch-up resumed after a crash");
            }
        }
        let Some(process) = &mut self.nodes[node].process else { return Ok(()) };
        let done = process.segments.catch_up(work).map_err(|error| chain(&error))?;
        match done {
            CatchUpDone::Finished if self.is_healing => self.tally.reach("snapshot installed"),
            CatchUpDone::Finished => self.tally.reach("snapshot installed under load"),
            CatchUpDone::Repaired { outcome: RepairOutcome::Repaired { .. }, .. } => {
                self.tally.reach("rotten record repaired");
            }
            _ => {}
        }
        if matches!(done, CatchUpDone::Finished | CatchUpDone::Abandoned) {
            self.nodes[node].fetches_in = None;
        }
        told.push(Input::CatchUpDone { done: Box::new(done) });
        Ok(())
    }

    fn gather(
        &mut self,
        node: usize,
        ticket: u64,
        work: Vec<mortarmq_node::SegmentWork>,
    ) -> Result<Option<SegmentJob>, String> {
        self.nodes[node].enter(Site::Segments);
        let Some(process) = &mut self.nodes[node].process else { return Ok(None) };
        process.segments.take(ticket, work).map_err(|error| chain(&error))?;
        while process.segments.takes_more() {
            match process.segment_jobs.pop_front() {
                Some(SegmentJob::Work { ticket, work }) => {
                    process.segments.take(ticket, work).map_err(|error| chain(&error))?;
                }
                other => return Ok(other),
            }
        }
        Ok(None)
    }

    fn flush(&mut self, node: usize, told: &mut Vec<Input>) -> Result<(), String> {
        let Some(process) = &mut self.nodes[node].process else { return Ok(()) };
        match process.segments.flush().map_err(|error| chain(&error))? {
            Flushed::Nothing => {}
            Flushed::Written { ticket } => told.push(Input::SegmentsWritten { ticket }),
            Flushed::NoRoom(_) => self.tally.reach("segments waited for room"),
            Flushed::Damaged { stretch, .. } => {
                told.push(Input::Damaged { stretch, is_waited_for: true });
                self.tally.reach("a copy waited for a repair");
            }
        }
        self.expect_readable(node);
        Ok(())
    }

    fn checkpoint(
        &mut self,
        node: usize,
        meta: &mortarmq_storage::CheckpointMeta,
        image: &[u8],
        told: &mut Vec<Input>,
    ) -> Result<(), String> {
        let Some(process) = &mut self.nodes[node].process else { return Ok(()) };
        match process.segments.checkpoint(meta, image).map_err(|error| chain(&error))? {
            Checkpointed::Written { ticket, checkpoint } => {
                told.extend(ticket.map(|ticket| Input::SegmentsWritten { ticket }));
                told.push(Input::CheckpointWritten { log_index: meta.log_index, bytes: checkpoint.bytes });
                self.tally.reach("checkpoint");
            }
            Checkpointed::PutOff(_) => {
                told.push(Input::CheckpointPutOff { log_index: meta.log_index });
                self.tally.reach("a checkpoint was put off");
            }
        }
        self.expect_readable(node);
        Ok(())
    }

    /// Every copy finds its source, unless it rotted.
    fn expect_readable(&mut self, node: usize) {
        let Some(process) = &mut self.nodes[node].process else { return };
        for copy in process.segments.take_unreadable() {
            if self.nodes[node].struck().is_none() {
                self.letter_lost_its_value(node, copy.from, &copy.reason);
            }
        }
    }

    /// The segment writer is done with a round.
    pub(crate) fn segments_done(&mut self, node: usize) {
        let life = self.nodes[node].life;
        let Some(process) = &mut self.nodes[node].process else { return };
        process.segments_state = SegmentsState::Idle;
        if process.segment_jobs.is_empty() && process.segments.has_unwritten() {
            // There was no room for it: it is tried again.
            process.segments_state = SegmentsState::Busy;
            self.at(self.now_us + FULL_PAUSE_US, Event::Segments { node, life });
        }
        self.poke_segments(node);
        self.end_if_stopped(node);
    }

    /// A read is carried out.
    pub(crate) fn read(&mut self, node: usize, ticket: u64) {
        let Some(process) = &mut self.nodes[node].process else { return };
        let Some(job) = process.reads.remove(&ticket) else { return };
        let result = read(&process.reader, &job);
        if let ReadResult::Failed(reason) = &result {
            if self.nodes[node].struck().is_some() {
                return self.after_disk(node);
            }
            // A snapshot that is held no more may be gone before the last read of it.
            let is_for_peer = matches!(job, ReadJob::File { .. } | ReadJob::Stretch { .. });
            if !is_for_peer && !self.is_rotten(node, reason) {
                return self.fail(format!("P11: a read failed on a disk that is whole: {reason}: {job:?}"));
            }
            if is_for_peer {
                self.tally.reach(if matches!(job, ReadJob::File { .. }) {
                    "a snapshot was gone"
                } else {
                    "a peer met rot"
                });
                return self.give(node, Input::ReadDone { ticket, result });
            }
            self.tally.reach("a read met rot");
            self.record_taken_back(&job);
        }
        self.tally.reach("read from disk");
        self.give(node, Input::ReadDone { ticket, result });
    }

    /// The disk watch looks.
    pub(crate) fn look(&mut self, node: usize) {
        let life = self.nodes[node].life;
        let Some(process) = &mut self.nodes[node].process else { return };
        process.room.check();
        if let Some(armed) = self.nodes[node].struck()
            && matches!(armed.kind, FaultKind::IoError { .. } | FaultKind::ShortWrite { .. })
        {
            // The reserve could not grow: the next look tries again.
            self.nodes[node].armed = None;
        }
        self.keep_former(node);
        self.at(self.now_us + LOOK_EVERY_US, Event::Look { node, life });
        self.after_disk(node);
    }

    /// A fault struck, and the step ended as if nothing had happened. Without power that is the end; a failed operation may
    /// be one that does not matter, and whether it did shows when the power goes.
    fn went_on(&mut self, node: usize, kind: FaultKind) {
        match kind {
            FaultKind::IoError { down_ms, loses_power } | FaultKind::ShortWrite { down_ms, loses_power, .. } => {
                self.nodes[node].armed = None;
                self.tally.reach("a failed operation did not matter");
                if loses_power {
                    let kind = FaultKind::Power { down_ms, is_new_boot: false };
                    self.at(self.now_us + POWER_GOES_US, Event::Fault { node: Some(node), kind });
                }
            }
            FaultKind::Kill { .. }
            | FaultKind::Power { .. }
            | FaultKind::DiskFull { .. }
            | FaultKind::SlowSync { .. }
            | FaultKind::Pause { .. }
            | FaultKind::ClockJump { .. }
            | FaultKind::Rot { .. }
            | FaultKind::Wipe { .. }
            | FaultKind::Cut { .. }
            | FaultKind::HandOver
            | FaultKind::Stop { .. } => self.disk_failed(node, "a fault struck"),
        }
    }

    /// What the room has to tell, and whether a fault struck that nobody met as an error.
    pub(crate) fn after_disk(&mut self, node: usize) {
        if let Some(process) = &self.nodes[node].process {
            let news: Vec<_> = std::mem::take(&mut *process.room_news.lock().expect("one thread"));
            for state in news {
                if state.is_low {
                    self.tally.reach("room was short");
                }
                self.give(node, Input::Disk { state });
            }
        }
        if let Some(armed) = self.nodes[node].struck().filter(|_| self.nodes[node].process.is_some()) {
            self.went_on(node, armed.kind);
        }
    }
}

/// How long after an operation failed and the node went on the power goes.
const POWER_GOES_US: u64 = 50_000;
/// How long who waits for room waits before the next try, as in the server.
const FULL_PAUSE_US: u64 = 200_000;
const LOOK_EVERY_US: u64 = 1_000_000;
