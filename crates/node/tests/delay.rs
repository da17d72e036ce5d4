//! Messages that fall due later, and messages that lose their worth, as a driver sees them (P4, P8, P9).

mod support;

use mortarmq_node::{Answer, Query, QueryAnswer, Request, Subscribe};
use mortarmq_shard::{SettleKind, StartPolicy, Times};
use mortarmq_storage::MemoryDisk;
use mortarmq_types::{DropReason, MemberId, Partition, Seq, TopicIncarnation};
use mortarmq_wire::ErrorCode;
use support::{CONNECTION, Rig, RigOptions, number_of, publish, publish_timed, settle};

const DAY_MS: u64 = 86_400_000;

fn rig_with(options: RigOptions) -> (Rig, TopicIncarnation) {
    let mut rig = Rig::start(&MemoryDisk::new(), options).expect("a fresh disk");
    rig.connect(CONNECTION);
    let topic = rig.declare("orders", 1).expect("no crash");
    (rig, topic)
}

/// The same disk after a restart at the rig's own time, in the same boot.
fn restarted(rig: &Rig) -> Rig {
    let mut rig = Rig::start(&rig.disk.clone(), RigOptions { now: rig.now, ..RigOptions::default() }).expect("a stop");
    rig.connect(CONNECTION);
    rig
}

/// Joins with a session that outlives the pauses of these tests.
fn join(rig: &mut Rig, topic: TopicIncarnation, group: &str, subscription: u16, window: u16) {
    let subscribe = Subscribe {
        topic,
        group: group.to_owned(),
        start: StartPolicy::Earliest,
        credit_messages: window,
        credit_bytes: u32::MAX,
        options: r#"{"session_ms":600000}"#.to_owned(),
        subscription,
        member: MemberId::new(u64::from(subscription)),
        secret: 1,
    };
    let replies = rig.ask(CONNECTION, vec![Request::Subscribe(subscribe)]).expect("no crash");
    assert!(matches!(replies[0].result, Ok(Answer::Subscribed { .. })), "{replies:?}");
}

fn send(rig: &mut Rig, topic: TopicIncarnation, number: u64, key: &[u8], delay_ms: u64, ttl_ms: u64) {
    let request = publish_timed(topic, 0, number..number + 1, key, Times { delay_ms, ttl_ms });
    let replies = rig.ask(CONNECTION, vec![request]).expect("no crash");
    assert!(matches!(replies[0].result, Ok(Answer::Published(_))), "{replies:?}");
}

/// Waits with heartbeats, and gives the numbers that came, in order.
fn come_within(rig: &mut Rig, subscription: u16, ms: u64) -> Vec<u64> {
    let end = rig.now.monotonic.after_ms(ms);
    while rig.now.monotonic < end {
        rig.pass(end.since_ms(rig.now.monotonic).min(100_000)).expect("no crash");
        rig.ask(CONNECTION, vec![Request::Heartbeat { subscription, leave: false }]).expect("no crash");
    }
    rig.take_deliveries().iter().map(number_of).collect()
}

fn ack_all(rig: &mut Rig, subscription: u16) -> Vec<u64> {
    let mut acked = Vec::new();
    loop {
        let deliveries = rig.take_deliveries();
        if deliveries.is_empty() {
            return acked;
        }
        for delivery in deliveries {
            acked.push(number_of(&delivery));
            rig.ask(CONNECTION, vec![settle(subscription, &delivery, SettleKind::Ack)]).expect("no crash");
        }
    }
}

fn delayed(rig: &Rig) -> usize {
    rig.node.shard().state().topics.values().map(|topic| topic.partitions[0].schedule.len()).sum()
}

