//! Dead messages that are brought back, or dropped one by one.

use super::dead_letters::{DEAD_LETTERS, OWN_BOOK, copies, reject};
use super::{Bench, MEMBER, PATH, TOPIC, join};
use crate::apply::Shard;
use crate::command::{Command, DropDead, Letter, Redrive, SeekTarget, SettleKind};
use crate::effect::{Effect, MessagePlace};
use crate::image::ImageError;
use crate::ledger::LedgerKind;
use crate::outcome::{LetterCode, Outcome, Refusal, SettleCode};
use bytes::BytesMut;
use mortarmq_delivery::Books;
use mortarmq_types::{Attempt, Cause, DeliveryId, DropReason, KeyHash, MemberId, Partition, PathId, Seq};

/// What the envelope of dead letter `seq` says, if message `origin` died by this delivery.
fn letter(seq: u64, origin: u64, delivery: DeliveryId) -> Letter {
    Letter {
        seq: Seq::new(seq),
        path: PATH,
        origin: Seq::new(origin),
        delivery,
        key_hash: KeyHash::NONE,
        size_bytes: 10,
    }
}

impl Bench {
    fn redrive(&mut self, letters: Vec<Letter>) -> (Vec<LetterCode>, Vec<Effect>) {
        let command = Command::Redrive(Redrive { topic: DEAD_LETTERS, partition: Partition::ZERO, letters });
        self.letters(&command)
    }

    fn drop_dead(&mut self, seqs: &[u64]) -> Vec<LetterCode> {
        let seqs = seqs.iter().map(|seq| Seq::new(*seq)).collect();
        self.letters(&Command::DropDead(DropDead { topic: DEAD_LETTERS, partition: Partition::ZERO, seqs })).0
    }

    fn letters(&mut self, command: &Command) -> (Vec<LetterCode>, Vec<Effect>) {
        let applied = self.run(std::slice::from_ref(command));
        self.restart();
        match applied.outcomes.into_iter().next() {
            Some(Outcome::Letters(codes)) => (codes, applied.effects),
            other => panic!("it is answered with codes, not {other:?}"),
        }
    }

    /// Goes on from an image, which must be the same state.
    fn restart(&mut self) {
        let mut bytes = BytesMut::new();
        self.shard.image().encode(&mut bytes);
        let restored = Shard::from_image(bytes.freeze()).expect("just written");
        assert_eq!(restored.state(), self.shard.state());
        self.shard = restored;
        self.shard.check();
    }

    fn lowest_pin(&self) -> Option<u64> {
        self.topic(DEAD_LETTERS).partitions[0].lowest_pin().map(Seq::get)
    }

    /// Publishes so many messages and lets all of them die; their deliveries.
    fn kill_all(&mut self, count: u64) -> Vec<DeliveryId> {
        self.publish(1..count + 1, b"", b"poison");
        (0..count).map(|_| self.kill("broken").0).collect()
    }
}

fn told(effects: &[Effect]) -> Vec<(PathId, LedgerKind, u64, u64, &str)> {
    let mut told = Vec::new();
    for effect in effects {
        let Effect::Ledger(ledger) = effect else { continue };
        let event = &ledger.event;
        let (seq, previous) = (event.first_seq.get(), event.previous.get());
        told.push((event.path, event.kind, seq, previous, event.detail.as_str()));
    }
    told
}

#[test]
fn p9_a_redrive_settles_the_dead_letter_and_owes_its_message_again_in_one_command() {
    // Goal: both books after every command; what the ledger is told; the delivery that comes of it. Method: one of three
    // dead messages is redriven, delivered, and acked.
    let mut bench = Bench::ready();
    let deliveries = bench.kill_all(3);
    let (codes, effects) = bench.redrive(vec![letter(2, 2, deliveries[1])]);
    assert_eq!(codes, [LetterCode::Done]);
    assert_eq!(bench.books_of(PATH), Books { produced: 4, dlq: 3, depth: 1, ..Books::default() });
    assert_eq!(bench.books_of(OWN_BOOK), Books { produced: 3, dropped: 1, depth: 2, ..Books::default() });
    assert_eq!(bench.path(OWN_BOOK).partitions[0].dropped_by(DropReason::Redriven), 1);
    let left = (OWN_BOOK, LedgerKind::Dropped(DropReason::Redriven), 2, 0, "to orders/billing 0:2");
    let owed = (PATH, LedgerKind::Redriven, 2, deliveries[1].get(), "from sequence 2 of $dlq.orders");
    assert_eq!(told(&effects), [left, owed]);
    assert!(effects.contains(&Effect::PathMoved(PATH)) && effects.contains(&Effect::PathMoved(OWN_BOOK)));
    assert_eq!((bench.lowest_pin(), copies(effects)), (Some(2), Vec::new()));

    let lease = bench.deliver(MEMBER, 9)[0].leases[0];
    assert_eq!((lease.seq.get(), lease.attempt, lease.cause), (2, Attempt::FIRST, Cause::Redriven));
    assert_eq!((lease.previous, lease.source), (deliveries[1], Some(Seq::new(2))));
    assert_eq!(bench.lowest_pin(), Some(2), "it is read from there");
    bench.restart();
    assert_eq!(bench.settle(2, lease.delivery_id, SettleKind::Ack), SettleCode::Done);
    assert_eq!(bench.lowest_pin(), None);
    let expected = Books { produced: 4, delivered: 1, dlq: 3, ..Books::default() };
    assert_eq!(bench.books_of(PATH), expected);
    bench.restart();
}

