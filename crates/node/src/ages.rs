//! How long messages have waited, for metrics.
//!
//! The state knows no time of a message: that would be 8 bytes for each of them. So the node looks once a second how far each
//! partition and the log have come, and keeps some of those moments. Where there are many partitions it looks at some with each
//! tick, so that nobody waits for that. What came before the node started, retention's marks tell of: at least so old.
//!
//! # Invariants
//! 1. Numbers and moments of a timeline rise, and there are at most [`MOMENTS_MAX`] of them.
//! 2. An age is never too high, and too low by a fourth of itself at most, or by three seconds. What came before the node started
//!    counts as old as the node. The first lease is looked for among the messages that are asked.
//! 3. A tick looks at [`PLACES_PER_TICK`] partitions at most. An answer asks at most [`LEASES_PER_ANSWER`] messages for their
//!    lease, or [`LEASES_MIN`] in each partition of each group if that is more.

use std::collections::{BTreeMap, VecDeque};

use mortarmq_shard::{Path, State, Topic};
use mortarmq_types::{ClusterTime, MonotonicTime, Partition, Seq, TopicIncarnation};

use crate::views::GroupStats;

/// A partition of a topic.
type Place = (TopicIncarnation, Partition);

/// When partitions and the log were how far.
#[derive(Debug, Default)]
pub(crate) struct Ages {
    partitions: BTreeMap<Place, Timeline>,
    commits: Timeline,
    /// The last tick.
    now: MonotonicTime,
    /// When the next round begins.
    next_look: MonotonicTime,
    /// Where this round goes on; none once it has seen all.
    next_place: Option<Place>,
    /// Where it goes on to forget.
    next_kept: Option<Place>,
}

/// When a number that only grows was how high.
#[derive(Debug, Default)]
struct Timeline {
    moments: VecDeque<(u64, MonotonicTime)>,
}

/// How often the node looks at each.
const LOOK_MS: u64 = 1000;
/// Most moments of a timeline: 1 KiB. A week in steps of a fourth takes about 50.
const MOMENTS_MAX: usize = 64;
/// So many partitions are looked at in one tick, in less than a millisecond: all that there may be within a second.
const PLACES_PER_TICK: usize = 4096;
const FIRST_PLACE: Place = (TopicIncarnation::new(0), Partition::ZERO);
/// Most messages of a path in a partition that are asked for their lease: those with the lowest sequences.
const LEASES_MAX: usize = 4096;
/// Most in all partitions of all groups together, so that an answer takes milliseconds.
const LEASES_PER_ANSWER: usize = 65_536;
/// But so many in each.
const LEASES_MIN: usize = 4;

/// How many messages of each path in a partition an answer about these topics asks for their lease.
pub(crate) fn leases_asked<'a>(topics: impl Iterator<Item = &'a Topic>) -> usize {
    share(topics.map(|topic| topic.paths.len() * topic.partitions.len()).sum())
}

/// The share of each of so many.
fn share(path_partitions: usize) -> usize {
    (LEASES_PER_ANSWER / path_partitions.max(1)).clamp(LEASES_MIN, LEASES_MAX)
}

/// The partitions of all topics from one on, with how far they have come.
fn places_from(state: &State, (topic, partition): Place) -> impl Iterator<Item = (Place, Seq)> {
    state.topics.range(topic..).flat_map(move |(id, found)| {
        let seen = if *id == topic { partition.index() } else { 0 };
        let places = found.partitions.iter().enumerate().skip(seen);
        places.map(|(number, state)| ((*id, Partition::from_index(number)), state.last_seq))
    })
}

impl Ages {
    /// Called with every tick. Looks, if it is time to: at some partitions, and with the next tick at more.
    pub(crate) fn look(&mut self, state: &State, now: MonotonicTime) {
        self.now = now;
        if now >= self.next_look {
            self.next_look = now.after_ms(LOOK_MS);
            self.commits.note(state.commit_index.get(), now);
            // A round that is under way goes on.
            self.next_place.get_or_insert(FIRST_PLACE);
            self.next_kept.get_or_insert(FIRST_PLACE);
        }
        self.forget_gone(|topic| state.topics.contains_key(&topic));
        if let Some(from) = self.next_place {
            self.look_at(places_from(state, from), now);
        }
    }

