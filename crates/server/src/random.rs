//! Random bits of the operating system.

use mortarmq_node::{ErrorCode, Failure, Outcome};

/// 63 random bits, never 0.
///
/// # Errors
/// A refusal: the system has none to give, and nothing was done yet.
pub(crate) fn bits_63() -> Result<u64, Failure> {
    match getrandom::u64() {
        Ok(bits) => Ok((bits >> 1).max(1)),
        Err(error) => {
            tracing::error!(%error, "the system gives no random bits");
            let text = "the node has no random numbers; see its log";
            Err(Failure { outcome: Outcome::Refused, ..Failure::new(ErrorCode::Internal, text) })
        }
    }
}
