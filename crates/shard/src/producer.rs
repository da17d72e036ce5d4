//! Producer windows (P3): what makes a retried publish the same publish.
//!
//! A line of numbers belongs to (topic, partition as it stands in the request, producer). It remembers, for its newest
//! numbers, where each message went and a hash of its content, so that a retry gets the first answer and two producers
//! with one identity are told apart.

use mortarmq_types::{ClusterTime, Partition, ProducerId, ProducerSeq, Seq};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

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
/// They lie in buckets by hash, buckets and lines each behind `Arc`: while an image of the state lives, a publish copies
/// the pointers of one bucket and its own line, and not every line of the topic.
///
/// # Invariants
/// 1. Each line lies in the bucket of its key, and `idle` of the bucket holds it exactly once, under its filed time.
/// 2. `entries` is the number of remembered publishes of all lines.
/// 3. `oldest` holds exactly the buckets with lines, each under the earliest time that is filed in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Producers {
    buckets: Vec<Arc<Bucket>>,
    oldest: BTreeSet<(ClusterTime, usize)>,
    entries: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Bucket {
    lines: BTreeMap<LineKey, Arc<Line>>,
    idle: BTreeSet<(ClusterTime, LineKey)>,
}

/// What is remembered of one line of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// The newest number.
    pub(crate) last: ProducerSeq,
    /// The newest publishes, oldest first; the last one is that of `last`.
    pub(crate) window: VecDeque<Remembered>,
    /// When it was last used, to the nearest [`FILED_EVERY_MS`]: it is filed anew only then.
    pub(crate) filed: ClusterTime,
}

/// A line in use moves in the idle order at most this often, which keeps publishing cheap.
const FILED_EVERY_MS: u64 = 60_000;

/// Buckets of a topic: enough that a copy of one is short, few enough that the pointers of an idle topic cost little.
const BUCKETS: usize = 64;

impl Default for Producers {
    fn default() -> Self {
        // All begin as one: a bucket is made when its first line comes.
        Self { buckets: vec![Arc::default(); BUCKETS], oldest: BTreeSet::new(), entries: 0 }
    }
}

impl Producers {
    /// Looks a number up without changing anything.
    #[must_use]
    pub fn standing(&self, key: LineKey, number: ProducerSeq, content_hash: u64) -> Standing {
        let Some(line) = self.buckets[bucket_of(key)].lines.get(&key) else {
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
        self.buckets[bucket_of(key)].lines.contains_key(&key)
    }

    /// Remembers the publish that got the next number of its line.
    ///
    /// # Panics
    /// When the number is not the next one: [`Self::standing`] is asked first.
    pub fn remember(&mut self, key: LineKey, number: ProducerSeq, what: Remembered, window: usize, now: ClusterTime) {
        let place = bucket_of(key);
        let bucket = Arc::make_mut(&mut self.buckets[place]);
        let before = bucket.earliest();
        let dropped = bucket.remember(key, number, what, window, now);
        self.entries = self.entries + 1 - dropped;
        let after = bucket.earliest();
        self.reorder(place, before, after);
    }

    /// Forgets lines that were idle for `idle_ms`, those filed earliest first, at most `limit` of them; says how many went.
    pub fn forget_idle(&mut self, now: ClusterTime, idle_ms: u64, limit: usize) -> usize {
        let mut gone = 0;
        while gone < limit {
            let Some(&(filed, place)) = self.oldest.first() else { break };
            // A line may have been used up to FILED_EVERY_MS after it was filed.
            if now.since_ms(filed) < idle_ms.saturating_add(FILED_EVERY_MS) {
                break;
            }
            let bucket = Arc::make_mut(&mut self.buckets[place]);
            let (_, key) = bucket.idle.pop_first().expect("invariant 3: the bucket has a line filed then");
            let line = bucket.lines.remove(&key).expect("invariant 1: every filed line exists");
            self.entries -= line.window.len() as u64;
            let after = bucket.earliest();
            self.reorder(place, Some(filed), after);
            gone += 1;
        }
        gone
    }

    /// Takes at most so many lines away, for whoever needs none of them any more; says how many.
    pub(crate) fn take_apart(&mut self, limit: usize) -> usize {
        let mut gone = 0;
        for bucket in &mut self.buckets {
            // What an image still has goes with the image.
            let Some(bucket) = Arc::get_mut(bucket) else { continue };
            while gone < limit && (bucket.lines.pop_first().is_some() | bucket.idle.pop_first().is_some()) {
                gone += 1;
            }
        }
        gone
    }

    /// When the line that is idle longest was filed.
    pub(crate) fn oldest_filed(&self) -> Option<ClusterTime> {
        self.oldest.first().map(|(filed, _)| *filed)
    }

    /// Remembered publishes of all lines.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Every line, by rising key.
    pub(crate) fn lines(&self) -> Vec<(LineKey, &Line)> {
        let mut lines: Vec<_> =
            self.buckets.iter().flat_map(|bucket| &bucket.lines).map(|(key, line)| (*key, &**line)).collect();
        lines.sort_unstable_by_key(|(key, _)| *key);
        lines
    }

    /// Takes lines back that [`Self::lines`] gave. The caller has checked that no key comes twice.
    pub(crate) fn restore(lines: Vec<(LineKey, Line)>) -> Self {
        let mut producers = Self::default();
        for (key, line) in lines {
            producers.entries += line.window.len() as u64;
            let bucket = Arc::make_mut(&mut producers.buckets[bucket_of(key)]);
            bucket.idle.insert((line.filed, key));
            bucket.lines.insert(key, Arc::new(line));
        }
        producers.oldest = producers.earliest_of_buckets();
        producers
    }

    /// Asserts every numbered invariant.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self) {
        let mut entries = 0;
        for (place, bucket) in self.buckets.iter().enumerate() {
            assert_eq!(bucket.idle.len(), bucket.lines.len(), "invariant 1: every line is filed once");
            for (key, line) in &bucket.lines {
                assert_eq!(bucket_of(*key), place, "invariant 1: the bucket of {key:?}");
                assert!(bucket.idle.contains(&(line.filed, *key)), "invariant 1: {key:?} is filed elsewhere");
                entries += line.window.len() as u64;
            }
        }
        assert_eq!(entries, self.entries, "invariant 2");
        assert_eq!(self.oldest, self.earliest_of_buckets(), "invariant 3");
    }

