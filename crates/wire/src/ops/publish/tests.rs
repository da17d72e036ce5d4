use bytes::BytesMut;
use mortarmq_types::{Partition, Position, ProducerId, ProducerSeq, Seq};

use super::{Publish, PublishOk, PublishOptions};
use crate::body::RecordBody;
use crate::errors::ErrorCode;
use crate::faults::{DecodeError, EncodeError};

/// A PUB with these numbers and flags, an empty key, the value `v`, and `tail` behind it.
fn payload(producer_id: u64, producer_seq: u64, flags: u16, tail: &[u8]) -> Vec<u8> {
    let mut payload = vec![0, 1, 0xFF, 0xFF];
    payload.extend_from_slice(&producer_id.to_be_bytes());
    payload.extend_from_slice(&producer_seq.to_be_bytes());
    payload.extend_from_slice(&flags.to_be_bytes());
    payload.extend_from_slice(&[0, 0, 0, 0, 0, 1, b'v']);
    payload.extend_from_slice(tail);
    payload
}

/// Delay, TTL and idempotency key.
type OwnedOptions = (Option<u64>, Option<u64>, Option<Vec<u8>>);

fn options(flags: u16, tail: &[u8]) -> Result<OwnedOptions, ErrorCode> {
    let payload = payload(0, 0, flags, tail);
    let publish = Publish::decode(&payload).map_err(DecodeError::code)?;
    let options = publish.options;
    Ok((options.delay_ms, options.ttl_ms, options.idempotency_key.map(<[u8]>::to_vec)))
}

#[test]
fn options_follow_the_value_in_the_order_of_their_flags() {
    let tail = [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6, 2, b'i', b'd'];
    assert_eq!(options(0b1110, &tail), Ok((Some(5), Some(6), Some(b"id".to_vec()))));
    assert_eq!(options(0b0010, &tail), Ok((Some(5), None, None)));
    assert_eq!(options(0b0100, &tail), Ok((None, Some(5), None)));
    assert_eq!(options(0b1000, &tail[16..]), Ok((None, None, Some(b"id".to_vec()))));
    for end in 0..tail.len() {
        assert_eq!(options(0b1110, &tail[..end]), Err(ErrorCode::MalformedPayload), "cut at {end}");
    }
}

#[test]
fn ttl_of_0_is_the_topics_own() {
    assert_eq!(options(0b0100, &[0; 8]), Ok((None, None, None)));
    assert_eq!(options(0b0010, &[0; 8]), Ok((Some(0), None, None)));
}

#[test]
fn empty_idempotency_key_is_malformed_both_ways() {
    assert_eq!(options(0b1000, &[0]), Err(ErrorCode::MalformedPayload));
    let (body, _) = RecordBody::parse(&[0; 6], false).expect("an empty body");
    let mut publish = Publish {
        topic_id: 1,
        partition: Partition::ANY,
        producer_id: ProducerId::ZERO,
        producer_seq: ProducerSeq::ZERO,
        body,
        options: PublishOptions { idempotency_key: Some(b""), ..PublishOptions::default() },
    };
    let mut out = BytesMut::from(b"before".as_slice());
    assert!(matches!(publish.encode(&mut out), Err(EncodeError::Empty { .. })));
    publish.options.idempotency_key = Some(&[b'i'; 256]);
    assert!(matches!(publish.encode(&mut out), Err(EncodeError::TooLarge { .. })));
    assert_eq!(out, b"before".as_slice());
    publish.options.idempotency_key = Some(&[b'i'; 255]);
    assert_eq!(publish.encode(&mut out), Ok(()));
}

#[test]
fn unknown_flag_is_malformed() {
    for bit in 4..16 {
        assert_eq!(options(1 << bit, &[1; 64]), Err(ErrorCode::MalformedPayload), "bit {bit}");
    }
}

#[test]
fn half_an_identity_is_producer_seq_invalid_and_closes_nothing() {
    let code = |id, seq| Publish::decode(&payload(id, seq, 0, &[])).map(|_| ()).map_err(DecodeError::code);
    assert_eq!(code(0, 0), Ok(()));
    assert_eq!(code(7, 1), Ok(()));
    assert_eq!(code(7, 0), Err(ErrorCode::ProducerSeqInvalid));
    assert_eq!(code(0, 1), Err(ErrorCode::ProducerSeqInvalid));
    assert!(!ErrorCode::ProducerSeqInvalid.closes());
}

#[test]
fn p10_numbers_that_would_wrap_never_reach_the_broker() {
    let code = |seq| Publish::decode(&payload(7, seq, 0, &[])).map(|_| ()).map_err(DecodeError::code);
    assert_eq!(code(u64::MAX - 1), Ok(()));
    assert_eq!(code(u64::MAX), Err(ErrorCode::ProducerSeqInvalid));
}

#[test]
fn p1_answer_with_a_weaker_durability_is_not_taken_for_ok() {
    let answer =
        PublishOk { seq: Seq::new(1), position: Position::default(), deduplicated: false, partition: Partition::ZERO };
    let mut out = BytesMut::new();
    answer.encode(&mut out);
    let mut result = out[10..].to_vec();
    assert_eq!(PublishOk::decode(&result), Ok(answer));
    result[8] = 0;
    assert_eq!(PublishOk::decode(&result).map_err(DecodeError::code), Err(ErrorCode::MalformedPayload));
}
