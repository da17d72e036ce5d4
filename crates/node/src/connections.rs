//! Connections: the order of their answers, and their subscriptions.
//!
//! # Invariants
//! 1. Answers leave in the order of the requests, whatever the order in which they become known.
//! 2. The positions that a connection is told never go back (P10). One that stands for another node, and so for many clients, is told
//!    each as it is: what one of them asked says nothing of when another's was done.

use mortarmq_types::{ConnectionId, MemberId, PathId, Position};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::output::Output;
use crate::reply::{Answer, Reply};
use crate::request::Unsent;
use crate::returns::Returns;

/// All connections of the node.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: BTreeMap<ConnectionId, Connection>,
    /// Connections with answers to send.
    answered: BTreeSet<ConnectionId>,
    returns: Returns,
}

/// One connection.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    /// The place of the next request.
    next_slot: u64,
    /// The place whose answer leaves next.
    head: u64,
    /// Answers that are known before their turn, from `head` on.
    early: VecDeque<Option<Reply>>,
    /// Answers whose turn has come.
    replies: Vec<Reply>,
    /// The round in which a publish of it was answered, until it publishes again.
    mark: u64,
    /// The highest position told.
    told: Position,
    /// Whether it stands for another node.
    is_relay: bool,
    /// Whether it takes messages slower than they come: nothing more is leased to it or read for it meanwhile.
    pub(crate) is_congested: bool,
    /// Whether it is being ended because of that.
    pub(crate) is_turned_out: bool,
    /// What it would not take any more. If it is turned out this goes to others; else its members keep it.
    pub(crate) refused: Vec<(PathId, Vec<Unsent>)>,
    /// Its subscriptions.
    pub(crate) subscriptions: BTreeMap<u16, (PathId, MemberId)>,
}

impl Connections {
    pub(crate) fn open(&mut self, connection: ConnectionId) {
        self.open.insert(connection, Connection::default());
    }

    /// A connection that stands for another node.
    pub(crate) fn open_relay(&mut self, connection: ConnectionId) {
        self.open.insert(connection, Connection { is_relay: true, ..Connection::default() });
    }

    pub(crate) fn close(&mut self, connection: ConnectionId) -> Option<Connection> {
        self.answered.remove(&connection);
        let closed = self.open.remove(&connection)?;
        self.returns.note_gone(closed.mark);
        Some(closed)
    }

    pub(crate) fn get_mut(&mut self, connection: ConnectionId) -> Option<&mut Connection> {
        self.open.get_mut(&connection)
    }

    pub(crate) fn is_congested(&self, connection: ConnectionId) -> bool {
        self.open.get(&connection).is_some_and(|open| open.is_congested || open.is_turned_out)
    }

