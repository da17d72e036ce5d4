//! The contract of one path in one partition, written as plainly as possible: one list of messages, each with the list
//! of its deliveries, and every question answered by looking at all of them.

use mortarmq_delivery::{
    Death, Dropped, End, Ended, Fact, Grant, Handed, LeaseRequest, LeaseStop, Leased, Now, Order, PathPartition,
    PathRules, Settle, SettleError, Settled, State,
};
use mortarmq_types::{Attempt, Cause, ClusterTime, DeliveryId, DropReason, LeaseTime, MemberId, Seq};

pub(crate) struct Model {
    pub(crate) start: u64,
    pub(crate) position: u64,
    /// The highest position ever.
    pub(crate) replay_end: u64,
    /// Up to where delayed messages have fallen due: when, and which.
    pub(crate) fallen: (u64, u64),
    /// What stands in the schedule below was never owed, or is settled.
    pub(crate) due_start: u64,
    /// Retention has passed what lies below.
    pub(crate) kept_from: u64,
    pub(crate) moving: Option<Moving>,
    /// Message `n` has sequence `n + 1`.
    pub(crate) messages: Vec<Message>,
    pub(crate) order: Order,
    pub(crate) calls: u64,
    pub(crate) delivered: u64,
    pub(crate) dlq: u64,
    pub(crate) dropped: Vec<DropReason>,
    pub(crate) replayed: u64,
    pub(crate) retries: Vec<Cause>,
}

pub(crate) struct Message {
    pub(crate) fact: Fact,
    pub(crate) status: Status,
    /// When it falls due, if it was published with a delay.
    pub(crate) due: Option<u64>,
    /// When it fell due, if the path had skipped it and has not delivered it since.
    pub(crate) late: u64,
    pub(crate) attempt: u32,
    pub(crate) cause: Cause,
    pub(crate) given_back: u32,
    /// Whether it is delivered alone.
    pub(crate) alone: bool,
    /// Whether it waits packed, behind the entries of a crowded key.
    pub(crate) packed: bool,
    pub(crate) deliveries: Vec<Delivery>,
    /// The deliveries before it was replayed.
    pub(crate) former: Vec<Delivery>,
}

/// A purge or seek that is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moving {
    pub(crate) to: u64,
    pub(crate) from: u64,
    /// How what lies below is dropped; `None` moves back.
    pub(crate) reason: Option<DropReason>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// It has not fallen due for this path.
    Delayed,
    Waiting,
    Scheduled(u64),
    Leased,
    /// It cannot be read.
    Held,
    Acked,
    Dead,
    Dropped,
    /// It is owed once more and was not offered again.
    ToReplay,
}

impl Status {
    pub(crate) fn is_settled(self) -> bool {
        matches!(self, Self::Acked | Self::Dead | Self::Dropped)
    }

    /// Whether it is unsettled and has been offered, or has fallen due behind the position.
    fn is_passed(self) -> bool {
        !self.is_settled() && !matches!(self, Self::Delayed | Self::ToReplay)
    }
}

pub(crate) struct Delivery {
    pub(crate) id: u64,
    pub(crate) member: MemberId,
    pub(crate) grant: Grant,
    pub(crate) deadline: u64,
    /// The call that leased it, as long as its order counts.
    pub(crate) together: Option<u64>,
    /// What a consumer said to end it, and when.
    pub(crate) settled: Option<(Settle, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    Expired,
    Lost,
    Nacked(u32),
    GivenBack,
    Follower,
    Unreadable,
    Rejected,
}

impl Model {
    pub(crate) fn new(start: u64) -> Self {
        Self {
            start,
            position: start,
            replay_end: start,
            fallen: (0, 0),
            due_start: start,
            kept_from: 1,
            moving: None,
            messages: Vec::new(),
            order: Order::Key,
            calls: 0,
            delivered: 0,
            dlq: 0,
            dropped: Vec::new(),
            replayed: 0,
            retries: Vec::new(),
        }
    }

    pub(crate) fn last_seq(&self) -> u64 {
        self.messages.len() as u64
    }

