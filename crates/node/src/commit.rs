//! What a committed batch sets off: apply, then answers to those who wait, then effects.

use mortarmq_delivery::Fact;
use mortarmq_replica::{Entry, EntryKind};
use mortarmq_shard::{AppendEffect, Applied, CopyEffect, Effect, LedgerEffect, Outcome, Setting, State};
use mortarmq_storage::{LedgerRecord, SegmentRecord};
use mortarmq_types::{CommitIndex, ConnectionId, Epoch, Mutant, Position, WallTime};

use crate::config::Now;
use crate::copies::CopyWork;
use crate::node::Node;
use crate::open_batch::{NewSession, Waiter, WaiterKind};
use crate::output::{Output, SegmentWork};
use crate::recent::{Recent, Stored};
use crate::refusal::failure;
use crate::reply::{Answer, Failure, Reply};
use crate::sessions::Session;

impl Node {
    /// The segment writer wrote all work up to a ticket: it can be read now.
    pub fn handle_segments_written(&mut self, now: Now, ticket: u64) {
        self.turn(now);
        self.written_ticket = self.written_ticket.max(ticket);
        while let Some(&(written, bytes)) = self.unwritten.front() {
            if written > self.written_ticket {
                break;
            }
            self.unwritten_bytes -= bytes;
            self.unwritten.pop_front();
        }
        self.recent.trim(self.written_ticket);
        while self.deferred_reads.front().is_some_and(|(needed, ..)| *needed <= self.written_ticket) {
            let (_, ticket, job) = self.deferred_reads.pop_front().expect("looked at above");
            self.outputs.push_back(Output::Read { ticket, job });
        }
    }

    /// Applies one committed entry.
    ///
    /// # Panics
    /// When the entry cannot be read: it was written by another version, and this replica must not go on without it.
    pub(crate) fn handle_committed(&mut self, now: Now, entry: Entry) {
        if entry.kind != EntryKind::Normal || entry.data.is_empty() {
            return;
        }
        let epoch = Epoch::new(entry.term);
        let applied = match self.shard.apply(entry.data, epoch) {
            Ok(applied) => applied,
            Err(error) => panic!("P11: committed log entry {} cannot be applied: {error}", entry.log_index),
        };
        let waiters = self.take_waiters(entry.log_index, epoch);
        let Applied { first_index, outcomes, effects, gone, stamp } = applied;
        self.carry_out(now, effects, epoch, stamp.wall);
        self.forget_gone(gone);
        if !self.settled_in && self.leads && epoch == self.replica.epoch() {
            self.settle_in(now);
        }
        if !waiters.is_empty() {
            self.connections.begin_round();
        }
        self.tell(now, waiters, outcomes, Told { first_index, epoch });
        self.attention.append(&mut self.looked_early);
    }

    /// Those who wait for this entry. A batch whose place was taken by another leader's entry is lost.
    fn take_waiters(&mut self, log_index: u64, epoch: Epoch) -> Vec<Waiter> {
        while let Some(front) = self.proposed.front() {
            if front.log_index > log_index {
                break;
            }
            let batch = self.proposed.pop_front().expect("looked at above");
            if (batch.log_index, batch.epoch) == (log_index, epoch) {
                return batch.waiters;
            }
            self.forget_waiters(batch.waiters);
        }
        Vec::new()
    }

    fn tell(&mut self, now: Now, waiters: Vec<Waiter>, outcomes: Vec<Outcome>, mut told: Told) {
        let mut outcomes = outcomes.into_iter();
        for waiter in waiters {
            if let WaiterKind::Operator { query } = waiter.kind {
                let (mut taken, mut position) = (Vec::new(), self.position());
                for _ in 0..waiter.commands {
                    taken.push(outcomes.next().expect("invariant 2: a batch has an outcome for each of its commands"));
                    position = told.next();
                }
                self.act_applied(query, taken, position);
                continue;
            }
            for place in 0..waiter.commands {
                let outcome = outcomes.next().expect("invariant 2: a batch has an outcome for each of its commands");
                let position = told.next();
                match &waiter.kind {
                    WaiterKind::Nobody => self.adopt(now, &outcome),
                    WaiterKind::Connection { connection, slot } => {
                        let reply = Reply { position, result: answer(outcome, self.shard.state()) };
                        self.connections.answer(*connection, slot + u64::from(place), reply);
                    }
                    WaiterKind::Join { connection, slot, session } => {
                        let result = self.open_session(now, (*connection, *slot), session, outcome);
                        self.connections.answer(*connection, *slot, Reply { position, result });
                    }
                    WaiterKind::Pull { pull_id } => self.pull_delivered(now, *pull_id, &outcome),
                    WaiterKind::Letters { query } => self.letters_applied(*query, outcome, position),
                    WaiterKind::Change { query, change } => {
                        self.change_applied(*query, (**change).clone(), outcome, position);
                    }
                    WaiterKind::Operator { .. } => unreachable!("an act is answered as a whole, see above"),
                }
            }
        }
    }

