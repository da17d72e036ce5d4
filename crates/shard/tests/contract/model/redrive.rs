//! An operator takes single dead letters out of their book: they go back to the path that they died on, or are dropped.

use super::{Fate, Model, Open, Seen, Told, Verdict, allowed};
use mortarmq_shard::command::{DropDead, Letter, Redrive};
use mortarmq_shard::ledger::LedgerKind;
use mortarmq_shard::{LetterCode, Outcome, Refusal, Setting};
use mortarmq_types::{Cause, DropReason, Partition, PathId, TopicIncarnation};

/// What a dead letter says of its message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) path: PathId,
    pub(crate) seq: u64,
    pub(crate) delivery: u64,
    pub(crate) size: u32,
}

/// Settled messages that one command takes the position past at most.
const SKIPPED_MAX: usize = 16;

impl Model {
    pub(super) fn redrive(&mut self, redrive: &Redrive, seen: &Seen<'_>) -> Verdict {
        let book = match self.book_of(redrive.topic, redrive.partition) {
            Ok(book) => book,
            Err(refusal) => return seen.expect(&Outcome::Refused(refusal)),
        };
        let number = redrive.partition.index();
        let mut codes = Vec::new();
        for letter in &redrive.letters {
            let code = self.redrive_code(book, number, letter);
            if code == LetterCode::Done {
                self.take_out(book, number, letter.seq.get(), DropReason::Redriven);
                self.bring_back(number, letter);
            }
            codes.push(code);
        }
        seen.expect(&Outcome::Letters(codes))
    }

    pub(super) fn drop_dead(&mut self, drop: &DropDead, seen: &Seen<'_>) -> Verdict {
        let book = match self.book_of(drop.topic, drop.partition) {
            Ok(book) => book,
            Err(refusal) => return seen.expect(&Outcome::Refused(refusal)),
        };
        let number = drop.partition.index();
        let mut codes = Vec::new();
        for seq in &drop.seqs {
            let code = self.drop_code(book, number, seq.get());
            if code == LetterCode::Done {
                self.take_out(book, number, seq.get(), DropReason::Purge);
            }
            codes.push(code);
        }
        let dropped = codes.iter().filter(|code| **code == LetterCode::Done).count();
        (0..dropped).for_each(|_| self.reach("dead letter that is dropped by itself"));
        seen.expect(&Outcome::Letters(codes))
    }

    /// The path that is a dead-letter topic's own book.
    fn book_of(&self, id: TopicIncarnation, partition: Partition) -> Result<PathId, Refusal> {
        let topic = self.topics.get(&id).filter(|topic| topic.holds_dead_letters()).ok_or(Refusal::UnknownTopic)?;
        if partition.index() >= topic.partitions.len() {
            let partitions = u16::try_from(topic.partitions.len()).expect("small");
            return Err(Refusal::UnknownPartition { requested: partition, partitions });
        }
        Ok(self.path_of(id, "default").expect("every dead-letter topic has its book"))
    }

    fn drop_code(&self, book: PathId, number: usize, seq: u64) -> LetterCode {
        match self.paths[&book].partitions[number].pairs.get(&seq) {
            None => LetterCode::Unknown,
            Some(pair) if pair.lease().is_some() => LetterCode::Leased,
            Some(pair) if pair.open.is_none() => LetterCode::Settled,
            Some(_) => LetterCode::Done,
        }
    }

    fn redrive_code(&self, book: PathId, number: usize, letter: &Letter) -> LetterCode {
        let code = self.drop_code(book, number, letter.seq.get());
        if code != LetterCode::Done {
            return code;
        }
        let Some(path) = self.paths.get(&letter.path) else { return LetterCode::GroupGone };
        let obligation = &path.partitions[number];
        if obligation.open(letter.origin.get()).is_some() {
            return LetterCode::Unsettled;
        }
        let passed_over = obligation.unsettled().filter(|(_, open)| open.offered).count() as u64;
        if passed_over >= path.get(Setting::MaxPassedOver) { LetterCode::Full } else { LetterCode::Done }
    }

    /// A dead letter leaves its book. The position goes past what is settled, as far as one command may.
    fn take_out(&mut self, book: PathId, number: usize, seq: u64, reason: DropReason) {
        let obligation = &mut self.paths.get_mut(&book).expect("the caller found it").partitions[number];
        let pair = obligation.pairs.get_mut(&seq).expect("the caller found it");
        let open = pair.open.as_ref().expect("the caller found it");
        let (offered, previous) = (open.offered, open.previous);
        pair.end(Fate::Dropped(reason));
        for _ in 0..SKIPPED_MAX {
            let position = obligation.position;
            let is_there = obligation.pairs.contains_key(&position);
            if offered || !is_there || obligation.open(position).is_some_and(|open| !open.offered) {
                break;
            }
            obligation.advance(position + 1);
        }
        self.told.push(Told { previous, ..Told::new(book, number, LedgerKind::Dropped(reason), seq, 0) });
    }

    /// Its message is owed once more: it stands in its key's order from now on, and its life counts no more.
    fn bring_back(&mut self, number: usize, letter: &Letter) {
        let (seq, previous) = (letter.origin.get(), letter.delivery.get());
        let path = self.paths.get_mut(&letter.path).expect("the caller found it");
        let messages = &self.topics[&path.topic].partitions[number];
        let key = messages.get(seq).key;
        let is_key_leased = |(other, _): (u64, super::Lease)| messages.get(other).key == key;
        let behind_lease = key.is_some() && path.partitions[number].leases().any(is_key_leased);
        let pair = path.partitions[number].pairs.get_mut(&seq).expect("it died there");
        let source = Some(letter.seq.get());
        pair.open = Some(Open { offered: true, cause: Cause::Redriven, previous, source, ..Open::new() });
        self.told.push(Told { previous, ..Told::new(letter.path, number, LedgerKind::Redriven, seq, 0) });
        self.reach("redrive");
        if behind_lease {
            self.reach("redrive while its key is leased");
        }
    }

    /// Whether a message has lost its worth on a path: one that was redriven does not.
    pub(super) fn has_expired(&self, id: PathId, number: usize, seq: u64) -> bool {
        let message = self.topic_of(id).partitions[number].get(seq);
        let is_redriven = self.paths[&id].partitions[number].open(seq).is_some_and(|open| open.source.is_some());
        !is_redriven && message.has_expired(self.time)
    }

    /// What the log brings along of a dead letter.
    pub(crate) fn letter(&self, topic: TopicIncarnation, partition: Partition, seq: u64) -> Verdict<Letter> {
        let messages = self.topics.get(&topic).and_then(|topic| topic.partitions.get(partition.index()));
        let origin = messages.and_then(|messages| messages.origins.get(&seq));
        allowed!(origin.is_some(), "there is no dead letter {seq}");
        let origin = origin.expect("looked at above");
        let key_hash = messages.expect("looked at above").get(seq).key;
        Ok(Letter {
            seq: seq.into(),
            path: origin.path,
            origin: origin.seq.into(),
            delivery: origin.delivery.into(),
            key_hash,
            size_bytes: origin.size,
        })
    }
}
