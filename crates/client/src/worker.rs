//! A consumer whose messages go to a handler, several at once.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use mortarmq_types::Partition;
use tokio::task::{Id, JoinError, JoinSet};

use crate::consumer::Consumer;
use crate::delivery::Delivery;
use crate::errors::ClientError;

/// What becomes of a message that a handler is done with.
///
/// Made of a `Result`: `Ok` acks, an error nacks with its text and the group's backoff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is done.
    Ack,
    /// Not this time: it comes again after `delay_ms` (0: the group's backoff), which counts an attempt.
    Nack {
        /// How long until then.
        ///
        /// # Units
        /// Milliseconds.
        delay_ms: u32,
        /// Why; kept with a dead letter.
        error_text: String,
    },
    /// No attempt will do: to the dead letters, now.
    DeadLetter {
        /// Why; kept with the dead letter.
        error_text: String,
    },
    /// Given back, which counts no attempt.
    Release,
}

impl<E: std::fmt::Display> From<Result<(), E>> for Verdict {
    fn from(result: Result<(), E>) -> Self {
        match result {
            Ok(()) => Self::Ack,
            Err(error) => Self::Nack { delay_ms: 0, error_text: error.to_string() },
        }
    }
}

impl Consumer {
    /// Gives each message to `handler`, up to `concurrency` at once and never two of one key, and settles it as the handler
    /// says. Goes on until `stop` is there; then handlers that run are waited for and settled, what was fetched ahead is
    /// given back, and the consumer leaves the group. A handler that panics is a nack.
    ///
    /// The broker pushes up to [`credit_messages`](crate::ConsumerOptions::credit_messages) ahead (256 unless the group says
    /// otherwise); other members do not get these. If a message takes long, set it to about twice `concurrency`.
    ///
    /// A lease that is lost does not stop its handler: one that wants to stop then waits for [`Delivery::lost`] beside its
    /// work, or looks at [`Delivery::is_lost`] before each effect. Dropping this future stops all handlers where they are
    /// and gives everything back.
    ///
    /// # Errors
    /// The consumer or the client has ended. A settle that came too late is no error: the message has moved on.
    pub async fn run<H, F, V>(
        mut self,
        concurrency: usize,
        stop: impl Future<Output = ()>,
        mut handler: H,
    ) -> Result<(), ClientError>
    where
        H: FnMut(Arc<Delivery>) -> F,
        F: Future<Output = V> + Send + 'static,
        V: Into<Verdict> + Send + 'static,
    {
        let mut pool = Pool::default();
        let mut stop = std::pin::pin!(stop);
        let end = loop {
            let has_room = pool.busy() < concurrency.max(1);
            tokio::select! {
                biased;
                () = &mut stop => break Ok(()),
                Some(ended) = pool.running.join_next_with_id() => {
                    if let Some(next) = pool.ended(ended) {
                        pool.start(next, &mut handler);
                    }
                }
                next = self.next(), if has_room => match next {
                    Some(Ok(delivery)) => pool.take(Arc::new(delivery), &mut handler),
                    Some(Err(error)) => break Err(error),
                    None => break Ok(()),
                },
            }
        };
        // What waits for its key has not begun; the close gives it back.
        pool.waiting.values_mut().for_each(VecDeque::clear);
        while let Some(ended) = pool.running.join_next_with_id().await {
            drop(pool.ended(ended));
        }
        let closed = self.close().await;
        end.and(closed)
    }
}

type Key = (Partition, Bytes);

/// The handlers that run.
///
/// # Invariants
/// 1. `held` has the delivery of every handler in `running`.
/// 2. Of a key in `waiting` exactly one handler runs, and of any other none. The consumer hands a key's next message over only
///    when the one before is settled, but one whose lease was lost may come again while its first handler still runs.
#[derive(Default)]
struct Pool {
    running: JoinSet<Verdict>,
    held: HashMap<Id, Arc<Delivery>>,
    waiting: BTreeMap<Key, VecDeque<Arc<Delivery>>>,
}

impl Pool {
    /// Messages that a handler has, or that wait for one of its key.
    fn busy(&self) -> usize {
        self.running.len() + self.waiting.values().map(VecDeque::len).sum::<usize>()
    }

    /// Starts its handler, or lets it wait for the one of its key.
    fn take<H, F, V>(&mut self, delivery: Arc<Delivery>, handler: &mut H)
    where
        H: FnMut(Arc<Delivery>) -> F,
        F: Future<Output = V> + Send + 'static,
        V: Into<Verdict> + Send + 'static,
    {
        if let Some(key) = key_of(&delivery) {
            if let Some(waiting) = self.waiting.get_mut(&key) {
                return waiting.push_back(delivery);
            }
            self.waiting.insert(key, VecDeque::new());
        }
        self.start(delivery, handler);
    }

    fn start<H, F, V>(&mut self, delivery: Arc<Delivery>, handler: &mut H)
    where
        H: FnMut(Arc<Delivery>) -> F,
        F: Future<Output = V> + Send + 'static,
        V: Into<Verdict> + Send + 'static,
    {
        let work = handler(Arc::clone(&delivery));
        let task = self.running.spawn(async move { work.await.into() });
        self.held.insert(task.id(), delivery);
    }

    /// Settles what a handler is done with. Returns the next of its key, if that waits.
    fn ended(&mut self, ended: Result<(Id, Verdict), JoinError>) -> Option<Arc<Delivery>> {
        let (id, verdict) = match ended {
            Ok(done) => done,
            Err(error) => (error.id(), Verdict::Nack { delay_ms: 0, error_text: "the handler panicked".to_owned() }),
        };
        let delivery = self.held.remove(&id).expect("what runs is held");
        settle(&delivery, &verdict);
        let key = key_of(&delivery)?;
        let waiting = self.waiting.get_mut(&key).expect("its handler ran until now");
        let next = std::iter::from_fn(|| waiting.pop_front()).find(|next| !next.is_lost());
        if next.is_none() {
            self.waiting.remove(&key);
        }
        next
    }
}

fn key_of(delivery: &Delivery) -> Option<Key> {
    (!delivery.key.is_empty()).then(|| (delivery.partition, delivery.key.clone()))
}

/// Asks for the settle, and tells the log when it is not done: nobody else hears of it.
fn settle(delivery: &Delivery, verdict: &Verdict) {
    let receipt = match verdict {
        Verdict::Ack => delivery.ack(),
        Verdict::Nack { delay_ms, error_text } => delivery.nack(*delay_ms, error_text),
        Verdict::DeadLetter { error_text } => delivery.dead_letter(error_text),
        Verdict::Release => delivery.release(),
    };
    let (partition, seq, delivery_id) = (delivery.partition, delivery.seq, delivery.delivery_id);
    tokio::spawn(async move {
        match receipt.await {
            Ok(()) => {}
            Err(error) if error.has_moved_on() => {
                tracing::debug!(%partition, %seq, %delivery_id, %error, "a handler ended after its lease");
            }
            Err(error) => tracing::warn!(%partition, %seq, %delivery_id, %error, "a message could not be settled"),
        }
    });
}
