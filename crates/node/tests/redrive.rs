//! Dead letters that are brought back or dropped: what their consumers then see, whatever happens in between.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use mortarmq_node::views::LettersView;
use mortarmq_node::{
    Act, Answer, Delivery, ErrorCode, LetterAction, LettersAct, Query, QueryAnswer, Request, SeekTarget,
};
use mortarmq_shard::{SettleCode, SettleKind};
use mortarmq_storage::{Disk, MemoryDisk};
use mortarmq_types::{Cause, DeliveryId, Partition, Seq, TopicIncarnation};
use support::{CONNECTION, Crashed, Rig, RigOptions, number_of, publish, settle, subscribe};

const TWICE: &str = "{\"max_attempts\":2,\"retry_backoff_base_ms\":0}";

fn rig_with(options: RigOptions) -> Rig {
    let mut rig = Rig::start(&MemoryDisk::new(), options).expect("a fresh disk");
    rig.connect(CONNECTION);
    rig
}

/// A topic with one partition whose messages all died; their deliveries. Message and dead letter have one sequence.
fn with_dead(rig: &mut Rig, count: u64, key: &[u8]) -> (TopicIncarnation, Vec<Delivery>) {
    let topic = rig.declare_with("orders", 1, TWICE).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 100)]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..count + 1, key)]).expect("no crash");
    let mut dead = Vec::new();
    while (dead.len() as u64) < count {
        for delivery in rig.take_deliveries() {
            // Of a key, those behind one that dies come again.
            if say(rig, &delivery, reject("broken")).expect("no crash") == SettleCode::Done {
                dead.push(delivery);
            }
        }
    }
    rig.take_deliveries();
    (topic, dead)
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

fn all(action: LetterAction) -> LettersAct {
    LettersAct {
        topic: "orders".to_owned(),
        action,
        partition: None,
        sequences: Vec::new(),
        reason: None,
        limit: None,
        rate: None,
        dry_run: false,
    }
}

fn named(action: LetterAction, sequences: &[u64]) -> LettersAct {
    LettersAct { sequences: sequences.iter().map(|seq| Seq::new(*seq)).collect(), ..all(action) }
}

fn letters(rig: &mut Rig, act: LettersAct) -> LettersView {
    match rig.act(Act::Letters(act)).expect("no crash").result {
        Ok(QueryAnswer::Letters(view)) => view,
        other => panic!("it is answered with counts, not {other:?}"),
    }
}

