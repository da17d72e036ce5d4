//! Retention: what may go, what a trim drops and what it leaves, what it costs, and when the files may go.

use super::{Bench, MEMBER, PATH, TOPIC, join};
use crate::apply::{Applied, Shard};
use crate::command::{BatchBuilder, Command, CreateTopic, EndMember, Letter, PublishRunBuilder, Redrive};
use crate::command::{STEPS_MAX, SeekTarget, Settle, SettleItem, SettleKind, Times, Trim};
use crate::effect::Effect;
use crate::ledger::LedgerKind;
use crate::outcome::{Outcome, SettleCode};
use crate::record::NewRecord;
use crate::retention::Kept;
use crate::settings::{Defaults, Setting, SettingsPatch};
use bytes::BytesMut;
use mortarmq_delivery::{Books, Leased, PathPartition};
use mortarmq_types::{
    Cause, DeliveryId, DropReason, KeyHash, MemberId, Partition, PathId, ProducerId, ProducerSeq, Seq, TopicIncarnation,
};

const WEEK_MS: u64 = 604_800_000;
const DEAD: TopicIncarnation = TopicIncarnation::new(2);

fn trim_below(below: u64) -> Command {
    Command::Trim(Trim { topic: TOPIC, partition: Partition::ZERO, below: Seq::new(below) })
}

/// As far as the settings permit.
fn trim() -> Command {
    trim_below(u64::MAX)
}

fn told(effects: &[Effect]) -> Vec<(LedgerKind, u64, u32)> {
    let of = |effect: &Effect| match effect {
        Effect::Ledger(ledger) => Some((ledger.event.kind, ledger.event.first_seq.get(), ledger.event.count)),
        _ => None,
    };
    effects.iter().filter_map(of).collect()
}

/// How far the files of the source may go.
fn files(applied: &Applied) -> Vec<u64> {
    let of = |effect: &Effect| match effect {
        Effect::Trim { topic: TOPIC, below, .. } => Some(below.get()),
        _ => None,
    };
    applied.effects.iter().filter_map(of).collect()
}

impl Bench {
    /// As `ready`, with settings of the topic.
    fn with(settings: &[(Setting, u64)]) -> Self {
        let mut bench = Self { shard: Shard::default(), time_ms: 0 };
        let mut settings = SettingsPatch { values: settings.to_vec() };
        settings.add(Setting::Partitions, 1);
        bench.run(&[Command::CreateTopic(CreateTopic { name: "orders".to_owned(), settings })]);
        bench.run(&[join("billing", MEMBER)]);
        bench
    }

    /// Publishes messages of which nobody is remembered as the producer.
    fn store(&mut self, count: u64, value: &[u8], times: Times) {
        let mut run = PublishRunBuilder::default();
        let (producer_id, producer_seq) = (ProducerId::ZERO, ProducerSeq::ZERO);
        let record = NewRecord { producer_id, producer_seq, key: b"", has_headers: false, body: value };
        (0..count).for_each(|_| run.add_timed(TOPIC, Partition::ANY, (10, 10), &record, times));
        let mut builder = BatchBuilder::default();
        builder.add_run(&run.take().expect("at least one"));
        self.apply(&mut builder, 0);
    }

    fn kept(&self, topic: TopicIncarnation) -> &Kept {
        &self.shard.state().topics[&topic].partitions[0].kept
    }

    fn first_seq(&self) -> u64 {
        self.kept(TOPIC).first_seq.get()
    }

    fn path_of(&self, id: PathId) -> &PathPartition {
        &self.shard.state().paths[&id].partitions[0]
    }

    fn by_retention(&self) -> u64 {
        self.path_of(PATH).dropped_by(DropReason::Retention)
    }

    fn books_by(&self, id: PathId) -> Books {
        let state = self.shard.state();
        state.books(&state.paths[&id])
    }

