//! What clients know, kept outside the broker in plain maps, and the promises about publishes.

use std::collections::{BTreeMap, BTreeSet};

use mortarmq_node::{Failure, Outcome};
use mortarmq_shard::Published;
use mortarmq_types::{CommitIndex, DeliveryId, MemberId, MonotonicTime, Partition, Position, Seq, TopicIncarnation};
use mortarmq_wire::ErrorCode;

use crate::groups::GroupOptions;
use crate::seen::Seen;

pub(crate) type Place = (Partition, Seq);
pub(crate) type PathName = (TopicIncarnation, String);

/// Everything that clients saw and said.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Time in which the broker could be spoken to. It counts at least what leases and sessions count.
    pub(crate) awake_ms: u64,
    /// All time that passed, outages included.
    pub(crate) total_ms: u64,
    /// The two clocks of this process: what `awake_ms` was when.
    pub(crate) clock: BTreeMap<MonotonicTime, u64>,
    pub(crate) topics: BTreeMap<TopicIncarnation, TopicRecord>,
    pub(crate) sent: BTreeMap<u64, Sent>,
    pub(crate) seen: BTreeMap<DeliveryId, Seen>,
    pub(crate) members: BTreeMap<MemberId, MemberRecord>,
    /// Whether a delivery may have been granted that nobody saw.
    pub(crate) lossy: bool,
    /// The highest position of any answer, and the one of the process before.
    pub(crate) highest: Position,
    pub(crate) floor: Position,
    pub(crate) restarts: u64,
    /// How often each rare state was met.
    pub(crate) reached: BTreeMap<&'static str, u64>,
}

/// One life of a topic.
#[derive(Debug, Default)]
pub(crate) struct TopicRecord {
    pub(crate) name: String,
    pub(crate) partitions: u16,
    pub(crate) delete_sent: bool,
    /// What is stored where, as far as anybody was told.
    pub(crate) messages: BTreeMap<Place, u64>,
    pub(crate) paths: BTreeMap<String, PathRecord>,
    /// Whether an operator asked for a redrive of its dead letters, and how often the broker had started by then.
    pub(crate) redriven_from: Option<u64>,
    /// The first message of each partition that is kept, as it was last seen.
    pub(crate) kept: BTreeMap<Partition, Seq>,
}

/// A message that was sent, in one request or several.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) topic: TopicIncarnation,
    pub(crate) requested: Partition,
    pub(crate) key: Vec<u8>,
    pub(crate) delay_ms: u64,
    /// When it was sent first, on the clock of all time.
    pub(crate) sent_at_ms: Option<u64>,
    /// Requests that carry it and are not answered.
    pub(crate) open: u32,
    /// Whether a request was answered `unknown`, or not at all.
    pub(crate) maybe: bool,
    /// Whether that was because the broker died.
    pub(crate) lost_in_crash: bool,
    /// Whether it is sent under an idempotency key of its own.
    pub(crate) once: bool,
    /// Whether one request was told that it stored it.
    pub(crate) stored_told: bool,
    pub(crate) confirmed: Option<Place>,
    pub(crate) commit_index: CommitIndex,
}

/// A group on a topic.
#[derive(Debug)]
pub(crate) struct PathRecord {
    pub(crate) options: GroupOptions,
    /// From this command on it certainly owes everything; until a join is answered nothing is certain.
    pub(crate) owes_after: Option<CommitIndex>,
    /// What was kept of the partitions when it had certainly begun: what lies below is not certain to be owed.
    pub(crate) kept_at_join: BTreeMap<Partition, Seq>,
    pub(crate) acked: BTreeMap<Place, Acked>,
    pub(crate) ack_sent: BTreeMap<Place, BTreeSet<DeliveryId>>,
    /// Deliveries of which a consumer said that no attempt will do.
    pub(crate) dead_sent: BTreeMap<Place, BTreeSet<DeliveryId>>,
    /// Those of them that were confirmed.
    pub(crate) dead: BTreeSet<(Place, DeliveryId)>,
    /// Deliveries of each message, in the order of their numbers.
    pub(crate) deliveries: BTreeMap<Place, BTreeSet<DeliveryId>>,
}

/// An ack that was confirmed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acked {
    pub(crate) by: DeliveryId,
    pub(crate) at_ms: u64,
    pub(crate) commit_index: CommitIndex,
}

/// A member of a group.
#[derive(Clone, Debug)]
pub(crate) struct MemberRecord {
    pub(crate) path: PathName,
    pub(crate) session_ms: u64,
    /// When it was last heard, in awake time.
    pub(crate) heard_ms: u64,
    pub(crate) leave_sent: bool,
    pub(crate) window_max: u64,
    pub(crate) pulled: bool,
    /// What it certainly holds.
    pub(crate) holds: BTreeSet<DeliveryId>,
}

impl PathRecord {
    /// Whether a message can be settled: acked, or dead for the time being.
    pub(crate) fn can_be_settled(&self, place: &Place) -> bool {
        self.ack_sent.contains_key(place) || self.dead_sent.contains_key(place)
    }
}

impl Record {
    pub(crate) fn reach(&mut self, what: &'static str) {
        *self.reached.entry(what).or_default() += 1;
    }

    /// P10: what an answer rests on never lies before what the process before this one answered.
    pub(crate) fn note_position(&mut self, position: Position, is_command: bool) {
        assert!(position >= self.floor, "P10: {position:?} after a restart at {:?}", self.floor);
        assert!(!is_command || position > self.floor, "P10: command {position:?} was applied before the restart");
        self.highest = self.highest.max(position);
    }

