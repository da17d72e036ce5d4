//! Settling deliveries, from any task.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use mortarmq_wire::ops::SettleKind;
use tokio::sync::oneshot;

use crate::client::{Handle, closed};
use crate::delivery::Delivery;
use crate::engine::{Item, SettleResult};
use crate::errors::ClientError;

/// Settles the deliveries of one consumer. Each settle is repeated until it is answered, also over a new connection;
/// what gathers while one is under way goes out together.
#[derive(Clone, Debug)]
pub struct Settler {
    handle: Arc<Handle>,
    subscription: u32,
}

/// What became of a settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SettleOutcome {
    /// It was done. After an ack the message is never delivered again on this path (P6).
    Done,
    /// The message was delivered again since, so this delivery does not count any more: drop the work.
    Stale,
    /// The broker does not know the delivery: it ended another way, or long ago. An earlier attempt may have been done.
    Unknown,
}

/// The answer to a settle, once it is there. Dropping it changes nothing for the settle.
#[derive(Debug)]
#[must_use = "only the receipt tells whether the delivery was settled"]
pub struct SettleReceipt {
    state: State,
}

#[derive(Debug)]
enum State {
    Asked(oneshot::Receiver<SettleResult>),
    /// It could not be asked for; empty when the error was handed out.
    Failed(Option<ClientError>),
}

impl Settler {
    pub(crate) const fn new(handle: Arc<Handle>, subscription: u32) -> Self {
        Self { handle, subscription }
    }

    /// Confirms the message: it is done.
    ///
    /// # Durability
    /// After [`SettleOutcome::Done`] it is settled on the disks of a majority (P6).
    /// # Errors
    /// The consumer or the client ended before an answer, or the broker refuses the settle.
    pub async fn ack(&self, delivery: &Delivery) -> Result<SettleOutcome, ClientError> {
        self.ack_later(delivery).await
    }

    /// Refuses the message: it is delivered again after `delay_ms` (0: the group's backoff), which counts an attempt.
    /// The text is kept with a dead letter; it is cut to 1 KiB.
    ///
    /// # Errors
    /// As [`Self::ack`].
    pub async fn nack(
        &self,
        delivery: &Delivery,
        delay_ms: u32,
        error_text: &str,
    ) -> Result<SettleOutcome, ClientError> {
        self.nack_later(delivery, delay_ms, error_text).await
    }

    /// Sends the message to the dead letters now, with the text. Later messages of its key go on without it.
    ///
    /// # Errors
    /// As [`Self::ack`].
    pub async fn dead_letter(&self, delivery: &Delivery, error_text: &str) -> Result<SettleOutcome, ClientError> {
        self.later(with_text(delivery, SettleKind::DeadLetter, 0, error_text)).await
    }

    /// Gives the message back without counting an attempt.
    ///
    /// # Errors
    /// As [`Self::ack`].
    pub async fn release(&self, delivery: &Delivery) -> Result<SettleOutcome, ClientError> {
        self.release_later(delivery).await
    }

    /// Renews the lease now. The consumer does so by itself, unless it was told not to.
    ///
    /// # Errors
    /// As [`Self::ack`].
    pub async fn extend(&self, delivery: &Delivery) -> Result<SettleOutcome, ClientError> {
        self.later(Item::of(delivery, SettleKind::Progress)).await
    }

    /// As [`Self::ack`], without waiting: many of them travel together.
    pub fn ack_later(&self, delivery: &Delivery) -> SettleReceipt {
        self.later(Item::of(delivery, SettleKind::Ack))
    }

    /// As [`Self::nack`], without waiting.
    pub fn nack_later(&self, delivery: &Delivery, delay_ms: u32, error_text: &str) -> SettleReceipt {
        self.later(with_text(delivery, SettleKind::Nack, delay_ms, error_text))
    }

    /// As [`Self::release`], without waiting.
    pub fn release_later(&self, delivery: &Delivery) -> SettleReceipt {
        self.later(Item::of(delivery, SettleKind::Release))
    }

    fn later(&self, item: Item) -> SettleReceipt {
        let (reply, answer) = oneshot::channel();
        let item = Item { reply: Some(reply), ..item };
        let state = match self.handle.shared.with(|engine| engine.settle(self.subscription, item)) {
            Ok(()) => State::Asked(answer),
            Err(error) => State::Failed(Some(error)),
        };
        SettleReceipt { state }
    }
}

impl Future for SettleReceipt {
    type Output = Result<SettleOutcome, ClientError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.state {
            State::Asked(answer) => {
                let answer = ready!(Pin::new(answer).poll(context));
                Poll::Ready(answer.unwrap_or_else(|_| Err(closed())))
            }
            State::Failed(error) => Poll::Ready(Err(error.take().unwrap_or_else(closed))),
        }
    }
}

fn with_text(delivery: &Delivery, kind: SettleKind, delay_ms: u32, error_text: &str) -> Item {
    let cut = error_text.floor_char_boundary(MAX_ERROR_TEXT_LEN);
    let error_text = Bytes::copy_from_slice(&error_text.as_bytes()[..cut]);
    Item { delay_ms, error_text, ..Item::of(delivery, kind) }
}

/// How much of an error text travels: 1024 of them must fit a frame.
///
/// # Units
/// Bytes.
const MAX_ERROR_TEXT_LEN: usize = 1024;
