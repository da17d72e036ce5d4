//! `order`: a later message of a key overtook an earlier one.
//!
//! On a path with `order=key`: a delivery D of a later message was certainly before a delivery, or an ok settle or extend, of
//! an earlier one, and nothing that the contract knows lets it pass. A settle that may be a repetition proves nothing: retention
//! drops a message whose delivery has ended. This file judges the messages of one key exactly;
//! which keys need that is found by [`crate::keys`], from a few numbers per message.
//!
//! The messages of a key are sorted by sequence. Going back from a message, the latest event of all messages so far tells
//! when to stop: nothing before it can have been overtaken. That is log-linear, but for messages given by one Deliver.
//!
//! # Source
//! P8: a later message of a key never overtakes an unsettled earlier one, also through redelivery.

use super::Rule;
use crate::finding::{Found, Sink};
use crate::location::Location;
use crate::operation::{Delivery, MsgId, Name, Outcome, Position, Settle};
use crate::pair::{Case, Pair, is_end};
use crate::span::{NEVER, Span};

/// A message of a key on an ordered path.
pub(crate) struct Member<'c, 'a> {
    case: &'c Case<'a>,
    pair: &'c Pair<'a>,
    /// Where it stands in its key's order.
    place: Option<Position>,
    publish: Option<Span>,
    latest: Latest,
}

/// The latest that certainly happened to a message: by time and by index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Latest {
    pub call: u64,
    pub commit: u64,
}

impl Latest {
    /// The later of two.
    pub(crate) fn max(self, other: Self) -> Self {
        Self { call: self.call.max(other.call), commit: self.commit.max(other.commit) }
    }

    /// Whether a delivery may be before the latest of these events.
    pub(crate) fn is_after(self, delivery: &Span) -> bool {
        delivery.ret < self.call || delivery.commit.is_some_and(|commit| commit < self.commit)
    }

    /// Of the events of a pair that a later message must not be before.
    pub(crate) fn of(pair: &Pair<'_>) -> Self {
        let spans =
            pair.deliveries.iter().map(|delivery| &delivery.span).chain(ok_settles(pair).map(|settle| &settle.span));
        spans.fold(Self::default(), |latest, span| {
            latest.max(Self { call: span.call, commit: span.commit.unwrap_or(0) })
        })
    }
}

/// The place of a pair's message in its key's order: as its deliveries say, else as its publish does.
pub(crate) fn place_of(case: &Case<'_>, pair: &Pair<'_>) -> Option<Position> {
    let delivered = pair.deliveries.iter().find_map(|delivery| delivery.position);
    delivered.or_else(|| {
        let mut own = case.publishes.iter().filter(|publish| Some(publish.topic) == pair.info.topic);
        own.find_map(|publish| publish.position)
    })
}

/// Whether two deliveries were given by one Deliver: same client and index; where either has none, same call.
pub(crate) fn is_same_deliver(one: &Delivery, two: &Delivery) -> bool {
    one.client == two.client
        && match (one.span.commit, two.span.commit) {
            (Some(one), Some(two)) => one == two,
            _ => one.span.call == two.span.call,
        }
}

impl<'c, 'a> Member<'c, 'a> {
    /// A message on a path.
    pub(crate) fn new(case: &'c Case<'a>, pair: &'c Pair<'a>) -> Self {
        let publish = case.ok_publishes().next().map(|publish| publish.span);
        Self { case, pair, place: place_of(case, pair), publish, latest: Latest::of(pair) }
    }

    fn msg(&self) -> MsgId {
        self.case.msg
    }
}

