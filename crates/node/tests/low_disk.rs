//! Failure rule 8 from the node's side: publishes are refused while room is short, everything else goes on.

mod support;

use mortarmq_node::{Answer, DiskState, ErrorCode, Failure, Outcome, Query, QueryAnswer, Request};
use mortarmq_shard::{SettleCode, SettleKind};
use mortarmq_storage::MemoryDisk;
use mortarmq_types::{Cause, ConnectionId, Partition, Seq};
use support::{CONNECTION, Rig, RigOptions, number_of, publish, settle, subscribe};

const LOW: DiskState = DiskState { is_low: true, free_bytes: 3 << 20 };
const FINE: DiskState = DiskState { is_low: false, free_bytes: 9 << 30 };
const TIMEOUT_MS: u64 = 5000;

fn rig_with(options: RigOptions) -> Rig {
    let mut rig = Rig::start(&MemoryDisk::new(), options).expect("a fresh disk");
    rig.connect(CONNECTION);
    rig
}

fn rig() -> Rig {
    rig_with(RigOptions::default())
}

/// Tells the node how the disk stands.
fn tell(rig: &mut Rig, disk: DiskState) {
    rig.node.handle_disk(rig.now, disk);
    rig.pump().expect("no crash");
}

fn ask(rig: &mut Rig, request: Request) -> Vec<Result<Answer, Failure>> {
    let replies = rig.ask(CONNECTION, vec![request]).expect("no crash");
    replies.into_iter().map(|reply| reply.result).collect()
}

fn codes(results: &[Result<Answer, Failure>]) -> Vec<(ErrorCode, Outcome)> {
    let failure = |result: &Result<Answer, Failure>| match result {
        Err(failure) => (failure.code, failure.outcome),
        Ok(answer) => panic!("not refused: {answer:?}"),
    };
    results.iter().map(failure).collect()
}

fn is_acked(results: &[Result<Answer, Failure>]) -> bool {
    matches!(results, [Ok(Answer::Settled(codes))] if codes[..] == [SettleCode::Done])
}

#[test]
fn rule_8_publishes_are_refused_while_room_is_short_and_all_else_goes_on() {
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    ask(&mut rig, publish(topic, 9, 1..11, b""));
    tell(&mut rig, LOW);
    let refused = ask(&mut rig, publish(topic, 9, 11..14, b""));
    assert_eq!(codes(&refused), [(ErrorCode::StorageHighWatermark, Outcome::Refused); 3], "P2");
    let Err(failure) = &refused[0] else { panic!("refused") };
    assert!(failure.retry_after_ms > 0 && failure.message.contains("3 MiB free"), "{failure:?}");
    assert!(failure.message.contains("delete topics"), "it says what to do: {}", failure.message);
    ask(&mut rig, subscribe(topic, "billing", 1, 70, 4));
    let mut acked = 0;
    while acked < 10 {
        let deliveries = rig.take_deliveries();
        assert!(!deliveries.is_empty(), "deliveries go on behind {acked}");
        for delivery in deliveries {
            assert!(is_acked(&ask(&mut rig, settle(1, &delivery, SettleKind::Ack))), "acks go on");
            acked += 1;
        }
    }
    let other = rig.declare("other", 1).expect("topics can be made");
    assert!(matches!(
        ask(&mut rig, Request::Delete { name: "other".to_owned() })[..],
        [Ok(Answer::Deleted { existed: true })]
    ));
    assert!(!rig.node.shard().state().topics.contains_key(&other));
    tell(&mut rig, FINE);
    let stored = ask(&mut rig, publish(topic, 9, 11..14, b""));
    let seqs: Vec<u64> = stored
        .iter()
        .map(|result| match result {
            Ok(Answer::Published(published)) if !published.deduplicated => published.seq.get(),
            other => panic!("publishes go on with the same numbers: {other:?}"),
        })
        .collect();
    assert_eq!(seqs, [11, 12, 13], "P2: nothing that was refused was stored");
}

