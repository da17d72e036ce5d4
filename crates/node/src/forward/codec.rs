//! The bytes of a message about forwarded requests.
//!
//! All numbers are big-endian; a text is its length as u32 and UTF-8. A message names its own length and ends with a checksum of
//! everything before. Publishes are checked command by command: they go into the log as they are.
//!
//! | at | field | meaning, and the fault it guards against |
//! |---|---|---|
//! | 0 | magic `MMQF`, version u16 | another protocol, another version |
//! | 6 | kind u8, flags u8 | 1 requests, 2 answers; no flag has a meaning, any other value is refused |
//! | 8 | bytes u32 | its whole length |
//! | 12 | shard u32 | a message of another shard |
//! | 16 | from u64, to u64 | Raft ids: an earlier life of a node's data is another |
//! | 32 | incarnation u64, epoch u64 | the stream: nothing of an earlier process or office is taken |
//! | 48 | number u64 | of the first request; or the highest that is taken |
//! | 56 | answered u64 | up to where the forwarder has the answers; 0 in answers |
//! | 64 | count u32 | requests, or answers |
//! | 68 | requests | kind u8: 1 topic u64, commands u32, their bytes (u32 length); 2 name, partitions u16, options; 3 name; 4 count u32, names |
//! | | answers | number u64, places u32, and for each epoch u64, commit_index u64, kind u8: 0 code u16, outcome u8, retry_after_ms u32, text; 1 topic u64, name, partitions u16, existed u8; 2 existed u8; 3 leader u16, leader_epoch u64, count u32, each topic u64, name, partitions u16, created_epoch u64; 4 a published message; 5 count u32 of them: partition u16, sequence u64, deduplicated u8 |
//! | end − 4 | crc u32 | CRC32C of all the above |

use bytes::{Buf, BufMut, Bytes, BytesMut};
use mortarmq_shard::{CommandError, PublishRun, Published};
use mortarmq_types::{CommitIndex, Epoch, NodeId, Partition, Position, Seq, ShardId, TopicIncarnation};
use mortarmq_wire::{ErrorCode, Outcome};
use thiserror::Error;

use super::message::{ForwardBody, ForwardMessage, StreamId};
use crate::reply::{Answer, Failure, Reply};
use crate::request::Request;
use crate::views::metadata::{MetadataView, TopicMetadata};

/// Why bytes are no message about forwarded requests. They must be dropped; what matters is said again.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ForwardBytesError {
    /// They are not as many as they say, or too few for anything.
    #[error("a forwarding message of {found} bytes should have {expected}")]
    Length {
        /// How many there are.
        found: usize,
        /// How many there should be.
        expected: u64,
    },
    /// They do not begin as a message does.
    #[error("a forwarding message begins with {found:08x}, not with MMQF")]
    Magic {
        /// The first four bytes.
        found: u32,
    },
    /// A version that this build does not know (P11).
    #[error("a forwarding message of version {found}; this build reads version {VERSION}")]
    UnknownVersion {
        /// The version found.
        found: u16,
    },
    /// They were changed on the way.
    #[error("a forwarding message whose checksum does not fit")]
    Checksum,
    /// A value that this version has no meaning for.
    #[error("a forwarding message with the unknown {field} {found}")]
    Unknown {
        /// The field.
        field: &'static str,
        /// The value found.
        found: u64,
    },
    /// The pieces do not add up to the whole, though the checksum fits.
    #[error("a forwarding message whose pieces do not fit its length")]
    Pieces,
    /// A text is no text.
    #[error("a forwarding message with a text that is not UTF-8")]
    Text,
    /// A publish is none.
    #[error("a forwarding message with a publish that cannot be read")]
    Publish(#[source] CommandError),
}

