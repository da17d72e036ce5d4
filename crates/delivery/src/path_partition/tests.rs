//! Proves that `check` sees each kind of damage: a check that cannot fail is a defect.

use std::panic::{AssertUnwindSafe, catch_unwind};

use mortarmq_types::{Attempt, Cause, ClusterTime, DeliveryId, KeyHash, LeaseTime, MemberId, Position, Seq};

use super::PathPartition;
use crate::{
    crowd::Waiting,
    entry::State,
    lease::{DuePosition, Fact, Facts, Handed, LeaseLimits, LeaseRequest},
    moves::{MoveKind, Moving},
    pair_set::PairSet,
    rules::{Grant, Now, Order, PathRules},
    runs::Kind,
    settle::Settle,
};

struct Keys;

impl Facts for Keys {
    fn fact(&self, seq: Seq) -> Option<Fact> {
        Some(Fact { key_hash: KeyHash::new(seq.get() % 3), size_bytes: 1, expires_at_ms: 0 })
    }
}

const LAST_SEQ: Seq = Seq::new(20);

/// A path with everything in it: 1 and 4 leased together, 2 acked, 3 waiting, 5 scheduled, 8 behind 5.
fn path() -> PathPartition {
    let rules = PathRules {
        order: Order::Key,
        lease_ms: 1000,
        backoff_base_ms: 100,
        backoff_max_ms: 100,
        max_passed_over: 100,
        max_acked_ahead: 0,
        max_in_flight: 0,
        max_attempts: 0,
    };
    let now = Now { cluster: ClusterTime::ZERO, lease: LeaseTime::ZERO };
    let limits = LeaseLimits { messages: 8, bytes: 100, steps: 100, first_may_exceed_bytes: false };
    let request = LeaseRequest {
        member: MemberId::new(1),
        grant: Grant::Push,
        limits,
        may_pass_over: true,
        last_seq: LAST_SEQ,
        now,
        granted_at: Position::default(),
        alone: false,
    };
    let (mut path, mut last_delivery_id) = (PathPartition::new(Seq::FIRST), DeliveryId::ZERO);
    path.lease(&request, &rules, &Keys, &mut last_delivery_id, &mut Handed::default());
    for (seq, how) in [(2, Settle::Ack), (3, Settle::Release), (5, Settle::Nack { delay_ms: 0 })] {
        path.settle(Seq::new(seq), DeliveryId::new(seq), how, &rules, now, &mut Vec::new()).expect("it is leased");
    }
    path
}

fn assert_found(promise: &str, damage: impl FnOnce(&mut PathPartition)) {
    let mut path = path();
    path.check(LAST_SEQ);
    damage(&mut path);
    let panic = catch_unwind(AssertUnwindSafe(|| path.check(LAST_SEQ))).expect_err(promise);
    let message = panic.downcast_ref::<String>().expect("an assertion with values");
    assert!(message.contains(promise), "expected {promise}, found: {message}");
}

const fn seq(seq: u64) -> Seq {
    Seq::new(seq)
}

#[test]
fn check_finds_a_position_or_an_entry_out_of_place() {
    assert_found("invariant 1, P10", |path| path.position = seq(22));
    assert_found("invariant 1", |path| path.start = seq(2));
    assert_found("invariant 1", |path| path.position = seq(7));
}

#[test]
fn check_finds_a_replay_that_is_not_what_it_was() {
    assert_found("invariant 1, P10", |path| path.replay_end = seq(8));
    let found = |promise: &str, damage: fn(&mut PathPartition)| {
        assert_found(promise, |path| {
            path.seek(seq(1), LAST_SEQ, &Keys, &mut 100, &mut Vec::new(), &mut Vec::new()).expect("nothing moves");
            path.check(LAST_SEQ);
            damage(path);
        });
    };
    found("invariant 11: messages", |path| path.ahead -= 1);
    found("invariant 11: messages", |path| _ = path.settled_ahead.insert(seq(2)));
    found("invariant 11: a mark", |path| _ = path.settled_ahead.insert(seq(22)));
    found("invariant 11, P6", |path| _ = path.settled_ahead.insert(seq(3)));
    found("invariant 14", |path| _ = path.sources.insert(seq(2), seq(1)));
    found("invariant 12", |path| path.leased_keys = PairSet::new());
    found("invariant 12", |path| _ = path.leased_keys.insert((KeyHash::new(1), seq(9))));
    found("a move", |path| path.moving = Some(Moving { kind: MoveKind::Backwards, to: seq(1), from: seq(1) }));
    found("a move", |path| path.moving = Some(Moving { kind: MoveKind::Purge, to: seq(22), from: seq(1) }));
    found("invariant 7, P9", |path| path.again += 1);
    found("invariant 8, P7", |path| path.entry_mut(seq(3)).cause = Cause::Replayed);
}

