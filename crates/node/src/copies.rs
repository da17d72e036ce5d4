//! Copies: records that the segment writer makes of others, in the order of apply. Dead letters are the only ones yet.
//!
//! Apply says where the bytes lie and what is added; here the new record is made. It is a function of the source's bytes
//! and the effect, so a replay makes the same record again.

use bytes::{Bytes, BytesMut};
use mortarmq_shard::dead_letter::ERROR_MAX_BYTES;
use mortarmq_shard::ledger::longest_start;
use mortarmq_shard::record::{NewRecord, open_record, write_record};
use mortarmq_shard::{CopyEffect, Envelope, MessagePlace};
use mortarmq_storage::SegmentRecord;
use mortarmq_types::{DeliveryId, Epoch, ProducerId, ProducerSeq, WallTime};
use mortarmq_wire::frame::{MAX_ADDED_HEADERS, MAX_STORED_LEN};
use mortarmq_wire::{RecordBody, write_body, write_body_with};

use crate::letters::unwrapped;

/// A record that the segment writer makes of another one.
#[derive(Clone, Debug)]
pub struct CopyWork {
    /// The record to read. It was given to the writer before, but may still wait in its memory.
    pub from: MessagePlace,
    /// The place of the copy, whose bytes are still missing.
    to: SegmentRecord,
    envelope: Envelope,
    /// Whether the source is a dead letter too.
    unwraps: bool,
}

/// A record that was made.
#[derive(Clone, Debug)]
pub struct Copied {
    /// What is to be appended.
    pub record: SegmentRecord,
    /// Why the source could not be read, with file and offset; the record then says so and holds nothing else.
    pub unreadable: Option<String>,
}

impl CopyWork {
    /// What an effect orders.
    #[must_use]
    pub fn of(copy: CopyEffect, epoch: Epoch, published_at: WallTime) -> Self {
        let to = SegmentRecord {
            topic: copy.to.topic,
            partition: copy.to.partition,
            seq: copy.to.seq,
            commit_index: copy.commit_index,
            epoch,
            published_at,
            key_hash: copy.key_hash,
            payload_bytes: copy.payload_bytes,
            expires_at_ms: 0,
            record: Bytes::new(),
        };
        Self { from: copy.from, to, envelope: copy.envelope, unwraps: copy.unwraps }
    }

    /// Makes the record of what was read: the source's record, nothing, or why it cannot be read.
    ///
    /// A message whose bytes are rotten has left its path all the same: the command that settled it is committed. Its dead
    /// letter has its place, its envelope, no value, and the damage in place of the error text. Wrong bytes are never
    /// copied (P11), and nothing is lost in silence (P4).
    #[must_use]
    pub fn make(self, source: Result<Option<Bytes>, String>) -> Copied {
        let made = match source {
            Ok(Some(bytes)) => dead_letter(&bytes, &self.envelope, self.unwraps),
            Ok(None) => Err("it is not in its segment".to_owned()),
            Err(reason) => Err(reason),
        };
        let (record, unreadable) = match made {
            Ok(record) => (record, None),
            Err(reason) => (letter_without_value(&self.envelope, &reason), Some(reason)),
        };
        Copied { record: SegmentRecord { record, ..self.to }, unreadable }
    }
}

/// The record of a dead letter: its source's, with the envelope's headers behind its own. A source that is a dead letter loses
/// its own envelope first.
fn dead_letter(source: &Bytes, envelope: &Envelope, unwraps: bool) -> Result<Bytes, String> {
    let record = if unwraps { unwrapped(source)? } else { open_record(source).map_err(|error| error.to_string())? };
    let (body, _) = RecordBody::parse(record.body(), record.has_headers).map_err(|error| error.to_string())?;
    let headers = envelope.headers();
    let added = headers.each_ref().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let mut out = BytesMut::new();
    write_body_with(&mut out, &body, &added).map_err(|error| error.to_string())?;
    Ok(whole(record.producer_id, record.producer_seq, body.key(), &out))
}