fn view(matched: u64, done: u64, refused: &[(&'static str, u64)]) -> LettersView {
    LettersView { matched, done, refused: refused.iter().copied().collect() }
}

/// Produced, delivered, dropped, dead and depth of a path.
fn books(rig: &mut Rig, topic: &str, group: &str) -> [u64; 5] {
    let question = Query::Balance { topic: Some(topic.to_owned()) };
    let Ok(QueryAnswer::Balance(view)) = rig.query(question).expect("no crash").result else {
        panic!("the books are told")
    };
    let path = view.paths.iter().find(|path| path.group == group).expect("the path is there");
    assert_eq!(path.produced, path.delivered + path.dropped + path.dlq + path.depth, "P9: {path:?}");
    [path.produced, path.delivered, path.dropped, path.dlq, path.depth]
}

fn dead_letters_of(rig: &Rig, topic: &str) -> TopicIncarnation {
    rig.node.shard().state().topic_by_name(&format!("$dlq.{topic}")).expect("it has dead letters").0
}

fn segments_of(disk: &MemoryDisk, topic: TopicIncarnation) -> Vec<PathBuf> {
    let folder = Path::new("data/topics").join(topic.to_hex());
    let mut found = Vec::new();
    for partition in disk.list(&folder).unwrap_or_default() {
        let names = disk.list(&folder.join(&partition)).expect("a folder");
        let segments = names.into_iter().filter(|name| name.ends_with(".segment"));
        found.extend(segments.map(|name| folder.join(&partition).join(name)));
    }
    found
}

/// Makes every record of a topic unreadable, as if its segments were gone.
fn damage(rig: &Rig, topic: TopicIncarnation) {
    for path in segments_of(&rig.disk, topic) {
        let file = rig.disk.open(&path).expect("it is there");
        let length = file.len().expect("a length");
        let mut bytes = vec![0; usize::try_from(length).expect("small")];
        file.read_exact_at(&mut bytes, 0).expect("all of it");
        bytes[32..].iter_mut().for_each(|byte| *byte ^= 0x55);
        file.write_all_at(&bytes, 0).expect("no crash");
    }
}

/// Nothing stays in memory, so what is delivered is read.
fn forgetful() -> RigOptions {
    RigOptions { recent_bytes: 0, ..RigOptions::default() }
}

#[test]
fn p4_p7_p9_a_redriven_message_comes_as_it_was_with_cause_and_previous_delivery() {
    let mut rig = rig_with(RigOptions::default());
    let (topic, dead) = with_dead(&mut rig, 3, b"anna");
    assert_eq!(books(&mut rig, "orders", "billing"), [3, 0, 0, 3, 0]);
    assert_eq!(letters(&mut rig, named(LetterAction::Redrive, &[1])), view(1, 1, &[]));
    assert_eq!(books(&mut rig, "orders", "billing"), [4, 0, 0, 3, 1]);
    assert_eq!(books(&mut rig, "$dlq.orders", "default"), [3, 0, 1, 0, 2]);
    let came = rig.take_deliveries().remove(0);
    assert_eq!((came.topic, came.partition, came.seq), (topic, Partition::ZERO, dead[0].seq));
    assert_eq!((came.attempt.get(), came.cause, came.previous), (1, Cause::Redriven, dead[0].delivery_id));
    assert_eq!(came.record, dead[0].record, "producer, key, headers and value are those that were published");
    // It is settled there, and owed here: neither is brought back twice.
    assert_eq!(letters(&mut rig, named(LetterAction::Redrive, &[1])), view(1, 0, &[("settled", 1)]));
    let back = Act::Seek {
        topic: "$dlq.orders".to_owned(),
        group: "default".to_owned(),
        to: SeekTarget::At(vec![(Partition::ZERO, Seq::FIRST)]),
    };
    rig.act(back).expect("no crash");
    let is_refused = letters(&mut rig, named(LetterAction::Redrive, &[1]));
    assert_eq!(is_refused, view(1, 0, &[("unsettled", 1)]), "a second redrive is refused meanwhile");
    assert_eq!(say(&mut rig, &came, SettleKind::Ack).expect("no crash"), SettleCode::Done);
    assert_eq!(letters(&mut rig, named(LetterAction::Redrive, &[1])), view(1, 1, &[]), "and done after that");
    let again = rig.take_deliveries().remove(0);
    assert_eq!((number_of(&again), again.cause, again.previous), (1, Cause::Redriven, dead[0].delivery_id));
}

#[test]
fn p4_a_redriven_message_needs_its_own_record_no_more_and_dies_again_with_the_right_bytes_and_one_envelope() {
    // Goal: the bytes come from the dead letter, as retention may have taken the record. Method: the segments of the topic are
    // made unreadable; the message comes, dies and is redriven four times, each time from the dead letter before.
    let mut rig = rig_with(forgetful());
    let (topic, dead) = with_dead(&mut rig, 1, b"anna");
    damage(&rig, topic);
    let mut previous = dead[0].delivery_id;
    for round in 1..=4_u64 {
        assert_eq!(letters(&mut rig, all(LetterAction::Redrive)), view(1, 1, &[]), "round {round}");
        let came = rig.take_deliveries().remove(0);
        assert_eq!((came.previous, &came.record), (previous, &dead[0].record), "round {round}");
        previous = came.delivery_id;
        assert_eq!(say(&mut rig, &came, reject("still broken")).expect("no crash"), SettleCode::Done);
        let question = Query::DeadLetters {
            topic: "orders".to_owned(),
            partition: Partition::ZERO,
            from: Seq::new(round + 1),
            max: 9,
        };
        let Ok(QueryAnswer::DeadLetters(found)) = rig.query(question).expect("no crash").result else {
            panic!("dead letters are told")
        };
        let letter = &found.letters[0];
        assert_eq!((letter.origin_sequence, letter.error.as_str()), (1, "still broken"));
        assert_eq!((letter.message.headers.len(), &letter.message.value[..]), (8, b"1".as_slice()));
        let state = rig.node.shard().state();
        let partition = &state.topics[&dead_letters_of(&rig, "orders")].partitions[0];
        assert_eq!(partition.lowest_pin(), None, "round {round}: its source is free");
    }
    assert_eq!(rig.node.gauges().unreadable, 0);
}

#[test]
fn rule_3_a_redriven_message_whose_dead_letter_rots_is_held_and_its_dead_letter_stays_pinned() {
    let mut rig = rig_with(forgetful());
    with_dead(&mut rig, 1, b"");
    let dead = dead_letters_of(&rig, "orders");
    rig.ask(CONNECTION, vec![Request::Heartbeat { subscription: 1, leave: true }]).expect("no crash");
    assert_eq!(letters(&mut rig, all(LetterAction::Redrive)), view(1, 1, &[]));
    damage(&rig, dead);
    let topic = rig.node.shard().state().topic_by_name("orders").expect("there").0;
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 2, 71, 100)]).expect("no crash");
    assert!(rig.take_deliveries().is_empty(), "P11");
    let state = rig.node.shard().state();
    assert_eq!(state.topics[&dead].partitions[0].lowest_pin(), Some(Seq::FIRST));
    assert_eq!(books(&mut rig, "orders", "billing"), [2, 0, 0, 1, 1], "neither delivered nor dropped");
}

