//! Leased messages on their way out: from memory at once, from their segment after a read, in order per subscription.

use mortarmq_delivery::{Leased, PathPartition};
use mortarmq_shard::record::open_record;
use mortarmq_shard::{DeliverEffect, Gone, Grant, Path};
use mortarmq_storage::Stretch;
use mortarmq_types::{ConnectionId, Epoch, Mutant, Partition, PathId, Seq, TopicIncarnation};
use std::collections::VecDeque;

use crate::config::Now;
use crate::letters::unwrapped;
use crate::node::Node;
use crate::output::{Delivery, Output, ReadJob, ReadResult};
use crate::read_ahead::{AHEAD_RECORDS, ReadAhead};
use crate::recent::Stored;
use crate::repair::Held;
use crate::reply::Failure;
use crate::request::Unsent;
use crate::sends::{Batch, Destination, Missing, Pending, RecordPlace, Slot, Unread};
use crate::sessions::SessionKey;
use crate::unreadable::{HeldBack, key_of};

/// Bytes of records read at once for one subscription, where none are read ahead.
const READ_BYTES: u64 = 1 << 20;

impl Node {
    /// Queues leased messages for their member. One that has no connection keeps them: it is sent them when it resumes.
    pub(crate) fn send(&mut self, deliver: DeliverEffect, epoch: Epoch) {
        if !self.leads || epoch != self.replica.epoch() {
            // What an earlier leader leased, it may have sent: nobody concludes from a dead node that its messages did
            // not arrive. Those leases run to their end, and their handles settle on any node.
            return;
        }
        let pull = match deliver.grant {
            Grant::Pull { node_incarnation, pull_id, .. } if node_incarnation == self.config.node_incarnation => {
                self.note_pulled(pull_id, &deliver)
            }
            Grant::Push { .. } | Grant::Pull { .. } => None,
        };
        // A pull that is over, with its connection or because its answer took too long, leaves what it leased to its member.
        let connected = || self.sessions.get((deliver.path, deliver.member)).and_then(|session| session.connection);
        let Some(destination) = pull.or_else(connected) else { return };
        if self.connections.is_turned_out(destination.0) {
            let unsent = |lease: &Leased| Unsent {
                partition: deliver.partition,
                seq: lease.seq,
                delivery_id: lease.delivery_id,
            };
            let unsent: Vec<Unsent> = deliver.leases.iter().map(unsent).collect();
            return self.give_back(deliver.path, &unsent);
        }
        let state = self.shard.state();
        let (now, begun) = (state.now(), self.clock.monotonic(state.time));
        let unread = |lease: Leased| {
            // Of a lease that is told again a part is over already.
            let left_ms = lease.deadline.since_ms(now.lease);
            Unread {
                lease,
                lease_until: begun.after_ms(left_ms),
                send_before: begun.after_ms(left_ms / 2),
                position: deliver.granted_at,
            }
        };
        let messages = deliver.leases.into_iter().map(unread).collect();
        self.queue(destination, deliver.path, deliver.topic, deliver.partition, messages);
    }

    /// Puts messages of one partition behind all others of a subscription, and sends what can be sent.
    pub(crate) fn queue(
        &mut self,
        destination: Destination,
        path: PathId,
        topic: TopicIncarnation,
        partition: Partition,
        messages: Vec<Unread>,
    ) {
        let mut held = Vec::new();
        let is_shared = is_shared(self.shard.state().paths.get(&path));
        let messages = messages
            .into_iter()
            .map(|unread| match self.recent.get(topic, partition, unread.lease.seq) {
                // Whether its record is still there or not: what a redriven message is made of does not depend on memory.
                _ if unread.lease.source.is_some() => Slot::Missing(Box::new(unread)),
                Some(stored) => complete(&unread, topic, partition, stored, &mut held),
                None => match self.ahead.take((path, partition), unread.lease.seq, is_shared) {
                    Some(stored) => complete(&unread, topic, partition, &stored, &mut held),
                    None => Slot::Missing(Box::new(unread)),
                },
            })
            .collect();
        self.hold(path, held);
        let batch = Batch { path, topic, partition, messages, read: None, has_waited: false };
        self.sends.push(destination, Pending::Messages(batch));
        self.advance(destination);
        self.sends.note_waiting(destination);
    }

    /// A connection takes messages slower than they come, or keeps up again. Until then its members get no lease, and
    /// nothing is read for them: a slow reader costs little memory, and nobody else notices (failure rule 9).
    pub fn handle_congestion(&mut self, now: Now, connection: ConnectionId, is_congested: bool) {
        self.turn(now);
        let Some(open) = self.connections.get_mut(connection) else { return };
        open.is_congested = is_congested;
        if is_congested {
            return;
        }
        self.attention.extend(open.subscriptions.values().map(|(path, _)| *path));
        let lives: Vec<u16> = open.subscriptions.keys().copied().collect();
        for destination in self.sends.waiting_of(connection) {
            if !Mutant::LeaveKeepsQueue.is_on() || lives.contains(&destination.1) {
                self.advance(destination);
            }
        }
    }

