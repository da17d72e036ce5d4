//! Errors: their JSON, and the status of every code.

use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use mortarmq_node::{ErrorCode, Failure, Outcome};
use serde::Serialize;

use crate::answer::json_line;

/// An answer that is an error: `{"error","code","outcome"}`.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    failure: Failure,
    is_stale: bool,
}

#[derive(Serialize)]
struct Body<'a> {
    error: &'a str,
    code: &'static str,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    stale: Option<bool>,
}

/// The answer to a request that is refused before any route takes it.
#[must_use]
pub fn refused(failure: Failure) -> Response {
    Refusal::from(failure).into_response()
}

/// Longer texts are cut.
const MESSAGE_BYTES_MAX: usize = 2 * 1024;

impl Refusal {
    /// An error with the status of its code.
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Failure::new(code, message).into()
    }

    /// A parameter that the caller has to change.
    pub(crate) fn parameter(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::MalformedPayload, message)
    }

    /// A route that is documented and comes with a later version.
    pub(crate) fn absent(method: &str, path: &str) -> Self {
        Self::new(ErrorCode::UnknownOp, format!("{method} {path} is not in this version"))
    }

    /// The node is about to end. Only questions come this way, so nothing has happened.
    pub(crate) fn stopping() -> Self {
        Self::new(ErrorCode::ReadOnlyDegraded, "shutting down: ask again when the node is back")
    }

    /// The node ends before it has said what became of a change (failure rule 6).
    pub(crate) fn cut_off() -> Self {
        let text = "shutting down: the change may be made or not; look when the node is back";
        let mut failure = Failure::new(ErrorCode::ReadOnlyDegraded, text);
        failure.outcome = Outcome::Unknown;
        failure.into()
    }

    /// A web page may have made a browser send this.
    pub(crate) fn cross_site() -> Self {
        let text = "a browser could have been made to send this: add Content-Type: application/json, \
                    Content-Type: application/octet-stream or a header X-Narad-Client";
        let failure = Failure::new(ErrorCode::MalformedPayload, text);
        Self { status: StatusCode::UNSUPPORTED_MEDIA_TYPE, failure, is_stale: false }
    }

    /// Something that is our fault. Questions change nothing, so the outcome is known even here.
    pub(crate) fn internal(what: &str) -> Self {
        let mut failure = Failure::new(ErrorCode::Internal, format!("internal fault: {what}; please report it"));
        failure.outcome = Outcome::Refused;
        failure.into()
    }

    /// It rests on what may be older than what is committed.
    pub(crate) const fn stale(mut self) -> Self {
        self.is_stale = true;
        self
    }

    /// The node answered another question than the one it was asked.
    pub(crate) fn other_answer() -> Self {
        Self::internal("the answer does not belong to the question")
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self { status: status(failure.code, failure.outcome), failure, is_stale: false }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Failure { code, outcome, message, retry_after_ms } = &self.failure;
        let stale = self.is_stale.then_some(true);
        let body = Body { error: cut(message), code: code.name(), outcome: outcome.word(), stale };
        let line = serde_json::to_vec(&body).expect("three strings are always JSON");
        let mut response = json_line(self.status, line);
        if *retry_after_ms > 0 {
            // Whole seconds, rounded up: rounding down would ask for a retry that comes too early.
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry_after_ms.div_ceil(1000)));
        }
        response
    }
}

/// The longest beginning of a text that fits [`MESSAGE_BYTES_MAX`] and ends between two characters.
fn cut(message: &str) -> &str {
    &message[..message.floor_char_boundary(MESSAGE_BYTES_MAX)]
}

/// The status that an error is answered with.
///
/// A client reads from 4xx and 503 that nothing has happened. So whatever the code, an outcome that is unknown when the
/// code promises a refusal becomes 500: a write may have happened (P2, failure rule 6).
///
/// # Source
/// P2; failure rule 6.
pub fn status(code: ErrorCode, outcome: Outcome) -> StatusCode {
    match (outcome, code.outcome()) {
        (Outcome::Unknown, Outcome::Refused) => StatusCode::INTERNAL_SERVER_ERROR,
        (Outcome::Unknown, Outcome::Unknown) | (Outcome::Refused, _) => status_of_code(code),
    }
}

