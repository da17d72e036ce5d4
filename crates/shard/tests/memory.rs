//! Goal: what a backlog costs in memory (failure rule 9): a million ready messages next to nothing, and each message that a
//! path has passed over at most 128 bytes, with all its indexes, however it waits. Method: the resident size of a process,
//! one for each case, so that none can use again what another has left.
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
/// How many do not wait, before anything is measured: their commands have more than 2 MiB.
const FIRST: u64 = 32 * 1024;
const MIB: u64 = 1 << 20;

/// How a message is brought to wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// It is not: it stays leased.
    Not,
    /// It is nacked with a long delay.
    Nacked,
}

/// A way in which messages wait.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    messages: u64,
    /// How many one `Deliver` leases.
    most: u32,
    ends: Ends,
    /// How many keys there are; 0 is none.
    keys: u64,
    /// How many members are given messages in turn.
    members: u64,
}

const CASES: [Case; 8] = [
    Case { name: "of 64 keys, behind a lease", most: 64, keys: 64, ..LEASED },
    Case { name: "without key, nacked with a delay", ends: Ends::Nacked, ..LEASED },
    Case { name: "with a key each, nacked with a delay", ends: Ends::Nacked, keys: PASSED, ..LEASED },
    LEASED,
    Case { name: "with a key each, leased", keys: PASSED, ..LEASED },
    // Each has a holder, a deadline and a command of its own.
    Case { name: "without key, leased one by one to 64 members", most: 1, members: 64, ..LEASED },
    Case { name: "with a key each, leased one by one to 64 members", most: 1, members: 64, keys: PASSED, ..LEASED },
    Case { name: "of one key, behind a lease: a million", messages: 1_000_448, most: 1, keys: 1, ..LEASED },
];
const LEASED: Case =
    Case { name: "without key, leased", messages: PASSED, most: 1024, ends: Ends::Not, keys: 0, members: 1 };

/// In which this process is told to measure one case, by its number.
const CASE: &str = "MORTARMQ_MEMORY_CASE";

/// A topic with one partition, and a group whose member holds nothing.
fn shard() -> (Shard, BatchBuilder) {
    let mut shard = Shard::default();
    let mut batch = BatchBuilder::default();
    let settings = SettingsPatch { values: vec![(Setting::Partitions, 1)] };
    batch.add(&Command::SetDefaults(Defaults::BUILD));
    batch.add(&Command::CreateTopic(CreateTopic { name: "orders".to_owned(), settings }));
    let settings = SettingsPatch { values: vec![(Setting::LeaseMs, 43_200_000)] };
    join_with(&mut batch, MEMBER, settings);
    apply(&mut shard, &mut batch, 0);
    (shard, batch)
}

fn member(number: u64) -> MemberId {
    MemberId::new(MEMBER.get() + number)
}

fn join(batch: &mut BatchBuilder, member: MemberId) {
    join_with(batch, member, SettingsPatch::default());
}

fn join_with(batch: &mut BatchBuilder, member: MemberId, settings: SettingsPatch) {
    let (group, start) = ("billing".to_owned(), StartPolicy::Earliest);
    batch.add(&Command::JoinGroup(JoinGroup { topic: TOPIC, group, settings, start, member, secret_hash: 1 }));
}

