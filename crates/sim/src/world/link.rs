//! A connection between a client and a node: what is on its way, what waits for a slow reader, and what a break loses.

use std::collections::{BTreeSet, VecDeque};

use mortarmq_node::{Delivery, Output, Request, Unsent};
use mortarmq_types::{ConnectionId, DeliveryId};

use super::World;
use super::event::{Client, Event, Input, ToClient};
use super::node::Process;
use crate::plan::LinkEnd;

/// A connection.
pub(crate) struct Link {
    pub(crate) client: Client,
    pub(crate) node: usize,
    pub(crate) life: u64,
    /// Requests on their way to the node.
    up: VecDeque<Vec<Request>>,
    last_up_us: u64,
    last_down_us: u64,
    /// What the loop handed over and the connection has not written.
    outlet: VecDeque<Output>,
    pub(crate) queued_bytes: u64,
    is_pumped: bool,
    pub(crate) stalled_until_us: u64,
    /// For how many looks of its client nothing came though something was asked.
    pub(crate) silent_looks: u64,
    /// Whether the node's end takes anything.
    pub(crate) is_open: bool,
    /// Deliveries that the loop handed over.
    pub(crate) handed: BTreeSet<DeliveryId>,
    /// Whether it breaks as soon as several frames are on their way to the node.
    breaks_between_frames: bool,
    /// Whether the client, or the node that stops, lets nothing more be asked.
    takes_no_requests: bool,
    /// Whether the node was told so: it ends when everything is answered.
    is_ending: bool,
    /// Answers that the node owes.
    expected: u64,
}

impl World {
    /// Opens a connection of a client to the node whose turn it is; nothing if that is down.
    pub(crate) fn open_link(&mut self, client: Client) -> Option<ConnectionId> {
        let node = self.target(client);
        let accepts = |process: &&Process| process.stopping.is_none() && (process.was_ready || self.has_peers());
        if self.nodes[node].process.as_ref().filter(accepts).is_none() {
            self.turn_to_next(client);
            return None;
        }
        self.last_connection += 1;
        let connection = ConnectionId::new(self.last_connection);
        let link = Link {
            client,
            node,
            life: self.nodes[node].life,
            up: VecDeque::new(),
            last_up_us: 0,
            last_down_us: 0,
            outlet: VecDeque::new(),
            queued_bytes: 0,
            is_pumped: false,
            stalled_until_us: 0,
            silent_looks: 0,
            is_open: true,
            handed: BTreeSet::new(),
            breaks_between_frames: false,
            takes_no_requests: false,
            is_ending: false,
            expected: 0,
        };
        self.links.insert(connection, link);
        self.give(node, Input::Connected { connection });
        Some(connection)
    }

    /// Sends requests of a client, in order.
    pub(crate) fn send(&mut self, connection: ConnectionId, requests: Vec<Request>) {
        let way_us = self.net.delay(20, self.settings.link_us);
        let open = |link: &&mut Link| link.is_open && !link.takes_no_requests;
        let Some(link) = self.links.get_mut(&connection).filter(open) else { return };
        let at_us = (self.now_us + way_us).max(link.last_up_us);
        link.last_up_us = at_us;
        link.up.push_back(requests);
        let frames: usize = link.up.iter().map(Vec::len).sum();
        if link.breaks_between_frames && frames > 1 {
            return self.break_link(connection);
        }
        self.at(at_us, Event::Arrive { connection });
    }

    /// A connection ends, in one of the ways in which connections do.
    pub(crate) fn end_link(&mut self, connection: ConnectionId, end: LinkEnd) {
        match end {
            LinkEnd::Breaks => self.break_link(connection),
            LinkEnd::BetweenFrames => {
                if let Some(link) = self.links.get_mut(&connection) {
                    link.breaks_between_frames = true;
                }
            }
            LinkEnd::HalfClosed => self.half_close(connection),
        }
    }

    /// Nothing more is asked on a connection: its node is told when all that was asked has come.
    pub(super) fn half_close(&mut self, connection: ConnectionId) {
        let Some(link) = self.links.get_mut(&connection).filter(|link| link.is_open) else { return };
        link.takes_no_requests = true;
        let (at_us, node, life) = (link.last_up_us, link.node, link.life);
        self.at(at_us, Event::HalfClosed { node, life, connection });
    }

