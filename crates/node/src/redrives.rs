//! Redrives and purges of dead letters: an operator names them or says which, and the node reads them, page by page, and
//! proposes what is to be done with each, at the pace that was asked for.
//!
//! A run takes its time, and may be cut off at any moment: what is done is done, and what is not stays a dead letter, so the same
//! request can simply be made again. One topic has one run at a time; there is one command of it in the log at a time. What
//! became of the dead letters between the read and the command, apply judges.
//!
//! # Invariants
//! 1. A run has at most one read and at most one command under way.
//! 2. What is found is matched, and not done or refused yet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mortarmq_shard::command::{DropDead, Letter, Redrive};
use mortarmq_shard::dead_letter::DEAD_LETTER_GROUP;
use mortarmq_shard::{Command, LetterCode, Outcome};
use mortarmq_types::{MonotonicTime, Partition, Position, Seq, TopicIncarnation};
use mortarmq_wire::ErrorCode;

use crate::config::Now;
use crate::letters::open_letter;
use crate::node::Node;
use crate::open_batch::WaiterKind;
use crate::output::{ReadJob, ReadResult};
use crate::queries::{check_partition, unknown_topic};
use crate::refusal::{back_pressure, failure, unknown};
use crate::reply::{Failure, QueryAnswer};
use crate::request::{LetterAction, LettersAct};
use crate::views::LettersView;

/// What operators have under way, by the number of the act.
#[derive(Debug, Default)]
pub(crate) struct Redrives {
    runs: BTreeMap<u64, Run>,
    reads: BTreeMap<u64, u64>,
}

/// One redrive or purge.
#[derive(Debug)]
struct Run {
    asked: LettersAct,
    /// The topic that the dead letters come from, and theirs.
    topic: TopicIncarnation,
    dead_letters: TopicIncarnation,
    /// What is still to be read.
    places: VecDeque<Place>,
    /// What is to be proposed.
    found: VecDeque<Found>,
    is_reading: bool,
    /// The partition and the letters of the command under way.
    is_proposed: bool,
    view: LettersView,
    /// Up to when the pace that was asked for is used up, in microseconds of this node's clock.
    paid_until_us: u64,
    position: Option<Position>,
}

/// Dead letters in a row.
#[derive(Clone, Copy, Debug)]
struct Place {
    partition: Partition,
    from: Seq,
    to: Seq,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    partition: Partition,
    seq: Seq,
    /// What a redrive says of it; a purge needs nothing.
    letter: Option<Letter>,
}

impl Redrives {
    /// When the next command may be proposed that waits for nothing but its time.
    pub(crate) fn next_wake(&self) -> Option<MonotonicTime> {
        let waiting = self.runs.values().filter(|run| !run.is_proposed && !run.found.is_empty());
        waiting.map(|run| MonotonicTime::new(run.paid_until_us.div_ceil(1000))).min()
    }

    pub(crate) fn is_reading(&self, ticket: u64) -> bool {
        self.reads.contains_key(&ticket)
    }
}

impl Node {
    /// Nobody waits for the answer to a query or act any more: a run that is not done ends where it is.
    pub fn handle_query_gone(&mut self, now: Now, query: u64) {
        self.turn(now);
        self.queries.forget(query);
        self.redrives.runs.remove(&query);
        self.hand_overs.forget(query);
        self.readmissions.forget(query);
    }

    /// Begins a run.
    pub(crate) fn begin_letters(&mut self, query: u64, asked: &LettersAct) {
        match self.new_run(asked) {
            Ok(Some(run)) => _ = self.redrives.runs.insert(query, run),
            Ok(None) => {
                let mut view = LettersView::default();
                asked.sequences.iter().for_each(|_| view.refuse(LetterCode::Unknown));
                self.reply(query, Ok(QueryAnswer::Letters(view)));
            }
            Err(failure) => self.reply(query, Err(failure)),
        }
    }

