//! Retention as a driver sees it: what goes and when, what stays for whom, that the files really go, and that no power loss
//! around a trim loses what is kept or brings back what is gone (P4, P6, P9, P10).

mod support;

use std::collections::BTreeSet;
use std::path::PathBuf;

use mortarmq_node::{Act, Answer, Delivery, DiskState, Query, QueryAnswer, Request, SeekTarget, Subscribe};
use mortarmq_shard::{SettleCode, SettleKind, StartPolicy, Times};
use mortarmq_storage::{Disk, MemoryDisk};
use mortarmq_types::{Cause, DropReason, MemberId, Partition, Seq, TopicIncarnation};
use support::{CONNECTION, Crashed, Rig, RigOptions, number_of, publish, publish_timed, settle, subscribe};

const HOUR_MS: u64 = 3_600_000;
/// Segments of about 40 messages.
const SMALL: RigOptions = RigOptions { segment_bytes: 4096, ..RigOptions::DEFAULT };

fn rig_with(options: RigOptions, settings: &str) -> (Rig, TopicIncarnation) {
    let mut rig = Rig::start(&MemoryDisk::new(), options).expect("a fresh disk");
    rig.connect(CONNECTION);
    let topic = rig.declare_with("orders", 1, settings).expect("no crash");
    (rig, topic)
}

/// Joins with a session and leases that outlive the pauses of these tests.
fn join(rig: &mut Rig, topic: TopicIncarnation, group: &str, subscription: u16, window: u16) {
    let subscribe = Subscribe {
        topic,
        group: group.to_owned(),
        start: StartPolicy::Earliest,
        credit_messages: window,
        credit_bytes: u32::MAX,
        options: r#"{"session_ms":600000,"lease_ms":43200000}"#.to_owned(),
        subscription,
        member: MemberId::new(u64::from(subscription)),
        secret: 1,
    };
    let replies = rig.ask(CONNECTION, vec![Request::Subscribe(subscribe)]).expect("no crash");
    assert!(matches!(replies[0].result, Ok(Answer::Subscribed { .. })), "{replies:?}");
}

/// Time passes, with heartbeats of these subscriptions.
fn pass(rig: &mut Rig, ms: u64, subscriptions: &[u16]) {
    let end = rig.now.monotonic.after_ms(ms);
    while rig.now.monotonic < end {
        rig.pass(end.since_ms(rig.now.monotonic).min(100_000)).expect("no crash");
        for subscription in subscriptions {
            let beat = Request::Heartbeat { subscription: *subscription, leave: false };
            rig.ask(CONNECTION, vec![beat]).expect("no crash");
        }
    }
}

fn store(rig: &mut Rig, topic: TopicIncarnation, numbers: std::ops::Range<u64>) {
    for number in numbers.step_by(10) {
        rig.ask(CONNECTION, vec![publish(topic, 0, number..number + 10, b"")]).expect("no crash");
    }
}

fn ack(rig: &mut Rig, subscription: u16, deliveries: &[Delivery]) {
    for delivery in deliveries {
        let replies = rig.ask(CONNECTION, vec![settle(subscription, delivery, SettleKind::Ack)]).expect("no crash");
        assert!(
            matches!(&replies[0].result, Ok(Answer::Settled(codes)) if codes[0] == SettleCode::Done),
            "{replies:?}"
        );
    }
}

fn checkpoint(rig: &mut Rig) {
    rig.node.handle_checkpoint_wanted(rig.now);
    rig.pump().expect("no crash");
}

fn first_seq(rig: &Rig) -> u64 {
    rig.node.shard().state().topics.values().next().expect("orders").partitions[0].kept.first_seq.get()
}

/// The first sequences of the segments on disk.
fn segments(disk: &MemoryDisk, topic: TopicIncarnation) -> Vec<u64> {
    let names = disk.list(&PathBuf::from("data/topics").join(topic.to_hex()).join("0")).unwrap_or_default();
    let first = |name: &String| name.strip_suffix(".segment").map(|digits| digits.parse().expect("digits"));
    let mut found: Vec<u64> = names.iter().filter_map(first).collect();
    found.sort_unstable();
    found
}