    /// Leases with a stamp at which nothing has run out, wherever the clock stands.
    fn lease(&mut self, count: u32) -> Vec<Leased> {
        self.deliver(MEMBER, count).into_iter().flat_map(|deliver| deliver.leases).collect()
    }

    /// Time passes in which nobody could settle: leases go on behind it, and messages grow older.
    fn stand_still(&mut self, ms: u64) {
        self.time_ms += ms;
        self.apply(&mut BatchBuilder::default(), ms);
    }

    fn trimmable(&self) -> Option<Seq> {
        let state = self.shard.state();
        state.trimmable(TOPIC, Partition::ZERO, state.time)
    }

    fn restore(&mut self) {
        let mut bytes = BytesMut::new();
        self.shard.image().encode(&mut bytes);
        let restored = Shard::from_image(bytes.freeze()).expect("just written");
        assert_eq!(restored.state(), self.shard.state());
        self.shard = restored;
    }
}

#[test]
fn p4_p9_messages_go_at_their_age_and_not_before_whatever_a_command_says() {
    let mut bench = Bench::with(&[]);
    bench.store(10, b"a", Times::default());
    bench.time_ms = WEEK_MS / 2;
    bench.store(10, b"b", Times::default());
    bench.time_ms = WEEK_MS - 1;
    assert!(files(&bench.run(&[trim()])).is_empty());
    assert_eq!((bench.first_seq(), bench.by_retention()), (1, 0), "a millisecond too early");
    bench.time_ms = WEEK_MS;
    let applied = bench.run(&[trim_below(4), trim()]);
    assert_eq!(applied.outcomes, [Outcome::Done, Outcome::Done]);
    let dropped = LedgerKind::Dropped(DropReason::Retention);
    assert_eq!(told(&applied.effects), [(dropped, 1, 3), (dropped, 4, 7)], "no further than the command says");
    assert_eq!(files(&applied), [4, 11]);
    assert_eq!((bench.first_seq(), bench.path_of(PATH).position()), (11, Seq::new(11)));
    let books = bench.books_by(PATH);
    assert_eq!((books.produced, books.dropped, books.depth, books.difference()), (20, 10, 10, 0));
    let partition = &bench.shard.state().topics[&TOPIC].partitions[0];
    assert_eq!((partition.kept_bytes() * 2, partition.bytes), (partition.bytes, partition.bytes));
    bench.time_ms = WEEK_MS * 3 / 2;
    bench.restore();
    assert_eq!(files(&bench.run(&[trim()])), [21], "the end of what was stored is as good as a mark");
    let partition = &bench.shard.state().topics[&TOPIC].partitions[0];
    assert_eq!((partition.kept_bytes(), bench.first_seq()), (0, 21));
    bench.store(1, b"c", Times::default());
    assert_eq!(bench.lease(5).iter().map(|lease| lease.seq.get()).collect::<Vec<_>>(), [21], "what comes is owed");
    assert!(files(&bench.run(&[trim_below(0), trim()])).is_empty(), "P10: it never goes back");
}

#[test]
fn p4_a_topic_that_keeps_its_messages_for_ever_does() {
    let mut bench = Bench::with(&[(Setting::RetentionMs, 0)]);
    bench.store(10, b"a", Times::default());
    bench.time_ms = 100 * WEEK_MS;
    bench.run(&[trim()]);
    assert_eq!((bench.first_seq(), bench.by_retention()), (1, 0));
}

