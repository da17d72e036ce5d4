//! How many instructions commands cost when they are applied, 64 messages in a batch as under load: publish, deliver and
//! settle, and building the batch. A count over its limit fails.
//!
//! `cargo bench --profile instructions -p mortarmq-shard --bench instructions`; docs/performance.md says what is needed, and
//! how a limit is set anew.

#![allow(
    missing_docs,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the macros make public items, and talk to the program that counts"
)]

use std::hint::black_box;

use bytes::Bytes;
use gungraun::{Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main};
use mortarmq_shard::command::{CreateTopic, Deliver, Settle};
use mortarmq_shard::record::NewRecord;
use mortarmq_shard::{
    Applied, BatchBuilder, Command, Defaults, Effect, Grant, JoinGroup, PublishRunBuilder, Setting, SettingsPatch,
    SettleItem, SettleKind, Shard, Stamp, StartPolicy,
};
use mortarmq_types::{
    ClusterTime, DeliveryId, Epoch, MemberId, Partition, PathId, ProducerId, ProducerSeq, Seq, TopicIncarnation,
    WallTime,
};

/// As in the broker. What the system's allocator costs depends on its version and on all that was allocated before.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MESSAGES: u64 = 64;
/// Batches before the one that is measured: maps, windows and marks have some size then.
const WARM_UP: u64 = 50;
const TOPIC: TopicIncarnation = TopicIncarnation::new(1);
const PATH: PathId = PathId::new(1);
const MEMBER: MemberId = MemberId::new(7);

/// What was measured, and 3 % more.
fn limit(instructions: u64) -> LibraryBenchmarkConfig {
    let mut callgrind = Callgrind::default();
    callgrind.hard_limits([(EventKind::Ir, instructions + instructions * 3 / 100)]);
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind);
    config
}

/// A shard with one topic of four partitions and one group.
#[derive(Default)]
struct Leader {
    shard: Shard,
    batch: BatchBuilder,
    /// As a connection keeps it.
    run: PublishRunBuilder,
    time_ms: u64,
    published: u64,
}

impl Leader {
    fn new() -> Self {
        let mut leader = Self::default();
        leader.batch.add(&Command::SetDefaults(Defaults::BUILD));
        let settings = SettingsPatch { values: vec![(Setting::Partitions, 4)] };
        leader.batch.add(&Command::CreateTopic(CreateTopic { name: "orders".to_owned(), settings }));
        leader.batch.add(&Command::JoinGroup(JoinGroup {
            topic: TOPIC,
            group: "billing".to_owned(),
            settings: SettingsPatch { values: Vec::new() },
            start: StartPolicy::Earliest,
            member: MEMBER,
            secret_hash: 1,
        }));
        let begin = leader.close();
        leader.apply(begin);
        leader
    }

    /// One that has published, delivered and settled for a while.
    fn warm(has_keys: bool) -> Self {
        let mut leader = Self::new();
        for _ in 0..WARM_UP {
            leader.publish(has_keys);
            leader.deliver();
            let bytes = leader.close();
            let leased = leases(&leader.apply(bytes));
            leader.settle(&leased, true);
            let bytes = leader.close();
            leader.apply(bytes);
        }
        leader
    }

    fn close(&mut self) -> Bytes {
        self.time_ms += 1;
        let wall = WallTime::new(1_700_000_000_000 + self.time_ms);
        self.batch.close(Stamp { time: ClusterTime::new(self.time_ms), gap_ms: 0, wall })
    }

    fn apply(&mut self, bytes: Bytes) -> Applied {
        self.shard.apply(bytes, Epoch::new(1)).expect("commands of this build")
    }

    /// Adds 64 publishes of 8 producers, of 256 bytes.
    fn publish(&mut self, has_keys: bool) {
        let body = [b'm'; 270];
        for _ in 0..MESSAGES {
            let key = if has_keys { format!("key-{}", self.published % 1000) } else { String::new() };
            let producer_id = ProducerId::new(1 + self.published % 8);
            let producer_seq = ProducerSeq::new(1 + self.published / 8);
            let record = NewRecord { producer_id, producer_seq, key: key.as_bytes(), has_headers: false, body: &body };
            self.run.add(TOPIC, Partition::ANY, 264, 256, &record);
            self.published += 1;
        }
        self.batch.add_run(&self.run.take().expect("64"));
    }