    pub(crate) fn publish(&mut self, fact: Fact, due: Option<u64>) {
        let (attempt, cause) = (1, Cause::First);
        let (deliveries, former) = (Vec::new(), Vec::new());
        let status = if due.is_some() { Status::Delayed } else { Status::Waiting };
        let (late, given_back, alone, packed) = (0, 0, false, false);
        self.messages.push(Message {
            fact,
            status,
            due,
            late,
            attempt,
            cause,
            given_back,
            alone,
            packed,
            deliveries,
            former,
        });
    }

    pub(crate) fn message(&self, seq: u64) -> &Message {
        &self.messages[seq as usize - 1]
    }

    pub(crate) fn message_mut(&mut self, seq: u64) -> &mut Message {
        &mut self.messages[seq as usize - 1]
    }

    /// The unsettled messages that were offered, or fell due behind the position.
    pub(crate) fn passed(&self) -> Vec<u64> {
        let end = self.replay_end.min(self.last_seq() + 1);
        (self.start..end).filter(|seq| self.message(*seq).status.is_passed()).collect()
    }

    /// Those of them that are not packed.
    pub(crate) fn entries(&self) -> Vec<u64> {
        self.passed().into_iter().filter(|seq| !self.message(*seq).packed).collect()
    }

    /// Those of one key, packed or not.
    fn of_key(&self, key: u64, packed: bool) -> Vec<u64> {
        let is_one = |seq: &u64| {
            let message = self.message(*seq);
            message.fact.key_hash.get() == key && message.packed == packed
        };
        self.passed().into_iter().filter(is_one).collect()
    }

    /// Packs a message that was just passed over and waits for its key, or another of the key in its place, if the key has
    /// as many entries as it may.
    pub(crate) fn pass_over(&mut self, seq: u64, rules: &PathRules, call_from: u64) {
        let key = self.message(seq).fact.key_hash.get();
        if self.order == Order::None || key == 0 {
            return;
        }
        let most = (rules.max_passed_over / 64).clamp(1, 1024) as usize;
        let mut entries = self.of_key(key, false);
        let first_packed = self.of_key(key, true).first().copied();
        let others = entries.len() - 1;
        let is_last = entries.last() == Some(&seq);
        let is_behind = first_packed.map_or(others >= most && is_last, |first| first < seq);
        let candidate = if is_behind { Some(seq) } else { entries.pop().filter(|_| others >= most) };
        let Some(candidate) = candidate else { return };
        let message = self.message(candidate);
        let is_untouched = message.status == Status::Waiting && message.deliveries.is_empty();
        if is_untouched && !self.may_leave(candidate, &self.passed(), call_from) {
            self.message_mut(candidate).packed = true;
        }
    }

    /// The next packed message of a key takes the place of an entry that was settled.
    pub(crate) fn unpack_next(&mut self, settled: u64) {
        let key = self.message(settled).fact.key_hash.get();
        if self.order == Order::Key
            && key != 0
            && let Some(next) = self.of_key(key, true).first().copied()
        {
            self.message_mut(next).packed = false;
        }
    }

    /// Whether a message stands in the partition's schedule. What has fallen due for this path stays for another one, or
    /// does not.
    pub(crate) fn stands(&self, seq: u64) -> bool {
        self.message(seq).due.is_some_and(|due| (due, seq) > self.fallen || seq % 2 == 1)
    }

    /// The delayed messages that have not fallen due for this path, the next one first.
    pub(crate) fn delayed(&self) -> Vec<(u64, u64)> {
        let place = |seq: u64| {
            let message = self.message(seq);
            (message.status == Status::Delayed).then(|| (message.due.unwrap(), seq))
        };
        let mut all: Vec<(u64, u64)> = (1..=self.last_seq()).filter_map(place).collect();
        all.sort_unstable();
        all
    }

    pub(crate) fn leased(&self) -> Vec<u64> {
        self.passed().into_iter().filter(|seq| self.message(*seq).status == Status::Leased).collect()
    }

