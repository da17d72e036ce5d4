//! What names things: shards, nodes, topics, partitions, paths, members, producers, keys.

use crate::numbers::{number, step};

number! {
    /// One replicated state machine. Version 0.1 has one shard, number 0.
    ShardId(u32)
}

number! {
    /// A node of the cluster, as in its configuration.
    NodeId(u16)
}

number! {
    /// One life of a topic: a topic deleted and made again has another. Never reused; 16 hex digits in text.
    TopicIncarnation(u64)
}
step!(TopicIncarnation(u64));

impl TopicIncarnation {
    /// The text form: 16 lowercase hex digits.
    #[must_use]
    pub fn to_hex(self) -> String {
        format!("{:016x}", self.get())
    }
}

number! {
    /// A partition of a topic, from 0.
    Partition(u16)
}

impl Partition {
    /// The value by which a client leaves the choice to the broker (0xFFFF on the wire).
    pub const ANY: Self = Self::MAX;

    /// The partition at a place in its topic's list.
    ///
    /// # Panics
    /// Beyond 65,535: a topic has at most 1,024 partitions.
    #[must_use]
    pub const fn from_index(index: usize) -> Self {
        assert!(index <= u16::MAX as usize, "a topic has at most 1,024 partitions");
        Self::new(index as u16)
    }

    /// Its place in its topic's list.
    #[must_use]
    pub const fn index(self) -> usize {
        self.get() as usize
    }
}

number! {
    /// One durable obligation on a topic: one life of a consumer group. Never reused within a shard.
    PathId(u64)
}
step!(PathId(u64));

number! {
    /// A consumer's session on a path: 63 random bits drawn by the node that takes the subscription.
    MemberId(u64)
}

number! {
    /// A producer's identity: 63 random bits drawn once by the client; 0 means "not idempotent".
    ProducerId(u64)
}

number! {
    /// One client connection of a node, for as long as the process lives.
    ConnectionId(u64)
}
step!(ConnectionId(u64));

number! {
    /// 64 bits of a message key's hash; the lower half places the key in a partition. 0 without a key.
    KeyHash(u64)
}

impl KeyHash {
    /// No key: such messages neither wait nor make others wait.
    pub const NONE: Self = Self::ZERO;

    /// Whether the message has a key.
    #[must_use]
    pub const fn is_some(self) -> bool {
        self.get() != 0
    }
}