#[test]
fn p11_a_dead_letter_that_cannot_be_read_is_not_redriven_but_can_be_purged() {
    let mut rig = rig_with(forgetful());
    with_dead(&mut rig, 3, b"");
    damage(&rig, dead_letters_of(&rig, "orders"));
    let dry = LettersAct { dry_run: true, ..all(LetterAction::Redrive) };
    assert_eq!(letters(&mut rig, dry), view(3, 0, &[("unreadable", 3)]));
    assert_eq!(letters(&mut rig, all(LetterAction::Redrive)), view(3, 0, &[("unreadable", 3)]));
    assert_eq!(letters(&mut rig, named(LetterAction::Purge, &[2, 7])), view(2, 1, &[("unknown", 1)]));
    assert_eq!(letters(&mut rig, all(LetterAction::Purge)), view(2, 2, &[]));
    assert_eq!(books(&mut rig, "$dlq.orders", "default"), [3, 0, 3, 0, 0]);
}

#[test]
fn p11_a_message_that_died_without_its_bytes_is_not_redriven() {
    let mut rig = rig_with(RigOptions::default());
    let topic = rig.declare_with("orders", 1, TWICE).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 100)]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..2, b"")]).expect("no crash");
    damage(&rig, topic);
    let delivery = rig.take_deliveries().remove(0);
    say(&mut rig, &delivery, reject("broken")).expect("no crash");
    assert_eq!(letters(&mut rig, all(LetterAction::Redrive)), view(1, 0, &[("unreadable", 1)]));
    assert_eq!(books(&mut rig, "orders", "billing"), [1, 0, 0, 1, 0]);
    assert_eq!(letters(&mut rig, all(LetterAction::Purge)), view(1, 1, &[]));
}

#[test]
fn p8_redriven_messages_keep_the_order_of_their_key() {
    // Goal: what is redriven out of order still comes in order, and what was published since waits for it.
    let mut rig = rig_with(RigOptions::default());
    let (topic, _) = with_dead(&mut rig, 5, b"anna");
    rig.ask(CONNECTION, vec![Request::Heartbeat { subscription: 1, leave: true }]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 6..8, b"anna")]).expect("no crash");
    for seq in [4, 2, 5] {
        assert_eq!(letters(&mut rig, named(LetterAction::Redrive, &[seq])), view(1, 1, &[]));
    }
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 71, 1)]).expect("no crash");
    let mut came = Vec::new();
    while let Some(delivery) = rig.take_deliveries().pop() {
        came.push(number_of(&delivery));
        if came.len() == 1 {
            // It takes its place before what is not offered yet, also while another one is held.
            assert_eq!(letters(&mut rig, named(LetterAction::Redrive, &[3])), view(1, 1, &[]));
        }
        say(&mut rig, &delivery, SettleKind::Ack).expect("no crash");
    }
    assert_eq!(came, [2, 3, 4, 5, 6, 7]);
}