    fn open_session(
        &mut self,
        now: Now,
        (connection, slot): (ConnectionId, u64),
        wanted: &NewSession,
        outcome: Outcome,
    ) -> Result<Answer, Failure> {
        let (path, member) = match outcome {
            Outcome::Joined { path, member } => (path, member),
            Outcome::Refused(refusal) => return Err(failure(&refusal)),
            other => unreachable!("a join is answered by Joined or Refused, not {other:?}"),
        };
        let answer = Answer::Subscribed { subscription: wanted.subscription, member, secret: wanted.secret };
        // The batch that made or found the member may also have ended it, or deleted its topic: then that is over already.
        let found = self.shard.state().paths.get(&path).filter(|found| found.members.contains_key(&member));
        let Some(settings) = found.map(|found| found.settings.clone()) else { return Ok(answer) };
        if wanted.resumed.is_some() {
            self.end_subscription((path, member));
        }
        let open = self.connections.get_mut(connection);
        let destination = open.is_some().then_some((connection, wanted.subscription));
        if let Some(open) = open {
            open.subscriptions.insert(wanted.subscription, (path, member));
        }
        let mut session = Session::new(destination, settings.get(Setting::SessionMs), now.monotonic);
        session.set_messages(u32::from(wanted.credit_messages), wanted.credit_messages == u16::MAX);
        session.set_bytes(u64::from(wanted.credit_bytes), wanted.credit_bytes == u32::MAX);
        session.follow(&settings);
        self.sessions.open((path, member), session);
        self.attention.insert(path);
        if let Some(destination) = destination {
            self.sends.close_gate(destination, slot);
            if let Some(held) = wanted.resumed.as_ref().filter(|_| !Mutant::ResumeSendsNothing.is_on()) {
                self.send_again((path, member), destination, held);
            }
        }
        Ok(answer)
    }

    /// A member whose join nobody waits for any more gets a session, so that it is lost in time and does not stay.
    fn adopt(&mut self, now: Now, outcome: &Outcome) {
        let Outcome::Joined { path, member } = outcome else { return };
        let key = (*path, *member);
        let found = self.shard.state().paths.get(path).filter(|found| found.members.contains_key(member));
        let Some(found) = found.filter(|_| self.leads) else { return };
        let session_ms = found.settings.get(Setting::SessionMs);
        if self.sessions.get(key).is_none() {
            self.sessions.open(key, Session::new(None, session_ms, now.monotonic));
        }
    }

    fn carry_out(&mut self, now: Now, effects: Vec<Effect>, epoch: Epoch, wall: WallTime) {
        if effects.is_empty() {
            return;
        }
        let ticket = self.last_ticket + 1;
        let mut work = Vec::new();
        let mut bytes = 0;
        for effect in effects {
            match effect {
                Effect::Append(append) => {
                    bytes += append.record.len() as u64;
                    work.push(append_work(&append, epoch, wall));
                    keep(&mut self.recent, append, epoch, wall, ticket);
                }
                Effect::Copy(copy) => {
                    bytes += u64::from(copy.payload_bytes);
                    self.recent.note_copy(copy.to.topic, copy.to.partition, ticket);
                    if let Some(topic) = self.shard.state().topics.get(&copy.to.topic) {
                        self.attention.extend(topic.paths.values());
                    }
                    work.push(copy_work(*copy, epoch, wall));
                }
                Effect::Ledger(ledger) => {
                    bytes += LEDGER_EVENT_BYTES;
                    work.push(ledger_work(&ledger));
                }
                Effect::Deliver(deliver) => self.send(deliver, epoch),
                Effect::SegmentBytes(bytes) => work.push(SegmentWork::SegmentBytes(bytes)),
                Effect::TopicDeleted(topic) => {
                    self.recent.drop_topic(topic);
                    self.note_topic_deleted();
                    work.push(SegmentWork::DropTopic(topic));
                }
                Effect::Trim { topic, partition, below } => {
                    self.retention.has_freed = true;
                    work.push(SegmentWork::Trim { topic, partition, below });
                }
                Effect::PathDeleted(path) => self.forget_path(path),
                Effect::MemberEnded { path, member } => self.forget_member((path, member)),
                // One node tells of it.
                Effect::GroupExpired { .. } if !self.leads => {}
                Effect::GroupExpired { topic, group, dropped } => {
                    let topic = self.shard.state().topics.get(&topic).map(|topic| topic.name.clone());
                    let topic = topic.unwrap_or_default();
                    self.outputs.push_back(Output::GroupExpired { topic, group, dropped });
                }
                Effect::PathChanged(path) => self.follow_settings(now, path),
                Effect::PathMoved(path) => {
                    self.attention.insert(path);
                }
                Effect::TopicMoved(topic) => {
                    if let Some(topic) = self.shard.state().topics.get(&topic) {
                        self.attention.extend(topic.paths.values());
                    }
                }
            }
        }
        if work.is_empty() {
            return;
        }
        self.last_ticket = ticket;
        self.unwritten.push_back((ticket, bytes));
        self.unwritten_bytes += bytes;
        self.outputs.push_back(Output::Segments { ticket, work });
    }
}

