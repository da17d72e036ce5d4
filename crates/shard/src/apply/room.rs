//! Room among the entries of the shard (failure rule 9): what may go when it keeps as many as it may.
//!
//! In this order: facts, which can be read again; producers that were idle for over ten minutes; idempotency keys and runs of
//! settles over a minute old. Nothing inside its promised time is forgotten (P3, P6): where nothing may go, new entries are
//! refused.

use crate::apply::Shard;
use crate::command::STEPS_MAX;
use crate::idempotency::KEEP_LEAST_MS;
use crate::producer::Producers;
use crate::state::{State, topic_of};

impl Shard {
    /// Takes every producer for one that never was: what [`Mutant::DedupLostInSnapshot`] does. Nobody calls it in a build without
    /// planted bugs.
    ///
    /// [`Mutant::DedupLostInSnapshot`]: mortarmq_types::Mutant::DedupLostInSnapshot
    pub fn forget_producers(&mut self) {
        let ids: Vec<_> = self.state.topics.keys().copied().collect();
        for id in ids {
            if let Some(topic) = topic_of(&mut self.state.topics, id) {
                topic.producers = Producers::default();
            }
            self.state.entries.producer_ages.set(id, None);
        }
        self.state.producer_entries = 0;
    }
}

/// Makes room for so many new entries, as far as steps and what may go allow. A partition's facts are one step, and so is
/// every other entry.
pub(super) fn make(state: &mut State, needed: u64) {
    let limit = state.defaults().state_entries_max;
    let is_short = |state: &State| state.entries().saturating_add(needed) > limit;
    let mut steps = STEPS_MAX;
    while is_short(state) && steps > 0 {
        steps -= 1;
        if drop_facts(state) {
            continue;
        }
        let gone =
            forget_producers(state, steps).or_else(|| forget_keys(state, steps)).or_else(|| forget_runs(state, steps));
        let Some(gone) = gone else { return };
        steps = steps.saturating_sub(gone);
    }
}

/// Those of the oldest topic that has some.
fn drop_facts(state: &mut State) -> bool {
    let Some(place) = state.entries.first_with_facts() else { return false };
    let (id, number) = place;
    let topic = topic_of(&mut state.topics, id).expect("invariant 10: facts are counted where a topic has them");
    let partition = topic.partition_mut(number.index()).expect("invariant 10: and a partition");
    let before = partition.facts.len();
    partition.facts.clear(partition.last_seq);
    topic.facts -= before as u64;
    state.entries.count_facts(place, before, 0);
    true
}

fn forget_producers(state: &mut State, steps: u32) -> Option<u32> {
    let id = state.entries.producer_ages.due(state.time)?;
    let producers = &mut topic_of(&mut state.topics, id)?.producers;
    let before = producers.entries();
    let lines = producers.forget_idle(state.time, IDLE_LEAST_MS, FORGET_MAX.min(steps as usize));
    state.producer_entries -= before - producers.entries();
    state.entries.producer_ages.set(id, producers.oldest_filed());
    (lines > 0).then(|| u32::try_from(lines).unwrap_or(u32::MAX))
}

fn forget_keys(state: &mut State, steps: u32) -> Option<u32> {
    let id = state.entries.key_ages.due(state.time)?;
    let keys = &mut topic_of(&mut state.topics, id)?.keys;
    let gone = keys.forget(state.time, KEEP_LEAST_MS, steps.max(1));
    state.entries.keys -= u64::from(gone);
    state.entries.key_ages.set(id, keys.oldest());
    (gone > 0).then_some(gone)
}

fn forget_runs(state: &mut State, steps: u32) -> Option<u32> {
    let (_, (id, number)) = state.entries.run_ages.due(state.time)?;
    let now = state.time;
    let partition = state.path_mut(id)?.partitions.get_mut(number.index())?;
    let before = partition.settled_runs();
    partition.forget_settles(now, steps.max(1) as usize);
    let gone = before - partition.settled_runs();
    state.retime(id, number);
    (gone > 0).then(|| u32::try_from(gone).unwrap_or(u32::MAX))
}

/// A producer is remembered at least that long after its last publish (P3).
pub(super) const IDLE_LEAST_MS: u64 = 600_000;
/// Producers forgotten at a time.
const FORGET_MAX: usize = 64;
