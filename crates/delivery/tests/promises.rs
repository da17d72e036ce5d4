//! The contract's promises, one by one, as far as one path in one partition keeps them.

use std::{
    cell::Cell,
    collections::BTreeMap,
    ops::{Bound, Range},
};

use mortarmq_delivery::{
    Books, Death, Delayed, DuePosition, End, Ended, Fact, Facts, Fate, Grant, Handed, LeaseLimits, LeaseRequest,
    LeaseStop, Leased, MoveUnderWay, Moved, Now, Order, PathPartition, PathRules, Settle, SettleError, Settled, State,
};
use mortarmq_types::{Cause, ClusterTime, DeliveryId, DropReason, KeyHash, LeaseTime, MemberId, Position, Seq};

/// A path with the messages of its partition; sequences start at 1.
struct Bench {
    path: PathPartition,
    rules: PathRules,
    facts: Vec<Fact>,
    known: usize,
    last_delivery_id: DeliveryId,
    cluster_ms: u64,
    gaps_ms: u64,
    /// Whether leases are asked for what is delivered alone.
    alone: bool,
    /// Every how many calls all is checked.
    check_every: u64,
    calls: Cell<u64>,
    ended: Vec<Ended>,
    /// What stands in the schedule.
    schedule: BTreeMap<DuePosition, Fact>,
    /// What was dropped.
    dropped: Vec<u64>,
}

impl Facts for Bench {
    fn fact(&self, seq: Seq) -> Option<Fact> {
        let place = usize::try_from(seq.get() - 1).unwrap();
        self.facts[..self.known.min(self.facts.len())].get(place).copied()
    }

    fn due_of(&self, seq: Seq) -> Option<ClusterTime> {
        self.schedule.keys().find(|at| at.seq == seq).map(|at| at.due)
    }

    fn next_delayed(&self, after: DuePosition) -> Option<Delayed> {
        let next = self.schedule.range((Bound::Excluded(after), Bound::Unbounded)).next();
        next.map(|(at, fact)| Delayed { at: *at, fact: *fact })
    }

    fn first_delayed(&self, among: Range<Seq>) -> Option<DuePosition> {
        self.schedule.keys().copied().filter(|at| among.contains(&at.seq)).min_by_key(|at| at.seq)
    }

    fn last_delayed(&self, among: Range<Seq>) -> Option<DuePosition> {
        self.schedule.keys().copied().filter(|at| among.contains(&at.seq)).max_by_key(|at| at.seq)
    }
}

const A: MemberId = MemberId::new(1);
const B: MemberId = MemberId::new(2);
const NO_LIMIT: LeaseLimits =
    LeaseLimits { messages: u32::MAX, bytes: u64::MAX, steps: u32::MAX, first_may_exceed_bytes: true };

impl Bench {
    /// One message of 10 bytes for each key.
    fn with_keys(keys: &[u64]) -> Self {
        let fact = |key: &u64| Fact { key_hash: KeyHash::new(*key), size_bytes: 10, expires_at_ms: 0 };
        Self {
            path: PathPartition::new(Seq::FIRST),
            rules: PathRules {
                order: Order::Key,
                lease_ms: 1000,
                backoff_base_ms: 0,
                backoff_max_ms: 30_000,
                max_passed_over: 1000,
                max_acked_ahead: 0,
                max_in_flight: 0,
                max_attempts: 0,
            },
            facts: keys.iter().map(fact).collect(),
            known: usize::MAX,
            last_delivery_id: DeliveryId::ZERO,
            cluster_ms: 0,
            gaps_ms: 0,
            alone: false,
            check_every: 1,
            calls: Cell::new(0),
            ended: Vec::new(),
            schedule: BTreeMap::new(),
            dropped: Vec::new(),
        }
    }

    /// Sets when messages fall due, in milliseconds.
    fn delay(&mut self, dues: &[(u64, u64)]) {
        for (seq, due) in dues {
            let at = DuePosition { due: ClusterTime::new(*due), seq: Seq::new(*seq) };
            self.schedule.insert(at, self.facts[usize::try_from(seq - 1).unwrap()]);
        }
    }

    fn check(&self) {
        self.calls.set(self.calls.get() + 1);
        if !self.calls.get().is_multiple_of(self.check_every) {
            return;
        }
        self.path.check(self.last_seq());
        self.path.check_delayed(self.schedule.keys().copied());
    }

    fn last_seq(&self) -> Seq {
        Seq::new(self.facts.len() as u64)
    }

    fn now(&self) -> Now {
        Now { cluster: ClusterTime::new(self.cluster_ms), lease: LeaseTime::new(self.cluster_ms - self.gaps_ms) }
    }

    fn lease_with(&mut self, member: MemberId, limits: LeaseLimits) -> (Vec<Leased>, LeaseStop) {
        let request = LeaseRequest {
            member,
            grant: Grant::Push,
            limits,
            may_pass_over: true,
            last_seq: self.last_seq(),
            now: self.now(),
            granted_at: Position::default(),
            alone: self.alone,
        };
        let mut path = self.path.clone();
        let (mut id, mut handed) = (self.last_delivery_id, Handed::default());
        let stop = path.lease(&request, &self.rules, &*self, &mut id, &mut handed);
        self.dropped.extend(handed.dropped.iter().map(|dropped| dropped.seq.get()));
        (self.path, self.last_delivery_id) = (path, id);
        self.check();
        (handed.leased, stop)
    }

    /// Leases at most this many and gives their sequences.
    fn lease(&mut self, member: MemberId, messages: u32) -> Vec<u64> {
        let (leased, _) = self.lease_with(member, LeaseLimits { messages, ..NO_LIMIT });
        leased.iter().map(|leased| leased.seq.get()).collect()
    }

    fn settle_as(&mut self, seq: u64, id: u64, how: Settle) -> Result<Settled, SettleError> {
        let (seq, id, now) = (Seq::new(seq), DeliveryId::new(id), self.now());
        let answer = self.path.settle(seq, id, how, &self.rules, now, &mut self.ended);
        self.check();
        answer
    }

    /// Settles a message by its live delivery.
    fn settle(&mut self, seq: u64, how: Settle) {
        let id = self.live_id(seq);
        assert_eq!(self.settle_as(seq, id, how), Ok(Settled::Done));
    }

    fn live_id(&self, seq: u64) -> u64 {
        self.path.lease_of(Seq::new(seq)).unwrap().lease().unwrap().delivery_id.get()
    }

    fn end_due(&mut self, mut budget: u32) -> u32 {
        let now = self.now();
        self.path.end_due(now, &mut budget, &self.rules, &mut self.ended);
        self.check();
        budget
    }

    fn end_member(&mut self, member: MemberId, cause: Cause, mut budget: u32) -> bool {
        let now = self.now();
        let done = self.path.end_member(member, cause, &mut budget, &self.rules, now, &mut self.ended);
        self.check();
        done
    }

    fn purge(&mut self, mut budget: u32) -> (u64, Vec<Moved>) {
        let (last_seq, mut moved) = (self.last_seq(), Vec::new());
        let (mut path, mut ended) = (self.path.clone(), Vec::new());
        let count = path.purge(last_seq, &*self, &mut budget, &mut moved, &mut ended);
        self.path = path;
        self.ended.append(&mut ended);
        self.check();
        (count, moved)
    }

    fn seek(&mut self, to: u64) -> (u64, u64) {
        let last_seq = self.last_seq();
        let (mut path, mut ended) = (self.path.clone(), Vec::new());
        let count = path.seek(Seq::new(to), last_seq, &*self, &mut 1000, &mut Vec::new(), &mut ended);
        self.path = path;
        self.ended.append(&mut ended);
        self.check();
        let count = count.expect("nothing moves");
        assert!(!count.is_partial);
        (count.replayed, count.dropped)
    }

    fn books(&self) -> (u64, u64, u64, u64) {
        let books = self.path.books(self.last_seq());
        assert_eq!(books.difference(), 0, "P9: {books:?}");
        (books.produced, books.delivered, books.dropped, books.depth)
    }

    fn lease_all(&mut self, member: MemberId) -> Vec<(u64, Cause, u32, u64)> {
        let (leased, _) = self.lease_with(member, NO_LIMIT);
        let told = |one: &Leased| (one.seq.get(), one.cause, one.attempt.get(), one.previous.get());
        leased.iter().map(told).collect()
    }

    /// What ended since the last call: sequence and end.
    fn take_ended(&mut self) -> Vec<(u64, End)> {
        std::mem::take(&mut self.ended).iter().map(|ended| (ended.seq.get(), ended.end)).collect()
    }

    fn due(&self, seq: u64) -> u64 {
        match self.path.lease_of(Seq::new(seq)).unwrap().state {
            State::Scheduled { due } => due.get(),
            ref other => panic!("message {seq} is {other:?}"),
        }
    }
}

const NACK: Settle = Settle::Nack { delay_ms: 0 };

#[test]
fn p4_every_message_is_offered_until_it_is_acked() {
    let mut bench = Bench::with_keys(&[0, 0, 0]);
    assert_eq!(bench.lease(A, 2), [1, 2]);
    assert_eq!(bench.lease(B, 9), [3]);
    bench.settle(1, Settle::Ack);
    bench.settle(2, NACK);
    bench.settle(3, Settle::Release);
    assert_eq!(bench.lease(A, 9), [2, 3]);
    bench.settle(2, Settle::Ack);
    bench.settle(3, Settle::Ack);
    let (leased, stop) = bench.lease_with(A, NO_LIMIT);
    assert_eq!((leased, stop), (vec![], LeaseStop::NothingReady));
    assert_eq!(bench.path.floor(bench.last_seq(), None), Seq::new(4));
}

