//! The state machine against the contract: each test applies batches as a leader would and looks at what comes out.

mod alone;
mod operator;
mod retention;

use super::{Applied, Shard};
use crate::command::{BatchBuilder, Command, CreateTopic, Deliver, EndMember, Grant, JoinGroup, PublishRunBuilder};
use crate::command::{ResumeMember, Settle, SettleItem, SettleKind, Stamp, StartPolicy};
use crate::effect::{DeliverEffect, Effect};
use crate::outcome::{Outcome, Published, Refusal, SettleCode};
use crate::record::NewRecord;
use crate::settings::{Setting, SettingsPatch};
use mortarmq_types::{
    Cause, ClusterTime, DeliveryId, Epoch, MemberId, Partition, PathId, ProducerId, ProducerSeq, Seq, TopicIncarnation,
    WallTime,
};

mod changes;
mod dead_letters;
mod idempotency;
mod pulls;
mod redrive;

const TOPIC: TopicIncarnation = TopicIncarnation::new(1);
const PATH: PathId = PathId::new(1);
const MEMBER: MemberId = MemberId::new(70);

/// A shard with a clock of its own.
struct Bench {
    shard: Shard,
    time_ms: u64,
}

impl Bench {
    /// A topic with one partition and one group with one member.
    fn ready() -> Self {
        let mut bench = Self { shard: Shard::default(), time_ms: 0 };
        let settings = SettingsPatch { values: vec![(Setting::Partitions, 1)] };
        bench.run(&[Command::CreateTopic(CreateTopic { name: "orders".to_owned(), settings })]);
        bench.run(&[join("billing", MEMBER)]);
        bench
    }

    fn apply(&mut self, builder: &mut BatchBuilder, gap_ms: u64) -> Applied {
        let stamp = Stamp { time: ClusterTime::new(self.time_ms), gap_ms, wall: WallTime::ZERO };
        let applied = self.shard.apply(builder.close(stamp), Epoch::new(1)).expect("commands of this build");
        self.shard.check();
        applied
    }

    fn run(&mut self, commands: &[Command]) -> Applied {
        let mut builder = BatchBuilder::default();
        commands.iter().for_each(|command| builder.add(command));
        self.apply(&mut builder, 0)
    }

    /// Publishes numbers of one producer, all with one key, or without key if it is empty.
    fn publish(&mut self, numbers: std::ops::Range<u64>, key: &[u8], value: &[u8]) -> Vec<Outcome> {
        let mut builder = BatchBuilder::default();
        builder.add_run(&run(numbers, key, value).take().expect("at least one"));
        self.apply(&mut builder, 0).outcomes
    }

    fn deliver(&mut self, member: MemberId, window: u32) -> Vec<DeliverEffect> {
        let grant = Grant::Push { window_messages: window, window_bytes: 1 << 20 };
        let deliver = Deliver { path: PATH, member, grant, max_messages: 1024, stretch: None };
        delivered(self.run(&[Command::Deliver(deliver)]))
    }

    fn settle(&mut self, seq: u64, delivery: DeliveryId, kind: SettleKind) -> SettleCode {
        let item = SettleItem {
            partition: Partition::ZERO,
            first_seq: Seq::new(seq),
            first_delivery: delivery,
            count: 1,
            kind,
        };
        match &self.run(&[Command::Settle(Settle { path: PATH, items: vec![item] })]).outcomes[..] {
            [Outcome::Settled(codes)] => codes[0],
            other => panic!("a settle is answered with codes, not {other:?}"),
        }
    }
}

fn join(group: &str, member: MemberId) -> Command {
    Command::JoinGroup(JoinGroup {
        topic: TOPIC,
        group: group.to_owned(),
        settings: SettingsPatch::default(),
        start: StartPolicy::Earliest,
        member,
        secret_hash: 1,
    })
}

fn run(numbers: std::ops::Range<u64>, key: &[u8], value: &[u8]) -> PublishRunBuilder {
    run_to(TOPIC, numbers, key, value)
}