#[test]
fn p5_p6_what_is_leased_stays_until_its_lease_ends_and_holds_back_the_files() {
    // Goal: a trim takes nothing from a consumer. Method: five are leased when their time comes; one is acked, and the other
    // leases end in each way.
    let mut bench = Bench::with(&[]);
    bench.store(8, b"a", Times::default());
    let leases = bench.lease(5);
    let id = |seq: usize| leases[seq - 1].delivery_id;
    bench.stand_still(WEEK_MS);
    let applied = bench.run(&[trim()]);
    assert_eq!((files(&applied), bench.first_seq()), (vec![1], 9), "the record of 1 is still needed");
    assert_eq!(told(&applied.effects), [(LedgerKind::Dropped(DropReason::Retention), 6, 3)]);
    assert_eq!(bench.books_by(PATH).depth, 5);
    bench.restore();
    assert_eq!(bench.settle(2, id(2), SettleKind::Extend), SettleCode::Done);
    assert_eq!(bench.settle(1, id(1), SettleKind::Ack), SettleCode::Done, "P6: it may be acked");
    assert_eq!(bench.books_by(PATH).delivered, 1);
    let nack = SettleKind::Nack { delay_ms: 0, error: "later".to_owned() };
    assert_eq!(bench.settle(2, id(2), nack.clone()), SettleCode::Done);
    assert_eq!(bench.settle(2, id(2), nack), SettleCode::Done, "and a settle may be repeated");
    assert_eq!((bench.by_retention(), bench.path_of(PATH).passed_over()), (4, 3), "it does not come again");
    let held = bench.settle(3, id(3), SettleKind::Hold { error: "damaged".to_owned() });
    assert_eq!((held, bench.path_of(PATH).unreadable(), bench.by_retention()), (SettleCode::Done, 0, 5));
    let lost = bench.run(&[Command::EndMember(EndMember { path: PATH, member: MEMBER, lost: true })]);
    let (ended, dropped) = (LedgerKind::LeaseEnded(Cause::ConsumerLost), LedgerKind::Dropped(DropReason::Retention));
    assert_eq!(told(&lost.effects), [(ended, 4, 1), (dropped, 4, 1), (ended, 5, 1), (dropped, 5, 1)]);
    assert_eq!(files(&lost), [9], "nobody needs any of them");
    let books = bench.books_by(PATH);
    assert_eq!((books.produced, books.delivered, books.dropped, books.depth), (8, 1, 7, 0));
    assert_eq!(bench.shard.state().next_due(), None);
}

#[test]
fn p4_a_lease_that_runs_out_ends_its_message_and_a_last_attempt_makes_a_dead_letter() {
    let mut bench = Bench::with(&[(Setting::MaxAttempts, 1)]);
    bench.store(3, b"a", Times::default());
    let leases = bench.lease(3);
    bench.stand_still(WEEK_MS);
    bench.run(&[trim()]);
    bench.settle(1, leases[0].delivery_id, SettleKind::Release);
    bench.settle(2, leases[1].delivery_id, SettleKind::DeadLetter { error: String::new() });
    bench.time_ms += 40_000;
    let applied = bench.run(&[]);
    let copied = |effect: &Effect| matches!(effect, Effect::Copy(_));
    let place = |wanted: fn(&Effect) -> bool| applied.effects.iter().position(wanted);
    let freed = place(|effect| matches!(effect, Effect::Trim { topic: TOPIC, .. }));
    assert!(place(copied) < freed && freed.is_some(), "the copy is made before its source may go");
    assert_eq!(files(&applied), [4]);
    let books = bench.books_by(PATH);
    assert_eq!((books.dropped, books.dlq, books.depth), (1, 2, 0), "given back, rejected, and the last attempt");
}

#[test]
fn p8_messages_of_a_key_behind_one_that_is_leased_are_dropped_and_later_ones_wait_for_it() {
    let mut bench = Bench::with(&[]);
    bench.publish(1..3, b"key", b"x");
    let lease = bench.lease(1)[0];
    bench.stand_still(WEEK_MS);
    bench.run(&[trim()]);
    bench.publish(3..4, b"key", b"x");
    assert!(bench.lease(9).is_empty(), "the key is out");
    bench.settle(1, lease.delivery_id, SettleKind::Nack { delay_ms: 5000, error: String::new() });
    assert_eq!(bench.lease(9)[0].seq, Seq::new(3));
}