#[test]
fn letters_are_chosen_by_partition_reason_and_number_and_a_dry_run_only_counts() {
    let mut rig = rig_with(RigOptions::default());
    let topic = rig.declare_with("orders", 3, TWICE).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 1000)]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..601, b"")]).expect("no crash");
    let mut dead: BTreeMap<(u16, &str), u64> = BTreeMap::new();
    for _ in 0..2 {
        for delivery in rig.take_deliveries() {
            let rejected = number_of(&delivery).is_multiple_of(4);
            let kind = if rejected { reject("no") } else { SettleKind::Nack { delay_ms: 0, error: String::new() } };
            say(&mut rig, &delivery, kind).expect("no crash");
            if rejected || delivery.attempt.get() == 2 {
                let reason = if rejected { "rejected" } else { "nacked" };
                *dead.entry((delivery.partition.get(), reason)).or_default() += 1;
            }
        }
    }
    assert_eq!(dead.values().sum::<u64>(), 600, "{dead:?}");
    let dry = |act: LettersAct| LettersAct { dry_run: true, ..act };
    let with = |partition: Option<u16>, reason: Option<&str>| LettersAct {
        partition: partition.map(Partition::new),
        reason: reason.map(str::to_owned),
        ..all(LetterAction::Redrive)
    };
    let before = rig.node.position().commit_index;
    let sum = |wanted: &str| dead.iter().filter(|((_, reason), _)| *reason == wanted).map(|(_, count)| count).sum();
    assert_eq!(letters(&mut rig, dry(with(None, None))), view(600, 0, &[]));
    assert_eq!(letters(&mut rig, dry(with(None, Some("rejected")))), view(sum("rejected"), 0, &[]));
    assert_eq!(letters(&mut rig, dry(with(Some(1), Some("nacked")))), view(dead[&(1, "nacked")], 0, &[]));
    assert_eq!(letters(&mut rig, dry(with(None, Some("bored")))), view(0, 0, &[]));
    assert_eq!(letters(&mut rig, dry(LettersAct { limit: Some(0), ..with(None, None) })), view(0, 0, &[]));
    assert_eq!(rig.node.position().commit_index, before, "nothing was proposed");
    let some = LettersAct { limit: Some(280), ..with(None, None) };
    assert_eq!(letters(&mut rig, some), view(280, 280, &[]));
    assert_eq!(letters(&mut rig, dry(with(None, None))), view(320, 0, &[]), "what is redriven is meant no more");
    let purged = letters(&mut rig, LettersAct { action: LetterAction::Purge, ..with(Some(2), Some("rejected")) });
    assert_eq!((purged.done, purged.matched), (purged.matched, purged.done));
    let left = letters(&mut rig, with(None, None));
    assert_eq!((left.matched, left.done), (320 - purged.done, 320 - purged.done));
    assert_eq!(books(&mut rig, "$dlq.orders", "default"), [600, 0, 600, 0, 0]);
    let [produced, _, _, died, depth] = books(&mut rig, "orders", "billing");
    assert_eq!((produced, died, depth), (1200 - purged.done, 600, 600 - purged.done));

    let refused = |rig: &mut Rig, act: LettersAct| match rig.act(Act::Letters(act)).expect("no crash").result {
        Err(failure) => failure.code,
        other => panic!("it is refused, not {other:?}"),
    };
    assert_eq!(refused(&mut rig, named(LetterAction::Redrive, &[1])), ErrorCode::UnknownPartition, "of which one?");
    assert_eq!(refused(&mut rig, with(Some(3), None)), ErrorCode::UnknownPartition);
    let other = LettersAct { topic: "parcels".to_owned(), ..all(LetterAction::Purge) };
    assert_eq!(refused(&mut rig, other), ErrorCode::UnknownTopic);
    rig.declare("parcels", 1).expect("no crash");
    let nothing = LettersAct { topic: "parcels".to_owned(), ..named(LetterAction::Purge, &[4]) };
    assert_eq!(letters(&mut rig, nothing), view(1, 0, &[("unknown", 1)]), "nothing ever died there");
}

