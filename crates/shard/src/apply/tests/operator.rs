//! An operator's acts: purge, seek, delete. What they cost in one batch, what they count, and what the ledger is told.

use super::{Bench, MEMBER, PATH, TOPIC, delivered, join};
use crate::apply::Shard;
use crate::command::{Command, Deliver, EndMember, Grant, STEPS_MAX, SeekTarget, SettleKind, Stretch};
use crate::effect::Effect;
use crate::ledger::LedgerKind;
use crate::outcome::{Outcome, Refusal, SettleCode};
use bytes::BytesMut;
use mortarmq_delivery::{Books, Fact, Leased, PathPartition};
use mortarmq_types::{Cause, DeliveryId, DropReason, KeyHash, MemberId, Partition, PathId, Seq};

const PURGE: Command = Command::PurgePath { path: PATH };
const DELETE: Command = Command::DeleteGroup { path: PATH };

fn seek(target: SeekTarget) -> Command {
    Command::SeekPath { path: PATH, target }
}

fn at(seq: u64) -> SeekTarget {
    SeekTarget::At(vec![(Partition::ZERO, Seq::new(seq))])
}

const fn moved(replayed: u64, dropped: u64) -> Outcome {
    Outcome::Moved { replayed, dropped, is_partial: false }
}

/// What the ledger is told: kind, first message, count.
fn told(effects: &[Effect]) -> Vec<(LedgerKind, u64, u32)> {
    let of = |effect: &Effect| match effect {
        Effect::Ledger(ledger) => Some((ledger.event.kind, ledger.event.first_seq.get(), ledger.event.count)),
        _ => None,
    };
    effects.iter().filter_map(of).collect()
}

impl Bench {
    fn partition(&self) -> &PathPartition {
        &self.shard.state().paths[&PATH].partitions[0]
    }

    fn books(&self) -> Books {
        let state = self.shard.state();
        state.books(&state.paths[&PATH])
    }

    /// Publishes 100,000 messages and leases three times 1,024 of them to a member.
    fn with_a_backlog() -> Self {
        let mut bench = Self::ready();
        bench.publish(1..10_001, b"", b"x");
        for _ in 0..3 {
            assert_eq!(bench.deliver(MEMBER, 5000)[0].leases.len(), STEPS_MAX as usize);
        }
        for first in (10_001..100_000).step_by(10_000) {
            bench.publish(first..first + 10_000, b"", b"x");
        }
        bench
    }

    /// Delivers with facts from `first` on, as a leader does for a path that lags.
    fn deliver_from(&mut self, first: u64) -> Vec<Leased> {
        let fact = Fact { key_hash: KeyHash::NONE, size_bytes: 10, expires_at_ms: 0 };
        let stretch = Some(Stretch { partition: Partition::ZERO, first: Seq::new(first), facts: vec![fact; 100] });
        let grant = Grant::Push { window_messages: 9000, window_bytes: 1 << 20 };
        let deliver = Deliver { path: PATH, member: MEMBER, grant, max_messages: 50, stretch };
        let delivered = delivered(self.run(&[Command::Deliver(deliver)]));
        delivered.into_iter().flat_map(|deliver| deliver.leases).collect()
    }

    /// Applies empty batches until no move goes on, and says how many. Each may take only so many messages off the path;
    /// the state goes through its bytes after each.
    fn finish(&mut self) -> u32 {
        let mut batches = 0;
        while self.partition().is_moving() {
            assert_eq!(self.shard.state().next_due().map(|due| due <= self.shard.state().time), Some(true));
            let before = self.partition().passed_over();
            self.run(&[]);
            let steps = before - self.partition().passed_over();
            assert!(steps > 0 && steps <= u64::from(STEPS_MAX), "{steps} messages in one batch");
            let mut bytes = BytesMut::new();
            self.shard.image().encode(&mut bytes);
            self.shard = Shard::from_image(bytes.freeze()).expect("just written");
            batches += 1;
        }
        batches
    }
}

