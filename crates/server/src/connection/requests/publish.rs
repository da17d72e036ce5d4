//! PUB and PUB_BATCH: the record is encoded here, once, together with its command.

use mortarmq_http::Action;
use mortarmq_node::Failure;
use mortarmq_shard::record::NewRecord;
use mortarmq_shard::settings::AGE_MAX_MS;
use mortarmq_shard::{Asked, IdempotencyKey, Times};
use mortarmq_types::{ProducerId, ProducerSeq, TopicIncarnation};
use mortarmq_wire::ops::{Publish, PublishBatch, PublishOptions};
use mortarmq_wire::{ErrorCode, Op, RecordBody};

use super::topic_of;
use crate::connection::session::Session;

/// PUB. Publishes of one read that follow one another become one run.
pub(crate) fn one(session: &mut Session, frame_bytes: usize, publish: &Publish<'_>) {
    let op = Op::Publish.number();
    let asked = asked_of("PUB", &publish.options);
    let (topic, asked) = match asked.and_then(|asked| Ok((allowed(session, publish.topic_id)?, asked))) {
        Ok(found) => found,
        Err(failure) => return session.refuse(op, frame_bytes, failure),
    };
    if publish.producer_id == ProducerId::ZERO && publish.options.idempotency_key.is_none() {
        session.metrics.count_not_idempotent(1);
    }
    let sizes = sizes(&publish.body);
    let record = record(publish.producer_id, publish.producer_seq, &publish.body);
    session.run_of(topic).add_asked(topic, publish.partition, sizes, &record, asked);
    session.expected.push(op, frame_bytes);
}

/// PUB_BATCH: one command.
pub(crate) fn batch(session: &mut Session, frame_bytes: usize, batch: &PublishBatch<'_>) {
    let op = Op::PublishBatch.number();
    let asked = batch.records.iter().map(|record| asked_of("PUB_BATCH", &record.options));
    let asked: Result<Vec<Asked>, Failure> = asked.collect();
    let (topic, asked) = match asked.and_then(|asked| Ok((allowed(session, batch.topic_id)?, asked))) {
        Ok(found) => found,
        Err(failure) => return session.refuse(op, frame_bytes, failure),
    };
    if batch.producer_id == ProducerId::ZERO {
        let without_key = batch.records.iter().filter(|record| record.options.idempotency_key.is_none());
        session.metrics.count_not_idempotent(without_key.count() as u64);
    }
    let numbered = batch.records.iter().zip(numbers(batch.producer_id, batch.first_producer_seq));
    let records: Vec<_> = numbered
        .zip(asked)
        .map(|((item, producer_seq), asked)| {
            (sizes(&item.body), record(batch.producer_id, producer_seq, &item.body), asked)
        })
        .collect();
    session.run_of(topic).add_asked_batch(topic, batch.partition, batch.producer_id, records.into_iter());
    session.expected.push(op, frame_bytes);
}

/// The topic of a handle, if it may be published to.
fn allowed(session: &Session, handle: u16) -> Result<TopicIncarnation, Failure> {
    let topic = topic_of(session, handle)?;
    session.check_topic(Action::Produce, topic)?;
    Ok(topic)
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

/// The delay, the life and the idempotency key that a record asks for; 0 is none, and the topic's.
fn asked_of(op: &str, options: &PublishOptions<'_>) -> Result<Asked, Failure> {
    let times = Times { delay_ms: options.delay_ms.unwrap_or(0), ttl_ms: options.ttl_ms.unwrap_or(0) };
    for (field, ms) in [("delay_ms", times.delay_ms), ("ttl_ms", times.ttl_ms)] {
        if ms > AGE_MAX_MS {
            let text = format!("{op} field {field} is {ms}, at most {AGE_MAX_MS} (a hundred years) is accepted");
            return Err(Failure::new(ErrorCode::MalformedPayload, text));
        }
    }
    Ok(Asked { times, idempotency_key: options.idempotency_key.map(IdempotencyKey::of) })
}

#[cfg(test)]
mod tests {
    use super::{asked_of, numbers};
    use mortarmq_shard::settings::AGE_MAX_MS;
    use mortarmq_shard::{Asked, IdempotencyKey, Times};
    use mortarmq_types::{ProducerId, ProducerSeq};
    use mortarmq_wire::ops::PublishOptions;

    fn first_three(producer_id: u64, first: u64) -> Vec<u64> {
        numbers(ProducerId::new(producer_id), ProducerSeq::new(first)).take(3).map(ProducerSeq::get).collect()
    }

    #[test]
    fn p3_records_of_a_batch_are_numbered_on_and_without_a_producer_all_are_0() {
        assert_eq!(first_three(7, 5), [5, 6, 7]);
        assert_eq!(first_three(0, 0), [0, 0, 0]);
    }

    #[test]
    fn what_is_out_of_range_is_refused_by_name() {
        let of = |delay_ms, ttl_ms| PublishOptions { delay_ms, ttl_ms, idempotency_key: None };
        let text = |options| asked_of("PUB", &options).expect_err("it is refused").message;
        assert_eq!(asked_of("PUB", &of(Some(0), None)).expect("no delay"), Asked::default());
        let most = Times { delay_ms: AGE_MAX_MS, ttl_ms: AGE_MAX_MS };
        let asked = asked_of("PUB", &of(Some(AGE_MAX_MS), Some(AGE_MAX_MS))).expect("in range");
        assert_eq!(asked, Asked { times: most, idempotency_key: None });
        assert!(text(of(Some(AGE_MAX_MS + 1), None)).starts_with("PUB field delay_ms"));
        assert!(text(of(None, Some(u64::MAX))).starts_with("PUB field ttl_ms"));
        let with_key = PublishOptions { idempotency_key: Some(b"k"), ..PublishOptions::default() };
        let asked = asked_of("PUB", &with_key).expect("a key");
        assert_eq!(asked.idempotency_key, Some(IdempotencyKey::of(b"k")));
    }
}
