//! What may happen to a shard, said so that it means something whatever happened before: an operation picks among what
//! there is when its turn comes. So a history that fails still says something when parts of it are left out.

use crate::model::{Model, Stands};
use crate::random::Random;
use mortarmq_delivery::Fact;
use mortarmq_shard::command::{
    Asked, ChangeGroup, ChangeTopic, CreateTopic, Deliver, DropDead, EndMember, Letter, Redrive, ResumeMember, Settle,
    Trim,
};
use mortarmq_shard::record::NewRecord;
use mortarmq_shard::{
    BatchBuilder, Command, DefaultKey, DefaultsPatch, Grant, IdempotencyKey, JoinGroup, PublishRunBuilder, SeekTarget,
    Setting, SettingsPatch, SettleItem, SettleKind, StartPolicy, Stretch, Times,
};
use mortarmq_types::{DeliveryId, MemberId, Partition, PathId, ProducerId, ProducerSeq, Seq, TopicIncarnation};

/// Publishes that the shard remembers per line of numbers.
pub(crate) const WINDOW: u32 = 4;

/// Delayed messages that a partition keeps.
pub(crate) const DELAYED_MAX: u64 = 12;

const HOT: Grant = Grant::Push { window_messages: 30, window_bytes: 1000 };

/// One operation; its numbers are picks.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    CreateTopic { name: u64, settings: SettingsPatch },
    DeleteTopic { name: u64 },
    Publish { topic: u64, to: Partition, producer: u64, number: Number, records: Vec<Record> },
    Join { topic: u64, group: u64, member: u64, settings: SettingsPatch, start: StartPolicy },
    EndMember { member: u64, lost: bool },
    Resume { member: u64, secret: u64 },
    Deliver { member: u64, grant: Grant, messages: u32, stretch: u64 },
    Settle { path: u64, items: Vec<(Pick, SettleKind)> },
    Purge { path: u64 },
    Seek { path: u64, target: SeekTarget },
    DeleteGroup { path: u64 },
    Redrive { topic: u64, partition: Partition, letters: Vec<u64> },
    DropDead { topic: u64, partition: Partition, letters: Vec<u64> },
    Trim { topic: u64, partition: Partition, below: u64 },
    ChangeTopic { topic: u64, settings: SettingsPatch, more: bool },
    ChangeGroup { path: u64, settings: SettingsPatch },
    ChangeDefaults { values: Vec<(DefaultKey, u64)> },
}

/// Which producer number a publish carries.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    None,
    Next,
    /// So many before the newest: 0 repeats it.
    Back(u64),
    /// The same, with other bytes.
    Reused(u64),
    Ahead,
}

/// One message of a publish.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    key: &'static [u8],
    size: u32,
    times: Times,
    /// The idempotency key, if it has one.
    once: Option<&'static str>,
}

/// Which delivery a settle names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pick {
    Live(u64),
    /// The first of a key's messages that are leased.
    FirstOfKey(u64),
    /// Any delivery there ever was.
    Ever(u64),
    Held(u64),
    /// A message and a delivery that need not belong together.
    Wild(u64, u64),
}

impl Op {
    /// The operation that a number decides.
    pub(crate) fn of(seed: u64) -> Self {
        let random = &mut Random::of(seed);
        let any = random.below(1 << 20);
        match random.below(114) {
            0..30 => publish(random),
            30..58 => deliver(random),
            58..80 => {
                let items = (0..1 + random.below(3)).map(|_| (pick(random), kind(random))).collect();
                Self::Settle { path: any, items }
            }
            80..85 => Self::Join {
                topic: any,
                group: random.below(2),
                member: random.below(4),
                settings: settings(random, false),
                start: start(random),
            },
            85..87 => Self::EndMember { member: any, lost: random.below(2) == 0 },
            87..90 => Self::Resume { member: any, secret: random.below(4) },
            90..94 => Self::Seek { path: any, target: target(random) },
            94 => Self::Purge { path: any },
            96 => Self::Redrive { topic: any, partition: partition(random), letters: picks(random) },
            95 if random.below(2) == 0 => {
                Self::DropDead { topic: any, partition: partition(random), letters: picks(random) }
            }
            97 if random.below(2) == 0 => Self::DeleteGroup { path: any },
            98 if random.below(3) == 0 => Self::DeleteTopic { name: random.below(5) },
            99 => Self::CreateTopic { name: random.below(4), settings: settings(random, true) },
            100..106 => {
                let below = if random.below(4) == 0 { random.below(25) } else { u64::MAX };
                Self::Trim { topic: any, partition: partition(random), below }
            }
            106..110 => Self::ChangeGroup { path: any, settings: changes(random, false) },
            110..112 => {
                let more = random.below(2) == 0;
                Self::ChangeTopic { topic: any, settings: changes(random, true), more }
            }
            112 => Self::ChangeDefaults { values: vec![initial_value(random)] },
            _ => Self::Publish {
                topic: any,
                to: Partition::ANY,
                producer: 0,
                number: Number::None,
                records: records(random),
            },
        }
    }

