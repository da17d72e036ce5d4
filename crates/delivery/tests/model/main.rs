//! Drives [`PathPartition`] and a naive model of the contract with the same random commands, and compares every answer,
//! every lease, every end and every counter. Now and then the real state goes through its bytes and on from there.
//!
//! A failure prints the shortest history that was found. `PROPTEST_RNG_SEED=N` tries other histories.

mod moves;
mod naive;

use std::{collections::BTreeMap, ops::Range};

use bytes::BytesMut;
use mortarmq_delivery::{
    Delayed, DuePosition, Ended, Fact, Facts, Fate, Grant, Handed, LeaseLimits, LeaseRequest, LeaseStop, MoveCount,
    MoveUnderWay, Moved, Now, Order, PathPartition, PathRules, Settle, SettleError, Settled, State,
};
use mortarmq_types::{Cause, ClusterTime, DeliveryId, DropReason, KeyHash, LeaseTime, MemberId, Position, Seq};
use naive::{Model, Status, Why};
use proptest::{
    collection::vec,
    prelude::{Just, Strategy, any},
    prop_oneof,
    test_runner::{Config, RngSeed, TestRunner},
};

#[derive(Clone, Debug)]
enum Command {
    Publish { key: u64, size_bytes: u32, delay_ms: u64, ttl_ms: u64 },
    Lease { member: u64, pull: bool, alone: bool, limits: LeaseLimits, known: u64 },
    Settle { which: usize, how: Settle, twist: Twist },
    Pass { ms: u64, is_gap: bool },
    PassToNextDue,
    EndDue { budget: u32 },
    EndMember { member: u64, cause: Cause, budget: u32 },
    SetOrder { order: Order },
    SetMaxAttempts { max_attempts: u32 },
    Purge { budget: u32 },
    Seek { to: u64, budget: u32 },
    GoOn { budget: u32 },
    Trim { below: u64, budget: u32 },
    Restore,
}

/// How a settle differs from one that names a delivery rightly.
#[derive(Clone, Copy, Debug)]
enum Twist {
    None,
    OtherSeq(u64),
    OtherId(u64),
}

struct Known<'a> {
    model: &'a Model,
    to: u64,
}

impl Facts for Known<'_> {
    fn fact(&self, seq: Seq) -> Option<Fact> {
        (seq.get() <= self.to).then(|| self.model.message(seq.get()).fact)
    }

    fn due_of(&self, seq: Seq) -> Option<ClusterTime> {
        let due = self.model.message(seq.get()).due;
        due.filter(|_| self.model.stands(seq.get())).map(ClusterTime::new)
    }

    fn first_delayed(&self, among: Range<Seq>) -> Option<DuePosition> {
        places(self.model).into_iter().find(|at| among.contains(&at.seq))
    }

    fn last_delayed(&self, among: Range<Seq>) -> Option<DuePosition> {
        places(self.model).into_iter().rev().find(|at| among.contains(&at.seq))
    }

    fn next_delayed(&self, after: DuePosition) -> Option<Delayed> {
        let messages = (1..).zip(&self.model.messages);
        let delayed = messages.filter_map(|(seq, message)| {
            let at = DuePosition { due: ClusterTime::new(message.due?), seq: Seq::new(seq) };
            Some(Delayed { at, fact: message.fact })
        });
        delayed.filter(|delayed| delayed.at > after).min_by_key(|delayed| delayed.at)
    }
}

/// What stands in the schedule, by rising sequence.
fn places(model: &Model) -> Vec<DuePosition> {
    let place = |seq: u64| {
        let due = model.message(seq).due.filter(|_| model.stands(seq))?;
        Some(DuePosition { due: ClusterTime::new(due), seq: Seq::new(seq) })
    };
    (1..=model.last_seq()).filter_map(place).collect()
}

/// What became of each message, lowest first.
fn each_of(moved: &[Moved]) -> Vec<(u64, Fate)> {
    let each = |range: &Moved| (0..range.count).map(|place| (range.first.get() + place, range.fate)).collect();
    let mut each: Vec<(u64, Fate)> = moved.iter().flat_map(|range| -> Vec<_> { each(range) }).collect();
    each.sort_unstable_by_key(|(seq, _)| *seq);
    each
}

