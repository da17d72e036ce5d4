//! What becomes of a request: a command in the open batch, an answer at once, or a refusal before anything is proposed.

use mortarmq_shard::command::{CreateTopic, EndMember, ITEMS_MAX, Settle};
use mortarmq_shard::{Command, JoinGroup, Setting, SettleCode, SettleItem, SettleKind, StartPolicy};
use mortarmq_types::{ConnectionId, MemberId, Mutant, PathId, Seq};
use mortarmq_wire::{ErrorCode, Outcome};

use crate::config::Now;
use crate::node::{Node, Parked};
use crate::open_batch::{NewSession, WaiterKind};
use crate::options::{self, GroupOptions};
use crate::pulls::Pull;
use crate::refusal::{back_pressure, failure, unknown};
use crate::reply::{Answer, CreditGranted, Failure, Reply};
use crate::request::{Request, Subscribe, Unsent};
use crate::resume::secret_hash;

impl Node {
    /// Takes one request in.
    pub(crate) fn admit(&mut self, now: Now, connection: ConnectionId, request: Request) {
        if let Request::Pull { subscription, max_messages, max_bytes, min_bytes, wait_ms } = request {
            let wanted = PullWanted { subscription, max_messages, max_bytes, min_bytes, wait_ms };
            self.admit_pull(now, connection, &wanted);
            return;
        }
        let places = request.places();
        let publishes = matches!(request, Request::Publish(_));
        let Some(slot) = self.connections.take_slots(connection, places, publishes) else { return };
        let Some(request) = self.forward(now, (connection, slot), request) else { return };
        self.admit_at(now, connection, slot, request);
    }

    /// Takes a request in whose place in the order of answers is known.
    pub(crate) fn admit_at(&mut self, now: Now, connection: ConnectionId, slot: u64, request: Request) {
        let places = request.places();
        if let Some(failure) = self.refuse_early(&request) {
            self.answer_all(connection, slot, places, &failure);
            if let (true, Request::Publish(run)) = (Mutant::RefusedAppended.is_on(), &request) {
                self.open.add_run(run, WaiterKind::Nobody);
            }
            return;
        }
        if self.overflow.is_empty() && !self.open.is_full() && !self.hand_overs.is_giving() {
            self.add_request(now, connection, slot, request);
            return;
        }
        let bytes = (request.held_bytes() + size_of::<Parked>() - size_of::<Request>()) as u64;
        self.overflow_bytes += bytes;
        self.overflow.push_back(Parked { connection, slot, request, bytes, since: now.monotonic });
    }

    /// Requests that waited for room join the batch that opens.
    pub(crate) fn admit_overflow(&mut self, now: Now) {
        while !self.open.is_full() && !self.hand_overs.is_giving() {
            let Some(parked) = self.overflow.pop_front() else { return };
            self.overflow_bytes -= parked.bytes;
            self.add_request(now, parked.connection, parked.slot, parked.request);
        }
    }

    /// Leases that a connection could not send are given back; they do not count (failure rule 7).
    pub fn handle_unsent(&mut self, now: Now, connection: ConnectionId, subscription: u16, unsent: Vec<Unsent>) {
        self.turn(now);
        let Some(open) = self.connections.get_mut(connection) else { return };
        let Some((path, _)) = open.subscriptions.get(&subscription).copied() else { return };
        self.give_back(path, &unsent);
    }

    pub(crate) fn give_back(&mut self, path: PathId, unsent: &[Unsent]) {
        self.settle_by_itself(path, unsent.iter().map(|lease| (*lease, SettleKind::Release)));
    }

    /// Adds what the broker itself says about deliveries of a path.
    pub(crate) fn settle_by_itself(&mut self, path: PathId, said: impl Iterator<Item = (Unsent, SettleKind)>) {
        let item = |(lease, kind): (Unsent, SettleKind)| SettleItem {
            partition: lease.partition,
            first_seq: lease.seq,
            first_delivery: lease.delivery_id,
            count: 1,
            kind,
        };
        if !self.leads {
            // The next leader knows nothing of it: those leases run to their end.
            return;
        }
        let mut said = said.map(item).peekable();
        while said.peek().is_some() {
            let items = said.by_ref().take(ITEMS_MAX).collect();
            self.open.add(&Command::Settle(Settle { path, items }), WaiterKind::Nobody);
        }
    }

