//! The bytes of version 1, every damage of them, and what random commands do not reach.

use super::section::Section;
use super::{IMAGE_VERSION, ImageError};
use crate::apply::Shard;
use crate::command::{BatchBuilder, Command, CreateTopic, Deliver, EndMember, Grant, JoinGroup, PublishRunBuilder};
use crate::command::{Settle, SettleItem, SettleKind, Stamp, StartPolicy, Times};
use crate::facts::{FactView, FactWindow};
use crate::marks::{Mark, Marks};
use crate::record::NewRecord;
use crate::retention::Kept;
use crate::schedule::Schedule;
use crate::settings::{Defaults, GroupSettings, Setting, SettingsPatch, TopicSettings};
use crate::state::{Reserved, State, Topic, topic_of};
use bytes::{Bytes, BytesMut};
use mortarmq_delivery::{DuePosition, Fact};
use mortarmq_types::{
    Cause, ClusterTime, DeliveryId, Epoch, KeyHash, LeaseTime, MemberId, Partition, PathId, ProducerId, ProducerSeq,
    Seq, TopicIncarnation, WallTime,
};

const TOPIC: TopicIncarnation = TopicIncarnation::new(1);
const PATH: PathId = PathId::new(1);
const MEMBER: MemberId = MemberId::new(70);

/// A topic of two partitions; a group whose member holds one message, acked one and nacked one; a message that is delayed;
/// a member that is leaving; and the other is reserved for a message that is delivered alone.
fn small() -> Shard {
    let settings = SettingsPatch { values: vec![(Setting::Partitions, 2)] };
    let mut builder = BatchBuilder::default();
    builder.add(&Command::SetDefaults(Defaults::BUILD));
    builder.add(&Command::CreateTopic(CreateTopic { name: "Orders".to_owned(), settings }));
    builder.add(&join("billing", MEMBER));
    let mut run = run(1..4);
    let record = NewRecord {
        producer_id: ProducerId::new(9),
        producer_seq: ProducerSeq::new(4),
        key: b"k",
        has_headers: false,
        body: b"v",
    };
    run.add_timed(TOPIC, Partition::ZERO, (10, 10), &record, Times { delay_ms: 500, ttl_ms: 900 });
    builder.add_run(&run.take().expect("four"));
    builder.add(&deliver(2));
    builder.add(&deliver(2));
    builder.add(&Command::Settle(Settle {
        path: PATH,
        items: vec![
            item(0, 1, 1, SettleKind::Ack),
            item(0, 2, 2, SettleKind::Nack { delay_ms: 9, error: String::new() }),
        ],
    }));
    let mut shard = Shard::default();
    apply(&mut shard, &mut builder);
    let mut state = shard.state().clone();
    state.ending.push_back((PATH, MemberId::new(71), Cause::ConsumerLost));
    state.path_mut(PATH).expect("joined above").reserved =
        Some(Reserved { member: MEMBER, since: LeaseTime::new(900) });
    let shard = Shard::of(state);
    shard.check();
    shard
}

fn apply(shard: &mut Shard, builder: &mut BatchBuilder) {
    let stamp = Stamp { time: ClusterTime::new(1000), gap_ms: 10, wall: WallTime::new(1_700_000_000_000) };
    shard.apply(builder.close(stamp), Epoch::new(3)).expect("commands of this build");
}

fn join(group: &str, member: MemberId) -> Command {
    let (settings, start) = (SettingsPatch::default(), StartPolicy::Earliest);
    Command::JoinGroup(JoinGroup {
        topic: TOPIC,
        group: group.to_owned(),
        settings,
        start,
        member,
        secret_hash: 0xABCD,
    })
}

fn run(numbers: std::ops::Range<u64>) -> PublishRunBuilder {
    let mut run = PublishRunBuilder::default();
    for number in numbers {
        let (producer_id, producer_seq) = (ProducerId::new(9), ProducerSeq::new(number));
        let key: &[u8] = if number < 3 { b"k" } else { b"" };
        let record = NewRecord { producer_id, producer_seq, key, has_headers: false, body: b"v" };
        run.add(TOPIC, Partition::ZERO, 10, 10, &record);
    }
    run
}

fn deliver(max_messages: u32) -> Command {
    let grant = Grant::Push { window_messages: 2000, window_bytes: 1 << 20 };
    Command::Deliver(Deliver { path: PATH, member: MEMBER, grant, max_messages, stretch: None })
}

fn item(partition: u16, seq: u64, delivery: u64, kind: SettleKind) -> SettleItem {
    let (first_seq, first_delivery) = (Seq::new(seq), DeliveryId::new(delivery));
    SettleItem { partition: Partition::new(partition), first_seq, first_delivery, count: 1, kind }
}