struct Pair<'a> {
    real: PathPartition,
    model: Model,
    rules: PathRules,
    cluster_ms: u64,
    gaps_ms: u64,
    real_last: DeliveryId,
    model_last: u64,
    /// Every delivery that was leased.
    deliveries: Vec<(u64, u64)>,
    /// How often each interesting thing happened: proof that the histories reach it.
    seen: &'a mut BTreeMap<String, u64>,
    /// Where the path started, before any seek.
    first_start: u64,
}

impl Pair<'_> {
    fn now(&self) -> Now {
        Now { cluster: ClusterTime::new(self.cluster_ms), lease: LeaseTime::new(self.cluster_ms - self.gaps_ms) }
    }

    fn apply(&mut self, command: &Command) {
        if self.real.packed() > 0 {
            self.saw_packed(command);
        }
        match command {
            Command::Publish { key, size_bytes, delay_ms, ttl_ms } => {
                let expires_at_ms = if *ttl_ms == 0 { 0 } else { self.cluster_ms + ttl_ms };
                let fact = Fact { key_hash: KeyHash::new(*key), size_bytes: *size_bytes, expires_at_ms };
                self.model.publish(fact, (*delay_ms > 0).then(|| self.cluster_ms + delay_ms));
            }
            Command::Lease { member, pull, alone, limits, known } => {
                let grant = if *pull { Grant::Pull } else { Grant::Push };
                self.lease(MemberId::new(*member), grant, *alone, *limits, *known);
            }
            Command::Settle { which, how, twist } => self.settle(*which, *how, *twist),
            Command::Pass { ms, is_gap } => {
                self.cluster_ms += ms;
                self.gaps_ms += if *is_gap { *ms } else { 0 };
            }
            Command::PassToNextDue => {
                let due = self.real.next_due(self.gaps_ms).map(ClusterTime::get);
                let delayed = self.model.delayed().first().map(|(due, _)| *due);
                self.cluster_ms = self.cluster_ms.max(due.into_iter().chain(delayed).min().unwrap_or(0));
            }
            Command::EndDue { budget } => {
                let (mut real, mut model) = ((*budget, Vec::new()), (*budget, Vec::new()));
                self.real.end_due(self.now(), &mut real.0, &self.rules, &mut real.1);
                self.model.end_due(self.now(), &mut model.0, &self.rules, &self.real, &mut model.1);
                assert_eq!(real, model, "what was due");
                self.saw_ended("due", &real.1);
            }
            Command::EndMember { member, cause, budget } => {
                let member = MemberId::new(*member);
                let why = if *cause == Cause::ConsumerLost { Why::Lost } else { Why::GivenBack };
                let (mut real, mut model) = ((*budget, Vec::new()), (*budget, Vec::new()));
                let now = self.now();
                let holds = self.real.holds(member);
                let done = self.real.end_member(member, *cause, &mut real.0, &self.rules, now, &mut real.1);
                let model_done =
                    self.model.end_member(member, why, &mut model.0, &self.rules, now, &self.real, &mut model.1);
                assert_eq!((done, real.clone()), (model_done, model), "what the member held");
                assert!(holds || real.1.is_empty(), "a member that holds nothing loses nothing");
                assert_eq!(self.real.holds(member), !done);
                self.saw_ended("member", &real.1);
                self.saw(format!("member done {done}"));
            }
            Command::SetOrder { order } => {
                self.rules.order = *order;
                self.real.follow_order(*order, &mut u32::MAX.clone());
                self.model.adopt(*order);
            }
            Command::SetMaxAttempts { max_attempts } => self.rules.max_attempts = *max_attempts,
            // A group never starts beyond the next message.
            Command::Purge { .. } | Command::Seek { .. } if self.model.last_seq() + 1 < self.model.start => {}
            Command::Purge { budget } => self.move_path(None, *budget),
            Command::Seek { to, budget } => self.move_path(Some(*to), *budget),
            Command::GoOn { budget } => {
                let (mut real, mut moved, mut ended) = (*budget, Vec::new(), Vec::new());
                let facts = Known { model: &self.model, to: 0 };
                self.real.go_on(&facts, &mut real, &mut moved, &mut ended);
                self.compare_moved(*budget, real, &moved, &ended);
            }
            Command::Trim { below, budget } => self.trim(*below, *budget),
            Command::Restore => self.restore(),
        }
        self.compare();
    }

    /// Purges, or seeks.
    fn move_path(&mut self, to: Option<u64>, budget: u32) {
        let last_seq = Seq::new(self.model.last_seq());
        if self.real.is_moving() && to.is_none() {
            self.saw("purged while moving".to_owned());
        }
        let (mut real, mut moved, mut ended) = (budget, Vec::new(), Vec::new());
        let facts = Known { model: &self.model, to: 0 };
        let delayed = self.real.delayed();
        let count = match to {
            None => {
                let dropped = self.real.purge(last_seq, &facts, &mut real, &mut moved, &mut ended);
                Ok(MoveCount { dropped, ..MoveCount::default() })
            }
            Some(to) => self.real.seek(Seq::new(to), last_seq, &facts, &mut real, &mut moved, &mut ended),
        };
        let Some(all) = self.model.begin(to) else {
            assert_eq!(count, Err(MoveUnderWay));
            return self.saw("move refused".to_owned());
        };
        let count = count.expect("nothing moves");
        if self.real.delayed() < delayed {
            self.saw(if moved.iter().any(|range| range.fate == Fate::Replayed) || moved.is_empty() {
                "went back over what is delayed".to_owned()
            } else {
                "dropped what is delayed".to_owned()
            });
        }
        self.compare_moved(budget, real, &moved, &ended);
        if count.is_partial {
            let sum = |is_replay: bool| -> u64 {
                moved.iter().filter(|range| (range.fate == Fate::Replayed) == is_replay).map(|range| range.count).sum()
            };
            assert_eq!((count.replayed, count.dropped), (sum(true), sum(false)), "what the first steps did");
            assert!(self.real.is_moving());
            self.saw("move counted in part".to_owned());
        } else {
            assert_eq!((count.replayed, count.dropped), all, "what the move amounts to");
            self.saw(if self.real.is_moving() { "move counted ahead" } else { "move counted" }.to_owned());
        }
    }

    /// Lets the model take the same steps, and compares what they did.
    fn compare_moved(&mut self, budget: u32, left: u32, moved: &[Moved], ended: &[Ended]) {
        let (mut model, mut model_ended) = (budget, Vec::new());
        let model_moved = self.model.go_on(&mut model, &mut model_ended);
        assert_eq!((left, ended), (model, &model_ended[..]), "steps left, and what the move ended");
        assert_eq!(each_of(moved), model_moved, "what moved");
        assert_eq!(self.real.is_moving(), self.model.moving.is_some());
        for range in moved {
            self.saw(format!("moved {:?}", range.fate));
        }
        self.saw_ended("move", ended);
        if self.real.is_moving() {
            self.saw("move goes on".to_owned());
        }
    }

    fn trim(&mut self, below: u64, budget: u32) {
        let (mut real, mut moved, mut model) = (budget, Vec::new(), budget);
        let last_seq = Seq::new(self.model.last_seq());
        let (leased, delayed, position) = (self.real.in_flight(), self.real.delayed(), self.real.position());
        self.real.trim(Seq::new(below), last_seq, &Known { model: &self.model, to: 0 }, &mut real, &mut moved);
        let model_moved = self.model.trim(below, &mut model);
        assert_eq!(real, model, "steps left");
        assert_eq!(each_of(&moved), model_moved, "what retention dropped");
        assert_eq!(self.real.in_flight(), leased, "P5: no lease ends by retention");
        if self.real.kept_from() < Seq::new(below).min(last_seq.next()) {
            self.saw(if self.real.is_moving() { "trim waits" } else { "trim goes on" }.to_owned());
        }
        if self.real.lowest_offered().is_some_and(|seq| seq < self.real.kept_from()) {
            self.saw("trim leaves what is leased".to_owned());
        }
        if self.real.delayed() < delayed {
            self.saw("trim drops what is delayed".to_owned());
        }
        if !moved.is_empty() {
            self.saw(if self.real.position() > position { "trim moves on" } else { "trim drops" }.to_owned());
        }
    }

    /// Goes on with the state that its bytes tell.
    fn restore(&mut self) {
        let mut bytes = BytesMut::new();
        self.real.image().encode(&mut bytes);
        bytes.extend_from_slice(b"what follows");
        let mut bytes = bytes.freeze();
        let restored = PathPartition::decode(&mut bytes).expect("these bytes were just written");
        assert_eq!(bytes, b"what follows"[..], "decode takes its own bytes and no more");
        assert_eq!(restored, self.real);
        self.real = restored;
        if self.real.in_flight() > 0 && self.real.scheduled() > 0 && self.real.settled_runs() > 0 {
            self.saw("restored a full state".to_owned());
        }
        if self.real.is_moving() {
            self.saw("restored a move".to_owned());
        }
    }

    fn lease(&mut self, member: MemberId, grant: Grant, alone: bool, limits: LeaseLimits, known: u64) {
        let last_seq = Seq::new(self.model.last_seq());
        let request = LeaseRequest {
            member,
            grant,
            limits,
            may_pass_over: true,
            last_seq,
            now: self.now(),
            granted_at: Position::default(),
            alone,
        };
        let to = self.model.position.saturating_add(known).min(self.model.last_seq());
        let (mut real, mut model) = (Handed::default(), Handed::default());
        let facts = Known { model: &self.model, to };
        let idle = (!self.real.may_lease(last_seq, &self.rules, &facts, self.now())).then(|| self.real.clone());
        let stop = self.real.lease(&request, &self.rules, &facts, &mut self.real_last, &mut real);
        let model_stop = self.model.lease(&request, &self.rules, to, &mut self.model_last, &mut model);
        assert_eq!((stop, &real), (model_stop, &model), "what is leased and dropped");
        assert!(real.steps <= limits.steps);
        let Handed { leased: real, dropped, .. } = real;
        for one in &dropped {
            let what = if one.previous == DeliveryId::ZERO { "new" } else { "passed" };
            self.saw(format!("dropped {what}"));
        }
        for one in &real {
            let due = self.model.message(one.seq.get()).due;
            if due.is_some() && one.cause == Cause::First {
                self.saw(format!(
                    "leased delayed, {}",
                    if self.model.message(one.seq.get()).late > 0 { "late" } else { "in order" }
                ));
            }
        }
        assert_eq!(self.real_last.get(), self.model_last);
        let is_due = |place: &(u64, u64)| place.0 <= self.cluster_ms && place.1 < self.model.position;
        if stop == LeaseStop::PassedOverFull && self.model.delayed().first().is_some_and(is_due) {
            self.saw("left behind".to_owned());
        }
        if self.model.waits_for_what_is_out() {
            self.saw("joined before what is out".to_owned());
        }
        if let Some(before) = idle {
            assert_eq!(self.real, before, "there was nothing to look at");
            self.saw("nothing to look at".to_owned());
        }
        self.deliveries.extend(real.iter().map(|leased| (leased.seq.get(), leased.delivery_id.get())));
        self.saw(match stop {
            LeaseStop::FactsMissing { .. } => "stop FactsMissing".to_owned(),
            LeaseStop::TooLarge { .. } => "stop TooLarge".to_owned(),
            other => format!("stop {other:?}"),
        });
        for leased in &real {
            if alone {
                self.saw(format!("leased alone, {}", leased.cause));
            }
            self.saw(format!("leased {}", leased.cause));
        }
    }

    fn settle(&mut self, which: usize, how: Settle, twist: Twist) {
        // Mostly one of the latest deliveries, so that many are live.
        let (mut seq, mut id) = match self.deliveries.len() {
            0 => (1, 1),
            count => self.deliveries[count - 1 - which % count.min(if which.is_multiple_of(4) { count } else { 6 })],
        };
        match twist {
            Twist::None => {}
            Twist::OtherSeq(other) => seq = other,
            Twist::OtherId(other) => id = other,
        }
        let (mut real, mut model) = (Vec::new(), Vec::new());
        let now = self.now();
        let answer = self.real.settle(Seq::new(seq), DeliveryId::new(id), how, &self.rules, now, &mut real);
        let answers = self.model.settle((seq, id), how, &self.rules, now, &self.real, &mut model);
        assert!(answers.contains(&answer), "answer {answer:?}, right would be {answers:?}");
        assert_eq!(real, model, "what the settle ended");
        let what = match how {
            Settle::Ack => "ack",
            Settle::Nack { .. } => "nack",
            Settle::DeadLetter => "dead letter",
            Settle::Release => "release",
            Settle::Extend => "extend",
            Settle::Hold => "hold",
            Settle::Resume => "resume",
        };
        match answer {
            Ok(Settled::Done) => self.saw(format!("{what} done")),
            Ok(Settled::Again) => self.saw(format!("{what} again")),
            Err(SettleError::Stale) => self.saw(format!("{what} stale")),
            Err(SettleError::Unknown) => self.saw(format!("{what} unknown")),
        }
        self.saw_ended(what, &real);
    }

    /// Compares everything that can be seen.
    fn compare(&self) {
        let (real, model) = (&self.real, &self.model);
        let last_seq = Seq::new(model.last_seq());
        real.check(last_seq);
        let passed = model.passed();
        assert_eq!((real.position().get(), real.replay_end().get()), (model.position, model.replay_end));
        assert_eq!((real.kept_from().get(), real.due_start().get()), (model.kept_from, model.due_start));
        let entries = model.entries();
        assert_eq!(real.passed_over(), entries.len() as u64);
        assert_eq!(real.packed(), (passed.len() - entries.len()) as u64);
        assert_eq!(real.in_flight(), model.leased().len() as u64);
        assert_eq!(real.scheduled(), model.scheduled().len() as u64);
        let held: Vec<u64> = passed.iter().copied().filter(|seq| model.message(*seq).status == Status::Held).collect();
        let delayed: Vec<u64> =
            (model.start..model.position).filter(|seq| model.message(*seq).status == Status::Delayed).collect();
        assert_eq!(real.delayed(), delayed.len() as u64);
        real.check_delayed(places(model).into_iter());
        assert_eq!(real.held().map(|(seq, _)| seq.get()).collect::<Vec<_>>(), held);
        let alone = model.ready_alone();
        assert_eq!(real.ready_alone(), alone.len() as u64);
        assert_eq!(real.ready_messages(), (model.ready(u64::MAX).len() + alone.len()) as u64);
        for cause in Cause::ALL {
            let retries = model.retries.iter().filter(|retry| *retry == cause).count() as u64;
            assert_eq!(real.retries_by(*cause), retries, "retries by {cause}");
        }
        let is_owed = |seq: &u64| model.message(*seq).is_owed();
        let dues: BTreeMap<u64, ClusterTime> = places(model).iter().map(|at| (at.seq.get(), at.due)).collect();
        let owes = |seq: u64| real.owes(Seq::new(seq), dues.get(&seq).copied());
        assert!((model.start..=model.last_seq()).all(|seq| owes(seq) == is_owed(&seq)));
        let unsettled = (model.start..=model.last_seq()).filter(is_owed).count() as u64;
        let books = real.books(last_seq);
        let dropped = model.dropped.len() as u64;
        assert_eq!((books.depth, books.delivered, books.dropped), (unsettled, model.delivered, dropped), "P9");
        assert_eq!(books.dlq, model.dlq, "P9");
        for reason in DropReason::ALL {
            let dropped = model.dropped.iter().filter(|dropped| *dropped == reason).count() as u64;
            assert_eq!(real.dropped_by(*reason), dropped, "dropped by {reason}");
        }
        assert_eq!(books.produced, (model.last_seq() + 1).saturating_sub(self.first_start) + model.replayed, "P9");
        assert_eq!(books.difference(), 0, "P9");
        let floor = (model.start..=model.last_seq()).find(|seq| is_owed(seq));
        let lowest = delayed.first().map(|seq| Seq::new(*seq));
        assert_eq!(real.floor(last_seq, lowest).get(), floor.unwrap_or(model.last_seq() + 1));
        let deadline = |seq: &u64| model.message(*seq).deliveries.last().unwrap().deadline + self.gaps_ms;
        let next_lease = model.leased().iter().map(deadline).min();
        let next_retry = model.scheduled().first().map(|(due, _)| *due);
        let moving = model.moving.map(|_| 0);
        let next_due = moving.into_iter().chain(next_lease).chain(next_retry).min();
        assert_eq!(real.next_due(self.gaps_ms).map(ClusterTime::get), next_due);
        for seq in 1..=model.last_seq() {
            assert_eq!(
                real.is_packed(Seq::new(seq)),
                passed.contains(&seq) && !entries.contains(&seq),
                "message {seq}"
            );
            self.compare_message(seq, entries.contains(&seq));
        }
    }

    fn compare_message(&self, seq: u64, is_passed: bool) {
        let entry = self.real.lease_of(Seq::new(seq));
        assert_eq!(entry.is_some(), is_passed, "message {seq}");
        let Some(entry) = entry else { return };
        let message = self.model.message(seq);
        let past = message.deliveries.len() - usize::from(message.status == Status::Leased);
        let previous = if past == 0 { 0 } else { message.deliveries[past - 1].id };
        let (late, expires) = (entry.fell_due().get(), entry.expires_at_ms);
        // What is leased has its place already: when it fell due says nothing any more.
        let expected = if message.status == Status::Waiting { message.late } else { 0 };
        assert_eq!((late, expires), (expected, message.fact.expires_at_ms), "message {seq}");
        assert_eq!((entry.attempt.get(), entry.cause), (message.attempt, message.cause), "message {seq}");
        assert_eq!((entry.previous.get(), entry.alone), (previous, message.alone), "message {seq}");
        match (&entry.state, message.status) {
            (State::Waiting { .. }, Status::Waiting) | (State::Held, Status::Held) => {}
            (State::Scheduled { due }, Status::Scheduled(model_due)) => assert_eq!(due.get(), model_due),
            (State::Leased(lease), Status::Leased) => {
                let delivery = message.deliveries.last().unwrap();
                assert_eq!(lease.delivery_id.get(), delivery.id);
                let granted = self.real.granted(lease);
                assert_eq!((granted.member, granted.grant), (delivery.member, delivery.grant));
                assert_eq!(lease.deadline.get(), delivery.deadline);
            }
            (state, status) => panic!("message {seq} is {state:?}, not {status:?}"),
        }
    }

    /// Notes what happens to a path with packed messages.
    fn saw_packed(&mut self, command: &Command) {
        self.saw(match command {
            Command::Purge { .. } => "packed: purge".to_owned(),
            Command::Seek { to, .. } if *to < self.model.position => "packed: seek back".to_owned(),
            Command::Seek { .. } => "packed: seek forwards".to_owned(),
            Command::SetOrder { .. } => "packed: other order".to_owned(),
            Command::Restore => "packed: restored".to_owned(),
            Command::Settle { .. } => "packed: settle".to_owned(),
            Command::EndMember { .. } => "packed: member ends".to_owned(),
            Command::Trim { .. } => "packed: trim".to_owned(),
            Command::Publish { .. } | Command::Lease { .. } | Command::Pass { .. } | Command::PassToNextDue => return,
            Command::EndDue { .. } | Command::SetMaxAttempts { .. } | Command::GoOn { .. } => return,
        });
    }

    fn saw(&mut self, what: String) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn saw_ended(&mut self, by: &str, ended: &[Ended]) {
        if ended.len() > 1 {
            self.saw(format!("{by} ended several"));
        }
        for end in ended {
            self.saw(format!("{by} {:?}", end.end));
        }
    }
}

