//! A request that stands for itself (DECLARE, METADATA): repeated until it is answered.

use std::time::Duration;

use bytes::Bytes;
use mortarmq_wire::{Op, Outcome};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::effects::{CallResult, Effect, Effects};
use super::link::{Link, Sent};
use crate::backoff::Backoff;
use crate::errors::{ClientError, ServerError};
use crate::options::ReconnectOptions;

/// An OK's result, undecoded.
#[derive(Debug)]
pub(crate) struct CallAnswer {
    pub(crate) result: Bytes,
    /// Whether an earlier attempt may have taken effect.
    pub(crate) is_repeat: bool,
}

#[derive(Debug)]
pub(crate) struct Call {
    id: u64,
    op: Op,
    frame: Bytes,
    is_sent: bool,
    /// Whether an attempt was answered `unknown`, or not at all.
    may_be_done: bool,
    retry_at: Option<Instant>,
    refused_since: Option<Instant>,
    backoff: Backoff,
    give_up_after: Option<Duration>,
    reply: oneshot::Sender<CallResult>,
}

impl Call {
    pub(crate) fn new(
        id: u64,
        op: Op,
        frame: Bytes,
        reconnect: &ReconnectOptions,
        reply: oneshot::Sender<CallResult>,
    ) -> Self {
        Self {
            id,
            op,
            frame,
            is_sent: false,
            may_be_done: false,
            retry_at: None,
            refused_since: None,
            backoff: Backoff::new(reconnect),
            give_up_after: reconnect.give_up_after,
            reply,
        }
    }

    pub(crate) fn pump(&mut self, link: &mut Link) {
        if link.is_up && !self.is_sent && self.retry_at.is_none() {
            self.is_sent = true;
            link.out.extend_from_slice(&self.frame);
            link.sent.push_back(Sent::Call { call: self.id, op: self.op });
        }
    }

    pub(crate) fn answered(self, result: &[u8], effects: &mut Effects) {
        let answer = CallAnswer { result: Bytes::copy_from_slice(result), is_repeat: self.may_be_done };
        effects.push(Effect::Answered(self.reply, Ok(answer)));
    }

    /// Takes an ERR. Returns the call when it is to be repeated.
    pub(crate) fn failed(mut self, error: ServerError, now: Instant, effects: &mut Effects) -> Option<Self> {
        self.is_sent = false;
        self.may_be_done |= error.outcome == Outcome::Unknown;
        let since = *self.refused_since.get_or_insert(now);
        let is_time_up = self.give_up_after.is_some_and(|limit| now.duration_since(since) >= limit);
        if error.retry_helps() && !is_time_up {
            let wait = match error.retry_after_ms {
                0 => self.backoff.next_wait(),
                ms => Duration::from_millis(u64::from(ms)),
            };
            self.retry_at = Some(now + wait);
            return Some(self);
        }
        let outcome = if self.may_be_done { Outcome::Unknown } else { error.outcome };
        let error = ClientError::from(Box::new(error)).with_outcome(outcome);
        effects.push(Effect::Answered(self.reply, Err(error)));
        None
    }

    pub(crate) const fn disconnected(&mut self) {
        self.may_be_done |= self.is_sent;
        self.is_sent = false;
    }

    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.retry_at
    }

    pub(crate) fn on_timer(&mut self, now: Instant) {
        self.retry_at = self.retry_at.filter(|at| *at > now);
    }

    pub(crate) fn end(self, error: &ClientError, effects: &mut Effects) {
        let outcome = if self.may_be_done || self.is_sent { Outcome::Unknown } else { Outcome::Refused };
        effects.push(Effect::Answered(self.reply, Err(error.clone().with_outcome(outcome))));
    }
}
