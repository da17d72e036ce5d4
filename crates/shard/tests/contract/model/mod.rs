//! The contract as maps and lists, with no cleverness: what `docs/contract.md` and `docs/reference/wire.md` promise, written
//! from them and not from the code.
//!
//! A path knows a pair for every message of its topic. A pair keeps every life it had: the fates of those that are over, and
//! what stands in the open one. Counters are never kept, only counted. Where the contract leaves a choice (how long a backoff is within its
//! range, how soon an idle producer or a key past its window is forgotten, how soon goes what retention lets go, in which order
//! what dies at one stamp gets its dead letters), the model checks that the answer is allowed and goes on from it.
//!
//! One command is one file and one arm of [`Model::run`].

mod changes;
mod deliver;
mod effects;
mod ends;
mod groups;
mod moves;
mod publish;
mod redrive;
mod retention;
mod room;
mod settle;
mod stamp;
mod topics;

use mortarmq_shard::{
    Applied, Command, Defaults, Effect, GroupSettings, IdempotencyKey, Outcome, Setting, State, TopicSettings,
};
use mortarmq_types::{
    Cause, ClusterTime, DropReason, KeyHash, MemberId, Partition, PathId, ProducerId, TopicIncarnation,
};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) use effects::Told;

/// What the model says when an answer is not allowed.
pub(crate) type Verdict<T = ()> = Result<T, String>;

/// Refuses an answer with a text, unless the condition holds.
macro_rules! allowed {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+));
        }
    };
}
pub(crate) use allowed;

/// Everything that the contract speaks of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) time: u64,
    pub(crate) gaps: u64,
    pub(crate) commit_index: u64,
    pub(crate) last_delivery: u64,
    pub(crate) last_topic: TopicIncarnation,
    pub(crate) last_path: PathId,
    pub(crate) defaults: Option<Defaults>,
    pub(crate) topics: BTreeMap<TopicIncarnation, Topic>,
    pub(crate) paths: BTreeMap<PathId, Path>,
    /// What the ledger has to be told by the command that runs.
    told: Vec<Told>,
    /// What died by the command that runs, and has no dead letter yet.
    deaths: Vec<ends::DeadMessage>,
    /// Deliveries that ran out at the stamp of this batch.
    expired_now: BTreeSet<u64>,
    /// The shortest time after which idle producers were ever forgotten.
    idle_least_ms: Option<u64>,
    /// Where each partition begins after this batch, as the shard says: retention may go later than it could.
    kept_after: BTreeMap<(TopicIncarnation, usize), u64>,
    /// What the shard keeps of as much as it may, if the bound is near.
    bound: Option<room::Bound>,
    /// Whether this batch deleted a group.
    pub(crate) group_went: bool,
    /// How often each case that matters was met.
    pub(crate) reached: BTreeMap<&'static str, u64>,
}

/// One life of a topic.
#[derive(Clone, Debug)]
pub(crate) struct Topic {
    pub(crate) name: String,
    pub(crate) settings: TopicSettings,
    pub(crate) partitions: Vec<Messages>,
    lines: BTreeMap<(Partition, ProducerId), Line>,
    keys: BTreeMap<IdempotencyKey, FirstUse>,
    /// Whether what retention goes by is what it was when the topic was made.
    is_steady: bool,
    /// The partition of the last message that was placed in turn.
    last_turn: Option<u64>,
}

/// The messages of a partition; the first has sequence 1.
#[derive(Clone, Debug, Default)]
pub(crate) struct Messages {
    pub(crate) list: Vec<Message>,
    /// Of dead letters, where each comes from.
    pub(crate) origins: BTreeMap<u64, redrive::Origin>,
    /// What lies below was passed by every path: `Deliver` brings its facts along.
    pub(crate) known_from: u64,
    /// The first message that retention keeps.
    pub(crate) kept_from: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) key: KeyHash,
    pub(crate) size: u32,
    /// 0 without delay.
    pub(crate) due: u64,
    /// 0 = never.
    pub(crate) expiry: u64,
    pub(crate) stored_at: u64,
    /// Of its record.
    pub(crate) bytes: u64,
}

/// One line of producer numbers: every publish of it, ever.
#[derive(Clone, Debug, Default)]
struct Line {
    stored: BTreeMap<u64, Stored>,
    /// Numbers up to here are out of the window.
    forgotten: u64,
    used: u64,
    /// It was idle for long when room was short.
    may_be_gone: bool,
}

