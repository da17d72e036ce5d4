//! Goal: `session_ms`, `credit_count` and `credit_bytes` of a group are what its members live by, wherever they are taken over.
//! Method: values far from the defaults on both sides, for each way in which a session begins or a window is set.

mod support;

use mortarmq_node::{Act, Answer, CreditGranted, ErrorCode, Request, Settings, Subscribe};
use mortarmq_shard::{SettleKind, StartPolicy};
use mortarmq_storage::MemoryDisk;
use mortarmq_types::{MemberId, TopicIncarnation};
use support::{CONNECTION, Rig, RigOptions, settle};

/// The default is 10,000.
const SESSIONS_MS: [u64; 2] = [1500, 25_000];
const GROUPS: (u16, u32) = (u16::MAX, u32::MAX);

fn rig() -> (MemoryDisk, Rig, TopicIncarnation) {
    let disk = MemoryDisk::new();
    let mut rig = Rig::start(&disk, RigOptions::default()).expect("a fresh disk");
    rig.connect(CONNECTION);
    let topic = rig.declare("orders", 1).expect("no crash");
    (disk, rig, topic)
}

/// A join with windows of messages and bytes.
fn join(topic: TopicIncarnation, subscription: u16, (messages, bytes): (u16, u32), options: &str) -> Request {
    Request::Subscribe(Subscribe {
        topic,
        group: "billing".to_owned(),
        start: StartPolicy::Earliest,
        credit_messages: messages,
        credit_bytes: bytes,
        options: options.to_owned(),
        subscription,
        member: MemberId::new(u64::from(subscription)),
        secret: 1,
    })
}

fn set_group(rig: &mut Rig, text: &str) {
    let settings: Settings = serde_json::from_str(text).expect("an object");
    let (topic, group) = ("orders".to_owned(), "billing".to_owned());
    let reply = rig.act(Act::ChangeGroup { topic, group, settings }).expect("no crash");
    assert!(reply.result.is_ok(), "{reply:?}");
}

/// Messages and bytes that each member holds by pushes, by member.
fn held(rig: &Rig) -> Vec<(u32, u64)> {
    let path = rig.node.shard().state().paths.values().next().expect("a path");
    path.members.values().map(|member| (member.held_messages, member.held_bytes)).collect()
}

fn members(rig: &Rig) -> usize {
    held(rig).len()
}

/// Acks everything that came.
fn ack_all(rig: &mut Rig) {
    for (connection, subscription, delivery) in std::mem::take(&mut rig.deliveries) {
        rig.ask(connection, vec![settle(subscription, &delivery, SettleKind::Ack)]).expect("no crash");
    }
}

fn credit(rig: &mut Rig, add: bool, messages: u16, bytes: u32) -> CreditGranted {
    let request = Request::Credit { subscription: 1, add, messages, bytes };
    match rig.ask(CONNECTION, vec![request]).expect("no crash").remove(0).result {
        Ok(Answer::Credit(granted)) => granted,
        other => panic!("credit is granted, not {other:?}"),
    }
}

#[test]
fn a_member_is_lost_after_the_silence_that_its_group_allows_and_not_before() {
    for session_ms in SESSIONS_MS {
        let (disk, mut rig, topic) = rig();
        let options = format!("{{\"session_ms\":{session_ms}}}");
        rig.ask(CONNECTION, vec![join(topic, 1, GROUPS, &options)]).expect("no crash");
        let nearly = session_ms - 200;
        let words = [
            Request::Heartbeat { subscription: 1, leave: false },
            Request::Pull { subscription: 1, max_messages: 1, max_bytes: 0, min_bytes: 0, wait_ms: 0 },
        ];
        for word in words {
            rig.pass(nearly).expect("no crash");
            assert_eq!(members(&rig), 1, "{session_ms} ms are not over: {word:?} renews it");
            rig.ask(CONNECTION, vec![word]).expect("no crash");
        }
        rig.pass(nearly).expect("no crash");
        assert_eq!(members(&rig), 1);
        // What is no sign of life renews nothing.
        credit(&mut rig, false, 3, u32::MAX);
        rig.pass(300).expect("no crash");
        assert_eq!(members(&rig), 0, "it was silent for {session_ms} ms");
        let beat = Request::Heartbeat { subscription: 1, leave: false };
        let replies = rig.ask(CONNECTION, vec![beat, join(topic, 2, GROUPS, "")]).expect("no crash");
        assert_eq!(replies[0].result.as_ref().expect_err("it is gone").code, ErrorCode::UnknownMember);
        // A new process gives every member as much again, whatever was left.
        rig.pass(nearly).expect("no crash");
        let now = rig.now;
        drop(rig);
        let options = RigOptions { now, ..RigOptions::default() };
        let mut rig = Rig::start(&disk.after_power_loss(1), options).expect("it recovers");
        rig.pass(nearly).expect("no crash");
        assert_eq!(members(&rig), 1, "a full {session_ms} ms again");
        rig.pass(300).expect("no crash");
        assert_eq!(members(&rig), 0);
    }
}

