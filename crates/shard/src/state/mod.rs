//! The state of a shard: its clock and counters, the catalog of topics, and the paths.
//!
//! # Invariants
//! 1. Names and topics refer to each other one to one; each path belongs to exactly one topic, under its group's name.
//! 2. Counters never go back: commit index, delivery numbers, incarnations, path numbers (P10).
//! 3. A member's held messages and bytes are those of its pushed deliveries.
//! 4. On every path: produced = delivered + dropped + dlq + depth (P9).
//! 5. The timer of each place is what the path has due there.
//! 6. The delay timer of each partition is when its messages next fall due of which nobody was told; the delayed messages of
//!    all partitions are counted.
//! 7. A dead-letter topic has a source with as many partitions and a group `default`; no path of it has a limit of attempts.
//! 8. The pinned dead letters of a topic are exactly the sources of its paths' redriven messages, each of one.
//! 9. A path is idle exactly while it has no members; its idle timer is when it has been so for `expire_idle_ms`.
//! 10. What is kept is counted: producers' publishes, delayed messages, idempotency keys, facts, and what paths have.
//! 11. A member that holds a message which was delivered alone holds nothing else, and of a path at most one does; while one
//!     does nobody is reserved. Who is reserved is a member.
//! 12. Nothing is known of a topic that is deleted but what waits to be given back ([`paths`]).
//!
//! An image of the state shares what grows with the work: topics and their partitions stand behind `Arc`, so do the
//! buckets and lines of producers; facts, unsettled messages and runs of settles are persistent collections. What changes
//! while the image lives is copied first, piece by piece: no step of the loop pays for a whole.

mod check;
mod derive;
pub mod entries;
mod member;
pub mod path_partitions;
pub mod paths;
pub(crate) mod pins;
pub mod timers;

use crate::dead_letter::DEAD_LETTER_GROUP;
use crate::facts::{FactView, FactWindow};
use crate::idempotency::Keys;
use crate::names::{dead_letter_name, source_name};
use crate::producer::Producers;
use crate::retention::Kept;
use crate::schedule::Schedule;
use crate::settings::{Defaults, GroupSettings, Setting, TopicSettings};
use entries::Entries;
use imbl::OrdMap;
use mortarmq_delivery::{Books, DuePosition, Now, PathPartition};
use mortarmq_types::{
    Cause, ClusterTime, CommitIndex, DeliveryId, Epoch, LeaseTime, MemberId, Partition, PathId, Position, Seq,
    TopicIncarnation, WallTime,
};
use path_partitions::PathPartitions;
use paths::Paths;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use timers::{ByTopic, Place};

pub(crate) use member::Asks;
pub use member::{Member, Pulled};

/// Most members of one group.
pub const MEMBERS_MAX: usize = 4096;
/// Most partitions of all topics of a shard together.
pub const PARTITIONS_MAX: usize = 65_536;
/// Most groups of all topics of a shard together.
pub const PATHS_MAX: usize = 16_384;

/// Most partitions that all groups of a shard read together: each keeps positions and leases of its own.
pub const PATH_PARTITIONS_MAX: usize = 262_144;

/// Everything a shard knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The last applied command.
    pub commit_index: CommitIndex,
    /// The term of the last applied command.
    pub epoch: Epoch,
    /// The stamp of the last applied batch.
    pub time: ClusterTime,
    /// The wall clock of the last applied batch, for display.
    pub wall: WallTime,
    /// All time in which nobody could settle or renew.
    pub gaps_ms: u64,
    /// The last delivery number given.
    pub last_delivery: DeliveryId,
    /// The cluster's initial values, once its first leader wrote them.
    pub defaults: Option<Defaults>,
    /// Topics by incarnation.
    pub topics: BTreeMap<TopicIncarnation, Arc<Topic>>,
    /// Incarnations by lower-case name.
    pub names: BTreeMap<String, TopicIncarnation>,
    /// Paths by number.
    pub paths: Paths,
    pub(crate) last_topic: TopicIncarnation,
    pub(crate) last_path: PathId,
    pub(crate) timers: ByTopic<Place>,
    /// When messages of a partition fall due that were delayed.
    pub(crate) delays: ByTopic<Partition>,
    /// Delayed messages of all partitions.
    pub(crate) delayed: u64,
    /// When paths that nobody uses expire.
    pub(crate) idle: ByTopic<PathId>,
    /// Paths that expired.
    pub groups_expired: u64,
    /// Members whose leases are still being ended, a bounded number per batch.
    pub(crate) ending: VecDeque<(PathId, MemberId, Cause)>,
    pub(crate) producer_entries: u64,
    /// What else is kept, and how old it is.
    pub(crate) entries: Entries,
    /// Partitions of all topics, but for those of dead-letter topics.
    pub(crate) partitions_total: usize,
    /// Paths that count for the limits of the catalog.
    pub(crate) paths_total: usize,
    /// Their partitions together.
    pub(crate) path_partitions_total: usize,
    /// Partitions of which a pinned record was freed below what is kept, by this batch: its file may go at its end.
    pub(crate) unpinned: BTreeSet<(TopicIncarnation, Partition)>,
}

