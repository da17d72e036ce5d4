//! Members of groups: joining, settling, pulling, silence, leaving.

use mortarmq_node::{Answer, Failure, Request, Subscribe, Unsent};
use mortarmq_shard::{SettleCode, SettleItem, SettleKind, StartPolicy};
use mortarmq_types::{
    Cause, CommitIndex, ConnectionId, DeliveryId, MemberId, MonotonicTime, Position, TopicIncarnation,
};
use mortarmq_wire::ErrorCode;
use std::collections::{BTreeMap, BTreeSet};

use crate::groups::GroupOptions;
use crate::life::{Expect, Life, is_overdue};
use crate::record::{Acked, MemberRecord, PathName, PathRecord};
use crate::resumes::ComesAgain;

/// A subscription as its connection knows it.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    pub(crate) connection: ConnectionId,
    pub(crate) handle: u16,
    pub(crate) path: PathName,
    pub(crate) member: MemberId,
    /// Whether its join was answered.
    pub(crate) joined: bool,
    /// The window that was asked for last; nobody pushes beyond it.
    pub(crate) window: u64,
    pub(crate) pull: Option<OpenPull>,
    /// What a resume can bring again. None on a member's first subscription.
    pub(crate) comes_again: Option<ComesAgain>,
}

/// A pull that is not answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenPull {
    max_messages: u64,
    max_bytes: u32,
    begun_step: u64,
    came: u64,
    pub(crate) deadline: MonotonicTime,
}

/// What a settle said of one delivery, and whether anything was said before that can have ended it.
#[derive(Clone, Debug)]
pub(crate) struct SettleSaid {
    path: PathName,
    delivery: Option<DeliveryId>,
    kind: SettleKind,
    said_before: bool,
}

impl Life {
    pub(crate) fn subscribe(&mut self, connection: ConnectionId) {
        let Some(topic) = self.random_topic() else { return };
        if self.subscriptions.len() >= 8 {
            return;
        }
        let options = self.random.pick(&self.groups.clone()).clone();
        let window = *self.random.pick(&[0, 1, 2, 5, 20, 200]);
        let options = self.options_of(topic, &options);
        self.join(connection, (topic, options.name.clone()), window, &options);
    }

    /// What a join of a group names: what nobody changed since it was made.
    pub(crate) fn options_of(&self, topic: TopicIncarnation, options: &GroupOptions) -> GroupOptions {
        let known = self.record.topics[&topic].paths.get(&options.name);
        known.map_or(options, |path| &path.options).clone()
    }

    pub(crate) fn join(
        &mut self,
        connection: ConnectionId,
        path: PathName,
        window: u16,
        options: &GroupOptions,
    ) -> MemberId {
        self.last_member += 1;
        let member = MemberId::new(self.last_member);
        let open = self.connections.get_mut(&connection).expect("it is open");
        open.last_subscription += 1;
        let handle = open.last_subscription;
        self.record.topic_mut(path.0).paths.entry(path.1.clone()).or_insert_with(|| PathRecord {
            options: options.clone(),
            owes_after: None,
            kept_at_join: BTreeMap::new(),
            acked: BTreeMap::new(),
            ack_sent: BTreeMap::new(),
            dead_sent: BTreeMap::new(),
            dead: BTreeSet::new(),
            deliveries: BTreeMap::new(),
        });
        self.record.members.insert(
            member,
            MemberRecord {
                path: path.clone(),
                session_ms: options.session_ms,
                heard_ms: self.record.awake_ms,
                leave_sent: false,
                window_max: u64::from(window),
                pulled: false,
                holds: BTreeSet::new(),
            },
        );
        let request = Request::Subscribe(Subscribe {
            topic: path.0,
            group: path.1.clone(),
            start: StartPolicy::Earliest,
            credit_messages: window,
            credit_bytes: u32::MAX,
            options: options.json.clone(),
            subscription: handle,
            member,
            secret: member.get(),
        });
        let window = u64::from(window);
        let (joined, pull, comes_again) = (false, None, None);
        self.subscriptions.push(Subscription { connection, handle, path, member, joined, window, pull, comes_again });
        self.send(connection, request, vec![Expect::Subscribe { member }]);
        member
    }

