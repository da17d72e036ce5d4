//! Granting leases: what a member is given next. Here messages fall due and lose their worth: there are no timers for it.

use std::ops::Range;

use mortarmq_types::{
    Attempt, Cause, ClusterTime, DeliveryId, DropReason, KeyHash, LeaseTime, MemberId, Mutant, Position, Seq,
};

use crate::{
    entry::{Entry, Lease, State, has_expired},
    path_partition::PathPartition,
    rules::{Grant, Now, Order, PathRules},
    tenure::Granted,
};

/// What delivery must know of a message: 24 bytes, never its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The hash of its key, [`KeyHash::NONE`] without one.
    pub key_hash: KeyHash,
    /// Key, headers and value, in bytes.
    pub size_bytes: u32,
    /// When the message loses its worth, cluster time in milliseconds; 0 = never.
    pub expires_at_ms: u64,
}

impl Fact {
    /// Whether the message has lost its worth.
    #[must_use]
    pub const fn has_expired(&self, now: ClusterTime) -> bool {
        has_expired(self.expires_at_ms, now)
    }
}

/// A place in a partition's schedule, and the order in which messages fall due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DuePosition {
    /// When the message falls due.
    pub due: ClusterTime,
    /// The message.
    pub seq: Seq,
}

/// A message that stands in its partition's schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delayed {
    /// When it falls due, and which it is.
    pub at: DuePosition,
    /// What delivery must know of it.
    pub fact: Fact,
}

/// What a path asks its partition: the facts of messages that were never offered (the partition's newest, or a stretch in
/// the command), and its schedule.
///
/// The schedule holds every delayed message until it has fallen due for every path. Unless an implementation says
/// otherwise, nothing is delayed.
pub trait Facts {
    /// The facts of a message; `None` beyond what is known, where the lease then stops.
    fn fact(&self, seq: Seq) -> Option<Fact>;

    /// When a message falls due that stands in the schedule; `None` for every other.
    fn due_of(&self, seq: Seq) -> Option<ClusterTime> {
        let _ = seq;
        None
    }

    /// The first message of the schedule behind a place.
    fn next_delayed(&self, after: DuePosition) -> Option<Delayed> {
        let _ = after;
        None
    }

    /// The message of the schedule with the lowest sequence among these.
    fn first_delayed(&self, among: Range<Seq>) -> Option<DuePosition> {
        let _ = among;
        None
    }

    /// The message of the schedule with the highest sequence among these.
    fn last_delayed(&self, among: Range<Seq>) -> Option<DuePosition> {
        let _ = among;
        None
    }
}

/// Who asks for messages, and for how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// Who is to hold them.
    pub member: MemberId,
    /// How it asks.
    pub grant: Grant,
    /// How much it is given at most.
    pub limits: LeaseLimits,
    /// Whether messages may be passed over because their key must wait. If not, the call stops at the first of them.
    pub may_pass_over: bool,
    /// The partition's last sequence.
    pub last_seq: Seq,
    /// The stamp of the batch.
    pub now: Now,
    /// The command that asks.
    pub granted_at: Position,
    /// Whether it asks for one message that is to be delivered alone, and for nothing else. Otherwise it gets none of these.
    pub alone: bool,
}

/// How much one call leases at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseLimits {
    /// Messages.
    pub messages: u32,
    /// Bytes of key, headers and value.
    pub bytes: u64,
    /// Messages looked at: leased, passed over, skipped, dropped, or made ready because their time had come.
    pub steps: u32,
    /// Whether the first message may be larger than `bytes`. It then comes alone: for a byte window that is empty.
    pub first_may_exceed_bytes: bool,
}

/// A lease that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leased {
    /// The message.
    pub seq: Seq,
    /// Names this delivery.
    pub delivery_id: DeliveryId,
    /// Which attempt it is.
    pub attempt: Attempt,
    /// Why it is delivered (P7).
    pub cause: Cause,
    /// The delivery that this one follows, 0 if there was none (P7).
    pub previous: DeliveryId,
    /// What it takes of a byte window.
    pub size_bytes: u32,
    /// When the lease ends.
    pub deadline: LeaseTime,
    /// The dead letter that holds its bytes, if it was redriven.
    pub source: Option<Seq>,
}

/// A message that left the path without a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The message.
    pub seq: Seq,
    /// By which rule.
    pub reason: DropReason,
    /// Its last delivery, 0 if it was never delivered.
    pub previous: DeliveryId,
}

