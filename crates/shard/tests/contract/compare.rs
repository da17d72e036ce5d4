//! Holds the shard against the model: every pair of every path, every counter (P9), and when it next has to be woken.

use crate::model::{Fate, Model, Obligation, Open, Path, Stands, Verdict, allowed};
use mortarmq_delivery::{Books, DuePosition, Entry, Grant, PathPartition};
use mortarmq_shard::{Effect, State};
use mortarmq_types::{Cause, ClusterTime, DropReason, KeyHash, Partition, PathId, Seq, TopicIncarnation};
use std::collections::BTreeMap;

/// One command brings no more messages, dead letters included.
const NEW_FACTS_MAX: u64 = 24;

/// Whether they are the same. Where the model knows only a range, it learns the value.
pub(crate) fn compare(model: &mut Model, state: &State) -> Verdict {
    allowed!(state.time.get() == model.time && state.gaps_ms == model.gaps, "the clocks differ");
    allowed!(state.commit_index.get() == model.commit_index, "P10: commit index {}", state.commit_index);
    allowed!(state.last_delivery.get() == model.last_delivery, "P10: delivery {}", state.last_delivery);
    let topics: Vec<_> = state.topics.iter().map(|(id, topic)| (*id, topic.name.as_str())).collect();
    let expected: Vec<_> = model.topics.iter().map(|(id, topic)| (*id, topic.name.as_str())).collect();
    allowed!(topics == expected, "topics {topics:?}, expected {expected:?}");
    let mut learned = Vec::new();
    for (id, topic) in &state.topics {
        for (number, (found, messages)) in topic.partitions.iter().zip(&model.topics[id].partitions).enumerate() {
            let place = format!("{}:{number}", topic.name);
            allowed!(found.last_seq.get() == messages.last(), "{place}: last sequence {}", found.last_seq);
            let (base, known) = (found.facts.base().get(), messages.known_from);
            // What every path has passed may be forgotten at any time.
            let passed = model.lowest_position(*id, number).unwrap_or(known);
            let most = if model.may_lack_facts(NEW_FACTS_MAX) { messages.last() + 1 } else { passed };
            allowed!(base == known || (known < base && base <= most), "{place}: facts from {base}, expected {known}");
            learned.push((*id, number, base));
            let kept = found.kept.first_seq.get();
            allowed!(kept == messages.kept_from, "P4, P10: {place}: kept from {kept}, expected {}", messages.kept_from);
            let needed = state.needed_from(*id, Partition::from_index(number)).map(Seq::get);
            allowed!(needed == Some(model.needed_from(*id, number)), "P4: {place}: needed from {needed:?}");
        }
    }
    for (id, number, base) in learned {
        model.topics.get_mut(&id).expect("the topics are the same").partitions[number].known_from = base;
    }
    let paths: Vec<_> = state.paths.iter().map(|(id, path)| (*id, path.topic, path.group.as_str())).collect();
    let expected: Vec<_> = model.paths.iter().map(|(id, path)| (*id, path.topic, path.group.as_str())).collect();
    allowed!(paths == expected, "paths {paths:?}, expected {expected:?}");
    for id in state.paths.keys() {
        compare_path(model, state, *id).map_err(|text| format!("path {id}: {text}"))?;
    }
    compare_next_due(model, state)
}

