//! Delays and lives of messages against the contract: each test applies batches as a leader would.

use crate::apply::{Applied, Shard};
use crate::command::{BatchBuilder, ChangeTopic, Command, CreateTopic, Deliver, Grant, JoinGroup, PublishRunBuilder};
use crate::command::{SeekTarget, Settle, SettleItem, SettleKind, Stamp, StartPolicy, Stretch, Times};
use crate::effect::Effect;
use crate::ledger::{LedgerEvent, LedgerKind};
use crate::outcome::{Outcome, Published, Refusal};
use crate::record::NewRecord;
use crate::settings::{Defaults, Setting, SettingsPatch};
use mortarmq_delivery::{Books, Fact, Leased};
use mortarmq_types::{
    ClusterTime, DropReason, Epoch, KeyHash, MemberId, Partition, PathId, ProducerId, ProducerSeq, Seq,
    TopicIncarnation, WallTime,
};

const TOPIC: TopicIncarnation = TopicIncarnation::new(1);
const PATH: PathId = PathId::new(1);
const LATER: PathId = PathId::new(2);

/// A shard with a clock of its own.
struct Bench {
    shard: Shard,
    time_ms: u64,
}

impl Bench {
    /// A topic with one partition and no group.
    fn new(settings: &[(Setting, u64)]) -> Self {
        let mut bench = Self { shard: Shard::default(), time_ms: 0 };
        let settings = SettingsPatch { values: [&[(Setting::Partitions, 1)], settings].concat() };
        bench.run(&[
            Command::SetDefaults(Defaults { max_delayed_per_partition: 3, ..Defaults::BUILD }),
            Command::CreateTopic(CreateTopic { name: "orders".to_owned(), settings }),
        ]);
        bench
    }

    fn ready() -> Self {
        let mut bench = Self::new(&[]);
        bench.join("billing", StartPolicy::Earliest);
        bench
    }

    fn apply(&mut self, builder: &mut BatchBuilder) -> Applied {
        let stamp = Stamp { time: ClusterTime::new(self.time_ms), gap_ms: 0, wall: WallTime::ZERO };
        let applied = self.shard.apply(builder.close(stamp), Epoch::new(1)).expect("commands of this build");
        self.shard.check();
        applied
    }

    fn run(&mut self, commands: &[Command]) -> Applied {
        let mut builder = BatchBuilder::default();
        commands.iter().for_each(|command| builder.add(command));
        self.apply(&mut builder)
    }

    fn join(&mut self, group: &str, start: StartPolicy) {
        let (group, settings, member) = (group.to_owned(), SettingsPatch::default(), MemberId::new(70));
        self.run(&[Command::JoinGroup(JoinGroup { topic: TOPIC, group, settings, start, member, secret_hash: 0 })]);
    }

    /// Publishes under this number of producer 9, or without producer if it is 0.
    fn publish(&mut self, number: u64, key: &[u8], delay_ms: u64, ttl_ms: u64) -> Outcome {
        let mut run = PublishRunBuilder::default();
        let times = Times { delay_ms, ttl_ms };
        run.add_timed(TOPIC, Partition::ANY, (10, 10), &record(number, key), times);
        let mut builder = BatchBuilder::default();
        builder.add_run(&run.take().expect("one"));
        self.apply(&mut builder).outcomes.remove(0)
    }

    fn publish_batch(&mut self, delays_ms: &[u64]) -> Outcome {
        let mut run = PublishRunBuilder::default();
        let records: Vec<_> = delays_ms
            .iter()
            .map(|delay_ms| ((9, 9), record(0, b""), Times { delay_ms: *delay_ms, ttl_ms: 0 }))
            .collect();
        run.add_timed_batch(TOPIC, Partition::ANY, ProducerId::ZERO, records.into_iter());
        let mut builder = BatchBuilder::default();
        builder.add_run(&run.take().expect("one"));
        self.apply(&mut builder).outcomes.remove(0)
    }

