//! Waits that are over: pulls without messages, and requests that the journal does not get to in time.

use crate::config::Now;
use crate::node::Node;
use crate::open_batch::orphan;
use crate::queries::Asked;
use crate::refusal::back_pressure;
use crate::request::Request;

impl Node {
    /// Ends pulls whose wait is over. That there is nothing is told once a read index says so: whoever led until a moment
    /// ago does not know what there is.
    pub(super) fn end_waits(&mut self, now: Now) {
        for id in self.pulls.expired(now.monotonic) {
            let is_empty = self.pulls.get(id).is_some_and(|pull| pull.got_messages == 0);
            if is_empty && self.config.has_peers() {
                self.pulls.confirms(id, true);
                self.queries.ask(Asked::EmptyPull { pull_id: id });
            } else {
                self.finish_pull(id);
            }
        }
    }

    /// A read index is confirmed for an empty pull. What is on its way for it by now comes first.
    pub(crate) fn empty_pull_confirmed(&mut self, pull_id: u64) {
        self.pulls.confirms(pull_id, false);
        if self.pulls.get(pull_id).is_some_and(|pull| pull.proposed.is_none()) {
            self.finish_pull(pull_id);
        }
    }

    /// Answers those who waited too long, whatever they asked for. What is proposed, or stands in the batch that will be
    /// next, may still commit, so the outcome is unknown. What waits for its place in a batch is given up: nothing of it
    /// was stored.
    pub(super) fn answer_overdue(&mut self, now: Now) {
        let timeout_ms = self.config.publish_timeout_ms;
        let mut overdue = Vec::new();
        for batch in &mut self.proposed {
            if now.monotonic.since_ms(batch.proposed_at) >= timeout_ms {
                overdue.push(orphan(&mut batch.waiters));
            }
        }
        overdue.extend(self.open.take_overdue(now.monotonic, timeout_ms));
        for waiters in overdue {
            self.forget_waiters(waiters);
        }
        while let Some(parked) = self.overflow.front()
            && now.monotonic.since_ms(parked.since) >= timeout_ms
        {
            let parked = self.overflow.pop_front().expect("looked at above");
            self.overflow_bytes -= parked.bytes;
            let publish = if let Request::Publish(run) = &parked.request { Some(run.count) } else { None };
            let for_space = publish.and_then(|_| self.refusal_for_space());
            let failure =
                for_space.unwrap_or_else(|| back_pressure("the journal takes nothing; nothing was stored: retry"));
            self.answer_all(parked.connection, parked.slot, publish.map_or(1, u64::from), &failure);
        }
    }
}
