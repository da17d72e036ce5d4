//! SUB: joins a group, and creates it when it is the first.

use bytes::BytesMut;
use mortarmq_types::{MemberId, Partition, Position};

use super::declare::json_object;
use crate::decode::Reader;
use crate::encode::{FrameWriter, SizedFrame};
use crate::faults::{DecodeError, EncodeError};
use crate::names::{NameKind, check_name};
use crate::op::Op;

/// The request. Its partition field takes only [`Partition::ANY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscribe<'a> {
    /// The group's name; when decoded, within the rules.
    pub group: &'a str,
    /// The connection's handle for the topic.
    pub topic_id: u16,
    /// Where a group that is created now begins, unless the options say.
    pub start: StartPolicy,
    /// How many messages may be held unsettled by pushes: 0 pushes nothing, [`Self::GROUP_CREDIT_COUNT`] is the group's.
    pub credit_count: u16,
    /// How many bytes of them; [`Self::GROUP_CREDIT_BYTES`] is the group's.
    pub credit_bytes: u32,
    /// Whether the group is shared (any member takes any message) or exclusive (each partition has one owner).
    pub is_shared: bool,
    /// A JSON object of group settings and `resume`; when decoded, never empty, but not parsed.
    pub options: &'a [u8],
}

/// Where a new group begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum StartPolicy {
    /// The oldest message there is.
    Earliest = 0,
    /// What is published from now on.
    Latest = 1,
    /// The sequences in the options' `start`.
    FromSequence = 2,
}

impl<'a> Subscribe<'a> {
    /// `credit_count` that stands for the group's setting.
    pub const GROUP_CREDIT_COUNT: u16 = u16::MAX;
    /// `credit_bytes` that stands for the group's setting.
    pub const GROUP_CREDIT_BYTES: u32 = u32::MAX;

    /// Decodes the payload.
    ///
    /// # Errors
    /// Malformed for missing fields, unknown flags and start policies; then unknown partition, then invalid topic for
    /// the group's name.
    pub fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let group = reader.bytes16("group")?;
        let topic_id = reader.u16("topic_id")?;
        let partition = Partition::new(reader.u16("partition")?);
        let start = StartPolicy::from_number(reader.u8("start_policy")?)?;
        let credit_count = reader.u16("credit_count")?;
        let credit_bytes = reader.u32("credit_bytes")?;
        let flags = reader.flags("SUB flags", FLAG_SHARED)?;
        let options = json_object(reader.bytes32("options")?);
        if partition != Partition::ANY {
            return Err(DecodeError::UnknownPartition { found: partition.get() });
        }
        let group = check_name(NameKind::Group, group)?;
        let is_shared = flags & FLAG_SHARED != 0;
        Ok(Self { group, topic_id, start, credit_count, credit_bytes, is_shared, options })
    }

    /// Appends the whole frame. The name is judged by the server.
    ///
    /// # Errors
    /// A field or the frame that is too long; `out` is as it was.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), EncodeError> {
        let mut writer = FrameWriter::frame(out, Op::Subscribe);
        writer.bytes16("group in bytes", self.group.as_bytes());
        writer.u16(self.topic_id);
        writer.u16(Partition::ANY.get());
        writer.u8(self.start as u8);
        writer.u16(self.credit_count);
        writer.u32(self.credit_bytes);
        writer.u16(if self.is_shared { FLAG_SHARED } else { 0 });
        writer.bytes32("options in bytes", self.options);
        writer.finish()
    }
}

impl StartPolicy {
    const fn from_number(number: u8) -> Result<Self, DecodeError> {
        match number {
            0 => Ok(Self::Earliest),
            1 => Ok(Self::Latest),
            2 => Ok(Self::FromSequence),
            _ => Err(DecodeError::UnknownValue { field: "start_policy", found: number as u64, allowed: "0 to 2" }),
        }
    }
}

/// The OK result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SubscribeOk {
    /// The connection's handle for the subscription.
    pub subscription_id: u16,
    /// The member's session; at a resume the same as before.
    pub member_id: MemberId,
    /// Which membership of the group this is; 0 in a shared group.
    pub membership_epoch: u32,
    /// Which assignment of the group this is; 0 in a shared group.
    pub assignment_epoch: u32,
    /// What a resume must show.
    pub secret: u64,
    /// What the answer rests on.
    pub position: Position,
}