/// Judges the messages of one key on one path, in one partition where partitions are known.
pub(crate) fn judge(path: Name, mut members: Vec<Member<'_, '_>>, sink: &mut Sink) {
    let by_index = members.iter().all(|member| member.publish.is_some_and(|publish| publish.commit.is_some()));
    members.sort_by_key(|member| {
        let publish =
            member.publish.map_or(NEVER, |publish| if by_index { publish.commit.unwrap_or(0) } else { publish.ret });
        (member.place.map(|(_, seq)| seq), publish)
    });
    let mut so_far = Latest::default();
    let latest: Vec<Latest> = members
        .iter()
        .map(|member| {
            so_far = so_far.max(member.latest);
            so_far
        })
        .collect();
    for (index, later) in members.iter().enumerate() {
        sink.judged(Rule::Order);
        let overtaken = later.pair.deliveries.iter().find_map(|delivery| {
            let earlier = (0..index).rev().take_while(|earlier| latest[*earlier].is_after(&delivery.span));
            earlier.map(|earlier| &members[earlier]).find_map(|earlier| {
                let event = overtaken_event(earlier, later, delivery)?;
                Some((delivery, earlier, event))
            })
        });
        if let Some((delivery, earlier, event)) = overtaken {
            let text = "It was delivered before an earlier message of its key was done.".to_owned();
            let publishes =
                [earlier.case, later.case].into_iter().flat_map(|case| case.publishes.iter().map(|publish| publish.at));
            let mut found =
                Found::new(Rule::Order, text).of(later.msg()).on(path).by(publishes).by([delivery.at, event]);
            found.other = Some(earlier.msg());
            sink.found(found);
        }
    }
}

/// What of the earlier message certainly came after a delivery of the later one, if nothing lets that pass.
fn overtaken_event(earlier: &Member<'_, '_>, later: &Member<'_, '_>, delivery: &Delivery) -> Option<Location> {
    if !is_certainly_earlier(earlier, later) {
        return None;
    }
    let pair = earlier.pair;
    let delivered = pair.deliveries.iter().map(|event| (&event.span, event.at));
    let settled = ok_settles(pair).filter(|event| !may_repeat(pair, event, delivery));
    let settled = settled.map(|event| (&event.span, event.at));
    let (_, at) = delivered.chain(settled).find(|(span, _)| delivery.span.certainly_before(span))?;
    let is_together = pair.deliveries.iter().any(|other| is_same_deliver(other, delivery));
    let is_done = pair
        .settles
        .iter()
        .any(|settle| (settle.may_ack() || settle.may_kill()) && settle.span.may_precede(&delivery.span));
    let lets_pass = is_together || is_done || is_back(pair, delivery) || is_delayed(earlier.case, pair, delivery);
    (!lets_pass).then_some(at)
}

/// Whether a settle may say again what was said before the delivery of a later message, and changed nothing. Retention may have
/// dropped the message when its delivery had ended by that.
fn may_repeat(pair: &Pair<'_>, event: &Settle, delivery: &Delivery) -> bool {
    is_end(event) && pair.may_have_been_said(event, &delivery.span)
}

/// By sequence in one partition; without, by publishes of which one is certainly before the other.
fn is_certainly_earlier(earlier: &Member<'_, '_>, later: &Member<'_, '_>) -> bool {
    match (earlier.place, later.place) {
        (Some(one), Some(two)) => one.0 == two.0 && one.1 < two.1,
        // Any of the later one's publishes may have stored it, so the earlier must be before them all.
        _ => earlier.publish.is_some_and(|one| {
            let mut taken = later.case.publishes.iter().filter(|publish| publish.outcome != Outcome::Refused);
            later.publish.is_some() && taken.all(|publish| one.certainly_before(&publish.span))
        }),
    }
}

/// Whether the pair was brought back by an operator, or may have been, and not certainly before the delivery.
fn is_back(pair: &Pair<'_>, delivery: &Delivery) -> bool {
    let delivered = pair
        .deliveries
        .iter()
        .any(|other| !other.span.certainly_before(&delivery.span) && pair.may_be_brought_back(other));
    delivered || pair.has_return(|operate| !operate.certainly_before(&delivery.span))
}

/// Whether it was published with a delay and not delivered before. It joins its key's order when the path comes to it, in the
/// turn of what is due, and that may be long after its delay has run out: nobody outside can tell.
fn is_delayed(case: &Case<'_>, pair: &Pair<'_>, delivery: &Delivery) -> bool {
    case.publishes.iter().any(|publish| publish.delay_ms > 0 && publish.outcome != Outcome::Refused)
        && !pair.deliveries.iter().any(|other| other.span.certainly_before(&delivery.span))
}

fn ok_settles<'p, 'a>(pair: &'p Pair<'a>) -> impl Iterator<Item = &'a Settle> + 'p {
    pair.settles.iter().copied().filter(|settle| settle.outcome == Outcome::Ok)
}
