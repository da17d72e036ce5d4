//! Settings and topics that change on a whole node, while producers publish and consumers hold what they were given.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use mortarmq_node::{Act, Answer, Delivery, ErrorCode, Outcome, Query, QueryAnswer, QueryReply, Request, Settings};
use mortarmq_shard::{Setting, SettleCode, SettleKind};
use mortarmq_storage::MemoryDisk;
use mortarmq_types::{Cause, ConnectionId, Partition, Seq, TopicIncarnation};
use support::{CONNECTION, Rig, RigOptions, number_of, publish, settle, subscribe};

fn rig() -> Rig {
    let mut rig = Rig::start(&MemoryDisk::new(), RigOptions::default()).expect("a fresh disk");
    rig.connect(CONNECTION);
    rig
}

fn settings(text: &str) -> Settings {
    serde_json::from_str(text).expect("an object")
}

fn set_topic(text: &str) -> Act {
    Act::ChangeTopic { topic: "orders".to_owned(), settings: settings(text) }
}

fn set_group(text: &str) -> Act {
    Act::ChangeGroup { topic: "orders".to_owned(), group: "billing".to_owned(), settings: settings(text) }
}

fn refused(reply: &QueryReply) -> (ErrorCode, &str) {
    match &reply.result {
        Err(failure) => {
            assert_eq!(failure.outcome, Outcome::Refused);
            (failure.code, &failure.message)
        }
        other => panic!("it is refused, not {other:?}"),
    }
}

fn ack(rig: &mut Rig, connection: ConnectionId, delivery: &Delivery) -> Result<SettleCode, ErrorCode> {
    let replies = rig.ask(connection, vec![settle(1, delivery, SettleKind::Ack)]).expect("no crash");
    match &replies[0].result {
        Ok(Answer::Settled(codes)) => Ok(codes[0]),
        Err(failure) => Err(failure.code),
        other => panic!("a settle is answered with codes, not {other:?}"),
    }
}

#[test]
fn p4_a_topic_grows_under_a_producer_and_a_consumer_that_notice_nothing_and_it_stays_so_after_a_restart() {
    let disk = MemoryDisk::new();
    let mut rig = Rig::start(&disk, RigOptions::default()).expect("a fresh disk");
    rig.connect(CONNECTION);
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 1000)]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..11, b"")]).expect("no crash");
    let reply = rig.act(set_topic(r#"{"partitions":3,"ttl_ms":60000}"#)).expect("no crash");
    let Ok(QueryAnswer::Topic(view)) = &reply.result else { panic!("{reply:?}") };
    assert_eq!((view.summary.partitions, view.partition_stats.len()), (3, 3));
    assert_eq!((&view.settings["partitions"], &view.settings["ttl_ms"]), (&3.into(), &60_000.into()));
    assert_eq!(reply.position, rig.node.position());
    // The same producer goes on with its numbers, the same member is given what comes of all partitions.
    rig.ask(CONNECTION, vec![publish(topic, 9, 11..41, b"")]).expect("no crash");
    let held = rig.take_deliveries();
    let numbers: BTreeSet<u64> = held.iter().map(number_of).collect();
    assert_eq!(numbers, (1..41).collect());
    let partitions: BTreeSet<Partition> = held.iter().map(|delivery| delivery.partition).collect();
    assert_eq!(partitions.len(), 3);
    for delivery in &held[..20] {
        assert_eq!(ack(&mut rig, CONNECTION, delivery), Ok(SettleCode::Done));
    }
    // What a declaration compares is the count of now.
    let declare = |partitions| Request::Declare { name: "orders".to_owned(), partitions, options: String::new() };
    let replies = rig.ask(CONNECTION, vec![declare(3), declare(1)]).expect("no crash");
    assert!(replies[0].result.is_ok());
    assert_eq!(replies[1].result.as_ref().expect_err("another count").code, ErrorCode::TopicExistsMismatch);
    rig.node.shard().check();
    drop(rig);
    let mut rig = Rig::start(&disk, RigOptions { boot: 2, ..RigOptions::default() }).expect("it recovers");
    let state = rig.node.shard().state();
    assert_eq!(state.topics[&topic].partitions.len(), 3);
    let Ok(QueryAnswer::Balance(view)) = rig.query(Query::Balance { topic: None }).expect("no crash").result else {
        panic!("the books are told")
    };
    assert_eq!((view.paths[0].produced, view.paths[0].delivered, view.paths[0].depth), (40, 20, 20), "P9");
}

#[test]
fn p4_a_topic_with_more_groups_than_a_command_has_steps_grows_at_once() {
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    for group in 0..1100_u16 {
        let request = subscribe(topic, &format!("g{group}"), group + 1, 70 + u64::from(group), 3);
        rig.ask(CONNECTION, vec![request]).expect("no crash");
    }
    let before = rig.node.position().commit_index;
    let reply = rig.act(set_topic(r#"{"partitions":20}"#)).expect("no crash");
    assert_eq!(rig.node.position().commit_index, before.next(), "by one command");
    let Ok(QueryAnswer::Topic(view)) = &reply.result else { panic!("{reply:?}") };
    assert_eq!(view.summary.partitions, 20);
    // Every group is given what comes to the new ones.
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..21, b"")]).expect("no crash");
    let given = rig.take_deliveries();
    assert_eq!(given.len(), 3 * 1100);
    assert!(given.iter().any(|delivery| delivery.partition.get() > 0), "of the new ones");
    rig.node.shard().check();
}

