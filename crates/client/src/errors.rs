//! What can go wrong, and the two questions a caller has: was it stored, and does a retry help?

use std::time::Duration;

use mortarmq_types::{Position, ProducerId, ProducerSeq};
use mortarmq_wire::ops::ErrorAnswer;
use mortarmq_wire::{DecodeError, EncodeError, ErrorCode, Op, Outcome};

/// Why a request failed. The text says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The broker answered with an error, and repeating does not help or was given up.
    #[error(transparent)]
    Server(#[from] Box<ServerError>),
    /// The request does not fit the protocol, so nothing was sent.
    #[error("{0} (nothing was sent)")]
    Invalid(#[from] EncodeError),
    /// The first connection could not be opened.
    #[error("no broker answers at {servers}: {reason}; check the address and that the broker runs")]
    Unreachable {
        /// The addresses that were tried.
        servers: String,
        /// Why the last attempt failed.
        reason: String,
    },
    /// TLS is not to be had with this broker as it is asked for: its certificate, the given CAs, or no TLS at all there.
    #[error("{reason} (nothing was sent); {remedy}")]
    Tls {
        /// What is wrong.
        reason: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The connection was lost and could not be opened again in the time allowed.
    #[error("no connection for {waited:?}, last: {reason} ({}); {}", told(*outcome), repeat_hint(*outcome))]
    GaveUp {
        /// How long it was tried.
        waited: Duration,
        /// Why the last attempt failed.
        reason: String,
        /// Whether the request may have taken effect.
        outcome: Outcome,
    },
    /// The client, producer or consumer was closed before the answer.
    #[error("closed before an answer came ({}); {}", told(*outcome), closed_hint(*outcome))]
    Closed {
        /// Whether the request may have taken effect.
        outcome: Outcome,
    },
    /// The topic was deleted, and another of that name may exist: numbers and deliveries of the old one mean nothing
    /// there.
    #[error("topic \"{topic}\" was deleted ({}); declare it and open a new producer or consumer", told(*outcome))]
    TopicGone {
        /// The topic's name.
        topic: String,
        /// Whether the request may have taken effect.
        outcome: Outcome,
    },
    /// A producer with an identity of the caller's met a number that cannot be used again.
    #[error(
        "producer {producer_id} cannot go on with its numbers (nothing was stored); open a producer with a new identity"
    )]
    IdentityEnded {
        /// The identity.
        producer_id: ProducerId,
    },
    /// The broker's answer could not be read.
    #[error("the broker's answer to {op} is not understood: {reason} (outcome unknown); upgrade the older side")]
    BadAnswer {
        /// The op that was answered.
        op: Op,
        /// What was wrong with it.
        reason: DecodeError,
    },
}

impl ClientError {
    /// Whether the request may have taken effect (P2).
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Server(error) => error.outcome,
            Self::Invalid(_) | Self::Unreachable { .. } | Self::Tls { .. } | Self::IdentityEnded { .. } => {
                Outcome::Refused
            }
            Self::GaveUp { outcome, .. } | Self::Closed { outcome } | Self::TopicGone { outcome, .. } => *outcome,
            Self::BadAnswer { .. } => Outcome::Unknown,
        }
    }

    /// Whether the same request can succeed later without anybody changing it.
    #[must_use]
    pub fn retry_helps(&self) -> bool {
        match self {
            Self::Server(error) => error.retry_helps(),
            Self::Unreachable { .. } | Self::GaveUp { .. } => true,
            Self::Invalid(_)
            | Self::Tls { .. }
            | Self::Closed { .. }
            | Self::TopicGone { .. }
            | Self::IdentityEnded { .. }
            | Self::BadAnswer { .. } => false,
        }
    }

    /// The broker's code, if the broker answered with one that this version knows.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        self.server().and_then(ServerError::known_code)
    }

    /// The broker's answer, if there was one.
    #[must_use]
    pub fn server(&self) -> Option<&ServerError> {
        match self {
            Self::Server(error) => Some(error),
            Self::Invalid(_)
            | Self::Unreachable { .. }
            | Self::Tls { .. }
            | Self::GaveUp { .. }
            | Self::Closed { .. }
            | Self::TopicGone { .. }
            | Self::IdentityEnded { .. }
            | Self::BadAnswer { .. } => None,
        }
    }

    /// The same error for a request with another history: what may have been stored is never called refused.
    pub(crate) fn with_outcome(self, outcome: Outcome) -> Self {
        match self {
            Self::Server(mut error) => {
                error.outcome = outcome;
                Self::Server(error)
            }
            Self::GaveUp { waited, reason, .. } => Self::GaveUp { waited, reason, outcome },
            Self::Closed { .. } => Self::Closed { outcome },
            Self::TopicGone { topic, .. } => Self::TopicGone { topic, outcome },
            other @ (Self::Invalid(_)
            | Self::Unreachable { .. }
            | Self::Tls { .. }
            | Self::IdentityEnded { .. }
            | Self::BadAnswer { .. }) => other,
        }
    }
}