fn limits() -> impl Strategy<Value = LeaseLimits> {
    let messages = prop_oneof![8 => 1_u32..6, 1 => Just(0), 1 => Just(u32::MAX)];
    let bytes = prop_oneof![3 => Just(u64::MAX), 2 => 0_u64..60];
    let steps = prop_oneof![6 => Just(1000_u32), 2 => 0_u32..6];
    (messages, bytes, steps, any::<bool>()).prop_map(|(messages, bytes, steps, first_may_exceed_bytes)| LeaseLimits {
        messages,
        bytes,
        steps,
        first_may_exceed_bytes,
    })
}

fn settle() -> impl Strategy<Value = Command> {
    let delay = prop_oneof![2 => Just(0_u32), 1 => 1_u32..3000];
    let how = prop_oneof![
        4 => Just(Settle::Ack),
        3 => delay.prop_map(|delay_ms| Settle::Nack { delay_ms }),
        2 => Just(Settle::Release),
        1 => Just(Settle::Extend),
        1 => Just(Settle::DeadLetter),
        1 => Just(Settle::Hold),
        1 => Just(Settle::Resume),
    ];
    let any_number = prop_oneof![6 => 0_u64..40, 1 => Just(u64::MAX), 1 => any::<u64>()];
    let twist = prop_oneof![
        14 => Just(Twist::None),
        1 => any_number.clone().prop_map(Twist::OtherSeq),
        1 => any_number.prop_map(Twist::OtherId),
    ];
    (any::<usize>(), how, twist).prop_map(|(which, how, twist)| Command::Settle { which, how, twist })
}

