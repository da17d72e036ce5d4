//! A consumer's side of a group: its member, what it holds, its settles and its one pull.
//!
//! A member outlives its connection: after a cut the consumer resumes it, names what it holds, and is sent again what it
//! does not. Where the broker has lost the member it joins anew, and what it held under the old one may still be settled
//! until the broker says that its lease is lost.

mod alive;
mod answers;
mod resume;

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use mortarmq_types::{CommitIndex, MemberId};
use mortarmq_wire::ops::{
    Credit, CreditMode, Heartbeat, HeartbeatState, Message, Pull, SettleKind, StartPolicy, Subscribe,
};
use mortarmq_wire::{List, Outcome};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use self::alive::Alive;
use self::resume::Identity;
use super::effects::{DoneResult, Effect, Effects};
use super::hand_over::HandOver;
use super::link::{Link, Sent};
use super::settles::{Item, Settles};
use super::topic::TopicUse;
use crate::backoff::Backoff;
use crate::delivery::Delivery;
use crate::errors::{ClientError, SettleError};
use crate::options::{ConsumerOptions, PullOptions, ReconnectOptions};
use crate::recording::Scribe;
use crate::settle::Home;

#[derive(Debug)]
pub(crate) struct Subscription {
    home: Home,
    topic: TopicUse,
    settings: Settings,
    member: Option<Member>,
    /// The member that the next SUB resumes; none before the first, and after the broker has lost it.
    identity: Option<Identity>,
    alive: Alive,
    /// Whether a SUB is in flight.
    is_requested: bool,
    /// Whether the last SUB asked for pushes.
    is_credit_asked: bool,
    /// Whether the broker has to be told of another window.
    is_credit_changed: bool,
    hand_over: HandOver,
    settles: Settles,
    /// Writes a history, if one is wanted; and since when what comes was asked for.
    scribe: Option<Scribe>,
    asked_ns: Option<u64>,
    /// When anything was asked for first.
    first_asked_ns: Option<u64>,
    /// What was granted up to here came of an earlier connection, and of nobody knows which pull.
    joined_at: CommitIndex,
    pull: Option<PullRequest>,
    heartbeat_at: Option<Instant>,
    /// The broker refused something for now: nothing but heartbeats is sent until then.
    retry_at: Option<Instant>,
    backoff: Backoff,
    refused_since: Option<Instant>,
    give_up_after: Option<Duration>,
    ready: Arc<Notify>,
    opened: Option<oneshot::Sender<DoneResult>>,
    closing: Option<Closing>,
    ended: Option<ClientError>,
    is_end_told: bool,
}

/// What a SUB says, each time.
#[derive(Debug)]
pub(crate) struct Settings {
    group: String,
    options: Vec<u8>,
    start: StartPolicy,
    credit_count: u16,
    credit_bytes: u32,
    is_renewing: bool,
    heartbeat_every: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    subscription_id: u16,
    member_id: MemberId,
    membership_epoch: u32,
    assignment_epoch: u32,
    is_pushed_to: bool,
}

#[derive(Debug)]
struct PullRequest {
    limits: PullOptions,
    is_sent: bool,
    reply: oneshot::Sender<DoneResult>,
}

#[derive(Debug, Default)]
struct Closing {
    is_leave_sent: bool,
    /// When it was asked for, in a history's time.
    call_ns: u64,
    reply: Option<oneshot::Sender<DoneResult>>,
}

/// What [`Subscription::next_delivery`] has.
#[derive(Debug)]
pub(crate) enum Next {
    Delivery(Box<Delivery>),
    Error(ClientError),
    End,
    Wait,
}

impl Settings {
    pub(crate) fn group(&self) -> &str {
        &self.group
    }

    pub(crate) fn new(group: &str, options: ConsumerOptions) -> Self {
        Self {
            group: group.to_owned(),
            start: options.start,
            credit_count: options.credit_messages.unwrap_or(Subscribe::GROUP_CREDIT_COUNT),
            credit_bytes: options.credit_bytes.unwrap_or(Subscribe::GROUP_CREDIT_BYTES),
            is_renewing: options.renew,
            heartbeat_every: Duration::from_millis(session_ms(&options.options_json) / 3),
            options: options.options_json.into_bytes(),
        }
    }
}

