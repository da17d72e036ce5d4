//! `Deliver`: what is next on a path. Retries that are due come first, lowest first; then delayed messages that fell due, by
//! due time; then what was never offered, from the position on. While a path replays, what is to be offered again comes
//! before what waits above it.

use super::room::entries_of;
use super::{Fate, Lease, Message, Messages, Model, Obligation, Open, Path, Seen, Stands, Told, Verdict, allowed};
use mortarmq_delivery::Leased;
use mortarmq_shard::command::Deliver;
use mortarmq_shard::ledger::LedgerKind;
use mortarmq_shard::{DeliverEffect, Effect, Grant, Outcome, Setting, Stretch};
use mortarmq_types::{Attempt, Cause, DeliveryId, DropReason, LeaseTime, MemberId, Partition, PathId, Seq};

/// No command looks at more messages.
const STEPS_MAX: u64 = 1024;

/// What one command may still lease.
#[derive(Clone, Debug)]
struct Room {
    messages: u64,
    bytes: u64,
    /// A message that is larger than the window is delivered alone, when the window is empty.
    alone: bool,
    steps: u64,
    /// The smallest message that was next and did not fit.
    too_large: Option<u32>,
}

/// What all partitions of one command share.
#[derive(Clone, Debug)]
struct Call {
    id: PathId,
    member: MemberId,
    pull: bool,
    now: u64,
    lease_now: u64,
    granted_at: u64,
    /// Deliveries of this command have higher numbers.
    before: u64,
    last_delivery: u64,
    room: Room,
    told: Vec<Told>,
    /// A delayed message fell due while something of its key was leased.
    due_behind_lease: u64,
    /// Whether it is for one message that is delivered alone, and for nothing else.
    lone: bool,
    /// Messages that were packed.
    packed: u64,
    /// Whether messages that have to wait may be passed over, by partition: at the bound of the shard none is.
    passing: Vec<bool>,
    /// Messages that were not passed over for want of room.
    stayed: u64,
}

/// The limits of a group that a lease obeys.
#[derive(Clone, Copy)]
struct Limits {
    order: bool,
    lease_ms: u64,
    passed: u64,
    in_flight: u64,
    acked_ahead: u64,
}

impl Limits {
    fn of(path: &Path) -> Self {
        Self {
            order: path.keeps_order(),
            lease_ms: path.get(Setting::LeaseMs),
            passed: path.get(Setting::MaxPassedOver),
            in_flight: path.get(Setting::MaxInFlight),
            acked_ahead: path.get(Setting::MaxAckedAhead),
        }
    }
}

/// What a member may be given by one command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Share {
    Others,
    Alone,
    Nothing,
}

/// Why a partition has no more to give.
enum Stop {
    Again,
    Nothing,
    Full,
    Spent,
}

type Hand = Vec<(usize, Vec<Leased>)>;

impl Model {
    pub(super) fn deliver(&mut self, deliver: &Deliver, seen: &Seen<'_>) -> Verdict {
        let Outcome::Delivered { count, too_large } = seen.outcome else { return Err("expected a count".to_owned()) };
        let member = self.paths.get(&deliver.path).filter(|path| path.members.contains_key(&deliver.member));
        let Some(path) = member else {
            return seen.expect(&Outcome::Delivered { count: 0, too_large: None });
        };
        let (path, count, too_large) = (path.clone(), *count, *too_large);
        let found = handed(seen, deliver, &path, self)?;
        self.make_room(1);
        let mut first = None;
        for passing in self.passing_choices(path.partitions.len()) {
            let result = self.deliver_so(deliver, path.clone(), passing, &found, (count, too_large));
            match result {
                Ok(()) => return Ok(()),
                Err(text) => _ = first.get_or_insert(text),
            }
        }
        Err(first.unwrap_or_default())
    }

