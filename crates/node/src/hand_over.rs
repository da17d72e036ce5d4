//! Giving the office away: nothing that was asked is lost by it, and an operator who asked for it is told what became of it.
//!
//! While a replica hands over, what is proposed is dropped. So a leader that gives its office away proposes first what it has
//! in hand, and asks another node to lead once that is applied; what comes in meanwhile waits, and goes to the next leader as
//! what any follower forwards. Whoever publishes here notices a pause of some milliseconds and no error.

use mortarmq_replica::HandOverError;
use mortarmq_types::{MonotonicTime, NodeId};
use mortarmq_wire::ErrorCode;

use crate::config::Now;
use crate::forward::is_streams;
use crate::forward::message::forwardable;
use crate::node::{Node, Parked};
use crate::peers::{PeerState, PeerView};
use crate::refusal::not_leading;
use crate::reply::{Failure, QueryAnswer};

/// An office that is given away, and operators who wait for another node to lead.
#[derive(Debug, Default)]
pub(crate) struct HandOvers {
    waiting: Vec<Waiting>,
    giving: Option<Giving>,
    /// Until then a leader is expected that was asked to be one, and what is to be forwarded waits for it.
    heir_awaited_until: Option<MonotonicTime>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    query: u64,
    to: NodeId,
    since: MonotonicTime,
}

/// This leader gives its office away.
#[derive(Clone, Copy, Debug)]
struct Giving {
    /// To whom; none is whoever could take it soonest, again and again.
    to: Option<NodeId>,
    since: MonotonicTime,
    /// Whether the other node was asked.
    is_asked: bool,
}

impl HandOvers {
    /// Nobody waits for this answer any more.
    pub(crate) fn forget(&mut self, query: u64) {
        self.waiting.retain(|waiting| waiting.query != query);
    }

    /// Whether what comes in waits for the next leader.
    pub(crate) const fn is_giving(&self) -> bool {
        self.giving.is_some()
    }

    /// Whether another node was asked to lead and may be about to.
    pub(crate) fn awaits_heir(&self, now: MonotonicTime) -> bool {
        self.heir_awaited_until.is_some_and(|until| now < until)
    }
}

impl Node {
    /// Asks another node to lead, and answers when it does.
    pub(crate) fn begin_hand_over(&mut self, now: Now, query: u64, to: NodeId) {
        if let Err(failure) = self.check_heir(to) {
            return self.reply(query, Err(failure));
        }
        if self.office.leader == Some(to) {
            return self.tell_leader(query);
        }
        self.hand_overs.waiting.push(Waiting { query, to, since: now.monotonic });
        self.begin_giving(now, Some(to));
    }

    /// From now on what comes in waits, and when what is under way is applied another node is asked to lead.
    pub(crate) fn begin_giving(&mut self, now: Now, to: Option<NodeId>) {
        // A node that is about to stop gives it to anybody, whomever it was to be given to before.
        let is_first = self.hand_overs.giving.is_none() || to.is_none();
        if self.leads && self.config.has_peers() && is_first {
            self.hand_overs.giving = Some(Giving { to, since: now.monotonic, is_asked: false });
        }
    }

    /// Asks the other node once nothing is under way, or that has taken too long; says whether it did.
    pub(crate) fn poll_giving(&mut self, now: Now) -> bool {
        let Some(giving) = self.hand_overs.giving.filter(|giving| !giving.is_asked) else { return false };
        let is_drained = self.open.is_empty() && self.proposed.is_empty();
        if !is_drained && now.monotonic.since_ms(giving.since) < DRAIN_MS {
            return false;
        }
        self.hand_overs.giving = Some(Giving { is_asked: true, ..giving });
        if giving.to.is_none() {
            self.replica.stand_aside();
        } else {
            // Whatever keeps it from leading: the time is over soon.
            let _ = self.hand_over_now(giving.to);
        }
        true
    }

    /// The office is over: a request that waited goes to the next leader, or comes back where it cannot.
    pub(crate) fn keep_for_heir(&mut self, now: Now, parked: Parked) -> Option<Parked> {
        let Parked { connection, slot, ref request, .. } = parked;
        if !self.hand_overs.awaits_heir(now.monotonic) || is_streams(connection) {
            return Some(parked);
        }
        let Some(is_repeatable) = forwardable(request) else { return Some(parked) };
        if !self.asks.has_room(request, self.config.max_pending_bytes) {
            return Some(parked);
        }
        self.asks.push(now.monotonic, (connection, slot), parked.request, is_repeatable);
        None
    }

    /// The office is over.
    pub(crate) fn end_giving(&mut self, now: Now) {
        match self.hand_overs.giving.take() {
            Some(Giving { is_asked: true, .. }) => {
                self.hand_overs.heir_awaited_until = Some(now.monotonic.after_ms(AWAIT_HEIR_MS));
            }
            // It was elected away before; it must not come back.
            Some(Giving { to: None, .. }) => self.replica.stand_aside(),
            Some(_) | None => {}
        }
    }

    /// Asks another node to lead, now.
    pub(crate) fn hand_over_now(&mut self, to: Option<NodeId>) -> Result<NodeId, HandOverError> {
        // A node that is no member is none that anything can be handed to.
        let to = to.map(|node| self.replica.members().life_of(node.get().into()).unwrap_or(0));
        self.replica.hand_over(to).map(crate::config::node_of)
    }

