//! The consumer.

use std::sync::Arc;

use mortarmq_wire::Outcome;
use tokio::sync::{Mutex, Notify, oneshot};

use crate::client::{Handle, closed};
use crate::delivery::Delivery;
use crate::engine::Next;
use crate::errors::ClientError;
use crate::options::PullOptions;

/// A member of a shared group. What it gets is its own until it settles it ([`Delivery::ack`] and its like) or loses the
/// lease; leases are renewed meanwhile, also of what waits here and no handler has seen yet.
///
/// Three ways to use it: [`run`](Self::run) gives each message to a handler, several at once; [`next`](Self::next) is for a
/// loop of your own; [`pull`](Self::pull) asks for messages when you want some.
///
/// Messages of one key come one after another (P8): the next only when the one before is settled. Others come freely.
/// After a lost connection it goes on as the member that it was: what it has stays its own, what was lost on the way comes
/// again, and nothing comes twice. If it was away for longer than its session time it joins the group anew, and what it
/// had is delivered again as `consumer_lost`.
///
/// Dropping it gives back what is not settled and leaves the group, without waiting; [`Self::close`] waits.
#[derive(Debug)]
pub struct Consumer {
    handle: Arc<Handle>,
    subscription: u32,
    ready: Arc<Notify>,
    /// One pull at a time, as the protocol has it.
    pulls: Mutex<()>,
}

impl Consumer {
    pub(crate) fn new(handle: Arc<Handle>, subscription: u32, ready: Arc<Notify>) -> Self {
        Self { handle, subscription, ready, pulls: Mutex::new(()) }
    }

    /// The next delivery; waits for one. `None` once the client is closed. May be cancelled at any time without loss.
    ///
    /// # Errors
    /// The consumer has ended, because the topic is gone or the group refuses it. The item after it is `None`.
    pub async fn next(&mut self) -> Option<Result<Delivery, ClientError>> {
        loop {
            match self.take_next() {
                Next::Delivery(delivery) => return Some(Ok(*delivery)),
                Next::Error(error) => return Some(Err(error)),
                Next::End => return None,
                // A wake-up that came in between is remembered.
                Next::Wait => self.ready.notified().await,
            }
        }
    }

    /// Asks once for messages, for a consumer with a credit of 0 messages
    /// ([`ConsumerOptions::credit_messages`](crate::ConsumerOptions::credit_messages)). Waits if there is none; none within
    /// that time is an empty list. What is here already comes first, without asking. A message whose key has an unsettled
    /// one before it comes with a later pull. May be cancelled: what comes for it then comes with the next one.
    ///
    /// # Errors
    /// `max_messages` is 0, or the consumer has ended.
    pub async fn pull(&self, options: PullOptions) -> Result<Vec<Delivery>, ClientError> {
        let _turn = self.pulls.lock().await;
        let here = self.take_ready(options.max_messages)?;
        if !here.is_empty() {
            return Ok(here);
        }
        let (reply, answer) = oneshot::channel();
        self.handle.shared.with(|engine| engine.pull(self.subscription, options, reply))?;
        answer.await.unwrap_or_else(|_| Err(closed(Outcome::Unknown)))?;
        self.take_ready(options.max_messages)
    }

    /// Changes how much the broker may push ahead of its settling, from now on; `None` is the group's own window. With 0
    /// messages nothing new comes until this is called again. What is here already is not given back.
    ///
    /// # Errors
    /// The consumer has ended.
    pub fn set_credit(&self, messages: Option<u16>, bytes: Option<u32>) -> Result<(), ClientError> {
        self.handle.shared.with(|engine| engine.set_credit(self.subscription, messages, bytes))
    }

    /// Finishes the settles that were asked for, gives back everything else, leaves the group, and waits until the broker
    /// has confirmed all of it. A delivery that is still with a handler is given back too.
    ///
    /// # Errors
    /// The consumer or the client ended first.
    pub async fn close(self) -> Result<(), ClientError> {
        let (reply, answer) = oneshot::channel();
        self.handle.shared.with(|engine| engine.close_subscription(self.subscription, Some(reply)));
        // Without an answer it was gone already, and there is nothing left to give back.
        answer.await.unwrap_or(Ok(()))
    }

    fn take_ready(&self, max_messages: u16) -> Result<Vec<Delivery>, ClientError> {
        let mut taken = Vec::new();
        while taken.len() < usize::from(max_messages) {
            match self.take_next() {
                Next::Delivery(delivery) => taken.push(*delivery),
                Next::Error(error) => return Err(error),
                Next::End | Next::Wait => break,
            }
        }
        Ok(taken)
    }

    fn take_next(&self) -> Next {
        self.handle.shared.with(|engine| engine.next_delivery(self.subscription))
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.handle.shared.with(|engine| engine.close_subscription(self.subscription, None));
    }
}
