//! Sections and their fields: written with length and checksum, read with every bound checked.

use super::{IMAGE_MAGIC, IMAGE_VERSION};
use crate::settings::{Setting, SettingsPatch};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use mortarmq_types::{DeliveryId, Partition, PathId, TopicIncarnation};

/// A part of an image with a checksum of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Clocks, counters, and what there is.
    Shard,
    /// A topic.
    Topic(TopicIncarnation),
    /// A partition of a topic.
    Partition(TopicIncarnation, Partition),
    /// The producer windows of a topic.
    Producers(TopicIncarnation),
    /// A path.
    Path(PathId),
    /// A path in one partition.
    PathPartition(PathId, Partition),
}

impl std::fmt::Display for Section {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Shard => write!(formatter, "the shard"),
            Self::Topic(topic) => write!(formatter, "topic {}", topic.to_hex()),
            Self::Partition(topic, number) => write!(formatter, "partition {number} of topic {}", topic.to_hex()),
            Self::Producers(topic) => write!(formatter, "the producers of topic {}", topic.to_hex()),
            Self::Path(path) => write!(formatter, "path {path}"),
            Self::PathPartition(path, number) => write!(formatter, "path {path} in partition {number}"),
        }
    }
}

/// Why bytes are not an image.
///
/// # Units
/// Offsets are bytes from the image's start to the section's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The first bytes are not those of an image.
    #[error("these bytes are no image of a shard")]
    NotAnImage,
    /// The layout is not known to this build.
    #[error("image version {found} is unknown here")]
    UnknownVersion {
        /// The version found.
        found: u8,
    },
    /// The bytes end inside a section, or a section inside a field.
    #[error("section {section} at offset {offset} is cut off")]
    TooShort {
        /// The section.
        section: Section,
        /// Where it begins.
        offset: u64,
    },
    /// Another section stands where this one is expected.
    #[error("at offset {offset} is not section {section}")]
    WrongSection {
        /// The section expected.
        section: Section,
        /// Where it should begin.
        offset: u64,
    },
    /// The section's bytes changed since they were written.
    #[error("section {section} at offset {offset} fails its checksum")]
    Checksum {
        /// The section.
        section: Section,
        /// Where it begins.
        offset: u64,
    },
    /// Bytes follow the last field of a section.
    #[error("bytes follow the last field of section {section} at offset {offset}")]
    TrailingBytes {
        /// The section.
        section: Section,
        /// Where it begins.
        offset: u64,
    },
    /// Bytes follow the last section.
    #[error("bytes follow the last section, at offset {offset}")]
    TrailingSection {
        /// Where the last section ends.
        offset: u64,
    },
    /// A field holds a value that it cannot have, or that contradicts another.
    #[error("section {section} at offset {offset}: field {field} cannot be {found}")]
    Field {
        /// The section.
        section: Section,
        /// Where it begins.
        offset: u64,
        /// The field.
        field: &'static str,
        /// What it holds, or a number that names it.
        found: u64,
    },
    /// What a path has in a partition is wrong.
    #[error("section {section} at offset {offset} cannot be read")]
    Deliveries {
        /// The section.
        section: Section,
        /// Where it begins.
        offset: u64,
        /// Why.
        source: mortarmq_delivery::ImageError,
    },
    /// A redriven message is read from a dead letter that is not there, or that another one is read from too.
    #[error("path {path}: {letter} is no dead letter that one message alone was redriven from")]
    Source {
        /// The path.
        path: PathId,
        /// The dead letter.
        letter: mortarmq_types::Seq,
    },
    /// A dead-letter topic does not fit its source.
    #[error("dead-letter topic {}: its {what} is wrong", topic.to_hex())]
    DeadLetters {
        /// The topic.
        topic: TopicIncarnation,
        /// What is wrong.
        what: &'static str,
    },
    /// Two live deliveries have one number.
    #[error("delivery {delivery} is live twice")]
    DeliveredTwice {
        /// The delivery.
        delivery: DeliveryId,
    },
}

