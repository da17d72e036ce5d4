//! The search against a slow and obvious one: every order of every choice of what may have happened.

use super::{Answer, find_order};
use crate::context::Context;
use crate::location::Location;
use crate::operation::{
    Cause, Delivery, NackTo, Operate, OperateKind, Operation, Outcome, Publish, Settle, SettleKind,
};
use crate::pair::Case;
use crate::span::{NEVER, Span, Timed};

/// A few numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

const PATH: u32 = 1;

fn span(random: &mut Random, has_index: bool) -> Span {
    let call = random.below(12);
    let ret = if random.below(12) == 0 { NEVER } else { call + random.below(6) };
    Span { call, ret, commit: (has_index && ret != NEVER).then(|| random.below(8)) }
}

/// A publish, up to three deliveries and up to three settles, at random times; most of them break the contract.
fn operations(random: &mut Random) -> Vec<Operation> {
    let has_index = random.below(2) == 0;
    let mut operations = Vec::new();
    let mut at = (1..).map(|line| Location::new(0, line));
    let mut place = || at.next().expect("there is no end of places");
    let outcome = if random.below(4) == 0 { Outcome::Unknown } else { Outcome::Ok };
    let publish_span = Span { call: random.below(4), ..span(random, has_index) };
    let publish_span = Span { ret: publish_span.ret.max(publish_span.call), ..publish_span };
    operations.push(Operation::Publish(Publish {
        span: publish_span,
        stored: publish_span,
        outcome,
        topic: 0,
        key: None,
        position: None,
        identity: None,
        delay_ms: 0,
        is_duplicate: false,
        hash: None,
        txn: None,
        at: place(),
    }));
    let deliveries = 1 + random.below(3);
    for id in 1..=deliveries {
        let span = span(random, has_index);
        let cause = if random.below(5) == 0 { Some(Cause::Redriven) } else { None };
        operations.push(Operation::Delivery(Delivery {
            span: Span { ret: if span.ret == NEVER { span.call + 1 } else { span.ret }, ..span },
            path: PATH,
            client: 2,
            key: None,
            position: None,
            id: Some(id),
            attempt: None,
            cause,
            prev: None,
            lease_ms: None,
            hash: None,
            origin: None,
            at: place(),
        }));
    }
    for _ in 0..random.below(4) {
        let span = span(random, has_index);
        let kind = match random.below(5) {
            0 | 1 => SettleKind::Ack,
            2 => SettleKind::Nack(NackTo::Retry),
            3 => SettleKind::Nack(NackTo::Dead),
            _ => SettleKind::Extend(None),
        };
        let outcome = match random.below(5) {
            0 => Outcome::Refused,
            1 => Outcome::Unknown,
            _ if span.ret == NEVER => Outcome::Unknown,
            _ => Outcome::Ok,
        };
        let delivery_id = (random.below(5) > 0).then(|| 1 + random.below(deliveries));
        let settle = Settle { span, outcome, kind, path: PATH, client: 2, delivery_id, txn: None, at: place() };
        operations.push(Operation::Settle(settle));
    }
    operations
}

/// In every second case an operator redrove the path at some time; no delivery says that it comes from that.
fn redrive(random: &mut Random) -> Option<Operate> {
    (random.below(2) == 0).then(|| Operate {
        span: span(random, false),
        outcome: Outcome::Unknown,
        kind: OperateKind::Redrive,
        path: Some(PATH),
        msg: None,
        client: None,
        at: Location::new(0, 99),
    })
}

/// Where a pair is, told as plainly as can be.
#[derive(Clone, Debug)]
struct Plain {
    is_stored: bool,
    held_by: Option<u64>,
    is_acked: bool,
    is_dead: bool,
    /// Settles that took effect.
    taken: Vec<(Option<u64>, SettleKind)>,
}

/// Whether any order of any choice of the operations is allowed.
fn has_order(operations: &[Operation], redrive: Option<&Operate>) -> bool {
    let relevant: Vec<&Operation> = operations.iter().filter(|one| counts(one)).collect();
    let start = Plain { is_stored: false, held_by: None, is_acked: false, is_dead: false, taken: Vec::new() };
    extend_order(&relevant, &mut vec![false; relevant.len()], &start, redrive)
}