    /// What is to be done; nothing if the topic has no dead letters.
    fn new_run(&self, asked: &LettersAct) -> Result<Option<Run>, Failure> {
        let state = self.shard.state();
        let (topic, found) = state.topic_by_name(&asked.topic).ok_or_else(|| unknown_topic(&asked.topic))?;
        if let Some(partition) = asked.partition {
            check_partition(found, partition)?;
        }
        let count = found.partitions.len();
        if !asked.sequences.is_empty() && asked.partition.is_none() && count > 1 {
            let text = format!("topic {:?} has {count} partitions: say in which one the sequences are", asked.topic);
            return Err(Failure::new(ErrorCode::UnknownPartition, text));
        }
        if self.redrives.runs.values().any(|run| run.topic == topic) {
            let text =
                "a redrive or purge of dead letters of this topic goes on; nothing was changed: retry when it is done";
            return Err(Failure { retry_after_ms: BUSY_RETRY_AFTER_MS, ..back_pressure(text) });
        }
        if self.redrives.runs.len() >= RUNS_MAX {
            let text = format!(
                "{RUNS_MAX} redrives or purges of dead letters go on; nothing was changed: retry when one is done"
            );
            return Err(Failure { retry_after_ms: BUSY_RETRY_AFTER_MS, ..back_pressure(&text) });
        }
        let Some(dead_letters) = state.dead_letters_of(topic) else { return Ok(None) };
        let mut run = Run {
            asked: asked.clone(),
            topic,
            dead_letters,
            places: VecDeque::new(),
            found: VecDeque::new(),
            is_reading: false,
            is_proposed: false,
            view: LettersView::default(),
            paid_until_us: 0,
            position: None,
        };
        let topic = &state.topics[&dead_letters];
        let book = &state.paths[&topic.paths[DEAD_LETTER_GROUP]];
        if asked.sequences.is_empty() {
            let only = |number: &usize| asked.partition.is_none_or(|partition| partition.index() == *number);
            run.places = (0..count)
                .filter(only)
                .map(|number| {
                    let found = &topic.partitions[number];
                    let from = found.floor(&book.partitions[number]);
                    Place { partition: Partition::from_index(number), from, to: found.last_seq.next() }
                })
                .collect();
        } else {
            let partition = asked.partition.unwrap_or(Partition::ZERO);
            run.name_places(partition, topic.partitions[partition.index()].last_seq);
        }
        Ok(Some(run))
    }

    /// Goes on with every run: reads what comes next, and proposes what the pace allows.
    pub(crate) fn add_letters(&mut self, now: Now) {
        let queries: Vec<u64> = self.redrives.runs.keys().copied().collect();
        for query in queries {
            self.read_letters(query);
            let command = self.redrives.runs.get_mut(&query).and_then(|run| run.next_command(now.monotonic));
            if let Some(command) = command {
                self.open.add(&command, WaiterKind::Letters { query });
            }
            self.finish_run(query);
        }
    }

    fn read_letters(&mut self, query: u64) {
        let Some(run) = self.redrives.runs.get_mut(&query) else { return };
        run.places.retain(|place| place.from < place.to);
        if run.is_reading || run.is_full() || run.found.len() >= COMMAND_LETTERS {
            return;
        }
        let Some(&Place { partition, from, to }) = run.places.front() else { return };
        run.is_reading = true;
        let topic = run.dead_letters;
        let to = to.min(from.plus(COMMAND_LETTERS as u64));
        let job = ReadJob::Records { topic, partition, from, to, max_bytes: PAGE_BYTES };
        // Dead letters are copies: they can be read once the writer has made them.
        let ticket = self.read(self.recent.needed_ticket(topic, partition), job);
        self.redrives.reads.insert(ticket, query);
    }