    pub(crate) fn scheduled(&self) -> Vec<(u64, u64)> {
        let due = |seq: u64| match self.message(seq).status {
            Status::Scheduled(due) => Some((due, seq)),
            _ => None,
        };
        let mut all: Vec<(u64, u64)> = self.passed().into_iter().filter_map(due).collect();
        all.sort_unstable();
        all
    }

    /// The messages that were offered and may leave, but only alone, lowest first.
    pub(crate) fn ready_alone(&self) -> Vec<u64> {
        let passed = self.passed();
        let may_leave = |seq: &u64| {
            let message = self.message(*seq);
            message.status == Status::Waiting && message.alone && self.may_leave(*seq, &passed, u64::MAX)
        };
        passed.iter().copied().filter(may_leave).collect()
    }

    /// The messages below the position that may leave together with others, given the first delivery number of the call that asks.
    pub(crate) fn ready(&self, call_from: u64) -> Vec<u64> {
        let passed = self.passed();
        let waiting = passed.iter().filter(|seq| self.message(**seq).status == Status::Waiting);
        let together = waiting.filter(|seq| !self.message(**seq).alone);
        let mut ready: Vec<u64> = together.filter(|seq| self.may_leave(**seq, &passed, call_from)).copied().collect();
        ready.sort_by_key(|seq| (self.message(*seq).late, *seq));
        ready
    }

    fn may_leave(&self, seq: u64, passed: &[u64], call_from: u64) -> bool {
        let key = self.message(seq).fact.key_hash;
        if self.message(seq).packed {
            return false;
        }
        let leased_now = |earlier: &Message| {
            earlier.status == Status::Leased
                && earlier.deliveries.last().is_some_and(|delivery| delivery.id >= call_from)
        };
        let is_out = |later: &Message| {
            later.status == Status::Leased
                && later.deliveries.last().is_some_and(|delivery| delivery.together.is_some())
        };
        self.order == Order::None
            || key.get() == 0
            || passed.iter().map(|other| (*other, self.message(*other))).all(|(other, message)| {
                message.fact.key_hash != key
                    || other == seq
                    || if other < seq { leased_now(message) } else { !is_out(message) }
            })
    }

    /// Whether a message fell due while a later one of its key was out, and waits for that.
    pub(crate) fn waits_for_what_is_out(&self) -> bool {
        let out = |late: u64, other: u64| {
            let (late, other) = (self.message(late), self.message(other));
            late.late > 0 && late.fact.key_hash == other.fact.key_hash && late.status == Status::Waiting
        };
        let (passed, leased) = (self.passed(), self.leased());
        passed.iter().any(|late| leased.iter().any(|other| other > late && out(*late, *other)))
    }

    pub(crate) fn adopt(&mut self, order: Order) {
        if self.order != order {
            self.order = order;
            self.messages.iter_mut().for_each(|message| message.packed = false);
            for delivery in self.messages.iter_mut().flat_map(|message| &mut message.deliveries) {
                delivery.together = None;
            }
        }
    }

    pub(crate) fn lease(
        &mut self,
        request: &LeaseRequest,
        rules: &PathRules,
        known_to: u64,
        last_id: &mut u64,
        handed: &mut Handed,
    ) -> LeaseStop {
        if self.moving.is_some() {
            return LeaseStop::NothingReady;
        }
        let mut steps = request.limits.steps;
        let stop = self.serve(request, rules, known_to, last_id, &mut steps, handed);
        handed.steps = request.limits.steps - steps;
        stop
    }