    /// The office changed, or who holds it became known.
    pub(crate) fn tell_hand_overs(&mut self) {
        let Some(leader) = self.office.leader else { return };
        self.hand_overs.heir_awaited_until = None;
        for waiting in std::mem::take(&mut self.hand_overs.waiting) {
            match leader {
                leader if leader == waiting.to => self.tell_leader(waiting.query),
                // It was not given away yet.
                leader if leader == self.config.node_id => self.hand_overs.waiting.push(waiting),
                leader => {
                    let text = format!("node {leader} was elected instead of node {}", waiting.to);
                    self.reply(waiting.query, Err(not_handed_over(&text)));
                }
            }
        }
    }

    /// Time passed for an office that is given away, and for those who wait for it.
    pub(crate) fn tick_hand_overs(&mut self, now: Now) {
        self.poll_giving(now);
        let is_over = |giving: &Giving| {
            let is_given_up = giving.is_asked && giving.to.is_some() && !self.replica.is_handing_over();
            is_given_up || now.monotonic.since_ms(giving.since) >= GIVE_MS
        };
        if self.hand_overs.giving.as_ref().is_some_and(is_over) {
            // Nobody took it: what waits is served here.
            self.hand_overs.giving = None;
            self.admit_overflow(now);
        }
        let is_kept = self.leads && self.hand_overs.giving.is_none();
        for waiting in std::mem::take(&mut self.hand_overs.waiting) {
            if is_kept {
                let text = format!("node {} did not take the office in time; this node still leads", waiting.to);
                self.reply(waiting.query, Err(not_handed_over(&text)));
            } else if now.monotonic.since_ms(waiting.since) >= GIVE_UP_MS {
                let text = format!("after {GIVE_UP_MS} ms it is not known here who leads");
                self.reply(waiting.query, Err(not_handed_over(&text)));
            } else {
                self.hand_overs.waiting.push(waiting);
            }
        }
    }

    fn tell_leader(&mut self, query: u64) {
        let view = self.leader_view();
        self.reply(query, Ok(QueryAnswer::Leader(view)));
    }

    /// Whether a node could take the office.
    fn check_heir(&self, to: NodeId) -> Result<(), Failure> {
        let mut nodes: Vec<NodeId> = self.config.peers.iter().map(|peer| peer.node_id).collect();
        if nodes.is_empty() {
            nodes.push(self.config.node_id);
        }
        if !nodes.contains(&to) {
            nodes.sort_unstable();
            let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
            let text = format!("node {to} is none of this cluster; its nodes are {}", nodes.join(", "));
            return Err(Failure::new(ErrorCode::MalformedPayload, text));
        }
        if self.office.leader == Some(to) {
            return Ok(());
        }
        if !self.leads {
            return Err(not_leading(self.office.leader));
        }
        let view = self.peers().into_iter().find(|view| view.node_id == to);
        view.and_then(|view| why_not(&view)).map_or(Ok(()), |text| Err(not_handed_over(&text)))
    }
}

/// Why a follower could not take the office now.
fn why_not(view: &PeerView) -> Option<String> {
    let node = view.node_id;
    if view.learns {
        return Some(format!("node {node} is being readmitted and cannot lead before"));
    }
    match view.state {
        PeerState::Current => None,
        PeerState::Silent => Some(match view.silent_ms {
            Some(ms) => format!("node {node} was last heard {ms} ms ago: it is down or cut off"),
            None => format!("node {node} was not heard since this node leads: it is down or cut off"),
        }),
        PeerState::Lagging => Some(format!(
            "node {node} lacks {} MiB of the log: nothing could be written until it has it",
            view.lag_bytes.unwrap_or_default().div_ceil(1 << 20)
        )),
        PeerState::CatchUpRequired => Some(format!("node {node} is being brought up by files and cannot lead before")),
    }
}

/// The office stays where it is, and nothing else has changed.
fn not_handed_over(why: &str) -> Failure {
    Failure::new(ErrorCode::MutationFenced, format!("the office was not handed over: {why}"))
}

/// A batch that was begun is applied by then, unless the disk or the others are slow.
const DRAIN_MS: u64 = 100;
/// The replica gives a hand-over up after 500 ms.
const GIVE_MS: u64 = DRAIN_MS + 600;
/// Whoever takes the office says so at once; else somebody is elected about then.
const AWAIT_HEIR_MS: u64 = 1000;
/// Longer than any election takes.
const GIVE_UP_MS: u64 = 3000;

#[cfg(test)]
mod tests {
    use super::why_not;
    use crate::peers::{PeerState, PeerView};
    use mortarmq_types::NodeId;

    #[test]
    fn a_node_that_cannot_lead_is_told_with_its_reason() {
        let view = |state, silent_ms| PeerView {
            node_id: NodeId::new(2),
            learns: false,
            state,
            lag_bytes: Some(65 << 20),
            lag_entries: 7,
            silent_ms,
        };
        assert_eq!(why_not(&view(PeerState::Current, Some(0))), None);
        for (state, silent_ms, said) in [
            (PeerState::Silent, Some(450), "last heard 450 ms ago"),
            (PeerState::Silent, None, "not heard since"),
            (PeerState::Lagging, Some(0), "lacks 65 MiB"),
            (PeerState::CatchUpRequired, Some(0), "by files"),
        ] {
            let text = why_not(&view(state, silent_ms)).expect(said);
            assert!(text.starts_with("node 2 ") && text.contains(said), "{text}");
        }
    }
}
