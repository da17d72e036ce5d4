//! When an operation happened, and what can be said of the order of two.

use crate::location::Location;

/// The time of an open end: the call never returned.
pub(crate) const NEVER: u64 = u64::MAX;

/// When an operation happened, as its client saw it.
///
/// # Units
/// `call` and `ret` are nanoseconds of one clock; `commit` counts commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// When the client asked.
    pub call: u64,
    /// When the answer came; [`NEVER`] if none did.
    pub ret: u64,
    /// The position in the broker's log the answer rests on, if the broker gave one.
    pub commit: Option<u64>,
}

impl Span {
    /// Whether this operation is certainly before the other: by time or by index, and nothing says the opposite.
    ///
    /// Equal times overlap, equal indexes are in no order, and nothing comes after a call that never returned.
    /// Where time and index contradict each other there is no order; the rule `commit-order` finds that.
    pub(crate) fn certainly_before(&self, other: &Self) -> bool {
        self.says_before(other) && !other.says_before(self)
    }

    /// Whether this operation may be before the other.
    pub(crate) fn may_precede(&self, other: &Self) -> bool {
        !other.certainly_before(self)
    }

    /// When it was answered; when it was called, if it never was.
    pub(crate) fn moment(&self) -> u64 {
        if self.ret == NEVER { self.call } else { self.ret }
    }

    fn says_before(&self, other: &Self) -> bool {
        self.ret < other.call || self.index_before(other)
    }

    fn index_before(&self, other: &Self) -> bool {
        matches!((self.commit, other.commit), (Some(mine), Some(its)) if mine < its)
    }
}

/// What the order of operations is asked of: everything that has a span.
pub(crate) trait Timed {
    /// When it happened.
    fn span(&self) -> &Span;
    /// Where its record stands.
    fn location(&self) -> Location;
}

#[cfg(test)]
mod tests {
    use super::{NEVER, Span};

    fn span(call: u64, ret: u64, commit: Option<u64>) -> Span {
        Span { call, ret, commit }
    }

    #[test]
    fn time_orders_what_does_not_overlap_and_equal_times_overlap() {
        assert!(span(1, 2, None).certainly_before(&span(3, 4, None)));
        assert!(!span(1, 3, None).certainly_before(&span(3, 4, None)));
        assert!(!span(1, NEVER, None).certainly_before(&span(3, 4, None)));
        assert!(span(1, 3, None).may_precede(&span(3, 4, None)));
    }

    #[test]
    fn index_orders_what_overlaps_in_time_and_equal_indexes_do_not() {
        assert!(span(1, 9, Some(1)).certainly_before(&span(1, 9, Some(2))));
        assert!(!span(1, 9, Some(2)).certainly_before(&span(1, 9, Some(2))));
        assert!(!span(1, 9, Some(1)).certainly_before(&span(1, 9, None)));
    }

    #[test]
    fn index_against_time_is_no_order() {
        let (early, late) = (span(1, 2, Some(9)), span(3, 4, Some(8)));
        assert!(!early.certainly_before(&late) && !late.certainly_before(&early));
    }
}
