//! The bytes of a path in a partition, as a checkpoint keeps them.
//!
//! Only facts that nothing else tells are stored. Every index (deadlines, holders, schedule, ready messages, key queues,
//! ages of settles) is made anew, so that no damage can set an index against its entries. Equal states give equal bytes.
//!
//! All numbers are big-endian. The bytes carry no checksum: the section of the shard's image that holds them does.
//!
//! | field | bytes | meaning, unit | guards against |
//! |---|---|---|---|
//! | version | 1 | [`IMAGE_VERSION`] | a layout that this build would misread (P11) |
//! | order | 1 | the order in force: 0 none, 1 by key; 2 and 3 the same while the path is going over to it | a key queue where none was kept, or none where it was (P8) |
//! | start | 8 | the first sequence owed, at least 1 | books that begin elsewhere (P9) |
//! | position | 8 | all below was offered, dropped or skipped, sequence | messages skipped or offered again as new (P4, P10) |
//! | replay_end | 8 | the highest position ever, at least `position` | a replay cut off, or first deliveries told as replays (P7) |
//! | due | 8 | second position: when what it passed last fell due, cluster time, ms; 0 before the first | a delayed message due twice or never (P4) |
//! | due_seq | 8 | that message | the same |
//! | due_start | 8 | what the schedule holds below was never owed or is settled; in start..=position | a dropped message that comes all the same (P6) |
//! | delayed | 8 | messages from there to below the position that stand in the partition's schedule behind the second one | the same (P9) |
//! | delivered | 8 | messages acked | an entry lost with the bytes: delivered + dropped + dlq + entries + packed + delayed must be replay_end − start + again less what is to be replayed (P9) |
//! | dropped | 7 × 8 | messages that left by a stated rule, by number of reason | counters that fall (P10) |
//! | dlq | 8 | messages moved to the dead-letter topic | the same |
//! | again | 8 | messages that the path was obliged to deliver once more | the same |
//! | retries | 7 × 8 | deliveries after a message's first, by number of cause; 0 for `first` | counters that fall (P10) |
//! | entry count | 8 | entries that follow | entries cut off at the end |
//! | entries | n | unsettled messages that were offered or fell due, by rising sequence | a message forgotten (P4) |
//! | packed key count | 8 | keys that follow, by rising hash | messages cut off |
//! | packed | n | for each the key's hash (8), a count (8), and its packed messages by rising sequence | a message forgotten (P4), or delivered before its key's earlier ones (P8) |
//! | run count | 8 | runs that follow | runs cut off at the end |
//! | runs | n × 33 | settles that may be repeated, by rising delivery | a repeated ack refused after a restart (P6) |
//! | mark count | 8 | marks that follow | marks cut off at the end |
//! | marks | n × 8 | messages from `position` on that are settled: since the position moved back, or one by one, by rising sequence | a settled message offered (P6) |
//! | move | 1 | what goes on: 0 nothing, 1 a purge, 2 a seek forwards, 3 a seek backwards | a purge that stops half-way (P4) |
//! | to | 8 | if something goes on: where to | the same |
//! | from | 8 | if something goes on: what lies below was looked at | the same |
//! | reordering | 8 | if `order` is 2 or 3: what lies below stands as it says, the rest as before | a key that overtakes itself (P8) |
//! | source count | 8 | sources that follow | sources cut off at the end |
//! | sources | n × 16 | redriven messages, each one of the entries, by rising sequence, with their dead letters | bytes that are gone before their message is settled (P4) |
//! | kept_from | 8 | retention has dropped what was unsettled below but for what is leased; at most `due_start` | what was dropped owed again (P6, P10) |
//!
//! An entry:
//!
//! | field | bytes | meaning, unit | guards against |
//! |---|---|---|---|
//! | seq | 8 | the message, in start..replay_end | |
//! | key_hash | 8 | its key, 0 without one | a later message of the key overtaking it (P8) |
//! | size_bytes | 4 | key, headers and value, bytes | a byte window that is over- or undercounted |
//! | expires_at | 8 | cluster time, ms; 0 = never | a message delivered after its worth |
//! | fell_due | 8 | waiting only, else 0: cluster time, ms, at most `due`; 0 unless it was delayed and never delivered | a message of its key left before it (P8) |
//! | attempt | 4 | this or the next attempt, at least 1 | attempts that start again |
//! | cause | 1 | number of the cause of this or the next delivery | a delivery without explanation (P7) |
//! | previous | 8 | the delivery before, 0 exactly for the causes `first` and `replayed` | the same (P7) |
//! | given_back | 2 | releases in a row | a message that spins |
//! | alone | 1 | 1 if it is delivered alone, from attempt 3 on | a message that kills its workers with its neighbours in their hands |
//! | state | 1 | 0 waiting, 1 scheduled, 2 leased, 3 held | |
//! | due | 8 | scheduled only: cluster time, ms | a retry that never comes (P4) |
//! | delivery_id | 8 | leased only: younger than `previous`, unique | a late settle taken for this delivery's (P5) |
//! | member | 8 | leased only: who holds it | a lease that outlives its session |
//! | grant | 1 | leased only: 0 push, 1 pull | credit returned that was never taken |
//! | deadline | 8 | leased only: lease time, ms | a lease that never ends (P4) or ends early (P5) |
//! | ordered | 1 | leased only: 1 if granted in key order | a key that resumes in its middle (P8) |
//! | granted_at | 8, 8 | leased only: leader epoch and commit index of the command | a message sent again as of another run of its key (P8) |
//!
//! A packed message waits behind the entries of its key and was never delivered:
//!
//! | field | bytes | meaning, unit | guards against |
//! |---|---|---|---|
//! | seq | 8 | the message, in start..replay_end, above the first entry of its key | |
//! | size_bytes | 4 | key, headers and value, bytes | a byte window that is over- or undercounted |
//! | flags | 1 | bit 0: it expires; bit 1: it was delayed; bit 2: it is owed once more | a cause that is not true (P7) |
//! | expires_at | 8 | if it expires: cluster time, ms, not 0 | a message delivered after its worth |
//! | fell_due | 8 | if it was delayed: cluster time, ms, 1 to `due` | another order among keys |
//!
//! A run:
//!
//! | field | bytes | meaning, unit | guards against |
//! |---|---|---|---|
//! | first_delivery | 8 | the lowest delivery of the run | |
//! | first_seq | 8 | its message, in start..replay_end | an answer given to another message |
//! | count | 8 | deliveries and messages, at least 1 | runs that overlap |
//! | kind | 1 | 0 ack, 1 nack, 2 release, 3 dead letter | a settle repeated as another kind |
//! | opened | 8 | when the oldest was settled, cluster time, ms | a window of less than a minute |

