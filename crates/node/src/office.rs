//! The office: what begins with it, and what becomes of everything that was under way when it ends.

use mortarmq_shard::Setting;
use mortarmq_types::{Epoch, Mutant, NodeId};

use crate::config::Now;
use crate::node::Node;
use crate::output::Output;
use crate::refusal::not_leading;
use crate::sessions::Session;
use crate::unreadable::Retries;

/// Who leads, as far as this node knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Office {
    pub(crate) leader: Option<NodeId>,
    pub(crate) epoch: Epoch,
    pub(crate) is_leader: bool,
}

impl Node {
    /// The office changed, or who holds it became known.
    pub(crate) fn handle_role(&mut self, now: Now, office: Office) {
        let before = std::mem::replace(&mut self.office, office);
        if before == office {
            return;
        }
        let is_another = before.epoch != office.epoch;
        if self.leads && (is_another || !office.is_leader) {
            self.end_office(now);
        }
        if office.is_leader && !self.leads {
            self.begin_office(now);
        }
        if is_another || office.is_leader != before.is_leader {
            self.forward_anew(now);
        }
        let Office { leader, epoch, is_leader } = office;
        self.outputs.push_back(Output::Role { leader, epoch, is_leader });
        self.tell_hand_overs();
    }

    fn begin_office(&mut self, now: Now) {
        (self.leads, self.settled_in, self.first_batch_due) = (true, false, true);
        self.has_given_way = false;
        if self.config.has_peers() {
            self.clock.begin_office();
        }
        self.sessions.clear();
        self.begin_sessions(now);
    }

    /// The first batch of this leadership is applied, and with it the end of the log that the last leader left: what that
    /// did is known only now.
    pub(crate) fn settle_in(&mut self, now: Now) {
        self.settled_in = true;
        self.begin_sessions(now);
        self.begin_retries();
    }

    /// Whoever waits for what was proposed is told that the result is not known; what was not proposed is refused. The
    /// members of this node's connections resume, here or elsewhere, as those of a connection that broke do.
    fn end_office(&mut self, now: Now) {
        self.end_giving(now);
        self.end_readmissions();
        // Whatever else is proposed came later.
        let undeclared_ms = self.proposed.front().map_or(0, |batch| batch.gap_ms);
        self.clock.end_office(self.last_heard(), undeclared_ms);
        (self.leads, self.settled_in, self.first_batch_due) = (false, false, false);
        while let Some(batch) = self.proposed.pop_front() {
            self.forget_waiters(batch.waiters);
        }
        let waiters = self.open.abandon();
        self.refuse_waiters(waiters);
        let failure = not_leading(self.office.leader);
        while let Some(parked) = self.overflow.pop_front() {
            self.overflow_bytes -= parked.bytes;
            let Some(parked) = self.keep_for_heir(now, parked) else { continue };
            self.answer_all(parked.connection, parked.slot, parked.request.places(), &failure);
        }
        for destination in self.connections.take_subscriptions() {
            self.sends.end(destination, &failure);
            self.advance(destination);
        }
        for id in self.pulls.matching(|_| true) {
            if let Some(pull) = self.pulls.remove(id) {
                self.end_pull(pull.connection, pull.subscription, Err(failure.clone()));
            }
        }
        self.fail_queries(&failure);
        self.streams_end();
        self.end_runs();
        self.sessions.clear();
        self.attention.clear();
        self.looked_early.clear();
        self.retries = Retries::default();
    }

    /// Every member that has no session gets a full session time from a new leader.
    fn begin_sessions(&mut self, now: Now) {
        for (id, path) in &self.shard.state().paths {
            let session_ms = path.settings.get(Setting::SessionMs);
            for member in path.members.keys() {
                let key = (*id, *member);
                if self.sessions.get(key).is_none() {
                    let session_ms = if Mutant::MembersLostOnFailover.is_on() { 0 } else { session_ms };
                    self.sessions.open(key, Session::new(None, session_ms, now.monotonic));
                }
            }
        }
    }
}