/// An ERR of the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerError {
    /// The code's number; a newer broker may send one that this version does not know.
    pub code: u16,
    /// What was asked; `None` when the error concerns the whole connection.
    pub request_op: Option<Op>,
    /// What is wrong and what to do, in the broker's words; empty for an item of a batch.
    pub message: String,
    /// Whether the request may have taken effect. Unknown too when an earlier attempt at it was never answered.
    pub outcome: Outcome,
    /// How long to wait before a retry; 0 says nothing.
    ///
    /// # Units
    /// Milliseconds.
    pub retry_after_ms: u32,
    /// What the answer rests on; 0, 0 when nothing was looked up.
    pub position: Position,
}

impl ServerError {
    /// The code, if this version knows it.
    #[must_use]
    pub const fn known_code(&self) -> Option<ErrorCode> {
        ErrorCode::from_number(self.code)
    }

    /// Whether the same request can succeed later. A code that is not known here is not repeated.
    #[must_use]
    pub fn retry_helps(&self) -> bool {
        self.known_code().is_some_and(ErrorCode::retry_helps)
    }

    /// Whether the connection closes behind it.
    pub(crate) fn closes(&self) -> bool {
        self.known_code().is_some_and(ErrorCode::closes)
    }

    pub(crate) fn from_answer(answer: &ErrorAnswer<'_>) -> Self {
        Self {
            code: answer.code,
            request_op: Op::from_number(answer.request_op),
            message: String::from_utf8_lossy(answer.message).into_owned(),
            outcome: answer.outcome,
            retry_after_ms: answer.retry_after_ms,
            position: answer.position,
        }
    }

    /// An error that came as a bare code, or that the client finds in place of the broker.
    pub(crate) fn from_code(code: u16, request_op: Op, message: String, position: Position) -> Self {
        let outcome = ErrorCode::from_number(code).map_or(Outcome::Unknown, ErrorCode::outcome);
        Self { code, request_op: Some(request_op), message, outcome, retry_after_ms: 0, position }
    }
}

impl std::fmt::Display for ServerError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let told = told(self.outcome);
        let Some(code) = self.known_code() else {
            let message = &self.message;
            return write!(formatter, "{message} (code {:#06x}, {told}); upgrade the client to know more", self.code);
        };
        let message = if self.message.is_empty() { code.meaning() } else { &self.message };
        write!(formatter, "{message} ({code}, {told}); {}", code.remedy())
    }
}

impl std::error::Error for ServerError {}

/// Why a publish was not confirmed, with the number it had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct PublishError {
    /// The producer; 0 if the publish never got a number.
    pub producer_id: ProducerId,
    /// The number under which it was sent last; of a batch the first. 0 if it never got one.
    pub producer_seq: ProducerSeq,
    /// What went wrong.
    #[source]
    pub error: ClientError,
}

impl PublishError {
    /// Refused: not stored, and never will be. Unknown: it may be stored (P2).
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.error.outcome()
    }

    /// Whether publishing the same again can succeed without anybody changing it. If the outcome is unknown, that may
    /// store the message twice.
    #[must_use]
    pub fn retry_helps(&self) -> bool {
        self.error.retry_helps()
    }

    /// The broker's code, if the broker answered with one that this version knows.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        self.error.code()
    }
}

