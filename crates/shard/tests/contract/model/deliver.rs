//! `Deliver`: what is next on a path. Retries that are due come first, lowest first; then delayed messages that fell due, by
//! due time; then what was never offered, from the position on. While a path replays, what is to be offered again comes
//! before what waits above it.

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
}

/// The limits of a group that a lease obeys.
#[derive(Clone, Copy)]
struct Limits {
    order: bool,
    lease_ms: u64,
    passed: u64,
    in_flight: u64,
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
        let found = handed(seen, deliver, path, self)?;
        let (mut path, mut call) = (path.clone(), self.call(deliver, path));
        let hand = self.hand_over(&mut path, &mut call, deliver);
        let counted: usize = hand.iter().map(|(_, leased)| leased.len()).sum();
        let refused = call.room.too_large.filter(|_| counted == 0);
        allowed!(hand == found, "P4, P5, P7, P8: handed over {found:?}\n  expected {hand:?}");
        allowed!((counted, refused) == (*count as usize, *too_large), "P4: expected {counted} and {refused:?}");
        self.last_delivery = call.last_delivery;
        self.told.append(&mut call.told);
        for _ in 0..call.due_behind_lease {
            self.reach("delay due while its key is leased");
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
        }
    }

    /// Every partition in turn. The one behind the last that gave something begins, so that each has its turn.
    fn hand_over(&self, path: &mut Path, call: &mut Call, deliver: &Deliver) -> Hand {
        let partitions = path.partitions.len();
        let limits = Limits {
            order: path.keeps_order(),
            lease_ms: path.get(Setting::LeaseMs),
            passed: path.get(Setting::MaxPassedOver),
            in_flight: path.get(Setting::MaxInFlight),
        };
        let mut hand = Hand::new();
        let first = path.turn;
        for offset in 0..partitions {
            let number = (first + offset) % partitions;
            if call.room.is_spent() {
                break;
            }
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
        hand
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
            }
            call.room.steps -= 1;
        }
        Some(false)
    }

    /// The first message that was offered and is free to go: retries by sequence, then what fell due.
    fn next_offered(&self, call: &Call) -> Option<u64> {
        let offered = self.obligation.unsettled().filter(|(_, open)| open.offered);
        let waiting = offered.filter(|(_, open)| open.stands == Stands::Waiting);
        waiting
            .filter(|(seq, _)| !self.is_blocked(*seq, call))
            .map(|(seq, open)| (open.due, seq))
            .min()
            .map(|(_, seq)| seq)
    }

    /// The next message that was not offered and is free to go. Those that are not are passed over on the way.
    fn next_new(&mut self, call: &mut Call, left_behind: bool) -> Result<u64, Stop> {
        let mut passed_over = self.passed_over();
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
            if is_to_offer && (left_behind || passed_over >= self.limits.passed) {
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
            let open = self.open_mut(seq);
            open.offered = true;
            if is_replay {
                open.cause = Cause::Replayed;
            }
            self.obligation.advance(seq + 1);
            if !is_blocked {
                return Ok(seq);
            }
            passed_over += 1;
            call.room.steps -= 1;
        }
    }

    /// Whether a message has to wait for its key (P8): for an earlier one that is unsettled, for one that an earlier command
    /// leased, or for a later one that is out. What this command leased goes before it.
    fn is_blocked(&self, seq: u64, call: &Call) -> bool {
        let key = self.messages.get(seq).key;
        if !self.limits.order || !key.is_some() {
            return false;
        }
        let is_mine = |open: &Open| matches!(open.stands, Stands::Leased(lease) if lease.delivery > call.before);
        self.obligation.unsettled().filter(|(other, open)| open.offered && self.messages.get(*other).key == key).any(
            |(other, open)| match open.stands {
                Stands::Leased(_) => !is_mine(open) || other > seq,
                Stands::Waiting | Stands::Scheduled { .. } | Stands::Held => other < seq,
            },
        )
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
        self.obligation.unsettled().filter(|(_, open)| open.offered).count() as u64
    }

    fn open_mut(&mut self, seq: u64) -> &mut Open {
        self.obligation.pairs.get_mut(&seq).and_then(|pair| pair.open.as_mut()).expect("it is unsettled")
    }

    fn expire(&mut self, seq: u64, call: &mut Call) {
        let pair = self.obligation.pairs.get_mut(&seq).expect("it is unsettled");
        let previous = pair.open.as_ref().map_or(0, |open| open.previous);
        pair.end(Fate::Dropped(DropReason::Ttl));
        let kind = LedgerKind::Dropped(DropReason::Ttl);
        call.told.push(Told { previous, ..Told::new(call.id, self.number, kind, seq, 0) });
    }

    fn grant(&mut self, seq: u64, message: Message, call: &mut Call) -> Leased {
        call.last_delivery += 1;
        let delivery = call.last_delivery;
        let deadline = call.lease_now + self.limits.lease_ms;
        let lease = Lease { delivery, member: call.member, pull: call.pull, deadline, granted_at: call.granted_at };
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
