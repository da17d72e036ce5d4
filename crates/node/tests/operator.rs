//! What an operator does to a path, on a whole node: purge, seek both ways, delete; with restarts and power losses around it.

mod support;

use std::collections::BTreeSet;

use mortarmq_node::views::MovedView;
use mortarmq_node::{Act, Answer, Delivery, ErrorCode, Outcome, Query, QueryAnswer, QueryReply, Request, SeekTarget};
use mortarmq_shard::{SettleCode, SettleKind};
use mortarmq_storage::MemoryDisk;
use mortarmq_types::{Cause, DeliveryId, Partition, Seq};
use support::{CONNECTION, Crashed, Rig, RigOptions, number_of, publish, settle, subscribe};

fn rig() -> Rig {
    let mut rig = Rig::start(&MemoryDisk::new(), RigOptions::default()).expect("a fresh disk");
    rig.connect(CONNECTION);
    rig
}

fn purge() -> Act {
    Act::Purge { topic: "orders".to_owned(), group: Some("billing".to_owned()) }
}

fn seek(to: SeekTarget) -> Act {
    Act::Seek { topic: "orders".to_owned(), group: "billing".to_owned(), to }
}

fn at(seq: u64) -> SeekTarget {
    SeekTarget::At(vec![(Partition::ZERO, Seq::new(seq))])
}

fn delete() -> Act {
    Act::DeleteGroup { topic: "orders".to_owned(), group: "billing".to_owned() }
}

/// Replayed and dropped.
fn counts(reply: &QueryReply) -> (u64, u64) {
    match &reply.result {
        Ok(QueryAnswer::Moved(MovedView { replayed, dropped, is_partial: false })) => (*replayed, *dropped),
        other => panic!("an act is answered with counts, not {other:?}"),
    }
}

/// Produced, delivered, dropped and depth of the one path there is; they add up.
fn books(rig: &mut Rig) -> Result<[u64; 4], Crashed> {
    let Ok(QueryAnswer::Balance(view)) = rig.query(Query::Balance { topic: None })?.result else {
        panic!("the books are told")
    };
    let books = &view.paths[0];
    assert_eq!(books.produced, books.delivered + books.dropped + books.dlq + books.depth, "P9: {books:?}");
    rig.node.shard().check();
    Ok([books.produced, books.delivered, books.dropped, books.depth])
}

fn ack(rig: &mut Rig, delivery: &Delivery) -> Result<SettleCode, Crashed> {
    let replies = rig.ask(CONNECTION, vec![settle(1, delivery, SettleKind::Ack)])?;
    match &replies[0].result {
        Ok(Answer::Settled(codes)) => Ok(codes[0]),
        other => panic!("a settle is answered with codes, not {other:?}"),
    }
}

/// The stages of a message's life with their causes, and where it stands.
fn trace(rig: &mut Rig, seq: u64) -> (Vec<(&'static str, &'static str)>, &'static str) {
    let question = Query::Trace { topic: "orders".to_owned(), partition: Partition::ZERO, seq: Seq::new(seq) };
    let Ok(QueryAnswer::Trace(view)) = rig.query(question).expect("no crash").result else { panic!("a trace") };
    let stages = view.events.iter().map(|event| (event.stage, event.cause.unwrap_or_default())).collect();
    (stages, view.standing[0].standing)
}

#[test]
fn p4_p9_a_purge_empties_a_path_that_is_at_work_and_its_consumers_go_on() {
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 10)]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..31, b"")]).expect("no crash");
    let held = rig.take_deliveries();
    assert_eq!(held.len(), 10);
    assert_eq!(ack(&mut rig, &held[0]).expect("no crash"), SettleCode::Done);
    let before = rig.node.position();
    let reply = rig.act(purge()).expect("no crash");
    assert_eq!(counts(&reply), (0, 29));
    assert!(reply.position.commit_index > before.commit_index && reply.position.epoch == before.epoch, "{reply:?}");
    assert_eq!(books(&mut rig).expect("no crash"), [30, 1, 29, 0]);
    for delivery in &held[1..] {
        assert_eq!(ack(&mut rig, delivery).expect("no crash"), SettleCode::Unknown, "a late settle changes nothing");
    }
    assert_eq!(ack(&mut rig, &held[0]).expect("no crash"), SettleCode::Done, "a repeated one is answered as before");
    let leased = ("leased", "first");
    assert_eq!(trace(&mut rig, 1), (vec![("stored", ""), leased, ("acked", "")], "acked"));
    let purged = vec![("stored", ""), leased, ("lease_ended", "released"), ("dropped", "purge")];
    assert_eq!(trace(&mut rig, 2), (purged, "dropped"));
    assert_eq!(trace(&mut rig, 30), (vec![("stored", ""), ("dropped", "purge")], "dropped"));
    rig.take_deliveries();
    rig.ask(CONNECTION, vec![publish(topic, 9, 31..41, b"")]).expect("no crash");
    let fresh: Vec<u64> = rig.take_deliveries().iter().map(number_of).collect();
    assert_eq!(fresh, (31..41).collect::<Vec<_>>(), "the whole window is free again");
}

