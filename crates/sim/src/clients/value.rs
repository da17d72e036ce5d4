//! What a message holds: its number, so that a delivery is known without trusting the broker, and filling.

use bytes::BytesMut;
use mortarmq_shard::record::Record;
use mortarmq_wire::RecordBody;
use xxhash_rust::xxh3::xxh3_64;

/// The value of a message: its number in text, and as much filling as follows from it.
pub(crate) fn value_of(message: u64) -> Vec<u8> {
    let mut value = message.to_string().into_bytes();
    let filling = match xxh3_64(&message.to_le_bytes()) % 40 {
        0 => 6000,
        1..5 => 700,
        other => other as usize,
    };
    value.push(b' ');
    value.resize(value.len() + filling, b'a' + (message % 26) as u8);
    value
}

/// A record's body.
pub(crate) fn body_of(key: &[u8], value: &[u8]) -> BytesMut {
    let mut body = BytesMut::new();
    mortarmq_wire::write_body(&mut body, key, None, value).expect("far below every limit");
    body
}

/// What a delivery holds.
pub(crate) struct Held {
    /// The message's number, in text; empty if the value is none of ours.
    pub(crate) message: String,
    pub(crate) key: Option<String>,
    pub(crate) hash: String,
    /// The path it died on.
    pub(crate) origin: Option<String>,
    /// Its partition and sequence there.
    pub(crate) origin_place: Option<(u16, u64)>,
}

/// Reads a delivery's record.
pub(crate) fn read_value(record: &Record) -> Option<Held> {
    let (body, _) = RecordBody::parse_stored(record.body(), record.has_headers).ok()?;
    let value = body.value();
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let message = String::from_utf8_lossy(&value[..digits]).into_owned();
    let key = (!body.key().is_empty()).then(|| String::from_utf8_lossy(body.key()).into_owned());
    let header = |wanted: &str| {
        let found = body.headers()?.into_iter().find(|(name, _)| *name == wanted.as_bytes())?;
        Some(String::from_utf8_lossy(found.1).into_owned())
    };
    let origin_place = || Some((header(DIED_IN)?.parse().ok()?, header(DIED_AT)?.parse().ok()?));
    Some(Held { message, key, hash: hash_of(value), origin: header(DIED_ON), origin_place: origin_place() })
}

/// What tells a value from another.
pub(crate) fn hash_of(value: &[u8]) -> String {
    format!("{:016x}", xxh3_64(value))
}

const DIED_ON: &str = "mortarmq-dlq-path";
const DIED_IN: &str = "mortarmq-dlq-partition";
const DIED_AT: &str = "mortarmq-dlq-sequence";
