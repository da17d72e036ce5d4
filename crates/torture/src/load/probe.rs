//! Producers that always have one publish unanswered, one at each node: when a cluster goes on after a failure, to the millisecond.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mortarmq_client::{Message, ProducerOptions};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::site::{Site, TOPIC, value_of};
use crate::network::NODES;

/// The producers of one failure. Each begins at a node of its own, so one of them is always at the node that fails.
pub(crate) struct Probes {
    pub(crate) answers: Arc<Answers>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<Result<(), String>>,
}

/// When each probe was first answered, in each epoch.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    firsts: Mutex<BTreeMap<(usize, u64), Instant>>,
}

/// How long it took until publishes were answered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failover {
    /// The first one of any producer.
    pub(crate) first: Duration,
    /// The first one of the producer that waited longest.
    pub(crate) all: Duration,
}

impl Probes {
    /// Begins; called inside a runtime.
    pub(crate) fn begin(site: &Site) -> Self {
        let (answers, stop, mut tasks) = (Arc::<Answers>::default(), watch::Sender::new(false), JoinSet::new());
        let number = ROUNDS.fetch_add(1, Ordering::Relaxed);
        for node in 0..NODES {
            let (site, answers, stop) = (site.clone(), Arc::clone(&answers), stop.subscribe());
            tasks.spawn(async move { run(&site, number, node, &answers, stop).await });
        }
        Self { answers, stop, tasks }
    }

    /// Ends once each has its last answer.
    pub(crate) async fn end(mut self) -> Result<(), String> {
        self.stop.send_replace(true);
        while let Some(ended) = self.tasks.join_next().await {
            ended.map_err(|error| error.to_string())??;
        }
        Ok(())
    }
}

impl Answers {
    fn note(&self, node: usize, epoch: u64, now: Instant) {
        self.lock().entry((node, epoch)).or_insert(now);
    }

    /// Whether every probe was answered at all: from then on each waits for an answer.
    pub(crate) fn has_all(&self) -> bool {
        let firsts = self.lock();
        (0..NODES).all(|node| firsts.keys().any(|(of, _)| *of == node))
    }

    /// How long it took after a failure, once each probe was answered by a leader of a later epoch than this. An answer of the one that
    /// failed, which was on its way, does not count.
    pub(crate) fn failover(&self, epoch: u64, failed: Instant) -> Option<Failover> {
        let firsts = self.lock();
        let of = |node: usize| {
            let later = firsts.range((node, epoch + 1)..=(node, u64::MAX));
            later.map(|(_, at)| *at).filter(|at| *at > failed).min()
        };
        let waited = (0..NODES).map(|node| Some(of(node)? - failed)).collect::<Option<Vec<_>>>()?;
        Some(Failover { first: *waited.iter().min()?, all: *waited.iter().max()? })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(usize, u64), Instant>> {
        // Nobody panics while holding it.
        self.firsts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn run(
    site: &Site,
    number: u64,
    node: usize,
    answers: &Answers,
    mut stop: watch::Receiver<bool>,
) -> Result<(), String> {
    let name = format!("probe-{number}-{node}");
    let client = site.connect_eagerly(&name, node).await;
    let options = ProducerOptions { max_outstanding: 1, ..ProducerOptions::default() };
    let producer = client.producer(TOPIC, options).await.map_err(|error| format!("{name}: {error}"))?;
    for count in 0_u64.. {
        let id = format!("{name}-{count}");
        let called = Instant::now();
        // One that was refused or left open is in the history; the next one is a message of its own.
        if let Ok(published) = producer.publish(Message::of(&value_of(&id, 100))).await {
            answers.note(node, published.epoch.get(), Instant::now());
            site.tally.published(&id, called);
        }
        if tokio::time::timeout(PAUSE, stop.wait_for(|stop| *stop)).await.is_ok() {
            break;
        }
    }
    drop(producer);
    client.close().await;
    Ok(())
}

/// Names of messages and clients are never used again.
static ROUNDS: AtomicU64 = AtomicU64::new(0);
/// Between an answer and the next publish: as exactly is an end of an outage seen, at worst. Consumers keep up with what this leaves.
const PAUSE: Duration = Duration::from_millis(4);

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Answers, Failover};

    #[test]
    fn only_a_later_leader_ends_an_outage_and_the_last_probe_decides() {
        let (answers, failed) = (Answers::default(), Instant::now());
        let at = |ms| failed + Duration::from_millis(ms);
        (0..2).for_each(|node| answers.note(node, 5, failed));
        assert!(!answers.has_all());
        answers.note(2, 5, failed);
        assert!(answers.has_all());
        // It was sent before the kill and read behind it.
        answers.note(0, 5, at(1));
        assert_eq!(answers.failover(5, failed), None);
        answers.note(1, 6, at(600));
        answers.note(1, 6, at(900));
        answers.note(2, 7, at(650));
        assert_eq!(answers.failover(5, failed), None, "one still waits");
        answers.note(0, 6, at(700));
        let [first, all] = [600, 700].map(Duration::from_millis);
        assert_eq!(answers.failover(5, failed), Some(Failover { first, all }));
        assert_eq!(answers.failover(6, at(601)), None, "of a later failure only one was answered");
    }
}