impl Section {
    /// Kind, owner and number.
    fn tag(self) -> [u8; TAG_BYTES] {
        let (kind, owner, number) = match self {
            Self::Shard => (1, 0, 0),
            Self::Topic(topic) => (2, topic.get(), 0),
            Self::Partition(topic, number) => (3, topic.get(), number.get()),
            Self::Producers(topic) => (4, topic.get(), 0),
            Self::Path(path) => (5, path.get(), 0),
            Self::PathPartition(path, number) => (6, path.get(), number.get()),
        };
        let mut tag = [kind; TAG_BYTES];
        tag[1..9].copy_from_slice(&u64::to_be_bytes(owner));
        tag[9..].copy_from_slice(&u16::to_be_bytes(number));
        tag
    }
}

/// Appends a section whose body `fill` writes.
pub(super) fn put(out: &mut BytesMut, section: Section, fill: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_slice(&section.tag());
    out.put_u64(0);
    let body = out.len();
    fill(out);
    let length = (out.len() - body) as u64;
    out[start + TAG_BYTES..body].copy_from_slice(&length.to_be_bytes());
    let checksum = crc32c::crc32c(&out[start..]);
    out.put_u32(checksum);
}

/// Reads the sections of an image, one after another.
pub(super) struct Reader {
    bytes: Bytes,
    offset: u64,
}

impl Reader {
    /// Checks the first bytes.
    pub(super) fn open(mut bytes: Bytes) -> Result<Self, ImageError> {
        if !bytes.starts_with(&IMAGE_MAGIC) {
            return Err(ImageError::NotAnImage);
        }
        bytes.advance(IMAGE_MAGIC.len());
        match bytes.try_get_u8() {
            Ok(IMAGE_VERSION) => Ok(Self { bytes, offset: IMAGE_MAGIC.len() as u64 + 1 }),
            Ok(found) => Err(ImageError::UnknownVersion { found }),
            Err(_) => Err(ImageError::NotAnImage),
        }
    }

    /// The next section, which must be this one; its checksum is looked at before anything else in it.
    pub(super) fn section(&mut self, section: Section) -> Result<Body, ImageError> {
        let offset = self.offset;
        let too_short = ImageError::TooShort { section, offset };
        let Some((tag, mut rest)) = self.bytes.split_at_checked(TAG_BYTES) else { return Err(too_short) };
        if tag != section.tag() {
            return Err(ImageError::WrongSection { section, offset });
        }
        let length = rest.try_get_u64().ok().and_then(|length| usize::try_from(length).ok());
        let Some(length) = length.filter(|length| rest.len().checked_sub(CHECKSUM_BYTES) >= Some(*length)) else {
            return Err(too_short);
        };
        let whole = self.bytes.split_to(HEADER_BYTES + length);
        let checksum = self.bytes.get_u32();
        if crc32c::crc32c(&whole) != checksum {
            return Err(ImageError::Checksum { section, offset });
        }
        self.offset += (whole.len() + CHECKSUM_BYTES) as u64;
        Ok(Body { bytes: whole.slice(HEADER_BYTES..), section, offset })
    }

    /// Checks that nothing is left.
    pub(super) fn finish(self) -> Result<(), ImageError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(ImageError::TrailingSection { offset: self.offset }) }
    }
}

/// Checked reading of a section's fields.
#[derive(Debug)]
pub(super) struct Body {
    bytes: Bytes,
    section: Section,
    offset: u64,
}

impl Body {
    pub(super) fn u8(&mut self) -> Result<u8, ImageError> {
        self.bytes.try_get_u8().map_err(|_| self.too_short())
    }

    pub(super) fn u16(&mut self) -> Result<u16, ImageError> {
        self.bytes.try_get_u16().map_err(|_| self.too_short())
    }

    pub(super) fn u32(&mut self) -> Result<u32, ImageError> {
        self.bytes.try_get_u32().map_err(|_| self.too_short())
    }

    pub(super) fn u64(&mut self) -> Result<u64, ImageError> {
        self.bytes.try_get_u64().map_err(|_| self.too_short())
    }

