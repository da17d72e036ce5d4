//! The registry of error codes: one row each, from which ERR frames, `explain` and the documentation are made.
//!
//! Codes only grow and never change meaning; a retired code is never used again.

/// Whether the request may have taken effect (P2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Outcome {
    /// Nothing was stored or changed, and nothing will be.
    Refused = 0,
    /// It may have taken effect: repeat with the same producer number.
    Unknown = 1,
}

impl Outcome {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The outcome with this number, if there is one.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Refused),
            1 => Some(Self::Unknown),
            _ => None,
        }
    }

    /// The word used in text and JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.pad(self.word())
    }
}

/// Who meets a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// Sent to clients.
    Client,
    /// Between nodes, in logs and metrics; never sent to clients.
    Peer,
    /// Not sent any more; kept so that its number is never used again.
    Retired,
}

/// Whether the connection closes behind an ERR. Named, because a row of bare `true` and `false` is not read but guessed.
enum Connection {
    Closes,
    StaysOpen,
}

/// Whether the same request can succeed later without anybody changing it.
enum Retry {
    RetryHelps,
    RetryIsVain,
}

/// Declares every code with its row.
macro_rules! registry {
    ($($variant:ident = $number:literal
        [$connection:ident, $outcome:ident, $retry:ident, $standing:ident] $name:ident: $meaning:literal, $remedy:literal;)+
    ) => {
        /// A code of the registry. ERR carries its number.
        ///
        /// # Source
        /// docs/reference/wire.md, "Errors".
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum ErrorCode {
            $(#[doc = concat!("`", stringify!($name), "`: ", $meaning, ".")] $variant = $number,)+
        }

        impl ErrorCode {
            /// Every code, in the order of its number.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The code with this number, if there is one.
            #[must_use]
            pub const fn from_number(number: u16) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// The code with this name, as in the documentation; upper and lower case are the same.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|code| code.name().eq_ignore_ascii_case(name))
            }

            /// The name used in texts, metrics and JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($name),)+
                }
            }

            /// What has happened, in plain words.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => $meaning,)+
                }
            }

            /// The client's next step.
            #[must_use]
            pub const fn remedy(self) -> &'static str {
                match self {
                    $(Self::$variant => $remedy,)+
                }
            }

            /// The outcome, unless the sender knows better: an error sent after the command was proposed and before
            /// its result is known is [`Outcome::Unknown`] whatever its code (failure rule 6).
            #[must_use]
            pub const fn outcome(self) -> Outcome {
                match self {
                    $(Self::$variant => Outcome::$outcome,)+
                }
            }

            /// Whether the connection closes behind the ERR.
            #[must_use]
            pub const fn closes(self) -> bool {
                match self {
                    $(Self::$variant => matches!(Connection::$connection, Connection::Closes),)+
                }
            }

            /// Whether the same request can succeed later, unchanged.
            #[must_use]
            pub const fn retry_helps(self) -> bool {
                match self {
                    $(Self::$variant => matches!(Retry::$retry, Retry::RetryHelps),)+
                }
            }

            /// Who meets the code.
            #[must_use]
            pub const fn standing(self) -> Standing {
                match self {
                    $(Self::$variant => Standing::$standing,)+
                }
            }
        }
    };
}