fn command() -> impl Strategy<Value = Command> {
    let key = prop_oneof![1 => Just(0_u64), 3 => Just(7), 1 => Just(8), 1 => Just(u64::MAX)];
    let delay_ms = prop_oneof![7 => Just(0_u64), 2 => 1_u64..1500, 1 => Just(20_000)];
    let ttl_ms = prop_oneof![8 => Just(0_u64), 1 => 1_u64..2500];
    let known = prop_oneof![6 => Just(u64::MAX), 1 => 0_u64..3];
    let ms =
        prop_oneof![4 => 0_u64..700, 2 => 900_u64..2100, 1 => Just(20_000), 1 => 59_000_u64..61_001, 1 => Just(70_001)];
    let budget = prop_oneof![2 => Just(1000_u32), 1 => 0_u32..4];
    let cause = prop_oneof![3 => Just(Cause::ConsumerLost), 1 => Just(Cause::Released)];
    let order = prop_oneof![Just(Order::Key), Just(Order::None)];
    let to = prop_oneof![2 => Just(0_u64), 8 => 1_u64..20, 1 => Just(u64::MAX)];
    let below = prop_oneof![12 => 0_u64..20, 1 => Just(u64::MAX)];
    prop_oneof![
        24 => (key, 0_u32..30, delay_ms, ttl_ms)
            .prop_map(|(key, size_bytes, delay_ms, ttl_ms)| Command::Publish { key, size_bytes, delay_ms, ttl_ms }),
        24 => (0_u64..3, any::<bool>(), proptest::bool::weighted(0.3), limits(), known)
            .prop_map(|(member, pull, alone, limits, known)| Command::Lease { member, pull, alone, limits, known }),
        36 => settle(),
        10 => (ms, proptest::bool::weighted(0.2)).prop_map(|(ms, is_gap)| Command::Pass { ms, is_gap }),
        4 => Just(Command::PassToNextDue),
        8 => budget.clone().prop_map(|budget| Command::EndDue { budget }),
        9 => (0_u64..3, cause, budget.clone()).prop_map(|(member, cause, budget)| Command::EndMember { member, cause, budget }),
        1 => order.prop_map(|order| Command::SetOrder { order }),
        1 => (0_u32..5).prop_map(|max_attempts| Command::SetMaxAttempts { max_attempts }),
        1 => budget.clone().prop_map(|budget| Command::Purge { budget }),
        5 => (to, budget.clone()).prop_map(|(to, budget)| Command::Seek { to, budget }),
        3 => budget.clone().prop_map(|budget| Command::GoOn { budget }),
        3 => (below, budget).prop_map(|(below, budget)| Command::Trim { below, budget }),
        6 => Just(Command::Restore),
    ]
}

