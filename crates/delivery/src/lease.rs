//! Granting leases: what a member is given next.

use mortarmq_types::{Attempt, Cause, DeliveryId, KeyHash, LeaseTime, MemberId, Position, Seq};

use crate::{
    entry::{Entry, Lease, State},
    path_partition::PathPartition,
    rules::{Grant, Now, Order, PathRules},
};

/// What delivery must know of a message: 24 bytes, never its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The hash of its key, [`KeyHash::NONE`] without one.
    pub key_hash: KeyHash,
    /// Key, headers and value, in bytes.
    pub size_bytes: u32,
    /// When the message loses its worth, 0 = never. Nothing reads it yet.
    pub expires_at_ms: u64,
}

/// Where the facts of messages that were never offered come from: the partition's newest, or a stretch in the command.
pub trait Facts {
    /// The facts of a message; `None` beyond what is known, where the lease then stops.
    fn fact(&self, seq: Seq) -> Option<Fact>;
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
    /// The partition's last sequence.
    pub last_seq: Seq,
    /// The stamp of the batch.
    pub now: Now,
    /// The command that asks.
    pub granted_at: Position,
}

/// How much one call leases at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseLimits {
    /// Messages.
    pub messages: u32,
    /// Bytes of key, headers and value.
    pub bytes: u64,
    /// Messages looked at: leased, passed over, or made ready because their backoff ended.
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
}

/// Why a call leased no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseStop {
    /// There is nothing that could be leased now: a publish, a settle or a due retry changes that.
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
    /// As many unsettled messages were passed as the group allows: only these move on.
    PassedOverFull,
    /// As many leases are live as the group allows.
    InFlightFull,
}

/// What is left of a request while it is served.
struct Call<'a> {
    request: &'a LeaseRequest,
    rules: &'a PathRules,
    /// Deliveries of this call have larger numbers.
    before: DeliveryId,
    messages_left: u32,
    bytes_left: u64,
    steps_left: u32,
    may_exceed: bool,
    /// Messages that may be leased only because this call leased the one before them in their key.
    unlocked: Vec<Seq>,
}

