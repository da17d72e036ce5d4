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
/// names it, whatever its answer. Where settles name no delivery, each may name it; an extend counts if it can name no other.
pub(crate) fn lease_end(pair: &Pair<'_>, delivery: &Delivery) -> LeaseEnd {
    if is_shown_ended(pair, delivery) {
        return LeaseEnd::Shown;
    }
    at_least(pair, delivery).map_or(LeaseEnd::NotKnown, LeaseEnd::AtLeast)
}

/// Whether the lease of a delivery may have ended before a later one, by what the records say of it.
pub(crate) fn may_be_over(pair: &Pair<'_>, earlier: &Delivery, later: &Delivery) -> bool {
    at_least(pair, earlier).is_none_or(|end| end <= later.span.ret) || may_have_ended(pair, earlier, later)
}

/// Until when a lease ran at least, if nothing but its end of time or a settle ended it; none, if its length is not known.
fn at_least(pair: &Pair<'_>, delivery: &Delivery) -> Option<u64> {
    let lease_ms = delivery.lease_ms.or(pair.info.lease_ms)?;
    let mut end = delivery.span.call.saturating_add(nanoseconds(lease_ms));
    for settle in pair.settles.iter().filter(|settle| pair.certainly_names(settle, delivery)) {
        if let (SettleKind::Extend(extended_ms), Outcome::Ok) = (settle.kind, settle.outcome) {
            let extended_ms = extended_ms.unwrap_or(lease_ms);
            end = end.max(settle.span.call.saturating_add(nanoseconds(extended_ms)));
        }
    }
    let first_settle = pair.settles_of(delivery).filter(|settle| is_end(settle)).map(|settle| settle.span.call).min();
    Some(first_settle.map_or(end, |settled| settled.min(end)))
}

/// Whether the leases of two deliveries certainly overlap; nothing, if that cannot be known.
pub(crate) fn certainly_overlap(pair: &Pair<'_>, one: &Delivery, two: &Delivery) -> Option<bool> {
    if pair.may_be_one(one, two) {
        return Some(false);
    }
    if one.span.certainly_before(&two.span) {
        return lasts_into(pair, one, two);
    }
    if two.span.certainly_before(&one.span) {
        return lasts_into(pair, two, one);
    }
    // Neither is known to be first: each must certainly still run when the other begins at its latest.
    match (lasts_into(pair, one, two), lasts_into(pair, two, one)) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        (None, _) | (_, None) => None,
    }
}

/// Whether the lease of an earlier delivery certainly runs when a later one begins; nothing, if that cannot be known.
fn lasts_into(pair: &Pair<'_>, earlier: &Delivery, later: &Delivery) -> Option<bool> {
    match lease_end(pair, earlier) {
        LeaseEnd::NotKnown => None,
        LeaseEnd::Shown => Some(false),
        LeaseEnd::AtLeast(end) => {
            let is_told = says_end(pair, earlier, later);
            Some(later.span.ret < end && (is_told || !may_have_ended(pair, earlier, later)))
        }
    }
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

/// Whether the later delivery says how the lease of the earlier one ended: it follows that one, for a cause that tells.
fn says_end(pair: &Pair<'_>, earlier: &Delivery, later: &Delivery) -> bool {
    let tells = match later.cause {
        Some(Cause::LeaseExpired | Cause::Nacked | Cause::Released | Cause::ConsumerLost) => true,
        // An operator brings back what has ended, and does not say how.
        Some(Cause::First | Cause::Redriven | Cause::Replayed) | None => false,
    };
    tells && !pair.may_follow_unseen(later) && pair.followed(later).is_some_and(|followed| followed.at == earlier.at)
}

/// Whether a lease may have ended before a later delivery, neither run out nor settled, for a reason that no record of the
/// pair tells: its consumer left, was lost or lost the partition, an earlier message of its key came back, the path was purged.
fn may_have_ended(pair: &Pair<'_>, earlier: &Delivery, later: &Delivery) -> bool {
    let context = pair.context;
    let is_gone = [OperateKind::Leave, OperateKind::Revoke, OperateKind::Purge].into_iter().any(|kind| {
        context.operates(kind, pair.path, pair.msg).any(|operate| {
            (kind == OperateKind::Purge || operate.client.is_none_or(|client| client == earlier.client))
                && operate.span.may_precede(&later.span)
                && earlier.span.may_precede(&operate.span)
        })
    });
    is_gone
        || context.has_fault_between(earlier.span.call, later.span.ret)
        || is_behind_failed(pair, earlier)
        || may_have_died(pair, earlier, later)
}

/// Whether an earlier message of its key, given by the same Deliver, may have come back.
pub(crate) fn is_behind_failed(pair: &Pair<'_>, delivery: &Delivery) -> bool {
    // A path that nobody described may be one in order.
    let may_be_ordered = pair.info.is_ordered || !pair.info.is_named;
    may_be_ordered && pair.key.is_some_and(|key| pair.context.has_failed_before(key, pair.msg, delivery))
}

/// Whether its consumer may have died: of this one nothing is heard any more.
fn may_have_died(pair: &Pair<'_>, earlier: &Delivery, later: &Delivery) -> bool {
    let context = pair.context;
    // Before everything has been read it may yet be heard of. Then this is asked again.
    context.is_complete && context.has_silent_deaths() && context.last_heard(earlier.client) <= later.span.ret
}
