//! What the clients of a run saw, counted: for the table, and to know whether the cluster goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Counts of a run.
#[derive(Debug)]
pub(crate) struct Tally {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    counts: Counts,
    /// Every message that was confirmed.
    published: BTreeSet<String>,
    /// Every message that came, by the path for which it counts.
    delivered: BTreeMap<String, BTreeSet<String>>,
    /// When the last publish was confirmed, and the longest time between two.
    last: Instant,
    longest: Duration,
    /// When the latest of the confirmed publishes was called.
    latest_call: Option<Instant>,
    /// Whether nobody publishes any more.
    is_over: bool,
    /// The wall times that nodes gave to messages, earliest and latest.
    clock_ms: Option<(u64, u64)>,
}

/// The figures of the table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Publishes that were confirmed.
    pub publishes: u64,
    /// Messages that came, dead letters included.
    pub deliveries: u64,
    /// Acks that were confirmed.
    pub acks: u64,
}

impl Tally {
    pub(crate) fn new() -> Self {
        let state = State {
            counts: Counts::default(),
            published: BTreeSet::new(),
            delivered: BTreeMap::new(),
            last: Instant::now(),
            longest: Duration::ZERO,
            latest_call: None,
            is_over: false,
            clock_ms: None,
        };
        Self { state: Mutex::new(state) }
    }

    /// A publish that was called then has been confirmed now.
    pub(crate) fn published(&self, msg: &str, called: Instant) {
        let mut state = self.lock();
        state.counts.publishes += 1;
        state.published.insert(msg.to_owned());
        state.latest_call = state.latest_call.max(Some(called));
        state.note_gap();
    }

    /// A message came, for the path that owed it.
    pub(crate) fn delivered(&self, path: &str, msg: &str) {
        let mut state = self.lock();
        state.counts.deliveries += 1;
        if !state.delivered.contains_key(path) {
            state.delivered.insert(path.to_owned(), BTreeSet::new());
        }
        if let Some(seen) = state.delivered.get_mut(path) {
            seen.insert(msg.to_owned());
        }
    }

    /// An ack was confirmed.
    pub(crate) fn acked(&self) {
        self.lock().counts.acks += 1;
    }

    /// From now on a silence means nothing: nobody publishes any more.
    pub(crate) fn end_publishing(&self) {
        let mut state = self.lock();
        state.note_gap();
        state.is_over = true;
    }

    /// A message says when it was published, by its node's wall clock.
    pub(crate) fn saw_clock(&self, wall_ms: u64) {
        let mut state = self.lock();
        let (earliest, latest) = state.clock_ms.unwrap_or((wall_ms, wall_ms));
        state.clock_ms = Some((earliest.min(wall_ms), latest.max(wall_ms)));
    }

    /// How far apart the wall times are that nodes gave to messages.
    pub(crate) fn clock_spread(&self) -> Duration {
        let spread = self.lock().clock_ms.map_or(0, |(earliest, latest)| latest - earliest);
        Duration::from_millis(spread)
    }

    /// The counts so far.
    pub(crate) fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// The longest time without a confirmed publish.
    pub(crate) fn longest_silence(&self) -> Duration {
        self.lock().longest
    }

    /// When the latest of the confirmed publishes was called.
    pub(crate) fn latest_call(&self) -> Option<Instant> {
        self.lock().latest_call
    }

    /// Confirmed messages that never came on a path.
    pub(crate) fn missing(&self, path: &str) -> Vec<String> {
        let state = self.lock();
        let none = BTreeSet::new();
        let delivered = state.delivered.get(path).unwrap_or(&none);
        state.published.difference(delivered).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nobody panics while holding it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn note_gap(&mut self) {
        if !self.is_over {
            let now = Instant::now();
            self.longest = self.longest.max(now - self.last);
            self.last = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Tally;

    #[test]
    fn what_was_confirmed_and_never_came_is_missing_on_that_path_only() {
        let tally = Tally::new();
        for msg in ["a", "b"] {
            tally.published(msg, Instant::now());
            tally.delivered("orders/billing", msg);
        }
        tally.delivered("orders/audit", "a");
        assert!(tally.missing("orders/billing").is_empty());
        assert_eq!(tally.missing("orders/audit"), ["b"]);
        assert_eq!(tally.missing("orders/other"), ["a", "b"]);
    }

    #[test]
    fn a_silence_counts_to_the_end_of_publishing_and_no_further() {
        let tally = Tally::new();
        std::thread::sleep(Duration::from_millis(20));
        tally.end_publishing();
        let longest = tally.longest_silence();
        assert!(longest >= Duration::from_millis(20));
        std::thread::sleep(Duration::from_millis(30));
        tally.published("late", Instant::now());
        assert_eq!(tally.longest_silence(), longest);
    }
}
