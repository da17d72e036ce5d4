//! Reads: payloads for deliveries, peeks and traces.

use mortarmq_storage::{ReadError, SegmentReader};
use mortarmq_types::{Partition, Seq};

use super::chain;
use crate::output::{ReadJob, ReadResult};

/// Carries out one read. What could not be read, or is not what was written, is `Failed`, and never served (P11).
#[must_use]
pub fn read(reader: &SegmentReader, job: &ReadJob) -> ReadResult {
    try_read(reader, job).unwrap_or_else(|error| ReadResult::Failed(chain(&error)))
}

fn try_read(reader: &SegmentReader, job: &ReadJob) -> Result<ReadResult, ReadError> {
    match *job {
        ReadJob::Records { topic, partition, from, to, max_bytes } => {
            let max_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
            reader.read_records(topic, partition, from, to, max_bytes).map(ReadResult::Records)
        }
        ReadJob::Index { topic, partition, from, max } => {
            reader.read_index(topic, partition, from, max as usize).map(ReadResult::Index)
        }
        ReadJob::Since { topic, ref ends, time } => {
            let since = |(number, end): (usize, &Seq)| {
                reader.first_since(topic, Partition::from_index(number), Seq::FIRST, *end, time)
            };
            ends.iter().enumerate().map(since).collect::<Result<_, _>>().map(ReadResult::Since)
        }
        ReadJob::File { ref file, offset, bytes } => reader.read_file(file, offset, bytes).map(ReadResult::File),
        ReadJob::Stretch { ref stretch } => reader.read_stretch_for_repair(stretch).map(ReadResult::Stretch),
        ReadJob::Life { topic, partition, seq } => {
            let records = reader.read_records(topic, partition, seq, seq.next(), 0);
            let record = records.map(|records| records.into_iter().find(|record| record.seq == seq));
            let ledger = reader.read_ledger(topic, partition, seq)?;
            Ok(ReadResult::Life { record: record.map_err(|error| chain(&error)), ledger })
        }
    }
}
