//! An operator moves a path: what of it is counted, told to the ledger, and goes on with the next batches.

use super::ends;
use crate::command::STEPS_MAX;
use crate::effect::{Effect, LedgerEffect};
use crate::ledger::{LedgerEvent, LedgerKind};
use crate::outcome::{Outcome, Refusal};
use crate::state::{PartitionState, State};
use mortarmq_delivery::{Ended, Fate, MoveCount, Moved, PathPartition};
use mortarmq_types::{Attempt, DeliveryId, MemberId, Partition, PathId};

/// Begins a move in these partitions, all of which exist, and counts what it amounts to.
///
/// Each partition takes a step, as does each message that was offered; what is left goes on with the next batches.
pub(super) fn begin(
    state: &mut State,
    id: PathId,
    partitions: &[Partition],
    effects: &mut Vec<Effect>,
    mut start: impl FnMut(&mut PathPartition, &PartitionState, Partition, &mut Steps) -> MoveCount,
) -> Outcome {
    let Some(path) = state.paths.get(&id) else { return Outcome::Refused(Refusal::UnknownGroup) };
    let topic = path.topic;
    let mut steps = Steps { left: left_of(partitions.len()), ..Steps::default() };
    let mut sum = MoveCount::default();
    for number in partitions {
        let found = &state.topics[&topic].partitions[number.index()];
        let path = state.paths.get_mut(&id).expect("looked up above");
        let partition = path.partitions.make(number.index());
        let count = start(partition, found, *number, &mut steps);
        sum.replayed += count.replayed;
        sum.dropped += count.dropped;
        sum.is_partial |= count.is_partial;
        state.retime(id, *number);
        steps.book(state, id, *number, effects);
    }
    effects.push(Effect::PathMoved(id));
    Outcome::Moved { replayed: sum.replayed, dropped: sum.dropped, is_partial: sum.is_partial }
}

/// Steps that are left to a command which looks at so many partitions.
pub(super) fn left_of(partitions: usize) -> u32 {
    STEPS_MAX.saturating_sub(u32::try_from(partitions).unwrap_or(u32::MAX))
}

/// What a move may still cost, and what it did in one partition.
#[derive(Debug, Default)]
pub(super) struct Steps {
    pub(super) left: u32,
    pub(super) moved: Vec<Moved>,
    pub(super) ended: Vec<Ended>,
}

impl Steps {
    /// Books what a move did in one partition: first the deliveries that it ended, then what became of the messages.
    pub(super) fn book(&mut self, state: &mut State, id: PathId, partition: Partition, effects: &mut Vec<Effect>) {
        ends::book(state, id, partition, &self.ended, "", effects);
        self.ended.clear();
        for moved in self.moved.drain(..) {
            tell(state, id, partition, &moved, effects);
        }
    }
}

/// Tells the ledger what became of messages in a row, in as many events as their number takes.
fn tell(state: &State, id: PathId, partition: Partition, moved: &Moved, effects: &mut Vec<Effect>) {
    let topic = state.paths[&id].topic;
    let kind = match moved.fate {
        Fate::Dropped(reason) => LedgerKind::Dropped(reason),
        Fate::Replayed => LedgerKind::Replayed,
    };
    // No partition comes near the bound; an image that is damaged under a right checksum may say that one did.
    let (mut first_seq, mut left) = (moved.first, moved.count.min(TOLD_MAX));
    while left > 0 {
        let count = u32::try_from(left).unwrap_or(u32::MAX);
        let event = LedgerEvent {
            path: id,
            kind,
            first_seq,
            count,
            first_delivery: DeliveryId::ZERO,
            attempt: Attempt::ZERO,
            member: MemberId::ZERO,
            previous: DeliveryId::ZERO,
            time: state.time,
            wall: state.wall,
            commit_index: state.commit_index,
            epoch: state.epoch,
            detail: String::new(),
        };
        effects.push(Effect::Ledger(LedgerEffect { topic, partition, event }));
        left -= u64::from(count);
        first_seq = first_seq.plus(u64::from(count));
    }
}

/// The ledger is told of at most so many messages of one range: as many as a few of its events can name.
const TOLD_MAX: u64 = 1 << 40;
