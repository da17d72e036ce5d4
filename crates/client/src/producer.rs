//! The idempotent producer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use mortarmq_types::{CommitIndex, Epoch, Partition, Seq};
use mortarmq_wire::Outcome;
use mortarmq_wire::ops::{PublishBatchOk, PublishOk};
use tokio::sync::oneshot;

use crate::client::{Handle, closed};
use crate::engine::{PublishResult, Window};
use crate::errors::{ClientError, PublishError};
use crate::message::Message;

/// Publishes to one topic, each message at most once (P3): it is repeated under its number until it is answered.
///
/// Sends may overlap; messages are stored in the order in which the calls got their place. A refused one fails alone:
/// those behind it are numbered anew. Clones are the same producer, with one line of numbers. Dropping it does not drop what
/// it has sent.
#[derive(Clone, Debug)]
pub struct Producer {
    line: Arc<LineHandle>,
}

/// What all clones of a producer hold.
#[derive(Debug)]
struct LineHandle {
    handle: Arc<Handle>,
    line: u32,
    window: Arc<Window>,
}

/// Where a message is stored, on the disks of a majority (P1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The partition that holds it.
    pub partition: Partition,
    /// Its sequence there.
    pub seq: Seq,
    /// The leader's term when it was stored.
    pub epoch: Epoch,
    /// The publish command's own index.
    pub commit_index: CommitIndex,
    /// Whether this is the answer to an earlier attempt, or to an earlier message with the same idempotency key.
    pub deduplicated: bool,
}

/// The answer to a message that was sent, once it is there. Dropping it changes nothing for the message.
#[derive(Debug)]
#[must_use = "only the receipt tells whether the message was stored"]
pub struct Receipt {
    answer: oneshot::Receiver<PublishResult>,
}

impl Producer {
    pub(crate) fn new(handle: Arc<Handle>, line: u32, window: Arc<Window>) -> Self {
        Self { line: Arc::new(LineHandle { handle, line, window }) }
    }

    /// Sends a message. Waits only while `max_outstanding` messages, or 8 MiB of them, are unanswered.
    ///
    /// # Durability
    /// None yet: that is what the receipt tells.
    /// # Errors
    /// The message does not fit the protocol, or the client is closed. Nothing was sent, and no number is used up.
    pub async fn send(&self, message: Message<'_>) -> Result<Receipt, ClientError> {
        let place = self.line.window.enter(1, message.weight()).await;
        let (reply, answer) = oneshot::channel();
        self.line.handle.shared.with(|engine| engine.publish(self.line.line, &message, place.weight, reply))?;
        place.keep();
        Ok(Receipt { answer })
    }

    /// Sends a message and waits for its receipt.
    ///
    /// # Durability
    /// Stored on the disks of a majority (P1).
    /// # Errors
    /// See [`PublishError::outcome`]: refused means that it is not stored and never will be.
    pub async fn publish(&self, message: Message<'_>) -> Result<Published, PublishError> {
        self.send(message).await?.await
    }

    /// Publishes 1 to 1024 messages, all or nothing.
    ///
    /// # Durability
    /// As [`Self::publish`].
    /// # Errors
    /// As [`Self::publish`], of the first message that was refused.
    pub async fn publish_batch(&self, messages: &[Message<'_>]) -> Result<Vec<Published>, PublishError> {
        let weight = messages.iter().map(Message::weight).sum();
        let place = self.line.window.enter(messages.len(), weight).await;
        let (reply, answer) = oneshot::channel();
        self.line.handle.shared.with(|engine| engine.publish_batch(self.line.line, messages, place.weight, reply))?;
        place.keep();
        answer.await.unwrap_or_else(|_| Err(closed(Outcome::Unknown).into()))
    }

    /// Waits until everything sent so far is answered. How, each receipt tells. Sends that come meanwhile wait behind it.
    pub async fn flush(&self) {
        self.line.window.empty().await;
    }

    /// Waits until everything sent is answered, and ends the producer. Dropping it instead sees everything through as well,
    /// but does not wait.
    pub async fn close(self) {
        self.flush().await;
    }
}

impl Drop for LineHandle {
    fn drop(&mut self) {
        self.handle.shared.with(|engine| engine.release_line(self.line));
    }
}

impl Future for Receipt {
    type Output = Result<Published, PublishError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.answer).poll(context));
        Poll::Ready(answer.unwrap_or_else(|_| Err(closed(Outcome::Unknown).into())))
    }
}

impl Published {
    pub(crate) const fn of(ok: &PublishOk) -> Self {
        Self {
            partition: ok.partition,
            seq: ok.seq,
            epoch: ok.position.epoch,
            commit_index: ok.position.commit_index,
            deduplicated: ok.deduplicated,
        }
    }

    pub(crate) fn of_batch(ok: &PublishBatchOk<'_>) -> Vec<Self> {
        let position = ok.position;
        let one = |record: mortarmq_wire::ops::RecordOk| Self {
            partition: record.partition,
            seq: record.seq,
            epoch: position.epoch,
            commit_index: position.commit_index,
            deduplicated: record.deduplicated,
        };
        ok.records.iter().map(one).collect()
    }
}