#[test]
fn p4_p9_a_purge_of_a_hundred_thousand_messages_is_answered_at_once_and_goes_on_by_itself() {
    // Goal: no batch does more than its steps, whatever is leased, and nobody has to ask again. Method: 2,500 of 100,000
    // are leased; the journal takes its time, so that each batch is seen.
    let mut rig =
        Rig::start(&MemoryDisk::new(), RigOptions { recent_bytes: 4096, ..RigOptions::default() }).expect("fresh");
    rig.connect(CONNECTION);
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 2500)]).expect("no crash");
    for first in (1..100_000).step_by(1000) {
        rig.ask(CONNECTION, vec![publish(topic, 9, first..first + 1000, b"")]).expect("no crash");
    }
    rig.catch_up().expect("no crash");
    let offered =
        |rig: &Rig| rig.node.shard().state().paths.values().next().expect("a path").partitions[0].passed_over();
    assert_eq!(offered(&rig), 2500);
    rig.slow = true;
    let ask = rig.begin_act(purge()).expect("no crash");
    let (mut left, mut batches) = (offered(&rig), 0);
    while left > 0 {
        assert!(rig.finish_one(0).expect("no crash"), "somebody has to go on: {left} are left");
        let now = offered(&rig);
        assert!(left - now <= 1024, "{} messages in one batch", left - now);
        batches += u32::from(now < left);
        left = now;
    }
    assert_eq!(batches, 3);
    rig.slow = false;
    rig.catch_up().expect("no crash");
    assert_eq!(counts(&rig.queries.remove(&ask).expect("answered")), (0, 100_000));
    assert_eq!(books(&mut rig).expect("no crash"), [100_000, 0, 100_000, 0]);
}

/// Messages of the seek back below that are never acked before it.
const UNSETTLED: [u64; 3] = [37, 38, 39];

/// Takes what came of a replay: once as replayed, then as given back, and never what was acked since.
fn look_at_replay(rig: &mut Rig, seen: &mut BTreeSet<u64>, acked: &[u64]) -> Vec<Delivery> {
    let came = rig.take_deliveries();
    for delivery in &came {
        let number = number_of(delivery);
        assert!(!acked.contains(&number), "P6: {number} was acked since and came again");
        let is_first = seen.insert(number) && !UNSETTLED.contains(&number);
        let cause = if is_first { Cause::Replayed } else { Cause::Released };
        assert_eq!((delivery.cause, delivery.attempt.get()), (cause, 1), "P7: {number}");
        assert_eq!(delivery.previous == DeliveryId::ZERO, is_first, "P7: {number}");
    }
    came
}

#[test]
fn p6_p7_p8_p9_a_seek_back_brings_acked_messages_again_also_over_restarts_in_its_middle() {
    // Goal: what is owed once more survives a replay of the journal and a checkpoint. Method: 40 messages of three keys, and
    // some without, are acked but for three; back to 11; every eight acks the member leaves and the node starts anew, in
    // turn from its journal and from a checkpoint.
    let keys: [&[u8]; 4] = [b"", b"anna", b"bert", b"carl"];
    let key_of = |number: u64| keys[usize::try_from(number % 4).expect("small")];
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 100)]).expect("no crash");
    for number in 1..41_u64 {
        rig.ask(CONNECTION, vec![publish(topic, 9, number..number + 1, key_of(number))]).expect("no crash");
    }
    loop {
        let came = rig.take_deliveries();
        if came.is_empty() {
            break;
        }
        for delivery in came.iter().filter(|delivery| !UNSETTLED.contains(&number_of(delivery))) {
            assert_eq!(ack(&mut rig, delivery).expect("no crash"), SettleCode::Done);
        }
    }
    assert_eq!(counts(&rig.act(seek(at(11))).expect("no crash")), (27, 0), "30 lie behind, 3 of them are leased");
    assert_eq!(books(&mut rig).expect("no crash"), [67, 37, 0, 30]);
    let (mut seen, mut acked) = (BTreeSet::new(), Vec::new());
    for life in 0..20_u64 {
        if acked.len() == 30 {
            break;
        }
        for delivery in look_at_replay(&mut rig, &mut seen, &acked).iter().take(8) {
            assert_eq!(ack(&mut rig, delivery).expect("no crash"), SettleCode::Done);
            acked.push(number_of(delivery));
        }
        look_at_replay(&mut rig, &mut seen, &acked);
        if life % 2 == 1 {
            rig.node.handle_checkpoint_wanted(rig.now);
            rig.pump().expect("no crash");
        }
        rig.ask(CONNECTION, vec![Request::Heartbeat { subscription: 1, leave: true }]).expect("no crash");
        let counted = books(&mut rig).expect("no crash");
        let options = RigOptions { now: rig.now, ..RigOptions::default() };
        rig = Rig::start(&rig.disk.after_power_loss(life), options).expect("a clean stop");
        assert_eq!(rig.from_checkpoint, life >= 1);
        assert_eq!(books(&mut rig).expect("no crash"), counted, "P9");
        rig.connect(CONNECTION);
        rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 71 + life, 100)]).expect("no crash");
        // What is given back again and again backs off.
        rig.pass(5000).expect("no crash");
    }
    assert_eq!(acked.iter().copied().collect::<BTreeSet<_>>(), (11..41).collect());
    for key in keys.iter().skip(1) {
        let of_key: Vec<u64> = acked.iter().copied().filter(|number| key_of(*number) == *key).collect();
        assert!(of_key.is_sorted(), "P8: {of_key:?}");
    }
    assert_eq!(books(&mut rig).expect("no crash"), [67, 67, 0, 0]);
    let life = trace(&mut rig, 12);
    let expected =
        [("stored", ""), ("leased", "first"), ("acked", ""), ("replayed", ""), ("leased", "replayed"), ("acked", "")];
    assert_eq!(life, (expected.to_vec(), "acked"));
}

