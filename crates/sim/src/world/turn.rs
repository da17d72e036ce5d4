//! The shard's loop, as the server turns it: what came in, what goes out, a tick when it is due.

use std::time::Duration;

use mortarmq_node::{Now, Output, PeerWord};
use mortarmq_types::ConnectionId;

use super::World;
use super::event::{Event, Input};
use super::expected::check_letters;
use super::node::{JournalJob, SegmentJob};

impl World {
    /// Gives a node something, which lets its loop turn soon. What is for a dead one is nothing.
    pub(crate) fn give(&mut self, node: usize, input: Input) {
        let late_us = self.net.delay(2, 20);
        let Some(process) = &mut self.nodes[node].process else { return };
        process.inbox.push_back(input);
        self.turn_by(node, self.now_us + late_us);
    }

    /// Lets the loop turn no later than at a moment.
    fn turn_by(&mut self, node: usize, at_us: u64) {
        let at_us = at_us.max(self.nodes[node].paused_until_us);
        let life = self.nodes[node].life;
        let Some(process) = &mut self.nodes[node].process else { return };
        if process.turn_at_us.is_none_or(|turn| turn > at_us) {
            process.turn_at_us = Some(at_us);
            self.at(at_us, Event::Turn { node, life });
        }
    }

    /// Lets a node that has just started turn.
    pub(crate) fn wake(&mut self, node: usize) {
        self.turn_by(node, self.now_us + 1);
    }

    /// One turn.
    pub(crate) fn turn(&mut self, node: usize) {
        let machine = &mut self.nodes[node];
        let now = machine.clock.now(self.now_us);
        let Some(process) = &mut machine.process else { return };
        if process.turn_at_us != Some(self.now_us) {
            // Another turn took its place.
            return;
        }
        if process.is_loop_over {
            return;
        }
        if machine.paused_until_us > self.now_us {
            process.turn_at_us = None;
            let until_us = machine.paused_until_us;
            return self.turn_by(node, until_us);
        }
        process.turn_at_us = None;
        process.turn_began_at = process.node.position().commit_index;
        self.samples.note(self.now_us, process.node.position().commit_index);
        for _ in 0..EVENTS_PER_TURN {
            let Some(input) = self.nodes[node].process.as_mut().and_then(|process| process.inbox.pop_front()) else {
                break;
            };
            self.take(node, now, input);
        }
        self.before_outputs(node, now);
        self.dispatch(node);
        if let Some(process) = &mut self.nodes[node].process
            && process.turns.is_tick_due(&process.node, now)
        {
            process.turns.tick(&mut process.node, now);
            self.dispatch(node);
        }
        if let Some(process) = &self.nodes[node].process {
            self.samples.note(self.now_us, process.node.position().commit_index);
        }
        self.look_closely(node);
        let Some(process) = &mut self.nodes[node].process else { return };
        if process.turns.is_stopped(&process.node, now) {
            process.is_loop_over = true;
            return self.end_if_stopped(node);
        }
        self.plan_next_turn(node);
    }

    /// Who keeps up again, and whether the next batch is held back.
    fn before_outputs(&mut self, node: usize, now: Now) {
        let at = Duration::from_micros(self.now_us);
        let links = &self.links;
        let Some(process) = &mut self.nodes[node].process else { return };
        process.turns.relieve(&mut process.node, now, |connection| Some(links.get(&connection)?.queued_bytes as usize));
        process.turns.before_outputs(&mut process.node, at);
    }

    fn plan_next_turn(&mut self, node: usize) {
        let machine = &self.nodes[node];
        let Some(process) = &machine.process else { return };
        let now = machine.clock.now(self.now_us).monotonic;
        let mut patience_us = process.turns.patience_ms(&process.node, now) * 1000;
        if process.turns.missing(&process.node) > 0 {
            self.tally.reach("a batch was held back for more");
            let gathering = process.turns.gathering(Duration::from_micros(self.now_us));
            patience_us = u64::try_from(gathering.as_micros()).expect("at most a millisecond") + 1;
        }
        let at_us = if process.inbox.is_empty() { self.now_us + patience_us } else { self.now_us + 1 };
        self.turn_by(node, at_us);
    }