fn counts(operation: &Operation) -> bool {
    match operation {
        Operation::Publish(publish) => publish.outcome != Outcome::Refused,
        Operation::Delivery(_) => true,
        Operation::Settle(Settle { kind: SettleKind::Extend(_), outcome, .. }) => *outcome == Outcome::Ok,
        Operation::Settle(settle) => settle.outcome != Outcome::Refused,
    }
}

fn may_be_left_out(operation: &Operation) -> bool {
    match operation {
        Operation::Publish(publish) => publish.outcome == Outcome::Unknown,
        Operation::Delivery(_) => false,
        Operation::Settle(settle) => settle.outcome == Outcome::Unknown,
    }
}

fn extend_order(all: &[&Operation], done: &mut Vec<bool>, state: &Plain, redrive: Option<&Operate>) -> bool {
    if (0..all.len()).all(|index| done[index] || may_be_left_out(all[index])) {
        return true;
    }
    for index in 0..all.len() {
        let is_blocked = (0..all.len()).any(|other| {
            other != index
                && !done[other]
                && !may_be_left_out(all[other])
                && all[other].span().certainly_before(all[index].span())
        });
        if done[index] || is_blocked {
            continue;
        }
        if let Some(next) = after(all, all[index], state, redrive) {
            done[index] = true;
            let found = extend_order(all, done, &next, redrive);
            done[index] = false;
            if found {
                return true;
            }
        }
    }
    false
}

fn after(all: &[&Operation], operation: &Operation, state: &Plain, redrive: Option<&Operate>) -> Option<Plain> {
    let mut next = state.clone();
    match operation {
        Operation::Publish(_) => next.is_stored = true,
        Operation::Delivery(delivery) => {
            let is_over = state.is_acked || state.is_dead;
            let may_be_back = delivery.cause == Some(Cause::Redriven)
                || redrive.is_some_and(|redrive| !delivery.span.certainly_before(&redrive.span));
            if !state.is_stored || (is_over && !may_be_back) {
                return None;
            }
            (next.held_by, next.is_acked, next.is_dead) = (delivery.id, false, false);
        }
        Operation::Settle(settle) => {
            let is_extend = matches!(settle.kind, SettleKind::Extend(_));
            if !is_extend && state.taken.contains(&(settle.delivery_id, settle.kind)) {
                return Some(next);
            }
            let holder = state.held_by?;
            let call = all.iter().find_map(|one| match one {
                Operation::Delivery(delivery) if delivery.id == Some(holder) => Some(delivery.span.call),
                _ => None,
            });
            let is_named = match settle.delivery_id {
                Some(id) => id == holder,
                None => call? < settle.span.ret,
            };
            if !is_named {
                return None;
            }
            if is_extend {
                return Some(next);
            }
            next.held_by = None;
            next.is_acked = settle.kind == SettleKind::Ack;
            next.is_dead = settle.kind == SettleKind::Nack(NackTo::Dead);
            next.taken.push((settle.delivery_id, settle.kind));
        }
    }
    Some(next)
}

#[test]
fn the_search_agrees_with_trying_every_order() {
    let cases = std::env::var("MORTARMQ_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000);
    let mut counts = [0_u64; 2];
    for seed in 0..cases {
        let mut random = Random(seed);
        let mut operations = operations(&mut random);
        operations.sort_by_key(|one| one.span().moment());
        let redrive = redrive(&mut random);
        let mut context = Context::default();
        redrive.iter().for_each(|redrive| context.add_operate(redrive.clone()));
        let case = Case::new(&context, 0, &operations);
        let pair = &case.pairs[0];
        let expected = if has_order(&operations, redrive.as_ref()) { Answer::Order } else { Answer::NoOrder };
        let answer = find_order(pair, &case.publishes, u64::MAX);
        assert_eq!(answer, expected, "seed {seed}: {operations:#?}");
        counts[usize::from(answer == Answer::Order)] += 1;
    }
    assert!(counts.iter().all(|count| *count > cases / 50), "both answers must be common: {counts:?}");
}

#[test]
fn a_search_that_takes_too_many_steps_is_given_up() {
    let context = Context::default();
    let mut random = Random(1);
    let found = (0..1_000).any(|_| {
        let operations = operations(&mut random);
        let case = Case::new(&context, 0, &operations);
        find_order(&case.pairs[0], &case.publishes, 2) == Answer::GivenUp
    });
    assert!(found, "no search took more than two steps");
}
