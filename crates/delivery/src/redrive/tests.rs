//! Single messages that are dropped or brought back: the books, the order, and what is kept for how long.

use bytes::BytesMut;
use mortarmq_types::{
    Attempt, Cause, ClusterTime, DeliveryId, DropReason, KeyHash, LeaseTime, MemberId, Position, Seq,
};

use super::{Redriven, Refused};
use crate::{
    ending::{End, Ended},
    lease::{Fact, Facts, Handed, LeaseLimits, LeaseRequest, LeaseStop, Leased},
    path_partition::PathPartition,
    rules::{Grant, Now, Order, PathRules},
    settle::{Settle, Settled},
};

/// Odd messages have one key, even ones none.
struct Keys;

impl Facts for Keys {
    fn fact(&self, seq: Seq) -> Option<Fact> {
        let key_hash = if seq.get() % 2 == 1 { KEY } else { KeyHash::NONE };
        Some(Fact { key_hash, size_bytes: 10, expires_at_ms: 0 })
    }
}

const KEY: KeyHash = KeyHash::new(7);
const RULES: PathRules = PathRules {
    max_acked_ahead: 0,
    order: Order::Key,
    lease_ms: 1000,
    backoff_base_ms: 0,
    backoff_max_ms: 0,
    max_passed_over: 100,
    max_in_flight: 0,
    max_attempts: 1,
};
const NOW: Now = Now { cluster: ClusterTime::new(50), lease: LeaseTime::new(40) };
const LAST: Seq = Seq::new(9);

struct Rig {
    path: PathPartition,
    last_delivery: DeliveryId,
}

impl Rig {
    fn new() -> Self {
        Self { path: PathPartition::new(Seq::FIRST), last_delivery: DeliveryId::ZERO }
    }

    fn lease(&mut self, messages: u32) -> Vec<Leased> {
        let limits = LeaseLimits { messages, bytes: 1000, steps: 100, first_may_exceed_bytes: false };
        let (member, granted_at) = (MemberId::new(1), Position::default());
        let may_pass_over = true;
        let request =
            LeaseRequest { member, grant: Grant::Pull, limits, may_pass_over, last_seq: LAST, now: NOW, granted_at };
        let mut handed = Handed::default();
        let stop = self.path.lease(&request, &RULES, &Keys, &mut self.last_delivery, &mut handed);
        assert!(matches!(stop, LeaseStop::NothingReady | LeaseStop::LimitReached), "{stop:?}");
        self.check();
        handed.leased
    }

    fn settle(&mut self, lease: &Leased, how: Settle) -> Vec<Ended> {
        let mut ended = Vec::new();
        let done = self.path.settle(lease.seq, lease.delivery_id, how, &RULES, NOW, &mut ended);
        assert_eq!(done, Ok(Settled::Done));
        self.check();
        ended
    }

    fn drop_single(&mut self, seq: u64) -> Result<DeliveryId, Refused> {
        let done = self.path.drop_single(Seq::new(seq), DropReason::Redriven, LAST, &Keys);
        self.check();
        done
    }

    fn redrive(&mut self, seq: u64, previous: u64) -> Result<(), Refused> {
        let (key_hash, seq) = (Keys.fact(Seq::new(seq)).expect("all have facts").key_hash, Seq::new(seq));
        let redriven = Redriven {
            seq,
            key_hash,
            size_bytes: 10,
            previous: DeliveryId::new(previous),
            source: Seq::new(100).plus(seq.get()),
        };
        let done = self.path.redrive(&redriven, &RULES, &Keys);
        self.check();
        done
    }

    /// Every invariant, and an image that gives the same state back.
    fn check(&mut self) {
        self.path.check(LAST);
        let mut bytes = BytesMut::new();
        self.path.image().encode(&mut bytes);
        let freed = self.path.take_freed();
        let restored = PathPartition::decode(&mut bytes.freeze()).expect("just written");
        assert_eq!(restored, self.path);
        self.path.freed = freed;
    }
}

fn seqs(leased: &[Leased]) -> Vec<u64> {
    leased.iter().map(|lease| lease.seq.get()).collect()
}

