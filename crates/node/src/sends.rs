//! Leased messages on their way to a connection: those whose record is in memory leave at once, the others after a read.
//! Per subscription they leave in the order of their leases.

use mortarmq_types::{ConnectionId, Partition, PathId, Seq, TopicIncarnation};
use std::collections::{BTreeMap, VecDeque};

use crate::output::Delivery;
use crate::reply::Failure;
use crate::request::Unsent;
use crate::unreadable::HeldBack;

/// Where messages go.
pub(crate) type Destination = (ConnectionId, u16);

/// Everything that waits for a read, and what waits behind it.
#[derive(Debug, Default)]
pub(crate) struct Sends {
    queues: BTreeMap<Destination, VecDeque<Pending>>,
    /// Which queue a read belongs to.
    reads: BTreeMap<u64, Destination>,
    /// Subscriptions from which nothing leaves before the answer to their SUB: only that tells the client of them. Each
    /// with the place of the answer.
    gates: BTreeMap<Destination, u64>,
}

/// One step of a subscription's order.
#[derive(Debug)]
pub(crate) enum Pending {
    /// Messages of one partition; those without a record wait for a read.
    Messages(Batch),
    /// The end of a pull, behind its messages.
    PullEnded(Result<u16, Failure>),
}

/// Leased messages of one partition.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) path: PathId,
    pub(crate) topic: TopicIncarnation,
    pub(crate) partition: Partition,
    /// The messages; the record is missing until it is read.
    pub(crate) messages: Vec<Slot>,
    /// The read that is under way for it.
    pub(crate) read: Option<u64>,
    /// Whether it did not leave at once: some of its leases may have ended since.
    pub(crate) has_waited: bool,
}

/// One message of a batch.
#[derive(Debug)]
pub(crate) enum Slot {
    /// Ready to leave.
    Ready(Box<Delivery>),
    /// Its record is not in memory.
    Missing(Box<Unread>),
    /// Its record cannot be read: it is held.
    Unreadable(Seq),
}

/// A delivery without its record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unread {
    pub(crate) lease: mortarmq_delivery::Leased,
    pub(crate) lease_until: mortarmq_types::MonotonicTime,
    pub(crate) send_before: mortarmq_types::MonotonicTime,
    pub(crate) position: mortarmq_types::Position,
}

/// Where a record lies in a partition: in its topic, or in that of its dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordPlace {
    pub(crate) is_letter: bool,
    pub(crate) seq: Seq,
}

/// Records in a row that are to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Missing {
    pub(crate) first: RecordPlace,
    pub(crate) to: Seq,
}

impl Unread {
    /// Where its record is read: that of a redriven message lies in its dead letter.
    pub(crate) fn place(&self) -> RecordPlace {
        let source = self.lease.source;
        RecordPlace { is_letter: source.is_some(), seq: source.unwrap_or(self.lease.seq) }
    }

    /// This delivery as one whose record cannot be read.
    pub(crate) fn held_in(&self, partition: Partition, reason: String) -> HeldBack {
        let lease = Unsent { partition, seq: self.lease.seq, delivery_id: self.lease.delivery_id };
        HeldBack { lease, reason }
    }
}

impl Batch {
    /// What of it is still to be sent.
    pub(crate) fn unsent(&self) -> Vec<Unsent> {
        let lease = |slot: &Slot| match slot {
            Slot::Ready(delivery) => Some((delivery.seq, delivery.delivery_id)),
            Slot::Missing(unread) => Some((unread.lease.seq, unread.lease.delivery_id)),
            Slot::Unreadable(_) => None,
        };
        let unsent = |(seq, delivery_id)| Unsent { partition: self.partition, seq, delivery_id };
        self.messages.iter().filter_map(lease).map(unsent).collect()
    }

    /// The first run of consecutive records that are missing.
    pub(crate) fn missing(&self) -> Option<Missing> {
        let mut missing = self.messages.iter().filter_map(|slot| match slot {
            Slot::Missing(unread) => Some(unread.place()),
            Slot::Ready(_) | Slot::Unreadable(_) => None,
        });
        let first = missing.next()?;
        let mut to = first.seq.next();
        for place in missing {
            if place != (RecordPlace { seq: to, ..first }) {
                break;
            }
            to = to.next();
        }
        Some(Missing { first, to })
    }
}

