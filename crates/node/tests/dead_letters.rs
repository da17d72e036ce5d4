//! Messages that die: what the dead-letter topic then holds, byte for byte, whatever happens in between.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use mortarmq_node::views::peek::PeekedMessage;
use mortarmq_node::{Answer, Delivery, Query, QueryAnswer, Request};
use mortarmq_shard::{SettleCode, SettleKind};
use mortarmq_storage::{Disk, MemoryDisk};
use mortarmq_types::{Cause, Partition, Seq, TopicIncarnation};
use support::{CONNECTION, Crashed, Rig, RigOptions, number_of, publish, settle, subscribe};

const AT_ONCE: &str = "{\"max_attempts\":3,\"retry_backoff_base_ms\":0}";

fn rig() -> Rig {
    let mut rig = Rig::start(&MemoryDisk::new(), RigOptions::default()).expect("a fresh disk");
    rig.connect(CONNECTION);
    rig
}

/// A topic with one partition, a member of its group `billing`, and messages.
fn with_messages(rig: &mut Rig, numbers: std::ops::Range<u64>, key: &[u8]) -> TopicIncarnation {
    let topic = rig.declare_with("orders", 1, AT_ONCE).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 100)]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, numbers, key)]).expect("no crash");
    topic
}

fn nack(error: &str) -> SettleKind {
    SettleKind::Nack { delay_ms: 0, error: error.to_owned() }
}

fn reject(error: &str) -> SettleKind {
    SettleKind::DeadLetter { error: error.to_owned() }
}

fn say(rig: &mut Rig, delivery: &Delivery, kind: SettleKind) -> Result<SettleCode, Crashed> {
    let replies = rig.ask(CONNECTION, vec![settle(1, delivery, kind)])?;
    match &replies[0].result {
        Ok(Answer::Settled(codes)) => Ok(codes[0]),
        other => panic!("a settle is answered with codes, not {other:?}"),
    }
}

fn peek(rig: &mut Rig, topic: &str, partition: u16) -> Vec<PeekedMessage> {
    let partition = Partition::new(partition);
    let question = Query::Peek { topic: topic.to_owned(), partition, from: Seq::FIRST, max: 1000 };
    match rig.query(question).expect("no crash").result {
        Ok(QueryAnswer::Peek(view)) => view.messages,
        other => panic!("a peek is answered with messages, not {other:?}"),
    }
}

/// The headers that stand behind the message's own.
fn added(message: &PeekedMessage) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    message.headers.iter().map(|(name, value)| (text(name), text(value))).collect()
}

/// Produced, delivered, dead and depth of a path.
fn books(rig: &mut Rig, topic: &str, group: &str) -> [u64; 4] {
    let question = Query::Balance { topic: Some(topic.to_owned()) };
    let Ok(QueryAnswer::Balance(view)) = rig.query(question).expect("no crash").result else {
        panic!("the books are told")
    };
    let path = view.paths.iter().find(|path| path.group == group).expect("the path is there");
    assert_eq!(path.produced, path.delivered + path.dropped + path.dlq + path.depth, "P9: {path:?}");
    [path.produced, path.delivered, path.dlq, path.depth]
}

fn dead_letters_of(rig: &Rig, topic: &str) -> TopicIncarnation {
    let name = format!("$dlq.{topic}");
    rig.node.shard().state().topic_by_name(&name).expect("it has dead letters").0
}

/// The files of a topic with their bytes.
fn files_of(disk: &MemoryDisk, topic: TopicIncarnation) -> BTreeMap<PathBuf, Vec<u8>> {
    let folder = Path::new("data/topics").join(topic.to_hex());
    let mut found = BTreeMap::new();
    for partition in disk.list(&folder).unwrap_or_default() {
        for name in disk.list(&folder.join(&partition)).expect("a folder") {
            let path = folder.join(&partition).join(name);
            let file = disk.open(&path).expect("a file");
            let mut bytes = vec![0; usize::try_from(file.len().expect("a length")).expect("small")];
            file.read_exact_at(&mut bytes, 0).expect("all of it");
            found.insert(path, bytes);
        }
    }
    found
}