    fn serve(
        &mut self,
        request: &LeaseRequest,
        rules: &PathRules,
        known_to: u64,
        last_id: &mut u64,
        steps: &mut u32,
        handed: &mut Handed,
    ) -> LeaseStop {
        self.adopt(rules.order);
        self.calls += 1;
        let (limits, now) = (request.limits, request.now.cluster.get());
        let (call_from, mut bytes) = (*last_id + 1, limits.bytes);
        let left_behind = match self.fall_due(now, rules, steps, handed) {
            Ok(left_behind) => left_behind,
            Err(stop) => return stop,
        };
        loop {
            let has_one = request.alone && !handed.leased.is_empty();
            if has_one || handed.leased.len() as u32 == limits.messages {
                return LeaseStop::LimitReached;
            }
            if rules.max_in_flight != 0 && self.leased().len() as u32 >= rules.max_in_flight {
                return LeaseStop::InFlightFull;
            }
            if *steps == 0 {
                return LeaseStop::StepsSpent;
            }
            let next = if request.alone {
                self.next_alone(rules).map(|seq| Some((seq, false))).ok_or(LeaseStop::NothingReady)
            } else {
                self.next(left_behind, call_from, known_to, rules, now, handed)
            };
            let (seq, is_new) = match next {
                Ok(Some(found)) => found,
                Ok(None) => {
                    *steps -= 1;
                    continue;
                }
                Err(stop) => return stop,
            };
            if self.message(seq).has_expired(now) {
                *steps -= 1;
                self.drop_expired(seq, handed);
                self.unpack_next(seq);
                continue;
            }
            let size = u64::from(self.message(seq).fact.size_bytes);
            let may_exceed = limits.first_may_exceed_bytes && handed.leased.is_empty();
            if size > bytes && !may_exceed {
                return LeaseStop::TooLarge { size_bytes: self.message(seq).fact.size_bytes };
            }
            *steps -= 1;
            if is_new {
                self.offer(seq);
            }
            *last_id += 1;
            let leased = self.grant(seq, *last_id, request, rules);
            handed.leased.push(leased);
            if size > bytes {
                return LeaseStop::LimitReached;
            }
            bytes -= size;
        }
    }

    /// The message to lease next, and whether it was not offered before; none if the position only moved on.
    fn next(
        &mut self,
        left_behind: bool,
        call_from: u64,
        known_to: u64,
        rules: &PathRules,
        now: u64,
        handed: &mut Handed,
    ) -> Result<Option<(u64, bool)>, LeaseStop> {
        let again = self.offered(call_from, false);
        if again.is_none() && self.is_skipped(self.position) {
            self.position += 1;
            return Ok(None);
        }
        let full = self.full(left_behind, rules);
        match again.or_else(|| self.offered(call_from, full.is_some())) {
            Some(seq) => Ok(Some((seq, false))),
            None => {
                let next = self.next_new(call_from, full.map_or(Ok(known_to), Err), rules, now, handed)?;
                Ok(next.map(|seq| (seq, true)))
            }
        }
    }

    fn next_alone(&self, rules: &PathRules) -> Option<u64> {
        let is_full = self.full(false, rules).is_some();
        self.ready_alone().first().copied().filter(|seq| *seq < self.position || is_full)
    }

    /// Why nothing new may be offered.
    fn full(&self, left_behind: bool, rules: &PathRules) -> Option<LeaseStop> {
        if left_behind || self.entries().len() as u32 >= rules.max_passed_over {
            return Some(LeaseStop::PassedOverFull);
        }
        self.is_far_ahead(rules.max_acked_ahead).then_some(LeaseStop::AckedAheadFull)
    }

    /// Whether as many are settled past the oldest unsettled one that was offered; what is delayed below it counts against
    /// them.
    fn is_far_ahead(&self, limit: u32) -> bool {
        let Some(oldest) = self.passed().first().copied().filter(|seq| limit != 0 && *seq < self.position) else {
            return false;
        };
        let settled = (oldest..self.position).filter(|seq| self.message(*seq).status.is_settled()).count();
        let delayed = (self.start..oldest).filter(|seq| self.message(*seq).status == Status::Delayed).count();
        settled.saturating_sub(delayed) >= limit as usize
    }

    /// The message to lease next of those that were offered, if it comes before what the position has not come to: one above
    /// the position does if nothing may be offered there.
    fn offered(&self, call_from: u64, is_full: bool) -> Option<u64> {
        let is_stuck = is_full && self.position <= self.last_seq();
        self.ready(call_from).first().copied().filter(|seq| *seq < self.position || is_stuck)
    }

