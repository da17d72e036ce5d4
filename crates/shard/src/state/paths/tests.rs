//! Topics that are deleted: gone in one step, and given back in many.

use super::{Gone, Remains};
use crate::apply::{Applied, Shard};
use crate::command::{
    BatchBuilder, Command, CreateTopic, Deliver, EndMember, Grant, JoinGroup, PublishRunBuilder, STEPS_MAX, Settle,
    SettleItem, SettleKind, Stamp, StartPolicy,
};
use crate::effect::Effect;
use crate::idempotency::IdempotencyKey;
use crate::outcome::{Outcome, Refusal};
use crate::record::NewRecord;
use crate::settings::{Setting, SettingsPatch};
use crate::{Asked, Times};
use bytes::BytesMut;
use mortarmq_types::{
    ClusterTime, DeliveryId, Epoch, MemberId, Partition, PathId, ProducerId, ProducerSeq, Seq, TopicIncarnation,
    WallTime,
};
use std::collections::BTreeSet;

/// A shard with a topic that owns something of every kind.
struct Bench {
    shard: Shard,
    time_ms: u64,
}

const OLD: TopicIncarnation = TopicIncarnation::new(1);
const KEPT: TopicIncarnation = TopicIncarnation::new(2);

impl Bench {
    fn apply(&mut self, builder: &mut BatchBuilder) -> Applied {
        let stamp = Stamp { time: ClusterTime::new(self.time_ms), gap_ms: 0, wall: WallTime::ZERO };
        let applied = self.shard.apply(builder.close(stamp), Epoch::new(1)).expect("commands of this build");
        self.shard.check();
        applied
    }

    fn run(&mut self, commands: &[Command]) -> Applied {
        let mut builder = BatchBuilder::default();
        commands.iter().for_each(|command| builder.add(command));
        self.apply(&mut builder)
    }

    /// As many messages, each of a producer and a key of its own; every third is delayed.
    fn publish(&mut self, topic: TopicIncarnation, count: u64) -> Vec<Outcome> {
        let mut run = PublishRunBuilder::default();
        for number in 1..=count {
            let (producer_id, producer_seq) = (ProducerId::new(number), ProducerSeq::new(1));
            let record = NewRecord { producer_id, producer_seq, key: b"", has_headers: false, body: b"value" };
            let delay_ms = if number % 3 == 0 { 5000 } else { 0 };
            let key = Some(IdempotencyKey::of(&number.to_be_bytes()));
            let asked = Asked { times: Times { delay_ms, ttl_ms: 0 }, idempotency_key: key };
            run.add_asked(topic, Partition::ANY, (10, 10), &record, asked);
        }
        let mut builder = BatchBuilder::default();
        builder.add_run(&run.take().expect("at least one"));
        self.apply(&mut builder).outcomes
    }

    /// Two topics; the first has so many groups and partitions, leases of half of them, and a dead letter.
    fn full(groups: u64, partitions: u64) -> Self {
        let mut bench = Self { shard: Shard::default(), time_ms: 1000 };
        bench.run(&[create("orders", partitions), create("kept", 2), join(KEPT, "kept", 1)]);
        for group in 0..groups {
            bench.run(&[join(OLD, &format!("g{group}"), 1), join(OLD, &format!("g{group}"), 2)]);
        }
        // One that nobody uses, and that expires some time.
        let end = EndMember { path: PathId::new(groups + 2), member: MemberId::new(1), lost: false };
        bench.run(&[join(OLD, "idle", 1), Command::EndMember(end)]);
        assert!(bench.shard.state().idle.earliest().is_some());
        bench.publish(OLD, 400);
        bench.publish(KEPT, 9);
        let path = PathId::new(2);
        for member in [1, 2] {
            bench.run(&[deliver(path, member)]);
        }
        let kind = SettleKind::DeadLetter { error: String::new() };
        let lease = bench.shard.state().paths[&path].partitions[1]
            .unsettled()
            .find_map(|(seq, entry)| entry.lease().map(|lease| (seq, lease.delivery_id)));
        let (first_seq, first_delivery) = lease.expect("some are leased");
        let item = SettleItem { partition: Partition::new(1), first_seq, first_delivery, count: 1, kind };
        bench.run(&[Command::Settle(Settle { path, items: vec![item] })]);
        assert_eq!(bench.shard.state().topics.len(), 3, "a dead letter is there");
        bench
    }