fn compare_path(model: &mut Model, state: &State, id: PathId) -> Verdict {
    let found = &state.paths[&id];
    let topic = &model.topics[&found.topic];
    let members: Vec<_> = found.members.iter().map(|(member, it)| (*member, it.secret_hash)).collect();
    let expected: Vec<_> = model.paths[&id].members.iter().map(|(member, secret)| (*member, *secret)).collect();
    allowed!(members == expected, "members {members:?}, expected {expected:?}");
    for (member, it) in &found.members {
        let held = (u64::from(it.held_messages), it.held_bytes);
        let counted = model.paths[&id].pushed_to(*member, topic);
        allowed!(held == counted, "wire rule 8: {member} holds {held:?} by pushes, counted {counted:?}");
    }
    for (number, (partition, _)) in found.partitions_of(&state.topics[&found.topic]).enumerate() {
        let messages = topic.partitions[number].clone();
        let last = Seq::new(messages.last());
        let schedule = &state.topics[&found.topic].partitions[number];
        let path = model.paths.get_mut(&id).expect("the paths are the same");
        let key = |seq: u64| messages.get(seq).key;
        let in_partition = |text: String| format!("partition {number}: {text}");
        compare_pairs(path, number, partition, |seq| schedule.schedule.due_of(seq), last).map_err(in_partition)?;
        compare_counters(path, number, partition, key, last).map_err(in_partition)?;
        for member in found.members.keys() {
            let resent: Vec<_> = partition.held_by(*member).map(|(seq, _)| seq.get()).collect();
            let leases = path.partitions[number].leases().filter(|(_, lease)| lease.member == *member);
            let held: Vec<_> = leases.map(|(seq, _)| seq).collect();
            allowed!(resent == held, "wire rule 6: a resume sends {resent:?} again, {member} holds {held:?}");
        }
        let kept = partition.kept_from().get();
        allowed!(kept == messages.kept_from, "partition {number}: kept from {kept}, expected {}", messages.kept_from);
        let floor = path.partitions[number].unsettled().map(|(seq, _)| seq).next().unwrap_or(last.get() + 1);
        let found = schedule.floor(partition).get();
        allowed!(found == floor, "partition {number}: floor {found}, expected {floor}");
    }
    Ok(())
}

fn compare_pairs(
    path: &mut Path,
    number: usize,
    partition: &PathPartition,
    due_of: impl Fn(Seq) -> Option<ClusterTime>,
    last: Seq,
) -> Verdict {
    let obligation = &mut path.partitions[number];
    let at = (partition.position().get(), partition.replay_end().get());
    let expected = (obligation.position, obligation.offered_to);
    allowed!(at == expected, "P10: position and furthest position {at:?}, expected {expected:?}");
    let mut entries = partition.unsettled();
    for (seq, pair) in &mut obligation.pairs {
        let at = Seq::new(*seq);
        let owes = partition.owes(at, due_of(at));
        allowed!(owes == pair.open.is_some(), "P4, P6: message {seq} is owed: {owes}; {pair:?}");
        let is_packed = pair.open.as_ref().is_some_and(|open| open.packed);
        allowed!(partition.is_packed(at) == is_packed, "message {seq} is packed: {}; {pair:?}", !is_packed);
        let Some(open) = pair.open.as_mut().filter(|open| open.offered && !open.packed) else { continue };
        let Some((found, entry)) = entries.next() else { return Err(format!("P4: message {seq} is gone: {open:?}")) };
        let is_same = found == at && compare_entry(open, entry, partition);
        allowed!(is_same, "P5, P7: message {found} is {entry:?}, expected message {seq} as {open:?}");
    }
    allowed!(entries.next().is_none(), "messages of which the model knows nothing");
    allowed!(obligation.pairs.len() as u64 == last.get(), "the model has a pair for each message");
    Ok(())
}

fn compare_entry(open: &mut Open, entry: &Entry, partition: &PathPartition) -> bool {
    use mortarmq_delivery::State;
    let of_entry = (entry.attempt.get(), entry.cause, entry.previous.get(), entry.fell_due().get());
    // What is leased has its place already: when it fell due says nothing any more.
    let due = if open.stands == Stands::Waiting { open.due } else { 0 };
    if of_entry != (open.attempt, open.cause, open.previous, due) || entry.alone != open.alone {
        return false;
    }
    match (&entry.state, open.stands) {
        (State::Waiting { .. }, Stands::Waiting) | (State::Held, Stands::Held) => true,
        (State::Scheduled { due }, Stands::Scheduled { earliest, latest }) => {
            let due = due.get();
            open.stands = Stands::Scheduled { earliest: due, latest: due };
            (earliest..=latest).contains(&due)
        }
        (State::Leased(found), Stands::Leased(lease)) => {
            let granted = partition.granted(found);
            let (id, member, deadline) = (found.delivery_id.get(), granted.member, found.deadline.get());
            (id, member, deadline) == (lease.delivery, lease.member, lease.deadline)
                && (granted.grant == Grant::Pull) == lease.pull
                && granted.granted_at.commit_index.get() == lease.granted_at
        }
        (State::Waiting { .. } | State::Scheduled { .. } | State::Leased(_) | State::Held, _) => false,
    }
}

