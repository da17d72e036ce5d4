//! Producer windows (P3): what makes a retried publish the same publish.
//!
//! A line of numbers belongs to (topic, partition as it stands in the request, producer). It remembers, for its newest
//! numbers, where each message went and a hash of its content, so that a retry gets the first answer and two producers
//! with one identity are told apart.

use mortarmq_types::{ClusterTime, Partition, ProducerId, ProducerSeq, Seq};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Names one line of numbers within a topic.
pub type LineKey = (Partition, ProducerId);

/// Where a remembered publish went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// The partition it was placed in.
    pub partition: Partition,
    /// The sequence it got.
    pub seq: Seq,
    /// Hash of key, headers and value.
    pub content_hash: u64,
}

/// What a number means for its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The next number: store the message.
    Next,
    /// A retry: give the first answer.
    Known(Remembered),
    /// The number was used for other bytes: two producers share one identity.
    OtherContent,
    /// A number further ahead; this one is expected.
    Gap {
        /// The number that comes next.
        expected: ProducerSeq,
    },
    /// Older than the window, or not 1 from a producer that is not known.
    Expired,
}

/// The lines of one topic.
///
/// # Invariants
/// 1. `idle` holds each line exactly once, under the time it is filed with.
/// 2. `entries` is the number of remembered publishes of all lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Producers {
    lines: BTreeMap<LineKey, Line>,
    idle: BTreeSet<(ClusterTime, LineKey)>,
    entries: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    last: ProducerSeq,
    window: VecDeque<Remembered>,
    /// When it was last used, to the nearest [`FILED_EVERY_MS`]: it is filed anew only then.
    filed: ClusterTime,
}

/// A line in use moves in the idle order at most this often, which keeps publishing cheap.
const FILED_EVERY_MS: u64 = 60_000;

impl Producers {
    /// Looks a number up without changing anything.
    #[must_use]
    pub fn standing(&self, key: LineKey, number: ProducerSeq, content_hash: u64) -> Standing {
        let Some(line) = self.lines.get(&key) else {
            return if number == ProducerSeq::new(1) { Standing::Next } else { Standing::Expired };
        };
        if number > line.last {
            let expected = line.last.next();
            return if number == expected { Standing::Next } else { Standing::Gap { expected } };
        }
        let back = line.last.above(number);
        let place = usize::try_from(back).ok().and_then(|back| line.window.len().checked_sub(back + 1));
        match place.map(|place| line.window[place]) {
            None => Standing::Expired,
            Some(known) if known.content_hash == content_hash => Standing::Known(known),
            Some(_) => Standing::OtherContent,
        }
    }

    /// Whether the line is known.
    #[must_use]
    pub fn knows(&self, key: LineKey) -> bool {
        self.lines.contains_key(&key)
    }

    /// Remembers the publish that got the next number of its line.
    ///
    /// # Panics
    /// When the number is not the next one: [`Self::standing`] is asked first.
    pub fn remember(&mut self, key: LineKey, number: ProducerSeq, what: Remembered, window: usize, now: ClusterTime) {
        let line = self.lines.entry(key).or_insert_with(|| {
            self.idle.insert((now, key));
            Line { last: ProducerSeq::ZERO, window: VecDeque::new(), filed: now }
        });
        assert_eq!(line.last.next(), number, "P3: a line of producer numbers has no hole");
        line.last = number;
        // Two at most: a window that was made smaller shrinks step by step.
        for _ in 0..2 {
            if line.window.len() >= window.max(1) {
                line.window.pop_front();
                self.entries -= 1;
            }
        }
        line.window.push_back(what);
        self.entries += 1;
        if now.since_ms(line.filed) >= FILED_EVERY_MS {
            self.idle.remove(&(line.filed, key));
            line.filed = now;
            self.idle.insert((now, key));
        }
    }

    /// Forgets lines that were idle for `idle_ms`, oldest first, at most `limit` of them; says how many went.
    pub fn forget_idle(&mut self, now: ClusterTime, idle_ms: u64, limit: usize) -> usize {
        let mut gone = 0;
        while gone < limit {
            let Some(&(filed, key)) = self.idle.first() else { break };
            // A line may have been used up to FILED_EVERY_MS after it was filed.
            if now.since_ms(filed) < idle_ms.saturating_add(FILED_EVERY_MS) {
                break;
            }
            self.idle.remove(&(filed, key));
            let line = self.lines.remove(&key).expect("invariant 1: every filed line exists");
            self.entries -= line.window.len() as u64;
            gone += 1;
        }
        gone
    }

    /// Remembered publishes of all lines.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Asserts every numbered invariant.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self) {
        assert_eq!(self.idle.len(), self.lines.len(), "invariant 1: every line is filed once");
        assert!(self.lines.iter().all(|(key, line)| self.idle.contains(&(line.filed, *key))), "invariant 1");
        let entries: u64 = self.lines.values().map(|line| line.window.len() as u64).sum();
        assert_eq!(entries, self.entries, "invariant 2");
    }
}

#[cfg(test)]
mod tests {
    use super::{Producers, Remembered, Standing};
    use mortarmq_types::{ClusterTime, Partition, ProducerId, ProducerSeq, Seq};

    const KEY: super::LineKey = (Partition::ANY, ProducerId::new(7));

    fn at(number: u64) -> Remembered {
        Remembered { partition: Partition::ZERO, seq: Seq::new(number), content_hash: number * 10 }
    }

    fn filled(numbers: u64, window: usize) -> Producers {
        let mut producers = Producers::default();
        for number in 1..=numbers {
            producers.remember(KEY, ProducerSeq::new(number), at(number), window, ClusterTime::ZERO);
            producers.check();
        }
        producers
    }

    #[test]
    fn p3_a_retry_is_known_a_gap_is_named_and_other_bytes_are_refused() {
        let producers = filled(6, 4);
        let ask = |number: u64, hash: u64| producers.standing(KEY, ProducerSeq::new(number), hash);
        assert_eq!(ask(7, 0), Standing::Next);
        assert_eq!(ask(8, 0), Standing::Gap { expected: ProducerSeq::new(7) });
        assert_eq!(ask(6, 60), Standing::Known(at(6)));
        assert_eq!(ask(3, 30), Standing::Known(at(3)));
        assert_eq!(ask(3, 31), Standing::OtherContent);
        assert_eq!(ask(2, 20), Standing::Expired);
        let stranger = (Partition::ZERO, ProducerId::new(7));
        assert_eq!(producers.standing(stranger, ProducerSeq::new(1), 0), Standing::Next);
        assert_eq!(producers.standing(stranger, ProducerSeq::new(2), 0), Standing::Expired);
    }

    #[test]
    fn idle_lines_go_only_after_their_time() {
        let mut producers = filled(3, 4);
        assert_eq!(producers.forget_idle(ClusterTime::new(600_000), 600_000, 8), 0);
        assert_eq!(producers.forget_idle(ClusterTime::new(660_000), 600_000, 8), 1);
        assert_eq!(producers.entries(), 0);
        producers.check();
    }
}