/// What a call did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handed {
    /// The leases, in the order in which the member is to be given them; within a key that is the order of the sequences.
    pub leased: Vec<Leased>,
    /// What lost its worth before it could be offered, in the order in which it was found.
    pub dropped: Vec<Dropped>,
    /// Steps that were taken.
    pub steps: u32,
}

/// Why a call leased no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseStop {
    /// There is nothing that could be leased now: a publish, a settle, or a message that falls due changes that.
    NothingReady,
    /// The limit of messages is reached.
    LimitReached,
    /// The next message does not fit into the bytes left.
    TooLarge {
        /// What it takes of them.
        size_bytes: u32,
    },
    /// All steps are spent; there may be more.
    StepsSpent,
    /// There is more, but nothing is known of it.
    FactsMissing {
        /// The first message whose facts are missing.
        seq: Seq,
    },
    /// As many unsettled messages were passed as the group allows, or are packed: only these move on.
    PassedOverFull,
    /// As many messages are settled past the oldest unsettled one as the group allows: nothing new is offered.
    AckedAheadFull,
    /// As many leases are live as the group allows.
    InFlightFull,
}

/// What is left of a request while it is served.
pub(crate) struct Call<'a> {
    pub(crate) request: &'a LeaseRequest,
    pub(crate) rules: &'a PathRules,
    /// Deliveries of this call have larger numbers.
    before: DeliveryId,
    pub(crate) messages_left: u32,
    bytes_left: u64,
    pub(crate) steps_left: u32,
    may_exceed: bool,
    /// Whether a message that is due had to stay in the schedule, as no more may be passed over: nothing new may pass it.
    left_behind: bool,
    /// Messages that may be leased only because this call leased the one before them in their key.
    unlocked: Vec<(ClusterTime, Seq)>,
}

impl PathPartition {
    /// Leases what is next: retries that are due, lowest first; delayed messages that are due, by when they fell due; then
    /// messages never offered, from the position on. What has expired by then is dropped instead.
    ///
    /// `last_delivery_id` is the number of the shard's latest delivery, 0 before the first; it is raised with every lease.
    ///
    /// # Delay
    /// Before anything is leased, the second position moves over all that is due in the partition's schedule. What of it
    /// lies below the position, where it was skipped, becomes an entry and joins its key's order by its sequence; there may
    /// be as many entries as `max_passed_over`. What lies ahead of the position will be offered when the position gets
    /// there, as if it had never been delayed: it cannot come before what of its key is ahead of it.
    ///
    /// # Durability
    /// Nothing yet: the caller sends a message only after this command is committed.
    /// # Source
    /// P5, P7, P8; DESIGN section 2, "`Deliver` names a path, a member and limits, never sequences".
    pub fn lease(
        &mut self,
        request: &LeaseRequest,
        rules: &PathRules,
        facts: &dyn Facts,
        last_delivery_id: &mut DeliveryId,
        handed: &mut Handed,
    ) -> LeaseStop {
        if self.moving.is_some() {
            // What an operator moves is offered again when it stands where it is to be.
            return LeaseStop::NothingReady;
        }
        let mut call = Call::new(request, rules, *last_delivery_id);
        self.follow_order(rules.order, &mut call.steps_left);
        if self.reordering.is_some() {
            handed.steps += request.limits.steps - call.steps_left;
            return LeaseStop::StepsSpent;
        }
        let stop = self.serve(&mut call, facts, last_delivery_id, handed);
        // What was unlocked and not taken waits again, for the messages that this call leased (P8).
        for place in call.unlocked {
            self.ready.remove(&place);
        }
        handed.steps += request.limits.steps - call.steps_left;
        stop
    }

    fn serve(
        &mut self,
        call: &mut Call<'_>,
        facts: &dyn Facts,
        last_delivery_id: &mut DeliveryId,
        handed: &mut Handed,
    ) -> LeaseStop {
        while let Some((due, seq)) = self.schedule.first()
            && due <= call.request.now.cluster
        {
            if call.steps_left == 0 {
                return LeaseStop::StepsSpent;
            }
            call.steps_left -= 1;
            self.retry_is_due(seq);
        }
        if let Err(stop) = self.pass_due(call, facts, handed) {
            return stop;
        }
        if call.request.alone {
            return self.serve_alone(call, last_delivery_id, handed);
        }
        loop {
            if call.messages_left == 0 {
                return LeaseStop::LimitReached;
            }
            if self.is_in_flight_full(call.rules) {
                return LeaseStop::InFlightFull;
            }
            if call.steps_left == 0 {
                return LeaseStop::StepsSpent;
            }
            // While the path replays, what was not offered again comes before what is ready above it (P8).
            let ready = self.ready.first().map(|(_, seq)| seq);
            let went_on = match ready.filter(|seq| *seq < self.position) {
                Some(seq) => self.lease_passed(seq, call, last_delivery_id, handed),
                None => match (self.lease_new(call, facts, last_delivery_id, handed), ready) {
                    // Only what was offered moves on; nothing would, if it waited for what may not be offered.
                    (Err(LeaseStop::PassedOverFull | LeaseStop::AckedAheadFull), Some(seq)) => {
                        self.lease_passed(seq, call, last_delivery_id, handed)
                    }
                    (went_on, _) => went_on,
                },
            };
            if let Err(stop) = went_on {
                return stop;
            }
            call.steps_left -= 1;
        }
    }