fn compare_counters(
    path: &Path,
    number: usize,
    partition: &PathPartition,
    key: impl Fn(u64) -> KeyHash,
    last: Seq,
) -> Verdict {
    let obligation = &path.partitions[number];
    let count = |test: &dyn Fn(&Open) -> bool| obligation.unsettled().filter(|(_, open)| test(open)).count() as u64;
    let dropped = |reason: &DropReason| obligation.count(Fate::Dropped(*reason));
    let expected = Books {
        produced: obligation.lives(),
        delivered: obligation.count(Fate::Acked),
        dropped: DropReason::ALL.iter().map(dropped).sum(),
        dlq: obligation.count(Fate::Dead),
        depth: count(&|_| true),
    };
    let books = partition.books(last);
    allowed!(books == expected, "P9: {books:?}, counted {expected:?}");
    for reason in DropReason::ALL {
        let (found, counted) = (partition.dropped_by(*reason), dropped(reason));
        allowed!(found == counted, "P9: {found} dropped by {reason}, counted {counted}");
    }
    for cause in Cause::ALL.iter().filter(|cause| **cause != Cause::First) {
        let deliveries = obligation.pairs.values().flat_map(|pair| &pair.deliveries);
        let counted = deliveries.filter(|(_, other)| other == cause).count() as u64;
        let found = partition.retries_by(*cause);
        allowed!(found == counted, "P7: {found} deliveries {cause}, counted {counted}");
    }
    let skipped = obligation.unsettled().filter(|(seq, open)| !open.offered && *seq < obligation.position).count();
    let ready = ready(obligation, path.keeps_order(), key);
    for (what, found, counted) in [
        ("offered and not settled", partition.passed_over(), obligation.passed_over()),
        ("packed", partition.packed(), count(&|open| open.packed)),
        ("leased", partition.in_flight(), count(&|open| matches!(open.stands, Stands::Leased(_)))),
        ("scheduled", partition.scheduled(), count(&|open| matches!(open.stands, Stands::Scheduled { .. }))),
        ("held", partition.unreadable(), count(&|open| open.stands == Stands::Held)),
        ("delayed and skipped", partition.delayed(), skipped as u64),
        ("ready", partition.ready_messages(), ready),
    ] {
        allowed!(found == counted, "P9: {found} messages {what}, counted {counted}");
    }
    Ok(())
}

/// What was offered, waits for no time, and is the first of its key while nothing of its key is leased.
fn ready(obligation: &Obligation, in_order: bool, key: impl Fn(u64) -> KeyHash) -> u64 {
    let mut keys: BTreeMap<KeyHash, (u64, bool)> = BTreeMap::new();
    for (seq, open) in obligation.unsettled().filter(|(_, open)| open.offered) {
        let is_leased = matches!(open.stands, Stands::Leased(lease) if lease.ordered);
        keys.entry(key(seq)).or_insert((seq, false)).1 |= is_leased;
    }
    let is_free = |seq: u64| {
        let (first, is_leased) = keys[&key(seq)];
        !in_order || !key(seq).is_some() || (first == seq && !is_leased)
    };
    let waiting = obligation.unsettled().filter(|(_, open)| open.offered && open.stands == Stands::Waiting);
    waiting.filter(|(seq, _)| is_free(*seq)).count() as u64
}