impl Subscription {
    pub(crate) fn new(
        home: Home,
        topic: String,
        settings: Settings,
        reconnect: &ReconnectOptions,
        scribe: Option<Scribe>,
        opened: oneshot::Sender<DoneResult>,
    ) -> Self {
        Self {
            home,
            topic: TopicUse::new(topic),
            settings,
            member: None,
            identity: None,
            alive: Alive::default(),
            is_requested: false,
            is_credit_asked: false,
            is_credit_changed: false,
            hand_over: HandOver::default(),
            settles: Settles::new(scribe.clone()),
            scribe,
            asked_ns: None,
            first_asked_ns: None,
            joined_at: CommitIndex::ZERO,
            pull: None,
            heartbeat_at: None,
            retry_at: None,
            backoff: Backoff::new(reconnect),
            refused_since: None,
            give_up_after: reconnect.give_up_after,
            ready: Arc::new(Notify::new()),
            opened: Some(opened),
            closing: None,
            ended: None,
            is_end_told: false,
        }
    }

    /// The topic, unless the consumer has ended.
    pub(crate) const fn open_topic(&mut self) -> Option<&mut TopicUse> {
        if self.ended.is_some() { None } else { Some(&mut self.topic) }
    }

    pub(crate) fn ready(&self) -> Arc<Notify> {
        Arc::clone(&self.ready)
    }

    /// Whether pushes and pull answers with this handle are for this consumer.
    pub(crate) fn is_known_as(&self, subscription_id: u16) -> bool {
        self.member.is_some_and(|member| member.subscription_id == subscription_id)
    }

    /// Sends what may be sent.
    pub(crate) fn pump(&mut self, link: &mut Link, effects: &mut Effects) {
        for item in self.hand_over.take_releases() {
            self.settles.push(item);
        }
        if self.hand_over.has_ready() {
            effects.wake(&self.ready);
        }
        if self.ended.is_some() {
            return;
        }
        let is_idle = self.settles.is_empty() && !self.is_requested;
        if self.member.is_none() && is_idle && self.closing.is_some() {
            return self.finish(effects);
        }
        let Some(topic_id) = self.topic.handle().filter(|_| link.is_up && self.retry_at.is_none()) else { return };
        let Some(member) = self.member else {
            if !self.is_requested {
                self.send_subscribe(topic_id, link, effects);
            }
            return;
        };
        if self.closing.is_some() {
            // Before anything is given back: the broker would push it here again.
            self.settings.credit_count = 0;
            self.is_credit_changed |= member.is_pushed_to;
        }
        if std::mem::take(&mut self.is_credit_changed) {
            self.send_credit(member, link);
        }
        if self.settles.wants_to_send() {
            let sent = self.settles.send(member.subscription_id, &mut link.out);
            sent.expect("1024 items with error texts of 1 KiB fit a frame");
            link.sent.push_back(Sent::Settle { subscription: self.home.subscription });
        }
        self.send_pull(member, &mut link.out);
        if let Some(closing) = &mut self.closing
            && self.settles.is_empty()
            && !closing.is_leave_sent
        {
            closing.is_leave_sent = true;
            member.heartbeat(HeartbeatState::Leave).encode(&mut link.out);
            link.sent.push_back(Sent::Leave { subscription: self.home.subscription });
        }
    }

    pub(crate) fn arrived(&mut self, message: &Message<'_>, now: Instant, effects: &mut Effects) {
        let mut delivery = Delivery::of(message, &self.home);
        if let Some(scribe) = &self.scribe {
            delivery.msg = scribe.message_id(&delivery);
            let is_sent_again = delivery.position.commit_index <= self.joined_at;
            let asked_ns = if is_sent_again { self.first_asked_ns } else { self.asked_ns };
            effects.tell(scribe.delivered(asked_ns.unwrap_or_default(), &delivery));
        }
        if self.closing.is_some() {
            self.settles.push(Item::of(&delivery, SettleKind::Release));
        } else {
            self.hand_over.arrived(delivery, now);
        }
    }

    pub(crate) fn next_delivery(&mut self) -> Next {
        if let Some(delivery) = self.hand_over.pop_ready() {
            return Next::Delivery(Box::new(delivery));
        }
        match &self.ended {
            Some(error) if !self.is_end_told => {
                self.is_end_told = true;
                Next::Error(error.clone())
            }
            Some(_) => Next::End,
            None if self.closing.is_some() => Next::End,
            None => Next::Wait,
        }
    }

    pub(crate) fn settle(&mut self, item: Item) {
        if item.kind != SettleKind::Progress {
            self.hand_over.set_settling(item.message, item.delivery_id, true);
        }
        self.settles.push(item);
    }

    /// From now on this is the window, also over later connections.
    pub(crate) fn set_credit(&mut self, messages: Option<u16>, bytes: Option<u32>) {
        self.settings.credit_count = messages.unwrap_or(Subscribe::GROUP_CREDIT_COUNT);
        self.settings.credit_bytes = bytes.unwrap_or(Subscribe::GROUP_CREDIT_BYTES);
        self.is_credit_changed = true;
    }

