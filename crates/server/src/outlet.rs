//! The way from the shard's loop to one connection. The loop never waits, so the channel has no bound; what a slow
//! consumer lets pile up in it has one, and whoever passes it is told to reconnect and keep up (failure rule 9).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mortarmq_node::Delivery;
use tokio::sync::Notify;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::event::ToConnection;

/// The loop's end.
pub(crate) struct Outlet {
    sender: UnboundedSender<ToConnection>,
    queued: Arc<Queued>,
}

/// The connection's end.
pub(crate) struct Inlet {
    receiver: UnboundedReceiver<ToConnection>,
    queued: Arc<Queued>,
}

/// Tells when too much has piled up in a channel.
pub(crate) struct Pile(Arc<Queued>);

impl Pile {
    /// Waits until too much has piled up.
    pub(crate) async fn too_high(&self) {
        self.0.too_many.notified().await;
    }
}

/// Messages in the channel.
struct Queued {
    bytes: AtomicUsize,
    most_bytes: usize,
    too_many: Notify,
}

/// Both ends of a new channel.
pub(crate) fn outlet() -> (Outlet, Inlet) {
    bounded(QUEUED_BYTES_MAX)
}

fn bounded(most_bytes: usize) -> (Outlet, Inlet) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let queued = Arc::new(Queued { bytes: AtomicUsize::new(0), most_bytes, too_many: Notify::new() });
    (Outlet { sender, queued: Arc::clone(&queued) }, Inlet { receiver, queued })
}

impl Outlet {
    /// Sends; gives the message back if the connection is gone.
    pub(crate) fn send(&self, message: ToConnection) -> Result<(), ToConnection> {
        let bytes = size(&message);
        let before = self.queued.bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > self.queued.most_bytes {
            self.queued.too_many.notify_one();
        }
        self.sender.send(message).map_err(|mpsc::error::SendError(message)| message)
    }
}

impl Inlet {
    /// Waits for the next message; `None` once the loop has let go of the connection.
    pub(crate) async fn recv(&mut self) -> Option<ToConnection> {
        let message = self.receiver.recv().await?;
        Some(self.count(message))
    }

    /// The next message, if there is one now.
    pub(crate) fn try_recv(&mut self) -> Option<ToConnection> {
        let message = self.receiver.try_recv().ok()?;
        Some(self.count(message))
    }

    /// Takes nothing new; what is in the channel can still be taken.
    pub(crate) fn close(&mut self) {
        self.receiver.close();
    }

    /// Tells when too much has piled up.
    pub(crate) fn pile(&self) -> Pile {
        Pile(Arc::clone(&self.queued))
    }

    fn count(&self, message: ToConnection) -> ToConnection {
        self.queued.bytes.fetch_sub(size(&message), Ordering::Relaxed);
        message
    }
}

/// What a message holds in memory. Answers are bounded by the requests that a connection may have open.
fn size(message: &ToConnection) -> usize {
    match message {
        ToConnection::Deliveries { messages, .. } => {
            messages.iter().map(|message| message.record.body().len() + size_of::<Delivery>()).sum()
        }
        ToConnection::Replies(_) | ToConnection::PullEnded { .. } => 0,
    }
}

/// Far above every default window; only a huge window or pull on a slow line comes here.
const QUEUED_BYTES_MAX: usize = 256 << 20;

#[cfg(test)]
mod tests {
    use super::{bounded, size};
    use crate::event::ToConnection;
    use bytes::BytesMut;
    use mortarmq_node::Delivery;
    use mortarmq_shard::record::{NewRecord, open_record, write_record};
    use mortarmq_types::{
        Attempt, Cause, DeliveryId, MonotonicTime, Partition, Position, ProducerId, ProducerSeq, Seq, TopicIncarnation,
        WallTime,
    };

    fn deliveries() -> ToConnection {
        let mut bytes = BytesMut::new();
        let (producer_id, producer_seq) = (ProducerId::ZERO, ProducerSeq::ZERO);
        write_record(&mut bytes, &NewRecord { producer_id, producer_seq, key: b"", has_headers: false, body: &[0; 6] });
        let delivery = Delivery {
            topic: TopicIncarnation::new(1),
            partition: Partition::ZERO,
            seq: Seq::FIRST,
            delivery_id: DeliveryId::new(1),
            attempt: Attempt::FIRST,
            cause: Cause::First,
            previous: DeliveryId::ZERO,
            lease_until: MonotonicTime::MAX,
            send_before: MonotonicTime::MAX,
            published_at: WallTime::ZERO,
            position: Position::default(),
            record: open_record(&bytes.freeze()).expect("whole"),
        };
        ToConnection::Deliveries { subscription: 1, messages: vec![delivery] }
    }

    #[tokio::test]
    async fn rule_9_a_consumer_that_lets_too_much_pile_up_is_told() {
        let one = size(&deliveries());
        let (outlet, mut inlet) = bounded(2 * one);
        for _ in 0..100 {
            // Whoever keeps up is never too slow, however much passes.
            outlet.send(deliveries()).expect("open");
            outlet.send(deliveries()).expect("open");
            assert!(inlet.recv().await.is_some() && inlet.try_recv().is_some());
        }
        let is_too_slow = async |pile: super::Pile| {
            tokio::select! { biased; () = pile.too_high() => true, () = std::future::ready(()) => false }
        };
        assert!(!is_too_slow(inlet.pile()).await);
        for _ in 0..3 {
            outlet.send(deliveries()).expect("open");
        }
        assert!(is_too_slow(inlet.pile()).await);
        inlet.close();
        assert!(outlet.send(deliveries()).is_err(), "what cannot be sent comes back");
        assert_eq!((0..4).filter_map(|_| inlet.try_recv()).count(), 3, "and what was sent can be given back");
    }
}
