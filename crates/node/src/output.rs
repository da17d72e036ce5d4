//! What a node asks of its driver. Outputs are carried out in order, except that reads may take their time.

use bytes::Bytes;
use mortarmq_replica::{CatchUpMessage, PeerMessage};
use mortarmq_shard::Image;
use mortarmq_shard::record::Record;
use mortarmq_storage::{CheckpointMeta, JournalBatch, LedgerRecord, SegmentRecord, Stretch};
use mortarmq_types::{
    Attempt, Cause, ConnectionId, DeliveryId, Epoch, MonotonicTime, NodeId, Partition, Position, Seq, TopicIncarnation,
    WallTime,
};

use crate::catch_up::CatchUpWork;
use crate::config::Peer;
use crate::copies::CopyWork;
use crate::forward::message::ForwardMessage;
use crate::reply::{Failure, QueryReply, Reply};

/// One thing to do.
#[derive(Debug)]
pub enum Output {
    /// Write and fsync the batch, then call `handle_journal_written` with the number. After an error: say why and end
    /// the process (failure rule 2).
    Journal {
        /// Names this write.
        ready_number: u64,
        /// What to write.
        batch: JournalBatch,
    },
    /// Give the work to the segment writer, then call `handle_segments_written` with the ticket.
    Segments {
        /// Names this work.
        ticket: u64,
        /// What to write, in order.
        work: Vec<SegmentWork>,
    },
    /// Give the image to the segment writer, behind all work before it: it makes a checkpoint and then calls
    /// `handle_checkpoint_written`, or `handle_checkpoint_put_off` without room for it.
    Checkpoint {
        /// What the checkpoint says of itself.
        meta: CheckpointMeta,
        /// The state; encoded on the writer's thread.
        image: Box<Image>,
        /// A checkpoint that a follower fetches: neither it nor what it lists goes with this one.
        holds: Option<u64>,
    },
    /// Give the work to the segment writer, behind all work before it; it calls `handle_catch_up_done`.
    CatchUp {
        /// What to do.
        work: CatchUpWork,
    },
    /// Tell the journal that a checkpoint covers everything up to this entry: older files may go.
    ReleaseJournal {
        /// The last entry that the checkpoint covers.
        log_index: u64,
        /// Bytes of journal that stay all the same.
        keep_bytes: u64,
        /// Whether files that are kept to be used again go too, but for one: with it the next file needs no room.
        frees_spares: bool,
    },
    /// The members have changed, or are first told: files of the journal that are begun from now on say so, and whoever shows himself as an
    /// earlier life of a node is not heard any more.
    Members {
        /// What stands at the head of journal files.
        membership: Bytes,
        /// Each member, with the life of its data.
        members: Vec<Peer>,
    },
    /// Read, then call `handle_read` with the ticket.
    Read {
        /// Names this read.
        ticket: u64,
        /// What to read.
        job: ReadJob,
    },
    /// A group that nobody used is deleted: tell the operator.
    GroupExpired {
        /// The topic's name.
        topic: String,
        /// The group's name.
        group: String,
        /// Messages that it still owed.
        dropped: u64,
    },
    /// Answer requests of a connection; the answers are in the order of the requests.
    Replies {
        /// The connection.
        connection: ConnectionId,
        /// The answers.
        replies: Vec<Reply>,
    },
    /// Send messages on a connection.
    Deliveries {
        /// The connection.
        connection: ConnectionId,
        /// The subscription.
        subscription: u16,
        /// The messages, in order.
        messages: Vec<Delivery>,
    },
    /// Answer a pull, after all its messages.
    PullEnded {
        /// The connection.
        connection: ConnectionId,
        /// The subscription.
        subscription: u16,
        /// The position the answer rests on.
        position: Position,
        /// How many messages it got.
        result: Result<u16, Failure>,
    },
    /// Answer a query.
    Query {
        /// The query's number.
        query: u64,
        /// The answer.
        reply: Box<QueryReply>,
    },
    /// Send to another node, now; it calls `handle_peer`. What is lost on the way is said again where it matters.
    SendPeer {
        /// The node.
        to: NodeId,
        /// The message.
        message: PeerMessage,
    },
    /// Send to another node, now; it calls `handle_catch_up`. What is lost on the way is asked for again.
    SendCatchUp {
        /// The node.
        to: NodeId,
        /// The message.
        message: Box<CatchUpMessage>,
    },
    /// Send to another node, now; it calls `handle_forward`. As with [`Output::SendPeer`], what is lost is said again.
    SendForward {
        /// The node.
        to: NodeId,
        /// The message.
        message: ForwardMessage,
    },
    /// The node lost or won the leadership, or learned who has it.
    Role {
        /// The leader, if it is known.
        leader: Option<NodeId>,
        /// The term that it leads or that this node has seen.
        epoch: Epoch,
        /// Whether it leads.
        is_leader: bool,
    },
}