    /// What the server's loop does with an event.
    fn take(&mut self, node: usize, now: Now, input: Input) {
        self.note_input(node, &input);
        let Some(process) = &mut self.nodes[node].process else { return };
        let target = &mut process.node;
        match input {
            Input::Requests { connection, requests } => target.handle_requests(now, connection, requests),
            Input::JournalWritten { ready_number, took } => {
                let at = Duration::from_micros(self.now_us);
                process.turns.journal_written(target, now, at, took, ready_number);
            }
            Input::Peer { word } => target.handle_word(now, *word),
            Input::HandOver => {
                if target.handle_hand_over(now, None).is_ok() {
                    self.tally.reach("office handed over");
                }
            }
            Input::StandAside => target.handle_stand_aside(now),
            Input::SegmentsWritten { ticket } => target.handle_segments_written(now, ticket),
            Input::CheckpointWritten { log_index, bytes } => target.handle_checkpoint_written(now, log_index, bytes),
            Input::CatchUpDone { done } => target.handle_catch_up_done(now, *done),
            Input::CheckpointPutOff { log_index } => target.handle_checkpoint_put_off(now, log_index),
            Input::Damaged { stretch, is_waited_for } => target.handle_damage(now, stretch, is_waited_for),
            Input::Disk { state } => target.handle_disk(now, state),
            Input::ReadDone { ticket, result } => target.handle_read(now, ticket, result),
            Input::TurnedOut { connection } => target.handle_turned_out(now, connection),
            Input::Unsent { connection, subscription, unsent } => {
                target.handle_unsent(now, connection, subscription, unsent);
            }
            Input::Connected { connection } => target.handle_connected(connection),
            Input::NoMoreRequests { connection } => {
                target.handle_no_more_requests(now, connection);
            }
            Input::Disconnected { connection } => target.handle_disconnected(now, connection),
            Input::Stop => process.turns.stop(target, now),
            Input::Query { query, question } => target.handle_query(now, query, question),
            Input::Act { query, act } => target.handle_act(now, query, act),
            Input::Asking { peer } => target.handle_asking(now, peer),
        }
    }

    /// Carries outputs out, in order.
    fn dispatch(&mut self, node: usize) {
        let now = self.nodes[node].clock.now(self.now_us);
        while let Some(output) = self.nodes[node].process.as_mut().and_then(|process| process.node.poll_output(now)) {
            let process = self.nodes[node].process.as_mut().expect("it gave an output");
            match output {
                Output::Journal { ready_number, batch } => {
                    process.turns.journal_begun();
                    let commands = batch.entries.len() as u64;
                    process.journal_jobs.push_back(JournalJob::Append { ready_number, batch });
                    self.trace.note(self.now_us, "journal", &[node as u64, ready_number, commands]);
                    self.poke_journal(node);
                }
                Output::Segments { ticket, work } => {
                    self.trace.note(self.now_us, "segments", &[node as u64, ticket, work.len() as u64]);
                    process.segment_jobs.push_back(SegmentJob::Work { ticket, work });
                    self.poke_segments(node);
                }
                Output::CatchUp { work } => {
                    process.segment_jobs.push_back(SegmentJob::CatchUp { work });
                    self.poke_segments(node);
                }
                Output::Checkpoint { meta, image, holds } => {
                    self.trace.note(self.now_us, "checkpoint", &[node as u64, meta.log_index, meta.commit_index.get()]);
                    process.segment_jobs.push_back(SegmentJob::Checkpoint { meta, image, holds });
                    self.poke_segments(node);
                }
                Output::Members { membership, .. } => process.journal.set_membership(membership),
                Output::ReleaseJournal { log_index, keep_bytes, frees_spares } => {
                    process.journal_jobs.push_back(JournalJob::Release { log_index, keep_bytes, frees_spares });
                    self.poke_journal(node);
                }
                Output::Read { ticket, job } => {
                    process.reads.insert(ticket, job);
                    let life = self.nodes[node].life;
                    let at_us = self.now_us + self.disk_chance.delay(20, self.settings.read_us);
                    self.at(at_us, Event::Read { node, life, ticket });
                }
                Output::Replies { connection, .. } | Output::PullEnded { connection, .. } => {
                    self.note_told(node, &output);
                    self.hand_over(connection, output);
                }
                Output::Deliveries { connection, subscription, .. } => {
                    self.note_told(node, &output);
                    self.expect_live(node, &output);
                    if let Some(Output::Deliveries { messages, .. }) = self.hand_over(connection, output)
                        && let Some(process) = &mut self.nodes[node].process
                    {
                        process.node.handle_refused(now, connection, subscription, &messages);
                    }
                    self.note_congestion(node, connection);
                }
                Output::Query { query, reply } => {
                    self.nodes[node].tell(reply.position);
                    let at_us = self.now_us + self.net.delay(20, self.settings.link_us);
                    self.at(at_us, Event::Answer { query, reply });
                }
                Output::SendPeer { to, message } => self.send_word(node, to, &PeerWord::Log(message)),
                Output::SendCatchUp { to, message } => self.send_word(node, to, &PeerWord::CatchUp(message)),
                Output::SendForward { to, message } => self.send_word(node, to, &PeerWord::Forward(message)),
                Output::Role { epoch, is_leader, .. } => {
                    self.trace.note(self.now_us, "role", &[node as u64, epoch.get(), u64::from(is_leader)]);
                    if is_leader {
                        self.note_leader(node, epoch);
                    }
                }
                Output::GroupExpired { .. } => {}
            }
        }
    }

