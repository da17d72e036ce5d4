//! What a client does and sees, for a history that is judged afterwards. Off unless the options say otherwise, and then one
//! look at an empty `Option` per message.
//!
//! Calls are noted before anything is sent, returns when the answer is here: a judge may take what lies between for the
//! time in which the broker did it. Everything is told before whoever waits for it.
//!
//! # Source
//! docs/reference/history.md.

use std::sync::Arc;

use bytes::Bytes;
use mortarmq_types::{Position, ProducerId, ProducerSeq};
use mortarmq_wire::Outcome;
use mortarmq_wire::ops::SettleKind;

use crate::delivery::Delivery;
use crate::engine::Item;
use crate::message::Message;
use crate::producer::Published;

/// What takes the events of a client.
pub(crate) trait Observer: Send + Sync + std::fmt::Debug {
    /// Now, in nanoseconds of the history's clock.
    fn now_ns(&self) -> u64;

    /// The message's own id; one without an id is not recorded.
    fn message_id(&self, headers: &mut dyn Iterator<Item = (&[u8], &[u8])>, value: &[u8]) -> Option<Arc<str>>;

    /// What tells this payload from another.
    fn hash(&self, value: &[u8]) -> String;

    fn observe(&self, event: &Event);
}

/// Something that is over, or will never be.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) client: Arc<str>,
    /// The topic of a publish, the path of everything else.
    pub(crate) place: Arc<str>,
    pub(crate) call_ns: u64,
    /// None: it never returned.
    pub(crate) ret_ns: Option<u64>,
    /// What the answer rests on, if it says.
    pub(crate) position: Option<Position>,
    pub(crate) what: What,
}

#[derive(Debug)]
pub(crate) enum What {
    Published {
        note: PublishNote,
        producer_id: ProducerId,
        producer_seq: ProducerSeq,
        result: Result<Published, Outcome>,
    },
    Delivered(Box<DeliveryNote>),
    Settled {
        msg: Arc<str>,
        delivery_id: u64,
        kind: SettleKind,
        lease_ms: u32,
        result: Result<(), Outcome>,
    },
    Left {
        result: Result<(), Outcome>,
    },
}

/// What is kept of a publish until it is answered.
#[derive(Clone, Debug)]
pub(crate) struct PublishNote {
    /// Its place in its batch.
    at: usize,
    /// When it was asked for, or asked for again.
    pub(crate) call_ns: u64,
    pub(crate) msg: Arc<str>,
    pub(crate) key: Bytes,
    pub(crate) hash: String,
    pub(crate) delay_ms: u64,
}

/// What is told of a delivery.
#[derive(Debug)]
pub(crate) struct DeliveryNote {
    pub(crate) msg: Arc<str>,
    pub(crate) key: Bytes,
    pub(crate) hash: String,
    pub(crate) partition: u16,
    pub(crate) seq: u64,
    pub(crate) delivery_id: u64,
    pub(crate) attempt: u32,
    pub(crate) cause: mortarmq_types::Cause,
    pub(crate) previous: Option<u64>,
    pub(crate) lease_ms: u32,
    /// The path on which a dead letter died.
    pub(crate) origin: Option<String>,
}

/// Who takes the events of a client, and the client's name in them.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) name: String,
}

impl Observed {
    /// For one of the client's producers or consumers.
    pub(crate) fn scribe(&self, id: u32, place: &str) -> Scribe {
        let client = format!("{}-{id}", self.name).into();
        Scribe { observer: Arc::clone(&self.observer), client, place: place.into() }
    }
}

/// Writes down what one producer or consumer does.
#[derive(Clone, Debug)]
pub(crate) struct Scribe {
    observer: Arc<dyn Observer>,
    client: Arc<str>,
    place: Arc<str>,
}

impl Scribe {
    pub(crate) fn now_ns(&self) -> u64 {
        self.observer.now_ns()
    }

    pub(crate) fn message_id(&self, delivery: &Delivery) -> Option<Arc<str>> {
        let mut headers = delivery.headers.iter().map(|(name, value)| (&name[..], &value[..]));
        self.observer.message_id(&mut headers, &delivery.value)
    }