    /// The node hears that nothing more is asked.
    pub(crate) fn half_closed(&mut self, connection: ConnectionId) {
        let Some(link) = self.links.get_mut(&connection).filter(|link| link.is_open && !link.is_ending) else { return };
        link.is_ending = true;
        let node = link.node;
        self.give(node, Input::NoMoreRequests { connection });
        self.close_if_answered(connection);
    }

    /// Closes a connection on which nothing more is asked, once everything is answered.
    fn close_if_answered(&mut self, connection: ConnectionId) {
        let Some(link) = self.links.get_mut(&connection) else { return };
        if !link.is_open || !link.is_ending || link.expected > 0 || !link.outlet.is_empty() {
            return;
        }
        link.is_open = false;
        let (node, at_us) = (link.node, link.last_down_us.max(self.now_us) + 1);
        self.tally.reach("a half-closed connection got all its answers");
        self.give(node, Input::Disconnected { connection });
        self.at(at_us, Event::Lost { connection });
        self.stop_loop_if_closed(node);
    }

    /// Whether a node has connections that are not closed.
    pub(super) fn has_links(&self, node: usize) -> bool {
        self.links.values().any(|link| link.node == node && link.is_open)
    }

    /// A node reads nothing more from a connection: what is on its way is lost.
    pub(super) fn take_no_more(&mut self, connection: ConnectionId) {
        if let Some(link) = self.links.get_mut(&connection) {
            link.takes_no_requests = true;
            link.up.clear();
        }
    }

    /// The open connections of a node.
    pub(super) fn links_of(&self, node: usize) -> Vec<ConnectionId> {
        self.links.iter().filter(|(_, link)| link.node == node && link.is_open).map(|(id, _)| *id).collect()
    }

    /// Requests reach their node.
    pub(crate) fn arrive(&mut self, connection: ConnectionId) {
        let Some(link) = self.links.get_mut(&connection) else { return };
        let Some(requests) = link.up.pop_front() else { return };
        let (node, is_open) = (link.node, link.is_open);
        if is_open {
            link.expected += requests.iter().map(Request::places).sum::<u64>();
            self.give(node, Input::Requests { connection, requests });
        }
    }

    /// The loop hands something over. What is for a connection that takes nothing comes back.
    pub(crate) fn hand_over(&mut self, connection: ConnectionId, output: Output) -> Option<Output> {
        let way_us = self.net.delay(5, 30);
        let Some(link) = self.links.get_mut(&connection).filter(|link| link.is_open) else { return Some(output) };
        link.queued_bytes += bytes(&output);
        if let Output::Deliveries { messages, .. } = &output {
            link.handed.extend(messages.iter().map(|found| found.delivery_id));
        }
        link.outlet.push_back(output);
        if !link.is_pumped {
            link.is_pumped = true;
            let at_us = (self.now_us + way_us).max(link.stalled_until_us);
            self.at(at_us, Event::Pump { connection });
        }
        None
    }

    /// The connection writes what waits, unless its reader takes nothing.
    pub(crate) fn pump(&mut self, connection: ConnectionId) {
        let Some(link) = self.links.get_mut(&connection) else { return };
        let (node, life) = (link.node, link.life);
        if self.nodes[node].life != life || self.nodes[node].process.is_none() {
            return;
        }
        if link.stalled_until_us > self.now_us {
            let until_us = link.stalled_until_us;
            return self.at(until_us, Event::Pump { connection });
        }
        link.is_pumped = false;
        link.queued_bytes = 0;
        let waiting = std::mem::take(&mut link.outlet);
        link.expected -= waiting.iter().map(answers).sum::<u64>();
        let now = self.nodes[node].clock.now(self.now_us).monotonic;
        let served_us = self.served_us();
        let mut messages = Vec::new();
        for output in waiting {
            match output {
                Output::Replies { replies, .. } => messages.push(ToClient::Replies(replies)),
                Output::PullEnded { result, .. } => messages.push(ToClient::PullEnded { result }),
                Output::Deliveries { subscription, messages: deliveries, .. } => {
                    let (fresh, spent): (Vec<_>, Vec<_>) =
                        deliveries.into_iter().partition(|delivery| now < delivery.send_before);
                    messages.extend(fresh.into_iter().map(|delivery| {
                        let lease_ms = delivery.lease_until.since_ms(now);
                        // The node's clock counts milliseconds.
                        let served_until_us = served_us.map(|served_us| served_us + lease_ms.saturating_sub(1) * 1000);
                        ToClient::Delivery { delivery: Box::new(delivery), lease_ms, served_until_us }
                    }));
                    if !spent.is_empty() {
                        self.tally.reach("lease half spent before it was sent");
                        let unsent = spent.iter().map(unsent).collect();
                        self.give(node, Input::Unsent { connection, subscription, unsent });
                    }
                }
                _ => unreachable!("nothing else goes to a connection"),
            }
        }
        for message in messages {
            let way_us = self.net.delay(20, self.settings.link_us);
            let link = self.links.get_mut(&connection).expect("looked at above");
            let at_us = (self.now_us + way_us).max(link.last_down_us);
            link.last_down_us = at_us;
            self.at(at_us, Event::Receive { connection, message });
        }
        self.close_if_answered(connection);
    }

