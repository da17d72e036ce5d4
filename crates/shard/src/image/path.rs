//! The sections of a path: itself with its members, and what it has in each partition.
//!
//! A path:
//!
//! | field | bytes | meaning, unit | guards against |
//! |---|---|---|---|
//! | topic | 8 | incarnation of its topic | an obligation on another topic (P4) |
//! | group | 2 + n | UTF-8 behind its length | two paths of one group |
//! | settings | 1 + n × 9 | count, then number and value of each, rising; one that is not listed is the topic's | values out of range |
//! | idle_since | 8 | since when it has no members, cluster time, ms; 0 if it has some | a group that expires early, or never |
//! | cursor | 8 | the partition that the next `Deliver` looks at first | replicas that deliver differently |
//! | reserved | 8 | the member that is to become empty for a message that is delivered alone; 0 = none | one that kills its workers with others in their hands |
//! | since | 8 | if one is: since when, lease time, ms | a member kept empty for ever |
//! | partition count | 2 | partitions in which something is kept; what the path has in any other of its topic is that of a new one | |
//! | partitions | n × 2 | their numbers, rising | what a path has lost, or taken for another partition's (P4) |
//! | member count | 8 | members that follow, by rising number | |
//! | member | 8 | the member's number, not 0 | a session lost or doubled |
//! | secret_hash | 8 | hash of the secret by which it can resume | a session taken over |
//! | held_messages | 4 | messages it holds by pushes | credit lost or given twice |
//! | held_bytes | 8 | bytes it holds by pushes | the same |
//! | node_incarnation | 8 | of its last pull that leased something: the node that took it, in its life of then; 0 without one | a pull that comes again and is given new messages (P5) |
//! | pull_id | 8 | that pull's number on the node; 0 without one | the same |
//! | granted_at | 8, 8 | leader epoch and commit index of the command that served it; 0, 0 without one | the same |
//!
//! What it has in a partition is a format of its own: `image` in the delivery crate.

use super::ImageError;
use super::head::Head;
use super::section::{Body, put_settings, put_text};
use crate::names::check_name;
use crate::settings::GroupSettings;
use crate::state::path_partitions::PathPartitions;
use crate::state::{MEMBERS_MAX, Member, PartitionState, Path, Pulled, Reserved, Topic};
use bytes::{BufMut, BytesMut};
use mortarmq_delivery::PathPartition;
use mortarmq_types::{
    ClusterTime, CommitIndex, Epoch, LeaseTime, MemberId, Partition, Position, Seq, TopicIncarnation,
};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) fn put(out: &mut BytesMut, path: &Path, numbers: impl ExactSizeIterator<Item = Partition>) {
    out.put_u64(path.topic.get());
    put_text(out, &path.group);
    put_settings(out, |setting| path.settings.get(setting));
    out.put_u64(path.idle_since.map_or(0, ClusterTime::get));
    out.put_u64(path.cursor as u64);
    out.put_u64(path.reserved.map_or(0, |reserved| reserved.member.get()));
    if let Some(reserved) = path.reserved {
        out.put_u64(reserved.since.get());
    }
    out.put_u16(u16::try_from(numbers.len()).expect("at most 1024 partitions"));
    numbers.for_each(|number| out.put_u16(number.get()));
    out.put_u64(path.members.len() as u64);
    for (id, member) in &path.members {
        out.put_u64(id.get());
        out.put_u64(member.secret_hash);
        out.put_u32(member.held_messages);
        out.put_u64(member.held_bytes);
        let none = Pulled { node_incarnation: 0, pull_id: 0, granted_at: Position::default() };
        let Pulled { node_incarnation, pull_id, granted_at } = member.pulled.unwrap_or(none);
        out.put_u64(node_incarnation);
        out.put_u64(pull_id);
        out.put_u64(granted_at.epoch.get());
        out.put_u64(granted_at.commit_index.get());
    }
}

/// The path without its partitions, which have sections of their own, and the numbers of those.
pub(super) fn take(
    body: &mut Body,
    topics: &BTreeMap<TopicIncarnation, Topic>,
    head: &Head,
) -> Result<(Path, Vec<Partition>), ImageError> {
    let incarnation = TopicIncarnation::new(body.u64()?);
    let topic = topics.get(&incarnation).ok_or_else(|| body.wrong("topic", incarnation.get()))?;
    let group = body.text("group")?;
    if check_name(&group).is_err() {
        return Err(body.wrong("group", group.len() as u64));
    }
    let settings = GroupSettings::new(&topic.settings, &body.settings()?);
    let idle_since = ClusterTime::new(body.u64_in("idle_since", 0, head.time.get())?);
    let cursor = body.u64_in("cursor", 0, topic.partitions.len() as u64 - 1)?;
    let cursor = usize::try_from(cursor).expect("less than 1024 partitions");
    let reserved = match MemberId::new(body.u64()?) {
        MemberId::ZERO => None,
        member => Some(Reserved { member, since: LeaseTime::new(body.u64()?) }),
    };
    let numbers = take_numbers(body, topic.partitions.len())?;
    let members = take_members(body, head)?;
    if !members.is_empty() && idle_since != ClusterTime::ZERO {
        return Err(body.wrong("idle_since", idle_since.get()));
    }
    let idle_since = members.is_empty().then_some(idle_since);
    let (topic, partitions) = (incarnation, PathPartitions::default());
    Ok((Path { topic, group, settings, partitions, members, idle_since, cursor, reserved }, numbers))
}

