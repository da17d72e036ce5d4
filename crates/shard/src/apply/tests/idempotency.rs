//! Idempotency keys and the bound of what the shard keeps: what is stored once, what is refused, and that nothing inside its
//! promised time is forgotten (P3, failure rule 9).

use super::{Bench, MEMBER, PATH, TOPIC, join, stored};
use crate::apply::Shard;
use crate::command::{Asked, BatchBuilder, Command, CreateTopic, PublishRunBuilder, SettleKind, Times};
use crate::defaults::{DefaultKey, Defaults, DefaultsPatch};
use crate::idempotency::IdempotencyKey;
use crate::outcome::{Outcome, Refusal};
use crate::record::NewRecord;
use crate::settings::{Setting, SettingsPatch};
use bytes::BytesMut;
use mortarmq_types::{Partition, ProducerId, ProducerSeq, TopicIncarnation};

const fn record(producer: u64, number: u64, body: &[u8]) -> NewRecord<'_> {
    let (producer_id, producer_seq) = (ProducerId::new(producer), ProducerSeq::new(number));
    NewRecord { producer_id, producer_seq, key: b"", has_headers: false, body }
}

fn under(key: &str) -> Asked {
    Asked { idempotency_key: (!key.is_empty()).then(|| IdempotencyKey::of(key.as_bytes())), ..Asked::default() }
}

impl Bench {
    /// Publishes under an idempotency key.
    fn publish_once(&mut self, key: &str, (producer, number): (u64, u64), body: &[u8]) -> Outcome {
        let mut run = PublishRunBuilder::default();
        run.add_asked(TOPIC, Partition::ANY, (9, 9), &record(producer, number, body), under(key));
        let mut builder = BatchBuilder::default();
        builder.add_run(&run.take().expect("one"));
        self.apply(&mut builder, 0).outcomes.remove(0)
    }