/// One thing for the segment writer.
#[derive(Clone, Debug)]
pub enum SegmentWork {
    /// Append a message.
    Append(SegmentRecord),
    /// Make a record of another one that was appended before, and append it.
    Copy(Box<CopyWork>),
    /// Append an event to the ledger.
    Ledger(LedgerRecord),
    /// Begin new segment and ledger files at this size from now on, in bytes.
    SegmentBytes(u64),
    /// Remove the files of a topic.
    DropTopic(TopicIncarnation),
    /// Let go of the files of a partition that hold nothing from a sequence on.
    Trim {
        /// The topic.
        topic: TopicIncarnation,
        /// The partition.
        partition: Partition,
        /// Nobody needs what lies below.
        below: Seq,
    },
}

/// One thing for the read pool.
#[derive(Clone, Debug)]
pub enum ReadJob {
    /// Records of `from..to` that are written, up to about `max_bytes`, at least one.
    Records {
        /// The topic.
        topic: TopicIncarnation,
        /// The partition.
        partition: Partition,
        /// The first sequence.
        from: Seq,
        /// The sequence after the last.
        to: Seq,
        /// Stop after that many bytes.
        max_bytes: u64,
    },
    /// Index entries from `from` on that are written.
    Index {
        /// The topic.
        topic: TopicIncarnation,
        /// The partition.
        partition: Partition,
        /// The first sequence.
        from: Seq,
        /// Most entries.
        max: u32,
    },
    /// The record of one message, if it is written, and every ledger event that speaks of it.
    Life {
        /// The topic.
        topic: TopicIncarnation,
        /// The partition.
        partition: Partition,
        /// The message.
        seq: Seq,
    },
    /// Bytes of a file as they are, for another node.
    File {
        /// Its path in the data directory.
        file: String,
        /// The first byte.
        offset: u64,
        /// How many.
        bytes: u32,
    },
    /// What another node needs to repair what is damaged there.
    Stretch {
        /// Where its damage begins.
        stretch: Stretch,
    },
    /// The first message of each partition that was published at a time or later.
    Since {
        /// The topic.
        topic: TopicIncarnation,
        /// Where each partition ends: the answer for one that has no such message.
        ends: Vec<Seq>,
        /// The time, by the leader's wall clock.
        time: WallTime,
    },
}

/// What a read found.
#[derive(Debug)]
pub enum ReadResult {
    /// To [`ReadJob::Records`].
    Records(Vec<mortarmq_storage::StoredRecord>),
    /// To [`ReadJob::Index`].
    Index(Vec<mortarmq_storage::IndexEntry>),
    /// To [`ReadJob::Life`].
    Life {
        /// The record, or why it cannot be read.
        record: Result<Option<mortarmq_storage::StoredRecord>, String>,
        /// The payloads of the ledger.
        ledger: Vec<bytes::Bytes>,
    },
    /// To [`ReadJob::Since`].
    Since(Vec<Seq>),
    /// To [`ReadJob::File`]: all that were asked for.
    File(bytes::Bytes),
    /// To [`ReadJob::Stretch`]: what is sound of it; nothing if it is not here.
    Stretch(Option<bytes::Bytes>),
    /// The bytes are not what was written, or could not be read: they are never served (P11).
    Failed(String),
}

/// One leased message to send.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The topic.
    pub topic: TopicIncarnation,
    /// The partition.
    pub partition: Partition,
    /// The message.
    pub seq: Seq,
    /// Names the delivery.
    pub delivery_id: DeliveryId,
    /// Which attempt it is.
    pub attempt: Attempt,
    /// Why it is delivered.
    pub cause: Cause,
    /// The delivery it follows; 0 for none.
    pub previous: DeliveryId,
    /// When the lease ends on this node's clock; the message carries what is left of it.
    pub lease_until: MonotonicTime,
    /// The moment from which on it is no longer sent but given back: half of its lease is spent (failure rule 7).
    pub send_before: MonotonicTime,
    /// When it was published, for display.
    pub published_at: WallTime,
    /// The `Deliver` it rests on.
    pub position: Position,
    /// Producer, key, headers and value, checked.
    pub record: Record,
}
