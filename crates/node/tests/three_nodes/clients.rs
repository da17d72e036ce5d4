//! Clients: they find the leader by asking one node after another, and go elsewhere when nobody answers.

use mortarmq_node::{Delivery, Reply};
use mortarmq_types::ConnectionId;

use super::consumer::Consumer;
use super::producer::Producer;
use super::world::{Event, World};

/// One client.
pub(crate) enum Client {
    Producer(Producer),
    Consumer(Consumer),
}

/// What a client hears.
#[derive(Debug)]
pub(crate) enum Heard {
    Reply(Reply),
    Message {
        message: Box<Delivery>,
        /// When its lease ends, by the sender's clock.
        until_us: u64,
    },
    Broken,
}

/// The line to a node, and where to go next.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) me: usize,
    pub(crate) node: usize,
    pub(crate) connection: Option<ConnectionId>,
    /// Whether it stays with its node, whatever that says.
    pub(crate) stays: bool,
}

impl Line {
    pub(crate) fn new(me: usize, node: usize) -> Self {
        Self { me, node, connection: None, stays: false }
    }

    /// Opens the connection, if there is none; says whether it is there.
    pub(crate) fn open(&mut self, world: &mut World) -> Option<ConnectionId> {
        if self.connection.is_none() {
            self.connection = world.connect(self.me, self.node);
            if self.connection.is_none() && !self.stays {
                self.node = (self.node + 1) % world.machines.len();
            }
        }
        self.connection
    }

    /// Leaves the connection, for that of another node.
    pub(crate) fn leave(&mut self, world: &mut World) {
        if let Some(connection) = self.connection.take() {
            world.at(0, Event::Disconnect { connection });
        }
        if !self.stays {
            self.node = (self.node + 1) % world.machines.len();
        }
    }
}

impl World {
    pub(crate) fn add_client(&mut self, make: impl FnOnce(usize) -> Client) -> usize {
        let client = self.clients.len();
        self.clients.push(make(client));
        self.at(1, Event::Wake { client });
        client
    }

    pub(crate) fn client_hears(&mut self, client: usize, connection: ConnectionId, heard: Heard) {
        self.with_client(client, |found, world| {
            if found.line().connection != Some(connection) {
                return;
            }
            match (found, heard) {
                (Client::Producer(producer), Heard::Broken) => producer.broken(world),
                (Client::Consumer(consumer), Heard::Broken) => consumer.broken(world),
                (Client::Producer(producer), Heard::Reply(reply)) => producer.answered(world, reply),
                (Client::Consumer(consumer), Heard::Reply(reply)) => consumer.answered(world, reply),
                (Client::Consumer(consumer), Heard::Message { message, until_us }) => {
                    consumer.got(world, *message, until_us);
                }
                (Client::Producer(_), Heard::Message { .. }) => unreachable!("it has no subscription"),
            }
        });
    }

    pub(crate) fn client_wakes(&mut self, client: usize) {
        self.with_client(client, |found, world| match found {
            Client::Producer(producer) => producer.wakes(world),
            Client::Consumer(consumer) => consumer.wakes(world),
        });
    }

    fn with_client(&mut self, client: usize, then: impl FnOnce(&mut Client, &mut Self)) {
        let mut found = std::mem::replace(&mut self.clients[client], Client::Producer(Producer::nobody()));
        then(&mut found, self);
        self.clients[client] = found;
    }

    /// Producers begin nothing new; consumers settle everything they get.
    pub(crate) fn wind_down(&mut self) {
        for client in &mut self.clients {
            match client {
                Client::Producer(producer) => producer.stops = true,
                Client::Consumer(consumer) => consumer.is_careful = true,
            }
        }
    }
}

impl Client {
    fn line(&self) -> &Line {
        match self {
            Self::Producer(producer) => &producer.line,
            Self::Consumer(consumer) => &consumer.line,
        }
    }
}

/// Whoever hears nothing for so long asks another node.
pub(crate) const PATIENCE_US: u64 = 1_200_000;
