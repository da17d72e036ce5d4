//! Random commands over few names and numbers, so that they meet; with odd stamps, limits at both ends, and facts that are
//! not true.

use bytes::Bytes;
use mortarmq_delivery::Fact;
use mortarmq_shard::command::{CreateTopic, Deliver, DropDead, EndMember, Letter, Redrive, ResumeMember, Settle};
use mortarmq_shard::record::NewRecord;
use mortarmq_shard::{
    Asked, BatchBuilder, ChangeGroup, ChangeTopic, Command, DefaultKey, Defaults, DefaultsPatch, Grant, IdempotencyKey,
    JoinGroup, PublishRunBuilder, SeekTarget, Setting, SettingsPatch, SettleItem, SettleKind, Stamp, StartPolicy,
    State, Stretch, Times, Trim,
};
use mortarmq_types::{
    ClusterTime, DeliveryId, KeyHash, MemberId, Partition, PathId, ProducerId, ProducerSeq, Seq, TopicIncarnation,
    WallTime,
};

/// A stream of numbers that a seed decides.
pub(crate) struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// Mostly small, sometimes at the other end of the scale.
    fn number(&mut self, small: u64) -> u64 {
        if self.below(40) == 0 { u64::MAX - self.below(3) } else { self.below(small) }
    }

    fn number_32(&mut self, small: u64) -> u32 {
        u32::try_from(self.number(small)).unwrap_or(u32::MAX)
    }

    fn partition(&mut self) -> Partition {
        if self.below(3) == 0 { Partition::ANY } else { Partition::new(u16::try_from(self.below(4)).expect("small")) }
    }
}

fn command(random: &mut Random) -> Command {
    let path = PathId::new(random.below(5));
    let member = MemberId::new(random.below(4));
    let name = ["orders", "Orders", "parcels", "$no"][usize::try_from(random.below(4)).expect("small")].to_owned();
    match random.below(20) {
        0 if random.below(4) == 0 => Command::ChangeTopic(ChangeTopic {
            topic: TopicIncarnation::new(random.below(5)),
            settings: settings(random, true),
        }),
        0 if random.below(20) == 0 => Command::ChangeDefaults(DefaultsPatch {
            values: vec![
                (DefaultKey::Setting(Setting::Partitions), 1 + random.below(3)),
                (DefaultKey::StateEntriesMax, 1000 + random.below(9)),
            ],
        }),
        0 if random.below(3) == 0 => Command::ChangeGroup(ChangeGroup { path, settings: settings(random, false) }),
        0 => Command::CreateTopic(CreateTopic { name, settings: settings(random, true) }),
        1 if random.below(20) == 0 => Command::DeleteTopic { name },
        2 if random.below(20) == 0 => Command::SetDefaults(Defaults {
            producer_window: random.number_32(4),
            producer_idle_ms: random.number(1000),
            state_entries_max: random.number(100),
            max_delayed_per_partition: random.number(20),
            ..Defaults::BUILD
        }),
        1 if random.below(4) == 0 => Command::PurgePath { path },
        1 if random.below(8) == 0 => Command::DeleteGroup { path },
        2 if random.below(2) == 0 => Command::SeekPath { path, target: target(random) },
        3..6 => Command::JoinGroup(JoinGroup {
            topic: TopicIncarnation::new(random.below(4)),
            group: ["a", "b"][usize::try_from(random.below(2)).expect("small")].to_owned(),
            settings: settings(random, false),
            start: start(random),
            member,
            secret_hash: 1,
        }),
        6 if random.below(3) == 0 => Command::ResumeMember(ResumeMember {
            topic: TopicIncarnation::new(random.below(4)),
            group: ["a", "b"][usize::try_from(random.below(2)).expect("small")].to_owned(),
            member,
            secret_hash: random.below(2),
        }),
        6 => Command::EndMember(EndMember { path, member, lost: random.below(2) == 0 }),
        7..14 => Command::Deliver(Deliver {
            path,
            member,
            grant: grant(random),
            max_messages: random.number_32(40),
            stretch: (random.below(3) == 0).then(|| stretch(random)),
        }),
        _ => Command::Settle(Settle { path, items: (0..random.below(5)).map(|_| item(random)).collect() }),
    }
}

