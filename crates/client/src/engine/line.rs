//! A producer's line of numbers: every publish keeps its number until it is answered.
//!
//! Publishes are numbered 1, 2, 3 … in the order of the calls and sent without waiting. After a cut they are sent
//! again in that order with the numbers they had. When the broker refuses one in the middle, what came behind it is
//! answered `SEQ_GAP`; the line then waits until nothing is in flight and decides in `plan.rs` which numbers may be
//! given anew.
//!
//! # Invariants
//! 1. The undone entries stand in the order of their calls, and their numbers rise.
//! 2. An entry's number changes only when no attempt at it can ever be stored under the old one (rule 1 of
//!    docs/reference/wire.md): each was answered `refused`, or a number below is never sent again under this identity.
//! 3. While the line drains, nothing of it is sent.
//!
//! # Source
//! P3; docs/reference/wire.md, rule 1.

mod plan;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use mortarmq_types::{Partition, ProducerId, ProducerSeq, TopicIncarnation};
use mortarmq_wire::ops::{PublishBatchOk, PublishOk};
use mortarmq_wire::{DecodeError, ErrorCode, Op, Outcome};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::effects::{BatchResult, DoneResult, Effect, Effects, PublishResult, Weight, Window};
use super::link::{Link, Sent};
use super::topic::TopicUse;
use crate::backoff::{Backoff, random_producer_id};
use crate::errors::{ClientError, PublishError, ServerError};
use crate::message::{Message, address, encode_publish, encode_publish_batch};
use crate::options::{ProducerOptions, ReconnectOptions};
use crate::producer::Published;
use crate::recording::{PublishNote, Scribe};

#[derive(Debug)]
pub(crate) struct Line {
    id: u32,
    topic: TopicUse,
    /// Who waits for the topic to be found.
    opened: Option<oneshot::Sender<DoneResult>>,
    partition: Partition,
    producer_id: u64,
    /// Whether the identity is the caller's, who may not get another.
    is_identity_fixed: bool,
    next_number: u64,
    /// The frames of `entries`, one behind the other.
    frames: BytesMut,
    entries: VecDeque<Entry>,
    /// The index of the first of `entries`; indexes count up for the life of the line.
    first_index: u64,
    /// The next entry to send: its index, and where its frame begins.
    cursor: Cursor,
    in_flight: usize,
    /// Something was refused or lost: nothing is sent until nothing is in flight.
    is_draining: bool,
    /// The lowest number that was given up.
    gap: Option<Gap>,
    /// Entries from this index on wait for a new identity.
    limit: Option<u64>,
    /// Whether the broker has stored something under this identity.
    is_known: bool,
    /// The identity has lost its use: its numbers are not given anew.
    is_abandoned: bool,
    pause_until: Option<Instant>,
    backoff: Backoff,
    /// Since when every answer was "not now".
    refused_since: Option<Instant>,
    give_up_after: Option<Duration>,
    window: Arc<Window>,
    ended: Option<ClientError>,
    scribe: Option<Scribe>,
    /// Whether the producer is gone: the line ends with its last answer.
    pub(crate) is_released: bool,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    count: u16,
    frame_len: usize,
    weight: Weight,
    is_in_flight: bool,
    /// Whether an attempt was answered `unknown`, or not at all.
    may_be_stored: bool,
    /// `None` when it is answered for good.
    reply: Option<Reply>,
    /// For a history; empty where none is written.
    notes: Vec<PublishNote>,
}

#[derive(Debug)]
pub(crate) enum Reply {
    One(oneshot::Sender<PublishResult>),
    Batch(oneshot::Sender<BatchResult>),
}

#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    index: u64,
    offset: usize,
}

/// A number that was given up.
#[derive(Clone, Copy, Debug)]
struct Gap {
    number: u64,
    /// Whether it is certain that nothing was stored under it.
    is_certain: bool,
}

impl Line {
    pub(crate) fn new(
        id: u32,
        topic: String,
        options: &ProducerOptions,
        reconnect: &ReconnectOptions,
        scribe: Option<Scribe>,
        opened: oneshot::Sender<DoneResult>,
    ) -> Self {
        Self {
            id,
            topic: TopicUse::new(topic),
            opened: Some(opened),
            partition: options.partition.map_or(Partition::ANY, Partition::new),
            producer_id: options.producer_id.unwrap_or_else(random_producer_id),
            is_identity_fixed: options.producer_id.is_some(),
            next_number: 1,
            frames: BytesMut::new(),
            entries: VecDeque::new(),
            first_index: 0,
            cursor: Cursor::default(),
            in_flight: 0,
            is_draining: false,
            gap: None,
            limit: None,
            is_known: false,
            is_abandoned: false,
            pause_until: None,
            backoff: Backoff::new(reconnect),
            refused_since: None,
            give_up_after: reconnect.give_up_after,
            window: Arc::new(Window::new(options.max_outstanding)),
            ended: None,
            scribe,
            is_released: false,
        }
    }

