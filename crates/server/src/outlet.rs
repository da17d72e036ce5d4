//! The way from the shard's loop to one connection. The loop never waits, so the channel has no bound; what slow
//! consumers let pile up in all channels together has one. Once it is passed, whoever holds more than an equal share is
//! told to reconnect and keep up (failure rule 9).

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

/// What the channels of all connections hold together.
#[derive(Debug)]
pub(crate) struct Piles {
    bytes: AtomicUsize,
    /// Channels that hold anything.
    count: AtomicUsize,
    budget_bytes: usize,
}

impl Piles {
    pub(crate) fn new(budget_bytes: usize) -> Self {
        Self { bytes: AtomicUsize::new(0), count: AtomicUsize::new(0), budget_bytes }
    }
}

/// Messages in one channel.
struct Queued {
    bytes: AtomicUsize,
    all: Arc<Piles>,
    too_many: Notify,
}

impl Queued {
    /// Adds; says whether this channel is to blame for too much.
    fn add(&self, bytes: usize) -> bool {
        if bytes == 0 {
            return false;
        }
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if before == 0 {
            self.all.count.fetch_add(1, Ordering::Relaxed);
        }
        let all_bytes = self.all.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let sharers = self.all.count.load(Ordering::Relaxed).clamp(1, SHARERS_MAX);
        let share = self.all.budget_bytes / sharers;
        all_bytes > self.all.budget_bytes && before + bytes > share
    }

    fn remove(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.all.bytes.fetch_sub(bytes, Ordering::Relaxed);
        if self.bytes.fetch_sub(bytes, Ordering::Relaxed) == bytes {
            self.all.count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Both ends of a new channel, which counts to `all`.
pub(crate) fn outlet(all: &Arc<Piles>) -> (Outlet, Inlet) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let queued = Arc::new(Queued { bytes: AtomicUsize::new(0), all: Arc::clone(all), too_many: Notify::new() });
    (Outlet { sender, queued: Arc::clone(&queued) }, Inlet { receiver, queued })
}

impl Outlet {
    /// Sends; gives the message back if the connection is gone.
    pub(crate) fn send(&self, message: ToConnection) -> Result<(), ToConnection> {
        let bytes = size(&message);
        // Before it is sent: the other end counts it down as soon as it is there.
        if self.queued.add(bytes) {
            self.queued.too_many.notify_one();
        }
        self.sender.send(message).map_err(|mpsc::error::SendError(message)| {
            self.queued.remove(bytes);
            message
        })
    }
}

impl Outlet {
    /// Bytes of messages that wait in the channel.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued.bytes.load(Ordering::Relaxed)
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
        self.queued.remove(size(&message));
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

/// A share is not divided further than among so many. Of the default budget of 256 MiB that leaves 8 MiB, four default
/// windows: a message to hundreds of consumers at once must not turn those out that keep to theirs.
const SHARERS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::{Inlet, Piles, outlet, size};
    use crate::event::ToConnection;
    use bytes::BytesMut;
    use mortarmq_node::Delivery;
    use mortarmq_shard::record::{NewRecord, open_record, write_record};
    use mortarmq_types::{
        Attempt, Cause, DeliveryId, MonotonicTime, Partition, Position, ProducerId, ProducerSeq, Seq, TopicIncarnation,
        WallTime,
    };
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

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

    async fn is_too_slow(inlet: &Inlet) -> bool {
        let pile = inlet.pile();
        tokio::select! { biased; () = pile.too_high() => true, () = std::future::ready(()) => false }
    }

    #[tokio::test]
    async fn rule_9_a_consumer_that_lets_too_much_pile_up_is_told() {
        let one = size(&deliveries());
        let (outlet, mut inlet) = outlet(&Arc::new(Piles::new(2 * one)));
        for _ in 0..100 {
            // Whoever keeps up is never too slow, however much passes.
            outlet.send(deliveries()).expect("open");
            outlet.send(deliveries()).expect("open");
            assert!(inlet.recv().await.is_some() && inlet.try_recv().is_some());
        }
        assert!(!is_too_slow(&inlet).await);
        for _ in 0..3 {
            outlet.send(deliveries()).expect("open");
        }
        assert!(is_too_slow(&inlet).await);
        inlet.close();
        assert!(outlet.send(deliveries()).is_err(), "what cannot be sent comes back");
        assert_eq!((0..4).filter_map(|_| inlet.try_recv()).count(), 3, "and what was sent can be taken out");
    }

    #[tokio::test]
    async fn rule_9_many_slow_consumers_share_one_bound_and_one_that_keeps_up_is_spared() {
        let one = size(&deliveries());
        let all = Arc::new(Piles::new(8 * one));
        let slow: Vec<_> = (0..4).map(|_| outlet(&all)).collect();
        for (outlet, _) in &slow {
            outlet.send(deliveries()).expect("open");
            outlet.send(deliveries()).expect("open");
        }
        for (_, inlet) in &slow {
            assert!(!is_too_slow(inlet).await, "together they hold what they may");
        }
        let (keeps_up, mut its_inlet) = outlet(&all);
        keeps_up.send(deliveries()).expect("open");
        assert!(!is_too_slow(&its_inlet).await, "it has less than its share");
        assert!(its_inlet.recv().await.is_some());
        slow[0].0.send(deliveries()).expect("open");
        assert!(is_too_slow(&slow[0].1).await, "3 of 9 are more than a share of 2");
        for (outlet, mut inlet) in slow {
            inlet.close();
            assert!(outlet.send(deliveries()).is_err());
            while inlet.try_recv().is_some() {}
        }
        assert_eq!((all.bytes.load(Ordering::Relaxed), all.count.load(Ordering::Relaxed)), (0, 0), "all is given back");
    }
}