    /// A number within bounds, both included.
    pub(super) fn u64_in(&mut self, field: &'static str, least: u64, most: u64) -> Result<u64, ImageError> {
        let found = self.u64()?;
        if found < least || found > most { Err(self.wrong(field, found)) } else { Ok(found) }
    }

    /// How many items of at least so many bytes follow; never more than there are bytes for.
    pub(super) fn count(&mut self, field: &'static str, least_bytes: usize) -> Result<usize, ImageError> {
        let most = self.bytes.len().saturating_sub(8) / least_bytes;
        let found = self.u64()?;
        usize::try_from(found).ok().filter(|count| *count <= most).ok_or_else(|| self.wrong(field, found))
    }

    /// UTF-8 behind a u16 length.
    pub(super) fn text(&mut self, field: &'static str) -> Result<String, ImageError> {
        let length = usize::from(self.u16()?);
        if length > self.bytes.len() {
            return Err(self.too_short());
        }
        let bytes = self.bytes.split_to(length);
        String::from_utf8(bytes.to_vec()).map_err(|error| self.wrong(field, error.utf8_error().valid_up_to() as u64))
    }

    /// The settings that were listed.
    pub(super) fn settings(&mut self) -> Result<SettingsPatch, ImageError> {
        let count = self.u8()?;
        let mut patch = SettingsPatch::default();
        for _ in 0..count {
            let number = self.u8()?;
            let rises = |setting: &Setting| patch.values.last().is_none_or(|(before, _)| before < setting);
            let Some(setting) = Setting::from_number(number).filter(rises) else {
                return Err(self.wrong("setting", u64::from(number)));
            };
            let value = self.u64()?;
            if !setting.accepts(value) {
                return Err(self.wrong(setting.key(), value));
            }
            patch.values.push((setting, value));
        }
        Ok(patch)
    }

    /// The fields of another format, which takes its own off the front.
    pub(super) fn deliveries(&mut self) -> Result<mortarmq_delivery::PathPartition, ImageError> {
        let (section, offset) = (self.section, self.offset);
        mortarmq_delivery::PathPartition::decode(&mut self.bytes).map_err(|source| ImageError::Deliveries {
            section,
            offset,
            source,
        })
    }

    /// The error for a field's value.
    pub(super) fn wrong(&self, field: &'static str, found: u64) -> ImageError {
        ImageError::Field { section: self.section, offset: self.offset, field, found }
    }

    /// Checks that every byte was read.
    pub(super) fn finish(self) -> Result<(), ImageError> {
        let (section, offset) = (self.section, self.offset);
        if self.bytes.is_empty() { Ok(()) } else { Err(ImageError::TrailingBytes { section, offset }) }
    }

    fn too_short(&self) -> ImageError {
        ImageError::TooShort { section: self.section, offset: self.offset }
    }
}

/// A text of at most 65,535 bytes behind its length: a name, which is much shorter.
pub(super) fn put_text(out: &mut BytesMut, text: &str) {
    out.put_u16(u16::try_from(text.len()).expect("names have at most 200 bytes"));
    out.put_slice(text.as_bytes());
}

/// All settings by rising number: count (1 byte), then number (1) and value (8) of each.
pub(super) fn put_settings(out: &mut BytesMut, value: impl Fn(Setting) -> u64) {
    out.put_u8(SETTINGS);
    for setting in Setting::ALL {
        out.put_u8(*setting as u8);
        out.put_u64(value(*setting));
    }
}

/// No number that counts up by one ever comes here, so a larger one is damage, and the state's arithmetic never overflows.
pub(super) const NUMBER_MAX: u64 = 1 << 62;

const TAG_BYTES: usize = 1 + 8 + 2;
const HEADER_BYTES: usize = TAG_BYTES + 8;
const CHECKSUM_BYTES: usize = 4;

#[expect(clippy::cast_possible_truncation, reason = "asserted below")]
const SETTINGS: u8 = Setting::ALL.len() as u8;
const _: () = assert!(Setting::ALL.len() <= 255);