#[test]
fn rule_8_a_publish_that_waits_for_its_batch_is_refused_when_room_becomes_short() {
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.slow = true;
    let other = ConnectionId::new(2);
    rig.connect(other);
    // The first is with the journal, the second fills the next batch, the third waits behind it.
    rig.node.handle_requests(rig.now, CONNECTION, vec![publish(topic, 1, 1..2, b"")]);
    rig.pump().expect("no crash");
    rig.node.handle_requests(rig.now, CONNECTION, vec![publish(topic, 2, 1..60_000, b"")]);
    rig.node.handle_requests(rig.now, other, vec![publish(topic, 3, 1..3, b""), Request::Metadata { names: vec![] }]);
    tell(&mut rig, LOW);
    let third = ConnectionId::new(3);
    rig.connect(third);
    let refused = rig.ask(third, vec![publish(topic, 4, 1..2, b"")]).expect("no crash");
    assert_eq!(refused.len(), 1, "one that comes now is refused at once");
    rig.catch_up().expect("no crash");
    let replies = rig.replies.remove(&CONNECTION).unwrap_or_default();
    assert!(replies.len() == 60_000 && replies.iter().all(|reply| reply.result.is_ok()), "what was begun is stored");
    let results: Vec<_> =
        rig.replies.remove(&other).unwrap_or_default().into_iter().map(|reply| reply.result).collect();
    assert_eq!(results.len(), 3);
    assert_eq!(codes(&results[..2]), [(ErrorCode::StorageHighWatermark, Outcome::Refused); 2]);
    assert!(results[2].is_ok());
}

#[test]
fn rule_8_the_node_frees_what_it_can_when_room_becomes_short() {
    let options = RigOptions { journal_keep_bytes: 1 << 40, checkpoint_after_bytes: 1 << 20, ..RigOptions::default() };
    let mut rig = rig_with(options);
    let topic = rig.declare("orders", 1).expect("no crash");
    ask(&mut rig, publish(topic, 9, 1..11, b""));
    assert_eq!((rig.checkpoints, rig.releases.len()), (0, 0));
    tell(&mut rig, LOW);
    assert_eq!(rig.checkpoints, 1, "at once");
    let covered = rig.node.shard().state().commit_index.get();
    assert!(matches!(rig.releases[..], [(log_index, 0, true)] if log_index >= 3), "{:?} {covered}", rig.releases);
    rig.declare("next", 1).expect("no crash");
    tell(&mut rig, DiskState { free_bytes: 1, ..LOW });
    rig.pass(60_000).expect("no crash");
    assert_eq!(rig.checkpoints, 1, "once as long as little happens");
    // As journal gathers, more often than else.
    ask(&mut rig, subscribe(topic, "billing", 1, 70, 1));
    let mut rounds = 0;
    while rig.checkpoints == 1 {
        rounds += 1;
        assert!(rounds < 100, "an eighth of a MiB of journal gathers");
        for delivery in rig.take_deliveries() {
            ask(&mut rig, settle(1, &delivery, SettleKind::Nack { delay_ms: 0, error: Default::default() }));
        }
        rig.pass(100).expect("no crash");
        ask(&mut rig, Request::Heartbeat { subscription: 1, leave: false });
    }
    // The files of a deleted topic go with a checkpoint.
    let before = rig.checkpoints;
    ask(&mut rig, Request::Delete { name: "orders".to_owned() });
    rig.pass(100).expect("no crash");
    assert_eq!(rig.checkpoints, before + 1);
    // A second episode lets journal go that was kept meanwhile.
    tell(&mut rig, FINE);
    rig.releases.clear();
    tell(&mut rig, LOW);
    assert!(matches!(rig.releases.first(), Some((_, 0, true))), "{:?}", rig.releases);
    tell(&mut rig, FINE);
    rig.declare("last", 1).expect("no crash");
    rig.releases.clear();
    rig.node.handle_checkpoint_wanted(rig.now);
    rig.pump().expect("no crash");
    assert!(matches!(rig.releases[..], [(_, keep, false)] if keep == 1 << 40), "{:?}", rig.releases);
}

