//! `DropDead`: single dead letters leave the book of their topic. Other groups that read it are not concerned.

use super::record::{Happened, record};
use super::redrive::{Book, book_of};
use crate::command::DropDead;
use crate::effect::Effect;
use crate::ledger::LedgerKind;
use crate::outcome::{LetterCode, Outcome};
use crate::state::State;
use mortarmq_delivery::Refused;
use mortarmq_types::{Attempt, DeliveryId, DropReason, MemberId, Seq};

pub(super) fn apply(state: &mut State, drop: &DropDead, effects: &mut Vec<Effect>) -> Outcome {
    let book = match book_of(state, drop.topic, drop.partition) {
        Ok(book) => book,
        Err(refusal) => return Outcome::Refused(refusal),
    };
    let mut dropped = Vec::new();
    let mut codes = Vec::with_capacity(drop.seqs.len());
    for seq in &drop.seqs {
        codes.push(match take_out(state, &book, *seq, DropReason::Purge) {
            Ok(previous) => {
                dropped.push((*seq, previous));
                LetterCode::Done
            }
            Err(refused) => refused.into(),
        });
    }
    state.retime(book.path, book.partition);
    let happened = dropped.iter().map(|(seq, previous)| happened(*seq, *previous, DropReason::Purge, ""));
    record(state, book.path, book.partition, happened, effects);
    effects.push(Effect::PathMoved(book.path));
    Outcome::Letters(codes)
}

/// Takes one dead letter out of its book. Says which delivery there was its last, 0 without one.
pub(super) fn take_out(state: &mut State, book: &Book, seq: Seq, reason: DropReason) -> Result<DeliveryId, Refused> {
    let found = &state.topics[&book.topic].partitions[book.partition.index()];
    let path = state.paths.get_mut(&book.path).expect("invariant 7: every dead-letter topic has its book");
    let partition = path.partitions.make(book.partition.index());
    partition.drop_single(seq, reason, found.last_seq, &found.facts())
}

/// What the ledger is told of a dead letter that was taken out.
pub(super) fn happened(seq: Seq, previous: DeliveryId, reason: DropReason, detail: &str) -> Happened<'_> {
    Happened {
        kind: LedgerKind::Dropped(reason),
        seq,
        delivery_id: DeliveryId::ZERO,
        attempt: Attempt::ZERO,
        member: MemberId::ZERO,
        previous,
        detail,
    }
}

impl From<Refused> for LetterCode {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Moving => Self::Moving,
            Refused::Unknown => Self::Unknown,
            Refused::Settled => Self::Settled,
            Refused::Leased => Self::Leased,
            Refused::Unsettled => Self::Unsettled,
            Refused::Full => Self::Full,
        }
    }
}