fn run_to(topic: TopicIncarnation, numbers: std::ops::Range<u64>, key: &[u8], value: &[u8]) -> PublishRunBuilder {
    let mut run = PublishRunBuilder::default();
    for number in numbers {
        let record = NewRecord {
            producer_id: ProducerId::new(9),
            producer_seq: ProducerSeq::new(number),
            key,
            has_headers: false,
            body: value,
        };
        run.add(topic, Partition::ANY, 10, 10, &record);
    }
    run
}

fn delivered(applied: Applied) -> Vec<DeliverEffect> {
    let of = |effect| if let Effect::Deliver(deliver) = effect { Some(deliver) } else { None };
    applied.effects.into_iter().filter_map(of).collect()
}

fn stored(seq: u64, deduplicated: bool) -> Outcome {
    Outcome::Published(Published { partition: Partition::ZERO, seq: Seq::new(seq), deduplicated })
}

#[test]
fn p2_a_join_that_is_refused_makes_no_group() {
    // Goal: what is refused changes nothing. Method: a member that nobody can be, in a group that does not exist.
    let mut bench = Bench::ready();
    let applied = bench.run(&[join("refunds", MemberId::ZERO)]);
    assert_eq!(applied.outcomes, [Outcome::Refused(Refusal::UnknownMember)]);
    assert_eq!(bench.shard.state().paths.len(), 1);
}

#[test]
fn p3_a_retry_gets_the_first_answer_and_a_gap_stores_nothing() {
    let mut bench = Bench::ready();
    assert_eq!(bench.publish(1..3, b"", b"a"), [stored(1, false), stored(2, false)]);
    assert_eq!(bench.publish(2..3, b"", b"a"), [stored(2, true)]);
    let gap = Refusal::SeqGap { expected: ProducerSeq::new(3), found: ProducerSeq::new(4) };
    assert_eq!(bench.publish(4..5, b"", b"a"), [Outcome::Refused(gap)]);
    let reused = Refusal::SeqReused { found: ProducerSeq::new(2) };
    assert_eq!(bench.publish(2..3, b"", b"b"), [Outcome::Refused(reused)]);
    assert_eq!(bench.publish(3..4, b"", b"a"), [stored(3, false)], "a refused publish does not use up its number");
}

#[test]
fn p3_a_batch_is_stored_whole_or_not_at_all_and_may_overlap_the_window() {
    let mut bench = Bench::ready();
    let mut send = |numbers: Vec<u64>| {
        let mut run = PublishRunBuilder::default();
        let record = |number: u64| NewRecord {
            producer_id: ProducerId::new(9),
            producer_seq: ProducerSeq::new(number),
            key: b"",
            has_headers: false,
            body: b"a",
        };
        let records: Vec<_> = numbers.into_iter().map(|number| (1, 1, record(number))).collect();
        run.add_batch(TOPIC, Partition::ANY, ProducerId::new(9), records.into_iter());
        let mut builder = BatchBuilder::default();
        builder.add_run(&run.take().expect("one"));
        bench.apply(&mut builder, 0).outcomes.remove(0)
    };
    let seqs = |outcome| match outcome {
        Outcome::PublishedBatch(stored) => stored.iter().map(|one| (one.seq.get(), one.deduplicated)).collect(),
        _ => Vec::new(),
    };
    assert_eq!(seqs(send(vec![1, 2])), [(1, false), (2, false)]);
    assert_eq!(seqs(send(vec![2, 3])), [(2, true), (3, false)]);
    assert_eq!(send(vec![4, 6]), Outcome::Refused(Refusal::SeqInvalid));
    assert_eq!(seqs(send(vec![4])), [(4, false)], "nothing of the refused batch was stored");
}