    /// Publishes a batch of these keys; sequence and whether it was a repeat, of each.
    fn publish_all_once(&mut self, keys: &[&str], first: Option<u64>) -> Result<Vec<(u64, bool)>, Refusal> {
        let producer = if first.is_some() { 9 } else { 0 };
        let number = |place: u64| first.map_or(0, |first| first + place);
        let records: Vec<_> =
            (0..).zip(keys).map(|(place, key)| ((1, 1), record(producer, number(place), b"x"), under(key))).collect();
        let mut run = PublishRunBuilder::default();
        run.add_asked_batch(TOPIC, Partition::ANY, ProducerId::new(producer), records.into_iter());
        let mut builder = BatchBuilder::default();
        builder.add_run(&run.take().expect("one"));
        match self.apply(&mut builder, 0).outcomes.remove(0) {
            Outcome::PublishedBatch(all) => Ok(all.iter().map(|one| (one.seq.get(), one.deduplicated)).collect()),
            Outcome::Refused(refusal) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    fn restored(&mut self) {
        let mut bytes = BytesMut::new();
        self.shard.image().encode(&mut bytes);
        let restored = Shard::from_image(bytes.freeze()).expect("its own image");
        assert_eq!(restored.state(), self.shard.state());
        self.shard = restored;
    }

    fn bound(&mut self, entries: u64) {
        let defaults = Defaults { state_entries_max: entries, ..Defaults::BUILD };
        self.run(&[Command::SetDefaults(defaults)]);
    }
}

#[test]
fn p3_a_repeat_inside_the_window_is_answered_as_the_first_whatever_its_bytes_and_whoever_sends_it() {
    let mut bench = Bench::ready();
    assert_eq!(bench.publish_once("order-7", (0, 0), b"a"), stored(1, false));
    assert_eq!(bench.publish_once("order-8", (0, 0), b"b"), stored(2, false));
    assert_eq!(bench.publish_once("order-7", (0, 0), b"other bytes"), stored(1, true));
    assert_eq!(bench.publish_once("order-7", (5, 1), b"a producer"), stored(1, true));
    // The number is used up, and found first from then on, whatever key comes with it.
    assert_eq!(bench.publish_once("order-9", (5, 1), b"a producer"), stored(1, true));
    assert_eq!(bench.publish_once("order-9", (5, 2), b"next"), stored(3, false));
    assert_eq!(bench.publish_once("order-9", (5, 2), b"next"), stored(3, true));
    let reused = Refusal::SeqReused { found: ProducerSeq::new(2) };
    assert_eq!(
        bench.publish_once("order-7", (5, 2), b"other"),
        Outcome::Refused(reused),
        "the number is looked up first"
    );
    bench.restored();
    bench.time_ms = 299_999;
    assert_eq!(bench.publish_once("order-7", (0, 0), b"a"), stored(1, true), "after a restart, too");
    bench.time_ms = 300_000;
    assert_eq!(bench.publish_once("order-7", (0, 0), b"a"), stored(4, false), "the window is over");
    assert_eq!(bench.publish_once("order-7", (0, 0), b"a"), stored(4, true), "and begins anew");
    bench.restored();
}

#[test]
fn p3_the_scope_of_a_key_is_its_topic_and_a_topic_made_again_knows_nothing_of_the_former() {
    let mut bench = Bench::ready();
    let create = |name: &str| {
        let settings = SettingsPatch { values: vec![(Setting::Partitions, 1)] };
        Command::CreateTopic(CreateTopic { name: name.to_owned(), settings })
    };
    bench.run(&[create("parcels")]);
    let send = |bench: &mut Bench, topic: u64| {
        let mut run = PublishRunBuilder::default();
        let topic = TopicIncarnation::new(topic);
        run.add_asked(topic, Partition::ANY, (9, 9), &record(0, 0, b"x"), under("once"));
        let mut builder = BatchBuilder::default();
        builder.add_run(&run.take().expect("one"));
        bench.apply(&mut builder, 0).outcomes.remove(0)
    };
    assert_eq!((send(&mut bench, 1), send(&mut bench, 2)), (stored(1, false), stored(1, false)));
    bench.run(&[Command::DeleteTopic { name: "parcels".to_owned() }, create("parcels")]);
    assert_eq!(send(&mut bench, 3), stored(1, false));
    assert_eq!(bench.shard.state().entries(), 3, "a fact, and a key of each");
}

#[test]
fn p3_a_batch_may_repeat_keys_of_before_and_of_its_own() {
    let mut bench = Bench::ready();
    let ok = |pairs: &[(u64, bool)]| Ok(pairs.to_vec());
    assert_eq!(
        bench.publish_all_once(&["a", "b", "a", "", "b"], None),
        ok(&[(1, false), (2, false), (1, true), (3, false), (2, true)])
    );
    assert_eq!(bench.publish_all_once(&["c", "a", "d"], Some(1)), ok(&[(4, false), (1, true), (5, false)]));
    assert_eq!(bench.publish_all_once(&["c", "a", "d"], Some(1)), ok(&[(4, true), (1, true), (5, true)]), "by number");
    assert_eq!(bench.publish_all_once(&["d", "e"], Some(3)), ok(&[(5, true), (6, false)]), "it overlaps the window");
    bench.restored();
}

#[test]
fn a_message_without_a_key_is_placed_by_its_idempotency_key() {
    let mut bench = Bench { shard: Shard::default(), time_ms: 0 };
    let settings = SettingsPatch { values: vec![(Setting::Partitions, 7)] };
    bench.run(&[Command::CreateTopic(CreateTopic { name: "orders".to_owned(), settings })]);
    for number in 0..20 {
        let key = format!("order-{number}");
        let expected = crate::record::key_hash(key.as_bytes()).get() & 0xFFFF_FFFF;
        match bench.publish_once(&key, (0, 0), b"x") {
            Outcome::Published(published) => assert_eq!(u64::from(published.partition.get()), expected % 7, "{key}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn rule_9_p3_at_the_bound_what_is_new_is_refused_by_name_and_nothing_inside_its_time_is_forgotten() {
    // Goal: windows at their bound. Method: five publishes of a producer and five keys fill a shard of ten entries.
    let mut bench = Bench { shard: Shard::default(), time_ms: 1000 };
    bench.bound(10);
    let settings = SettingsPatch { values: vec![(Setting::Partitions, 1)] };
    bench.run(&[Command::CreateTopic(CreateTopic { name: "orders".to_owned(), settings })]);
    for number in 1..=5 {
        assert_eq!(bench.publish_once("", (5, number), b"x"), stored(number, false));
    }
    for number in 6..=10 {
        assert_eq!(bench.publish_once(&number.to_string(), (0, 0), b"x"), stored(number, false));
    }
    assert_eq!(bench.shard.state().entries(), 10);
    let limit = 10;
    let key = Outcome::Refused(Refusal::KeyQuota { limit });
    let producer = Outcome::Refused(Refusal::ProducerQuota { limit });
    let late = Asked { times: Times { delay_ms: 5, ttl_ms: 0 }, ..Asked::default() };
    let delayed = |bench: &mut Bench| {
        let mut run = PublishRunBuilder::default();
        run.add_asked(TOPIC, Partition::ANY, (9, 9), &record(0, 0, b"x"), late);
        let mut builder = BatchBuilder::default();
        builder.add_run(&run.take().expect("one"));
        bench.apply(&mut builder, 0).outcomes.remove(0)
    };
    bench.time_ms = 60_999;
    assert_eq!(bench.publish_once("11", (0, 0), b"x"), key);
    assert_eq!(bench.publish_once("", (6, 1), b"x"), producer);
    assert_eq!(delayed(&mut bench), Outcome::Refused(Refusal::DelayQuota { limit }));
    assert!(matches!(bench.publish_all_once(&["6", "12"], None), Err(Refusal::KeyQuota { .. })), "all or nothing");
    for number in 1..=5 {
        assert_eq!(bench.publish_once("", (5, number), b"x"), stored(number, true), "nothing was forgotten");
    }
    for number in 6..=10 {
        assert_eq!(bench.publish_once(&number.to_string(), (0, 0), b"x"), stored(number, true));
    }
    assert_eq!(bench.publish_once("", (0, 0), b"x"), stored(11, false), "what needs no entry goes on");
    // A minute old: keys may go. The producer may not, before ten minutes.
    bench.time_ms = 61_000;
    assert_eq!(bench.publish_once("12", (0, 0), b"x"), stored(12, false));
    assert_eq!(bench.publish_once("", (5, 5), b"x"), stored(5, true));
    bench.restored();
    bench.time_ms = 661_000 + 60_000;
    for number in 20..30 {
        assert!(matches!(bench.publish_once(&number.to_string(), (0, 0), b"x"), Outcome::Published(_)), "{number}");
    }
    let expired = Refusal::SeqExpired { found: ProducerSeq::new(6) };
    assert_eq!(bench.publish_once("", (5, 6), b"x"), Outcome::Refused(expired), "the producer went first");
    bench.restored();
}

#[test]
fn p3_a_shorter_idle_time_of_producers_counts_from_its_change_on() {
    let mut bench = Bench { shard: Shard::default(), time_ms: 1000 };
    let settings = SettingsPatch { values: vec![(Setting::Partitions, 1)] };
    bench.run(&[Command::CreateTopic(CreateTopic { name: "orders".to_owned(), settings })]);
    assert_eq!(bench.publish_once("", (5, 1), b"x"), stored(1, false));
    bench.time_ms += 700_000;
    assert_eq!(bench.publish_once("", (6, 1), b"x"), stored(2, false));
    assert_eq!(bench.publish_once("", (5, 1), b"x"), stored(1, true), "a day, unless told otherwise");
    bench.run(&[Command::ChangeDefaults(DefaultsPatch { values: vec![(DefaultKey::ProducerIdleMs, 600_000)] })]);
    bench.time_ms += 700_000;
    assert_eq!(bench.publish_once("", (6, 2), b"x"), stored(3, false));
    let expired = Refusal::SeqExpired { found: ProducerSeq::new(2) };
    assert_eq!(bench.publish_once("", (5, 2), b"x"), Outcome::Refused(expired), "it was idle for longer than that");
}

#[test]
fn rule_9_at_the_bound_facts_go_first_and_a_path_passes_nothing_over_and_settles_go_on() {
    let mut bench = Bench::ready();
    bench.run(&[Command::SetDefaults(Defaults { state_entries_max: 12, ..Defaults::BUILD })]);
    bench.publish(1..2, b"k", b"x");
    for number in 2..=9 {
        bench.publish_once("", (0, 0), b"x");
        let _ = number;
    }
    let state = bench.shard.state();
    assert_eq!((state.entries(), state.entries.facts), (10, 9), "a number, and nine facts");
    // A key needs room: the facts go, and the path brings them along when it needs them.
    assert_eq!(bench.publish_once("a", (0, 0), b"x"), stored(10, false));
    assert_eq!(bench.publish_once("b", (0, 0), b"x"), stored(11, false));
    let state = bench.shard.state();
    assert!(state.entries() <= 12 && state.entries.facts <= 2, "{} entries", state.entries());
    // Fill it with what may not go: then nothing is passed over, but what can leave leaves.
    let mut bench = Bench::ready();
    bench.publish(1..6, b"k", b"x");
    bench.run(&[join("other", MEMBER)]);
    let first = bench.deliver(MEMBER, 1).remove(0).leases[0];
    let patch = DefaultsPatch { values: vec![(DefaultKey::StateEntriesMax, 1000)] };
    bench.run(&[Command::ChangeDefaults(patch)]);
    for number in 1..=1000 {
        bench.publish_once(&format!("k{number}"), (0, 0), b"x");
    }
    assert!(bench.shard.state().entries() >= 1000);
    let passed = |bench: &Bench| bench.shard.state().paths[&PATH].partitions[0].passed_over();
    let before = passed(&bench);
    let more = bench.deliver(MEMBER, 100);
    assert_eq!((more.len(), passed(&bench)), (0, before), "2 waits for its key, and is not passed over");
    assert_eq!(bench.settle(1, first.delivery_id, SettleKind::Ack), crate::outcome::SettleCode::Done);
    bench.restored();
}
