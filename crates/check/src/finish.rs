//! When everything has been read: judges what was kept, takes the second look, and asks the rules about whole paths.

use hashbrown::{HashMap, HashSet};

use crate::finding::{Found, Sink};
use crate::judge::{Judge, failed_deliveries, judge_message};
use crate::keys::groups;
use crate::look::{Seen, Wanted};
use crate::operation::{MsgId, Name, Operation};
use crate::pair::Case;
use crate::rules::order::Member;
use crate::rules::{Rule, balance, going_back, order, sequence};

/// Reads again and hands each record of a message to the function.
pub(crate) type Again<'r, E> = dyn FnMut(&mut dyn FnMut(MsgId, &Operation)) -> Result<(), E> + 'r;

/// What is left when everything is judged.
pub(crate) struct Finished {
    pub sink: Sink,
    /// Pairs published ok or delivered, and those of them that nothing finished or accounts for.
    pub pairs: u64,
    pub backlog: u64,
}

impl Judge {
    /// Everything has been read. `again` reads everything once more; it is asked only if something is wanted.
    ///
    /// # Errors
    /// What `again` fails with.
    pub(crate) fn finish<E>(&mut self, again: &mut Again<'_, E>) -> Result<Finished, E> {
        self.context.is_complete = true;
        self.tell_keys();
        self.want_suspects();
        let seen = self.look(again)?;
        self.learn_failed(&seen);
        let reopened = std::mem::take(&mut self.reopened);
        let came_again: HashSet<MsgId> = reopened.keys().copied().collect();
        self.books.forget(&came_again);
        self.judge_rest(&seen, &reopened);
        self.judge_shared(&seen);
        self.judge_keys(&seen);
        let mut sink = std::mem::take(&mut self.sink);
        self.epochs.judge(&mut sink);
        self.transactions.judge(&mut sink);
        going_back::judge_counters(&self.context, &mut sink);
        balance::judge(&self.context, &self.books, &mut sink);
        let (pairs, backlog) = self.close_books(&mut sink);
        keep_smallest(&mut sink);
        Ok(Finished { sink, pairs, backlog })
    }

    /// Tells the keys of every message that is still kept.
    fn tell_keys(&mut self) {
        let mut kept: Vec<_> = self.open.values_mut().filter(|message| !message.is_in_keys).collect();
        kept.sort_by_key(|message| message.operations.first().map(crate::span::Timed::location));
        for message in kept {
            message.is_in_keys = true;
            self.keys.add(&Case::new(&self.context, message.msg, &message.operations));
        }
        self.keys.finish();
    }

    fn want_suspects(&mut self) {
        self.wanted.groups.extend(self.keys.suspects.iter().copied());
        self.wanted.places.extend(self.sequences.suspects.iter().map(|(place, _, _)| *place));
        self.wanted.ids.extend(self.id_suspects.iter().map(|(id, _)| *id));
    }

    /// Looks for what is wanted, and again for what that shows to be needed too.
    fn look<E>(&mut self, again: &mut Again<'_, E>) -> Result<Seen, E> {
        if self.wanted.is_empty() {
            return Ok(Seen::default());
        }
        loop {
            let seen = self.look_once(again)?;
            let mut is_enough = seen.more.is_empty();
            self.wanted.msgs.extend(&seen.more);
            for msg in self.reopened.keys() {
                let Some(operations) = seen.messages.get(msg) else { continue };
                for (group, _) in groups(&Case::new(&self.context, *msg, operations)) {
                    if self.wanted.groups.insert(group) {
                        self.keys.suspect(group);
                        is_enough = false;
                    }
                }
            }
            if is_enough {
                return Ok(seen);
            }
        }
    }

    fn look_once<E>(&self, again: &mut Again<'_, E>) -> Result<Seen, E> {
        let mut seen = Seen::default();
        let wanted: &Wanted = &self.wanted;
        if !self.has_forgotten {
            for message in self.open.values() {
                message.operations.iter().for_each(|one| seen.take(wanted, &self.context, message.msg, one));
            }
        } else {
            let context = &self.context;
            again(&mut |msg, operation| seen.take(wanted, context, msg, operation))?;
            seen.sort();
        }
        Ok(seen)
    }

    fn learn_failed(&mut self, seen: &Seen) {
        let mut failed = Vec::new();
        for message in self.open.values() {
            let deliveries = failed_deliveries(&Case::new(&self.context, message.msg, &message.operations));
            failed.extend(deliveries.into_iter().map(|(key, delivery)| (key, message.msg, delivery)));
        }
        for msg in self.reopened.keys() {
            if let Some(operations) = seen.messages.get(msg) {
                let deliveries = failed_deliveries(&Case::new(&self.context, *msg, operations));
                failed.extend(deliveries.into_iter().map(|(key, delivery)| (key, *msg, delivery)));
            }
        }
        failed.iter().for_each(|(key, msg, delivery)| self.context.add_failed(*key, *msg, delivery));
    }

