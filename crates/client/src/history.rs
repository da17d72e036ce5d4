//! A client's history as a file that `mortarmq check` judges.

use std::borrow::Cow;
use std::sync::Arc;

use mortarmq_history::{Cause, Deliver, Extend, Nack, NackTo, Operate, OperateKind, Publish, Record, Recorder, Settle};
use mortarmq_types::{Position, ProducerId, ProducerSeq};
use mortarmq_wire::Outcome;
use mortarmq_wire::ops::SettleKind;
use rustix::time::{ClockId, clock_gettime};

use crate::backoff::random_producer_id;
use crate::producer::Published;
use crate::recording::{DeliveryNote, Event, Observed, Observer, PublishNote, What};

/// Records what a client does and sees: publishes, deliveries and settles, those that the client does by itself too
/// (renewals, what it gives back), and leaves, each with its times, its outcome and the position it rests on.
///
/// A message is told from all others by an id of its own that it carries; one without an id is left out of the history. What
/// the run promises, its faults and its end are for whoever makes the run to record, with the same [`Recorder`] and the same
/// clock ([`Self::now_ns`]).
///
/// The `call` of a delivery is when it was asked for: of a push, when the consumer first gave credit; of a pull, when that was
/// called. Judges know more of leases that were pulled.
///
/// # Source
/// docs/reference/history.md.
#[derive(Clone)]
pub struct Recording {
    recorder: Recorder,
    message_id: MessageId,
}

type InValue = dyn Fn(&[u8]) -> Option<String> + Send + Sync;

#[derive(Clone)]
enum MessageId {
    Header(Arc<str>),
    Value(Arc<InValue>),
}

impl Recording {
    /// A message's own id is the value of this header.
    #[must_use]
    pub fn by_header(recorder: Recorder, header: &str) -> Self {
        Self { recorder, message_id: MessageId::Header(header.into()) }
    }

    /// A message's own id is what this function finds in its value.
    #[must_use]
    pub fn by_value(recorder: Recorder, find: impl Fn(&[u8]) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { recorder, message_id: MessageId::Value(Arc::new(find)) }
    }

    /// Now, by the clock of all it records: that of the machine since its start, one for all its processes.
    ///
    /// # Units
    /// Nanoseconds.
    #[must_use]
    pub fn now_ns() -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    /// For one client: its name is made unique, as histories tell clients apart by it.
    pub(crate) fn observed(&self, name: &str) -> Observed {
        let name = format!("{name}-{:08x}", random_producer_id() >> 31);
        Observed { observer: Arc::new(self.clone()), name }
    }
}

/// Leaves out the function.
impl std::fmt::Debug for Recording {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Recording").finish_non_exhaustive()
    }
}

impl Observer for Recording {
    fn now_ns(&self) -> u64 {
        Self::now_ns()
    }

    fn message_id(&self, headers: &mut dyn Iterator<Item = (&[u8], &[u8])>, value: &[u8]) -> Option<Arc<str>> {
        match &self.message_id {
            MessageId::Header(name) => {
                let (_, id) = Iterator::find(&mut { headers }, |(known, _)| *known == name.as_bytes())?;
                Some(text(id).into())
            }
            MessageId::Value(find) => find(value).map(Arc::from),
        }
    }

    fn hash(&self, value: &[u8]) -> String {
        format!("{:016x}", xxhash_rust::xxh3::xxh3_64(value))
    }

    fn observe(&self, event: &Event) {
        let record = match &event.what {
            What::Published { note, producer_id, producer_seq, result } => {
                Record::Publish(publish(event, note, *producer_id, *producer_seq, *result))
            }
            What::Delivered(note) => Record::Deliver(deliver(event, note)),
            What::Settled { msg, delivery_id, kind, lease_ms, result } => {
                let settle = settle(event, msg, *delivery_id, *result);
                match kind {
                    SettleKind::Ack => Record::Ack(settle),
                    SettleKind::Progress => Record::Extend(Extend { settle, lease_ms: Some(u64::from(*lease_ms)) }),
                    SettleKind::Nack => Record::Nack(Nack { settle, to: NackTo::Retry }),
                    SettleKind::DeadLetter => Record::Nack(Nack { settle, to: NackTo::Dead }),
                    SettleKind::Release => Record::Nack(Nack { settle, to: NackTo::Release }),
                }
            }
            What::Left { result } => Record::Operate(leave(event, *result)),
        };
        self.recorder.record(&record);
    }
}