    /// Notes what is told to clients: after that, no crash may take it back.
    fn note_told(&mut self, node: usize, output: &Output) {
        let machine = &mut self.nodes[node];
        match output {
            Output::Replies { connection, replies } => {
                for reply in replies {
                    machine.tell(reply.position);
                    let position = reply.position.commit_index.get();
                    let is_ok = u64::from(reply.result.is_ok());
                    self.trace.note(self.now_us, "reply", &[connection.get(), position, is_ok]);
                    if let Err(failure) = &reply.result {
                        self.trace.explain(|| format!("{:?}: {}", failure.code, failure.message));
                    }
                }
            }
            Output::Deliveries { connection, messages, .. } => {
                for found in messages {
                    machine.tell(found.position);
                    let numbers = [
                        connection.get(),
                        u64::from(found.partition.get()),
                        found.seq.get(),
                        found.delivery_id.get(),
                        u64::from(found.attempt.get()),
                    ];
                    self.trace.note(self.now_us, "delivery", &numbers);
                    self.trace.explain(|| format!("{:?} after {}", found.cause, found.previous));
                }
            }
            Output::PullEnded { connection, position, result, .. } => {
                machine.tell(*position);
                let count = result.as_ref().map_or(0, |count| u64::from(*count));
                self.trace.note(self.now_us, "pull ended", &[connection.get(), position.commit_index.get(), count]);
            }
            _ => {}
        }
    }