#[test]
fn p4_due_retries_come_before_new_messages_lowest_first() {
    let mut bench = Bench::with_keys(&[0, 0, 0, 0, 0]);
    bench.lease(A, 3);
    for seq in [3, 1, 2] {
        bench.settle(seq, NACK);
    }
    assert_eq!(bench.path.ready_messages(), 3);
    assert_eq!(bench.lease(B, 4), [1, 2, 3, 4]);
}

#[test]
fn p4_a_path_owes_nothing_below_its_start_and_all_from_it_on() {
    let mut bench = Bench::with_keys(&[0, 0, 0]);
    bench.path = PathPartition::new(Seq::new(3));
    assert_eq!(bench.path.books(Seq::new(1)), Books::default(), "a start ahead of the partition");
    assert_eq!(bench.path.floor(Seq::new(1), None), Seq::new(2));
    assert_eq!(bench.lease(A, 9), [3]);
    assert_eq!(PathPartition::new(Seq::ZERO), PathPartition::new(Seq::FIRST));
}

#[test]
fn p5_a_leased_message_is_given_to_nobody_else_until_its_lease_ends() {
    let mut bench = Bench::with_keys(&[0]);
    assert_eq!(bench.lease(A, 9), [1]);
    bench.cluster_ms = 999;
    bench.end_due(9);
    assert_eq!(bench.lease(B, 9), [0; 0]);
    assert_eq!(bench.path.next_due(0), Some(ClusterTime::new(1000)));
    bench.cluster_ms = 1000;
    assert_eq!(bench.lease(B, 9), [0; 0], "only end_due ends a lease that nobody uses");
    bench.end_due(9);
    assert_eq!(bench.take_ended(), [(1, End::Ended(Cause::LeaseExpired))]);
    assert_eq!(bench.lease(B, 9), [1]);
}

#[test]
fn p5_no_gap_however_long_ends_a_lease() {
    let mut bench = Bench::with_keys(&[0]);
    bench.lease(A, 9);
    (bench.cluster_ms, bench.gaps_ms) = (3_600_500, 3_600_000);
    bench.end_due(9);
    assert_eq!(bench.path.in_flight(), 1);
    assert_eq!(bench.path.next_due(bench.gaps_ms), Some(ClusterTime::new(3_601_000)));
    bench.settle(1, Settle::Ack);
}

#[test]
fn p5_a_settle_at_the_deadline_comes_too_late() {
    for how in [Settle::Ack, NACK, Settle::Release, Settle::Extend] {
        let mut bench = Bench::with_keys(&[7, 7]);
        bench.lease(A, 9);
        bench.cluster_ms = 1000;
        assert_eq!(bench.settle_as(1, 1, how), Err(SettleError::Unknown));
        let ends = [(1, End::Ended(Cause::LeaseExpired)), (2, End::Ended(Cause::Released))];
        assert_eq!(bench.take_ended(), ends, "and finds the lease ended, with its followers");
        assert_eq!(bench.lease(B, 1), [1]);
        assert_eq!(bench.settle_as(1, 1, how), Err(SettleError::Stale));
    }
}

#[test]
fn p5_an_extension_sets_the_lease_to_its_length_from_now() {
    let mut bench = Bench::with_keys(&[0]);
    bench.lease(A, 9);
    bench.cluster_ms = 600;
    bench.settle(1, Settle::Extend);
    assert_eq!(bench.path.next_due(0), Some(ClusterTime::new(1600)));
    bench.cluster_ms = 1599;
    bench.end_due(9);
    bench.settle(1, Settle::Ack);
    assert_eq!(bench.settle_as(1, 1, Settle::Extend), Err(SettleError::Unknown));
}

#[test]
fn p5_in_flight_limit_counts_live_leases() {
    let mut bench = Bench::with_keys(&[0, 0, 0]);
    bench.rules.max_in_flight = 2;
    let (leased, stop) = bench.lease_with(A, NO_LIMIT);
    assert_eq!((leased.len(), stop), (2, LeaseStop::InFlightFull));
    bench.settle(1, Settle::Ack);
    assert_eq!(bench.lease(A, 9), [3]);
}

#[test]
fn p6_an_acked_message_never_comes_again() {
    let mut bench = Bench::with_keys(&[0, 0]);
    bench.lease(A, 9);
    bench.settle(1, Settle::Ack);
    bench.cluster_ms = 100_000;
    bench.end_due(9);
    assert!(bench.end_member(A, Cause::ConsumerLost, 9));
    assert_eq!(bench.lease(B, 9), [2]);
}

#[test]
fn p6_a_repeated_settle_is_ok_again_for_a_minute() {
    for how in [Settle::Ack, NACK, Settle::Nack { delay_ms: 5 }, Settle::Release] {
        let mut bench = Bench::with_keys(&[0]);
        bench.lease(A, 9);
        bench.settle(1, how);
        let before = bench.path.clone();
        for ms in [0, 30_000, 60_000] {
            bench.cluster_ms = ms;
            assert_eq!(bench.settle_as(1, 1, how), Ok(Settled::Again));
        }
        assert_eq!(bench.path, before, "and changes nothing");
        bench.cluster_ms = 70_001;
        assert_eq!(bench.settle_as(1, 1, how), Err(SettleError::Unknown));
        bench.end_due(9);
        assert_eq!(bench.path.settled_runs(), 0);
    }
}

#[test]
fn p6_a_settle_of_another_kind_or_delivery_changes_nothing() {
    let mut bench = Bench::with_keys(&[0, 0]);
    bench.lease(A, 9);
    bench.settle(1, Settle::Ack);
    assert_eq!(bench.settle_as(2, 1, Settle::Ack), Err(SettleError::Unknown), "the delivery of another message");
    bench.settle(2, NACK);
    let before = bench.path.clone();
    for how in [NACK, Settle::Release, Settle::Extend] {
        assert_eq!(bench.settle_as(1, 1, how), Err(SettleError::Unknown), "acked");
    }
    assert_eq!(bench.settle_as(2, 2, Settle::Ack), Err(SettleError::Unknown), "nacked, and not delivered again yet");
    for (seq, id) in [(0, 0), (0, 1), (1, 0), (2, 0), (3, 3), (u64::MAX, u64::MAX), (2, u64::MAX), (u64::MAX, 2)] {
        for how in [Settle::Ack, NACK, Settle::Release, Settle::Extend] {
            assert_eq!(bench.settle_as(seq, id, how), Err(SettleError::Unknown), "{seq} {id} {how:?}");
        }
    }
    assert_eq!(bench.path, before);
    assert_eq!(bench.lease(B, 9), [2]);
    assert_eq!(bench.settle_as(2, 2, Settle::Ack), Err(SettleError::Stale), "a late ack must not settle the new one");
    assert_eq!(bench.settle_as(2, 2, NACK), Ok(Settled::Again), "the kind that ended it");
    bench.settle(2, Settle::Ack);
}

#[test]
fn p7_every_delivery_names_its_cause_and_the_one_before() {
    let mut bench = Bench::with_keys(&[0]);
    let mut seen = Vec::new();
    for step in 0..5 {
        bench.alone = bench.path.ready_alone() > 0;
        let (leased, _) = bench.lease_with(A, NO_LIMIT);
        let leased = leased[0];
        seen.push((leased.delivery_id.get(), leased.attempt.get(), leased.cause, leased.previous.get()));
        match step {
            0 => bench.settle(1, NACK),
            1 => bench.settle(1, Settle::Release),
            2 => assert!(bench.end_member(A, Cause::ConsumerLost, 9)),
            _ => {
                bench.cluster_ms += 1000;
                bench.end_due(9);
            }
        }
    }
    let expected = [
        (1, 1, Cause::First, 0),
        (2, 2, Cause::Nacked, 1),
        (3, 2, Cause::Released, 2),
        (4, 3, Cause::ConsumerLost, 3),
        (5, 4, Cause::LeaseExpired, 4),
    ];
    assert_eq!(seen, expected);
    for cause in Cause::ALL {
        let once = [Cause::Nacked, Cause::Released, Cause::ConsumerLost, Cause::LeaseExpired].contains(cause);
        assert_eq!(bench.path.retries_by(*cause), u64::from(once), "{cause}");
    }
}

#[test]
fn p7_an_end_tells_whose_delivery_it_was() {
    let mut bench = Bench::with_keys(&[0]);
    bench.lease(B, 9);
    bench.settle(1, NACK);
    let ended = bench.ended[0];
    assert_eq!((ended.delivery_id.get(), ended.attempt.get(), ended.member), (1, 1, B));
    assert_eq!((ended.grant, ended.size_bytes), (Grant::Push, 10));
}