/// One life of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its name, as written when it was made.
    pub name: String,
    /// Its settings.
    pub settings: TopicSettings,
    /// The leader's term when it was made.
    pub created_epoch: Epoch,
    /// The wall clock when it was made, for display.
    pub created_at: WallTime,
    /// Its partitions.
    pub partitions: Vec<Arc<PartitionState>>,
    /// Its paths by group name.
    pub paths: BTreeMap<String, PathId>,
    pub(crate) producers: Producers,
    pub(crate) keys: Keys,
    pub(crate) round_robin: u64,
    /// Facts of all partitions.
    pub(crate) facts: u64,
    /// Delayed messages of all partitions.
    pub(crate) delayed: u64,
}

/// One partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionState {
    /// The last sequence given; 0 if none was.
    pub last_seq: Seq,
    /// Bytes of all records; of a dead letter, whose record apply never sees, those of its payload and a record's frame.
    pub bytes: u64,
    /// What is remembered of the newest messages.
    pub facts: FactWindow,
    /// What was published with a delay and has not fallen due for every path.
    pub schedule: Schedule,
    /// Dead letters that hold the bytes of a redriven message, each with the path that owes it. Their segments stay.
    pub(crate) pins: OrdMap<Seq, PathId>,
    /// What is left of its messages.
    pub kept: Kept,
}

/// One consumer group on one topic: a durable obligation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The topic.
    pub topic: TopicIncarnation,
    /// The group's name.
    pub group: String,
    /// The group's settings.
    pub settings: GroupSettings,
    /// Its deliveries, by partition of the topic.
    pub partitions: PathPartitions,
    /// Its members.
    pub members: BTreeMap<MemberId, Member>,
    /// Since when it has none.
    pub idle_since: Option<ClusterTime>,
    /// The partition that the next `Deliver` looks at first, so that each gets its turn.
    pub(crate) cursor: usize,
    /// Who is to become empty for a message that is delivered alone.
    pub(crate) reserved: Option<Reserved>,
}

/// The member of a path that is given nothing more until it is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reserved {
    pub(crate) member: MemberId,
    /// Since when.
    pub(crate) since: LeaseTime,
}

impl State {
    /// The two clocks of deliveries at the last stamp.
    #[must_use]
    pub fn now(&self) -> Now {
        Now { cluster: self.time, lease: LeaseTime::new(self.time.get() - self.gaps_ms) }
    }

    /// The cluster's initial values; those of this build until its first leader has written them.
    #[must_use]
    pub fn defaults(&self) -> &Defaults {
        self.defaults.as_ref().unwrap_or(&Defaults::BUILD)
    }

