//! How long the loop is held up by a checkpoint: an image of a state with a million entries is taken, and while it lives,
//! and is encoded elsewhere, work goes on that touches every partition. Prints the longest step with and without an image.
//!
//! `cargo bench -p mortarmq-shard --bench checkpoint_stall`; the goal is 2 ms.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a benchmark measures time; the crate takes it as an argument"
)]

use std::time::{Duration, Instant};

use bytes::BytesMut;
use mortarmq_shard::command::{CreateTopic, Deliver, Settle};
use mortarmq_shard::record::NewRecord;
use mortarmq_shard::{
    BatchBuilder, Command, Defaults, Effect, Grant, JoinGroup, PublishRunBuilder, Setting, SettingsPatch, SettleItem,
    SettleKind, Shard, Stamp, StartPolicy,
};
use mortarmq_types::{
    ClusterTime, DeliveryId, Epoch, MemberId, Partition, PathId, ProducerId, ProducerSeq, Seq, TopicIncarnation,
    WallTime,
};

const PARTITIONS: u64 = 16;
const ENTRIES: u64 = 1_000_000;
const STEPS: usize = 400;
const TOPIC: TopicIncarnation = TopicIncarnation::new(1);
const PATH: PathId = PathId::new(1);
const MEMBER: MemberId = MemberId::new(7);

struct Bench {
    shard: Shard,
    time: u64,
    producer_seq: u64,
    leased: Vec<(Partition, Seq, DeliveryId)>,
}

impl Bench {
    fn apply(&mut self, commands: &[Command], publishes: u64) -> Duration {
        let mut batch = BatchBuilder::default();
        for command in commands {
            batch.add(command);
        }
        let mut run = PublishRunBuilder::default();
        for _ in 0..publishes {
            self.producer_seq += 1;
            let producer_id = ProducerId::new(1 + self.producer_seq % 100);
            let producer_seq = ProducerSeq::new(1 + self.producer_seq / 100);
            let key = format!("key-{}", self.producer_seq % 10_007);
            let record =
                NewRecord { producer_id, producer_seq, key: key.as_bytes(), has_headers: false, body: &[0; 16] };
            run.add(TOPIC, Partition::ANY, 16, 8, &record);
        }
        if let Some(run) = run.take() {
            batch.add_run(&run);
        }
        self.time += 1;
        let stamp = Stamp { time: ClusterTime::new(self.time), gap_ms: 0, wall: WallTime::ZERO };
        let bytes = batch.close(stamp);
        let begun = Instant::now();
        let applied = self.shard.apply(bytes, Epoch::new(1)).expect("commands of this build");
        let took = begun.elapsed();
        for effect in &applied.effects {
            if let Effect::Deliver(deliver) = effect {
                let lease = |leased: &mortarmq_delivery::Leased| (deliver.partition, leased.seq, leased.delivery_id);
                self.leased.extend(deliver.leases.iter().map(lease));
            }
        }
        took
    }

    fn deliver() -> Command {
        let grant = Grant::Push { window_messages: u32::MAX, window_bytes: u64::MAX };
        Command::Deliver(Deliver { path: PATH, member: MEMBER, grant, max_messages: 1024, stretch: None })
    }

    /// One batch as under load: publishes, deliveries and acks over all partitions. Says how long its apply took.
    fn step(&mut self, number: usize) -> Duration {
        let ack = |place: usize| {
            let (partition, first_seq, first_delivery) = self.leased[place % self.leased.len()];
            SettleItem { partition, first_seq, first_delivery, count: 1, kind: SettleKind::Ack }
        };
        let items = (0..64).map(|item| ack((number * 64 + item) * 15_485_863)).collect();
        self.apply(&[Command::Settle(Settle { path: PATH, items }), Self::deliver()], 64)
    }

    fn longest(&mut self, from: usize) -> Duration {
        (from..from + STEPS).map(|number| self.step(number)).max().expect("there are steps")
    }
}

fn main() {
    let mut bench = Bench { shard: Shard::default(), time: 1, producer_seq: 0, leased: Vec::new() };
    let settings = SettingsPatch { values: vec![(Setting::Partitions, PARTITIONS)] };
    let join = JoinGroup {
        topic: TOPIC,
        group: "billing".to_owned(),
        settings: SettingsPatch { values: vec![(Setting::Order, 0), (Setting::MaxPassedOver, 1_000_000)] },
        start: StartPolicy::Earliest,
        member: MEMBER,
        secret_hash: 1,
    };
    let name = "orders".to_owned();
    let begin = [
        Command::SetDefaults(Defaults::BUILD),
        Command::CreateTopic(CreateTopic { name, settings }),
        Command::JoinGroup(join),
    ];
    bench.apply(&begin, 0);
    while (bench.leased.len() as u64) < ENTRIES {
        bench.apply(&vec![Bench::deliver(); 16], 1024 * 12);
    }
    bench.shard.check();
    let quiet = bench.longest(0);
    let begun = Instant::now();
    let image = bench.shard.image();
    let taking = begun.elapsed();
    let encoding = std::thread::spawn(move || {
        let mut bytes = BytesMut::new();
        image.encode(&mut bytes);
        // It lives as long as the steps below may need to show what it costs.
        std::thread::sleep(Duration::from_secs(2));
        bytes.len()
    });
    let during = bench.longest(STEPS);
    let bytes = encoding.join().expect("the image is encoded");
    println!("entries {}, image of {bytes} bytes", bench.leased.len());
    println!("taking the image: {taking:?}");
    println!("longest apply of {STEPS} batches: {quiet:?} without an image, {during:?} while one lives");
}