fn apply(shard: &mut Shard, batch: &mut BatchBuilder, time_ms: u64) {
    let stamp = Stamp { time: ClusterTime::new(1000 + time_ms), gap_ms: 0, wall: WallTime::ZERO };
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

fn deliver(batch: &mut BatchBuilder, member: MemberId, max_messages: u32) {
    let grant = Grant::Push { window_messages: u32::MAX, window_bytes: u64::MAX };
    batch.add(&Command::Deliver(Deliver { path: PATH, member, grant, max_messages, stretch: None }));
}

/// Bytes of memory that messages take which were passed over one after another. With few keys all but the first of each wait
/// for it.
fn passed_over(case: Case) -> u64 {
    let (mut shard, mut batch) = shard();
    for number in 1..case.members {
        join(&mut batch, member(number));
    }
    apply(&mut shard, &mut batch, 0);
    // Batches and results take memory too, which is used again for the next: the piece of 1 MiB that batches share is all in
    // memory once as many bytes went through it. The first messages do not wait.
    for first in (0..FIRST).step_by(1024) {
        publish(&mut batch, first..first + 1024, |number| format!("first-{number}"));
        deliver(&mut batch, MEMBER, 1024);
        settle(&mut batch, first, SettleKind::Ack);
        apply(&mut shard, &mut batch, 0);
    }
    let before = resident_bytes();
    for first in (FIRST..FIRST + case.messages).step_by(1024) {
        publish(&mut batch, first..first + 1024, |number| key(case, number));
        apply(&mut shard, &mut batch, first);
        let deliveries = if case.members == 1 { 1 } else { 1024 };
        for number in first..first + deliveries {
            deliver(&mut batch, member(number % case.members), case.most);
            if case.members > 1 {
                apply(&mut shard, &mut batch, number);
            }
        }
        apply(&mut shard, &mut batch, first);
        if case.ends == Ends::Nacked {
            settle(&mut batch, first, SettleKind::Nack { delay_ms: 40_000_000, error: String::new() });
            apply(&mut shard, &mut batch, first);
        }
    }
    // What is left of a step that was spent on messages of other keys.
    deliver(&mut batch, MEMBER, case.most);
    apply(&mut shard, &mut batch, case.messages);
    let bytes = resident_bytes().saturating_sub(before);
    let path = &shard.state().paths[&PATH].partitions[0];
    assert_eq!(path.passed_over() + path.packed(), case.messages);
    let all_leased = case.ends == Ends::Not && (case.keys == 0 || case.keys == PASSED);
    assert_eq!(path.in_flight() == case.messages, all_leased);
    shard.check();
    bytes
}

/// Settles 1,024 messages that were delivered once.
fn settle(batch: &mut BatchBuilder, first: u64, kind: SettleKind) {
    let (first_seq, first_delivery) = (Seq::new(first + 1), DeliveryId::new(first + 1));
    let item = SettleItem { partition: Partition::ZERO, first_seq, first_delivery, count: 1024, kind };
    batch.add(&Command::Settle(Settle { path: PATH, items: vec![item] }));
}

fn key(case: Case, number: u64) -> String {
    if case.keys == 0 { String::new() } else { format!("key-{}", number % case.keys) }
}

/// Bytes of this whole process with a million messages that nobody was given.
fn ready() -> u64 {
    let (mut shard, mut batch) = shard();
    for first in (0..1_000_000).step_by(1000) {
        publish(&mut batch, first..first + 1000, |number| number.to_string());
        apply(&mut shard, &mut batch, 0);
    }
    assert_eq!(shard.state().books(&shard.state().paths[&PATH]).depth, 1_000_000);
    resident_bytes()
}

/// What a process of its own says of a case.
fn measured(case: usize) -> u64 {
    let this = std::env::current_exe().expect("a running program has a file");
    let mut run = std::process::Command::new(this);
    run.args([TEST, "--exact", "--nocapture"]).env(CASE, case.to_string());
    let output = run.output().expect("this program runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let bytes = text.lines().find_map(|line| line.strip_prefix("bytes: ")?.parse().ok());
    bytes.unwrap_or_else(|| panic!("case {case}: {text}\n{}", String::from_utf8_lossy(&output.stderr)))
}

const TEST: &str = "a_backlog_costs_disk_and_what_is_passed_over_at_most_128_bytes_a_message";

#[test]
#[expect(clippy::disallowed_methods, reason = "which case a process of this test measures comes from outside")]
fn a_backlog_costs_disk_and_what_is_passed_over_at_most_128_bytes_a_message() {
    if let Ok(number) = std::env::var(CASE) {
        let number: usize = number.parse().expect("a number of a case");
        // The test's harness has begun this line.
        println!("\nbytes: {}", CASES.get(number).map_or_else(ready, |case| passed_over(*case)));
        return;
    }
    let all = measured(CASES.len());
    println!("a million ready messages: {} MiB, the whole process", all / MIB);
    assert!(all < 200 * MIB, "a million ready messages take {all} bytes");
    let found: Vec<u64> = (0..CASES.len()).map(measured).collect();
    for (case, bytes) in CASES.iter().zip(&found) {
        println!("messages {}: {} KiB", case.name, bytes / 1024);
    }
    for (case, bytes) in CASES.iter().zip(found) {
        let most = match case {
            // What is packed takes 8 bytes.
            Case { keys: 1, .. } => 12 * MIB,
            Case { .. } => 8 * MIB,
        };
        assert!(bytes <= most, "messages {}: {bytes} bytes, at most {most}", case.name);
    }
}

/// Pages of this process that are in memory.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * 4096
}
