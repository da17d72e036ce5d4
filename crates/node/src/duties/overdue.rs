//! Waits that are over: pulls without messages, and publishes that no majority confirmed in time.

use crate::config::Now;
use crate::node::Node;
use crate::open_batch::{Waiter, WaiterKind};

impl Node {
    /// Ends pulls whose wait is over.
    pub(super) fn end_waits(&mut self, now: Now) {
        for id in self.pulls.expired(now.monotonic) {
            self.finish_pull(id);
        }
    }

    /// Answers those who waited too long for a proposed batch: it may still commit, so the outcome is unknown.
    pub(super) fn answer_overdue(&mut self, now: Now) {
        let timeout_ms = self.config.publish_timeout_ms;
        let overdue: Vec<Vec<Waiter>> = self
            .proposed
            .iter_mut()
            .filter(|batch| now.monotonic.since_ms(batch.proposed_at) >= timeout_ms)
            .map(|batch| {
                let commands = batch.waiters.iter().map(|waiter| waiter.commands).sum();
                let nobody = vec![Waiter { commands, kind: WaiterKind::Nobody }];
                std::mem::replace(&mut batch.waiters, nobody)
            })
            .collect();
        for waiters in overdue {
            self.forget_waiters(waiters);
        }
    }
}