    /// Delivers with one choice of which partitions may pass messages over. A choice that is not the shard's changes nothing.
    fn deliver_so(
        &mut self,
        deliver: &Deliver,
        mut path: Path,
        passing: Vec<bool>,
        found: &Hand,
        (count, too_large): (u32, Option<u32>),
    ) -> Verdict {
        let mut call = Call { passing, ..self.call(deliver, &path) };
        let (share, reserved) = self.share(&path, deliver.member, &call.passing);
        path.reserved = reserved;
        let hand = match share {
            Share::Nothing => Hand::new(),
            Share::Others => self.hand_over(&mut path, &mut call, deliver)?,
            Share::Alone => {
                call.lone = true;
                call.room.messages = call.room.messages.min(1);
                self.hand_over(&mut path, &mut call, deliver)?
            }
        };
        if call.lone && !hand.is_empty() {
            path.reserved = None;
        }
        let counted: usize = hand.iter().map(|(_, leased)| leased.len()).sum();
        let refused = call.room.too_large.filter(|_| counted == 0);
        allowed!(hand == *found, "P4, P5, P7, P8: handed over {found:?}\n  expected {hand:?}");
        allowed!(self.stands_as_seen(deliver.path, &path), "rule 9: another place than the shard's");
        allowed!((counted, refused) == (count as usize, too_large), "P4: expected {counted} and {refused:?}");
        self.last_delivery = call.last_delivery;
        self.told.append(&mut call.told);
        for (times, what) in [
            (call.due_behind_lease, "delay due while its key is leased"),
            (call.packed, "packed"),
            (call.stayed, "not passed over at the bound"),
            (u64::from(call.lone && counted > 0), "delivered alone"),
            (u64::from(share == Share::Nothing), "nothing for who is to become empty, or holds what is alone"),
        ] {
            (0..times).for_each(|_| self.reach(what));
        }
        let before = self.paths.insert(deliver.path, path).expect("looked up above");
        self.forget_facts(deliver.path, &before);
        Ok(())
    }

    fn call(&self, deliver: &Deliver, path: &Path) -> Call {
        let (held, held_bytes) = path.pushed_to(deliver.member, &self.topics[&path.topic]);
        let asked = u64::from(deliver.max_messages).min(STEPS_MAX);
        let (messages, bytes, alone) = match deliver.grant {
            Grant::Push { window_messages, window_bytes } => (
                asked.min(u64::from(window_messages).saturating_sub(held)),
                window_bytes.saturating_sub(held_bytes),
                held == 0,
            ),
            Grant::Pull { max_bytes: 0, .. } => (asked, u64::MAX, false),
            Grant::Pull { max_bytes, .. } => (asked, max_bytes, false),
        };
        Call {
            id: deliver.path,
            member: deliver.member,
            pull: matches!(deliver.grant, Grant::Pull { .. }),
            now: self.time,
            lease_now: self.lease_time(),
            granted_at: self.commit_index,
            before: self.last_delivery,
            last_delivery: self.last_delivery,
            room: Room { messages, bytes, alone, steps: STEPS_MAX, too_large: None },
            told: Vec::new(),
            due_behind_lease: 0,
            lone: false,
            packed: 0,
            passing: vec![true; path.partitions.len()],
            stayed: 0,
        }
    }

    /// Every partition in turn. The one behind the last that gave something begins, so that each has its turn.
    fn hand_over(&self, path: &mut Path, call: &mut Call, deliver: &Deliver) -> Verdict<Hand> {
        let partitions = path.partitions.len();
        let limits = Limits::of(path);
        let mut hand = Hand::new();
        let (first, entries) = (path.turn, entries_of(path));
        let due = self.due_of(path);
        for offset in 0..partitions {
            let number = (first + offset) % partitions;
            if call.room.is_spent() {
                break;
            }
            let (added, choice) = (entries_of(path).saturating_sub(entries), call.passing[number]);
            let passed = self.facts_passed(call.id, path);
            allowed!(self.may_pass(choice, (added, passed), due), "rule 9: whether messages may be passed over");
            let messages = &self.topics[&path.topic].partitions[number];
            let stretch = deliver.stretch.as_ref().filter(|stretch| stretch.partition.index() == number);
            let mut partition =
                InPartition { number, limits, messages, stretch, obligation: &mut path.partitions[number] };
            let leased = partition.lease(call);
            if !leased.is_empty() {
                path.turn = (number + 1) % partitions;
                hand.push((number, leased));
            }
        }
        Ok(hand)
    }

