//! Goal: a message that kills its workers ends in the dead-letter topic by itself: what was in the same hands is charged at
//! most two attempts, and no state of members, windows, keys or limits makes anybody wait for ever (P4, wire rule 6).
//! Method: workers that die of certain messages, with a restart between any two batches.

use super::*;
use crate::state::State;
use bytes::BytesMut;
use mortarmq_delivery::Books;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

const B: MemberId = MemberId::new(71);
const C: MemberId = MemberId::new(72);

/// Commands over a shard that restarts after each.
struct Lives {
    bench: Bench,
    /// Attempts that each message was charged, by sequence.
    charged: BTreeMap<u64, u32>,
}

impl Lives {
    /// A topic with so many partitions, and a group without backoff.
    fn of(partitions: u64, group: &[(Setting, u64)]) -> Self {
        let mut bench = Bench { shard: Shard::default(), time_ms: 0 };
        let settings = SettingsPatch { values: vec![(Setting::Partitions, partitions)] };
        bench.run(&[Command::CreateTopic(CreateTopic { name: "orders".to_owned(), settings })]);
        let mut lives = Self { bench, charged: BTreeMap::new() };
        let mut settings = SettingsPatch { values: group.to_vec() };
        settings.add(Setting::RetryBackoffBaseMs, 0);
        settings.add(Setting::LeaseMs, 1000);
        let start = StartPolicy::Earliest;
        let group = "billing".to_owned();
        lives.run(Command::JoinGroup(JoinGroup {
            topic: TOPIC,
            group,
            settings,
            start,
            member: MEMBER,
            secret_hash: 1,
        }));
        lives
    }

    fn run(&mut self, command: Command) -> Applied {
        let applied = self.bench.run(&[command]);
        let mut bytes = BytesMut::new();
        self.bench.shard.image().encode(&mut bytes);
        let restored = Shard::from_image(bytes.freeze()).expect("just written");
        assert_eq!(restored.state(), self.bench.shard.state());
        self.bench.shard = restored;
        for effect in &applied.effects {
            let Effect::Ledger(ledger) = effect else { continue };
            let counts = match ledger.event.kind {
                crate::ledger::LedgerKind::LeaseEnded(cause) => cause.counts(),
                crate::ledger::LedgerKind::Dead(_) => true,
                _ => false,
            };
            if counts && ledger.event.path == PATH {
                for seq in 0..u64::from(ledger.event.count) {
                    *self.charged.entry(ledger.event.first_seq.get() + seq).or_default() += 1;
                }
            }
        }
        applied
    }

    fn join(&mut self, member: MemberId) {
        self.run(join("billing", member));
    }

    fn lose(&mut self, member: MemberId) {
        self.run(Command::EndMember(EndMember { path: PATH, member, lost: true }));
    }

    /// What a member is given, as partition, sequence and delivery; and what it then holds in all.
    fn deliver(&mut self, member: MemberId, grant: Grant) -> Vec<(Partition, Seq, DeliveryId)> {
        let grant = if let Grant::Pull { max_bytes, .. } = grant { pull(max_bytes) } else { grant };
        let deliver = Deliver { path: PATH, member, grant, max_messages: 1024, stretch: None };
        let given = delivered(self.run(Command::Deliver(deliver)));
        let one = |it: &DeliverEffect| -> Vec<_> {
            it.leases.iter().map(|lease| (it.partition, lease.seq, lease.delivery_id)).collect()
        };
        given.iter().flat_map(one).collect()
    }

    fn push(&mut self, member: MemberId) -> Vec<u64> {
        self.deliver(member, push(256)).iter().map(|(_, seq, _)| seq.get()).collect()
    }

    fn settle(&mut self, seq: u64, kind: SettleKind) {
        let entry = self.state().paths[&PATH].partitions[0].lease_of(Seq::new(seq));
        let first_delivery = entry.and_then(|entry| entry.lease()).expect("it is leased").delivery_id;
        let (partition, first_seq) = (Partition::ZERO, Seq::new(seq));
        let item = SettleItem { partition, first_seq, first_delivery, count: 1, kind };
        self.run(Command::Settle(Settle { path: PATH, items: vec![item] }));
    }