    /// Takes a page of dead letters.
    pub(crate) fn handle_letters_read(&mut self, ticket: u64, result: ReadResult) {
        let Some(query) = self.redrives.reads.remove(&ticket) else { return };
        let Some(run) = self.redrives.runs.get_mut(&query) else { return };
        run.is_reading = false;
        let Some(&Place { partition, from, to }) = run.places.front() else { return };
        let end = to.min(from.plus(COMMAND_LETTERS as u64));
        let state = self.shard.state();
        let book =
            state.topics.get(&run.dead_letters).and_then(|topic| state.paths.get(topic.paths.get(DEAD_LETTER_GROUP)?));
        let Some(book) = book.map(|book| &book.partitions[partition.index()]) else {
            let failure = Failure::new(ErrorCode::UnknownTopic, "the topic was deleted meanwhile");
            return self.end_run(query, failure);
        };
        let mut next = from;
        let is_named = !run.asked.sequences.is_empty();
        match result {
            ReadResult::Records(records) => {
                // It reads up to a number of bytes; only if there is nothing at all, nothing more is to come.
                let is_empty = records.is_empty();
                for stored in records {
                    if run.is_full() {
                        break;
                    }
                    run.miss(next..stored.seq);
                    next = stored.seq.next();
                    if is_named || book.owes(stored.seq, None) {
                        run.take(partition, stored.seq, open_letter(stored.seq, &stored.record).ok());
                    }
                }
                if is_empty {
                    run.miss(from..end);
                    next = end;
                }
            }
            ReadResult::Failed(_) => {
                // The first of them is rotten; what follows may be sound.
                if is_named || book.owes(from, None) {
                    run.take(partition, from, None);
                }
                next = from.next();
            }
            ReadResult::Index(_)
            | ReadResult::Life { .. }
            | ReadResult::Since(_)
            | ReadResult::File(_)
            | ReadResult::Stretch(_) => {
                return self
                    .end_run(query, Failure::new(ErrorCode::Internal, "the read was answered with something else"));
            }
        }
        if let Some(place) = run.places.front_mut() {
            place.from = next;
        }
        self.try_dry(query);
    }

    /// A dry run asks the state what would be done, and does nothing.
    fn try_dry(&mut self, query: u64) {
        let Some(run) = self.redrives.runs.get_mut(&query).filter(|run| run.asked.dry_run) else { return };
        let state = self.shard.state();
        for Found { partition, seq, letter } in run.found.drain(..) {
            let code = match letter {
                Some(letter) => state.redrive_code(run.dead_letters, partition, &letter),
                None => state.drop_code(run.dead_letters, partition, seq),
            };
            match code {
                Ok(LetterCode::Done) | Err(_) => {}
                Ok(code) => run.view.count(code),
            }
        }
    }

    /// A command of a run is applied.
    pub(crate) fn letters_applied(&mut self, query: u64, outcome: Outcome, position: Position) {
        // Whoever asked may have gone.
        let Some(run) = self.redrives.runs.get_mut(&query) else { return };
        run.is_proposed = false;
        run.position = Some(position);
        match outcome {
            Outcome::Letters(codes) => codes.into_iter().for_each(|code| run.view.count(code)),
            Outcome::Refused(refusal) => self.end_run(query, failure(&refusal)),
            other => unreachable!("dead letters are answered with codes or Refused, not {other:?}"),
        }
    }

    /// Answers a run that has nothing left to do.
    fn finish_run(&mut self, query: u64) {
        let is_done = |run: &Run| {
            let has_all = run.is_full() || run.places.is_empty();
            has_all && !run.is_reading && !run.is_proposed && run.found.is_empty()
        };
        if !self.redrives.runs.get(&query).is_some_and(is_done) {
            return;
        }
        let run = self.redrives.runs.remove(&query).expect("looked up just now");
        let position = run.position.unwrap_or_else(|| self.position());
        self.reply_at(query, position, Ok(QueryAnswer::Letters(run.view)));
    }

    /// Ends a run where it is.
    pub(crate) fn end_run(&mut self, query: u64, failure: Failure) {
        let Some(run) = self.redrives.runs.remove(&query) else { return };
        let done = run.view.done;
        let message = format!("{}: {done} dead letters are done, and stay done", failure.message);
        self.reply(query, Err(Failure { message, ..failure }));
    }

    /// This node no longer leads.
    pub(crate) fn end_runs(&mut self) {
        let queries: Vec<u64> = self.redrives.runs.keys().copied().collect();
        for query in queries {
            self.end_run(query, unknown(ErrorCode::ReadOnlyDegraded, "this node no longer leads; ask again"));
        }
    }
}

impl Run {
    /// Names the places of sequences that were given, and refuses those that cannot be.
    fn name_places(&mut self, partition: Partition, last_seq: Seq) {
        let named: BTreeSet<Seq> = self.asked.sequences.iter().copied().collect();
        for seq in named {
            if seq == Seq::ZERO || seq > last_seq {
                self.view.refuse(LetterCode::Unknown);
                continue;
            }
            match self.places.back_mut().filter(|place| place.to == seq) {
                Some(place) => place.to = seq.next(),
                None => self.places.push_back(Place { partition, from: seq, to: seq.next() }),
            }
        }
    }