#[derive(Clone, Copy, Debug)]
struct Stored {
    partition: Partition,
    seq: u64,
    content: u64,
}

/// Where the first publish under an idempotency key went.
#[derive(Clone, Copy, Debug)]
struct FirstUse {
    partition: Partition,
    seq: u64,
    at: u64,
    /// Its window was over once, when another key was remembered: it may be forgotten, also when the window is longer now.
    may_be_gone: bool,
}

/// One consumer group.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) topic: TopicIncarnation,
    pub(crate) group: String,
    pub(crate) settings: GroupSettings,
    pub(crate) partitions: Vec<Obligation>,
    /// The partition that `Deliver` begins with.
    turn: usize,
    /// Members with the hash of their secret.
    pub(crate) members: BTreeMap<MemberId, u64>,
    /// Who is to become empty for a message that is delivered alone, and since when, in cluster time less all gaps.
    reserved: Option<(MemberId, u64)>,
    /// Since when it has no members.
    idle_since: u64,
}

/// What a path owes in one partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Obligation {
    pub(crate) pairs: BTreeMap<u64, Pair>,
    /// All below was offered, or skipped because it is delayed.
    pub(crate) position: u64,
    /// The highest position ever: what is offered below it is offered once more.
    pub(crate) offered_to: u64,
}

/// One message on one path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pair {
    pub(crate) past: Vec<Fate>,
    pub(crate) open: Option<Open>,
    /// Every delivery of it, with its cause.
    pub(crate) deliveries: Vec<(u64, Cause)>,
    settles: Vec<Settled>,
}

/// How a life of a pair ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Acked,
    Dead,
    Dropped(DropReason),
}

/// A pair that is not settled.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    /// Whether the path has come by, so that the message stands in its key's queue.
    pub(crate) offered: bool,
    /// When it fell due, if it joined late and was not delivered since.
    pub(crate) due: u64,
    pub(crate) attempt: u32,
    pub(crate) cause: Cause,
    pub(crate) previous: u64,
    given_back: u64,
    /// Whether it is delivered alone (wire rule 6).
    pub(crate) alone: bool,
    /// Whether it waits behind the entries of a crowded key: it is not among those that `max_passed_over` speaks of.
    pub(crate) packed: bool,
    /// The dead letter that holds its bytes, if it was redriven.
    pub(crate) source: Option<u64>,
    pub(crate) stands: Stands,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stands {
    Waiting,
    /// Until a moment in this range, both ends included; a comparison finds out which.
    Scheduled {
        earliest: u64,
        latest: u64,
    },
    Leased(Lease),
    Held,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) delivery: u64,
    pub(crate) member: MemberId,
    pub(crate) pull: bool,
    /// In cluster time less all gaps.
    pub(crate) deadline: u64,
    /// The command that granted it.
    pub(crate) granted_at: u64,
    /// Whether it was granted in the order of keys.
    pub(crate) ordered: bool,
}

/// What a consumer said about a delivery.
#[derive(Clone, Copy, Debug)]
struct Settled {
    delivery: u64,
    word: Word,
    at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Ack,
    Nack,
    Release,
    DeadLetter,
}

/// What one command was seen to do.
pub(crate) struct Seen<'a> {
    outcome: &'a Outcome,
    effects: Vec<&'a Effect>,
}

impl Model {
    /// Applies a batch of commands and checks every answer.
    pub(crate) fn apply(&mut self, commands: &[Command], applied: &Applied) -> Verdict {
        allowed!(applied.first_index.get() == self.commit_index + 1, "P10: commands begin at {}", applied.first_index);
        allowed!(
            applied.outcomes.len() == commands.len(),
            "{} outcomes for {} commands",
            applied.outcomes.len(),
            commands.len()
        );
        let effects = |index| effects::of_command(&applied.effects, index);
        self.stamp(applied);
        self.account(&effects(self.commit_index)).map_err(|text| format!("at the stamp: {text}"))?;
        self.expire_idle(applied)?;
        for (command, outcome) in commands.iter().zip(&applied.outcomes) {
            self.commit_index += 1;
            let seen = Seen { outcome, effects: effects(self.commit_index) };
            self.run(command, &seen)
                .and_then(|()| self.account(&seen.effects))
                .map_err(|text| format!("{command:?}\n  was answered {outcome:?}: {text}"))?;
        }
        Ok(())
    }