#[test]
fn p7_a_lost_member_ends_each_of_its_leases_and_no_other() {
    let mut bench = Bench::with_keys(&[0, 7, 7, 0]);
    assert_eq!(bench.lease(A, 3), [1, 2, 3]);
    assert_eq!(bench.lease(B, 9), [4]);
    assert!(!bench.end_member(A, Cause::ConsumerLost, 1), "the budget ends before the leases do");
    assert!(bench.end_member(A, Cause::ConsumerLost, 9));
    let lost = End::Ended(Cause::ConsumerLost);
    // A neighbour that was only handed over with its key must not be blamed.
    assert_eq!(bench.take_ended(), [(1, lost), (2, lost), (3, End::Ended(Cause::Released))]);
    assert_eq!(bench.path.in_flight(), 1);
}

#[test]
fn p7_a_release_is_ready_at_once_and_backs_off_from_the_second_in_a_row() {
    let mut bench = Bench::with_keys(&[0]);
    bench.rules.backoff_base_ms = 1000;
    for (in_a_row, wait_ms) in [(1, 0), (2, 1000), (3, 2000), (4, 4000)] {
        assert_eq!(bench.lease(A, 1), [1]);
        if in_a_row % 2 == 0 {
            bench.settle(1, Settle::Release)
        } else {
            assert!(bench.end_member(A, Cause::Released, 9))
        }
        if wait_ms > 0 {
            let due = bench.due(1);
            let range = bench.cluster_ms + wait_ms / 2..bench.cluster_ms + wait_ms;
            assert!(range.contains(&due), "{due} is not in {range:?}");
            bench.cluster_ms = due;
        }
    }
    assert_eq!(bench.path.lease_of(Seq::FIRST).unwrap().attempt.get(), 1, "and counts no attempt");
}

#[test]
fn p7_a_nack_waits_for_its_own_delay_or_for_the_backoff() {
    let mut bench = Bench::with_keys(&[0]);
    bench.rules.backoff_base_ms = 1000;
    bench.lease(A, 1);
    bench.settle(1, Settle::Nack { delay_ms: 7 });
    assert_eq!((bench.due(1), bench.path.scheduled(), bench.path.ready_messages()), (7, 1, 0));
    bench.cluster_ms = 6;
    assert_eq!(bench.lease(A, 1), [0; 0]);
    bench.cluster_ms = 7;
    assert_eq!(bench.lease(A, 1), [1], "due retries need no end_due");
    bench.settle(1, NACK);
    assert!((7 + 1000..7 + 2000).contains(&bench.due(1)), "the third attempt: {}", bench.due(1));
    bench.cluster_ms = 5000;
    bench.end_due(9);
    assert_eq!((bench.path.scheduled(), bench.path.ready_messages()), (0, 1));
    bench.lease(A, 1);
    bench.settle(1, Settle::Nack { delay_ms: u32::MAX });
    assert_eq!(bench.due(1), 5000 + u64::from(u32::MAX));
}

#[test]
fn p8_messages_of_a_key_leave_together_to_one_member_or_not_at_all() {
    let mut bench = Bench::with_keys(&[7, 7, 0, 7, 8]);
    assert_eq!(bench.lease(A, 2), [1, 2]);
    assert_eq!(bench.lease(B, 9), [3, 5], "keyless and other keys go on, the key waits");
    bench.settle(1, Settle::Ack);
    assert_eq!(bench.lease(B, 9), [0; 0], "until all that left together are settled");
    bench.settle(2, Settle::Ack);
    assert_eq!(bench.path.ready_messages(), 1);
    assert_eq!(bench.lease(B, 9), [4]);
}

#[test]
fn p8_failure_of_one_gives_back_those_behind_it_and_the_key_resumes_at_its_earliest() {
    let fail: [fn(&mut Bench); 4] = [
        |bench| bench.settle(2, NACK),
        |bench| bench.settle(2, Settle::Release),
        |bench| {
            bench.cluster_ms = 1000;
            assert_eq!(bench.settle_as(2, 2, Settle::Ack), Err(SettleError::Unknown));
        },
        |bench| {
            bench.settle(1, Settle::Ack);
            bench.take_ended();
            assert!(!bench.end_member(A, Cause::ConsumerLost, 1), "followers overdraw the budget, others wait");
        },
    ];
    for (case, fail) in fail.into_iter().enumerate() {
        let mut bench = Bench::with_keys(&[7, 7, 7, 0, 7, 7]);
        assert_eq!(bench.lease(A, 5), [1, 2, 3, 4, 5]);
        bench.settle(3, Settle::Ack);
        bench.take_ended();
        fail(&mut bench);
        let ended = bench.take_ended();
        assert_eq!((ended.len(), ended[0].0, ended[1]), (2, 2, (5, End::Ended(Cause::Released))));
        let follower = bench.path.lease_of(Seq::new(5)).unwrap();
        assert_eq!((follower.attempt.get(), follower.cause, follower.previous.get()), (1, Cause::Released, 5));
        if case < 3 {
            assert_eq!(bench.lease(B, 9), [0; 0], "1 is still out");
            bench.cluster_ms = 0;
            bench.settle(1, Settle::Ack);
        }
        assert_eq!(bench.lease(B, 9), [2, 5, 6]);
    }
}

#[test]
fn p8_a_later_message_that_is_due_waits_for_an_earlier_one_that_is_not() {
    let mut bench = Bench::with_keys(&[7, 7, 7]);
    bench.lease(A, 9);
    bench.settle(2, Settle::Nack { delay_ms: 10 });
    bench.settle(1, Settle::Nack { delay_ms: 500 });
    bench.cluster_ms = 100;
    bench.end_due(9);
    assert_eq!((bench.path.scheduled(), bench.path.ready_messages()), (1, 0));
    assert_eq!(bench.lease(B, 9), [0; 0]);
    bench.cluster_ms = 500;
    assert_eq!(bench.lease(B, 9), [1, 2, 3]);
}

#[test]
fn p8_a_key_that_one_call_opens_is_closed_when_the_call_ends() {
    let mut bench = Bench::with_keys(&[7, 7, 7]);
    bench.lease(A, 9);
    bench.settle(1, NACK);
    assert_eq!(bench.lease(A, 1), [1]);
    assert_eq!(bench.path.ready_messages(), 0);
    assert_eq!(bench.lease(B, 9), [0; 0]);
}

#[test]
fn p8_expiry_blames_the_earliest_of_a_key_only() {
    let mut bench = Bench::with_keys(&[7, 7]);
    bench.lease(A, 9);
    bench.cluster_ms = 1000;
    assert_eq!(bench.end_due(1), 0);
    assert_eq!(bench.take_ended(), [(1, End::Ended(Cause::LeaseExpired)), (2, End::Ended(Cause::Released))]);
}

#[test]
fn p8_without_order_nothing_waits_and_nothing_follows() {
    let mut bench = Bench::with_keys(&[7, 7, 7]);
    bench.rules.order = Order::None;
    assert_eq!(bench.lease(A, 1), [1]);
    assert_eq!(bench.lease(B, 9), [2, 3]);
    bench.settle(2, NACK);
    assert_eq!(bench.take_ended(), [(2, End::Ended(Cause::Nacked))]);
    assert_eq!(bench.lease(A, 9), [2]);
}

#[test]
fn p8_a_path_can_begin_and_cease_to_keep_order() {
    let mut bench = Bench::with_keys(&[7, 7, 7]);
    assert_eq!(bench.lease(A, 1), [1]);
    assert_eq!(bench.lease(B, 9), [0; 0]);
    bench.rules.order = Order::None;
    assert_eq!(bench.lease(B, 1), [2]);
    bench.rules.order = Order::Key;
    bench.settle(1, NACK);
    assert_eq!(bench.take_ended(), [(1, End::Ended(Cause::Nacked))], "2 was not leased together with it");
    assert_eq!(bench.lease(B, 9), [1], "3 waits again");
}

#[test]
fn p8_at_the_limit_only_messages_already_passed_move_on() {
    let mut bench = Bench::with_keys(&[7, 7, 0, 0]);
    bench.rules.max_passed_over = 2;
    assert_eq!(bench.lease(A, 1), [1]);
    let (leased, stop) = bench.lease_with(B, NO_LIMIT);
    assert_eq!((leased.len(), stop), (1, LeaseStop::PassedOverFull));
    assert_eq!((bench.path.passed_over(), bench.path.packed(), bench.path.position()), (2, 1, Seq::new(4)));
    bench.settle(3, NACK);
    assert_eq!(bench.lease(B, 9), [3]);
    bench.settle(1, Settle::Ack);
    assert_eq!(bench.lease(B, 9), [2], "it takes the place of 1");
    bench.settle(3, Settle::Ack);
    assert_eq!(bench.lease(B, 9), [4]);
}

#[test]
fn p4_with_so_many_acked_past_the_oldest_nothing_new_is_offered_and_retries_go_on() {
    let mut bench = Bench::with_keys(&[0; 20]);
    bench.rules.max_acked_ahead = 3;
    assert_eq!(bench.lease(A, 5), [1, 2, 3, 4, 5]);
    bench.settle(2, Settle::Ack);
    bench.settle(4, Settle::Ack);
    assert_eq!(bench.lease(A, 1), [6], "two are acked ahead of 1");
    assert!(bench.path.may_offer(&bench.rules));
    bench.settle(5, Settle::Ack);
    assert!(!bench.path.may_offer(&bench.rules));
    assert_eq!(bench.lease_with(A, NO_LIMIT), (vec![], LeaseStop::AckedAheadFull));
    bench.settle(6, NACK);
    assert_eq!(bench.lease(A, 9), [6], "only what was offered moves on");
    bench.settle(1, Settle::Ack);
    assert_eq!(bench.lease(A, 2), [7, 8], "3 is the oldest now: 4 and 5 lie ahead of it");
    bench.rules.max_acked_ahead = 2;
    assert_eq!(bench.lease(A, 2), [0; 0], "a limit that is set now holds now");
}

