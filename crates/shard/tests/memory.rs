//! Goal: what a backlog costs in memory (failure rule 9): a million ready messages next to nothing, and each message that a
//! path has passed over at most 128 bytes, with all its indexes, however it waits. Method: the resident size of this
//! process, which runs this one test; what one case takes is kept, so that the next cannot use it again.
//!
//! `cargo test -p mortarmq-shard --test memory -- --nocapture` prints the figures.
#![cfg(target_os = "linux")]

use mortarmq_shard::command::{CreateTopic, Deliver, Settle};
use mortarmq_shard::record::NewRecord;
use mortarmq_shard::{
    BatchBuilder, Command, Defaults, Grant, JoinGroup, PublishRunBuilder, Setting, SettingsPatch, SettleItem,
    SettleKind, Shard, Stamp, StartPolicy,
};
use mortarmq_types::{
    ClusterTime, DeliveryId, Epoch, MemberId, Partition, PathId, ProducerId, ProducerSeq, Seq, TopicIncarnation,
    WallTime,
};

const TOPIC: TopicIncarnation = TopicIncarnation::new(1);
const PATH: PathId = PathId::new(1);
const MEMBER: MemberId = MemberId::new(70);
/// As many as may be passed over by default.
const PASSED: u64 = 65_536;
const MIB: u64 = 1 << 20;

/// How a message is brought to wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// It is not: it stays leased.
    Not,
    /// It is nacked with a long delay.
    Nacked,
}

/// A topic with one partition, and a group whose member holds nothing.
fn shard() -> (Shard, BatchBuilder) {
    let mut shard = Shard::default();
    let mut batch = BatchBuilder::default();
    let settings = SettingsPatch { values: vec![(Setting::Partitions, 1)] };
    batch.add(&Command::SetDefaults(Defaults::BUILD));
    batch.add(&Command::CreateTopic(CreateTopic { name: "orders".to_owned(), settings }));
    let settings = SettingsPatch { values: vec![(Setting::LeaseMs, 43_200_000)] };
    let (group, start) = ("billing".to_owned(), StartPolicy::Earliest);
    batch.add(&Command::JoinGroup(JoinGroup { topic: TOPIC, group, settings, start, member: MEMBER, secret_hash: 1 }));
    apply(&mut shard, &mut batch);
    (shard, batch)
}

fn apply(shard: &mut Shard, batch: &mut BatchBuilder) {
    let stamp = Stamp { time: ClusterTime::new(1000), gap_ms: 0, wall: WallTime::ZERO };
    shard.apply(batch.close(stamp), Epoch::new(1)).expect("commands of this build");
}

fn publish(batch: &mut BatchBuilder, numbers: std::ops::Range<u64>, key: impl Fn(u64) -> String) {
    let mut run = PublishRunBuilder::default();
    for number in numbers {
        let (producer_id, producer_seq, key) = (ProducerId::ZERO, ProducerSeq::ZERO, key(number));
        let record = NewRecord { producer_id, producer_seq, key: key.as_bytes(), has_headers: false, body: b"value" };
        run.add(TOPIC, Partition::ZERO, 5, 5, &record);
    }
    batch.add_run(&run.take().expect("at least one"));
}

fn deliver(batch: &mut BatchBuilder, max_messages: u32) {
    let grant = Grant::Push { window_messages: u32::MAX, window_bytes: u64::MAX };
    batch.add(&Command::Deliver(Deliver { path: PATH, member: MEMBER, grant, max_messages, stretch: None }));
}

/// Bytes of memory that so many messages take which were passed over one after another. With few keys all but the first of
/// each wait for it.
fn passed_over(messages: u64, most: u32, ends: Ends, key: impl Fn(u64) -> String) -> u64 {
    let (mut shard, mut batch) = shard();
    let before = resident_bytes();
    for first in (0..messages).step_by(1024) {
        publish(&mut batch, first..first + 1024, &key);
        deliver(&mut batch, most);
        apply(&mut shard, &mut batch);
        if ends == Ends::Nacked {
            let kind = SettleKind::Nack { delay_ms: 40_000_000, error: String::new() };
            let (partition, first_seq, first_delivery) =
                (Partition::ZERO, Seq::new(first + 1), DeliveryId::new(first + 1));
            let item = SettleItem { partition, first_seq, first_delivery, count: 1024, kind };
            batch.add(&Command::Settle(Settle { path: PATH, items: vec![item] }));
            apply(&mut shard, &mut batch);
        }
    }
    // What is left of a step that was spent on messages of other keys.
    deliver(&mut batch, most);
    apply(&mut shard, &mut batch);
    let bytes = resident_bytes().saturating_sub(before);
    let path = &shard.state().paths[&PATH].partitions[0];
    assert_eq!(path.passed_over() + path.packed(), messages);
    assert_eq!(path.in_flight() == messages, ends == Ends::Not && most == 1024);
    shard.check();
    std::mem::forget(shard);
    bytes
}

#[test]
fn a_backlog_costs_disk_and_what_is_passed_over_at_most_128_bytes_a_message() {
    let (mut shard, mut batch) = shard();
    for first in (0..1_000_000).step_by(1000) {
        publish(&mut batch, first..first + 1000, |number| number.to_string());
        apply(&mut shard, &mut batch);
    }
    assert_eq!(shard.state().books(&shard.state().paths[&PATH]).depth, 1_000_000);
    let all = resident_bytes();
    println!("a million ready messages: {} MiB, the whole process", all / MIB);
    assert!(all < 200 * MIB, "a million ready messages take {all} bytes");
    std::mem::forget(shard);

    let none = |_: u64| String::new();
    let own = |number: u64| format!("key-{number}");
    let cases = [
        ("of 64 keys, behind a lease", 8 * MIB, passed_over(PASSED, 64, Ends::Not, |number| (number % 64).to_string())),
        ("without key, nacked with a delay", 8 * MIB, passed_over(PASSED, 1024, Ends::Nacked, none)),
        ("with a key each, nacked with a delay", 8 * MIB, passed_over(PASSED, 1024, Ends::Nacked, own)),
        // These are bounded by windows and `max_in_flight`; a lease is 48 bytes and two places in indexes more.
        ("without key, leased", 12 * MIB, passed_over(PASSED, 1024, Ends::Not, none)),
        ("with a key each, leased", 16 * MIB, passed_over(PASSED, 1024, Ends::Not, own)),
        ("of one key, behind a lease: a million", 12 * MIB, passed_over(1_000_448, 1, Ends::Not, |_| "hot".to_owned())),
    ];
    for (what, most, bytes) in cases {
        println!("messages {what}: {} KiB", bytes / 1024);
        assert!(bytes <= most, "messages {what}: {bytes} bytes, at most {most}");
    }
}

/// Pages of this process that are in memory.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * 4096
}
