//! Forwarding: a node that does not lead hands what its clients ask to the one that does, and its answers back.
//!
//! What one node forwards in one epoch is a stream: numbered, taken by the leader in order and once, and answered by number
//! (decision 015). `message.rs` and `codec.rs` are what travels, `asks.rs` is the side that forwards, `streams.rs` the side
//! that answers; here is what a node does with both.

pub(crate) mod asks;
pub(crate) mod codec;
pub(crate) mod message;
pub(crate) mod streams;

use mortarmq_types::{ConnectionId, Position};

use crate::config::Now;
use crate::forward::asks::Told;
use crate::forward::message::{ForwardBody, ForwardMessage, StreamId, forwardable};
use crate::node::Node;
use crate::output::Output;
use crate::refusal::{back_pressure, unknown};
use crate::reply::Reply;
use crate::request::Request;
use mortarmq_wire::ErrorCode;

impl Node {
    /// A message of another node about forwarded requests. One that is not for this node, or of another epoch, is dropped.
    pub fn handle_forward(&mut self, now: Now, message: ForwardMessage) {
        self.turn(now);
        let is_known = self.replica.members().may_speak(message.from);
        if message.to != self.config.raft_id() || !is_known || message.stream.epoch != self.office.epoch {
            return;
        }
        match message.body {
            ForwardBody::Ask { first, answered, requests } if self.leads => {
                let key = (message.from, message.stream.incarnation);
                let Some(taken) = self.streams.take(key, first, answered, requests) else { return };
                if taken.is_new {
                    self.connections.open_relay(taken.connection);
                }
                // What came is taken in as that of any client; the answers find their way back by the connection.
                taken.requests.into_iter().for_each(|request| self.admit(now, taken.connection, request));
            }
            ForwardBody::Answers { taken, answers } if message.stream.incarnation == self.config.node_incarnation => {
                for told in self.asks.answered(now.monotonic, taken, answers) {
                    self.tell_forwarded(told);
                }
            }
            ForwardBody::Ask { .. } | ForwardBody::Answers { .. } => {}
        }
    }

    /// Forwards a request, if this node does not lead and knows who does; or gives it back.
    pub(crate) fn forward(
        &mut self,
        now: Now,
        (connection, slot): (ConnectionId, u64),
        request: Request,
    ) -> Option<Request> {
        let has_leader = self.office.leader.is_some() || self.hand_overs.awaits_heir(now.monotonic);
        if self.leads || !has_leader || is_streams(connection) {
            return Some(request);
        }
        let Some(is_repeatable) = forwardable(&request) else { return Some(request) };
        if self.asks.has_room(&request, self.config.max_pending_bytes) {
            self.asks.push(now.monotonic, (connection, slot), request, is_repeatable);
        } else {
            let failure = back_pressure("too much is on its way to the node that leads; nothing was stored: retry");
            self.answer_all(connection, slot, request.places(), &failure);
        }
        None
    }

    /// The office changed: what was forwarded to the last leader goes to the next one, or is answered.
    pub(crate) fn forward_anew(&mut self, now: Now) {
        self.streams_end();
        let (lost, kept) = self.asks.begin_anew(self.leads);
        lost.into_iter().for_each(|told| self.tell_forwarded(told));
        for kept in kept {
            // This node leads now: nothing has to leave.
            self.admit_at(now, kept.connection, kept.slot, kept.request);
        }
    }

    /// Time passed for what is forwarded.
    pub(crate) fn tick_forwarded(&mut self, now: Now) {
        let timeout_ms = self.config.publish_timeout_ms;
        for told in self.asks.tick(now.monotonic, timeout_ms) {
            self.tell_forwarded(told);
        }
    }

    /// The next message about forwarded requests.
    pub(crate) fn poll_forward(&mut self) -> Option<Output> {
        let (to, stream, body) = if self.leads {
            let ((to, incarnation), body) = self.streams.poll()?;
            (to, StreamId { incarnation, epoch: self.office.epoch }, body)
        } else {
            let leader = self.office.leader?;
            let to = self.replica.leader().filter(|id| crate::config::node_of(*id) == leader)?;
            let body = self.asks.poll()?;
            (to, StreamId { incarnation: self.config.node_incarnation, epoch: self.office.epoch }, body)
        };
        let message = ForwardMessage { from: self.config.raft_id(), to, stream, body };
        Some(Output::SendForward { to: crate::config::node_of(to), message })
    }

    /// Keeps answers to what others forwarded, until they are sent.
    pub(crate) fn keep_for_forwarder(&mut self, connection: ConnectionId, replies: Vec<Reply>) {
        self.streams.collect(connection, replies);
    }

    /// Whoever forwarded is answered no more: this node's office is over.
    pub(crate) fn streams_end(&mut self) {
        for connection in self.streams.end() {
            self.connections.close(connection);
        }
    }

    fn tell_forwarded(&mut self, told: Told) {
        let Told { connection, slot, places, replies } = told;
        let Some(replies) = replies else {
            let text = "the node that led did not say what became of it; repeat with the same producer number: it is stored \
                        at most once";
            let failure = unknown(ErrorCode::QuorumLost, text);
            for place in 0..places {
                // Nothing was looked up. What was asked behind it, and is answered already, would be told this node's position.
                let (position, result) = (Position::default(), Err(failure.clone()));
                self.connections.answer(connection, slot + place, Reply { position, result });
            }
            return;
        };
        for (place, reply) in (0..).zip(replies) {
            self.connections.answer(connection, slot + place, reply);
        }
    }
}

/// Whether a connection stands for another node, and not for a client.
pub(crate) const fn is_streams(connection: ConnectionId) -> bool {
    connection.get() >= streams::FIRST_CONNECTION
}