    fn ack(&mut self, seqs: impl IntoIterator<Item = u64>) {
        seqs.into_iter().for_each(|seq| self.settle(seq, SettleKind::Ack));
    }

    fn state(&self) -> &State {
        self.bench.shard.state()
    }

    fn books(&self) -> Books {
        self.state().books(&self.state().paths[&PATH])
    }

    /// Two messages, 1 and 2, that two workers died of. `MEMBER` is gone.
    fn suspects(group: &[(Setting, u64)]) -> Self {
        let mut lives = Self::of(1, group);
        lives.bench.publish(1..3, b"", b"order");
        for worker in [MemberId::new(90), MemberId::new(91)] {
            lives.join(worker);
            assert_eq!(lives.push(worker), [1, 2]);
            lives.lose(worker);
        }
        lives.lose(MEMBER);
        lives
    }
}

fn push(window_messages: u32) -> Grant {
    Grant::Push { window_messages, window_bytes: 1 << 20 }
}

/// A pull that never was.
fn pull(max_bytes: u64) -> Grant {
    static LAST: AtomicU64 = AtomicU64::new(0);
    Grant::Pull { node_incarnation: 1, pull_id: 1 + LAST.fetch_add(1, Ordering::Relaxed), max_bytes }
}

/// Lets workers come one after another, each taking what it is given and acking it, unless it dies of it: of what it has in
/// its hands nothing is acked before. Says how many died.
fn work_until_done(lives: &mut Lives, grant: Grant, is_poison: impl Fn(u64) -> bool) -> u64 {
    let mut died = 0;
    let mut worker = MEMBER;
    for _ in 0..2000 {
        lives.bench.time_ms += 1;
        let given = lives.deliver(worker, grant);
        if given.is_empty() {
            return died;
        }
        if given.iter().any(|(_, seq, _)| is_poison(seq.get())) {
            died += 1;
            lives.lose(worker);
            worker = MemberId::new(100 + died);
            lives.join(worker);
            continue;
        }
        let item = |&(partition, first_seq, first_delivery): &(Partition, Seq, DeliveryId)| SettleItem {
            partition,
            first_seq,
            first_delivery,
            count: 1,
            kind: SettleKind::Ack,
        };
        lives.run(Command::Settle(Settle { path: PATH, items: given.iter().map(item).collect() }));
    }
    panic!("the path does not come to an end: {:?}", lives.books());
}

#[test]
fn p4_a_message_that_kills_its_workers_dies_alone() {
    for grant in [push(256), pull(0)] {
        for (attempts, poison) in [(3, vec![100]), (5, vec![100]), (3, vec![1, 2, 256]), (5, vec![17, 18, 19, 20, 255])]
        {
            let mut lives = Lives::of(1, &[(Setting::MaxAttempts, attempts)]);
            lives.bench.publish(1..257, b"", b"order");
            let died = work_until_done(&mut lives, grant, |seq| poison.contains(&seq));
            let dead = poison.len() as u64;
            let expected = Books { produced: 256, delivered: 256 - dead, dlq: dead, ..Books::default() };
            assert_eq!(lives.books(), expected);
            for seq in 1..=256 {
                let charged = lives.charged.get(&seq).copied().unwrap_or(0);
                if poison.contains(&seq) {
                    assert_eq!(u64::from(charged), attempts, "message {seq} used up its attempts");
                } else {
                    assert!(charged <= 2, "message {seq} was charged {charged} attempts for its neighbours");
                }
            }
            // Twice all of them in one pair of hands, then each by itself.
            assert_eq!(died, 2 + dead * (attempts - 2), "{attempts} attempts, {poison:?}");
        }
    }
}