    fn deliver_effects(&mut self, path: PathId) -> Vec<Effect> {
        let grant = Grant::Push { window_messages: 5000, window_bytes: 1 << 20 };
        let deliver = Deliver { path, member: MemberId::new(70), grant, max_messages: 1024, stretch: None };
        self.run(&[Command::Deliver(deliver)]).effects
    }

    fn deliver(&mut self, path: PathId) -> Vec<Leased> {
        let leases = |effect| if let Effect::Deliver(deliver) = effect { deliver.leases } else { Vec::new() };
        self.deliver_effects(path).into_iter().flat_map(leases).collect()
    }

    fn deliver_at(&mut self, ms: u64, path: PathId) -> Vec<u64> {
        self.time_ms = ms;
        self.deliver(path).iter().map(|lease| lease.seq.get()).collect()
    }

    fn ack(&mut self, path: PathId, lease: Leased) {
        let (partition, kind) = (Partition::ZERO, SettleKind::Ack);
        let item = SettleItem { partition, first_seq: lease.seq, first_delivery: lease.delivery_id, count: 1, kind };
        self.run(&[Command::Settle(Settle { path, items: vec![item] })]);
    }

    fn books(&self, path: PathId) -> Books {
        let state = self.shard.state();
        state.books(&state.paths[&path])
    }

    fn delayed(&self) -> usize {
        self.shard.state().topics[&TOPIC].partitions[0].schedule.len()
    }

    fn next_due(&self) -> Option<u64> {
        self.shard.state().next_due().map(ClusterTime::get)
    }
}

fn record(number: u64, key: &[u8]) -> NewRecord<'_> {
    let producer_id = ProducerId::new(if number == 0 { 0 } else { 9 });
    NewRecord { producer_id, producer_seq: ProducerSeq::new(number), key, has_headers: false, body: b"a" }
}

fn stored(seq: u64, deduplicated: bool) -> Outcome {
    Outcome::Published(Published { partition: Partition::ZERO, seq: Seq::new(seq), deduplicated })
}

fn dropped(effects: Vec<Effect>) -> Vec<LedgerEvent> {
    let event = |effect| if let Effect::Ledger(ledger) = effect { Some(ledger.event) } else { None };
    let is_drop = |event: &LedgerEvent| event.kind == LedgerKind::Dropped(DropReason::Ttl);
    effects.into_iter().filter_map(event).filter(is_drop).collect()
}

#[test]
fn p4_a_delayed_message_has_its_sequence_at_once_and_is_delivered_when_it_is_due() {
    let mut bench = Bench::ready();
    assert_eq!(bench.publish(0, b"", 500, 0), stored(1, false));
    assert_eq!(bench.publish(0, b"", 0, 0), stored(2, false));
    assert_eq!(bench.deliver(PATH).iter().map(|lease| lease.seq.get()).collect::<Vec<_>>(), [2]);
    assert_eq!((bench.books(PATH).produced, bench.books(PATH).depth), (2, 2), "P9");
    assert_eq!(bench.next_due(), Some(500));
    assert_eq!(bench.deliver_at(499, PATH), [0; 0]);
    bench.time_ms = 500;
    let applied = bench.run(&[]);
    assert!(applied.effects.contains(&Effect::TopicMoved(TOPIC)), "the driver is told to look: {applied:?}");
    assert_eq!(bench.delayed(), 1, "it stays until the path has taken it");
    assert_ne!(bench.next_due(), Some(500), "but it is told once");
    assert_eq!(bench.deliver_at(501, PATH), [1]);
    assert_eq!((bench.delayed(), bench.books(PATH).depth), (0, 2));
}