#[test]
fn rule_8_a_checkpoint_without_room_is_tried_again() {
    let mut rig = rig();
    rig.declare("orders", 1).expect("no crash");
    rig.no_room = true;
    tell(&mut rig, LOW);
    assert_eq!((rig.put_off, rig.node.is_writing_checkpoint()), (1, false));
    rig.pass(4000).expect("no crash");
    assert_eq!(rig.put_off, 1, "not at once");
    rig.pass(2000).expect("no crash");
    assert_eq!(rig.put_off, 2);
    rig.no_room = false;
    rig.pass(6000).expect("no crash");
    assert_eq!((rig.put_off, rig.checkpoints), (2, 1));
}

#[test]
fn rule_6_whoever_waits_behind_a_journal_without_room_is_answered_truthfully() {
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    ask(&mut rig, publish(topic, 9, 1..4, b""));
    ask(&mut rig, subscribe(topic, "billing", 1, 70, 10));
    let deliveries = rig.take_deliveries();
    rig.slow = true;
    let send = |rig: &mut Rig, request| {
        rig.node.handle_requests(rig.now, CONNECTION, vec![request]);
        rig.pump().expect("no crash");
    };
    send(&mut rig, settle(1, &deliveries[0], SettleKind::Ack));
    send(&mut rig, settle(1, &deliveries[1], SettleKind::Ack));
    send(&mut rig, publish(topic, 5, 1..60_000, b""));
    send(&mut rig, settle(1, &deliveries[2], SettleKind::Ack));
    rig.pass(TIMEOUT_MS - 500).expect("no crash");
    assert!(!rig.replies.contains_key(&CONNECTION), "nothing is known yet");
    rig.pass(1000).expect("no crash");
    let results: Vec<_> =
        rig.replies.remove(&CONNECTION).unwrap_or_default().into_iter().map(|reply| reply.result).collect();
    assert_eq!(results.len(), 60_002, "all are answered");
    let known = codes(&results);
    assert_eq!(known[..2], [(ErrorCode::QuorumLost, Outcome::Unknown); 2], "proposed, and in the batch that is next");
    assert_eq!(known[60_001], (ErrorCode::Backpressure, Outcome::Refused), "not in any batch");
    // There is room: what was unknown took effect, what was refused did not.
    rig.slow = false;
    rig.finish_journal().expect("no crash");
    rig.pump().expect("no crash");
    rig.catch_up().expect("no crash");
    assert!(!rig.replies.contains_key(&CONNECTION), "each is answered once");
    let Ok(QueryAnswer::Balance(books)) = rig.query(Query::Balance { topic: None }).expect("no crash").result else {
        panic!("a balance");
    };
    assert_eq!((books.paths[0].delivered, books.paths[0].depth), (2, 60_000), "P9: {books:?}");
    assert!(is_acked(&ask(&mut rig, settle(1, &deliveries[2], SettleKind::Ack))), "it holds its lease still");
}

#[test]
fn p5_no_lease_ends_while_the_journal_waits_for_room() {
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    ask(&mut rig, publish(topic, 9, 1..2, b""));
    ask(&mut rig, subscribe(topic, "billing", 1, 70, 10));
    let delivery = rig.take_deliveries().remove(0);
    rig.slow = true;
    rig.node.handle_requests(rig.now, CONNECTION, vec![publish(topic, 9, 2..3, b"")]);
    rig.pump().expect("no crash");
    for _ in 0..20 {
        rig.pass(5000).expect("no crash");
        rig.node.handle_requests(rig.now, CONNECTION, vec![Request::Heartbeat { subscription: 1, leave: false }]);
        rig.pump().expect("no crash");
    }
    rig.slow = false;
    rig.finish_journal().expect("no crash");
    rig.pump().expect("no crash");
    rig.catch_up().expect("no crash");
    rig.replies.clear();
    let late: Vec<_> = rig.take_deliveries().iter().map(|delivery| (number_of(delivery), delivery.cause)).collect();
    assert_eq!(late, [(2, Cause::First)], "the other did not come again");
    assert!(is_acked(&ask(&mut rig, settle(1, &delivery, SettleKind::Ack))), "100 s into a lease of 30 s");
}