fn passes_of(others: u64) {
    // Goal: a message that is delayed for long holds back neither its key nor the position, and costs its path no entry.
    // Method: as many others of its key pass it, some of them while an earlier one is unsettled; then its day comes.
    let options = RigOptions { recent_bytes: 1 << 16, journal_file_bytes: 8 << 20, ..RigOptions::default() };
    let (mut rig, topic) = rig_with(options);
    join(&mut rig, topic, "billing", 1, 1000);
    send(&mut rig, topic, 0, b"k", DAY_MS, 0);
    let mut came = 0;
    for first in (1..=others).step_by(500) {
        rig.ask(CONNECTION, vec![publish(topic, 0, first..first + 500, b"k")]).expect("no crash");
        let deliveries = rig.take_deliveries();
        let (first, last) = (&deliveries[0], &deliveries[deliveries.len() - 1]);
        assert_eq!(number_of(first), came + 1);
        let count = u32::try_from(deliveries.len()).expect("small");
        assert_eq!(number_of(last), came + u64::from(count), "P8: in order, and all but the delayed one");
        let (first_seq, first_delivery, kind) = (first.seq, first.delivery_id, SettleKind::Ack);
        let item = mortarmq_shard::SettleItem { partition: Partition::ZERO, first_seq, first_delivery, count, kind };
        rig.ask(CONNECTION, vec![Request::Settle { subscription: 1, items: vec![item] }]).expect("no crash");
        came += u64::from(count);
    }
    assert_eq!(came, others);
    let state = rig.node.shard().state();
    let path = state.paths.values().next().expect("the group");
    assert_eq!((path.partitions[0].passed_over(), path.partitions[0].delayed()), (0, 1));
    assert_eq!((state.books(path).delivered, state.books(path).depth), (others, 1), "P9");
    assert_eq!(come_within(&mut rig, 1, DAY_MS - 1), [0_u64; 0]);
    assert_eq!(come_within(&mut rig, 1, 1), [0], "and not a millisecond later");
}

#[test]
fn p4_a_message_delayed_for_a_day_stops_nobody() {
    passes_of(support::backlog());
}

#[test]
fn p4_messages_come_in_the_order_of_their_due_times_and_sequences() {
    let (mut rig, topic) = rig_with(RigOptions::default());
    join(&mut rig, topic, "billing", 1, 100);
    for (number, delay_ms) in [(1, 5000), (2, 1000), (3, 3000), (4, 1000), (5, 5000), (6, 0)] {
        send(&mut rig, topic, number, b"", delay_ms, 0);
    }
    assert_eq!(come_within(&mut rig, 1, 6000), [6, 2, 4, 3, 1, 5]);
    // Nobody asks for a while: what fell due meanwhile comes in the same order.
    let (mut rig, topic) = rig_with(RigOptions::default());
    for (number, delay_ms) in [(1, 5000), (2, 1000), (3, 3000), (4, 1000), (5, 5000), (6, 0)] {
        send(&mut rig, topic, number, b"", delay_ms, 0);
    }
    join(&mut rig, topic, "billing", 1, 1);
    assert_eq!(come_within(&mut rig, 1, 6000), [6]);
    let mut order = Vec::new();
    let held = rig.node.shard().state().paths.values().next().expect("the group").partitions[0].unsettled().next();
    let (seq, delivery_id) = held.map(|(seq, entry)| (seq, entry.lease().expect("6").delivery_id)).expect("6");
    let ack = support::settle_named(1, Partition::ZERO, seq, delivery_id, SettleKind::Ack);
    rig.ask(CONNECTION, vec![ack]).expect("no crash");
    while let [delivery] = &rig.take_deliveries()[..] {
        order.push(number_of(delivery));
        rig.ask(CONNECTION, vec![settle(1, delivery, SettleKind::Ack)]).expect("no crash");
    }
    assert_eq!(order, [2, 4, 3, 1, 5]);
}

#[test]
fn p8_a_message_joins_its_key_when_it_is_due_while_an_earlier_one_is_leased() {
    let (mut rig, topic) = rig_with(RigOptions::default());
    join(&mut rig, topic, "billing", 1, 1);
    send(&mut rig, topic, 1, b"k", 0, 0);
    send(&mut rig, topic, 2, b"k", 1000, 0);
    send(&mut rig, topic, 3, b"k", 0, 0);
    let first = rig.take_deliveries().remove(0);
    join(&mut rig, topic, "billing", 2, 100);
    assert_eq!(come_within(&mut rig, 1, 2000), [0_u64; 0], "2 is due and waits for 1, as 3 does");
    rig.ask(CONNECTION, vec![Request::Heartbeat { subscription: 2, leave: false }]).expect("no crash");
    rig.ask(CONNECTION, vec![settle(1, &first, SettleKind::Ack)]).expect("no crash");
    let next: Vec<u64> = rig.take_deliveries().iter().map(number_of).collect();
    assert!(next == [2] || next == [2, 3], "its place is before 3: {next:?}");
}

#[test]
fn p4_a_group_that_comes_later_waits_for_what_is_delayed() {
    let (mut rig, topic) = rig_with(RigOptions::default());
    join(&mut rig, topic, "billing", 1, 100);
    send(&mut rig, topic, 1, b"", 5000, 0);
    send(&mut rig, topic, 2, b"", 0, 0);
    assert_eq!(ack_all(&mut rig, 1), [2]);
    join(&mut rig, topic, "audit", 2, 100);
    assert_eq!(ack_all(&mut rig, 2), [2]);
    assert_eq!(come_within(&mut rig, 1, 4000), [0_u64; 0]);
    rig.pass(1000).expect("no crash");
    assert_eq!(rig.take_deliveries().iter().map(number_of).collect::<Vec<_>>(), [1, 1], "one for each group");
    assert_eq!(delayed(&rig), 0);
}

