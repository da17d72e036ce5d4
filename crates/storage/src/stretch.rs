//! A stretch of a partition's files that is damaged, as one node names it to another to have its bytes.
//!
//! It begins with one entry and goes on for as many as are needed until sound bytes follow. It is named by what it holds and not by a
//! place in a segment: replicas write equal files, but only what a record says of itself is checked.

use mortarmq_types::{Partition, Seq, TopicIncarnation};

use crate::segment::{FILE_HEADER_BYTES, FileIdentity, INDEX_ENTRY_BYTES, Kind, TOPICS_DIR};
use crate::verify::Finding;

/// Where damaged bytes begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stretch {
    /// Records of a partition, with their index entries.
    Records {
        /// The topic's incarnation.
        topic: TopicIncarnation,
        /// The partition.
        partition: Partition,
        /// The first of them.
        seq: Seq,
    },
    /// Entries of a ledger file.
    Ledger {
        /// The topic's incarnation.
        topic: TopicIncarnation,
        /// The partition.
        partition: Partition,
        /// Which of its ledger files.
        number: u64,
        /// Where in it the first of them begins.
        ///
        /// # Units
        /// Bytes.
        offset: u64,
    },
}

impl Stretch {
    /// The topic that it belongs to.
    #[must_use]
    pub const fn topic(&self) -> TopicIncarnation {
        match self {
            Self::Records { topic, .. } | Self::Ledger { topic, .. } => *topic,
        }
    }

    /// The partition that it belongs to.
    #[must_use]
    pub const fn partition(&self) -> Partition {
        match self {
            Self::Records { partition, .. } | Self::Ledger { partition, .. } => *partition,
        }
    }

    /// What names it to another node: the partition's folder and a sequence, or a ledger file and an offset.
    #[must_use]
    pub fn name(&self) -> (String, u64) {
        match *self {
            Self::Records { topic, partition, seq } => {
                (format!("{TOPICS_DIR}/{}/{partition}", topic.to_hex()), seq.get())
            }
            Self::Ledger { topic, partition, number, offset } => {
                (FileIdentity { topic, partition, kind: Kind::Ledger, number }.relative_path(), offset)
            }
        }
    }

    /// The stretch of a name; nothing for one that [`Self::name`] does not make.
    #[must_use]
    pub fn of_name(file: &str, at: u64) -> Option<Self> {
        let found = match FileIdentity::of_relative_path(file) {
            Some(FileIdentity { topic, partition, kind: Kind::Ledger, number }) => {
                Self::Ledger { topic, partition, number, offset: at }
            }
            Some(_) => return None,
            None => {
                let (topic, partition) = file.strip_prefix(TOPICS_DIR)?.strip_prefix('/')?.split_once('/')?;
                let topic = TopicIncarnation::new(u64::from_str_radix(topic, 16).ok()?);
                Self::Records { topic, partition: Partition::new(partition.parse().ok()?), seq: Seq::new(at) }
            }
        };
        (found.name().0 == file).then_some(found)
    }
}

impl Finding {
    /// The stretch that another node may have sound; nothing if it is no damage of a partition's file, or where it begins cannot
    /// be told.
    #[must_use]
    pub fn stretch(&self) -> Option<Stretch> {
        let at = self.at.filter(|_| self.is_damage)?;
        let name = self.path.file_name()?.to_str()?;
        let (topic, partition) = (at.topic, at.partition);
        let identity = FileIdentity::of_relative_path(&format!("{TOPICS_DIR}/{}/{partition}/{name}", topic.to_hex()))?;
        let behind_header = self.offset.checked_sub(FILE_HEADER_BYTES as u64);
        let seq = match (identity.kind, at.seq) {
            (Kind::Ledger, _) => {
                let offset = self.offset.max(FILE_HEADER_BYTES as u64);
                return Some(Stretch::Ledger { topic, partition, number: identity.number, offset });
            }
            (_, Some(seq)) => seq,
            (Kind::Index, None) => {
                let line = behind_header.map_or(0, |offset| offset / INDEX_ENTRY_BYTES as u64);
                Seq::new(identity.number.checked_add(line)?)
            }
            // Its header, or its bytes as a whole.
            (Kind::Segment, None) if behind_header.is_none() => Seq::new(identity.number),
            (Kind::Segment, None) => return None,
        };
        Some(Stretch::Records { topic, partition, seq })
    }
}

#[cfg(test)]
mod tests {
    use super::Stretch;
    use mortarmq_types::{Partition, Seq, TopicIncarnation};

    #[test]
    fn a_stretch_comes_back_from_its_name_and_no_other_name_is_one() {
        let (topic, partition) = (TopicIncarnation::new(0xAB), Partition::new(12));
        let all = [
            Stretch::Records { topic, partition, seq: Seq::new(77) },
            Stretch::Ledger { topic, partition, number: 3, offset: 4096 },
        ];
        for stretch in all {
            let (file, at) = stretch.name();
            assert_eq!(Stretch::of_name(&file, at), Some(stretch), "{file}");
        }
        let strange = [
            "",
            "topics",
            "topics/00000000000000ab",
            "topics/00000000000000AB/12",
            "topics/00000000000000ab/012",
            "topics/00000000000000ab/12/",
            "topics/00000000000000ab/12/00000000000000000001.segment",
            "topics/../identity",
            "identity",
        ];
        strange.into_iter().for_each(|file| assert_eq!(Stretch::of_name(file, 1), None, "{file}"));
    }
}
