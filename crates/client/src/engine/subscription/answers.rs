//! What the broker's answers mean for a subscription.

use std::time::Duration;

use mortarmq_types::{Position, TopicIncarnation};
use mortarmq_wire::ops::{HeartbeatOk, ItemCode, SettleKind, SettleOk, SubscribeOk};
use mortarmq_wire::{ErrorCode, Op, Outcome};
use tokio::time::Instant;

use super::super::effects::{DoneResult, Effect, Effects};
use super::super::settles::Item;
use super::resume::Identity;
use super::{Member, Subscription};
use crate::errors::{ClientError, ServerError, SettleError};

impl Subscription {
    /// The topic's handle on this connection, or that there is none.
    pub(crate) fn resolved(&mut self, found: Option<(u16, TopicIncarnation)>, effects: &mut Effects) {
        if let Err(error) = self.topic.resolved(found) {
            self.end(&error, effects);
        }
    }

    pub(crate) fn subscribed(&mut self, result: &[u8], now: Instant, effects: &mut Effects) {
        self.is_requested = false;
        self.alive.answered(true);
        match SubscribeOk::decode(result) {
            Ok(ok) => {
                self.identity = Some(Identity::of(&ok));
                self.joined_at = ok.position.commit_index;
                self.member = Some(Member {
                    subscription_id: ok.subscription_id,
                    member_id: ok.member_id,
                    membership_epoch: ok.membership_epoch,
                    assignment_epoch: ok.assignment_epoch,
                    is_pushed_to: self.is_credit_asked,
                });
                self.heartbeat_at = Some(now + self.settings.heartbeat_every);
                self.succeeded();
                if let Some(opened) = self.opened.take() {
                    effects.push(Effect::Done(opened, Ok(())));
                }
            }
            Err(reason) => self.end(&ClientError::BadAnswer { op: Op::Subscribe, reason }, effects),
        }
    }

    pub(crate) fn subscribe_failed(&mut self, error: ServerError, now: Instant, effects: &mut Effects) {
        self.is_requested = false;
        self.alive.answered(false);
        if self.is_retried(&error, now) {
            return;
        }
        if self.identity.is_some() {
            self.lose_session(effects);
            // The member is lost, and what it held with it. If anything else is wrong, a SUB without it is told so too.
            tracing::warn!(group = %self.settings.group, %error, "the member cannot be resumed; joining anew");
        } else {
            self.end(&ClientError::from(Box::new(error)), effects);
        }
    }

    /// A heartbeat was refused.
    pub(crate) fn heartbeat_refused(&mut self, error: &ServerError, now: Instant) {
        self.alive.answered(false);
        self.word_refused(error, now);
    }

    /// A heartbeat, or that no more is wanted, was refused.
    pub(crate) fn word_refused(&mut self, error: &ServerError, now: Instant) {
        if error.known_code() == Some(ErrorCode::UnknownMember) {
            self.join_again(now);
        } else {
            tracing::warn!(group = %self.settings.group, %error, "the broker refuses to hear from this member");
        }
    }

    /// The last word was heard.
    pub(crate) fn left(&mut self, result: &[u8], effects: &mut Effects) {
        if let (Some(scribe), Some(closing)) = (&self.scribe, &self.closing) {
            let position = HeartbeatOk::decode(result).ok().map(|ok| ok.position);
            effects.tell([scribe.left(closing.call_ns, position, Ok(()))]);
        }
        self.identity = None;
        self.finish(effects);
    }

    pub(crate) fn leave_failed(&mut self, error: &ServerError, now: Instant, effects: &mut Effects) {
        match &mut self.closing {
            Some(closing) if self.refused_since.is_none() && error.retry_helps() => {
                closing.is_leave_sent = false;
                self.is_retried(error, now);
            }
            // The member is gone already, or the broker will find out by itself when its session ends.
            _ => self.finish(effects),
        }
    }

    pub(crate) fn pulled(&mut self, result: DoneResult, effects: &mut Effects) {
        if let Some(pull) = self.pull.take() {
            effects.push(Effect::Done(pull.reply, result));
        }
    }

    pub(crate) fn pull_failed(&mut self, error: ServerError, now: Instant, effects: &mut Effects) {
        if let Some(pull) = &mut self.pull {
            pull.is_sent = false;
        }
        if error.known_code() == Some(ErrorCode::UnknownMember) {
            self.join_again(now);
        } else if !self.is_retried(&error, now) {
            self.pulled(Err(ClientError::from(Box::new(error))), effects);
        }
    }

    pub(crate) fn settled(&mut self, result: &[u8], now: Instant, effects: &mut Effects) {
        let items = self.settles.take_in_flight();
        let ok = match SettleOk::decode(result, items.len()) {
            Ok(ok) => ok,
            Err(reason) => {
                let error = ClientError::BadAnswer { op: Op::Settle, reason };
                return items.into_iter().for_each(|item| self.settle_failed(item, error.clone(), now, effects));
            }
        };
        let (mut refused, mut open) = (Vec::new(), Vec::new());
        for (item, code) in items.into_iter().zip(ok.codes) {
            let again = if code.error().is_some_and(|code| code.outcome() == Outcome::Unknown) {
                &mut open
            } else {
                &mut refused
            };
            again.extend(self.item_answered(item, code, ok.position, now, effects));
        }
        if refused.is_empty() && open.is_empty() {
            self.succeeded();
        }
        self.settles.put_back(refused.into_iter());
        self.settles.put_back_open(open, effects);
    }

