//! The first reading: takes records in the order of their answers, judges messages that are finished and forgets them.
//!
//! # Invariants
//! 1. A message that was seen is open or forgotten.
//! 2. A record of a forgotten message is never lost: the message is wanted for a second look.

use std::collections::VecDeque;

use hashbrown::{HashMap, HashSet};

use crate::books::Books;
use crate::context::Context;
use crate::finding::Sink;
use crate::intake::{Content, Item};
use crate::keys::{Keys, group};
use crate::look::{Wanted, place_of};
use crate::message::Message;
use crate::names::Names;
use crate::operation::{Delivery, MsgId, Name, Operation, Outcome};
use crate::pair::Case;
use crate::rules::commit_order::CommitOrder;
use crate::rules::going_back::Epochs;
use crate::rules::no_linearization;
use crate::rules::sequence::{Place, Sequences};
use crate::rules::torn_transaction::Transactions;
use crate::rules::{OF_A_MESSAGE, Rule};
use crate::span::Timed;

/// What one reading has learnt.
pub(crate) struct Judge {
    pub names: Names,
    pub context: Context,
    pub sink: Sink,
    /// Messages of which more may come, or that cannot be judged before everything has been read.
    pub open: HashMap<MsgId, Message>,
    seen: HashSet<MsgId>,
    /// Whether any message was forgotten.
    pub has_forgotten: bool,
    finished: VecDeque<MsgId>,
    pub sequences: Sequences,
    pub commit_order: CommitOrder,
    pub epochs: Epochs,
    pub keys: Keys,
    pub books: Books,
    pub transactions: Transactions,
    pub wanted: Wanted,
    /// Of the wanted messages, those that were forgotten and came again, each with the number of records since.
    pub reopened: HashMap<MsgId, usize>,
    /// Deliveries whose id another message's delivery had before.
    pub id_suspects: Vec<((Name, u64), MsgId)>,
    pub counts: Counts,
}

/// What was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub publishes: u64,
    pub deliveries: u64,
    pub settles: u64,
    /// Of these, those that rest on a state and do not name its index.
    pub without_index: u64,
    /// The first call and the last return or end.
    pub from: Option<u64>,
    pub to: u64,
}