#[test]
fn a_second_redrive_of_a_topic_waits_for_the_first_and_a_rate_is_kept() {
    // Goal: 20 per second are 20 per second, and nobody else meddles meanwhile. Method: the clock is moved by hand.
    let mut rig = rig_with(RigOptions::default());
    with_dead(&mut rig, 60, b"");
    rig.ask(CONNECTION, vec![Request::Heartbeat { subscription: 1, leave: true }]).expect("no crash");
    let slow = LettersAct { rate: Some(20), ..all(LetterAction::Redrive) };
    let query = rig.begin_act(Act::Letters(slow)).expect("no crash");
    let mut before = 0;
    for half in 1..=5_u64 {
        let refused = rig.act(Act::Letters(all(LetterAction::Purge))).expect("no crash").result;
        assert!(matches!(&refused, Err(failure) if failure.code == ErrorCode::Backpressure), "{refused:?}");
        rig.pass(500).expect("no crash");
        let depth = books(&mut rig, "orders", "billing")[4];
        assert!(depth <= half * 10 + 1 && depth > before, "half second {half}: {depth} are back");
        before = depth;
    }
    rig.pass(3000).expect("no crash");
    let answered = rig.queries.remove(&query).expect("it is done").result;
    assert!(matches!(&answered, Ok(QueryAnswer::Letters(found)) if *found == view(60, 60, &[])), "{answered:?}");
    assert_eq!(letters(&mut rig, all(LetterAction::Purge)), view(0, 0, &[]), "the next one may begin");
}

#[test]
fn a_redrive_ends_when_nobody_waits_for_it_and_can_be_asked_for_again() {
    let mut rig = rig_with(RigOptions::default());
    with_dead(&mut rig, 30, b"");
    let slow = LettersAct { rate: Some(10), ..all(LetterAction::Redrive) };
    let query = rig.begin_act(Act::Letters(slow)).expect("no crash");
    rig.pass(1000).expect("no crash");
    rig.node.handle_query_gone(rig.now, query);
    let back = books(&mut rig, "orders", "billing")[0] - 30;
    assert!((5..=11).contains(&back), "{back} are back after a second");
    rig.pass(5000).expect("no crash");
    assert_eq!(books(&mut rig, "orders", "billing")[0] - 30, back, "nothing goes on");
    assert!(!rig.queries.contains_key(&query));
    assert_eq!(letters(&mut rig, all(LetterAction::Redrive)), view(30 - back, 30 - back, &[]));
}

#[test]
fn p9_a_topic_that_is_deleted_meanwhile_ends_its_redrive() {
    let mut rig = rig_with(RigOptions::default());
    with_dead(&mut rig, 30, b"");
    let slow = LettersAct { rate: Some(10), ..all(LetterAction::Redrive) };
    let query = rig.begin_act(Act::Letters(slow)).expect("no crash");
    rig.pass(300).expect("no crash");
    rig.ask(CONNECTION, vec![Request::Delete { name: "orders".to_owned() }]).expect("no crash");
    rig.pass(3000).expect("no crash");
    let answered = rig.queries.remove(&query).expect("it is answered").result;
    assert!(matches!(&answered, Err(failure) if failure.code == ErrorCode::UnknownTopic), "{answered:?}");
}

