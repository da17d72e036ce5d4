//! Messages that die: where they go, what is told of it, and what the dead-letter topic is.

use super::{Bench, MEMBER, PATH, TOPIC, join};
use crate::command::{BatchBuilder, Command, CreateTopic, Deliver, EndMember, Grant, JoinGroup, Settle, SettleItem};
use crate::command::{SettleKind, StartPolicy};
use crate::dead_letter::DEAD_LETTER_GROUP;
use crate::effect::{CopyEffect, DeliverEffect, Effect, MessagePlace};
use crate::ledger::LedgerKind;
use crate::outcome::{Outcome, Refusal, SettleCode};
use crate::settings::{Setting, SettingsPatch};
use crate::state::{PARTITIONS_MAX, Path, Topic};
use mortarmq_delivery::{Books, Death};
use mortarmq_types::{Cause, DeliveryId, MemberId, Partition, PathId, Seq, TopicIncarnation};

pub(super) const DEAD_LETTERS: TopicIncarnation = TopicIncarnation::new(2);
pub(super) const OWN_BOOK: PathId = PathId::new(2);

fn nack(error: &str) -> SettleKind {
    SettleKind::Nack { delay_ms: 1, error: error.to_owned() }
}

pub(super) fn reject(error: &str) -> SettleKind {
    SettleKind::DeadLetter { error: error.to_owned() }
}

pub(super) fn copies(effects: Vec<Effect>) -> Vec<CopyEffect> {
    let of = |effect| if let Effect::Copy(copy) = effect { Some(*copy) } else { None };
    effects.into_iter().filter_map(of).collect()
}

impl Bench {
    /// Settles one delivery of a path; what its answer was and what it set off.
    pub(super) fn settle_on(
        &mut self,
        path: PathId,
        seq: u64,
        delivery: DeliveryId,
        kind: SettleKind,
    ) -> (SettleCode, Vec<Effect>) {
        let (partition, first_seq) = (Partition::ZERO, Seq::new(seq));
        let items = vec![SettleItem { partition, first_seq, first_delivery: delivery, count: 1, kind }];
        let applied = self.run(&[Command::Settle(Settle { path, items })]);
        match &applied.outcomes[..] {
            [Outcome::Settled(codes)] => (codes[0], applied.effects),
            other => panic!("a settle is answered with codes, not {other:?}"),
        }
    }

    /// Lets one message die that a consumer rejects; its delivery.
    pub(super) fn kill(&mut self, error: &str) -> (DeliveryId, Vec<CopyEffect>) {
        let lease = self.deliver(MEMBER, 1)[0].leases[0];
        let (code, effects) = self.settle_on(PATH, lease.seq.get(), lease.delivery_id, reject(error));
        assert_eq!(code, SettleCode::Done);
        (lease.delivery_id, copies(effects))
    }

    pub(super) fn path(&self, id: PathId) -> &Path {
        &self.shard.state().paths[&id]
    }

    pub(super) fn books_of(&self, id: PathId) -> Books {
        self.shard.state().books(self.path(id))
    }

    pub(super) fn topic(&self, id: TopicIncarnation) -> &Topic {
        &self.shard.state().topics[&id]
    }

    pub(super) fn deliver_dead(&mut self, member: MemberId) -> Vec<DeliverEffect> {
        let grant = Grant::Push { window_messages: 9, window_bytes: 1 << 20 };
        let deliver = Deliver { path: OWN_BOOK, member, grant, max_messages: 9, stretch: None };
        super::delivered(self.run(&[Command::Deliver(deliver)]))
    }

    pub(super) fn join_dead(&mut self, member: u64) {
        let join = JoinGroup {
            topic: DEAD_LETTERS,
            group: DEAD_LETTER_GROUP.to_owned(),
            settings: SettingsPatch::default(),
            start: StartPolicy::Latest,
            member: MemberId::new(member),
            secret_hash: 0,
        };
        let joined = self.run(&[Command::JoinGroup(join)]).outcomes;
        assert_eq!(joined, [Outcome::Joined { path: OWN_BOOK, member: MemberId::new(member) }]);
    }
}