    /// What is refused before it is proposed. Nothing of it is stored, and a retry is safe (P2).
    fn refuse_early(&mut self, request: &Request) -> Option<Failure> {
        let is_local = matches!(request, Request::Ping | Request::Refused(_) | Request::Credit { .. });
        if !is_local && let Some(failure) = self.refusal_to_serve() {
            return Some(failure);
        }
        let Request::Publish(run) = request else { return None };
        if let Some(failure) = self.refusal_for_space() {
            return Some(failure);
        }
        let pending = self.overflow_bytes + self.open.len() as u64 + run.commands.len() as u64;
        let pending = pending + self.proposed.iter().map(|batch| batch.bytes).sum::<u64>();
        if pending > self.config.max_pending_bytes {
            self.refused_back_pressure += u64::from(run.count);
            return Some(back_pressure("too much is waiting for the journal; nothing was stored: retry"));
        }
        if self.unwritten_bytes > self.config.unwritten_bytes_max {
            self.refused_back_pressure += u64::from(run.count);
            return Some(back_pressure("the segment writer is behind; nothing was stored: retry"));
        }
        None
    }

    fn add_request(&mut self, now: Now, connection: ConnectionId, slot: u64, request: Request) {
        match request {
            Request::Ping => self.answer(connection, slot, Ok(Answer::Pong)),
            Request::Refused(failure) => self.answer(connection, slot, Err(failure)),
            Request::Publish(run) => match self.refusal_for_space() {
                // It waited for room in a batch meanwhile.
                Some(failure) => self.answer_all(connection, slot, u64::from(run.count), &failure),
                None if Mutant::DedupBeforeCommit.is_on() && self.answers_staged(connection, slot, &run) => {}
                None => self.open.add_run(&run, WaiterKind::Connection { connection, slot }),
            },
            Request::Declare { name, partitions, options } => match options::topic(&options, partitions) {
                Ok(settings) => {
                    let command = Command::CreateTopic(CreateTopic { name, settings });
                    self.open.add(&command, WaiterKind::Connection { connection, slot });
                }
                Err(failure) => self.answer(connection, slot, Err(failure)),
            },
            Request::Delete { name } => {
                self.open.add(&Command::DeleteTopic { name }, WaiterKind::Connection { connection, slot });
            }
            Request::Metadata { names } => self.queries.ask_metadata(connection, slot, names),
            Request::Subscribe(subscribe) => self.add_subscribe(now, connection, slot, subscribe),
            Request::Settle { items, .. } if deliveries(&items) > ITEMS_MAX as u64 || items.len() > ITEMS_MAX => {
                // A log that holds such a command could not be read again.
                let text = format!("a settle names at most {ITEMS_MAX} deliveries");
                self.answer(connection, slot, Err(Failure::new(ErrorCode::MalformedPayload, text)));
            }
            Request::Settle { subscription, items } => {
                let Some((path, _)) = self.subscription(connection, slot, subscription) else { return };
                let mut waiter = WaiterKind::Connection { connection, slot };
                if Mutant::AckBeforeCommit.is_on() && self.would_ack(path, &items) {
                    let codes = vec![SettleCode::Done; deliveries(&items) as usize];
                    self.answer(connection, slot, Ok(Answer::Settled(codes)));
                    waiter = WaiterKind::Nobody;
                }
                self.open.add(&Command::Settle(Settle { path, items }), waiter);
            }
            Request::Credit { subscription, add, messages, bytes } => {
                let Some(key) = self.subscription(connection, slot, subscription) else { return };
                let result = self.set_credit(key, add, messages, bytes);
                self.answer(connection, slot, result);
            }
            Request::Heartbeat { subscription, leave } => {
                let Some(key) = self.subscription(connection, slot, subscription) else { return };
                self.heartbeat(now, connection, slot, subscription, key, leave);
            }
            Request::Pull { .. } => unreachable!("a pull takes no place in the order and is parked by its caller"),
        }
    }

    fn add_subscribe(&mut self, now: Now, connection: ConnectionId, slot: u64, subscribe: Subscribe) {
        let GroupOptions { settings, start, resume } = match options::group(&subscribe.options) {
            Ok(read) => read,
            Err(failure) => return self.answer(connection, slot, Err(failure)),
        };
        if let Some(resume) = resume {
            return self.add_resume(now, connection, slot, subscribe, resume);
        }
        let names_none = matches!(&subscribe.start, StartPolicy::At(places) if places.is_empty());
        if start.is_none() && names_none {
            let text = "start_policy 2 needs the sequences: give \"start\": {\"PARTITION\": SEQUENCE} in the options";
            return self.answer(connection, slot, Err(Failure::new(ErrorCode::InvalidTopic, text)));
        }
        let join = JoinGroup {
            topic: subscribe.topic,
            group: subscribe.group,
            settings,
            start: start.unwrap_or(subscribe.start),
            member: subscribe.member,
            secret_hash: secret_hash(subscribe.secret),
        };
        let session = NewSession {
            subscription: subscribe.subscription,
            secret: subscribe.secret,
            credit_messages: subscribe.credit_messages,
            credit_bytes: subscribe.credit_bytes,
            resumed: None,
        };
        self.open.add(&Command::JoinGroup(join), WaiterKind::Join { connection, slot, session });
    }