fn encoded(shard: &Shard) -> Bytes {
    let mut bytes = BytesMut::new();
    shard.image().encode(&mut bytes);
    bytes.freeze()
}

/// The section and field by which a state with this damage is refused.
fn refused(damage: impl FnOnce(&mut State)) -> (Section, &'static str) {
    let mut state = small().state().clone();
    damage(&mut state);
    match Shard::from_image(encoded(&Shard::of(state))) {
        Err(ImageError::Field { section, field, .. }) => (section, field),
        other => panic!("the damage is not seen: {other:?}"),
    }
}

#[test]
fn version_1_has_these_bytes() {
    // Frozen: these bytes stand in checkpoints. Another layout is another version.
    let hex: String = encoded(&small()).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, include_str!("v1.hex").split_whitespace().collect::<String>());
    assert_eq!(Shard::from_image(encoded(&small())).expect("just written").state(), small().state());
}

#[test]
fn what_is_kept_of_a_partition_is_refused_where_it_contradicts_itself() {
    let kept = |damage: fn(&mut Kept)| {
        refused(|state| {
            damage(&mut topic_of(&mut state.topics, TOPIC).expect("orders").partition_mut(0).expect("0").kept)
        })
    };
    let section = Section::Partition(TOPIC, Partition::ZERO);
    assert_eq!(kept(|kept| kept.first_seq = Seq::ZERO), (section, "first_seq"));
    assert_eq!(kept(|kept| kept.first_seq = Seq::new(6)), (section, "first_seq"));
    assert_eq!(kept(|kept| kept.first_seq = Seq::new(2)), (section, "mark"), "1 is marked and not kept");
    assert_eq!(kept(|kept| kept.gone_bytes = 1), (section, "mark bytes"));
    assert_eq!(kept(|kept| kept.gone_bytes = u64::MAX), (section, "gone_bytes"));
    assert_eq!(kept(|kept| kept.stored_at = ClusterTime::new(1001)), (section, "stored_at"));
    let marked = |kept: &mut Kept| {
        kept.marks = Marks::restore(
            vec![Mark { seq: Seq::new(1), before: ClusterTime::new(1001), bytes_before: 0 }],
            Seq::new(1),
        )
        .expect("one rises");
    };
    assert_eq!(kept(marked), (section, "mark time"));
    let emptied =
        |kept: &mut Kept| *kept = Kept { first_seq: Seq::new(5), stored_at: kept.stored_at, ..Kept::default() };
    assert_eq!(kept(emptied), (section, "first_seq"), "4 is delayed");
    let passed =
        |kept: &mut Kept| *kept = Kept { first_seq: Seq::new(2), stored_at: kept.stored_at, ..Kept::default() };
    assert_eq!(kept(passed), (Section::PathPartition(PATH, Partition::ZERO), "kept_from"), "the path is behind");
}

#[test]
fn p4_p11_a_path_without_a_partition_of_which_messages_are_gone_is_refused() {
    // Goal: what is accepted passes the check. Method: what the path has in the second partition is left out; nothing of it
    // would stand for "from the first message on".
    let left_out = |first_seq: u64| {
        let mut state = small().state().clone();
        let partition = topic_of(&mut state.topics, TOPIC).expect("orders").partition_mut(1).expect("two");
        partition.last_seq = Seq::new(2);
        partition.facts = FactWindow::restore(Seq::new(2), 10, Vec::new()).expect("none");
        partition.kept.first_seq = Seq::new(first_seq);
        assert_eq!(state.path_mut(PATH).expect("billing").partitions.pop(), Some(0));
        Shard::from_image(encoded(&Shard::of(state)))
    };
    left_out(1).expect("a partition in which nothing happened").check();
    match left_out(2) {
        Err(ImageError::Field { section, field, .. }) => {
            assert_eq!((section, field), (Section::Path(PATH), "partition left out"));
        }
        other => panic!("the damage is not seen: {other:?}"),
    }
}

#[test]
fn p11_every_changed_byte_and_every_truncation_is_refused() {
    let whole = encoded(&small());
    for place in 0..whole.len() {
        assert!(Shard::from_image(whole.slice(..place)).is_err(), "{place} bytes");
        for change in [1, 0x10, 0x80, 0xFF] {
            let mut bytes = BytesMut::from(&whole[..]);
            bytes[place] ^= change;
            assert!(Shard::from_image(bytes.freeze()).is_err(), "byte {place} changed by {change}");
        }
    }
    let longer: Bytes = [&whole[..], b"0"].concat().into();
    let offset = whole.len() as u64;
    assert_eq!(Shard::from_image(longer).err(), Some(ImageError::TrailingSection { offset }));
}