    /// A path moves back, something above its position is settled, and it moves back again: rare where each is by chance.
    pub(crate) fn back_twice(seed: u64) -> Vec<Self> {
        let random = &mut Random::of(seed);
        let path = random.below(1 << 20);
        let back = |random: &mut Random| Self::Seek {
            path,
            target: SeekTarget::At(vec![(Partition::ZERO, Seq::new(1 + random.below(4)))]),
        };
        let items = (0..3).map(|_| (Pick::Live(random.below(1 << 16)), kind(random))).collect();
        vec![back(random), Self::Settle { path, items }, back(random)]
    }

    /// Messages die, others of their keys go out, and an operator brings the dead back: four batches.
    pub(crate) fn back_from_death(seed: u64) -> Vec<Vec<Self>> {
        let random = &mut Random::of(seed);
        let deliver = |messages| Self::Deliver { member: 0, grant: HOT, messages, stretch: 2 };
        let reject = |random: &mut Random| {
            let kind = SettleKind::DeadLetter { error: String::new() };
            let pick = random.below(1 << 16);
            (if random.below(2) == 0 { Pick::FirstOfKey(pick) } else { Pick::Live(pick) }, kind)
        };
        let die = Self::Settle { path: 0, items: (0..3).map(|_| reject(random)).collect() };
        let redrive = |number, letters| Self::Redrive { topic: 0, partition: Partition::new(number), letters };
        let mut back = vec![redrive(0, picks(random)), redrive(1, picks(random))];
        if random.below(4) == 0 {
            back.insert(0, Self::DropDead { topic: 0, partition: partition(random), letters: picks(random) });
        }
        vec![vec![deliver(20)], vec![die], vec![deliver(random.one_of(&[1, 3, 20]))], back]
    }

    /// A pull whose answer was lost, asked for again with its number.
    pub(crate) fn pulled_twice(seed: u64) -> [Self; 2] {
        let random = &mut Random::of(seed);
        let member = random.below(1 << 20);
        let pull_id = random.below(1 << 10);
        [0, 1].map(|_| Self::Deliver {
            member,
            grant: Grant::Pull { node_incarnation: 1, pull_id, max_bytes: 0 },
            messages: 3,
            stretch: 2,
        })
    }

    /// A message under a key, and the same key once more at the edge of its window: in it or out of it.
    pub(crate) fn twice_under_a_key(seed: u64) -> [Self; 2] {
        let random = &mut Random::of(seed);
        let topic = random.below(1 << 20);
        [0, 1].map(|_| {
            let once = Some("edge");
            let records = vec![Record { once, ..records(random).remove(0) }];
            Self::Publish { topic, to: Partition::ANY, producer: 0, number: Number::None, records }
        })
    }

    /// All members of a group leave, and nobody uses it any more.
    pub(crate) fn abandon(seed: u64) -> Vec<Self> {
        let random = &mut Random::of(seed);
        let path = random.below(1 << 20);
        let settings = SettingsPatch { values: vec![(Setting::ExpireIdleMs, 2000)] };
        let mut ops = vec![Self::ChangeGroup { path, settings }];
        ops.extend((0..4).map(|_| Self::EndMember { member: path, lost: random.below(2) == 0 }));
        ops
    }

