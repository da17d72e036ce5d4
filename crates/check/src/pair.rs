//! A pair, (message, path), with all its operations: the unit that is judged.

use crate::context::{Context, Field, PathInfo};
use crate::operation::{
    Cause, Delivery, MsgId, Name, OperateKind, Operation, Outcome, Position, Publish, Settle, SettleKind,
    is_brought_back,
};
use crate::options::Contract;
use crate::span::Span;

/// One message with everything recorded of it.
#[derive(Debug)]
pub(crate) struct Case<'a> {
    pub context: &'a Context,
    pub msg: MsgId,
    /// Its key, as the first delivery that has one says, else the first publish.
    pub key: Option<u64>,
    pub publishes: Vec<&'a Publish>,
    pub pairs: Vec<Pair<'a>>,
    /// Whether it was published several times without one producer identity.
    pub is_ambiguous: bool,
}

/// One message on one path.
#[derive(Debug)]
pub(crate) struct Pair<'a> {
    pub context: &'a Context,
    pub msg: MsgId,
    pub key: Option<u64>,
    pub path: Name,
    pub info: &'a PathInfo,
    /// In the order in which they arrived; one that was sent again at a resume stands once.
    pub deliveries: Vec<&'a Delivery>,
    /// In the order in which they were answered.
    pub settles: Vec<&'a Settle>,
    /// Whether its deliveries are certainly of one stored message.
    pub is_one: bool,
}

impl<'a> Case<'a> {
    /// Puts together what was recorded of a message. The operations stand in the order of their answers.
    pub(crate) fn new(context: &'a Context, msg: MsgId, operations: &'a [Operation]) -> Self {
        let mut publishes = Vec::new();
        for operation in operations {
            if let Operation::Publish(publish) = operation {
                publishes.push(publish);
            }
        }
        let is_ambiguous = is_ambiguous(&publishes);
        let mut case = Self { context, msg, key: key_of(operations), publishes, pairs: Vec::new(), is_ambiguous };
        for operation in operations {
            if let Operation::Delivery(delivery) = operation {
                case.add_delivery(delivery);
            }
        }
        for operation in operations {
            if let Operation::Settle(settle) = operation {
                case.add_settle(settle);
            }
        }
        case
    }

    /// Its publishes that were answered ok.
    pub(crate) fn ok_publishes(&self) -> impl Iterator<Item = &'a Publish> {
        self.publishes.iter().copied().filter(|publish| publish.outcome == Outcome::Ok)
    }

    fn add_delivery(&mut self, delivery: &'a Delivery) {
        // Among the dead letters one message stands as often as it died: on several paths, or again after a redrive.
        let is_letter = delivery.origin.is_some() || self.context.path(delivery.path).is_dead_letters;
        let may_be_several = self.is_ambiguous || is_letter;
        let found = self
            .pairs
            .iter_mut()
            .find(|pair| pair.path == delivery.path && (!may_be_several || pair.position() == delivery.position));
        let pair = match found {
            Some(pair) => pair,
            None => {
                let is_one = !may_be_several || delivery.position.is_some();
                self.push_pair(delivery.path, is_one)
            }
        };
        let is_sent_again = delivery.id.is_some() && pair.deliveries.iter().any(|known| is_same(known, delivery));
        if !is_sent_again {
            pair.deliveries.push(delivery);
        }
        // A message may die on a path without ever having arrived there.
        if let Some(origin) = delivery.origin
            && !self.pairs.iter().any(|pair| pair.path == origin)
        {
            self.push_pair(origin, !self.is_ambiguous);
        }
    }

    /// A settle belongs to the pair that has its delivery; without an id, to every pair of its path.
    fn add_settle(&mut self, settle: &'a Settle) {
        let mut on_path = self.pairs.iter().filter(|pair| pair.path == settle.path);
        if on_path.next().is_none() {
            self.push_pair(settle.path, !self.is_ambiguous);
        }
        let holder = settle
            .delivery_id
            .and_then(|id| self.pairs.iter().position(|pair| pair.path == settle.path && pair.find(id).is_some()));
        match holder {
            Some(index) => self.pairs[index].settles.push(settle),
            None => {
                let several = self.pairs.iter().filter(|pair| pair.path == settle.path).count() > 1;
                for pair in self.pairs.iter_mut().filter(|pair| pair.path == settle.path) {
                    pair.settles.push(settle);
                    pair.is_one &= !several;
                }
            }
        }
    }

    fn push_pair(&mut self, path: Name, is_one: bool) -> &mut Pair<'a> {
        let info = self.context.path(path);
        let (context, msg, key) = (self.context, self.msg, self.key);
        self.pairs.push(Pair { context, msg, key, path, info, deliveries: Vec::new(), settles: Vec::new(), is_one });
        self.pairs.last_mut().expect("one was pushed above")
    }
}