fn settings(random: &mut Random, of_topic: bool) -> SettingsPatch {
    let mut patch = SettingsPatch::default();
    if of_topic {
        patch.add(Setting::Partitions, 1 + random.below(3));
        if random.below(4) == 0 {
            patch.add(Setting::TtlMs, 1 + random.below(2000));
        }
        match random.below(4) {
            0 => patch.add(Setting::RetentionMs, 3_600_000),
            1 => patch.add(Setting::RetentionBytes, 1 + random.below(9000)),
            2 => patch.add(Setting::KeepSettled, 0),
            _ => {}
        }
    } else if random.below(4) == 0 {
        patch.add(Setting::MaxPassedOver, 1 + random.below(5));
        patch.add(Setting::MaxInFlight, random.below(5));
        patch.add(Setting::LeaseMs, 1000 + random.below(43_199_000));
        patch.add(Setting::Order, random.below(2));
        patch.add(Setting::MaxAttempts, random.below(4));
        patch.add(Setting::MaxAckedAhead, random.below(4));
        patch.add(Setting::ExpireIdleMs, random.below(3) * 4000);
    } else {
        // Of each key one message is an entry.
        patch.add(Setting::MaxPassedOver, 64 + random.below(64));
    }
    patch
}

fn start(random: &mut Random) -> StartPolicy {
    match random.below(3) {
        0 => StartPolicy::Earliest,
        1 => StartPolicy::Latest,
        _ => StartPolicy::At(vec![(random.partition(), Seq::new(random.number(50)))]),
    }
}

fn target(random: &mut Random) -> SeekTarget {
    match random.below(4) {
        0 => SeekTarget::Earliest,
        1 => SeekTarget::Latest,
        _ => SeekTarget::At((0..random.below(3)).map(|_| (random.partition(), Seq::new(random.number(60)))).collect()),
    }
}

fn grant(random: &mut Random) -> Grant {
    if random.below(4) == 0 {
        return Grant::Pull {
            node_incarnation: random.below(20),
            pull_id: random.below(3),
            max_bytes: random.number(100),
        };
    }
    Grant::Push { window_messages: random.number_32(50), window_bytes: random.number(2000) }
}

fn stretch(random: &mut Random) -> Stretch {
    let fact = |random: &mut Random| Fact {
        key_hash: KeyHash::new(random.below(4)),
        size_bytes: random.number_32(100),
        expires_at_ms: if random.below(4) == 0 { random.number(20_000) } else { 0 },
    };
    let facts = (0..random.below(30)).map(|_| fact(random)).collect();
    Stretch { partition: random.partition(), first: Seq::new(1 + random.below(60)), facts }
}

fn item(random: &mut Random) -> SettleItem {
    let kind = match random.below(9) {
        0 => SettleKind::Ack,
        1 => SettleKind::Nack { delay_ms: random.number_32(1000), error: "é".repeat(600) },
        2 => SettleKind::Release,
        3 => SettleKind::Hold { error: "segment damaged".to_owned() },
        4 => SettleKind::Resume,
        5..8 => SettleKind::DeadLetter { error: "é".repeat(600) },
        _ => SettleKind::Extend,
    };
    SettleItem {
        partition: random.partition(),
        first_seq: Seq::new(random.number(60)),
        first_delivery: DeliveryId::new(random.number(120)),
        count: u32::try_from(random.below(6)).expect("small"),
        kind,
    }
}

