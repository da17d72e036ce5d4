//! `phantom`: a delivered message that no publish ever named.
//!
//! # Source
//! P1, P2: what a broker delivers, a client has sent.

use super::Rule;
use crate::finding::{Found, Sink};
use crate::pair::Case;

/// Judges one message.
pub(crate) fn judge(case: &Case<'_>, sink: &mut Sink) {
    let Some((pair, delivery)) = case.pairs.iter().find_map(|pair| Some((pair, *pair.deliveries.first()?))) else {
        return;
    };
    sink.judged(Rule::Phantom);
    if case.publishes.is_empty() {
        let text = "It was delivered, and nobody ever published it.".to_owned();
        sink.found(Found::new(Rule::Phantom, text).of(case.msg).on(pair.path).by([delivery.at]));
    }
}