    /// Numbered messages of one key, more than a tight shard keeps; the first is out, and the others wait for it.
    pub(crate) fn waits_at_the_bound(seed: u64) -> Vec<Self> {
        let random = &mut Random::of(seed);
        let deliver = |messages| Self::Deliver { member: 0, grant: HOT, messages, stretch: 2 };
        let publish = |random: &mut Random| {
            let record = Record { key: b"a", times: Times::default(), once: None, ..records(random).remove(0) };
            let (producer, number) = (1 + random.below(2), Number::Next);
            Self::Publish { topic: 0, to: Partition::ANY, producer, number, records: vec![record; 5] }
        };
        vec![publish(random), deliver(1), publish(random), publish(random), deliver(20), deliver(20), deliver(3)]
    }

    /// Messages come and are leased, retention passes them, and their deliveries end.
    pub(crate) fn trim_under_load(seed: u64) -> Vec<Self> {
        let random = &mut Random::of(seed);
        let limit = SettingsPatch { values: vec![(Setting::RetentionBytes, random.one_of(&[60, 120, 300]))] };
        let trim = |number| Self::Trim { topic: 1, partition: Partition::new(number), below: u64::MAX };
        let items = |random: &mut Random| (0..3).map(|_| (Pick::Live(random.below(1 << 16)), kind(random))).collect();
        vec![
            Self::ChangeTopic { topic: 0, settings: limit, more: false },
            publish(random),
            publish(random),
            Self::Deliver { member: 0, grant: HOT, messages: 20, stretch: 2 },
            publish(random),
            trim(0),
            trim(1),
            Self::Settle { path: 0, items: items(random) },
            Self::Settle { path: 0, items: items(random) },
        ]
    }

    /// Whether it has to stand in a batch of its own: how far it goes is the shard's choice, and is looked at after the batch.
    pub(crate) const fn stands_alone(&self) -> bool {
        matches!(self, Self::Trim { .. })
    }

    /// What every history begins with: two topics, and a group with two members on the first.
    pub(crate) fn beginning(seed: u64) -> Vec<Self> {
        let random = &mut Random::of(seed);
        let create = |random: &mut Random, name| Self::CreateTopic { name, settings: settings(random, true) };
        let join = |member| Self::Join {
            topic: 0,
            group: 0,
            member,
            settings: SettingsPatch::default(),
            start: StartPolicy::Earliest,
        };
        vec![create(random, 0), create(random, 2), join(1), join(2)]
    }

    /// One message of a key is leased, then so many thousands of the key come and are passed over.
    pub(crate) fn hot_key(thousands: usize) -> Vec<Self> {
        let record = Record { key: b"a", size: 2, times: Times::default(), once: None };
        let publish = |count: usize| Self::Publish {
            topic: 0,
            to: Partition::ZERO,
            producer: 1,
            number: Number::None,
            records: vec![record; count],
        };
        let join = Self::Join {
            topic: 0,
            group: 1,
            member: 1,
            settings: SettingsPatch {
                values: vec![(Setting::LeaseMs, 60_000), (Setting::MaxInFlight, 0), (Setting::MaxPassedOver, 20_000)],
            },
            start: StartPolicy::Latest,
        };
        let purge = Self::DeleteGroup { path: 0 };
        let deliver = || Self::Deliver { member: 0, grant: HOT, messages: 2, stretch: 2 };
        let mut ops = vec![purge, join, publish(1), deliver()];
        ops.extend((0..thousands).map(|_| publish(1010)));
        ops.extend((0..thousands).map(|_| deliver()));
        ops
    }

    /// Moves of the path that [`Self::hot_key`] left, each over thousands of messages.
    pub(crate) fn moves_of_thousands() -> Vec<Self> {
        let seek = |seq: u64| Self::Seek { path: 0, target: SeekTarget::At(vec![(Partition::ZERO, Seq::new(seq))]) };
        let deliver = || Self::Deliver { member: 0, grant: HOT, messages: 2, stretch: 2 };
        let fill = || [deliver(), deliver(), deliver(), deliver()];
        let nack = Self::Settle {
            path: 0,
            items: vec![(Pick::Live(0), SettleKind::Nack { delay_ms: 0, error: String::new() })],
        };
        let back_over_what_waits = [seek(1000), seek(500), seek(1)];
        let forwards = [seek(2500), seek(5000)];
        let mut ops = Vec::from(back_over_what_waits);
        ops.extend(fill());
        ops.extend(forwards);
        ops.push(seek(1));
        ops.extend(fill());
        ops.extend([nack, Self::Purge { path: 0 }, seek(1)]);
        ops.extend(fill());
        ops.push(Self::DeleteGroup { path: 0 });
        ops
    }