#[test]
fn p4_p9_a_trim_takes_no_more_steps_than_any_command_and_leaves_nothing_half_done() {
    // Goal: bounded work, exact books, and nothing below what is kept is ever offered, at every moment between. Method: of
    // 100,000 messages 2,500 were offered and given back; the state goes through its bytes after each command.
    let mut bench = Bench::with(&[]);
    bench.store(10_000, b"a", Times::default());
    for first in [1, 1025, 2049] {
        let count = bench.lease(5000).len() as u64;
        assert_eq!(count, u64::from(STEPS_MAX), "from {first}");
    }
    (0..9).for_each(|_| bench.store(10_000, b"a", Times::default()));
    for seq in 1..=2500 {
        bench.settle(seq, DeliveryId::new(seq), SettleKind::Release);
    }
    bench.stand_still(WEEK_MS);
    let mut commands = 0;
    while bench.trimmable().is_some() {
        let before = (bench.first_seq(), bench.path_of(PATH).passed_over());
        bench.run(&[trim()]);
        let steps = before.1 - bench.path_of(PATH).passed_over();
        assert!(steps < u64::from(STEPS_MAX), "{steps} messages by one command");
        assert!(bench.first_seq() > before.0, "each goes on");
        assert!(
            bench
                .path_of(PATH)
                .unsettled()
                .all(|(seq, entry)| { entry.lease().is_some() || seq >= Seq::new(bench.first_seq()) })
        );
        bench.restore();
        commands += 1;
    }
    assert!(commands >= 4, "{commands}");
    assert_eq!((bench.first_seq(), bench.by_retention()), (100_001, 100_000 - 572));
    assert_eq!(bench.shard.state().topics[&TOPIC].partitions[0].facts.len(), 0);
    assert_eq!(bench.shard.state().needed_from(TOPIC, Partition::ZERO), Some(Seq::new(2501)));
}

#[test]
fn p4_p9_what_is_delayed_goes_too_step_by_step_and_stops_nobody() {
    let mut bench = Bench::with(&[]);
    bench.run(&[join("audit", MemberId::new(71))]);
    bench.store(3000, b"a", Times { delay_ms: 2 * WEEK_MS, ttl_ms: 0 });
    bench.store(1, b"b", Times::default());
    let seen: Vec<Leased> = (0..3).flat_map(|_| bench.lease(5)).collect();
    assert_eq!(seen[0].seq, Seq::new(3001), "what is delayed is skipped");
    assert_eq!((bench.path_of(PATH).delayed(), bench.shard.state().delayed), (3000, 3000));
    bench.stand_still(WEEK_MS);
    let mut commands = 0;
    while bench.trimmable().is_some() {
        let (before, delayed) = (bench.path_of(PATH).delayed(), bench.shard.state().delayed);
        bench.store(1, b"c", Times::default());
        bench.run(&[trim()]);
        let steps = before - bench.path_of(PATH).delayed() + delayed - bench.shard.state().delayed;
        assert!(steps <= u64::from(STEPS_MAX), "{steps} by one command");
        let leased: Vec<u64> = bench.lease(100).iter().map(|lease| lease.seq.get()).collect();
        assert!(commands > 2 || leased == [3002 + commands], "it goes on meanwhile: {leased:?}");
        commands += 1;
    }
    assert!(commands >= 6, "{commands}: each message is a step for one path, and one when it leaves the schedule");
    let state = bench.shard.state();
    assert_eq!((state.delayed, bench.first_seq()), (0, 3002));
    assert!(state.topics[&TOPIC].partitions[0].schedule.is_empty());
    assert_eq!(bench.by_retention(), 3000, "3001 is leased");
    assert_eq!(bench.path_of(PathId::new(2)).dropped_by(DropReason::Retention), 3001);
}

