//! What was recorded, small: names are numbers, message ids and keys are 64-bit hashes.

pub(crate) use mortarmq_history::{Cause, NackTo, OperateKind, Outcome};

use crate::location::Location;
use crate::span::{Span, Timed};

/// The number of a path, topic or client.
pub(crate) type Name = u32;
/// The hash of a message's id. Two of ten million ids share one with a probability of 3 in a million.
pub(crate) type MsgId = u64;
/// A place of a message in its topic.
pub(crate) type Position = (u32, u64);

/// Whether an operator brought the pair back, so that its attempts start again.
pub(crate) fn is_brought_back(cause: Option<Cause>) -> bool {
    matches!(cause, Some(Cause::Redriven | Cause::Replayed))
}

/// A message sent to a topic.
#[derive(Debug, Clone)]
pub(crate) struct Publish {
    pub span: Span,
    /// When it may have been stored: as its span says, but a duplicate was stored at an earlier index. An attempt that is not
    /// recorded may have done it, as a node that forwards a publish repeats it.
    pub stored: Span,
    pub outcome: Outcome,
    pub topic: Name,
    pub key: Option<u64>,
    pub position: Option<Position>,
    /// Producer id and sequence, if both were given and the id is not 0.
    pub identity: Option<(u64, u64)>,
    pub delay_ms: u64,
    pub is_duplicate: bool,
    pub hash: Option<u64>,
    pub txn: Option<u64>,
    pub at: Location,
}

/// A message received on a path.
#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    pub span: Span,
    pub path: Name,
    pub client: Name,
    pub key: Option<u64>,
    pub position: Option<Position>,
    pub id: Option<u64>,
    pub attempt: Option<u64>,
    pub cause: Option<Cause>,
    pub prev: Option<u64>,
    pub lease_ms: Option<u64>,
    pub hash: Option<u64>,
    /// The path a dead letter died on.
    pub origin: Option<Name>,
    pub at: Location,
}

/// What a consumer says of a lease it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SettleKind {
    /// Done.
    Ack,
    /// Not done.
    Nack(NackTo),
    /// Not done yet; the lease begins anew, for so long.
    Extend(Option<u64>),
}

/// An ack, nack or extend.
#[derive(Debug, Clone)]
pub(crate) struct Settle {
    pub span: Span,
    pub outcome: Outcome,
    pub kind: SettleKind,
    pub path: Name,
    pub client: Name,
    pub delivery_id: Option<u64>,
    pub txn: Option<u64>,
    pub at: Location,
}

impl Settle {
    /// Whether it may have taken effect.
    pub(crate) fn may_hold(&self) -> bool {
        self.outcome != Outcome::Refused
    }

    /// Whether it is an ack that was or may have been taken.
    pub(crate) fn may_ack(&self) -> bool {
        self.kind == SettleKind::Ack && self.may_hold()
    }

    /// Whether it is an ack answered ok.
    pub(crate) fn is_ok_ack(&self) -> bool {
        self.kind == SettleKind::Ack && self.outcome == Outcome::Ok
    }

    /// Whether it is a nack to the dead letters that was answered ok.
    pub(crate) fn is_ok_kill(&self) -> bool {
        self.kind == SettleKind::Nack(NackTo::Dead) && self.outcome == Outcome::Ok
    }

    /// Whether it is a nack to the dead letters that was or may have been taken.
    pub(crate) fn may_kill(&self) -> bool {
        self.kind == SettleKind::Nack(NackTo::Dead) && self.may_hold()
    }
}

/// A record of an operator's act, or of the end of a consumer.
#[derive(Debug, Clone)]
pub(crate) struct Operate {
    pub span: Span,
    pub outcome: Outcome,
    pub kind: OperateKind,
    pub path: Option<Name>,
    pub msg: Option<MsgId>,
    pub client: Option<Name>,
    pub at: Location,
}

/// A record about one message.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    /// Sent.
    Publish(Publish),
    /// Received.
    Delivery(Delivery),
    /// Settled or extended.
    Settle(Settle),
}

macro_rules! timed {
    ($($name:ty),*) => {$(
        impl Timed for $name {
            fn span(&self) -> &Span {
                &self.span
            }
            fn location(&self) -> Location {
                self.at
            }
        }
    )*};
}
timed!(Publish, Delivery, Settle, Operate);

impl Timed for Operation {
    fn span(&self) -> &Span {
        match self {
            Self::Publish(publish) => &publish.span,
            Self::Delivery(delivery) => &delivery.span,
            Self::Settle(settle) => &settle.span,
        }
    }

    fn location(&self) -> Location {
        match self {
            Self::Publish(publish) => publish.at,
            Self::Delivery(delivery) => delivery.at,
            Self::Settle(settle) => settle.at,
        }
    }
}