    /// The topic, unless the line has ended.
    pub(crate) const fn open_topic(&mut self) -> Option<&mut TopicUse> {
        if self.ended.is_some() { None } else { Some(&mut self.topic) }
    }

    pub(crate) fn window(&self) -> Arc<Window> {
        Arc::clone(&self.window)
    }

    /// Takes one message; it is sent at the next [`Self::pump`].
    pub(crate) fn publish(
        &mut self,
        message: &Message<'_>,
        scratch: &mut BytesMut,
        weight: Weight,
        reply: oneshot::Sender<PublishResult>,
    ) -> Result<(), ClientError> {
        self.check_open()?;
        let start = self.frames.len();
        encode_publish(message, self.partition, scratch, &mut self.frames)?;
        self.push(start, std::slice::from_ref(message), weight, Reply::One(reply));
        Ok(())
    }

    /// Takes a batch, which is stored as a whole or not at all.
    pub(crate) fn publish_batch(
        &mut self,
        messages: &[Message<'_>],
        scratch: &mut BytesMut,
        weight: Weight,
        reply: oneshot::Sender<BatchResult>,
    ) -> Result<(), ClientError> {
        self.check_open()?;
        let start = self.frames.len();
        encode_publish_batch(messages, self.partition, scratch, &mut self.frames)?;
        self.push(start, messages, weight, Reply::Batch(reply));
        Ok(())
    }

    /// Sends what may be sent.
    pub(crate) fn pump(&mut self, link: &mut Link) {
        let Some(topic_id) = self.topic.handle() else { return };
        if self.is_draining || self.pause_until.is_some() || !link.is_up {
            return;
        }
        let end = self.first_index + self.entries.len() as u64;
        let end = self.limit.map_or(end, |limit| limit.min(end));
        while self.cursor.index < end {
            let Cursor { index, offset } = self.cursor;
            let entry = &mut self.entries[(index - self.first_index) as usize];
            if let Some(reply) = &entry.reply {
                let frame = &mut self.frames[offset..offset + entry.frame_len];
                address(frame, topic_id, self.producer_id, entry.number);
                link.out.extend_from_slice(frame);
                link.sent.push_back(Sent::Publish { line: self.id, index, op: reply.op() });
                entry.is_in_flight = true;
                self.in_flight += 1;
            }
            self.cursor = Cursor { index: index + 1, offset: offset + entry.frame_len };
        }
    }

    /// Takes an OK.
    pub(crate) fn answered_ok(&mut self, index: u64, result: &[u8], effects: &mut Effects) {
        let at = self.landed(index);
        let entry = &mut self.entries[at];
        let outcome = match &entry.reply {
            Some(Reply::One(_)) => PublishOk::decode(result).map(|ok| Decoded::One(Published::of(&ok))),
            _ => PublishBatchOk::decode(result, usize::from(entry.count)).map(Decoded::Batch),
        };
        match outcome {
            Ok(decoded) => self.confirm(at, decoded, effects),
            Err(reason) => self.give_up_unread(at, reason, effects),
        }
        self.after_answer(effects);
    }

    /// Takes an ERR.
    pub(crate) fn answered_error(&mut self, index: u64, error: ServerError, now: Instant, effects: &mut Effects) {
        let at = self.landed(index);
        let code = error.known_code();
        if self.is_draining && self.came_too_early(code) {
            // It came behind one that was not stored; the plan says what becomes of its number.
            return self.after_answer(effects);
        }
        let is_open = error.outcome == Outcome::Unknown && code != Some(ErrorCode::SeqExpired);
        self.entries[at].may_be_stored |= is_open;
        if error.retry_helps() && !self.is_time_up(now) {
            if is_open {
                tell_lost(self.scribe.as_ref(), &mut self.entries[at], self.producer_id, effects);
            }
            let wait = match error.retry_after_ms {
                0 => self.backoff.next_wait(),
                ms => Duration::from_millis(u64::from(ms)),
            };
            self.pause_until = self.pause_until.max(Some(now + wait));
            self.is_draining = true;
        } else {
            self.refuse(at, error, effects);
        }
        self.after_answer(effects);
    }

    /// The connection is gone, and with it the answers to all that is in flight.
    pub(crate) fn disconnected(&mut self, effects: &mut Effects) {
        for entry in &mut self.entries {
            if entry.is_in_flight {
                tell_lost(self.scribe.as_ref(), entry, self.producer_id, effects);
            }
            entry.may_be_stored |= entry.is_in_flight;
            entry.is_in_flight = false;
        }
        self.in_flight = 0;
        self.topic.disconnected();
        self.plan(effects);
    }

    /// The topic's handle on this connection, or that there is none.
    pub(crate) fn resolved(&mut self, found: Option<(u16, TopicIncarnation)>, effects: &mut Effects) {
        match self.topic.resolved(found) {
            Ok(()) => self.tell_opened(Ok(()), effects),
            Err(error) => self.end(&error, effects),
        }
    }

    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.pause_until
    }