#[test]
fn p4_a_poison_message_dies_after_its_attempts_and_keeps_its_bytes_and_its_reason() {
    let mut rig = rig();
    with_messages(&mut rig, 1..4, b"anna");
    for attempt in 1..=3 {
        let delivered = rig.take_deliveries();
        assert_eq!((number_of(&delivered[0]), delivered[0].attempt.get()), (1, attempt), "P8: the key waits for 1");
        assert_eq!(say(&mut rig, &delivered[0], nack("no such customer")).expect("no crash"), SettleCode::Done);
    }
    let mut rest = rig.take_deliveries();
    assert_eq!(say(&mut rig, &rest[0], SettleKind::Ack).expect("no crash"), SettleCode::Done);
    rest.extend(rig.take_deliveries());
    let rest: Vec<(u64, u32, Cause)> =
        rest.iter().map(|delivery| (number_of(delivery), delivery.attempt.get(), delivery.cause)).collect();
    assert_eq!(rest, [(2, 1, Cause::Released), (3, 1, Cause::Released)], "P8: behind it the key goes on, unblamed");
    let found = peek(&mut rig, "$dlq.orders", 0);
    assert_eq!((found.len(), &found[0].key[..], &found[0].value[..]), (1, b"anna".as_slice(), b"1".as_slice()));
    assert_eq!((found[0].record.producer_id.get(), found[0].record.producer_seq.get()), (9, 1));
    let expected = [
        ("mortarmq-dlq-path", "orders/billing"),
        ("mortarmq-dlq-partition", "0"),
        ("mortarmq-dlq-sequence", "1"),
        ("mortarmq-dlq-attempts", "3"),
        ("mortarmq-dlq-reason", "nacked"),
        ("mortarmq-dlq-error", "no such customer"),
    ];
    let mut headers = added(&found[0]);
    let (delivery, path_id) = (headers.remove(6), headers.remove(6));
    assert_eq!((delivery.0.as_str(), path_id.0.as_str()), ("mortarmq-dlq-delivery", "mortarmq-dlq-path-id"));
    assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(books(&mut rig, "orders", "billing"), [3, 1, 1, 1]);
    assert_eq!(books(&mut rig, "$dlq.orders", "default"), [1, 0, 0, 1]);
}

#[test]
fn p7_the_trace_of_a_dead_message_tells_where_it_went_and_that_of_its_dead_letter_goes_on() {
    let mut rig = rig();
    with_messages(&mut rig, 1..2, b"");
    let delivered = rig.take_deliveries();
    say(&mut rig, &delivered[0], reject("broken")).expect("no crash");
    let trace = |rig: &mut Rig, topic: &str| {
        let question = Query::Trace { topic: topic.to_owned(), partition: Partition::ZERO, seq: Seq::FIRST };
        let Ok(QueryAnswer::Trace(view)) = rig.query(question).expect("no crash").result else {
            panic!("a life is told")
        };
        view
    };
    let view = trace(&mut rig, "orders");
    let told: Vec<_> = view.events.iter().map(|event| (event.stage, event.cause, event.detail.as_str())).collect();
    assert_eq!(
        told[1..],
        [("leased", Some("first"), ""), ("dead", Some("rejected"), "sequence 1 of $dlq.orders: broken")]
    );
    assert_eq!((view.standing[0].path.as_str(), view.standing[0].standing), ("orders/billing", "dead"));
    let view = trace(&mut rig, "$dlq.orders");
    assert_eq!((view.events.len(), view.events[0].stage), (1, "stored"));
    assert_eq!((view.standing[0].path.as_str(), view.standing[0].standing), ("$dlq.orders/default", "pending"));
}

