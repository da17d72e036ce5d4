//! One file per op. This one is only the list.

pub mod ack;
pub mod connect;
pub mod credit;
pub mod declare;
pub mod error;
pub mod heartbeat;
pub mod message;
pub mod metadata;
pub mod nack;
pub mod ok;
pub mod ping;
pub mod publish;
pub mod publish_batch;
pub mod pull;
pub mod settle;
pub mod subscribe;

pub use ack::{Ack, AckOk, DeliveryRef};
pub use connect::{Connect, ConnectOk};
pub use credit::{Credit, CreditMode, CreditOk};
pub use declare::{Declare, DeclareOk};
pub use error::ErrorAnswer;
pub use heartbeat::{Heartbeat, HeartbeatOk, HeartbeatState};
pub use message::Message;
pub use metadata::{Metadata, MetadataNode, MetadataOk, MetadataTopic, TopicState};
pub use nack::{Nack, NackOk, NackReason};
pub use ok::OkAnswer;
pub use ping::{Ping, PingOk};
pub use publish::{Publish, PublishOk, PublishOptions};
pub use publish_batch::{PublishBatch, PublishBatchOk, PublishRecord, RecordOk};
pub use pull::{Pull, PullOk};
pub use settle::{ItemCode, Settle, SettleItem, SettleKind, SettleOk};
pub use subscribe::{StartPolicy, Subscribe, SubscribeOk};

use crate::faults::DecodeError;
use crate::op::Op;

/// What a client sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// CONNECT.
    Connect(Connect<'a>),
    /// PING.
    Ping(Ping),
    /// DECLARE.
    Declare(Declare<'a>),
    /// METADATA.
    Metadata(Metadata<'a>),
    /// PUB.
    Publish(Publish<'a>),
    /// PUB_BATCH.
    PublishBatch(PublishBatch<'a>),
    /// SUB.
    Subscribe(Subscribe<'a>),
    /// CREDIT.
    Credit(Credit),
    /// PULL.
    Pull(Pull<'a>),
    /// SETTLE.
    Settle(Settle<'a>),
    /// HEARTBEAT.
    Heartbeat(Heartbeat),
    /// ACK.
    Ack(Ack),
    /// NACK.
    Nack(Nack<'a>),
    /// ERR from a client: to be dropped without an answer. Its payload is not looked at.
    ClientError,
}

impl<'a> Request<'a> {
    /// Decodes what a server received.
    ///
    /// # Errors
    /// [`DecodeError`], whose code answers the request and says whether the connection closes. Ops of servers and ops
    /// without a codec are `UNKNOWN_OP`.
    #[inline]
    pub fn decode(op: u8, payload: &'a [u8]) -> Result<Self, DecodeError> {
        let op = Op::from_number(op).ok_or(DecodeError::UnknownOp { number: op })?;
        Ok(match op {
            Op::Publish => Self::Publish(Publish::decode(payload)?),
            Op::Settle => Self::Settle(Settle::decode(payload)?),
            Op::PublishBatch => Self::PublishBatch(PublishBatch::decode(payload)?),
            Op::Ack => Self::Ack(Ack::decode(payload)?),
            Op::Nack => Self::Nack(Nack::decode(payload)?),
            Op::Credit => Self::Credit(Credit::decode(payload)?),
            Op::Pull => Self::Pull(Pull::decode(payload)?),
            Op::Heartbeat => Self::Heartbeat(Heartbeat::decode(payload)?),
            Op::Ping => Self::Ping(Ping),
            Op::Connect => Self::Connect(Connect::decode(payload)?),
            Op::Declare => Self::Declare(Declare::decode(payload)?),
            Op::Metadata => Self::Metadata(Metadata::decode(payload)?),
            Op::Subscribe => Self::Subscribe(Subscribe::decode(payload)?),
            Op::Err => Self::ClientError,
            Op::Ok | Op::Message | Op::Notice | Op::ControlAck | Op::Transaction => {
                return Err(DecodeError::UnsupportedOp { op });
            }
        })
    }

    /// The op that was sent.
    #[must_use]
    pub const fn op(&self) -> Op {
        match self {
            Self::Connect(_) => Op::Connect,
            Self::Ping(_) => Op::Ping,
            Self::Declare(_) => Op::Declare,
            Self::Metadata(_) => Op::Metadata,
            Self::Publish(_) => Op::Publish,
            Self::PublishBatch(_) => Op::PublishBatch,
            Self::Subscribe(_) => Op::Subscribe,
            Self::Credit(_) => Op::Credit,
            Self::Pull(_) => Op::Pull,
            Self::Settle(_) => Op::Settle,
            Self::Heartbeat(_) => Op::Heartbeat,
            Self::Ack(_) => Op::Ack,
            Self::Nack(_) => Op::Nack,
            Self::ClientError => Op::Err,
        }
    }
}

/// What a server sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerFrame<'a> {
    /// OK. The result is decoded with the type of the request it answers, such as [`PublishOk`].
    Ok(OkAnswer<'a>),
    /// ERR.
    Error(ErrorAnswer<'a>),
    /// MSG.
    Message(Message<'a>),
}

impl<'a> ServerFrame<'a> {
    /// Decodes what a client received.
    ///
    /// # Errors
    /// [`DecodeError`]; the client closes the connection, as it cannot know what it missed.
    #[inline]
    pub fn decode(op: u8, payload: &'a [u8]) -> Result<Self, DecodeError> {
        match Op::from_number(op).ok_or(DecodeError::UnknownOp { number: op })? {
            Op::Message => Message::decode(payload).map(Self::Message),
            Op::Ok => OkAnswer::decode(payload).map(Self::Ok),
            Op::Err => ErrorAnswer::decode(payload).map(Self::Error),
            op => Err(DecodeError::UnsupportedOp { op }),
        }
    }
}
