//! Who is given what is to be delivered alone (wire rule 6).
//!
//! A message that may kill its workers is leased to a member that holds nothing, and that is given nothing more until it is
//! settled. Of a path at most one member is in that case at a time: the others go on with everything else.
//!
//! Some member must become empty for it. So one is *reserved*: the one that holds least, of several the lowest id. It is
//! given nothing more until it is empty. That alone could wait for ever, for a member that asks for nothing, or works for
//! hours. So nobody insists on the reserved one: whoever asks and is empty gets the message; a member that asks takes the
//! place of one that is empty and does not; and after the time of a lease, in which whoever does not extend its leases
//! becomes empty, the next one by id is reserved.
//!
//! What a pull was given counts like what was pushed: it is in the hands of the same worker.

use crate::command::Deliver;
use crate::effect::Effect;
use crate::state::{Path, Reserved, State};
use mortarmq_delivery::PathRules;
use mortarmq_types::{LeaseTime, MemberId};
use std::ops::Bound;

/// What the member of a `Deliver` may be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// Everything but what is delivered alone.
    Others,
    /// One message that is delivered alone.
    Alone,
    /// Nothing: it holds one of these, or is to become empty for one.
    Nothing,
}

/// Decides what the member may be given, and who is reserved from here on.
pub(super) fn share(state: &mut State, deliver: &Deliver, effects: &mut Vec<Effect>) -> Share {
    let (now, has_room) = (state.now().lease, state.has_room());
    let path = state.path_mut(deliver.path).expect("looked up by the caller");
    let before = path.reserved.map(|reserved| reserved.member);
    let (share, reserved) = decide(path, deliver.member, now, has_room);
    path.reserved = reserved;
    if reserved.map(|reserved| reserved.member) != before {
        // Whoever was given nothing for the sake of this place may be given something now.
        effects.push(Effect::PathMoved(deliver.path));
    }
    share
}

fn decide(path: &Path, asking: MemberId, now: LeaseTime, has_room: bool) -> (Share, Option<Reserved>) {
    let of = |member: MemberId| if member == asking { Share::Nothing } else { Share::Others };
    if let Some(alone) = path.alone_with() {
        return (of(alone), None);
    }
    let rules = path.settings.rules();
    if !path.partitions.made().any(|(_, partition)| partition.has_alone(&rules, has_room)) {
        return (Share::Others, None);
    }
    if path.holds_nothing(asking) {
        return (Share::Alone, path.reserved);
    }
    let reserved = reserve(path, asking, &rules, now);
    (of(reserved.member), Some(reserved))
}

/// Who is to become empty.
fn reserve(path: &Path, asking: MemberId, rules: &PathRules, now: LeaseTime) -> Reserved {
    let Some(reserved) = path.reserved else {
        let held = |member: &MemberId| path.members[member].held_messages;
        let least = path.members.keys().copied().min_by_key(|member| (held(member), *member));
        return Reserved { member: least.unwrap_or(asking), since: now };
    };
    if reserved.member != asking && path.holds_nothing(reserved.member) {
        return Reserved { member: asking, since: now };
    }
    if now < reserved.since.after_ms(rules.lease_ms) {
        return reserved;
    }
    let mut behind = path.members.range((Bound::Excluded(reserved.member), Bound::Unbounded));
    let next = behind.next().or_else(|| path.members.first_key_value()).map(|(member, _)| *member);
    Reserved { member: next.unwrap_or(asking), since: now }
}
