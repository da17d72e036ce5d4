//! What a driver sees of one node: fsyncs, credit, order of answers, restarts.

mod support;

use mortarmq_node::{Answer, Outcome, Query, QueryAnswer, Request};
use mortarmq_shard::{SettleCode, SettleKind};
use mortarmq_storage::{Disk, MemoryDisk};
use mortarmq_types::{Cause, ConnectionId, Partition, Seq};
use mortarmq_wire::ErrorCode;
use support::{CONNECTION, Rig, RigOptions, number_of, publish, settle, settle_named, subscribe};

fn rig() -> Rig {
    let mut rig = Rig::start(&MemoryDisk::new(), RigOptions::default()).expect("a fresh disk");
    rig.connect(CONNECTION);
    rig
}

#[test]
fn one_publish_that_finds_a_waiting_consumer_costs_one_fsync() {
    // Goal: from producer to consumer there is one fsync. Method: count the disk's syncs.
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 10)]).expect("no crash");
    let before = rig.disk.syncs();
    let replies = rig.ask(CONNECTION, vec![publish(topic, 9, 1..2, b"")]).expect("no crash");
    assert!(matches!(replies[0].result, Ok(Answer::Published(_))), "{replies:?}");
    let delivered = rig.take_deliveries();
    assert_eq!((delivered.len(), number_of(&delivered[0])), (1, 1));
    assert_eq!(rig.disk.syncs() - before, 1, "publish and deliver share one fsync");
    let before = rig.disk.syncs();
    rig.ask(CONNECTION, vec![publish(topic, 9, 2..102, b"")]).expect("no crash");
    assert_eq!(rig.disk.syncs() - before, 1, "a hundred publishes share one fsync with their first deliveries");
}

#[test]
fn a_settle_and_the_delivery_it_makes_room_for_share_one_fsync() {
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 1)]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..3, b"")]).expect("no crash");
    let first = rig.take_deliveries();
    assert_eq!(first.len(), 1, "the window is one message");
    let before = rig.disk.syncs();
    rig.ask(CONNECTION, vec![settle(1, &first[0], SettleKind::Ack)]).expect("no crash");
    assert_eq!(number_of(&rig.take_deliveries()[0]), 2);
    assert_eq!(rig.disk.syncs() - before, 1);
}

#[test]
fn answers_come_in_the_order_of_the_requests() {
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    let requests = vec![
        publish(topic, 9, 1..3, b""),
        Request::Metadata { names: vec![] },
        Request::Ping,
        Request::Heartbeat { subscription: 5, leave: false },
        publish(topic, 9, 4..5, b""),
    ];
    let replies = rig.ask(CONNECTION, requests).expect("no crash");
    let codes: Vec<_> = replies.iter().map(|reply| reply.result.as_ref().err().map(|failure| failure.code)).collect();
    assert_eq!(codes, [None, None, None, None, Some(ErrorCode::UnknownMember), Some(ErrorCode::SeqGap)]);
    assert!(matches!(replies[2].result, Ok(Answer::Metadata(_))));
    assert!(matches!(replies[3].result, Ok(Answer::Pong)));
    let indexes: Vec<u64> = replies[..2].iter().map(|reply| reply.position.commit_index.get()).collect();
    assert_eq!(indexes[1], indexes[0] + 1, "each publish has a commit index of its own");
}

#[test]
fn p7_a_silent_member_is_lost_and_another_gets_its_messages_with_the_cause() {
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 10)]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..2, b"")]).expect("no crash");
    let first = rig.take_deliveries();
    rig.node.handle_disconnected(rig.now, CONNECTION);
    let other = ConnectionId::new(2);
    rig.connect(other);
    rig.ask(other, vec![subscribe(topic, "billing", 1, 71, 10)]).expect("no crash");
    rig.pass(9000).expect("no crash");
    rig.ask(other, vec![Request::Heartbeat { subscription: 1, leave: false }]).expect("no crash");
    assert!(rig.take_deliveries().is_empty(), "a broken connection is not the end of a session");
    rig.pass(4000).expect("no crash");
    let again = rig.take_deliveries();
    assert_eq!((again.len(), again[0].cause, again[0].attempt.get()), (1, Cause::ConsumerLost, 2));
    assert_eq!(again[0].previous, first[0].delivery_id);
}

#[test]
fn a_member_that_leaves_gives_back_what_it_holds() {
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 10)]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..2, b"")]).expect("no crash");
    rig.take_deliveries();
    rig.ask(CONNECTION, vec![Request::Heartbeat { subscription: 1, leave: true }]).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 2, 71, 10)]).expect("no crash");
    let again = rig.take_deliveries();
    assert_eq!((again[0].cause, again[0].attempt.get()), (Cause::Released, 1));
}