#[test]
fn limits_of_messages_bytes_and_steps_hold() {
    let mut bench = Bench::with_keys(&[0, 0, 0, 0]);
    bench.facts[1].size_bytes = 25;
    let limits = LeaseLimits { bytes: 20, first_may_exceed_bytes: false, ..NO_LIMIT };
    let too_large = LeaseStop::TooLarge { size_bytes: 25 };
    assert_eq!(bench.lease_with(A, limits).1, too_large);
    assert_eq!(bench.path.in_flight(), 1, "the second does not fit");
    assert_eq!(bench.lease_with(A, limits), (vec![], too_large), "nor does it fit alone");
    let alone = LeaseLimits { first_may_exceed_bytes: true, ..limits };
    let (leased, stop) = bench.lease_with(A, alone);
    assert_eq!((leased[0].seq, leased.len(), stop), (Seq::new(2), 1, LeaseStop::LimitReached), "delivered alone");
    let (leased, stop) = bench.lease_with(A, LeaseLimits { steps: 1, ..NO_LIMIT });
    assert_eq!((leased.len(), stop), (1, LeaseStop::StepsSpent));
    assert_eq!(bench.lease_with(A, LeaseLimits { messages: 0, ..NO_LIMIT }), (vec![], LeaseStop::LimitReached));
}

#[test]
fn a_lease_stops_where_the_facts_end() {
    let mut bench = Bench::with_keys(&[0, 0, 0]);
    bench.known = 2;
    let (leased, stop) = bench.lease_with(A, NO_LIMIT);
    assert_eq!((leased.len(), stop), (2, LeaseStop::FactsMissing { seq: Seq::new(3) }));
}

#[test]
fn ending_goes_on_where_its_budget_ran_out() {
    let mut bench = Bench::with_keys(&[0; 10]);
    bench.rules.backoff_base_ms = 100;
    bench.lease(A, 9);
    bench.cluster_ms = 1000;
    assert_eq!(bench.end_due(4), 0);
    assert_eq!((bench.path.in_flight(), bench.path.scheduled()), (5, 4));
    assert_eq!(bench.path.next_due(0), Some(ClusterTime::new(1000)), "what is left is still due");
    assert_eq!(bench.end_due(6), 1);
    bench.cluster_ms = 1100;
    assert_eq!(bench.end_due(4), 0);
    assert_eq!((bench.path.scheduled(), bench.path.ready_messages()), (5, 4));
    assert_eq!(bench.end_due(0), 0);
}

#[test]
fn rule_3_what_cannot_be_read_is_held_its_key_waits_and_all_else_goes_on() {
    let mut bench = Bench::with_keys(&[7, 8, 7, 0, 7]);
    assert_eq!(bench.lease(A, 5), [1, 2, 3, 4, 5]);
    bench.settle(1, Settle::Hold);
    let followers = [(1, End::Held), (3, End::Ended(Cause::Released)), (5, End::Ended(Cause::Released))];
    assert_eq!(bench.take_ended(), followers);
    bench.settle(2, Settle::Ack);
    bench.settle(4, Settle::Ack);
    bench.cluster_ms += 86_400_000;
    assert_eq!(bench.lease(A, 5), [0_u64; 0], "however long it waits, it is neither delivered nor dropped");
    assert_eq!((bench.path.unreadable(), bench.path.books(bench.last_seq()).depth), (1, 3), "P9");
    assert_eq!(bench.settle_as(1, 99, Settle::Resume), Err(SettleError::Unknown), "another delivery");
    assert_eq!(bench.settle_as(1, 1, Settle::Resume), Ok(Settled::Done));
    let (leased, _) = bench.lease_with(A, NO_LIMIT);
    let told: Vec<_> = leased.iter().map(|one| (one.seq.get(), one.attempt.get(), one.cause)).collect();
    assert_eq!(
        told,
        [(1, 1, Cause::Released), (3, 1, Cause::Released), (5, 1, Cause::Released)],
        "P8, no attempt counted"
    );
}

#[test]
fn p4_a_message_is_dead_when_the_last_of_its_attempts_fails_for_a_cause_that_counts() {
    // Goal: attempts end, by each counting cause, and only then. Method: three attempts that fail three ways; what does
    // not count is tried in between.
    type Fails = fn(&mut Bench);
    let ways: [(Cause, Fails); 3] = [
        (Cause::Nacked, |bench| bench.settle(1, NACK)),
        (Cause::ConsumerLost, |bench| assert!(bench.end_member(A, Cause::ConsumerLost, 9))),
        (Cause::LeaseExpired, |bench| {
            bench.cluster_ms += 1000;
            bench.end_due(9);
        }),
    ];
    for (cause, fail) in ways {
        let mut bench = Bench::with_keys(&[0]);
        bench.rules.max_attempts = 3;
        for _ in 0..2 {
            assert_eq!(bench.lease(A, 1), [1]);
            fail(&mut bench);
            bench.alone = bench.path.ready_alone() > 0;
            assert_eq!(bench.lease(A, 1), [1], "it is tried again");
            bench.settle(1, Settle::Release);
        }
        bench.take_ended();
        bench.cluster_ms += 30_000;
        assert_eq!(bench.lease(A, 1), [1], "what does not count used up nothing");
        fail(&mut bench);
        assert_eq!(bench.take_ended(), [(1, End::Dead(Death::Exhausted(cause)))]);
        let expected = Books { produced: 1, dlq: 1, ..Books::default() };
        assert_eq!((bench.path.books(bench.last_seq()), bench.path.lease_of(Seq::FIRST)), (expected, None), "P9");
        bench.cluster_ms += 86_400_000;
        assert_eq!(bench.lease(B, 9), [0_u64; 0], "P6: dead is settled");
    }
}

#[test]
fn p6_a_dead_letter_is_final_its_repeat_is_ok_and_any_other_settle_changes_nothing() {
    let mut bench = Bench::with_keys(&[0]);
    bench.lease(A, 1);
    bench.settle(1, Settle::DeadLetter);
    assert_eq!(bench.take_ended(), [(1, End::Dead(Death::Rejected))]);
    assert_eq!(bench.settle_as(1, 1, Settle::DeadLetter), Ok(Settled::Again));
    for late in [Settle::Ack, NACK, Settle::Release, Settle::Extend] {
        assert_eq!(bench.settle_as(1, 1, late), Err(SettleError::Unknown));
    }
    assert_eq!((bench.path.books(bench.last_seq()).dlq, bench.take_ended()), (1, Vec::new()));
}

#[test]
fn p8_behind_a_dead_message_its_key_goes_on_in_order() {
    let mut bench = Bench::with_keys(&[7, 7, 7, 8]);
    bench.rules.max_attempts = 1;
    assert_eq!(bench.lease(A, 2), [1, 2]);
    bench.settle(1, NACK);
    let together = [(1, End::Dead(Death::Exhausted(Cause::Nacked))), (2, End::Ended(Cause::Released))];
    assert_eq!(bench.take_ended(), together, "what was leased behind it ends with it, and is not blamed");
    assert_eq!(bench.lease(B, 9), [2, 3, 4]);
    bench.settle(3, Settle::DeadLetter);
    assert_eq!(bench.take_ended(), [(3, End::Dead(Death::Rejected))]);
    assert_eq!(bench.path.in_flight(), 2, "those before it in its key are not touched");
}

#[test]
fn p4_a_lowered_limit_takes_effect_with_the_next_failure() {
    let mut bench = Bench::with_keys(&[0]);
    bench.lease(A, 1);
    bench.settle(1, NACK);
    bench.rules.max_attempts = 1;
    assert_eq!(bench.lease(A, 1), [1], "what waits is still tried");
    bench.settle(1, NACK);
    assert_eq!(bench.take_ended()[1], (1, End::Dead(Death::Exhausted(Cause::Nacked))));
}

#[test]
fn p9_the_books_balance_at_every_step() {
    let mut bench = Bench::with_keys(&[7, 7, 0, 8]);
    let books = |bench: &Bench| bench.path.books(bench.last_seq());
    assert_eq!(books(&bench), Books { produced: 4, depth: 4, ..Books::default() });
    bench.lease(A, 9);
    assert_eq!(books(&bench).depth, 4, "a leased message is owed");
    bench.settle(3, Settle::Ack);
    bench.settle(1, NACK);
    // An ack above the floor counts at once.
    let expected = Books { produced: 4, delivered: 1, depth: 3, ..Books::default() };
    assert_eq!((books(&bench), bench.path.floor(bench.last_seq(), None)), (expected, Seq::new(1)));
    bench.settle_as(3, 3, Settle::Ack).unwrap();
    assert_eq!(books(&bench), expected, "a repeated ack counts once");
    assert_eq!(Books { dropped: 1, ..expected }.difference(), -1);
    assert_eq!(Books { produced: u64::MAX, ..Books::default() }.difference(), i128::from(u64::MAX));
}