    fn delete(&mut self) -> Applied {
        self.run(&[Command::DeleteTopic { name: "orders".to_owned() }])
    }

    /// What is still to be given back.
    fn pieces(&self) -> usize {
        let paths = &self.shard.state().paths;
        let hidden = paths.all.values().filter(|path| paths.gone.contains(&path.topic));
        let hidden: usize = hidden.map(|path| 2 + path.members.len() + path.partitions.made_count()).sum();
        let of_topic = |remains: &Remains| {
            let topic = &remains.topic;
            let path =
                remains.path.as_ref().map_or(0, |(_, path)| 1 + path.members.len() + path.partitions.made_count());
            let timers = remains.timers.len() + remains.run_ages.len() + remains.idle.len() + remains.delays.len();
            let producers = topic.producers.lines().len();
            let kept = usize::try_from(topic.keys.len()).expect("few") + producers + topic.partitions.len();
            path + timers + remains.with_facts.len() + kept + topic.paths.len()
        };
        hidden + paths.remains.iter().map(of_topic).sum::<usize>()
    }

    fn image(&self) -> BytesMut {
        let mut out = BytesMut::new();
        self.shard.image().encode(&mut out);
        out
    }
}

fn create(name: &str, partitions: u64) -> Command {
    let settings = SettingsPatch { values: vec![(Setting::Partitions, partitions)] };
    Command::CreateTopic(CreateTopic { name: name.to_owned(), settings })
}

fn join(topic: TopicIncarnation, group: &str, member: u64) -> Command {
    Command::JoinGroup(JoinGroup {
        topic,
        group: group.to_owned(),
        settings: SettingsPatch { values: vec![(Setting::ExpireIdleMs, 60_000)] },
        start: StartPolicy::Earliest,
        member: MemberId::new(member),
        secret_hash: 1,
    })
}

fn deliver(path: PathId, member: u64) -> Command {
    let grant = Grant::Push { window_messages: 100, window_bytes: 1 << 20 };
    Command::Deliver(Deliver { path, member: MemberId::new(member), grant, max_messages: 100, stretch: None })
}

#[test]
fn p9_a_topic_is_gone_with_its_command_whatever_hangs_on_it_and_memory_follows_in_bounded_steps() {
    // Goal: no command costs more than its steps. Method: 3,000 places and what belongs to them; what is left is counted.
    let mut bench = Bench::full(30, 100);
    let image_before = bench.image().len();
    let before = bench.pieces();
    assert_eq!(before, 0);
    let deleted = bench.delete();
    assert_eq!(deleted.outcomes, [Outcome::TopicDeleted { topic: Some(OLD) }]);
    let files: Vec<_> = deleted.effects.iter().filter(|it| matches!(it, Effect::TopicDeleted(_))).collect();
    assert_eq!(files, [&Effect::TopicDeleted(OLD), &Effect::TopicDeleted(KEPT.next())], "once each");
    // Everything that is known says so from here on, although most of it still lies in memory.
    let state = bench.shard.state();
    assert_eq!((state.topics.len(), state.names.len(), state.paths.len()), (1, 1, 1));
    assert_eq!((state.partitions_total, state.paths_total, state.path_partitions_total), (2, 1, 2));
    assert_eq!(state.entries(), 9 + 9 + 9 + 3, "numbers, keys, facts and delayed messages of the other topic");
    assert!(state.timers.earliest().is_none(), "no lease of it ends");
    assert!(state.idle.earliest().is_none(), "no group of it expires");
    assert!(bench.image().len() < image_before / 10, "an image has nothing of it");
    let (mut left, mut turns, mut gone) = (bench.pieces(), 1, deleted.gone);
    assert!(left > 3000 && left < 6000, "{left}");
    while bench.shard.has_remains() {
        gone.extend(bench.shard.give_back());
        let now = bench.pieces();
        assert!(left - now <= STEPS_MAX as usize, "{} pieces in one turn", left - now);
        assert!(now < left || !bench.shard.has_remains(), "each turn gives something back");
        (left, turns) = (now, turns + 1);
        bench.shard.check();
    }
    assert_eq!(left, 0);
    assert!((4..9).contains(&turns), "{turns} turns");
    // Whoever kept something for a path or member hears of each once, of a path after its members.
    let paths: Vec<_> = gone.iter().filter(|it| matches!(it, Gone::Path(_))).collect();
    assert_eq!((paths.len(), gone.len()), (32, 32 + 60));
    assert_eq!(paths.iter().collect::<BTreeSet<_>>().len(), 32);
    let at = |one: Gone| gone.iter().position(|it| *it == one).expect("told");
    assert!(at(Gone::Member(PathId::new(2), MemberId::new(2))) < at(Gone::Path(PathId::new(2))));
}