    /// What happens while they wait: mostly nothing can be delivered.
    pub(crate) fn on_hot_key(number: u64) -> Self {
        let settle = |kind| Self::Settle { path: 0, items: vec![(Pick::Live(number), kind)] };
        let record = Record {
            key: if number.is_multiple_of(2) { b"" } else { b"b" },
            size: 2,
            times: Times::default(),
            once: None,
        };
        match number % 10 {
            0 => Self::Publish {
                topic: 0,
                to: Partition::ZERO,
                producer: 1,
                number: Number::None,
                records: vec![record],
            },
            3 => settle(SettleKind::Extend),
            5 => settle(SettleKind::Nack { delay_ms: 1, error: String::new() }),
            7 => settle(SettleKind::Ack),
            8 => Self::Resume { member: 0, secret: 1 },
            _ => Self::Deliver { member: 0, grant: HOT, messages: 2, stretch: 2 },
        }
    }

    /// Adds the command that it means now, if it means one.
    pub(crate) fn add(&self, model: &Model, builder: &mut BatchBuilder) {
        let command = match self {
            Self::CreateTopic { name, settings } => {
                Command::CreateTopic(CreateTopic { name: topic_name(*name), settings: settings.clone() })
            }
            Self::DeleteTopic { name } => Command::DeleteTopic { name: topic_name(*name) },
            Self::Publish { topic, to, producer, number, records } => {
                return add_publish(model, builder, (pick_topic(model, *topic), *to, *producer), *number, records);
            }
            Self::Join { topic, group, member, settings, start } => Command::JoinGroup(JoinGroup {
                topic: pick_topic(model, *topic),
                group: ["a", "b"][index(*group, 2)].to_owned(),
                settings: settings.clone(),
                start: start.clone(),
                member: MemberId::new(*member),
                secret_hash: *member,
            }),
            Self::EndMember { member, lost } => {
                let (path, member) = pick_member(model, *member);
                Command::EndMember(EndMember { path, member, lost: *lost })
            }
            Self::Resume { member, secret } => {
                let (path, member) = pick_member(model, *member);
                let (topic, group) =
                    model.paths.get(&path).map_or_else(Default::default, |it| (it.topic, it.group.clone()));
                let secret_hash = if *secret == 0 { 99 } else { member.get() };
                Command::ResumeMember(ResumeMember { topic, group, member, secret_hash })
            }
            Self::Deliver { member, grant, messages, stretch } => {
                let (path, member) = pick_member(model, *member);
                let stretch = stretch_of(model, path, *stretch);
                Command::Deliver(Deliver { path, member, grant: *grant, max_messages: *messages, stretch })
            }
            Self::Settle { path, items } => {
                let path = pick_path(model, *path);
                let items = items.iter().map(|(pick, kind)| item(model, path, *pick, kind)).collect();
                Command::Settle(Settle { path, items })
            }
            Self::Purge { path } => Command::PurgePath { path: pick_path(model, *path) },
            Self::Seek { path, target } => Command::SeekPath { path: pick_path(model, *path), target: target.clone() },
            Self::DeleteGroup { path } => Command::DeleteGroup { path: pick_path(model, *path) },
            Self::Redrive { topic, partition, letters } => {
                let (topic, partition) = (pick_letters(model, *topic), *partition);
                let letter = |pick: &u64| letter_of(model, topic, partition, *pick);
                Command::Redrive(Redrive { topic, partition, letters: letters.iter().filter_map(letter).collect() })
            }
            Self::DropDead { topic, partition, letters } => {
                let (topic, partition) = (pick_letters(model, *topic), *partition);
                let seq =
                    |pick: &u64| letter_of(model, topic, partition, *pick).map_or(Seq::new(pick % 12), |it| it.seq);
                Command::DropDead(DropDead { topic, partition, seqs: letters.iter().map(seq).collect() })
            }
            Self::Trim { .. } | Self::ChangeTopic { .. } | Self::ChangeGroup { .. } | Self::ChangeDefaults { .. } => {
                self.change(model)
            }
        };
        builder.add(&command);
    }

