//! Damage of segments, indexes and ledgers that another node can mend: a node asks one other at a time for the bytes, and its segment
//! writer checks them and puts them in place (failure rule 3).
//!
//! Damage is found by a read for a delivery, by a copy whose source cannot be read, by the scrub, and by a read for another node that asks.
//! Any node asks and any node answers; the leader is asked first. Nothing is remembered across a restart: what is damaged is found again.
//!
//! # Invariants
//! 1. At most [`OPEN_MAX`] places wait, and at most [`UNDER_WAY_MAX`] of them are asked for or written: memory is bounded.
//! 2. A message is held until its record was read again: a repair resumes it, and nothing else is concluded from it.
//!
//! # Source
//! Failure rule 3; P11; docs/decisions/018-repair.md.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use mortarmq_replica::{CatchUpWord, Snapshot};
use mortarmq_storage::{RepairOutcome, Stretch};
use mortarmq_types::{MonotonicTime, Partition, PathId, Seq};

use crate::catch_up::CatchUpWork;
use crate::config::Now;
use crate::node::Node;
use crate::output::{Output, ReadJob, ReadResult};
use crate::request::Unsent;
use crate::stretches::Place;

/// What a node does about damage, its own and that of others.
#[derive(Debug, Default)]
pub(crate) struct Repairs {
    open: BTreeMap<Stretch, Repair>,
    /// Reads for others, by their ticket, with who asked.
    reads: BTreeMap<u64, (u64, Stretch)>,
    repaired: u64,
    /// Whether there was damage that found no place here.
    has_overflowed: bool,
}

/// A message that is held for want of its record.
pub(crate) type Held = (PathId, Partition, Seq);

/// One damaged place.
#[derive(Debug, Default)]
struct Repair {
    step: Step,
    /// Who has not helped in this round.
    tried: BTreeMap<u64, Lack>,
    not_before: MonotonicTime,
    rounds: u32,
    /// Whether the segment writer goes no further without it.
    is_waited_for: bool,
    held: BTreeSet<Held>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    /// Nobody is asked.
    #[default]
    Waits,
    Asked {
        peer: u64,
        at: MonotonicTime,
    },
    /// What this one has is being written.
    Writing {
        peer: u64,
    },
    /// It is sound; those who are held for it are looked at for a while, as a hold may still be on its way into the log.
    Mended {
        at: MonotonicTime,
    },
}

/// Why another node was no help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    /// It does not answer, has not written it yet, or has let it go.
    NotNow,
    /// What it has is damaged, or does not fit.
    Damaged,
}

impl Repairs {
    /// How many places wait.
    pub(crate) fn open(&self) -> u64 {
        self.open.values().filter(|repair| !matches!(repair.step, Step::Mended { .. })).count() as u64
    }

    /// How many places were repaired.
    pub(crate) const fn repaired(&self) -> u64 {
        self.repaired
    }

    fn under_way(&self) -> usize {
        let is_under_way = |repair: &&Repair| matches!(repair.step, Step::Asked { .. } | Step::Writing { .. });
        self.open.values().filter(is_under_way).count()
    }
}

impl Node {
    /// Something of a segment, an index or a ledger is damaged here: other nodes are asked for it. `is_waited_for` says that the segment
    /// writer goes no further without it.
    pub fn handle_damage(&mut self, now: Now, stretch: Stretch, is_waited_for: bool) {
        self.turn(now);
        self.want_repair(stretch, None);
        if let Some(repair) = self.repairs.open.get_mut(&stretch) {
            repair.is_waited_for |= is_waited_for;
        } else if is_waited_for {
            self.outputs.push_back(Output::CatchUp { work: CatchUpWork::GiveUp { stretch } });
        }
    }

    /// Notes damage; a message that is held for it is resumed when it is mended. Alone, a node has nobody to ask.
    pub(crate) fn want_repair(&mut self, stretch: Stretch, held: Option<Held>) {
        if !self.config.has_peers() {
            return;
        }
        let has_room = self.repairs.open.len() < OPEN_MAX;
        if !has_room && !self.repairs.open.contains_key(&stretch) {
            self.repairs.has_overflowed = true;
            return;
        }
        let repair = self.repairs.open.entry(stretch).or_default();
        if matches!(repair.step, Step::Mended { .. }) {
            // It was read before that, or has rotted again.
            repair.step = Step::Waits;
        }
        repair.held.extend(held);
    }

