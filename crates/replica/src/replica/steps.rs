//! The steps between input and output: rounds of the library, what is let out when, and who leads.

use mortarmq_types::Mutant;
use raft::eraftpb;

use super::Replica;
use crate::election::election_ticks;
use crate::entry::{Entry, EntryKind, HardState};
use crate::output::Output;
use crate::peer_message::PeerMessage;
use crate::ready_queue::{PendingReady, Released};

impl Replica {
    /// Takes one round from the library and turns it into outputs. Nothing else may touch the library meanwhile.
    pub(super) fn take_ready(&mut self) {
        let mut ready = self.raw.ready();
        let snapshot = (ready.snapshot().get_metadata().index, ready.snapshot().get_metadata().term);
        // Only a leader has these: its entries may travel while its own fsync runs.
        self.send(ready.take_messages());
        let hard_state = HardState::from_raft(&self.raw.raft.hard_state());
        let entries = ready.take_entries();
        let pending = PendingReady {
            number: ready.number(),
            // False when nothing but the commit index changed, which is not worth an fsync of its own.
            must_sync: ready.must_sync(),
            term: hard_state.term,
            bytes: entries.iter().map(|entry| entry.data.len() as u64).sum(),
            tick: self.tick,
            gated: ready.take_persisted_messages(),
        };
        let begins_anew = self.begin_behind(snapshot);
        if pending.must_sync {
            self.outputs.push_back(Output::Append {
                ready_number: pending.number,
                hard_state,
                entries: begins_anew.into_iter().chain(entries.iter().map(Entry::from_raft)).collect(),
            });
            // The library reads them back from here before they are durable.
            entries.into_iter().for_each(|entry| self.raw.mut_store().append(entry));
        }
        let committed = ready.take_committed_entries();
        for read in ready.take_read_states() {
            self.reads.confirm(&read.request_ctx, read.index);
        }
        self.raw.advance_append_async(ready);
        if Mutant::OwnUnsyncedCounted.is_on() && !self.is_alone() && self.is_leader() {
            self.raw.on_persist_ready(pending.number);
        }
        self.deliver(&committed);
        if let Some(released) = self.ready_queue.push(pending) {
            self.release(released);
        }
        self.after_input();
    }

    /// Lets out what waited for the disk, and tells the library.
    pub(super) fn release(&mut self, released: Released) {
        assert!(released.term >= self.durable_term, "P10: term {} after {}", released.term, self.durable_term);
        self.durable_term = released.term;
        self.send(released.messages);
        self.raw.on_persist_ready(released.number);
        self.end_install();
    }

    fn send(&mut self, messages: Vec<eraftpb::Message>) {
        for message in messages {
            let to = message.to;
            let message = PeerMessage::from_library(message).short_of_room(self.is_short_of_room);
            self.outputs.push_back(Output::Send { to, message });
        }
    }

    fn deliver(&mut self, committed: &[eraftpb::Entry]) {
        let mut entries = Vec::new();
        for entry in committed.iter().map(Entry::from_raft) {
            let log_index = entry.log_index;
            assert_eq!(log_index, self.delivered + 1, "committed entries are delivered once, in order");
            if entry.kind == EntryKind::ConfChange {
                let change = entry.change().expect("one that is not known is refused at both doors");
                self.changes.push_back((log_index, change));
            }
            self.delivered = log_index;
            if entry.has_payload() {
                self.delivered_payload = log_index;
                entries.push(entry);
            }
        }
        if !entries.is_empty() {
            self.outputs.push_back(Output::Committed { entries });
        } else if self.applied >= self.delivered_payload {
            self.set_applied(self.delivered);
        }
    }

    pub(super) fn set_applied(&mut self, applied: u64) {
        // A repeated report changes nothing; the index itself never goes back.
        if applied > self.applied {
            self.applied = applied;
            self.raw.advance_apply_to(applied);
            self.raw.mut_store().compact(applied);
        }
    }

    pub(super) fn begin_read_round(&mut self) {
        // Before an entry of its own epoch is committed a leader cannot know what is, and the library would drop the
        // request without a word.
        if self.is_leader()
            && self.raw.raft.commit_to_current_term()
            && let Some(context) = self.reads.begin_round()
        {
            self.raw.read_index(context);
            self.after_input();
        }
    }

    /// Ends every call into the library: takes its randomness away before it is read, and looks at what must hold.
    pub(super) fn after_input(&mut self) {
        let raft = &mut self.raw.raft;
        let ticks = election_ticks(self.place, self.places, raft.term);
        raft.set_randomized_election_timeout(ticks);
        self.assert_order();
        self.highest_term = self.raw.raft.term;
        self.highest_commit = self.committed_log_index();
    }

    pub(super) fn assert_order(&self) {
        let (term, committed) = (self.raw.raft.term, self.committed_log_index());
        assert!(term >= self.highest_term, "P10: term {term} after {}", self.highest_term);
        assert!(committed >= self.highest_commit, "P10: commit {committed} after {}", self.highest_commit);
        assert!(
            self.applied <= self.delivered && self.delivered <= committed,
            "applied {}, delivered {}, committed {committed}",
            self.applied,
            self.delivered
        );
    }
}