    /// A trim, or other settings.
    fn change(&self, model: &Model) -> Command {
        match self {
            Self::Trim { topic, partition, below } => Command::Trim(Trim {
                topic: if *topic == 1 { pick_topic(model, 0) } else { any_topic(model, *topic) },
                partition: *partition,
                below: Seq::new(*below),
            }),
            Self::ChangeTopic { topic, settings, more } => {
                let (topic, mut settings) = (pick_topic(model, *topic), settings.clone());
                let count = model.topics.get(&topic).map_or(1, |topic| topic.partitions.len() as u64);
                // A topic of these histories has four partitions at most.
                if *more {
                    settings.add(Setting::Partitions, (count + 1).min(4));
                }
                Command::ChangeTopic(ChangeTopic { topic, settings })
            }
            Self::ChangeGroup { path, settings } => {
                Command::ChangeGroup(ChangeGroup { path: pick_path(model, *path), settings: settings.clone() })
            }
            Self::ChangeDefaults { values } => Command::ChangeDefaults(DefaultsPatch { values: values.clone() }),
            _ => unreachable!("the caller looked which it is"),
        }
    }
}

fn index(pick: u64, count: usize) -> usize {
    usize::try_from(pick % count.max(1) as u64).expect("small")
}

/// One of what there is, the first more often than any other: so that much happens in one place.
fn mostly_first<T>(pick: u64, among: impl IntoIterator<Item = T>) -> Option<T> {
    nth(if pick.is_multiple_of(3) { pick / 3 } else { 0 }, among)
}

/// One of what there is.
fn nth<T>(pick: u64, among: impl IntoIterator<Item = T>) -> Option<T> {
    let mut all: Vec<T> = among.into_iter().collect();
    let place = index(pick, all.len());
    (!all.is_empty()).then(|| all.swap_remove(place))
}

fn topic_name(pick: u64) -> String {
    ["orders", "Orders", "parcels", "", "$dlq.orders"][index(pick, 5)].to_owned()
}

fn pick_topic(model: &Model, pick: u64) -> TopicIncarnation {
    let found = if pick % 50 == 49 { None } else { mostly_first(pick / 50, model.topics.keys().copied()) };
    found.unwrap_or(TopicIncarnation::new(77))
}

/// One of all topics, those of dead letters as often as any.
fn any_topic(model: &Model, pick: u64) -> TopicIncarnation {
    let found = if pick % 50 == 49 { None } else { nth(pick / 50, model.topics.keys().copied()) };
    found.unwrap_or(TopicIncarnation::new(77))
}

fn picks(random: &mut Random) -> Vec<u64> {
    (0..1 + random.below(3)).map(|_| random.below(1 << 16)).collect()
}

/// Mostly a topic of dead letters.
fn pick_letters(model: &Model, pick: u64) -> TopicIncarnation {
    let topics = model.topics.iter().filter(|(_, topic)| topic.holds_dead_letters()).map(|(id, _)| *id);
    let found = if pick % 50 == 49 { None } else { mostly_first(pick / 50, topics) };
    found.unwrap_or_else(|| pick_topic(model, pick))
}

/// A dead letter, mostly one that was not redriven.
fn letter_of(model: &Model, topic: TopicIncarnation, partition: Partition, pick: u64) -> Option<Letter> {
    let messages = model.topics.get(&topic)?.partitions.get(partition.index())?;
    let book = model.path_of(topic, "default").and_then(|path| model.paths.get(&path));
    let is_open = |seq: &u64| book.is_some_and(|book| book.partitions[partition.index()].open(*seq).is_some());
    let open = messages.origins.keys().copied().filter(is_open);
    let any = || nth(pick / 5, messages.origins.keys().copied());
    let seq = if pick.is_multiple_of(5) { any() } else { nth(pick / 5, open).or_else(any) };
    model.letter(topic, partition, seq?).ok()
}

fn pick_path(model: &Model, pick: u64) -> PathId {
    let found = if pick % 50 == 49 { None } else { mostly_first(pick / 50, model.paths.keys().copied()) };
    found.unwrap_or(PathId::new(77))
}