    /// Lets retries and delayed messages fall due; says whether one of these had to be left behind.
    fn fall_due(
        &mut self,
        now: u64,
        rules: &PathRules,
        steps: &mut u32,
        handed: &mut Handed,
    ) -> Result<bool, LeaseStop> {
        while let Some((_, seq)) = self.scheduled().first().copied().filter(|(due, _)| *due <= now) {
            *steps = steps.checked_sub(1).ok_or(LeaseStop::StepsSpent)?;
            self.message_mut(seq).status = Status::Waiting;
        }
        while let Some((due, seq)) = self.next_to_fall_due().filter(|(due, _)| *due <= now) {
            let left = steps.checked_sub(1).ok_or(LeaseStop::StepsSpent)?;
            let is_delayed = self.message(seq).status == Status::Delayed;
            let was_skipped = is_delayed && (self.start..self.position).contains(&seq);
            let has_expired = self.message(seq).has_expired(now);
            if was_skipped && !has_expired && self.entries().len() as u32 >= rules.max_passed_over {
                return Ok(true);
            }
            *steps = left;
            self.fallen = (due, seq);
            if !is_delayed {
                continue;
            }
            // The position went back over it and has not come to it again.
            let is_ahead = (self.position..self.replay_end).contains(&seq);
            let message = self.message_mut(seq);
            message.status = if is_ahead { Status::ToReplay } else { Status::Waiting };
            message.late = if was_skipped { due } else { 0 };
            if was_skipped && has_expired {
                self.drop_expired(seq, handed);
            } else if was_skipped {
                self.pass_over(seq, rules, u64::MAX);
            }
        }
        Ok(false)
    }

    fn next_to_fall_due(&self) -> Option<(u64, u64)> {
        let all = (1..=self.last_seq()).filter_map(|seq| Some((self.message(seq).due?, seq)));
        all.filter(|place| *place > self.fallen).min()
    }

    /// Whether the position only moves on here: the message is unsettled and was before the position moved back, or was
    /// settled since.
    fn is_skipped(&self, seq: u64) -> bool {
        seq < self.replay_end && !matches!(self.message(seq).status, Status::ToReplay | Status::Delayed)
    }

    /// The message at the position is offered, for the first time or once more.
    fn offer(&mut self, seq: u64) {
        self.position = seq + 1;
        self.replay_end = self.replay_end.max(self.position);
        let message = self.message_mut(seq);
        if message.status == Status::ToReplay {
            message.status = Status::Waiting;
            (message.attempt, message.cause, message.given_back, message.late) = (1, Cause::Replayed, 0, 0);
            (message.alone, message.packed) = (false, false);
            message.former.append(&mut message.deliveries);
        }
    }

    /// The message at the position, if it can be leased; otherwise the position moves past it. What is not `known` may not
    /// be offered.
    fn next_new(
        &mut self,
        call_from: u64,
        known: Result<u64, LeaseStop>,
        rules: &PathRules,
        now: u64,
        handed: &mut Handed,
    ) -> Result<Option<u64>, LeaseStop> {
        let seq = self.position;
        if seq > self.last_seq() {
            return Err(LeaseStop::NothingReady);
        }
        let known_to = known?;
        if self.message(seq).status != Status::Delayed {
            if seq > known_to {
                return Err(LeaseStop::FactsMissing { seq: Seq::new(seq) });
            }
            if self.message(seq).has_expired(now) {
                self.offer(seq);
                self.drop_expired(seq, handed);
                return Ok(None);
            } else if self.may_leave(seq, &self.passed(), call_from) {
                return Ok(Some(seq));
            }
            self.offer(seq);
            self.pass_over(seq, rules, call_from);
            return Ok(None);
        }
        self.offer(seq);
        Ok(None)
    }

    fn drop_expired(&mut self, seq: u64, handed: &mut Handed) {
        self.dropped.push(DropReason::Ttl);
        let message = self.message_mut(seq);
        message.status = Status::Dropped;
        let previous = DeliveryId::new(message.deliveries.last().map_or(0, |delivery| delivery.id));
        handed.dropped.push(Dropped { seq: Seq::new(seq), reason: DropReason::Ttl, previous });
    }

