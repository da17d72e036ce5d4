//! SUB, PULL, HEARTBEAT and CREDIT.

use bytes::BytesMut;
use mortarmq_types::MemberId;
use mortarmq_wire::ErrorCode::{
    GroupExistsMismatch, InvalidTopic, MalformedPayload, MaxWaitingPulls, MessageExceedsCredit, TooLarge,
    UnknownMember, UnknownPartition, UnknownTopic,
};
use mortarmq_wire::Op;
use mortarmq_wire::ops::{Credit, CreditMode, HeartbeatState, Pull, StartPolicy, Subscribe, SubscribeOk};

use crate::support::{
    Client, heartbeat_frame, publish_frame, pull_of, resume_options, subscribe_frame, subscribe_frame_with,
};
use crate::{Node, Row, closing, frame, refused, with_byte};

const SUB: u8 = Op::Subscribe as u8;

pub(crate) const ROWS: &[Row] = &[
    refused("a topic that was not declared", UnknownTopic, Op::Subscribe, &["topic_id 3", "topics create"], |node| {
        (node.client(), frame(|out| subscribe_frame(out, 3, "g", 0)))
    }),
    refused("a single partition", UnknownPartition, Op::Subscribe, &["65535"], |node| {
        let (client, topic) = node.with_topic("one");
        // group (2 + 1), topic_id 2, partition.
        (client, with_byte(with_byte(frame(|out| subscribe_frame(out, topic, "g", 0)), 5, 0), 6, 0))
    }),
    closing("an unknown start policy", MalformedPayload, SUB, &["start_policy", "3"], |node| {
        let (client, topic) = node.with_topic("one");
        (client, with_byte(frame(|out| subscribe_frame(out, topic, "g", 0)), 7, 3))
    }),
    refused(
        "from a sequence that is not given",
        InvalidTopic,
        Op::Subscribe,
        &["start_policy 2", "\"start\""],
        |node| {
            let (client, topic) = node.with_topic("one");
            let subscribe = subscribe(topic, StartPolicy::FromSequence, true);
            (client, frame(|out| subscribe.encode(out).expect("it fits")))
        },
    ),
    refused("an exclusive group", InvalidTopic, Op::Subscribe, &["exclusive", "bit 0"], |node| {
        let (client, topic) = node.with_topic("one");
        let subscribe = subscribe(topic, StartPolicy::Earliest, false);
        (client, frame(|out| subscribe.encode(out).expect("it fits")))
    }),
    refused("a group's name with a slash", InvalidTopic, Op::Subscribe, &["group name", "1 to 200"], |node| {
        let (client, topic) = node.with_topic("one");
        (client, frame(|out| subscribe_frame(out, topic, "a/b", 0)))
    }),
    refused("an unknown key", InvalidTopic, Op::Subscribe, &["leese_ms", "lease_ms"], |node| {
        let (client, topic) = node.with_topic("one");
        (client, frame(|out| subscribe_frame_with(out, topic, "g", 0, "{\"leese_ms\":1}")))
    }),
    refused("a lease that is too short", InvalidTopic, Op::Subscribe, &["lease_ms", "1000"], |node| {
        let (client, topic) = node.with_topic("one");
        (client, frame(|out| subscribe_frame_with(out, topic, "g", 0, "{\"lease_ms\":999}")))
    }),
    refused("other settings than the group has", GroupExistsMismatch, Op::Subscribe, &["max_attempts"], |node| {
        let (mut client, topic) = node.with_topic("one");
        client.subscribe_with(topic, "fixed", "{\"max_attempts\":7}");
        (client, frame(|out| subscribe_frame_with(out, topic, "fixed", 0, "{\"max_attempts\":8}")))
    }),
    closing("options that are no JSON", MalformedPayload, SUB, &["JSON"], |node| {
        let (client, topic) = node.with_topic("one");
        (client, frame(|out| subscribe_frame_with(out, topic, "g", 0, "nothing")))
    }),
    refused("options of more than 256 KiB", TooLarge, Op::Subscribe, &["262144"], |node| {
        let (client, topic) = node.with_topic("one");
        (client, frame(|out| subscribe_frame_with(out, topic, "g", 0, &" ".repeat((256 << 10) + 1))))
    }),
    refused("a member that is not there", UnknownMember, Op::Subscribe, &["subscribe again"], |node| {
        let (mut client, topic) = node.with_topic("one");
        let mut member = client.subscribe(topic, "g", 0);
        member.member_id = MemberId::new(12);
        (client, frame(|out| resume(out, topic, &member, member.secret)))
    }),
    refused("a wrong secret", UnknownMember, Op::Subscribe, &["subscribe again"], |node| {
        let (mut client, topic) = node.with_topic("one");
        let member = client.subscribe(topic, "g", 0);
        (client, frame(|out| resume(out, topic, &member, member.secret ^ 1)))
    }),
    refused("a pull without a subscription", UnknownMember, Op::Pull, &["subscription 5", "subscribe again"], |node| {
        let pull = Pull { subscription_id: 5, ..pull_of(&nobody(), 1, 0) };
        (node.client(), frame(|out| pull.encode(out).expect("it fits")))
    }),
    refused("a pull of another member", UnknownMember, Op::Pull, &["member_id", "SUB's OK"], |node| {
        let (client, mut joined) = joined(node);
        joined.member_id = MemberId::new(12);
        (client, frame(|out| pull_of(&joined, 1, 0).encode(out).expect("it fits")))
    }),
    closing("a pull of no messages", MalformedPayload, Op::Pull as u8, &["max_msgs", "1 to 65535"], |node| {
        let (client, joined) = joined(node);
        (client, frame(|out| pull_of(&joined, 0, 0).encode(out).expect("it fits")))
    }),
    refused("a second pull of a subscription", MaxWaitingPulls, Op::Pull, &["wait for its answer"], |node| {
        let (mut client, joined) = joined(node);
        client.send(|out| pull_of(&joined, 1, 5000).encode(out).expect("it fits"));
        (client, frame(|out| pull_of(&joined, 1, 0).encode(out).expect("it fits")))
    }),
    refused(
        "a pull of fewer bytes than the message has",
        MessageExceedsCredit,
        Op::Pull,
        &["8 bytes", "is 7"],
        |node| {
            let (mut client, joined) = joined(node);
            let topic = client.declare("pulled", "");
            client.send(|out| publish_frame(out, topic, 0, 0, b"key", b"value"));
            client.published();
            // Without waiting: it is no matter of time.
            let pull = Pull { max_bytes: 7, ..pull_of(&joined, 10, 5000) };
            (client, frame(|out| pull.encode(out).expect("it fits")))
        },
    ),
    refused("a heartbeat without a subscription", UnknownMember, Op::Heartbeat, &["subscribe again"], |node| {
        (node.client(), frame(|out| heartbeat_frame(out, &nobody(), HeartbeatState::Active)))
    }),
    refused("a heartbeat of another member", UnknownMember, Op::Heartbeat, &["member_id"], |node| {
        let (client, mut joined) = joined(node);
        joined.member_id = MemberId::new(12);
        (client, frame(|out| heartbeat_frame(out, &joined, HeartbeatState::Leave)))
    }),
    refused("a heartbeat of one that has left", UnknownMember, Op::Heartbeat, &["subscribe again"], |node| {
        let (mut client, joined) = joined(node);
        client.send(|out| heartbeat_frame(out, &joined, HeartbeatState::Leave));
        client.ok();
        (client, frame(|out| heartbeat_frame(out, &joined, HeartbeatState::Active)))
    }),
    closing("an unknown state", MalformedPayload, Op::Heartbeat as u8, &["state", "2"], |node| {
        let (client, joined) = joined(node);
        let frame = frame(|out| heartbeat_frame(out, &joined, HeartbeatState::Active));
        (client, with_byte(frame, 18, 2))
    }),
    refused("credit without a subscription", UnknownMember, Op::Credit, &["subscribe again"], |node| {
        (node.client(), frame(|out| credit(9).encode(out)))
    }),
    closing("an unknown mode of credit", MalformedPayload, Op::Credit as u8, &["mode", "2"], |node| {
        let (client, joined) = joined(node);
        (client, with_byte(frame(|out| credit(joined.subscription_id).encode(out)), 14, 2))
    }),
];