#[test]
fn p3_a_repeated_delayed_publish_is_answered_as_before_also_when_no_more_may_wait() {
    let mut bench = Bench::ready();
    for number in 1..4 {
        assert_eq!(bench.publish(number, b"", 500, 0), stored(number, false));
    }
    let full = Refusal::DelayedFull { partition: Partition::ZERO, limit: 3 };
    assert_eq!(bench.publish(4, b"", 500, 0), Outcome::Refused(full.clone()));
    assert_eq!(bench.publish(2, b"", 500, 0), stored(2, true));
    bench.time_ms = 900;
    assert_eq!(bench.publish(3, b"", 500, 0), stored(3, true), "and delays nothing anew");
    assert_eq!(bench.publish(4, b"", 500, 0), Outcome::Refused(full), "due messages keep their place until taken");
    assert_eq!(bench.deliver_at(900, PATH), [1, 2, 3]);
    assert_eq!(
        bench.publish(4, b"", 500, 0),
        stored(4, false),
        "P2: the refused one used up no number and no sequence"
    );
}

#[test]
fn p2_a_batch_that_would_have_too_many_wait_is_refused_whole() {
    let mut bench = Bench::ready();
    let full = Refusal::DelayedFull { partition: Partition::ZERO, limit: 3 };
    assert_eq!(bench.publish_batch(&[5, 0, 5, 5, 5]), Outcome::Refused(full));
    assert_eq!((bench.delayed(), bench.books(PATH).produced), (0, 0));
    assert!(matches!(bench.publish_batch(&[5, 0, 5, 5]), Outcome::PublishedBatch(stored) if stored.len() == 4));
    assert_eq!(bench.delayed(), 3);
}

#[test]
fn rule_9_the_shard_keeps_so_many_delayed_messages_in_all() {
    let mut bench = Bench { shard: Shard::default(), time_ms: 0 };
    let settings = SettingsPatch { values: vec![(Setting::Partitions, 2)] };
    bench.run(&[
        Command::SetDefaults(Defaults { state_entries_max: 2, ..Defaults::BUILD }),
        Command::CreateTopic(CreateTopic { name: "orders".to_owned(), settings }),
    ]);
    assert!(matches!(bench.publish_batch(&[5, 5]), Outcome::PublishedBatch(_)));
    assert_eq!(bench.publish(0, b"", 5, 0), Outcome::Refused(Refusal::DelayQuota { limit: 2 }));
    assert!(matches!(bench.publish(0, b"", 0, 0), Outcome::Published(_)));
    bench.run(&[Command::DeleteTopic { name: "orders".to_owned() }]);
    assert_eq!((bench.shard.state().delayed, bench.next_due()), (0, None));
}

#[test]
fn p4_a_group_that_comes_later_gets_what_is_delayed_when_it_is_due_and_not_before() {
    let mut bench = Bench::ready();
    bench.publish(0, b"", 500, 0);
    bench.publish(0, b"", 0, 0);
    bench.join("earliest", StartPolicy::Earliest);
    bench.join("latest", StartPolicy::Latest);
    let latest = PathId::new(3);
    assert_eq!(bench.deliver_at(100, LATER), [2]);
    bench.publish(0, b"", 0, 0);
    assert_eq!((bench.deliver_at(100, latest), bench.deliver_at(100, PATH)), (vec![3], vec![2, 3]));
    assert_eq!(bench.deliver_at(500, PATH), [1]);
    assert_eq!(bench.delayed(), 1, "it stays for the others");
    assert_eq!(bench.deliver_at(500, latest), [0; 0], "what lies below its start is nothing to it");
    assert_eq!(bench.deliver_at(500, LATER), [1, 3]);
    assert_eq!(bench.delayed(), 0);
    let produced: Vec<u64> = [PATH, LATER, latest].iter().map(|path| bench.books(*path).produced).collect();
    assert_eq!(produced, [3, 3, 1]);
}

