//! What the broker sends, and whose it is.

use bytes::{Buf, BytesMut};
use mortarmq_types::TopicIncarnation;
use mortarmq_wire::ops::{ErrorAnswer, Message, MetadataOk, OkAnswer, PullOk};
use mortarmq_wire::{DecodeError, ErrorCode, Op, ServerFrame, Split, split_frame};
use tokio::time::Instant;

use super::Engine;
use super::link::Sent;
use super::topic::TopicUse;
use crate::backoff::Backoff;
use crate::errors::{ClientError, ServerError};

impl Engine {
    /// Takes all whole frames off the front of `read`. Returns how many more bytes the next one needs.
    ///
    /// # Errors
    /// Why this connection is of no more use.
    pub(crate) fn on_bytes(&mut self, read: &mut BytesMut, now: Instant) -> Result<usize, String> {
        let mut at = 0;
        let needed = loop {
            match split_frame(&read[at..]).map_err(|error| error.to_string())? {
                Split::Incomplete { needed } => break needed,
                Split::Frame { op, payload, consumed } => {
                    self.on_frame(op, payload, now)?;
                    at += consumed;
                }
            }
        };
        read.advance(at);
        // Once for all frames: answers come in runs, and what they free goes out together.
        for line in self.lines.values_mut() {
            line.pump(&mut self.link);
        }
        self.pump_subscriptions();
        self.forget_finished();
        Ok(needed)
    }

    fn on_frame(&mut self, op: u8, payload: &[u8], now: Instant) -> Result<(), String> {
        match ServerFrame::decode(op, payload) {
            Ok(ServerFrame::Ok(answer)) => self.on_ok(&answer, now),
            Ok(ServerFrame::Error(answer)) => self.on_error(&answer, now),
            Ok(ServerFrame::Message(message)) => {
                self.on_message(&message, now);
                Ok(())
            }
            // Of exclusive groups only, which this client does not join.
            Err(DecodeError::UnsupportedOp { op: Op::Notice }) => Ok(()),
            Err(error) => Err(format!("a frame of the broker is not understood: {error}")),
        }
    }

    fn on_message(&mut self, message: &Message<'_>, now: Instant) {
        let known = self.subscriptions.values_mut().find(|known| known.is_known_as(message.subscription_id));
        match known {
            Some(subscription) => subscription.arrived(message, now, &mut self.effects),
            None => tracing::debug!(message.subscription_id, "a message came for a subscription that has ended"),
        }
    }

    fn on_ok(&mut self, answer: &OkAnswer<'_>, now: Instant) -> Result<(), String> {
        let OkAnswer { request_op, result } = *answer;
        if request_op == Op::Pull {
            return self.on_pull_ok(result);
        }
        let effects = &mut self.effects;
        match take_sent(&mut self.link.sent, request_op)? {
            Sent::Publish { line, index, .. } => {
                if let Some(line) = self.lines.get_mut(&line) {
                    line.answered_ok(index, result, effects);
                }
            }
            Sent::Settle { subscription } => {
                if let Some(subscription) = self.subscriptions.get_mut(&subscription) {
                    subscription.settled(result, now, effects);
                }
            }
            Sent::Subscribe { subscription } => {
                if let Some(subscription) = self.subscriptions.get_mut(&subscription) {
                    subscription.subscribed(result, now, effects);
                }
            }
            Sent::Leave { subscription } => {
                if let Some(subscription) = self.subscriptions.get_mut(&subscription) {
                    subscription.left(result, effects);
                }
            }
            Sent::Call { call, .. } => {
                if let Some(call) = self.calls.remove(&call) {
                    call.answered(result, effects);
                }
            }
            Sent::Resolve { topics } => self.on_topics(&topics, result)?,
            Sent::Heartbeat { subscription } => {
                if let Some(subscription) = self.subscriptions.get_mut(&subscription) {
                    subscription.heard();
                }
            }
            Sent::Credit { .. } | Sent::Ping => {}
        }
        Ok(())
    }

    fn on_error(&mut self, answer: &ErrorAnswer<'_>, now: Instant) -> Result<(), String> {
        let error = ServerError::from_answer(answer);
        let text = error.to_string();
        let closes = error.closes();
        let takes_nothing = error.known_code().is_some_and(is_of_another_server);
        match error.request_op {
            Some(Op::Pull) => self.on_pull_error(answer.subscription_id, error, now),
            Some(op) if self.link.sent.front().is_some_and(|sent| sent.op() == op) => {
                let sent = take_sent(&mut self.link.sent, op)?;
                self.on_refused(sent, error, now);
            }
            _ => return Err(text),
        }
        self.link.takes_nothing |= takes_nothing;
        if closes { Err(text) } else { Ok(()) }
    }