/// A connection with a subscription to which nothing is pushed.
fn joined(node: &Node) -> (Client, SubscribeOk) {
    let (mut client, topic) = node.with_topic("pulled");
    let joined = client.subscribe(topic, "g", 0);
    (client, joined)
}

/// A subscription that nobody was given.
fn nobody() -> SubscribeOk {
    SubscribeOk {
        subscription_id: 4,
        member_id: MemberId::new(12),
        membership_epoch: 0,
        assignment_epoch: 0,
        secret: 0,
        position: mortarmq_types::Position::default(),
    }
}

fn subscribe(topic_id: u16, start: StartPolicy, is_shared: bool) -> Subscribe<'static> {
    let (group, credit_count, credit_bytes) = ("new", 0, Subscribe::GROUP_CREDIT_BYTES);
    Subscribe { group, topic_id, start, credit_count, credit_bytes, is_shared, options: b"" }
}

fn resume(out: &mut BytesMut, topic: u16, member: &SubscribeOk, secret: u64) {
    subscribe_frame_with(out, topic, "g", 0, &resume_options(member, secret, &[]));
}

fn credit(subscription_id: u16) -> Credit {
    Credit {
        subscription_id,
        membership_epoch: 0,
        ownership_epoch: 0,
        mode: CreditMode::Set,
        credit_count: 1,
        credit_bytes: 1,
    }
}