    /// Settles some of what was seen: mostly right, sometimes old, foreign or made up.
    pub(crate) fn settle_some(&mut self, connection: ConnectionId) {
        let Some(subscription) = self.random_subscription(Some(connection)) else { return };
        let mut live: Vec<DeliveryId> = self
            .record
            .seen
            .iter()
            .rev()
            .take(3000)
            .filter(|(id, seen)| seen.path == subscription.path && !self.record.can_have_ended(**id))
            .map(|(id, _)| *id)
            .collect();
        live.reverse();
        let count = self.random.between(1, 16);
        let mut ids: Vec<DeliveryId> = Vec::new();
        for _ in 0..count.min(live.len() as u64) {
            // Mostly in the order in which they came, as consumers do.
            let place = if self.random.one_in(4) { self.random.below(live.len() as u64) } else { 0 };
            ids.push(live.remove(usize::try_from(place).expect("small")));
        }
        if self.random.one_in(5) || ids.is_empty() {
            let all: Vec<DeliveryId> = self.record.seen.keys().rev().take(60).copied().collect();
            if !all.is_empty() {
                ids.push(*self.random.pick(&all));
            }
        }
        let kind = match self.random.below(13) {
            0 => SettleKind::Nack { delay_ms: 0, error: "not now".to_owned() },
            1 => SettleKind::Nack {
                delay_ms: u32::try_from(self.random.between(1, 2000)).expect("small"),
                error: String::new(),
            },
            2 => SettleKind::Release,
            3 => SettleKind::Extend,
            4 => SettleKind::DeadLetter { error: "never".to_owned() },
            _ => SettleKind::Ack,
        };
        self.settle(&subscription, &ids, &kind);
    }

    pub(crate) fn settle(&mut self, subscription: &Subscription, ids: &[DeliveryId], kind: &SettleKind) {
        let mut items: Vec<SettleItem> = Vec::new();
        let mut said = Vec::new();
        for id in ids {
            let seen = self.record.seen[id].clone();
            let (partition, seq) = seen.place;
            said.push(self.say(&subscription.path, *id, kind));
            match items.last_mut() {
                Some(last)
                    if last.partition == partition
                        && last.first_seq.plus(u64::from(last.count)) == seq
                        && last.first_delivery.plus(u64::from(last.count)) == *id =>
                {
                    last.count += 1;
                }
                _ => items.push(SettleItem {
                    partition,
                    first_seq: seq,
                    first_delivery: *id,
                    count: 1,
                    kind: kind.clone(),
                }),
            }
        }
        if self.random.one_in(20) || items.is_empty() {
            let first_delivery = self.unknown_delivery();
            let partition = mortarmq_types::Partition::new(u16::try_from(self.random.below(5)).expect("small"));
            let first_seq = mortarmq_types::Seq::new(self.random.below(9));
            items.push(SettleItem { partition, first_seq, first_delivery, count: 1, kind: kind.clone() });
            let path = subscription.path.clone();
            said.push(SettleSaid { path, delivery: None, kind: kind.clone(), said_before: true });
        }
        let request = Request::Settle { subscription: subscription.handle, items };
        let expect = Expect::Settle { said, sent_ms: self.record.awake_ms };
        self.send(subscription.connection, request, vec![expect]);
    }

    /// Notes what is said before it is sent: whether it is answered or not, it may come true.
    fn say(&mut self, path: &PathName, id: DeliveryId, kind: &SettleKind) -> SettleSaid {
        let seen = self.record.seen.get_mut(&id).expect("a delivery that arrived");
        let said_before = seen.said.ack || seen.said.nack || seen.said.release || seen.said.dead;
        if seen.path == *path {
            let place = seen.place;
            match kind {
                SettleKind::Ack => {
                    seen.said.ack = true;
                    self.record.path_mut(path).ack_sent.entry(place).or_default().insert(id);
                }
                SettleKind::Nack { .. } => seen.said.nack = true,
                SettleKind::Release => seen.said.release = true,
                SettleKind::Extend => {}
                SettleKind::DeadLetter { .. } => {
                    seen.said.dead = true;
                    self.record.path_mut(path).dead_sent.entry(place).or_default().insert(id);
                }
                SettleKind::Hold { .. } | SettleKind::Resume => unreachable!("what only the broker says"),
            }
        }
        SettleSaid { path: path.clone(), delivery: Some(id), kind: kind.clone(), said_before }
    }

