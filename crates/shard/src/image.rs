//! An image of the state: what a checkpoint writes, and what a shard begins with again.
//!
//! [`Shard::image`] takes little more than pointers, so the loop goes on at once; what it changes while the image lives is
//! copied first, piece by piece. [`Image::encode`] runs on another thread. [`Shard::from_image`] gives back the state that the
//! image was taken of, or names the section that is damaged.
//!
//! Only facts that nothing else tells are stored: names, the groups of a topic, timers, indexes and sums are made anew.
//! Equal states give equal bytes, on every replica, so that images can be compared by a hash.
//!
//! # Layout
//! All numbers are big-endian.
//!
//! | field | bytes | meaning | guards against |
//! |---|---|---|---|
//! | magic | 4 | `MMQI` | another file taken for an image |
//! | version | 1 | [`IMAGE_VERSION`]; an unknown one is refused | a layout that this build would misread (P11) |
//! | sections | n | one for the shard; each topic with its partitions and producers; each path with its partitions | |
//!
//! A section:
//!
//! | field | bytes | meaning | guards against |
//! |---|---|---|---|
//! | kind | 1 | 1 shard, 2 topic, 3 partition, 4 producers, 5 path, 6 path partition | sections in the wrong place |
//! | owner | 8 | incarnation of the topic or number of the path; 0 for the shard | the same |
//! | number | 2 | partition; 0 where there is none | the same |
//! | length | 8 | bytes of the body | reading on in the wrong place |
//! | body | n | see [`head`], [`topic`], [`path`] | |
//! | checksum | 4 | CRC32C of all fields before | damage of any byte (P11) |
//!
//! The order is fixed and the shard's section lists topics and paths, so a section that is missing, twice or too many is
//! found. Bodies are checked field by field on top: what is accepted passes [`Shard::check`], and no command that follows
//! can break an assertion by what the image said.

pub mod head;
pub mod path;
pub mod section;
pub mod topic;

use crate::apply::Shard;
use crate::state::paths::Paths;
use crate::state::pins::pins_of;
use crate::state::timers::ByTopic;
use crate::state::{PARTITIONS_MAX, PATH_PARTITIONS_MAX, Path, State, Topic, dead_letters_fault};
use bytes::{BufMut, Bytes, BytesMut};
use head::Head;
use mortarmq_delivery::{Granted, PathPartition, PathPartitionImage};
use mortarmq_types::{CommitIndex, DeliveryId, MemberId, Mutant, Partition, PathId, TopicIncarnation};
use section::{Body, Reader, Section};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use section::ImageError;

/// The version of the layout.
pub const IMAGE_VERSION: u8 = 1;

/// The first bytes of an image.
pub const IMAGE_MAGIC: [u8; 4] = *b"MMQI";

/// The state as it was at one commit index. It shares its sections with the shard until the shard changes them.
#[derive(Clone, Debug)]
pub struct Image {
    head: Head,
    topics: BTreeMap<TopicIncarnation, Arc<Topic>>,
    paths: Vec<(PathId, PathImage)>,
}

/// A path as it was, with what it had in each partition.
#[derive(Clone, Debug)]
struct PathImage {
    /// Without its partitions.
    path: Path,
    /// Those in which something is kept, by rising number.
    partitions: Vec<(Partition, PathPartitionImage)>,
}

impl Image {
    /// The last command the image holds.
    #[must_use]
    pub fn commit_index(&self) -> CommitIndex {
        self.head.commit_index
    }

    /// Appends the image's bytes. It takes its time: for a thread of its own.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_slice(&IMAGE_MAGIC);
        out.put_u8(IMAGE_VERSION);
        let paths = self.paths.iter().map(|(id, _)| id);
        section::put(out, Section::Shard, |out| head::put(out, &self.head, self.topics.keys(), paths));
        for (id, found) in &self.topics {
            section::put(out, Section::Topic(*id), |out| topic::put(out, found));
            for (number, partition) in (0..).zip(&found.partitions) {
                let place = Section::Partition(*id, Partition::new(number));
                section::put(out, place, |out| topic::put_partition(out, partition));
            }
            section::put(out, Section::Producers(*id), |out| {
                topic::put_producers(out, &found.producers);
                topic::put_keys(out, &found.keys);
            });
        }
        for (id, found) in &self.paths {
            let numbers = found.partitions.iter().map(|(number, _)| *number);
            section::put(out, Section::Path(*id), |out| path::put(out, &found.path, numbers));
            for (number, partition) in &found.partitions {
                let place = Section::PathPartition(*id, *number);
                section::put(out, place, |out| partition.encode(out));
            }
        }
    }
}

