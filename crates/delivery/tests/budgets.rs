//! Goal: a budget of steps only delays. What an operator moves, what is due and what a lost member held end in the same state
//! and with the same reports, however many calls it takes (P4, P6, P9). Method: two paths live the same random history; one
//! has no limit, the other one to three steps a call, and is called until it is done.
//!
//! `MORTARMQ_SEED=N` begins with another seed.

use mortarmq_delivery::{
    Delayed, DuePosition, Ended, Fact, Facts, Fate, Grant, Handed, LeaseLimits, LeaseRequest, MoveCount, Moved, Now,
    Order, PathPartition, PathRules, Settle,
};
use mortarmq_types::{Cause, ClusterTime, DeliveryId, KeyHash, LeaseTime, MemberId, Position, Seq};
use std::collections::BTreeMap;
use std::ops::{Bound, Range};

/// What both paths read.
#[derive(Default)]
struct Messages {
    facts: Vec<Fact>,
    schedule: BTreeMap<DuePosition, Fact>,
}

impl Facts for Messages {
    fn fact(&self, seq: Seq) -> Option<Fact> {
        self.facts.get(usize::try_from(seq.get() - 1).ok()?).copied()
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

/// One of the two, with what it reported last.
struct Life {
    path: PathPartition,
    last_delivery: DeliveryId,
    ended: Vec<Ended>,
    moved: Vec<(Seq, Fate)>,
    /// Whether a move is done before the next step.
    finishes: bool,
}

/// What happens next, the same to both.
#[derive(Clone, Copy, Debug)]
enum Step {
    Lease { member: MemberId, messages: u32 },
    Settle { seq: Seq, how: Settle },
    EndDue,
    EndMember { member: MemberId, cause: Cause },
    Purge,
    Seek { to: Seq },
    GoOn,
}

const RULES: PathRules = PathRules {
    order: Order::Key,
    lease_ms: 1000,
    backoff_base_ms: 100,
    backoff_max_ms: 1000,
    max_passed_over: 12,
    max_acked_ahead: 0,
    max_in_flight: 0,
    max_attempts: 3,
};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end
    }
}

impl Life {
    fn new(finishes: bool) -> Self {
        let path = PathPartition::new(Seq::FIRST);
        Self { path, last_delivery: DeliveryId::ZERO, ended: Vec::new(), moved: Vec::new(), finishes }
    }

    /// Takes a step in calls of so many steps, and says in how many.
    fn take(&mut self, step: Step, budget: u32, messages: &Messages, time_ms: u64) -> u32 {
        let now = Now { cluster: ClusterTime::new(time_ms), lease: LeaseTime::new(time_ms) };
        let last_seq = Seq::new(messages.facts.len() as u64);
        let (mut moved, mut calls) = (Vec::new(), 1);
        self.ended.clear();
        match step {
            Step::Lease { member, messages: count } => {
                let limits =
                    LeaseLimits { messages: count, bytes: u64::MAX, steps: u32::MAX, first_may_exceed_bytes: true };
                let (grant, granted_at) = (Grant::Push, Position::default());
                let may_pass_over = true;
                let request = LeaseRequest { member, grant, limits, may_pass_over, last_seq, now, granted_at };
                let mut handed = Handed::default();
                self.path.lease(&request, &RULES, messages, &mut self.last_delivery, &mut handed);
            }
            Step::Settle { seq, how } => {
                let lease = self.path.lease_of(seq).and_then(|entry| entry.lease().copied());
                let id = lease.map_or(DeliveryId::new(1), |lease| lease.delivery_id);
                _ = self.path.settle(seq, id, how, &RULES, now, &mut self.ended);
            }
            Step::EndDue => loop {
                let mut left = budget;
                self.path.end_due(now, &mut left, &RULES, &mut self.ended);
                if left > 0 {
                    break;
                }
                calls += 1;
            },
            Step::EndMember { member, cause } => {
                while !self.path.end_member(member, cause, &mut { budget }, &RULES, now, &mut self.ended) {
                    calls += 1;
                }
            }
            Step::Purge => _ = self.path.purge(last_seq, messages, &mut { budget }, &mut moved, &mut self.ended),
            Step::Seek { to } => {
                let was_moving = self.path.is_moving();
                let count = self.path.seek(to, last_seq, messages, &mut { budget }, &mut moved, &mut self.ended);
                assert_eq!(count.is_err(), was_moving, "a seek waits for the move before it, and for nothing else");
                let is_partial = count.is_ok_and(|MoveCount { is_partial, .. }| is_partial);
                assert!(!is_partial || self.path.is_moving(), "a seek that is done knows what it did");
            }
            Step::GoOn => self.path.go_on(messages, &mut { budget }, &mut moved, &mut self.ended),
        }
        while self.finishes && self.path.is_moving() {
            calls += 1;
            self.path.go_on(messages, &mut { budget }, &mut moved, &mut self.ended);
            self.path.check(last_seq);
        }
        let each =
            |moved: &Moved| (0..moved.count).map(|place| (moved.first.plus(place), moved.fate)).collect::<Vec<_>>();
        self.moved = moved.iter().flat_map(each).collect();
        self.moved.sort_by_key(|(seq, _)| *seq);
        self.ended.sort_by_key(|ended| ended.delivery_id);
        self.path.check(last_seq);
        calls
    }
}

