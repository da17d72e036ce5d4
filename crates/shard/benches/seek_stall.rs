//! How long the loop is held up when an operator moves a group over ten million messages: seeks both ways and a purge, with
//! and without tens of thousands of messages that were offered and are not settled. Prints the median and the longest
//! batch of each, the ones with which it goes on among them.
//!
//! `cargo bench -p mortarmq-shard --bench seek_stall`; no batch should take 2 ms.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a benchmark measures time; the crate takes it as an argument"
)]

use std::time::{Duration, Instant};

use mortarmq_shard::command::{CreateTopic, Deliver, SeekTarget, Settle};
use mortarmq_shard::record::NewRecord;
use mortarmq_shard::{
    BatchBuilder, Command, Defaults, Effect, Grant, JoinGroup, PublishRunBuilder, Setting, SettingsPatch, SettleItem,
    SettleKind, Shard, Stamp, StartPolicy,
};
use mortarmq_types::{
    ClusterTime, DeliveryId, Epoch, MemberId, Partition, PathId, ProducerId, ProducerSeq, Seq, TopicIncarnation,
    WallTime,
};

const PARTITIONS: u16 = 4;
const MESSAGES: u64 = 10_000_000;
const TOPIC: TopicIncarnation = TopicIncarnation::new(1);
/// It begins behind all messages, and nobody reads for it.
const LATE: PathId = PathId::new(2);
/// It reads some, and leaves some of those.
const BUSY: PathId = PathId::new(1);
const MEMBER: MemberId = MemberId::new(7);

struct Bench {
    shard: Shard,
    time: u64,
    leased: Vec<(Partition, Seq, DeliveryId)>,
}

impl Bench {
    fn apply(&mut self, batch: &mut BatchBuilder) -> Duration {
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

    fn commands(&mut self, commands: &[Command]) -> Duration {
        let mut batch = BatchBuilder::default();
        commands.iter().for_each(|command| batch.add(command));
        self.apply(&mut batch)
    }

    fn publish(&mut self) {
        let record = NewRecord {
            producer_id: ProducerId::ZERO,
            producer_seq: ProducerSeq::ZERO,
            key: b"",
            has_headers: false,
            body: b"value",
        };
        let mut batch = BatchBuilder::default();
        for first in (0..MESSAGES).step_by(1000) {
            let mut run = PublishRunBuilder::default();
            for number in first..first + 1000 {
                let partition = Partition::new((number % u64::from(PARTITIONS)) as u16);
                run.add(TOPIC, partition, 5, 5, &record);
            }
            batch.add_run(&run.take().expect("a thousand"));
            self.apply(&mut batch);
        }
    }

    /// Leases what there is, a thousand at a time, and acks all but each fourth, until as many are left.
    fn read(&mut self, unsettled: usize) {
        let grant = Grant::Push { window_messages: u32::MAX, window_bytes: u64::MAX };
        let deliver = Deliver { path: BUSY, member: MEMBER, grant, max_messages: 1024, stretch: None };
        let mut left = 0;
        while left < unsettled {
            self.commands(&[Command::Deliver(deliver.clone())]);
            let leased = std::mem::take(&mut self.leased);
            assert!(!leased.is_empty(), "there is something to lease");
            left += leased.len().div_ceil(4);
            let done = leased.into_iter().enumerate().filter(|(place, _)| place % 4 != 0);
            let items = done.map(|(_, (partition, first_seq, first_delivery))| SettleItem {
                partition,
                first_seq,
                first_delivery,
                count: 1,
                kind: SettleKind::Ack,
            });
            self.commands(&[Command::Settle(Settle { path: BUSY, items: items.collect() })]);
        }
    }

    /// Applies a command and the batches with which it goes on.
    fn longest(&mut self, what: &str, command: Command) {
        let mut batches = vec![self.commands(&[command])];
        while self.is_moving() {
            batches.push(self.commands(&[]));
        }
        // The longest tells of the machine as well, which may stop this thread; the median does not.
        batches.sort_unstable();
        let (median, longest) = (batches[batches.len() / 2], batches[batches.len() - 1]);
        let books = |path| self.shard.state().books(&self.shard.state().paths[&path]);
        let depth = [BUSY, LATE].map(|path| books(path).depth);
        println!("{what}: {} batches, median {median:?}, longest {longest:?}; depth {depth:?}", batches.len());
    }

    fn is_moving(&self) -> bool {
        let paths = self.shard.state().paths.values();
        paths
            .flat_map(|path| path.partitions.made())
            .any(|(_, partition)| partition.next_due(0) == Some(ClusterTime::ZERO))
    }
}

fn seek(path: PathId, place: impl Fn(u16) -> u64) -> Command {
    let to = (0..PARTITIONS).map(|number| (Partition::new(number), Seq::new(place(number)))).collect();
    Command::SeekPath { path, target: SeekTarget::At(to) }
}

fn main() {
    let mut bench = Bench { shard: Shard::default(), time: 1, leased: Vec::new() };
    let settings = SettingsPatch { values: vec![(Setting::Partitions, u64::from(PARTITIONS))] };
    let join = |group: &str, start, member| {
        Command::JoinGroup(JoinGroup {
            topic: TOPIC,
            group: group.to_owned(),
            settings: SettingsPatch { values: vec![(Setting::Order, 0)] },
            start,
            member,
            secret_hash: 1,
        })
    };
    bench.commands(&[
        Command::SetDefaults(Defaults::BUILD),
        Command::CreateTopic(CreateTopic { name: "orders".to_owned(), settings }),
        join("busy", StartPolicy::Earliest, MEMBER),
    ]);
    // Read while they come, as the state knows only the newest without an index.
    bench.publish();
    bench.commands(&[join("late", StartPolicy::Latest, MemberId::new(8))]);
    let last = MESSAGES / u64::from(PARTITIONS);
    bench.longest("late, back to the first", seek(LATE, |_| 1));
    bench.longest("late, on to the last", seek(LATE, |_| last + 1));
    bench.longest("late, back to the first, ten million replayed", seek(LATE, |_| 1));
    bench.longest("late, purged", Command::PurgePath { path: LATE });
    // What the state still knows of, so that it can be leased here.
    bench.longest("busy, on to the newest 50,000 of each partition", seek(BUSY, |_| last - 50_000));
    bench.read(40_000);
    bench.longest("busy with 40,000 unsettled, back to the first", seek(BUSY, |_| 1));
    bench.longest("busy with 40,000 unsettled, on to the last", seek(BUSY, |_| last + 1));
    bench.longest("busy, back among the unsettled", seek(BUSY, |_| last - 25_000));
    bench.longest("busy, purged", Command::PurgePath { path: BUSY });
    bench.shard.check();
}
