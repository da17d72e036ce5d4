//! A message as it reaches a consumer, and whether its lease still stands.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use mortarmq_types::{Attempt, Cause, DeliveryId, Partition, Position, ProducerId, ProducerSeq, Seq, WallTime};
use mortarmq_wire::RecordBody;
use mortarmq_wire::ops::Message;
use tokio::sync::Notify;

use crate::settle::Home;

/// One delivery of a message. It is this consumer's alone until it is settled or its lease is lost (P5).
///
/// Say what became of it with [`ack`](Self::ack), [`nack`](Self::nack), [`dead_letter`](Self::dead_letter) or
/// [`release`](Self::release). While it exists its lease is renewed. One that is dropped unsettled is renewed no more: its
/// lease runs out, and the message is delivered again as `lease_expired`.
#[derive(Debug)]
pub struct Delivery {
    /// The message's partition.
    pub partition: Partition,
    /// Its sequence there.
    pub seq: Seq,
    /// This delivery; never reused.
    pub delivery_id: DeliveryId,
    /// Which try this is; the first is 1.
    pub attempt: Attempt,
    /// Why it is delivered (P7).
    pub cause: Cause,
    /// The delivery this one follows; `None` for the first (P7).
    pub previous: Option<DeliveryId>,
    /// Who published it; 0 if not idempotent.
    pub producer_id: ProducerId,
    /// Its number there; 0 if not idempotent.
    pub producer_seq: ProducerSeq,
    /// The key; empty means none.
    pub key: Bytes,
    /// Names and values, in the order in which they were published.
    pub headers: Vec<(Bytes, Bytes)>,
    /// The value.
    pub value: Bytes,
    /// What was left of the lease when the message was sent.
    ///
    /// # Units
    /// Milliseconds.
    pub lease_ms: u32,
    /// When it was published, for display only.
    pub published_at: WallTime,
    /// The position of the command that gave the lease: evidence for a recorded history.
    pub position: Position,
    pub(crate) ownership_epoch: u64,
    pub(crate) lease: Arc<Lease>,
    pub(crate) home: Home,
    /// Its own id in a history; none where none is written.
    pub(crate) msg: Option<Arc<str>>,
}

impl Delivery {
    /// Whether the lease is known to be lost: the message is or will be delivered again, and a settle is answered
    /// [`LeaseLost`](crate::SettleError::LeaseLost) or [`UnknownDelivery`](crate::SettleError::UnknownDelivery).
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lease.is_lost()
    }

    /// Waits until the lease is lost, for a handler that wants to stop then. Waits for ever if it is not.
    ///
    /// Only the broker ends a lease, so a consumer without a connection hears of it when it has one again: what is done
    /// meanwhile may be done by another consumer too.
    pub async fn lost(&self) {
        self.lease.lost().await;
    }

    /// The value of the first header of this name. The broker's own, which tell how a dead letter died, stand behind a message's.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(known, _)| known == name.as_bytes()).map(|(_, value)| &value[..])
    }

    pub(crate) fn of(message: &Message<'_>, home: &Home) -> Self {
        // One copy, of which key, headers and value are parts: a slice of the receive buffer would keep all of it
        // alive.
        let bytes = Bytes::copy_from_slice(message.body.bytes());
        let body = RecordBody::parse_stored(&bytes, message.body.has_headers()).map_or(message.body, |(body, _)| body);
        let part = |part: &[u8]| if part.is_empty() { Bytes::new() } else { bytes.slice_ref(part) };
        Self {
            partition: message.partition,
            seq: message.seq,
            delivery_id: message.delivery_id,
            attempt: message.attempt,
            cause: message.cause,
            previous: Some(message.previous_delivery_id).filter(|previous| *previous != DeliveryId::ZERO),
            producer_id: message.producer_id,
            producer_seq: message.producer_seq,
            key: part(body.key()),
            headers: body.headers().into_iter().flatten().map(|(name, value)| (part(name), part(value))).collect(),
            value: part(body.value()),
            lease_ms: message.lease_ms,
            published_at: message.published_at,
            position: message.position,
            ownership_epoch: message.ownership_epoch,
            lease: Arc::default(),
            home: home.clone(),
            msg: None,
        }
    }
}

/// Whether a lease is known to be lost; shared by the delivery and the engine.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    is_lost: AtomicBool,
    changed: Notify,
}

impl Lease {
    pub(crate) fn lose(&self) {
        self.is_lost.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    async fn lost(&self) {
        let changed = self.changed.notified();
        tokio::pin!(changed);
        // Listen first and look then, or a loss in between would be missed.
        changed.as_mut().enable();
        if !self.is_lost() {
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Lease;

    #[tokio::test]
    async fn whoever_waits_for_a_loss_is_woken_also_when_it_came_before() {
        let lease = Arc::new(Lease::default());
        let waiting = tokio::spawn({
            let lease = Arc::clone(&lease);
            async move { lease.lost().await }
        });
        tokio::task::yield_now().await;
        lease.lose();
        waiting.await.expect("the waiter ends");
        lease.lost().await;
        assert!(lease.is_lost());
    }
}
