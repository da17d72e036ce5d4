//! What the engine's decisions do to the tasks that wait for them, held back until its lock is free: a task that is
//! woken inside the lock would run into it at once.

use std::sync::Arc;

use tokio::sync::{Notify, Semaphore, oneshot};

use super::call::CallAnswer;
use crate::errors::{ClientError, PublishError, SettleError};
use crate::producer::Published;
use crate::recording::Told;

pub(crate) type PublishResult = Result<Published, PublishError>;
pub(crate) type BatchResult = Result<Vec<Published>, PublishError>;
pub(crate) type SettleResult = Result<(), SettleError>;
pub(crate) type CallResult = Result<CallAnswer, ClientError>;
pub(crate) type DoneResult = Result<(), ClientError>;

#[derive(Debug)]
pub(crate) enum Effect {
    Published(oneshot::Sender<PublishResult>, PublishResult),
    Batch(oneshot::Sender<BatchResult>, BatchResult),
    Settled(oneshot::Sender<SettleResult>, SettleResult),
    Answered(oneshot::Sender<CallResult>, CallResult),
    Done(oneshot::Sender<DoneResult>, DoneResult),
    Room(Arc<Window>, Weight),
    Wake(Arc<Notify>),
    Told(Box<Told>),
}

#[derive(Debug, Default)]
pub(crate) struct Effects(Vec<Effect>);

impl Effects {
    pub(crate) fn push(&mut self, effect: Effect) {
        self.0.push(effect);
    }

    /// Tells a history. Whoever waits for the same answer hears of it later, if this is called first.
    pub(crate) fn tell(&mut self, told: impl IntoIterator<Item = Told>) {
        self.0.extend(told.into_iter().map(|told| Effect::Told(Box::new(told))));
    }

    /// Gives room back, in one step for many answers.
    pub(crate) fn room(&mut self, window: &Arc<Window>, weight: Weight) {
        // Answers come in runs of one producer: its room is one of the last two effects, before or behind a receipt.
        for effect in self.0.iter_mut().rev().take(2) {
            if let Effect::Room(known, sum) = effect
                && Arc::ptr_eq(known, window)
            {
                sum.messages += weight.messages;
                sum.bytes += weight.bytes;
                return;
            }
        }
        self.0.push(Effect::Room(Arc::clone(window), weight));
    }

    /// Wakes a consumer, once for many messages.
    pub(crate) fn wake(&mut self, notify: &Arc<Notify>) {
        if !matches!(self.0.last(), Some(Effect::Wake(known)) if Arc::ptr_eq(known, notify)) {
            self.0.push(Effect::Wake(Arc::clone(notify)));
        }
    }

    /// Tells everybody. A receiver that is gone did not want to know.
    pub(crate) fn fire(self) {
        for effect in self.0 {
            match effect {
                Effect::Published(sender, result) => drop(sender.send(result)),
                Effect::Batch(sender, result) => drop(sender.send(result)),
                Effect::Settled(sender, result) => drop(sender.send(result)),
                Effect::Answered(sender, result) => drop(sender.send(result)),
                Effect::Done(sender, result) => drop(sender.send(result)),
                Effect::Room(window, weight) => window.leave(weight),
                Effect::Wake(notify) => notify.notify_one(),
                Effect::Told(told) => told.tell(),
            }
        }
    }
}

/// What a publish takes of its producer's window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    pub(crate) messages: u32,
    pub(crate) bytes: u32,
}

/// The bound on what a producer has unanswered, in messages and in bytes; first come, first in.
#[derive(Debug)]
pub(crate) struct Window {
    messages: Semaphore,
    bytes: Semaphore,
    max_messages: u32,
}

/// A place in a window, given back unless the publish keeps it.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    messages: tokio::sync::SemaphorePermit<'a>,
    bytes: tokio::sync::SemaphorePermit<'a>,
    pub(crate) weight: Weight,
}

impl Window {
    pub(crate) fn new(max_messages: usize) -> Self {
        let max_messages = max_messages.clamp(1, PRODUCER_WINDOW);
        Self {
            messages: Semaphore::new(max_messages),
            bytes: Semaphore::new(MAX_OUTSTANDING_BYTES),
            max_messages: max_messages as u32,
        }
    }

    /// Waits for room. What is larger than the whole window waits until it is empty.
    pub(crate) async fn enter(&self, messages: usize, bytes: usize) -> Place<'_> {
        let weight = Weight {
            messages: u32::try_from(messages).unwrap_or(u32::MAX).min(self.max_messages),
            bytes: bytes.min(MAX_OUTSTANDING_BYTES) as u32,
        };
        // Neither semaphore is ever closed: an ended client answers every publish and so gives all room back.
        let unclosed = "the window's semaphores are never closed";
        let messages = self.messages.acquire_many(weight.messages).await.expect(unclosed);
        let bytes = self.bytes.acquire_many(weight.bytes).await.expect(unclosed);
        Place { messages, bytes, weight }
    }

    /// Waits until nothing is unanswered.
    pub(crate) async fn empty(&self) {
        drop(self.messages.acquire_many(self.max_messages).await);
    }

    fn leave(&self, weight: Weight) {
        self.messages.add_permits(weight.messages as usize);
        self.bytes.add_permits(weight.bytes as usize);
    }
}

impl Place<'_> {
    /// Keeps the room until the publish is answered.
    pub(crate) fn keep(self) {
        self.messages.forget();
        self.bytes.forget();
    }
}

/// How many numbers of a producer the broker remembers at least (`producer_window`): a repeat must be among them.
const PRODUCER_WINDOW: usize = 1024;
/// The most bytes that a producer has unanswered, one larger message apart: the broker reads no further ahead.
const MAX_OUTSTANDING_BYTES: usize = 8 * 1024 * 1024;