#[test]
fn a_pull_gets_what_is_there_or_waits_and_ends_empty() {
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 0)]).expect("no crash");
    let pull =
        |max_messages, wait_ms| Request::Pull { subscription: 1, max_messages, max_bytes: 0, min_bytes: 0, wait_ms };
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..4, b"")]).expect("no crash");
    assert!(rig.take_deliveries().is_empty(), "a window of 0 is pushed nothing");
    rig.ask(CONNECTION, vec![pull(2, 0)]).expect("no crash");
    assert_eq!(rig.take_deliveries().len(), 2);
    assert!(matches!(rig.pulls.pop(), Some((_, 1, Ok(2)))));
    rig.ask(CONNECTION, vec![pull(9, 1000)]).expect("no crash");
    assert!(matches!(rig.pulls.pop(), Some((_, 1, Ok(1)))), "what is there ends the wait");
    rig.ask(CONNECTION, vec![pull(9, 1000), pull(9, 1000)]).expect("no crash");
    let Some((_, 1, Err(refused))) = rig.pulls.pop() else { panic!("a second pull is refused") };
    assert_eq!(refused.code, ErrorCode::MaxWaitingPulls);
    rig.pass(1500).expect("no crash");
    assert!(matches!(rig.pulls.pop(), Some((_, 1, Ok(0)))), "nothing came in time");
    rig.take_deliveries();
    rig.ask(CONNECTION, vec![pull(9, 60_000)]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 4..5, b"")]).expect("no crash");
    assert_eq!(rig.take_deliveries().len(), 1, "a parked pull is fed by the publish");
}

#[test]
fn p5_each_command_that_serves_a_pull_has_a_number_of_its_own() {
    // Goal: a pull that waits for more is given more, although the state gives what comes twice under one number the same
    // leases only. Method: a pull of at least 3 bytes, fed by three publishes of one, each of which is delivered at once.
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 0)]).expect("no crash");
    let pull = Request::Pull { subscription: 1, max_messages: 9, max_bytes: 0, min_bytes: 3, wait_ms: 60_000 };
    rig.ask(CONNECTION, vec![pull]).expect("no crash");
    let mut pulls = Vec::new();
    let mut got = Vec::new();
    for seq in 1..4 {
        assert!(rig.pulls.is_empty(), "it waits for 3 bytes");
        rig.ask(CONNECTION, vec![publish(topic, 9, seq..seq + 1, b"")]).expect("no crash");
        got.extend(rig.take_deliveries().iter().map(|delivery| delivery.seq.get()));
        let state = rig.node.shard().state();
        let path = state.paths.values().next().expect("billing");
        let pulled = path.members.values().next().and_then(|member| member.pulled).expect("it leased something");
        pulls.push(pulled.pull_id);
    }
    assert_eq!(got, [1, 2, 3]);
    assert!(matches!(rig.pulls.pop(), Some((_, 1, Ok(3)))));
    assert!(pulls.is_sorted_by(|earlier, later| earlier < later), "{pulls:?}");
}

#[test]
fn a_backlog_beyond_memory_is_delivered_in_order_from_the_disk() {
    // Goal: facts and records that are no longer in memory come from index and segment.
    let options = RigOptions { recent_bytes: 1000, journal_file_bytes: 8 << 20, ..RigOptions::default() };
    let mut rig = Rig::start(&MemoryDisk::new(), options).expect("a fresh disk");
    rig.connect(CONNECTION);
    let topic = rig.declare("orders", 1).expect("no crash");
    for first in (1..3001).step_by(500) {
        rig.ask(CONNECTION, vec![publish(topic, 9, first..first + 500, b"")]).expect("no crash");
    }
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 100)]).expect("no crash");
    let mut numbers = Vec::new();
    while numbers.len() < 3000 {
        let delivered = rig.take_deliveries();
        assert!(!delivered.is_empty(), "after {} messages none came", numbers.len());
        numbers.extend(delivered.iter().map(number_of));
        let acks = delivered.iter().map(|delivery| settle(1, delivery, SettleKind::Ack)).collect();
        rig.ask(CONNECTION, acks).expect("no crash");
    }
    assert!(numbers.iter().copied().eq(1..3001), "each once, in order");
    let Ok(QueryAnswer::Balance(balance)) = rig.query(Query::Balance { topic: None }).expect("no crash").result else {
        panic!("the books are told")
    };
    let books = &balance.paths[0];
    assert_eq!((books.produced, books.delivered, books.depth), (3000, 3000, 0));
}