impl ForwardMessage {
    /// Whether bytes begin as a message of this kind does.
    #[must_use]
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC.to_be_bytes())
    }

    /// Appends the bytes of the message.
    ///
    /// # Panics
    /// When it holds a request that is not forwarded, or an answer to one.
    pub fn encode(&self, shard: ShardId, out: &mut BytesMut) {
        let begin = out.len();
        let (kind, number, answered, count) = match &self.body {
            ForwardBody::Ask { first, answered, requests } => (KIND_ASK, *first, *answered, requests.len()),
            ForwardBody::Answers { taken, answers } => (KIND_ANSWERS, *taken, 0, answers.len()),
        };
        out.put_u32(MAGIC);
        out.put_u16(VERSION);
        out.put_u8(kind);
        out.put_u8(0);
        out.put_u32(0);
        out.put_u32(shard.get());
        for number in [self.from, self.to, self.stream.incarnation, self.stream.epoch.get(), number, answered] {
            out.put_u64(number);
        }
        put_count(out, count);
        match &self.body {
            ForwardBody::Ask { requests, .. } => requests.iter().for_each(|request| put_request(out, request)),
            ForwardBody::Answers { answers, .. } => {
                for (number, replies) in answers {
                    out.put_u64(*number);
                    put_count(out, replies.len());
                    replies.iter().for_each(|reply| put_reply(out, reply));
                }
            }
        }
        let bytes = u32::try_from(out.len() - begin + CRC_BYTES).expect("a message is a few frames at most");
        out[begin + LENGTH_AT..begin + LENGTH_AT + 4].copy_from_slice(&bytes.to_be_bytes());
        let crc = crc32c::crc32c(&out[begin..]);
        out.put_u32(crc);
    }

    /// Reads a message that is exactly these bytes.
    ///
    /// # Errors
    /// [`ForwardBytesError`] for whatever [`ForwardMessage::encode`] does not write.
    /// # Source
    /// P11: what a publish says goes into the log.
    pub fn decode(bytes: Bytes) -> Result<(ShardId, Self), ForwardBytesError> {
        let mut fields = Fields(open(bytes)?);
        fields.0.advance(KIND_AT);
        let kind = fields.u8()?;
        let flags = fields.u8()?;
        if flags != 0 {
            return Err(ForwardBytesError::Unknown { field: "flags", found: u64::from(flags) });
        }
        fields.u32()?;
        let shard = ShardId::new(fields.u32()?);
        let (from, to) = (fields.u64()?, fields.u64()?);
        let stream = StreamId { incarnation: fields.u64()?, epoch: Epoch::new(fields.u64()?) };
        let (number, answered) = (fields.u64()?, fields.u64()?);
        let body = match kind {
            // So that no number behind it overflows.
            KIND_ASK if number == 0 || number > NUMBER_MAX => {
                return Err(ForwardBytesError::Unknown { field: "number", found: number });
            }
            KIND_ASK => ForwardBody::Ask { first: number, answered, requests: fields.list(Fields::request)? },
            KIND_ANSWERS if answered == 0 => {
                let answers = fields.list(|fields| Ok((fields.u64()?, fields.list(Fields::reply)?)))?;
                ForwardBody::Answers { taken: number, answers }
            }
            KIND_ANSWERS => return Err(ForwardBytesError::Unknown { field: "answered", found: answered }),
            other => return Err(ForwardBytesError::Unknown { field: "kind", found: u64::from(other) }),
        };
        if fields.0.is_empty() { Ok((shard, Self { from, to, stream, body })) } else { Err(ForwardBytesError::Pieces) }
    }
}

/// Checks what a message says of itself as a whole; the bytes without the checksum.
fn open(mut bytes: Bytes) -> Result<Bytes, ForwardBytesError> {
    let found = bytes.len();
    let least = HEADER_BYTES + CRC_BYTES;
    if found < least {
        return Err(ForwardBytesError::Length { found, expected: least as u64 });
    }
    let mut head = &bytes[..HEADER_BYTES];
    let (magic, version) = (head.get_u32(), head.get_u16());
    if magic != MAGIC {
        return Err(ForwardBytesError::Magic { found: magic });
    }
    if version != VERSION {
        return Err(ForwardBytesError::UnknownVersion { found: version });
    }
    head.advance(LENGTH_AT - KIND_AT);
    let expected = head.get_u32();
    if expected as usize != found {
        return Err(ForwardBytesError::Length { found, expected: u64::from(expected) });
    }
    let mut crc = bytes.split_off(found - CRC_BYTES);
    if crc.get_u32() != crc32c::crc32c(&bytes) {
        return Err(ForwardBytesError::Checksum);
    }
    Ok(bytes)
}

fn put_count(out: &mut BytesMut, count: usize) {
    out.put_u32(u32::try_from(count).expect("counts are bounded by windows"));
}

fn put_text(out: &mut BytesMut, text: &str) {
    put_count(out, text.len());
    out.put_slice(text.as_bytes());
}