    /// Whether the connection is to be left for another server: this one takes nothing, and has said so.
    pub(crate) fn is_to_be_left(&self) -> bool {
        self.link.takes_nothing
    }

    fn on_refused(&mut self, sent: Sent, error: ServerError, now: Instant) {
        let effects = &mut self.effects;
        match sent {
            Sent::Publish { line, index, .. } => {
                if let Some(line) = self.lines.get_mut(&line) {
                    line.answered_error(index, error, now, effects);
                }
            }
            Sent::Settle { subscription } => {
                if let Some(subscription) = self.subscriptions.get_mut(&subscription) {
                    subscription.settles_failed(error, now, effects);
                }
            }
            Sent::Subscribe { subscription } => {
                if let Some(subscription) = self.subscriptions.get_mut(&subscription) {
                    subscription.subscribe_failed(error, now, effects);
                }
            }
            Sent::Heartbeat { subscription } => {
                if let Some(subscription) = self.subscriptions.get_mut(&subscription) {
                    subscription.heartbeat_refused(&error, now);
                }
            }
            Sent::Credit { subscription } => {
                if let Some(subscription) = self.subscriptions.get_mut(&subscription) {
                    subscription.word_refused(&error, now);
                }
            }
            Sent::Leave { subscription } => {
                if let Some(subscription) = self.subscriptions.get_mut(&subscription) {
                    subscription.leave_failed(&error, now, effects);
                }
            }
            Sent::Call { call, .. } => {
                let again = self.calls.remove(&call).and_then(|call| call.failed(error, now, effects));
                self.calls.extend(again.map(|again| (call, again)));
            }
            Sent::Resolve { topics } => self.on_topics_refused(&topics, error, now),
            Sent::Ping => tracing::debug!(%error, "a PING was refused"),
        }
    }

    fn on_pull_ok(&mut self, result: &[u8]) -> Result<(), String> {
        let ok = PullOk::decode(result).map_err(|error| error.to_string())?;
        let known = self.subscriptions.values_mut().find(|known| known.is_known_as(ok.subscription_id));
        if let Some(subscription) = known {
            subscription.pulled(Ok(()), &mut self.effects);
        }
        Ok(())
    }

    fn on_pull_error(&mut self, subscription_id: u16, error: ServerError, now: Instant) {
        let known = self.subscriptions.values_mut().find(|known| known.is_known_as(subscription_id));
        if let Some(subscription) = known {
            subscription.pull_failed(error, now, &mut self.effects);
        }
    }

    fn on_topics(&mut self, topics: &[String], result: &[u8]) -> Result<(), String> {
        let ok = MetadataOk::decode(result).map_err(|error| error.to_string())?;
        let find = |name: &str| -> Option<(u16, TopicIncarnation)> {
            ok.topics.iter().find(|topic| topic.name == name).map(|topic| (topic.topic_id, topic.incarnation))
        };
        // Who asked, and what was found for it.
        let found = |topic: Option<&mut TopicUse>| {
            topic.filter(|topic| topic.is_asked_in(topics)).map(|topic| find(&topic.name))
        };
        for line in self.lines.values_mut() {
            if let Some(found) = found(line.open_topic()) {
                line.resolved(found, &mut self.effects);
            }
        }
        for subscription in self.subscriptions.values_mut() {
            if let Some(found) = found(subscription.open_topic()) {
                subscription.resolved(found, &mut self.effects);
            }
        }
        Ok(())
    }

    fn on_topics_refused(&mut self, topics: &[String], error: ServerError, now: Instant) {
        if !error.retry_helps() {
            return self.topics_failed(topics, &ClientError::from(Box::new(error)));
        }
        self.topic_uses().filter(|topic| topic.is_asked_in(topics)).for_each(TopicUse::disconnected);
        self.resolve_at = Some(now + Backoff::new(&self.reconnect).next_wait());
    }
}

/// Whether a refusal says that this server takes nothing now: another one leads, or it is cut off.
const fn is_of_another_server(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::ReadOnlyDegraded | ErrorCode::InSyncReplicasNotEnough)
}

/// The request that an answer belongs to: the oldest, as answers keep the order.
fn take_sent(sent: &mut std::collections::VecDeque<Sent>, op: Op) -> Result<Sent, String> {
    match sent.pop_front() {
        Some(sent) if sent.op() == op => Ok(sent),
        Some(sent) => Err(format!("the broker answered {op} where {} was next", sent.op())),
        None => Err(format!("the broker answered {op}, which was not asked")),
    }
}
