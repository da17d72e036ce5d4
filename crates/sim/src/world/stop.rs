//! A stop that is asked for, as the server takes it: connections first, each with its last answers; then the loop, when what it
//! began is written; then the threads behind it, with all that they were given.

use super::World;
use super::event::{Event, Input};
use super::node::{JournalState, Process, SegmentsState, Stopping};
use crate::plan::FaultKind;

impl World {
    /// A process is asked to stop.
    pub(super) fn stop(&mut self, node: usize, kind: FaultKind, down_ms: u64) {
        let has_peers = self.has_peers();
        let machine = &mut self.nodes[node];
        let life = machine.life;
        let is_up = |process: &&mut Process| process.stopping.is_none() && (process.was_ready || has_peers);
        let Some(process) = machine.process.as_mut().filter(is_up) else {
            return;
        };
        process.stopping = Some(Stopping { down_ms, is_loop_told: false });
        self.tally.fault(kind);
        if has_peers {
            self.give(node, Input::StandAside);
        }
        for connection in self.links_of(node) {
            // What is on its way is not waited for: from now on nothing is read.
            self.take_no_more(connection);
            self.half_closed(connection);
        }
        self.at(self.now_us + CLOSE_TIME_US, Event::StopConnections { node, life });
        self.stop_loop_if_closed(node);
    }

    /// The last connection may have closed.
    pub(super) fn stop_loop_if_closed(&mut self, node: usize) {
        let is_stopping = self.nodes[node].process.as_ref().is_some_and(|process| process.stopping.is_some());
        if is_stopping && !self.has_links(node) {
            self.stop_loop(node);
        }
    }

    /// The loop is told to stop: no connection is left, or some took too long.
    pub(super) fn stop_loop(&mut self, node: usize) {
        let Some(process) = &mut self.nodes[node].process else { return };
        let Some(stopping) = process.stopping.as_mut().filter(|stopping| !stopping.is_loop_told) else { return };
        stopping.is_loop_told = true;
        self.give(node, Input::Stop);
    }

    /// The process is over when its loop is, and the threads have written what they were given and what there is room for.
    pub(super) fn end_if_stopped(&mut self, node: usize) {
        let Some(process) = self.nodes[node].process.as_ref().filter(|process| process.is_loop_over) else { return };
        let Some(stopping) = process.stopping else { return };
        let is_journal_over = match process.journal_state {
            JournalState::Idle => process.journal_jobs.is_empty(),
            JournalState::Busy => false,
            JournalState::NoRoom { .. } => true,
        };
        let is_writer_over = match process.segments_state {
            SegmentsState::Idle => process.segment_jobs.is_empty(),
            SegmentsState::Busy => process.segment_jobs.is_empty() && process.segments.has_unwritten(),
        };
        if is_journal_over && is_writer_over {
            let is_answered = !self.has_links(node);
            self.tally.reach(if is_answered { "stopped with everything answered" } else { "a stop took too long" });
            self.end_process(node, stopping.down_ms);
        }
    }
}

/// How long a stop waits for connections, as in the server.
const CLOSE_TIME_US: u64 = 10_000_000;