mod entries;
mod moves;
mod packed;
mod restore;
mod sources;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use imbl::{OrdMap, OrdSet};
use mortarmq_types::{Cause, ClusterTime, DeliveryId, DropReason, Seq};

use crate::{
    crowd::Packed,
    entries::Entries,
    lease::DuePosition,
    moves::Moving,
    path_partition::PathPartition,
    rules::Order,
    runs::{Kind, Run, Runs},
};

/// The version of the layout.
pub const IMAGE_VERSION: u8 = 1;

/// Why bytes are not a path in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The bytes end inside a field.
    #[error("the bytes end inside a field")]
    TooShort,
    /// The layout is not known to this build.
    #[error("version {found} is unknown here")]
    UnknownVersion {
        /// The version found.
        found: u8,
    },
    /// A field holds a value that it cannot have, or that contradicts another.
    #[error("field {field} cannot be {found}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it holds.
        found: u64,
    },
}

/// A path in a partition as it was at one moment. It shares entries and runs with the state it was taken of.
#[derive(Clone, Debug)]
pub struct PathPartitionImage {
    order: Order,
    start: Seq,
    position: Seq,
    replay_end: Seq,
    settled_ahead: OrdSet<Seq>,
    moving: Option<Moving>,
    reordering: Option<Seq>,
    due_position: DuePosition,
    due_start: Seq,
    delayed: u64,
    kept_from: Seq,
    delivered: u64,
    dropped_by: [u64; DropReason::ALL.len()],
    dlq: u64,
    again: u64,
    retries_by: [u64; Cause::ALL.len()],
    entries: Entries,
    packed: Packed,
    sources: OrdMap<Seq, Seq>,
    runs: OrdMap<DeliveryId, Run>,
}

impl PathPartitionImage {
    /// Appends the state's bytes.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u8(IMAGE_VERSION);
        out.put_u8(match (self.order, self.reordering) {
            (Order::None, None) => 0,
            (Order::Key, None) => 1,
            (Order::None, Some(_)) => 2,
            (Order::Key, Some(_)) => 3,
        });
        out.put_u64(self.start.get());
        out.put_u64(self.position.get());
        out.put_u64(self.replay_end.get());
        out.put_u64(self.due_position.due.get());
        out.put_u64(self.due_position.seq.get());
        out.put_u64(self.due_start.get());
        out.put_u64(self.delayed);
        out.put_u64(self.delivered);
        for dropped in self.dropped_by {
            out.put_u64(dropped);
        }
        out.put_u64(self.dlq);
        out.put_u64(self.again);
        for retries in self.retries_by {
            out.put_u64(retries);
        }
        out.put_u64(self.entries.len() as u64);
        for (seq, entry) in self.entries.iter() {
            entries::put(out, *seq, entry, self.entries.tenures());
        }
        packed::put(out, &self.packed);
        out.put_u64(self.runs.len() as u64);
        for (first, run) in &self.runs {
            put_run(out, *first, run);
        }
        moves::put(out, &self.settled_ahead, self.moving);
        if let Some(from) = self.reordering {
            out.put_u64(from.get());
        }
        sources::put(out, &self.sources);
        out.put_u64(self.kept_from.get());
    }
}