#[test]
fn p6_a_rejected_message_is_dead_at_once_and_once() {
    let mut rig = rig();
    with_messages(&mut rig, 1..3, b"");
    let delivered = rig.take_deliveries();
    for _ in 0..2 {
        assert_eq!(say(&mut rig, &delivered[0], reject("broken")).expect("no crash"), SettleCode::Done);
    }
    assert_eq!(say(&mut rig, &delivered[0], SettleKind::Ack).expect("no crash"), SettleCode::Unknown);
    assert_eq!(added(&peek(&mut rig, "$dlq.orders", 0)[0])[4].1, "rejected");
    assert_eq!(books(&mut rig, "orders", "billing"), [2, 0, 1, 1]);
    assert_eq!(books(&mut rig, "$dlq.orders", "default"), [1, 0, 0, 1]);
}

#[test]
fn p4_dead_letters_are_consumed_like_any_message_and_wait_for_their_bytes() {
    // Goal: a dead letter is delivered although no record of it is in memory, and not before the writer has made it.
    // Method: a member waits for dead letters; journal, segment writer and reads take their time, in many orders.
    for order in 0..27 {
        let mut rig = rig();
        let topic = with_messages(&mut rig, 1..4, b"");
        let delivered = rig.take_deliveries();
        say(&mut rig, &delivered[0], reject("first")).expect("no crash");
        let dead = dead_letters_of(&rig, "orders");
        rig.ask(CONNECTION, vec![subscribe(dead, "default", 2, 80, 10)]).expect("no crash");
        assert_eq!(number_of_dead(&rig.take_deliveries()), [1]);
        (rig.slow, rig.writes_late) = (true, true);
        // One after the other, so that the second dies in the batch that delivers the dead letter of the first.
        for delivery in &delivered[1..] {
            rig.ask(CONNECTION, vec![settle(1, delivery, reject("later"))]).expect("no crash");
            assert!(rig.finish_journal().expect("no crash"));
            rig.pump().expect("no crash");
        }
        let mut step = order;
        while rig.finish_one(step % 3).expect("no crash") {
            step = step / 3 + 1;
        }
        assert_eq!(number_of_dead(&rig.take_deliveries()), [2, 3], "order {order}");
        assert_eq!(rig.node.gauges().unreadable, 0, "order {order}: none was read before it was written");
        assert!(rig.node.shard().state().topics.contains_key(&topic));
    }
}

#[test]
fn p4_a_peek_waits_for_dead_letters_that_are_not_written_yet() {
    let mut rig = rig();
    with_messages(&mut rig, 1..2, b"");
    let delivered = rig.take_deliveries();
    (rig.slow, rig.writes_late) = (true, true);
    rig.ask(CONNECTION, vec![settle(1, &delivered[0], reject("broken"))]).expect("no crash");
    assert!(rig.finish_journal().expect("no crash"));
    rig.pump().expect("no crash");
    let before = rig.record_reads;
    let topic = "$dlq.orders".to_owned();
    let question = Query::Peek { topic, partition: Partition::ZERO, from: Seq::FIRST, max: 9 };
    rig.node.handle_query(rig.now, 99, question);
    rig.pump().expect("no crash");
    assert_eq!(rig.record_reads, before, "there is nothing to read yet");
    rig.catch_up().expect("no crash");
    let found = rig.queries.remove(&99).expect("it is answered").result;
    assert!(matches!(&found, Ok(QueryAnswer::Peek(view)) if view.messages.len() == 1), "{found:?}");
}

/// The values of dead letters.
fn number_of_dead(delivered: &[Delivery]) -> Vec<u64> {
    let value = |delivery: &Delivery| {
        let (body, _) = mortarmq_wire::RecordBody::parse_stored(delivery.record.body(), delivery.record.has_headers)
            .expect("a body with headers");
        std::str::from_utf8(body.value()).expect("digits").parse().expect("a number")
    };
    delivered.iter().map(value).collect()
}