    /// A connection is being ended because it takes its messages too slowly. It is leased nothing more, and what is not sent
    /// goes to others at once: whoever resumes it would be as slow.
    pub fn handle_turned_out(&mut self, now: Now, connection: ConnectionId) {
        self.turn(now);
        let Some(open) = self.connections.get_mut(connection) else { return };
        open.is_turned_out = true;
        for (path, unsent) in std::mem::take(&mut open.refused) {
            self.give_back(path, &unsent);
        }
        for batch in self.sends.drop_connection(connection) {
            self.give_back(batch.path, &batch.unsent());
        }
    }

    /// A connection takes nothing any more: it is being ended, and why is told next, by [`Node::handle_turned_out`] or
    /// [`Node::handle_disconnected`].
    pub fn handle_refused(&mut self, now: Now, connection: ConnectionId, subscription: u16, messages: &[Delivery]) {
        self.turn(now);
        let Some(open) = self.connections.get_mut(connection) else { return };
        let Some((path, _)) = open.subscriptions.get(&subscription).copied() else { return };
        let unsent = |message: &Delivery| Unsent {
            partition: message.partition,
            seq: message.seq,
            delivery_id: message.delivery_id,
        };
        let unsent: Vec<Unsent> = messages.iter().map(unsent).collect();
        if open.is_turned_out {
            return self.give_back(path, &unsent);
        }
        open.refused.push((path, unsent));
    }

    /// The answers of a connection leave: what waited for them to leave first follows.
    pub(crate) fn open_gates(&mut self, connection: ConnectionId) {
        for (destination, slot) in self.sends.gates_of(connection) {
            if self.connections.is_answered(connection, slot) {
                self.sends.open_gate(destination);
                self.advance(destination);
            }
        }
    }

    /// Ends a pull: its answer leaves behind its messages.
    pub(crate) fn end_pull(&mut self, connection: ConnectionId, subscription: u16, result: Result<u16, Failure>) {
        let destination = (connection, subscription);
        self.sends.push(destination, Pending::PullEnded(result));
        self.advance(destination);
    }

    /// Takes records that were read for a subscription, or for a query.
    pub(crate) fn handle_read_records(&mut self, _now: Now, ticket: u64, result: ReadResult) {
        let Some(destination) = self.sends.read_done(ticket) else {
            return self.handle_query_read(ticket, result);
        };
        // In the order of their sequences.
        let (mut found, reason): (VecDeque<Stored>, _) = match result {
            ReadResult::Records(records) => {
                (records.into_iter().map(Stored::from).collect(), "the record is not in its segment".to_owned())
            }
            ReadResult::Failed(reason) => (VecDeque::new(), reason),
            ReadResult::Index(_)
            | ReadResult::Life { .. }
            | ReadResult::Since(_)
            | ReadResult::File(_)
            | ReadResult::Stretch(_) => {
                unreachable!("the read pool answers what it was asked")
            }
        };
        let (mut held, mut damaged) = (Vec::new(), Vec::new());
        let mut of_path = None;
        if let Some(Pending::Messages(batch)) = self.sends.queue_mut(destination).and_then(|queue| queue.front_mut())
            && batch.read == Some(ticket)
        {
            batch.read = None;
            let wanted = batch.missing();
            // What went with its topic is not rotten.
            let is_there = self.shard.state().topics.contains_key(&batch.topic);
            let is_shared = is_shared(self.shard.state().paths.get(&batch.path));
            of_path = is_there.then_some(batch.path);
            for slot in &mut batch.messages {
                let Slot::Missing(unread) = slot else { continue };
                let (seq, place) = (unread.lease.seq, unread.place());
                let Some(wanted) = wanted.filter(|wanted| wanted.first.is_letter == place.is_letter) else { continue };
                if let Ok(at) = found.binary_search_by_key(&place.seq, |stored| stored.seq) {
                    if is_shared {
                        found[at] = found[at].clone().alone();
                    }
                    *slot = complete(unread, batch.topic, batch.partition, &found[at], &mut held);
                } else if wanted.first == place && found.front().is_none_or(|first| first.seq >= wanted.to) {
                    // Asked for and not found: the bytes are rotten. They are not served (P11), and the message is held.
                    held.push(unread.held_in(batch.partition, reason.clone()));
                    damaged.push((place, (batch.path, batch.partition, seq)));
                    *slot = Slot::Unreadable(seq);
                }
            }
            if let Some(wanted) = wanted.filter(|wanted| !wanted.first.is_letter) {
                let ahead = found.split_off(found.partition_point(|stored| stored.seq < wanted.to));
                if is_there && !ahead.is_empty() {
                    self.ahead.keep((batch.path, batch.partition), ahead);
                }
            }
        }
        if let Some(path) = of_path {
            self.hold(path, held);
            self.want_records_repaired(&damaged);
        }
        self.advance(destination);
    }