impl PathPartition {
    /// The state as it is now: pointers and a few numbers, whatever it holds.
    #[must_use]
    pub fn image(&self) -> PathPartitionImage {
        PathPartitionImage {
            order: self.order,
            start: self.start,
            position: self.position,
            replay_end: self.replay_end,
            settled_ahead: self.settled_ahead.clone(),
            moving: self.moving,
            reordering: self.reordering,
            due_position: self.due_position,
            due_start: self.due_start,
            delayed: self.delayed,
            kept_from: self.kept_from,
            delivered: self.delivered,
            dropped_by: self.dropped_by,
            dlq: self.dlq,
            again: self.again,
            retries_by: self.retries_by,
            entries: self.entries.clone(),
            packed: self.packed.clone(),
            sources: self.sources.clone(),
            runs: self.runs.shared(),
        }
    }

    /// Takes a state off the front of the bytes and makes its indexes. What comes out passes [`Self::check`] for any last
    /// sequence from what it has [reached](Self::reached) on.
    ///
    /// # Errors
    /// When the bytes are none that [`PathPartitionImage::encode`] could have written; what is left of them is then undefined.
    pub fn decode(bytes: &mut Bytes) -> Result<Self, ImageError> {
        let mut fields = Fields { bytes };
        let version = fields.u8()?;
        if version != IMAGE_VERSION {
            return Err(ImageError::UnknownVersion { found: version });
        }
        let (order, is_reordering) = match fields.u8()? {
            0 => (Order::None, false),
            1 => (Order::Key, false),
            2 => (Order::None, true),
            3 => (Order::Key, true),
            found => return Err(ImageError::Field { field: "order", found: u64::from(found) }),
        };
        let start = Seq::new(fields.u64_in("start", Seq::FIRST.get(), NUMBER_MAX)?);
        let position = Seq::new(fields.u64_in("position", start.get(), NUMBER_MAX)?);
        let replay_end = Seq::new(fields.u64_in("replay_end", position.get(), NUMBER_MAX)?);
        let due_position = take_due_position(&mut fields)?;
        let due_start = Seq::new(fields.u64_in("due_start", start.get(), position.get())?);
        let delayed = fields.u64_in("delayed", 0, position.above(due_start))?;
        let delivered = fields.u64_in("delivered", 0, NUMBER_MAX)?;
        let mut dropped_by = [0; DropReason::ALL.len()];
        for dropped in &mut dropped_by {
            *dropped = fields.u64_in("dropped", 0, NUMBER_MAX / DropReason::ALL.len() as u64)?;
        }
        let dlq = fields.u64_in("dlq", 0, NUMBER_MAX)?;
        let again = fields.u64_in("again", 0, NUMBER_MAX)?;
        let mut retries_by = [0; Cause::ALL.len()];
        for (cause, retries) in Cause::ALL.iter().zip(&mut retries_by) {
            // No retry is a message's first delivery.
            let most = if *cause == Cause::First { 0 } else { NUMBER_MAX };
            *retries = fields.u64_in("retries", 0, most)?;
        }
        let (entries, tenures) = self::entries::take(&mut fields, start..replay_end, due_position.due)?;
        let packed = packed::take(&mut fields, start..replay_end, due_position.due)?;
        let runs = Runs::restore(take_runs(&mut fields, start, replay_end)?);
        let settled_ahead = moves::take_marks(&mut fields, position)?;
        let moving = moves::take_moving(&mut fields, position)?;
        let mut path = Self { position, replay_end, moving, order, packed, runs, delivered, ..Self::new(start) };
        if is_reordering {
            path.reordering = Some(Seq::new(fields.u64_in("reordering", 0, NUMBER_MAX)?));
        }
        (path.due_position, path.due_start, path.delayed) = (due_position, due_start, delayed);
        (path.dropped_by, path.dlq, path.again, path.retries_by) = (dropped_by, dlq, again, retries_by);
        path.restore(entries, tenures, settled_ahead)?;
        path.sources = sources::take(&mut fields, &path.entries)?;
        path.kept_from = take_kept_from(&mut fields, &path)?;
        Ok(path)
    }
}