fn pick_member(model: &Model, pick: u64) -> (PathId, MemberId) {
    let path = pick_path(model, pick);
    let members = model.paths.get(&path).into_iter().flat_map(|path| path.members.keys().copied());
    (path, nth(pick / 150, members).unwrap_or(MemberId::new(9)))
}

fn settings(random: &mut Random, of_topic: bool) -> SettingsPatch {
    let mut patch = SettingsPatch::default();
    if !of_topic && random.below(2) == 0 {
        return patch;
    }
    if of_topic {
        patch.add(Setting::Partitions, 1 + random.below(2));
        patch.add(Setting::TtlMs, random.one_of(&[0, 0, 0, 1500]));
        patch.add(Setting::MaxMessageBytes, 40);
        patch.add(Setting::RetentionMs, random.one_of(&[604_800_000, 604_800_000, 0, 3_600_000]));
        patch.add(Setting::RetentionBytes, random.one_of(&[0, 0, 300, 1000]));
        patch.add(Setting::KeepSettled, random.one_of(&[1, 1, 0]));
    }
    patch.add(Setting::LeaseMs, random.one_of(&[1000, 1000, 1500]));
    patch.add(Setting::MaxAttempts, random.one_of(&[0, 1, 2, 3]));
    patch.add(Setting::RetryBackoffBaseMs, random.one_of(&[0, 100, 700]));
    patch.add(Setting::RetryBackoffMaxMs, random.one_of(&[30_000, 300]));
    patch.add(Setting::Order, random.one_of(&[1, 1, 1, 0]));
    patch.add(Setting::MaxPassedOver, random.one_of(&[1000, 1000, 6, 2]));
    patch.add(Setting::MaxInFlight, random.one_of(&[0, 0, 0, 3]));
    patch.add(Setting::MaxAckedAhead, random.one_of(&[0, 0, 0, 0, 4, 1]));
    patch
}

/// Some settings other than they were, and now and then what cannot be changed.
fn changes(random: &mut Random, of_topic: bool) -> SettingsPatch {
    let all = settings(random, true).values;
    let expires = (Setting::ExpireIdleMs, random.one_of(&[0, 0, 0, 60_000]));
    let odd = match random.below(16) {
        0 => Some((Setting::Type, 0)),
        1 => Some((Setting::Partitions, 1)),
        2 => Some(expires),
        _ => None,
    };
    let is_fit = |setting: Setting| setting != Setting::Partitions && (of_topic || setting >= Setting::LeaseMs);
    let mut patch = SettingsPatch::default();
    odd.into_iter().for_each(|(setting, value)| patch.add(setting, value));
    if random.below(3) == 0 {
        patch.add(Setting::Order, random.below(2));
    }
    for (setting, value) in all.into_iter().filter(|(setting, _)| is_fit(*setting)) {
        if random.below(4) == 0 {
            patch.add(setting, value);
        }
    }
    patch
}

fn initial_value(random: &mut Random) -> (DefaultKey, u64) {
    random.one_of(&[
        (DefaultKey::Setting(Setting::LeaseMs), 2000),
        (DefaultKey::Setting(Setting::MaxAttempts), 2),
        (DefaultKey::Setting(Setting::Partitions), 3),
        (DefaultKey::ProducerIdleMs, 600_000),
        (DefaultKey::IdempotencyWindowMs, 60_000),
        (DefaultKey::IdempotencyWindowMs, 90_000),
        (DefaultKey::IdempotencyWindowMs, 300_000),
        (DefaultKey::MaxDelayedPerPartition, 3),
        (DefaultKey::MaxDelayedPerPartition, 20),
        (DefaultKey::SegmentMaxBytes, 1 << 20),
    ])
}

fn start(random: &mut Random) -> StartPolicy {
    match random.below(4) {
        0 | 1 => StartPolicy::Earliest,
        2 => StartPolicy::Latest,
        _ => StartPolicy::At(vec![(partition(random), Seq::new(random.below(30)))]),
    }
}

fn target(random: &mut Random) -> SeekTarget {
    match random.below(5) {
        0 => SeekTarget::Earliest,
        1 => SeekTarget::Latest,
        _ => {
            SeekTarget::At((0..1 + random.below(2)).map(|_| (partition(random), Seq::new(random.below(20)))).collect())
        }
    }
}

