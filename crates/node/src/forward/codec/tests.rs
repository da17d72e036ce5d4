//! The bytes of version 1, and that nothing else is read.

use bytes::{Bytes, BytesMut};
use mortarmq_shard::record::NewRecord;
use mortarmq_shard::{PublishRunBuilder, Published};
use mortarmq_types::{
    CommitIndex, Epoch, NodeId, Partition, Position, ProducerId, ProducerSeq, Seq, ShardId, TopicIncarnation,
};
use mortarmq_wire::{ErrorCode, Outcome};
use proptest::prelude::*;

use super::{ForwardBody, ForwardBytesError, ForwardMessage};
use crate::forward::message::StreamId;
use crate::reply::{Answer, Failure, Reply};
use crate::request::Request;
use crate::views::metadata::{MetadataView, TopicMetadata};

const SHARD: ShardId = ShardId::new(7);

fn message(body: ForwardBody) -> ForwardMessage {
    let stream = StreamId { incarnation: 0x0102_0304, epoch: Epoch::new(9) };
    ForwardMessage { from: 0x1_0000_0001, to: 0x2_0000_0001, stream, body }
}

fn publish() -> Request {
    let mut run = PublishRunBuilder::default();
    let (producer_id, producer_seq) = (ProducerId::new(3), ProducerSeq::new(4));
    let record = NewRecord { producer_id, producer_seq, key: b"k", has_headers: false, body: b"\0\x01k\0\0\0\x01v" };
    run.add(TopicIncarnation::new(5), Partition::ANY, 2, 1, &record);
    Request::Publish(run.take().expect("one"))
}

fn ask() -> ForwardMessage {
    let requests = vec![
        publish(),
        Request::Declare { name: "orders".to_owned(), partitions: 4, options: "{}".to_owned() },
        Request::Delete { name: "audit".to_owned() },
        Request::Metadata { names: vec!["a".to_owned(), String::new()] },
    ];
    message(ForwardBody::Ask { first: 41, answered: 39, requests })
}

fn answers() -> ForwardMessage {
    let position = Position { epoch: Epoch::new(9), commit_index: CommitIndex::new(77) };
    let reply = |result| Reply { position, result };
    let published = |seq| Published { partition: Partition::new(1), seq: Seq::new(seq), deduplicated: seq == 8 };
    let topic = TopicMetadata {
        topic: TopicIncarnation::new(5),
        name: "orders".to_owned(),
        partitions: 4,
        created_epoch: Epoch::new(2),
    };
    let view = MetadataView { leader: NodeId::new(2), leader_epoch: Epoch::new(9), topics: vec![topic] };
    let failure =
        Failure { outcome: Outcome::Unknown, retry_after_ms: 500, ..Failure::new(ErrorCode::QuorumLost, "not known") };
    let declared =
        Answer::Declared { topic: TopicIncarnation::new(5), name: "orders".to_owned(), partitions: 4, existed: true };
    let results = [
        Ok(declared),
        Ok(Answer::Deleted { existed: false }),
        Ok(Answer::Metadata(view)),
        Ok(Answer::PublishedBatch(vec![published(7), published(8)])),
        Err(failure),
    ];
    let mut answers: Vec<_> = (40..).zip(results).map(|(number, result)| (number, vec![reply(result)])).collect();
    answers.push((45, vec![reply(Ok(Answer::Published(published(9)))), reply(Ok(Answer::Published(published(10))))]));
    message(ForwardBody::Answers { taken: 46, answers })
}

fn bytes_of(message: &ForwardMessage) -> Bytes {
    let mut out = BytesMut::new();
    message.encode(SHARD, &mut out);
    out.freeze()
}

/// The same bytes with a checksum that fits.
fn forged(mut bytes: Vec<u8>) -> Bytes {
    let end = bytes.len() - 4;
    let crc = crc32c::crc32c(&bytes[..end]);
    bytes[end..].copy_from_slice(&crc.to_be_bytes());
    bytes.into()
}

#[test]
fn version_1_keeps_its_bytes() {
    let all: String = [ask(), answers()]
        .iter()
        .flat_map(|message| bytes_of(message).to_vec())
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(all, include_str!("v1.hex").split_whitespace().collect::<String>());
}

#[test]
fn what_is_said_comes_back_as_it_was() {
    for sent in [ask(), answers(), message(ForwardBody::Ask { first: 1, answered: 0, requests: Vec::new() })] {
        let (shard, message) = ForwardMessage::decode(bytes_of(&sent)).expect("just written");
        assert_eq!((shard, format!("{message:?}")), (SHARD, format!("{sent:?}")));
    }
}

#[test]
fn p11_a_message_that_is_cut_goes_on_or_was_changed_is_refused() {
    for whole in [bytes_of(&ask()), bytes_of(&answers())] {
        for length in 0..whole.len() {
            assert!(ForwardMessage::decode(whole.slice(..length)).is_err(), "the first {length} bytes");
        }
        for at in 0..whole.len() {
            let mut changed = whole.to_vec();
            changed[at] ^= 0x10;
            assert!(ForwardMessage::decode(changed.into()).is_err(), "byte {at} is changed");
        }
        let longer = [&whole[..], b"\0"].concat();
        assert!(matches!(ForwardMessage::decode(longer.into()), Err(ForwardBytesError::Length { .. })));
    }
}

#[test]
fn p11_a_publish_that_the_log_could_not_be_read_with_is_refused_though_the_checksum_fits() {
    // Goal: no peer can put into the log what stops every replica. Method: each byte of the command in turn, with a checksum
    // that fits: what is still read is a publish to the topic that is named.
    let sent = message(ForwardBody::Ask { first: 1, answered: 0, requests: vec![publish()] });
    let whole = bytes_of(&sent);
    let mut refused = 0;
    for at in 68..whole.len() - 4 {
        for change in [0x01, 0x80, 0xff] {
            let mut changed = whole.to_vec();
            changed[at] ^= change;
            match ForwardMessage::decode(forged(changed)) {
                Ok((_, ForwardMessage { body: ForwardBody::Ask { requests, .. }, .. })) => {
                    for request in requests {
                        if let Request::Publish(run) = request {
                            run.check().expect("it was checked");
                        }
                    }
                }
                Ok(other) => panic!("requests stay requests: {other:?}"),
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 60, "{refused}");
}

proptest! {
    #[test]
    fn p11_any_bytes_behind_a_header_that_fits_are_read_or_refused(
        kind in 0_u8..4,
        rest in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut bytes = bytes_of(&ask())[..68].to_vec();
        bytes[6] = kind;
        bytes.extend_from_slice(&rest);
        bytes.extend_from_slice(&[0; 4]);
        let length = u32::try_from(bytes.len()).expect("short");
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        if let Ok((shard, message)) = ForwardMessage::decode(forged(bytes.clone())) {
            let mut again = BytesMut::new();
            message.encode(shard, &mut again);
            prop_assert_eq!(again.freeze(), forged(bytes));
        }
    }
}
