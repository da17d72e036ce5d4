//! Schedules that once broke the node. Each stays, with a line of its story.

mod support;

use mortarmq_node::{Answer, Query, QueryAnswer, Request};
use mortarmq_shard::{SettleItem, SettleKind};
use mortarmq_storage::MemoryDisk;
use mortarmq_types::{ConnectionId, DeliveryId, Partition, Seq};
use mortarmq_wire::ErrorCode;
use support::{CONNECTION, Rig, RigOptions, number_of, publish, settle, subscribe};

fn rig() -> Rig {
    let mut rig = Rig::start(&MemoryDisk::new(), RigOptions::default()).expect("a fresh disk");
    rig.connect(CONNECTION);
    rig
}

#[test]
fn a_topic_that_is_deleted_in_the_batch_of_a_subscribe_ends_the_subscription() {
    // The node looked the new member's path up after the whole batch was applied, and stopped: any client could do that.
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    let delete = Request::Delete { name: "orders".to_owned() };
    let replies = rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 10), delete]).expect("no crash");
    assert!(matches!(replies[0].result, Ok(Answer::Subscribed { .. })), "{replies:?}");
    assert!(matches!(replies[1].result, Ok(Answer::Deleted { existed: true })), "{replies:?}");
    let replies = rig.ask(CONNECTION, vec![Request::Heartbeat { subscription: 1, leave: false }]).expect("no crash");
    assert_eq!(replies[0].result.as_ref().expect_err("it has ended").code, ErrorCode::UnknownMember);
}

#[test]
fn p3_a_producer_that_was_idle_for_days_goes_on_with_its_numbers() {
    // Its line was forgotten for its age by the very publish that used it; apply stopped, and so did every recovery.
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..3, b"")]).expect("no crash");
    rig.now.monotonic = rig.now.monotonic.after_ms(3 * 86_400_000);
    rig.pass(100).expect("no crash");
    let replies = rig.ask(CONNECTION, vec![publish(topic, 9, 2..4, b"")]).expect("no crash");
    let stored: Vec<(u64, bool)> = replies
        .iter()
        .map(|reply| match &reply.result {
            Ok(Answer::Published(published)) => (published.seq.get(), published.deduplicated),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(stored, [(2, true), (3, false)]);
}

#[test]
fn what_a_small_window_leaves_goes_to_the_larger_one_at_once() {
    // Messages were shared out evenly among members; what the small window could not take waited for the next settle.
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 1)]).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 2, 71, 100)]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..51, b"")]).expect("no crash");
    assert_eq!(rig.take_deliveries().len(), 50, "there is credit for all of them");
}

#[test]
fn a_pull_that_is_too_small_for_the_next_message_costs_no_endless_commands() {
    // It asked again and again, one fsync each, until its wait was over.
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 0)]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 0, 100_000..100_002, b"")]).expect("no crash");
    let before = rig.disk.syncs();
    let pull = Request::Pull { subscription: 1, max_messages: 9, max_bytes: 3, min_bytes: 0, wait_ms: 1000 };
    rig.ask(CONNECTION, vec![pull]).expect("no crash");
    rig.pass(1500).expect("no crash");
    assert!(rig.pulls.pop().is_some(), "its wait ends");
    assert!(rig.disk.syncs() - before < 5, "{} fsyncs", rig.disk.syncs() - before);
}

#[test]
fn a_group_that_lags_in_more_partitions_than_a_batch_has_deliveries_catches_up() {
    // Each lagging partition brings its own command; the count of a batch went below zero.
    let mut rig = rig();
    let topic = rig.declare("orders", 300).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 0, 1..601, b"")]).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 1000)]).expect("no crash");
    let mut numbers: Vec<u64> = rig.take_deliveries().iter().map(number_of).collect();
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(1..601), "{} messages", numbers.len());
}

#[test]
fn a_settle_that_no_log_could_hold_is_refused_before_it_is_proposed() {
    // The command could be written and not be read: the node, and every recovery of it, would have stopped there.
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 10)]).expect("no crash");
    let item = SettleItem {
        partition: Partition::ZERO,
        first_seq: Seq::new(1),
        first_delivery: DeliveryId::new(1),
        count: 1025,
        kind: SettleKind::Ack,
    };
    let many = vec![SettleItem { count: 1, ..item.clone() }; 1025];
    let requests = [vec![item], many].map(|items| Request::Settle { subscription: 1, items });
    for request in requests {
        let replies = rig.ask(CONNECTION, vec![request]).expect("no crash");
        assert_eq!(replies[0].result.as_ref().expect_err("too many").code, ErrorCode::MalformedPayload);
    }
}

