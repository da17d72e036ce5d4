//! `SeekPath`: a path goes on from another place. Forwards drops what it skips, backwards owes it once more.

use super::moves;
use crate::command::SeekTarget;
use crate::effect::Effect;
use crate::outcome::{Outcome, Refusal};
use crate::state::State;
use mortarmq_types::{Partition, PathId, Seq};
use std::collections::BTreeMap;

pub(super) fn apply(state: &mut State, id: PathId, target: &SeekTarget, effects: &mut Vec<Effect>) -> Outcome {
    let Some(path) = state.paths.get(&id) else { return Outcome::Refused(Refusal::UnknownGroup) };
    let count = state.topics[&path.topic].partitions.len();
    let all = |seq: Seq| (0..count).map(|number| (Partition::from_index(number), seq)).collect();
    // The last of two places in one partition counts.
    let places: BTreeMap<Partition, Seq> = match target {
        // Each path moves no further back than to what is kept.
        SeekTarget::Earliest => all(Seq::FIRST),
        // As far as there are messages, whatever is stored before this command.
        SeekTarget::Latest => all(Seq::MAX),
        SeekTarget::At(places) => places.iter().copied().collect(),
    };
    if let Some(unknown) = places.keys().find(|number| number.index() >= count) {
        let partitions = u16::try_from(count).expect("at most 1024 partitions");
        return Outcome::Refused(Refusal::UnknownPartition { requested: *unknown, partitions });
    }
    let partitions: Vec<Partition> = places.keys().copied().collect();
    if partitions.iter().any(|number| path.partitions[number.index()].is_moving()) {
        return Outcome::Refused(Refusal::MoveUnderWay);
    }
    moves::begin(state, id, &partitions, effects, |partition, found, number, steps| {
        let (to, facts) = (places[&number], found.facts());
        let seek = partition.seek(to, found.last_seq, &facts, &mut steps.left, &mut steps.moved, &mut steps.ended);
        seek.expect("no partition is moving, see above")
    })
}