fn bytes_on_disk(disk: &MemoryDisk, topic: TopicIncarnation) -> u64 {
    let folder = PathBuf::from("data/topics").join(topic.to_hex()).join("0");
    let names = disk.list(&folder).unwrap_or_default();
    names.iter().map(|name| disk.open(&folder.join(name)).expect("listed").len().expect("a file")).sum()
}

/// Everything from a sequence on, page by page.
fn peek(rig: &mut Rig, from: u64) -> Vec<u64> {
    let mut all: Vec<u64> = Vec::new();
    loop {
        let from = Seq::new(all.last().map_or(from, |last| last + 1));
        let query = Query::Peek { topic: "orders".to_owned(), partition: Partition::ZERO, from, max: 1000 };
        match rig.query(query).expect("no crash").result {
            Ok(QueryAnswer::Peek(page)) if page.messages.is_empty() => return all,
            Ok(QueryAnswer::Peek(page)) => all.extend(page.messages.iter().map(|message| message.sequence)),
            other => panic!("a peek is answered with messages, not {other:?}"),
        }
    }
}

#[test]
fn p4_p9_messages_go_at_their_age_their_files_too_and_nothing_is_proposed_in_vain() {
    let (mut rig, topic) = rig_with(SMALL, r#"{"retention_ms":3600000}"#);
    join(&mut rig, topic, "billing", 1, 50);
    store(&mut rig, topic, 1..501);
    let deliveries = rig.take_deliveries();
    ack(&mut rig, 1, &deliveries[..20]);
    rig.ask(CONNECTION, vec![Request::Heartbeat { subscription: 1, leave: true }]).expect("no crash");
    rig.take_deliveries();
    let (before, files) = (bytes_on_disk(&rig.disk, topic), segments(&rig.disk, topic));
    assert!(files.len() > 8, "{files:?}");
    let commands = rig.node.position().commit_index;
    pass(&mut rig, HOUR_MS - 2000, &[]);
    assert_eq!((first_seq(&rig), rig.node.position().commit_index), (1, commands), "a little too early");
    pass(&mut rig, 5000, &[]);
    assert_eq!((first_seq(&rig), segments(&rig.disk, topic)), (501, files), "a replay may still need the files");
    pass(&mut rig, 65_000, &[]);
    assert_eq!((rig.checkpoints, segments(&rig.disk, topic).len()), (1, 1), "the newest stays");
    assert!(bytes_on_disk(&rig.disk, topic) * 4 < before);
    let Ok(QueryAnswer::Balance(balance)) = rig.query(Query::Balance { topic: None }).expect("no crash").result else {
        panic!("the books are told")
    };
    let books = &balance.paths[0];
    assert_eq!((books.produced, books.delivered, books.dropped, books.depth), (500, 20, 480, 0));
    let Ok(QueryAnswer::Topic(view)) = rig.query(Query::Topic { name: "orders".to_owned() }).expect("no crash").result
    else {
        panic!("the topic is described")
    };
    let partition = &view.partition_stats[0];
    assert_eq!((partition.first_seq, partition.last_seq, partition.size_bytes), (501, 500, 0));
    assert_eq!(view.settings["retention_ms"], 3_600_000);
    let commands = rig.node.position().commit_index;
    pass(&mut rig, HOUR_MS, &[]);
    assert_eq!((rig.node.position().commit_index, rig.checkpoints), (commands, 1), "nothing is left to do");
    store(&mut rig, topic, 501..511);
    join(&mut rig, topic, "audit", 2, 50);
    assert_eq!(rig.take_deliveries()[0].seq, Seq::new(501));
    assert_eq!(peek(&mut rig, 1), (501..511).collect::<Vec<_>>());
}

#[test]
fn p5_what_a_consumer_holds_stays_with_its_file_until_it_is_done() {
    let (mut rig, topic) = rig_with(RigOptions { recent_bytes: 1, ..SMALL }, r#"{"retention_ms":3600000}"#);
    join(&mut rig, topic, "billing", 1, 2);
    store(&mut rig, topic, 1..201);
    let held = rig.take_deliveries();
    assert_eq!(held.iter().map(number_of).collect::<Vec<_>>(), [1, 2]);
    pass(&mut rig, HOUR_MS + 5000, &[1]);
    checkpoint(&mut rig);
    assert_eq!((first_seq(&rig), segments(&rig.disk, topic)[0]), (201, 1));
    assert!(peek(&mut rig, 1).is_empty(), "nobody else is given it");
    // Another process sends it again, from its file, to the member that resumes.
    let options = RigOptions { now: rig.now, recent_bytes: 1, ..SMALL };
    let mut rig = Rig::start(&rig.disk.after_process_kill(), options).expect("a kill loses nothing written");
    rig.connect(CONNECTION);
    let resume = Subscribe {
        topic,
        group: "billing".to_owned(),
        start: StartPolicy::Earliest,
        credit_messages: 2,
        credit_bytes: u32::MAX,
        options: r#"{"resume":{"member_id":1,"secret":1,"held":[]}}"#.to_owned(),
        subscription: 1,
        member: MemberId::new(999),
        secret: 998,
    };
    rig.ask(CONNECTION, vec![Request::Subscribe(resume)]).expect("no crash");
    let again = rig.take_deliveries();
    assert_eq!(again.iter().map(number_of).collect::<Vec<_>>(), [1, 2], "unchanged");
    ack(&mut rig, 1, &again[..1]);
    let nack = SettleKind::Nack { delay_ms: 0, error: "later".to_owned() };
    rig.ask(CONNECTION, vec![settle(1, &again[1], nack)]).expect("no crash");
    checkpoint(&mut rig);
    assert_eq!(segments(&rig.disk, topic).len(), 1);
    store(&mut rig, topic, 201..211);
    assert_eq!(rig.take_deliveries()[0].seq, Seq::new(201), "2 does not come again");
    let state = rig.node.shard().state();
    let path = state.paths.values().next().expect("billing");
    assert_eq!((state.books(path).delivered, path.partitions[0].dropped_by(DropReason::Retention)), (1, 199));
    assert_eq!(rig.node.gauges().unreadable, 0);
}

#[test]
fn p7_of_a_message_that_is_gone_a_trace_tells_what_is_left() {
    let (mut rig, topic) = rig_with(SMALL, r#"{"retention_ms":3600000}"#);
    join(&mut rig, topic, "billing", 1, 100);
    store(&mut rig, topic, 1..101);
    let deliveries = rig.take_deliveries();
    ack(&mut rig, 1, &deliveries);
    pass(&mut rig, HOUR_MS + 5000, &[1]);
    let trace = |rig: &mut Rig, seq| {
        let query = Query::Trace { topic: "orders".to_owned(), partition: Partition::ZERO, seq: Seq::new(seq) };
        match rig.query(query).expect("no crash").result {
            Ok(QueryAnswer::Trace(life)) => life,
            other => panic!("a trace is answered, not {other:?}"),
        }
    };
    let life = trace(&mut rig, 1);
    assert!(life.events[0].detail.contains("its record is gone: retention keeps this partition from sequence 101 on"));
    assert_eq!(life.standing[0].standing, "gone", "its history went with its file");
    let life = trace(&mut rig, 100);
    assert_eq!(life.standing[0].standing, "acked", "the newest files stay");
    assert!(life.events.iter().any(|event| event.stage == "acked"));
}

#[test]
fn p4_by_bytes_a_partition_keeps_what_is_promised_and_little_more_on_disk() {
    let (mut rig, topic) = rig_with(SMALL, r#"{"retention_bytes":20000,"retention_ms":0}"#);
    for first in (1..3001).step_by(100) {
        store(&mut rig, topic, first..first + 100);
        pass(&mut rig, 1200, &[]);
        let partition = &rig.node.shard().state().topics[&topic].partitions[0];
        assert!(partition.kept_bytes() >= partition.bytes.min(20_000) && partition.kept_bytes() < 21_000);
    }
    checkpoint(&mut rig);
    let kept = peek(&mut rig, 1);
    assert_eq!((kept[0], kept.len() as u64), (first_seq(&rig), 3001 - first_seq(&rig)), "all that is kept is there");
    assert!(segments(&rig.disk, topic)[1] > first_seq(&rig), "whole files, but for the one it begins in");
}

#[test]
fn rule_8_where_room_is_short_what_is_settled_goes_at_once() {
    let (mut rig, topic) = rig_with(SMALL, r#"{"keep_settled":false}"#);
    let other = rig.declare_with("kept", 1, "").expect("no crash");
    join(&mut rig, topic, "billing", 1, 200);
    store(&mut rig, topic, 1..201);
    store(&mut rig, other, 1..201);
    // The turn of retention has just been: the next would come in a second.
    pass(&mut rig, 1100, &[1]);
    let deliveries = rig.take_deliveries();
    ack(&mut rig, 1, &deliveries[..150]);
    assert_eq!(first_seq(&rig), 1);
    rig.node.handle_disk(rig.now, DiskState { is_low: true, free_bytes: 1 << 20 });
    rig.pump().expect("no crash");
    let first = first_seq(&rig);
    assert!(first > 100 && first <= 151, "{first}");
    pass(&mut rig, 100, &[1]);
    assert!(segments(&rig.disk, topic)[1] > first, "with a checkpoint of its own");
    assert_eq!(segments(&rig.disk, other)[0], 1);
    let books = rig.node.shard().state().books(rig.node.shard().state().paths.values().next().expect("billing"));
    assert_eq!((books.dropped, books.depth), (0, 50), "nothing is lost by it");
}

#[test]
fn p12_many_partitions_take_their_turns_and_others_go_on_between() {
    let options = RigOptions { journal_file_bytes: 8 << 20, ..SMALL };
    let (mut rig, _) = rig_with(options, "");
    let many = rig.declare_with("many", 1000, r#"{"retention_ms":3600000}"#).expect("no crash");
    store(&mut rig, many, 1..1001);
    pass(&mut rig, HOUR_MS - 3000, &[]);
    let commands = rig.node.position().commit_index.get();
    pass(&mut rig, 30_000, &[]);
    let topic = &rig.node.shard().state().topics[&many];
    assert!(topic.partitions.iter().all(|partition| partition.kept.first_seq == Seq::new(2)));
    assert_eq!(rig.node.position().commit_index.get() - commands, 1000, "one command each");
}

fn delayed_ones_stop_nobody(count: u64) {
    let options = RigOptions { journal_file_bytes: 64 << 20, ..RigOptions::DEFAULT };
    let (mut rig, topic) = rig_with(options, r#"{"retention_ms":3600000}"#);
    join(&mut rig, topic, "billing", 1, 1000);
    let times = Times { delay_ms: 24 * HOUR_MS, ttl_ms: 0 };
    for first in (1..=count).step_by(1000) {
        rig.ask(CONNECTION, vec![publish_timed(topic, 0, first..first + 1000, b"", times)]).expect("no crash");
    }
    pass(&mut rig, HOUR_MS - 1000, &[1]);
    // A disk that takes its time: what follows is done in batches, one after the other.
    rig.slow = true;
    let (mut batches, mut came) = (0, 0);
    while !rig.node.shard().state().topics[&topic].partitions[0].schedule.is_empty() {
        if batches % 10 == 0 {
            let number = count + 1 + batches / 10;
            rig.ask(CONNECTION, vec![publish(topic, 0, number..number + 1, b"")]).expect("no crash");
        }
        rig.now.monotonic = rig.now.monotonic.after_ms(5);
        rig.node.handle_tick(rig.now);
        rig.pump().expect("no crash");
        rig.finish_one(0).expect("no crash");
        rig.finish_one(1).expect("no crash");
        came += rig.take_deliveries().len() as u64;
        batches += 1;
        if batches % 100 == 0 {
            rig.ask(CONNECTION, vec![Request::Heartbeat { subscription: 1, leave: false }]).expect("no crash");
        }
        assert!(came + 3 >= batches / 10, "{came} came in {batches} batches");
    }
    rig.catch_up().expect("no crash");
    assert!(batches * 2048 >= count, "each takes a bounded part");
    let state = rig.node.shard().state();
    let path = state.paths.values().next().expect("billing");
    assert_eq!(path.partitions[0].dropped_by(DropReason::Retention), count);
    assert_eq!(state.books(path).difference(), 0);
}

#[test]
fn p4_delayed_messages_that_go_stop_nobody() {
    delayed_ones_stop_nobody(support::backlog());
}

const KEEP_BYTES: u64 = 3000;
const BY_BYTES: &str = r#"{"retention_bytes":3000,"max_attempts":0}"#;

/// What the clients saw. The topic has one partition, so a message's number is its sequence.
#[derive(Default)]
struct Record {
    topic: TopicIncarnation,
    sent: u64,
    confirmed: u64,
    /// Acks that were sent, and those that were confirmed.
    excused: BTreeSet<u64>,
    acked: BTreeSet<u64>,
    held: Vec<Delivery>,
    /// How far retention had come, and how many messages it had dropped, when last looked at.
    first_seq: u64,
    trims: u32,
    brought_back: bool,
}

impl Record {
    /// What is granted from here on lies at or above what is kept now.
    fn look(&mut self, rig: &Rig) {
        let first = first_seq(rig);
        assert!(first >= self.first_seq, "P10: {first} is kept, and it was {}", self.first_seq);
        self.trims += u32::from(first > self.first_seq);
        self.first_seq = first;
        let partition = &rig.node.shard().state().topics[&self.topic].partitions[0];
        assert!(partition.kept_bytes() >= partition.bytes.min(KEEP_BYTES), "P4: too much is gone");
    }

    fn publish(&mut self, rig: &mut Rig, to: u64) -> Result<(), Crashed> {
        while self.confirmed < to {
            let number = self.confirmed + 1;
            self.sent = self.sent.max(number);
            let replies = rig.ask(CONNECTION, vec![publish(self.topic, 9, number..number + 1, b"")])?;
            let stored = |answer: &Answer| matches!(answer, Answer::Published(stored) if stored.seq.get() == number);
            assert!(replies[0].result.as_ref().is_ok_and(stored), "P3, P10: {replies:?}");
            self.confirmed = number;
        }
        Ok(())
    }

    /// Takes what came: every fourth is held, every fifth refused, the rest acked.
    fn handle(&mut self, rig: &mut Rig, subscription: u16) -> Result<(), Crashed> {
        // Until nothing is on its way: what comes was granted since retention was last looked at.
        while !rig.deliveries.is_empty() {
            let (_, _, delivery) = rig.deliveries.remove(0);
            let number = number_of(&delivery);
            assert_eq!(delivery.seq.get(), number, "P10: a sequence was given twice");
            assert!(number <= self.sent, "number {number} was never sent");
            assert!(self.brought_back || !self.acked.contains(&number), "P6: {number} was acked, and comes again");
            assert!(
                number >= self.first_seq,
                "P6: {number} comes, and retention had dropped it below {}",
                self.first_seq
            );
            match number {
                _ if number.is_multiple_of(4) => self.held.push(delivery),
                _ if number.is_multiple_of(5) && delivery.cause == Cause::First => {
                    let nack = SettleKind::Nack { delay_ms: 0, error: "later".to_owned() };
                    rig.ask(CONNECTION, vec![settle(subscription, &delivery, nack)])?;
                }
                _ => self.ack(rig, subscription, &delivery)?,
            }
        }
        Ok(())
    }

    fn ack(&mut self, rig: &mut Rig, subscription: u16, delivery: &Delivery) -> Result<(), Crashed> {
        self.excused.insert(number_of(delivery));
        let replies = rig.ask(CONNECTION, vec![settle(subscription, delivery, SettleKind::Ack)])?;
        let done = |answer: &Answer| matches!(answer, Answer::Settled(codes) if codes[0] == SettleCode::Done);
        assert!(replies[0].result.as_ref().is_ok_and(done), "P5: a live lease is acked, not {replies:?}");
        self.acked.insert(number_of(delivery));
        Ok(())
    }

    /// Acks every other one that is held, refuses the rest.
    fn let_go(&mut self, rig: &mut Rig, subscription: u16) -> Result<(), Crashed> {
        for (place, delivery) in std::mem::take(&mut self.held).into_iter().enumerate() {
            if place % 2 == 0 {
                self.ack(rig, subscription, &delivery)?;
            } else {
                rig.ask(CONNECTION, vec![settle(subscription, &delivery, SettleKind::Release)])?;
            }
        }
        Ok(())
    }
}

fn beat(rig: &mut Rig, subscription: u16, ms: u64) -> Result<(), Crashed> {
    rig.pass(ms)?;
    rig.ask(CONNECTION, vec![Request::Heartbeat { subscription, leave: false }]).map(drop)
}

/// Publishes more than is kept, with messages held over trims; checkpoints before, between and behind them.
fn script(rig: &mut Rig, record: &mut Record) -> Result<(), Crashed> {
    rig.connect(CONNECTION);
    record.topic = rig.declare_with("orders", 1, BY_BYTES)?;
    rig.ask(CONNECTION, vec![subscribe(record.topic, "billing", 1, 70, 12)])?;
    for round in 1..=6 {
        record.publish(rig, round * 30)?;
        record.handle(rig, 1)?;
        record.look(rig);
        beat(rig, 1, 1100)?;
        record.handle(rig, 1)?;
        if round % 2 == 0 {
            rig.node.handle_checkpoint_wanted(rig.now);
            rig.pump()?;
            record.let_go(rig, 1)?;
        }
        record.handle(rig, 1)?;
        record.look(rig);
    }
    rig.node.handle_checkpoint_wanted(rig.now);
    rig.pump()
}

/// After the crash: publishes again, consumes all that is left, and looks at everything that is kept.
fn judge(rig: &mut Rig, record: &mut Record) {
    rig.connect(CONNECTION);
    record.topic = rig.declare_with("orders", 1, BY_BYTES).expect("no crash");
    record.look(rig);
    let sent = record.sent;
    record.publish(rig, sent).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(record.topic, "billing", 2, 99, 200)]).expect("no crash");
    for _ in 0..25 {
        record.handle(rig, 2).expect("no crash");
        record.let_go_all(rig).expect("no crash");
        record.handle(rig, 2).expect("no crash");
        record.look(rig);
        beat(rig, 2, 3000).expect("no crash");
    }
    record.look(rig);
    for number in record.first_seq..=record.confirmed {
        assert!(record.excused.contains(&number), "P4: {number} is owed and never came");
    }
    let state = rig.node.shard().state();
    let books = state.books(state.paths.values().next().expect("billing"));
    assert_eq!((books.depth, books.produced), (0, books.delivered + books.dropped), "P9: {books:?}");
    let kept: Vec<u64> = (record.first_seq..=record.confirmed).collect();
    assert_eq!(peek(rig, 1), kept, "P1: all that is kept is there");
    checkpoint(rig);
    let files = segments(&rig.disk, record.topic);
    assert!(files.get(2).is_none_or(|third| *third > record.first_seq), "{files:?} from {} on", record.first_seq);
    rig.node.shard().check();
}

impl Record {
    /// Acks everything that is held by the second consumer.
    fn let_go_all(&mut self, rig: &mut Rig) -> Result<(), Crashed> {
        for delivery in std::mem::take(&mut self.held) {
            // What was held before the crash is another member's, whose leases end with its session.
            let live = rig.node.shard().state().paths.values().next().expect("billing").partitions[0]
                .lease_of(delivery.seq)
                .and_then(|entry| entry.lease().copied());
            if live.is_some_and(|lease| lease.delivery_id == delivery.delivery_id && lease.member == MemberId::new(99))
            {
                self.ack(rig, 2, &delivery)?;
            }
        }
        Ok(())
    }
}

/// Small files of every kind.
const TINY: RigOptions = RigOptions { segment_bytes: 1024, journal_file_bytes: 1 << 18, ..RigOptions::DEFAULT };

fn play(crash_at: Option<u64>) -> (MemoryDisk, Record, RigOptions) {
    let disk = MemoryDisk::new();
    if let Some(operation) = crash_at {
        disk.crash_at(operation);
    }
    let (mut record, mut after) = (Record::default(), TINY);
    if let Ok(mut rig) = Rig::start(&disk, TINY) {
        let ended = script(&mut rig, &mut record);
        assert_eq!(ended.is_err(), crash_at.is_some(), "{ended:?}");
        after.now = rig.now;
    }
    after.now.monotonic = after.now.monotonic.after_ms(700);
    (disk, record, after)
}

#[test]
fn p1_p4_p6_p10_a_power_loss_at_every_disk_operation_around_trims_loses_nothing_that_is_kept() {
    let (disk, mut record, after) = play(None);
    let operations = disk.operations();
    assert!(record.trims >= 3 && first_seq_of(&disk, after) > 60, "the script does its work: {} trims", record.trims);
    let mut rig = Rig::start(&disk.after_process_kill(), after).expect("a kill loses nothing written");
    assert!(rig.from_checkpoint);
    judge(&mut rig, &mut record);
    for operation in 1..=operations {
        let (disk, mut record, after) = play(Some(operation));
        let mut rig = Rig::start(&disk.after_power_loss(operation * 31), after)
            .unwrap_or_else(|error| panic!("operation {operation}: no recovery: {error:?}"));
        judge(&mut rig, &mut record);
    }
    println!("{operations} disk operations, each cut");
}

fn first_seq_of(disk: &MemoryDisk, options: RigOptions) -> u64 {
    first_seq(&Rig::start(&disk.after_process_kill(), options).expect("a kill loses nothing written"))
}

/// A stream of numbers that a seed decides.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

#[test]
fn p4_p6_p9_p10_retention_among_acts_and_deaths_at_any_moment() {
    // Goal: trims, seeks back, checkpoints and deaths in any order break nothing. Method: random lives on a disk in memory,
    // judged as above.
    let (mut deaths, mut trims) = (0, 0);
    for seed in 1..=40 {
        let mut random = Random(u64::wrapping_mul(seed, 0x9E37_79B9_7F4A_7C15));
        let mut rig = Rig::start(&MemoryDisk::new(), TINY).expect("a fresh disk");
        rig.connect(CONNECTION);
        let topic = rig.declare_with("orders", 1, BY_BYTES).expect("no crash");
        let mut record = Record { topic, brought_back: true, ..Record::default() };
        let mut subscription = 1;
        rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 71, 9)]).expect("no crash");
        for _ in 0..80 {
            if random_step(&mut rig, &mut record, &mut random, subscription).is_ok() {
                continue;
            }
            deaths += 1;
            let mut options = RigOptions { now: rig.now, ..TINY };
            options.now.monotonic = options.now.monotonic.after_ms(700);
            rig = Rig::start(&rig.disk.after_power_loss(random.below(1 << 20)), options).expect("a recovery");
            rig.connect(CONNECTION);
            record.look(&rig);
            record.held.clear();
            subscription += 1;
            let member = 70 + u64::from(subscription);
            rig.ask(CONNECTION, vec![subscribe(topic, "billing", subscription, member, 9)]).expect("no crash");
        }
        rig.disk.crash_at(u64::MAX);
        let options = RigOptions { now: rig.now, ..TINY };
        let mut rig = Rig::start(&rig.disk.after_process_kill(), options).expect("a kill loses nothing written");
        judge(&mut rig, &mut record);
        trims += record.trims;
    }
    println!("{deaths} deaths, {trims} trims");
    assert!(deaths > 100 && trims > 200, "the lives do little: {deaths} deaths, {trims} trims");
}

fn random_step(rig: &mut Rig, record: &mut Record, random: &mut Random, subscription: u16) -> Result<(), Crashed> {
    let confirmed = record.confirmed;
    match random.below(20) {
        0..8 => record.publish(rig, confirmed + 1 + random.below(12))?,
        8..13 => beat(rig, subscription, 1 + random.below(2500))?,
        13 | 14 => record.let_go(rig, subscription)?,
        15 => {
            let to = SeekTarget::At(vec![(Partition::ZERO, Seq::new(1 + random.below(confirmed + 1)))]);
            // What it skips need not come, whether it is answered or not.
            record.excused.extend(1..=record.sent);
            rig.act(Act::Seek { topic: "orders".to_owned(), group: "billing".to_owned(), to })?;
            record.held.clear();
            rig.take_deliveries();
        }
        16 | 17 => {
            rig.node.handle_checkpoint_wanted(rig.now);
            rig.pump()?;
        }
        18 => rig.disk.crash_at(rig.disk.operations() + 1 + random.below(9)),
        _ => {}
    }
    record.handle(rig, subscription)?;
    record.look(rig);
    Ok(())
}
