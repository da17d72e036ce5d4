//! Settings that change while a topic and its groups are at work: what they do from then on, what they leave as it is, and
//! what they cost in one batch.

use super::{Bench, MEMBER, PATH, TOPIC, join, run_to};
use crate::command::{
    BatchBuilder, ChangeGroup, ChangeTopic, Command, CreateTopic, EndMember, STEPS_MAX, SettleKind, StartPolicy,
};
use crate::defaults::{DefaultKey, Defaults, DefaultsPatch};
use crate::effect::{AppendEffect, Effect};
use crate::outcome::{Outcome, Refusal, SettleCode};
use crate::settings::{Setting, SettingsPatch};
use crate::state::PATH_PARTITIONS_MAX;
use mortarmq_types::{Cause, ClusterTime, KeyHash, PathId, Seq, TopicIncarnation};

const DEAD_LETTERS: TopicIncarnation = TopicIncarnation::new(2);

fn change_topic(topic: TopicIncarnation, values: &[(Setting, u64)]) -> Command {
    Command::ChangeTopic(ChangeTopic { topic, settings: SettingsPatch { values: values.to_vec() } })
}

fn change_group(values: &[(Setting, u64)]) -> Command {
    Command::ChangeGroup(ChangeGroup { path: PATH, settings: SettingsPatch { values: values.to_vec() } })
}

const DONE: Outcome = Outcome::Changed;

impl Bench {
    fn change(&mut self, command: Command) -> Outcome {
        self.run(&[command]).outcomes.remove(0)
    }

    /// Publishes numbers of producer 9 with a key of its own each; where they went.
    fn publish_keyed(&mut self, numbers: std::ops::Range<u64>) -> Vec<AppendEffect> {
        let mut builder = BatchBuilder::default();
        for number in numbers {
            let key = number.to_string();
            builder.add_run(&run_to(TOPIC, number..number + 1, key.as_bytes(), b"x").take().expect("one"));
        }
        let applied = self.apply(&mut builder, 0);
        let of = |effect| if let Effect::Append(append) = effect { Some(append) } else { None };
        applied.effects.into_iter().filter_map(of).collect()
    }

    fn deliver_places(&mut self, window: u32) -> Vec<(u16, u64)> {
        let told = self.deliver(MEMBER, window);
        let place = |deliver: &crate::effect::DeliverEffect| {
            let partition = deliver.partition.get();
            deliver.leases.iter().map(move |lease| (partition, lease.seq.get())).collect::<Vec<_>>()
        };
        let mut places: Vec<_> = told.iter().flat_map(place).collect();
        places.sort_unstable();
        places
    }
}

#[test]
fn p4_p8_a_topic_that_grows_goes_on_and_every_group_owes_the_new_partitions_from_their_first_message() {
    let mut bench = Bench::ready();
    // A group from the end, and dead letters: both owe all of what is new.
    bench.publish(1..3, b"", b"x");
    let mut late = join("late", MEMBER);
    if let Command::JoinGroup(join) = &mut late {
        join.start = StartPolicy::Latest;
    }
    bench.run(&[late]);
    let lease = bench.deliver(MEMBER, 1).remove(0).leases[0];
    bench.settle(lease.seq.get(), lease.delivery_id, SettleKind::DeadLetter { error: String::new() });
    assert_eq!(bench.change(change_topic(TOPIC, &[(Setting::Partitions, 4)])), DONE);
    let state = bench.shard.state();
    let count = |id| (state.topics[&id].partitions.len(), state.topics[&id].settings.get(Setting::Partitions));
    assert_eq!((count(TOPIC), count(DEAD_LETTERS)), ((4, 4), (4, 4)), "the dead letters grow with it");
    for path in state.paths.values() {
        assert!((1..4).all(|number| path.partitions[number].start() == Seq::FIRST), "{}", path.group);
    }
    // By key: where the hash says under the new count. The producer's line of numbers goes on.
    let stored = bench.publish_keyed(3..40);
    assert_eq!(stored.len(), 37);
    for append in &stored {
        let place = (append.key_hash.get() & 0xFFFF_FFFF) % 4;
        assert_eq!(u64::from(append.partition.get()), place);
    }
    // In turn: each of the four.
    let turn: Vec<_> = bench.publish(40..44, b"", b"x");
    let mut partitions: Vec<u16> = turn
        .iter()
        .map(|outcome| match outcome {
            Outcome::Published(published) => published.partition.get(),
            other => panic!("{other:?}"),
        })
        .collect();
    partitions.sort_unstable();
    assert_eq!(partitions, [0, 1, 2, 3]);
    // A retry of before is found where it went, whatever the count is now.
    assert_eq!(bench.publish(2..3, b"", b"x"), [super::stored(2, true)]);
    let got = bench.deliver_places(100);
    assert_eq!(got.len(), 37 + 4 + 1, "all of the new ones, and 2, which waited");
    let mut fewer = bench.change(change_topic(TOPIC, &[(Setting::Partitions, 3), (Setting::TtlMs, 9)]));
    assert_eq!(fewer, Outcome::Refused(Refusal::FewerPartitions { have: 4, asked: 3 }));
    fewer = bench.change(change_topic(DEAD_LETTERS, &[(Setting::Partitions, 5)]));
    assert_eq!(fewer, Outcome::Refused(Refusal::DeadLetterPartitions));
    let ttl = bench.shard.state().topics[&TOPIC].settings.get(Setting::TtlMs);
    assert_eq!(ttl, 0, "what is refused changes nothing");
}

