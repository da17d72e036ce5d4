//! What the ledger is told of deliveries: consecutive ones that were alike become one event.

use crate::effect::{Effect, LedgerEffect};
use crate::ledger::{DETAIL_MAX_BYTES, LedgerEvent, LedgerKind, longest_start};
use crate::state::State;
use mortarmq_types::{Attempt, DeliveryId, MemberId, Partition, PathId, Seq};

/// What happened to one delivery.
pub(super) struct Happened<'a> {
    pub(super) kind: LedgerKind,
    pub(super) seq: Seq,
    pub(super) delivery_id: DeliveryId,
    pub(super) attempt: Attempt,
    pub(super) member: MemberId,
    pub(super) previous: DeliveryId,
    pub(super) detail: &'a str,
}

/// Records what happened to deliveries of one path and partition, in order.
///
/// # Panics
/// When the path does not exist: only deliveries of existing paths begin, change and end.
pub(super) fn record<'a>(
    state: &State,
    path: PathId,
    partition: Partition,
    happened: impl Iterator<Item = Happened<'a>>,
    effects: &mut Vec<Effect>,
) {
    let topic = state.paths[&path].topic;
    let mut runs: Vec<LedgerEvent> = Vec::new();
    for one in happened {
        let event = event(state, path, &one);
        if !runs.last_mut().is_some_and(|run| run.absorb(&event)) {
            runs.push(event);
        }
    }
    effects.extend(runs.into_iter().map(|event| Effect::Ledger(LedgerEffect { topic, partition, event })));
}

fn event(state: &State, path: PathId, happened: &Happened<'_>) -> LedgerEvent {
    LedgerEvent {
        path,
        kind: happened.kind,
        first_seq: happened.seq,
        count: 1,
        first_delivery: happened.delivery_id,
        attempt: happened.attempt,
        member: happened.member,
        previous: happened.previous,
        time: state.time,
        wall: state.wall,
        commit_index: state.commit_index,
        epoch: state.epoch,
        detail: longest_start(happened.detail, DETAIL_MAX_BYTES).to_owned(),
    }
}