#[test]
fn a_full_flight_costs_no_deliver_until_a_settle() {
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    let Request::Subscribe(mut wanted) = subscribe(topic, "billing", 1, 70, 100) else { unreachable!() };
    wanted.options = "{\"max_in_flight\":2}".to_owned();
    rig.ask(CONNECTION, vec![Request::Subscribe(wanted)]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..6, b"")]).expect("no crash");
    let held = rig.take_deliveries();
    assert_eq!(held.len(), 2);
    let before = rig.disk.syncs();
    rig.pass(900).expect("no crash");
    assert_eq!(rig.disk.syncs(), before, "nothing is proposed while nothing can be leased");
    rig.ask(CONNECTION, vec![settle(1, &held[0], SettleKind::Ack)]).expect("no crash");
    assert_eq!(rig.take_deliveries().len(), 1);
}

#[test]
fn a_pull_without_wait_is_answered_empty_only_after_it_was_looked_for() {
    // A tick during the journal's write ended it with nothing, although messages lay there.
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 0), publish(topic, 9, 1..4, b"")]).expect("no crash");
    rig.slow = true;
    rig.ask(CONNECTION, vec![publish(topic, 9, 4..5, b"")]).expect("no crash");
    let pull = Request::Pull { subscription: 1, max_messages: 9, max_bytes: 0, min_bytes: 0, wait_ms: 0 };
    rig.ask(CONNECTION, vec![pull]).expect("no crash");
    rig.pass(60).expect("no crash");
    rig.catch_up().expect("no crash");
    let (_, _, result) = rig.pulls.pop().expect("the pull ends");
    assert_eq!(result.expect("no failure"), 4);
}

#[test]
fn p9_balance_is_told_while_other_connections_write() {
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    let other = ConnectionId::new(2);
    rig.connect(other);
    rig.slow = true;
    rig.ask(other, vec![publish(topic, 9, 1..4, b"")]).expect("no crash");
    let reply = rig.query(Query::Balance { topic: None }).expect("no crash");
    assert!(reply.result.is_ok());
}

#[test]
fn p4_a_member_that_joined_just_before_a_crash_is_lost_in_time() {
    // The end of the log is applied after the office was taken; members that joined in it had no session, and were never
    // missed: what they held by pushes stayed theirs, and they stayed for ever.
    let disk = MemoryDisk::new();
    let mut rig = Rig::start(&disk, RigOptions::default()).expect("a fresh disk");
    rig.connect(CONNECTION);
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 10)]).expect("no crash");
    drop(rig);
    let mut rig = Rig::start(&disk, RigOptions::default()).expect("the journal is sound");
    let members = |rig: &Rig| rig.node.shard().state().paths.values().map(|path| path.members.len()).sum::<usize>();
    assert_eq!(members(&rig), 1);
    rig.pass(11_000).expect("no crash");
    assert_eq!(members(&rig), 0, "its session time was 10 s");
}

#[test]
fn p10_one_commit_index_has_one_epoch_also_after_a_start_that_applies_no_command() {
    // Answers after a start carried the new leader's epoch with the index of a command of the old one: whoever compares what
    // clients saw found one index with two epochs.
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    let replies = rig.ask(CONNECTION, vec![publish(topic, 9, 1..2, b"")]).expect("no crash");
    let before = replies[0].position;
    let options = RigOptions { now: rig.now, ..RigOptions::default() };
    let mut rig = Rig::start(&rig.disk.after_power_loss(5), options).expect("a clean journal");
    rig.connect(CONNECTION);
    let scrape = rig.query(Query::Stats { topic: None }).expect("no crash");
    let Ok(QueryAnswer::Stats(view)) = scrape.result else { panic!("stats") };
    assert_eq!(
        (scrape.position, view.commit_index, view.epoch),
        (before, before.commit_index.get(), before.epoch.get())
    );
    let replies = rig.ask(CONNECTION, vec![publish(topic, 9, 2..3, b"")]).expect("no crash");
    let after = replies[0].position;
    assert!(after.epoch > before.epoch && after.commit_index > before.commit_index, "{before:?}, then {after:?}");
}