fn publish<'a>(
    event: &'a Event,
    note: &'a PublishNote,
    producer_id: ProducerId,
    producer_seq: ProducerSeq,
    result: Result<Published, Outcome>,
) -> Publish<'a> {
    let published = result.ok();
    Publish {
        client: Some(Cow::Borrowed(&event.client)),
        topic: Cow::Borrowed(&event.place),
        msg: Cow::Borrowed(&note.msg),
        key: key(&note.key),
        call: event.call_ns,
        ret: event.ret_ns,
        outcome: outcome(result.map(drop)),
        partition: published.map(|published| u32::from(published.partition.get())),
        seq: published.map(|published| published.seq.get()),
        producer_id: Some(producer_id.get()),
        producer_seq: Some(producer_seq.get()),
        delay_ms: Some(note.delay_ms),
        dedup: published.map(|published| published.deduplicated),
        hash: Some(Cow::Borrowed(&note.hash)),
        commit: commit(event.position),
        epoch: epoch(event.position),
        txn: None,
    }
}

fn deliver<'a>(event: &'a Event, note: &'a DeliveryNote) -> Deliver<'a> {
    Deliver {
        client: Some(Cow::Borrowed(&event.client)),
        path: Cow::Borrowed(&event.place),
        msg: Cow::Borrowed(&note.msg),
        key: key(&note.key),
        call: event.call_ns,
        ret: event.ret_ns,
        partition: Some(u32::from(note.partition)),
        seq: Some(note.seq),
        delivery_id: Some(note.delivery_id),
        attempt: Some(note.attempt),
        cause: Cause::from_word(note.cause.word()),
        prev: note.previous,
        lease_ms: Some(u64::from(note.lease_ms)),
        hash: Some(Cow::Borrowed(&note.hash)),
        commit: commit(event.position),
        epoch: epoch(event.position),
        origin: note.origin.as_deref().map(Cow::Borrowed),
        txn: None,
    }
}

fn settle<'a>(event: &'a Event, msg: &'a str, delivery_id: u64, result: Result<(), Outcome>) -> Settle<'a> {
    Settle {
        client: Some(Cow::Borrowed(&event.client)),
        path: Cow::Borrowed(&event.place),
        msg: Cow::Borrowed(msg),
        delivery_id: Some(delivery_id),
        call: event.call_ns,
        ret: event.ret_ns,
        outcome: outcome(result),
        commit: commit(event.position),
        epoch: epoch(event.position),
        txn: None,
    }
}

fn leave(event: &Event, result: Result<(), Outcome>) -> Operate<'_> {
    Operate {
        client: Some(Cow::Borrowed(&event.client)),
        kind: OperateKind::Leave,
        path: Cow::Borrowed(&event.place),
        msg: None,
        call: event.call_ns,
        ret: event.ret_ns,
        outcome: outcome(result),
        commit: commit(event.position),
        epoch: epoch(event.position),
    }
}

fn outcome(result: Result<(), Outcome>) -> mortarmq_history::Outcome {
    match result {
        Ok(()) => mortarmq_history::Outcome::Ok,
        Err(Outcome::Refused) => mortarmq_history::Outcome::Refused,
        Err(Outcome::Unknown) => mortarmq_history::Outcome::Unknown,
    }
}

fn commit(position: Option<Position>) -> Option<u64> {
    position.map(|position| position.commit_index.get())
}

fn epoch(position: Option<Position>) -> Option<u64> {
    position.map(|position| position.epoch.get())
}

fn key(key: &[u8]) -> Option<Cow<'_, str>> {
    (!key.is_empty()).then(|| text(key))
}

/// As text; what is none is written so that two of it never look alike.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(bytes.iter().fold("0x".to_owned(), |text, byte| text + &format!("{byte:02x}"))),
    }
}