#[test]
fn a_second_redrive_waits_until_the_first_is_settled() {
    let mut bench = Bench::ready();
    let died_by = bench.kill_all(1)[0];
    assert_eq!(bench.redrive(vec![letter(1, 1, died_by); 2]).0, [LetterCode::Done, LetterCode::Settled]);
    let moved = bench.run(&[Command::SeekPath { path: OWN_BOOK, target: SeekTarget::Earliest }]);
    assert!(matches!(moved.outcomes[0], Outcome::Moved { replayed: 1, .. }), "{:?}", moved.outcomes);
    assert_eq!(bench.redrive(vec![letter(1, 1, died_by)]).0, [LetterCode::Unsettled], "it waits there");
    let lease = bench.deliver(MEMBER, 1)[0].leases[0];
    assert_eq!(bench.redrive(vec![letter(1, 1, died_by)]).0, [LetterCode::Unsettled], "it is leased there");
    assert_eq!(bench.settle(1, lease.delivery_id, SettleKind::Ack), SettleCode::Done);
    assert_eq!(bench.redrive(vec![letter(1, 1, died_by)]).0, [LetterCode::Done]);
    assert_eq!(bench.books_of(PATH), Books { produced: 3, delivered: 1, dlq: 1, depth: 1, ..Books::default() });
    assert_eq!(bench.books_of(OWN_BOOK), Books { produced: 2, dropped: 2, ..Books::default() });
}

#[test]
fn p4_a_redriven_message_that_dies_again_is_copied_from_its_dead_letter_which_is_free_from_then_on() {
    let mut bench = Bench::ready();
    let died_by = bench.kill_all(1)[0];
    bench.redrive(vec![letter(1, 1, died_by)]);
    let lease = bench.deliver(MEMBER, 1)[0].leases[0];
    let (code, effects) = bench.settle_on(PATH, 1, lease.delivery_id, reject("still broken"));
    assert_eq!(code, SettleCode::Done);
    let copy = copies(effects).remove(0);
    let place = |seq| MessagePlace { topic: DEAD_LETTERS, partition: Partition::ZERO, seq: Seq::new(seq) };
    assert_eq!((copy.from, copy.to, copy.unwraps), (place(1), place(2), true));
    assert_eq!((copy.envelope.seq.get(), copy.envelope.delivery), (1, lease.delivery_id));
    assert_eq!(copy.payload_bytes, copy.envelope.payload_bytes(10), "the first envelope is not part of it");
    assert_eq!(bench.lowest_pin(), None);
    assert_eq!(bench.books_of(PATH), Books { produced: 2, dlq: 2, ..Books::default() });
    assert_eq!(bench.redrive(vec![letter(2, 1, lease.delivery_id)]).0, [LetterCode::Done]);
    assert_eq!(bench.lowest_pin(), Some(2));
    // The older dead letter of the same message is no way around.
    bench.run(&[Command::SeekPath { path: OWN_BOOK, target: SeekTarget::Earliest }]);
    assert_eq!(bench.redrive(vec![letter(1, 1, died_by)]).0, [LetterCode::Unsettled]);
}