    /// Neither the index nor the record at a place says what the message there is.
    pub(crate) fn want_place_repaired(&mut self, (path, partition): Place, seq: Seq) {
        let topic = self.shard.state().paths.get(&path).map(|path| path.topic);
        if let Some(topic) = topic {
            self.want_repair(Stretch::Records { topic, partition, seq }, None);
        }
    }

    /// Goes on with what waits.
    pub(crate) fn go_on_with_repairs(&mut self, now: Now) {
        if self.repairs.open.is_empty() || self.is_installing() {
            return;
        }
        let all: Vec<Stretch> = self.repairs.open.keys().copied().collect();
        let mut under_way = self.repairs.under_way();
        for stretch in all {
            self.go_on_with_repair(now, stretch, &mut under_way);
        }
        if self.repairs.open.is_empty() && std::mem::take(&mut self.repairs.has_overflowed) && self.leads {
            // Some may be held for damage that was mended without a word of them.
            self.begin_retries();
        }
    }

    fn go_on_with_repair(&mut self, now: Now, stretch: Stretch, under_way: &mut usize) {
        let is_there = self.shard.state().topics.contains_key(&stretch.topic());
        let Some(repair) = self.repairs.open.get_mut(&stretch) else { return };
        match repair.step {
            Step::Writing { .. } => return,
            // What goes with its topic needs no repair.
            _ if !is_there => return self.end_repair(stretch),
            Step::Mended { at } => {
                self.resume_held(stretch);
                let is_over = now.monotonic.since_ms(at) > MENDED_MS;
                self.repairs.open.retain(|of, repair| *of != stretch || !(is_over || repair.held.is_empty()));
                return;
            }
            Step::Asked { at, .. } if now.monotonic.since_ms(at) < ANSWER_MS => return,
            Step::Asked { peer, .. } => {
                *under_way -= 1;
                (repair.step, _) = (Step::Waits, repair.tried.insert(peer, Lack::NotNow));
            }
            Step::Waits => {}
        }
        if now.monotonic < repair.not_before || *under_way >= UNDER_WAY_MAX {
            return;
        }
        match self.next_to_ask(stretch) {
            Some(peer) => {
                *under_way += 1;
                let repair = self.repairs.open.get_mut(&stretch).expect("looked at above");
                repair.step = Step::Asked { peer, at: now.monotonic };
                let (file, at) = stretch.name();
                self.say(peer, Snapshot::default(), CatchUpWord::Ask { file, at });
            }
            None => self.end_round(now, stretch),
        }
    }

    /// Whom to ask next: the leader, then the others.
    fn next_to_ask(&self, stretch: Stretch) -> Option<u64> {
        let tried = &self.repairs.open.get(&stretch)?.tried;
        let (me, leader) = (self.replica.id(), self.replica.leader());
        let others = self.replica.members().ids();
        leader.into_iter().chain(others).find(|peer| *peer != me && !tried.contains_key(peer))
    }

    /// Nobody could help: they are asked again after a while. What every one of them has damaged nobody can wait for.
    fn end_round(&mut self, now: Now, stretch: Stretch) {
        let others = self.replica.members().ids().count() - 1;
        let Some(repair) = self.repairs.open.get_mut(&stretch) else { return };
        let is_hopeless = repair.tried.values().filter(|lack| **lack == Lack::Damaged).count() >= others;
        if is_hopeless && std::mem::take(&mut repair.is_waited_for) {
            self.outputs.push_back(Output::CatchUp { work: CatchUpWork::GiveUp { stretch } });
        }
        repair.tried.clear();
        repair.not_before = now.monotonic.after_ms(PAUSE_MS << repair.rounds.min(PAUSES_DOUBLE));
        repair.rounds = repair.rounds.saturating_add(1);
    }

    fn end_repair(&mut self, stretch: Stretch) {
        if self.repairs.open.remove(&stretch).is_some_and(|repair| repair.is_waited_for) {
            self.outputs.push_back(Output::CatchUp { work: CatchUpWork::GiveUp { stretch } });
        }
    }

    /// Proposes that those who are held for it are tried again, as far as their hold is applied.
    fn resume_held(&mut self, stretch: Stretch) {
        let Some(repair) = self.repairs.open.get_mut(&stretch) else { return };
        if !self.leads {
            // The next leader tries everything again.
            repair.held.clear();
            return;
        }
        let paths = &self.shard.state().paths;
        let mut resumed = Vec::new();
        repair.held.retain(|(id, partition, seq)| {
            let Some(found) = paths.get(id).and_then(|path| path.partitions.get(partition.index())) else {
                return false;
            };
            let held = found.held().find(|(held, _)| held == seq);
            resumed.extend(held.map(|(seq, delivery_id)| (*id, Unsent { partition: *partition, seq, delivery_id })));
            held.is_none()
        });
        if !resumed.is_empty() {
            self.retries.add(resumed.into_iter());
            self.add_retries();
        }
    }