fn status_of_code(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::BadLength
        | ErrorCode::MalformedPayload
        | ErrorCode::UnsupportedVersion
        | ErrorCode::UnknownPartition
        | ErrorCode::InvalidTopic
        | ErrorCode::ProducerSeqInvalid
        | ErrorCode::MessageExceedsCredit => StatusCode::BAD_REQUEST,
        ErrorCode::NotAuthenticated | ErrorCode::AuthFailed | ErrorCode::AuthTimeout => StatusCode::UNAUTHORIZED,
        ErrorCode::Forbidden => StatusCode::FORBIDDEN,
        ErrorCode::UnknownTopic | ErrorCode::UnknownGroup => StatusCode::NOT_FOUND,
        ErrorCode::SeqGap
        | ErrorCode::SeqExpired
        | ErrorCode::StaleGeneration
        | ErrorCode::NotOwner
        | ErrorCode::GroupMemberLimit
        | ErrorCode::GroupAssignmentLimit
        | ErrorCode::DlqPathOverflow
        | ErrorCode::TopicExistsMismatch
        | ErrorCode::GroupExistsMismatch
        | ErrorCode::MutationFenced => StatusCode::CONFLICT,
        ErrorCode::StaleOwner | ErrorCode::UnknownDelivery | ErrorCode::UnknownMember | ErrorCode::LeaseExpired => {
            StatusCode::GONE
        }
        ErrorCode::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorCode::ProducerEpochStale => StatusCode::MISDIRECTED_REQUEST,
        ErrorCode::MaxWaitingPulls
        | ErrorCode::Backpressure
        | ErrorCode::QuotaExceeded
        | ErrorCode::RateLimited
        | ErrorCode::NoCredit
        | ErrorCode::SlowConsumer => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::Internal
        | ErrorCode::QuorumLost
        | ErrorCode::StaleLeaderEpoch
        | ErrorCode::FollowerLag
        | ErrorCode::CatchupRequired
        | ErrorCode::LogGap
        | ErrorCode::QuorumRecovered
        | ErrorCode::UncleanElectionRejected => StatusCode::INTERNAL_SERVER_ERROR,
        ErrorCode::UnknownOp => StatusCode::NOT_IMPLEMENTED,
        ErrorCode::DlqUnavailable
        | ErrorCode::MetadataReadOnly
        | ErrorCode::MetadataQuarantined
        | ErrorCode::StorageHighWatermark
        | ErrorCode::ReadOnlyDegraded
        | ErrorCode::InSyncReplicasNotEnough
        | ErrorCode::DivergentCommitted => StatusCode::SERVICE_UNAVAILABLE,
    }
}

#[cfg(test)]
mod tests {
    use super::{Outcome, cut, status};
    use mortarmq_node::ErrorCode;

    #[test]
    fn p2_an_unknown_outcome_never_has_a_status_that_promises_a_refusal() {
        // Goal: no client takes "may be stored" for "was not stored". 409 and 410 of the two codes whose own outcome
        // is unknown say that a retry is vain, which promises nothing.
        for code in ErrorCode::ALL {
            let status = status(*code, Outcome::Unknown).as_u16();
            assert!(matches!(status, 409 | 410 | 500), "{code}: {status}");
        }
    }

    #[test]
    fn every_code_is_an_error_and_the_well_known_ones_keep_their_status() {
        for code in ErrorCode::ALL {
            let status = status(*code, code.outcome());
            assert!(status.is_client_error() || status.is_server_error(), "{code}: {status}");
        }
        let known = [
            (ErrorCode::UnknownTopic, 404),
            (ErrorCode::UnknownGroup, 404),
            (ErrorCode::InvalidTopic, 400),
            (ErrorCode::TooLarge, 413),
            (ErrorCode::Backpressure, 429),
            (ErrorCode::QuorumLost, 500),
            (ErrorCode::UnknownOp, 501),
            (ErrorCode::ReadOnlyDegraded, 503),
        ];
        for (code, expected) in known {
            assert_eq!(status(code, code.outcome()).as_u16(), expected, "{code}");
        }
    }

    #[test]
    fn a_long_text_is_cut_between_two_characters() {
        let text = format!("a{}", "é".repeat(2000));
        assert_eq!(cut(&text).len(), 2047);
        assert_eq!(cut("short"), "short");
    }
}