#[test]
fn each_letter_that_cannot_be_redriven_is_refused_by_name_and_the_others_go() {
    let mut bench = Bench::ready();
    let deliveries = bench.kill_all(4);
    bench.join_dead(90);
    let held = bench.deliver_dead(MemberId::new(90))[0].leases.clone();
    assert_eq!(held.len(), 4);
    for lease in &held[1..] {
        bench.settle_on(OWN_BOOK, lease.seq.get(), lease.delivery_id, SettleKind::Release);
    }
    let gone = Letter { path: PathId::new(77), ..letter(2, 2, deliveries[1]) };
    let own = Letter { path: OWN_BOOK, ..letter(2, 2, deliveries[1]) };
    let future = letter(2, 2, DeliveryId::MAX);
    let letters = vec![
        letter(1, 1, deliveries[0]),
        letter(9, 1, deliveries[0]),
        letter(0, 1, deliveries[0]),
        gone,
        own,
        future,
        letter(2, 9, deliveries[1]),
        letter(2, 2, DeliveryId::ZERO),
        letter(2, 2, deliveries[1]),
        letter(3, 2, deliveries[1]),
        letter(3, 3, deliveries[2]),
    ];
    use LetterCode::{Done, GroupGone, Leased, Settled, Unknown, Unreadable, Unsettled};
    let expected =
        [Leased, Unknown, Unknown, GroupGone, GroupGone, Unreadable, Unreadable, Unreadable, Done, Unsettled, Done];
    let asked: Vec<_> = letters[..9]
        .iter()
        .map(|letter| bench.shard.state().redrive_code(DEAD_LETTERS, Partition::ZERO, letter).expect("it is there"))
        .collect();
    assert_eq!(asked, expected[..9], "a dry run says the same");
    assert_eq!(bench.redrive(letters).0, expected);
    assert_eq!(bench.drop_dead(&[1, 2, 4, 4, 5]), [Leased, Settled, Done, Settled, Unknown]);
    assert_eq!(bench.books_of(OWN_BOOK), Books { produced: 4, dropped: 3, depth: 1, ..Books::default() });
    let elsewhere = Command::Redrive(Redrive { topic: TOPIC, partition: Partition::ZERO, letters: Vec::new() });
    assert_eq!(bench.run(&[elsewhere]).outcomes, [Outcome::Refused(Refusal::UnknownTopic)], "nothing there is dead");
    let drop = Command::DropDead(DropDead { topic: TOPIC, partition: Partition::ZERO, seqs: vec![Seq::FIRST] });
    assert_eq!(bench.run(&[drop]).outcomes, [Outcome::Refused(Refusal::UnknownTopic)]);
    let beyond = DropDead { topic: DEAD_LETTERS, partition: Partition::new(1), seqs: Vec::new() };
    let refused = bench.run(&[Command::DropDead(beyond)]).outcomes;
    assert!(matches!(refused[0], Outcome::Refused(Refusal::UnknownPartition { .. })), "{refused:?}");
}

#[test]
fn p4_every_end_of_a_redriven_message_frees_its_dead_letter() {
    // Goal: nothing is pinned for ever, and nothing too short. Method: purge, seek forwards, the end of its group, and of
    // its topic; a seek back frees nothing.
    let purge = Command::PurgePath { path: PATH };
    let seek = |target| Command::SeekPath { path: PATH, target };
    for end in [purge, seek(SeekTarget::Latest), Command::DeleteGroup { path: PATH }] {
        let mut bench = Bench::ready();
        let deliveries = bench.kill_all(3);
        let letters = (0..3).map(|at| letter(at + 1, at + 1, deliveries[usize::try_from(at).expect("small")]));
        assert_eq!(bench.redrive(letters.collect()).0, [LetterCode::Done; 3]);
        bench.run(&[seek(SeekTarget::Earliest)]);
        assert_eq!(bench.lowest_pin(), Some(1), "a replay leaves it as it is");
        bench.run(&[end]);
        bench.restart();
        assert_eq!(bench.lowest_pin(), None);
    }
    let mut bench = Bench::ready();
    let died_by = bench.kill_all(1)[0];
    bench.redrive(vec![letter(1, 1, died_by)]);
    bench.run(&[Command::DeleteTopic { name: "orders".to_owned() }]);
    bench.restart();
    assert!(bench.shard.state().topics.is_empty());
}

#[test]
fn p4_a_group_of_the_same_name_is_not_the_one_that_it_died_on() {
    let mut bench = Bench::ready();
    let died_by = bench.kill_all(1)[0];
    bench.run(&[Command::DeleteGroup { path: PATH }]);
    bench.run(&[join("billing", MEMBER)]);
    assert_eq!(bench.redrive(vec![letter(1, 1, died_by)]).0, [LetterCode::GroupGone]);
    assert_eq!(bench.books_of(OWN_BOOK).depth, 1);
}

#[test]
fn p11_an_image_whose_sources_cannot_be_is_refused() {
    let damaged = |damage: fn(&mut crate::state::State)| {
        let mut bench = Bench::ready();
        let deliveries = bench.kill_all(2);
        bench.redrive(vec![letter(1, 1, deliveries[0]), letter(2, 2, deliveries[1])]);
        let mut state = bench.shard.state().clone();
        damage(&mut state);
        let mut bytes = BytesMut::new();
        Shard::of(state).image().encode(&mut bytes);
        Shard::from_image(bytes.freeze()).err()
    };
    assert_eq!(damaged(|_| ()), None);
    let cut = |state: &mut crate::state::State| {
        let topic = crate::state::topic_of(&mut state.topics, DEAD_LETTERS).expect("there");
        let partition = topic.partition_mut(0).expect("there");
        partition.last_seq = Seq::FIRST;
        partition.facts = crate::facts::FactWindow::new(1);
        partition.facts.push(Seq::FIRST, partition_fact(), false);
        *state.paths.get_mut(&OWN_BOOK).expect("there").partitions.make(0) =
            mortarmq_delivery::PathPartition::new(Seq::FIRST);
    };
    assert_eq!(damaged(cut), Some(ImageError::Source { path: PATH, letter: Seq::new(2) }));
}

const fn partition_fact() -> mortarmq_delivery::Fact {
    mortarmq_delivery::Fact { key_hash: KeyHash::NONE, size_bytes: 0, expires_at_ms: 0 }
}
