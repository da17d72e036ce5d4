//! What METADATA tells a client.

use mortarmq_shard::State;
use mortarmq_types::{Epoch, NodeId, TopicIncarnation};

/// Topics and where they are led.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataView {
    /// The node that leads all of them.
    pub leader: NodeId,
    /// Its term.
    pub leader_epoch: Epoch,
    /// The topics; names that do not exist are left out.
    pub topics: Vec<TopicMetadata>,
}

/// One topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicMetadata {
    /// The incarnation, for which the edge has or gives a handle.
    pub topic: TopicIncarnation,
    /// The name.
    pub name: String,
    /// How many partitions.
    pub partitions: u16,
    /// The leader's term when it was made.
    pub created_epoch: Epoch,
}

pub(crate) fn view(state: &State, leader: NodeId, leader_epoch: Epoch, names: &[String]) -> MetadataView {
    let topics = state
        .topics
        .iter()
        .filter(|(_, topic)| names.is_empty() || names.contains(&topic.name))
        .map(|(id, topic)| TopicMetadata {
            topic: *id,
            name: topic.name.clone(),
            partitions: u16::try_from(topic.partitions.len()).expect("at most 1024 partitions"),
            created_epoch: topic.created_epoch,
        })
        .collect();
    MetadataView { leader, leader_epoch, topics }
}
