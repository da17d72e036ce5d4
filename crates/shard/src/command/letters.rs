//! Commands on single dead letters, and their bytes.
//!
//! Apply never sees a record, so a redrive brings along what the envelopes of its dead letters say.

use super::STEPS_MAX;
use super::codec::{CommandError, Fields};
use bytes::{BufMut, BytesMut};
use mortarmq_types::{DeliveryId, KeyHash, Partition, PathId, Seq, TopicIncarnation};

/// Brings dead messages back to the paths that they died on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redrive {
    /// The dead-letter topic.
    pub topic: TopicIncarnation,
    /// The partition.
    pub partition: Partition,
    /// The dead letters, at most [`STEPS_MAX`]. Each is judged by itself.
    pub letters: Vec<Letter>,
}

/// A dead letter, and what its record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Its sequence in the dead-letter topic.
    pub seq: Seq,
    /// The path that the message died on.
    pub path: PathId,
    /// Its sequence there.
    pub origin: Seq,
    /// The delivery that it died by.
    pub delivery: DeliveryId,
    /// The hash of its key.
    pub key_hash: KeyHash,
    /// Its key, headers and value, in bytes, without the envelope.
    pub size_bytes: u32,
}

/// Drops single dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropDead {
    /// The dead-letter topic.
    pub topic: TopicIncarnation,
    /// The partition.
    pub partition: Partition,
    /// The dead letters, at most [`STEPS_MAX`]. Each is judged by itself.
    pub seqs: Vec<Seq>,
}

pub(super) fn put_redrive(out: &mut BytesMut, redrive: &Redrive) {
    out.put_u64(redrive.topic.get());
    out.put_u16(redrive.partition.get());
    put_count(out, redrive.letters.len());
    for letter in redrive.letters.iter().take(STEPS_MAX as usize) {
        out.put_u64(letter.seq.get());
        out.put_u64(letter.path.get());
        out.put_u64(letter.origin.get());
        out.put_u64(letter.delivery.get());
        out.put_u64(letter.key_hash.get());
        out.put_u32(letter.size_bytes);
    }
}

pub(super) fn get_redrive(fields: &mut Fields) -> Result<Redrive, CommandError> {
    let (topic, partition) = (TopicIncarnation::new(fields.u64()?), Partition::new(fields.u16()?));
    let count = fields.count("letters", STEPS_MAX as usize)?;
    let letter = |fields: &mut Fields| {
        Ok(Letter {
            seq: Seq::new(fields.u64()?),
            path: PathId::new(fields.u64()?),
            origin: Seq::new(fields.u64()?),
            delivery: DeliveryId::new(fields.u64()?),
            key_hash: KeyHash::new(fields.u64()?),
            size_bytes: fields.u32()?,
        })
    };
    let letters = (0..count).map(|_| letter(fields)).collect::<Result<_, CommandError>>()?;
    Ok(Redrive { topic, partition, letters })
}

pub(super) fn put_drop_dead(out: &mut BytesMut, drop: &DropDead) {
    out.put_u64(drop.topic.get());
    out.put_u16(drop.partition.get());
    put_count(out, drop.seqs.len());
    for seq in drop.seqs.iter().take(STEPS_MAX as usize) {
        out.put_u64(seq.get());
    }
}

pub(super) fn get_drop_dead(fields: &mut Fields) -> Result<DropDead, CommandError> {
    let (topic, partition) = (TopicIncarnation::new(fields.u64()?), Partition::new(fields.u16()?));
    let count = fields.count("letters", STEPS_MAX as usize)?;
    let seqs = (0..count).map(|_| Ok(Seq::new(fields.u64()?))).collect::<Result<_, CommandError>>()?;
    Ok(DropDead { topic, partition, seqs })
}

/// What is too many for one command is not part of it.
fn put_count(out: &mut BytesMut, count: usize) {
    out.put_u16(u16::try_from(count.min(STEPS_MAX as usize)).expect("STEPS_MAX fits 16 bits"));
}