/// Whoever waits for messages is told when some can be had: a path when its messages come free, a topic when some fall due.
pub(crate) fn compare_words(before: &State, after: &State, effects: &[Effect]) -> Verdict {
    let ready = |path: &mortarmq_shard::Path| path.partitions.made().map(|(_, it)| it.ready_messages()).sum::<u64>();
    for (id, path) in &after.paths {
        let was_ready = before.paths.get(id).map_or(0, ready);
        let told = effects.contains(&Effect::PathMoved(*id));
        allowed!(told || ready(path) <= was_ready, "P4: messages of path {id} came free, and nobody is told");
    }
    for (id, path) in &after.paths {
        let is_changed = before.paths.get(id).is_some_and(|before| before.settings != path.settings);
        let told = effects.contains(&Effect::PathChanged(*id));
        allowed!(told || !is_changed, "path {id} has other settings, and nobody is told");
    }
    let segment_bytes = after.defaults().segment_max_bytes;
    let told = effects.contains(&Effect::SegmentBytes(segment_bytes));
    allowed!(
        told || segment_bytes == before.defaults().segment_max_bytes,
        "segments of {segment_bytes}, and nobody is told"
    );
    for (id, topic) in &after.topics {
        let due = |at: DuePosition| before.time < at.due && at.due <= after.time;
        let fell_due = topic.partitions.iter().any(|partition| partition.schedule.places().any(due));
        let told = topic.paths.is_empty() || effects.contains(&Effect::TopicMoved(*id));
        allowed!(told || !fell_due, "P4: messages of topic {id} fell due, and nobody is told");
    }
    Ok(())
}

/// Files go once nobody needs what they hold, and not before.
pub(crate) fn compare_files(
    before: &BTreeMap<(TopicIncarnation, usize), u64>,
    model: &Model,
    effects: &[Effect],
) -> Verdict {
    let after = model.needed();
    let mut told: BTreeMap<(TopicIncarnation, usize), u64> = BTreeMap::new();
    for effect in effects {
        let Effect::Trim { topic, partition, below } = effect else { continue };
        let place = (*topic, partition.index());
        let Some(needed) = after.get(&place) else { continue };
        allowed!(below.get() <= *needed, "P4: files of {place:?} go below {below}, and {needed} is needed");
        let furthest = told.entry(place).or_default();
        *furthest = below.get().max(*furthest);
    }
    for (place, needed) in before {
        let Some(now) = after.get(place).filter(|now| *now > needed) else { continue };
        let found = told.get(place);
        allowed!(found == Some(now), "files of {place:?} below {now} may go, and {found:?} was told");
    }
    Ok(())
}

/// Nothing that has a time is slept over, and nobody is woken for nothing.
fn compare_next_due(model: &Model, state: &State) -> Verdict {
    let mut dues = Vec::new();
    for obligation in model.paths.values().flat_map(|path| &path.partitions) {
        dues.extend(obligation.unsettled().filter_map(|(_, open)| match open.stands {
            Stands::Leased(lease) => Some(lease.deadline + model.gaps),
            Stands::Scheduled { latest, .. } => Some(latest),
            Stands::Waiting | Stands::Held => None,
        }));
    }
    for messages in model.topics.values().flat_map(|topic| &topic.partitions) {
        let kept = messages.list.iter().skip(usize::try_from(messages.kept_from - 1).expect("small"));
        dues.extend(kept.map(|message| message.due).filter(|due| *due > model.time));
    }
    dues.extend(model.paths.keys().filter_map(|id| model.expires_at(*id)));
    let (found, expected) = (state.next_due().map(ClusterTime::get), dues.into_iter().min());
    // Where the last group went, what is due is told anew and forgotten with the next batch.
    let is_told_anew = model.group_went && found.is_some_and(|due| due <= model.time);
    if is_told_anew
        && state.topics.values().any(|topic| topic.partitions.iter().any(|it| it.schedule.has_due(state.time)))
    {
        return Ok(());
    }
    allowed!(found == expected, "woken at {found:?}, expected {expected:?}");
    Ok(())
}