    /// Facts that every path has passed by now: they are forgotten at once.
    fn facts_passed(&self, id: PathId, path: &Path) -> u64 {
        let others = |number: usize| {
            let others = self.paths.iter().filter(move |(other, it)| **other != id && it.topic == path.topic);
            others.map(move |(_, it)| it.partitions[number].position).min().unwrap_or(u64::MAX)
        };
        let lowest = |number: usize| path.partitions[number].position.min(others(number));
        let all = self.topics[&path.topic].partitions.iter().enumerate();
        all.map(|(number, messages)| lowest(number).saturating_sub(messages.known_from)).sum()
    }

    /// Delayed messages of a path's topic that are due: they may leave the schedule.
    fn due_of(&self, path: &Path) -> u64 {
        let messages = self.topics[&path.topic].partitions.iter().flat_map(|it| &it.list);
        messages.filter(|message| message.due != 0 && message.due <= self.time).count() as u64
    }

    /// Wire rule 6: what a member may be given now, and who is to become empty from here on.
    fn share(&self, path: &Path, asking: MemberId, passing: &[bool]) -> (Share, Option<(MemberId, u64)>) {
        let of = |member: MemberId| if member == asking { Share::Nothing } else { Share::Others };
        let held = |member: MemberId| {
            let leases = path.partitions.iter().flat_map(|it| it.leases());
            leases.filter(|(_, lease)| lease.member == member).count()
        };
        // Nobody is given anything beside a message that is delivered alone, and of a path one member holds one.
        let is_alone = |obligation: &Obligation, seq: u64| obligation.open(seq).is_some_and(|open| open.alone);
        let alone = path.partitions.iter().flat_map(|it| it.leases().filter(|(seq, _)| is_alone(it, *seq)));
        if let Some((_, lease)) = alone.into_iter().next() {
            return (of(lease.member), None);
        }
        if !self.has_lone(path, passing) {
            return (Share::Others, None);
        }
        if held(asking) == 0 {
            return (Share::Alone, path.reserved);
        }
        let now = self.lease_time();
        let topic = &self.topics[&path.topic];
        let reserved = match path.reserved {
            None => {
                let least = path.members.keys().min_by_key(|member| (path.pushed_to(**member, topic).0, **member));
                (*least.expect("one asks"), now)
            }
            Some((member, _)) if member != asking && held(member) == 0 => (asking, now),
            Some((member, since)) if now < since + path.get(Setting::LeaseMs) => (member, since),
            Some((member, _)) => {
                let next = path.members.keys().find(|other| **other > member).or(path.members.keys().next());
                (*next.expect("one asks"), now)
            }
        };
        (of(reserved.0), Some(reserved))
    }

    /// Whether something that is delivered alone could be leased now.
    fn has_lone(&self, path: &Path, passing: &[bool]) -> bool {
        let limits = Limits::of(path);
        // Before any partition had its turn.
        let may_pass = passing[path.turn % passing.len()];
        path.partitions.iter().zip(&self.topics[&path.topic].partitions).any(|(obligation, messages)| {
            let is_full = limits.in_flight != 0 && obligation.leases().count() as u64 >= limits.in_flight;
            !is_full && next_lone(obligation, messages, limits, may_pass).is_some()
        })
    }

    /// What every path of the topic has passed needs no facts any more.
    fn forget_facts(&mut self, id: PathId, before: &Path) {
        let topic = before.topic;
        for (number, messages) in self.topics.get_mut(&topic).expect("it has a path").partitions.iter_mut().enumerate()
        {
            if self.paths[&id].partitions[number].position == before.partitions[number].position {
                continue;
            }
            let paths = self.paths.values().filter(|path| path.topic == topic);
            let lowest = paths.map(|path| path.partitions[number].position).min().expect("it has a path");
            messages.known_from = messages.known_from.max(lowest);
        }
    }
}

impl Room {
    fn is_spent(&self) -> bool {
        self.messages == 0 || self.steps == 0 || (self.bytes == 0 && !self.alone)
    }

    fn fits(&self, size: u32) -> bool {
        self.alone || u64::from(size) <= self.bytes
    }

    fn take(&mut self, size: u32) {
        self.messages -= 1;
        self.alone = false;
        // What is larger than the window leaves none of it.
        self.bytes = self.bytes.saturating_sub(u64::from(size));
    }
}

