//! The shard's own section: clocks, counters, the cluster's defaults, and what topics and paths there are.
//!
//! | field | bytes | meaning, unit | guards against |
//! |---|---|---|---|
//! | commit_index | 8 | the last applied command | a command applied twice or never (P10) |
//! | epoch | 8 | the leader's term of the last command | a term that goes back (P10) |
//! | time | 8 | cluster time, ms | time that goes back: leases that run too long |
//! | wall | 8 | the leader's wall clock, ms since 1970, for display | |
//! | gaps | 8 | sum of all gaps, ms, at most `time` | leases ended by an outage (P5) |
//! | last_delivery | 8 | the last delivery number given | a number given again (P10) |
//! | last_topic | 8 | the last incarnation given | an incarnation used again |
//! | last_path | 8 | the last path number given | a path number used again |
//! | has_defaults | 1 | 1 if the defaults follow | |
//! | apply_version, producer_window | 4, 4 | rules of apply; publishes per producer | replicas that differ |
//! | producer_idle | 8 | ms | the same |
//! | state_entries_max, segment_max_bytes | 8, 8 | entries; bytes | the same |
//! | max_delayed_per_partition | 8 | messages | the same |
//! | idempotency_window | 8 | ms | the same |
//! | settings | 1 + n × 9 | those of topics that name none of their own; as in a topic | the same |
//! | groups_expired | 8 | groups that nobody used and that were deleted | a counter that falls (P10) |
//! | ending count | 8 | members that are leaving | |
//! | ending | n × 17 | path (8), member (8), number of the cause (1), first come first | leases of members that are gone |
//! | topic count, topics | 8, n × 8 | incarnations, rising | a topic lost or doubled |
//! | path count, paths | 8, n × 8 | path numbers, rising | a path lost or doubled (P4) |

use super::ImageError;
use super::section::{Body, NUMBER_MAX, put_settings};
use crate::settings::{Defaults, TopicSettings};
use crate::state::{PATHS_MAX, State};
use bytes::{BufMut, BytesMut};
use mortarmq_types::{
    Cause, ClusterTime, CommitIndex, DeliveryId, Epoch, MemberId, PathId, TopicIncarnation, WallTime,
};
use std::collections::{BTreeSet, VecDeque};

/// What the state knows besides topics and paths.
#[derive(Clone, Debug, Default)]
pub(super) struct Head {
    pub(super) commit_index: CommitIndex,
    pub(super) epoch: Epoch,
    pub(super) time: ClusterTime,
    pub(super) wall: WallTime,
    pub(super) gaps_ms: u64,
    pub(super) last_delivery: DeliveryId,
    pub(super) last_topic: TopicIncarnation,
    pub(super) last_path: PathId,
    pub(super) defaults: Option<Defaults>,
    pub(super) groups_expired: u64,
    pub(super) ending: VecDeque<(PathId, MemberId, Cause)>,
}

impl Head {
    pub(super) fn of(state: &State) -> Self {
        Self {
            commit_index: state.commit_index,
            epoch: state.epoch,
            time: state.time,
            wall: state.wall,
            gaps_ms: state.gaps_ms,
            last_delivery: state.last_delivery,
            last_topic: state.last_topic,
            last_path: state.last_path,
            defaults: state.defaults.clone(),
            groups_expired: state.groups_expired,
            ending: state.ending.clone(),
        }
    }
}

pub(super) fn put<'a>(
    out: &mut BytesMut,
    head: &Head,
    topics: impl ExactSizeIterator<Item = &'a TopicIncarnation>,
    paths: impl ExactSizeIterator<Item = &'a PathId>,
) {
    out.put_u64(head.commit_index.get());
    out.put_u64(head.epoch.get());
    out.put_u64(head.time.get());
    out.put_u64(head.wall.get());
    out.put_u64(head.gaps_ms);
    out.put_u64(head.last_delivery.get());
    out.put_u64(head.last_topic.get());
    out.put_u64(head.last_path.get());
    out.put_u8(u8::from(head.defaults.is_some()));
    if let Some(defaults) = &head.defaults {
        out.put_u32(defaults.apply_version);
        out.put_u32(defaults.producer_window);
        out.put_u64(defaults.producer_idle_ms);
        out.put_u64(defaults.state_entries_max);
        out.put_u64(defaults.segment_max_bytes);
        out.put_u64(defaults.max_delayed_per_partition);
        out.put_u64(defaults.idempotency_window_ms);
        put_settings(out, |setting| defaults.settings.get(setting));
    }
    out.put_u64(head.groups_expired);
    out.put_u64(head.ending.len() as u64);
    for (path, member, cause) in &head.ending {
        out.put_u64(path.get());
        out.put_u64(member.get());
        out.put_u8(cause.number());
    }
    out.put_u64(topics.len() as u64);
    topics.for_each(|id| out.put_u64(id.get()));
    out.put_u64(paths.len() as u64);
    paths.for_each(|id| out.put_u64(id.get()));
}

