//! Goal: the deletion of a large topic under load holds up nobody, keeps its promises from its command on, and leaves nothing
//! behind. Method: 2,000 groups in 16 partitions, with a member and an open pull each, deleted among publishes and settles;
//! pieces and turns are counted, never time.

mod support;

use std::collections::BTreeSet;

use mortarmq_node::{Answer, ErrorCode, Query, QueryAnswer, Request};
use mortarmq_shard::SettleKind;
use mortarmq_shard::command::STEPS_MAX;
use mortarmq_storage::MemoryDisk;
use mortarmq_types::{ConnectionId, TopicIncarnation};
use support::{CONNECTION, Rig, RigOptions, publish, settle, subscribe};

const GROUPS: u16 = 2000;
const PARTITIONS: u16 = 16;
const CONSUMERS: ConnectionId = ConnectionId::new(7);

/// A rig with a large topic, whose members wait for messages, and a small one.
fn rig(disk: &MemoryDisk, groups: u16) -> (Rig, TopicIncarnation, TopicIncarnation) {
    let mut rig = Rig::start(disk, RigOptions::default()).expect("a fresh disk");
    rig.connect(CONNECTION);
    rig.connect(CONSUMERS);
    let large = rig.declare("orders", PARTITIONS).expect("no crash");
    let small = rig.declare("other", 1).expect("no crash");
    for group in 1..=groups {
        let join = subscribe(large, &format!("g{group}"), group, u64::from(group), 1);
        rig.ask(CONSUMERS, vec![join]).expect("no crash");
    }
    rig.ask(CONNECTION, vec![subscribe(small, "billing", 1, 9000, 10)]).expect("no crash");
    (rig, large, small)
}

fn pulls(rig: &mut Rig) {
    let pull =
        |subscription| Request::Pull { subscription, max_messages: 9, max_bytes: 0, min_bytes: 0, wait_ms: 60_000 };
    rig.ask(CONSUMERS, (1..=GROUPS).map(pull).collect()).expect("no crash");
}

#[test]
fn p2_p9_a_topic_with_thousands_of_groups_is_deleted_under_load_in_turns_of_bounded_steps() {
    let (mut rig, large, small) = rig(&MemoryDisk::new(), GROUPS);
    pulls(&mut rig);
    rig.ask(CONNECTION, vec![publish(large, 9, 1..3, b"")]).expect("no crash");
    let held = rig.take_deliveries();
    assert_eq!(held.len(), 2 * usize::from(GROUPS), "everybody holds one by a push and one by a pull");
    pulls(&mut rig);
    rig.pulls.clear();
    // In one go, as on a connection that waits for no answer: what comes before the deletion is stored, what comes behind is not.
    let requests = vec![
        publish(large, 9, 3..6, b""),
        publish(small, 9, 1..4, b""),
        Request::Delete { name: "orders".to_owned() },
        publish(large, 9, 6..9, b""),
        publish(small, 9, 4..7, b""),
        Request::Declare { name: "orders".to_owned(), partitions: 1, options: String::new() },
    ];
    let replies = rig.ask(CONNECTION, requests).expect("no crash");
    let codes: Vec<_> = replies.iter().map(|reply| reply.result.as_ref().map_err(|failure| failure.code)).collect();
    assert_eq!(codes.len(), 3 + 3 + 1 + 3 + 3 + 1);
    assert!(codes[..6].iter().all(|code| matches!(code, Ok(Answer::Published(_)))), "{codes:?}");
    assert!(matches!(codes[6], Ok(Answer::Deleted { existed: true })), "{codes:?}");
    assert!(codes[7..10].iter().all(|code| matches!(code, Err(ErrorCode::UnknownTopic))), "P2: {codes:?}");
    assert!(codes[10..13].iter().all(|code| matches!(code, Ok(Answer::Published(_)))), "{codes:?}");
    assert!(matches!(codes[13], Ok(Answer::Declared { existed: false, .. })), "the name is free at once: {codes:?}");
    let state = rig.node.shard().state();
    assert_eq!((state.topics.len(), state.paths.len()), (2, 1), "all that is known is the others'");
    assert!(rig.node.shard().has_remains(), "and that was not all of the work");
    assert_eq!(rig.deliveries.iter().filter(|(_, _, it)| it.topic == small).count(), 6, "others are served meanwhile");
    let ended = rig.pulls.len();
    assert!(ended <= 4 * STEPS_MAX as usize, "{ended} members were told with the first batches");
    // What is left goes turn by turn; no turn does more than its steps, and who is in it has what it asked for.
    let (mut turns, mut told) = (0, ended);
    while rig.node.shard().has_remains() {
        assert!(rig.node.next_wake().is_some_and(|wake| wake <= rig.now.monotonic), "it goes on by itself");
        rig.node.handle_tick(rig.now);
        rig.pump().expect("no crash");
        assert!(rig.pulls.len() - told <= STEPS_MAX as usize, "{} members in a turn", rig.pulls.len() - told);
        (turns, told) = (turns + 1, rig.pulls.len());
        if turns % 5 == 0 {
            let replies = rig.ask(CONNECTION, vec![Request::Ping]).expect("no crash");
            assert!(matches!(replies[0].result, Ok(Answer::Pong)));
        }
    }
    // A place and its timer, at least: of each group in each partition.
    let least = usize::from(GROUPS) * usize::from(PARTITIONS) / STEPS_MAX as usize;
    assert!(turns >= least / 2, "{turns} turns are too few for {least} thousand places");
    let gone: BTreeSet<u16> = rig.pulls.iter().map(|(_, subscription, _)| *subscription).collect();
    assert_eq!(gone.len(), usize::from(GROUPS), "every pull has ended");
    assert!(rig.pulls.iter().all(|(.., result)| result.as_ref().is_err_and(|it| it.code == ErrorCode::UnknownMember)));
    let ack = settle(1, &held[0], SettleKind::Ack);
    let replies = rig.ask(CONSUMERS, vec![ack]).expect("no crash");
    assert_eq!(replies[0].result.as_ref().expect_err("it has ended").code, ErrorCode::UnknownMember);
    rig.node.shard().check();
}