registry! {
    BadLength = 0x0001
        [Closes, Refused, RetryIsVain, Client] BAD_LENGTH:
        "a frame's length is 0 or above the limit, so the stream cannot be followed any more",
        "fix the client; check that it speaks this protocol on this port";
    UnknownOp = 0x0002
        [Closes, Refused, RetryIsVain, Client] UNKNOWN_OP:
        "the op is not known here, or is one that only the other side sends",
        "upgrade the older side";
    MalformedPayload = 0x0003
        [Closes, Refused, RetryIsVain, Client] MALFORMED_PAYLOAD:
        "a field is missing, a flag bit is unknown, or a value is outside its choices",
        "fix the client; the text names the field";
    UnsupportedVersion = 0x0004
        [Closes, Refused, RetryIsVain, Client] UNSUPPORTED_VERSION:
        "CONNECT asks for a wire version that this server does not speak",
        "upgrade the client; the text names both versions";
    NotAuthenticated = 0x0005
        [Closes, Refused, RetryIsVain, Client] NOT_AUTHENTICATED:
        "a request came before CONNECT was answered OK",
        "send CONNECT first";
    AuthFailed = 0x0006
        [Closes, Refused, RetryIsVain, Client] AUTH_FAILED:
        "the token was not accepted; the text is the same for every reason",
        "check the token";
    AuthTimeout = 0x0007
        [Closes, Refused, RetryHelps, Client] AUTH_TIMEOUT:
        "no CONNECT came within 5 s",
        "connect again and send CONNECT in time";
    UnknownTopic = 0x0008
        [StaysOpen, Refused, RetryIsVain, Client] UNKNOWN_TOPIC:
        "the topic does not exist, or the topic_id stands for one that was deleted",
        "declare the topic; the text gives the command";
    UnknownPartition = 0x0009
        [StaysOpen, Refused, RetryIsVain, Client] UNKNOWN_PARTITION:
        "the topic has no such partition",
        "fix the client; METADATA gives the partition count";
    Internal = 0x000a
        [StaysOpen, Unknown, RetryHelps, Client] INTERNAL:
        "the broker met a fault of its own",
        "repeat with the same producer number and report the diagnostic id of the text";
    InvalidTopic = 0x000b
        [StaysOpen, Refused, RetryIsVain, Client] INVALID_TOPIC:
        "a name or a setting is against the rules",
        "fix the name or the setting; the text says which rule";
    Forbidden = 0x000c
        [StaysOpen, Refused, RetryIsVain, Client] FORBIDDEN:
        "the token does not allow this",
        "ask for the grant that the text names";
    TooLarge = 0x000d
        [StaysOpen, Refused, RetryIsVain, Client] TOO_LARGE:
        "key, headers or value are larger than the limit",
        "send less; the text names the limit";
    SeqGap = 0x0010
        [StaysOpen, Refused, RetryIsVain, Client] SEQ_GAP:
        "a producer number is ahead of the next one",
        "publish the missing number first, or start a new producer";
    SeqExpired = 0x0011
        [StaysOpen, Unknown, RetryIsVain, Client] SEQ_EXPIRED:
        "a producer number is older than the window, so whether it was stored is not known any more",
        "start a new producer";
    ProducerEpochStale = 0x0012
        [StaysOpen, Refused, RetryHelps, Client] PRODUCER_EPOCH_STALE:
        "the request went to a former leader",
        "find the leader again with METADATA and repeat";
    ProducerSeqInvalid = 0x0013
        [StaysOpen, Refused, RetryIsVain, Client] PRODUCER_SEQ_INVALID:
        "two producers share one identity, or only one of producer_id and producer_seq is 0",
        "fix the client; draw a new producer_id";
    StaleGeneration = 0x0020
        [StaysOpen, Refused, RetryHelps, Client] STALE_GENERATION:
        "the group's assignment has changed since",
        "wait for the NOTICE of the new assignment";
    NotOwner = 0x0021
        [StaysOpen, Refused, RetryIsVain, Client] NOT_OWNER:
        "the partition belongs to another member of the group",
        "stop using the partition";
    StaleOwner = 0x0022
        [StaysOpen, Refused, RetryIsVain, Client] STALE_OWNER:
        "the message was delivered again since; this delivery settles nothing",
        "drop the work, the message has moved on";
    UnknownDelivery = 0x0023
        [StaysOpen, Unknown, RetryIsVain, Client] UNKNOWN_DELIVERY:
        "the delivery is not known, or ended too long ago to say how",
        "nothing to do; the message was settled or will be delivered again";
    GroupMemberLimit = 0x0024
        [StaysOpen, Refused, RetryIsVain, Client] GROUP_MEMBER_LIMIT:
        "the group has as many members as it may",
        "shrink the group";
    GroupAssignmentLimit = 0x0025
        [StaysOpen, Refused, RetryIsVain, Client] GROUP_ASSIGNMENT_LIMIT:
        "the group has as many assignments as it may",
        "use fewer subscriptions";
    UnknownMember = 0x0026
        [StaysOpen, Refused, RetryIsVain, Client] UNKNOWN_MEMBER:
        "the subscription or the member's session has ended, or the secret is wrong",
        "send SUB again";
    MaxWaitingPulls = 0x0027
        [StaysOpen, Refused, RetryHelps, Client] MAX_WAITING_PULLS:
        "a pull of this subscription is still open",
        "wait for the pull in flight";
    DlqPathOverflow = 0x0030
        [StaysOpen, Refused, RetryIsVain, Client] DLQ_PATH_OVERFLOW:
        "the dead-letter topic cannot take more",
        "an operator has to empty it: mortarmq dlq purge or redrive";
    DlqUnavailable = 0x0031
        [StaysOpen, Refused, RetryHelps, Client] DLQ_UNAVAILABLE:
        "the dead letter cannot be stored now; the source keeps the message",
        "try again later";
    TopicExistsMismatch = 0x2001
        [StaysOpen, Refused, RetryIsVain, Client] TOPIC_EXISTS_MISMATCH:
        "the topic exists with other settings",
        "use the settings that the text lists, or another name";
    GroupExistsMismatch = 0x2002
        [StaysOpen, Refused, RetryIsVain, Client] GROUP_EXISTS_MISMATCH:
        "the group exists with other settings",
        "use the settings that the text lists, or another name";
    MetadataReadOnly = 0x2003
        [StaysOpen, Refused, RetryHelps, Client] METADATA_READ_ONLY:
        "names and settings cannot be changed now",
        "try again after the failover";
    MetadataQuarantined = 0x2004
        [StaysOpen, Refused, RetryIsVain, Client] METADATA_QUARANTINED:
        "the catalog is damaged and is not served",
        "an operator follows runbook RB-2";
    UnknownGroup = 0x2005
        [StaysOpen, Refused, RetryIsVain, Client] UNKNOWN_GROUP:
        "the group does not exist",
        "SUB creates it";
    MutationFenced = 0x2006
        [StaysOpen, Refused, RetryHelps, Client] MUTATION_FENCED:
        "what the change rests on was changed by another",
        "read again, then repeat";
    Backpressure = 0x4001
        [StaysOpen, Refused, RetryHelps, Client] BACKPRESSURE:
        "the broker has more work in hand than it may hold",
        "back off for retry_after_ms, then repeat";
    QuotaExceeded = 0x4002
        [StaysOpen, Refused, RetryHelps, Client] QUOTA_EXCEEDED:
        "a quota is used up",
        "slow down; an operator may raise the quota";
    RateLimited = 0x4003
        [StaysOpen, Refused, RetryHelps, Client] RATE_LIMITED:
        "requests come faster than is allowed",
        "back off for retry_after_ms, then repeat";
    StorageHighWatermark = 0x4004
        [StaysOpen, Refused, RetryHelps, Client] STORAGE_HIGH_WATERMARK:
        "the disks are nearly full; consumers go on",
        "try again later; an operator makes room";
    MessageExceedsCredit = 0x4005
        [StaysOpen, Refused, RetryIsVain, Client] MESSAGE_EXCEEDS_CREDIT:
        "the next message is larger than max_bytes",
        "raise max_bytes of the pull, or credit_bytes";
    NoCredit = 0x4006
        [StaysOpen, Refused, RetryHelps, Client] NO_CREDIT:
        "the subscription's window is full; this is normal flow control",
        "settle messages or send CREDIT";
    SlowConsumer = 0x4007
        [Closes, Refused, RetryHelps, Client] SLOW_CONSUMER:
        "the connection takes its messages too slowly",
        "connect again and keep up";
    QuorumLost = 0x6001
        [StaysOpen, Unknown, RetryHelps, Client] QUORUM_LOST:
        "no majority confirmed the write in time; it may still be stored",
        "repeat with the same producer number: it is stored at most once";
    ReadOnlyDegraded = 0x6002
        [StaysOpen, Refused, RetryHelps, Client] READ_ONLY_DEGRADED:
        "this node takes nothing now: another one leads, or none does, or it stands still; nothing was appended",
        "ask the node that the text names, or try again in a moment; if it stays so: runbook RB-1";
    InSyncReplicasNotEnough = 0x6003
        [StaysOpen, Refused, RetryHelps, Client] IN_SYNC_REPLICAS_NOT_ENOUGH:
        "the leader hears too few nodes that can confirm what it writes; nothing was appended",
        "try again in a moment, on another node too; if it stays so, bring a node back: runbook RB-1";
    FollowerLag = 0x6004
        [StaysOpen, Refused, RetryIsVain, Peer] FOLLOWER_LAG:
        "a follower is behind; producers are answered OK and the lag is shown in readyz and metrics",
        "nothing to do for a client; an operator watches the follower";
    StaleLeaderEpoch = 0x6005
        [StaysOpen, Unknown, RetryHelps, Client] STALE_LEADER_EPOCH:
        "the leader changed while the request was under way",
        "find the leader again and repeat with the same producer number";
    LeaseExpired = 0x6006
        [StaysOpen, Refused, RetryIsVain, Retired] LEASE_EXPIRED:
        "was the leader's lease; that word now belongs to the consumer",
        "see STALE_LEADER_EPOCH";
    CatchupRequired = 0x6007
        [StaysOpen, Refused, RetryHelps, Peer] CATCHUP_REQUIRED:
        "a replica has to catch up before it counts",
        "nothing to do for a client; an operator watches the replica";
    LogGap = 0x6008
        [StaysOpen, Refused, RetryHelps, Peer] LOG_GAP:
        "a replica was sent entries that do not follow its log",
        "nothing to do for a client; the replica is sent what is missing";
    DivergentCommitted = 0x6009
        [StaysOpen, Refused, RetryIsVain, Client] DIVERGENT_COMMITTED:
        "the shard is quarantined: its log contradicts what was committed",
        "an operator follows runbook RB-2";
    QuorumRecovered = 0x600a
        [StaysOpen, Refused, RetryHelps, Peer] QUORUM_RECOVERED:
        "a majority is back",
        "nothing to do";
    UncleanElectionRejected = 0x600b
        [StaysOpen, Refused, RetryIsVain, Peer] UNCLEAN_ELECTION_REJECTED:
        "a node without every committed entry asked to lead",
        "nothing to do for a client; an operator looks at the node";
}