#[test]
fn one_batch_publishes_delivers_and_counts_every_command() {
    let mut bench = Bench::ready();
    let before = bench.shard.state().commit_index;
    let mut builder = BatchBuilder::default();
    builder.add_run(&run(1..4, b"", b"a").take().expect("three"));
    let grant = Grant::Push { window_messages: 2, window_bytes: 100 };
    builder.add(&Command::Deliver(Deliver { path: PATH, member: MEMBER, grant, max_messages: 9, stretch: None }));
    let applied = bench.apply(&mut builder, 0);
    assert_eq!(applied.first_index, before.next());
    assert_eq!(bench.shard.state().commit_index, before.plus(4), "each command has an index of its own");
    let delivered = delivered(applied);
    let seqs: Vec<u64> = delivered[0].leases.iter().map(|lease| lease.seq.get()).collect();
    assert_eq!(seqs, [1, 2], "the window is two messages");
    assert!(bench.deliver(MEMBER, 2).is_empty(), "a member never holds more than its window");
}

#[test]
fn p6_an_ack_is_final_and_its_repeat_is_ok() {
    let mut bench = Bench::ready();
    bench.publish(1..2, b"", b"a");
    let lease = bench.deliver(MEMBER, 9)[0].leases[0];
    assert_eq!(bench.settle(1, lease.delivery_id, SettleKind::Ack), SettleCode::Done);
    assert_eq!(bench.settle(1, lease.delivery_id, SettleKind::Ack), SettleCode::Done);
    assert_eq!(bench.settle(1, lease.delivery_id, SettleKind::Release), SettleCode::Unknown);
    bench.time_ms += 3_600_000;
    assert!(bench.deliver(MEMBER, 9).is_empty());
    assert_eq!(bench.shard.state().books(&bench.shard.state().paths[&PATH]).delivered, 1);
}

#[test]
fn p7_an_expired_lease_comes_back_with_its_cause_and_the_late_ack_changes_nothing() {
    let mut bench = Bench::ready();
    bench.publish(1..2, b"", b"a");
    let first = bench.deliver(MEMBER, 9)[0].leases[0];
    let due = bench.shard.state().next_due().expect("a lease has an end");
    assert_eq!(due, ClusterTime::new(bench.time_ms + 30_000));
    bench.time_ms = due.get();
    bench.run(&[]);
    bench.time_ms += 5000;
    let second = bench.deliver(MEMBER, 9)[0].leases[0];
    assert_eq!((second.cause, second.previous, second.attempt.get()), (Cause::LeaseExpired, first.delivery_id, 2));
    assert_eq!(bench.settle(1, first.delivery_id, SettleKind::Ack), SettleCode::Stale);
    assert_eq!(bench.settle(1, second.delivery_id, SettleKind::Ack), SettleCode::Done);
}

#[test]
fn p5_a_gap_ends_no_lease() {
    let mut bench = Bench::ready();
    bench.publish(1..2, b"", b"a");
    let lease = bench.deliver(MEMBER, 9)[0].leases[0];
    bench.time_ms += 3_600_000;
    bench.apply(&mut BatchBuilder::default(), 3_600_000 - 10);
    assert_eq!(bench.settle(1, lease.delivery_id, SettleKind::Ack), SettleCode::Done);
}

#[test]
fn a_lost_member_counts_an_attempt_and_one_that_left_does_not() {
    for (lost, cause, attempt) in [(true, Cause::ConsumerLost, 2), (false, Cause::Released, 1)] {
        let mut bench = Bench::ready();
        let other = MemberId::new(71);
        bench.run(&[join("billing", other)]);
        bench.publish(1..2, b"", b"a");
        bench.deliver(MEMBER, 9);
        bench.run(&[Command::EndMember(EndMember { path: PATH, member: MEMBER, lost })]);
        bench.time_ms += 60_000;
        let again = bench.deliver(other, 9)[0].leases[0];
        assert_eq!((again.cause, again.attempt.get()), (cause, attempt));
        let refused = bench.run(&[Command::EndMember(EndMember { path: PATH, member: MEMBER, lost })]).outcomes;
        assert_eq!(refused, [Outcome::Refused(Refusal::UnknownMember)]);
    }
}