#[test]
fn p4_a_message_that_kills_its_workers_dies_alone_among_keys_partitions_and_limits() {
    for limit in [0, 1, 7] {
        let mut lives = Lives::of(3, &[(Setting::MaxInFlight, limit), (Setting::MaxPassedOver, 20)]);
        for number in 1..100 {
            lives.bench.publish(number..number + 1, format!("key-{}", number % 9).as_bytes(), b"order");
        }
        let poison = |seq: u64| seq % 20 == 5;
        work_until_done(&mut lives, push(64), poison);
        let books = lives.books();
        assert_eq!((books.produced, books.depth, books.dropped), (99, 0, 0), "{books:?}");
        let seqs = lives.state().topics[&TOPIC].partitions.iter().flat_map(|it| 1..=it.last_seq.get());
        assert_eq!(books.dlq, seqs.filter(|seq| poison(*seq)).count() as u64, "none of the others is dead");
    }
}

#[test]
fn the_one_that_holds_least_is_given_nothing_until_it_is_empty() {
    let mut lives = Lives::of(1, &[]);
    lives.bench.publish(1..20, b"", b"order");
    lives.join(B);
    lives.join(C);
    let window = |lives: &mut Lives, member, size| lives.deliver(member, push(size)).len();
    assert_eq!((window(&mut lives, MEMBER, 3), window(&mut lives, C, 2), window(&mut lives, B, 2)), (3, 2, 2));
    // 8 is in the hands of workers that die.
    for worker in [MemberId::new(90), MemberId::new(91)] {
        lives.join(worker);
        assert_eq!(lives.deliver(worker, push(1)).len(), 1);
        lives.lose(worker);
    }
    assert_eq!(lives.push(MEMBER).len(), 11, "9 to 19, not 8");
    lives.bench.publish(20..30, b"", b"order");
    // B and C hold two each, and B has the lower id.
    assert_eq!(lives.push(B), [0; 0]);
    assert!(!lives.push(C).is_empty());
    lives.ack([6]);
    assert_eq!(lives.push(B), [0; 0], "it holds 7");
    lives.ack([7]);
    assert_eq!(lives.push(B), [8]);
    lives.bench.publish(30..32, b"", b"order");
    assert_eq!((lives.push(B).len(), lives.push(C)), (0, vec![30, 31]));
    lives.ack([8]);
    lives.bench.publish(32..33, b"", b"order");
    assert_eq!(lives.push(B), [32]);
}

#[test]
fn nobody_waits_for_one_that_asks_for_nothing_or_works_for_hours() {
    // `MEMBER` has the lowest id and is empty, and never asks: whoever asks takes its place.
    let mut lives = Lives::suspects(&[]);
    lives.join(B);
    lives.join(C);
    assert_eq!(lives.push(C), [1], "an empty one that asks gets it, whoever is reserved");
    lives.ack([1]);
    lives.settle_all_but(2);
    lives.bench.publish(3..9, b"", b"order");
    assert_eq!(lives.push(B), [2]);
    assert_eq!(lives.push(C), [3, 4, 5, 6, 7, 8]);
    lives.lose(B);
    // 2 is a suspect, C is full of work, B is gone, and MEMBER comes with a session that is not connected.
    lives.join(MEMBER);
    lives.bench.publish(9..11, b"", b"order");
    assert_eq!(lives.push(C), [9, 10], "MEMBER is reserved, it holds nothing");
    lives.bench.publish(11..12, b"", b"order");
    assert_eq!(lives.push(C), [0; 0], "it is empty and does not ask: now C is");
    lives.ack(3..11);
    assert_eq!(lives.push(C), [2]);
    lives.ack([2]);
    assert_eq!(lives.push(C), [11]);
}