    pub(crate) fn pull(&mut self) {
        let Some(subscription) = self.random_subscription(None) else { return };
        let max_messages = u16::try_from(self.random.between(1, 10)).expect("small");
        let wait_ms =
            if self.random.one_in(3) { 0 } else { u16::try_from(self.random.between(1, 3000)).expect("small") };
        let max_bytes =
            if self.random.one_in(4) { u32::try_from(self.random.between(1, 300)).expect("small") } else { 0 };
        let min_bytes = if self.random.one_in(4) { 200 } else { 0 };
        let step = self.step;
        let deadline = self.rig.now.monotonic.after_ms(u64::from(wait_ms));
        let found = self.subscription_mut(subscription.member).expect("it was just picked");
        if found.pull.is_some() {
            return;
        }
        found.pull =
            Some(OpenPull { max_messages: u64::from(max_messages), max_bytes, begun_step: step, came: 0, deadline });
        self.hear(subscription.member);
        self.record.members.get_mut(&subscription.member).expect("every member is recorded").pulled = true;
        let handle = subscription.handle;
        let request = Request::Pull { subscription: handle, max_messages, max_bytes, min_bytes, wait_ms };
        self.send(subscription.connection, request, Vec::new());
    }

    pub(crate) fn heartbeat_some(&mut self) {
        for subscription in self.subscriptions.clone() {
            if subscription.joined && !self.random.one_in(4) {
                self.heartbeat(&subscription);
            }
        }
    }

    pub(crate) fn heartbeat(&mut self, subscription: &Subscription) {
        self.hear(subscription.member);
        let request = Request::Heartbeat { subscription: subscription.handle, leave: false };
        self.send(subscription.connection, request, vec![Expect::Heartbeat { member: subscription.member }]);
    }

    /// A member spoke. Once it can have been lost it stays so: it may have been lost before it spoke.
    pub(crate) fn hear(&mut self, member: MemberId) {
        if !self.record.is_silent(member) {
            self.record.members.get_mut(&member).expect("every member is recorded").heard_ms = self.record.awake_ms;
        }
    }

    pub(crate) fn change_credit(&mut self) {
        let Some(subscription) = self.random_subscription(None) else { return };
        let messages: u16 = *self.random.pick(&[0, 1, 3, 10, 50]);
        let add = self.random.one_in(3);
        let before = if add { subscription.window } else { 0 };
        let found = self.subscription_mut(subscription.member).expect("it was just picked");
        found.window = before + u64::from(messages);
        let member = self.record.members.get_mut(&subscription.member).expect("every member is recorded");
        member.window_max = member.window_max.max(before + u64::from(messages));
        let request = Request::Credit { subscription: subscription.handle, add, messages, bytes: u32::MAX };
        self.send(subscription.connection, request, vec![Expect::Credit { member: subscription.member }]);
    }

    pub(crate) fn leave(&mut self) {
        let Some(subscription) = self.random_subscription(None) else { return };
        self.leave_as(&subscription);
    }

    pub(crate) fn leave_as(&mut self, subscription: &Subscription) {
        let member = self.record.members.get_mut(&subscription.member).expect("every member is recorded");
        member.leave_sent = true;
        self.record.lossy = true;
        self.record.reach("member left");
        let request = Request::Heartbeat { subscription: subscription.handle, leave: true };
        self.send(subscription.connection, request, vec![Expect::Leave { member: subscription.member }]);
        if let Some(found) = self.subscription_mut(subscription.member) {
            found.joined = false;
        }
    }

    /// Takes deliveries: some cannot be written to their connection and are given back.
    pub(crate) fn absorb_deliveries(&mut self) {
        for (connection, handle, delivery) in std::mem::take(&mut self.rig.deliveries) {
            let found =
                self.subscriptions.iter_mut().find(|held| (held.connection, held.handle) == (connection, handle));
            let Some(subscription) = found else {
                panic!("a delivery for subscription {handle} of {connection:?}, which nobody made")
            };
            if let Some(pull) = &mut subscription.pull {
                pull.came += 1;
            }
            if self.record.seen.contains_key(&delivery.delivery_id) {
                self.absorb_again((connection, handle), &delivery);
                continue;
            }
            let subscription = subscription.clone();
            let late = delivery.send_before <= self.rig.now.monotonic;
            self.record.deliver(self.rig.now.monotonic, &subscription, &delivery);
            if late || self.random.one_in(60) {
                self.record.seen.get_mut(&delivery.delivery_id).expect("just taken in").said.release = true;
                let (partition, seq, delivery_id) = (delivery.partition, delivery.seq, delivery.delivery_id);
                let unsent = vec![Unsent { partition, seq, delivery_id }];
                self.rig.node.handle_unsent(self.rig.now, connection, handle, unsent);
                self.record.reach("unsent");
            }
        }
    }