    /// Records of a path's messages, or of their dead letters, cannot be read.
    fn want_records_repaired(&mut self, damaged: &[(RecordPlace, Held)]) {
        for (place, held) in damaged {
            let (path, partition, _) = held;
            let state = self.shard.state();
            let own = state.paths.get(path).map(|path| path.topic);
            let topic = own.and_then(|topic| if place.is_letter { state.dead_letters_of(topic) } else { Some(topic) });
            if let Some(topic) = topic {
                self.want_repair(Stretch::Records { topic, partition: *partition, seq: place.seq }, Some(*held));
            }
        }
    }

    /// Sends what is ready at the front of a subscription's order, and begins the read that the next step needs.
    pub(crate) fn advance(&mut self, destination: Destination) {
        if self.connections.is_congested(destination.0) || self.sends.is_gated(destination) {
            return;
        }
        let mut read = None;
        let (mut held_back, mut held) = (Vec::new(), Vec::new());
        while let Some(queue) = self.sends.queue_mut(destination) {
            match queue.front_mut() {
                None => break,
                Some(Pending::Messages(batch)) if batch.read.is_some() => break,
                Some(Pending::Messages(batch)) => {
                    held.push((
                        batch.path,
                        fill(batch, &mut self.ahead, is_shared(self.shard.state().paths.get(&batch.path))),
                    ));
                    if let Some(Missing { first, to }) = batch.missing() {
                        let path = self.shard.state().paths.get(&batch.path);
                        let bytes = self.config.read_ahead_bytes;
                        let reads_ahead = !first.is_letter && reads_ahead(batch, first.seq, path, bytes, &self.ahead);
                        let partition = batch.partition;
                        let topic = match first.is_letter {
                            // Of a topic that is gone there is nothing to read, and nobody to send it to.
                            true => self.shard.state().dead_letters_of(batch.topic).unwrap_or_default(),
                            false => batch.topic,
                        };
                        let (to, max_bytes) =
                            if reads_ahead { (to.plus(AHEAD_RECORDS), bytes) } else { (to, READ_BYTES) };
                        read = Some(ReadJob::Records { topic, partition, from: first.seq, to, max_bytes });
                        break;
                    }
                    let path = self.shard.state().paths.get(&batch.path);
                    if batch.has_waited && !Mutant::EndedLeaseSent.is_on() {
                        drop_ended(batch, path);
                    }
                    let (messages, unsent) = ready(batch, path);
                    held_back.push((batch.path, unsent));
                    queue.pop_front();
                    if !messages.is_empty() {
                        let (connection, subscription) = destination;
                        self.outputs.push_back(Output::Deliveries { connection, subscription, messages });
                    }
                }
                Some(Pending::PullEnded(_)) => {
                    let Some(Pending::PullEnded(result)) = queue.pop_front() else {
                        unreachable!("the front was looked at above")
                    };
                    let (connection, subscription) = destination;
                    let position = self.position();
                    self.outputs.push_back(Output::PullEnded { connection, subscription, position, result });
                }
            }
        }
        self.sends.tidy(destination);
        for (path, held) in held {
            self.hold(path, held);
        }
        for (path, unsent) in held_back {
            self.give_back(path, &unsent);
        }
        if let Some(job) = read {
            let ReadJob::Records { topic, partition, .. } = job else { unreachable!("made above") };
            let ticket = self.read(self.recent.needed_ticket(topic, partition), job);
            self.sends.reading(ticket, destination);
            if let Some(Pending::Messages(batch)) =
                self.sends.queue_mut(destination).and_then(|queue| queue.front_mut())
            {
                batch.read = Some(ticket);
            }
        }
    }

    /// Lets go of what was deleted with its topic. Until then it is a path like any other that is not there.
    pub(crate) fn forget_gone(&mut self, gone: Vec<Gone>) {
        for one in gone {
            match one {
                Gone::Member(path, member) => self.forget_member((path, member)),
                Gone::Path(path) => self.forget_path(path),
            }
        }
    }

    pub(crate) fn forget_path(&mut self, path: PathId) {
        self.attention.remove(&path);
        self.turns.remove(&path);
        self.stretches.forget_path(path);
        self.ahead.forget_path(path);
        let members: Vec<_> = self.sessions.of_path(path);
        for key in members {
            self.forget_member(key);
        }
    }

