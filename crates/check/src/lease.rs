//! How long a lease certainly ran, as its consumer can know.

use crate::context::nanoseconds;
use crate::operation::{Cause, Delivery, OperateKind, Outcome, SettleKind};
use crate::pair::{Pair, is_end};

/// When a lease ran at least until.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseEnd {
    /// Nobody said how long it lasts.
    NotKnown,
    /// A later delivery shows that it had ended, nobody knows when.
    Shown,
    /// At least until then.
    AtLeast(u64),
}

/// When the lease of a delivery ran at least until.
///
/// That is the latest of its call and its ok extends' calls, each plus the length, or the first ack or nack call that
/// names it, whatever its answer.
pub(crate) fn lease_end(pair: &Pair<'_>, delivery: &Delivery) -> LeaseEnd {
    let Some(lease_ms) = delivery.lease_ms.or(pair.info.lease_ms) else { return LeaseEnd::NotKnown };
    if is_shown_ended(pair, delivery) {
        return LeaseEnd::Shown;
    }
    let mut end = delivery.span.call.saturating_add(nanoseconds(lease_ms));
    for settle in pair.settles_of(delivery) {
        if let (SettleKind::Extend(extended_ms), Outcome::Ok) = (settle.kind, settle.outcome) {
            let extended_ms = extended_ms.unwrap_or(lease_ms);
            end = end.max(settle.span.call.saturating_add(nanoseconds(extended_ms)));
        }
    }
    let first_settle = pair.settles_of(delivery).filter(|settle| is_end(settle)).map(|settle| settle.span.call).min();
    LeaseEnd::AtLeast(first_settle.map_or(end, |settled| settled.min(end)))
}

/// Whether the leases of two deliveries certainly overlap; nothing, if that cannot be known.
pub(crate) fn certainly_overlap(pair: &Pair<'_>, one: &Delivery, two: &Delivery) -> Option<bool> {
    let (earlier, later) = if two.span.certainly_before(&one.span) { (two, one) } else { (one, two) };
    let later_begins = later.span.ret;
    let is_inside = match lease_end(pair, earlier) {
        LeaseEnd::NotKnown => return None,
        LeaseEnd::Shown => false,
        LeaseEnd::AtLeast(end) => later_begins < end,
    };
    if !is_inside || is_let_go(pair, earlier, later) || follows_unseen(pair, earlier, later) {
        return Some(false);
    }
    if earlier.span.certainly_before(&later.span) {
        return Some(true);
    }
    // Neither is known to be first: each must certainly still run when the other begins at its latest.
    Some(match lease_end(pair, later) {
        LeaseEnd::NotKnown => return None,
        LeaseEnd::Shown => false,
        LeaseEnd::AtLeast(end) => earlier.span.ret < end,
    })
}

/// Whether a delivery with cause `released` or `consumer_lost` names this one as the one before it; where a broker does not
/// name it, whether this one is the latest before.
fn is_shown_ended(pair: &Pair<'_>, delivery: &Delivery) -> bool {
    let ended = |later: &&Delivery| matches!(later.cause, Some(Cause::Released | Cause::ConsumerLost));
    pair.deliveries.iter().copied().filter(ended).any(|later| match later.prev {
        Some(_) => later.prev == delivery.id,
        None => pair.latest_before(later).is_some_and(|latest| latest.at == delivery.at),
    })
}

/// Whether a delivery that never arrived lies between two, also one that others between them follow: what ended the earlier
/// lease stood in that one's cause.
fn follows_unseen(pair: &Pair<'_>, earlier: &Delivery, later: &Delivery) -> bool {
    let mut at = later;
    while let Some(prev) = at.prev.filter(|prev| at.id.is_none_or(|id| *prev < id)) {
        if earlier.id.is_none_or(|id| prev <= id) {
            return false;
        }
        match pair.find(prev) {
            Some(known) => at = known,
            None => return true,
        }
    }
    false
}

/// Whether a later delivery that does not say how the earlier lease ended may follow a consumer that was lost: one without a
/// cause, or one that an operator redrove, after the last attempt had ended with its consumer's session. Or one that may
/// follow a purge, which takes messages from their consumers too.
fn is_let_go(pair: &Pair<'_>, earlier: &Delivery, later: &Delivery) -> bool {
    let is_gone = [OperateKind::Leave, OperateKind::Revoke].into_iter().any(|kind| {
        pair.context.operates(kind, pair.path, pair.msg).any(|operate| {
            operate.client.is_none_or(|client| client == earlier.client)
                && operate.span.may_precede(&later.span)
                && earlier.span.may_precede(&operate.span)
        })
    });
    let is_purged = || {
        pair.context
            .operates(OperateKind::Purge, pair.path, pair.msg)
            .any(|operate| operate.span.may_precede(&later.span) && earlier.span.may_precede(&operate.span))
    };
    if is_purged() {
        return true;
    }
    match later.cause {
        None => is_gone,
        Some(Cause::Redriven) => is_gone || pair.context.has_fault_between(earlier.span.call, later.span.ret),
        Some(_) => false,
    }
}
