//! What follows when deliveries end: credit, dead letters, the ledger, and a word to the driver.

use super::record::{Happened, record};
use super::{dead_letter, trim};
use crate::effect::Effect;
use crate::ledger::LedgerKind;
use crate::state::State;
use mortarmq_delivery::{Death, End, Ended, Grant};
use mortarmq_types::{Attempt, Cause, DeliveryId, DropReason, MemberId, Mutant, Partition, PathId};
use std::borrow::Cow;

/// Books deliveries of one path and partition that ended in one step. `detail` is the error text, if one was given.
///
/// # Panics
/// When the path does not exist: only existing deliveries end.
pub(super) fn book(
    state: &mut State,
    id: PathId,
    partition: Partition,
    ended: &[Ended],
    detail: &str,
    effects: &mut Vec<Effect>,
) {
    if ended.is_empty() {
        return;
    }
    let path = state.path_mut(id).expect("deliveries end on a path that exists");
    for end in ended {
        let Some(member) = path.members.get_mut(&end.member) else { continue };
        if end.grant == Grant::Push {
            // A member that is gone has no credit left to return, hence the check above.
            member.held_messages = member.held_messages.checked_sub(1).expect("invariant 3: a push is held");
            member.held_bytes =
                member.held_bytes.checked_sub(u64::from(end.size_bytes)).expect("invariant 3: its bytes are held");
        }
    }
    let details: Vec<Cow<'_, str>> = ended
        .iter()
        .map(|end| match (end.end, text_of(end, detail)) {
            (End::Dead(_), text) if Mutant::DeadNotStored.is_on() => text.into(),
            (End::Dead(death), text) => dead_letter::store(state, id, partition, end, death, text, effects).into(),
            (End::Acked | End::Ended(_) | End::Held | End::Trimmed(_), text) => text.into(),
        })
        .collect();
    let happened = ended.iter().zip(&details).flat_map(|(end, detail)| happened(end, detail));
    record(state, id, partition, happened, effects);
    effects.push(Effect::PathMoved(id));
    trim::lease_ended(state, id, partition, ended, effects);
}

/// The end of a delivery, and what became of a message that retention had passed.
fn happened<'a>(end: &Ended, detail: &'a str) -> impl Iterator<Item = Happened<'a>> {
    let kind = match end.end {
        End::Acked => LedgerKind::Acked,
        End::Ended(cause) | End::Trimmed(cause) => LedgerKind::LeaseEnded(cause),
        End::Held => LedgerKind::LeaseEnded(Cause::Released),
        End::Dead(death) => LedgerKind::Dead(death),
    };
    let ended = Happened {
        kind,
        seq: end.seq,
        delivery_id: end.delivery_id,
        attempt: end.attempt,
        member: end.member,
        previous: DeliveryId::ZERO,
        detail,
    };
    let dropped = matches!(end.end, End::Trimmed(_)).then_some(Happened {
        kind: LedgerKind::Dropped(DropReason::Retention),
        seq: end.seq,
        delivery_id: DeliveryId::ZERO,
        attempt: Attempt::ZERO,
        member: MemberId::ZERO,
        previous: end.delivery_id,
        detail: "",
    });
    std::iter::once(ended).chain(dropped)
}

/// The error text as it concerns this end: it belongs to the delivery that was refused or held, not to those of its key
/// that end with it.
fn text_of<'a>(end: &Ended, detail: &'a str) -> &'a str {
    match end.end {
        End::Ended(Cause::Nacked) | End::Trimmed(Cause::Nacked) | End::Held => detail,
        End::Dead(Death::Rejected | Death::Exhausted(Cause::Nacked)) => detail,
        End::Acked | End::Ended(_) | End::Trimmed(_) | End::Dead(Death::Exhausted(_)) => "",
    }
}