    /// What is kept beside topics and groups, of the `state_entries_max` that there may be: publishes of producers, delayed
    /// messages, idempotency keys, facts, unsettled messages that paths were offered, and runs of settles.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.producer_entries + self.delayed + self.entries.keys + self.entries.facts + self.entries.paths
    }

    /// Whether there may be more of these.
    pub(crate) fn has_room(&self) -> bool {
        self.entries() < self.defaults().state_entries_max
    }

    /// The last applied command, and the term it was applied in.
    #[must_use]
    pub fn position(&self) -> Position {
        Position { epoch: self.epoch, commit_index: self.commit_index }
    }

    /// When apply next has something to end or to wake; the leader proposes a stamp then.
    #[must_use]
    pub fn next_due(&self) -> Option<ClusterTime> {
        if !self.ending.is_empty() {
            return Some(self.time);
        }
        self.timers.earliest().into_iter().chain(self.delays.earliest()).chain(self.idle.earliest()).min()
    }

    /// The topic with this name, in any case.
    #[must_use]
    pub fn topic_by_name(&self, name: &str) -> Option<(TopicIncarnation, &Topic)> {
        let incarnation = *self.names.get(&name.to_ascii_lowercase())?;
        let topic = &self.topics[&incarnation];
        (topic.name == name).then_some((incarnation, topic))
    }

    /// The path of a member, for whoever knows what hashes to its secret's hash. One answer whether the group, the member
    /// or the secret is another: it tells a guesser nothing.
    #[must_use]
    pub fn path_of_member(
        &self,
        topic: TopicIncarnation,
        group: &str,
        member: MemberId,
        secret_hash: u64,
    ) -> Option<PathId> {
        let path = *self.topics.get(&topic)?.paths.get(group)?;
        let found = self.paths[&path].members.get(&member)?;
        (found.secret_hash == secret_hash).then_some(path)
    }

    /// The dead-letter topic of a topic, once it has one.
    #[must_use]
    pub fn dead_letters_of(&self, topic: TopicIncarnation) -> Option<TopicIncarnation> {
        let name = dead_letter_name(&self.topics.get(&topic)?.name);
        self.names.get(&name.to_ascii_lowercase()).copied()
    }

    /// The books of a path over all its partitions.
    #[must_use]
    pub fn books(&self, path: &Path) -> Books {
        let topic = &self.topics[&path.topic];
        path.partitions_of(topic).map(|(partition, state)| partition.books(state.last_seq)).fold(
            Books::default(),
            |sum, books| Books {
                produced: sum.produced + books.produced,
                delivered: sum.delivered + books.delivered,
                dropped: sum.dropped + books.dropped,
                dlq: sum.dlq + books.dlq,
                depth: sum.depth + books.depth,
            },
        )
    }

    /// Whether a `Deliver` to this path could lease anything.
    #[must_use]
    pub fn has_deliverable(&self, path: &Path) -> bool {
        let topic = &self.topics[&path.topic];
        let rules = path.settings.rules();
        path.partitions_of(topic).any(|(partition, state)| {
            !partition.is_moving()
                && (partition.ready_messages() > 0
                    || state.schedule.next_after(partition.due_position()).is_some_and(|next| next.at.due <= self.time)
                    || (partition.position() <= state.last_seq && partition.may_offer(&rules)))
        })
    }

    /// A path, to change it.
    pub(crate) fn path_mut(&mut self, id: PathId) -> Option<&mut Path> {
        self.paths.get_mut(&id)
    }
}

impl PartitionState {
    /// What a path can ask it.
    pub(crate) fn facts(&self) -> FactView<'_> {
        FactView { stretch: None, window: &self.facts, schedule: &self.schedule }
    }

    /// The lowest sequence that a path of this partition has not settled; `last_seq` + 1 if there is none.
    #[must_use]
    pub fn floor(&self, path: &PathPartition) -> Seq {
        let skipped = |at: &DuePosition| path.is_delayed(at.due, at.seq);
        // Messages that this path has taken may stay for others, and are looked at one after the other.
        let delayed = if path.delayed() == 0 { None } else { self.schedule.from_seq(path.due_start()).find(skipped) };
        path.floor(self.last_seq, delayed.map(|at| at.seq))
    }

    /// A sequence below which a path has settled everything: the lowest that was offered or may be delayed, or its position.
    /// Unlike [`Self::floor`] it looks at a bounded number of messages, and may be too low.
    #[must_use]
    pub fn settled_below(&self, path: &PathPartition) -> Seq {
        let delayed = if path.delayed() == 0 { None } else { self.schedule.from_seq(path.due_start()).next() };
        let lowest = path.lowest_offered().into_iter().chain(delayed.map(|at| at.seq));
        lowest.fold(path.position(), Seq::min)
    }

    /// How many messages of the schedule are still ahead of a path: owed, and not due for it yet.
    #[must_use]
    pub fn delayed(&self, path: &PathPartition) -> u64 {
        let after = path.due_position();
        if self.schedule.lowest().is_none_or(|lowest| path.due_start() <= lowest) {
            return self.schedule.count_after(after) as u64;
        }
        self.schedule.places_after(after).filter(|at| at.seq >= path.due_start()).count() as u64
    }
}

