//! What follows when deliveries end: credit, the ledger, and a word to the driver.

use crate::effect::{Effect, LedgerEffect};
use crate::ledger::{DETAIL_MAX_BYTES, LedgerEvent, LedgerKind};
use crate::state::State;
use mortarmq_delivery::{End, Ended, Grant};
use mortarmq_types::{DeliveryId, Partition, PathId};

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
    let topic = path.topic;
    let mut runs: Vec<LedgerEvent> = Vec::new();
    for end in ended {
        let event = event(state, id, end, detail);
        if !runs.last_mut().is_some_and(|run| run.absorb(&event)) {
            runs.push(event);
        }
    }
    effects.extend(runs.into_iter().map(|event| Effect::Ledger(LedgerEffect { topic, partition, event })));
    effects.push(Effect::PathMoved(id));
}

fn event(state: &State, path: PathId, end: &Ended, detail: &str) -> LedgerEvent {
    let kind = match end.end {
        End::Acked => LedgerKind::Acked,
        End::Ended(cause) => LedgerKind::LeaseEnded(cause),
    };
    // The text belongs to the delivery that was refused, not to those of its key that end with it.
    let told = matches!(end.end, End::Ended(mortarmq_types::Cause::Nacked));
    LedgerEvent {
        path,
        kind,
        first_seq: end.seq,
        count: 1,
        first_delivery: end.delivery_id,
        attempt: end.attempt,
        member: end.member,
        previous: DeliveryId::ZERO,
        time: state.time,
        wall: state.wall,
        commit_index: state.commit_index,
        epoch: state.epoch,
        detail: if told { cut(detail).to_owned() } else { String::new() },
    }
}

/// The longest start of a text that the ledger keeps.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(DETAIL_MAX_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