    /// Moves the second position over what is due: what was skipped takes its place among what was passed over.
    fn pass_due(&mut self, call: &mut Call<'_>, facts: &dyn Facts, handed: &mut Handed) -> Result<(), LeaseStop> {
        let now = call.request.now.cluster;
        while let Some(Delayed { at, fact }) = facts.next_delayed(self.due_position).filter(|next| next.at.due <= now) {
            if call.steps_left == 0 {
                return Err(LeaseStop::StepsSpent);
            }
            let was_skipped = at.seq >= self.due_start && at.seq < self.position;
            let has_expired = fact.has_expired(now);
            if was_skipped && !has_expired && !self.has_room(call.rules) {
                call.left_behind = true;
                return Ok(());
            }
            call.steps_left -= 1;
            assert!(self.due_position < at, "P10: the due position {:?} does not go back to {at:?}", self.due_position);
            self.due_position = at;
            if !was_skipped {
                continue;
            }
            self.delayed = self.delayed.checked_sub(1).expect("invariant 11: what was skipped is counted");
            if has_expired {
                self.expire(at.seq, DeliveryId::ZERO, handed);
            } else {
                self.pass_over(at.seq, Entry::new(fact, at.due), call.rules);
                if self.entries.contains_key(&at.seq) {
                    self.wait(at.seq);
                }
            }
        }
        Ok(())
    }

    /// Leases a message that was offered or fell due.
    pub(crate) fn lease_passed(
        &mut self,
        seq: Seq,
        call: &mut Call<'_>,
        last_delivery_id: &mut DeliveryId,
        handed: &mut Handed,
    ) -> Result<(), LeaseStop> {
        let entry = self.entry(seq);
        let (key, previous) = (entry.key_hash, entry.previous);
        let size_bytes = entry.size_bytes;
        let has_expired = entry.is_expired(call.request.now.cluster);
        if !has_expired && !call.has_room_for(size_bytes) {
            return Err(LeaseStop::TooLarge { size_bytes });
        }
        if has_expired {
            self.make_unready(seq);
            self.remove(seq);
            self.leave_key(key, seq);
            self.expire(seq, previous, handed);
        } else {
            self.grant(seq, call, last_delivery_id, handed);
        }
        self.unlock_next(key, seq, call);
        Ok(())
    }

    /// Leases the message at the position, or passes it over because its key must wait. What is there already, or was
    /// settled since an operator moved the position back, is skipped; so is what is delayed.
    fn lease_new(
        &mut self,
        call: &mut Call<'_>,
        facts: &dyn Facts,
        last_delivery_id: &mut DeliveryId,
        handed: &mut Handed,
    ) -> Result<(), LeaseStop> {
        let seq = self.position;
        if seq > call.request.last_seq {
            return Err(LeaseStop::NothingReady);
        }
        if self.skip_at_position() {
            return Ok(());
        }
        if call.left_behind || !self.has_room(call.rules) {
            return Err(LeaseStop::PassedOverFull);
        }
        if self.is_far_ahead(call.rules) {
            return Err(LeaseStop::AckedAheadFull);
        }
        if facts.due_of(seq).is_some_and(|due| self.is_delayed(due, seq)) {
            self.advance_to(seq.next());
            self.delayed += 1;
            return Ok(());
        }
        let Some(fact) = facts.fact(seq) else { return Err(LeaseStop::FactsMissing { seq }) };
        if fact.has_expired(call.request.now.cluster) {
            self.advance_to(seq.next());
            self.expire(seq, DeliveryId::ZERO, handed);
            return Ok(());
        }
        let must_wait = self.must_wait(fact.key_hash, seq, call.before);
        if must_wait && !call.request.may_pass_over {
            return Err(LeaseStop::PassedOverFull);
        }
        if !must_wait && !call.has_room_for(fact.size_bytes) {
            return Err(LeaseStop::TooLarge { size_bytes: fact.size_bytes });
        }
        let is_replay = seq < self.replay_end;
        let entry = if is_replay { Entry::replayed(fact) } else { Entry::new(fact, ClusterTime::ZERO) };
        self.advance_to(seq.next());
        if must_wait {
            self.pass_over(seq, entry, call.rules);
            return Ok(());
        }
        self.entries.insert(seq, entry);
        self.join_key(fact.key_hash, seq);
        self.grant(seq, call, last_delivery_id, handed);
        if is_replay {
            // What stood at the head of its key stands behind it now, and leaves with it or waits for it.
            self.unlock_next(fact.key_hash, seq, call);
        }
        Ok(())
    }