#[test]
fn p4_p9_a_purge_of_a_large_backlog_takes_no_more_steps_in_a_batch_than_any_command() {
    let mut bench = Bench::with_a_backlog();
    let before = bench.partition().passed_over();
    let applied = bench.run(&[PURGE]);
    assert_eq!(applied.outcomes, [moved(0, 100_000)], "the count is known at once");
    assert!(before - bench.partition().passed_over() < u64::from(STEPS_MAX), "the partition was a step too");
    let rest = (LedgerKind::Dropped(DropReason::Purge), 3073, 96_928);
    assert!(told(&applied.effects).contains(&rest), "what was never offered is one range");
    // A settle that comes while the rest is taken away changes nothing, nor does another move begin.
    assert_eq!(bench.settle(3072, DeliveryId::new(3072), SettleKind::Ack), SettleCode::Unknown);
    let others = [seek(SeekTarget::Earliest), seek(SeekTarget::Latest)];
    let refused = || Outcome::Refused(Refusal::MoveUnderWay);
    assert_eq!(bench.run(&others).outcomes, [refused(), refused()]);
    assert!(bench.finish() > 0, "a few are left for a batch of their own");
    let books = bench.books();
    assert_eq!((books.produced, books.delivered, books.dropped, books.depth), (100_000, 0, 100_000, 0));
    let member = bench.shard.state().paths[&PATH].members[&MEMBER];
    assert_eq!((member.held_messages, member.held_bytes), (0, 0), "its credit is back");
    bench.publish(100_001..100_002, b"", b"x");
    assert_eq!(bench.deliver(MEMBER, 5000)[0].leases[0].seq, Seq::new(100_001), "what comes after it is owed as ever");
}

#[test]
fn p9_a_seek_forwards_leaves_what_is_leased_and_drops_the_rest() {
    let mut bench = Bench::with_a_backlog();
    for seq in 1..=1500 {
        bench.settle(seq, DeliveryId::new(seq), SettleKind::Release);
    }
    assert_eq!(bench.run(&[seek(SeekTarget::Latest)]).outcomes, [moved(0, 100_000 - 1572)]);
    assert_eq!(bench.partition().dropped_by(DropReason::Seek), 100_000 - 3072 + 1023);
    bench.run(&[]);
    bench.run(&[]);
    bench.run(&[]);
    assert!(!bench.partition().is_moving(), "1,500 are dropped, and as many leases looked at");
    assert_eq!(bench.books().depth, 1572);
    assert_eq!(bench.settle(1501, DeliveryId::new(1501), SettleKind::Ack), SettleCode::Done);
    bench.run(&[Command::EndMember(EndMember { path: PATH, member: MEMBER, lost: false })]);
    let other = MemberId::new(71);
    bench.run(&[join("billing", other)]);
    assert_eq!(bench.deliver(other, 9)[0].leases[0].seq, Seq::new(1502));
}

#[test]
fn p7_a_seek_backwards_brings_messages_back_and_the_ledger_says_so() {
    let mut bench = Bench::ready();
    bench.publish(1..6, b"", b"x");
    let leases = bench.deliver(MEMBER, 5)[0].leases.clone();
    for lease in [leases[0], leases[1], leases[3]] {
        bench.settle(lease.seq.get(), lease.delivery_id, SettleKind::Ack);
    }
    let applied = bench.run(&[seek(at(2))]);
    assert_eq!(applied.outcomes, [moved(2, 0)], "3 and 5 are leased, 1 lies before");
    assert_eq!(told(&applied.effects), [(LedgerKind::Replayed, 4, 1), (LedgerKind::Replayed, 2, 1)]);
    let again = bench.deliver_from(2);
    let told: Vec<_> =
        again.iter().map(|one| (one.seq.get(), one.cause, one.attempt.get(), one.previous.get())).collect();
    assert_eq!(told, [(2, Cause::Replayed, 1, 0), (4, Cause::Replayed, 1, 0)]);
    let books = bench.books();
    assert_eq!((books.produced, books.delivered, books.depth), (7, 3, 4));
    assert_eq!(bench.settle(2, leases[1].delivery_id, SettleKind::Ack), SettleCode::Done, "a repeated ack is still OK");
    assert_eq!(bench.partition().in_flight(), 4, "and settles nothing");
}