    /// Asks for messages; an earlier pull that nobody waits for any more is forgotten.
    pub(crate) fn pull(&mut self, limits: PullOptions, reply: oneshot::Sender<DoneResult>) {
        // What comes now was asked for now, if nothing can come any more that was asked for before.
        if self.settings.credit_count == 0 && self.pull.is_none() {
            self.asked_ns = self.scribe.as_ref().map(Scribe::now_ns);
            self.first_asked_ns = self.first_asked_ns.or(self.asked_ns);
        }
        let is_open = self.pull.as_ref().is_some_and(|pull| pull.is_sent);
        self.pull = Some(PullRequest { limits, is_sent: is_open, reply });
    }

    /// Gives everything back and leaves the group, after the settles under way.
    pub(crate) fn close(&mut self, reply: Option<oneshot::Sender<DoneResult>>, effects: &mut Effects) {
        if self.ended.is_some() {
            self.is_end_told = true;
            if let Some(reply) = reply {
                effects.push(Effect::Done(reply, Ok(())));
            }
            return;
        }
        for item in self.hand_over.release_all() {
            self.settles.push(item);
        }
        self.pull = None;
        let closing = self.closing.get_or_insert_with(|| Closing {
            call_ns: self.scribe.as_ref().map_or(0, Scribe::now_ns),
            ..Closing::default()
        });
        closing.reply = reply;
        effects.wake(&self.ready);
    }

