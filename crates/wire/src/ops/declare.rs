//! DECLARE: creates, finds or deletes a topic.

use bytes::BytesMut;
use mortarmq_types::{Position, TopicIncarnation};

use crate::decode::Reader;
use crate::encode::{FrameWriter, SizedFrame};
use crate::faults::{DecodeError, EncodeError};
use crate::names::{NameKind, check_name};
use crate::op::Op;

/// The request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declare<'a> {
    /// The topic's name; when decoded, within the rules.
    pub topic: &'a str,
    /// How many partitions; 0 is the cluster's default. Its range is a setting's, judged with the options.
    pub partition_count: u16,
    /// Whether the topic is to be deleted instead.
    pub delete: bool,
    /// A JSON object of topic settings; when decoded, never empty (no bytes on the wire are `{}`), but not parsed.
    pub options: &'a [u8],
}

impl<'a> Declare<'a> {
    /// Decodes the payload.
    ///
    /// # Errors
    /// Malformed for missing fields and unknown flags; then invalid topic for the name.
    pub fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let topic = reader.bytes16("topic")?;
        let partition_count = reader.u16("partition_count")?;
        let flags = reader.flags("DECLARE flags", FLAG_DELETE)?;
        let options = json_object(reader.bytes32("options")?);
        let topic = check_name(NameKind::Topic, topic)?;
        Ok(Self { topic, partition_count, delete: flags & FLAG_DELETE != 0, options })
    }

    /// Appends the whole frame. The name is judged by the server.
    ///
    /// # Errors
    /// A field or the frame that is too long; `out` is as it was.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), EncodeError> {
        let mut writer = FrameWriter::frame(out, Op::Declare);
        writer.bytes16("topic in bytes", self.topic.as_bytes());
        writer.u16(self.partition_count);
        writer.u16(if self.delete { FLAG_DELETE } else { 0 });
        writer.bytes32("options in bytes", self.options);
        writer.finish()
    }
}

/// The OK result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeclareOk {
    /// The connection's handle for the topic; 0 when a delete found nothing.
    pub topic_id: u16,
    /// How many partitions it has.
    pub partition_count: u16,
    /// Whether it existed before, with the same settings. For a delete, whether there was one to delete.
    pub existed: bool,
    /// Which life of the name this is.
    pub incarnation: TopicIncarnation,
    /// What the answer rests on.
    pub position: Position,
}

impl DeclareOk {
    /// Decodes the result.
    ///
    /// # Errors
    /// Malformed when it ends early or `existed` is neither 0 nor 1.
    pub fn decode(result: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(result);
        Ok(Self {
            topic_id: reader.u16("topic_id")?,
            partition_count: reader.u16("partition_count")?,
            existed: reader.boolean("existed")?,
            incarnation: TopicIncarnation::new(reader.u64("incarnation")?),
            position: reader.position()?,
        })
    }

    /// Appends the whole OK frame.
    pub fn encode(&self, out: &mut BytesMut) {
        SizedFrame::ok(out, Op::Declare, 29)
            .u16(self.topic_id)
            .u16(self.partition_count)
            .u8(u8::from(self.existed))
            .u64(self.incarnation.get())
            .position(self.position)
            .finish();
    }
}

/// Options of length 0 are `{}`.
pub(super) const fn json_object(options: &[u8]) -> &[u8] {
    if options.is_empty() { b"{}" } else { options }
}

const FLAG_DELETE: u16 = 1;

#[cfg(test)]
mod tests {
    use super::Declare;
    use crate::errors::ErrorCode;
    use crate::faults::DecodeError;

    #[test]
    fn options_of_length_0_are_an_empty_object() {
        let declare = Declare::decode(&[0, 1, b'a', 0, 4, 0, 0, 0, 0, 0, 0]).expect("well formed");
        assert_eq!((declare.topic, declare.partition_count, declare.delete), ("a", 4, false));
        assert_eq!(declare.options, b"{}");
    }

    #[test]
    fn forbidden_name_is_invalid_topic_and_unknown_flag_is_malformed() {
        let code = |payload| Declare::decode(payload).map_err(DecodeError::code);
        assert_eq!(code(&[0, 1, b'/', 0, 4, 0, 0, 0, 0, 0, 0]), Err(ErrorCode::InvalidTopic));
        assert_eq!(code(&[0, 0, 0, 4, 0, 0, 0, 0, 0, 0]), Err(ErrorCode::InvalidTopic));
        assert_eq!(code(&[0, 1, b'a', 0, 4, 0, 2, 0, 0, 0, 0]), Err(ErrorCode::MalformedPayload));
    }
}