/// The record of a dead letter whose source cannot be read.
fn letter_without_value(envelope: &Envelope, reason: &str) -> Bytes {
    let told =
        format!("the record of the dead message cannot be read: {reason}; its consumer said: {}", envelope.error);
    let error = longest_start(&told, ERROR_MAX_BYTES).to_owned();
    // There is nothing to redrive, so there is no delivery that a redrive could follow.
    let headers = Envelope { error, delivery: DeliveryId::ZERO, ..envelope.clone() }.headers();
    let added = headers.each_ref().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let mut out = BytesMut::new();
    write_body(&mut out, b"", Some(&added), b"").expect("eight short headers are within every limit of a body");
    whole(ProducerId::ZERO, ProducerSeq::ZERO, b"", &out)
}

fn whole(producer_id: ProducerId, producer_seq: ProducerSeq, key: &[u8], body: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    write_record(&mut out, &NewRecord { producer_id, producer_seq, key, has_headers: true, body });
    out.freeze()
}

// The state machine, which knows nothing of frames, counts with the same limits.
const _: () = assert!(mortarmq_shard::dead_letter::DEAD_LETTER_HEADERS <= MAX_ADDED_HEADERS);
const _: () = assert!(mortarmq_shard::dead_letter::DEAD_LETTER_MAX_BYTES as usize == MAX_STORED_LEN);

#[cfg(test)]
mod tests {
    use super::{CopyWork, RecordBody, whole};
    use bytes::{Bytes, BytesMut};
    use mortarmq_delivery::{Death, End, Ended, Grant};
    use mortarmq_shard::record::{key_hash, open_record};
    use mortarmq_shard::{CopyEffect, Envelope, MessagePlace};
    use mortarmq_types::{
        Attempt, Cause, CommitIndex, DeliveryId, Epoch, MemberId, Partition, PathId, ProducerId, ProducerSeq, Seq,
        TopicIncarnation, WallTime,
    };
    use mortarmq_wire::frame::{MAX_HEADERS, MAX_HEADERS_LEN, MAX_KEY_LEN, MAX_VALUE_LEN};
    use mortarmq_wire::write_body;

    type Pairs<'a> = &'a [(&'a [u8], &'a [u8])];
    /// Key, headers, value, and the path.
    type Case<'a> = (&'a [u8], Option<Pairs<'a>>, &'a [u8], &'a str);

    /// A source record, and the copy that a state machine orders when it dies.
    fn dying(key: &[u8], headers: Option<Pairs<'_>>, value: &[u8], names: &str) -> (Bytes, CopyWork) {
        let mut body = BytesMut::new();
        write_body(&mut body, key, headers, value).expect("within the limits of a publish");
        let (parsed, _) = RecordBody::parse(&body, headers.is_some()).expect("just written");
        let size_bytes = u32::try_from(parsed.payload_len()).expect("a frame");
        let reason = Death::Exhausted(Cause::ConsumerLost);
        let ended = Ended {
            seq: Seq::MAX,
            delivery_id: DeliveryId::new(9),
            attempt: Attempt::new(5),
            member: MemberId::new(1),
            grant: Grant::Push,
            key_hash: key_hash(key),
            size_bytes,
            end: End::Dead(reason),
            source: None,
        };
        let envelope =
            Envelope::new((PathId::MAX, names.to_owned()), Partition::new(1023), &ended, reason, &"e".repeat(600));
        let place =
            |topic| MessagePlace { topic: TopicIncarnation::new(topic), partition: Partition::ZERO, seq: Seq::FIRST };
        let copy = CopyEffect {
            from: place(1),
            to: place(2),
            commit_index: CommitIndex::new(7),
            key_hash: ended.key_hash,
            payload_bytes: envelope.payload_bytes(size_bytes),
            envelope,
            unwraps: false,
        };
        let mut record = BytesMut::new();
        let new = mortarmq_shard::record::NewRecord {
            producer_id: ProducerId::new(3),
            producer_seq: ProducerSeq::new(4),
            key,
            has_headers: headers.is_some(),
            body: &body,
        };
        mortarmq_shard::record::write_record(&mut record, &new);
        (record.freeze(), CopyWork::of(copy, Epoch::new(1), WallTime::new(8)))
    }