    pub(crate) fn disconnected(&mut self, effects: &mut Effects) {
        self.topic.disconnected();
        self.member = None;
        self.alive.disconnected();
        self.is_requested = false;
        self.heartbeat_at = None;
        self.settles.disconnected(effects);
        if let Some(pull) = &mut self.pull {
            pull.is_sent = false;
        }
        if let Some(closing) = &mut self.closing {
            closing.is_leave_sent = false;
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let renewal = self.hand_over.next_renewal().filter(|_| self.member.is_some());
        [self.retry_at, self.heartbeat_at, renewal].into_iter().flatten().min()
    }

    pub(crate) fn on_timer(&mut self, now: Instant, link: &mut Link) {
        self.retry_at = self.retry_at.filter(|at| *at > now);
        let Some(member) = self.member else { return };
        if self.heartbeat_at.is_some_and(|at| at <= now) {
            self.heartbeat_at = Some(now + self.settings.heartbeat_every);
            self.asks_to_live();
            member.heartbeat(HeartbeatState::Active).encode(&mut link.out);
            link.sent.push_back(Sent::Heartbeat { subscription: self.home.subscription });
        }
        if self.hand_over.next_renewal().is_some_and(|at| at <= now) {
            for item in self.hand_over.renewals(self.settings.is_renewing, now) {
                self.settles.push(item);
            }
        }
    }

    /// Ends the consumer: everything that waits is told why.
    pub(crate) fn end(&mut self, error: &ClientError, effects: &mut Effects) {
        if self.ended.is_some() {
            return;
        }
        let unsettled = SettleError::from(error.clone().with_outcome(Outcome::Unknown));
        for item in self.settles.take_all() {
            self.answer(item, None, Err(unsettled.clone()), effects);
        }
        // It did not leave as far as it knows: its session ends by itself.
        self.lose_session(effects);
        // Nothing can be settled any more, so nothing of it is handed to anybody.
        drop(self.hand_over.release_all());
        let pull = self.pull.take().map(|pull| pull.reply);
        let closing = self.closing.take().and_then(|closing| closing.reply);
        for waiting in [self.opened.take(), pull, closing].into_iter().flatten() {
            effects.push(Effect::Done(waiting, Err(error.clone())));
        }
        self.topic.disconnected();
        self.member = None;
        self.identity = None;
        self.heartbeat_at = None;
        self.retry_at = None;
        // Whoever closes the client does not have to be told that it is closed.
        self.is_end_told |= matches!(error, ClientError::Closed { .. });
        self.ended = Some(error.clone());
        effects.wake(&self.ready);
    }

    /// Whether nothing will happen here any more and nobody looks.
    pub(crate) const fn is_finished(&self) -> bool {
        self.ended.is_some() && self.is_end_told
    }

    pub(crate) const fn ended(&self) -> Option<&ClientError> {
        self.ended.as_ref()
    }

    fn send_credit(&mut self, member: Member, link: &mut Link) {
        let credit = Credit {
            subscription_id: member.subscription_id,
            membership_epoch: member.membership_epoch,
            ownership_epoch: 0,
            mode: CreditMode::Set,
            credit_count: self.settings.credit_count,
            credit_bytes: self.settings.credit_bytes,
        };
        credit.encode(&mut link.out);
        link.sent.push_back(Sent::Credit { subscription: self.home.subscription });
        self.member = Some(Member { is_pushed_to: credit.credit_count != 0, ..member });
    }

    fn send_subscribe(&mut self, topic_id: u16, link: &mut Link, effects: &mut Effects) {
        let resume = self.identity.map(|identity| self.resume_options(identity));
        let settings = &self.settings;
        let credit_count = if self.closing.is_some() { 0 } else { settings.credit_count };
        self.is_credit_asked = credit_count != 0;
        self.is_credit_changed = false;
        self.asked_ns = self.asked_ns.or_else(|| self.scribe.as_ref().map(Scribe::now_ns));
        self.first_asked_ns = self.first_asked_ns.or(self.asked_ns);
        let request = Subscribe {
            group: &settings.group,
            topic_id,
            start: settings.start,
            credit_count,
            credit_bytes: settings.credit_bytes,
            is_shared: true,
            options: resume.as_deref().unwrap_or(&settings.options),
        };
        match request.encode(&mut link.out) {
            Ok(()) => {
                self.is_requested = true;
                self.asks_to_live();
                link.sent.push_back(Sent::Subscribe { subscription: self.home.subscription });
            }
            Err(error) => self.end(&error.into(), effects),
        }
    }

    fn send_pull(&mut self, member: Member, out: &mut BytesMut) {
        let Some(pull) = self.pull.as_mut().filter(|pull| !pull.is_sent) else { return };
        pull.is_sent = true;
        let request = Pull {
            subscription_id: member.subscription_id,
            member_id: member.member_id,
            membership_epoch: member.membership_epoch,
            assignment_epoch: member.assignment_epoch,
            ownership_epochs: List::default(),
            max_msgs: pull.limits.max_messages,
            max_bytes: pull.limits.max_bytes,
            wait_ms: pull.limits.wait_ms,
            min_bytes: 0,
        };
        request.encode(out).expect("a PULL without ownership epochs has a constant size");
    }

    /// Left, or nothing to leave.
    fn finish(&mut self, effects: &mut Effects) {
        if let Some(reply) = self.closing.as_mut().and_then(|closing| closing.reply.take()) {
            effects.push(Effect::Done(reply, Ok(())));
        }
        self.end(&ClientError::Closed { outcome: Outcome::Refused }, effects);
    }
}

impl Member {
    const fn heartbeat(&self, state: HeartbeatState) -> Heartbeat {
        Heartbeat {
            subscription_id: self.subscription_id,
            member_id: self.member_id,
            membership_epoch: self.membership_epoch,
            assignment_epoch: self.assignment_epoch,
            state,
        }
    }
}

/// The session time that the options ask for. Otherwise the shortest that a group can have: SUB does not tell which one this
/// group was made with, and a member that is heard too rarely loses all it holds. Bad JSON is the broker's to judge.
fn session_ms(options_json: &str) -> u64 {
    let options: Option<serde_json::Value> = serde_json::from_str(options_json).ok();
    let asked = options.and_then(|options| options.get("session_ms")?.as_u64());
    asked.unwrap_or(SHORTEST_SESSION_MS).clamp(MIN_SESSION_MS, MAX_SESSION_MS)
}

/// The lowest value of the group key `session_ms` (docs/reference/operations.md).
const SHORTEST_SESSION_MS: u64 = 1_000;
/// Below this the heartbeats would be a flood.
const MIN_SESSION_MS: u64 = 300;
/// A connection is given up after 45 s of silence, so rarer heartbeats would save nothing.
const MAX_SESSION_MS: u64 = 60_000;

#[cfg(test)]
mod tests {
    use super::{SHORTEST_SESSION_MS, Settings};
    use crate::options::ConsumerOptions;

    #[test]
    fn p5_heartbeats_come_often_enough_for_a_group_that_others_have_made() {
        // SUB's OK does not tell the session time: with heartbeats for the default of 10 s, a group that was made with the
        // shortest one lost this member, and all it held, again and again.
        let every_ms = |options| Settings::new("billing", options).heartbeat_every.as_millis() as u64;
        assert!(2 * every_ms(ConsumerOptions::default()) < SHORTEST_SESSION_MS, "one may be lost");
        let told = ConsumerOptions::default().set("lease_ms", 60_000).set("session_ms", 30_000);
        assert_eq!(every_ms(told), 10_000);
    }
}