#[test]
fn p4_without_a_group_what_is_due_becomes_a_message_like_any_other() {
    let mut bench = Bench::new(&[]);
    bench.publish(0, b"", 500, 0);
    bench.publish(0, b"", 900, 0);
    assert_eq!(bench.next_due(), Some(500));
    bench.time_ms = 500;
    bench.run(&[]);
    assert_eq!((bench.delayed(), bench.next_due()), (1, Some(900)));
    bench.join("billing", StartPolicy::Earliest);
    // Nothing is remembered of it: the index tells, as of every message that nobody could have asked for.
    let facts = vec![Fact { key_hash: KeyHash::NONE, size_bytes: 10, expires_at_ms: 0 }];
    let stretch = Stretch { partition: Partition::ZERO, first: Seq::FIRST, facts };
    let grant = Grant::Push { window_messages: 9, window_bytes: 99 };
    let deliver = Deliver { path: PATH, member: MemberId::new(70), grant, max_messages: 9, stretch: Some(stretch) };
    bench.run(&[Command::Deliver(deliver)]);
    let path = &bench.shard.state().paths[&PATH].partitions[0];
    assert_eq!((path.in_flight(), path.delayed()), (1, 1));
    assert_eq!(bench.deliver_at(900, PATH), [2]);
}

#[test]
fn p8_a_delayed_message_joins_its_key_when_it_is_due_and_waits_for_an_earlier_one() {
    let mut bench = Bench::ready();
    bench.publish(0, b"k", 0, 0);
    bench.publish(0, b"k", 500, 0);
    bench.publish(0, b"k", 0, 0);
    let leases = bench.deliver(PATH);
    assert_eq!(leases.iter().map(|lease| lease.seq.get()).collect::<Vec<_>>(), [1, 3], "its key does not wait for it");
    assert_eq!(bench.deliver_at(600, PATH), [0; 0], "2 is due, and 1 and 3 are out");
    bench.ack(PATH, leases[0]);
    assert_eq!(bench.deliver_at(600, PATH), [0; 0]);
    bench.ack(PATH, leases[1]);
    assert_eq!(bench.deliver_at(600, PATH), [2]);
}

#[test]
fn p4_messages_without_a_life_of_their_own_have_the_topics_and_all_expire_in_cluster_time() {
    let mut bench = Bench::new(&[(Setting::TtlMs, 1000)]);
    bench.join("billing", StartPolicy::Earliest);
    bench.publish(0, b"", 0, 0);
    bench.publish(0, b"", 0, 2000);
    bench.publish(0, b"", 0, 500);
    bench.publish(0, b"", 0, u64::MAX);
    bench.time_ms = 1000;
    let events = dropped(bench.deliver_effects(PATH));
    let told: Vec<_> = events.iter().map(|event| (event.first_seq.get(), event.count)).collect();
    assert_eq!(told, [(1, 1), (3, 1)], "2 is leased, and 4 never expires");
    let expected = Books { produced: 4, dropped: 2, depth: 2, ..Books::default() };
    assert_eq!(bench.books(PATH), expected);
}

#[test]
fn p4_an_expired_backlog_is_dropped_in_bounded_steps_as_one_event_each() {
    let mut bench = Bench::new(&[(Setting::TtlMs, 10)]);
    bench.join("billing", StartPolicy::Earliest);
    for _ in 0..3 {
        bench.publish_batch(&[0; 1000]);
    }
    bench.time_ms = 10;
    for (count, first_seq) in [(1024, 1), (1024, 1025), (952, 2049)] {
        let effects = bench.deliver_effects(PATH);
        assert!(effects.contains(&Effect::PathMoved(PATH)), "there may be more");
        let events = dropped(effects);
        assert_eq!(events.len(), 1);
        assert_eq!((events[0].count, events[0].first_seq.get()), (count, first_seq));
    }
    assert_eq!(bench.books(PATH), Books { produced: 3000, dropped: 3000, ..Books::default() });
}