    /// The whole SETTLE was refused.
    pub(crate) fn settles_failed(&mut self, error: ServerError, now: Instant, effects: &mut Effects) {
        let items = self.settles.take_in_flight();
        let is_member_lost = error.known_code() == Some(ErrorCode::UnknownMember);
        if is_member_lost || self.is_retried(&error, now) {
            match error.outcome {
                Outcome::Refused => self.settles.put_back(items.into_iter()),
                Outcome::Unknown => self.settles.put_back_open(items, effects),
            }
            if is_member_lost {
                self.join_again(now);
            }
        } else {
            let error = ClientError::from(Box::new(error));
            items.into_iter().for_each(|item| self.settle_failed(item, error.clone(), now, effects));
        }
    }

    /// Takes one item's code. Returns the item when it is to be sent again.
    fn item_answered(
        &mut self,
        item: Item,
        code: ItemCode,
        position: Position,
        now: Instant,
        effects: &mut Effects,
    ) -> Option<Item> {
        let result = match code.error() {
            None if code.is_ok() => Ok(()),
            Some(ErrorCode::StaleOwner) => Err(SettleError::LeaseLost),
            Some(ErrorCode::UnknownDelivery) => Err(SettleError::UnknownDelivery),
            _ => {
                let error = ServerError::from_code(code.number(), Op::Settle, String::new(), position);
                if self.is_retried(&error, now) {
                    return Some(item);
                }
                self.settle_failed(item, ClientError::from(Box::new(error)), now, effects);
                return None;
            }
        };
        let (id, delivery_id) = (item.message, item.delivery_id);
        match (&result, item.kind) {
            (Ok(()), SettleKind::Progress) => self.hand_over.renewed(id, delivery_id, true, now),
            (Ok(()), SettleKind::Ack) => self.hand_over.settled(id, delivery_id, false),
            // A dead message does not come again, but what left behind it in its key was ended with it all the same.
            (Ok(()), SettleKind::Nack | SettleKind::DeadLetter | SettleKind::Release) => {
                self.hand_over.settled(id, delivery_id, true);
            }
            (Err(_), _) => self.hand_over.lost(id, delivery_id),
        }
        self.answer(item, Some(position), result, effects);
        None
    }

    /// The last word about a settle.
    pub(super) fn answer(
        &self,
        item: Item,
        position: Option<Position>,
        result: Result<(), SettleError>,
        effects: &mut Effects,
    ) {
        if let Some(scribe) = &self.scribe {
            // A repeat that is refused may follow an attempt that was done.
            let outcome = |error: &SettleError| if item.is_repeat { Outcome::Unknown } else { error.outcome() };
            effects.tell(scribe.settled(&item, position, result.as_ref().copied().map_err(outcome)));
        }
        if let Some(reply) = item.reply {
            effects.push(Effect::Settled(reply, result));
        }
    }

    fn settle_failed(&mut self, item: Item, error: ClientError, now: Instant, effects: &mut Effects) {
        if item.kind == SettleKind::Progress {
            self.hand_over.renewed(item.message, item.delivery_id, false, now);
        } else {
            self.hand_over.set_settling(item.message, item.delivery_id, false);
        }
        self.answer(item, None, Err(error.into()), effects);
    }

    /// The broker knows this subscription no more, which ends with the connection or with the office of the node that gave it. The
    /// member may live on: the consumer resumes it, after a pause so that it cannot spin, and joins anew if that is refused.
    fn join_again(&mut self, now: Instant) {
        if self.closing.as_ref().is_some_and(|closing| closing.is_leave_sent) {
            // It has gone because it asked to: a pull that waits is told so before the leave is answered, which comes.
            return;
        }
        if self.member.take().is_some() {
            self.heartbeat_at = None;
            let wait = self.backoff.next_wait();
            self.pause_until(now + wait);
        }
        if let Some(pull) = &mut self.pull {
            pull.is_sent = false;
        }
    }

    /// Whether what met this error is to be repeated; if so, after the pause that begins now.
    fn is_retried(&mut self, error: &ServerError, now: Instant) -> bool {
        let since = *self.refused_since.get_or_insert(now);
        let is_time_up = self.give_up_after.is_some_and(|limit| now.duration_since(since) >= limit);
        if !error.retry_helps() || is_time_up {
            return false;
        }
        let wait = match error.retry_after_ms {
            0 => self.backoff.next_wait(),
            ms => Duration::from_millis(u64::from(ms)),
        };
        self.pause_until(now + wait);
        true
    }

    fn pause_until(&mut self, until: Instant) {
        self.retry_at = self.retry_at.max(Some(until));
    }

    fn succeeded(&mut self) {
        self.refused_since = None;
        self.backoff.reset();
    }
}