#[test]
fn p4_a_restart_delivers_nothing_early_and_forgets_nothing() {
    for from_checkpoint in [false, true] {
        let (mut rig, topic) = rig_with(RigOptions::default());
        join(&mut rig, topic, "billing", 1, 100);
        send(&mut rig, topic, 1, b"k", 20_000, 0);
        send(&mut rig, topic, 2, b"", 10_000, 0);
        send(&mut rig, topic, 3, b"", 0, 0);
        send(&mut rig, topic, 4, b"", 60_000, 30_000);
        assert_eq!(ack_all(&mut rig, 1), [3]);
        rig.pass(4000).expect("no crash");
        if from_checkpoint {
            rig.node.handle_checkpoint_wanted(rig.now);
            rig.pump().expect("no crash");
        }
        let before = rig.node.shard().state().clone();
        let mut rig = restarted(&rig);
        assert_eq!(rig.from_checkpoint, from_checkpoint);
        assert_eq!(rig.node.shard().state().topics, before.topics);
        join(&mut rig, topic, "billing", 2, 100);
        assert_eq!(come_within(&mut rig, 2, 5999), [0_u64; 0]);
        rig.pass(1).expect("no crash");
        assert_eq!(ack_all(&mut rig, 2), [2]);
        assert_eq!(come_within(&mut rig, 2, 9999), [0_u64; 0]);
        rig.pass(1).expect("no crash");
        assert_eq!(ack_all(&mut rig, 2), [1]);
        assert_eq!(come_within(&mut rig, 2, 60_000), [0_u64; 0], "4 has expired before it was due");
        let state = rig.node.shard().state();
        let path = state.paths.values().next().expect("the group");
        assert_eq!(path.partitions[0].dropped_by(DropReason::Ttl), 1);
    }
}

#[test]
fn p4_time_in_which_the_process_was_away_counts_for_delays_and_lives_within_a_boot() {
    let (mut rig, topic) = rig_with(RigOptions::default());
    send(&mut rig, topic, 1, b"", 600_000, 0);
    send(&mut rig, topic, 2, b"", 0, 600_000);
    send(&mut rig, topic, 3, b"", 0, 0);
    for (boot, away_ms, came) in [(1, 599_000, vec![2, 3]), (1, 601_000, vec![3, 1]), (2, 601_000, vec![2, 3])] {
        let mut now = rig.now;
        now.monotonic = now.monotonic.after_ms(away_ms);
        let disk = rig.disk.after_power_loss(7);
        let mut rig = Rig::start(&disk, RigOptions { boot, now, ..RigOptions::default() }).expect("a stop");
        rig.connect(CONNECTION);
        join(&mut rig, topic, "billing", 1, 100);
        let mut deliveries: Vec<u64> = rig.take_deliveries().iter().map(number_of).collect();
        deliveries.sort_unstable();
        let mut came = came;
        came.sort_unstable();
        assert_eq!(deliveries, came, "boot {boot}, away for {away_ms} ms");
    }
}

#[test]
fn p2_more_delayed_messages_than_may_wait_are_refused_and_nothing_is_stored() {
    let (mut rig, topic) = rig_with(RigOptions { max_delayed_per_partition: 10, ..RigOptions::default() });
    join(&mut rig, topic, "billing", 1, 100);
    let late = Times { delay_ms: 1000, ttl_ms: 0 };
    let replies = rig.ask(CONNECTION, vec![publish_timed(topic, 9, 1..13, b"", late)]).expect("no crash");
    assert!(replies[..10].iter().all(|reply| matches!(reply.result, Ok(Answer::Published(_)))));
    for (reply, code) in replies[10..].iter().zip([ErrorCode::Backpressure, ErrorCode::SeqGap]) {
        let failure = reply.result.as_ref().expect_err("it is refused");
        assert_eq!((failure.code, failure.outcome), (code, mortarmq_node::Outcome::Refused), "{failure:?}");
        assert_eq!(failure.retry_after_ms > 0, code == ErrorCode::Backpressure);
    }
    let state = rig.node.shard().state();
    assert_eq!(state.topics[&topic].partitions[0].last_seq, Seq::new(10));
    assert_eq!(come_within(&mut rig, 1, 1000), (1..11).collect::<Vec<_>>());
    let replies = rig.ask(CONNECTION, vec![publish_timed(topic, 9, 11..13, b"", late)]).expect("no crash");
    assert!(replies.iter().all(|reply| matches!(reply.result, Ok(Answer::Published(_)))), "its numbers are free");
}

