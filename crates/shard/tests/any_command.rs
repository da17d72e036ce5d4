//! Goal: any command that decodes applies without panic, and leaves a state whose invariants hold (DESIGN: assertions
//! speak of the state, never of a command's fields). Method: random commands over few names and numbers, so that they
//! meet; with odd stamps, limits at both ends, and facts that are not true.
//!
//! `MORTARMQ_SEED=N` begins with another seed.

use mortarmq_delivery::Fact;
use mortarmq_shard::command::{CreateTopic, Deliver, EndMember, Settle};
use mortarmq_shard::record::NewRecord;
use mortarmq_shard::{
    BatchBuilder, Command, Defaults, Grant, JoinGroup, PublishRunBuilder, Setting, SettingsPatch, SettleItem,
    SettleKind, Shard, Stamp, StartPolicy, Stretch,
};
use mortarmq_types::{
    ClusterTime, DeliveryId, Epoch, KeyHash, MemberId, Partition, PathId, ProducerId, ProducerSeq, Seq,
    TopicIncarnation, WallTime,
};

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
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
        0 => Command::CreateTopic(CreateTopic { name, settings: settings(random, true) }),
        1 if random.below(20) == 0 => Command::DeleteTopic { name },
        2 if random.below(20) == 0 => Command::SetDefaults(Defaults {
            producer_window: random.number_32(4),
            producer_idle_ms: random.number(1000),
            state_entries_max: random.number(100),
            ..Defaults::BUILD
        }),
        3..6 => Command::JoinGroup(JoinGroup {
            topic: TopicIncarnation::new(random.below(4)),
            group: ["a", "b"][usize::try_from(random.below(2)).expect("small")].to_owned(),
            settings: settings(random, false),
            start: start(random),
            member,
            secret_hash: 1,
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
    } else if random.below(4) == 0 {
        patch.add(Setting::MaxPassedOver, 1 + random.below(5));
        patch.add(Setting::MaxInFlight, random.below(5));
        patch.add(Setting::LeaseMs, 1000 + random.below(43_199_000));
        patch.add(Setting::Order, random.below(2));
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

fn grant(random: &mut Random) -> Grant {
    if random.below(4) == 0 {
        return Grant::Pull { node_incarnation: 1, pull_id: 1, max_bytes: random.number(100) };
    }
    Grant::Push { window_messages: random.number_32(50), window_bytes: random.number(2000) }
}

fn stretch(random: &mut Random) -> Stretch {
    let fact = |random: &mut Random| Fact {
        key_hash: KeyHash::new(random.below(4)),
        size_bytes: random.number_32(100),
        expires_at_ms: 0,
    };
    let facts = (0..random.below(30)).map(|_| fact(random)).collect();
    Stretch { partition: random.partition(), first: Seq::new(1 + random.below(60)), facts }
}

fn item(random: &mut Random) -> SettleItem {
    let kind = match random.below(4) {
        0 => SettleKind::Ack,
        1 => SettleKind::Nack { delay_ms: random.number_32(1000), error: "é".repeat(600) },
        2 => SettleKind::Release,
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
        let records = (first..first + 1 + random.below(5)).map(|at| (bytes, 1, record(at * 3 + first % 3)));
        let records: Vec<_> = records.collect();
        run.add_batch(topic, random.partition(), ProducerId::new(first % 3), records.into_iter());
    } else {
        run.add(topic, random.partition(), bytes, random.number_32(9), &record(random.below(60)));
    }
    builder.add_run(&run.take().expect("one was added"));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the seed of a test comes from outside")]
fn any_command_that_decodes_applies_without_panic_and_the_invariants_hold() {
    let first: u64 = std::env::var("MORTARMQ_SEED").map_or(1, |text| text.parse().expect("MORTARMQ_SEED is a number"));
    for seed in first..first + 150 {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut shard = Shard::default();
        let mut time: u64 = 0;
        for _ in 0..60 {
            let mut builder = BatchBuilder::default();
            for _ in 0..random.below(8) {
                if random.below(3) == 0 {
                    publish(&mut random, &mut builder);
                } else {
                    builder.add(&command(&mut random));
                }
            }
            let steps = [0, 1, 300, 5000, 90_000_000];
            time = time.saturating_add(steps[usize::try_from(random.below(5)).expect("small")]);
            let odd = random.below(400) == 0;
            let stamp = Stamp {
                time: ClusterTime::new(if odd { u64::MAX } else { time }),
                gap_ms: if random.below(10) == 0 { random.number(5000) } else { 0 },
                wall: WallTime::new(random.number(9)),
            };
            let bytes = builder.close(stamp);
            let twin = shard.clone().apply(bytes.clone(), Epoch::new(1)).expect("these commands decode");
            let applied = shard.apply(bytes, Epoch::new(1)).expect("these commands decode");
            assert_eq!(twin.effects, applied.effects, "seed {seed}: apply is a function of state and batch");
            shard.check();
        }
    }
}
