//! The words of the format: fields that take one of a few values.

use serde::Serialize;

/// Declares an enum whose variants are words of the format.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// Every value, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The value with this word, if there is one.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// The word in the file.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.pad(self.word())
            }
        }
    };
}

words! {
    /// What the client learnt of its call.
    Outcome {
        /// Done: the broker confirmed it.
        Ok = "ok";
        /// Not done: the broker said so.
        Refused = "refused";
        /// No answer, or one that leaves it open: done or not.
        Unknown = "unknown";
    }
}

words! {
    /// Why a message was delivered, as the broker says.
    Cause {
        /// The first delivery of the pair.
        First = "first";
        /// The lease of the delivery before ran out.
        LeaseExpired = "lease_expired";
        /// The delivery before was refused by its consumer.
        Nacked = "nacked";
        /// Given back or revoked, or an earlier message of its key that was given together with it came back.
        Released = "released";
        /// The session of the consumer of the delivery before ended.
        ConsumerLost = "consumer_lost";
        /// An operator brought a dead letter back.
        Redriven = "redriven";
        /// An operator moved the path back.
        Replayed = "replayed";
    }
}

words! {
    /// Where a nack sends the message.
    NackTo {
        /// To another attempt, or to the dead letters when none is left.
        Retry = "retry";
        /// To the dead letters.
        Dead = "dead";
        /// Back, without counting an attempt.
        Release = "release";
    }
}

words! {
    /// What an operator did, or what happened to a consumer.
    OperateKind {
        /// Dead letters were brought back.
        Redrive = "redrive";
        /// The path was moved back.
        Replay = "replay";
        /// The path was emptied.
        Purge = "purge";
        /// A consumer left or was closed.
        Leave = "leave";
        /// A consumer lost a partition.
        Revoke = "revoke";
    }
}

words! {
    /// The order a path promises.
    Order {
        /// Messages of one key are delivered one after the other.
        Key = "key";
        /// None that is judged. Every word but `key` is read as this.
        None = "none";
    }
}

/// The kinds of faults that the format names. Others are read too: only the time of a fault is judged.
pub const FAULT_KINDS: &[&str] =
    &["kill", "stop", "pause", "partition", "power", "wipe", "disk_full", "io_error", "corrupt", "clock", "move"];