    fn grant(&mut self, seq: u64, id: u64, request: &LeaseRequest, rules: &PathRules) -> Leased {
        let together = (self.order == Order::Key).then_some(self.calls);
        let deadline = request.now.lease.get() + rules.lease_ms;
        let message = self.message_mut(seq);
        let previous = message.deliveries.last().map_or(0, |delivery| delivery.id);
        let (member, grant) = (request.member, request.grant);
        message.deliveries.push(Delivery { id, member, grant, deadline, together, settled: None });
        message.status = Status::Leased;
        let leased = Leased {
            seq: Seq::new(seq),
            delivery_id: DeliveryId::new(id),
            attempt: Attempt::new(message.attempt),
            cause: message.cause,
            previous: DeliveryId::new(previous),
            size_bytes: message.fact.size_bytes,
            deadline: LeaseTime::new(deadline),
            source: None,
        };
        if leased.cause != Cause::First {
            self.retries.push(leased.cause);
        }
        leased
    }

    /// Answers a settle with everything that would be right: between 60 s and 70 s both memory and oblivion are.
    pub(crate) fn settle(
        &mut self,
        (seq, id): (u64, u64),
        how: Settle,
        rules: &PathRules,
        now: Now,
        real: &PathPartition,
        ended: &mut Vec<Ended>,
    ) -> Vec<Result<Settled, SettleError>> {
        self.adopt(rules.order);
        if seq < self.start || seq >= self.replay_end {
            return vec![Err(SettleError::Unknown)];
        }
        let is_purged = self.moving.is_some_and(|moving| moving.reason == Some(DropReason::Purge) && seq < moving.to);
        let message = self.message_mut(seq);
        if how == Settle::Resume {
            let is_held = message.status == Status::Held && message.deliveries.last().is_some_and(|last| last.id == id);
            if !is_held {
                return vec![Err(SettleError::Unknown)];
            }
            message.status = Status::Waiting;
            return vec![Ok(Settled::Done)];
        }
        let is_live = message.status == Status::Leased && message.deliveries.last().is_some_and(|last| last.id == id);
        if !is_live || is_purged {
            return message.answer_past(id, how, now.cluster.get());
        }
        let delivery = message.deliveries.last_mut().unwrap();
        if delivery.deadline <= now.lease.get() {
            self.fail(seq, Why::Expired, rules, now, real, ended);
            return vec![Err(SettleError::Unknown)];
        }
        if how == Settle::Extend {
            delivery.deadline = now.lease.get() + rules.lease_ms;
            return vec![Ok(Settled::Done)];
        }
        // What the broker says itself is never repeated.
        delivery.settled = (how != Settle::Hold).then_some((how, now.cluster.get()));
        match how {
            Settle::Ack => {
                ended.push(self.ended(seq, End::Acked));
                self.message_mut(seq).status = Status::Acked;
                self.unpack_next(seq);
                self.delivered += 1;
            }
            Settle::Nack { delay_ms } => self.fail(seq, Why::Nacked(delay_ms), rules, now, real, ended),
            Settle::DeadLetter => self.fail(seq, Why::Rejected, rules, now, real, ended),
            Settle::Release => self.fail(seq, Why::GivenBack, rules, now, real, ended),
            Settle::Hold => self.fail(seq, Why::Unreadable, rules, now, real, ended),
            Settle::Extend | Settle::Resume => unreachable!(),
        }
        vec![Ok(Settled::Done)]
    }