impl Shard {
    /// The state as it is now. It copies pointers, members and a few numbers of each path, and no entries.
    ///
    /// # Source
    /// DESIGN section 4, "Threads".
    #[must_use]
    pub fn image(&self) -> Image {
        let state = self.state();
        let path = |(id, path): (&PathId, &Path)| {
            let image = |(number, it): (usize, &PathPartition)| (Partition::from_index(number), it.image());
            let partitions = path.partitions.made().map(image).collect();
            (*id, PathImage { path: path.without_partitions(), partitions })
        };
        Image { head: Head::of(state), topics: state.topics.clone(), paths: state.paths.iter().map(path).collect() }
    }

    /// The shard whose image this is.
    ///
    /// # Errors
    /// When the bytes are no image of a known version, or damaged: with the section, its offset and the field (P11).
    pub fn from_image(bytes: Bytes) -> Result<Self, ImageError> {
        let mut reader = Reader::open(bytes)?;
        let mut body = reader.section(Section::Shard)?;
        let (head, topic_ids, path_ids) = head::take(&mut body)?;
        body.finish()?;
        let mut loading = Loading { head, ..Loading::default() };
        for id in topic_ids {
            loading.take_topic(&mut reader, id)?;
        }
        for id in path_ids {
            loading.take_path(&mut reader, id)?;
        }
        reader.finish()?;
        loading.check_deliveries()?;
        loading.check_dead_letters()?;
        loading.pin()?;
        Ok(Self::of(loading.into_state()))
    }
}

/// A state on its way from its image.
#[derive(Debug, Default)]
struct Loading {
    head: Head,
    topics: BTreeMap<TopicIncarnation, Topic>,
    names: BTreeMap<String, TopicIncarnation>,
    paths: Paths,
    partitions_total: usize,
    paths_total: usize,
    path_partitions_total: usize,
    /// The live deliveries of all paths.
    live: Vec<DeliveryId>,
}

impl Loading {
    fn take_topic(&mut self, reader: &mut Reader, id: TopicIncarnation) -> Result<(), ImageError> {
        let mut body = reader.section(Section::Topic(id))?;
        let mut found = topic::take(&mut body, &self.head)?;
        let partitions = topic::partitions_of(&found.settings);
        if !found.holds_dead_letters() {
            self.partitions_total += usize::from(partitions);
        }
        if self.partitions_total > PARTITIONS_MAX {
            return Err(body.wrong("partitions", u64::from(partitions)));
        }
        if self.names.insert(found.name.to_ascii_lowercase(), id).is_some() {
            return Err(body.wrong("name", id.get()));
        }
        body.finish()?;
        for number in 0..partitions {
            let mut body = reader.section(Section::Partition(id, Partition::new(number)))?;
            found.partitions.push(Arc::new(topic::take_partition(&mut body, &self.head)?));
            body.finish()?;
        }
        let mut body = reader.section(Section::Producers(id))?;
        found.producers = topic::take_producers(&mut body, &found, &self.head)?;
        found.keys = topic::take_keys(&mut body, &found, &self.head)?;
        body.finish()?;
        self.topics.insert(id, found);
        Ok(())
    }

    fn take_path(&mut self, reader: &mut Reader, id: PathId) -> Result<(), ImageError> {
        let mut body = reader.section(Section::Path(id))?;
        let (mut found, numbers) = path::take(&mut body, &self.topics, &self.head)?;
        let incarnation = found.topic;
        let Some(of_topic) = self.topics.get_mut(&incarnation) else {
            return Err(body.wrong("topic", incarnation.get()));
        };
        if of_topic.paths.insert(found.group.clone(), id).is_some() {
            return Err(body.wrong("group", id.get()));
        }
        if found.counts(of_topic) {
            self.paths_total += 1;
            self.path_partitions_total += of_topic.partitions.len();
        }
        if self.path_partitions_total > PATH_PARTITIONS_MAX {
            return Err(body.wrong("path partitions", self.path_partitions_total as u64));
        }
        if let Some(number) = path::left_out(of_topic, &numbers) {
            return Err(body.wrong("partition left out", number as u64));
        }
        for number in numbers {
            let mut body = reader.section(Section::PathPartition(id, number))?;
            let taken = path::take_partition(&mut body, &of_topic.partitions[number.index()], &self.head)?;
            body.finish()?;
            found.partitions.push(number.index(), taken);
        }
        let partitions = of_topic.partitions.len();
        self.check_members(&body, id, &found)?;
        if let Some(what) = found.alone_fault() {
            return Err(body.wrong(what, id.get()));
        }
        body.finish()?;
        if Mutant::LeaseForgotten.is_on() {
            found.members.values_mut().for_each(|member| (member.held_messages, member.held_bytes) = (0, 0));
            (0..partitions)
                .filter_map(|number| found.partitions.get_mut(number).map(PathPartition::forget_leases))
                .count();
        }
        self.paths.insert(id, found);
        Ok(())
    }