    /// Lets the message of a key behind one that this call leased, or that expired, be leased by this call too: what stands
    /// before it is leased by this call. Not one that is delivered alone: it waits for those.
    fn unlock_next(&mut self, key: KeyHash, seq: Seq, call: &mut Call<'_>) {
        if let Some(next) = self.next_of_key(key, seq)
            && self.packed.first_of(key).is_none_or(|packed| next < packed)
            && let Some(entry) = self.entries.get(&next).filter(|entry| entry.is_waiting() && !entry.alone)
            && let place = (entry.fell_due(), next)
            && self.ready.insert(place)
        {
            call.unlocked.push(place);
        }
    }

    /// Books a message that has lost its worth.
    fn expire(&mut self, seq: Seq, previous: DeliveryId, handed: &mut Handed) {
        let reason = DropReason::Ttl;
        self.dropped_by[usize::from(reason.number())] += u64::from(!Mutant::DropNotCounted.is_on());
        handed.dropped.push(Dropped { seq, reason, previous });
    }

    fn grant(&mut self, seq: Seq, call: &mut Call<'_>, last_delivery_id: &mut DeliveryId, handed: &mut Handed) {
        *last_delivery_id = last_delivery_id.next();
        let delivery_id = *last_delivery_id;
        let member = call.request.member;
        let deadline = call.request.now.lease.after_ms(call.rules.lease_ms);
        let ordered = self.order == Order::Key;
        let key = self.entry(seq).key_hash;
        self.make_unready(seq);
        if self.keyed.remove(&(key, seq)) {
            self.leased_keys.insert((key, seq));
        }
        let (grant, granted_at) = (call.request.grant, call.request.granted_at);
        let (tenure, commit_low) = self.entries.tenures_mut().begin(Granted { member, grant, granted_at });
        let entry = self.entry_mut(seq);
        assert!(entry.is_waiting(), "P5: message {seq} is leased while it is {:?}", entry.state);
        assert!(entry.previous < delivery_id, "P10: delivery {delivery_id} of {seq} follows {}", entry.previous);
        entry.state = State::Leased(Lease { delivery_id, deadline, ordered, tenure, commit_low });
        let (attempt, cause, previous, size_bytes) = (entry.attempt, entry.cause, entry.previous, entry.size_bytes);
        if entry.alone {
            self.lone_leases.insert((member, seq));
        }
        self.deadlines.insert((deadline, seq));
        self.holders.insert((member, seq));
        if cause != Cause::First {
            self.retries_by[usize::from(cause.number())] += 1;
        }
        call.take(size_bytes);
        let source = self.source_of(seq);
        handed.leased.push(Leased { seq, delivery_id, attempt, cause, previous, size_bytes, deadline, source });
    }
}

impl<'a> Call<'a> {
    const fn new(request: &'a LeaseRequest, rules: &'a PathRules, before: DeliveryId) -> Self {
        let limits = request.limits;
        Self {
            request,
            rules,
            before,
            messages_left: limits.messages,
            bytes_left: limits.bytes,
            steps_left: limits.steps,
            may_exceed: limits.first_may_exceed_bytes,
            left_behind: false,
            unlocked: Vec::new(),
        }
    }

    fn has_room_for(&self, size_bytes: u32) -> bool {
        self.may_exceed || u64::from(size_bytes) <= self.bytes_left
    }

    fn take(&mut self, size_bytes: u32) {
        self.may_exceed = false;
        match self.bytes_left.checked_sub(u64::from(size_bytes)) {
            Some(bytes_left) => {
                self.bytes_left = bytes_left;
                self.messages_left -= 1;
            }
            // Larger than the window: it is delivered alone.
            None => self.messages_left = 0,
        }
    }
}
