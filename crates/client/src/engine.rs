//! Everything a client has under way, independent of the connection that carries it. No I/O: callers put work in and
//! the connection task moves bytes, both under one lock that is held only for as long as it takes to write things
//! down.
//!
//! # Invariants
//! 1. `link.sent` names, in order, exactly the requests of the present connection that are not answered.
//! 2. Whatever somebody waits for is in a line, a subscription or a call until it is answered for good; the end of the
//!    client answers all of it.

mod answers;
mod call;
mod effects;
mod hand_over;
mod line;
mod link;
mod settles;
mod subscription;
mod topic;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use mortarmq_wire::ops::{Metadata, Ping};
use mortarmq_wire::{List, Op, Outcome};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

pub(crate) use self::call::CallAnswer;
pub(crate) use self::effects::{BatchResult, CallResult, DoneResult, PublishResult, SettleResult, Weight, Window};
pub(crate) use self::settles::Item;
pub(crate) use self::subscription::{Next, Settings};

use self::call::Call;
use self::effects::Effects;
use self::line::Line;
use self::link::{Link, Sent};
use self::subscription::Subscription;
use self::topic::TopicUse;
use crate::errors::ClientError;
use crate::message::Message;
use crate::options::{ProducerOptions, PullOptions, ReconnectOptions};
use crate::recording::Observed;
use crate::settle::Home;

/// The engine as handles and the connection task share it.
#[derive(Debug)]
pub(crate) struct Shared {
    engine: Mutex<Engine>,
    /// Wakes the connection task.
    pub(crate) wake: Notify,
    has_ended: watch::Sender<bool>,
}

impl Shared {
    pub(crate) fn new(reconnect: ReconnectOptions, observed: Option<Observed>) -> Self {
        Self {
            engine: Mutex::new(Engine::new(reconnect, observed)),
            wake: Notify::new(),
            has_ended: watch::Sender::new(false),
        }
    }

    /// Lets `act` work on the engine, then tells whoever is concerned.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Engine) -> T) -> T {
        let mut engine = self.lock();
        let value = act(&mut engine);
        let effects = std::mem::take(&mut engine.effects);
        let is_woken = engine.takes_waking();
        drop(engine);
        effects.fire();
        if is_woken {
            self.wake.notify_one();
        }
        value
    }

    /// Waits until the connection task has ended.
    pub(crate) async fn ended(&self) {
        // The sender is part of `self`, so it cannot be gone.
        let _ = self.has_ended.subscribe().wait_for(|has_ended| *has_ended).await;
    }

    /// Ends the client: whatever is still waited for is answered with `error`.
    pub(crate) fn end(&self, error: &ClientError) {
        self.with(|engine| engine.end(error));
        self.has_ended.send_replace(true);
    }

    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(|poisoned| {
            // An invariant was broken under the lock. What waits is told that its outcome is unknown, and nothing else
            // is done with a state that cannot be trusted.
            let mut engine = poisoned.into_inner();
            engine.end(&ClientError::Closed { outcome: Outcome::Unknown });
            engine
        })
    }
}

#[derive(Debug)]
pub(crate) struct Engine {
    link: Link,
    lines: BTreeMap<u32, Line>,
    subscriptions: BTreeMap<u32, Subscription>,
    calls: BTreeMap<u64, Call>,
    next_id: u32,
    next_call: u64,
    phase: Phase,
    reconnect: ReconnectOptions,
    observed: Option<Observed>,
    effects: Effects,
    /// For encoding; kept for its memory.
    scratch: BytesMut,
    ping_at: Instant,
    /// When topics are asked for again that the broker would not tell.
    resolve_at: Option<Instant>,
    /// Whether the connection task waits for something to send.
    is_writer_asleep: bool,
    must_wake: bool,
}

#[derive(Clone, Debug)]
enum Phase {
    Open,
    /// Nothing new is taken; ends when everything is answered. Abandoned: or when the connection is lost.
    Closing {
        is_abandoned: bool,
    },
    Ended(ClientError),
}