#[test]
fn p10_no_group_and_no_seek_goes_below_what_is_kept() {
    let mut bench = Bench::with(&[]);
    bench.store(5, b"a", Times::default());
    let leases = bench.lease(5);
    (1..=5).for_each(|seq| _ = bench.settle(seq, leases[seq as usize - 1].delivery_id, SettleKind::Ack));
    bench.time_ms = WEEK_MS / 2;
    bench.store(5, b"b", Times::default());
    bench.time_ms = WEEK_MS;
    bench.run(&[trim()]);
    assert_eq!((bench.first_seq(), bench.by_retention()), (6, 0), "what is settled is no loss");
    bench.run(&[join("audit", MemberId::new(71))]);
    assert_eq!(bench.books_by(PathId::new(2)).produced, 5);
    let seek = |target| Command::SeekPath { path: PATH, target };
    let outcome = bench.run(&[seek(SeekTarget::Latest), seek(SeekTarget::Earliest)]).outcomes.remove(1);
    assert_eq!(outcome, Outcome::Moved { replayed: 5, dropped: 0, is_partial: false });
    let target = SeekTarget::At(vec![(Partition::ZERO, Seq::new(2))]);
    assert_eq!(bench.run(&[seek(target)]).outcomes, [Outcome::Moved { replayed: 0, dropped: 0, is_partial: false }]);
    assert_eq!(bench.path_of(PATH).position(), Seq::new(6));
}

#[test]
fn p4_a_path_that_an_operator_moves_arrives_first() {
    let mut bench = Bench::with(&[]);
    bench.store(3000, b"a", Times::default());
    (0..3).for_each(|_| _ = bench.lease(5000));
    (1..=3000).for_each(|seq| _ = bench.settle(seq, DeliveryId::new(seq), SettleKind::Release));
    bench.stand_still(WEEK_MS);
    bench.run(&[Command::SeekPath { path: PATH, target: SeekTarget::Latest }, trim()]);
    assert!(bench.path_of(PATH).is_moving());
    assert_eq!((bench.first_seq(), bench.by_retention()), (1, 0));
    assert_eq!(bench.trimmable(), None, "nothing would come of it");
    while bench.path_of(PATH).is_moving() {
        bench.run(&[]);
    }
    assert_eq!(bench.trimmable(), Some(Seq::new(3001)));
    bench.run(&[trim()]);
    assert_eq!((bench.first_seq(), bench.by_retention()), (3001, 0), "the seek has dropped them");
}

#[test]
fn p4_by_bytes_at_least_what_the_setting_promises_stays() {
    let keep = 200_000;
    let mut bench = Bench::with(&[(Setting::RetentionBytes, keep)]);
    for _ in 0..50 {
        bench.store(20, &[7; 1000], Times::default());
        bench.run(&[trim()]);
        let partition = &bench.shard.state().topics[&TOPIC].partitions[0];
        let kept = (partition.last_seq.get() + 1 - partition.kept.first_seq.get()) * partition.bytes
            / partition.last_seq.get();
        assert!(kept >= keep.min(partition.bytes), "{kept} bytes are kept");
        assert!(kept <= keep + 8192 && partition.kept_bytes() == kept, "{kept} bytes, told {}", partition.kept_bytes());
    }
    assert!(bench.first_seq() > 700);
    assert_eq!(bench.books_by(PATH).dropped, bench.first_seq() - 1);
}

#[test]
fn p4_settled_messages_may_go_at_once_and_others_never_by_that_rule() {
    let mut bench = Bench::with(&[(Setting::RetentionMs, 0), (Setting::KeepSettled, 0)]);
    let audit = PathId::new(2);
    bench.store(100, &[7; 1000], Times::default());
    bench.lease(100);
    (1..=100).for_each(|seq| _ = bench.settle(seq, DeliveryId::new(seq), SettleKind::Ack));
    bench.run(&[join("audit", MemberId::new(71)), trim()]);
    assert_eq!(bench.first_seq(), 1, "another group has settled nothing");
    bench.run(&[Command::PurgePath { path: audit }]);
    bench.store(100, &[7; 1000], Times::default());
    bench.run(&[trim()]);
    assert_eq!(bench.first_seq(), 1, "there is no mark yet: a step is a quarter of a segment");
    bench.time_ms += 60_000;
    bench.run(&[trim()]);
    assert_eq!(bench.first_seq(), 1, "101 is not settled");
    bench.run(&[Command::PurgePath { path: PATH }, Command::PurgePath { path: audit }, trim()]);
    assert_eq!((bench.first_seq(), bench.by_retention()), (201, 0), "nothing is stored any more, and all is settled");
    bench.run(&[Command::DeleteGroup { path: PATH }, Command::DeleteGroup { path: audit }]);
    bench.store(1, b"a", Times::default());
    bench.time_ms += 60_000;
    bench.run(&[trim()]);
    assert_eq!(bench.first_seq(), 201, "without a group nothing is settled");
}