#[test]
fn p11_damage_is_named_by_its_section() {
    let mut bytes = BytesMut::from(&encoded(&small())[..]);
    assert_eq!(Shard::from_image(Bytes::from_static(b"MMQX0")).err(), Some(ImageError::NotAnImage));
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let error = Shard::from_image(bytes.clone().freeze()).expect_err("it is damaged").to_string();
    assert!(error.starts_with("section path 1 in partition 1 at offset "), "{error}");
    assert!(error.ends_with(" fails its checksum"), "{error}");
    bytes[4] = IMAGE_VERSION + 1;
    let error = Shard::from_image(bytes.freeze()).err();
    assert_eq!(error, Some(ImageError::UnknownVersion { found: IMAGE_VERSION + 1 }));
}

#[test]
fn what_contradicts_another_section_is_refused() {
    let change_path =
        |change: fn(&mut crate::state::Path)| refused(|state| change(state.path_mut(PATH).expect("it is there")));
    let path = Section::Path(PATH);
    let member = |path: &mut crate::state::Path, change: fn(&mut crate::state::Member)| {
        change(path.members.get_mut(&MEMBER).expect("it is there"));
    };
    assert_eq!(change_path(|path| path.cursor = 2), (path, "cursor"));
    let stranger = |path: &mut crate::state::Path| {
        path.reserved = path.reserved.map(|it| Reserved { member: MemberId::new(9), ..it })
    };
    assert_eq!(change_path(stranger), (path, "reserved"));
    assert_eq!(change_path(|path| path.topic = TOPIC.next()), (path, "topic"));
    assert_eq!(change_path(|path| "$no".clone_into(&mut path.group)), (path, "group"));
    assert_eq!(change_path(|path| path.members.clear()), (path, "holder"));
    assert_eq!(
        refused(|state| member(state.path_mut(PATH).expect("there"), |it| it.held_bytes = 1)),
        (path, "held_bytes")
    );
    let messages = refused(|state| member(state.path_mut(PATH).expect("there"), |it| it.held_messages = 9));
    assert_eq!(messages, (path, "held_messages"));
    let twin = |state: &mut State| {
        state.last_path = PathId::new(2);
        state.paths.insert(PathId::new(2), state.paths[&PATH].clone());
    };
    assert_eq!(refused(twin), (Section::Path(PathId::new(2)), "group"));
    let in_partition = Section::PathPartition(PATH, Partition::ZERO);
    assert_eq!(refused(|state| state.last_delivery = DeliveryId::new(2)), (in_partition, "delivery_id"));
    let beyond = refused(|state| {
        // Back at the start, it remembers a position that the partition never had.
        let (far, moved, ended) = (Seq::new(9), &mut Vec::new(), &mut Vec::new());
        let (window, schedule) = (FactWindow::new(1), state.topics[&TOPIC].partitions[0].schedule.clone());
        let facts = FactView { stretch: None, window: &window, schedule: &schedule };
        let place = state.path_mut(PATH).expect("there").partitions.make(0);
        place.seek(far, far, &facts, &mut 9, moved, ended).expect("nothing moves");
        place.seek(Seq::FIRST, far, &facts, &mut 9, moved, ended).expect("nothing moves");
    });
    assert_eq!(beyond, (in_partition, "position"));
    assert_eq!(refused(|state| state.ending[0].1 = MEMBER), (path, "member"));
    assert_eq!(refused(|state| state.ending.push_back(state.ending[0])), (Section::Shard, "ending member"));
    assert_eq!(refused(|state| state.ending[0].2 = Cause::Nacked), (Section::Shard, "ending cause"));
    assert_eq!(refused(|state| state.last_path = PathId::ZERO), (Section::Shard, "ending path"));
    assert_eq!(refused(|state| state.last_topic = TopicIncarnation::ZERO), (Section::Shard, "topics"));
    assert_eq!(refused(|state| state.gaps_ms = 1001), (Section::Shard, "gaps"));
    assert_eq!(refused(|state| state.epoch = Epoch::new(2)), (Section::Topic(TOPIC), "created_epoch"));
}

#[test]
fn p4_a_schedule_that_contradicts_its_partition_or_its_paths_is_refused() {
    let change = |change: fn(&mut Schedule)| {
        refused(|state| {
            let topic = crate::state::topic_of(&mut state.topics, TOPIC).expect("it is there");
            change(&mut topic.partition_mut(0).expect("it is there").schedule);
        })
    };
    fn add(schedule: &mut Schedule, due: u64, seq: u64) {
        let fact = Fact { key_hash: KeyHash::NONE, size_bytes: 1, expires_at_ms: 0 };
        schedule.add(DuePosition { due: ClusterTime::new(due), seq: Seq::new(seq) }, fact);
    }
    let (partition, path) = (Section::Partition(TOPIC, Partition::ZERO), Section::PathPartition(PATH, Partition::ZERO));
    assert_eq!(change(|schedule| schedule.tell(ClusterTime::new(1001))), (partition, "told"));
    assert_eq!(change(|schedule| add(schedule, 2000, 5)), (partition, "delayed seq"), "there is no such message");
    assert_eq!(change(|schedule| add(schedule, 2000, 2)), (path, "delayed"), "the path has it among the passed");
    assert_eq!(change(|schedule| add(schedule, 2000, 1)), (path, "delayed"), "it is settled");
    let forgotten = change(|schedule| _ = schedule.forget_to(crate::schedule::all_until(ClusterTime::MAX), 9));
    assert_eq!(forgotten, (path, "delayed"), "the path has skipped it");
}