/// What the connection task does next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) deadline: Instant,
    pub(crate) is_finished: bool,
    /// Whether an answer is owed.
    pub(crate) is_waiting: bool,
}

impl Engine {
    fn new(reconnect: ReconnectOptions, observed: Option<Observed>) -> Self {
        Self {
            link: Link::default(),
            lines: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            calls: BTreeMap::new(),
            next_id: 0,
            next_call: 0,
            phase: Phase::Open,
            reconnect,
            observed,
            effects: Effects::default(),
            scratch: BytesMut::new(),
            ping_at: Instant::now() + PING_EVERY,
            resolve_at: None,
            is_writer_asleep: false,
            must_wake: false,
        }
    }

    /// Sends a request that is repeated until it is answered.
    pub(crate) fn call(&mut self, op: Op, frame: Bytes, reply: oneshot::Sender<CallResult>) -> Result<(), ClientError> {
        self.check_open()?;
        let id = self.next_call;
        self.next_call += 1;
        let mut call = Call::new(id, op, frame, &self.reconnect, reply);
        call.pump(&mut self.link);
        self.calls.insert(id, call);
        Ok(())
    }

    /// Opens a producer's line. Returns its id and window.
    pub(crate) fn open_line(
        &mut self,
        topic: &str,
        options: &ProducerOptions,
        opened: oneshot::Sender<DoneResult>,
    ) -> Result<(u32, Arc<Window>), ClientError> {
        self.check_open()?;
        let id = self.take_id();
        let scribe = self.observed.as_ref().map(|observed| observed.scribe(id, topic));
        let line = Line::new(id, topic.to_owned(), options, &self.reconnect, scribe, opened);
        let window = line.window();
        self.lines.insert(id, line);
        self.ask_for_topics();
        Ok((id, window))
    }

    pub(crate) fn publish(
        &mut self,
        line: u32,
        message: &Message<'_>,
        weight: Weight,
        reply: oneshot::Sender<PublishResult>,
    ) -> Result<(), ClientError> {
        self.check_open()?;
        let line = self.lines.get_mut(&line).ok_or_else(closed)?;
        line.publish(message, &mut self.scratch, weight, reply)?;
        line.pump(&mut self.link);
        Ok(())
    }