impl<'a> Pair<'a> {
    /// Where its first delivery says that the message stands.
    pub(crate) fn position(&self) -> Option<Position> {
        self.deliveries.first().and_then(|delivery| delivery.position)
    }

    /// The delivery with this id.
    pub(crate) fn find(&self, id: u64) -> Option<&'a Delivery> {
        self.deliveries.iter().copied().find(|delivery| delivery.id == Some(id))
    }

    /// The recorded delivery that another names as the one before it.
    pub(crate) fn previous(&self, delivery: &Delivery) -> Option<&'a Delivery> {
        delivery.prev.and_then(|prev| self.find(prev)).filter(|prev| prev.at != delivery.at)
    }

    /// The latest recorded delivery certainly before another, and certainly not the same sent again.
    pub(crate) fn latest_before(&self, delivery: &Delivery) -> Option<&'a Delivery> {
        let before = self
            .deliveries
            .iter()
            .copied()
            .filter(|known| known.span.certainly_before(&delivery.span) && !self.may_be_one(known, delivery));
        before.max_by_key(|known| (known.id, known.span.ret))
    }

    /// The delivery whose lease a later one followed: the one it names, else the latest before it.
    pub(crate) fn followed(&self, delivery: &Delivery) -> Option<&'a Delivery> {
        match delivery.prev {
            Some(_) => self.previous(delivery),
            None => self.latest_before(delivery),
        }
    }

    /// Whether an earlier settle than this, of which the answer may be lost, may have said the same before something.
    pub(crate) fn may_have_been_said(&self, settle: &Settle, before: &Span) -> bool {
        let is_same = |said: &Settle| said.kind == settle.kind && said.delivery_id == settle.delivery_id;
        self.settles
            .iter()
            .any(|said| said.at != settle.at && is_same(said) && said.may_hold() && said.span.may_precede(before))
    }

    /// The settles that name a delivery. One without an id names every delivery called before it was answered.
    pub(crate) fn settles_of<'b>(&'b self, delivery: &'b Delivery) -> impl Iterator<Item = &'a Settle> + 'b {
        self.settles.iter().copied().filter(move |settle| names(settle, delivery))
    }

    /// Whether a settle certainly names a delivery: by its id, or because it can name no other of the pair.
    pub(crate) fn certainly_names(&self, settle: &Settle, delivery: &Delivery) -> bool {
        if let (Some(named), Some(id)) = (settle.delivery_id, delivery.id) {
            return named == id;
        }
        names(settle, delivery)
            && self.deliveries.iter().all(|other| {
                let had_ended = other.span.certainly_before(&delivery.span) && delivery.span.ret < settle.span.call;
                other.at == delivery.at || had_ended || !names(settle, other)
            })
    }

    /// Whether two records may be one delivery, sent again to the same client at a resume. Ids tell; without, nothing that
    /// the records say may differ. Narad has no sessions that could be resumed.
    pub(crate) fn may_be_one(&self, one: &Delivery, two: &Delivery) -> bool {
        fn agree<T: PartialEq>(one: Option<T>, two: Option<T>) -> bool {
            one.is_none() || two.is_none() || one == two
        }
        (one.id.is_none() || two.id.is_none())
            && one.client == two.client
            && agree(one.attempt, two.attempt)
            && agree(one.cause, two.cause)
            && agree(one.prev, two.prev)
            && agree(one.span.commit, two.span.commit)
            && self.context.options.contract != Contract::Narad
    }

    /// Whether a delivery that was granted and never arrived may lie between the one recorded before this one and this one.
    pub(crate) fn may_follow_unseen(&self, delivery: &Delivery) -> bool {
        match delivery.prev {
            Some(prev) => self.find(prev).is_none(),
            None => delivery.cause != Some(Cause::First) && !self.info.gives(Field::Prev, delivery),
        }
    }

    /// Whether an operator brought the pair back with this delivery, or may have: with one that never arrived and that this
    /// one follows, or with this one, where the broker gives no causes.
    pub(crate) fn may_be_brought_back(&self, delivery: &Delivery) -> bool {
        is_brought_back(delivery.cause)
            || (self.hides_return(delivery) && self.has_return(|operate| operate.may_precede(&delivery.span)))
    }

    /// Whether a delivery may come from an operator's act without saying so.
    pub(crate) fn hides_return(&self, delivery: &Delivery) -> bool {
        let is_silent = delivery.cause.is_none() && !self.info.gives(Field::Cause, delivery);
        is_silent || self.may_follow_unseen(delivery)
    }

    /// Whether an operator redrove or replayed the pair, or may have, at such a time.
    pub(crate) fn has_return(&self, is_then: impl Fn(&Span) -> bool) -> bool {
        [OperateKind::Redrive, OperateKind::Replay]
            .into_iter()
            .any(|kind| self.context.operates(kind, self.path, self.msg).any(|operate| is_then(&operate.span)))
    }

    /// Whether an ack, ok or unknown, or a nack to the dead letters finished it.
    pub(crate) fn is_finished(&self) -> bool {
        self.settles.iter().any(|settle| settle.may_ack() || settle.may_kill())
    }

    /// How many deliveries an operator brought back.
    pub(crate) fn brought_back(&self) -> usize {
        self.deliveries.iter().filter(|delivery| is_brought_back(delivery.cause)).count()
    }
}