impl ErrorCode {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u16 {
        self as u16
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::{ErrorCode, Outcome, Standing};

    fn names(which: impl Fn(ErrorCode) -> bool) -> Vec<&'static str> {
        ErrorCode::ALL.iter().filter(|code| which(**code)).map(|code| code.name()).collect()
    }

    #[test]
    fn every_code_is_found_by_number_and_name_and_none_is_taken_twice() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_number(code.number()), Some(*code));
            assert_eq!(ErrorCode::from_name(code.name()), Some(*code));
        }
        assert!(ErrorCode::ALL.windows(2).all(|pair| pair[0].number() < pair[1].number()));
        assert_eq!(ErrorCode::from_number(0), None);
        assert_eq!(ErrorCode::from_number(0x000E), None);
        assert_eq!(ErrorCode::from_name("quorum_lost"), Some(ErrorCode::QuorumLost));
        assert_eq!(ErrorCode::from_name("QUORUM"), None);
    }

    #[test]
    fn registry_closes_what_the_specification_closes() {
        let closing = [
            "BAD_LENGTH",
            "UNKNOWN_OP",
            "MALFORMED_PAYLOAD",
            "UNSUPPORTED_VERSION",
            "NOT_AUTHENTICATED",
            "AUTH_FAILED",
            "AUTH_TIMEOUT",
            "SLOW_CONSUMER",
        ];
        assert_eq!(names(ErrorCode::closes), closing);
    }

    #[test]
    fn p2_registry_names_each_unknown_outcome() {
        let unknown = ["INTERNAL", "SEQ_EXPIRED", "UNKNOWN_DELIVERY", "QUORUM_LOST", "STALE_LEADER_EPOCH"];
        assert_eq!(names(|code| code.outcome() == Outcome::Unknown), unknown);
        for outcome in [Outcome::Refused, Outcome::Unknown] {
            assert_eq!(Outcome::from_number(outcome.number()), Some(outcome));
        }
        assert_eq!(Outcome::from_number(2), None);
    }

    #[test]
    fn retired_and_peer_codes_are_marked() {
        assert_eq!(names(|code| code.standing() == Standing::Retired), ["LEASE_EXPIRED"]);
        let peer = ["FOLLOWER_LAG", "CATCHUP_REQUIRED", "LOG_GAP", "QUORUM_RECOVERED", "UNCLEAN_ELECTION_REJECTED"];
        assert_eq!(names(|code| code.standing() == Standing::Peer), peer);
    }
}