struct InPartition<'a> {
    number: usize,
    limits: Limits,
    messages: &'a Messages,
    stretch: Option<&'a Stretch>,
    obligation: &'a mut Obligation,
}

impl InPartition<'_> {
    fn lease(&mut self, call: &mut Call) -> Vec<Leased> {
        let mut leased = Vec::new();
        let Some(left_behind) = self.fall_due(call) else { return leased };
        let oversized = call.room.clone();
        while call.room.messages > 0 && call.room.steps > 0 {
            let in_flight = self.obligation.leases().count() as u64;
            if self.limits.in_flight != 0 && in_flight >= self.limits.in_flight {
                break;
            }
            let position = self.obligation.position;
            // While a path replays, what is offered again comes before what waits above it, and before what waits behind that.
            let next = match self.next_offered(call) {
                _ if call.lone => next_lone(self.obligation, self.messages, self.limits, call.passing[self.number]),
                Some(seq) if seq < position => Some(seq),
                Some(_) | None => match self.next_new(call, left_behind) {
                    Ok(seq) => Some(seq),
                    Err(Stop::Full) => self.next_offered(call),
                    Err(Stop::Again) => continue,
                    Err(Stop::Nothing | Stop::Spent) => None,
                },
            };
            let Some(seq) = next else { break };
            let message = self.messages.get(seq);
            let is_redriven = self.obligation.open(seq).is_some_and(|open| open.source.is_some());
            if !is_redriven && message.has_expired(call.now) {
                self.expire(seq, call);
            } else if call.room.fits(message.size) {
                leased.push(self.grant(seq, message, call));
                // It came alone.
                if oversized.alone && leased.len() == 1 && u64::from(message.size) > oversized.bytes {
                    break;
                }
            } else {
                let least = call.room.too_large.map_or(message.size, |other| other.min(message.size));
                call.room.too_large = Some(least);
                break;
            }
            call.room.steps -= 1;
        }
        leased
    }

    /// What was delayed, was skipped and is due takes its place, as far as there is room: says whether something found none.
    fn fall_due(&mut self, call: &mut Call) -> Option<bool> {
        let position = self.obligation.position;
        let skipped = self.obligation.unsettled().filter(|(seq, open)| *seq < position && !open.offered);
        let mut due: Vec<(u64, u64)> = skipped.map(|(seq, _)| (self.messages.get(seq).due, seq)).collect();
        due.retain(|(due, _)| *due <= call.now);
        due.sort_unstable();
        for (due, seq) in due {
            if call.room.steps == 0 {
                return None;
            }
            let message = self.messages.get(seq);
            if message.has_expired(call.now) {
                self.expire(seq, call);
            } else if self.passed_over() >= self.limits.passed {
                return Some(true);
            } else {
                let is_key_leased = |(other, _): (u64, Lease)| self.messages.get(other).key == message.key;
                if message.key.is_some() && self.obligation.leases().any(is_key_leased) {
                    call.due_behind_lease += 1;
                }
                let open = self.open_mut(seq);
                open.offered = true;
                open.due = due;
                self.pack(seq, call);
            }
            call.room.steps -= 1;
        }
        Some(false)
    }

    /// The first message that was offered and is free to go: retries by sequence, then what fell due.
    fn next_offered(&self, call: &Call) -> Option<u64> {
        let offered = self.obligation.unsettled().filter(|(_, open)| open.offered && !open.packed && !open.alone);
        let waiting = offered.filter(|(_, open)| open.stands == Stands::Waiting);
        waiting
            .filter(|(seq, _)| !self.is_blocked(*seq, call))
            .map(|(seq, open)| (open.due, seq))
            .min()
            .map(|(_, seq)| seq)
    }

    /// The next message that was not offered and is free to go. Those that are not are passed over on the way.
    fn next_new(&mut self, call: &mut Call, left_behind: bool) -> Result<u64, Stop> {
        loop {
            let seq = self.obligation.position;
            if seq > self.messages.last() {
                return Err(Stop::Nothing);
            }
            if call.room.steps == 0 {
                return Err(Stop::Spent);
            }
            let message = self.messages.get(seq);
            let is_to_offer = self.obligation.open(seq).is_some_and(|open| !open.offered);
            if is_to_offer && (left_behind || is_full(self.obligation, self.limits)) {
                return Err(Stop::Full);
            }
            if !is_to_offer || message.due > call.now {
                self.obligation.advance(seq + 1);
                call.room.steps -= 1;
                if self.obligation.open(seq).is_some_and(|open| open.offered) {
                    // It lies behind the position now, and may be what is next.
                    return Err(Stop::Again);
                }
                continue;
            }
            if !self.is_known(seq) {
                return Err(Stop::Nothing);
            }
            let is_replay = seq < self.obligation.offered_to;
            if message.has_expired(call.now) {
                self.obligation.advance(seq + 1);
                return Ok(seq);
            }
            let is_blocked = self.is_blocked(seq, call);
            if !is_blocked && !call.room.fits(message.size) {
                return Ok(seq);
            }
            if is_blocked && !call.passing[self.number] {
                call.stayed += 1;
                return Err(Stop::Full);
            }
            let open = self.open_mut(seq);
            open.offered = true;
            if is_replay {
                open.cause = Cause::Replayed;
            }
            self.obligation.advance(seq + 1);
            if !is_blocked {
                return Ok(seq);
            }
            self.pack(seq, call);
            call.room.steps -= 1;
        }
    }

    /// As [`is_blocked`].
    fn is_blocked(&self, seq: u64, call: &Call) -> bool {
        is_blocked(self.obligation, self.messages, self.limits.order, seq, call.before)
    }

    /// Of a key a 64th of `max_passed_over` are entries, 1 to 1,024: the earliest. What waits behind those and was never
    /// delivered is packed. Another place than the last is taken from the last entry, unless that may go.
    fn pack(&mut self, seq: u64, call: &mut Call) {
        let key = self.messages.get(seq).key;
        if !self.limits.order || !key.is_some() {
            return;
        }
        let most = (self.limits.passed / 64).clamp(1, 1024);
        let offered = self.obligation.unsettled().filter(|(_, open)| open.offered);
        let of_key = offered.filter(|(other, _)| self.messages.get(*other).key == key);
        let (packed, entries): (Vec<_>, Vec<_>) = of_key.partition(|(_, open)| open.packed);
        let is_crowded = entries.len() as u64 > most;
        let last = entries.last().expect("the one that was passed over").0;
        let is_behind = packed.first().is_some_and(|(first, _)| *first < seq);
        let one = match is_behind {
            true => seq,
            false if is_crowded => last,
            false => return,
        };
        let open = self.obligation.open(one).expect("it is unsettled");
        let is_untouched = open.stands == Stands::Waiting && open.previous == 0;
        if is_untouched && self.is_blocked(one, call) {
            self.open_mut(one).packed = true;
            call.packed += 1;
        }
    }

    /// Whether the facts of a message are there: the partition's newest, or those that came along.
    fn is_known(&self, seq: u64) -> bool {
        let brought = self.stretch.is_some_and(|stretch| {
            let first = stretch.first.get();
            (first..first + stretch.facts.len() as u64).contains(&seq)
        });
        seq >= self.messages.known_from || brought
    }

    fn passed_over(&self) -> u64 {
        self.obligation.passed_over()
    }

    fn open_mut(&mut self, seq: u64) -> &mut Open {
        self.obligation.pairs.get_mut(&seq).and_then(|pair| pair.open.as_mut()).expect("it is unsettled")
    }

    fn expire(&mut self, seq: u64, call: &mut Call) {
        let previous = self.obligation.open(seq).map_or(0, |open| open.previous);
        self.obligation.end(seq, Fate::Dropped(DropReason::Ttl), self.limits.order, self.messages);
        let kind = LedgerKind::Dropped(DropReason::Ttl);
        call.told.push(Told { previous, ..Told::new(call.id, self.number, kind, seq, 0) });
    }

    fn grant(&mut self, seq: u64, message: Message, call: &mut Call) -> Leased {
        call.last_delivery += 1;
        let delivery = call.last_delivery;
        let deadline = call.lease_now + self.limits.lease_ms;
        let lease = Lease {
            delivery,
            member: call.member,
            pull: call.pull,
            deadline,
            granted_at: call.granted_at,
            ordered: self.limits.order,
        };
        let pair = self.obligation.pairs.get_mut(&seq).expect("it is unsettled");
        let open = pair.open.as_mut().expect("it is unsettled");
        open.stands = Stands::Leased(lease);
        pair.deliveries.push((delivery, open.cause));
        call.room.take(message.size);
        let kind = LedgerKind::Leased(open.cause);
        let (attempt, previous, member) = (open.attempt, open.previous, call.member);
        call.told.push(Told { attempt, previous, member, ..Told::new(call.id, self.number, kind, seq, delivery) });
        Leased {
            seq: Seq::new(seq),
            delivery_id: DeliveryId::new(delivery),
            attempt: Attempt::new(attempt),
            cause: open.cause,
            previous: DeliveryId::new(previous),
            size_bytes: message.size,
            deadline: LeaseTime::new(deadline),
            source: open.source.map(Seq::new),
        }
    }
}

