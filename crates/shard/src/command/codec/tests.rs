//! Commands survive their bytes, and no bytes make decoding panic.

use crate::command::{
    Asked, Batch, BatchBuilder, ChangeGroup, ChangeTopic, Command, CreateTopic, Deliver, DropDead, EndMember, Grant,
    JoinGroup, Letter, PublishRunBuilder, Redrive, ResumeMember, SeekTarget, Settle, SettleItem, SettleKind, Stamp,
    StartPolicy, Stretch, Times, Trim,
};
use crate::defaults::{DefaultKey, DefaultsPatch};
use crate::idempotency::IdempotencyKey;
use crate::record::NewRecord;
use crate::settings::{Defaults, Setting, SettingsPatch};
use bytes::Bytes;
use mortarmq_delivery::Fact;
use mortarmq_types::{
    ClusterTime, DeliveryId, KeyHash, MemberId, Partition, PathId, ProducerId, ProducerSeq, Seq, TopicIncarnation,
    WallTime,
};
use proptest::prelude::{any, prop, proptest};

fn patch(values: &[(Setting, u64)]) -> SettingsPatch {
    SettingsPatch { values: values.to_vec() }
}

/// One of each but publishes.
fn samples() -> Vec<Command> {
    [others(), letters()].concat()
}

fn others() -> Vec<Command> {
    let item = |kind| SettleItem {
        partition: Partition::new(3),
        first_seq: Seq::new(9),
        first_delivery: DeliveryId::new(11),
        count: 5,
        kind,
    };
    let nack = SettleKind::Nack { delay_ms: 250, error: "no such customer".to_owned() };
    let fact = Fact { key_hash: KeyHash::new(5), size_bytes: 7, expires_at_ms: 0 };
    let stretch = Stretch { partition: Partition::new(1), first: Seq::new(41), facts: vec![fact; 3] };
    vec![
        Command::SetDefaults(Defaults::BUILD),
        Command::CreateTopic(CreateTopic {
            name: "orders".to_owned(),
            settings: patch(&[(Setting::Partitions, 7), (Setting::Order, 0)]),
        }),
        Command::DeleteTopic { name: "orders".to_owned() },
        Command::JoinGroup(JoinGroup {
            topic: TopicIncarnation::new(1),
            group: "billing".to_owned(),
            settings: patch(&[(Setting::LeaseMs, 1000)]),
            start: StartPolicy::At(vec![(Partition::new(0), Seq::new(4))]),
            member: MemberId::new(77),
            secret_hash: 78,
        }),
        Command::EndMember(EndMember { path: PathId::new(2), member: MemberId::new(77), lost: true }),
        Command::Deliver(Deliver {
            path: PathId::new(2),
            member: MemberId::new(77),
            grant: Grant::Push { window_messages: 256, window_bytes: 1 << 21 },
            max_messages: 16,
            stretch: Some(stretch),
        }),
        Command::Deliver(Deliver {
            path: PathId::new(2),
            member: MemberId::new(77),
            grant: Grant::Pull { node_incarnation: 1, pull_id: 2, max_bytes: 3 },
            max_messages: 1,
            stretch: None,
        }),
        Command::Settle(Settle {
            path: PathId::new(2),
            items: vec![
                item(SettleKind::Ack),
                item(nack),
                item(SettleKind::Release),
                item(SettleKind::Extend),
                item(SettleKind::Hold { error: "segment damaged".to_owned() }),
                item(SettleKind::Resume),
                item(SettleKind::DeadLetter { error: "never again".to_owned() }),
            ],
        }),
        Command::PurgePath { path: PathId::new(2) },
        Command::SeekPath { path: PathId::new(2), target: SeekTarget::Latest },
        Command::SeekPath { path: PathId::new(2), target: SeekTarget::At(vec![(Partition::new(3), Seq::new(41))]) },
        Command::DeleteGroup { path: PathId::new(2) },
        Command::ResumeMember(ResumeMember {
            topic: TopicIncarnation::new(1),
            group: "billing".to_owned(),
            member: MemberId::new(77),
            secret_hash: 78,
        }),
        Command::Trim(Trim { topic: TopicIncarnation::new(1), partition: Partition::new(3), below: Seq::new(41) }),
    ]
}

/// The commands on single dead letters.
fn letters() -> Vec<Command> {
    vec![
        Command::Redrive(Redrive {
            topic: TopicIncarnation::new(2),
            partition: Partition::new(3),
            letters: vec![Letter {
                seq: Seq::new(4),
                path: PathId::new(2),
                origin: Seq::new(41),
                delivery: DeliveryId::new(11),
                key_hash: KeyHash::new(5),
                size_bytes: 7,
            }],
        }),
        Command::DropDead(DropDead {
            topic: TopicIncarnation::new(2),
            partition: Partition::new(3),
            seqs: vec![Seq::new(4), Seq::new(9)],
        }),
    ]
}

fn changes() -> Vec<Command> {
    vec![
        Command::ChangeTopic(ChangeTopic {
            topic: TopicIncarnation::new(1),
            settings: patch(&[(Setting::Partitions, 9), (Setting::TtlMs, 60_000)]),
        }),
        Command::ChangeGroup(ChangeGroup {
            path: PathId::new(2),
            settings: patch(&[(Setting::LeaseMs, 2000), (Setting::Order, 0)]),
        }),
        Command::ChangeDefaults(DefaultsPatch {
            values: vec![(DefaultKey::Setting(Setting::Partitions), 8), (DefaultKey::ProducerWindow, 2048)],
        }),
    ]
}