    fn judge_rest(&mut self, seen: &Seen, reopened: &HashMap<MsgId, usize>) {
        for (msg, since) in reopened {
            // What was judged of it before it came again is judged once more below, and must not count twice.
            let operations = seen.messages.get(msg).map_or(&[][..], Vec::as_slice);
            let before = &operations[..operations.len().saturating_sub(*since)];
            self.sink.take_back(&judge_message(&Case::new(&self.context, *msg, before)));
        }
        let again = reopened.keys().filter_map(|msg| Some((*msg, seen.messages.get(msg)?.as_slice())));
        let open = self.open.values().map(|message| (message.msg, message.operations.as_slice()));
        let mut rest: Vec<(MsgId, &[Operation])> = open.chain(again).collect();
        rest.sort_by_key(|(_, operations)| operations.first().map(crate::span::Timed::location));
        for (msg, operations) in rest {
            let case = Case::new(&self.context, msg, operations);
            self.sink.absorb(judge_message(&case));
            self.books.add(&case);
            self.transactions.add(&case);
        }
    }

    /// Two messages at one place, or with one delivery id.
    fn judge_shared(&mut self, seen: &Seen) {
        let mut places: Vec<_> = seen.places.iter().collect();
        places.sort_by_key(|(place, _)| **place);
        for (place, messages) in places {
            let Some(first) = messages.first() else { continue };
            let mut told: HashSet<MsgId> = HashSet::new();
            told.insert(first.0);
            for later in messages {
                if told.insert(later.0) {
                    self.sink.found(sequence::shared(*place, *first, *later));
                }
            }
        }
        let mut ids: Vec<_> = seen.ids.iter().collect();
        ids.sort_by_key(|(id, _)| **id);
        for ((path, id), deliveries) in ids {
            let Some(first) = deliveries.first() else { continue };
            let mut told: HashSet<MsgId> = HashSet::new();
            told.insert(first.0);
            for later in deliveries {
                if told.insert(later.0) {
                    let text = format!("Two messages of a path were delivered with delivery_id {id}.");
                    let found = Found::new(Rule::DeliveryId, text).of(later.0).on(*path);
                    let mut found = found.by([first.1.at, later.1.at]);
                    found.other = Some(first.0);
                    self.sink.found(found);
                }
            }
        }
    }

    fn judge_keys(&mut self, seen: &Seen) {
        let mut cases: Vec<Case<'_>> =
            seen.messages.iter().map(|(msg, operations)| Case::new(&self.context, *msg, operations)).collect();
        cases.sort_by_key(|case| case.publishes.first().map(|publish| publish.at));
        let mut members: std::collections::BTreeMap<(Name, u64), Vec<Member<'_, '_>>> = Default::default();
        for case in &cases {
            for (group, pair) in groups(case).filter(|(group, _)| self.keys.suspects.contains(group)) {
                members.entry((pair.path, group)).or_default().push(Member::new(case, pair));
            }
        }
        for ((path, _), members) in members {
            order::judge(path, members, &mut self.sink);
        }
        self.sink.judged_many(Rule::Order, self.keys.judged);
    }

    /// Whether each path's counters cover what was not seen to be finished; what they do not cover is found, or backlog.
    fn close_books(&mut self, sink: &mut Sink) -> (u64, u64) {
        let (mut pairs, mut backlog) = (0, 0);
        let is_drained = self.context.is_drained();
        for (path, book) in std::mem::take(&mut self.books.paths) {
            pairs += book.pairs;
            let count = if is_drained { Sink::judged_many } else { Sink::not_judged_many };
            count(sink, Rule::Loss, book.pairs);
            let covered = book.covered(&self.context, path);
            let open = book.open.len() as u64;
            if covered >= open {
                continue;
            }
            let mut left = 0;
            for one in book.open {
                match one.found {
                    Some(found) => sink.found(*found),
                    None => left += u64::from(!sink.named.contains(&one.msg) && !sink.searched.contains(&one.msg)),
                }
            }
            backlog += left.min(open - covered);
        }
        (pairs, backlog)
    }
}

/// Of the pairs without an order, shows the smallest, and none whose message another rule names.
fn keep_smallest(sink: &mut Sink) {
    let (searched, mut others): (Vec<Found>, Vec<Found>) =
        std::mem::take(&mut sink.findings).into_iter().partition(|found| found.rule == Rule::NoLinearization);
    let unnamed = sink.searched.difference(&sink.named).count() as u64;
    sink.set_found(Rule::NoLinearization, unnamed);
    let shown = searched.into_iter().filter(|found| found.msg.is_none_or(|msg| !sink.named.contains(&msg)));
    others.extend(shown.min_by_key(|found| (found.records.len(), found.records.first().copied())));
    sink.findings = others;
}