/// Numbers of partitions, each above the one before, of as many as the topic has.
fn take_numbers(body: &mut Body, of_topic: usize) -> Result<Vec<Partition>, ImageError> {
    let count = usize::from(body.u16()?);
    if count > of_topic {
        return Err(body.wrong("partition count", count as u64));
    }
    let (mut numbers, mut least) = (Vec::with_capacity(count), 0);
    for _ in 0..count {
        let number = Partition::new(body.u16()?);
        if number.index() < least || number.index() >= of_topic {
            return Err(body.wrong("partition number", u64::from(number.get())));
        }
        least = number.index() + 1;
        numbers.push(number);
    }
    Ok(numbers)
}

/// A partition that is not listed although messages of it are gone. What a path has in one that is not listed begins with the
/// first message, and no path is behind what is kept.
pub(super) fn left_out(topic: &Topic, numbers: &[Partition]) -> Option<usize> {
    let mut listed = numbers.iter().map(|number| number.index()).peekable();
    let mut found = topic.partitions.iter().enumerate();
    let is_left_out = |(number, partition): &(usize, &Arc<PartitionState>)| {
        listed.next_if_eq(number).is_none() && partition.kept.first_seq > Seq::FIRST
    };
    found.find(is_left_out).map(|(number, _)| number)
}

fn take_members(body: &mut Body, head: &Head) -> Result<BTreeMap<MemberId, Member>, ImageError> {
    let count = body.count("members", MEMBER_BYTES)?;
    if count > MEMBERS_MAX {
        return Err(body.wrong("members", count as u64));
    }
    let mut members = BTreeMap::new();
    for _ in 0..count {
        let id = MemberId::new(body.u64_in("member", 1, u64::MAX)?);
        if members.last_key_value().is_some_and(|(before, _)| *before >= id) {
            return Err(body.wrong("member", id.get()));
        }
        let (secret_hash, held_messages, held_bytes) = (body.u64()?, body.u32()?, body.u64()?);
        let pulled = take_pulled(body, head)?;
        members.insert(id, Member { secret_hash, held_messages, held_bytes, pulled });
    }
    Ok(members)
}

/// A command has a number from 1 on, so one without a number is none.
fn take_pulled(body: &mut Body, head: &Head) -> Result<Option<Pulled>, ImageError> {
    let (node_incarnation, pull_id) = (body.u64()?, body.u64()?);
    let granted_at = Position { epoch: Epoch::new(body.u64()?), commit_index: CommitIndex::new(body.u64()?) };
    let is_none = granted_at.commit_index == CommitIndex::ZERO;
    if granted_at > (Position { epoch: head.epoch, commit_index: head.commit_index })
        || is_none && (node_incarnation, pull_id, granted_at) != (0, 0, Position::default())
    {
        return Err(body.wrong("granted_at", granted_at.commit_index.get()));
    }
    Ok((!is_none).then_some(Pulled { node_incarnation, pull_id, granted_at }))
}

/// What a path has in this partition.
pub(super) fn take_partition(
    body: &mut Body,
    found: &PartitionState,
    head: &Head,
) -> Result<PathPartition, ImageError> {
    let partition = body.deliveries()?;
    if partition.reached() > found.last_seq.next() {
        return Err(body.wrong("position", partition.reached().get()));
    }
    if partition.replay_end() > found.last_seq.next() {
        return Err(body.wrong("replay_end", partition.replay_end().get()));
    }
    if partition.kept_from() < found.kept.first_seq || partition.kept_from() > found.last_seq.next() {
        return Err(body.wrong("kept_from", partition.kept_from().get()));
    }
    if partition.latest_delivery() > head.last_delivery {
        return Err(body.wrong("delivery_id", partition.latest_delivery().get()));
    }
    if partition.latest_grant() > (Position { epoch: head.epoch, commit_index: head.commit_index }) {
        return Err(body.wrong("granted_at", partition.latest_grant().commit_index.get()));
    }
    let last = partition.due_position();
    if last.due > head.time || last.seq > found.last_seq {
        return Err(body.wrong("due", last.due.get()));
    }
    let skipped = partition.skipped(found.schedule.places()).map_err(|seq| body.wrong("delayed", seq.get()))?;
    if skipped != partition.delayed() {
        return Err(body.wrong("delayed", partition.delayed()));
    }
    if partition.latest_run() > head.time {
        return Err(body.wrong("opened", partition.latest_run().get()));
    }
    Ok(partition)
}

const MEMBER_BYTES: usize = 8 + 8 + 4 + 8 + 4 * 8;