pub(super) fn take(body: &mut Body) -> Result<(Head, Vec<TopicIncarnation>, Vec<PathId>), ImageError> {
    let mut head = Head {
        commit_index: CommitIndex::new(body.u64_in("commit_index", 0, NUMBER_MAX)?),
        epoch: Epoch::new(body.u64()?),
        time: ClusterTime::new(body.u64()?),
        wall: WallTime::new(body.u64()?),
        ..Head::default()
    };
    head.gaps_ms = body.u64_in("gaps", 0, head.time.get())?;
    head.last_delivery = DeliveryId::new(body.u64_in("last_delivery", 0, NUMBER_MAX)?);
    head.last_topic = TopicIncarnation::new(body.u64_in("last_topic", 0, NUMBER_MAX)?);
    head.last_path = PathId::new(body.u64_in("last_path", 0, NUMBER_MAX)?);
    head.defaults = match body.u8()? {
        0 => None,
        1 => Some(Defaults {
            apply_version: body.u32()?,
            producer_window: body.u32()?,
            producer_idle_ms: body.u64()?,
            state_entries_max: body.u64()?,
            segment_max_bytes: body.u64()?,
            max_delayed_per_partition: body.u64()?,
            idempotency_window_ms: body.u64()?,
            settings: TopicSettings::new(&TopicSettings::BUILD, &body.settings()?),
        }),
        found => return Err(body.wrong("has_defaults", u64::from(found))),
    };
    head.groups_expired = body.u64_in("groups_expired", 0, NUMBER_MAX)?;
    head.ending = take_ending(body, head.last_path)?;
    let topics = take_rising(body, "topics", head.last_topic.get())?;
    let paths = take_rising(body, "paths", head.last_path.get())?;
    // The own books of dead-letter topics, one for each at most, do not count.
    if paths.len() > PATHS_MAX + topics.len() {
        return Err(body.wrong("paths", paths.len() as u64));
    }
    Ok((head, topics.into_iter().map(TopicIncarnation::new).collect(), paths.into_iter().map(PathId::new).collect()))
}

/// The path may be gone by now: what is left of its members goes when their turn comes.
fn take_ending(body: &mut Body, last_path: PathId) -> Result<VecDeque<(PathId, MemberId, Cause)>, ImageError> {
    let count = body.count("ending", 17)?;
    let (mut ending, mut seen) = (VecDeque::with_capacity(count), BTreeSet::new());
    for _ in 0..count {
        let path = PathId::new(body.u64_in("ending path", 1, last_path.get())?);
        let member = MemberId::new(body.u64_in("ending member", 1, u64::MAX)?);
        let cause = match Cause::from_number(body.u8()?) {
            Some(cause @ (Cause::ConsumerLost | Cause::Released)) => cause,
            other => return Err(body.wrong("ending cause", other.map_or(u64::MAX, |cause| u64::from(cause.number())))),
        };
        if !seen.insert((path, member)) {
            return Err(body.wrong("ending member", member.get()));
        }
        ending.push_back((path, member, cause));
    }
    Ok(ending)
}

/// Numbers from 1 to `most`, each above the one before.
fn take_rising(body: &mut Body, field: &'static str, most: u64) -> Result<Vec<u64>, ImageError> {
    let count = body.count(field, 8)?;
    let mut numbers = Vec::with_capacity(count);
    let mut least = 1;
    for _ in 0..count {
        let number = body.u64_in(field, least, most)?;
        numbers.push(number);
        least = number + 1;
    }
    Ok(numbers)
}