#[test]
fn p9_a_group_that_comes_late_owes_from_its_start_and_both_books_balance() {
    let mut bench = Bench::ready();
    bench.publish(1..4, b"", b"a");
    bench.run(&[join("audit", MemberId::new(72))]);
    let latest = JoinGroup {
        topic: TOPIC,
        group: "live".to_owned(),
        settings: SettingsPatch::default(),
        start: StartPolicy::Latest,
        member: MemberId::new(73),
        secret_hash: 0,
    };
    bench.run(&[Command::JoinGroup(latest)]);
    bench.publish(4..5, b"", b"a");
    let state = bench.shard.state();
    let produced: Vec<u64> = state.paths.values().map(|path| state.books(path).produced).collect();
    assert_eq!(produced, [4, 4, 1]);
}

#[test]
fn a_topic_deleted_and_made_again_is_another() {
    let mut bench = Bench::ready();
    bench.publish(1..2, b"", b"a");
    let deleted = bench.run(&[Command::DeleteTopic { name: "orders".to_owned() }]);
    assert_eq!(deleted.outcomes, [Outcome::TopicDeleted { topic: Some(TOPIC) }]);
    assert!(deleted.effects.contains(&Effect::TopicDeleted(TOPIC)));
    let create = CreateTopic { name: "orders".to_owned(), settings: SettingsPatch::default() };
    let made = bench.run(&[Command::CreateTopic(create)]).outcomes;
    let expected = Outcome::TopicDeclared { topic: TOPIC.next(), partitions: 4, existed: false };
    assert_eq!(made, [expected]);
    assert_eq!(bench.publish(2..3, b"", b"a"), [Outcome::Refused(Refusal::UnknownTopic)]);
}

#[test]
fn settings_that_differ_are_named_and_those_not_given_are_not_compared() {
    let mut bench = Bench::ready();
    let create = |name: &str, values: &[(Setting, u64)]| {
        let settings = SettingsPatch { values: values.to_vec() };
        Command::CreateTopic(CreateTopic { name: name.to_owned(), settings })
    };
    let existed = bench.run(&[create("orders", &[])]).outcomes;
    assert_eq!(existed, [Outcome::TopicDeclared { topic: TOPIC, partitions: 1, existed: true }]);
    let differences = vec!["partitions is 1, not 3".to_owned()];
    let refused = bench.run(&[create("orders", &[(Setting::Partitions, 3)])]).outcomes;
    assert_eq!(refused, [Outcome::Refused(Refusal::TopicMismatch { differences })]);
    let case = bench.run(&[create("Orders", &[])]).outcomes;
    assert_eq!(case, [Outcome::Refused(Refusal::NameCase { existing: "orders".to_owned() })]);
}

#[test]
fn p8_a_key_nacked_in_the_middle_resumes_at_its_earliest() {
    let mut bench = Bench::ready();
    bench.publish(1..4, b"k", b"a");
    let leases = bench.deliver(MEMBER, 9)[0].leases.clone();
    assert_eq!(leases.len(), 3, "one Deliver may lease several messages of a key together");
    let nack = SettleKind::Nack { delay_ms: 0, error: "later".to_owned() };
    assert_eq!(bench.settle(1, leases[0].delivery_id, nack), SettleCode::Done);
    assert!(bench.deliver(MEMBER, 9).is_empty(), "nothing of the key leaves before its earliest");
    bench.time_ms += 60_000;
    let again: Vec<(u64, Cause)> =
        bench.deliver(MEMBER, 9)[0].leases.iter().map(|lease| (lease.seq.get(), lease.cause)).collect();
    assert_eq!(again, [(1, Cause::Nacked), (2, Cause::Released), (3, Cause::Released)]);
}