    pub(crate) fn on_timer(&mut self, now: Instant) {
        if self.pause_until.is_some_and(|until| until <= now) {
            self.pause_until = None;
        }
    }

    /// Answers everything with an error, and every later publish too.
    pub(crate) fn end(&mut self, error: &ClientError, effects: &mut Effects) {
        if self.ended.is_some() {
            return;
        }
        self.topic.disconnected();
        self.tell_opened(Err(error.clone()), effects);
        for at in 0..self.entries.len() {
            let entry = &self.entries[at];
            let may_be_stored = entry.may_be_stored || entry.is_in_flight;
            let outcome = if may_be_stored { Outcome::Unknown } else { Outcome::Refused };
            self.fail(at, error.clone().with_outcome(outcome), effects);
        }
        self.ended = Some(error.clone().with_outcome(Outcome::Refused));
        self.pop_done();
    }

    /// Whether every publish is answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.entries.is_empty() && self.in_flight == 0
    }

    fn tell_opened(&mut self, result: DoneResult, effects: &mut Effects) {
        if let Some(opened) = self.opened.take() {
            effects.push(Effect::Done(opened, result));
        }
    }

    fn check_open(&self) -> Result<(), ClientError> {
        self.ended.clone().map_or(Ok(()), Err)
    }

    fn push(&mut self, start: usize, messages: &[Message<'_>], weight: Weight, reply: Reply) {
        let count = u16::try_from(messages.len()).expect("a batch that was encoded has at most 1024 records");
        let notes = self.scribe.as_ref().map_or_else(Vec::new, |scribe| scribe.calls(messages));
        let frame_len = self.frames.len() - start;
        let number = self.next_number;
        self.next_number += u64::from(count);
        self.entries.push_back(Entry {
            number,
            count,
            frame_len,
            weight,
            is_in_flight: false,
            may_be_stored: false,
            reply: Some(reply),
            notes,
        });
    }

    /// An entry of the present connection was answered.
    fn landed(&mut self, index: u64) -> usize {
        let at = (index - self.first_index) as usize;
        let entry = &mut self.entries[at];
        assert!(entry.is_in_flight, "P2: number {} was answered while it was not in flight", entry.number);
        entry.is_in_flight = false;
        self.in_flight -= 1;
        at
    }

    fn confirm(&mut self, at: usize, decoded: Decoded, effects: &mut Effects) {
        let entry = &mut self.entries[at];
        match (entry.reply.take(), decoded) {
            (Some(Reply::One(sender)), Decoded::One(published)) => {
                tell(self.scribe.as_ref(), entry, self.producer_id, Ok(&[published]), effects);
                effects.push(Effect::Published(sender, Ok(published)));
                effects.room(&self.window, entry.weight);
            }
            (Some(Reply::Batch(sender)), Decoded::Batch(ok)) => {
                let published = Published::of_batch(&ok);
                tell(self.scribe.as_ref(), entry, self.producer_id, Ok(&published), effects);
                effects.push(Effect::Batch(sender, Ok(published)));
                effects.room(&self.window, entry.weight);
            }
            // The line was ended meanwhile and has told the caller so.
            _ => {}
        }
        // A number was stored only if every number below was.
        self.gap = self.gap.filter(|gap| gap.number > entry.number);
        self.is_known = true;
        self.refused_since = None;
        self.backoff.reset();
    }

    /// An OK that cannot be read: probably stored, but nothing is promised.
    fn give_up_unread(&mut self, at: usize, reason: DecodeError, effects: &mut Effects) {
        let op = self.entries[at].reply.as_ref().map_or(Op::Publish, Reply::op);
        self.note_gap(self.entries[at].number, false);
        self.fail(at, ClientError::BadAnswer { op, reason }, effects);
    }

    /// An ERR that a repeat does not change.
    fn refuse(&mut self, at: usize, error: ServerError, effects: &mut Effects) {
        let (number, may_be_stored) = (self.entries[at].number, self.entries[at].may_be_stored);
        let code = error.known_code();
        // The number belongs to somebody else, is too old, or has a hole before it that this line knows nothing of.
        self.is_abandoned |=
            matches!(code, Some(ErrorCode::SeqGap | ErrorCode::SeqExpired | ErrorCode::ProducerSeqInvalid));
        let is_certain =
            !may_be_stored && error.outcome == Outcome::Refused && code != Some(ErrorCode::ProducerSeqInvalid);
        self.note_gap(number, is_certain);
        let outcome = if may_be_stored { Outcome::Unknown } else { error.outcome };
        self.fail(at, ClientError::from(Box::new(error)).with_outcome(outcome), effects);
    }

    /// Whether this is how the broker refuses a number whose predecessor it does not have. Of a producer that it does
    /// not know at all it says `SEQ_EXPIRED`.
    const fn came_too_early(&self, code: Option<ErrorCode>) -> bool {
        match code {
            Some(ErrorCode::SeqGap) => true,
            Some(ErrorCode::SeqExpired) => !self.is_known,
            _ => false,
        }
    }

    fn note_gap(&mut self, number: u64, is_certain: bool) {
        self.is_draining = true;
        if self.gap.is_none_or(|gap| number < gap.number) {
            self.gap = Some(Gap { number, is_certain });
        }
    }

    fn fail(&mut self, at: usize, error: ClientError, effects: &mut Effects) {
        let entry = &mut self.entries[at];
        let Some(reply) = entry.reply.take() else { return };
        tell(self.scribe.as_ref(), entry, self.producer_id, Err(error.outcome()), effects);
        let error = PublishError {
            producer_id: ProducerId::new(self.producer_id),
            producer_seq: ProducerSeq::new(entry.number),
            error,
        };
        match reply {
            Reply::One(sender) => effects.push(Effect::Published(sender, Err(error))),
            Reply::Batch(sender) => effects.push(Effect::Batch(sender, Err(error))),
        }
        effects.room(&self.window, entry.weight);
    }

    fn after_answer(&mut self, effects: &mut Effects) {
        self.pop_done();
        let is_limit_reached = self.limit.is_some_and(|limit| self.first_index >= limit);
        if self.in_flight == 0 && (self.is_draining || is_limit_reached) {
            self.plan(effects);
        }
    }

    fn pop_done(&mut self) {
        while let Some(entry) = self.entries.front()
            && entry.reply.is_none()
            && !entry.is_in_flight
        {
            let frame_len = entry.frame_len;
            self.frames.advance(frame_len);
            self.entries.pop_front();
            self.first_index += 1;
            self.cursor.offset = self.cursor.offset.saturating_sub(frame_len);
            self.cursor.index = self.cursor.index.max(self.first_index);
        }
    }

    fn is_time_up(&mut self, now: Instant) -> bool {
        let since = *self.refused_since.get_or_insert(now);
        self.give_up_after.is_some_and(|limit| now.duration_since(since) >= limit)
    }
}