/// Whether a settle names a delivery.
pub(crate) fn names(settle: &Settle, delivery: &Delivery) -> bool {
    match (settle.delivery_id, delivery.id) {
        (Some(named), Some(id)) => named == id,
        _ => delivery.span.call < settle.span.ret,
    }
}

/// Whether a settle ends a lease: everything but an extend.
pub(crate) fn is_end(settle: &Settle) -> bool {
    !matches!(settle.kind, SettleKind::Extend(_))
}

fn key_of(operations: &[Operation]) -> Option<u64> {
    let mut published = None;
    for operation in operations {
        match operation {
            Operation::Delivery(delivery) if delivery.key.is_some() => return delivery.key,
            Operation::Publish(publish) => published = published.or(publish.key),
            Operation::Delivery(_) | Operation::Settle(_) => {}
        }
    }
    published
}

/// Whether two records are one delivery, sent again to the same client.
fn is_same(known: &Delivery, delivery: &Delivery) -> bool {
    (known.id, known.client, known.attempt, known.prev)
        == (delivery.id, delivery.client, delivery.attempt, delivery.prev)
}

/// Whether a message may be stored more than once without anything being wrong.
fn is_ambiguous(publishes: &[&Publish]) -> bool {
    let mut taken = publishes.iter().filter(|publish| publish.outcome != Outcome::Refused);
    let Some(first) = taken.next() else { return false };
    taken.any(|publish| first.identity.is_none() || publish.identity != first.identity)
}
