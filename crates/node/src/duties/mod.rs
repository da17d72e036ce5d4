//! What the leader proposes by itself. One file per duty; here is only the list.

pub(crate) mod checkpoint;
mod defaults;
mod deliver;
mod lost_members;
mod overdue;
pub(crate) mod retain;
pub(crate) mod room;

use crate::config::Now;
use crate::node::Node;

impl Node {
    /// Adds what the leader has to propose to the batch that is about to be closed.
    pub(crate) fn add_leader_commands(&mut self, now: Now) {
        self.add_defaults();
        self.add_lost_members(now);
        self.add_retries();
        self.add_trims(now);
        self.add_letters(now);
        self.add_delivers();
    }

    /// What is due by time and needs no batch.
    pub(crate) fn run_timed_duties(&mut self, now: Now) {
        self.end_waits(now);
        self.answer_overdue(now);
        self.tick_forwarded(now);
        self.tick_hand_overs(now);
        self.tick_readmissions(now);
        self.want_trimmed_files_gone(now);
        self.free_room(now);
        self.give_way_for_room();
        self.offer_snapshots(now);
        self.fetch_again(now);
        self.go_on_with_repairs(now);
        self.ask_for_all(now);
        self.ages.look(self.shard.state(), now.monotonic);
        let gone = self.shard.give_back();
        self.forget_gone(gone);
    }
}
