//! `torn-transaction`: of the records of one `TXN` some took effect and some did not.
//!
//! # Source
//! A `TXN` is one command: all of it or nothing.

use std::collections::BTreeMap;

use super::Rule;
use crate::finding::{Found, Sink};
use crate::location::Location;
use crate::operation::{MsgId, Outcome, Publish, Settle};
use crate::pair::{Case, Pair};

/// What is known of each transaction, by the hash of its id.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    known: BTreeMap<u64, Parts>,
}

/// A part that took effect, and one that did not.
#[derive(Debug, Default)]
struct Parts {
    done: Option<(MsgId, Location)>,
    undone: Option<(MsgId, Location)>,
}

impl Transactions {
    /// Takes a message's parts of transactions.
    pub(crate) fn add(&mut self, case: &Case<'_>) {
        for publish in &case.publishes {
            if let Some(txn) = publish.txn {
                self.note(txn, publish_took_effect(case, publish), case.msg, publish.at);
            }
        }
        for pair in &case.pairs {
            for settle in &pair.settles {
                if let Some(txn) = settle.txn {
                    self.note(txn, settle_took_effect(pair, settle), case.msg, settle.at);
                }
            }
        }
    }

    /// Finds those of which only a part took effect.
    pub(crate) fn judge(&self, sink: &mut Sink) {
        for parts in self.known.values() {
            sink.judged(Rule::TornTransaction);
            if let (Some(done), Some(undone)) = (parts.done, parts.undone) {
                let text = "A part of a transaction took effect, and another did not.".to_owned();
                let mut found = Found::new(Rule::TornTransaction, text).of(undone.0).by([done.1, undone.1]);
                found.other = Some(done.0).filter(|other| *other != undone.0);
                sink.found(found);
            }
        }
    }

    fn note(&mut self, txn: u64, took_effect: Option<bool>, msg: MsgId, at: Location) {
        let parts = self.known.entry(txn).or_default();
        match took_effect {
            Some(true) => parts.done = parts.done.or(Some((msg, at))),
            Some(false) => parts.undone = parts.undone.or(Some((msg, at))),
            None => {}
        }
    }
}

/// Whether the message was stored; nothing, if that cannot be known.
fn publish_took_effect(case: &Case<'_>, publish: &Publish) -> Option<bool> {
    let is_delivered = case.pairs.iter().any(|pair| !pair.deliveries.is_empty());
    match publish.outcome {
        Outcome::Ok => Some(true),
        Outcome::Refused => Some(false),
        Outcome::Unknown if case.publishes.len() > 1 => None,
        Outcome::Unknown if is_delivered => Some(true),
        Outcome::Unknown => {
            // In a drained run that dropped nothing, what was never delivered was not stored.
            let end = case.context.end.as_ref().filter(|end| end.is_drained && publish.span.call <= end.at)?;
            let mut paths = case.context.paths_of(publish.topic).peekable();
            paths.peek()?;
            let counts_nothing = paths.all(|path| {
                let counters = end.balance.iter().find(|(name, _)| *name == path);
                counters.is_some_and(|(_, counters)| counters.dropped == 0 && counters.dlq == 0)
            });
            counts_nothing.then_some(false)
        }
    }
}

/// Whether a settle took effect; nothing, if that cannot be known.
fn settle_took_effect(pair: &Pair<'_>, settle: &Settle) -> Option<bool> {
    match settle.outcome {
        Outcome::Ok => Some(true),
        Outcome::Refused => Some(false),
        Outcome::Unknown => {
            // It did not if the message came again by itself and was settled then.
            let came_again = pair.deliveries.iter().any(|delivery| {
                settle.may_ack()
                    && settle.span.certainly_before(&delivery.span)
                    && !pair.may_be_brought_back(delivery)
                    && pair.settles_of(delivery).any(|later| later.is_ok_ack())
            });
            came_again.then_some(false)
        }
    }
}