#[test]
fn p4_the_end_of_a_group_is_told_and_its_dead_letters_stay() {
    let mut rig = rig_with(RigOptions::default());
    let (topic, _) = with_dead(&mut rig, 2, b"");
    assert_eq!(letters(&mut rig, named(LetterAction::Redrive, &[1])), view(1, 1, &[]));
    let delete = Act::DeleteGroup { topic: "orders".to_owned(), group: "billing".to_owned() };
    rig.act(delete).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 2, 71, 1)]).expect("no crash");
    assert_eq!(letters(&mut rig, all(LetterAction::Redrive)), view(1, 0, &[("group_gone", 1)]));
    let state = rig.node.shard().state();
    assert_eq!(state.topics[&dead_letters_of(&rig, "orders")].partitions[0].lowest_pin(), None);
}

#[test]
fn p7_both_traces_tell_of_a_redrive() {
    let mut rig = rig_with(RigOptions::default());
    let (_, dead) = with_dead(&mut rig, 1, b"");
    letters(&mut rig, all(LetterAction::Redrive));
    let trace = |rig: &mut Rig, topic: &str| {
        let question = Query::Trace { topic: topic.to_owned(), partition: Partition::ZERO, seq: Seq::FIRST };
        let Ok(QueryAnswer::Trace(view)) = rig.query(question).expect("no crash").result else {
            panic!("a life is told")
        };
        let rows: Vec<_> =
            view.events.into_iter().map(|event| (event.stage, event.cause, event.detail)).skip(1).collect();
        (rows, view.standing[0].standing)
    };
    let follows = format!("follows delivery {}", dead[0].delivery_id);
    let (rows, standing) = trace(&mut rig, "orders");
    let expected = [
        ("leased", Some("first"), String::new()),
        ("dead", Some("rejected"), "sequence 1 of $dlq.orders: broken".to_owned()),
        ("redriven", None, format!("{follows}, from sequence 1 of $dlq.orders")),
        ("leased", Some("redriven"), follows.clone()),
    ];
    assert_eq!((&rows[..], standing), (&expected[..], "leased"));
    let (rows, standing) = trace(&mut rig, "$dlq.orders");
    assert_eq!(rows, [("dropped", Some("redriven"), "to orders/billing 0:1".to_owned())]);
    assert_eq!(standing, "dropped");
    let came = rig.take_deliveries().remove(0);
    say(&mut rig, &came, SettleKind::Ack).expect("no crash");
    assert_eq!(trace(&mut rig, "orders").1, "acked");
}

#[test]
fn p5_a_member_that_resumes_is_sent_a_redriven_message_again_from_its_dead_letter() {
    let mut rig = rig_with(forgetful());
    let (topic, dead) = with_dead(&mut rig, 1, b"anna");
    damage(&rig, topic);
    letters(&mut rig, all(LetterAction::Redrive));
    let came = rig.take_deliveries().remove(0);
    rig.node.handle_disconnected(rig.now, CONNECTION);
    rig.connect(CONNECTION);
    let Request::Subscribe(subscribe) = subscribe(topic, "billing", 1, 0, 100) else { unreachable!("made as one") };
    let options = format!("{{\"resume\":{{\"member_id\":{0},\"secret\":{0},\"held\":[]}}}}", 70);
    let replies = rig
        .ask(CONNECTION, vec![Request::Subscribe(mortarmq_node::Subscribe { options, ..subscribe })])
        .expect("no crash");
    if replies[0].result.is_err() {
        panic!("the member is there: {replies:?}");
    }
    let again = rig.take_deliveries().remove(0);
    assert_eq!((again.delivery_id, &again.record), (came.delivery_id, &dead[0].record));
}

/// What was said in a script, and what was confirmed.
#[derive(Default)]
struct Said {
    confirmed: u64,
    acked: BTreeSet<u64>,
    may_be_acked: BTreeSet<u64>,
    may_be_purged: u64,
    /// What the counters of both books were when an act was answered.
    produced: u64,
    dropped: u64,
    acts: u32,
    last_delivery: DeliveryId,
}

impl Said {
    fn deliver(&mut self, delivery: &Delivery) -> u64 {
        let number = number_of(delivery);
        assert_eq!(delivery.seq.get(), number, "its bytes are another message's");
        assert!(!self.acked.contains(&number), "P6: {number} is acked and comes as {}", delivery.cause);
        assert!(delivery.delivery_id > self.last_delivery, "P10: delivery {}", delivery.delivery_id);
        assert_eq!(delivery.cause == Cause::First, delivery.previous == DeliveryId::ZERO, "P7: {number}");
        self.last_delivery = delivery.delivery_id;
        number
    }