#[test]
fn p10_a_position_never_goes_back() {
    let mut bench = Bench::with_keys(&[7, 7, 0]);
    let mut before = bench.path.position();
    for _ in 0..4 {
        bench.lease(A, 1);
        assert!(bench.path.position() >= before);
        before = bench.path.position();
        bench.end_member(A, Cause::Released, 9);
        assert_eq!(bench.path.position(), before);
    }
    assert_eq!(bench.path.position(), Seq::new(2));
}

/// Lets everything that is due fall due and gives what is leased.
fn lease_at(bench: &mut Bench, ms: u64, messages: u32) -> Vec<u64> {
    bench.cluster_ms = ms;
    bench.lease(A, messages)
}

#[test]
fn p4_a_delayed_message_is_skipped_stops_nobody_and_comes_when_it_is_due() {
    let mut bench = Bench::with_keys(&[7, 7, 0, 0]);
    bench.delay(&[(1, 100), (3, 50)]);
    assert_eq!(lease_at(&mut bench, 0, 9), [2, 4], "neither position nor key waits");
    assert_eq!((bench.path.delayed(), bench.path.passed_over()), (2, 2), "nor is there an entry for it");
    assert_eq!(bench.path.books(bench.last_seq()).depth, 4, "P9: it is owed all the time");
    bench.settle(2, Settle::Ack);
    bench.settle(4, Settle::Ack);
    let lowest = Some(Seq::new(1));
    assert_eq!(bench.path.floor(bench.last_seq(), lowest), Seq::new(1));
    assert_eq!(lease_at(&mut bench, 49, 9), [0; 0]);
    assert_eq!(lease_at(&mut bench, 50, 9), [3]);
    assert_eq!(lease_at(&mut bench, 99, 9), [0; 0]);
    assert_eq!(lease_at(&mut bench, 100, 9), [1]);
    assert_eq!((bench.path.delayed(), bench.path.books(bench.last_seq()).depth), (0, 2));
    // They may stand in the schedule as long as it likes, for other paths.
    assert_eq!(lease_at(&mut bench, 101, 9), [0; 0]);
}

#[test]
fn p4_what_is_due_comes_in_the_order_in_which_it_fell_due_behind_retries_and_before_new_messages() {
    let mut bench = Bench::with_keys(&[0, 0, 0, 0, 0, 0]);
    bench.delay(&[(1, 30), (2, 10), (3, 10)]);
    assert_eq!(lease_at(&mut bench, 0, 1), [4]);
    bench.settle(4, NACK);
    assert_eq!(lease_at(&mut bench, 40, 9), [4, 2, 3, 1, 5, 6]);
    bench.settle(2, NACK);
    bench.settle(1, NACK);
    assert_eq!(bench.lease(A, 9), [1, 2], "then they are retries like others");
}

#[test]
fn p4_a_message_that_the_position_has_not_reached_comes_in_the_order_of_sequences() {
    let mut bench = Bench::with_keys(&[7, 7, 7, 7]);
    bench.delay(&[(3, 10)]);
    assert_eq!(lease_at(&mut bench, 20, 2), [1, 2], "3 has fallen due, and 1 and 2 of its key were before it");
    bench.schedule.clear();
    bench.settle(1, Settle::Ack);
    bench.settle(2, Settle::Ack);
    assert_eq!(bench.lease(A, 9), [3, 4]);
    assert_eq!(bench.path.delayed(), 0);
}

#[test]
fn p4_a_path_that_comes_later_skips_what_is_delayed_and_gets_it_when_it_is_due() {
    let mut bench = Bench::with_keys(&[0, 0, 0]);
    bench.delay(&[(1, 100), (2, 40)]);
    bench.cluster_ms = 50;
    // 2 has fallen due and stands in the schedule still, as if another path had not seen it.
    assert_eq!(bench.lease(A, 9), [2, 3]);
    assert_eq!(lease_at(&mut bench, 100, 9), [1]);
    bench.path = PathPartition::new(Seq::new(3));
    assert_eq!(bench.lease(A, 9), [3], "what lies below its start is nothing to it");
    assert_eq!(bench.path.delayed(), 0);
}

#[test]
fn p8_a_delayed_message_joins_its_key_when_it_is_due_behind_what_is_unsettled_before_it() {
    let mut bench = Bench::with_keys(&[7, 7, 7]);
    bench.delay(&[(2, 10)]);
    assert_eq!(lease_at(&mut bench, 0, 1), [1]);
    assert_eq!(bench.lease(B, 9), [0; 0]);
    assert_eq!((bench.path.position(), bench.path.passed_over()), (Seq::new(4), 2), "3 waits for its key");
    assert_eq!(lease_at(&mut bench, 10, 9), [0; 0], "so does 2, now that it is due");
    bench.settle(1, Settle::Ack);
    assert_eq!(bench.lease(A, 9), [2, 3], "and its place is before 3");
}

#[test]
fn p8_a_delayed_message_waits_for_later_ones_of_its_key_that_are_out() {
    let mut bench = Bench::with_keys(&[7, 7, 7, 7]);
    bench.delay(&[(1, 10), (3, 10)]);
    assert_eq!(lease_at(&mut bench, 0, 9), [2, 4]);
    assert_eq!(lease_at(&mut bench, 10, 9), [0; 0]);
    bench.settle(4, Settle::Ack);
    assert_eq!(bench.lease(A, 9), [0; 0], "2 is still out");
    let mut failed = bench.path.clone();
    bench.settle(2, Settle::Ack);
    assert_eq!(bench.lease(A, 9), [1, 3]);
    std::mem::swap(&mut bench.path, &mut failed);
    bench.settle(2, NACK);
    assert_eq!(bench.lease(A, 9), [1, 2, 3], "one that failed comes back behind it");
}

#[test]
fn p8_what_was_leased_together_ends_together_also_around_one_that_fell_due_meanwhile() {
    let mut bench = Bench::with_keys(&[7, 7, 7]);
    bench.delay(&[(2, 10)]);
    assert_eq!(lease_at(&mut bench, 0, 9), [1, 3]);
    assert_eq!(lease_at(&mut bench, 10, 9), [0; 0]);
    bench.settle(1, NACK);
    assert_eq!(bench.take_ended(), [(1, End::Ended(Cause::Nacked)), (3, End::Ended(Cause::Released))]);
    assert_eq!(bench.lease(A, 9), [1, 2, 3]);
}

#[test]
fn p8_as_many_messages_fall_due_as_may_be_passed_over_and_nothing_new_passes_the_others() {
    let mut bench = Bench::with_keys(&[7, 8, 8, 7]);
    bench.rules.max_passed_over = 2;
    bench.delay(&[(1, 10), (2, 10), (3, 10)]);
    assert_eq!(lease_at(&mut bench, 0, 0), [0; 0]);
    let (leased, stop) = bench.lease_with(A, LeaseLimits { messages: 1, ..NO_LIMIT });
    assert_eq!((leased[0].seq.get(), stop), (4, LeaseStop::LimitReached), "nothing of its key is due");
    bench.settle(4, Settle::Ack);
    bench.cluster_ms = 10;
    let (leased, stop) = bench.lease_with(A, NO_LIMIT);
    assert_eq!((leased.len(), stop, bench.path.delayed()), (2, LeaseStop::NothingReady, 1));
    bench.facts.push(Fact { key_hash: KeyHash::NONE, size_bytes: 1, expires_at_ms: 0 });
    assert_eq!(bench.lease_with(A, NO_LIMIT), (vec![], LeaseStop::PassedOverFull));
    bench.settle(1, Settle::Ack);
    assert_eq!(bench.lease(A, 9), [5], "3 is due too, waits for 2, and takes no place");
    bench.settle(2, Settle::Ack);
    assert_eq!(bench.lease(A, 9), [3]);
}

#[test]
fn p4_what_has_expired_is_dropped_when_it_would_be_offered_and_counted() {
    let mut bench = Bench::with_keys(&[0, 7, 7, 0]);
    for (place, expires_at_ms) in [(0, 10), (1, 10), (2, 50)] {
        bench.facts[place].expires_at_ms = expires_at_ms;
    }
    assert_eq!(lease_at(&mut bench, 9, 2), [1, 2], "it is not due to be dropped before its time");
    bench.cluster_ms = 20;
    assert_eq!(bench.path.books(bench.last_seq()).dropped, 0, "there are no timers");
    bench.settle(1, Settle::Ack);
    assert_eq!(bench.path.books(bench.last_seq()).delivered, 1, "a leased message finishes its lease");
    bench.settle(2, NACK);
    assert_eq!(lease_at(&mut bench, 49, 1), [3], "2 was dropped, and what stands behind it in its key goes on");
    assert_eq!(bench.dropped, [2]);
    assert_eq!(bench.path.dropped_by(DropReason::Ttl), 1);
    bench.settle(3, Settle::Release);
    assert_eq!(lease_at(&mut bench, 50, 9), [4]);
    let books = bench.path.books(bench.last_seq());
    assert_eq!((books.delivered, books.dropped, books.depth, books.difference()), (1, 2, 1, 0), "P9");
}