impl Sends {
    /// Adds a step behind all others of its subscription.
    pub(crate) fn push(&mut self, destination: Destination, pending: Pending) {
        self.queues.entry(destination).or_default().push_back(pending);
    }

    /// The steps of a subscription.
    pub(crate) fn queue_mut(&mut self, destination: Destination) -> Option<&mut VecDeque<Pending>> {
        self.queues.get_mut(&destination)
    }

    /// Whether anything waits for a connection.
    pub(crate) fn has_unsent(&self, connection: ConnectionId) -> bool {
        self.queues.range((connection, 0)..=(connection, u16::MAX)).any(|(_, queue)| !queue.is_empty())
    }

    /// Notes that what was put behind all others of a subscription did not leave at once.
    pub(crate) fn note_waiting(&mut self, destination: Destination) {
        if let Some(Pending::Messages(batch)) = self.queues.get_mut(&destination).and_then(VecDeque::back_mut) {
            batch.has_waited = true;
        }
    }

    /// What [`Mutant::LeaveKeepsQueue`](mortarmq_types::Mutant::LeaveKeepsQueue) does with what waits for a member that leaves.
    pub(crate) fn take_for_fresh(&mut self, destination: Destination) {
        for pending in self.queues.get_mut(&destination).into_iter().flatten() {
            if let Pending::Messages(batch) = pending {
                batch.has_waited = false;
            }
        }
    }

    /// The subscriptions of a connection for which something waits, those that have ended included.
    pub(crate) fn waiting_of(&self, connection: ConnectionId) -> Vec<Destination> {
        self.queues.range((connection, 0)..=(connection, u16::MAX)).map(|(destination, _)| *destination).collect()
    }

    /// Forgets a queue that is empty.
    pub(crate) fn tidy(&mut self, destination: Destination) {
        if self.queues.get(&destination).is_some_and(VecDeque::is_empty) {
            self.queues.remove(&destination);
        }
    }

    /// Notes that a read was begun for a subscription.
    pub(crate) fn reading(&mut self, ticket: u64, destination: Destination) {
        self.reads.insert(ticket, destination);
    }

    /// The subscription that a read was begun for.
    pub(crate) fn read_done(&mut self, ticket: u64) -> Option<Destination> {
        self.reads.remove(&ticket)
    }

    /// Lets nothing of a subscription leave before the answer in this place of its connection.
    pub(crate) fn close_gate(&mut self, destination: Destination, slot: u64) {
        self.gates.insert(destination, slot);
    }

    pub(crate) fn open_gate(&mut self, destination: Destination) {
        self.gates.remove(&destination);
    }

    pub(crate) fn is_gated(&self, destination: Destination) -> bool {
        self.gates.contains_key(&destination)
    }

    pub(crate) fn gates_of(&self, connection: ConnectionId) -> Vec<(Destination, u64)> {
        let gates = self.gates.range((connection, 0)..=(connection, u16::MAX));
        gates.map(|(destination, slot)| (*destination, *slot)).collect()
    }

    /// Drops the messages of a subscription that has ended; the pulls that wait behind them are answered with why.
    pub(crate) fn end(&mut self, destination: Destination, why: &Failure) {
        let Some(queue) = self.queues.get_mut(&destination) else { return };
        queue.retain(|pending| matches!(pending, Pending::PullEnded(_)));
        for pending in queue {
            *pending = Pending::PullEnded(Err(why.clone()));
        }
    }

    /// Drops everything of a connection; hands over the batches that were not sent.
    pub(crate) fn drop_connection(&mut self, connection: ConnectionId) -> Vec<Batch> {
        self.gates.retain(|destination, _| destination.0 != connection);
        let keys: Vec<_> = self.queues.range((connection, 0)..=(connection, u16::MAX)).map(|(key, _)| *key).collect();
        let mut unsent = Vec::new();
        for key in keys {
            for pending in self.queues.remove(&key).into_iter().flatten() {
                if let Pending::Messages(batch) = pending {
                    unsent.push(batch);
                }
            }
        }
        unsent
    }
}
