//! A message is dead: the command that settles it on its path also stores its dead letter.
//!
//! The dead-letter topic is made with the first one. It has the partitions of its source and goes with it; neither it nor
//! its group `default` counts for the catalog's limits, as a message must never be lost to one: there is at most one
//! such topic for each topic that was made.

use super::{create_topic, join_group};
use crate::dead_letter::{DEAD_LETTER_GROUP, Envelope};
use crate::effect::{CopyEffect, Effect, MessagePlace};
use crate::names::dead_letter_name;
use crate::record::RECORD_OVERHEAD_BYTES;
use crate::settings::{GroupSettings, Setting, SettingsPatch, TopicSettings};
use crate::state::path_partitions::PathPartitions;
use crate::state::{State, topic_of};
use mortarmq_delivery::{Death, Ended, Fact, PathPartition};
use mortarmq_types::{Partition, PathId, Seq, TopicIncarnation};

/// Gives a dead message its place in the dead-letter topic, and says what its ledger is told of that.
///
/// # Panics
/// When the path does not exist, or is one of a dead-letter topic: there nothing dies.
/// # Source
/// P4; DESIGN section 2, "Dead letters, fan-out, delay" and "Copies".
pub(super) fn store(
    state: &mut State,
    id: PathId,
    partition: Partition,
    ended: &Ended,
    reason: Death,
    error: &str,
    effects: &mut Vec<Effect>,
) -> String {
    let path = &state.paths[&id];
    let source = path.topic;
    let name = format!("{}/{}", state.topics[&source].name, path.group);
    let envelope = Envelope::new((id, name), partition, ended, reason, error);
    let payload_bytes = envelope.payload_bytes(ended.size_bytes);
    let target = topic_for(state, source);
    // Facts go before anything is refused: they can be read again.
    let has_room = state.entries() < state.defaults().state_entries_max;
    let (commit_index, time) = (state.commit_index, state.time);
    let mark_steps = state.mark_steps(&state.topics[&target]);
    let topic = topic_of(&mut state.topics, target).expect("found or made just now");
    let found = topic.partition_mut(partition.index()).expect("invariant 7: it has its source's partitions");
    let seq = found.last_seq.next();
    found.last_seq = seq;
    found.kept.note(seq, found.bytes, time, mark_steps);
    found.bytes += u64::from(payload_bytes) + RECORD_OVERHEAD_BYTES as u64;
    let facts_before = found.facts.len();
    let fact = Fact { key_hash: ended.key_hash, size_bytes: payload_bytes, expires_at_ms: 0 };
    found.facts.push(seq, fact, has_room);
    let facts = found.facts.len();
    topic.facts = topic.facts - facts_before as u64 + facts as u64;
    state.entries.count_facts((target, partition), facts_before, facts);
    let told = format!("sequence {seq} of {}", topic.name);
    // The record of a redriven message may be gone. Its dead letter is not: nothing that frees it comes before this copy.
    let from = match ended.source {
        Some(seq) => MessagePlace { topic: target, partition, seq },
        None => MessagePlace { topic: source, partition, seq: ended.seq },
    };
    effects.push(Effect::Copy(Box::new(CopyEffect {
        from,
        to: MessagePlace { topic: target, partition, seq },
        commit_index,
        key_hash: ended.key_hash,
        payload_bytes,
        envelope,
        unwraps: ended.source.is_some(),
    })));
    if error.is_empty() { told } else { format!("{told}: {error}") }
}

/// The dead-letter topic of a topic; made if there is none.
fn topic_for(state: &mut State, source: TopicIncarnation) -> TopicIncarnation {
    let topic = &state.topics[&source];
    let name = dead_letter_name(&topic.name);
    if let Some(found) = state.names.get(&name.to_ascii_lowercase()) {
        return *found;
    }
    let partitions = topic.partitions.len();
    // What dies there stays there, so no group of it has a limit of attempts.
    let values = vec![(Setting::Partitions, partitions as u64), (Setting::MaxAttempts, 0)];
    let settings = TopicSettings::new(&state.defaults().settings, &SettingsPatch { values });
    // It stays as long as its topic, whatever the cluster's groups do by default.
    let stays = SettingsPatch { values: vec![(Setting::ExpireIdleMs, 0)] };
    let of_group = GroupSettings::new(&settings, &stays);
    let target = create_topic::insert(state, name, settings);
    let path_partitions = PathPartitions::new((0..partitions).map(|_| PathPartition::new(Seq::FIRST)));
    join_group::insert(state, target, DEAD_LETTER_GROUP.to_owned(), of_group, path_partitions);
    target
}