#[test]
fn windows_sessions_and_limits_of_a_group_follow_its_settings() {
    let mut rig = rig();
    let other = ConnectionId::new(2);
    rig.connect(other);
    let topic = rig.declare("orders", 1).expect("no crash");
    // One member has the group's window, the other one of its own.
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, u16::MAX)]).expect("no crash");
    rig.ask(other, vec![subscribe(topic, "billing", 1, 71, 3)]).expect("no crash");
    let reply = rig.act(set_group(r#"{"credit_count":5,"session_ms":2000,"max_in_flight":6}"#)).expect("no crash");
    let Ok(QueryAnswer::Group(view)) = &reply.result else { panic!("{reply:?}") };
    assert_eq!((&view.settings["credit_count"], view.members.len()), (&5.into(), 2));
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..31, b"")]).expect("no crash");
    let held = |rig: &Rig| -> Vec<u32> {
        let path = rig.node.shard().state().paths.values().next().expect("a path");
        path.members.values().map(|member| member.held_messages).collect()
    };
    assert_eq!(held(&rig).iter().sum::<u32>(), 6, "max_in_flight");
    rig.act(set_group(r#"{"max_in_flight":0}"#)).expect("no crash");
    assert_eq!(held(&rig), [5, 3], "the group's window, and the one that was asked for; nobody had to ask again");
    rig.act(set_group(r#"{"credit_count":9}"#)).expect("no crash");
    assert_eq!(held(&rig), [9, 3]);
    // Two seconds of silence are enough now.
    rig.take_deliveries();
    rig.pass(1900).expect("no crash");
    assert_eq!(held(&rig).len(), 2);
    rig.pass(200).expect("no crash");
    assert_eq!(held(&rig).len(), 0, "both are lost");
}

#[test]
fn settings_that_cannot_be_are_refused_by_name_and_change_nothing() {
    let mut rig = rig();
    let topic = rig.declare("orders", 2).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 0)]).expect("no crash");
    let before = rig.node.shard().state().topics[&topic].settings.clone();
    let invalid = ErrorCode::InvalidTopic;
    for (act, code, text) in [
        (
            set_topic(r#"{"ttl_ms":5,"leese_ms":1}"#),
            invalid,
            r#"unknown setting "leese_ms" (did you mean "lease_ms"?)"#,
        ),
        (set_topic(r#"{"partitions":1}"#), invalid, "partitions only grows: there are 2, 1 would be fewer"),
        (set_topic(r#"{"partitions":2000}"#), invalid, "partitions = 2000 is refused: a whole number from 1 to 1024"),
        (set_topic(r#"{"lease_ms":"1s"}"#), invalid, "lease_ms = \"1s\" is refused"),
        (set_topic(r#"{"type":"shared"}"#), invalid, "type is fixed when it is made"),
        (set_group(r#"{"start":"latest"}"#), invalid, "start is fixed when it is made"),
        (set_group(r#"{"partitions":4}"#), invalid, "\"partitions\" is a topic setting"),
        (set_group(r#"{"order":"sideways"}"#), invalid, "order = \"sideways\" is refused: \"none\" or \"key\""),
    ] {
        let reply = rig.act(act.clone()).expect("no crash");
        let (found, message) = refused(&reply);
        assert_eq!(found, code, "{act:?}");
        assert!(message.starts_with(text), "{act:?}: {message}");
    }
    assert_eq!(rig.node.shard().state().topics[&topic].settings, before);
    let nowhere = Act::ChangeTopic { topic: "ordres".to_owned(), settings: Settings::new() };
    assert_eq!(refused(&rig.act(nowhere).expect("no crash")).0, ErrorCode::UnknownTopic);
    let nobody = Act::ChangeGroup { topic: "orders".to_owned(), group: "nobody".to_owned(), settings: Settings::new() };
    assert_eq!(refused(&rig.act(nobody).expect("no crash")).0, ErrorCode::UnknownGroup);
}

#[test]
fn p8_a_group_gives_up_its_order_and_takes_it_up_again_while_messages_are_out() {
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 3)]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..4, b"k")]).expect("no crash");
    let held = rig.take_deliveries();
    assert_eq!(held.iter().map(number_of).collect::<Vec<_>>(), [1, 2, 3], "together, in order");
    rig.ask(CONNECTION, vec![publish(topic, 9, 4..7, b"k")]).expect("no crash");
    assert_eq!(ack(&mut rig, CONNECTION, &held[2]), Ok(SettleCode::Done));
    assert_eq!(rig.take_deliveries().len(), 0, "the key is out");
    rig.act(set_group(r#"{"order":"none"}"#)).expect("no crash");
    assert_eq!(rig.take_deliveries().iter().map(number_of).collect::<Vec<_>>(), [4], "nothing waits, and nobody asks");
    rig.act(set_group(r#"{"order":"key"}"#)).expect("no crash");
    assert_eq!(ack(&mut rig, CONNECTION, &held[1]), Ok(SettleCode::Done));
    assert_eq!(rig.take_deliveries().len(), 0, "5 waits for 1 and 4 from here on");
    assert_eq!(ack(&mut rig, CONNECTION, &held[0]), Ok(SettleCode::Done));
    assert_eq!(rig.take_deliveries().len(), 0, "and for 4");
    rig.node.shard().check();
}

/// What the consumers of one name were given, by the incarnation it was of.
type Given = BTreeMap<TopicIncarnation, Vec<(Cause, u64)>>;

#[test]
fn p10_a_topic_that_is_deleted_under_load_and_made_again_has_nothing_of_the_former() {
    // Goal: whatever is under way when a topic goes (publishes, deliveries, settles, records not written yet), the topic of
    // the same name has only its own. Method: twenty lives of one name; publishes and settles stand in the very batch of the
    // deletion, journal and segment writer take their time, and half of the lives have a restart in the middle.
    let disk = MemoryDisk::new();
    let mut rig = Rig::start(&disk, RigOptions { recent_bytes: 200, ..RigOptions::default() }).expect("a fresh disk");
    let mut given = Given::new();
    let mut incarnations = Vec::new();
    for life in 1..=20_u64 {
        rig.connect(CONNECTION);
        let topic = rig.declare("orders", 1).expect("no crash");
        assert!(!incarnations.contains(&topic), "an incarnation is never used again");
        incarnations.push(topic);
        rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 100 + life, 50)]).expect("no crash");
        // Numbers begin at 1 with each life: a window of the former would take them for retries.
        let first = life * 1000;
        let replies = rig.ask(CONNECTION, vec![publish_from(topic, life, first)]).expect("no crash");
        for (place, reply) in (1..).zip(&replies) {
            let Ok(Answer::Published(published)) = &reply.result else { panic!("{reply:?}") };
            assert_eq!((published.seq, published.deduplicated), (Seq::new(place), false), "life {life}");
        }
        let held = rig.take_deliveries();
        for delivery in &held {
            assert_eq!(delivery.topic, topic);
            given.entry(topic).or_default().push((delivery.cause, number_of(delivery)));
        }
        rig.slow = life % 3 == 0;
        // All in one go: more publishes, a settle, the deletion, and again a publish and a settle.
        let delete = Request::Delete { name: "orders".to_owned() };
        let nack = |delivery: &Delivery| settle(1, delivery, SettleKind::DeadLetter { error: format!("life {life}") });
        let requests = vec![
            publish_from(topic, 0, first + 100),
            nack(&held[0]),
            delete,
            publish_from(topic, 0, first + 200),
            settle(1, &held[1], SettleKind::Ack),
            subscribe(topic, "billing", 2, 200 + life, 50),
        ];
        if life % 2 == 0 {
            rig.node.handle_requests(rig.now, CONNECTION, requests);
            rig.pump().expect("no crash");
            rig.catch_up().expect("no crash");
        } else {
            rig.ask(CONNECTION, requests).expect("no crash");
            let act = Act::DeleteTopic { name: "orders".to_owned() };
            rig.slow = false;
            rig.catch_up().expect("no crash");
            assert_eq!(refused(&rig.act(act).expect("no crash")).0, ErrorCode::UnknownTopic, "it is gone already");
        }
        rig.slow = false;
        rig.catch_up().expect("no crash");
        rig.take_deliveries();
        let state = rig.node.shard().state();
        assert!(state.topics.is_empty() && state.paths.is_empty(), "its dead letters went with it");
        rig.node.shard().check();
        if life % 4 == 0 {
            drop(rig);
            let options =
                RigOptions { boot: u8::try_from(life).expect("small"), recent_bytes: 200, ..RigOptions::default() };
            rig = Rig::start(&disk, options).expect("it recovers");
        } else {
            rig.node.handle_disconnected(rig.now, CONNECTION);
            rig.replies.clear();
        }
    }
    for (life, topic) in (1..).zip(&incarnations) {
        let expected: Vec<(Cause, u64)> = (0..5).map(|place| (Cause::First, life * 1000 + place)).collect();
        assert_eq!(given[topic], expected, "life {life}: its own messages, each for the first time");
    }
}

/// Five publishes of a producer (0: without identity), numbered from 1; the values count from `first`.
fn publish_from(topic: TopicIncarnation, producer: u64, first: u64) -> Request {
    support::publish_values(topic, producer, 1, first..first + 5)
}

#[test]
fn a_topic_is_deleted_by_an_operator_with_all_that_is_its_own() {
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 5)]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..4, b"")]).expect("no crash");
    let held = rig.take_deliveries();
    let dead = settle(1, &held[0], SettleKind::DeadLetter { error: String::new() });
    rig.ask(CONNECTION, vec![dead]).expect("no crash");
    let letters = Act::DeleteTopic { name: "$dlq.orders".to_owned() };
    assert_eq!(refused(&rig.act(letters).expect("no crash")).0, ErrorCode::InvalidTopic);
    let reply = rig.act(Act::DeleteTopic { name: "orders".to_owned() }).expect("no crash");
    assert!(matches!(reply.result, Ok(QueryAnswer::Done)), "{reply:?}");
    assert_eq!(ack(&mut rig, CONNECTION, &held[1]), Err(ErrorCode::UnknownMember), "the subscription ended with it");
    assert!(rig.node.shard().state().topics.is_empty());
    let settings = rig.declare("orders", 4).expect("no crash");
    assert_ne!(settings, topic);
    assert_eq!(rig.node.shard().state().topics[&settings].settings.get(Setting::Partitions), 4);
}

#[test]
fn p4_a_group_that_nobody_uses_expires_by_itself_also_over_a_restart() {
    let disk = MemoryDisk::new();
    let mut rig = Rig::start(&disk, RigOptions::default()).expect("a fresh disk");
    rig.connect(CONNECTION);
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 5)]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..11, b"")]).expect("no crash");
    rig.act(set_group(r#"{"expire_idle_ms":60000}"#)).expect("no crash");
    // A member that is silent is lost after 10 s; from then on the group is idle.
    rig.pass(65_000).expect("no crash");
    assert_eq!(rig.node.shard().state().paths.len(), 1, "it has been idle for 55 s");
    let now = rig.now;
    drop(rig);
    let mut rig = Rig::start(&disk, RigOptions { now, ..RigOptions::default() }).expect("it recovers");
    assert_eq!((rig.node.shard().state().paths.len(), rig.expired.len()), (1, 0));
    rig.pass(6000).expect("no crash");
    assert_eq!(rig.expired, [("orders".to_owned(), "billing".to_owned(), 10)], "nobody had to ask");
    assert_eq!((rig.node.shard().state().paths.len(), rig.node.shard().state().groups_expired), (0, 1));
    // The history of a message tells what became of it.
    let question = Query::Trace { topic: "orders".to_owned(), partition: Partition::ZERO, seq: Seq::new(9) };
    let Ok(QueryAnswer::Trace(view)) = rig.query(question).expect("no crash").result else { panic!("a trace") };
    assert!(view.events.iter().any(|event| event.cause == Some("group_deleted")), "{:?}", view.events);
    rig.node.check();
}

#[test]
fn with_so_many_acked_past_the_oldest_nothing_new_comes_until_that_is_settled() {
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 4)]).expect("no crash");
    rig.act(set_group(r#"{"max_acked_ahead":6}"#)).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..31, b"")]).expect("no crash");
    let mut held: BTreeMap<u64, Delivery> = BTreeMap::new();
    let mut acked = 0;
    loop {
        held.extend(rig.take_deliveries().into_iter().map(|delivery| (number_of(&delivery), delivery)));
        let Some(number) = held.keys().copied().find(|number| *number != 1) else { break };
        let delivery = held.remove(&number).expect("it is held");
        assert_eq!(ack(&mut rig, CONNECTION, &delivery), Ok(SettleCode::Done));
        acked += 1;
    }
    assert_eq!(acked, 8, "six, and what was out by then");
    rig.pass(1000).expect("no crash");
    assert!(rig.take_deliveries().is_empty());
    let first = held.remove(&1).expect("the oldest is held");
    assert_eq!(ack(&mut rig, CONNECTION, &first), Ok(SettleCode::Done));
    assert_eq!(rig.take_deliveries().iter().map(number_of).collect::<Vec<_>>(), [10, 11, 12, 13], "and at once");
}