#[test]
fn p4_what_one_group_has_settled_stays_for_the_others() {
    let mut bench = Bench::with(&[(Setting::RetentionMs, 0), (Setting::KeepSettled, 0)]);
    bench.run(&[Command::SetDefaults(Defaults { segment_max_bytes: 4096, ..Defaults::BUILD })]);
    bench.run(&[join("audit", MemberId::new(71))]);
    bench.store(200, &[7; 100], Times::default());
    bench.lease(200);
    (1..=150).for_each(|seq| _ = bench.settle(seq, DeliveryId::new(seq), SettleKind::Ack));
    bench.run(&[trim()]);
    assert_eq!(bench.first_seq(), 1, "audit has settled nothing");
    let target = SeekTarget::At(vec![(Partition::ZERO, Seq::new(101))]);
    bench.run(&[Command::SeekPath { path: PathId::new(2), target }, trim()]);
    let first = bench.first_seq();
    assert!(first > 80 && first <= 101, "{first}: up to a mark, of which a segment has four");
    bench.run(&[Command::DeleteGroup { path: PathId::new(2) }, trim()]);
    let first = bench.first_seq();
    assert!(first > 130 && first <= 151, "{first}");
    assert_eq!((bench.by_retention(), bench.books_by(PATH).depth), (0, 50));
}

#[test]
fn p4_dead_letters_are_kept_as_long_as_the_messages_of_their_source() {
    let mut bench = Bench::with(&[(Setting::RetentionMs, 2 * WEEK_MS), (Setting::MaxAttempts, 1)]);
    bench.store(1, b"a", Times::default());
    let lease = bench.lease(1)[0];
    bench.settle(1, lease.delivery_id, SettleKind::DeadLetter { error: String::new() });
    let trim = Command::Trim(Trim { topic: DEAD, partition: Partition::ZERO, below: Seq::MAX });
    bench.time_ms = 2 * WEEK_MS - 1;
    bench.run(std::slice::from_ref(&trim));
    assert_eq!(bench.kept(DEAD).first_seq, Seq::FIRST);
    bench.time_ms += 1;
    bench.run(&[trim]);
    assert_eq!(bench.kept(DEAD).first_seq, Seq::new(2));
    let books = bench.books_by(PathId::new(2));
    assert_eq!((books.produced, books.dropped, books.depth), (1, 1, 0), "its own book is right");
    assert_eq!(bench.books_by(PATH).dlq, 1, "and so is that of its origin");
}