#[test]
fn p9_a_dead_letter_that_is_settled_stays_where_it_is_in_both_books() {
    let mut rig = rig();
    with_messages(&mut rig, 1..3, b"");
    for delivery in rig.take_deliveries() {
        say(&mut rig, &delivery, reject("")).expect("no crash");
    }
    let dead = dead_letters_of(&rig, "orders");
    rig.ask(CONNECTION, vec![subscribe(dead, "default", 2, 80, 10)]).expect("no crash");
    let delivered = rig.take_deliveries();
    rig.ask(CONNECTION, vec![settle(2, &delivered[0], SettleKind::Ack)]).expect("no crash");
    // What dies there stays there: it comes again, after the group's backoff.
    rig.ask(CONNECTION, vec![settle(2, &delivered[1], reject("again"))]).expect("no crash");
    rig.pass(1500).expect("no crash");
    let again = rig.take_deliveries();
    assert_eq!((again[0].seq, again[0].cause), (delivered[1].seq, Cause::Nacked));
    assert_eq!(books(&mut rig, "orders", "billing"), [2, 0, 2, 0]);
    assert_eq!(books(&mut rig, "$dlq.orders", "default"), [2, 1, 0, 1]);
}

#[test]
fn p1_a_restart_by_replay_and_one_by_checkpoint_give_the_same_dead_letters() {
    // Goal: a copy is a function of the log. Method: the files of the dead-letter topic are compared byte for byte.
    for checkpoint_after_bytes in [1 << 30, 1 << 10] {
        let options = RigOptions { checkpoint_after_bytes, ..RigOptions::default() };
        let mut rig = Rig::start(&MemoryDisk::new(), options).expect("a fresh disk");
        rig.connect(CONNECTION);
        with_messages(&mut rig, 1..60, b"anna");
        for round in 0..40 {
            for delivery in rig.take_deliveries().into_iter().take(2) {
                say(&mut rig, &delivery, if round % 3 == 0 { nack("no") } else { reject("never") }).expect("no crash");
            }
        }
        let dead = dead_letters_of(&rig, "orders");
        let letters = |rig: &mut Rig| {
            let found = peek(rig, "$dlq.orders", 0).into_iter();
            found.map(|letter| (letter.sequence, letter.record)).collect::<Vec<_>>()
        };
        let before = (files_of(&rig.disk, dead), letters(&mut rig));
        assert!(before.1.len() > 20 && before.0.len() == 2, "{} dead letters in {:?}", before.1.len(), before.0.keys());
        let options = RigOptions { now: rig.now, ..options };
        let mut rig = Rig::start(&rig.disk.after_power_loss(3), options).expect("a clean journal");
        assert_eq!(rig.from_checkpoint, checkpoint_after_bytes < 1 << 20);
        rig.connect(CONNECTION);
        assert_eq!((files_of(&rig.disk, dead), letters(&mut rig)), before);
    }
}

#[test]
fn p11_a_dead_message_whose_record_is_rotten_leaves_its_envelope_and_the_damage() {
    let mut rig = rig();
    let topic = with_messages(&mut rig, 1..3, b"anna");
    let delivered = rig.take_deliveries();
    let segment =
        files_of(&rig.disk, topic).into_keys().find(|path| path.extension().is_some_and(|end| end == "segment"));
    let file = rig.disk.open(&segment.expect("a segment")).expect("it is there");
    // The last byte of the first record's body: behind the file's and the record's headers.
    let (mut byte, offset) = ([0], 32 + 48 + 20);
    file.read_exact_at(&mut byte, offset).expect("inside the file");
    file.write_all_at(&[byte[0] ^ 1], offset).expect("no crash");
    say(&mut rig, &delivered[0], reject("broken")).expect("no crash");
    let found = peek(&mut rig, "$dlq.orders", 0);
    assert_eq!(
        (&found[0].key[..], &found[0].value[..]),
        (b"".as_slice(), b"".as_slice()),
        "wrong bytes are not copied"
    );
    let error = &added(&found[0])[5].1;
    assert!(error.contains(".segment is damaged at offset") && error.ends_with("its consumer said: broken"), "{error}");
    assert_eq!(books(&mut rig, "orders", "billing"), [2, 0, 1, 1]);
    assert_eq!(say(&mut rig, &delivered[1], SettleKind::Ack).expect("no crash"), SettleCode::Stale, "P8: released");
    let again = rig.take_deliveries();
    assert_eq!(again.iter().map(number_of).collect::<Vec<_>>(), [2], "its key goes on");
}