#[test]
fn rule_8_what_is_on_disk_is_delivered_while_the_segment_writer_waits_for_room() {
    let mut rig = rig_with(RigOptions { recent_bytes: 1, ..RigOptions::default() });
    let topic = rig.declare("orders", 1).expect("no crash");
    ask(&mut rig, subscribe(topic, "early", 1, 70, 1000));
    ask(&mut rig, publish(topic, 9, 1..101, b""));
    // Passed by every path, so the state forgets them; written, so the memory does.
    for delivery in rig.take_deliveries() {
        ask(&mut rig, settle(1, &delivery, SettleKind::Ack));
    }
    rig.no_room = true;
    ask(&mut rig, publish(topic, 9, 101..111, b""));
    let other = ConnectionId::new(2);
    rig.connect(other);
    rig.ask(other, vec![subscribe(topic, "late", 1, 71, 1000)]).expect("no crash");
    rig.pass(100).expect("no crash");
    let mut numbers: Vec<u64> =
        rig.deliveries.iter().filter(|(to, ..)| *to == other).map(|(.., message)| number_of(message)).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..111).collect::<Vec<_>>());
    assert!(rig.index_reads > 0, "the state had forgotten them");
}

#[test]
fn rule_8_without_room_for_more_effects_deliveries_wait_and_settles_go_on() {
    let mut rig = rig_with(RigOptions { unwritten_bytes_max: 20_000, ..RigOptions::default() });
    let topic = rig.declare("orders", 1).expect("no crash");
    ask(&mut rig, publish(topic, 9, 1..1001, b""));
    ask(&mut rig, subscribe(topic, "billing", 1, 70, 10));
    let mut held = rig.take_deliveries();
    tell(&mut rig, LOW);
    rig.no_room = true;
    let mut rounds = 0;
    loop {
        for delivery in std::mem::take(&mut held) {
            assert!(is_acked(&ask(&mut rig, settle(1, &delivery, SettleKind::Ack))), "settles are never refused");
        }
        held = rig.take_deliveries();
        if held.is_empty() {
            break;
        }
        rounds += 1;
        assert!(rounds < 100, "deliveries stop before all are delivered");
    }
    let unwritten_bytes = rig.node.gauges().unwritten_bytes;
    assert!((20_000..40_000).contains(&unwritten_bytes), "{unwritten_bytes} bytes wait in memory");
    rig.no_room = false;
    rig.catch_up().expect("no crash");
    rig.pump().expect("no crash");
    assert_eq!((rig.node.gauges().unwritten_bytes, rig.take_deliveries().len()), (0, 10), "then they go on");
}

#[test]
fn rule_8_a_start_without_room_serves_what_it_could_not_write() {
    // Killed with a full disk and started with one: the segments of what the journal holds cannot be written.
    let mut rig = rig_with(RigOptions { no_room: true, ..RigOptions::default() });
    let topic = rig.declare("orders", 1).expect("no crash");
    ask(&mut rig, publish(topic, 9, 1..101, b""));
    ask(&mut rig, subscribe(topic, "billing", 1, 70, 1000));
    let first = rig.take_deliveries().remove(0);
    ask(&mut rig, settle(1, &first, SettleKind::Ack));
    let options = RigOptions { no_room: true, now: rig.now, ..RigOptions::default() };
    let mut rig = Rig::start(&rig.disk.after_process_kill(), options).expect("it starts");
    assert!(rig.left_bytes > 3000, "{} bytes wait", rig.left_bytes);
    tell(&mut rig, LOW);
    rig.connect(CONNECTION);
    assert_eq!(codes(&ask(&mut rig, publish(topic, 9, 101..102, b""))).len(), 1);
    ask(&mut rig, subscribe(topic, "audit", 1, 71, 1000));
    let deliveries = rig.take_deliveries();
    assert_eq!(deliveries.iter().map(number_of).collect::<Vec<_>>(), (1..101).collect::<Vec<_>>());
    for delivery in &deliveries {
        assert!(is_acked(&ask(&mut rig, settle(1, delivery, SettleKind::Ack))));
    }
    assert_eq!(rig.node.gauges().unreadable, 0);
    let unwritten_bytes = rig.node.gauges().unwritten_bytes;
    rig.node.handle_segments_written(rig.now, 1);
    let written_bytes = unwritten_bytes - rig.node.gauges().unwritten_bytes;
    assert_eq!(written_bytes, rig.left_bytes, "what came since is not what the recovery left");
    // There is room: everything is written, and read from there.
    rig.no_room = false;
    rig.catch_up().expect("no crash");
    tell(&mut rig, FINE);
    assert_eq!(rig.node.gauges().unwritten_bytes, 0);
    let trace = Query::Trace { topic: "orders".to_owned(), partition: Partition::ZERO, seq: Seq::new(50) };
    let Ok(QueryAnswer::Trace(life)) = rig.query(trace).expect("no crash").result else { panic!("a trace") };
    assert!(life.events.iter().any(|event| event.stage == "stored"), "{life:?}");
    assert!(life.events.iter().any(|event| event.stage == "acked" && event.path == "orders/audit"), "{life:?}");
}