#[test]
fn p4_a_redriven_message_outlasts_retention_and_its_dead_letter_holds_back_the_files() {
    let mut bench = Bench::with(&[]);
    bench.store(2, b"a", Times::default());
    let lease = bench.lease(1)[0];
    bench.settle(1, lease.delivery_id, SettleKind::DeadLetter { error: String::new() });
    let (path, origin, delivery, key_hash) = (PATH, Seq::new(1), lease.delivery_id, KeyHash::NONE);
    let letter = Letter { seq: Seq::new(1), path, origin, delivery, key_hash, size_bytes: 10 };
    bench.run(&[Command::Redrive(Redrive { topic: DEAD, partition: Partition::ZERO, letters: vec![letter] })]);
    bench.time_ms = WEEK_MS;
    let dead = Command::Trim(Trim { topic: DEAD, partition: Partition::ZERO, below: Seq::MAX });
    let applied = bench.run(&[trim(), dead]);
    assert_eq!((bench.first_seq(), bench.kept(DEAD).first_seq), (3, Seq::new(2)));
    assert_eq!(files(&applied), [3], "its bytes are those of the dead letter");
    let freed = |applied: &Applied| {
        let of = |effect: &Effect| match effect {
            Effect::Trim { topic: DEAD, below, .. } => Some(below.get()),
            _ => None,
        };
        applied.effects.iter().filter_map(of).collect::<Vec<_>>()
    };
    assert_eq!(freed(&applied), [1], "the dead letter is pinned");
    assert_eq!((bench.books_by(PATH).depth, bench.by_retention()), (1, 1));
    bench.restore();
    let again = bench.lease(9)[0];
    assert_eq!((again.seq, again.cause, again.source), (origin, Cause::Redriven, Some(Seq::new(1))));
    let nack = SettleKind::Nack { delay_ms: 1, error: "later".to_owned() };
    bench.settle(1, again.delivery_id, nack);
    bench.time_ms += 1;
    let again = bench.lease(9)[0];
    assert_eq!((again.seq, again.cause), (origin, Cause::Nacked), "it is tried again as ever");
    let item = SettleItem {
        partition: Partition::ZERO,
        first_seq: origin,
        first_delivery: again.delivery_id,
        count: 1,
        kind: SettleKind::Ack,
    };
    let applied = bench.run(&[Command::Settle(Settle { path: PATH, items: vec![item] })]);
    assert_eq!(freed(&applied), [2], "and then nobody needs the dead letter");
    assert_eq!((bench.books_by(PATH).delivered, bench.books_by(PATH).depth), (1, 0));
}

#[test]
fn p4_a_group_that_is_deleted_gives_the_files_free_that_its_leases_held_back() {
    // Goal: also where the steps of the deletion were spent before. Method: two partitions, with 1,024 leases in each.
    let mut bench = Bench::with(&[(Setting::Partitions, 2)]);
    bench.store(2048, b"a", Times::default());
    (0..2).for_each(|_| _ = bench.lease(5000));
    bench.stand_still(WEEK_MS);
    let partitions = [Partition::ZERO, Partition::new(1)];
    let state = |bench: &Bench, partition| bench.shard.state().needed_from(TOPIC, partition).expect("it exists");
    for partition in partitions {
        let trim = Command::Trim(Trim { topic: TOPIC, partition, below: Seq::MAX });
        (0..4).for_each(|_| _ = bench.run(std::slice::from_ref(&trim)));
        assert_eq!(state(&bench, partition), Seq::FIRST);
    }
    let applied = bench.run(&[Command::DeleteGroup { path: PATH }]);
    for number in partitions {
        let is_its = |effect: &&Effect| matches!(effect, Effect::Trim { partition, .. } if *partition == number);
        let freed = Effect::Trim { topic: TOPIC, partition: number, below: Seq::new(1025) };
        assert_eq!(applied.effects.iter().rfind(is_its), Some(&freed), "partition {number}");
    }
}

#[test]
fn a_trim_of_what_does_not_exist_is_refused() {
    let mut bench = Bench::with(&[]);
    let of = |topic: u64, partition: u16| {
        let (topic, partition) = (TopicIncarnation::new(topic), Partition::new(partition));
        Command::Trim(Trim { topic, partition, below: Seq::MAX })
    };
    let outcomes = bench.run(&[of(9, 0), of(1, 1), of(1, u16::MAX), of(1, 0)]).outcomes;
    assert!(outcomes[..3].iter().all(|outcome| matches!(outcome, Outcome::Refused(_))), "{outcomes:?}");
    assert_eq!(outcomes[3], Outcome::Done);
}