    /// Whether as many are matched as were asked for.
    fn is_full(&self) -> bool {
        self.asked.limit.is_some_and(|limit| self.view.matched >= limit)
    }

    /// Dead letters that are not there: told only if they were named.
    fn miss(&mut self, range: std::ops::Range<Seq>) {
        if !self.asked.sequences.is_empty() {
            (0..range.end.above(range.start)).for_each(|_| self.view.refuse(LetterCode::Unknown));
        }
    }

    /// Takes a dead letter, if it is one of those that are asked for. One that cannot be read has no reason, and can be dropped
    /// but not redriven.
    fn take(&mut self, partition: Partition, seq: Seq, open: Option<crate::letters::OpenLetter>) {
        let wanted = self.asked.reason.as_deref();
        let is_other = match &open {
            Some(open) => wanted.is_some_and(|wanted| open.reason != wanted),
            None => wanted.is_some() && self.asked.action == LetterAction::Purge,
        };
        if is_other {
            return;
        }
        let letter = open.and_then(|open| open.letter);
        match self.asked.action {
            LetterAction::Purge => self.found.push_back(Found { partition, seq, letter: None }),
            LetterAction::Redrive if letter.is_none() => return self.view.refuse(LetterCode::Unreadable),
            LetterAction::Redrive => self.found.push_back(Found { partition, seq, letter }),
        }
        self.view.matched += 1;
    }

    /// What may be proposed now: dead letters of one partition.
    fn next_command(&mut self, now: MonotonicTime) -> Option<Command> {
        if self.is_proposed || self.asked.dry_run {
            return None;
        }
        let partition = self.found.front()?.partition;
        let of_partition = self.found.iter().take_while(|found| found.partition == partition).count();
        let count = of_partition.min(COMMAND_LETTERS).min(self.allowance(now));
        if count == 0 {
            return None;
        }
        let taken = self.found.drain(..count);
        let topic = self.dead_letters;
        let command = match self.asked.action {
            LetterAction::Redrive => {
                let letters = taken.filter_map(|found| found.letter).collect();
                Command::Redrive(Redrive { topic, partition, letters })
            }
            LetterAction::Purge => {
                let seqs = taken.map(|found| found.seq).collect();
                Command::DropDead(DropDead { topic, partition, seqs })
            }
        };
        self.is_proposed = true;
        self.pay(count);
        Some(command)
    }

    /// How many the pace allows now: one at once, and the others as their time comes. What could not be done in time is made up
    /// for, but for no more than the last second.
    fn allowance(&mut self, now: MonotonicTime) -> usize {
        let Some(rate) = self.asked.rate else { return usize::MAX };
        let now_us = now.get().saturating_mul(1000);
        if now_us < self.paid_until_us {
            return 0;
        }
        self.paid_until_us = match self.paid_until_us {
            0 => now_us,
            paid => paid.max(now_us.saturating_sub(1_000_000)),
        };
        let due = (now_us - self.paid_until_us) / cost_us(rate);
        usize::try_from(due).unwrap_or(usize::MAX).saturating_add(1)
    }

    fn pay(&mut self, count: usize) {
        if let Some(rate) = self.asked.rate {
            self.paid_until_us = self.paid_until_us.saturating_add(cost_us(rate).saturating_mul(count as u64));
        }
    }
}

impl LettersView {
    /// Counts a dead letter that is meant and cannot be taken.
    fn refuse(&mut self, code: LetterCode) {
        self.matched += 1;
        self.count(code);
    }
}

/// What one message takes of the time, at so many per second.
fn cost_us(rate: u32) -> u64 {
    (1_000_000 / u64::from(rate.max(1))).max(1)
}

/// Redrives and purges at a time: each may take its time, and holds a page of dead letters in memory.
const RUNS_MAX: usize = 8;
/// Dead letters of one command, and of one page: well below the steps that a command may take, so that no run stalls others.
const COMMAND_LETTERS: usize = 256;
/// Bytes read at once, about.
const PAGE_BYTES: u64 = 1 << 20;
/// Whoever is told that another run goes on asks again after this long.
const BUSY_RETRY_AFTER_MS: u32 = 1000;
