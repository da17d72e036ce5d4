//! A connection between a client and a node: what is on its way, what waits for a slow reader, and what a break loses.

use std::collections::{BTreeSet, VecDeque};

use mortarmq_node::{Delivery, Output, Request, Unsent};
use mortarmq_types::{ConnectionId, DeliveryId};

use super::World;
use super::event::{Client, Event, Input, ToClient};

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
    /// Whether the node's end takes anything.
    pub(crate) is_open: bool,
    /// Deliveries that the loop handed over.
    pub(crate) handed: BTreeSet<DeliveryId>,
}

impl World {
    /// Opens a connection of a client; nothing if the node is down.
    pub(crate) fn open_link(&mut self, client: Client, node: usize) -> Option<ConnectionId> {
        self.nodes[node].process.as_ref().filter(|process| process.was_ready)?;
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
            is_open: true,
            handed: BTreeSet::new(),
        };
        self.links.insert(connection, link);
        self.give(node, Input::Connected { connection });
        Some(connection)
    }

    /// Sends requests of a client, in order.
    pub(crate) fn send(&mut self, connection: ConnectionId, requests: Vec<Request>) {
        let way_us = self.net.delay(20, self.settings.link_us);
        let Some(link) = self.links.get_mut(&connection).filter(|link| link.is_open) else { return };
        let at_us = (self.now_us + way_us).max(link.last_up_us);
        link.last_up_us = at_us;
        link.up.push_back(requests);
        self.at(at_us, Event::Arrive { connection });
    }

    /// Requests reach their node.
    pub(crate) fn arrive(&mut self, connection: ConnectionId) {
        let Some(link) = self.links.get_mut(&connection) else { return };
        let Some(requests) = link.up.pop_front() else { return };
        let (node, is_open) = (link.node, link.is_open);
        if is_open {
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
        let now = self.nodes[node].clock.now(self.now_us).monotonic;
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
                        ToClient::Delivery { delivery: Box::new(delivery), lease_ms }
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
        self.relieve(node, connection);
    }

    /// Breaks a connection: of what is on its way to the node a part arrives, of what is on its way to the client nothing.
    pub(crate) fn break_link(&mut self, connection: ConnectionId) {
        let Some(link) = self.links.get_mut(&connection) else { return };
        link.is_open = false;
        let (node, under_way) = (link.node, std::mem::take(&mut link.up));
        let all: Vec<Request> = under_way.into_iter().flatten().collect();
        let kept = self.net.below(all.len() as u64 + 1);
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
        let gone: Vec<ConnectionId> =
            self.links.iter().filter(|(_, link)| link.node == node && link.is_open).map(|(id, _)| *id).collect();
        for connection in gone {
            let link = self.links.get_mut(&connection).expect("just found");
            link.is_open = false;
            link.up.clear();
            link.outlet.clear();
            let at_us = self.now_us + self.net.delay(1, 100);
            self.at(at_us, Event::Lost { connection });
        }
    }
}

fn unsent(delivery: &Delivery) -> Unsent {
    Unsent { partition: delivery.partition, seq: delivery.seq, delivery_id: delivery.delivery_id }
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