fn partition(random: &mut Random) -> Partition {
    Partition::new(random.one_of(&[0, 0, 0, 0, 1, 1, 1, 2]))
}

fn publish(random: &mut Random) -> Op {
    let number = match random.below(15) {
        0..5 => Number::None,
        5..9 => Number::Next,
        9..13 => Number::Back(random.below(7)),
        13 => Number::Reused(random.below(3)),
        _ => Number::Ahead,
    };
    let to = if random.below(4) == 0 { partition(random) } else { Partition::ANY };
    let producer = 1 + random.below(2);
    Op::Publish { topic: random.below(1 << 20), to, producer, number, records: records(random) }
}

fn records(random: &mut Random) -> Vec<Record> {
    let count = if random.below(3) == 0 { 1 + random.below(5) } else { 1 };
    (0..count)
        .map(|_| Record {
            key: random.one_of(&[b"", b"a", b"a", b"a", b"b"]),
            size: u32::try_from(1 + random.below(20)).expect("small"),
            times: Times {
                delay_ms: random.one_of(&[0, 0, 0, 0, 50, 600, 1100]),
                ttl_ms: random.one_of(&[0, 0, 0, 0, 0, 300, 700, 1600]),
            },
            once: random.one_of(&[None, None, None, None, None, Some("a"), Some("b")]),
        })
        .collect()
}

fn add_publish(
    model: &Model,
    builder: &mut BatchBuilder,
    (topic, to, producer): (TopicIncarnation, Partition, u64),
    number: Number,
    records: &[Record],
) {
    let producer = if matches!(number, Number::None) { 0 } else { producer };
    let last = model.last_number(topic, to, ProducerId::new(producer));
    let (first, variant) = match number {
        Number::None => (0, 0),
        Number::Next => (last + 1, 0),
        Number::Back(back) => (last.saturating_sub(back).max(1), 0),
        Number::Reused(back) => (last.saturating_sub(back).max(1), 1),
        Number::Ahead => (last + 3, 0),
    };
    let numbers = (0..records.len() as u64).map(|place| if first == 0 { 0 } else { first + place });
    let bodies: Vec<String> = numbers.clone().map(|number| format!("{producer} {number} {variant}")).collect();
    let mut run = PublishRunBuilder::default();
    let all = records.iter().zip(numbers).zip(&bodies).map(|((record, number), body)| {
        let sent = NewRecord {
            producer_id: ProducerId::new(producer),
            producer_seq: ProducerSeq::new(number),
            key: record.key,
            has_headers: false,
            body: body.as_bytes(),
        };
        // One in fifty values is larger than the topic takes.
        let value_bytes = if record.size == 20 { 41 } else { record.size };
        let idempotency_key = record.once.map(|key| IdempotencyKey::of(key.as_bytes()));
        ((record.size, value_bytes), sent, Asked { times: record.times, idempotency_key })
    });
    let all: Vec<_> = all.collect();
    if let [(sizes, record, asked)] = &all[..] {
        run.add_asked(topic, to, *sizes, record, *asked);
    } else {
        run.add_asked_batch(topic, to, ProducerId::new(producer), all.into_iter());
    }
    builder.add_run(&run.take().expect("one was added"));
}

fn deliver(random: &mut Random) -> Op {
    let grant = if random.below(3) == 0 {
        Grant::Pull {
            node_incarnation: random.below(2),
            pull_id: random.one_of(&[0, 1, 1, 1]),
            max_bytes: random.one_of(&[0, 15, 40]),
        }
    } else {
        Grant::Push { window_messages: random.one_of(&[2, 30, 30]), window_bytes: random.one_of(&[10, 60, 1000, 1000]) }
    };
    let messages = random.one_of(&[1, 2, 3, 20, 20]);
    Op::Deliver { member: random.below(1 << 20), grant, messages, stretch: random.below(1 << 10) }
}