#[test]
fn rule_8_a_dead_letter_that_waits_for_room_reaches_every_path_once_there_is_some() {
    // Its bytes are in no memory but the segment writer's, and nor is its index entry: also a path that comes when the
    // state has forgotten the message, and so asks the index, must wait for the writer.
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    ask(&mut rig, publish(topic, 9, 1..2, b""));
    ask(&mut rig, subscribe(topic, "billing", 1, 70, 10));
    let dying = rig.take_deliveries().remove(0);
    rig.no_room = true;
    assert!(is_acked(&ask(&mut rig, settle(1, &dying, SettleKind::DeadLetter { error: String::new() }))));
    let dead = rig.node.shard().state().topic_by_name("$dlq.orders").expect("it has dead letters").0;
    ask(&mut rig, subscribe(dead, "default", 2, 71, 10));
    ask(&mut rig, subscribe(dead, "audit", 3, 72, 10));
    rig.pass(1000).expect("no crash");
    assert!(rig.take_deliveries().is_empty(), "nobody has its bytes yet");
    rig.no_room = false;
    rig.catch_up().expect("no crash");
    rig.pass(100).expect("no crash");
    let mut reached: Vec<u16> = rig.deliveries.iter().map(|(_, subscription, _)| *subscription).collect();
    reached.sort_unstable();
    assert_eq!((reached, rig.node.gauges().unreadable), (vec![2, 3], 0));
}

#[test]
fn rule_8_dead_letters_that_a_start_could_not_write_are_not_taken_for_damaged() {
    let mut rig = rig_with(RigOptions { no_room: true, ..RigOptions::default() });
    let topic = rig.declare("orders", 1).expect("no crash");
    ask(&mut rig, publish(topic, 9, 1..2, b""));
    ask(&mut rig, subscribe(topic, "billing", 1, 70, 10));
    let dying = rig.take_deliveries().remove(0);
    assert!(is_acked(&ask(&mut rig, settle(1, &dying, SettleKind::DeadLetter { error: String::new() }))));
    // One more command, so that the settle is not the last entry: that one is applied by the node that leads.
    rig.declare("other", 1).expect("no crash");
    let options = RigOptions { no_room: true, now: rig.now, ..RigOptions::default() };
    let mut rig = Rig::start(&rig.disk.after_process_kill(), options).expect("it starts");
    rig.connect(CONNECTION);
    let dead = rig.node.shard().state().topic_by_name("$dlq.orders").expect("it has dead letters").0;
    ask(&mut rig, subscribe(dead, "default", 2, 71, 10));
    rig.pass(1000).expect("no crash");
    assert_eq!((rig.take_deliveries().len(), rig.node.gauges().unreadable), (0, 0), "its bytes are not made yet");
    rig.no_room = false;
    rig.catch_up().expect("no crash");
    assert_eq!((rig.take_deliveries().len(), rig.node.gauges().unreadable), (1, 0));
}