/// Which part of invariant 7 a topic breaks.
pub(crate) fn dead_letters_fault<T: std::borrow::Borrow<Topic>>(
    topic: &Topic,
    topics: &BTreeMap<TopicIncarnation, T>,
    names: &BTreeMap<String, TopicIncarnation>,
    paths: &Paths,
) -> Option<&'static str> {
    let source = source_name(&topic.name)?;
    let source = names.get(&source.to_ascii_lowercase()).and_then(|id| topics.get(id)).map(std::borrow::Borrow::borrow);
    let limits = |path: &PathId| paths[path].settings.get(Setting::MaxAttempts) != 0;
    match source {
        Some(found) if Some(found.name.as_str()) != source_name(&topic.name) => Some("source"),
        None => Some("source"),
        Some(found) if found.partitions.len() != topic.partitions.len() => Some("partitions"),
        Some(_) if !topic.paths.contains_key(DEAD_LETTER_GROUP) => Some("group"),
        Some(_) if topic.settings.get(Setting::MaxAttempts) != 0 => Some("max_attempts"),
        Some(_) if topic.paths.values().any(limits) => Some("max_attempts of a group"),
        Some(_) => None,
    }
}

impl Topic {
    /// How many of its paths count for the limits of the catalog: see [`Path::counts`].
    pub(crate) fn counted_paths(&self) -> usize {
        self.paths.len() - usize::from(self.holds_dead_letters() && self.paths.contains_key(DEAD_LETTER_GROUP))
    }

    /// Whether this is a dead-letter topic: the broker made it, and only the broker adds to it.
    #[must_use]
    pub fn holds_dead_letters(&self) -> bool {
        source_name(&self.name).is_some()
    }

    /// A partition, to change it.
    pub(crate) fn partition_mut(&mut self, number: usize) -> Option<&mut PartitionState> {
        self.partitions.get_mut(number).map(Arc::make_mut)
    }
}

impl Path {
    /// Whether the path counts for the limits of the catalog: all do but the own books of dead-letter topics.
    pub(crate) fn counts(&self, topic: &Topic) -> bool {
        !(self.group == DEAD_LETTER_GROUP && topic.holds_dead_letters())
    }

    /// When it has been without members for as long as its settings allow.
    pub(crate) fn expires_at(&self) -> Option<ClusterTime> {
        let after_ms = self.settings.get(Setting::ExpireIdleMs);
        self.idle_since.filter(|_| after_ms != 0).map(|since| since.after_ms(after_ms))
    }

    /// The path as such, as an image keeps it beside its partitions.
    pub(crate) fn without_partitions(&self) -> Self {
        let Self { topic, group, settings, partitions: _, members, idle_since, cursor, reserved } = self;
        let (group, settings, members) = (group.clone(), settings.clone(), members.clone());
        let (topic, idle_since, cursor, reserved) = (*topic, *idle_since, *cursor, *reserved);
        let partitions = PathPartitions::default();
        Self { topic, group, settings, partitions, members, idle_since, cursor, reserved }
    }

    /// The member that holds a message which was delivered alone. Who is gone and still loses its leases is no member.
    pub(crate) fn alone_with(&self) -> Option<MemberId> {
        let all = self.partitions.made().flat_map(|(_, partition)| partition.alone_with());
        all.into_iter().find(|member| self.members.contains_key(member))
    }

    /// Whether the member holds no message, in any partition.
    pub(crate) fn holds_nothing(&self, member: MemberId) -> bool {
        !self.partitions.made().any(|(_, partition)| partition.holds(member))
    }

    /// Which part of invariant 11 the path breaks.
    pub(crate) fn alone_fault(&self) -> Option<&'static str> {
        let all = self.partitions.made().flat_map(|(_, partition)| partition.alone_with());
        let mut alone = all.filter(|member| self.members.contains_key(member));
        let is_member = |reserved: &Reserved| self.members.contains_key(&reserved.member);
        let Some(member) = alone.next() else {
            return self.reserved.is_some_and(|reserved| !is_member(&reserved)).then_some("reserved");
        };
        let held: usize = self.partitions.made().map(|(_, partition)| partition.held_by(member).count()).sum();
        match self.reserved {
            Some(_) => Some("reserved"),
            None if held != 1 => Some("messages beside one that is alone"),
            None if alone.next().is_some() => Some("members"),
            None => None,
        }
    }

    /// What the path has in each partition of its topic, with the partition.
    pub fn partitions_of<'a>(
        &'a self,
        topic: &'a Topic,
    ) -> impl Iterator<Item = (&'a PathPartition, &'a PartitionState)> {
        let found = topic.partitions.iter().map(|state| &**state);
        self.partitions.all(topic.partitions.len()).zip(found)
    }
}

/// A topic, to change it; takes the map alone, so that the rest of the state stays in reach.
pub(crate) fn topic_of(
    topics: &mut BTreeMap<TopicIncarnation, Arc<Topic>>,
    incarnation: TopicIncarnation,
) -> Option<&mut Topic> {
    topics.get_mut(&incarnation).map(Arc::make_mut)
}