#[test]
fn p9_a_message_that_was_never_offered_is_dropped_and_skipped() {
    // Goal: a dead letter leaves its path out of order. Method: drop some of a backlog; the rest is offered, as first
    // deliveries; a seek back owes the dropped ones once more.
    let mut rig = Rig::new();
    for seq in [5, 2, 1] {
        assert_eq!(rig.drop_single(seq), Ok(DeliveryId::ZERO));
    }
    assert_eq!(rig.path.position(), Seq::new(3), "marks at the position go at once");
    assert_eq!(rig.drop_single(5), Err(Refused::Settled));
    assert_eq!(rig.drop_single(1), Err(Refused::Settled));
    assert_eq!(rig.drop_single(10), Err(Refused::Unknown));
    assert_eq!(rig.drop_single(0), Err(Refused::Unknown));
    let books = rig.path.books(LAST);
    assert_eq!((books.produced, books.dropped, books.depth), (9, 3, 6));
    let leased = rig.lease(100);
    assert_eq!(seqs(&leased), [3, 4, 6, 7, 8, 9]);
    assert!(leased.iter().all(|lease| lease.cause == Cause::First));
    assert_eq!(rig.drop_single(4), Err(Refused::Leased));
    let (mut steps, mut moved, mut ended) = (100, Vec::new(), Vec::new());
    let count = rig.path.seek(Seq::FIRST, LAST, &Keys, &mut steps, &mut moved, &mut ended).expect("nothing moves");
    assert_eq!((count.replayed, count.is_partial), (3, false));
    rig.check();
    assert_eq!(rig.path.books(LAST).produced, 12);
}

#[test]
fn p9_a_purge_or_seek_over_marks_counts_each_message_once() {
    for to in [Seq::new(4), Seq::new(6), Seq::new(10)] {
        let mut rig = Rig::new();
        assert_eq!((rig.drop_single(5), rig.drop_single(8)), (Ok(DeliveryId::ZERO), Ok(DeliveryId::ZERO)));
        let (mut steps, mut moved, mut ended) = (100, Vec::new(), Vec::new());
        rig.path.seek(to, LAST, &Keys, &mut steps, &mut moved, &mut ended).expect("nothing moves");
        rig.check();
        let told: u64 = moved.iter().map(|moved| moved.count).sum();
        assert_eq!(told + 2, rig.path.books(LAST).dropped, "to {to}");
        let dropped = rig.path.purge(LAST, &Keys, &mut steps, &mut moved, &mut ended);
        rig.check();
        assert_eq!((rig.path.books(LAST).depth, rig.path.books(LAST).dropped), (0, 9));
        assert_eq!(told + 2 + dropped, 9);
        rig.path.seek(Seq::FIRST, LAST, &Keys, &mut steps, &mut moved, &mut ended).expect("nothing moves");
        rig.check();
        assert_eq!(rig.path.books(LAST).depth, 9);
    }
}

#[test]
fn p7_a_redriven_message_starts_again_and_follows_the_delivery_that_it_died_by() {
    // Goal: attempts, cause, source and the books. Method: 2 dies, is redriven, dies again, is redriven, is acked.
    let mut rig = Rig::new();
    let leased = rig.lease(2);
    assert_eq!(seqs(&leased), [1, 2]);
    let dead = rig.settle(&leased[1], Settle::Nack { delay_ms: 0 });
    assert!(matches!(dead[0].end, End::Dead(_)) && dead[0].source.is_none());
    let died_by = leased[1].delivery_id.get();
    assert_eq!(rig.redrive(1, 1), Err(Refused::Unsettled), "it is leased");
    assert_eq!(rig.redrive(3, 1), Err(Refused::Unknown), "it was never offered");
    assert_eq!(rig.redrive(2, 0), Err(Refused::Unknown), "it was never delivered");
    assert_eq!(rig.redrive(2, died_by), Ok(()));
    assert_eq!(rig.redrive(2, died_by), Err(Refused::Unsettled), "a second redrive waits for the first");
    let books = rig.path.books(LAST);
    assert_eq!((books.produced, books.dlq, books.depth), (10, 1, 9));
    let again = rig.lease(1)[0];
    assert_eq!((again.seq.get(), again.attempt, again.cause), (2, Attempt::FIRST, Cause::Redriven));
    assert_eq!((again.previous.get(), again.source), (died_by, Some(Seq::new(102))));
    assert!(rig.path.take_freed().is_empty());
    let dead = rig.settle(&again, Settle::DeadLetter);
    assert_eq!(dead[0].source, Some(Seq::new(102)), "the next dead letter is copied from this one");
    assert_eq!((rig.path.take_freed(), rig.path.source_of(Seq::new(2))), (vec![Seq::new(102)], None));
    assert_eq!(rig.redrive(2, again.delivery_id.get()), Ok(()));
    let last = rig.lease(1)[0];
    rig.settle(&last, Settle::Ack);
    assert_eq!(rig.path.take_freed(), [Seq::new(102)]);
    let books = rig.path.books(LAST);
    assert_eq!((books.produced, books.delivered, books.dlq, books.depth), (11, 1, 2, 8));
}