fn put_run(out: &mut BytesMut, first: DeliveryId, run: &Run) {
    out.put_u64(first.get());
    out.put_u64(run.first_seq.get());
    out.put_u64(run.count);
    out.put_u8(match run.kind {
        Kind::Ack => 0,
        Kind::Nack => 1,
        Kind::Release => 2,
        Kind::DeadLetter => 3,
    });
    out.put_u64(run.opened.get());
}

/// The second position. Only both of its fields together are 0: no message has sequence 0.
fn take_due_position(fields: &mut Fields<'_>) -> Result<DuePosition, ImageError> {
    let due = ClusterTime::new(fields.u64()?);
    let seq = Seq::new(fields.u64_in("due_seq", 0, NUMBER_MAX)?);
    if (due == ClusterTime::ZERO) != (seq == Seq::ZERO) {
        return Err(ImageError::Field { field: "due_seq", found: seq.get() });
    }
    Ok(DuePosition { due, seq })
}

/// Retention's bound, below which only leased and redriven messages are unsettled.
fn take_kept_from(fields: &mut Fields<'_>, path: &PathPartition) -> Result<Seq, ImageError> {
    let kept_from = Seq::new(fields.u64_in("kept_from", Seq::FIRST.get(), path.due_start.get())?);
    match path.owed_below(kept_from) {
        Some(seq) => Err(ImageError::Field { field: "state", found: seq.get() }),
        None => Ok(kept_from),
    }
}

fn take_runs(fields: &mut Fields<'_>, start: Seq, position: Seq) -> Result<Vec<(DeliveryId, Run)>, ImageError> {
    let count = fields.count("runs", RUN_BYTES)?;
    let mut runs = Vec::with_capacity(count);
    let mut lowest = 1;
    for _ in 0..count {
        let first = fields.u64_in("first_delivery", lowest, NUMBER_MAX)?;
        let first_seq = Seq::new(fields.u64_in("first_seq", start.get(), position.get() - 1)?);
        let run_count = fields.u64_in("count", 1, position.above(first_seq))?;
        lowest = first + run_count;
        if lowest > NUMBER_MAX + 1 {
            return Err(ImageError::Field { field: "count", found: run_count });
        }
        let kind = match fields.u8()? {
            0 => Kind::Ack,
            1 => Kind::Nack,
            2 => Kind::Release,
            3 => Kind::DeadLetter,
            found => return Err(ImageError::Field { field: "kind", found: u64::from(found) }),
        };
        let opened = ClusterTime::new(fields.u64()?);
        runs.push((DeliveryId::new(first), Run { first_seq, count: run_count, kind, opened }));
    }
    Ok(runs)
}

/// Checked reading of fields.
struct Fields<'a> {
    bytes: &'a mut Bytes,
}

impl Fields<'_> {
    fn u8(&mut self) -> Result<u8, ImageError> {
        self.bytes.try_get_u8().map_err(|_| ImageError::TooShort)
    }

    fn u16(&mut self) -> Result<u16, ImageError> {
        self.bytes.try_get_u16().map_err(|_| ImageError::TooShort)
    }

    fn u32(&mut self) -> Result<u32, ImageError> {
        self.bytes.try_get_u32().map_err(|_| ImageError::TooShort)
    }

    fn u64(&mut self) -> Result<u64, ImageError> {
        self.bytes.try_get_u64().map_err(|_| ImageError::TooShort)
    }

    /// A number within bounds, both included.
    fn u64_in(&mut self, field: &'static str, least: u64, most: u64) -> Result<u64, ImageError> {
        let found = self.u64()?;
        if found < least || found > most { Err(ImageError::Field { field, found }) } else { Ok(found) }
    }

    /// How many items of at least so many bytes follow; never more than there are bytes for.
    fn count(&mut self, field: &'static str, least_bytes: usize) -> Result<usize, ImageError> {
        let found = self.u64()?;
        let most = self.bytes.len() / least_bytes;
        usize::try_from(found).ok().filter(|count| *count <= most).ok_or(ImageError::Field { field, found })
    }
}

/// No number that counts up by one ever comes here, so a larger one is damage, and the state's arithmetic never overflows.
const NUMBER_MAX: u64 = 1 << 62;

const RUN_BYTES: usize = 8 + 8 + 8 + 1 + 8;

// Seven causes are in the layout; another one changes it, and with it the version.
const _: () = assert!(Cause::ALL.len() == 7 && DropReason::ALL.len() == 7);

#[cfg(test)]
mod tests;
