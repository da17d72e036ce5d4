//! What a delayed message costs in memory: a million are published, and the resident size before and after is compared.
//!
//! `cargo bench -p mortarmq-shard --bench delayed_memory`, on Linux.

use mortarmq_shard::command::CreateTopic;
use mortarmq_shard::record::NewRecord;
use mortarmq_shard::{BatchBuilder, Command, Defaults, PublishRunBuilder, Setting, SettingsPatch, Shard, Stamp, Times};
use mortarmq_types::{ClusterTime, Epoch, Partition, ProducerId, ProducerSeq, TopicIncarnation, WallTime};

const MESSAGES: u64 = 1_000_000;
const TOPIC: TopicIncarnation = TopicIncarnation::new(1);

fn main() {
    for (what, delay_of) in [
        ("one delay for all", (|_| 86_400_000) as fn(u64) -> u64),
        ("delays spread over a day", |number| 86_400_000 + number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 86_400_000),
    ] {
        let mut shard = Shard::default();
        let settings = SettingsPatch { values: vec![(Setting::Partitions, 1)] };
        let mut batch = BatchBuilder::default();
        batch.add(&Command::SetDefaults(Defaults::BUILD));
        batch.add(&Command::CreateTopic(CreateTopic { name: "orders".to_owned(), settings }));
        apply(&mut shard, &mut batch, 1);
        let before = resident_bytes();
        for first in (0..MESSAGES).step_by(1000) {
            let mut run = PublishRunBuilder::default();
            for number in first..first + 1000 {
                let (producer_id, producer_seq) = (ProducerId::ZERO, ProducerSeq::ZERO);
                let record = NewRecord { producer_id, producer_seq, key: b"", has_headers: false, body: b"value" };
                let times = Times { delay_ms: delay_of(number), ttl_ms: 0 };
                run.add_timed(TOPIC, Partition::ZERO, (5, 5), &record, times);
            }
            batch.add_run(&run.take().expect("a thousand"));
            apply(&mut shard, &mut batch, 2 + first);
        }
        let delayed = shard.state().topics[&TOPIC].partitions[0].schedule.len() as u64;
        assert_eq!(delayed, MESSAGES);
        let bytes = resident_bytes().saturating_sub(before);
        println!("{what}: {delayed} messages, {} bytes each", bytes / delayed);
        // What is freed would be used again by the next, and not be seen.
        std::mem::forget(shard);
    }
}

fn apply(shard: &mut Shard, batch: &mut BatchBuilder, time: u64) {
    let stamp = Stamp { time: ClusterTime::new(time), gap_ms: 0, wall: WallTime::ZERO };
    shard.apply(batch.close(stamp), Epoch::new(1)).expect("commands of this build");
}

/// Pages of this process that are in memory.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * 4096
}
