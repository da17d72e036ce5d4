//! The rules, one file each. This file is only the list.

pub(crate) mod attempts;
pub(crate) mod balance;
pub(crate) mod commit_order;
pub(crate) mod corrupt;
pub(crate) mod dead_letter;
pub(crate) mod delivery_id;
pub(crate) mod double_lease;
pub(crate) mod false_cause;
pub(crate) mod going_back;
pub(crate) mod loss;
pub(crate) mod misroute;
pub(crate) mod no_linearization;
pub(crate) mod order;
pub(crate) mod phantom;
pub(crate) mod redelivered_after_ack;
pub(crate) mod refused_delivered;
pub(crate) mod sequence;
pub(crate) mod stale_ack;
pub(crate) mod stored_twice;
pub(crate) mod torn_transaction;
pub(crate) mod unexplained;

use crate::finding::Sink;
use crate::pair::Case;

/// A rule of the contract, as a client can see it broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Published ok, and never seen again.
    Loss,
    /// Delivered, and never published.
    Phantom,
    /// Refused, and delivered.
    RefusedDelivered,
    /// Delivered on a path of another topic.
    Misroute,
    /// Delivered with other bytes.
    Corrupt,
    /// One message at two places.
    StoredTwice,
    /// Delivered after an ack was answered ok.
    RedeliveredAfterAck,
    /// Two consumers held one message.
    DoubleLease,
    /// A further delivery that does not say why.
    Unexplained,
    /// A further delivery that says why, falsely.
    FalseCause,
    /// A later message of a key overtook an earlier one.
    Order,
    /// Attempts are counted wrongly, or there are too many.
    Attempts,
    /// A delivery's id was used twice or does not grow.
    DeliveryId,
    /// A place in a topic was used twice or does not grow.
    Sequence,
    /// The books do not add up.
    Balance,
    /// A counter or epoch fell.
    GoingBack,
    /// The commit index contradicts time.
    CommitOrder,
    /// A dead letter is missing, too early or there twice.
    DeadLetter,
    /// An ack of an outdated delivery was answered ok.
    StaleAck,
    /// Only a part of a transaction took effect.
    TornTransaction,
    /// No order of the operations is one the contract allows.
    NoLinearization,
}

impl Rule {
    /// All rules, as they are printed.
    pub const ALL: [Self; 21] = [
        Self::Loss,
        Self::Phantom,
        Self::RefusedDelivered,
        Self::Misroute,
        Self::Corrupt,
        Self::StoredTwice,
        Self::RedeliveredAfterAck,
        Self::DoubleLease,
        Self::Unexplained,
        Self::FalseCause,
        Self::Order,
        Self::Attempts,
        Self::DeliveryId,
        Self::Sequence,
        Self::Balance,
        Self::GoingBack,
        Self::CommitOrder,
        Self::DeadLetter,
        Self::StaleAck,
        Self::TornTransaction,
        Self::NoLinearization,
    ];

    pub(crate) const COUNT: usize = Self::ALL.len();

    /// The rule's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Phantom => "phantom",
            Self::RefusedDelivered => "refused-delivered",
            Self::Misroute => "misroute",
            Self::Corrupt => "corrupt",
            Self::StoredTwice => "stored-twice",
            Self::RedeliveredAfterAck => "redelivered-after-ack",
            Self::DoubleLease => "double-lease",
            Self::Unexplained => "unexplained",
            Self::FalseCause => "false-cause",
            Self::Order => "order",
            Self::Attempts => "attempts",
            Self::DeliveryId => "delivery-id",
            Self::Sequence => "sequence",
            Self::Balance => "balance",
            Self::GoingBack => "going-back",
            Self::CommitOrder => "commit-order",
            Self::DeadLetter => "dead-letter",
            Self::StaleAck => "stale-ack",
            Self::TornTransaction => "torn-transaction",
            Self::NoLinearization => "no-linearization",
        }
    }
}

/// The rules that need one message's operations and nothing of other messages.
pub(crate) const OF_A_MESSAGE: [fn(&Case<'_>, &mut Sink); 13] = [
    phantom::judge,
    refused_delivered::judge,
    misroute::judge,
    corrupt::judge,
    stored_twice::judge,
    redelivered_after_ack::judge,
    double_lease::judge,
    unexplained::judge,
    false_cause::judge,
    attempts::judge,
    delivery_id::judge,
    dead_letter::judge,
    stale_ack::judge,
];