    /// Hears a word about damage; gives back one about a snapshot.
    pub(crate) fn hear_of_damage(&mut self, now: Now, from: u64, word: CatchUpWord) -> Option<CatchUpWord> {
        let lack = match word {
            CatchUpWord::Ask { file, at } => {
                if let Some(stretch) = Stretch::of_name(&file, at)
                    && self.repairs.reads.len() < READS_MAX
                {
                    let ticket = self.read(0, ReadJob::Stretch { stretch });
                    self.repairs.reads.insert(ticket, (from, stretch));
                }
                return None;
            }
            CatchUpWord::Sound { file, at, data } => {
                if let Some((stretch, repair)) = self.asked(from, &file, at) {
                    repair.step = Step::Writing { peer: from };
                    self.outputs.push_back(Output::CatchUp { work: CatchUpWork::Repair { stretch, data } });
                }
                return None;
            }
            CatchUpWord::None { ref file, at, is_damaged } => {
                (file.clone(), at, if is_damaged { Lack::Damaged } else { Lack::NotNow })
            }
            other => return Some(other),
        };
        let (file, at, lack) = lack;
        if let Some((_, repair)) = self.asked(from, &file, at) {
            repair.tried.insert(from, lack);
            repair.step = Step::Waits;
            self.go_on_with_repairs(now);
        }
        None
    }

    /// The repair for which another node was asked, if it was that one.
    fn asked(&mut self, from: u64, file: &str, at: u64) -> Option<(Stretch, &mut Repair)> {
        let stretch = Stretch::of_name(file, at)?;
        let repair = self.repairs.open.get_mut(&stretch)?;
        matches!(repair.step, Step::Asked { peer, .. } if peer == from).then_some((stretch, repair))
    }

    /// Takes the result of a read if it was one for a repair elsewhere; else gives it back.
    pub(crate) fn stretch_read(&mut self, ticket: u64, result: ReadResult) -> Option<ReadResult> {
        let Some((to, stretch)) = self.repairs.reads.remove(&ticket) else { return Some(result) };
        let (file, at) = stretch.name();
        let found: Option<Bytes> = match result {
            ReadResult::Stretch(found) => found,
            _ => {
                // It is damaged here, too. There may be a third that has it.
                self.want_repair(stretch, None);
                self.say(to, Snapshot::default(), CatchUpWord::None { file, at, is_damaged: true });
                return None;
            }
        };
        let word = match found {
            Some(data) => CatchUpWord::Sound { file, at, data },
            None => CatchUpWord::None { file, at, is_damaged: false },
        };
        self.say(to, Snapshot::default(), word);
        None
    }

    /// The segment writer is done with what another node gave.
    pub(crate) fn repair_done(&mut self, now: Now, stretch: Stretch, outcome: &RepairOutcome) {
        self.repairs.repaired += u64::from(matches!(outcome, RepairOutcome::Repaired { .. }));
        let Some(repair) = self.repairs.open.get_mut(&stretch) else { return };
        let Step::Writing { peer } = repair.step else { return };
        match outcome {
            RepairOutcome::Refused { .. } => {
                repair.tried.insert(peer, Lack::Damaged);
                repair.step = Step::Waits;
            }
            RepairOutcome::Repaired { .. } | RepairOutcome::Sound => {
                repair.step = Step::Mended { at: now.monotonic };
                // Whoever did not know what stands there can go on.
                let topic = stretch.topic();
                let state = self.shard.state();
                let waits = state.paths.iter().filter(|(_, path)| path.topic == topic).map(|(id, _)| *id);
                self.attention.extend(waits);
            }
        }
        self.go_on_with_repairs(now);
    }
}

/// Damaged places that are known at a time. What finds no room is found again.
const OPEN_MAX: usize = 1024;
/// Asked for, or being written, at a time: a record is up to 16 MiB.
const UNDER_WAY_MAX: usize = 4;
/// Reads for others at a time.
const READS_MAX: usize = 4;
/// Whoever has not answered by then is not waited for.
const ANSWER_MS: u64 = 2000;
/// How long nobody is asked after nobody could help: twice as long each time, up to about 5 min.
const PAUSE_MS: u64 = 2000;
const PAUSES_DOUBLE: u32 = 7;
/// How long a hold may take into the log once what it is for is mended.
const MENDED_MS: u64 = 5000;