    #[test]
    fn a_dead_letter_has_the_size_that_the_state_machine_counted() {
        // Goal: windows of bytes are right although apply never sees a record. Method: messages with and without headers,
        // and one at every limit at once, with the longest names there are.
        let most = vec![b'v'; MAX_HEADERS_LEN / MAX_HEADERS - 1];
        let all = [(b"n".as_slice(), most.as_slice()); MAX_HEADERS];
        let value = vec![0; MAX_VALUE_LEN - MAX_KEY_LEN - MAX_HEADERS_LEN];
        let long = format!("{0}/{0}", "n".repeat(200));
        let cases: [Case<'_>; 3] = [
            (b"", None, b"value", "orders/billing"),
            (b"key", Some(&[(b"a", b"1")]), b"value", "orders/billing"),
            (&[b'k'; MAX_KEY_LEN], Some(&all), &value, &long),
        ];
        for (key, headers, value, names) in cases {
            let (source, copy) = dying(key, headers, value, names);
            let copied = copy.make(Ok(Some(source)));
            assert_eq!(copied.unreadable, None);
            let record = open_record(&copied.record.record).expect("a record");
            assert_eq!((record.producer_id.get(), record.producer_seq.get()), (3, 4));
            let (body, rest) = RecordBody::parse_stored(record.body(), record.has_headers).expect("a MSG can carry it");
            assert_eq!((body.key(), body.value(), rest), (key, value, b"".as_slice()));
            assert_eq!(body.payload_len(), copied.record.payload_bytes as usize);
            let own = headers.map_or(0, <[_]>::len);
            let pairs: Vec<_> = body.headers().expect("headers").collect();
            assert_eq!(&pairs[..own], headers.unwrap_or_default());
            assert_eq!(pairs[own], (b"mortarmq-dlq-path".as_slice(), names.as_bytes()));
            assert_eq!(pairs[own + 4], (b"mortarmq-dlq-reason".as_slice(), b"consumer_lost".as_slice()));
            assert_eq!(pairs.len(), own + 8);

            // It says all that a redrive needs, and the message comes out as it went in.
            let opened = crate::letters::open_letter(Seq::new(3), &copied.record.record).expect("a dead letter");
            let letter = opened.letter.expect("it can be redriven");
            assert_eq!((letter.path, letter.origin, letter.delivery), (PathId::MAX, Seq::MAX, DeliveryId::new(9)));
            assert_eq!((letter.key_hash, opened.reason.as_str()), (key_hash(key), "consumer_lost"));
            let message = crate::letters::unwrapped(&copied.record.record).expect("a message");
            let (body, _) = RecordBody::parse(message.body(), message.has_headers).expect("a body");
            assert_eq!((body.key(), body.value(), body.payload_len()), (key, value, letter.size_bytes as usize));
            let found: Vec<_> = body.headers().into_iter().flatten().collect();
            assert_eq!((found, message.producer_id.get()), (headers.unwrap_or_default().to_vec(), 3));
            let again = CopyWork { unwraps: true, ..dying(key, headers, value, names).1 };
            let second = again.make(Ok(Some(copied.record.record.clone())));
            assert_eq!((second.unreadable, second.record.record), (None, copied.record.record), "one envelope only");
        }
    }

    #[test]
    fn p11_of_a_source_that_cannot_be_read_only_the_envelope_and_the_damage_are_told() {
        let (source, copy) = dying(b"key", None, b"value", "orders/billing");
        let mut rotten = source.to_vec();
        rotten[20] ^= 1;
        let found = [Ok(None), Err("00.segment is damaged at offset 128".to_owned()), Ok(Some(Bytes::from(rotten)))];
        for source in found {
            let copied = copy.clone().make(source);
            let reason = copied.unreadable.expect("it cannot be read");
            let record = open_record(&copied.record.record).expect("a record");
            let (body, _) = RecordBody::parse_stored(record.body(), record.has_headers).expect("a body");
            assert_eq!((body.key(), body.value()), (b"".as_slice(), b"".as_slice()));
            let pairs: Vec<_> = body.headers().expect("headers").collect();
            assert_eq!(pairs[2], (b"mortarmq-dlq-sequence".as_slice(), Seq::MAX.to_string().as_bytes()));
            let error = String::from_utf8_lossy(pairs[5].1);
            assert!(error.contains(&reason) && error.contains("its consumer said: eee"), "{error}");
            let opened = crate::letters::open_letter(Seq::FIRST, &copied.record.record).expect("a dead letter");
            assert!(opened.letter.is_none(), "a message without its bytes is not brought back");
            assert!(crate::letters::unwrapped(&copied.record.record).is_err());
        }
        let empty = whole(ProducerId::ZERO, ProducerSeq::ZERO, b"", b"");
        assert!(copy.make(Ok(Some(empty))).unreadable.is_some(), "a record without a body is no message");
    }
}