    pub(crate) fn absorb_pulls(&mut self) {
        for (connection, handle, result) in std::mem::take(&mut self.rig.pulls) {
            let step = self.step;
            let found =
                self.subscriptions.iter_mut().find(|held| (held.connection, held.handle) == (connection, handle));
            let Some(subscription) = found else { panic!("the end of a pull that nobody made") };
            let pull = subscription.pull.take().expect("a pull ends once");
            let (max, begun, came) = (pull.max_messages, pull.begun_step, pull.came);
            let is_alone = subscription.comes_again.is_none();
            let (member, window) = (subscription.member, self.record.members[&subscription.member].window_max);
            match result {
                Ok(count) => {
                    let count = u64::from(count);
                    assert!(count <= max && count <= came, "a pull of {max} ends with {count}, {came} came");
                    assert!(window > 0 || !is_alone || count == came, "a pull ends with {count}, {came} came");
                    if count > 0 && step > begun + 1 {
                        self.record.reach("pull filled later");
                    }
                    if count == 0 {
                        self.record.reach("pull ended empty");
                    }
                }
                Err(failure) if is_overdue(&failure) => self.record.lossy = true,
                Err(failure) if failure.code == ErrorCode::MessageExceedsCredit => {
                    assert!(pull.max_bytes > 0 && (came == 0 || window > 0 || !is_alone), "{pull:?}: {failure:?}");
                    self.record.reach("pull too small");
                }
                Err(failure) => self.judge_gone(member, &failure),
            }
        }
    }

    pub(crate) fn take_consumer(
        &mut self,
        connection: ConnectionId,
        expect: Expect,
        position: Position,
        result: Result<Answer, Failure>,
    ) {
        match (expect, result) {
            (Expect::Subscribe { member }, Ok(Answer::Subscribed { member: made, .. })) => {
                assert_eq!(member, made);
                let path = self.record.members[&member].path.clone();
                self.look_at_retention();
                let kept = self.record.topics[&path.0].kept.clone();
                let joined = self.record.path_mut(&path);
                if joined.owes_after.is_none() {
                    (joined.owes_after, joined.kept_at_join) = (Some(position.commit_index), kept);
                }
                self.subscription_mut(member).expect("its connection is open").joined = true;
            }
            (Expect::Resume { member, is_mine }, result) => self.judge_resume(member, is_mine, result),
            (Expect::Subscribe { member }, Err(failure)) => {
                let path = self.record.members[&member].path.clone();
                let deleted = self.record.topics[&path.0].delete_sent && failure.code == ErrorCode::UnknownTopic;
                // It was sent before the group was given another setting.
                let is_other = failure.code == ErrorCode::GroupExistsMismatch && self.changed_groups.contains(&path);
                self.subscriptions.retain(|held| !is_other || held.member != member);
                assert!(deleted || is_other, "a join was answered {failure:?}");
            }
            (Expect::Settle { said, sent_ms }, Ok(Answer::Settled(codes))) => {
                assert_eq!(said.len(), codes.len());
                for (said, code) in said.iter().zip(codes) {
                    self.judge_code(said, code, sent_ms, position.commit_index);
                }
            }
            // Whoever was lost or left has no subscription: nothing happened.
            (Expect::Settle { said, .. }, Err(failure)) => {
                let path = &said[0].path;
                let all = self.record.members.iter().filter(|(_, found)| found.path == *path);
                let can_be_gone = all.clone().any(|(id, found)| found.leave_sent || self.record.is_silent(*id));
                let deleted = self.record.topics[&path.0].delete_sent;
                let is_right = matches!(failure.code, ErrorCode::UnknownMember | ErrorCode::UnknownGroup);
                assert!(is_right && (can_be_gone || deleted), "a settle was answered {failure:?} on {connection:?}");
            }
            (Expect::Credit { .. }, Ok(Answer::Credit(_)))
            | (Expect::Heartbeat { .. } | Expect::Leave { .. }, Ok(Answer::Heartbeat)) => {}
            (Expect::Credit { member } | Expect::Heartbeat { member } | Expect::Leave { member }, Err(failure)) => {
                self.judge_gone(member, &failure)
            }
            (expect, result) => panic!("{expect:?} was answered {result:?}"),
        }
    }