#[test]
fn p4_the_command_that_settles_a_dead_message_stores_its_dead_letter() {
    // Goal: source and dead letter change together, and the copy says all that the segment writer needs. Method: five
    // attempts, the default, are nacked; the books, the effects and the ledger are looked at before and after the last.
    let mut bench = Bench::ready();
    bench.publish(1..3, b"k", b"poison");
    for attempt in 1..=5 {
        bench.time_ms += 60_000;
        let lease = bench.deliver(MEMBER, 1)[0].leases[0];
        assert_eq!((lease.seq, lease.attempt.get()), (Seq::FIRST, attempt));
        assert_eq!(bench.shard.state().topics.len(), 1, "the dead-letter topic comes with the first dead letter");
        let (code, effects) = bench.settle_on(PATH, 1, lease.delivery_id, nack("no such customer"));
        assert_eq!(code, SettleCode::Done);
        if attempt < 5 {
            assert_eq!(copies(effects), []);
            continue;
        }
        let told: Vec<_> = effects
            .iter()
            .filter_map(|effect| if let Effect::Ledger(ledger) = effect { Some(&ledger.event) } else { None })
            .map(|event| (event.kind, event.attempt.get(), event.detail.as_str()))
            .collect();
        let dead = LedgerKind::Dead(Death::Exhausted(Cause::Nacked));
        assert_eq!(told, [(dead, 5, "sequence 1 of $dlq.orders: no such customer")]);
        let copy = &copies(effects)[0];
        assert_eq!(copy.from, MessagePlace { topic: TOPIC, partition: Partition::ZERO, seq: Seq::FIRST });
        assert_eq!(copy.to, MessagePlace { topic: DEAD_LETTERS, partition: Partition::ZERO, seq: Seq::FIRST });
        assert_eq!(copy.commit_index, bench.shard.state().commit_index, "the command that settled it");
        let headers = copy.envelope.headers();
        let values: Vec<&str> = headers.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(values, ["orders/billing", "0", "1", "5", "nacked", "no such customer", "5", "1"]);
        let added: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        assert_eq!(copy.payload_bytes as usize, 10 + added, "its size is its source's and what is added");
    }
    let expected = Books { produced: 2, dlq: 1, depth: 1, ..Books::default() };
    assert_eq!(bench.books_of(PATH), expected, "P9");
    assert_eq!(bench.books_of(OWN_BOOK), Books { produced: 1, depth: 1, ..Books::default() }, "owed from the first on");
    assert_eq!(bench.deliver(MEMBER, 9)[0].leases[0].seq, Seq::new(2), "P8: its key goes on");
}

#[test]
fn p8_what_is_leased_behind_a_dead_message_is_given_back_without_its_error_text() {
    let mut bench = Bench::ready();
    bench.publish(1..3, b"k", b"poison");
    let leases = bench.deliver(MEMBER, 9)[0].leases.clone();
    let (_, effects) = bench.settle_on(PATH, 1, leases[0].delivery_id, reject("broken"));
    let told: Vec<_> = effects
        .iter()
        .filter_map(|effect| if let Effect::Ledger(ledger) = effect { Some(&ledger.event) } else { None })
        .map(|event| (event.kind, event.first_seq.get(), event.detail.as_str()))
        .collect();
    let dead = (LedgerKind::Dead(Death::Rejected), 1, "sequence 1 of $dlq.orders: broken");
    assert_eq!(told, [dead, (LedgerKind::LeaseEnded(Cause::Released), 2, "")]);
}

#[test]
fn p4_leases_that_end_by_themselves_use_attempts_up_too() {
    for (lost, cause) in [(true, Cause::ConsumerLost), (false, Cause::LeaseExpired)] {
        let mut bench = Bench::ready();
        bench.publish(1..2, b"", b"poison");
        let mut effects = Vec::new();
        for attempt in 1..=5 {
            let member = MemberId::new(100 + attempt);
            bench.run(&[join("billing", member)]);
            bench.time_ms += 60_000;
            assert_eq!(bench.deliver(member, 1)[0].leases[0].attempt.get(), u32::try_from(attempt).expect("small"));
            assert_eq!(copies(std::mem::take(&mut effects)), []);
            if lost {
                effects = bench.run(&[Command::EndMember(EndMember { path: PATH, member, lost })]).effects;
            } else {
                bench.time_ms += 30_000;
                effects = bench.run(&[]).effects;
            }
        }
        let copies = copies(effects);
        assert_eq!((copies.len(), copies[0].envelope.reason), (1, Death::Exhausted(cause)));
        assert_eq!(copies[0].envelope.error, "", "nobody said anything");
        assert_eq!(bench.books_of(PATH), Books { produced: 1, dlq: 1, ..Books::default() });
    }
}

#[test]
fn p6_a_rejected_message_is_dead_once_however_often_that_is_said() {
    let mut bench = Bench::ready();
    bench.publish(1..2, b"", b"poison");
    let (delivery, first) = bench.kill("broken");
    assert_eq!(
        (first.len(), first[0].envelope.reason.word(), first[0].envelope.error.as_str()),
        (1, "rejected", "broken")
    );
    let (code, effects) = bench.settle_on(PATH, 1, delivery, reject("broken"));
    assert_eq!((code, copies(effects)), (SettleCode::Done, Vec::new()), "a repeat is OK and stores nothing");
    for late in [SettleKind::Ack, nack("late"), SettleKind::Release, SettleKind::Extend] {
        assert_eq!(bench.settle_on(PATH, 1, delivery, late).0, SettleCode::Unknown);
    }
    assert_eq!(bench.books_of(PATH).dlq, 1);
}