    fn earliest_of_buckets(&self) -> BTreeSet<(ClusterTime, usize)> {
        let earliest = |(place, bucket): (usize, &Arc<Bucket>)| Some((bucket.earliest()?, place));
        self.buckets.iter().enumerate().filter_map(earliest).collect()
    }

    /// Keeps `oldest` in step with a bucket whose earliest time may have changed.
    fn reorder(&mut self, place: usize, before: Option<ClusterTime>, after: Option<ClusterTime>) {
        if before == after {
            return;
        }
        if let Some(before) = before {
            self.oldest.remove(&(before, place));
        }
        if let Some(after) = after {
            self.oldest.insert((after, place));
        }
    }
}

impl Bucket {
    /// The earliest time under which a line is filed.
    fn earliest(&self) -> Option<ClusterTime> {
        self.idle.first().map(|(filed, _)| *filed)
    }

    /// Remembers a publish and says how many older ones its line forgot.
    fn remember(
        &mut self,
        key: LineKey,
        number: ProducerSeq,
        what: Remembered,
        window: usize,
        now: ClusterTime,
    ) -> u64 {
        let line = self.lines.entry(key).or_insert_with(|| {
            self.idle.insert((now, key));
            Arc::new(Line { last: ProducerSeq::ZERO, window: VecDeque::new(), filed: now })
        });
        let line = Arc::make_mut(line);
        assert_eq!(line.last.next(), number, "P3: a line of producer numbers has no hole");
        line.last = number;
        let mut dropped = 0;
        // Two at most: a window that was made smaller shrinks step by step.
        for _ in 0..2 {
            if line.window.len() >= window.max(1) {
                line.window.pop_front();
                dropped += 1;
            }
        }
        line.window.push_back(what);
        if now.since_ms(line.filed) >= FILED_EVERY_MS {
            self.idle.remove(&(line.filed, key));
            line.filed = now;
            self.idle.insert((now, key));
        }
        dropped
    }
}

/// The bucket of a line: the upper bits of a multiplicative hash, as producers may count their identities up by one.
fn bucket_of((partition, producer): LineKey) -> usize {
    let mixed = (producer.get() ^ u64::from(partition.get()).rotate_right(16)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    usize::try_from(mixed >> (64 - BUCKETS.ilog2())).expect("less than BUCKETS")
}

const _: () = assert!(BUCKETS.is_power_of_two());

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

    #[test]
    fn lines_of_many_producers_spread_over_the_buckets_and_go_in_the_order_of_their_filing() {
        let mut producers = Producers::default();
        for id in 1..=1000 {
            let key = (Partition::ANY, ProducerId::new(id));
            producers.remember(key, ProducerSeq::new(1), at(1), 4, ClusterTime::new(2000 - id));
        }
        producers.check();
        let fullest = producers.buckets.iter().map(|bucket| bucket.lines.len()).max();
        assert!(fullest < Some(40), "{fullest:?} of 1000 lines in one bucket of 64");
        assert_eq!(producers.forget_idle(ClusterTime::new(661_000), 600_000, 600), 1);
        assert_eq!(producers.forget_idle(ClusterTime::new(661_500), 600_000, 200), 200);
        producers.check();
        let left = |id: u64| producers.knows((Partition::ANY, ProducerId::new(id)));
        assert!(left(799) && !left(800) && !left(1000), "those filed earliest go first");
    }
}
