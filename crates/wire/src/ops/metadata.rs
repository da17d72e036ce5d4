//! METADATA: nodes and topics, and handles for the topics.

use bytes::BytesMut;
use mortarmq_types::{Epoch, NodeId, Position, TopicIncarnation};

use crate::decode::Reader;
use crate::encode::FrameWriter;
use crate::faults::{DecodeError, EncodeError};
use crate::list::{List, ListItem};
use crate::op::Op;

/// The request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata<'a> {
    /// The names that are asked for, any bytes; none asks for all topics. A name that no topic has is left out of the
    /// answer, so that names need not be within the rules.
    pub topics: List<'a, &'a [u8]>,
}

impl<'a> Metadata<'a> {
    /// Decodes the payload.
    ///
    /// # Errors
    /// Malformed for missing fields.
    pub fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let count = usize::from(reader.u16("METADATA count")?);
        Ok(Self { topics: List::read(&mut reader, count)? })
    }

    /// Appends the whole frame.
    ///
    /// # Errors
    /// Over 65535 names, a name over 65535 bytes, or more than a frame holds; `out` is as it was.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), EncodeError> {
        let mut writer = FrameWriter::frame(out, Op::Metadata);
        writer.list16("METADATA count", &self.topics);
        writer.finish()
    }
}

/// The OK result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataOk<'a> {
    /// The cluster's nodes.
    pub nodes: List<'a, MetadataNode<'a>>,
    /// The topics that exist, of those that were asked for.
    pub topics: List<'a, MetadataTopic<'a>>,
    /// What the answer rests on.
    pub position: Position,
}

/// A node of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataNode<'a> {
    /// The node.
    pub node_id: NodeId,
    /// Where it takes clients: host and port.
    pub client_address: &'a str,
}

/// A topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataTopic<'a> {
    /// The connection's handle for the topic.
    pub topic_id: u16,
    /// Which life of the name this is.
    pub incarnation: TopicIncarnation,
    /// Its name.
    pub name: &'a str,
    /// How many partitions it has.
    pub partition_count: u16,
    /// Whether it is being deleted.
    pub state: TopicState,
    /// The leader's term in which it was created.
    pub created_epoch: Epoch,
    /// The node that leads it.
    pub leader_id: NodeId,
    /// That leader's term.
    pub leader_epoch: Epoch,
}

/// Whether a topic is being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TopicState {
    /// It is in use.
    Active = 0,
    /// It is being deleted.
    Deleting = 1,
}

impl<'a> MetadataOk<'a> {
    /// Decodes the result; every item is checked.
    ///
    /// # Errors
    /// Malformed for missing fields, unknown states, and names or addresses that are not UTF-8.
    pub fn decode(result: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(result);
        let node_count = usize::from(reader.u16("node count")?);
        let nodes = List::read(&mut reader, node_count)?;
        let topic_count = usize::from(reader.u16("topic count")?);
        let topics = List::read(&mut reader, topic_count)?;
        Ok(Self { nodes, topics, position: reader.position()? })
    }

    /// Appends the whole OK frame.
    ///
    /// # Errors
    /// Over 65535 nodes or topics, or more than a frame holds; `out` is as it was.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), EncodeError> {
        let mut writer = FrameWriter::ok(out, Op::Metadata);
        writer.list16("node count", &self.nodes);
        writer.list16("topic count", &self.topics);
        writer.position(self.position);
        writer.finish()
    }
}

impl<'a> ListItem<'a> for MetadataNode<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self { node_id: NodeId::new(reader.u16("node_id")?), client_address: reader.text16("client address")? })
    }

    fn write(&self, writer: &mut FrameWriter<'_>) {
        writer.u16(self.node_id.get());
        writer.bytes16("client address in bytes", self.client_address.as_bytes());
    }
}

impl<'a> ListItem<'a> for MetadataTopic<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            topic_id: reader.u16("topic_id")?,
            incarnation: TopicIncarnation::new(reader.u64("incarnation")?),
            name: reader.text16("name")?,
            partition_count: reader.u16("partition_count")?,
            state: if reader.boolean("state")? { TopicState::Deleting } else { TopicState::Active },
            created_epoch: Epoch::new(reader.u64("created_epoch")?),
            leader_id: NodeId::new(reader.u16("leader node_id")?),
            leader_epoch: Epoch::new(reader.u64("leader_epoch")?),
        })
    }

    fn write(&self, writer: &mut FrameWriter<'_>) {
        writer.u16(self.topic_id);
        writer.u64(self.incarnation.get());
        writer.bytes16("name in bytes", self.name.as_bytes());
        writer.u16(self.partition_count);
        writer.u8(self.state as u8);
        writer.u64(self.created_epoch.get());
        writer.u16(self.leader_id.get());
        writer.u64(self.leader_epoch.get());
    }
}