#[test]
fn p4_what_dies_in_a_dead_letter_topic_stays_there() {
    let mut bench = Bench::ready();
    bench.publish(1..2, b"", b"poison");
    bench.kill("");
    bench.join_dead(90);
    for _ in 0..12 {
        bench.time_ms += 60_000;
        let lease = bench.deliver_dead(MemberId::new(90))[0].leases[0];
        let (code, effects) = bench.settle_on(OWN_BOOK, 1, lease.delivery_id, reject("still broken"));
        assert_eq!((code, copies(effects)), (SettleCode::Done, Vec::new()));
    }
    let limited = JoinGroup {
        topic: DEAD_LETTERS,
        group: "other".to_owned(),
        settings: SettingsPatch { values: vec![(Setting::MaxAttempts, 3)] },
        start: StartPolicy::Earliest,
        member: MemberId::new(91),
        secret_hash: 0,
    };
    let refused = bench.run(&[Command::JoinGroup(limited)]).outcomes;
    assert_eq!(refused, [Outcome::Refused(Refusal::DeadLetterAttempts)]);
    assert_eq!(bench.shard.state().topics.len(), 2);
}

#[test]
fn a_dead_letter_topic_is_the_brokers_and_goes_with_its_source() {
    let mut bench = Bench::ready();
    bench.publish(1..2, b"", b"poison");
    bench.kill("");
    assert_eq!(bench.topic(DEAD_LETTERS).name, "$dlq.orders");
    assert_eq!(bench.topic(DEAD_LETTERS).partitions.len(), 1);
    let mut builder = BatchBuilder::default();
    builder.add_run(&super::run_to(DEAD_LETTERS, 7..8, b"", b"mine").take().expect("one"));
    assert_eq!(bench.apply(&mut builder, 0).outcomes, [Outcome::Refused(Refusal::DeadLetterTopic)]);
    let delete = |name: &str| Command::DeleteTopic { name: name.to_owned() };
    let refused = bench.run(&[delete("$dlq.orders")]).outcomes;
    assert_eq!(refused, [Outcome::Refused(Refusal::DeadLetterTopic)]);
    let create = CreateTopic { name: "$dlq.other".to_owned(), settings: SettingsPatch::default() };
    let refused = bench.run(&[Command::CreateTopic(create)]).outcomes;
    assert!(matches!(&refused[..], [Outcome::Refused(Refusal::Name(_))]), "{refused:?}");
    let deleted = bench.run(&[delete("orders")]);
    for topic in [TOPIC, DEAD_LETTERS] {
        assert!(deleted.effects.contains(&Effect::TopicDeleted(topic)), "its files go too");
    }
    let state = bench.shard.state();
    assert_eq!((state.topics.len(), state.names.len(), state.paths.len()), (0, 0, 0));
    assert_eq!(state.partitions_total, 0);
}

#[test]
fn p4_no_limit_of_the_catalog_loses_a_dead_message() {
    // Goal: a message can die although the shard has as many partitions as it may. Method: fill it up, then kill one.
    let mut bench = Bench::ready();
    let settings = |partitions| SettingsPatch { values: vec![(Setting::Partitions, partitions)] };
    let create = |number: u64, partitions| {
        Command::CreateTopic(CreateTopic { name: format!("filler-{number}"), settings: settings(partitions) })
    };
    let mut left = PARTITIONS_MAX as u64 - 1;
    let mut number = 0;
    while left > 0 {
        let made = bench.run(&[create(number, left.min(1024))]).outcomes;
        assert!(matches!(made[0], Outcome::TopicDeclared { existed: false, .. }), "{made:?}");
        left -= left.min(1024);
        number += 1;
    }
    let full = bench.run(&[create(number, 1)]).outcomes;
    assert!(matches!(full[0], Outcome::Refused(Refusal::CatalogQuota { .. })), "{full:?}");
    bench.publish(1..2, b"", b"poison");
    assert_eq!(bench.kill("").1.len(), 1);
    let delete = Command::DeleteTopic { name: "orders".to_owned() };
    bench.run(&[delete]);
    assert_eq!(bench.shard.state().partitions_total, PARTITIONS_MAX - 1);
    let made = bench.run(&[create(number, 1)]).outcomes;
    assert!(matches!(made[0], Outcome::TopicDeclared { .. }), "its own place is free again: {made:?}");
}

#[test]
fn the_book_of_dead_letters_can_be_purged_and_not_deleted() {
    let mut bench = Bench::ready();
    bench.publish(1..2, b"", b"");
    bench.kill("no such customer");
    let refused = bench.run(&[Command::DeleteGroup { path: OWN_BOOK }]).outcomes;
    assert_eq!(refused, [Outcome::Refused(Refusal::DeadLetterGroup)]);
    let purged = bench.run(&[Command::PurgePath { path: OWN_BOOK }]).outcomes;
    assert!(matches!(purged[..], [Outcome::Moved { dropped: 1, .. }]), "{purged:?}");
    bench.shard.check();
}