/// A publish that never got a number.
impl From<ClientError> for PublishError {
    fn from(error: ClientError) -> Self {
        Self { producer_id: ProducerId::ZERO, producer_seq: ProducerSeq::ZERO, error }
    }
}

/// Why a delivery was not settled as asked.
///
/// The first two mean that there is nothing more to do with it: drop the work, or at least do not count on being the only
/// one that does it. If the message is not settled, it is or will be delivered again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettleError {
    /// The lease was lost before the settle came: the message was delivered again since, and nothing was changed.
    #[error("the lease was lost: the message was delivered again since (nothing was changed); drop the work")]
    LeaseLost,
    /// The broker does not know the delivery: it ended another way, or long ago. An earlier attempt at this settle may have
    /// been done.
    #[error(
        "the delivery has ended, another way or long ago (outcome unknown); drop the work: what is not settled comes again"
    )]
    UnknownDelivery,
    /// The consumer or the client ended before an answer, or the broker refuses the settle.
    #[error(transparent)]
    Failed(#[from] ClientError),
}

impl SettleError {
    /// Whether the settle may have taken effect (P2).
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::LeaseLost => Outcome::Refused,
            Self::UnknownDelivery => Outcome::Unknown,
            Self::Failed(error) => error.outcome(),
        }
    }

    /// Whether the same settle can succeed later. Mostly not: what can is repeated by the client.
    #[must_use]
    pub fn retry_helps(&self) -> bool {
        match self {
            Self::LeaseLost | Self::UnknownDelivery => false,
            Self::Failed(error) => error.retry_helps(),
        }
    }

    /// Whether the message has moved on without this delivery, which is no failure of anything: just drop the work.
    #[must_use]
    pub const fn has_moved_on(&self) -> bool {
        match self {
            Self::LeaseLost | Self::UnknownDelivery => true,
            Self::Failed(_) => false,
        }
    }
}

const fn told(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Refused => "nothing was stored or changed",
        Outcome::Unknown => "outcome unknown",
    }
}

const fn closed_hint(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Refused => "open a new client, producer or consumer to go on",
        Outcome::Unknown => "look whether it took effect before repeating it",
    }
}

const fn repeat_hint(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Refused => "repeat it when the broker can be reached",
        Outcome::Unknown => "look whether it took effect before repeating it",
    }
}

#[cfg(test)]
mod tests {
    use mortarmq_types::Position;
    use mortarmq_wire::{ErrorCode, Op, Outcome};

    use super::{ClientError, PublishError, ServerError};

    fn server(code: u16, message: &str) -> ClientError {
        ClientError::from(Box::new(ServerError::from_code(code, Op::Publish, message.to_owned(), Position::default())))
    }

    #[test]
    fn p2_text_of_an_error_tells_code_outcome_and_next_step() {
        let error = server(ErrorCode::QuorumLost.number(), "no answer from a majority");
        let text = PublishError::from(error.clone()).to_string();
        assert!(text.starts_with("no answer from a majority (QUORUM_LOST, outcome unknown); "), "{text}");
        assert!(text.len() > 60 && error.retry_helps() && error.outcome() == Outcome::Unknown, "{text}");
    }

    #[test]
    fn p2_code_of_a_newer_broker_is_unknown_and_not_repeated() {
        let error = server(0x7777, "new");
        assert_eq!((error.outcome(), error.retry_helps(), error.code()), (Outcome::Unknown, false, None));
        assert!(error.to_string().contains("0x7777"), "{error}");
    }

    #[test]
    fn p2_request_that_may_have_been_stored_is_not_called_refused() {
        let error = server(ErrorCode::Forbidden.number(), "no grant").with_outcome(Outcome::Unknown);
        assert_eq!(error.outcome(), Outcome::Unknown);
        assert!(error.to_string().contains("outcome unknown"), "{error}");
    }
}