    fn run(&mut self, command: &Command, seen: &Seen<'_>) -> Verdict {
        match command {
            Command::SetDefaults(defaults) => {
                self.defaults.get_or_insert_with(|| defaults.clone());
                self.note_idle_ms();
                seen.expect(&Outcome::Done)
            }
            Command::CreateTopic(create) => self.create_topic(create, seen),
            Command::DeleteTopic { name } => self.delete_topic(name, seen),
            Command::Publish(publish) => self.publish(publish, seen),
            Command::PublishBatch(batch) => self.publish_batch(batch, seen),
            Command::JoinGroup(join) => self.join(join, seen),
            Command::EndMember(end) => self.end_member(end, seen),
            Command::Deliver(deliver) => self.deliver(deliver, seen),
            Command::Settle(settle) => self.settle(settle, seen),
            Command::PurgePath { path } => self.purge(*path, seen),
            Command::SeekPath { path, target } => self.seek(*path, target, seen),
            Command::DeleteGroup { path } => self.delete_group(*path, seen),
            Command::ResumeMember(resume) => self.resume(resume, seen),
            Command::Redrive(redrive) => self.redrive(redrive, seen),
            Command::DropDead(drop) => self.drop_dead(drop, seen),
            Command::Trim(trim) => self.trim(trim, seen),
            Command::ChangeTopic(change) => self.change_topic(change, seen),
            Command::ChangeGroup(change) => self.change_group(change, seen),
            Command::ChangeDefaults(patch) => self.change_defaults(patch, seen),
        }
    }

    /// Notes where the shard's partitions begin after the batch that is to be applied.
    pub(crate) fn observe(&mut self, after: &State) {
        let of_topic = |(id, topic): (&TopicIncarnation, &std::sync::Arc<mortarmq_shard::Topic>)| {
            let firsts: Vec<_> = topic.partitions.iter().map(|partition| partition.kept.first_seq.get()).collect();
            let id = *id;
            firsts.into_iter().enumerate().map(move |(number, first)| ((id, number), first))
        };
        self.kept_after = after.topics.iter().flat_map(of_topic).collect();
    }

    /// The initial values of now.
    pub(crate) fn defaults(&self) -> &Defaults {
        self.defaults.as_ref().unwrap_or(&Defaults::BUILD)
    }

    /// Notes that a case that matters was met.
    pub(crate) fn reach(&mut self, what: &'static str) {
        *self.reached.entry(what).or_default() += 1;
    }

    /// The newest number of a line; 0 if there is none.
    pub(crate) fn last_number(&self, topic: TopicIncarnation, to: Partition, producer: ProducerId) -> u64 {
        let line = self.topics.get(&topic).and_then(|topic| topic.lines.get(&(to, producer)));
        line.and_then(|line| line.stored.keys().next_back().copied()).unwrap_or(0)
    }

    /// Cluster time less all gaps, in which leases run.
    pub(crate) fn lease_time(&self) -> u64 {
        self.time - self.gaps
    }

    /// Ends the open life of a message.
    fn end_life(&mut self, id: PathId, number: usize, seq: u64, fate: Fate) {
        let path = self.paths.get_mut(&id).expect("the caller knows it");
        let in_order = path.keeps_order();
        let messages = &self.topics[&path.topic].partitions[number];
        path.partitions[number].end(seq, fate, in_order, messages);
    }

    fn pair_mut(&mut self, path: PathId, number: usize, seq: u64) -> &mut Pair {
        let path = self.paths.get_mut(&path).expect("the caller knows it");
        path.partitions[number].pairs.get_mut(&seq).expect("the caller knows it")
    }

    pub(crate) fn topic_of(&self, path: PathId) -> &Topic {
        &self.topics[&self.paths[&path].topic]
    }
}

impl Seen<'_> {
    fn expect(&self, outcome: &Outcome) -> Verdict {
        allowed!(self.outcome == outcome, "expected {outcome:?}");
        Ok(())
    }
}

impl Topic {
    pub(crate) fn holds_dead_letters(&self) -> bool {
        self.name.starts_with("$dlq.")
    }
}

impl Message {
    pub(crate) fn has_expired(&self, now: u64) -> bool {
        self.expiry != 0 && self.expiry <= now
    }
}

impl Path {
    pub(crate) fn get(&self, setting: Setting) -> u64 {
        self.settings.get(setting)
    }

    pub(crate) fn keeps_order(&self) -> bool {
        self.get(Setting::Order) == 1
    }