#[test]
fn a_topic_deleted_right_after_takes_its_dead_letters_along_also_in_a_replay() {
    for checkpoint_first in [false, true] {
        let checkpoint_after_bytes = if checkpoint_first { 1 << 10 } else { 1 << 30 };
        let options = RigOptions { checkpoint_after_bytes, ..RigOptions::default() };
        let mut rig = Rig::start(&MemoryDisk::new(), options).expect("a fresh disk");
        rig.connect(CONNECTION);
        let topic = with_messages(&mut rig, 1..60, b"");
        let delivered = rig.take_deliveries();
        let mut requests: Vec<Request> =
            delivered.iter().map(|delivery| settle(1, delivery, reject("broken"))).collect();
        requests.push(Request::Delete { name: "orders".to_owned() });
        // All of it in few batches, so that the copies wait in the writer when the topic goes.
        rig.ask(CONNECTION, requests).expect("no crash");
        assert!(rig.node.shard().state().topics.is_empty());
        let options = RigOptions { now: rig.now, ..options };
        let mut rig = Rig::start(&rig.disk.after_process_kill(), options).expect("the replay finds every source");
        rig.connect(CONNECTION);
        assert!(rig.node.shard().state().topics.is_empty());
        // The same names again are other topics.
        with_messages(&mut rig, 1..2, b"");
        let delivered = rig.take_deliveries();
        say(&mut rig, &delivered[0], reject("again")).expect("no crash");
        assert!(dead_letters_of(&rig, "orders") > topic);
        assert_eq!(peek(&mut rig, "$dlq.orders", 0).len(), 1);
    }
}

/// What was said in a script, and what was confirmed.
#[derive(Default)]
struct Said {
    /// Numbers whose message was rejected, or whose last attempt was refused.
    killed: BTreeSet<u64>,
    /// Those of them where that was confirmed.
    dead: BTreeSet<u64>,
    acked: BTreeSet<u64>,
}

fn script(rig: &mut Rig, said: &mut Said) -> Result<(), Crashed> {
    rig.connect(CONNECTION);
    let topic = rig.declare_with("orders", 2, AT_ONCE)?;
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 100)])?;
    for round in 0..6_u64 {
        let key = [b"".as_slice(), b"anna", b"bert"][usize::try_from(round % 3).expect("small")];
        rig.ask(CONNECTION, vec![publish(topic, 9, round * 3 + 1..round * 3 + 4, key)])?;
        for delivery in rig.take_deliveries() {
            let number = number_of(&delivery);
            let (kind, of) = match number % 3 {
                0 => (SettleKind::Ack, &mut said.acked),
                1 => (reject("broken"), &mut said.killed),
                _ if delivery.attempt.get() == 3 => (nack("no such customer"), &mut said.killed),
                _ => {
                    say(rig, &delivery, nack("no such customer"))?;
                    continue;
                }
            };
            of.insert(number);
            if say(rig, &delivery, kind)? == SettleCode::Done && !number.is_multiple_of(3) {
                said.dead.insert(number);
            }
        }
    }
    Ok(())
}