/// Tells a history what became of an entry.
fn tell(
    scribe: Option<&Scribe>,
    entry: &mut Entry,
    producer_id: u64,
    result: Result<&[Published], Outcome>,
    effects: &mut Effects,
) {
    if let Some(scribe) = scribe {
        effects.tell(scribe.published(std::mem::take(&mut entry.notes), producer_id, entry.number, result));
    }
}

/// Tells a history that an attempt was not answered, or that nobody knows what became of it. The next one is a call of its own: the index that its answer rests on
/// says nothing of when this one took effect.
fn tell_lost(scribe: Option<&Scribe>, entry: &mut Entry, producer_id: u64, effects: &mut Effects) {
    let Some(scribe) = scribe else { return };
    effects.tell(scribe.published(entry.notes.clone(), producer_id, entry.number, Err(Outcome::Unknown)));
    let now_ns = scribe.now_ns();
    entry.notes.iter_mut().for_each(|note| note.call_ns = now_ns);
}

impl Reply {
    const fn op(&self) -> Op {
        match self {
            Self::One(_) => Op::Publish,
            Self::Batch(_) => Op::PublishBatch,
        }
    }
}

enum Decoded<'a> {
    One(Published),
    Batch(PublishBatchOk<'a>),
}

#[cfg(test)]
mod tests;
