//! `loss`: published ok before the end of a drained run, and on some path never delivered, nor seen in the DLQ, nor counted
//! as dead or dropped.
//!
//! This file says which pairs are in question; [`crate::books`] knows whether the path's counters cover them.
//!
//! # Source
//! P1, P4: what was answered ok is delivered on every path, or counted.

use super::Rule;
use crate::finding::Found;
use crate::operation::{Name, OperateKind};
use crate::pair::Case;

/// What is found if nothing accounts for the message on a path it was never delivered on.
pub(crate) fn candidate(case: &Case<'_>, path: Name) -> Option<Found> {
    let end = case.context.end.as_ref().filter(|end| end.is_drained)?;
    // What was answered after the end is backlog.
    let publish = case
        .ok_publishes()
        .find(|publish| publish.span.ret <= end.at && case.context.path(path).owes(publish.topic) == Some(true))?;
    let text = "It was published ok, and neither delivered on this path nor counted as dead or dropped.".to_owned();
    Some(Found::new(Rule::Loss, text).of(case.msg).on(path).by([publish.at]))
}

/// Whether an operator may have purged it, in a run that does not count what was dropped.
pub(crate) fn is_purged(case: &Case<'_>, path: Name) -> bool {
    case.context.end_counters(path).is_none()
        && case
            .context
            .operates(OperateKind::Purge, path, case.msg)
            .any(|purge| case.ok_publishes().all(|publish| publish.span.may_precede(&purge.span)))
}
