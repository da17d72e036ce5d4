//! The way from the shard's loop to one connection. The loop never waits, so the channel has no bound; what slow
//! consumers let pile up in all channels together has one. Once it is passed, whoever holds more than an equal share is
//! told to reconnect and keep up (failure rule 9).

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use mortarmq_node::Delivery;
use tokio::sync::Notify;
use tokio::task::coop::cooperative;

use crate::event::ToConnection;

/// The loop's end.
pub(crate) struct Outlet(Arc<Queued>);

/// The connection's end.
pub(crate) struct Inlet(Arc<Queued>);

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

/// One channel.
struct Queued {
    channel: Mutex<Channel>,
    /// Of messages in it.
    bytes: AtomicUsize,
    all: Arc<Piles>,
    too_many: Notify,
}

struct Channel {
    /// Each with what it holds in memory.
    messages: VecDeque<(ToConnection, usize)>,
    /// Who waits for one.
    waits: Option<Waker>,
    /// Whether anybody takes them.
    is_taken: bool,
    /// Whether more may come.
    is_fed: bool,
}

impl Channel {
    /// Takes the first. What a rush has made large is given back behind its last: the room is nobody's budget.
    fn pop(&mut self) -> Option<(ToConnection, usize)> {
        let first = self.messages.pop_front();
        if self.messages.is_empty() && self.messages.capacity() > KEPT_MESSAGES {
            self.messages = VecDeque::new();
        }
        first
    }
}

impl Queued {
    fn channel(&self) -> MutexGuard<'_, Channel> {
        // A panic elsewhere ends the process, so a poisoned lock means nothing here.
        self.channel.lock().unwrap_or_else(PoisonError::into_inner)
    }

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
    let channel = Channel { messages: VecDeque::new(), waits: None, is_taken: true, is_fed: true };
    let (channel, bytes) = (Mutex::new(channel), AtomicUsize::new(0));
    let queued = Arc::new(Queued { channel, bytes, all: Arc::clone(all), too_many: Notify::new() });
    (Outlet(Arc::clone(&queued)), Inlet(queued))
}

impl Outlet {
    /// Sends; gives the message back if the connection is gone. Whoever waits for it is to be woken by the caller.
    pub(crate) fn send(&self, message: ToConnection) -> Result<Option<Waker>, ToConnection> {
        let bytes = size(&message);
        let mut channel = self.0.channel();
        if !channel.is_taken {
            return Err(message);
        }
        // Before the channel is let go: the other end counts it down as soon as it is there.
        if self.0.add(bytes) {
            self.0.too_many.notify_one();
        }
        channel.messages.push_back((message, bytes));
        Ok(channel.waits.take())
    }

    /// Bytes of messages that wait in the channel.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.0.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        let mut channel = self.0.channel();
        channel.is_fed = false;
        let waits = channel.waits.take();
        drop(channel);
        waits.into_iter().for_each(Waker::wake);
    }
}

impl Inlet {
    /// Waits for the next message; `None` once the loop has let go of the connection.
    pub(crate) async fn recv(&mut self) -> Option<ToConnection> {
        // A connection that is sent more and more gives way to others now and then.
        cooperative(poll_fn(|context| self.poll_recv(context))).await
    }

    fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<ToConnection>> {
        let mut channel = self.0.channel();
        if let Some((message, bytes)) = channel.pop() {
            self.0.remove(bytes);
            return Poll::Ready(Some(message));
        }
        if !channel.is_fed {
            return Poll::Ready(None);
        }
        match &mut channel.waits {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// The next message, if there is one now.
    pub(crate) fn try_recv(&mut self) -> Option<ToConnection> {
        let (message, bytes) = self.0.channel().pop()?;
        self.0.remove(bytes);
        Some(message)
    }

    /// Takes nothing new; what is in the channel can still be taken.
    pub(crate) fn close(&mut self) {
        self.0.channel().is_taken = false;
    }

    /// Tells when too much has piled up.
    pub(crate) fn pile(&self) -> Pile {
        Pile(Arc::clone(&self.0))
    }
}

impl Drop for Inlet {
    fn drop(&mut self) {
        self.close();
    }
}

/// What a message holds in memory, its place in the channel included. Answers are bounded by the requests that a connection may have open.
fn size(message: &ToConnection) -> usize {
    match message {
        ToConnection::Deliveries { messages, .. } => {
            let held = |message: &Delivery| message.record.body().len() + size_of::<Delivery>();
            PLACE_BYTES + messages.iter().map(held).sum::<usize>()
        }
        ToConnection::Replies(_) | ToConnection::PullEnded { .. } => 0,
    }
}

/// What one message takes in the channel itself.
const PLACE_BYTES: usize = size_of::<(ToConnection, usize)>();
/// Room for so many messages is kept: 2 KiB at most.
const KEPT_MESSAGES: usize = 32;
const _: () = assert!(KEPT_MESSAGES * PLACE_BYTES <= 2048);
/// A share is not divided further than among so many. Of the default budget of 256 MiB that leaves 8 MiB, four default
/// windows: a message to hundreds of consumers at once must not turn those out that keep to theirs.
const SHARERS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::{Inlet, KEPT_MESSAGES, PLACE_BYTES, Piles, outlet, size};
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
    async fn rule_9_a_channel_gives_back_the_room_that_a_rush_has_made() {
        assert!(size(&deliveries()) > PLACE_BYTES, "what is small counts too");
        let (outlet, mut inlet) = outlet(&Arc::new(Piles::new(usize::MAX)));
        for takes_at_once in [false, true] {
            for _ in 0..10_000 {
                outlet.send(deliveries()).expect("open");
            }
            assert!(inlet.0.channel().messages.capacity() >= 10_000);
            for _ in 0..10_000 {
                let message = if takes_at_once { inlet.try_recv() } else { inlet.recv().await };
                assert!(message.is_some());
            }
            assert!(inlet.0.channel().messages.capacity() <= KEPT_MESSAGES);
        }
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