fn step(random: &mut Random, messages: &mut Messages, time_ms: &mut u64) -> Step {
    let last = messages.facts.len() as u64;
    let member = MemberId::new(1 + random.below(2));
    let seq = Seq::new(1 + random.below(last + 1));
    match random.below(20) {
        0..8 => Step::Lease { member, messages: u32::try_from(1 + random.below(9)).expect("small") },
        8..11 => Step::Settle { seq, how: Settle::Ack },
        11 => Step::Settle { seq, how: Settle::Nack { delay_ms: 0 } },
        12 => Step::Settle { seq, how: Settle::Hold },
        13..15 => {
            *time_ms += random.below(1200);
            Step::EndDue
        }
        15 => {
            Step::EndMember { member, cause: [Cause::ConsumerLost, Cause::Released][usize::from(random.below(2) == 0)] }
        }
        16 => Step::Purge,
        _ => Step::Seek { to: seq },
    }
}

fn publish(random: &mut Random, messages: &mut Messages, time_ms: u64) {
    for _ in 0..random.below(4) {
        let expires_at_ms = if random.below(6) == 0 { time_ms + 500 } else { 0 };
        let fact = Fact { key_hash: KeyHash::new(random.below(3)), size_bytes: 10, expires_at_ms };
        messages.facts.push(fact);
        if random.below(5) == 0 {
            let due = ClusterTime::new(time_ms + 1 + random.below(900));
            messages.schedule.insert(DuePosition { due, seq: Seq::new(messages.facts.len() as u64) }, fact);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the seed of a test comes from outside")]
fn first_seed() -> u64 {
    std::env::var("MORTARMQ_SEED").map_or(1, |text| text.parse().expect("MORTARMQ_SEED is a number"))
}

#[test]
fn p4_p9_a_budget_of_steps_only_delays_what_is_done() {
    let mut calls_of_several: u32 = 0;
    for seed in first_seed()..first_seed() + 1000 {
        let random = &mut Random(seed);
        let (mut messages, mut time_ms) = (Messages::default(), 0);
        let (mut at_once, mut in_steps) = (Life::new(true), Life::new(true));
        for _ in 0..60 {
            publish(random, &mut messages, time_ms);
            let step = step(random, &mut messages, &mut time_ms);
            let budget = u32::try_from(1 + random.below(3)).expect("small");
            at_once.take(step, u32::MAX, &messages, time_ms);
            let calls = in_steps.take(step, budget, &messages, time_ms);
            calls_of_several += u32::from(calls > 1);
            let told = format!("seed {seed}: {step:?} in steps of {budget} at {time_ms}");
            assert_eq!(in_steps.path, at_once.path, "{told}");
            assert_eq!(in_steps.ended, at_once.ended, "{told}");
            assert_eq!(in_steps.moved, at_once.moved, "{told}");
        }
    }
    println!("{calls_of_several} steps took more than one call");
    assert!(calls_of_several > 2000, "a test of nothing: {calls_of_several}");
}

#[test]
fn p4_p9_whatever_comes_between_the_steps_of_a_move_it_ends_where_it_was_to_end() {
    // Goal: a purge that goes on takes all with it that was owed when it was asked for, and the invariants hold meanwhile.
    // Method: histories as above, but the other steps come between those of a move.
    let (mut between, mut purges): (u32, u32) = (0, 0);
    for seed in first_seed()..first_seed() + 1000 {
        let random = &mut Random(seed);
        let (mut messages, mut time_ms) = (Messages::default(), 0);
        let mut life = Life::new(false);
        let mut purged_to = None;
        for _ in 0..90 {
            publish(random, &mut messages, time_ms);
            let next = step(random, &mut messages, &mut time_ms);
            let next = if life.path.is_moving() && random.below(3) == 0 { Step::GoOn } else { next };
            between += u32::from(life.path.is_moving() && !matches!(next, Step::GoOn));
            if matches!(next, Step::Purge) {
                purged_to = Some(messages.facts.len() as u64 + 1);
            }
            life.take(next, u32::try_from(1 + random.below(3)).expect("small"), &messages, time_ms);
            life.path.check_delayed(messages.schedule.keys().copied());
            if let Some(end) = purged_to.filter(|_| !life.path.is_moving()) {
                let owed = (1..end).find(|seq| life.path.owes(Seq::new(*seq), messages.due_of(Seq::new(*seq))));
                assert_eq!(owed, None, "seed {seed}: a purge up to {end} is done, and a message is owed");
                purges += 1;
                purged_to = None;
            }
        }
    }
    println!("{between} steps between those of a move, {purges} purges");
    assert!(between > 2000 && purges > 1000, "a test of nothing: {between}, {purges}");
}