#[test]
fn a_member_whose_leases_are_still_being_ended_cannot_come_back() {
    // It would have come back holding nothing, and the ends of its old leases would have made that less than nothing.
    let mut bench = Bench::ready();
    for first in [1, 1001, 2001] {
        bench.publish(first..first + 1000, b"", b"x");
    }
    for _ in 0..3 {
        bench.deliver(MEMBER, 3000);
    }
    let end = Command::EndMember(EndMember { path: PATH, member: MEMBER, lost: false });
    let applied = bench.run(&[end, join("billing", MEMBER)]);
    assert_eq!(applied.outcomes[1], Outcome::Refused(Refusal::UnknownMember));
    bench.run(&[]);
    bench.run(&[]);
    let applied = bench.run(&[join("billing", MEMBER)]);
    assert!(matches!(applied.outcomes[0], Outcome::Joined { .. }), "all have ended: {applied:?}");
}

#[test]
fn a_member_is_found_again_by_its_secret_and_a_guesser_learns_nothing() {
    let mut bench = Bench::ready();
    bench.run(&[join("audit", MemberId::new(71))]);
    let resume = |topic: u64, group: &str, member: u64, secret_hash| {
        let (topic, member) = (TopicIncarnation::new(topic), MemberId::new(member));
        Command::ResumeMember(ResumeMember { topic, group: group.to_owned(), member, secret_hash })
    };
    let before = bench.shard.state().clone();
    let outcome = bench.run(&[resume(1, "billing", 70, 1)]).outcomes.remove(0);
    assert_eq!(outcome, Outcome::Joined { path: PATH, member: MEMBER });
    let wrong =
        [(1, "billing", 70, 2), (1, "billing", 71, 1), (1, "audit", 70, 1), (1, "none", 70, 1), (1, "billing", 0, 1)];
    let commands: Vec<_> = wrong.map(|(topic, group, member, secret)| resume(topic, group, member, secret)).into();
    let outcomes = bench.run(&commands).outcomes;
    assert_eq!(outcomes, vec![Outcome::Refused(Refusal::UnknownMember); wrong.len()]);
    assert_eq!(bench.run(&[resume(9, "billing", 70, 1)]).outcomes, [Outcome::Refused(Refusal::UnknownTopic)]);
    let after = bench.shard.state();
    assert_eq!((&after.paths, after.last_path), (&before.paths, before.last_path), "it neither makes nor changes");
    bench.run(&[Command::EndMember(EndMember { path: PATH, member: MEMBER, lost: true })]);
    assert_eq!(bench.run(&[resume(1, "billing", 70, 1)]).outcomes, [Outcome::Refused(Refusal::UnknownMember)]);
}

#[test]
fn a_pull_whose_bytes_hold_no_message_is_told_how_large_the_next_one_is() {
    let mut bench = Bench::ready();
    let (mut large, mut builder) = (PublishRunBuilder::default(), BatchBuilder::default());
    let (producer_id, producer_seq) = (ProducerId::ZERO, ProducerSeq::ZERO);
    let record = NewRecord { producer_id, producer_seq, key: b"", has_headers: false, body: b"large" };
    large.add(TOPIC, Partition::ANY, 100, 90, &record);
    builder.add_run(&large.take().expect("one record"));
    bench.apply(&mut builder, 0);
    bench.publish(1..2, b"", b"small");
    let mut pull_id = 0;
    let mut pull = |max_bytes| {
        pull_id += 1;
        let grant = Grant::Pull { node_incarnation: 1, pull_id, max_bytes };
        Command::Deliver(Deliver { path: PATH, member: MEMBER, grant, max_messages: 10, stretch: None })
    };
    let (under, exact, none) = (pull(99), pull(100), pull(0));
    let outcomes = bench.run(&[under, exact, none, pull(0)]).outcomes;
    let delivered = |count, too_large| Outcome::Delivered { count, too_large };
    assert_eq!(outcomes[0], delivered(0, Some(100)), "the next message is not passed over for a smaller one");
    assert_eq!(outcomes[1..], [delivered(1, None), delivered(1, None), delivered(0, None)]);
}