#[test]
fn check_finds_a_message_that_retention_should_have_dropped() {
    assert_found("invariant 15", |path| path.kept_from = seq(9));
    assert_found("invariant 15, P6", |path| (path.kept_from, path.due_start) = (seq(4), seq(4)));
}

#[test]
fn check_finds_a_lease_that_would_never_end_or_that_nobody_has() {
    assert_found("invariant 2, P5", |path| path.deadlines = PairSet::new());
    assert_found("invariant 2, P5", |path| path.holders = PairSet::new());
    assert_found("invariant 2, P5", |path| assert!(path.deadlines.insert((LeaseTime::ZERO, seq(3)))));
    assert_found("invariant 2, P5", |path| assert!(path.holders.insert((MemberId::new(2), seq(1)))));
}

#[test]
fn check_finds_a_retry_without_a_time_and_a_time_without_a_retry() {
    assert_found("invariant 3", |path| path.schedule = PairSet::new());
    assert_found("invariant 3", |path| assert!(path.schedule.insert((ClusterTime::ZERO, seq(3)))));
}

#[test]
fn check_finds_queues_and_ready_messages_that_are_wrong() {
    assert_found("invariant 4", |path| assert!(path.keyed.remove(&(KeyHash::new(2), seq(8)))));
    assert_found("invariant 4", |path| assert!(path.keyed.insert((KeyHash::new(9), seq(8)))));
    assert_found("invariant 5, P8", |path| assert!(path.ready.insert((ClusterTime::ZERO, seq(8)))));
    assert_found("invariant 5, P8", |path| assert!(path.ready.remove(&(ClusterTime::ZERO, seq(3)))));
    assert_found("invariant 5", |path| assert!(path.ready.insert((ClusterTime::ZERO, seq(2)))));
}

#[test]
fn check_finds_a_message_that_overtook_its_key() {
    assert_found("invariant 6, P8", |path| {
        let held = *path.entry(seq(1)).lease().expect("it is leased");
        path.forget_lease(seq(1), &held);
        path.entry_mut(seq(1)).state = State::Waiting { fell_due: ClusterTime::ZERO };
    });
}

#[test]
fn check_finds_a_delayed_message_that_was_lost_or_came_twice() {
    let at = DuePosition { due: ClusterTime::new(5), seq: seq(7) };
    catch_unwind(|| path().check_delayed([at].into_iter())).expect_err("invariant 13, P4: it was never skipped");
    assert_found("invariant 7, P9", |path| path.delayed = 1);
    let behind = DuePosition { seq: seq(12), ..at };
    path().check_delayed([behind].into_iter());
    let mut passed = path();
    passed.due_position = at;
    passed.check_delayed([at].into_iter());
    assert_found("invariant 13", |path| path.due_start = seq(12));
    assert_found("invariant 8", |path| {
        path.ready = PairSet::new();
        path.entry_mut(seq(3)).state = State::Waiting { fell_due: ClusterTime::new(5) };
        path.ready.insert((ClusterTime::new(5), seq(3)));
    });
}

#[test]
fn check_finds_a_message_that_is_packed_where_it_cannot_be() {
    let packed = |path: &mut PathPartition, number: u64, key: u64| {
        let fact = Fact { key_hash: KeyHash::new(key), size_bytes: 1, expires_at_ms: 0 };
        path.packed.insert(Waiting { seq: seq(number), fact, due: ClusterTime::ZERO, is_replay: false });
    };
    assert_found("invariant 17", |path| packed(path, 3, 1));
    assert_found("invariant 17", |path| packed(path, 2, 9));
    assert_found("invariant 17", |path| packed(path, 7, 0));
}

#[test]
fn check_finds_books_that_do_not_balance() {
    assert_found("invariant 7, P9", |path| path.delivered += 1);
}

#[test]
fn check_finds_deliveries_without_a_past() {
    assert_found("invariant 8, P7", |path| path.entry_mut(seq(3)).previous = DeliveryId::ZERO);
    assert_found("invariant 8, P7", |path| path.entry_mut(seq(3)).attempt = Attempt::ZERO);
    assert_found("invariant 8, P5", |path| {
        let State::Leased(lease) = &mut path.entry_mut(seq(6)).state else { panic!("6 is leased") };
        lease.delivery_id = DeliveryId::new(7);
    });
}

#[test]
fn check_finds_a_live_delivery_that_was_settled() {
    assert_found("invariant 9, P6", |path| {
        path.runs.remember(seq(6), DeliveryId::new(6), Kind::Ack, ClusterTime::ZERO)
    });
}