    fn note_input(&mut self, node: usize, input: &Input) {
        let (what, number) = match input {
            Input::Connected { connection } => ("in connected", connection.get()),
            Input::Disconnected { connection } => ("in disconnected", connection.get()),
            Input::Requests { connection, requests } => {
                self.tally.requests += requests.len() as u64;
                ("in requests", connection.get())
            }
            Input::TurnedOut { connection } => ("in turned out", connection.get()),
            Input::Unsent { connection, .. } => ("in unsent", connection.get()),
            Input::Query { query, .. } => ("in query", *query),
            Input::Act { query, .. } => ("in act", *query),
            Input::Asking { peer } => ("in asking", u64::from(peer.data_incarnation)),
            Input::NoMoreRequests { connection } => ("in no more", connection.get()),
            Input::Stop => ("in stop", 0),
            Input::JournalWritten { ready_number, .. } => ("in journal written", *ready_number),
            Input::SegmentsWritten { ticket } => ("in segments written", *ticket),
            Input::CheckpointWritten { log_index, .. } => ("in checkpoint written", *log_index),
            Input::CatchUpDone { .. } => ("in catch-up done", 0),
            Input::CheckpointPutOff { log_index } => ("in checkpoint put off", *log_index),
            Input::Damaged { stretch, .. } => ("in damaged", stretch.name().1),
            Input::Disk { state } => ("in disk", state.free_bytes),
            Input::ReadDone { ticket, .. } => ("in read", *ticket),
            Input::Peer { word } => match &**word {
                PeerWord::Log(message) => ("in peer", message.from() >> 32),
                PeerWord::CatchUp(message) => ("in catch-up", message.from >> 32),
                PeerWord::Forward(message) => ("in forwarded", message.from >> 32),
            },
            Input::HandOver => ("in hand over", 0),
            Input::StandAside => ("in stand aside", 0),
        };
        self.trace.note(self.now_us, what, &[node as u64, number]);
        let short = |text: String| text.chars().take(300).collect();
        match input {
            Input::Requests { requests, .. } => self.trace.explain(|| short(format!("{requests:?}"))),
            Input::CatchUpDone { done } => self.trace.explain(|| short(format!("{done:?}"))),
            Input::ReadDone { result, .. } => self.trace.explain(|| short(format!("{result:?}"))),
            Input::Damaged { stretch, .. } => self.trace.explain(|| format!("{stretch:?}")),
            Input::Peer { word } => {
                if let PeerWord::CatchUp(message) = &**word {
                    self.trace.explain(|| short(format!("{:?} {:?}", message.snapshot, message.word)));
                }
            }
            _ => {}
        }
    }

    fn note_congestion(&mut self, node: usize, connection: ConnectionId) {
        let Some(link) = self.links.get(&connection).filter(|link| link.is_open) else { return };
        let (queued_bytes, stalled_us) = (link.queued_bytes, link.stalled_until_us.saturating_sub(self.now_us));
        // All slow readers together hold too much, and it is this one's turn.
        let is_too_much = stalled_us > 1_000_000 && self.net.one_in(2);
        if is_too_much && queued_bytes > self.settings.congested_bytes {
            return self.turn_out(connection);
        }
        let now = self.nodes[node].clock.now(self.now_us);
        let Some(process) = &mut self.nodes[node].process else { return };
        if process.turns.congest(&mut process.node, now, connection, queued_bytes as usize) {
            self.tally.reach("a slow reader got nothing more");
        }
    }

    /// After each turn: what must always hold, and now and then everything.
    fn look_closely(&mut self, node: usize) {
        let Some(process) = &mut self.nodes[node].process else { return };
        let commit = process.node.position().commit_index;
        if commit.get() >= process.checked_at.get() + CHECK_EVERY {
            process.checked_at = commit;
            self.check_all(node);
        }
        self.compare(node);
        let (told, told_commit) = self.told();
        let Some(process) = &mut self.nodes[node].process else { return };
        let leads = process.node.is_ready();
        let has_led = std::mem::replace(&mut process.led, leads);
        if leads && !has_led {
            process.was_ready = true;
            // Only now is the end of the log applied.
            let position = process.node.position();
            self.note_serving();
            if position < told || position.commit_index < told_commit {
                self.fail(format!("P1, P10: node {} leads from {position:?} on, and {told:?} was told", node + 1));
            }
        }
    }

    /// Every invariant of every module, and the books of every path.
    pub(crate) fn check_all(&mut self, node: usize) {
        let Some(process) = &self.nodes[node].process else { return };
        process.node.check();
        let state = process.node.shard().state();
        for path in state.paths.values() {
            let books = state.books(path);
            let sum = books.delivered + books.dropped + books.dlq + books.depth;
            assert_eq!(books.produced, sum, "P9: {books:?}");
        }
        check_letters(state);
        self.tally.checks += 1;
    }
}

/// Most events between two looks at the clock and the outputs, as in the server.
const EVENTS_PER_TURN: usize = 512;
/// Commands applied between two looks at everything.
const CHECK_EVERY: u64 = 64;