    /// What a member holds by pushes: messages and bytes.
    pub(crate) fn pushed_to(&self, member: MemberId, topic: &Topic) -> (u64, u64) {
        let mut held = (0, 0);
        for (obligation, messages) in self.partitions.iter().zip(&topic.partitions) {
            for (seq, pair) in &obligation.pairs {
                if pair.lease().is_some_and(|lease| lease.member == member && !lease.pull) {
                    held.0 += 1;
                    held.1 += u64::from(messages.get(*seq).size);
                }
            }
        }
        held
    }
}

impl Messages {
    pub(crate) fn get(&self, seq: u64) -> Message {
        self.list[usize::try_from(seq - 1).expect("small")]
    }

    pub(crate) fn last(&self) -> u64 {
        self.list.len() as u64
    }
}

impl Obligation {
    /// What a new group owes of the messages there are.
    pub(crate) fn new(start: u64, last: u64) -> Self {
        let pair = |seq| if seq < start { Pair::default() } else { Pair::owed() };
        Self { pairs: (1..=last).map(|seq| (seq, pair(seq))).collect(), position: start, offered_to: start }
    }

    pub(crate) fn open(&self, seq: u64) -> Option<&Open> {
        self.pairs.get(&seq)?.open.as_ref()
    }

    /// Every pair that is not settled.
    pub(crate) fn unsettled(&self) -> impl Iterator<Item = (u64, &Open)> {
        self.pairs.iter().filter_map(|(seq, pair)| Some((*seq, pair.open.as_ref()?)))
    }

    pub(crate) fn leases(&self) -> impl Iterator<Item = (u64, Lease)> {
        self.pairs.iter().filter_map(|(seq, pair)| Some((*seq, pair.lease()?)))
    }

    pub(crate) fn advance(&mut self, position: u64) {
        self.position = position;
        self.offered_to = self.offered_to.max(position);
    }

    /// Messages that were offered and are not settled, but for those that wait packed.
    pub(crate) fn passed_over(&self) -> u64 {
        self.unsettled().filter(|(_, open)| open.offered && !open.packed).count() as u64
    }

    /// Ends the open life of a message.
    fn end(&mut self, seq: u64, fate: Fate, in_order: bool, messages: &Messages) {
        let pair = self.pairs.get_mut(&seq).expect("the caller knows it");
        let open = pair.open.take().expect("it is not settled");
        pair.past.push(fate);
        self.leave_queue(seq, &open, in_order, messages);
    }

    /// Takes a message out of its key's queue: the next one that waits packed behind it takes its place.
    fn leave_queue(&mut self, seq: u64, was: &Open, in_order: bool, messages: &Messages) {
        let key = messages.get(seq).key;
        if !in_order || !key.is_some() || !was.offered || was.packed {
            return;
        }
        let is_next = |seq: u64, open: &Open| open.packed && messages.get(seq).key == key;
        let next = self.unsettled().find(|(seq, open)| is_next(*seq, open)).map(|(seq, _)| seq);
        if let Some(open) = next.and_then(|next| self.pairs.get_mut(&next)?.open.as_mut()) {
            open.packed = false;
        }
    }

    /// How many lives of its pairs ended in one way.
    pub(crate) fn count(&self, fate: Fate) -> u64 {
        self.pairs.values().flat_map(|pair| &pair.past).filter(|past| **past == fate).count() as u64
    }

    /// Lives of its pairs, the open ones included.
    pub(crate) fn lives(&self) -> u64 {
        self.pairs.values().map(|pair| pair.past.len() as u64 + u64::from(pair.open.is_some())).sum()
    }
}

impl Pair {
    pub(crate) fn owed() -> Self {
        Self { open: Some(Open::new()), ..Self::default() }
    }

    pub(crate) fn lease(&self) -> Option<Lease> {
        match self.open.as_ref()?.stands {
            Stands::Leased(lease) => Some(lease),
            Stands::Waiting | Stands::Scheduled { .. } | Stands::Held => None,
        }
    }

    /// Ends the open life.
    fn end(&mut self, fate: Fate) {
        self.open = None;
        self.past.push(fate);
    }
}

impl Open {
    pub(crate) fn new() -> Self {
        Self {
            offered: false,
            due: 0,
            attempt: 1,
            cause: Cause::First,
            previous: 0,
            given_back: 0,
            alone: false,
            packed: false,
            source: None,
            stands: Stands::Waiting,
        }
    }
}

/// When a message that is published now with this delay falls due; 0 without delay.
fn due_after(now: u64, delay_ms: u64) -> u64 {
    if delay_ms == 0 { 0 } else { ClusterTime::new(now).after_ms(delay_ms).get() }
}