#[test]
fn p4_a_seek_forwards_skips_and_counts_what_it_skips() {
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 3)]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..21, b"")]).expect("no crash");
    let held = rig.take_deliveries();
    assert_eq!(counts(&rig.act(seek(at(16))).expect("no crash")), (0, 12), "4 to 15; 1 to 3 are leased");
    assert_eq!(books(&mut rig).expect("no crash"), [20, 0, 12, 8]);
    assert_eq!(trace(&mut rig, 9), (vec![("stored", ""), ("dropped", "seek")], "dropped"));
    assert_eq!(ack(&mut rig, &held[2]).expect("no crash"), SettleCode::Done, "what is leased goes on");
    assert_eq!(rig.take_deliveries().iter().map(number_of).collect::<Vec<_>>(), [16]);
    assert_eq!(counts(&rig.act(seek(SeekTarget::Latest)).expect("no crash")), (0, 4));
    assert_eq!(books(&mut rig).expect("no crash"), [20, 1, 16, 3]);
}

#[test]
fn p4_a_group_deleted_under_load_is_gone_and_another_of_its_name_owes_everything_anew() {
    let mut rig = rig();
    let topic = rig.declare("orders", 2).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 20)]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..51, b"")]).expect("no crash");
    let held = rig.take_deliveries();
    for delivery in &held[..5] {
        ack(&mut rig, delivery).expect("no crash");
    }
    let more = rig.take_deliveries();
    let old = rig.node.shard().state().last_delivery;
    assert_eq!(counts(&rig.act(delete()).expect("no crash")), (0, 45));
    assert!(rig.node.shard().state().paths.is_empty());
    let reply = rig.act(delete()).expect("no crash");
    let failure = reply.result.expect_err("there is no such group");
    assert_eq!((failure.code, failure.outcome), (ErrorCode::UnknownGroup, Outcome::Refused));
    // Its consumer is told, whatever it asks; nothing comes for it any more.
    let replies = rig.ask(CONNECTION, vec![settle(1, &held[6], SettleKind::Ack)]).expect("no crash");
    assert_eq!(replies[0].result.as_ref().expect_err("gone").code, ErrorCode::UnknownMember);
    rig.ask(CONNECTION, vec![publish(topic, 9, 51..61, b"")]).expect("no crash");
    assert!(rig.take_deliveries().is_empty());
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 2, 71, 100)]).expect("no crash");
    let again = rig.take_deliveries();
    assert_eq!(again.iter().map(number_of).collect::<BTreeSet<_>>(), (1..61).collect());
    for delivery in &again {
        assert_eq!((delivery.cause, delivery.attempt.get()), (Cause::First, 1), "a path of its own");
        assert!(delivery.delivery_id > old, "P10");
    }
    // Handles of the old group settle nothing of the new one.
    let late = rig.ask(CONNECTION, vec![settle(2, &more[0], SettleKind::Ack)]).expect("no crash");
    assert!(matches!(&late[0].result, Ok(Answer::Settled(codes)) if codes[0] != SettleCode::Done), "{late:?}");
    assert_eq!(books(&mut rig).expect("no crash"), [60, 0, 0, 60]);
}

