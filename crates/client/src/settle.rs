//! Settling a delivery: asked for at once, answered when the broker has done it.

use std::pin::Pin;
use std::sync::Weak;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use mortarmq_wire::Outcome;
use mortarmq_wire::ops::SettleKind;
use tokio::sync::oneshot;

use crate::client::closed;
use crate::delivery::Delivery;
use crate::engine::{Item, SettleResult, Shared};
use crate::errors::SettleError;

/// Settles of one delivery, from any task. Each call asks for its settle at once; awaiting what it returns tells the answer,
/// and not awaiting it changes nothing. The client repeats a settle until it is answered, also over a new connection, and
/// what gathers while one is under way goes out together.
impl Delivery {
    /// Confirms the message: it is done.
    ///
    /// # Durability
    /// Once this is answered `Ok`, it is settled on the disks of a majority (P6).
    /// # Errors
    /// See [`SettleError`].
    pub fn ack(&self) -> SettleReceipt {
        self.settle(Item::of(self, SettleKind::Ack))
    }

    /// Refuses the message: it is delivered again after `delay_ms` (0: the group's backoff), which counts an attempt.
    /// The text is kept with a dead letter; it is cut to 1 KiB.
    ///
    /// # Errors
    /// See [`SettleError`].
    pub fn nack(&self, delay_ms: u32, error_text: &str) -> SettleReceipt {
        self.settle(Item { delay_ms, ..self.item_with_text(SettleKind::Nack, error_text) })
    }

    /// Sends the message to the dead letters now, with the text (cut to 1 KiB). Later messages of its key go on without
    /// it.
    ///
    /// # Errors
    /// See [`SettleError`].
    pub fn dead_letter(&self, error_text: &str) -> SettleReceipt {
        self.settle(self.item_with_text(SettleKind::DeadLetter, error_text))
    }

    /// Gives the message back without counting an attempt: whoever is free gets it.
    ///
    /// # Errors
    /// See [`SettleError`].
    pub fn release(&self) -> SettleReceipt {
        self.settle(Item::of(self, SettleKind::Release))
    }

    /// Renews the lease now. The consumer does so by itself, unless it was told not to
    /// ([`ConsumerOptions::renew`](crate::ConsumerOptions::renew)).
    ///
    /// # Errors
    /// See [`SettleError`].
    pub fn extend(&self) -> SettleReceipt {
        self.settle(Item::of(self, SettleKind::Progress))
    }

    fn settle(&self, item: Item) -> SettleReceipt {
        let (reply, answer) = oneshot::channel();
        let item = Item { reply: Some(reply), ..item };
        let Some(shared) = self.home.shared.upgrade() else {
            return SettleReceipt { state: State::Failed(Some(closed(Outcome::Refused).into())) };
        };
        let state = match shared.with(|engine| engine.settle(self.home.subscription, item)) {
            Ok(()) => State::Asked(answer),
            Err(error) => State::Failed(Some(error.with_outcome(Outcome::Refused).into())),
        };
        SettleReceipt { state }
    }

    fn item_with_text(&self, kind: SettleKind, error_text: &str) -> Item {
        let cut = error_text.floor_char_boundary(MAX_ERROR_TEXT_LEN);
        let error_text = Bytes::copy_from_slice(&error_text.as_bytes()[..cut]);
        Item { error_text, ..Item::of(self, kind) }
    }
}

/// The answer to a settle, once it is there. Dropping it changes nothing for the settle.
#[derive(Debug)]
#[must_use = "only the answer tells whether the delivery was settled"]
pub struct SettleReceipt {
    state: State,
}

#[derive(Debug)]
enum State {
    Asked(oneshot::Receiver<SettleResult>),
    /// It could not be asked for; empty when the error was handed out.
    Failed(Option<SettleError>),
}

impl Future for SettleReceipt {
    type Output = Result<(), SettleError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.state {
            State::Asked(answer) => {
                let answer = ready!(Pin::new(answer).poll(context));
                Poll::Ready(answer.unwrap_or_else(|_| Err(closed(Outcome::Unknown).into())))
            }
            State::Failed(error) => Poll::Ready(Err(error.take().unwrap_or_else(|| closed(Outcome::Refused).into()))),
        }
    }
}

/// The consumer that a delivery came to. It does not keep the client alive: when all handles are gone, what is held was
/// given back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Home {
    pub(crate) shared: Weak<Shared>,
    pub(crate) subscription: u32,
}

/// How much of an error text travels: 1024 of them must fit a frame.
///
/// # Units
/// Bytes.
const MAX_ERROR_TEXT_LEN: usize = 1024;