fn publish(random: &mut Random, builder: &mut BatchBuilder) {
    let mut run = PublishRunBuilder::default();
    let topic = TopicIncarnation::new(random.below(4));
    let key = [&b""[..], b"a", b"b"][usize::try_from(random.below(3)).expect("small")];
    let record = |number: u64| NewRecord {
        producer_id: ProducerId::new(number % 3),
        producer_seq: ProducerSeq::new(number / 3),
        key,
        has_headers: false,
        body: b"not looked at",
    };
    let bytes = random.number_32(100);
    if random.below(3) == 0 {
        let first = random.below(30);
        let numbers = first..first + 1 + random.below(5);
        let asked = |random: &mut Random| Asked { times: times(random), idempotency_key: idempotency_key(random) };
        let records: Vec<_> = numbers.map(|at| ((bytes, 1), record(at * 3 + first % 3), asked(random))).collect();
        run.add_asked_batch(topic, random.partition(), ProducerId::new(first % 3), records.into_iter());
    } else {
        let sizes = (bytes, random.number_32(9));
        let asked = Asked { times: times(random), idempotency_key: idempotency_key(random) };
        run.add_asked(topic, random.partition(), sizes, &record(random.below(60)), asked);
    }
    builder.add_run(&run.take().expect("one was added"));
}

fn idempotency_key(random: &mut Random) -> Option<IdempotencyKey> {
    (random.below(4) == 0).then(|| IdempotencyKey::of(&random.below(9).to_be_bytes()))
}

/// Mostly none; a delay or a life that ends within the history, or never.
fn times(random: &mut Random) -> Times {
    let delay_ms = if random.below(4) == 0 { random.number(2000) } else { 0 };
    let ttl_ms = if random.below(6) == 0 { random.number(3000) } else { 0 };
    Times { delay_ms, ttl_ms }
}

/// Messages that are stored if the topic exists: without producer, or with one whose numbers go round.
fn publish_next(random: &mut Random, builder: &mut BatchBuilder) {
    let mut run = PublishRunBuilder::default();
    let topic = TopicIncarnation::new(1 + random.below(3));
    let key = [&b""[..], b"a", b"b"][usize::try_from(random.below(3)).expect("small")];
    let producer = random.below(3);
    for number in 1..2 + random.below(5) {
        let (producer_id, producer_seq) =
            if producer == 0 { (0, 0) } else { (producer, number + random.below(2) * random.below(4)) };
        let (producer_id, producer_seq) = (ProducerId::new(producer_id), ProducerSeq::new(producer_seq));
        let record = NewRecord { producer_id, producer_seq, key, has_headers: false, body: b"not looked at" };
        let asked = Asked { times: times(random), idempotency_key: idempotency_key(random) };
        run.add_asked(topic, random.partition(), (9, 9), &record, asked);
    }
    builder.add_run(&run.take().expect("one was added"));
}

/// Delivers to a member that exists, if one does.
fn deliver_live(random: &mut Random, state: &State) -> Option<Command> {
    let members: Vec<_> =
        state.paths.iter().flat_map(|(id, path)| path.members.keys().map(|member| (*id, *member))).collect();
    let place = usize::try_from(random.below(members.len().max(1) as u64)).expect("small");
    let (path, member) = *members.get(place)?;
    let grant = Grant::Push { window_messages: 30, window_bytes: 1000 };
    Some(Command::Deliver(Deliver { path, member, grant, max_messages: random.number_32(8), stretch: None }))
}

/// Settles a delivery that is live, if one is: random numbers alone hardly ever name one.
fn settle_live(random: &mut Random, state: &State) -> Option<Command> {
    let mut live = Vec::new();
    for (id, path) in &state.paths {
        for (number, partition) in path.partitions.made() {
            let leases = partition.unsettled().filter_map(|(seq, entry)| Some((seq, entry.lease()?.delivery_id)));
            live.extend(leases.map(|(seq, delivery)| (*id, Partition::from_index(number), seq, delivery)));
        }
    }
    let place = usize::try_from(random.below(live.len().max(1) as u64)).expect("small");
    let (path, partition, first_seq, first_delivery) = *live.get(place)?;
    Some(Command::Settle(Settle {
        path,
        items: vec![SettleItem { partition, first_seq, first_delivery, ..item(random) }],
    }))
}

/// Lets messages go, mostly where there are some: as many as may, or up to any place.
fn trim(random: &mut Random) -> Command {
    let below = if random.below(2) == 0 { u64::MAX } else { random.number(60) };
    let topic = TopicIncarnation::new(1 + random.below(4));
    let partition = Partition::new(u16::try_from(random.below(3)).expect("small"));
    Command::Trim(Trim { topic, partition, below: Seq::new(below) })
}