fn put_request(out: &mut BytesMut, request: &Request) {
    match request {
        Request::Publish(run) => {
            out.put_u8(REQUEST_PUBLISH);
            out.put_u64(run.topic.get());
            out.put_u32(run.count);
            put_count(out, run.commands.len());
            out.put_slice(&run.commands);
        }
        Request::Declare { name, partitions, options } => {
            out.put_u8(REQUEST_DECLARE);
            put_text(out, name);
            out.put_u16(*partitions);
            put_text(out, options);
        }
        Request::Delete { name } => {
            out.put_u8(REQUEST_DELETE);
            put_text(out, name);
        }
        Request::Metadata { names } => {
            out.put_u8(REQUEST_METADATA);
            put_count(out, names.len());
            names.iter().for_each(|name| put_text(out, name));
        }
        other @ (Request::Ping
        | Request::Refused(_)
        | Request::Subscribe(_)
        | Request::Credit { .. }
        | Request::Pull { .. }
        | Request::Settle { .. }
        | Request::Heartbeat { .. }) => panic!("{other:?} is not forwarded"),
    }
}

fn put_reply(out: &mut BytesMut, reply: &Reply) {
    out.put_u64(reply.position.epoch.get());
    out.put_u64(reply.position.commit_index.get());
    match &reply.result {
        Err(failure) => {
            out.put_u8(REPLY_FAILURE);
            out.put_u16(failure.code.number());
            out.put_u8(failure.outcome.number());
            out.put_u32(failure.retry_after_ms);
            put_text(out, &failure.message);
        }
        Ok(Answer::Declared { topic, name, partitions, existed }) => {
            out.put_u8(REPLY_DECLARED);
            out.put_u64(topic.get());
            put_text(out, name);
            out.put_u16(*partitions);
            out.put_u8(u8::from(*existed));
        }
        Ok(Answer::Deleted { existed }) => {
            out.put_u8(REPLY_DELETED);
            out.put_u8(u8::from(*existed));
        }
        Ok(Answer::Metadata(view)) => {
            out.put_u8(REPLY_METADATA);
            out.put_u16(view.leader.get());
            out.put_u64(view.leader_epoch.get());
            put_count(out, view.topics.len());
            for topic in &view.topics {
                out.put_u64(topic.topic.get());
                put_text(out, &topic.name);
                out.put_u16(topic.partitions);
                out.put_u64(topic.created_epoch.get());
            }
        }
        Ok(Answer::Published(published)) => {
            out.put_u8(REPLY_PUBLISHED);
            put_published(out, published);
        }
        Ok(Answer::PublishedBatch(published)) => {
            out.put_u8(REPLY_BATCH);
            put_count(out, published.len());
            published.iter().for_each(|published| put_published(out, published));
        }
        Ok(
            other @ (Answer::Pong
            | Answer::Subscribed { .. }
            | Answer::Credit(_)
            | Answer::Settled(_)
            | Answer::Heartbeat),
        ) => {
            panic!("{other:?} is no answer to what is forwarded")
        }
    }
}

fn put_published(out: &mut BytesMut, published: &Published) {
    out.put_u16(published.partition.get());
    out.put_u64(published.seq.get());
    out.put_u8(u8::from(published.deduplicated));
}

/// What is left to read.
struct Fields(Bytes);

type Read<T> = Result<T, ForwardBytesError>;

impl Fields {
    fn take(&mut self, count: usize) -> Read<Bytes> {
        if count > self.0.len() { Err(ForwardBytesError::Pieces) } else { Ok(self.0.split_to(count)) }
    }

    fn u8(&mut self) -> Read<u8> {
        Ok(self.take(1)?.get_u8())
    }

    fn u16(&mut self) -> Read<u16> {
        Ok(self.take(2)?.get_u16())
    }

    fn u32(&mut self) -> Read<u32> {
        Ok(self.take(4)?.get_u32())
    }

    fn u64(&mut self) -> Read<u64> {
        Ok(self.take(8)?.get_u64())
    }

