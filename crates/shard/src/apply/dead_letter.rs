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
    let commit_index = state.commit_index;
    let topic = topic_of(&mut state.topics, target).expect("found or made just now");
    let found = topic.partition_mut(partition.index()).expect("invariant 7: it has its source's partitions");
    let seq = found.last_seq.next();
    found.last_seq = seq;
    found.bytes += u64::from(payload_bytes) + RECORD_OVERHEAD_BYTES as u64;
    found.facts.push(seq, Fact { key_hash: ended.key_hash, size_bytes: payload_bytes, expires_at_ms: 0 }, true);
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
    let settings = TopicSettings::new(&SettingsPatch { values });
    let of_group = GroupSettings::new(&settings, &SettingsPatch::default());
    let target = create_topic::insert(state, name, settings);
    let path_partitions = vec![PathPartition::new(Seq::FIRST); partitions];
    join_group::insert(state, target, DEAD_LETTER_GROUP.to_owned(), of_group, path_partitions);
    target
}