fn rules() -> impl Strategy<Value = PathRules> {
    let order = prop_oneof![4 => Just(Order::Key), 1 => Just(Order::None)];
    let base = prop_oneof![Just(0_u64), Just(1), Just(100), Just(1000)];
    // Of one key 15, 1 to 3, or 1 are entries.
    let passed_over = prop_oneof![2 => Just(1000_u32), 2 => 64_u32..220, 1 => 0_u32..6];
    let in_flight = prop_oneof![3 => Just(0_u32), 1 => 1_u32..5];
    let ahead = prop_oneof![3 => Just(0_u32), 1 => 1_u32..5];
    let attempts = 0_u32..5;
    (order, base, 0_u64..5000, passed_over, in_flight, attempts, ahead).prop_map(
        |(order, base, max, max_passed_over, max_in_flight, max_attempts, max_acked_ahead)| PathRules {
            order,
            lease_ms: 1000,
            backoff_base_ms: base,
            backoff_max_ms: max,
            max_passed_over,
            max_acked_ahead,
            max_in_flight,
            max_attempts,
        },
    )
}

#[test]
fn delivery_does_what_the_naive_model_does() {
    // Goal: P4 to P9 in one partition, whatever the order of commands. Method: 32,000 random histories of 30 to 90 commands.
    let mut config = Config { cases: 32_000, failure_persistence: None, ..Config::default() };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(7188);
    }
    let seen = std::cell::RefCell::new(BTreeMap::new());
    let history = (1_u64..4, rules(), vec(command(), 30..90));
    let verdict = TestRunner::new(config).run(&history, |(start, rules, commands)| {
        let mut pair = Pair {
            real: PathPartition::new(Seq::new(start)),
            model: Model::new(start),
            rules,
            cluster_ms: 5000,
            gaps_ms: 0,
            real_last: DeliveryId::ZERO,
            model_last: 0,
            deliveries: Vec::new(),
            seen: &mut seen.borrow_mut(),
            first_start: start,
        };
        for command in &commands {
            pair.apply(command);
        }
        Ok(())
    });
    if let Err(failure) = verdict {
        panic!("{failure}");
    }
    let seen = seen.into_inner();
    for what in REACHED {
        assert!(seen.get(*what).is_some_and(|times| *times >= 50), "the histories hardly reach {what:?}: {seen:#?}");
    }
}