/// Whether a message has to wait for its key (P8): for an earlier one that is unsettled, for one that an earlier command
/// leased, or for a later one that is out. What this command leased, with numbers above `before`, goes before it.
fn is_blocked(obligation: &Obligation, messages: &Messages, in_order: bool, seq: u64, before: u64) -> bool {
    let key = messages.get(seq).key;
    if !in_order || !key.is_some() {
        return false;
    }
    let is_mine = |open: &Open| matches!(open.stands, Stands::Leased(lease) if lease.delivery > before);
    obligation.unsettled().filter(|(other, open)| open.offered && messages.get(*other).key == key).any(
        |(other, open)| match open.stands {
            Stands::Leased(lease) if lease.ordered => !is_mine(open) || other > seq,
            Stands::Leased(_) | Stands::Waiting | Stands::Scheduled { .. } | Stands::Held => other < seq,
        },
    )
}

/// The lowest message that is delivered alone and free to go. What a replay comes to first goes before what is above it, if
/// anything may be offered at all.
fn next_lone(obligation: &Obligation, messages: &Messages, limits: Limits, may_pass: bool) -> Option<u64> {
    let waiting = obligation.unsettled().filter(|(_, open)| open.alone && open.stands == Stands::Waiting);
    let mut free = waiting.filter(|(seq, _)| !is_blocked(obligation, messages, limits.order, *seq, u64::MAX));
    let is_full = !may_pass || is_full(obligation, limits);
    free.next().map(|(seq, _)| seq).filter(|seq| *seq < obligation.position || is_full)
}