    pub(crate) fn publish_batch(
        &mut self,
        line: u32,
        messages: &[Message<'_>],
        weight: Weight,
        reply: oneshot::Sender<BatchResult>,
    ) -> Result<(), ClientError> {
        self.check_open()?;
        let line = self.lines.get_mut(&line).ok_or_else(closed)?;
        line.publish_batch(messages, &mut self.scratch, weight, reply)?;
        line.pump(&mut self.link);
        Ok(())
    }

    /// The producer is gone; what it published is still seen through.
    pub(crate) fn release_line(&mut self, line: u32) {
        if let Some(line) = self.lines.get_mut(&line) {
            line.is_released = true;
        }
        self.forget_finished();
    }

    /// Opens a consumer's subscription. Returns its id and what wakes it.
    pub(crate) fn open_subscription(
        &mut self,
        topic: &str,
        settings: Settings,
        shared: Weak<Shared>,
        opened: oneshot::Sender<DoneResult>,
    ) -> Result<(u32, Arc<Notify>), ClientError> {
        self.check_open()?;
        let id = self.take_id();
        let home = Home { shared, subscription: id };
        let path = format!("{topic}/{}", settings.group());
        let scribe = self.observed.as_ref().map(|observed| observed.scribe(id, &path));
        let subscription = Subscription::new(home, topic.to_owned(), settings, &self.reconnect, scribe, opened);
        let ready = subscription.ready();
        self.subscriptions.insert(id, subscription);
        self.ask_for_topics();
        Ok((id, ready))
    }

    pub(crate) fn next_delivery(&mut self, subscription: u32) -> Next {
        self.subscriptions.get_mut(&subscription).map_or(Next::End, Subscription::next_delivery)
    }

    pub(crate) fn settle(&mut self, subscription: u32, item: Item) -> Result<(), ClientError> {
        let subscription = self.open_consumer(subscription)?;
        subscription.settle(item);
        self.pump_subscriptions();
        Ok(())
    }

    pub(crate) fn pull(
        &mut self,
        subscription: u32,
        limits: PullOptions,
        reply: oneshot::Sender<DoneResult>,
    ) -> Result<(), ClientError> {
        self.open_consumer(subscription)?.pull(limits, reply);
        self.pump_subscriptions();
        Ok(())
    }

    pub(crate) fn set_credit(
        &mut self,
        subscription: u32,
        messages: Option<u16>,
        bytes: Option<u32>,
    ) -> Result<(), ClientError> {
        self.open_consumer(subscription)?.set_credit(messages, bytes);
        self.pump_subscriptions();
        Ok(())
    }

    /// Leaves the group. `reply` is told when that is done.
    pub(crate) fn close_subscription(&mut self, subscription: u32, reply: Option<oneshot::Sender<DoneResult>>) {
        if let Some(subscription) = self.subscriptions.get_mut(&subscription) {
            subscription.close(reply, &mut self.effects);
        }
        self.pump_subscriptions();
        self.forget_finished();
    }

    /// Takes nothing new from now on and ends when everything is answered.
    pub(crate) fn close(&mut self, is_abandoned: bool) {
        match &mut self.phase {
            Phase::Open => self.phase = Phase::Closing { is_abandoned },
            // Whoever waited for the end may have stopped waiting: then nobody is left to reconnect for.
            Phase::Closing { is_abandoned: known } => *known |= is_abandoned,
            Phase::Ended(_) => {}
        }
        for subscription in self.subscriptions.values_mut() {
            subscription.close(None, &mut self.effects);
        }
        self.pump_subscriptions();
        self.must_wake = true;
    }

    /// Moves what is to be sent to `write`, and says when to come back at the latest.
    pub(crate) fn take_turn(&mut self, write: &mut BytesMut) -> Turn {
        std::mem::swap(&mut self.link.out, write);
        self.is_writer_asleep = write.is_empty();
        self.turn()
    }

    /// As [`Self::take_turn`], while there is still something to write.
    pub(crate) fn turn(&self) -> Turn {
        Turn { deadline: self.deadline(), is_finished: self.is_finished(), is_waiting: !self.link.sent.is_empty() }
    }

    /// Does what is due.
    pub(crate) fn on_timer(&mut self, now: Instant) {
        if self.ping_at <= now {
            self.ping_at = now + PING_EVERY;
            Ping.encode(&mut self.link.out);
            self.link.sent.push_back(Sent::Ping);
        }
        if self.resolve_at.is_some_and(|at| at <= now) {
            self.resolve_at = None;
            self.ask_for_topics();
        }
        for line in self.lines.values_mut() {
            line.on_timer(now);
            line.pump(&mut self.link);
        }
        for subscription in self.subscriptions.values_mut() {
            subscription.on_timer(now, &mut self.link);
        }
        for call in self.calls.values_mut() {
            call.on_timer(now);
            call.pump(&mut self.link);
        }
        self.pump_subscriptions();
    }

    /// A new connection stands: everything that is not answered goes out again, in its order.
    pub(crate) fn connected(&mut self, now: Instant) {
        self.link.reset(true);
        self.ping_at = now + PING_EVERY;
        self.ask_for_topics();
        for call in self.calls.values_mut() {
            call.pump(&mut self.link);
        }
    }

    pub(crate) fn disconnected(&mut self) {
        self.link.reset(false);
        self.resolve_at = None;
        for line in self.lines.values_mut() {
            line.disconnected(&mut self.effects);
        }
        for subscription in self.subscriptions.values_mut() {
            subscription.disconnected();
        }
        for call in self.calls.values_mut() {
            call.disconnected();
        }
        self.pump_subscriptions();
        self.forget_finished();
    }

    /// Whether there is nothing left to reconnect for.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_finished() || matches!(self.phase, Phase::Closing { is_abandoned: true })
    }