#[test]
fn replicas_that_give_back_at_other_times_or_begin_from_an_image_stay_the_same() {
    // Goal: what is still in memory is no part of the state. Method: one shard keeps it, one has given it back, one comes from
    // an image taken between; all apply what follows: time in which the leases of the deleted topic would have ended, its
    // delays fallen due and its groups expired, and a topic of the same name.
    let mut kept = Bench::full(20, 50);
    kept.delete();
    assert!(kept.shard.has_remains());
    let mut given_back = Bench { shard: kept.shard.clone(), time_ms: kept.time_ms };
    while given_back.shard.has_remains() {
        given_back.shard.give_back();
    }
    let image = Shard::from_image(kept.image().freeze()).expect("it was just encoded");
    let mut from_image = Bench { shard: image, time_ms: kept.time_ms };
    let stranger = PathId::new(2);
    for time_ms in [1000, 6000, 40_000, 70_000, 700_000] {
        let mut seen = vec![];
        for bench in [&mut kept, &mut given_back, &mut from_image] {
            bench.time_ms = time_ms;
            let commands = [create("orders", 4), join(OLD, "g1", 7), deliver(stranger, 1), deliver(PathId::new(1), 1)];
            let applied = bench.run(&commands);
            seen.push((applied.outcomes, applied.effects, bench.shard.state().next_due(), bench.image()));
        }
        assert_eq!(kept.shard.state(), from_image.shard.state(), "at {time_ms}");
        assert!(seen[0] == seen[1] && seen[0] == seen[2], "at {time_ms}: {:?}", seen.iter().map(|it| &it.0));
        assert_eq!(seen[0].0[1], Outcome::Refused(Refusal::UnknownTopic), "its handle stands for nothing");
        assert_eq!(seen[0].0[2], Outcome::Delivered { count: 0, too_large: None });
    }
}

#[test]
fn a_topic_made_again_at_once_begins_empty_and_memory_does_not_pile_up() {
    // Goal: the name and the room in the catalog are free with the deletion, and whoever deletes and makes again and again does
    // not fill the memory. Method: the largest groups there can be, a hundred times.
    let mut bench = Bench { shard: Shard::default(), time_ms: 1000 };
    let mut most = 0;
    for life in 1..=100 {
        let topic = TopicIncarnation::new(life);
        let mut commands = vec![create("orders", 1024)];
        commands.extend((0..4).map(|group| join(topic, &format!("g{group}"), 1)));
        commands.push(Command::DeleteTopic { name: "orders".to_owned() });
        let outcomes = bench.run(&commands).outcomes;
        assert_eq!(outcomes[0], Outcome::TopicDeclared { topic, partitions: 1024, existed: false });
        assert_eq!(outcomes[5], Outcome::TopicDeleted { topic: Some(topic) });
        most = most.max(bench.pieces());
    }
    assert!(most < 20_000, "{most} pieces of a hundred topics");
    bench.run(&[create("orders", 4)]);
    let made = &bench.shard.state().topics[&TopicIncarnation::new(101)];
    assert!(made.partitions.iter().all(|partition| partition.last_seq == Seq::ZERO) && made.paths.is_empty());
}

#[test]
fn rule_9_what_is_published_and_deleted_again_and_again_does_not_pile_up() {
    // Goal: a topic is filled no faster than what is left of those before it goes. Method: in each life two batches, one with
    // producers and idempotency keys by the thousand, and one that deletes the topic; nobody has a turn without a batch.
    let mut bench = Bench { shard: Shard::default(), time_ms: 1000 };
    let mut most = 0;
    for life in 1..=20 {
        bench.run(&[create("orders", 1)]);
        let outcomes = bench.publish(TopicIncarnation::new(life), 4000);
        assert!(outcomes.iter().all(|it| matches!(it, Outcome::Published(_))), "life {life}");
        bench.run(&[Command::DeleteTopic { name: "orders".to_owned() }]);
        most = most.max(bench.pieces());
    }
    assert!(most < 8200, "{most} pieces are left of twenty lives of 8,000");
}

