//! The state machine's refusals as a client sees them: a code of the registry and a text that says what to do.

use mortarmq_shard::{Refusal, SettleCode};
use mortarmq_types::NodeId;
use mortarmq_wire::{ErrorCode, Outcome};

use crate::reply::Failure;

/// The failure of a refused command.
pub(crate) fn failure(refusal: &Refusal) -> Failure {
    let code = match refusal {
        Refusal::UnknownTopic => ErrorCode::UnknownTopic,
        Refusal::UnknownPartition { .. } => ErrorCode::UnknownPartition,
        Refusal::UnknownGroup => ErrorCode::UnknownGroup,
        Refusal::UnknownMember => ErrorCode::UnknownMember,
        Refusal::MoveUnderWay => return back_pressure(&format!("{refusal}: retry")),
        Refusal::Name(_)
        | Refusal::DeadLetterTopic
        | Refusal::DeadLetterAttempts
        | Refusal::DeadLetterGroup
        | Refusal::DeadLetterPartitions
        | Refusal::Fixed { .. }
        | Refusal::FewerPartitions { .. } => ErrorCode::InvalidTopic,
        Refusal::NameCase { .. } | Refusal::TopicMismatch { .. } => ErrorCode::TopicExistsMismatch,
        Refusal::GroupMismatch { .. } => ErrorCode::GroupExistsMismatch,
        Refusal::TooLarge { .. } => ErrorCode::TooLarge,
        Refusal::SeqGap { .. } => ErrorCode::SeqGap,
        Refusal::SeqExpired { .. } => ErrorCode::SeqExpired,
        Refusal::SeqReused { .. } | Refusal::SeqInvalid => ErrorCode::ProducerSeqInvalid,
        Refusal::ProducerQuota { .. }
        | Refusal::CatalogQuota { .. }
        | Refusal::DelayQuota { .. }
        | Refusal::KeyQuota { .. } => ErrorCode::QuotaExceeded,
        Refusal::DelayedFull { .. } => ErrorCode::Backpressure,
        Refusal::MemberLimit { .. } => ErrorCode::GroupMemberLimit,
    };
    let advice = match refusal {
        Refusal::UnknownTopic => "; declare it: mortarmq topics create NAME",
        Refusal::UnknownMember | Refusal::UnknownGroup => "; subscribe again",
        Refusal::SeqGap { .. } => "; publish the missing number first, or start a new producer",
        Refusal::SeqExpired { .. } => "; start a new producer",
        Refusal::DelayedFull { .. } | Refusal::DelayQuota { .. } => {
            "; nothing was stored: retry when some are delivered"
        }
        Refusal::KeyQuota { .. } => "; nothing was stored: retry in a minute, or publish without it",
        Refusal::ProducerQuota { .. } => "; publish with fewer producers, or without producer numbers",
        _ => "",
    };
    let retry_after_ms = if code == ErrorCode::Backpressure { DELAYED_RETRY_AFTER_MS } else { 0 };
    Failure { retry_after_ms, ..Failure::new(code, format!("{refusal}{advice}")) }
}

/// The failure of a request whose command was proposed and whose result is not known (failure rule 6).
pub(crate) fn unknown(code: ErrorCode, message: &str) -> Failure {
    Failure { outcome: Outcome::Unknown, ..Failure::new(code, message) }
}

/// This node does not lead, and nothing was proposed.
pub(crate) fn not_leading(leader: Option<NodeId>) -> Failure {
    let text = leader.map_or_else(
        || "no leader is known here; nothing was stored: retry in a moment".to_owned(),
        |leader| format!("node {leader} leads, not this one; nothing was stored: ask there"),
    );
    Failure::new(ErrorCode::ReadOnlyDegraded, text)
}

/// Back-pressure: nothing was stored, and a retry helps soon.
pub(crate) fn back_pressure(message: &str) -> Failure {
    Failure { retry_after_ms: RETRY_AFTER_MS, ..Failure::new(ErrorCode::Backpressure, message) }
}

/// The registry's code for one item of a settle; `None` is OK.
#[must_use]
pub fn settle_code(code: SettleCode) -> Option<ErrorCode> {
    match code {
        SettleCode::Done => None,
        SettleCode::Stale => Some(ErrorCode::StaleOwner),
        SettleCode::Unknown => Some(ErrorCode::UnknownDelivery),
    }
}

/// Delayed messages leave when they are due and taken: soon, but not at once.
const DELAYED_RETRY_AFTER_MS: u32 = 1000;
/// About the time in which a few batches are written.
const RETRY_AFTER_MS: u32 = 20;