#[test]
fn p4_a_backlog_that_has_expired_goes_in_steps_and_takes_no_room() {
    let mut bench = Bench::with_keys(&[0; 3000]);
    for fact in &mut bench.facts {
        (fact.expires_at_ms, fact.size_bytes) = (10, u32::MAX);
    }
    bench.cluster_ms = 10;
    let limits = LeaseLimits { messages: 1, bytes: 1, steps: 1024, first_may_exceed_bytes: false };
    for (dropped, end) in
        [(1024, LeaseStop::StepsSpent), (2048, LeaseStop::StepsSpent), (3000, LeaseStop::NothingReady)]
    {
        let (leased, stop) = bench.lease_with(A, limits);
        assert_eq!((leased.len(), stop, bench.dropped.len()), (0, end, dropped));
    }
    assert_eq!((bench.path.passed_over(), bench.path.books(bench.last_seq()).depth), (0, 0));
}

#[test]
fn p8_an_expired_message_between_two_of_its_key_does_not_hold_up_a_call() {
    let mut bench = Bench::with_keys(&[7, 7, 7]);
    bench.facts[1].expires_at_ms = 10;
    assert_eq!(lease_at(&mut bench, 0, 9), [1, 2, 3]);
    bench.settle(1, NACK);
    assert_eq!(lease_at(&mut bench, 10, 9), [1, 3]);
    assert_eq!(bench.dropped, [2]);
    assert_eq!(bench.lease(B, 9), [0; 0]);
}

#[test]
fn p4_a_delayed_message_that_expires_before_it_is_due_is_dropped_when_it_is() {
    let mut bench = Bench::with_keys(&[0, 0]);
    bench.facts[0].expires_at_ms = 10;
    bench.delay(&[(1, 20)]);
    assert_eq!(lease_at(&mut bench, 0, 9), [2]);
    assert_eq!(lease_at(&mut bench, 19, 9), [0; 0]);
    assert_eq!((bench.path.delayed(), bench.dropped.len()), (1, 0));
    assert_eq!(lease_at(&mut bench, 20, 9), [0; 0]);
    assert_eq!((bench.path.delayed(), bench.dropped.len()), (0, 1));
}

#[test]
fn p4_p9_a_purge_drops_all_of_any_backlog_by_arithmetic_and_what_was_offered_step_by_step() {
    // Goal: a million messages cost nothing, and what costs steps costs no more than the budget. Method: a backlog of
    // which six are offered; a purge with three steps, then the rest.
    let mut bench = Bench::with_keys(&vec![0; 1_000_000]);
    assert_eq!(bench.lease(A, 6), [1, 2, 3, 4, 5, 6]);
    bench.settle(2, Settle::Ack);
    bench.settle(4, NACK);
    let (count, moved) = bench.purge(3);
    assert_eq!(count, 999_999);
    let fate = Fate::Dropped(DropReason::Purge);
    let told: Vec<_> = moved.iter().map(|range| (range.first.get(), range.count)).collect();
    assert_eq!(told, [(7, 999_994), (1, 1), (3, 2)]);
    assert!(moved.iter().all(|range| range.fate == fate));
    assert_eq!(bench.books(), (1_000_000, 1, 999_997, 2));
    // Until it is done nothing is leased, nothing else moves, and a settle finds no delivery.
    assert_eq!(bench.lease(A, 9), [0; 0]);
    let refused =
        bench.path.clone().seek(Seq::FIRST, bench.last_seq(), &bench, &mut 9, &mut Vec::new(), &mut Vec::new());
    assert_eq!(refused, Err(MoveUnderWay));
    let id = bench.live_id(5);
    assert_eq!(bench.settle_as(5, id, Settle::Ack), Err(SettleError::Unknown));
    assert_eq!(bench.path.next_due(0), Some(ClusterTime::ZERO));
    let (mut path, mut ended) = (bench.path.clone(), Vec::new());
    path.go_on(&bench, &mut 9, &mut Vec::new(), &mut ended);
    bench.path = path;
    bench.ended.append(&mut ended);
    bench.path.check(bench.last_seq());
    assert_eq!(bench.books(), (1_000_000, 1, 999_999, 0));
    assert_eq!(bench.path.dropped_by(DropReason::Purge), 999_999);
    // Each live delivery ended once.
    let ended: Vec<u64> = bench.take_ended().iter().map(|(seq, _)| *seq).collect();
    assert_eq!(ended, [2, 4, 1, 3, 5, 6]);
    assert_eq!(bench.settle_as(5, id, Settle::Ack), Err(SettleError::Unknown), "a late settle changes nothing");
    assert_eq!(bench.lease(A, 9), [0; 0]);
}

#[test]
fn p6_p7_what_a_seek_brings_back_says_so_and_what_is_acked_after_it_stays_settled() {
    let mut bench = Bench::with_keys(&[0, 0, 0, 0]);
    bench.lease(A, 3);
    bench.settle(1, Settle::Ack);
    bench.settle(2, Settle::Ack);
    assert_eq!(bench.seek(1), (2, 0));
    assert_eq!(bench.books(), (6, 2, 0, 4));
    // 3 stays leased; acked now, it is not replayed although the position comes to it again.
    bench.settle(3, Settle::Ack);
    let again = [(1, Cause::Replayed, 1, 0), (2, Cause::Replayed, 1, 0), (4, Cause::First, 1, 0)];
    assert_eq!(bench.lease_all(A), again);
    bench.settle(1, NACK);
    assert_eq!(bench.lease_all(A), [(1, Cause::Nacked, 2, 4)], "it follows the replay, not what was before");
    assert_eq!(bench.path.retries_by(Cause::Replayed), 2);
    assert_eq!(bench.settle_as(1, 1, Settle::Ack), Ok(Settled::Again), "the ack before the seek is remembered");
    assert_eq!(bench.settle_as(2, 2, Settle::Release), Err(SettleError::Stale));
    for seq in [1, 2, 4] {
        bench.settle(seq, Settle::Ack);
    }
    assert_eq!(bench.books(), (6, 6, 0, 0));
}

#[test]
fn p8_a_replay_keeps_the_order_of_its_keys_and_waits_for_what_is_leased() {
    // Goal: what comes back takes its key's turn in the order of the sequences. Method: one key; 1 and 2 are acked, 3 and
    // 4 leased, 5 was passed over behind them; then back to the start.
    let mut bench = Bench::with_keys(&[7, 7, 7, 7, 7, 9]);
    bench.lease(A, 4);
    bench.settle(1, Settle::Ack);
    bench.settle(2, Settle::Ack);
    assert_eq!(bench.lease(B, 9), [6], "5 waits for its key");
    assert_eq!(bench.seek(1), (2, 0));
    assert_eq!(bench.lease(B, 9), [0; 0], "1 and 2 wait for what is leased of their key");
    bench.settle(3, NACK);
    assert_eq!(bench.take_ended()[2..], [(3, End::Ended(Cause::Nacked)), (4, End::Ended(Cause::Released))]);
    assert_eq!(bench.lease(B, 1), [1]);
    assert_eq!(bench.lease(A, 9), [0; 0]);
    bench.settle(1, Settle::Ack);
    assert_eq!(bench.lease(A, 9), [2, 3, 4, 5]);
}

#[test]
fn p8_while_a_path_replays_a_retry_does_not_overtake_what_is_still_to_be_offered() {
    let mut bench = Bench::with_keys(&[7, 7, 7]);
    bench.lease(A, 3);
    bench.settle(1, Settle::Ack);
    bench.settle(2, NACK);
    assert_eq!(bench.seek(1), (1, 0));
    assert_eq!(bench.lease(A, 1), [1]);
    assert_eq!(bench.lease(A, 9), [0; 0]);
    bench.settle(1, Settle::Ack);
    assert_eq!(bench.lease(A, 9), [2, 3]);
}

#[test]
fn p4_p9_several_seeks_in_a_row_owe_and_drop_each_message_once() {
    let mut bench = Bench::with_keys(&[0; 10]);
    bench.lease(A, 6);
    for seq in [1, 2, 3, 5] {
        bench.settle(seq, Settle::Ack);
    }
    assert_eq!(bench.seek(3), (2, 0), "3 and 5; 4 and 6 are unsettled");
    bench.settle(4, Settle::Ack);
    assert_eq!(bench.seek(2), (2, 0), "2, and 4 that was acked since");
    assert_eq!(bench.books(), (14, 5, 0, 9));
    assert_eq!(bench.seek(5), (0, 3), "2, 3 and 4 are skipped");
    assert_eq!(bench.seek(5), (0, 0));
    assert_eq!(bench.seek(99), (0, 5), "5 and what was never offered; 6 is leased");
    assert_eq!(bench.books(), (14, 5, 8, 1));
    assert_eq!(bench.path.dropped_by(DropReason::Seek), 8);
    bench.settle(6, NACK);
    assert_eq!(bench.lease(B, 9), [6], "what was leased goes on as usual");
    assert_eq!(bench.seek(1), (9, 0));
    let seqs: Vec<u64> = bench.lease_all(A).iter().map(|told| told.0).collect();
    assert_eq!(seqs, [1, 2, 3, 4, 5, 7, 8, 9, 10]);
}

#[test]
fn p9_a_path_that_began_late_owes_from_where_it_is_set_back_to() {
    let mut bench = Bench::with_keys(&[0; 5]);
    bench.path = PathPartition::new(Seq::new(4));
    assert_eq!(bench.books(), (2, 0, 0, 2));
    assert_eq!(bench.seek(2), (2, 0));
    assert_eq!((bench.books(), bench.path.start()), ((4, 0, 0, 4), Seq::new(2)));
    let causes: Vec<Cause> = bench.lease_all(A).iter().map(|told| told.1).collect();
    assert_eq!(causes, [Cause::Replayed, Cause::Replayed, Cause::First, Cause::First]);
}