    fn heartbeat(
        &mut self,
        now: Now,
        connection: ConnectionId,
        slot: u64,
        subscription: u16,
        key: (PathId, MemberId),
        leave: bool,
    ) {
        let (path, member) = key;
        if !leave {
            if !self.sessions.renew(key, now.monotonic) {
                return self.answer(connection, slot, Ok(Answer::Heartbeat));
            }
            // Its end is under way and not committed. OK would promise a session that is over with the next batch, and a
            // refusal would rest on what may still be lost. Behind that end nothing is left to end, and the log says so.
            let command = Command::EndMember(EndMember { path, member, lost: true });
            return self.open.add(&command, WaiterKind::Connection { connection, slot });
        }
        if Mutant::LeaveKeepsQueue.is_on() {
            self.sends.take_for_fresh((connection, subscription));
        } else {
            // Nobody is to be sent what waits for it: its leases go back, and the number may stand for another member soon.
            self.end_subscription(key);
        }
        if let Some(open) = self.connections.get_mut(connection) {
            open.subscriptions.remove(&subscription);
        }
        if let Some(session) = self.sessions.get_mut(key) {
            // What is leased to it from here on goes back with the rest when it is gone.
            session.connection = None;
        }
        let command = Command::EndMember(EndMember { path, member, lost: false });
        self.open.add(&command, WaiterKind::Connection { connection, slot });
    }

    /// Whether these are acks of live leases, as far as the state knows now: what [`Mutant::AckBeforeCommit`] confirms.
    fn would_ack(&self, path: PathId, items: &[SettleItem]) -> bool {
        let Some(path) = self.shard.state().paths.get(&path) else { return false };
        items.iter().all(|item| {
            let Some(partition) = path.partitions.get(item.partition.index()) else { return false };
            let is_live = |place: u64| {
                let entry = partition.lease_of(Seq::new(item.first_seq.get() + place));
                let wanted = item.first_delivery.get() + place;
                entry.and_then(|entry| entry.lease()).is_some_and(|lease| lease.delivery_id.get() == wanted)
            };
            item.kind == SettleKind::Ack && (0..u64::from(item.count)).all(is_live)
        })
    }

    /// The path and member of a subscription; answers the request if there is none.
    fn subscription(&mut self, connection: ConnectionId, slot: u64, subscription: u16) -> Option<(PathId, MemberId)> {
        let found = self.connections.get_mut(connection)?.subscriptions.get(&subscription).copied();
        if found.is_none() {
            self.answer(connection, slot, Err(unknown_member(subscription)));
        }
        found
    }

    fn set_credit(&mut self, key: (PathId, MemberId), add: bool, messages: u16, bytes: u32) -> Result<Answer, Failure> {
        let (path, member) = key;
        let state = self.shard.state();
        let found = state.paths.get(&path).and_then(|path| Some((path, path.members.get(&member)?)));
        let Some((of_path, held)) = found else { return Err(failure(&mortarmq_shard::Refusal::UnknownMember)) };
        let group = |setting| of_path.settings.get(setting);
        let of_group = !add && messages == u16::MAX;
        let bytes_of_group = !add && bytes == u32::MAX;
        let messages = if messages == u16::MAX { group(Setting::CreditCount) } else { u64::from(messages) };
        let bytes = if bytes == u32::MAX { group(Setting::CreditBytes) } else { u64::from(bytes) };
        let Some(session) = self.sessions.get_mut(key) else {
            return Err(failure(&mortarmq_shard::Refusal::UnknownMember));
        };
        let (old_messages, old_bytes) =
            if add { (u64::from(session.window_messages), session.window_bytes) } else { (0, 0) };
        // What the wire cannot say back is not granted: 16 and 32 bits less the values that mean "the group's".
        let messages = u32::try_from((old_messages + messages).min(WINDOW_MAX_MESSAGES)).expect("bounded");
        session.set_messages(messages, of_group);
        session.set_bytes(old_bytes.saturating_add(bytes).min(WINDOW_MAX_BYTES), bytes_of_group);
        session.credit_epoch += 1;
        self.attention.insert(path);
        Ok(Answer::Credit(CreditGranted {
            window_messages: u16::try_from(session.window_messages).expect("bounded above"),
            window_bytes: u32::try_from(session.window_bytes).expect("bounded above"),
            held_messages: u16::try_from(held.held_messages).unwrap_or(u16::MAX),
            held_bytes: u32::try_from(held.held_bytes).unwrap_or(u32::MAX),
            credit_epoch: session.credit_epoch,
        }))
    }