/// Whether nothing that was never offered may be: as many are unsettled as may be, or as many are settled past the oldest that
/// is not. What is delayed and not due holds nothing back: all of it is taken for unsettled and behind that one.
fn is_full(obligation: &Obligation, limits: Limits) -> bool {
    if obligation.passed_over() >= limits.passed {
        return true;
    }
    let passed = || obligation.unsettled().filter(|(seq, _)| *seq < obligation.position);
    let Some((oldest, _)) = passed().find(|(_, open)| open.offered).filter(|_| limits.acked_ahead != 0) else {
        return false;
    };
    let settled = (obligation.position - oldest).saturating_sub(passed().count() as u64);
    settled >= limits.acked_ahead
}

/// What the command is seen to have handed over, by partition; the rest of its effect is checked here.
fn handed(seen: &Seen<'_>, deliver: &Deliver, path: &Path, model: &Model) -> Verdict<Hand> {
    let mut hand = Hand::new();
    for effect in &seen.effects {
        let Effect::Deliver(found) = effect else { continue };
        let expected = DeliverEffect {
            topic: path.topic,
            path: deliver.path,
            member: deliver.member,
            grant: deliver.grant,
            partition: Partition::from_index(found.partition.index().min(path.partitions.len() - 1)),
            commit_index: model.commit_index.into(),
            lease_ms: path.get(Setting::LeaseMs),
            leases: found.leases.clone(),
        };
        allowed!(*found == expected, "sent {found:?}");
        hand.push((found.partition.index(), found.leases.clone()));
    }
    Ok(hand)
}
