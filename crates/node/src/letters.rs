//! Reading dead letters: what an envelope says, and the message without it.
//!
//! The broker's headers stand behind the message's own, in a fixed number and order; a message may well have headers of the
//! same names from an earlier life, so only the last ones count.

use bytes::{Bytes, BytesMut};
use mortarmq_shard::command::Letter;
use mortarmq_shard::dead_letter::DEAD_LETTER_HEADERS;
use mortarmq_shard::record::{NewRecord, Record, key_hash, open_record, write_record};
use mortarmq_types::{DeliveryId, PathId, Seq};
use mortarmq_wire::{RecordBody, write_body};

/// A header: name and value.
type Pair<'a> = (&'a [u8], &'a [u8]);

/// A dead letter, taken apart.
#[derive(Debug)]
pub(crate) struct OpenLetter {
    /// Why the message is dead.
    pub(crate) reason: String,
    /// What a redrive has to say of it; nothing if it has no value, as its record could not be read when it died.
    pub(crate) letter: Option<Letter>,
}

/// Reads the envelope of a dead letter.
///
/// # Errors
/// Why the bytes are no dead letter.
pub(crate) fn open_letter(seq: Seq, record: &Bytes) -> Result<OpenLetter, String> {
    let record = open_record(record).map_err(|error| error.to_string())?;
    let (body, _) = RecordBody::parse_stored(record.body(), record.has_headers).map_err(|error| error.to_string())?;
    let headers: Vec<Pair<'_>> = body.headers().into_iter().flatten().collect();
    let (_, added) = split(&headers)?;
    let text = |place: usize| String::from_utf8_lossy(added[place].1).into_owned();
    let number = |place: usize| text(place).parse::<u64>().map_err(|_| format!("{:?} is no number", text(place)));
    let added_bytes: usize = added.iter().map(|(name, value)| name.len() + value.len()).sum();
    let delivery = DeliveryId::new(number(DELIVERY)?);
    let letter = Letter {
        seq,
        path: PathId::new(number(PATH_ID)?),
        origin: Seq::new(number(SEQUENCE)?),
        delivery,
        key_hash: key_hash(body.key()),
        size_bytes: u32::try_from(body.payload_len() - added_bytes).map_err(|error| error.to_string())?,
    };
    Ok(OpenLetter { reason: text(REASON), letter: (delivery != DeliveryId::ZERO).then_some(letter) })
}

/// The message of a dead letter as its producer sent it.
///
/// # Errors
/// Why the bytes are no dead letter, or have no message.
pub(crate) fn unwrapped(record: &Bytes) -> Result<Record, String> {
    let record = open_record(record).map_err(|error| error.to_string())?;
    let (body, _) = RecordBody::parse_stored(record.body(), record.has_headers).map_err(|error| error.to_string())?;
    let headers: Vec<Pair<'_>> = body.headers().into_iter().flatten().collect();
    let (own, added) = split(&headers)?;
    if added[DELIVERY].1 == b"0" {
        return Err("the record could not be read when its message died".to_owned());
    }
    let mut out = BytesMut::new();
    let own = (!own.is_empty()).then_some(own);
    write_body(&mut out, body.key(), own, body.value()).map_err(|error| error.to_string())?;
    let (producer_id, producer_seq) = (record.producer_id, record.producer_seq);
    let mut whole = BytesMut::new();
    let new = NewRecord { producer_id, producer_seq, key: body.key(), has_headers: own.is_some(), body: &out };
    write_record(&mut whole, &new);
    open_record(&whole.freeze()).map_err(|error| error.to_string())
}

/// The message's own headers, and those of the broker.
fn split<'a, 'b>(headers: &'b [Pair<'a>]) -> Result<(&'b [Pair<'a>], &'b [Pair<'a>]), String> {
    let own = headers.len().checked_sub(DEAD_LETTER_HEADERS);
    let parts = own.map(|own| headers.split_at(own));
    parts
        .filter(|(_, added)| added.iter().zip(NAMES).all(|((found, _), name)| *found == name.as_bytes()))
        .ok_or_else(|| "it has no envelope of a dead letter".to_owned())
}

/// What [`mortarmq_shard::Envelope::headers`] adds, in its order.
const NAMES: [&str; DEAD_LETTER_HEADERS] = [
    "mortarmq-dlq-path",
    "mortarmq-dlq-partition",
    "mortarmq-dlq-sequence",
    "mortarmq-dlq-attempts",
    "mortarmq-dlq-reason",
    "mortarmq-dlq-error",
    "mortarmq-dlq-delivery",
    "mortarmq-dlq-path-id",
];
const SEQUENCE: usize = 2;
const REASON: usize = 4;
const DELIVERY: usize = 6;
const PATH_ID: usize = 7;
