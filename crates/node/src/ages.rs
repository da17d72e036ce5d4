//! How long messages have waited, for metrics.
//!
//! The state knows no time of a message: that would be 8 bytes for each of them. So the node looks once a second how far each
//! partition and the log have come, and keeps some of those moments. What came before the node started, retention's marks tell
//! of: at least so old.
//!
//! # Invariants
//! 1. Numbers and moments of a timeline rise, and there are at most [`MOMENTS_MAX`] of them.
//! 2. An age is never too high, and too low by a fourth of itself at most, or by two seconds. What came before the node started is
//!    as old as the node at least.

use std::collections::{BTreeMap, VecDeque};

use mortarmq_shard::{Path, State};
use mortarmq_types::{ClusterTime, MonotonicTime, Partition, Seq, TopicIncarnation};

use crate::views::GroupStats;

/// When partitions and the log were how far.
#[derive(Debug, Default)]
pub(crate) struct Ages {
    partitions: BTreeMap<(TopicIncarnation, Partition), Timeline>,
    commits: Timeline,
    /// The last tick.
    now: MonotonicTime,
    next_look: MonotonicTime,
}

/// When a number that only grows was how high.
#[derive(Debug, Default)]
struct Timeline {
    moments: VecDeque<(u64, MonotonicTime)>,
}

/// How often the node looks.
const LOOK_MS: u64 = 1000;
/// Most moments of a timeline: 1 KiB. A week in steps of a fourth takes about 50.
const MOMENTS_MAX: usize = 64;
/// Most messages of a path in a partition that are asked for their lease: those with the lowest sequences.
const LEASES_MAX: usize = 4096;

impl Ages {
    /// Looks, if it is time to.
    pub(crate) fn look(&mut self, state: &State, now: MonotonicTime) {
        self.now = now;
        if now < self.next_look {
            return;
        }
        self.next_look = now.after_ms(LOOK_MS);
        self.commits.note(state.commit_index.get(), now);
        self.partitions.retain(|(topic, _), _| state.topics.contains_key(topic));
        for (id, topic) in &state.topics {
            for (number, partition) in topic.partitions.iter().enumerate() {
                if partition.last_seq == Seq::ZERO {
                    continue;
                }
                let place = (*id, Partition::from_index(number));
                self.partitions.entry(place).or_default().note(partition.last_seq.get(), now);
            }
        }
    }

    /// Tells a group how long its oldest messages have waited.
    pub(crate) fn tell(&self, state: &State, path: &Path, stats: &mut GroupStats) {
        let now = self.now;
        let topic = &state.topics[&path.topic];
        let (mut ready_ms, mut leased_ms) = (0, 0);
        for (number, (partition, found)) in path.partitions_of(topic).enumerate() {
            let timeline = self.partitions.get(&(path.topic, Partition::from_index(number)));
            for (seq, fell_due) in partition.longest_ready(found.last_seq) {
                let seen = timeline.map_or(0, |timeline| timeline.age_ms(seq.get(), now));
                let marked = found.kept.marks.stored_before(seq).map_or(0, |stored| state.time.since_ms(stored));
                let since_due = if fell_due == ClusterTime::ZERO { u64::MAX } else { state.time.since_ms(fell_due) };
                ready_ms = ready_ms.max(seen.max(marked).min(since_due));
            }
            if let Some(granted) = partition.first_granted(LEASES_MAX) {
                leased_ms = leased_ms.max(self.commits.age_ms(granted.get(), now));
            }
        }
        stats.oldest_ready_s = ready_ms / 1000;
        stats.oldest_leased_s = leased_ms / 1000;
    }
}

impl Timeline {
    /// The number is so high now.
    fn note(&mut self, number: u64, now: MonotonicTime) {
        if self.moments.back().is_some_and(|(last, _)| *last >= number) {
            return;
        }
        if self.moments.len() == MOMENTS_MAX {
            self.thin(now);
        }
        self.moments.push_back((number, now));
    }

    /// Forgets the moment between whose neighbours the least time lies, measured by its age.
    fn thin(&mut self, now: MonotonicTime) {
        let between = |at: usize| {
            let (before, behind) = (self.moments[at - 1].1, self.moments[at + 1].1);
            // In 1,024ths, so that it takes no floats.
            behind.since_ms(before).saturating_mul(1024) / now.since_ms(behind).max(1)
        };
        let nearest = (1..self.moments.len() - 1).min_by_key(|at| between(*at));
        if let Some(at) = nearest {
            self.moments.remove(at);
        }
    }

    /// How long ago the number was reached; 0 if that was not seen yet.
    fn age_ms(&self, number: u64, now: MonotonicTime) -> u64 {
        let reached = self.moments.partition_point(|(seen, _)| *seen < number);
        self.moments.get(reached).map_or(0, |(_, at)| now.since_ms(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::{MOMENTS_MAX, Timeline};
    use mortarmq_types::MonotonicTime;

    #[test]
    fn an_age_is_never_too_high_and_too_low_by_a_fourth_at_most_after_a_week_of_traffic() {
        let mut timeline = Timeline::default();
        let week = 7 * 24 * 3600;
        // One message a second; each second is looked at.
        for second in 0..=week {
            timeline.note(second + 1, MonotonicTime::new(second * 1000));
        }
        assert!(timeline.moments.len() <= MOMENTS_MAX);
        let now = MonotonicTime::new(week * 1000);
        let mut age = 1;
        while age < week {
            let told = timeline.age_ms(week - age + 1, now) / 1000;
            assert!(told <= age && told + age / 4 + 2 >= age, "{told} for {age} s");
            age += 1 + age / 50;
        }
        // What was there when the node began to look is as old as that at least.
        assert_eq!(timeline.age_ms(1, now), week * 1000);
        assert_eq!(timeline.age_ms(week + 2, now), 0, "it has just come");
    }

    #[test]
    fn what_stands_still_grows_old() {
        let mut timeline = Timeline::default();
        for second in 0..100 {
            timeline.note(7, MonotonicTime::new(second * 1000));
        }
        assert_eq!(timeline.age_ms(7, MonotonicTime::new(100_000)), 100_000);
    }
}