fn all_samples() -> Vec<Command> {
    samples().into_iter().chain(changes()).collect()
}

fn stamp() -> Stamp {
    Stamp { time: ClusterTime::new(5), gap_ms: 2, wall: WallTime::new(1_700_000_000_000) }
}

fn batch_of_all() -> Bytes {
    let mut builder = BatchBuilder::default();
    for command in all_samples() {
        builder.add(&command);
    }
    let mut run = PublishRunBuilder::default();
    let record = |number: u64| NewRecord {
        producer_id: ProducerId::new(9),
        producer_seq: ProducerSeq::new(number),
        key: b"k",
        has_headers: false,
        body: b"\x00\x01k\x00\x00\x00\x02hi",
    };
    let topic = TopicIncarnation::new(1);
    run.add(topic, Partition::ANY, 3, 2, &record(1));
    run.add_batch(topic, Partition::ANY, ProducerId::new(9), [2, 3].map(|number| (3, 2, record(number))).into_iter());
    run.add_timed(topic, Partition::ANY, (3, 2), &record(4), Times { delay_ms: 60_000, ttl_ms: 90_000 });
    let late = |number| ((3, 2), record(number), Times { ttl_ms: 7, ..Times::default() });
    run.add_timed_batch(topic, Partition::ANY, ProducerId::new(9), [5].map(late).into_iter());
    let once = Asked { idempotency_key: Some(IdempotencyKey::of(b"order-7")), ..Asked::default() };
    run.add_asked(topic, Partition::ANY, (3, 2), &record(6), once);
    builder.add_run(&run.take().expect("five commands were added"));
    builder.close(stamp())
}

fn read_all(bytes: Bytes) -> Result<Vec<Command>, crate::command::CommandError> {
    let mut batch = Batch::open(bytes)?;
    let mut commands = Vec::new();
    while let Some(command) = batch.next_command()? {
        commands.push(command);
    }
    Ok(commands)
}

#[test]
fn every_command_survives_its_bytes() {
    let batch = Batch::open(batch_of_all()).expect("a batch");
    assert_eq!(batch.stamp, stamp());
    let commands = read_all(batch_of_all()).expect("commands");
    assert_eq!(commands[..all_samples().len()], all_samples());
    let Command::Publish(publish) = &commands[all_samples().len()] else { panic!("a publish follows") };
    assert_eq!((publish.record.producer_seq.get(), publish.record.payload_bytes), (1, 3));
    crate::record::open_record(&publish.record.record).expect("the record is whole");
    let Command::PublishBatch(batch) = &commands[all_samples().len() + 1] else { panic!("a batch publish follows") };
    assert_eq!((batch.records.len(), batch.records[0].times), (2, Times::default()));
    let Command::Publish(delayed) = &commands[all_samples().len() + 2] else { panic!("a delayed publish follows") };
    assert_eq!(delayed.record.times, Times { delay_ms: 60_000, ttl_ms: 90_000 });
    let Command::PublishBatch(batch) = &commands[all_samples().len() + 3] else { panic!("a batch publish follows") };
    assert_eq!(batch.records[0].times, Times { delay_ms: 0, ttl_ms: 7 });
}

#[test]
fn p11_times_that_say_nothing_or_are_not_known_are_refused() {
    let mut run = PublishRunBuilder::default();
    let (producer_id, producer_seq) = (ProducerId::ZERO, ProducerSeq::ZERO);
    let record = NewRecord { producer_id, producer_seq, key: b"", has_headers: false, body: b"v" };
    let times = Times { delay_ms: 1, ttl_ms: 1 };
    run.add_timed(TopicIncarnation::new(1), Partition::ANY, (1, 1), &record, times);
    let mut builder = BatchBuilder::default();
    builder.add_run(&run.take().expect("one"));
    let whole = builder.close(stamp()).to_vec();
    assert!(read_all(whole.clone().into()).is_ok());
    for (from_end, field, found) in [(17, "flags", 11), (9, "delay_ms", 0), (1, "ttl_ms", 0)] {
        let mut changed = whole.clone();
        let place = whole.len() - from_end;
        changed[place] = u8::try_from(found).expect("small");
        assert_eq!(read_all(changed.into()), Err(crate::command::CommandError::Field { field, found }));
    }
}

#[test]
fn version_1_keeps_its_bytes() {
    let hex: String = batch_of_all().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, include_str!("v1.hex").split_whitespace().collect::<String>());
}

#[test]
fn p11_a_batch_that_is_cut_or_goes_on_is_refused() {
    let whole = batch_of_all();
    for length in 0..whole.len() {
        assert!(read_all(whole.slice(..length)).is_err(), "cut at {length}");
    }
    let mut longer = whole.to_vec();
    longer.push(0);
    assert!(read_all(longer.into()).is_err());
}

proptest! {
    #[test]
    fn any_bytes_decode_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = read_all(Bytes::from(bytes));
    }

    #[test]
    fn a_batch_with_changed_bytes_decodes_or_is_refused_and_applies(at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut bytes = batch_of_all().to_vec();
        let place = at.index(bytes.len());
        bytes[place] = to;
        let mut shard = crate::Shard::default();
        if shard.apply(Bytes::from(bytes), mortarmq_types::Epoch::new(1)).is_ok() {
            shard.check();
        }
    }
}