#[test]
fn p4_p9_a_topic_grows_without_a_step_for_any_group_and_every_group_owes_what_is_new() {
    // Goal: growing costs the same with any number of groups, and loses nothing. Method: 2,000 groups; their partitions are
    // counted, and then one of them, one that came later, and one that is deleted are looked at.
    let mut bench = Bench::ready();
    for group in 1..2000 {
        bench.run(&[join(&format!("g{group}"), MEMBER)]);
    }
    let made =
        |bench: &Bench| bench.shard.state().paths.values().map(|path| path.partitions.made_count()).sum::<usize>();
    assert_eq!(made(&bench), 2000);
    assert_eq!(bench.change(change_topic(TOPIC, &[(Setting::Partitions, 65)])), DONE);
    assert_eq!((bench.shard.state().topics[&TOPIC].partitions.len(), made(&bench)), (65, 2000));
    assert_eq!(bench.shard.state().path_partitions_total, 65 * 2000, "they count for the catalog's limit all the same");
    let refused = bench.change(change_topic(TOPIC, &[(Setting::Partitions, 1024)]));
    assert!(matches!(refused, Outcome::Refused(Refusal::CatalogQuota { .. })), "{refused:?}");
    bench.run(&[join("later", MEMBER)]);
    let stored = bench.publish_keyed(1..200);
    let of_later = made(&bench);
    assert_eq!(of_later, 2000 + 65, "publishing visits no path");
    let state = bench.shard.state();
    assert!(state.paths.values().all(|path| state.books(path).depth == 199), "P9: everybody owes everything");
    let got = bench.deliver_places(500);
    let mut expected: Vec<_> = stored.iter().map(|append| (append.partition.get(), append.seq.get())).collect();
    expected.sort_unstable();
    assert_eq!(got, expected, "P4");
    let touched = got.iter().map(|(partition, _)| *partition).filter(|partition| *partition > 0);
    assert_eq!(made(&bench), of_later + touched.collect::<std::collections::BTreeSet<_>>().len());
    // What was never touched is purged, sought, trimmed and deleted like everything else.
    let purged = bench.run(&[Command::PurgePath { path: PathId::new(2) }]).outcomes;
    assert_eq!(purged, [Outcome::Moved { replayed: 0, dropped: 199, is_partial: false }]);
    let ended = bench.run(&[Command::DeleteGroup { path: PathId::new(3) }]);
    assert_eq!(ended.outcomes, [Outcome::Moved { replayed: 0, dropped: 199, is_partial: false }]);
    let told = ended.effects.iter().filter(|effect| {
        matches!(effect, Effect::Ledger(ledger)
        if ledger.event.kind == crate::ledger::LedgerKind::Dropped(mortarmq_types::DropReason::GroupDeleted))
    });
    assert!(told.count() >= 50, "the ledger of each partition is told");
    let mut image = bytes::BytesMut::new();
    bench.shard.image().encode(&mut image);
    let restored = crate::Shard::from_image(image.freeze()).expect("it was just encoded");
    assert_eq!(restored.state(), bench.shard.state());
    restored.check();
}