    pub(crate) fn forget_member(&mut self, key: SessionKey) {
        self.end_subscription(key);
        self.sessions.close(key);
    }
}

/// Joins a lease with its record, whose checksum is verified once more before it leaves.
fn complete(
    unread: &Unread,
    topic: TopicIncarnation,
    partition: Partition,
    stored: &Stored,
    held: &mut Vec<HeldBack>,
) -> Slot {
    let opened = match unread.place().is_letter {
        true => unwrapped(&stored.record),
        false => open_record(&stored.record).map_err(|error| error.to_string()),
    };
    let record = match opened {
        Ok(record) => record,
        Err(error) => {
            held.push(unread.held_in(partition, error));
            return Slot::Unreadable(unread.lease.seq);
        }
    };
    Slot::Ready(Box::new(Delivery {
        topic,
        partition,
        seq: unread.lease.seq,
        delivery_id: unread.lease.delivery_id,
        attempt: unread.lease.attempt,
        cause: unread.lease.cause,
        previous: unread.lease.previous,
        lease_until: unread.lease_until,
        send_before: unread.send_before,
        published_at: stored.published_at,
        position: unread.position,
        record,
    }))
}

/// Whether what is read for a path goes to several members.
fn is_shared(path: Option<&Path>) -> bool {
    path.is_some_and(|path| path.members.len() > 1)
}

/// Takes what was read ahead. Hands over what cannot be read.
fn fill(batch: &mut Batch, ahead: &mut ReadAhead, is_shared: bool) -> Vec<HeldBack> {
    let mut held = Vec::new();
    for slot in &mut batch.messages {
        let Slot::Missing(unread) = slot else { continue };
        if unread.place().is_letter {
            continue;
        }
        if let Some(stored) = ahead.take((batch.path, batch.partition), unread.lease.seq, is_shared) {
            *slot = complete(unread, batch.topic, batch.partition, &stored, &mut held);
        }
    }
    held
}

/// Whether a read that begins there is to bring what comes next too: it reaches to where the path is, and what it is for is
/// but a part of it.
fn reads_ahead(batch: &Batch, first: Seq, path: Option<&Path>, bytes: u64, ahead: &ReadAhead) -> bool {
    let sizes = batch.messages.iter().map(|slot| match slot {
        Slot::Missing(unread) => u64::from(unread.lease.size_bytes),
        Slot::Ready(_) | Slot::Unreadable(_) => 0,
    });
    let position = path.and_then(|path| path.partitions.get(batch.partition.index())).map(PathPartition::position);
    bytes > 0
        && sizes.sum::<u64>() <= bytes / 4
        && position.is_some_and(|position| position.above(first) <= AHEAD_RECORDS)
        && ahead.has_room((batch.path, batch.partition))
}

/// Drops what has waited for so long that its lease has ended: it goes, or went, to somebody under another one. What was behind a
/// message that is held ends with it (P8).
fn drop_ended(batch: &mut Batch, path: Option<&Path>) {
    let partition = path.and_then(|path| path.partitions.get(batch.partition.index()));
    let is_live = |delivery: &Delivery| {
        let entry = partition.and_then(|partition| partition.lease_of(delivery.seq));
        entry.and_then(|entry| entry.lease()).is_some_and(|lease| lease.delivery_id == delivery.delivery_id)
    };
    batch.messages.retain(|slot| !matches!(slot, Slot::Ready(delivery) if !is_live(delivery)));
}

/// What of a batch can be sent, and what goes back: behind a message whose record cannot be read, later ones of its key
/// must not overtake it (P8). They are given back and come when it does; all else goes on.
fn ready(batch: &mut Batch, path: Option<&Path>) -> (Vec<Delivery>, Vec<Unsent>) {
    let mut messages = Vec::with_capacity(batch.messages.len());
    let mut unsent = Vec::new();
    let mut held_keys = Vec::new();
    for slot in std::mem::take(&mut batch.messages) {
        match slot {
            Slot::Unreadable(seq) => {
                let entry = path.and_then(|path| path.partitions.get(batch.partition.index())?.lease_of(seq));
                held_keys.extend(entry.map(|entry| entry.key_hash).filter(|key| key.is_some()));
            }
            Slot::Ready(delivery) if !held_keys.is_empty() && held_keys.contains(&key_of(&delivery.record)) => {
                let (seq, delivery_id) = (delivery.seq, delivery.delivery_id);
                unsent.push(Unsent { partition: batch.partition, seq, delivery_id });
            }
            Slot::Ready(delivery) => messages.push(*delivery),
            Slot::Missing(_) => unreachable!("a batch leaves only when no record is missing"),
        }
    }
    (messages, unsent)
}
