//! `PurgePath`: everything that a path owes is dropped. What is published from now on is owed as ever.

use super::moves;
use crate::effect::Effect;
use crate::outcome::{Outcome, Refusal};
use crate::state::State;
use mortarmq_delivery::MoveCount;
use mortarmq_types::{Partition, PathId};

pub(super) fn apply(state: &mut State, id: PathId, effects: &mut Vec<Effect>) -> Outcome {
    let Some(path) = state.paths.get(&id) else { return Outcome::Refused(Refusal::UnknownGroup) };
    let partitions: Vec<Partition> =
        (0..state.topics[&path.topic].partitions.len()).map(Partition::from_index).collect();
    moves::begin(state, id, &partitions, effects, |partition, found, _, steps| {
        let facts = found.facts();
        let dropped = partition.purge(found.last_seq, &facts, &mut steps.left, &mut steps.moved, &mut steps.ended);
        MoveCount { dropped, ..MoveCount::default() }
    })
}