    fn admit_pull(&mut self, now: Now, connection: ConnectionId, wanted: &PullWanted) {
        let subscription = wanted.subscription;
        let Some(open) = self.connections.get_mut(connection) else { return };
        let Some((path, member)) = open.subscriptions.get(&subscription).copied() else {
            return self.end_pull(connection, subscription, Err(unknown_member(subscription)));
        };
        if let Some(failure) = self.refusal_to_serve() {
            return self.end_pull(connection, subscription, Err(failure));
        }
        self.sessions.renew((path, member), now.monotonic);
        let pull = Pull {
            connection,
            subscription,
            path,
            member,
            max_messages: u32::from(wanted.max_messages),
            max_bytes: u64::from(wanted.max_bytes),
            min_bytes: u64::from(wanted.min_bytes),
            deadline: now.monotonic.after_ms(u64::from(wanted.wait_ms)),
            got_messages: 0,
            got_bytes: 0,
            proposed: None,
            looked: false,
            confirms: false,
        };
        match self.pulls.park(pull) {
            Some(_) => {
                self.attention.insert(path);
            }
            None => {
                let text = "this subscription has a pull open; wait for its answer";
                self.end_pull(connection, subscription, Err(Failure::new(ErrorCode::MaxWaitingPulls, text)));
            }
        }
    }

    pub(crate) fn answer(&mut self, connection: ConnectionId, slot: u64, result: Result<Answer, Failure>) {
        let reply = Reply { position: self.position(), result };
        self.connections.answer(connection, slot, reply);
    }

    pub(crate) fn answer_all(&mut self, connection: ConnectionId, slot: u64, places: u64, failure: &Failure) {
        for place in 0..places {
            self.answer(connection, slot + place, Err(failure.clone()));
        }
    }

    /// Answers those whose batch could not be proposed: nothing of it was stored.
    pub(crate) fn refuse_waiters(&mut self, waiters: Vec<crate::open_batch::Waiter>) {
        let failure =
            Failure::new(ErrorCode::ReadOnlyDegraded, "this node does not lead now; nothing was stored: retry");
        self.fail_waiters(waiters, &failure);
    }

    /// Answers those whose batch was proposed and whose result will not be known here (failure rule 6).
    pub(crate) fn forget_waiters(&mut self, waiters: Vec<crate::open_batch::Waiter>) {
        let text = "the result is not known; repeat with the same producer number: it is stored at most once";
        let mut failure = unknown(ErrorCode::QuorumLost, text);
        if Mutant::TimeoutRefused.is_on() {
            failure.outcome = Outcome::Refused;
        }
        self.fail_waiters(waiters, &failure);
    }

    fn fail_waiters(&mut self, waiters: Vec<crate::open_batch::Waiter>, failure: &Failure) {
        for waiter in waiters {
            match waiter.kind {
                WaiterKind::Nobody => {}
                WaiterKind::Connection { connection, slot } | WaiterKind::Join { connection, slot, .. } => {
                    self.answer_all(connection, slot, u64::from(waiter.commands), failure);
                }
                WaiterKind::Operator { query } | WaiterKind::Change { query, .. } => {
                    let text = "the change may be made or not: look before you ask again";
                    let message = if failure.outcome == Outcome::Unknown { text } else { &failure.message };
                    self.reply(query, Err(Failure { message: message.to_owned(), ..failure.clone() }));
                }
                WaiterKind::Letters { query } => {
                    let text = "the last of them may be done or not; ask again";
                    let message = if failure.outcome == Outcome::Unknown { text } else { &failure.message };
                    self.end_run(query, Failure { message: message.to_owned(), ..failure.clone() });
                }
                WaiterKind::Pull { pull_id } => {
                    if let Some(pull) = self.pulls.remove(pull_id) {
                        self.end_pull(pull.connection, pull.subscription, Err(failure.clone()));
                    }
                }
            }
        }
    }
}

/// Credit is told in 16 and 32 bits, whose largest values mean "the group's".
const WINDOW_MAX_MESSAGES: u64 = u16::MAX as u64 - 1;
const WINDOW_MAX_BYTES: u64 = u32::MAX as u64 - 1;

struct PullWanted {
    subscription: u16,
    max_messages: u16,
    max_bytes: u32,
    min_bytes: u32,
    wait_ms: u16,
}

fn deliveries(items: &[SettleItem]) -> u64 {
    items.iter().map(|item| u64::from(item.count)).sum()
}

fn unknown_member(subscription: u16) -> Failure {
    let text = format!("subscription {subscription} was not given on this connection, or has ended: subscribe again");
    Failure::new(ErrorCode::UnknownMember, text)
}