    /// Checks that the members hold what is leased to them, and that nobody else holds anything but those who are leaving.
    fn check_members(&mut self, body: &Body, id: PathId, path: &Path) -> Result<(), ImageError> {
        let leaving: BTreeSet<MemberId> =
            self.head.ending.iter().filter(|(path, ..)| *path == id).map(|(_, member, _)| *member).collect();
        if let Some(member) = path.members.keys().find(|member| leaving.contains(*member)) {
            return Err(body.wrong("member", member.get()));
        }
        let mut held: BTreeMap<MemberId, (u32, u64)> = BTreeMap::new();
        let of_all = path.partitions.made().flat_map(|(_, it)| it.unsettled().map(move |(_, entry)| (it, entry)));
        for (partition, entry) in of_all {
            let Some(lease) = entry.lease() else { continue };
            let Granted { member, grant, .. } = partition.granted(lease);
            self.live.push(lease.delivery_id);
            if !path.members.contains_key(&member) {
                if leaving.contains(&member) {
                    continue;
                }
                return Err(body.wrong("holder", member.get()));
            }
            if grant == mortarmq_delivery::Grant::Push {
                let (messages, bytes) = held.entry(member).or_default();
                *messages = messages.saturating_add(1);
                *bytes += u64::from(entry.size_bytes);
            }
        }
        for (member, told) in &path.members {
            let (messages, bytes) = held.get(member).copied().unwrap_or_default();
            if told.held_messages != messages {
                return Err(body.wrong("held_messages", u64::from(told.held_messages)));
            }
            if told.held_bytes != bytes {
                return Err(body.wrong("held_bytes", told.held_bytes));
            }
        }
        Ok(())
    }

    /// Checks that no two live deliveries of the shard have one number (P5).
    fn check_deliveries(&mut self) -> Result<(), ImageError> {
        self.live.sort_unstable();
        match self.live.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(ImageError::DeliveredTwice { delivery: pair[0] }),
            None => Ok(()),
        }
    }

    /// Checks that dead-letter topics have what their sources need of them.
    fn check_dead_letters(&self) -> Result<(), ImageError> {
        for (id, topic) in &self.topics {
            if let Some(what) = dead_letters_fault(topic, &self.topics, &self.names, &self.paths) {
                return Err(ImageError::DeadLetters { topic: *id, what });
            }
        }
        Ok(())
    }

    /// Pins the dead letters that redriven messages are read from.
    fn pin(&mut self) -> Result<(), ImageError> {
        let found = pins_of(&self.topics, &self.names, &self.paths);
        let pins = found.map_err(|(path, letter)| ImageError::Source { path, letter })?;
        for ((id, number), pins) in pins {
            let topic = self.topics.get_mut(&id).expect("looked up just now");
            Arc::make_mut(&mut topic.partitions[number]).pins = pins;
        }
        Ok(())
    }

    fn into_state(self) -> State {
        let head = self.head;
        let partitions = self.topics.values().flat_map(|topic| &topic.partitions);
        let delayed: usize = partitions.map(|partition| partition.schedule.len()).sum();
        let mut state = State {
            commit_index: head.commit_index,
            epoch: head.epoch,
            time: head.time,
            wall: head.wall,
            gaps_ms: head.gaps_ms,
            last_delivery: match self.live.last() {
                live if Mutant::DeliveryIdReused.is_on() => live.copied().unwrap_or_default(),
                _ => head.last_delivery,
            },
            defaults: head.defaults,
            producer_entries: self.topics.values().map(|topic| topic.producers.entries()).sum(),
            topics: self.topics.into_iter().map(|(id, topic)| (id, Arc::new(topic))).collect(),
            names: self.names,
            paths: self.paths,
            last_topic: head.last_topic,
            last_path: head.last_path,
            timers: ByTopic::default(),
            delays: ByTopic::default(),
            delayed: delayed as u64,
            idle: ByTopic::default(),
            groups_expired: head.groups_expired,
            ending: head.ending,
            entries: crate::state::entries::Entries::default(),
            partitions_total: self.partitions_total,
            paths_total: self.paths_total,
            path_partitions_total: self.path_partitions_total,
            unpinned: BTreeSet::new(),
        };
        state.retime_all();
        state.recount_topics();
        state
    }
}

#[cfg(test)]
mod tests;