    /// The awake time at a moment of this process.
    pub(crate) fn awake_at(&self, moment: MonotonicTime) -> u64 {
        self.clock.range(..=moment).next_back().map_or(0, |(_, awake)| *awake)
    }

    pub(crate) fn topic_mut(&mut self, topic: TopicIncarnation) -> &mut TopicRecord {
        self.topics.get_mut(&topic).expect("clients use topics they were told of")
    }

    pub(crate) fn path(&self, name: &PathName) -> &PathRecord {
        &self.topics[&name.0].paths[&name.1]
    }

    pub(crate) fn path_mut(&mut self, name: &PathName) -> &mut PathRecord {
        self.topic_mut(name.0).paths.get_mut(&name.1).expect("a path is recorded before it is used")
    }

    /// A message is known to be stored at a place.
    pub(crate) fn place(&mut self, number: u64, topic: TopicIncarnation, place: Place) {
        let sent = &self.sent[&number];
        assert_eq!(sent.topic, topic, "number {number} comes from another topic");
        let by_request = sent.requested == Partition::ANY || sent.requested == place.0;
        assert!(by_request, "number {number} was sent to {}, and is at {place:?}", sent.requested);
        if let Some(confirmed) = sent.confirmed {
            assert_eq!(confirmed, place, "P3: number {number} is stored twice");
        }
        let is_possible = sent.open > 0 || sent.maybe || sent.confirmed.is_some();
        assert!(is_possible, "P2: number {number} was refused and is at {place:?}");
        let before = self.topic_mut(topic).messages.insert(place, number);
        assert!(before.is_none_or(|before| before == number), "P10: {place:?} holds {before:?} and {number}");
    }

    /// A publish was answered OK.
    pub(crate) fn confirm(&mut self, number: u64, published: &Published, commit_index: CommitIndex) {
        let place = (published.partition, published.seq);
        let topic = self.sent[&number].topic;
        self.place(number, topic, place);
        let sent = self.sent.get_mut(&number).expect("looked at above");
        sent.open -= 1;
        if published.deduplicated {
            // Of two requests on two connections the answer of the second may come first.
            let was_possible = sent.confirmed.is_some() || sent.maybe || (sent.once && sent.open > 0);
            assert!(was_possible, "P3: number {number} was never sent before, and is called a repetition");
            if sent.lost_in_crash && sent.confirmed.is_none() {
                self.reach("a publish lost in a crash was stored");
            }
        } else {
            let is_first = sent.confirmed.is_none() || (sent.once && !sent.stored_told);
            assert!(is_first, "P1, P3: number {number} was confirmed and is stored anew");
            if sent.lost_in_crash {
                self.reach("a publish lost in a crash was not stored");
            }
        }
        let sent = self.sent.get_mut(&number).expect("looked at above");
        sent.confirmed = Some(place);
        if published.deduplicated {
            return;
        }
        (sent.commit_index, sent.stored_told) = (commit_index, true);
        self.check_sequence(topic, place, commit_index);
    }

    /// P10: the sequences of a partition grow with the log.
    fn check_sequence(&self, topic: TopicIncarnation, place: Place, commit_index: CommitIndex) {
        let messages = &self.topics[&topic].messages;
        let known = |found: Option<(&Place, &u64)>| {
            let (at, number) = found.filter(|(at, _)| at.0 == place.0)?;
            let sent = &self.sent[number];
            (sent.commit_index > CommitIndex::ZERO).then_some((*at, sent.commit_index))
        };
        if let Some((before, at)) = known(messages.range(..place).next_back()) {
            assert!(at <= commit_index, "P10: {before:?} is younger than {place:?}");
        }
        let above = (std::ops::Bound::Excluded(place), std::ops::Bound::Unbounded);
        if let Some((behind, at)) = known(messages.range(above).next()) {
            assert!(at >= commit_index, "P10: {behind:?} is older than {place:?}");
        }
    }

    /// A publish was answered with an error.
    pub(crate) fn refuse(&mut self, number: u64, failure: &Failure, expected: &[ErrorCode]) {
        let sent = self.sent.get_mut(&number).expect("only what was sent is answered");
        sent.open -= 1;
        if failure.outcome == Outcome::Unknown {
            sent.maybe = true;
        }
        let deleted = self.topics[&sent.topic].delete_sent && failure.code == ErrorCode::UnknownTopic;
        assert!(deleted || expected.contains(&failure.code), "number {number} was answered {failure:?}");
        let is_final = sent.open == 0 && !sent.maybe && sent.confirmed.is_none();
        if is_final {
            let stored = self.topics[&sent.topic].messages.values().any(|held| *held == number);
            assert!(!stored, "P2: number {number} is refused and was delivered");
        }
    }

    /// A publish will not be answered: its connection is gone.
    pub(crate) fn lose(&mut self, number: u64, in_crash: bool) {
        let sent = self.sent.get_mut(&number).expect("only what was sent can be lost");
        sent.open -= 1;
        sent.maybe = true;
        sent.lost_in_crash |= in_crash;
    }

    /// Whether a path certainly owes a message.
    pub(crate) fn owes(&self, path: &PathRecord, number: u64) -> bool {
        let sent = &self.sent[&number];
        if path.options.from_earliest {
            let is_kept = |place: Place| path.kept_at_join.get(&place.0).is_none_or(|kept| place.1 >= *kept);
            let nothing_was_gone = || path.kept_at_join.values().all(|kept| *kept == Seq::FIRST);
            return path.owes_after.is_some() && sent.confirmed.map_or_else(nothing_was_gone, is_kept);
        }
        sent.confirmed.is_some()
            && sent.commit_index > CommitIndex::ZERO
            && path.owes_after.is_some_and(|after| sent.commit_index > after)
    }
}