/// What the histories must reach often, or the comparison proves little.
const REACHED: &[&str] = &[
    "stop NothingReady",
    "stop LimitReached",
    "stop TooLarge",
    "stop StepsSpent",
    "stop FactsMissing",
    "stop PassedOverFull",
    "stop InFlightFull",
    "stop AckedAheadFull",
    "leased first",
    "leased lease_expired",
    "leased nacked",
    "leased consumer_lost",
    "leased released",
    "ack done",
    "ack again",
    "ack stale",
    "ack unknown",
    "nack done",
    "nack again",
    "nack stale",
    "release done",
    "release again",
    "extend done",
    "extend unknown",
    "hold done",
    "hold unknown",
    "hold ended several",
    "hold Held",
    "resume done",
    "resume unknown",
    "dead letter done",
    "dead letter again",
    "dead letter unknown",
    "dead letter ended several",
    "dead letter Dead(Rejected)",
    "nack Dead(Exhausted(Nacked))",
    "due Dead(Exhausted(LeaseExpired))",
    "ack Dead(Exhausted(LeaseExpired))",
    "member Dead(Exhausted(ConsumerLost))",
    "nack ended several",
    "release ended several",
    "due ended several",
    "member ended several",
    "ack Ended(LeaseExpired)",
    "due Ended(LeaseExpired)",
    "due Ended(Released)",
    "member Ended(ConsumerLost)",
    "member Ended(Released)",
    "member Ended(LeaseExpired)",
    "member done false",
    "restored a full state",
    "restored a move",
    "leased replayed",
    "move refused",
    "purged while moving",
    "move counted",
    "move counted ahead",
    "move counted in part",
    "move goes on",
    "moved Dropped(Purge)",
    "moved Dropped(Seek)",
    "moved Replayed",
    "move Ended(Released)",
    "went back over what is delayed",
    "dropped what is delayed",
    "nothing to look at",
    "dropped new",
    "dropped passed",
    "leased delayed, late",
    "leased delayed, in order",
    "joined before what is out",
    "left behind",
    "packed: purge",
    "packed: seek back",
    "packed: seek forwards",
    "packed: other order",
    "packed: restored",
    "packed: settle",
    "packed: member ends",
    "packed: trim",
    "leased alone, lease_expired",
    "leased alone, consumer_lost",
    "trim waits",
    "trim goes on",
    "trim leaves what is leased",
    "trim drops what is delayed",
    "trim moves on",
    "trim drops",
    "nack Trimmed(Nacked)",
    "release Trimmed(Released)",
    "hold Trimmed(Released)",
    "due Trimmed(LeaseExpired)",
    "member Trimmed(Released)",
];