#[test]
fn a_reserved_member_that_holds_its_messages_for_hours_makes_room_for_the_next() {
    let mut lives = Lives::of(1, &[]);
    lives.bench.publish(1..4, b"", b"order");
    lives.join(B);
    assert_eq!(lives.deliver(MEMBER, push(1)).len(), 1);
    assert_eq!(lives.deliver(B, push(1)).len(), 1);
    for worker in [MemberId::new(90), MemberId::new(91)] {
        lives.join(worker);
        assert_eq!(lives.push(worker), [3]);
        lives.lose(worker);
    }
    for _ in 0..10 {
        lives.bench.time_ms += 900;
        lives.settle(1, SettleKind::Extend);
        lives.settle(2, SettleKind::Extend);
        let number = lives.state().topics[&TOPIC].partitions[0].last_seq.get() + 1;
        lives.bench.publish(number..number + 1, b"", b"order");
        let (first, second) = (lives.push(MEMBER), lives.push(B));
        // One of them is reserved, in turn; the other goes on.
        assert!(first.is_empty() != second.is_empty(), "{first:?} {second:?}");
        lives.ack(first.into_iter().chain(second));
        lives.bench.time_ms += 50;
        lives.settle(1, SettleKind::Extend);
        lives.settle(2, SettleKind::Extend);
    }
    let number = lives.state().topics[&TOPIC].partitions[0].last_seq.get() + 1;
    lives.bench.publish(number..number + 1, b"", b"order");
    lives.settle(2, SettleKind::Ack);
    assert_eq!(lives.push(B), [3], "B worked shorter, and it is alone with it");
    assert_eq!(lives.push(MEMBER), [number]);
}

#[test]
fn a_reserved_member_that_leaves_or_dies_makes_room_for_another() {
    for lost in [true, false] {
        let mut lives = Lives::of(1, &[]);
        lives.bench.publish(1..4, b"", b"order");
        lives.join(B);
        assert_eq!((lives.deliver(MEMBER, push(1)).len(), lives.deliver(B, push(1)).len()), (1, 1));
        for worker in [MemberId::new(90), MemberId::new(91)] {
            lives.join(worker);
            assert_eq!(lives.push(worker), [3]);
            lives.lose(worker);
        }
        assert_eq!(lives.push(MEMBER), [0; 0], "it is reserved");
        lives.run(Command::EndMember(EndMember { path: PATH, member: MEMBER, lost }));
        lives.bench.time_ms += 1;
        // What it held comes again: given to B it would not be alone, and B is the only one left.
        assert_eq!(lives.push(B), [0; 0]);
        lives.ack([2]);
        assert_eq!(lives.push(B), [3]);
        lives.ack([3]);
        assert_eq!(lives.push(B), [1]);
        lives.ack([1]);
        assert_eq!(lives.books().delivered, 3);
    }
}

#[test]
fn a_pull_gets_one_that_is_alone_when_its_member_holds_nothing() {
    let mut lives = Lives::suspects(&[]);
    lives.join(MEMBER);
    assert_eq!(lives.deliver(MEMBER, pull(5)), [], "larger than the pull allows");
    assert_eq!(lives.deliver(MEMBER, pull(0)).len(), 1);
    assert_eq!((lives.deliver(MEMBER, pull(0)), lives.push(MEMBER)), (vec![], vec![]));
    lives.ack([1]);
    assert_eq!(lives.deliver(MEMBER, pull(0)).len(), 1);
    lives.ack([2]);
    assert_eq!(lives.books().delivered, 2);
}

#[test]
fn a_purge_of_what_is_alone_sets_its_member_free() {
    let mut lives = Lives::suspects(&[]);
    lives.join(MEMBER);
    assert_eq!(lives.push(MEMBER), [1]);
    lives.run(Command::PurgePath { path: PATH });
    lives.bench.publish(3..5, b"", b"order");
    assert_eq!(lives.push(MEMBER), [3, 4]);
}

impl Lives {
    /// Acks what is leased, but for one message.
    fn settle_all_but(&mut self, kept: u64) {
        let partition = &self.state().paths[&PATH].partitions[0];
        let leased: Vec<u64> =
            partition.unsettled().filter(|(_, entry)| entry.lease().is_some()).map(|(seq, _)| seq.get()).collect();
        self.ack(leased.into_iter().filter(|seq| *seq != kept));
    }
}