    /// Rejects what comes for the first time and every third of the redriven, acks the others.
    fn handle(&mut self, rig: &mut Rig) -> Result<(), Crashed> {
        for delivery in rig.take_deliveries() {
            let number = self.deliver(&delivery);
            let dies = delivery.cause == Cause::First
                || (number.is_multiple_of(3) && delivery.previous.get() < 20 && delivery.cause == Cause::Redriven);
            if dies {
                say(rig, &delivery, reject("broken"))?;
                continue;
            }
            self.may_be_acked.insert(number);
            if say(rig, &delivery, SettleKind::Ack)? == SettleCode::Done {
                self.acked.insert(number);
            }
        }
        Ok(())
    }

    fn act(&mut self, rig: &mut Rig, act: LettersAct) -> Result<u64, Crashed> {
        let reply = rig.act(Act::Letters(act))?;
        let Ok(QueryAnswer::Letters(found)) = reply.result else { panic!("counts, not {reply:?}") };
        assert_eq!((found.matched, found.refused.len()), (found.done, 0), "{found:?}");
        (self.produced, self.dropped) = counters(rig);
        self.acts += 1;
        Ok(found.done)
    }
}

/// What the path produced, and what the book of its dead letters dropped.
fn counters(rig: &Rig) -> (u64, u64) {
    let state = rig.node.shard().state();
    let books = |topic: &str, group: &str| {
        let (_, topic) = state.topic_by_name(topic)?;
        Some(state.books(&state.paths[topic.paths.get(group)?]))
    };
    let produced = books("orders", "billing").map_or(0, |books| books.produced);
    (produced, books("$dlq.orders", "default").map_or(0, |books| books.dropped))
}

fn checkpoint(rig: &mut Rig) -> Result<(), Crashed> {
    rig.node.handle_checkpoint_wanted(rig.now);
    rig.pump()
}

fn script(rig: &mut Rig, said: &mut Said) -> Result<(), Crashed> {
    rig.connect(CONNECTION);
    let topic = rig.declare_with("orders", 1, TWICE)?;
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 100)])?;
    let keys: [&[u8]; 3] = [b"", b"anna", b"bert"];
    for number in 1..=9 {
        let key = keys[usize::try_from(number % 3).expect("small")];
        rig.ask(CONNECTION, vec![publish(topic, 9, number..number + 1, key)])?;
        said.confirmed = number;
    }
    for _ in 0..3 {
        said.handle(rig)?;
    }
    said.act(rig, named(LetterAction::Redrive, &[2, 3, 4]))?;
    checkpoint(rig)?;
    for _ in 0..3 {
        said.handle(rig)?;
    }
    said.may_be_purged = 1;
    said.act(rig, named(LetterAction::Purge, &[5]))?;
    said.act(rig, LettersAct { limit: Some(3), ..all(LetterAction::Redrive) })?;
    for _ in 0..3 {
        said.handle(rig)?;
    }
    checkpoint(rig)?;
    said.act(rig, all(LetterAction::Redrive))?;
    for _ in 0..3 {
        said.handle(rig)?;
    }
    checkpoint(rig)
}