    pub(crate) fn is_turned_out(&self, connection: ConnectionId) -> bool {
        self.open.get(&connection).is_some_and(|open| open.is_turned_out)
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Ends the subscriptions of all connections; hands over which there were.
    pub(crate) fn take_subscriptions(&mut self) -> Vec<(ConnectionId, u16)> {
        let of = |(id, open): (&ConnectionId, &mut Connection)| {
            let taken = std::mem::take(&mut open.subscriptions);
            let id = *id;
            taken.into_keys().map(move |subscription| (id, subscription))
        };
        self.open.iter_mut().flat_map(of).collect()
    }

    /// Takes the next `count` places of a connection, for publishes or anything else; `None` if it is closed.
    pub(crate) fn take_slots(&mut self, connection: ConnectionId, count: u64, publishes: bool) -> Option<u64> {
        let open = self.open.get_mut(&connection)?;
        if publishes {
            self.returns.note_published(&mut open.mark);
        }
        let slot = open.next_slot;
        open.next_slot += count;
        Some(slot)
    }

    /// Files the answer of one place. Answers to connections that are gone are dropped.
    pub(crate) fn answer(&mut self, connection: ConnectionId, slot: u64, reply: Reply) {
        let Some(open) = self.open.get_mut(&connection) else { return };
        if matches!(reply.result, Ok(Answer::Published(_) | Answer::PublishedBatch(_))) {
            self.returns.note_answered(&mut open.mark);
        }
        if open.file(slot, reply) {
            self.answered.insert(connection);
        }
    }

    /// A batch is applied; its answers follow.
    pub(crate) const fn begin_round(&mut self) {
        self.returns.begin_round();
    }

    /// How many connections that were answered last are expected to publish again soon and have not done so yet.
    pub(crate) const fn missing(&self) -> u64 {
        self.returns.missing()
    }

    /// Whether the answer in this place has had its turn.
    pub(crate) fn is_answered(&self, connection: ConnectionId, slot: u64) -> bool {
        self.open.get(&connection).is_none_or(|open| open.head > slot)
    }

    /// The answers of one connection whose turn has come.
    pub(crate) fn poll(&mut self) -> Option<Output> {
        let connection = self.answered.pop_first()?;
        let replies = std::mem::take(&mut self.open.get_mut(&connection)?.replies);
        Some(Output::Replies { connection, replies })
    }
}

impl Connection {
    /// Files an answer; says whether any answer's turn has come.
    fn file(&mut self, slot: u64, reply: Reply) -> bool {
        assert!(slot >= self.head && slot < self.next_slot, "invariant 1: place {slot} is answered once, in its turn");
        if slot == self.head && self.early.is_empty() {
            self.release(reply);
            return true;
        }
        let place = usize::try_from(slot - self.head).expect("a connection has a bounded number of open requests");
        if self.early.len() <= place {
            self.early.resize_with(place + 1, || None);
        }
        assert!(self.early[place].is_none(), "invariant 1: place {slot} is answered once");
        self.early[place] = Some(reply);
        while let Some(Some(_)) = self.early.front() {
            if let Some(Some(reply)) = self.early.pop_front() {
                self.release(reply);
            }
        }
        !self.replies.is_empty()
    }

    /// Lets the answer go whose turn has come. What was known earlier is told behind later positions, and holds there too.
    fn release(&mut self, mut reply: Reply) {
        self.head += 1;
        if !self.is_relay {
            reply.position = reply.position.max(self.told);
            self.told = reply.position;
        }
        self.replies.push(reply);
    }
}

#[cfg(test)]
mod tests {
    use super::Connections;
    use crate::output::Output;
    use crate::reply::{Answer, Reply};
    use mortarmq_types::{CommitIndex, ConnectionId, Epoch, Position};

    fn reply(number: u64) -> Reply {
        let position = Position { epoch: Epoch::ZERO, commit_index: CommitIndex::new(number) };
        Reply { position, result: Ok(Answer::Pong) }
    }

    fn sent(connections: &mut Connections) -> Vec<u64> {
        let mut numbers = Vec::new();
        while let Some(Output::Replies { replies, .. }) = connections.poll() {
            numbers.extend(replies.iter().map(|reply| reply.position.commit_index.get()));
        }
        numbers
    }

    #[test]
    fn a_connection_of_many_clients_is_told_each_position_as_it_is() {
        let mut connections = Connections::default();
        let id = ConnectionId::new(1);
        connections.open_relay(id);
        connections.take_slots(id, 2, false);
        connections.answer(id, 1, reply(1));
        connections.answer(id, 0, reply(2));
        assert_eq!(sent(&mut connections), [2, 1]);
    }

    #[test]
    fn answers_leave_in_the_order_of_the_requests() {
        let mut connections = Connections::default();
        let id = ConnectionId::new(1);
        connections.open(id);
        assert_eq!(connections.take_slots(id, 4, false), Some(0));
        connections.answer(id, 2, reply(2));
        assert_eq!(sent(&mut connections), [0; 0]);
        connections.answer(id, 0, reply(0));
        assert_eq!(sent(&mut connections), [0]);
        connections.answer(id, 1, reply(1));
        connections.answer(id, 3, reply(0));
        assert_eq!(sent(&mut connections), [1, 2, 2], "a ping behind a write tells no earlier position (P10)");
    }
}