#[test]
fn a_backlog_in_many_partitions_costs_few_reads_and_few_bytes_of_the_journal() {
    // Goal: what is read once serves several deliveries, and what a delivery carries is about what it leases.
    const PARTITIONS: u16 = 4;
    const MESSAGES: u64 = 4000;
    let options = RigOptions { recent_bytes: 1000, journal_file_bytes: 8 << 20, ..RigOptions::default() };
    let mut rig = Rig::start(&MemoryDisk::new(), options).expect("a fresh disk");
    rig.connect(CONNECTION);
    let topic = rig.declare("orders", PARTITIONS).expect("no crash");
    for first in (1..=MESSAGES).step_by(500) {
        rig.ask(CONNECTION, vec![publish(topic, 9, first..first + 500, b"")]).expect("no crash");
    }
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 100)]).expect("no crash");
    let (mut numbers, mut deliveries) = (Vec::new(), 0);
    let mut last = [Seq::ZERO; PARTITIONS as usize];
    let before_bytes = rig.journal_bytes;
    while (numbers.len() as u64) < MESSAGES {
        let delivered = rig.take_deliveries();
        assert!(!delivered.is_empty(), "after {} messages none came", numbers.len());
        deliveries += 1;
        for delivery in &delivered {
            let last = &mut last[delivery.partition.index()];
            assert!(*last < delivery.seq, "in the order of its partition");
            *last = delivery.seq;
        }
        numbers.extend(delivered.iter().map(number_of));
        let acks = delivered.iter().map(|delivery| settle(1, delivery, SettleKind::Ack)).collect();
        rig.ask(CONNECTION, acks).expect("no crash");
    }
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(1..=MESSAGES), "each once");
    assert!(rig.record_reads * 4 <= deliveries, "{} reads for {deliveries} deliveries", rig.record_reads);
    // An ack of its own and a fact take about 80 bytes.
    let bytes = (rig.journal_bytes - before_bytes) / MESSAGES;
    assert!(bytes < 160, "{bytes} bytes for each message");
}

#[test]
fn p6_after_a_restart_acks_stay_final_leases_live_on_and_the_books_balance() {
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 4)]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..7, b"")]).expect("no crash");
    let held = rig.take_deliveries();
    rig.ask(CONNECTION, vec![settle(1, &held[0], SettleKind::Ack)]).expect("no crash");
    let last_delivery = rig.take_deliveries()[0].delivery_id;
    let options = RigOptions { now: rig.now, ..RigOptions::default() };
    let mut rig = Rig::start(&rig.disk.after_process_kill(), options).expect("a clean journal");
    rig.connect(CONNECTION);
    // A retried publish is the same publish, also after the restart.
    let replies = rig.ask(CONNECTION, vec![publish(topic, 9, 6..7, b"")]).expect("no crash");
    let Ok(Answer::Published(published)) = &replies[0].result else { panic!("{replies:?}") };
    assert_eq!((published.seq, published.deduplicated), (Seq::new(6), true));
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 71, 100)]).expect("no crash");
    let fresh = rig.take_deliveries();
    assert_eq!(fresh.iter().map(number_of).collect::<Vec<_>>(), [6], "leases of the lost process live on (P5)");
    assert!(fresh[0].delivery_id > last_delivery, "P10");
    // A handle of the former process settles on any connection.
    let settle = settle_named(1, Partition::ZERO, held[1].seq, held[1].delivery_id, SettleKind::Ack);
    let replies = rig.ask(CONNECTION, vec![settle]).expect("no crash");
    assert!(matches!(&replies[0].result, Ok(Answer::Settled(codes)) if codes == &[SettleCode::Done]));
    for _ in 0..6 {
        rig.pass(3000).expect("no crash");
        rig.ask(CONNECTION, vec![Request::Heartbeat { subscription: 1, leave: false }]).expect("no crash");
    }
    let again: Vec<(u64, Cause)> =
        rig.take_deliveries().iter().map(|delivery| (number_of(delivery), delivery.cause)).collect();
    assert_eq!(again, [3, 4, 5].map(|number| (number, Cause::ConsumerLost)), "neither 1 nor 2 comes again (P6)");
}

#[test]
fn p7_a_trace_tells_the_whole_life_of_a_message() {
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 4)]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..2, b"")]).expect("no crash");
    let first = rig.take_deliveries();
    let nack = SettleKind::Nack { delay_ms: 1, error: "no such customer".to_owned() };
    rig.ask(CONNECTION, vec![settle(1, &first[0], nack)]).expect("no crash");
    rig.pass(100).expect("no crash");
    let second = rig.take_deliveries();
    rig.ask(CONNECTION, vec![settle(1, &second[0], SettleKind::Extend), settle(1, &second[0], SettleKind::Ack)])
        .expect("no crash");
    let trace = |seq| Query::Trace { topic: "orders".to_owned(), partition: Partition::ZERO, seq: Seq::new(seq) };
    let Ok(QueryAnswer::Trace(view)) = rig.query(trace(1)).expect("no crash").result else { panic!("a trace") };
    let rows: Vec<_> = view.events.iter().map(|event| (event.stage, event.cause, event.detail.as_str())).collect();
    let follows = format!("follows delivery {}", first[0].delivery_id);
    assert_eq!(rows[0].0, "stored");
    assert_eq!(
        rows[1..],
        [
            ("leased", Some("first"), ""),
            ("lease_ended", Some("nacked"), "no such customer"),
            ("leased", Some("nacked"), follows.as_str()),
            ("extended", None, ""),
            ("acked", None, ""),
        ]
    );
    assert_eq!(view.standing[0].standing, "acked");
    let refused = rig.query(trace(2)).expect("no crash").result.expect_err("there is no message 2");
    assert_eq!((refused.code, refused.outcome), (ErrorCode::UnknownPartition, Outcome::Refused));
}

