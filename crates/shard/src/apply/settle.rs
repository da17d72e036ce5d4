//! `Settle`: acks, refuses, dead-letters, gives back or extends deliveries, each named by its number (P6, wire rule 3).

use super::ends;
use super::record::{Happened, record};
use crate::command::{Settle, SettleItem, SettleKind};
use crate::effect::Effect;
use crate::ledger::LedgerKind;
use crate::outcome::{Outcome, Refusal, SettleCode};
use crate::state::State;
use mortarmq_delivery::{SettleError, Settled};
use mortarmq_types::{Attempt, DeliveryId, MemberId, PathId, Seq};

pub(super) fn apply(state: &mut State, settle: Settle, effects: &mut Vec<Effect>) -> Outcome {
    if !state.paths.contains_key(&settle.path) {
        return Outcome::Refused(Refusal::UnknownGroup);
    }
    let mut codes = Vec::with_capacity(settle.items.iter().map(|item| item.count as usize).sum());
    for item in &settle.items {
        apply_item(state, settle.path, item, &mut codes, effects);
    }
    Outcome::Settled(codes)
}

fn apply_item(
    state: &mut State,
    id: PathId,
    item: &SettleItem,
    codes: &mut Vec<SettleCode>,
    effects: &mut Vec<Effect>,
) {
    let now = state.now();
    let nothing_dies = state.topics[&state.paths[&id].topic].holds_dead_letters();
    let path = state.path_mut(id).expect("checked by the caller; settling removes no path");
    let rules = path.settings.rules();
    let number = item.partition.index();
    let Some(partition) = path.partitions.get_mut(number) else {
        codes.extend((0..item.count).map(|_| SettleCode::Unknown));
        return;
    };
    let how = match &item.kind {
        SettleKind::Ack => mortarmq_delivery::Settle::Ack,
        SettleKind::Nack { delay_ms, .. } => mortarmq_delivery::Settle::Nack { delay_ms: *delay_ms },
        // What dies in a dead-letter topic stays there: it is refused, and comes again.
        SettleKind::DeadLetter { .. } if nothing_dies => mortarmq_delivery::Settle::Nack { delay_ms: 0 },
        SettleKind::DeadLetter { .. } => mortarmq_delivery::Settle::DeadLetter,
        SettleKind::Release => mortarmq_delivery::Settle::Release,
        SettleKind::Extend => mortarmq_delivery::Settle::Extend,
        SettleKind::Hold { .. } => mortarmq_delivery::Settle::Hold,
        SettleKind::Resume => mortarmq_delivery::Settle::Resume,
    };
    let mut ended = Vec::new();
    let mut extended = Vec::new();
    for place in 0..u64::from(item.count) {
        let seq = Seq::new(item.first_seq.get().wrapping_add(place));
        let delivery = DeliveryId::new(item.first_delivery.get().wrapping_add(place));
        let result = partition.settle(seq, delivery, how, &rules, now, &mut ended);
        if item.kind == SettleKind::Extend && result == Ok(Settled::Done) {
            extended.push((seq, delivery));
        }
        codes.push(match result {
            Ok(Settled::Done | Settled::Again) => SettleCode::Done,
            Err(SettleError::Stale) => SettleCode::Stale,
            Err(SettleError::Unknown) => SettleCode::Unknown,
        });
    }
    let detail = match &item.kind {
        SettleKind::Nack { error, .. } | SettleKind::DeadLetter { error } | SettleKind::Hold { error } => {
            error.as_str()
        }
        SettleKind::Ack | SettleKind::Release | SettleKind::Extend | SettleKind::Resume => "",
    };
    state.retime(id, item.partition);
    ends::book(state, id, item.partition, &ended, detail, effects);
    let happened = extended.into_iter().map(|(seq, delivery_id)| Happened {
        kind: LedgerKind::Extended,
        seq,
        delivery_id,
        attempt: Attempt::ZERO,
        member: MemberId::ZERO,
        previous: DeliveryId::ZERO,
        detail: "",
    });
    record(state, id, item.partition, happened, effects);
    if item.kind == SettleKind::Resume {
        effects.push(Effect::PathMoved(id));
    }
}
