//! `double-lease`: two deliveries of a pair whose leases certainly overlap.
//!
//! # Source
//! P5: at most one live lease per pair at any moment.

use super::Rule;
use crate::finding::{Found, Sink};
use crate::lease::certainly_overlap;
use crate::operation::Settle;
use crate::pair::{Case, Pair, names};

/// Judges one message.
pub(crate) fn judge(case: &Case<'_>, sink: &mut Sink) {
    for pair in case.pairs.iter().filter(|pair| !pair.deliveries.is_empty()) {
        if !pair.is_one {
            sink.not_judged(Rule::DoubleLease);
            continue;
        }
        judge_pair(pair, sink);
    }
}

fn judge_pair(pair: &Pair<'_>, sink: &mut Sink) {
    if pair.deliveries.len() == 1 {
        sink.judged(Rule::DoubleLease);
        return;
    }
    let mut is_judged = true;
    for (index, one) in pair.deliveries.iter().enumerate() {
        for two in &pair.deliveries[index + 1..] {
            match certainly_overlap(pair, one, two) {
                Some(false) => {}
                None => is_judged = false,
                Some(true) => {
                    let text = "Two deliveries held it at the same time: the second began in the lease of the first.";
                    let named = |settle: &&Settle| names(settle, one) || names(settle, two);
                    let settles = pair.settles.iter().copied().filter(named).map(|settle| settle.at);
                    let found = Found::new(Rule::DoubleLease, text.to_owned()).of(pair.msg).on(pair.path);
                    sink.found(found.by([one.at, two.at]).by(settles));
                }
            }
        }
    }
    if is_judged {
        sink.judged(Rule::DoubleLease);
    } else {
        sink.not_judged(Rule::DoubleLease);
    }
}