impl SubscribeOk {
    /// Decodes the result.
    ///
    /// # Errors
    /// Malformed when it ends early.
    pub fn decode(result: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(result);
        Ok(Self {
            subscription_id: reader.u16("subscription_id")?,
            member_id: MemberId::new(reader.u64("member_id")?),
            membership_epoch: reader.u32("membership_epoch")?,
            assignment_epoch: reader.u32("assignment_epoch")?,
            secret: reader.u64("secret")?,
            position: reader.position()?,
        })
    }

    /// Appends the whole OK frame.
    pub fn encode(&self, out: &mut BytesMut) {
        SizedFrame::ok(out, Op::Subscribe, 42)
            .u16(self.subscription_id)
            .u64(self.member_id.get())
            .u32(self.membership_epoch)
            .u32(self.assignment_epoch)
            .u64(self.secret)
            .position(self.position)
            .finish();
    }
}

/// Leaves the secret out: who has it can take over the session, and what is printed ends up in logs.
impl std::fmt::Debug for SubscribeOk {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("SubscribeOk")
            .field("subscription_id", &self.subscription_id)
            .field("member_id", &self.member_id)
            .field("membership_epoch", &self.membership_epoch)
            .field("assignment_epoch", &self.assignment_epoch)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

const FLAG_SHARED: u16 = 1;

#[cfg(test)]
mod tests {
    use super::Subscribe;
    use crate::errors::ErrorCode;
    use crate::faults::DecodeError;

    /// A SUB of group `g` on topic 1 with these fields.
    fn payload(partition: u16, start_policy: u8, flags: u16, group: &[u8]) -> Vec<u8> {
        let mut payload = vec![0, group.len() as u8];
        payload.extend_from_slice(group);
        payload.extend_from_slice(&1u16.to_be_bytes());
        payload.extend_from_slice(&partition.to_be_bytes());
        payload.push(start_policy);
        payload.extend_from_slice(&[0xFF; 6]);
        payload.extend_from_slice(&flags.to_be_bytes());
        payload.extend_from_slice(&[0; 4]);
        payload
    }

    #[test]
    fn partition_other_than_any_is_unknown_partition_and_closes_nothing() {
        let good = payload(0xFFFF, 2, 1, b"g");
        let subscribe = Subscribe::decode(&good).expect("well formed");
        assert!(subscribe.is_shared && subscribe.options == b"{}");
        assert_eq!(subscribe.credit_count, Subscribe::GROUP_CREDIT_COUNT);
        assert_eq!(subscribe.credit_bytes, Subscribe::GROUP_CREDIT_BYTES);
        for partition in [0, 1, 0xFFFE] {
            let bad = payload(partition, 2, 1, b"g");
            let error = Subscribe::decode(&bad).expect_err("a partition was named");
            assert_eq!((error.code(), error.code().closes()), (ErrorCode::UnknownPartition, false));
        }
    }

    #[test]
    fn unknown_start_policy_and_flags_are_malformed_and_a_bad_name_is_invalid_topic() {
        let code = |payload: &[u8]| Subscribe::decode(payload).map(|_| ()).map_err(DecodeError::code);
        assert_eq!(code(&payload(0xFFFF, 3, 1, b"g")), Err(ErrorCode::MalformedPayload));
        assert_eq!(code(&payload(0xFFFF, 0, 2, b"g")), Err(ErrorCode::MalformedPayload));
        assert_eq!(code(&payload(0xFFFF, 0, 0, b"$g")), Err(ErrorCode::InvalidTopic));
        assert_eq!(code(&payload(0xFFFF, 0, 0, b"g")), Ok(()));
    }

    #[test]
    fn printing_a_subscription_does_not_print_its_secret() {
        let result: Vec<u8> = (0..42).collect();
        let subscribed = super::SubscribeOk::decode(&result).expect("well formed");
        assert_ne!(subscribed.secret, 0);
        let text = format!("{subscribed:?}");
        assert!(text.contains("member_id") && !text.contains(&subscribed.secret.to_string()), "{text}");
    }
}