/// After the crash: counters never fell, everything is where it can be had, and nothing that is acked comes.
fn judge(rig: &mut Rig, said: &mut Said) {
    rig.node.shard().check();
    let (produced, dropped) = counters(rig);
    assert!(produced >= said.produced && dropped >= said.dropped, "P1: an act that was answered is gone");
    rig.connect(CONNECTION);
    let Some((topic, _)) = rig.node.shard().state().topic_by_name("orders") else {
        assert_eq!(said.confirmed, 0);
        return;
    };
    // Its own records are needed no more: what is dead comes from its dead letter.
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 71, 100)]).expect("no crash");
    for round in 0..24 {
        for delivery in rig.take_deliveries() {
            let number = said.deliver(&delivery);
            said.may_be_acked.insert(number);
            if say(rig, &delivery, SettleKind::Ack).expect("no crash") == SettleCode::Done {
                said.acked.insert(number);
            }
        }
        if round % 4 == 3 {
            let found = letters(rig, all(LetterAction::Redrive));
            assert_eq!((found.matched, found.refused.len()), (found.done, 0), "{found:?}");
        }
        rig.pass(3000).expect("no crash");
        rig.ask(CONNECTION, vec![Request::Heartbeat { subscription: 1, leave: false }]).expect("no crash");
    }
    let lost: Vec<u64> = (1..=said.confirmed).filter(|number| !said.may_be_acked.contains(number)).collect();
    assert!(lost.len() as u64 <= said.may_be_purged, "P4: {lost:?} are neither delivered nor dropped");
    assert_eq!(books(rig, "orders", "billing")[4], 0, "P9");
    if let Some((dead, topic)) = rig.node.shard().state().topic_by_name("$dlq.orders") {
        assert_eq!(topic.partitions[0].lowest_pin(), None, "all are settled");
        assert!(dead > TopicIncarnation::ZERO);
        assert_eq!(books(rig, "$dlq.orders", "default")[4], 0, "P9");
    }
    assert_eq!(rig.node.gauges().unreadable, 0);
    rig.node.shard().check();
}

#[test]
fn p1_p4_p6_p9_a_power_loss_at_any_operation_around_redrives_loses_nothing_and_brings_nothing_twice() {
    let options = RigOptions { journal_file_bytes: 1 << 18, recent_bytes: 0, ..RigOptions::default() };
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
    let (disk, mut said, after) = play(None);
    assert!(said.acts == 4 && said.acked.len() >= 6, "the script does its work: {:?}", said.acked);
    let operations = disk.operations();
    let mut rig = Rig::start(&disk.after_process_kill(), after).expect("a kill loses nothing written");
    assert!(rig.from_checkpoint);
    judge(&mut rig, &mut said);
    for operation in 1..=operations {
        let (disk, mut said, after) = play(Some(operation));
        let mut rig = Rig::start(&disk.after_power_loss(operation * 31), after)
            .unwrap_or_else(|error| panic!("operation {operation}: no recovery: {error:?}"));
        judge(&mut rig, &mut said);
    }
    println!("{operations} disk operations");
}

#[test]
fn p5_p8_slow_reads_and_writes_of_dead_letters_change_no_order() {
    // Goal: a redriven message waits for the writer that makes its dead letter, and for its read; nothing overtakes it.
    // Method: journal, segment writer and reads take their time, in many orders.
    for order in 0..27 {
        let mut rig = rig_with(RigOptions::default());
        let (topic, _) = with_dead(&mut rig, 2, b"anna");
        (rig.slow, rig.writes_late) = (true, true);
        rig.node.handle_requests(rig.now, CONNECTION, vec![publish(topic, 9, 3..5, b"anna")]);
        rig.pump().expect("no crash");
        let query = rig.begin_act(Act::Letters(all(LetterAction::Redrive))).expect("no crash");
        let mut step = order;
        let mut came = Vec::new();
        for _ in 0..200 {
            let is_under_way = rig.finish_one(step % 3).expect("no crash");
            step = step / 3 + 1;
            for delivery in rig.take_deliveries() {
                came.push(number_of(&delivery));
                rig.node.handle_requests(rig.now, CONNECTION, vec![settle(1, &delivery, SettleKind::Ack)]);
                rig.pump().expect("no crash");
            }
            if !is_under_way && came.len() == 4 {
                break;
            }
        }
        let answered = rig.queries.remove(&query).expect("it is done").result;
        assert!(matches!(&answered, Ok(QueryAnswer::Letters(found)) if found.done == 2), "{answered:?}");
        let at = |number| came.iter().position(|found| *found == number).expect("it came");
        assert!(at(1) < at(2) && at(3) < at(4), "order {order}: {came:?}");
        assert_eq!(rig.node.gauges().unreadable, 0, "order {order}");
    }
}