    pub(crate) fn judge_gone(&mut self, member: MemberId, failure: &Failure) {
        let found = &self.record.members[&member];
        let deleted = self.record.topics[&found.path.0].delete_sent;
        let can_be_gone = found.leave_sent || deleted || self.record.is_silent(member);
        let is_right = matches!(failure.code, ErrorCode::UnknownMember | ErrorCode::UnknownGroup);
        assert!(is_right && can_be_gone, "{member:?} is there, and was answered {failure:?}");
        if let Some(subscription) = self.subscription_mut(member) {
            subscription.joined = false;
        }
    }

    /// Wire rule 3: what one item of a settle was answered.
    fn judge_code(&mut self, said: &SettleSaid, code: SettleCode, sent_ms: u64, commit_index: CommitIndex) {
        let Some(id) = said.delivery else {
            assert_ne!(code, SettleCode::Done, "a delivery that never was is settled");
            return;
        };
        let seen = self.record.seen[&id].clone();
        if seen.path != said.path {
            assert_ne!(code, SettleCode::Done, "{id} belongs to {:?} and was settled on {:?}", seen.path, said.path);
            return;
        }
        let total_ms = self.record.total_ms;
        let path = self.record.path(&said.path);
        let acked = path.acked.get(&seen.place).copied();
        if code == SettleCode::Done {
            // Answers on two connections may come in another order than their commands.
            let acked_before = acked.is_some_and(|acked| acked.commit_index < commit_index);
            match said.kind {
                SettleKind::Ack => {
                    assert!(acked.is_none_or(|acked| acked.by == id), "P6: {id} is acked after {acked:?}");
                    let younger = path.deliveries[&seen.place].range(id.next()..).next();
                    assert_eq!(younger, None, "P5: {id} is acked, and its message was delivered again");
                    let path = self.record.path_mut(&said.path);
                    assert!(!path.dead.contains(&(seen.place, id)), "P6: {id} is acked, and its message died by it");
                    path.acked.entry(seen.place).or_insert(Acked { by: id, at_ms: total_ms, commit_index });
                    if seen.cause == Cause::Redriven {
                        self.record.reach("redriven and acked");
                    }
                }
                SettleKind::Extend => {
                    assert!(!acked_before, "P6: {id} is extended after its ack");
                    // It runs as long as the group's setting says by now.
                    let lease_ms = self.record.path(&said.path).options.lease_ms;
                    let found = self.record.seen.get_mut(&id).expect("looked at above");
                    found.lease_ms = found.lease_ms.min(lease_ms);
                    found.since_ms = found.since_ms.max(sent_ms);
                }
                // Once a later delivery is acked, only the repeat of what ended this one is answered so (rule 3).
                SettleKind::DeadLetter { .. } => {
                    assert!(acked.is_none_or(|acked| acked.by > id), "P6: {id} died after {acked:?}");
                    let is_redriven = seen.cause == Cause::Redriven;
                    let path = self.record.path_mut(&said.path);
                    if path.dead.insert((seen.place, id)) {
                        self.record.reach(if is_redriven { "redriven and dead again" } else { "dead" });
                    }
                }
                SettleKind::Hold { .. } | SettleKind::Resume => unreachable!("what only the broker says"),
                SettleKind::Nack { .. } | SettleKind::Release => {
                    let is_repeat = said.said_before && acked.is_some_and(|acked| acked.by > id);
                    assert!(!acked_before || is_repeat, "P6: {id} is given back after {acked:?}");
                }
            }
            return;
        }
        let repeated = acked.is_some_and(|acked| acked.by == id && total_ms - acked.at_ms < 60_000);
        assert!(!(repeated && said.kind == SettleKind::Ack), "rule 3: a repeated ack of {id} was answered {code:?}");
        let can_have_ended = seen.stale || said.said_before || self.record.can_have_ended_by_itself(id);
        assert!(can_have_ended, "{id} is live, and {:?} was answered {code:?}: {seen:?}", said.kind);
        self.record.reach(if code == SettleCode::Stale { "settle stale" } else { "settle unknown" });
    }

    pub(crate) fn subscription_mut(&mut self, member: MemberId) -> Option<&mut Subscription> {
        self.subscriptions.iter_mut().find(|held| held.member == member)
    }

    fn random_subscription(&mut self, connection: Option<ConnectionId>) -> Option<Subscription> {
        let joined: Vec<Subscription> = self
            .subscriptions
            .iter()
            .filter(|held| held.joined && connection.is_none_or(|wanted| held.connection == wanted))
            .cloned()
            .collect();
        if joined.is_empty() { None } else { Some(self.random.pick(&joined).clone()) }
    }
}