#[test]
fn rule_9_a_topic_that_grows_with_its_dead_letters_stays_within_what_a_start_accepts() {
    // Goal: what is accepted can be restored. Method: a topic with one group whose dead letters have 256: 257 together.
    let mut bench = Bench::ready();
    bench.publish(1..2, b"", b"x");
    let lease = bench.deliver(MEMBER, 1).remove(0).leases[0];
    bench.settle(lease.seq.get(), lease.delivery_id, SettleKind::DeadLetter { error: String::new() });
    for group in 0..256 {
        let mut reader = join(&format!("g{group}"), MEMBER);
        if let Command::JoinGroup(join) = &mut reader {
            join.topic = DEAD_LETTERS;
        }
        bench.run(&[reader]);
    }
    assert_eq!(bench.shard.state().path_partitions_total, 257);
    let refused = Outcome::Refused(Refusal::CatalogQuota { what: "partitions of groups", limit: PATH_PARTITIONS_MAX });
    for partitions in [1024, 1021] {
        assert_eq!(bench.change(change_topic(TOPIC, &[(Setting::Partitions, partitions)])), refused);
    }
    assert_eq!(bench.shard.state().path_partitions_total, 257, "what is refused changes nothing");
    assert_eq!(bench.change(change_topic(TOPIC, &[(Setting::Partitions, 1020)])), DONE);
    assert_eq!(bench.shard.state().path_partitions_total, 257 * 1020);
    let mut image = bytes::BytesMut::new();
    bench.shard.image().encode(&mut image);
    let restored = crate::Shard::from_image(image.freeze()).expect("what was accepted is restored");
    assert_eq!(restored.state(), bench.shard.state());
}

#[test]
fn group_keys_of_a_topic_are_the_defaults_of_groups_made_later() {
    let mut bench = Bench::ready();
    assert_eq!(bench.change(change_topic(TOPIC, &[(Setting::TtlMs, 500), (Setting::LeaseMs, 2000)])), DONE);
    bench.run(&[join("later", MEMBER)]);
    let lease = |path| bench.shard.state().paths[&PathId::new(path)].settings.get(Setting::LeaseMs);
    assert_eq!((lease(1), lease(2)), (30_000, 2000));
    let fixed = bench.change(change_group(&[(Setting::LeaseMs, 1000), (Setting::Type, 0)]));
    assert_eq!(fixed, Outcome::Refused(Refusal::Fixed { key: "type" }));
    let fixed = bench.change(change_group(&[(Setting::Partitions, 9)]));
    assert_eq!(fixed, Outcome::Refused(Refusal::Fixed { key: "partitions" }));
    let gone = ChangeGroup { path: PathId::new(77), settings: SettingsPatch::default() };
    assert_eq!(bench.change(Command::ChangeGroup(gone)), Outcome::Refused(Refusal::UnknownGroup));
    let gone = change_topic(TopicIncarnation::new(77), &[]);
    assert_eq!(bench.change(gone), Outcome::Refused(Refusal::UnknownTopic));
    // A life that is set now is that of messages stored from now on.
    bench.publish(1..2, b"", b"x");
    bench.time_ms = 600;
    assert_eq!(bench.deliver_places(9), [], "it had 500 ms");
}

#[test]
fn p5_p7_leases_attempts_and_backoff_follow_the_settings_from_the_change_on() {
    let mut bench = Bench::ready();
    bench.publish(1..4, b"", b"x");
    let before = bench.deliver(MEMBER, 1)[0].leases[0];
    assert_eq!(before.deadline.get(), 30_000);
    let values = [(Setting::LeaseMs, 1000), (Setting::MaxAttempts, 1), (Setting::MaxInFlight, 2)];
    assert_eq!(bench.change(change_group(&values)), DONE);
    let after = bench.deliver(MEMBER, 9);
    let leases = &after[0].leases;
    assert_eq!((leases.len(), leases[0].deadline.get()), (1, 1000), "two at a time, and the first keeps its 30 s");
    bench.time_ms = 2000;
    bench.run(&[]);
    let state = bench.shard.state();
    let letters = state.topics.get(&DEAD_LETTERS).map(|topic| topic.partitions[0].last_seq.get());
    assert_eq!(letters, Some(1), "one attempt is the last now");
    assert_eq!(bench.settle(1, before.delivery_id, SettleKind::Extend), SettleCode::Done);
    let entry = bench.shard.state().paths[&PATH].partitions[0].lease_of(Seq::new(1)).and_then(|entry| entry.lease());
    assert_eq!(entry.map(|lease| lease.deadline.get()), Some(3000), "an extension has the new length");
    let letters = Command::ChangeGroup(ChangeGroup {
        path: PathId::new(2),
        settings: SettingsPatch { values: vec![(Setting::MaxAttempts, 3)] },
    });
    assert_eq!(bench.change(letters), Outcome::Refused(Refusal::DeadLetterAttempts));
}