#[test]
fn p1_p10_a_deletion_that_a_restart_cuts_is_done_and_a_topic_made_again_is_another() {
    // Goal: nothing of a deleted topic outlives a restart, whatever was left to be given back. Method: with and without a
    // checkpoint in the middle; the name is used again before, and by the same groups after.
    for with_checkpoint in [false, true] {
        let disk = MemoryDisk::new();
        let (mut rig, large, _) = rig(&disk, 300);
        rig.ask(CONNECTION, vec![publish(large, 9, 1..9, b"")]).expect("no crash");
        let delete = Request::Delete { name: "orders".to_owned() };
        let declare = Request::Declare { name: "orders".to_owned(), partitions: 2, options: String::new() };
        rig.ask(CONNECTION, vec![delete, declare]).expect("no crash");
        assert!(rig.node.shard().has_remains());
        if with_checkpoint {
            rig.node.handle_checkpoint_wanted(rig.now);
            rig.pump().expect("no crash");
            assert_eq!(rig.checkpoints, 1);
        }
        let before = rig.node.shard().state().clone();
        drop(rig);
        let options = RigOptions { boot: 2, ..RigOptions::default() };
        let mut rig = Rig::start(&disk.after_power_loss(3), options).expect("it recovers");
        assert_eq!(rig.from_checkpoint, with_checkpoint);
        let (again, topic) = rig.node.shard().state().topic_by_name("orders").expect("it was made again");
        assert!(again > large && topic.partitions.len() == 2 && topic.paths.is_empty(), "P10");
        assert_eq!(rig.node.shard().state().paths, before.paths);
        rig.connect(CONNECTION);
        rig.ask(CONNECTION, vec![subscribe(again, "g1", 1, 9001, 100), publish(again, 9, 1..4, b"")])
            .expect("no crash");
        let given: Vec<_> =
            rig.take_deliveries().iter().filter(|it| it.topic == again).map(support::number_of).collect();
        assert_eq!(given.iter().copied().collect::<BTreeSet<_>>(), (1..4).collect(), "its own messages only");
        let Ok(QueryAnswer::Balance(view)) = rig.query(Query::Balance { topic: None }).expect("no crash").result else {
            panic!("the books are told")
        };
        assert_eq!(view.paths.len(), 2, "P9: {:?}", view.paths);
        rig.node.shard().check();
    }
}