#[test]
fn p4_p9_what_a_purge_drops_of_the_delayed_never_comes_and_a_seek_back_brings_it_when_it_is_due() {
    let mut bench = Bench::ready();
    bench.publish(0, b"", 500, 0);
    bench.publish(0, b"", 600, 0);
    bench.publish(0, b"", 0, 0);
    bench.join("other", StartPolicy::Earliest);
    assert_eq!((bench.deliver_at(0, PATH), bench.deliver_at(0, LATER)), (vec![3], vec![3]));
    let purged = bench.run(&[Command::PurgePath { path: PATH }]);
    assert_eq!(purged.outcomes, [Outcome::Moved { replayed: 0, dropped: 3, is_partial: false }]);
    assert_eq!((bench.books(PATH).depth, bench.books(LATER).depth, bench.delayed()), (0, 3, 2));
    assert_eq!(
        (bench.deliver_at(500, PATH), bench.deliver_at(500, LATER)),
        (vec![], vec![1]),
        "for the other it is due"
    );
    let sought = bench.run(&[Command::SeekPath { path: PATH, target: SeekTarget::Earliest }]);
    assert_eq!(sought.outcomes, [Outcome::Moved { replayed: 3, dropped: 0, is_partial: false }]);
    let facts = vec![Fact { key_hash: KeyHash::NONE, size_bytes: 1, expires_at_ms: 0 }; 3];
    let stretch = Some(Stretch { partition: Partition::ZERO, first: Seq::FIRST, facts });
    let grant = Grant::Push { window_messages: 5000, window_bytes: 1 << 20 };
    let member = MemberId::new(70);
    let applied = bench.run(&[Command::Deliver(Deliver { path: PATH, member, grant, max_messages: 9, stretch })]);
    assert_eq!(applied.outcomes, [Outcome::Delivered { count: 2, too_large: None }], "1 and 3: 2 is not due");
    assert_eq!(bench.books(PATH).depth, 3);
    assert_eq!((bench.deliver_at(600, PATH), bench.deliver_at(600, LATER)), (vec![2], vec![2]));
    assert_eq!(bench.delayed(), 0);
}

#[test]
fn rule_9_a_group_that_is_deleted_releases_what_only_it_had_still_to_see_fall_due() {
    let mut bench = Bench::ready();
    bench.join("other", StartPolicy::Earliest);
    bench.publish_batch(&[500, 600, 9000]);
    bench.time_ms = 700;
    bench.run(&[]);
    assert_eq!((bench.deliver_at(700, PATH), bench.delayed()), (vec![1, 2], 3));
    let deleted = bench.run(&[Command::DeleteGroup { path: LATER }]);
    assert_eq!(deleted.outcomes, [Outcome::Moved { replayed: 0, dropped: 3, is_partial: false }]);
    assert_eq!(bench.delayed(), 1, "the others stayed for it alone");
    bench.publish_batch(&[100]);
    bench.time_ms = 800;
    bench.run(&[]);
    assert_eq!(bench.delayed(), 2, "told, and waits for the group that is left");
    bench.run(&[Command::DeleteGroup { path: PATH }]);
    assert_eq!(bench.next_due(), Some(800), "nobody is left: it goes with the next batch");
    bench.run(&[]);
    assert_eq!((bench.delayed(), bench.next_due()), (1, Some(9000)));
}

#[test]
fn p4_a_message_that_is_due_in_a_new_partition_stays_for_the_group_that_has_not_been_there() {
    // Method: of two groups only one comes to the partition that the topic got after both of them.
    let mut bench = Bench::ready();
    bench.join("later", StartPolicy::Earliest);
    let settings = SettingsPatch { values: vec![(Setting::Partitions, 2)] };
    bench.run(&[Command::ChangeTopic(ChangeTopic { topic: TOPIC, settings })]);
    let mut run = PublishRunBuilder::default();
    let times = Times { delay_ms: 100, ttl_ms: 0 };
    run.add_timed(TOPIC, Partition::from_index(1), (10, 10), &record(0, b""), times);
    let mut builder = BatchBuilder::default();
    builder.add_run(&run.take().expect("one"));
    bench.apply(&mut builder);
    let waits = |bench: &Bench| bench.shard.state().topics[&TOPIC].partitions[1].schedule.len();
    assert_eq!((bench.deliver_at(99, PATH), bench.deliver_at(100, PATH)), (vec![], vec![1]));
    assert_eq!(waits(&bench), 1, "the other group is owed it");
    assert_eq!(bench.deliver_at(101, LATER), [1]);
    assert_eq!(waits(&bench), 0, "and then nobody");
}