/// About what one event takes in the ledger.
pub(crate) const LEDGER_EVENT_BYTES: u64 = 128;

/// Numbers the commands of a batch.
struct Told {
    first_index: CommitIndex,
    epoch: Epoch,
}

impl Told {
    fn next(&mut self) -> Position {
        let position = Position { epoch: self.epoch, commit_index: self.first_index };
        self.first_index = self.first_index.next();
        position
    }
}

fn answer(outcome: Outcome, state: &State) -> Result<Answer, Failure> {
    match outcome {
        Outcome::Published(published) => Ok(Answer::Published(published)),
        Outcome::PublishedBatch(published) => Ok(Answer::PublishedBatch(published)),
        Outcome::TopicDeclared { topic, partitions, existed } => {
            // None where the same batch deleted it again.
            let name = state.topics.get(&topic).map_or_else(String::new, |topic| topic.name.clone());
            Ok(Answer::Declared { topic, name, partitions, existed })
        }
        Outcome::TopicDeleted { topic } => Ok(Answer::Deleted { existed: topic.is_some() }),
        Outcome::Settled(codes) => Ok(Answer::Settled(codes)),
        Outcome::Refused(refusal) => Err(failure(&refusal)),
        // A connection waits for no other command than those above and its own leaving.
        Outcome::Done
        | Outcome::Joined { .. }
        | Outcome::Delivered { .. }
        | Outcome::Moved { .. }
        | Outcome::Letters(_)
        | Outcome::Changed => Ok(Answer::Heartbeat),
    }
}

/// Keeps an appended message in memory; `ticket` names the work that writes it.
pub(crate) fn keep(recent: &mut Recent, append: AppendEffect, epoch: Epoch, published_at: WallTime, ticket: u64) {
    let position = Position { epoch, commit_index: append.commit_index };
    let stored = Stored { seq: append.seq, position, published_at, record: append.record };
    let (key_hash, size_bytes, expires_at_ms) = (append.key_hash, append.payload_bytes, append.expires_at_ms);
    let fact = Fact { key_hash, size_bytes, expires_at_ms };
    recent.push(append.topic, append.partition, stored, fact, ticket);
}

/// The segment work of an appended message.
pub(crate) fn append_work(append: &AppendEffect, epoch: Epoch, published_at: WallTime) -> SegmentWork {
    SegmentWork::Append(SegmentRecord {
        topic: append.topic,
        partition: append.partition,
        seq: append.seq,
        commit_index: append.commit_index,
        epoch,
        published_at,
        key_hash: append.key_hash,
        payload_bytes: append.payload_bytes,
        expires_at_ms: append.expires_at_ms,
        record: append.record.clone(),
    })
}

/// The segment work of a copied message.
pub(crate) fn copy_work(copy: CopyEffect, epoch: Epoch, published_at: WallTime) -> SegmentWork {
    SegmentWork::Copy(Box::new(CopyWork::of(copy, epoch, published_at)))
}

/// The segment work of a ledger event.
pub(crate) fn ledger_work(ledger: &LedgerEffect) -> SegmentWork {
    SegmentWork::Ledger(LedgerRecord {
        topic: ledger.topic,
        partition: ledger.partition,
        first_seq: ledger.event.first_seq,
        count: ledger.event.count,
        payload: ledger.event.encode(),
    })
}