impl PathPartition {
    /// Leases what is next: retries that are due, lowest first, then messages never offered, from the position on.
    ///
    /// The leases are pushed to `leased`, in the order in which the member is to be given them; within a key that is the
    /// order of the sequences. `last_delivery_id` is the number of the shard's latest delivery, 0 before the first; it is
    /// raised with every lease.
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
        leased: &mut Vec<Leased>,
    ) -> LeaseStop {
        if self.moving.is_some() {
            // What an operator moves is offered again when it stands where it is to be.
            return LeaseStop::NothingReady;
        }
        self.follow_order(rules.order);
        let mut call = Call::new(request, rules, *last_delivery_id);
        let stop = self.serve(&mut call, facts, last_delivery_id, leased);
        // What was unlocked and not taken waits again, for the messages that this call leased (P8).
        for seq in call.unlocked {
            self.ready.remove(&seq);
        }
        stop
    }

    fn serve(
        &mut self,
        call: &mut Call<'_>,
        facts: &dyn Facts,
        last_delivery_id: &mut DeliveryId,
        leased: &mut Vec<Leased>,
    ) -> LeaseStop {
        while let Some(&(due, seq)) = self.schedule.first()
            && due <= call.request.now.cluster
        {
            if call.steps_left == 0 {
                return LeaseStop::StepsSpent;
            }
            call.steps_left -= 1;
            self.retry_is_due(seq);
        }
        loop {
            if call.messages_left == 0 {
                return LeaseStop::LimitReached;
            }
            if call.rules.max_in_flight != 0 && self.in_flight() >= u64::from(call.rules.max_in_flight) {
                return LeaseStop::InFlightFull;
            }
            if call.steps_left == 0 {
                return LeaseStop::StepsSpent;
            }
            // While the path replays, what was not offered again comes before the retries above it (P8).
            let ready = self.ready.first().copied();
            let went_on = match ready.filter(|seq| *seq < self.position) {
                Some(seq) => self.lease_again(seq, call, last_delivery_id, leased),
                None => match (self.lease_new(call, facts, last_delivery_id, leased), ready) {
                    // Only what was offered moves on; nothing would, if it waited for what may not be offered.
                    (Err(LeaseStop::PassedOverFull), Some(seq)) => {
                        self.lease_again(seq, call, last_delivery_id, leased)
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

    /// Leases a message that was offered before.
    fn lease_again(
        &mut self,
        seq: Seq,
        call: &mut Call<'_>,
        last_delivery_id: &mut DeliveryId,
        leased: &mut Vec<Leased>,
    ) -> Result<(), LeaseStop> {
        let entry = self.entry(seq);
        let key = entry.key_hash;
        let size_bytes = entry.size_bytes;
        if !call.has_room_for(size_bytes) {
            return Err(LeaseStop::TooLarge { size_bytes });
        }
        self.grant(seq, call, last_delivery_id, leased);
        self.unlock_next(key, seq, call);
        Ok(())
    }

    /// Leases the message at the position, or passes it over because its key must wait. What is there already, or was
    /// settled since an operator moved the position back, is skipped.
    fn lease_new(
        &mut self,
        call: &mut Call<'_>,
        facts: &dyn Facts,
        last_delivery_id: &mut DeliveryId,
        leased: &mut Vec<Leased>,
    ) -> Result<(), LeaseStop> {
        let seq = self.position;
        if seq > call.request.last_seq {
            return Err(LeaseStop::NothingReady);
        }
        if self.skip_at_position() {
            return Ok(());
        }
        if self.passed_over() >= u64::from(call.rules.max_passed_over) {
            return Err(LeaseStop::PassedOverFull);
        }
        let Some(fact) = facts.fact(seq) else { return Err(LeaseStop::FactsMissing { seq }) };
        let must_wait = self.must_wait(fact.key_hash, seq, call.before);
        if !must_wait && !call.has_room_for(fact.size_bytes) {
            return Err(LeaseStop::TooLarge { size_bytes: fact.size_bytes });
        }
        let is_replay = seq < self.replay_end;
        self.entries.insert(seq, if is_replay { Entry::replayed(fact) } else { Entry::new(fact) });
        self.join_key(fact.key_hash, seq);
        self.advance_to(seq.next());
        if !must_wait {
            self.grant(seq, call, last_delivery_id, leased);
            if is_replay {
                // What stood at the head of its key stands behind it now, and leaves with it or waits for it.
                self.unlock_next(fact.key_hash, seq, call);
            }
        }
        Ok(())
    }

    /// Lets the message behind one that this call leased be leased by this call too.
    fn unlock_next(&mut self, key: KeyHash, seq: Seq, call: &mut Call<'_>) {
        if let Some(next) = self.next_of_key(key, seq)
            && self.entry(next).is_waiting()
        {
            self.ready.insert(next);
            call.unlocked.push(next);
        }
    }

    fn grant(&mut self, seq: Seq, call: &mut Call<'_>, last_delivery_id: &mut DeliveryId, leased: &mut Vec<Leased>) {
        *last_delivery_id = last_delivery_id.next();
        let delivery_id = *last_delivery_id;
        let member = call.request.member;
        let deadline = call.request.now.lease.after_ms(call.rules.lease_ms);
        let ordered = self.order == Order::Key;
        self.ready.remove(&seq);
        let entry = self.entry_mut(seq);
        let key = entry.key_hash;
        assert!(entry.is_waiting(), "P5: message {seq} is leased while it is {:?}", entry.state);
        assert!(entry.previous < delivery_id, "P10: delivery {delivery_id} of {seq} follows {}", entry.previous);
        let (grant, granted_at) = (call.request.grant, call.request.granted_at);
        entry.state = State::Leased(Lease { delivery_id, member, grant, deadline, ordered, granted_at });
        let (attempt, cause, previous, size_bytes) = (entry.attempt, entry.cause, entry.previous, entry.size_bytes);
        self.deadlines.insert((deadline, seq));
        self.holders.insert((member, seq));
        if self.has_queue(key) {
            self.leased_keys.insert((key, seq));
        }
        if cause != Cause::First {
            self.retries_by[usize::from(cause.number())] += 1;
        }
        call.take(size_bytes);
        leased.push(Leased { seq, delivery_id, attempt, cause, previous, size_bytes, deadline });
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