#[test]
fn p8_a_change_of_order_under_load_goes_on_with_the_next_batches_and_its_keys_stay_in_order() {
    // Goal: no command of more than 1,024 steps, and P8 for all that is leased from the change on. Method: 3,000 messages of
    // one key pass while there is no order, some are out; then there is.
    let mut bench = Bench::ready();
    assert_eq!(bench.change(change_group(&[(Setting::Order, 0)])), DONE);
    bench.publish(1..3001, b"k", b"x");
    let mut held = Vec::new();
    for _ in 0..3 {
        held.extend(bench.deliver(MEMBER, 3000).remove(0).leases);
    }
    assert_eq!(held.len(), 3000, "nothing waits");
    let key = |bench: &Bench| bench.shard.state().paths[&PATH].partitions[0].lease_of(Seq::new(9)).unwrap().key_hash;
    assert_ne!(key(&bench), KeyHash::NONE);
    for lease in held.iter().filter(|lease| lease.seq.get() > 1) {
        bench.settle(lease.seq.get(), lease.delivery_id, SettleKind::Release);
    }
    assert_eq!(bench.change(change_group(&[(Setting::Order, 1)])), DONE);
    let is_moving = |bench: &Bench| bench.shard.state().paths[&PATH].partitions[0].is_moving();
    assert!(is_moving(&bench));
    assert_eq!(bench.shard.state().next_due(), Some(ClusterTime::ZERO), "the leader goes on");
    let mut batches = 0;
    while is_moving(&bench) {
        assert_eq!(bench.deliver_places(10), [], "nothing is leased meanwhile");
        batches += 1;
    }
    assert!((1..=3).contains(&batches), "{batches} batches of at most {STEPS_MAX}");
    assert_eq!(bench.deliver_places(10), [], "1 is out: its key waits");
    assert_eq!(bench.settle(1, held[0].delivery_id, SettleKind::Release), SettleCode::Done);
    let again = bench.deliver(MEMBER, 10).remove(0).leases;
    let seqs: Vec<u64> = again.iter().map(|lease| lease.seq.get()).collect();
    assert_eq!(seqs, (1..=10).collect::<Vec<_>>());
    assert!(again.iter().all(|lease| lease.cause == Cause::Released));
    // Changed twice before the first is done: the last word counts.
    assert_eq!(bench.change(change_group(&[(Setting::Order, 0)])), DONE);
    assert_eq!(bench.change(change_group(&[(Setting::Order, 1)])), DONE);
    while is_moving(&bench) {
        bench.run(&[]);
    }
    assert_eq!(bench.deliver_places(10), [], "the key is out, so what is behind it waits");
}

#[test]
fn initial_values_count_for_what_is_made_later_and_for_the_bounds_at_once() {
    let mut bench = Bench::ready();
    let values = vec![
        (DefaultKey::Setting(Setting::Partitions), 2),
        (DefaultKey::Setting(Setting::LeaseMs), 5000),
        (DefaultKey::ProducerWindow, 64),
        (DefaultKey::SegmentMaxBytes, 1 << 20),
    ];
    let applied = bench.run(&[Command::ChangeDefaults(DefaultsPatch { values })]);
    assert_eq!(applied.outcomes, [DONE]);
    assert!(applied.effects.contains(&Effect::SegmentBytes(1 << 20)), "files that are begun from now on");
    // The first leader's word comes too late.
    bench.run(&[Command::SetDefaults(Defaults::BUILD)]);
    let create = CreateTopic { name: "parcels".to_owned(), settings: SettingsPatch::default() };
    bench.run(&[Command::CreateTopic(create), join("older", MEMBER)]);
    let state = bench.shard.state();
    let topics: Vec<_> = state.topics.values().map(|topic| topic.partitions.len()).collect();
    assert_eq!(topics, [1, 2], "a topic that is there keeps what it has");
    assert_eq!(state.paths[&PathId::new(2)].settings.get(Setting::LeaseMs), 30_000, "its groups, too");
    assert_eq!(state.topics[&TopicIncarnation::new(2)].settings.get(Setting::LeaseMs), 5000);
    bench.publish(1..101, b"", b"x");
    assert_eq!(bench.publish(100..101, b"", b"x"), [super::stored(100, true)]);
    let expired = Refusal::SeqExpired { found: mortarmq_types::ProducerSeq::new(36) };
    assert_eq!(bench.publish(36..37, b"", b"x"), [Outcome::Refused(expired)], "64 are remembered");
    let image = |bench: &Bench| {
        let mut bytes = bytes::BytesMut::new();
        bench.shard.image().encode(&mut bytes);
        bytes.freeze()
    };
    let restored = crate::apply::Shard::from_image(image(&bench)).expect("its own image");
    assert_eq!(restored.state().defaults, bench.shard.state().defaults);
}