    fn end(&mut self, error: &ClientError) {
        if matches!(self.phase, Phase::Ended(_)) {
            return;
        }
        self.phase = Phase::Ended(error.clone().with_outcome(Outcome::Refused));
        self.link.reset(false);
        for line in self.lines.values_mut() {
            line.end(error, &mut self.effects);
        }
        for subscription in self.subscriptions.values_mut() {
            subscription.end(error, &mut self.effects);
        }
        for (_, call) in std::mem::take(&mut self.calls) {
            call.end(error, &mut self.effects);
        }
    }

    fn check_open(&self) -> Result<(), ClientError> {
        match &self.phase {
            Phase::Open => Ok(()),
            Phase::Closing { .. } => Err(closed()),
            Phase::Ended(error) => Err(error.clone()),
        }
    }

    fn open_consumer(&mut self, subscription: u32) -> Result<&mut Subscription, ClientError> {
        let subscription = self.subscriptions.get_mut(&subscription).ok_or_else(closed)?;
        match subscription.ended() {
            Some(error) => Err(error.clone()),
            None => Ok(subscription),
        }
    }

    fn take_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    fn takes_waking(&mut self) -> bool {
        let has_news = self.is_writer_asleep && !self.link.out.is_empty();
        if has_news {
            self.is_writer_asleep = false;
        }
        std::mem::take(&mut self.must_wake) || has_news
    }

    fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Closing { .. })
            && self.calls.is_empty()
            && self.lines.values().all(Line::is_idle)
            && self.subscriptions.values().all(|subscription| subscription.ended().is_some())
    }

    fn deadline(&self) -> Instant {
        let lines = self.lines.values().filter_map(Line::deadline);
        let subscriptions = self.subscriptions.values().filter_map(Subscription::deadline);
        let calls = self.calls.values().filter_map(Call::deadline);
        let earliest = lines.chain(subscriptions).chain(calls).chain(self.resolve_at).min();
        earliest.map_or(self.ping_at, |earliest| earliest.min(self.ping_at))
    }

    /// Asks for the handles that this connection does not have yet.
    fn ask_for_topics(&mut self) {
        if !self.link.is_up || self.resolve_at.is_some() {
            return;
        }
        let mut topics: Vec<String> = self.topic_uses().filter_map(TopicUse::ask).collect();
        topics.sort_unstable();
        topics.dedup();
        if topics.is_empty() {
            return;
        }
        let names: Vec<&[u8]> = topics.iter().map(|name| name.as_bytes()).collect();
        match (Metadata { topics: List::from(&names[..]) }).encode(&mut self.link.out) {
            Ok(()) => self.link.sent.push_back(Sent::Resolve { topics: topics.into() }),
            Err(error) => self.topics_failed(&topics, &error.into()),
        }
    }

    /// The topics that are asked for cannot be had.
    fn topics_failed(&mut self, topics: &[String], error: &ClientError) {
        let is_asked = |topic: Option<&mut TopicUse>| topic.is_some_and(|topic| topic.is_asked_in(topics));
        for line in self.lines.values_mut() {
            if is_asked(line.open_topic()) {
                line.end(error, &mut self.effects);
            }
        }
        for subscription in self.subscriptions.values_mut() {
            if is_asked(subscription.open_topic()) {
                subscription.end(error, &mut self.effects);
            }
        }
    }

    fn topic_uses(&mut self) -> impl Iterator<Item = &mut TopicUse> {
        let lines = self.lines.values_mut().filter_map(Line::open_topic);
        lines.chain(self.subscriptions.values_mut().filter_map(Subscription::open_topic))
    }

    fn pump_subscriptions(&mut self) {
        for subscription in self.subscriptions.values_mut() {
            subscription.pump(&mut self.link, &mut self.effects);
        }
    }

    fn forget_finished(&mut self) {
        self.lines.retain(|_, line| !line.is_released || !line.is_idle());
        self.subscriptions.retain(|_, subscription| !subscription.is_finished());
    }
}

fn closed() -> ClientError {
    ClientError::Closed { outcome: Outcome::Refused }
}

/// How often a PING goes out: twice may be lost before the broker closes for silence (45 s).
const PING_EVERY: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests;