    pub(crate) fn end_due(
        &mut self,
        now: Now,
        budget: &mut u32,
        rules: &PathRules,
        real: &PathPartition,
        ended: &mut Vec<Ended>,
    ) {
        self.adopt(rules.order);
        while *budget > 0 {
            let deadline = |seq: &u64| (self.message(*seq).deliveries.last().unwrap().deadline, *seq);
            let Some((deadline, seq)) = self.leased().iter().map(deadline).min() else { break };
            if deadline > now.lease.get() {
                break;
            }
            self.fail_counted(seq, Why::Expired, rules, now, real, budget, ended);
        }
        while *budget > 0 {
            let Some((due, seq)) = self.scheduled().first().copied() else { break };
            if due > now.cluster.get() {
                break;
            }
            self.message_mut(seq).status = Status::Waiting;
            *budget -= 1;
        }
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn end_member(
        &mut self,
        member: MemberId,
        why: Why,
        budget: &mut u32,
        rules: &PathRules,
        now: Now,
        real: &PathPartition,
        ended: &mut Vec<Ended>,
    ) -> bool {
        self.adopt(rules.order);
        loop {
            let last = |seq: u64| self.message(seq).deliveries.last().unwrap();
            let Some(seq) = self.leased().into_iter().find(|seq| last(*seq).member == member) else { return true };
            if *budget == 0 {
                return false;
            }
            let why = if last(seq).deadline <= now.lease.get() { Why::Expired } else { why };
            self.fail_counted(seq, why, rules, now, real, budget, ended);
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn fail_counted(
        &mut self,
        seq: u64,
        why: Why,
        rules: &PathRules,
        now: Now,
        real: &PathPartition,
        budget: &mut u32,
        ended: &mut Vec<Ended>,
    ) {
        let before = ended.len();
        self.fail(seq, why, rules, now, real, ended);
        *budget = budget.saturating_sub((ended.len() - before) as u32);
    }

    fn fail(&mut self, seq: u64, why: Why, rules: &PathRules, now: Now, real: &PathPartition, ended: &mut Vec<Ended>) {
        let message = self.message(seq);
        let key = message.fact.key_hash;
        let together = message.deliveries.last().unwrap().together;
        let is_follower = |later: &u64| {
            let later_message = self.message(*later);
            *later > seq
                && key.get() != 0
                && later_message.fact.key_hash == key
                && together.is_some()
                && later_message.deliveries.last().unwrap().together == together
        };
        let followers: Vec<u64> = self.leased().into_iter().filter(is_follower).collect();
        self.fail_one(seq, why, rules, now, real, ended);
        for follower in followers {
            self.fail_one(follower, Why::Follower, rules, now, real, ended);
        }
    }

    fn fail_one(
        &mut self,
        seq: u64,
        why: Why,
        rules: &PathRules,
        now: Now,
        real: &PathPartition,
        ended: &mut Vec<Ended>,
    ) {
        let counts = matches!(why, Why::Expired | Why::Lost | Why::Nacked(_));
        let is_last = rules.max_attempts > 0 && self.message(seq).attempt >= rules.max_attempts;
        let end = match why {
            Why::Rejected => End::Dead(Death::Rejected),
            _ if counts && is_last => End::Dead(Death::Exhausted(why.cause())),
            _ if seq < self.kept_from => End::Trimmed(why.cause()),
            Why::Unreadable => End::Held,
            _ => End::Ended(why.cause()),
        };
        ended.push(self.ended(seq, end));
        if let End::Trimmed(_) = end {
            self.message_mut(seq).status = Status::Dropped;
            self.unpack_next(seq);
            self.dropped.push(DropReason::Retention);
            return;
        }
        if let End::Dead(_) = end {
            self.message_mut(seq).status = Status::Dead;
            self.unpack_next(seq);
            self.dlq += 1;
            return;
        }
        let message = self.message_mut(seq);
        message.late = 0;
        message.cause = why.cause();
        match why {
            Why::Expired | Why::Lost | Why::Nacked(_) => {
                message.attempt += 1;
                message.given_back = 0;
                message.alone = message.attempt >= 3 && matches!(why, Why::Expired | Why::Lost);
            }
            Why::GivenBack => message.given_back += 1,
            Why::Follower | Why::Unreadable | Why::Rejected => {}
        }
        let times = match why {
            Why::Expired | Why::Lost | Why::Nacked(_) => message.attempt,
            Why::GivenBack => message.given_back,
            Why::Follower | Why::Unreadable | Why::Rejected => 0,
        };
        let now = now.cluster.get();
        message.status = match why {
            Why::Nacked(delay_ms) if delay_ms > 0 => Status::Scheduled(now + u64::from(delay_ms)),
            Why::Unreadable => Status::Held,
            _ if times < 2 => Status::Waiting,
            _ => backed_off(now, (1..times - 1).fold(rules.backoff_base_ms, |wait, _| wait * 2), rules, seq, real),
        };
    }

    pub(crate) fn ended(&self, seq: u64, end: End) -> Ended {
        let message = self.message(seq);
        let delivery = message.deliveries.last().unwrap();
        Ended {
            seq: Seq::new(seq),
            delivery_id: DeliveryId::new(delivery.id),
            attempt: Attempt::new(message.attempt),
            member: delivery.member,
            grant: delivery.grant,
            key_hash: message.fact.key_hash,
            size_bytes: message.fact.size_bytes,
            end,
            source: None,
        }
    }
}

impl Message {
    pub(crate) fn is_owed(&self) -> bool {
        !self.status.is_settled()
    }

    fn has_expired(&self, now: u64) -> bool {
        (1..=now).contains(&self.fact.expires_at_ms)
    }

    fn answer_past(&self, id: u64, how: Settle, now: u64) -> Vec<Result<Settled, SettleError>> {
        let is_offered = self.status.is_passed();
        if let Some(former) = self.former.iter().find(|delivery| delivery.id == id) {
            return former.answer_past(how, now, is_offered && !self.deliveries.is_empty());
        }
        let Some(place) = self.deliveries.iter().position(|delivery| delivery.id == id) else {
            // A number that never was this message's is refused; which of the two is said does not matter.
            return vec![Err(SettleError::Unknown), Err(SettleError::Stale)];
        };
        let is_last = place + 1 == self.deliveries.len();
        self.deliveries[place].answer_past(how, now, is_offered && !is_last)
    }
}

impl Delivery {
    fn answer_past(&self, how: Settle, now: u64, is_stale: bool) -> Vec<Result<Settled, SettleError>> {
        let mut answers = Vec::new();
        let repeated = self.settled.filter(|(ended_by, _)| kind(*ended_by) == kind(how));
        if let Some((_, at)) = repeated {
            if now - at <= 70_000 {
                answers.push(Ok(Settled::Again));
            }
            if now - at <= 60_000 {
                return answers;
            }
        }
        answers.push(Err(if is_stale { SettleError::Stale } else { SettleError::Unknown }));
        answers
    }
}

impl Why {
    const fn cause(self) -> Cause {
        match self {
            Self::Expired => Cause::LeaseExpired,
            Self::Lost => Cause::ConsumerLost,
            Self::Nacked(_) | Self::Rejected => Cause::Nacked,
            Self::GivenBack | Self::Follower | Self::Unreadable => Cause::Released,
        }
    }
}

fn kind(how: Settle) -> u8 {
    match how {
        Settle::Ack => 0,
        Settle::Nack { .. } => 1,
        Settle::Release => 2,
        Settle::Extend => 3,
        Settle::Hold => 4,
        Settle::Resume => 5,
        Settle::DeadLetter => 6,
    }
}

/// The model does not know the hash that spreads the waits: it checks that the wait is in its range, then takes it over.
fn backed_off(now: u64, wait: u64, rules: &PathRules, seq: u64, real: &PathPartition) -> Status {
    let full = wait.min(rules.backoff_max_ms);
    match &real.lease_of(Seq::new(seq)).expect("a failed message stays").state {
        State::Scheduled { due } => {
            let range = ClusterTime::new(now + full / 2)..ClusterTime::new(now + full);
            assert!(range.contains(due), "message {seq} is due at {due}, not in {range:?}");
            Status::Scheduled(due.get())
        }
        State::Waiting { .. } | State::Leased(_) | State::Held => {
            assert!(full < 2, "message {seq} does not wait {full} ms");
            Status::Waiting
        }
    }
}