#[test]
fn p4_what_expired_is_dropped_and_counted_and_its_life_tells_so() {
    let (mut rig, topic) = rig_with(RigOptions::default());
    send(&mut rig, topic, 1, b"", 0, 1000);
    send(&mut rig, topic, 2, b"", 0, 90_000);
    send(&mut rig, topic, 3, b"", DAY_MS, 0);
    rig.pass(1000).expect("no crash");
    join(&mut rig, topic, "billing", 1, 1);
    let first = rig.take_deliveries().remove(0);
    assert_eq!(number_of(&first), 2, "1 expired before it could be offered");
    let progress = |delivery| settle(1, delivery, SettleKind::Extend);
    for _ in 0..5 {
        rig.pass(20_000).expect("no crash");
        rig.ask(CONNECTION, vec![progress(&first)]).expect("no crash");
    }
    rig.ask(CONNECTION, vec![settle(1, &first, SettleKind::Ack)]).expect("no crash");
    let standing = |rig: &mut Rig, seq| {
        let (topic, partition, seq) = ("orders".to_owned(), Partition::ZERO, Seq::new(seq));
        let reply = rig.query(Query::Trace { topic, partition, seq }).expect("no crash");
        let Ok(QueryAnswer::Trace(view)) = reply.result else { panic!("a trace") };
        let stages: Vec<_> = view.events.iter().map(|event| (event.stage, event.cause)).collect();
        (stages, view.standing[0].standing)
    };
    assert_eq!(standing(&mut rig, 1), (vec![("stored", None), ("dropped", Some("ttl"))], "dropped"));
    let (stages, last) = standing(&mut rig, 2);
    assert_eq!((stages.last(), last), (Some(&("acked", None)), "acked"), "a leased message finishes its lease");
    assert_eq!(standing(&mut rig, 3), (vec![("stored", None)], "scheduled"));
    let Ok(QueryAnswer::Stats(stats)) = rig.query(Query::Stats { topic: None }).expect("no crash").result else {
        panic!("stats")
    };
    let group = &stats.topics[0].groups[0];
    assert_eq!((group.produced, group.delivered, group.dropped, group.depth), (3, 1, 1, 1), "P9");
    assert_eq!((group.dropped_by.get("ttl"), group.scheduled, group.partitions[0].floor), (Some(&1), 1, 3));
}

fn drops_of(messages: u64) {
    // Goal: no command drops more than 1,024 messages, and nothing else is needed to get through them. Method: a topic whose
    // messages have all expired when a consumer comes; the indices of the commands and the books tell.
    let options = RigOptions { recent_bytes: 1 << 16, journal_file_bytes: 8 << 20, ..RigOptions::default() };
    let mut rig = Rig::start(&MemoryDisk::new(), options).expect("a fresh disk");
    rig.connect(CONNECTION);
    let declare =
        Request::Declare { name: "orders".to_owned(), partitions: 1, options: r#"{"ttl_ms":1000}"#.to_owned() };
    let replies = rig.ask(CONNECTION, vec![declare]).expect("no crash");
    let Ok(Answer::Declared { topic, .. }) = replies[0].result else { panic!("{replies:?}") };
    for first in (0..messages).step_by(1000) {
        rig.ask(CONNECTION, vec![publish(topic, 0, first..first + 1000, b"k")]).expect("no crash");
    }
    rig.pass(1000).expect("no crash");
    let before = rig.node.shard().state().commit_index;
    join(&mut rig, topic, "billing", 1, 1);
    let state = rig.node.shard().state();
    let books = state.books(state.paths.values().next().expect("the group"));
    assert_eq!((books.dropped, books.depth), (messages, 0));
    let commands = state.commit_index.above(before);
    assert!(commands >= messages.div_ceil(1024), "{commands} commands dropped {messages} messages");
    assert!(commands <= messages / 500, "{commands} commands for {messages} messages");
    send(&mut rig, topic, 7, b"k", 0, 0);
    assert_eq!(ack_all(&mut rig, 1), [7]);
}

#[test]
fn p4_an_expired_backlog_is_dropped_a_thousand_at_a_time() {
    drops_of(support::backlog());
}