/// Redrives or drops dead letters, if there are any: what a redrive says of them is true, or not far from it.
fn letters(random: &mut Random, state: &State) -> Command {
    let dead = state.topics.iter().filter(|(_, topic)| topic.holds_dead_letters());
    let places: Vec<_> = dead
        .flat_map(|(id, topic)| (0..).zip(&topic.partitions).map(|(number, found)| (*id, number, found.last_seq)))
        .filter(|(_, _, last)| *last > Seq::ZERO)
        .collect();
    let place = usize::try_from(random.below(places.len().max(1) as u64)).expect("small");
    let nothing = (TopicIncarnation::new(random.below(9)), 0, Seq::FIRST);
    let (topic, number, last) = places.get(place).copied().unwrap_or(nothing);
    let (partition, last) =
        (if random.below(20) == 0 { random.partition() } else { Partition::new(number) }, last.get());
    if random.below(2) == 0 {
        return Command::DropDead(DropDead {
            topic,
            partition,
            seqs: (0..random.below(3)).map(|_| Seq::new(random.number(last + 2))).collect(),
        });
    }
    let letter = |random: &mut Random| Letter {
        seq: Seq::new(random.number(last + 2)),
        path: PathId::new(random.below(1 + state.paths.keys().next_back().map_or(0, |path| path.get()))),
        origin: Seq::new(random.number(12)),
        delivery: DeliveryId::new(random.number(state.last_delivery.get().clamp(1, 1000))),
        key_hash: KeyHash::new(random.below(3)),
        size_bytes: random.number_32(100),
    };
    Command::Redrive(Redrive { topic, partition, letters: (0..random.below(40)).map(|_| letter(random)).collect() })
}

/// Moves a path that exists, if one does.
fn seek_live(random: &mut Random, state: &State) -> Option<Command> {
    let place = usize::try_from(random.below(state.paths.len().max(1) as u64)).expect("small");
    let (path, _) = state.paths.iter().nth(place)?;
    Some(Command::SeekPath { path: *path, target: target(random) })
}

/// A batch of up to ten commands for a shard in this state; its stamp moves the time on.
pub(crate) fn batch(random: &mut Random, time: &mut u64, state: &State) -> Bytes {
    let mut builder = BatchBuilder::default();
    for _ in 0..random.below(11) {
        match random.below(27) / 3 {
            0 => publish(random, &mut builder),
            1 => publish_next(random, &mut builder),
            2 => deliver_live(random, state).iter().for_each(|command| builder.add(command)),
            3 => settle_live(random, state).iter().for_each(|command| builder.add(command)),
            8 if random.below(3) > 0 => builder.add(&trim(random)),
            8 => seek_live(random, state).iter().for_each(|command| builder.add(command)),
            _ => builder.add(&command(random)),
        }
    }
    if state.topics.values().any(|topic| topic.holds_dead_letters()) || random.below(9) == 0 {
        builder.add(&letters(random, state));
    }
    let steps = [0, 1, 300, 500, 900, 5000, 20_000, 90_000_000];
    *time = time.saturating_add(steps[usize::try_from(random.below(8)).expect("small")]);
    let odd = random.below(400) == 0;
    builder.close(Stamp {
        time: ClusterTime::new(if odd { u64::MAX } else { *time }),
        gap_ms: match random.below(10) {
            0 => random.number(5000),
            // Nobody could settle or renew in all that time, so no lease ends by it.
            1 | 2 => u64::MAX,
            _ => 0,
        },
        wall: WallTime::new(random.number(9)),
    })
}

/// The first seed: 1, or the one that `MORTARMQ_SEED` names.
#[expect(clippy::disallowed_methods, reason = "the seed of a test comes from outside")]
pub(crate) fn first_seed() -> u64 {
    std::env::var("MORTARMQ_SEED").map_or(1, |text| text.parse().expect("MORTARMQ_SEED is a number"))
}