    fn flag(&mut self, field: &'static str) -> Read<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(ForwardBytesError::Unknown { field, found: u64::from(other) }),
        }
    }

    fn text(&mut self) -> Read<String> {
        let count = self.u32()? as usize;
        String::from_utf8(self.take(count)?.to_vec()).map_err(|_| ForwardBytesError::Text)
    }

    /// A list. Each item takes some of the bytes that are there, and room is made as they come.
    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        let count = self.u32()?;
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(item(self)?);
        }
        Ok(list)
    }

    fn request(&mut self) -> Read<Request> {
        match self.u8()? {
            REQUEST_PUBLISH => {
                let (topic, count) = (TopicIncarnation::new(self.u64()?), self.u32()?);
                let bytes = self.u32()? as usize;
                let run = PublishRun { topic, count, commands: self.take(bytes)? };
                if count == 0 {
                    return Err(ForwardBytesError::Unknown { field: "commands", found: 0 });
                }
                run.check().map_err(ForwardBytesError::Publish)?;
                Ok(Request::Publish(run))
            }
            REQUEST_DECLARE => {
                Ok(Request::Declare { name: self.text()?, partitions: self.u16()?, options: self.text()? })
            }
            REQUEST_DELETE => Ok(Request::Delete { name: self.text()? }),
            REQUEST_METADATA => Ok(Request::Metadata { names: self.list(Self::text)? }),
            other => Err(ForwardBytesError::Unknown { field: "request", found: u64::from(other) }),
        }
    }

    fn reply(&mut self) -> Read<Reply> {
        let position = Position { epoch: Epoch::new(self.u64()?), commit_index: CommitIndex::new(self.u64()?) };
        let result = match self.u8()? {
            REPLY_FAILURE => Err(self.failure()?),
            REPLY_DECLARED => Ok(Answer::Declared {
                topic: TopicIncarnation::new(self.u64()?),
                name: self.text()?,
                partitions: self.u16()?,
                existed: self.flag("existed")?,
            }),
            REPLY_DELETED => Ok(Answer::Deleted { existed: self.flag("existed")? }),
            REPLY_METADATA => Ok(Answer::Metadata(MetadataView {
                leader: NodeId::new(self.u16()?),
                leader_epoch: Epoch::new(self.u64()?),
                topics: self.list(Self::topic)?,
            })),
            REPLY_PUBLISHED => Ok(Answer::Published(self.published()?)),
            REPLY_BATCH => Ok(Answer::PublishedBatch(self.list(Self::published)?)),
            other => return Err(ForwardBytesError::Unknown { field: "reply", found: u64::from(other) }),
        };
        Ok(Reply { position, result })
    }

    fn failure(&mut self) -> Read<Failure> {
        let (code, outcome, retry_after_ms) = (self.u16()?, self.u8()?, self.u32()?);
        let unknown = |field, found| ForwardBytesError::Unknown { field, found };
        Ok(Failure {
            code: ErrorCode::from_number(code).ok_or_else(|| unknown("code", u64::from(code)))?,
            outcome: Outcome::from_number(outcome).ok_or_else(|| unknown("outcome", u64::from(outcome)))?,
            message: self.text()?,
            retry_after_ms,
        })
    }

    fn topic(&mut self) -> Read<TopicMetadata> {
        Ok(TopicMetadata {
            topic: TopicIncarnation::new(self.u64()?),
            name: self.text()?,
            partitions: self.u16()?,
            created_epoch: Epoch::new(self.u64()?),
        })
    }

    fn published(&mut self) -> Read<Published> {
        Ok(Published {
            partition: Partition::new(self.u16()?),
            seq: Seq::new(self.u64()?),
            deduplicated: self.flag("deduplicated")?,
        })
    }
}

const MAGIC: u32 = u32::from_be_bytes(*b"MMQF");
const VERSION: u16 = 1;
const KIND_AT: usize = 6;
const LENGTH_AT: usize = 8;
const HEADER_BYTES: usize = 68;
const CRC_BYTES: usize = 4;
const KIND_ASK: u8 = 1;
const KIND_ANSWERS: u8 = 2;
/// No office lasts for so many requests.
const NUMBER_MAX: u64 = 1 << 62;

const REQUEST_PUBLISH: u8 = 1;
const REQUEST_DECLARE: u8 = 2;
const REQUEST_DELETE: u8 = 3;
const REQUEST_METADATA: u8 = 4;

const REPLY_FAILURE: u8 = 0;
const REPLY_DECLARED: u8 = 1;
const REPLY_DELETED: u8 = 2;
const REPLY_METADATA: u8 = 3;
const REPLY_PUBLISHED: u8 = 4;
const REPLY_BATCH: u8 = 5;

#[cfg(test)]
mod tests;