    fn deliver(&mut self) {
        let grant = Grant::Push { window_messages: 1024, window_bytes: u64::MAX };
        self.batch.add(&Command::Deliver(Deliver {
            path: PATH,
            member: MEMBER,
            grant,
            max_messages: 64,
            stretch: None,
        }));
    }

    /// Acks each by itself, or consecutive ones together, as a node folds them.
    fn settle(&mut self, leased: &[(Partition, Seq, DeliveryId)], is_folded: bool) {
        let mut items: Vec<SettleItem> = Vec::new();
        for (partition, first_seq, first_delivery) in leased.iter().copied() {
            let follows = |last: &&mut SettleItem| {
                let count = u64::from(last.count);
                last.partition == partition
                    && last.first_seq.get() + count == first_seq.get()
                    && last.first_delivery.get() + count == first_delivery.get()
            };
            match items.last_mut().filter(follows).filter(|_| is_folded) {
                Some(last) => last.count += 1,
                None => {
                    items.push(SettleItem { partition, first_seq, first_delivery, count: 1, kind: SettleKind::Ack });
                }
            }
        }
        self.batch.add(&Command::Settle(Settle { path: PATH, items }));
    }
}

fn leases(applied: &Applied) -> Vec<(Partition, Seq, DeliveryId)> {
    let mut all = Vec::new();
    for effect in &applied.effects {
        if let Effect::Deliver(deliver) = effect {
            all.extend(deliver.leases.iter().map(|lease| (deliver.partition, lease.seq, lease.delivery_id)));
        }
    }
    all
}

fn publishes(has_keys: bool) -> (Leader, Bytes) {
    let mut leader = Leader::warm(has_keys);
    leader.publish(has_keys);
    let bytes = leader.close();
    (leader, bytes)
}

fn deliveries(has_keys: bool) -> (Leader, Bytes) {
    let (mut leader, bytes) = publishes(has_keys);
    leader.apply(bytes);
    leader.deliver();
    let bytes = leader.close();
    (leader, bytes)
}

fn settles(has_keys: bool, is_folded: bool) -> (Leader, Bytes) {
    let (mut leader, bytes) = deliveries(has_keys);
    let leased = leases(&leader.apply(bytes));
    assert_eq!(leased.len() as u64, MESSAGES);
    leader.settle(&leased, is_folded);
    let bytes = leader.close();
    (leader, bytes)
}

fn applied((mut leader, bytes): (Leader, Bytes)) -> (Leader, Applied) {
    let applied = leader.apply(black_box(bytes));
    black_box((leader, applied))
}

#[library_benchmark]
#[bench::without_keys(args = (publishes(false)), config = limit(138_412))]
#[bench::with_keys(args = (publishes(true)), config = limit(138_173))]
fn apply_64_publishes(given: (Leader, Bytes)) -> (Leader, Applied) {
    applied(given)
}

#[library_benchmark]
#[bench::without_keys(args = (deliveries(false)), config = limit(277_783))]
#[bench::with_keys(args = (deliveries(true)), config = limit(473_959))]
fn apply_deliver_of_64(given: (Leader, Bytes)) -> (Leader, Applied) {
    applied(given)
}

#[library_benchmark]
#[bench::in_ranges(args = (settles(false, true)), config = limit(235_400))]
#[bench::one_by_one(args = (settles(false, false)), config = limit(334_092))]
#[bench::with_keys(args = (settles(true, false)), config = limit(494_778))]
fn apply_settle_of_64(given: (Leader, Bytes)) -> (Leader, Applied) {
    applied(given)
}

#[library_benchmark]
#[bench::without_keys(args = (Leader::warm(false)), config = limit(110_681))]
fn build_batch_of_64_publishes(mut leader: Leader) -> (Leader, Bytes) {
    leader.publish(false);
    let bytes = leader.close();
    black_box((leader, bytes))
}

library_benchmark_group!(
    name = apply;
    benchmarks = apply_64_publishes, apply_deliver_of_64, apply_settle_of_64, build_batch_of_64_publishes
);
main!(library_benchmark_groups = apply);