#[test]
fn p2_an_act_on_what_does_not_exist_changes_nothing_and_says_so() {
    let mut rig = rig();
    rig.declare("orders", 2).expect("no crash");
    let refused = |rig: &mut Rig, act| {
        let failure = rig.act(act).expect("no crash").result.expect_err("it does not exist");
        assert_eq!(failure.outcome, Outcome::Refused);
        failure.code
    };
    assert_eq!(refused(&mut rig, purge()), ErrorCode::UnknownGroup);
    assert_eq!(refused(&mut rig, Act::Purge { topic: "ordres".to_owned(), group: None }), ErrorCode::UnknownTopic);
    assert_eq!(refused(&mut rig, seek(SeekTarget::Latest)), ErrorCode::UnknownGroup);
    let all = Act::Purge { topic: "orders".to_owned(), group: None };
    assert_eq!(counts(&rig.act(all.clone()).expect("no crash")), (0, 0), "a topic without groups owes nothing");
    let topic = rig.declare("orders", 2).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 0), subscribe(topic, "audit", 2, 71, 0)])
        .expect("no crash");
    let nowhere = SeekTarget::At(vec![(Partition::new(2), Seq::FIRST)]);
    assert_eq!(refused(&mut rig, seek(nowhere)), ErrorCode::UnknownPartition);
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..11, b"")]).expect("no crash");
    assert_eq!(counts(&rig.act(all).expect("no crash")), (0, 20), "all groups, each in all partitions");
}

#[test]
fn rule_6_an_act_whose_batch_takes_too_long_is_unknown_and_may_be_done_all_the_same() {
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 0), publish(topic, 9, 1..11, b"")]).expect("no crash");
    rig.catch_up().expect("no crash");
    rig.slow = true;
    let query = rig.begin_act(purge()).expect("no crash");
    assert!(!rig.queries.contains_key(&query), "it is not applied yet");
    rig.pass(6000).expect("no crash");
    let failure = rig.queries.remove(&query).expect("nobody waits for ever").result.expect_err("it is not known");
    assert_eq!((failure.code, failure.outcome), (ErrorCode::QuorumLost, Outcome::Unknown));
    assert!(failure.message.contains("look before you ask again"), "{failure:?}");
    rig.slow = false;
    rig.catch_up().expect("no crash");
    assert_eq!(books(&mut rig).expect("no crash"), [10, 0, 10, 0]);
}

#[test]
fn p10_an_act_names_the_command_that_did_it() {
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 0)]).expect("no crash");
    rig.slow = true;
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..2, b"")]).expect("no crash");
    // The journal writes; the act and what comes behind it stand in the next batch.
    let query = rig.begin_act(purge()).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 2..4, b"")]).expect("no crash");
    rig.slow = false;
    rig.catch_up().expect("no crash");
    let reply = rig.queries.remove(&query).expect("answered");
    assert_eq!(counts(&reply), (0, 1));
    let published: Vec<_> =
        rig.replies.remove(&CONNECTION).expect("answered").iter().map(|reply| reply.position).collect();
    assert_eq!(published[1].commit_index, reply.position.commit_index.next());
}

#[test]
fn a_seek_by_time_goes_to_the_first_message_of_each_partition_since_then() {
    let mut rig = rig();
    let topic = rig.declare("orders", 2).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 100)]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 0, 1..11, b"")]).expect("no crash");
    rig.pass(1000).expect("no crash");
    let time = rig.now.wall;
    rig.ask(CONNECTION, vec![publish(topic, 0, 11..17, b"")]).expect("no crash");
    for delivery in rig.take_deliveries() {
        ack(&mut rig, &delivery).expect("no crash");
    }
    let act = |time| Act::SeekTime { topic: "orders".to_owned(), group: "billing".to_owned(), time };
    assert_eq!(counts(&rig.act(act(time)).expect("no crash")), (6, 0));
    let again: BTreeSet<u64> = rig.take_deliveries().iter().map(number_of).collect();
    assert_eq!(again, (11..17).collect());
    let later = time.after_ms(60_000);
    assert_eq!(counts(&rig.act(act(later)).expect("no crash")), (0, 0), "what is leased goes on");
    rig.ask(CONNECTION, vec![Request::Heartbeat { subscription: 1, leave: true }]).expect("no crash");
    assert_eq!(counts(&rig.act(act(later)).expect("no crash")), (0, 6), "nothing is that young");
    let nobody = Act::SeekTime { topic: "orders".to_owned(), group: "audit".to_owned(), time };
    let failure = rig.act(nobody).expect("no crash").result.expect_err("there is no such group");
    assert_eq!(failure.code, ErrorCode::UnknownGroup);
}