#[test]
fn p4_a_full_window_moves_on_although_a_replay_stands_before_it() {
    let mut bench = Bench::with_keys(&[0; 5]);
    bench.rules.max_passed_over = 2;
    bench.lease(A, 2);
    bench.settle(1, Settle::Ack);
    assert_eq!(bench.lease(A, 1), [3]);
    bench.settle(2, NACK);
    assert_eq!(bench.seek(1), (1, 0));
    assert_eq!(bench.lease(A, 9), [2], "1 may not be offered; nothing would move if 2 waited for it");
    bench.settle(2, Settle::Ack);
    assert_eq!(bench.lease(A, 9), [1]);
}

#[test]
fn p4_p9_a_purge_drops_what_is_delayed_and_it_never_comes_unless_a_seek_brings_it_back() {
    let mut bench = Bench::with_keys(&[7, 7, 0, 0]);
    bench.delay(&[(1, 50), (3, 60)]);
    assert_eq!(lease_at(&mut bench, 0, 9), [2, 4]);
    let (count, moved) = bench.purge(3);
    let told: Vec<_> = moved.iter().map(|range| (range.first.get(), range.count)).collect();
    assert_eq!((count, told), (4, vec![(1, 1), (3, 1), (2, 1)]), "each that was passed is a step");
    assert_eq!(bench.purge(9).0, 1);
    assert_eq!((bench.books(), bench.path.delayed()), ((4, 0, 4, 0), 0));
    assert_eq!(lease_at(&mut bench, 50, 9), [0; 0], "1 has fallen due, and is settled");
    assert_eq!(bench.seek(1), (4, 0));
    let again: Vec<_> = bench.lease_all(A).iter().map(|told| (told.0, told.1)).collect();
    assert_eq!(again, [(1, Cause::Replayed), (2, Cause::Replayed), (4, Cause::Replayed)], "3 is not due yet");
    assert_eq!((bench.books(), bench.path.delayed()), ((8, 0, 4, 4), 1));
    assert_eq!(lease_at(&mut bench, 60, 9), [3]);
}

#[test]
fn p4_p9_a_seek_drops_what_is_delayed_below_its_target_and_leaves_what_is_delayed_alone_on_its_way_back() {
    let mut bench = Bench::with_keys(&[0; 6]);
    bench.delay(&[(2, 50), (4, 60), (6, 70)]);
    assert_eq!(lease_at(&mut bench, 0, 2), [1, 3]);
    assert_eq!(bench.seek(5), (0, 2), "2 and 4; 1 and 3 are leased");
    assert_eq!(lease_at(&mut bench, 0, 9), [5]);
    assert_eq!((bench.books(), bench.path.delayed()), ((6, 0, 2, 4), 1));
    bench.settle(5, Settle::Ack);
    let (mut path, mut moved) = (bench.path.clone(), Vec::new());
    let count = path.seek(Seq::new(5), bench.last_seq(), &bench, &mut 9, &mut moved, &mut Vec::new());
    bench.path = path;
    bench.check();
    assert_eq!((count.unwrap().replayed, moved.len()), (1, 1), "5 only: 6 is owed already");
    assert_eq!(bench.lease(A, 9), [5]);
    assert_eq!(lease_at(&mut bench, 60, 9), [0; 0]);
    assert_eq!(lease_at(&mut bench, 70, 9), [6]);
}

#[test]
fn p4_what_has_fallen_due_before_a_seek_back_comes_at_once_in_the_order_of_sequences() {
    let mut bench = Bench::with_keys(&[7, 7, 7]);
    bench.delay(&[(1, 10)]);
    assert_eq!(lease_at(&mut bench, 0, 9), [2, 3]);
    bench.settle(2, Settle::Ack);
    bench.settle(3, Settle::Ack);
    assert_eq!(lease_at(&mut bench, 10, 9), [1]);
    bench.settle(1, Settle::Ack);
    // Whether it still stands in the schedule, for another path, makes no difference.
    assert_eq!(bench.seek(1), (3, 0));
    assert_eq!(bench.lease(A, 9), [1, 2, 3]);
}

#[test]
fn p6_what_expires_above_the_position_is_not_replayed() {
    let mut bench = Bench::with_keys(&[0; 3]);
    bench.rules.max_passed_over = 2;
    bench.facts[1].expires_at_ms = 10;
    assert_eq!(bench.lease(A, 2), [1, 2]);
    bench.settle(1, Settle::Ack);
    bench.settle(2, NACK);
    assert_eq!(bench.lease(A, 1), [2]);
    assert_eq!(bench.lease(B, 1), [3]);
    bench.settle(2, NACK);
    assert_eq!(bench.seek(1), (1, 0));
    assert_eq!(lease_at(&mut bench, 10, 9), [1], "2 had to make room, and had expired");
    assert_eq!((bench.dropped.clone(), bench.books()), (vec![2], (4, 1, 1, 2)));
    assert_eq!(bench.lease(A, 9), [0; 0]);
}

/// Leases at most so many of what is delivered alone, which is one, and gives what was leased and why no more.
fn lease_alone(bench: &mut Bench, member: MemberId, limits: LeaseLimits) -> (Vec<u64>, LeaseStop) {
    bench.alone = true;
    let (leased, stop) = bench.lease_with(member, limits);
    bench.alone = false;
    (leased.iter().map(|one| one.seq.get()).collect(), stop)
}

#[test]
fn a_message_that_lost_two_workers_is_delivered_alone_until_one_says_something() {
    // Goal: wire rule 6. Method: three messages, of which two stay in the hands of members that are lost.
    let mut bench = Bench::with_keys(&[0, 0, 0]);
    for _ in 0..2 {
        assert_eq!(bench.lease(A, 2), [1, 2]);
        bench.end_member(A, Cause::ConsumerLost, 9);
    }
    assert_eq!(bench.path.ready_alone(), 2);
    assert!(bench.path.has_alone(&bench.rules, true));
    // Who does not ask for it gets what is left.
    assert_eq!(bench.lease(A, 9), [3]);
    assert_eq!(lease_alone(&mut bench, B, NO_LIMIT), (vec![1], LeaseStop::LimitReached));
    assert!(bench.path.holds_alone(B) && !bench.path.holds_alone(A));
    // Given back it says nothing new; a nack is a word.
    bench.settle(1, Settle::Release);
    assert_eq!(lease_alone(&mut bench, B, NO_LIMIT).0, [1]);
    bench.settle(1, NACK);
    assert_eq!((bench.lease(A, 9), bench.path.ready_alone()), (vec![1], 1));
    assert_eq!(lease_alone(&mut bench, B, NO_LIMIT).0, [2]);
    bench.settle(2, Settle::Ack);
    assert_eq!(lease_alone(&mut bench, B, NO_LIMIT), (vec![], LeaseStop::NothingReady));
    assert_eq!(bench.books(), (3, 1, 0, 2));
}

#[test]
fn what_ran_out_twice_is_delivered_alone_and_what_was_refused_is_not() {
    let mut bench = Bench::with_keys(&[0, 0]);
    bench.rules.backoff_base_ms = 0;
    assert_eq!(bench.lease(A, 9), [1, 2]);
    bench.settle(2, NACK);
    assert_eq!(bench.lease(A, 9), [2]);
    bench.settle(2, NACK);
    bench.cluster_ms = 1000;
    bench.end_due(9);
    assert_eq!((bench.lease(A, 9), bench.path.ready_alone()), (vec![1, 2], 0));
    bench.cluster_ms = 2000;
    bench.end_due(9);
    // The first ran out twice, the second once, at its third attempt.
    assert_eq!((bench.lease(A, 9), bench.path.ready_alone()), (vec![], 2));
}

#[test]
fn p8_a_key_waits_for_its_message_that_is_delivered_alone() {
    // Goal: P8, also where a message is isolated in the middle of its key. Method: 1 to 4 of one key, 3 lost workers.
    let mut bench = Bench::with_keys(&[7, 7, 7, 7]);
    for _ in 0..2 {
        assert_eq!(bench.lease(A, 1), [1]);
        bench.end_member(A, Cause::ConsumerLost, 9);
    }
    assert_eq!((bench.lease(A, 9), bench.path.ready_alone()), (vec![], 1), "its key waits behind it");
    assert_eq!(lease_alone(&mut bench, B, NO_LIMIT).0, [1], "and what is behind it does not leave with it");
    assert_eq!(lease_alone(&mut bench, B, NO_LIMIT).1, LeaseStop::NothingReady);
    bench.settle(1, Settle::Ack);
    assert_eq!(bench.lease(A, 9), [2, 3, 4]);
    // Back in order of the key: the lowest is charged, what was leased behind it is only given back.
    bench.end_member(A, Cause::ConsumerLost, 9);
    assert_eq!(bench.lease(A, 9), [2, 3, 4]);
    bench.end_member(A, Cause::ConsumerLost, 9);
    assert_eq!((bench.lease(A, 9), bench.path.ready_alone()), (vec![], 1));
    assert_eq!(lease_alone(&mut bench, A, NO_LIMIT).0, [2]);
    bench.settle(2, Settle::Ack);
    assert_eq!(bench.lease(A, 9), [3, 4]);
}