#[test]
fn p7_a_heartbeat_that_comes_when_the_end_is_proposed_is_not_told_that_the_session_goes_on() {
    // Goal: after OK a member has its full session time, so nothing of it ends as `consumer_lost` within that. Method: the
    // journal takes its time for the end of a session, and the heartbeat comes meanwhile.
    let (_, mut rig, topic) = rig();
    rig.ask(CONNECTION, vec![join(topic, 1, GROUPS, r#"{"session_ms":1500}"#)]).expect("no crash");
    rig.pass(1400).expect("no crash");
    rig.slow = true;
    rig.pass(300).expect("no crash");
    let beat = Request::Heartbeat { subscription: 1, leave: false };
    rig.node.handle_requests(rig.now, CONNECTION, vec![beat]);
    rig.pass(100).expect("no crash");
    assert_eq!(members(&rig), 1, "its end is not committed");
    assert!(rig.replies.get(&CONNECTION).is_none_or(Vec::is_empty), "neither is the answer known");
    rig.slow = false;
    rig.catch_up().expect("no crash");
    let replies = rig.replies.remove(&CONNECTION).expect("it is known now");
    assert_eq!(replies[0].result.as_ref().expect_err("it is gone").code, ErrorCode::UnknownMember);
    assert_eq!(members(&rig), 0);
}

#[test]
fn a_settle_is_no_sign_of_life_of_its_member() {
    // Only HEARTBEAT, SUB and PULL renew: whoever settles and does not heartbeat may be a thread that works on what is left,
    // of a client that nobody steers any more.
    let (_, mut rig, topic) = rig();
    rig.ask(CONNECTION, vec![join(topic, 1, GROUPS, r#"{"session_ms":1500}"#)]).expect("no crash");
    for number in 1..=4 {
        rig.ask(CONNECTION, vec![support::publish_one(topic, 9, number, number, b"")]).expect("no crash");
        rig.pass(400).expect("no crash");
        ack_all(&mut rig);
    }
    assert_eq!(members(&rig), 0);
}

#[test]
fn a_member_that_nobody_waits_for_any_more_is_lost_in_the_time_of_its_group() {
    // Goal: it neither stays nor goes early. Method: the journal takes so long that the join is answered before it is applied.
    for session_ms in SESSIONS_MS {
        let (_, mut rig, topic) = rig();
        rig.slow = true;
        let options = format!("{{\"session_ms\":{session_ms}}}");
        rig.ask(CONNECTION, vec![join(topic, 1, GROUPS, &options)]).expect("no crash");
        rig.pass(6000).expect("no crash");
        let replies = rig.replies.remove(&CONNECTION).expect("it is answered by now");
        assert_eq!(replies[0].result.as_ref().expect_err("nobody knows").code, ErrorCode::QuorumLost);
        assert!(rig.node.shard().state().paths.is_empty());
        rig.slow = false;
        rig.catch_up().expect("no crash");
        assert_eq!(members(&rig), 1);
        rig.pass(session_ms - 200).expect("no crash");
        assert_eq!(members(&rig), 1, "{session_ms} ms are not over");
        rig.pass(400).expect("no crash");
        assert_eq!(members(&rig), 0);
    }
}

#[test]
fn windows_are_those_of_the_group_exactly_while_its_member_asked_for_no_others() {
    // Goal: rule 8, for messages and for bytes. Method: messages of two bytes, and windows of bytes that are odd: a message that
    // does not fit whole is not given beside others.
    let (_, mut rig, topic) = rig();
    rig.ask(CONNECTION, vec![join(topic, 1, GROUPS, r#"{"credit_count":4,"credit_bytes":11}"#)]).expect("no crash");
    rig.ask(CONNECTION, vec![join(topic, 2, (3, 5), "")]).expect("no crash");
    rig.ask(CONNECTION, vec![support::publish_values(topic, 9, 1, 10..100)]).expect("no crash");
    assert_eq!(held(&rig), [(4, 8), (2, 4)], "four messages, and five bytes");
    // One settled: one comes.
    let first = rig.deliveries.iter().position(|(_, subscription, _)| *subscription == 1).expect("it has some");
    let (_, _, delivery) = rig.deliveries.remove(first);
    rig.ask(CONNECTION, vec![settle(1, &delivery, SettleKind::Ack)]).expect("no crash");
    assert_eq!(held(&rig), [(4, 8), (2, 4)]);
    for (change, expected) in [
        (r#"{"credit_bytes":7}"#, (3, 6)),
        (r#"{"credit_bytes":1}"#, (1, 2)),
        (r#"{"credit_bytes":100,"credit_count":2}"#, (2, 4)),
        (r#"{"credit_count":6}"#, (6, 12)),
    ] {
        set_group(&mut rig, change);
        ack_all(&mut rig);
        assert_eq!(held(&rig), [expected, (2, 4)], "after {change}");
    }
}

#[test]
fn credit_is_set_added_taken_from_the_group_and_told_as_it_is() {
    let (_, mut rig, topic) = rig();
    rig.ask(CONNECTION, vec![join(topic, 1, (0, 0), r#"{"credit_count":4,"credit_bytes":101}"#)]).expect("no crash");
    rig.ask(CONNECTION, vec![support::publish_values(topic, 9, 1, 10..100)]).expect("no crash");
    assert_eq!(held(&rig), [(0, 0)]);
    let told = |granted: &CreditGranted| {
        (granted.window_messages, granted.window_bytes, granted.held_messages, granted.held_bytes, granted.credit_epoch)
    };
    // It is told what it held when it asked, and given more at once.
    assert_eq!(told(&credit(&mut rig, false, 2, u32::MAX)), (2, 101, 0, 0, 1));
    assert_eq!(held(&rig), [(2, 4)]);
    assert_eq!(told(&credit(&mut rig, true, 1, 0)), (3, 101, 2, 4, 2));
    assert_eq!(held(&rig), [(3, 6)]);
    // What was added to is the member's own, and what was taken from the group follows it.
    set_group(&mut rig, r#"{"credit_count":9,"credit_bytes":8}"#);
    assert_eq!(held(&rig), [(3, 6)]);
    assert_eq!(told(&credit(&mut rig, false, u16::MAX, 7)), (9, 7, 3, 6, 3));
    set_group(&mut rig, r#"{"credit_count":8,"credit_bytes":100}"#);
    assert_eq!(told(&credit(&mut rig, true, 0, 0)), (8, 7, 3, 6, 4), "its messages followed, its bytes are its own");
    assert_eq!(told(&credit(&mut rig, false, 4, u32::MAX)), (4, 100, 3, 6, 5));
    set_group(&mut rig, r#"{"credit_count":20,"credit_bytes":9}"#);
    assert_eq!(told(&credit(&mut rig, true, 0, 0)), (4, 9, 4, 8, 6), "its bytes followed, its messages are its own");
    // To add the group's is to add as many once.
    assert_eq!(told(&credit(&mut rig, true, u16::MAX, u32::MAX)), (24, 18, 4, 8, 7));
    set_group(&mut rig, r#"{"credit_count":30,"credit_bytes":1000}"#);
    assert_eq!(told(&credit(&mut rig, true, 0, 0)), (24, 18, 9, 18, 8), "and takes over neither");
    // The values that mean the group's are never told as a window.
    let most = (u16::MAX - 1, u32::MAX - 1);
    let granted = credit(&mut rig, false, most.0, most.1);
    assert_eq!((granted.window_messages, granted.window_bytes), most);
    let granted = credit(&mut rig, true, most.0, most.1);
    assert_eq!((granted.window_messages, granted.window_bytes), most);
}