/// True facts of a partition: mostly from its position on, sometimes from elsewhere, sometimes none.
fn stretch_of(model: &Model, path: PathId, pick: u64) -> Option<Stretch> {
    let path = model.paths.get(&path)?;
    let number = index(pick, path.partitions.len());
    let messages = &model.topics[&path.topic].partitions[number];
    let position = path.partitions[number].position;
    let first = match pick % 10 {
        0 => return None,
        1 => position.saturating_sub(2).max(1),
        2 => position + 1,
        _ => position,
    };
    let last = messages.last().min(first + if messages.last() > 1000 { 1000 } else { 8 });
    let fact = |seq: u64| {
        let message = messages.get(seq);
        Fact { key_hash: message.key, size_bytes: message.size, expires_at_ms: message.expiry }
    };
    let facts = (first..=last).map(fact).collect();
    Some(Stretch { partition: Partition::from_index(number), first: Seq::new(first), facts })
}

fn pick(random: &mut Random) -> Pick {
    let (one, other) = (random.below(1 << 16), random.below(60));
    match random.below(12) {
        0..5 => Pick::Live(one),
        5..8 => Pick::FirstOfKey(one),
        8 | 9 => Pick::Ever(one),
        10 => Pick::Held(one),
        _ => Pick::Wild(one % 30, other),
    }
}

fn kind(random: &mut Random) -> SettleKind {
    let error = random.one_of(&["", "boom"]).to_owned();
    match random.below(14) {
        0..6 => SettleKind::Ack,
        6..9 => SettleKind::Nack { delay_ms: random.one_of(&[0, 0, 250]), error },
        9 => SettleKind::DeadLetter { error },
        10 => SettleKind::Release,
        11 => SettleKind::Extend,
        12 => SettleKind::Hold { error },
        _ => SettleKind::Resume,
    }
}

fn item(model: &Model, path: PathId, pick: Pick, kind: &SettleKind) -> SettleItem {
    let (partition, seq, delivery) = delivery_of(model, path, pick).unwrap_or((0, 1, 1));
    // What was held is tried again, and nothing else is.
    let kind = match (pick, kind) {
        (Pick::Held(_), _) => &SettleKind::Resume,
        (Pick::FirstOfKey(_), SettleKind::Ack) => &SettleKind::Nack { delay_ms: 0, error: String::new() },
        (_, kind) => kind,
    };
    SettleItem {
        partition: Partition::from_index(partition),
        first_seq: Seq::new(seq),
        first_delivery: DeliveryId::new(delivery),
        count: if matches!(pick, Pick::Ever(_)) { 2 } else { 1 },
        kind: kind.clone(),
    }
}

fn delivery_of(model: &Model, path: PathId, pick: Pick) -> Option<(usize, u64, u64)> {
    let path = model.paths.get(&path)?;
    let partitions = || path.partitions.iter().enumerate();
    let leases = || {
        let of = |(number, obligation): (usize, &'_ crate::model::Obligation)| {
            let leases: Vec<_> = obligation.leases().map(|(seq, lease)| (number, seq, lease.delivery)).collect();
            leases
        };
        partitions().flat_map(of).collect::<Vec<_>>()
    };
    match pick {
        Pick::Live(pick) => nth(pick, leases()),
        Pick::FirstOfKey(pick) => {
            let messages = &model.topics[&path.topic].partitions;
            let key = |(number, seq, _): &(usize, u64, u64)| (*number, messages[*number].get(*seq).key);
            let mut keyed = leases();
            keyed.retain(|lease| key(lease).1.is_some());
            keyed.sort_unstable_by_key(|lease| (key(lease), lease.1));
            let firsts = keyed.chunk_by(|one, next| key(one) == key(next)).filter(|chunk| chunk.len() > 1);
            nth(pick, firsts.map(|chunk| chunk[0]))
        }
        Pick::Ever(pick) => {
            let all = partitions().flat_map(|(number, obligation)| {
                let of_pair = move |(seq, pair): (&u64, &crate::model::Pair)| {
                    pair.deliveries.iter().map(|(id, _)| (number, *seq, *id)).collect::<Vec<_>>()
                };
                obligation.pairs.iter().flat_map(of_pair)
            });
            nth(pick, all)
        }
        Pick::Held(pick) => {
            let held = partitions().flat_map(|(number, obligation)| {
                let of = obligation.unsettled().filter(|(_, open)| open.stands == Stands::Held);
                of.map(move |(seq, open)| (number, seq, open.previous))
            });
            nth(pick, held)
        }
        Pick::Wild(seq, delivery) => Some((index(seq, 3), seq, delivery)),
    }
}