    /// Messages that are about to be sent.
    pub(crate) fn calls(&self, messages: &[Message<'_>]) -> Vec<PublishNote> {
        let call_ns = self.now_ns();
        let note = |(at, message): (usize, &Message<'_>)| {
            let msg = self.observer.message_id(&mut message.headers.iter().copied(), message.value)?;
            Some(PublishNote {
                at,
                call_ns,
                msg,
                key: Bytes::copy_from_slice(message.key),
                hash: self.observer.hash(message.value),
                delay_ms: message.delay_ms.unwrap_or_default(),
            })
        };
        messages.iter().enumerate().filter_map(note).collect()
    }

    /// The answer to the messages of one request, whose numbers begin with `first`.
    pub(crate) fn published(
        &self,
        notes: Vec<PublishNote>,
        producer_id: u64,
        first: u64,
        result: Result<&[Published], Outcome>,
    ) -> Vec<Told> {
        let ret_ns = self.returned(result.map(drop));
        let event = |note: PublishNote| {
            let result = result.map(|published| published[note.at]);
            let position = result.ok().map(|it| Position { epoch: it.epoch, commit_index: it.commit_index });
            let producer_seq = ProducerSeq::new(first + note.at as u64);
            let (call_ns, producer_id) = (note.call_ns, ProducerId::new(producer_id));
            self.told(call_ns, ret_ns, position, What::Published { note, producer_id, producer_seq, result })
        };
        notes.into_iter().map(event).collect()
    }

    /// A message has arrived that was asked for at `call_ns`.
    pub(crate) fn delivered(&self, call_ns: u64, delivery: &Delivery) -> Option<Told> {
        // Behind a message's own headers, of which one may have that name too, the last is the broker's.
        let died_on = delivery.headers.iter().rfind(|(name, _)| name == DIED_ON.as_bytes());
        let origin = died_on.map(|(_, path)| String::from_utf8_lossy(path).into_owned());
        let note = DeliveryNote {
            msg: delivery.msg.clone()?,
            key: delivery.key.clone(),
            hash: self.observer.hash(&delivery.value),
            partition: delivery.partition.get(),
            seq: delivery.seq.get(),
            delivery_id: delivery.delivery_id.get(),
            attempt: delivery.attempt.get(),
            cause: delivery.cause,
            previous: delivery.previous.map(mortarmq_types::DeliveryId::get),
            lease_ms: delivery.lease_ms,
            origin: origin.filter(|_| self.place.starts_with(DEAD_LETTERS)),
        };
        let what = What::Delivered(Box::new(note));
        Some(self.told(call_ns, Some(self.now_ns()), Some(delivery.position), what))
    }

    /// The answer to a settle.
    pub(crate) fn settled(&self, item: &Item, position: Option<Position>, result: Result<(), Outcome>) -> Option<Told> {
        let what = What::Settled {
            msg: item.msg.clone()?,
            delivery_id: item.delivery_id.get(),
            kind: item.kind,
            lease_ms: item.lease_ms,
            result,
        };
        Some(self.told(item.call_ns, self.returned(result), position, what))
    }

    /// The consumer has left, or nobody knows whether it has.
    pub(crate) fn left(&self, call_ns: u64, position: Option<Position>, result: Result<(), Outcome>) -> Told {
        self.told(call_ns, self.returned(result), position, What::Left { result })
    }

    /// A call whose outcome is not known is open: it may take effect later than its answer.
    fn returned(&self, result: Result<(), Outcome>) -> Option<u64> {
        (result != Err(Outcome::Unknown)).then(|| self.now_ns())
    }

    fn told(&self, call_ns: u64, ret_ns: Option<u64>, position: Option<Position>, what: What) -> Told {
        let (client, place) = (Arc::clone(&self.client), Arc::clone(&self.place));
        Told { observer: Arc::clone(&self.observer), event: Event { client, place, call_ns, ret_ns, position, what } }
    }
}

/// An event on its way to whoever observes.
#[derive(Debug)]
pub(crate) struct Told {
    observer: Arc<dyn Observer>,
    event: Event,
}

impl Told {
    pub(crate) fn tell(&self) {
        self.observer.observe(&self.event);
    }
}

/// The header of a dead letter that names the path it died on.
const DIED_ON: &str = "mortarmq-dlq-path";
/// How the names of dead-letter topics begin.
const DEAD_LETTERS: &str = "$dlq.";