    /// Breaks a connection: of what is on its way to the node a part arrives, of what is on its way to the client nothing.
    pub(crate) fn break_link(&mut self, connection: ConnectionId) {
        let Some(link) = self.links.get_mut(&connection) else { return };
        link.is_open = false;
        let breaks_between_frames = link.breaks_between_frames;
        let (node, under_way) = (link.node, std::mem::take(&mut link.up));
        let all: Vec<Request> = under_way.into_iter().flatten().collect();
        let kept = if breaks_between_frames && all.len() > 1 {
            self.net.between(1, all.len() as u64 - 1)
        } else {
            self.net.below(all.len() as u64 + 1)
        };
        let is_cut = kept > 0 && (kept as usize) < all.len();
        let requests: Vec<Request> = all.into_iter().take(usize::try_from(kept).expect("few")).collect();
        if is_cut {
            self.tally.reach("a connection broke between two frames");
        }
        if !requests.is_empty() {
            self.give(node, Input::Requests { connection, requests });
        }
        self.give(node, Input::Disconnected { connection });
        let at_us = self.now_us + self.net.delay(1, 100);
        self.at(at_us, Event::Lost { connection });
    }

    /// Ends a connection whose reader is too slow: what waits goes back.
    pub(crate) fn turn_out(&mut self, connection: ConnectionId) {
        let Some(link) = self.links.get_mut(&connection) else { return };
        link.is_open = false;
        let node = link.node;
        let waiting = std::mem::take(&mut link.outlet);
        self.give(node, Input::TurnedOut { connection });
        for output in waiting {
            if let Output::Deliveries { subscription, messages, .. } = output {
                let unsent = messages.iter().map(unsent).collect();
                self.give(node, Input::Unsent { connection, subscription, unsent });
            }
        }
        self.give(node, Input::Disconnected { connection });
        self.at(self.now_us + 100, Event::Lost { connection });
        self.tally.reach("a slow reader was turned out");
    }

    /// All connections of a node break because it is gone.
    pub(crate) fn break_all(&mut self, node: usize) {
        for connection in self.links_of(node) {
            let link = self.links.get_mut(&connection).expect("just found");
            link.is_open = false;
            link.up.clear();
            link.outlet.clear();
            let client = link.client;
            let at_us = self.now_us + self.net.delay(1, 100);
            self.turn_to_next(client);
            self.at(at_us, Event::Lost { connection });
        }
    }
}

fn unsent(delivery: &Delivery) -> Unsent {
    Unsent { partition: delivery.partition, seq: delivery.seq, delivery_id: delivery.delivery_id }
}

/// How many answers are in it.
fn answers(output: &Output) -> u64 {
    match output {
        Output::Replies { replies, .. } => replies.len() as u64,
        Output::PullEnded { .. } => 1,
        _ => 0,
    }
}

/// What waits in memory for a slow reader, as the server counts it.
fn bytes(output: &Output) -> u64 {
    match output {
        Output::Deliveries { messages, .. } => {
            messages.iter().map(|found| found.record.body().len() as u64 + 100).sum()
        }
        _ => 0,
    }
}