impl Judge {
    /// Nothing read yet. `keeps_all` forgets nothing and blurs nothing.
    pub(crate) fn new(context: Context, keeps_all: bool) -> Self {
        Self {
            names: Names::default(),
            context,
            sink: Sink::default(),
            open: HashMap::new(),
            seen: HashSet::new(),
            has_forgotten: false,
            finished: VecDeque::new(),
            sequences: Sequences::new(keeps_all),
            commit_order: CommitOrder::new(keeps_all),
            epochs: Epochs::default(),
            keys: Keys::default(),
            books: Books::default(),
            transactions: Transactions::default(),
            wanted: Wanted::default(),
            reopened: HashMap::new(),
            id_suspects: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Takes the next record in the order of answers.
    pub(crate) fn take(&mut self, item: Item) {
        let (span, at) = match &item.content {
            Content::Operation(operation) => (*operation.span(), operation.location()),
            Content::Mark(span, at) => (*span, *at),
        };
        self.commit_order.add(&span, item.epoch, item.msg, at, &mut self.sink);
        if let Some(epoch) = item.epoch {
            self.epochs.add(epoch, span, at);
        }
        self.counts.add_span(&span);
        let Content::Operation(operation) = item.content else { return };
        let msg = item.msg.expect("an operation is about a message");
        self.counts.add(&operation);
        match &operation {
            Operation::Publish(_) => {}
            Operation::Delivery(delivery) => {
                self.context.path_mut(delivery.path).learn(delivery);
                self.context.heard(delivery.client, delivery.span.call);
            }
            Operation::Settle(settle) => self.context.heard(settle.client, settle.span.call),
        }
        // Nearly always it is open, and then the many that were seen need not be looked at.
        if !self.open.contains_key(&msg) && !self.seen.insert(msg) {
            self.take_again(msg, &operation);
            return;
        }
        self.take_new(msg, operation);
        if self.finished.len() > self.context.options.keep_finished {
            self.close_oldest();
        }
    }

    /// A record of a message that was judged and forgotten: it is looked at a second time, whole.
    fn take_again(&mut self, msg: MsgId, operation: &Operation) {
        self.wanted.msgs.insert(msg);
        *self.reopened.entry(msg).or_default() += 1;
        if let Some(place) = place_of(&self.context, operation) {
            self.wanted.places.insert(place);
        }
        if let Operation::Delivery(delivery) = operation {
            if let Some(id) = delivery.id {
                self.context.add_delivery(delivery.path, id);
                self.wanted.ids.insert((delivery.path, id));
            }
            if let Some(key) = delivery.key.filter(|_| self.context.path(delivery.path).is_ordered) {
                self.keys.suspect(group(delivery.path, key, delivery.position));
            }
        }
    }

    fn take_new(&mut self, msg: MsgId, operation: Operation) {
        let message = self.open.entry(msg).or_insert_with(|| Message::new(msg));
        if message.is_in_keys {
            // Its key was told that nothing more would come.
            let case = Case::new(&self.context, msg, &message.operations);
            let groups: Vec<_> = crate::keys::groups(&case).map(|(group, _)| group).collect();
            groups.into_iter().for_each(|group| self.keys.suspect(group));
        }
        if !self.context.has_run {
            infer_paths(&mut self.context, message, &operation);
        }
        let place = place_of(&self.context, &operation);
        let is_new_place = place.is_some_and(|place| !has_place(&self.context, message, place));
        match &operation {
            Operation::Publish(publish) => {
                let is_first = message.publishes() == 0 && !publish.is_duplicate;
                if is_first && publish.outcome == Outcome::Ok {
                    self.sequences.add(publish, msg, &mut self.sink);
                }
            }
            Operation::Delivery(delivery) => {
                if let Some(id) = delivery.id
                    && self.context.add_delivery(delivery.path, id)
                    && !has_id(message, delivery.path, id)
                {
                    self.id_suspects.push(((delivery.path, id), msg));
                }
            }
            Operation::Settle(_) => {}
        }
        let at = operation.location();
        let may_finish = !message.is_queued && Message::may_be_finished_by(&operation);
        message.operations.push(operation);
        if may_finish && message.is_finished(&self.context) {
            message.is_queued = true;
            self.finished.push_back(msg);
        }
        if let Some(place) = place.filter(|_| is_new_place) {
            self.sequences.take_place(place, msg, at);
        }
    }

    /// Judges the message that has been finished for longest, and forgets it if nothing is left to be said.
    fn close_oldest(&mut self) {
        let Some(msg) = self.finished.pop_front() else { return };
        let Some(mut message) = self.open.remove(&msg) else { return };
        message.is_queued = false;
        if !message.is_finished(&self.context) {
            self.open.insert(msg, message);
            return;
        }
        let case = Case::new(&self.context, msg, &message.operations);
        if !message.is_in_keys {
            self.keys.add(&case);
            message.is_in_keys = true;
        }
        let judged = judge_message(&case);
        if judged.is_open || !judged.findings.is_empty() {
            // Records that are read later may explain it, or show that it cannot be.
            self.open.insert(msg, message);
            return;
        }
        self.sink.absorb(judged);
        self.books.add(&case);
        self.transactions.add(&case);
        let failed = failed_deliveries(&case);
        failed.into_iter().for_each(|(key, delivery)| self.context.add_failed(key, msg, &delivery));
        self.has_forgotten = true;
    }
}

/// Asks all rules about one message.
pub(crate) fn judge_message(case: &Case<'_>) -> Sink {
    let mut sink = Sink::default();
    OF_A_MESSAGE.iter().for_each(|rule| rule(case, &mut sink));
    if sink.named.is_empty() {
        no_linearization::judge(case, &mut sink);
    } else {
        case.pairs.iter().for_each(|_| sink.not_judged(Rule::NoLinearization));
    }
    sink
}

/// Deliveries of a keyed message that no ok ack certainly ended: what was given together with them may have come back.
pub(crate) fn failed_deliveries(case: &Case<'_>) -> Vec<(u64, Delivery)> {
    let Some(key) = case.key else { return Vec::new() };
    let mut failed = Vec::new();
    for pair in &case.pairs {
        for delivery in &pair.deliveries {
            if !pair.settles.iter().any(|settle| settle.is_ok_ack() && pair.certainly_names(settle, delivery)) {
                failed.push((key, (*delivery).clone()));
            }
        }
    }
    failed
}

/// A message that was published to a topic and delivered on a path shows that the path is one of the topic.
fn infer_paths(context: &mut Context, message: &Message, operation: &Operation) {
    let all = || message.operations.iter().chain([operation]);
    for one in all() {
        let Operation::Publish(publish) = one else { continue };
        for other in all() {
            if let Operation::Delivery(delivery) = other
                && delivery.origin.is_none()
            {
                context.infer_path(publish.topic, delivery.path);
            }
        }
    }
}

fn has_place(context: &Context, message: &Message, place: Place) -> bool {
    message.operations.iter().any(|operation| place_of(context, operation) == Some(place))
}

fn has_id(message: &Message, path: Name, id: u64) -> bool {
    message.operations.iter().any(|operation| match operation {
        Operation::Delivery(delivery) => delivery.path == path && delivery.id == Some(id),
        Operation::Publish(_) | Operation::Settle(_) => false,
    })
}

impl Counts {
    /// Everything that counts as an operation.
    pub(crate) fn operations(&self) -> u64 {
        self.publishes + self.deliveries + self.settles
    }

    fn add_span(&mut self, span: &crate::span::Span) {
        self.from = Some(self.from.map_or(span.call, |from| from.min(span.call)));
        self.to = self.to.max(span.moment());
    }

    fn add(&mut self, operation: &Operation) {
        let is_ok = match operation {
            Operation::Publish(publish) => {
                self.publishes += 1;
                publish.outcome == Outcome::Ok
            }
            Operation::Delivery(_) => {
                self.deliveries += 1;
                true
            }
            Operation::Settle(settle) => {
                self.settles += 1;
                settle.outcome == Outcome::Ok
            }
        };
        self.without_index += u64::from(is_ok && operation.span().commit.is_none());
    }
}