#[test]
fn rule_9_every_command_gives_back_as_much_as_it_may_make() {
    // Goal: no command fills the memory faster than it frees it. Method: the same remains before each; what goes beyond a
    // batch's own share is the command's.
    let mut bench = Bench::full(100, 100);
    bench.run(&[join(KEPT, "kept", 2)]);
    bench.delete();
    let (time_ms, before) = (bench.time_ms, bench.pieces());
    assert!(before > 10_000, "{before}");
    let gone = |commands: &mut BatchBuilder| {
        let mut bench = Bench { shard: bench.shard.clone(), time_ms };
        bench.apply(commands);
        before - bench.pieces() - STEPS_MAX as usize
    };
    let of = |command: &Command| {
        let mut builder = BatchBuilder::default();
        builder.add(command);
        gone(&mut builder)
    };
    assert_eq!(gone(&mut BatchBuilder::default()), 0);
    let mut run = PublishRunBuilder::default();
    for number in 1..=200 {
        let (producer_id, producer_seq) = (ProducerId::new(1000 + number), ProducerSeq::new(1));
        let record = NewRecord { producer_id, producer_seq, key: b"", has_headers: false, body: b"value" };
        run.add(KEPT, Partition::ANY, 10, 10, &record);
    }
    let mut builder = BatchBuilder::default();
    builder.add_run(&run.take().expect("some"));
    assert!(gone(&mut builder) >= 400, "a line and a key each");
    assert!(of(&deliver(PathId::new(1), 1)) >= 200, "a partition and a timer each");
    let item = |seq| SettleItem {
        partition: Partition::ZERO,
        first_seq: Seq::new(seq),
        first_delivery: DeliveryId::new(seq),
        count: 1,
        kind: SettleKind::Ack,
    };
    let settle = Settle { path: PathId::new(1), items: (1..=50).map(item).collect() };
    assert!(of(&Command::Settle(settle)) >= 100, "a timer and a run each");
    assert!(of(&create("large", 1000)) >= 1000);
    assert!(of(&join(KEPT, "more", 3)) >= STEPS_MAX as usize, "as many partitions as a topic may have");
}

#[test]
fn rule_9_a_partition_costs_as_many_steps_as_its_entries_take() {
    // Goal: one turn gives back no more than its share, however much lies in one partition. Method: thousands of messages that
    // are leased, and facts of as many; the steps are counted.
    let mut bench = Bench { shard: Shard::default(), time_ms: 1000 };
    bench.run(&[create("orders", 1), join(OLD, "g", 1)]);
    bench.publish(OLD, 9000);
    let grant = Grant::Push { window_messages: 5000, window_bytes: 1 << 30 };
    for _ in 0..4 {
        let (path, member) = (PathId::new(1), MemberId::new(1));
        bench.run(&[Command::Deliver(Deliver { path, member, grant, max_messages: 1024, stretch: None })]);
    }
    let state = bench.shard.state();
    let (topic, path) = (&state.topics[&OLD].partitions[0], &state.paths[&PathId::new(1)].partitions[0]);
    let (stored, held) = ((topic.facts.len() + topic.schedule.len()) / 1024, path.kept_entries() / 1024);
    assert!(stored >= 7 && held >= 2, "{stored} and {held}");
    // Nobody else has the topic then, as an image would, and nothing is given back yet.
    let mut state = state.clone();
    drop(std::mem::take(&mut bench.shard));
    drop(state.unlink(OLD));
    let pieces = Bench { shard: Shard::of(state.clone()), time_ms: 1000 }.pieces();
    let mut steps = usize::MAX;
    state.free(&mut steps, &mut Vec::new());
    assert_eq!(usize::MAX - steps, pieces + stored + usize::try_from(held).expect("few"));
}

#[test]
fn what_an_image_still_has_goes_with_the_image() {
    // Goal: giving back copies nothing that an image shares. Method: an image lives while its topic is deleted.
    let mut bench = Bench::full(3, 4);
    let image = bench.shard.image();
    let before = bench.image();
    bench.delete();
    while bench.shard.has_remains() {
        bench.shard.give_back();
    }
    let mut after = BytesMut::new();
    image.encode(&mut after);
    assert_eq!(before, after, "the image is what it was");
    assert_ne!(DeliveryId::ZERO, bench.shard.state().last_delivery, "numbers go on (P10)");
}
