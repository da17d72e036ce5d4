//! Messages without leases: `GET /v1/topics/{topic}/peek`.

use bytes::Bytes;
use mortarmq_shard::record::Record;

/// The messages found, from the first sequence asked for on.
#[derive(Clone, Debug)]
pub struct PeekView {
    /// The topic's name.
    pub topic: String,
    /// The messages, ascending.
    pub messages: Vec<PeekedMessage>,
}

/// One stored message.
#[derive(Clone, Debug)]
pub struct PeekedMessage {
    /// The partition.
    pub partition: u16,
    /// The sequence.
    pub sequence: u64,
    /// When it was published, for display.
    pub published_at_ms: u64,
    /// The command that stored it.
    pub commit_index: u64,
    /// Under which leader.
    pub epoch: u64,
    /// Producer, key, headers and value, checked.
    pub record: Record,
    /// The key; empty for none.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
    /// Names and values of the headers.
    pub headers: Vec<(Bytes, Bytes)>,
}
