//! Heartbeats are no commands: the leader counts them, and proposes the end of a member that was silent too long.

use mortarmq_shard::Command;
use mortarmq_shard::command::EndMember;

use crate::config::Now;
use crate::node::Node;
use crate::open_batch::WaiterKind;

impl Node {
    pub(super) fn add_lost_members(&mut self, now: Now) {
        while !self.open.is_full() {
            let Some((path, member)) = self.sessions.poll_lost(now.monotonic) else { return };
            self.open.add(&Command::EndMember(EndMember { path, member, lost: true }), WaiterKind::Nobody);
        }
    }
}
