//! `delivery-id`: an id used twice on a path, or not growing per pair.
//!
//! This file judges one message. That two messages of a path share an id is seen while records are read, see
//! [`crate::ids`].
//!
//! # Source
//! P10: positions never go back. A reused id would let an old ack settle another delivery.

use super::Rule;
use crate::context::Field;
use crate::finding::{Found, Sink};
use crate::operation::Delivery;
use crate::pair::{Case, Pair};

/// Judges one message.
pub(crate) fn judge(case: &Case<'_>, sink: &mut Sink) {
    for pair in &case.pairs {
        for (index, delivery) in pair.deliveries.iter().enumerate() {
            if delivery.id.is_some() {
                sink.judged(Rule::DeliveryId);
                judge_against(pair, &pair.deliveries[..index], delivery, sink);
            } else if pair.info.gives(Field::Id, delivery) {
                sink.judged(Rule::DeliveryId);
                found(pair, &[delivery], "The delivery_id is missing.", sink);
            } else {
                sink.not_judged(Rule::DeliveryId);
            }
        }
    }
}

fn judge_against(pair: &Pair<'_>, known: &[&Delivery], delivery: &Delivery, sink: &mut Sink) {
    if let Some(same) = known.iter().find(|known| known.id == delivery.id) {
        return found(pair, &[same, delivery], "Two deliveries have one delivery_id.", sink);
    }
    if !pair.is_one {
        return;
    }
    let falls = known.iter().find(|known| {
        known.id.is_some()
            && ((known.span.certainly_before(&delivery.span) && known.id > delivery.id)
                || (delivery.span.certainly_before(&known.span) && known.id < delivery.id))
    });
    if let Some(falls) = falls {
        found(pair, &[falls, delivery], "A later delivery of it has a lower delivery_id.", sink);
    }
}

fn found(pair: &Pair<'_>, deliveries: &[&Delivery], text: &str, sink: &mut Sink) {
    let found = Found::new(Rule::DeliveryId, text.to_owned()).of(pair.msg).on(pair.path);
    sink.found(found.by(deliveries.iter().map(|delivery| delivery.at)));
}