#[test]
fn p4_a_group_that_nobody_uses_expires_after_its_time_is_counted_and_never_while_a_member_is_joined() {
    let mut bench = Bench::ready();
    bench.publish(1..4, b"", b"x");
    let lease = bench.deliver(MEMBER, 1).remove(0).leases[0];
    bench.settle(lease.seq.get(), lease.delivery_id, SettleKind::Ack);
    assert_eq!(bench.change(change_group(&[(Setting::ExpireIdleMs, 5000)])), DONE);
    let expired = |applied: &crate::apply::Applied| {
        let of = |effect: &Effect| match effect {
            Effect::GroupExpired { topic: TOPIC, group, dropped } => Some((group.clone(), *dropped)),
            _ => None,
        };
        applied.effects.iter().find_map(of)
    };
    bench.time_ms = 100_000;
    assert_eq!(expired(&bench.run(&[])), None, "a member is joined");
    let leave = || Command::EndMember(EndMember { path: PATH, member: MEMBER, lost: false });
    bench.run(&[leave()]);
    assert_eq!(bench.shard.state().next_due(), Some(ClusterTime::new(105_000)), "the leader comes back to it");
    bench.time_ms = 104_000;
    bench.run(&[join("billing", MEMBER)]);
    bench.time_ms = 106_000;
    assert_eq!(expired(&bench.run(&[leave()])), None, "somebody used it in time: it begins anew");
    // It survives an image, and a time that is set later counts from when it became idle.
    let mut bytes = bytes::BytesMut::new();
    bench.shard.image().encode(&mut bytes);
    bench.shard = crate::apply::Shard::from_image(bytes.freeze()).expect("its own image");
    bench.time_ms = 110_999;
    assert_eq!(expired(&bench.run(&[])), None);
    bench.time_ms = 111_000;
    let applied = bench.run(&[join("billing", MEMBER)]);
    assert_eq!(expired(&applied), Some(("billing".to_owned(), 2)), "two of three were not settled");
    assert!(applied.effects.contains(&Effect::PathDeleted(PATH)));
    let state = bench.shard.state();
    assert_eq!((state.groups_expired, state.paths.len()), (1, 1));
    assert_eq!(applied.outcomes, [Outcome::Joined { path: PathId::new(2), member: MEMBER }], "another group");
}

#[test]
fn groups_that_expire_at_once_go_one_in_a_batch_and_the_book_of_dead_letters_stays() {
    let mut bench = Bench::ready();
    bench.publish(1..3, b"", b"x");
    let expire = |values| Command::ChangeDefaults(DefaultsPatch { values });
    bench.run(&[expire(vec![(DefaultKey::Setting(Setting::ExpireIdleMs), 1000)])]);
    let lease = bench.deliver(MEMBER, 1).remove(0).leases[0];
    bench.settle(1, lease.delivery_id, SettleKind::DeadLetter { error: String::new() });
    assert_eq!(bench.change(change_topic(TOPIC, &[(Setting::ExpireIdleMs, 1000)])), DONE);
    for group in ["a", "b", "c"] {
        bench.run(&[join(group, MEMBER)]);
    }
    for path in 3..6 {
        bench.run(&[Command::EndMember(EndMember { path: PathId::new(path), member: MEMBER, lost: true })]);
    }
    bench.time_ms = 1000;
    let mut left = Vec::new();
    for _ in 0..4 {
        bench.run(&[]);
        left.push(bench.shard.state().paths.len());
    }
    assert_eq!(left, [4, 3, 2, 2], "the own book of the dead letters, and the group that has a member");
    let letters =
        ChangeGroup { path: PathId::new(2), settings: SettingsPatch { values: vec![(Setting::ExpireIdleMs, 1000)] } };
    assert_eq!(bench.change(Command::ChangeGroup(letters)), Outcome::Refused(Refusal::DeadLetterGroup));
}