/// After the crash: a message is dead with exactly one dead letter, or it is owed; what was confirmed is dead.
fn judge(rig: &mut Rig, said: &Said) {
    rig.connect(CONNECTION);
    let mut origins = BTreeMap::new();
    for partition in 0..2 {
        if rig.node.shard().state().topic_by_name("$dlq.orders").is_none() {
            break;
        }
        for letter in peek(rig, "$dlq.orders", partition) {
            let number: u64 = std::str::from_utf8(&letter.value).expect("its value").parse().expect("a number");
            let headers = added(&letter);
            let (reason, error) = (headers[4].1.as_str(), headers[5].1.as_str());
            let expected = if number % 3 == 1 { ("rejected", "broken") } else { ("nacked", "no such customer") };
            assert_eq!((reason, error), expected, "number {number}");
            assert_eq!((headers[1].1.parse(), letter.partition), (Ok(partition), partition));
            assert_eq!(origins.insert(number, letter.sequence), None, "number {number} has two dead letters");
        }
    }
    for number in &said.dead {
        assert!(
            origins.contains_key(number),
            "P1: {number} was dead, which was confirmed, and its dead letter is gone"
        );
    }
    for number in origins.keys() {
        assert!(said.killed.contains(number), "nobody said that {number} is to die");
    }
    if rig.node.shard().state().topic_by_name("orders").is_none() || rig.node.shard().state().paths.is_empty() {
        return;
    }
    let [produced, delivered, dlq, depth] = books(rig, "orders", "billing");
    assert_eq!(dlq, origins.len() as u64, "P9: as many are counted as there are");
    assert!(delivered <= said.acked.len() as u64 && depth <= produced);
    // What is owed comes, and nothing that is dead does.
    let topic = rig.node.shard().state().topic_by_name("orders").expect("looked at above").0;
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 71, 100)]).expect("no crash");
    for _ in 0..12 {
        rig.pass(3000).expect("no crash");
        rig.ask(CONNECTION, vec![Request::Heartbeat { subscription: 1, leave: false }]).expect("no crash");
        for delivery in rig.take_deliveries() {
            assert!(!origins.contains_key(&number_of(&delivery)), "P6: {} is dead", number_of(&delivery));
            say(rig, &delivery, SettleKind::Ack).expect("no crash");
        }
    }
    let [produced, delivered, dead, depth] = books(rig, "orders", "billing");
    let lost: u64 = dead - dlq;
    assert_eq!((depth, produced - delivered - dlq), (0, lost), "P4: everything else was owed");
}

#[test]
fn p1_p6_p9_a_power_loss_at_any_operation_leaves_one_dead_letter_or_an_owed_message() {
    let options = RigOptions { journal_file_bytes: 1 << 18, checkpoint_after_bytes: 1 << 13, ..RigOptions::default() };
    let play = |crash_at: Option<u64>| {
        let disk = MemoryDisk::new();
        if let Some(operation) = crash_at {
            disk.crash_at(operation);
        }
        let (mut said, mut after) = (Said::default(), options);
        if let Ok(mut rig) = Rig::start(&disk, options) {
            let ended = script(&mut rig, &mut said);
            assert_eq!(ended.is_err(), crash_at.is_some(), "{ended:?}");
            after.now = rig.now;
        }
        after.now.monotonic = after.now.monotonic.after_ms(700);
        (disk, said, after)
    };
    let (disk, said, after) = play(None);
    assert!(said.dead.len() >= 8 && said.acked.len() >= 5, "the script does its work: {:?}", said.dead);
    let operations = disk.operations();
    let mut rig = Rig::start(&disk.after_process_kill(), after).expect("a kill loses nothing written");
    assert!(rig.from_checkpoint, "the script goes over a checkpoint");
    judge(&mut rig, &said);
    for operation in 1..=operations {
        let (disk, said, after) = play(Some(operation));
        let kept = disk.after_power_loss(operation * 31);
        let mut rig =
            Rig::start(&kept, after).unwrap_or_else(|error| panic!("operation {operation}: no recovery: {error:?}"));
        judge(&mut rig, &said);
    }
    println!("{operations} disk operations, each cut once");
}
