//! PUB and PUB_BATCH: the record is encoded here, once, together with its command.

use mortarmq_node::Failure;
use mortarmq_shard::record::NewRecord;
use mortarmq_types::{ProducerId, ProducerSeq};
use mortarmq_wire::ops::{Publish, PublishBatch, PublishOptions};
use mortarmq_wire::{ErrorCode, Op, RecordBody};

use super::topic_of;
use crate::connection::session::Session;

/// PUB. Publishes of one read that follow one another become one run.
pub(crate) fn one(session: &mut Session, frame_bytes: usize, publish: &Publish<'_>) {
    let op = Op::Publish.number();
    let topic = match check_options("PUB", &publish.options).and_then(|()| topic_of(session, publish.topic_id)) {
        Ok(topic) => topic,
        Err(failure) => return session.refuse(op, frame_bytes, failure),
    };
    let (payload_bytes, value_bytes) = sizes(&publish.body);
    let record = record(publish.producer_id, publish.producer_seq, &publish.body);
    session.run_of(topic).add(topic, publish.partition, payload_bytes, value_bytes, &record);
    session.expected.push(op, frame_bytes);
}

/// PUB_BATCH: one command.
pub(crate) fn batch(session: &mut Session, frame_bytes: usize, batch: &PublishBatch<'_>) {
    let op = Op::PublishBatch.number();
    let options = batch.records.iter().try_for_each(|record| check_options("PUB_BATCH", &record.options));
    let topic = match options.and_then(|()| topic_of(session, batch.topic_id)) {
        Ok(topic) => topic,
        Err(failure) => return session.refuse(op, frame_bytes, failure),
    };
    let numbered = batch.records.iter().zip(numbers(batch.producer_id, batch.first_producer_seq));
    let records: Vec<_> = numbered
        .map(|(item, producer_seq)| {
            let (payload_bytes, value_bytes) = sizes(&item.body);
            (payload_bytes, value_bytes, record(batch.producer_id, producer_seq, &item.body))
        })
        .collect();
    session.run_of(topic).add_batch(topic, batch.partition, batch.producer_id, records.into_iter());
    session.expected.push(op, frame_bytes);
}

/// The producer numbers of a batch's records: one after the other, or all 0.
fn numbers(producer_id: ProducerId, first: ProducerSeq) -> impl Iterator<Item = ProducerSeq> {
    let step = u64::from(producer_id != ProducerId::ZERO);
    std::iter::successors(Some(first), move |seq| seq.get().checked_add(step).map(ProducerSeq::new))
}

fn record<'a>(producer_id: ProducerId, producer_seq: ProducerSeq, body: &RecordBody<'a>) -> NewRecord<'a> {
    NewRecord { producer_id, producer_seq, key: body.key(), has_headers: body.has_headers(), body: body.bytes() }
}

/// Bytes of key, headers and value, and of the value alone.
fn sizes(body: &RecordBody<'_>) -> (u32, u32) {
    let narrow = |bytes: usize| u32::try_from(bytes).expect("a record fits a frame of 16 MiB");
    (narrow(body.payload_len()), narrow(body.value().len()))
}

/// Fields that this version does not have are refused by their name, never ignored.
fn check_options(op: &str, options: &PublishOptions<'_>) -> Result<(), Failure> {
    let missing = match options {
        PublishOptions { delay_ms: None, ttl_ms: None, idempotency_key: None } => return Ok(()),
        PublishOptions { delay_ms: Some(_), .. } => "delay_ms: delayed messages are",
        PublishOptions { ttl_ms: Some(_), .. } => "ttl_ms: a message's own time to live is",
        PublishOptions { idempotency_key: Some(_), .. } => "idempotency key: idempotency keys are",
    };
    let text = format!("{op} field {missing} not in this version; leave the field out");
    Err(Failure::new(ErrorCode::MalformedPayload, text))
}

#[cfg(test)]
mod tests {
    use super::numbers;
    use mortarmq_types::{ProducerId, ProducerSeq};

    fn first_three(producer_id: u64, first: u64) -> Vec<u64> {
        numbers(ProducerId::new(producer_id), ProducerSeq::new(first)).take(3).map(ProducerSeq::get).collect()
    }

    #[test]
    fn p3_records_of_a_batch_are_numbered_on_and_without_a_producer_all_are_0() {
        assert_eq!(first_three(7, 5), [5, 6, 7]);
        assert_eq!(first_three(0, 0), [0, 0, 0]);
    }
}