    /// Looks at the first of these places; the next round goes on where this ends.
    fn look_at(&mut self, mut places: impl Iterator<Item = (Place, Seq)>, now: MonotonicTime) {
        for (place, last_seq) in places.by_ref().take(PLACES_PER_TICK) {
            if last_seq != Seq::ZERO {
                self.partitions.entry(place).or_default().note(last_seq.get(), now);
            }
        }
        self.next_place = places.next().map(|(place, _)| place);
    }

    /// Forgets some of those whose topic is gone.
    fn forget_gone(&mut self, is_there: impl Fn(TopicIncarnation) -> bool) {
        let Some(from) = self.next_kept else { return };
        let mut kept = self.partitions.range(from..).map(|(place, _)| *place);
        let gone: Vec<_> = kept.by_ref().take(PLACES_PER_TICK).filter(|(topic, _)| !is_there(*topic)).collect();
        self.next_kept = kept.next();
        for place in gone {
            self.partitions.remove(&place);
        }
    }

    /// Tells a group how long its oldest messages have waited. So many in each partition are asked for their lease.
    pub(crate) fn tell(&self, state: &State, path: &Path, leases_asked: usize, stats: &mut GroupStats) {
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
            if let Some(granted) = partition.first_granted(leases_asked) {
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
    use super::{
        Ages, FIRST_PLACE, LEASES_MAX, LEASES_MIN, LEASES_PER_ANSWER, LOOK_MS, MOMENTS_MAX, PLACES_PER_TICK, Place,
        Timeline, places_from, share,
    };
    use mortarmq_shard::State;
    use mortarmq_types::{MonotonicTime, Partition, Seq, TopicIncarnation};

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

    #[test]
    fn many_partitions_are_looked_at_in_several_ticks_and_each_once_a_round() {
        let places: Vec<(Place, Seq)> = (1..=10)
            .flat_map(|topic| {
                (0..1000).map(move |number| (TopicIncarnation::new(topic), Partition::from_index(number)))
            })
            .map(|place| (place, Seq::FIRST))
            .collect();
        let from = |from: Place| places.iter().copied().skip_while(move |(place, _)| *place < from);
        let mut ages = Ages { next_place: Some(FIRST_PLACE), ..Ages::default() };
        let mut looked = Vec::new();
        while let Some(next) = ages.next_place {
            ages.look_at(from(next), MonotonicTime::new(1 + looked.len() as u64));
            looked.push(ages.partitions.len());
        }
        assert_eq!(looked, [PLACES_PER_TICK, 2 * PLACES_PER_TICK, 10_000]);
        // What is gone is forgotten as slowly, and nothing else.
        ages.next_kept = Some(FIRST_PLACE);
        while ages.next_kept.is_some() {
            let before = ages.partitions.len();
            ages.forget_gone(|topic| topic.get() % 2 == 0);
            assert!(ages.partitions.len() + PLACES_PER_TICK >= before);
        }
        assert_eq!(ages.partitions.len(), 5000);
        assert!(ages.partitions.keys().all(|(topic, _)| topic.get() % 2 == 0));
    }

    #[test]
    fn a_round_ends_and_the_next_begins_a_second_later() {
        let (mut ages, state) = (Ages::default(), State::default());
        assert_eq!(places_from(&state, FIRST_PLACE).count(), 0);
        ages.look(&state, MonotonicTime::new(5));
        assert_eq!((ages.next_place, ages.next_kept), (None, None));
        assert_eq!(ages.next_look, MonotonicTime::new(5 + LOOK_MS));
    }

    #[test]
    fn an_answer_asks_a_bounded_number_of_messages_whatever_there_is() {
        assert_eq!([share(0), share(1), share(16)], [LEASES_MAX; 3]);
        for path_partitions in 17..LEASES_PER_ANSWER / LEASES_MIN {
            assert!(share(path_partitions) * path_partitions <= LEASES_PER_ANSWER);
        }
        assert_eq!(share(usize::MAX), LEASES_MIN);
    }
}