#[test]
fn p9_a_seek_over_many_unsettled_messages_goes_on_and_its_count_is_right_in_the_end() {
    // Goal: a target among many unsettled messages, whose number below it is not known. Method: every other one of 3,072 is
    // acked; back to the 101st.
    let mut bench = Bench::with_a_backlog();
    for seq in (1..=3072).step_by(2) {
        bench.settle(seq, DeliveryId::new(seq), SettleKind::Ack);
    }
    let outcome = bench.run(&[seek(at(101))]).outcomes.remove(0);
    assert_eq!(outcome, Outcome::Moved { replayed: 1022, dropped: 0, is_partial: true });
    assert!(bench.deliver_from(1025).is_empty(), "nothing is offered before the path stands where it is to be");
    assert!(!bench.partition().is_moving());
    assert_eq!(bench.partition().position(), Seq::new(101));
    let books = bench.books();
    assert_eq!((books.produced, books.depth), (101_486, 100_000 - 1536 + 1486));
    // Where every unsettled message lies above the target, the count is known at once.
    assert_eq!(
        bench.run(&[seek(SeekTarget::Earliest)]).outcomes,
        [Outcome::Moved { replayed: 50, dropped: 0, is_partial: false }]
    );
    assert_eq!(bench.deliver_from(1).len(), 50);
}

#[test]
fn p4_a_deleted_group_is_gone_with_its_timers_and_one_of_its_name_begins_anew() {
    let mut bench = Bench::with_a_backlog();
    let applied = bench.run(&[DELETE]);
    assert_eq!(applied.outcomes, [moved(0, 100_000)]);
    assert!(applied.effects.contains(&Effect::PathDeleted(PATH)));
    let events = told(&applied.effects);
    assert!(events.contains(&(LedgerKind::Dropped(DropReason::GroupDeleted), 3073, 96_928)));
    let steps: u64 = events.iter().map(|(_, _, count)| u64::from(*count)).sum::<u64>() - 96_928;
    assert_eq!(steps, 2 * 1023, "so many leases ended, and their messages were dropped, before the steps were spent");
    let state = bench.shard.state();
    assert!(state.paths.is_empty() && state.topics[&TOPIC].paths.is_empty());
    assert_eq!(state.next_due(), None);
    for command in [PURGE, DELETE, seek(SeekTarget::Latest)] {
        assert_eq!(bench.run(&[command]).outcomes, [Outcome::Refused(Refusal::UnknownGroup)]);
    }
    let id = PathId::new(2);
    assert_eq!(bench.run(&[join("billing", MEMBER)]).outcomes, [Outcome::Joined { path: id, member: MEMBER }]);
    assert!(bench.deliver(MEMBER, 9).is_empty(), "the number of the old path is nobody's");
    let state = bench.shard.state();
    assert_eq!(state.books(&state.paths[&id]).depth, 100_000);
}

#[test]
fn a_group_is_deleted_while_its_purge_goes_on_and_its_members_leave() {
    let mut bench = Bench::with_a_backlog();
    let leave = Command::EndMember(EndMember { path: PATH, member: MEMBER, lost: true });
    assert_eq!(bench.run(&[leave, PURGE]).outcomes[1], moved(0, 100_000));
    assert!(matches!(bench.run(&[DELETE]).outcomes[..], [Outcome::Moved { .. }]));
    bench.run(&[]);
    assert_eq!(bench.shard.state().next_due(), None);
}

#[test]
fn a_seek_to_a_partition_that_does_not_exist_moves_nothing() {
    let mut bench = Bench::ready();
    bench.publish(1..4, b"", b"x");
    let before = bench.partition().clone();
    let requested = Partition::new(1);
    let target = SeekTarget::At(vec![(Partition::ZERO, Seq::new(3)), (requested, Seq::new(1))]);
    let refusal = Refusal::UnknownPartition { requested, partitions: 1 };
    assert_eq!(bench.run(&[seek(target)]).outcomes, [Outcome::Refused(refusal)]);
    assert_eq!(bench.partition(), &before);
    let twice = SeekTarget::At(vec![(Partition::ZERO, Seq::new(2)), (Partition::ZERO, Seq::new(3))]);
    assert_eq!(bench.run(&[seek(twice)]).outcomes, [moved(0, 2)], "the last of two places counts");
    assert_eq!(bench.run(&[seek(SeekTarget::At(Vec::new()))]).outcomes, [moved(0, 0)]);
    assert_eq!(bench.run(&[seek(at(u64::MAX))]).outcomes, [moved(0, 1)]);
    assert_eq!(bench.run(&[seek(SeekTarget::Earliest)]).outcomes, [moved(3, 0)]);
}