#[test]
fn p8_p11_a_rotten_record_is_not_served_and_its_key_waits_while_all_else_goes_on() {
    // Method: flip a byte of the first message's record in its segment, with nothing kept in memory.
    let options = RigOptions { recent_bytes: 0, ..RigOptions::default() };
    let mut rig = Rig::start(&MemoryDisk::new(), options).expect("a fresh disk");
    rig.connect(CONNECTION);
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..4, b"anna")]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 4..6, b"")]).expect("no crash");
    let folder = std::path::PathBuf::from(format!("data/topics/{}/0", topic.to_hex()));
    let names = rig.disk.list(&folder).expect("the partition has files");
    let segment = names.iter().find(|name| name.ends_with(".segment")).expect("a segment");
    let file = rig.disk.open(&folder.join(segment)).expect("it can be opened");
    let mut bytes = vec![0; usize::try_from(file.len().expect("a length")).expect("small")];
    file.read_exact_at(&mut bytes, 0).expect("it can be read");
    let at = bytes.windows(4).position(|window| window == b"anna").expect("the key of the first message");
    file.write_all_at(&[bytes[at] ^ 1], at as u64).expect("it can be written");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 10)]).expect("no crash");
    rig.pass(5000).expect("no crash");
    let mut numbers: Vec<u64> = rig.take_deliveries().iter().map(number_of).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [4, 5], "neither the rotten message nor those behind it in its key");
    assert!(rig.node.gauges().unreadable > 0);
}

#[test]
fn a_congested_connection_is_leased_nothing_more_until_it_keeps_up() {
    // Failure rule 9: what a slow reader does not take is neither leased to it nor read for it.
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 100)]).expect("no crash");
    rig.node.handle_congestion(rig.now, CONNECTION, true);
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..4, b"")]).expect("no crash");
    assert!(rig.take_deliveries().is_empty());
    let other = ConnectionId::new(2);
    rig.connect(other);
    rig.ask(other, vec![subscribe(topic, "billing", 1, 71, 1)]).expect("no crash");
    assert_eq!(rig.take_deliveries().len(), 1, "another member goes on");
    rig.node.handle_congestion(rig.now, CONNECTION, false);
    rig.pump().expect("no crash");
    assert_eq!(rig.take_deliveries().len(), 2, "the rest comes once it keeps up");
}

#[test]
fn a_question_about_any_sequence_is_answered() {
    // One GET with the largest number stopped the node: a position was counted on from what the client gave.
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..4, b"")]).expect("no crash");
    for seq in [0, 1, 3, 4, u64::MAX - 1, u64::MAX] {
        let (topic, partition, seq) = ("orders".to_owned(), Partition::ZERO, Seq::new(seq));
        let peek = Query::Peek { topic: topic.clone(), partition, from: seq, max: u32::MAX };
        let Ok(QueryAnswer::Peek(view)) = rig.query(peek).expect("no crash").result else { panic!("a peek") };
        assert_eq!(view.messages.is_empty(), seq > Seq::new(3));
        let trace = rig.query(Query::Trace { topic, partition, seq }).expect("no crash").result;
        assert_eq!(trace.is_ok(), (1..=3).contains(&seq.get()));
    }
}

#[test]
fn a_group_that_comes_while_the_segment_writer_is_behind_is_served_from_memory() {
    // Failure rule 8: without room for segments publishes go on, and so do deliveries of what is in memory.
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.slow = true;
    let mut ask = |request| {
        rig.node.handle_requests(rig.now, CONNECTION, vec![request]);
        for _ in 0..3 {
            rig.pump().expect("no crash");
            rig.finish_journal().expect("no crash");
        }
    };
    ask(publish(topic, 9, 1..4, b""));
    ask(subscribe(topic, "billing", 1, 70, 10));
    rig.pump().expect("no crash");
    let numbers: Vec<u64> = rig.take_deliveries().iter().map(number_of).collect();
    assert_eq!((numbers, rig.index_reads), (vec![1, 2, 3], 0));
}