#[test]
fn p7_members_that_are_leaving_go_on_leaving_after_a_restart() {
    let mut shard = small();
    for first in [5, 1005] {
        let mut builder = BatchBuilder::default();
        builder.add_run(&run(first..first + 1000).take().expect("a thousand"));
        builder.add(&deliver(1024));
        apply(&mut shard, &mut builder);
    }
    let mut builder = BatchBuilder::default();
    builder.add(&Command::Settle(Settle { path: PATH, items: vec![item(0, 3, 3, SettleKind::Ack)] }));
    builder.add(&deliver(1024));
    builder.add(&deliver(1024));
    builder.add(&Command::EndMember(EndMember { path: PATH, member: MEMBER, lost: true }));
    apply(&mut shard, &mut builder);
    let mut restored = Shard::from_image(encoded(&shard)).expect("just written");
    assert_eq!(restored.state(), shard.state());
    assert!(
        restored.state().ending.iter().any(|(_, member, _)| *member == MEMBER),
        "it holds more than one batch ends"
    );
    for _ in 0..3 {
        apply(&mut shard, &mut BatchBuilder::default());
        apply(&mut restored, &mut BatchBuilder::default());
        restored.check();
        assert_eq!(restored.state(), shard.state());
    }
    assert!(shard.state().ending.is_empty());
}

/// [`small`] with its held message dead.
fn with_a_dead_letter() -> Shard {
    let mut shard = small();
    let path = &shard.state().paths[&PATH];
    let held = path.partitions.made().find_map(|(number, partition)| {
        let live = |(seq, entry): (Seq, &mortarmq_delivery::Entry)| Some((number, seq, entry.lease()?.delivery_id));
        partition.unsettled().find_map(live)
    });
    let (partition, seq, delivery) = held.expect("one message is held");
    let partition = u16::try_from(partition).expect("few");
    let mut builder = BatchBuilder::default();
    let kind = SettleKind::DeadLetter { error: String::new() };
    builder.add(&Command::Settle(Settle { path: PATH, items: vec![item(partition, seq.get(), delivery.get(), kind)] }));
    apply(&mut shard, &mut builder);
    shard.check();
    shard
}

#[test]
fn p11_a_dead_letter_topic_that_does_not_fit_its_source_is_refused() {
    let good = with_a_dead_letter();
    assert_eq!(Shard::from_image(encoded(&good)).expect("just written").state(), good.state());
    let dead = TOPIC.next();
    let refused = |damage: &dyn Fn(&mut State)| {
        let mut state = good.state().clone();
        damage(&mut state);
        match Shard::from_image(encoded(&Shard::of(state))) {
            Err(ImageError::DeadLetters { topic, what }) if topic == dead => what,
            other => panic!("the damage is not seen: {other:?}"),
        }
    };
    let topic = |state: &mut State, id, change: &dyn Fn(&mut Topic)| {
        change(topic_of(&mut state.topics, id).expect("it is there"));
    };
    let renamed = |state: &mut State| topic(state, TOPIC, &|topic| topic.name = "Offers".to_owned());
    assert_eq!(refused(&renamed), "source");
    let limited = SettingsPatch { values: vec![(Setting::Partitions, 2), (Setting::MaxAttempts, 3)] };
    let limited = |state: &mut State| {
        topic(state, dead, &|topic| topic.settings = TopicSettings::new(&TopicSettings::BUILD, &limited))
    };
    assert_eq!(refused(&limited), "max_attempts");
    let of_group = |state: &mut State| {
        let topic =
            TopicSettings::new(&TopicSettings::BUILD, &SettingsPatch { values: vec![(Setting::MaxAttempts, 3)] });
        state.paths.get_mut(&PATH.next()).expect("its own book").settings =
            GroupSettings::new(&topic, &SettingsPatch::default());
    };
    assert_eq!(refused(&of_group), "max_attempts of a group");
    let without_book = |state: &mut State| drop(state.paths.remove(&PATH.next()));
    assert_eq!(refused(&without_book), "group");
}
