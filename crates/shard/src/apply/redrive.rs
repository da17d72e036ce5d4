//! `Redrive`: dead messages go back to the paths that they died on.
//!
//! For each, one step settles its dead letter in the dead-letter topic's own book (`dropped`, reason `redriven`), owes the
//! message once more where it died, and pins the dead letter, which holds its bytes until it is settled there. Each is judged by
//! itself, and refused with a reason.

use super::drop_dead::{happened, take_out};
use super::record::{Happened, record};
use crate::command::{Letter, Redrive};
use crate::dead_letter::DEAD_LETTER_GROUP;
use crate::effect::Effect;
use crate::ledger::LedgerKind;
use crate::names::source_name;
use crate::outcome::{LetterCode, Outcome, Refusal};
use crate::state::{State, topic_of};
use mortarmq_delivery::{Redriven, Refused};
use mortarmq_types::{Attempt, DeliveryId, DropReason, MemberId, Partition, PathId, TopicIncarnation};
use std::collections::BTreeSet;

/// Where dead letters are: a partition of a dead-letter topic, with the path that is its own book.
#[derive(Clone, Copy, Debug)]
pub(super) struct Book {
    pub(super) topic: TopicIncarnation,
    pub(super) source: TopicIncarnation,
    pub(super) path: PathId,
    pub(super) partition: Partition,
}

/// The book of a partition of a dead-letter topic.
pub(super) fn book_of(state: &State, id: TopicIncarnation, partition: Partition) -> Result<Book, Refusal> {
    let topic = state.topics.get(&id).ok_or(Refusal::UnknownTopic)?;
    // Of another topic nothing is a dead letter.
    let source = source_name(&topic.name).ok_or(Refusal::UnknownTopic)?;
    let source = *state.names.get(&source.to_ascii_lowercase()).expect("invariant 7: a dead-letter topic has a source");
    let count = topic.partitions.len();
    if partition.index() >= count {
        let partitions = u16::try_from(count).expect("at most 1024 partitions");
        return Err(Refusal::UnknownPartition { requested: partition, partitions });
    }
    Ok(Book { topic: id, source, path: topic.paths[DEAD_LETTER_GROUP], partition })
}

pub(super) fn apply(state: &mut State, redrive: &Redrive, effects: &mut Vec<Effect>) -> Outcome {
    let book = match book_of(state, redrive.topic, redrive.partition) {
        Ok(book) => book,
        Err(refusal) => return Outcome::Refused(refusal),
    };
    let mut moved = BTreeSet::from([book.path]);
    let mut codes = Vec::with_capacity(redrive.letters.len());
    for letter in &redrive.letters {
        let code = code_of(state, &book, letter);
        if code == LetterCode::Done {
            bring_back(state, &book, letter, effects);
            moved.insert(letter.path);
        }
        codes.push(code);
    }
    effects.extend(moved.into_iter().map(Effect::PathMoved));
    Outcome::Letters(codes)
}

impl State {
    /// What a redrive of one dead letter would be answered.
    ///
    /// # Errors
    /// When the dead-letter topic or its partition does not exist.
    pub fn redrive_code(
        &self,
        topic: TopicIncarnation,
        partition: Partition,
        letter: &Letter,
    ) -> Result<LetterCode, Refusal> {
        Ok(code_of(self, &book_of(self, topic, partition)?, letter))
    }

    /// What a purge of one dead letter would be answered.
    ///
    /// # Errors
    /// When the dead-letter topic or its partition does not exist.
    pub fn drop_code(
        &self,
        topic: TopicIncarnation,
        partition: Partition,
        seq: mortarmq_types::Seq,
    ) -> Result<LetterCode, Refusal> {
        let book = book_of(self, topic, partition)?;
        let found = &self.topics[&book.topic].partitions[partition.index()];
        let path = &self.paths[&book.path].partitions[partition.index()];
        Ok(path.check_drop(seq, found.last_seq, &found.facts()).map_or_else(LetterCode::from, |()| LetterCode::Done))
    }
}

/// Whether a dead letter can be redriven now.
fn code_of(state: &State, book: &Book, letter: &Letter) -> LetterCode {
    let number = book.partition.index();
    let found = &state.topics[&book.topic].partitions[number];
    let in_book = &state.paths[&book.path].partitions[number];
    if let Err(refused) = in_book.check_drop(letter.seq, found.last_seq, &found.facts()) {
        return refused.into();
    }
    let Some(path) = state.paths.get(&letter.path).filter(|path| path.topic == book.source) else {
        return LetterCode::GroupGone;
    };
    if letter.delivery > state.last_delivery {
        return LetterCode::Unreadable;
    }
    let facts = state.topics[&book.source].partitions[number].facts();
    match path.partitions[number].check_redrive(&redriven(letter), &path.settings.rules(), &facts) {
        // It holds the bytes of a message already, so its envelope has not always said the same.
        Ok(()) if found.is_pinned(letter.seq) => LetterCode::Unreadable,
        Ok(()) => LetterCode::Done,
        // A message that cannot have died there: the envelope is not what was written.
        Err(Refused::Unknown) => LetterCode::Unreadable,
        Err(refused) => refused.into(),
    }
}

fn bring_back(state: &mut State, book: &Book, letter: &Letter, effects: &mut Vec<Effect>) {
    let number = book.partition.index();
    let last = take_out(state, book, letter.seq, DropReason::Redriven).expect("it was checked just now");
    let facts = state.topics[&book.source].partitions[number].facts();
    let path = state.paths.get_mut(&letter.path).expect("it was checked just now");
    let group = path.group.clone();
    let rules = path.settings.rules();
    let partition = path.partitions.make(number);
    partition.redrive(&redriven(letter), &rules, &facts).expect("it was checked just now");
    let topic = topic_of(&mut state.topics, book.topic).expect("the book is there");
    let name = topic.name.clone();
    let pins = &mut topic.partition_mut(number).expect("it was checked when the book was looked up").pins;
    let pinned = pins.insert(letter.seq, letter.path);
    assert_eq!(pinned, None, "invariant 8: dead letter {} is the source of two messages", letter.seq);
    state.retime(book.path, book.partition);
    state.retime(letter.path, book.partition);

    let source = &state.topics[&book.source].name;
    let to = format!("to {source}/{group} {}:{}", book.partition, letter.origin);
    let left = happened(letter.seq, last, DropReason::Redriven, &to);
    record(state, book.path, book.partition, [left].into_iter(), effects);
    let from = format!("from sequence {} of {name}", letter.seq);
    let owed = Happened {
        kind: LedgerKind::Redriven,
        seq: letter.origin,
        delivery_id: DeliveryId::ZERO,
        attempt: Attempt::ZERO,
        member: MemberId::ZERO,
        previous: letter.delivery,
        detail: &from,
    };
    record(state, letter.path, book.partition, [owed].into_iter(), effects);
}

const fn redriven(letter: &Letter) -> Redriven {
    Redriven {
        seq: letter.origin,
        key_hash: letter.key_hash,
        size_bytes: letter.size_bytes,
        previous: letter.delivery,
        source: letter.seq,
    }
}