#[test]
fn p8_a_redriven_message_takes_its_place_in_its_keys_order() {
    // Goal: it takes nothing away from who holds its key, and what waits there waits for it. Method: 1, 3 and 5 share a
    // key; 1 dies, 3 is leased when 1 is redriven.
    let mut rig = Rig::new();
    let first = rig.lease(1)[0];
    rig.settle(&first, Settle::DeadLetter);
    let leased = rig.lease(2);
    assert_eq!(seqs(&leased), [2, 3]);
    assert_eq!(rig.redrive(1, first.delivery_id.get()), Ok(()));
    assert_eq!(seqs(&rig.lease(100)), [4, 6, 8], "1 waits for 3, and 5, 7 and 9 for both");
    rig.settle(&leased[1], Settle::Ack);
    let next = rig.lease(1)[0];
    assert_eq!((next.seq.get(), next.cause), (1, Cause::Redriven));
    assert_eq!(seqs(&rig.lease(100)), [0_u64; 0], "nothing overtakes it");
    rig.settle(&next, Settle::Ack);
    assert_eq!(seqs(&rig.lease(100)), [5, 7, 9]);
}

#[test]
fn p6_what_was_replayed_and_acked_since_it_died_can_be_redriven_and_survives_a_restart() {
    // The delivery that it died by is older than an ack that is remembered; the image must not take that for damage.
    let mut rig = Rig::new();
    let leased = rig.lease(2);
    rig.settle(&leased[1], Settle::DeadLetter);
    let (mut steps, mut moved, mut ended) = (100, Vec::new(), Vec::new());
    rig.path.seek(Seq::new(2), LAST, &Keys, &mut steps, &mut moved, &mut ended).expect("nothing moves");
    assert_eq!(rig.redrive(2, 2), Err(Refused::Unsettled), "it is to be replayed");
    let replayed = rig.lease(1)[0];
    assert_eq!((replayed.seq.get(), replayed.cause, replayed.source), (2, Cause::Replayed, None));
    rig.settle(&replayed, Settle::Ack);
    assert_eq!(rig.redrive(2, leased[1].delivery_id.get()), Ok(()));
    let again = rig.lease(1)[0];
    assert_eq!((again.seq.get(), again.previous), (2, leased[1].delivery_id));
    rig.settle(&again, Settle::Release);
    let again = rig.lease(1)[0];
    assert_eq!((again.cause, again.attempt, again.source), (Cause::Released, Attempt::FIRST, Some(Seq::new(102))));
}

#[test]
fn p4_a_redriven_message_above_the_position_is_skipped_there_and_its_source_is_freed_by_every_end() {
    let mut rig = Rig::new();
    let leased = rig.lease(4);
    for lease in &leased {
        rig.settle(lease, Settle::DeadLetter);
        if lease.seq.get() == 1 {
            // What died with it was leased together with it: 3 is released, and leased again.
            let again = rig.lease(1)[0];
            rig.settle(&again, Settle::DeadLetter);
            break;
        }
    }
    let mut rest: Vec<Leased> =
        leased[1..].iter().filter(|lease| rig.path.lease_of(lease.seq).is_some()).copied().collect();
    rest.retain(|lease| rig.path.lease_of(lease.seq).is_some_and(|entry| entry.lease().is_some()));
    for lease in &rest {
        rig.settle(lease, Settle::DeadLetter);
    }
    let (mut steps, mut moved, mut ended) = (100, Vec::new(), Vec::new());
    assert_eq!(rig.redrive(4, leased[3].delivery_id.get()), Ok(()));
    rig.path.seek(Seq::new(2), LAST, &Keys, &mut steps, &mut moved, &mut ended).expect("nothing moves");
    rig.check();
    assert_eq!(rig.path.source_of(Seq::new(4)), Some(Seq::new(104)), "a replay changes nothing of it");
    assert_eq!(rig.drop_single(2), Ok(DeliveryId::ZERO));
    assert_eq!(rig.redrive(2, leased[1].delivery_id.get()), Ok(()), "its mark or its place below the position is free");
    let mut all = seqs(&rig.lease(100));
    all.sort_unstable();
    assert!(all.contains(&2) && all.contains(&4), "{all:?}");
    rig.path.purge(LAST, &Keys, &mut steps, &mut moved, &mut ended);
    rig.check();
    let mut freed = rig.path.take_freed();
    freed.sort_unstable();
    assert_eq!(freed, [Seq::new(102), Seq::new(104)]);
}