#[test]
fn what_is_delivered_alone_keeps_to_all_limits_and_is_dropped_when_it_expires() {
    let mut bench = Bench::with_keys(&[0, 0, 0]);
    bench.facts[1].expires_at_ms = 5000;
    for _ in 0..2 {
        assert_eq!(bench.lease(A, 2), [1, 2]);
        bench.end_member(A, Cause::ConsumerLost, 9);
    }
    let small = LeaseLimits { bytes: 9, first_may_exceed_bytes: false, ..NO_LIMIT };
    assert_eq!(lease_alone(&mut bench, B, small), (vec![], LeaseStop::TooLarge { size_bytes: 10 }));
    assert_eq!(lease_alone(&mut bench, B, LeaseLimits { steps: 0, ..NO_LIMIT }).1, LeaseStop::StepsSpent);
    assert_eq!(lease_alone(&mut bench, B, LeaseLimits { messages: 0, ..NO_LIMIT }).1, LeaseStop::LimitReached);
    bench.rules.max_in_flight = 1;
    assert_eq!(bench.lease(A, 9), [3]);
    assert!(!bench.path.has_alone(&bench.rules, true), "nobody is to be reserved for it while it cannot be leased");
    assert_eq!(lease_alone(&mut bench, B, NO_LIMIT), (vec![], LeaseStop::InFlightFull));
    bench.settle(3, Settle::Ack);
    assert!(bench.path.has_alone(&bench.rules, true));
    bench.cluster_ms = 5000;
    assert_eq!(lease_alone(&mut bench, B, NO_LIMIT).0, [1]);
    bench.settle(1, Settle::Ack);
    assert_eq!(lease_alone(&mut bench, B, NO_LIMIT), (vec![], LeaseStop::NothingReady));
    assert_eq!((bench.dropped.clone(), bench.books()), (vec![2], (3, 2, 1, 0)));
}

#[test]
fn p4_what_is_delivered_alone_does_not_wait_for_a_replay_that_has_no_room() {
    // Goal: where a path may pass nothing over, what makes room still goes. Method: 2 lost two workers, and is above the position.
    let mut bench = Bench::with_keys(&[0, 0]);
    assert_eq!(bench.lease(A, 9), [1, 2]);
    bench.settle(1, Settle::Ack);
    bench.end_member(A, Cause::ConsumerLost, 9);
    assert_eq!(bench.lease(A, 9), [2]);
    bench.end_member(A, Cause::ConsumerLost, 9);
    bench.seek(1);
    assert!(!bench.path.has_alone(&bench.rules, true), "1 comes before it");
    assert!(bench.path.has_alone(&bench.rules, false));
}

#[test]
fn p8_a_hot_key_never_stops_the_others_and_keeps_its_order() {
    // Goal: one key with 10,000 messages behind a lease, far more than `max_passed_over`, while 100,000 of other keys pass;
    // then its order, exact to the end. Method: every tenth of the first 100,000 is of the hot key.
    let hot = |place: u64| place < 100_000 && place.is_multiple_of(10);
    let mut bench =
        Bench::with_keys(&(0..110_000).map(|place| if hot(place) { 7 } else { 100 + place }).collect::<Vec<_>>());
    bench.rules.max_passed_over = 4096;
    bench.check_every = 5000;
    assert_eq!(bench.lease(A, 1), [1]);
    let mut others = 0;
    for _ in 0..1000 {
        let leased = bench.lease_with(B, LeaseLimits { messages: 1000, steps: 1024, ..NO_LIMIT }).0;
        others += leased.len();
        for one in leased {
            assert!(!hot(one.seq.get() - 1), "message {} overtook 1", one.seq);
            bench.settle_as(one.seq.get(), one.delivery_id.get(), Settle::Ack).expect("it is leased");
        }
        if others == 100_000 {
            break;
        }
    }
    assert_eq!((others, bench.books()), (100_000, (110_000, 100_000, 0, 10_000)), "P9");
    // 1 is leased, a 64th of 4096 are entries in all, the rest is packed.
    assert_eq!((bench.path.passed_over(), bench.path.packed()), (64, 9936));
    bench.settle(1, NACK);
    let mut order = Vec::new();
    while order.len() < 10_000 {
        let leased = bench.lease_with(B, LeaseLimits { messages: 1000, ..NO_LIMIT }).0;
        assert!(!leased.is_empty(), "it stops at {}", order.len());
        for one in leased {
            order.push(one.seq.get());
            bench.settle_as(one.seq.get(), one.delivery_id.get(), Settle::Ack).expect("it is leased");
        }
    }
    assert!(order.iter().copied().eq((1..100_000).step_by(10)), "P8");
    assert_eq!((bench.books(), bench.path.packed()), ((110_000, 110_000, 0, 0), 0));
}

#[test]
fn what_waits_behind_a_crowded_key_is_purged_sought_over_and_owed_again_like_all_that_is_unsettled() {
    let crowded = || {
        let mut bench = Bench::with_keys(&[7, 7, 0, 7, 7, 8]);
        bench.rules.max_passed_over = 100;
        assert_eq!(bench.lease(A, 1), [1]);
        assert_eq!(bench.lease(B, 1), [3]);
        assert_eq!(bench.lease(B, 1), [6]);
        assert_eq!((bench.path.passed_over(), bench.path.packed()), (3, 3));
        bench
    };
    let mut bench = crowded();
    assert_eq!((bench.purge(9).0, bench.books()), (6, (6, 0, 6, 0)));
    // Everything but what is leased, also what is packed behind it.
    let mut bench = crowded();
    assert_eq!((bench.seek(7), bench.books()), ((0, 3), (6, 0, 3, 3)));
    // A path that went back and goes forwards into the middle: what lies behind stays.
    let mut bench = crowded();
    bench.settle(3, Settle::Ack);
    assert_eq!(
        (bench.seek(1), bench.books()),
        ((1, 0), (7, 1, 0, 6)),
        "3 is owed once more, what is packed stays as it is"
    );
    assert_eq!((bench.seek(5), bench.books()), ((0, 3), (7, 1, 3, 3)));
    bench.settle(1, Settle::Ack);
    assert_eq!((bench.lease(A, 9), bench.path.lease_of(Seq::new(5)).unwrap().cause), (vec![5], Cause::First));
    // Nobody keeps order any more.
    let mut bench = crowded();
    bench.rules.order = Order::None;
    assert_eq!(bench.lease(B, 9), [2, 4, 5]);
    // What expired there is found when its turn comes.
    let mut bench = Bench::with_keys(&[7, 7, 7]);
    bench.rules.max_passed_over = 100;
    bench.facts[1].expires_at_ms = 10;
    assert_eq!((bench.lease(A, 1), bench.lease(B, 9), bench.path.packed()), (vec![1], vec![], 2));
    bench.cluster_ms = 10;
    bench.settle(1, Settle::Ack);
    assert_eq!((bench.lease(A, 9), bench.dropped.clone(), bench.books()), (vec![3], vec![2], (3, 1, 1, 1)));
}

#[test]
fn p8_a_million_of_one_key_wait_while_all_others_pass_and_beyond_that_nothing_new_is_offered() {
    // Goal: the same with the default limits, up to the most that is packed. Method: 1,060,000 of the hot key, and another one
    // behind every tenth; what does not fit comes when some of the first are done.
    const HOT: u64 = 1_060_000;
    let keys: Vec<u64> =
        (1..=HOT).flat_map(|number| [Some(7), number.is_multiple_of(10).then_some(number + 8)]).flatten().collect();
    let mut bench = Bench::with_keys(&keys);
    bench.rules.max_passed_over = 65_536;
    bench.check_every = 200_000;
    bench.rules.lease_ms = 1 << 40;
    assert_eq!(bench.lease(A, 1), [1]);
    let take = |bench: &mut Bench| {
        // So that settles are forgotten.
        bench.cluster_ms += 10_000;
        bench.end_due(9);
        let (leased, stop) = bench.lease_with(B, LeaseLimits { messages: 1024, steps: 1024, ..NO_LIMIT });
        for one in &leased {
            bench.settle_as(one.seq.get(), one.delivery_id.get(), Settle::Ack).expect("it is leased");
        }
        (leased.len() as u64, leased.iter().filter(|one| keys[one.seq.get() as usize - 1] == 7).count() as u64, stop)
    };
    let mut others = 0;
    let stop = loop {
        let (leased, hot, stop) = take(&mut bench);
        assert_eq!(hot, 0, "the first is leased");
        others += leased;
        if stop != LeaseStop::StepsSpent {
            break stop;
        }
    };
    // 1,024 entries and 1,048,576 packed: the next one stops all.
    assert_eq!((stop, bench.path.passed_over(), bench.path.packed()), (LeaseStop::PassedOverFull, 1024, 1 << 20));
    assert_eq!(others, (1024 + (1 << 20)) / 10 - 1, "also the one right behind it");
    let books = bench.books();
    assert_eq!((books.1, books.3), (others, keys.len() as u64 - others), "P9");
    bench.settle(1, Settle::Ack);
    let mut hot_ones = 1;
    while bench.books().3 > 0 {
        let (leased, hot, stop) = take(&mut bench);
        assert!(leased > 0 || stop == LeaseStop::StepsSpent, "{stop:?} with {:?}", bench.books());
        hot_ones += hot;
    }
    assert_eq!((hot_ones, bench.books().1), (HOT, keys.len() as u64));
}
