//! Goal: P3 to P9 hold in every history of a small world, whatever the order of commands. Method: an exhaustive search
//! (crate `stateright`) over the real shard: from each state every command that could come, also repeated, late and out of
//! order, up to a number of steps. Two judges look at each step: the model of the contract, and a witness that knows only
//! what was answered, delivered and told, with each promise in a few lines.
//!
//! The worlds, each to its end, with up to 10 commands and two members: three messages, two of one key, acked, refused and
//! lost (10 commands, 5 deliveries); the first of three delayed (10, 4); an operator who purges and moves the path (8, 3); three
//! messages of one key given back, extended, unreadable and tried again, also the one in the middle (9, 5); dead letters that come
//! back or are dropped (10, 4); retention that passes the path, an hour in which leases stand still included (9, 4). Each says how
//! many states it went through.
//!
//! `MORTARMQ_STEPS=12` searches histories of 12 commands: each more takes about three times as long.
//!
//! Two states are one if their images are. A command that changes nothing is judged, and not followed.

use crate::compare::compare;
use crate::histories::{commands, from_environment};
use crate::model::Model;
use bytes::BytesMut;
use mortarmq_shard::command::{CreateTopic, Deliver, DropDead, EndMember, Redrive, Settle, Trim};
use mortarmq_shard::ledger::LedgerKind;
use mortarmq_shard::record::NewRecord;
use mortarmq_shard::{
    Applied, BatchBuilder, Command, Effect, Grant, JoinGroup, LetterCode, Outcome, PublishRunBuilder, SeekTarget,
    Setting, SettingsPatch, SettleCode, SettleItem, SettleKind, Shard, Stamp, StartPolicy, State, Times,
};
use mortarmq_types::{
    Cause, ClusterTime, DeliveryId, DropReason, Epoch, KeyHash, MemberId, Partition, PathId, ProducerId, ProducerSeq,
    Seq, TopicIncarnation, WallTime,
};
use stateright::{Checker as _, Property};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Mutex;

/// A small world: what is published, and how many steps it lives.
struct World {
    /// Key and delay of each message, in the order in which they are published.
    messages: &'static [(&'static [u8], u64)],
    settings: &'static [(Setting, u64)],
    steps: u64,
    deliveries: u64,
    /// What consumers, and the broker, may say about a delivery.
    words: &'static [Word],
    /// How many messages a `Deliver` may ask for.
    asks: &'static [u32],
    /// What else may happen.
    also: &'static [Also],
    /// What happened somewhere: a search that never meets it proves little.
    met: Mutex<BTreeMap<&'static str, u64>>,
}

/// What an operator or a duty may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Also {
    /// Purge and move the path.
    Move,
    /// Bring dead letters back, or drop them.
    Redrive,
    /// Let what is an hour old go.
    Trim,
}

/// What may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// The next message, or once more the last one.
    Publish {
        again: bool,
    },
    Deliver {
        member: u64,
        messages: u32,
    },
    Settle {
        seq: u64,
        delivery: u64,
        word: Word,
    },
    /// Until the shard wants to be woken.
    Wait,
    Lose {
        member: u64,
    },
    Join {
        member: u64,
    },
    Purge,
    Seek {
        to: u64,
    },
    /// Of one dead letter, also when it is not there any more.
    Redrive {
        letter: u64,
    },
    DropDead {
        letter: u64,
    },
    /// An hour in which nobody could do anything: leases go on as if it had not been.
    Hour,
    Trim,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Ack,
    Nack,
    Reject,
    Release,
    Extend,
    /// Its record cannot be read.
    Hold,
    /// It is tried again.
    Resume,
}

#[derive(Clone, Debug)]
struct Moment {
    shard: Shard,
    model: Model,
    witness: Witness,
    image: Vec<u8>,
    steps: u64,
    fault: Option<String>,
}

/// What an onlooker knows: answers, deliveries, and what the ledger says.
#[derive(Clone, Debug, Default)]
struct Witness {
    /// Keys of the stored messages; the first has sequence 1.
    keys: Vec<KeyHash>,
    numbers: BTreeMap<u64, u64>,
    deliveries: BTreeMap<u64, Vec<Seen>>,
    /// Messages that nothing is owed of.
    settled: BTreeSet<u64>,
    acked: u64,
    dead: u64,
    dropped: u64,
    /// Messages that an operator has owed once more.
    again: u64,
    delayed: BTreeSet<u64>,
    /// Messages that cannot be read, with the delivery that found it out.
    held: BTreeMap<u64, u64>,
    /// The messages of the dead letters, first to last, and which of those were taken out.
    letters: Vec<u64>,
    taken: BTreeSet<u64>,
    last_delivery: u64,
    broken: BTreeSet<&'static str>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    id: u64,
    command: u64,
    ended: Option<End>,
    settled: Option<Word>,
}

/// What ended a delivery, as the ledger says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Acked,
    Dead,
    Failed(Cause),
    /// An operator moved the path back: the message begins anew.
    Replayed,
    /// An operator brought it back from its dead letter.
    Redriven,
}

impl PartialEq for Moment {
    fn eq(&self, other: &Self) -> bool {
        self.image == other.image && self.fault == other.fault
    }
}

impl Hash for Moment {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.image.hash(hasher);
        self.fault.hash(hasher);
    }
}

const PATH: PathId = PathId::new(1);

/// The second topic, and the second path: of the dead letters.
const DEAD_LETTERS: TopicIncarnation = TopicIncarnation::new(2);
const BOOK: PathId = PathId::new(2);

const LEASE_MS: u64 = 1000;
const HOUR_MS: u64 = 3_600_000;

impl World {
    fn command(&self, moment: &Moment, action: Action) -> BatchBuilder {
        let mut builder = BatchBuilder::default();
        match action {
            Action::Publish { again } => {
                let number = moment.witness.keys.len() as u64 + u64::from(!again);
                let (key, delay_ms) = self.messages[usize::try_from(number - 1).expect("small")];
                let body = number.to_be_bytes();
                let (producer_id, producer_seq) = (ProducerId::new(1), ProducerSeq::new(number));
                let record = NewRecord { producer_id, producer_seq, key, has_headers: false, body: &body };
                let mut run = PublishRunBuilder::default();
                let times = Times { delay_ms, ttl_ms: 0 };
                run.add_timed(TopicIncarnation::new(1), Partition::ANY, (8, 8), &record, times);
                builder.add_run(&run.take().expect("one was added"));
            }
            Action::Deliver { member, messages } => {
                let grant = Grant::Push { window_messages: 9, window_bytes: 1000 };
                let member = MemberId::new(member);
                builder.add(&Command::Deliver(Deliver {
                    path: PATH,
                    member,
                    grant,
                    max_messages: messages,
                    stretch: None,
                }));
            }
            Action::Settle { seq, delivery, word } => {
                let kind = word.kind();
                let (first_seq, first_delivery) = (Seq::new(seq), DeliveryId::new(delivery));
                let item = SettleItem { partition: Partition::ZERO, first_seq, first_delivery, count: 1, kind };
                builder.add(&Command::Settle(Settle { path: PATH, items: vec![item] }));
            }
            Action::Wait => {}
            Action::Lose { member } => {
                builder.add(&Command::EndMember(EndMember { path: PATH, member: MemberId::new(member), lost: true }));
            }
            Action::Join { member } => builder.add(&join(member)),
            Action::Purge => builder.add(&Command::PurgePath { path: PATH }),
            Action::Seek { to } => {
                let target = SeekTarget::At(vec![(Partition::ZERO, Seq::new(to))]);
                builder.add(&Command::SeekPath { path: PATH, target });
            }
            Action::Redrive { letter } => {
                if let Ok(letter) = moment.model.letter(DEAD_LETTERS, Partition::ZERO, letter) {
                    let (topic, partition) = (DEAD_LETTERS, Partition::ZERO);
                    builder.add(&Command::Redrive(Redrive { topic, partition, letters: vec![letter] }));
                }
            }
            Action::DropDead { letter } => {
                let (topic, partition, seqs) = (DEAD_LETTERS, Partition::ZERO, vec![Seq::new(letter)]);
                builder.add(&Command::DropDead(DropDead { topic, partition, seqs }));
            }
            Action::Hour => {}
            Action::Trim => {
                let topic = TopicIncarnation::new(1);
                builder.add(&Command::Trim(Trim { topic, partition: Partition::ZERO, below: Seq::MAX }));
            }
        }
        builder
    }

    fn meet(&self, what: &'static str) {
        *self.met.lock().expect("nobody panics with it").entry(what).or_default() += 1;
    }

    /// A step, judged by both.
    fn live(&self, before: &Moment, action: Action) -> Moment {
        let mut moment = before.clone();
        let time = match action {
            Action::Wait => moment.shard.state().next_due().expect("it is offered only then"),
            Action::Hour => moment.shard.state().time.after_ms(HOUR_MS),
            _ => moment.shard.state().time,
        };
        let gap_ms = if action == Action::Hour { HOUR_MS } else { 0 };
        let bytes = self.command(before, action).close(Stamp { time, gap_ms, wall: WallTime::ZERO });
        let commands = commands(bytes.clone());
        let applied = moment.shard.apply(bytes, Epoch::new(1)).expect("it was encoded just now");
        moment.steps += 1;
        moment.model.observe(moment.shard.state());
        moment.fault = moment
            .model
            .apply(&commands, &applied)
            .and_then(|()| compare(&mut moment.model, moment.shard.state()))
            .err();
        moment.shard.check();
        moment.witness.hear(&applied, self);
        moment.witness.judge_answer(action, &applied, self);
        moment.witness.judge_leases(action, before.shard.state(), moment.shard.state());
        moment.witness.judge_books(&moment.shard);
        let mut image = BytesMut::new();
        moment.shard.image().encode(&mut image);
        moment.image = image.to_vec();
        moment
    }
}

impl Witness {
    /// Takes in what the ledger says, then what was delivered.
    fn hear(&mut self, applied: &Applied, world: &World) {
        for effect in &applied.effects {
            match effect {
                Effect::Ledger(ledger) if ledger.event.path == PATH => {
                    for place in 0..u64::from(ledger.event.count) {
                        let event = &ledger.event;
                        let previous = event.previous.get();
                        let (seq, id) = (event.first_seq.get() + place, event.first_delivery.get() + place);
                        self.hear_event(seq, id, previous, event.kind, world);
                    }
                }
                Effect::Deliver(deliver) => {
                    for lease in &deliver.leases {
                        self.judge_delivery(lease.seq.get(), lease, deliver.commit_index.get());
                    }
                }
                Effect::Copy(copy) => {
                    self.letters.push(copy.envelope.seq.get());
                    if copy.to.seq.get() != self.letters.len() as u64 {
                        self.broken.insert("P10 monotonic");
                    }
                }
                _ => {}
            }
        }
    }

    fn hear_event(&mut self, seq: u64, id: u64, previous: u64, kind: LedgerKind, world: &World) {
        let end = match kind {
            LedgerKind::LeaseEnded(cause) => End::Failed(cause),
            LedgerKind::Acked => End::Acked,
            LedgerKind::Dead(_) => End::Dead,
            LedgerKind::Dropped(reason) => {
                // No rule but an operator's takes a message from a consumer.
                if reason != DropReason::Purge && self.live(seq).is_some() {
                    self.broken.insert("P4 delivery");
                }
                if reason == DropReason::Retention {
                    world.meet(if previous == 0 {
                        "a message that retention drops"
                    } else {
                        "a message that goes with its lease"
                    });
                }
                self.dropped += 1;
                return self.end_life(seq);
            }
            LedgerKind::Replayed => return self.begin_life(seq, 0, End::Replayed, world),
            LedgerKind::Redriven => return self.begin_life(seq, previous, End::Redriven, world),
            LedgerKind::Leased(_) | LedgerKind::Extended => return,
        };
        if self.live(seq).map(|seen| seen.id) != Some(id) {
            self.broken.insert("P6 settled is final");
        }
        match end {
            End::Acked => self.acked += 1,
            End::Dead => {
                world.meet("a dead letter");
                // The first of its dead letters was heard of just now.
                if self.letters.iter().filter(|letter| **letter == seq).count() > 1 {
                    world.meet("a message that died twice");
                }
                self.dead += 1;
            }
            End::Failed(Cause::Released) => {
                world.meet("a message that is given back with its key");
                let key = self.key(seq);
                let is_out = |other: u64| self.key(other) == key && self.live(other).is_some();
                // This one is over with this event, and nothing else of the command was heard yet if those around it are out.
                if (1..seq).any(is_out) && (seq + 1..=self.keys.len() as u64).any(is_out) {
                    world.meet("a message that is given back from the middle of its key");
                }
            }
            End::Failed(_) | End::Replayed | End::Redriven => {}
        }
        if matches!(end, End::Acked | End::Dead) {
            self.end_life(seq);
        }
        if let Some(seen) = self.deliveries.get_mut(&seq).and_then(|seen| seen.last_mut()) {
            seen.ended = Some(end);
        }
    }

    fn end_life(&mut self, seq: u64) {
        self.held.remove(&seq);
        if !self.settled.insert(seq) {
            self.broken.insert("P6 settled is final");
        }
    }

    fn begin_life(&mut self, seq: u64, previous: u64, how: End, world: &World) {
        world.meet(if how == End::Redriven {
            "a dead letter that comes back"
        } else {
            "a message that is owed once more"
        });
        self.again += 1;
        if !self.settled.remove(&seq) {
            self.broken.insert("P9 balance");
        }
        // What is replayed follows no delivery, number 0; what is redriven the one that it died by.
        let marker = Seen { id: previous, command: 0, ended: Some(how), settled: None };
        self.deliveries.entry(seq).or_default().push(marker);
    }

    fn live(&self, seq: u64) -> Option<Seen> {
        self.deliveries.get(&seq)?.last().copied().filter(|seen| seen.ended.is_none())
    }

    fn is_settled(&self, seq: u64) -> bool {
        self.settled.contains(&seq)
    }

    fn judge_delivery(&mut self, seq: u64, lease: &mortarmq_delivery::Leased, command: u64) {
        let id = lease.delivery_id.get();
        let mut broken = Vec::new();
        if self.live(seq).is_some() {
            broken.push("P5 one lease");
        }
        if self.is_settled(seq) || self.held.contains_key(&seq) {
            broken.push("P6 settled is final");
        }
        let before = self.deliveries.get(&seq).and_then(|seen| seen.last());
        let expected = match before.map(|seen| (seen.ended, seen.id)) {
            None => Some((Cause::First, 0)),
            Some((Some(End::Failed(cause)), id)) => Some((cause, id)),
            Some((Some(End::Replayed), _)) => Some((Cause::Replayed, 0)),
            Some((Some(End::Redriven), id)) => Some((Cause::Redriven, id)),
            Some((Some(End::Acked | End::Dead) | None, _)) => None,
        };
        if expected != Some((lease.cause, lease.previous.get())) {
            broken.push("P7 explained");
        }
        let key = self.key(seq);
        let others =
            (1..=self.keys.len() as u64).filter(|other| *other != seq && key.is_some() && self.key(*other) == key);
        for other in others {
            let out_with_it = self.live(other).is_some_and(|seen| seen.command == command);
            let waits = other > seq && self.live(other).is_none();
            let never_was = !self.deliveries.contains_key(&other) && self.is_delayed(other);
            if !(self.is_settled(other) || (out_with_it && other < seq) || waits || never_was) {
                broken.push("P8 order");
            }
        }
        if id <= self.last_delivery {
            broken.push("P10 monotonic");
        }
        self.last_delivery = id;
        self.deliveries.entry(seq).or_default().push(Seen { id, command, ended: None, settled: None });
        self.broken.extend(broken);
    }

    fn key(&self, seq: u64) -> KeyHash {
        self.keys[usize::try_from(seq - 1).expect("small")]
    }

    /// Whether a message may not have been due yet: then later ones of its key need not wait for it.
    fn is_delayed(&self, seq: u64) -> bool {
        self.delayed.contains(&seq)
    }

    fn judge_answer(&mut self, action: Action, applied: &Applied, world: &World) {
        match (action, &applied.outcomes[..]) {
            (Action::Publish { .. }, [Outcome::Published(answer)]) => {
                let number = self.keys.len() as u64 + u64::from(!matches!(action, Action::Publish { again: true }));
                let stored = applied.effects.iter().find_map(|effect| match effect {
                    Effect::Append(append) => Some(append.key_hash),
                    _ => None,
                });
                self.judge_publish(number, answer.seq.get(), answer.deduplicated, stored, world);
            }
            (Action::Settle { seq, delivery, word }, [Outcome::Settled(codes)]) => {
                self.judge_settle(seq, delivery, word, codes[0], world);
            }
            (Action::Redrive { letter } | Action::DropDead { letter }, [Outcome::Letters(codes)]) => {
                self.judge_letter(letter, matches!(action, Action::Redrive { .. }), codes[0]);
            }
            _ => {}
        }
    }

    fn judge_publish(&mut self, number: u64, seq: u64, again: bool, stored: Option<KeyHash>, world: &World) {
        let first = *self.numbers.entry(number).or_insert(seq);
        if first != seq || again == stored.is_some() {
            self.broken.insert("P3 idempotent publish");
        }
        if let Some(key) = stored {
            self.keys.push(key);
            let (_, delay_ms) = world.messages[self.keys.len() - 1];
            self.delayed.extend((delay_ms > 0).then_some(self.keys.len() as u64));
        } else {
            world.meet("a publish that was stored before");
        }
    }

    /// One dead letter leaves its book once: it goes back to where it died, if nothing is owed there, or is dropped.
    fn judge_letter(&mut self, letter: u64, is_redrive: bool, code: LetterCode) {
        let origin = self.letters[usize::try_from(letter - 1).expect("small")];
        let is_done = code == LetterCode::Done;
        if is_done && !self.taken.insert(letter) {
            self.broken.insert("P6 settled is final");
        }
        let is_owed = !self.is_settled(origin);
        let may_stay = self.taken.contains(&letter) || (is_redrive && is_owed);
        if !is_done && !may_stay {
            self.broken.insert("P4 delivery");
        }
    }

    /// No lease is ever shortened, and one that is extended runs its whole time from now.
    fn judge_leases(&mut self, action: Action, before: &State, after: &State) {
        let lease = |state: &State, seq: u64| {
            let entry = state.paths.get(&PATH)?.partitions[0].lease_of(Seq::new(seq))?;
            entry.lease().map(|lease| (lease.delivery_id, lease.deadline.get() + state.gaps_ms))
        };
        for seq in 1..=self.keys.len() as u64 {
            let (Some((was, then)), Some((id, now))) = (lease(before, seq), lease(after, seq)) else { continue };
            let is_extended = matches!(action, Action::Settle { seq: of, delivery, word: Word::Extend }
                if of == seq && delivery == id.get());
            let expected = match action {
                _ if is_extended => after.time.get() + LEASE_MS,
                Action::Hour => then + HOUR_MS,
                _ => then,
            };
            if was == id && (now != expected || now < then) {
                self.broken.insert("P5 one lease");
            }
        }
    }

    /// The delivery is done now, or was settled by the same word before; else nothing is.
    fn judge_settle(&mut self, seq: u64, delivery: u64, word: Word, code: SettleCode, world: &World) {
        let seen = self.deliveries.get_mut(&seq).and_then(|all| all.iter_mut().find(|seen| seen.id == delivery));
        let Some(seen) = seen else { return };
        let ended_so = match word {
            Word::Ack => seen.ended == Some(End::Acked),
            Word::Nack => matches!(seen.ended, Some(End::Dead | End::Failed(Cause::Nacked))),
            Word::Reject => seen.ended == Some(End::Dead),
            Word::Release | Word::Hold => seen.ended == Some(End::Failed(Cause::Released)),
            Word::Extend => seen.ended.is_none(),
            Word::Resume => self.held.get(&seq) == Some(&delivery),
        };
        match (word, code) {
            // These settle nothing, and are not remembered.
            (Word::Extend | Word::Hold | Word::Resume, SettleCode::Done) => {
                if !ended_so {
                    self.broken.insert("P6 settled is final");
                }
                match word {
                    Word::Hold => _ = self.held.insert(seq, delivery),
                    Word::Resume => _ = self.held.remove(&seq),
                    _ => {}
                }
                return world.meet(match word {
                    Word::Extend => "a lease that is extended",
                    Word::Hold => "a message that cannot be read",
                    _ => "a message that is tried again",
                });
            }
            (Word::Extend | Word::Hold | Word::Resume, _) => {
                if ended_so && word != Word::Hold {
                    self.broken.insert("P5 one lease");
                }
                return;
            }
            _ => {}
        }
        match code {
            SettleCode::Done if seen.settled == Some(word) => world.meet("a settle that is repeated"),
            SettleCode::Done if ended_so && seen.settled.is_none() => seen.settled = Some(word),
            SettleCode::Done => _ = self.broken.insert("P6 settled is final"),
            SettleCode::Stale => world.meet("a settle of an older delivery"),
            SettleCode::Unknown => world.meet("a settle that comes too late"),
        }
    }

    fn judge_books(&mut self, shard: &Shard) {
        let state = shard.state();
        let Some(path) = state.paths.get(&PATH) else { return };
        let books = state.books(path);
        let stored = self.keys.len() as u64;
        let depth = (stored + self.again) - (self.acked + self.dead + self.dropped);
        let expected = (stored + self.again, self.acked, self.dropped, self.dead, depth);
        if (books.produced, books.delivered, books.dropped, books.dlq, books.depth) != expected {
            self.broken.insert("P9 balance");
        }
        if let Some(book) = state.paths.get(&BOOK) {
            let (books, taken) = (state.books(book), self.taken.len() as u64);
            let expected = (self.dead, taken, self.dead - taken);
            if (books.produced, books.dropped, books.depth) != expected || self.letters.len() as u64 != self.dead {
                self.broken.insert("P9 balance");
            }
        }
        let partition = &state.topics[&TopicIncarnation::new(1)].partitions[0];
        let owes = |seq: u64| path.partitions[0].owes(Seq::new(seq), partition.schedule.due_of(Seq::new(seq)));
        if (1..=stored).any(|seq| owes(seq) == self.is_settled(seq)) {
            self.broken.insert("P4 delivery");
        }
    }
}

impl Word {
    fn kind(self) -> SettleKind {
        match self {
            Self::Ack => SettleKind::Ack,
            Self::Nack => SettleKind::Nack { delay_ms: 0, error: String::new() },
            Self::Reject => SettleKind::DeadLetter { error: String::new() },
            Self::Release => SettleKind::Release,
            Self::Extend => SettleKind::Extend,
            Self::Hold => SettleKind::Hold { error: String::new() },
            Self::Resume => SettleKind::Resume,
        }
    }
}

impl stateright::Model for World {
    type State = Moment;
    type Action = Action;

    fn init_states(&self) -> Vec<Moment> {
        let mut builder = BatchBuilder::default();
        let mut settings = SettingsPatch { values: self.settings.to_vec() };
        settings.add(Setting::Partitions, 1);
        settings.values.sort_unstable_by_key(|(setting, _)| *setting);
        builder.add(&Command::CreateTopic(CreateTopic { name: "orders".to_owned(), settings }));
        builder.add(&join(1));
        builder.add(&join(2));
        let bytes = builder.close(Stamp { time: ClusterTime::new(1), gap_ms: 0, wall: WallTime::ZERO });
        let (mut shard, mut model) = (Shard::default(), Model::default());
        let commands = commands(bytes.clone());
        let applied = shard.apply(bytes, Epoch::new(1)).expect("it was encoded just now");
        let fault = model.apply(&commands, &applied).err();
        vec![Moment { shard, model, witness: Witness::default(), image: Vec::new(), steps: 0, fault }]
    }

    fn actions(&self, moment: &Moment, actions: &mut Vec<Action>) {
        if moment.steps >= self.steps {
            return;
        }
        let stored = moment.witness.keys.len();
        if stored < self.messages.len() {
            actions.push(Action::Publish { again: false });
        }
        if stored > 0 {
            actions.push(Action::Publish { again: true });
        }
        for (seq, seen) in &moment.witness.deliveries {
            let all = seen.iter().flat_map(|seen| self.words.iter().map(|word| (seen.id, *word)));
            let of_broker = |word: Word| matches!(word, Word::Hold | Word::Resume);
            // The broker speaks of what it has just found unreadable, or holds.
            let is_apt = |delivery: u64, word: Word| match word {
                Word::Hold => moment.witness.live(*seq).is_some_and(|seen| seen.id == delivery),
                Word::Resume => moment.witness.held.contains_key(seq),
                _ => !of_broker(word),
            };
            let apt = all.filter(|(delivery, word)| is_apt(*delivery, *word));
            actions.extend(apt.map(|(delivery, word)| Action::Settle { seq: *seq, delivery, word }));
        }
        if moment.shard.state().next_due().is_some() {
            actions.push(Action::Wait);
        }
        for also in self.also {
            match also {
                Also::Move => {
                    actions.push(Action::Purge);
                    actions.extend((1..=stored as u64 + 1).map(|to| Action::Seek { to }));
                }
                Also::Redrive => {
                    let letters = 1..=moment.witness.letters.len() as u64;
                    actions.extend(letters.clone().map(|letter| Action::Redrive { letter }));
                    actions.extend(letters.map(|letter| Action::DropDead { letter }));
                }
                Also::Trim => {
                    actions.push(Action::Trim);
                    let is_first = moment.shard.state().time.get() < HOUR_MS;
                    actions.extend(is_first.then_some(Action::Hour));
                }
            }
        }
        for member in [1, 2] {
            if !moment.shard.state().paths[&PATH].members.contains_key(&MemberId::new(member)) {
                actions.push(Action::Join { member });
                continue;
            }
            actions.push(Action::Lose { member });
            if moment.witness.last_delivery < self.deliveries {
                actions.extend(self.asks.iter().map(|messages| Action::Deliver { member, messages: *messages }));
            }
        }
    }

    fn next_state(&self, before: &Moment, action: Action) -> Option<Moment> {
        let after = self.live(before, action);
        let is_right = after.fault.is_none() && after.witness.broken.is_empty();
        let mut same = after.shard.state().clone();
        same.commit_index = before.shard.state().commit_index;
        (!is_right || same != *before.shard.state()).then_some(after)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        macro_rules! promise {
            ($name:literal) => {
                Property::<Self>::always($name, |_, moment| !moment.witness.broken.contains($name))
            };
        }
        vec![
            promise!("P3 idempotent publish"),
            promise!("P4 delivery"),
            promise!("P5 one lease"),
            promise!("P6 settled is final"),
            promise!("P7 explained"),
            promise!("P8 order"),
            promise!("P9 balance"),
            promise!("P10 monotonic"),
            Property::<Self>::always("the model agrees", |_, moment| moment.fault.is_none()),
            Property::<Self>::sometimes("both members hold something, unless all is of one key", |world, moment| {
                let partition = &moment.shard.state().paths[&PATH].partitions[0];
                let is_one_key = world.messages.iter().all(|(key, _)| !key.is_empty() && *key == world.messages[0].0);
                is_one_key || (partition.holds(MemberId::new(1)) && partition.holds(MemberId::new(2)))
            }),
            Property::<Self>::sometimes("a message waits for its key", |_, moment| {
                let partition = &moment.shard.state().paths[&PATH].partitions[0];
                let stirs = partition.in_flight() + partition.scheduled() + partition.ready_messages();
                partition.passed_over() > stirs && partition.in_flight() > 0
            }),
            Property::<Self>::sometimes("all messages are acked", |world, moment| {
                moment.witness.acked == world.messages.len() as u64
            }),
        ]
    }
}

fn join(member: u64) -> Command {
    Command::JoinGroup(JoinGroup {
        topic: TopicIncarnation::new(1),
        group: "a".to_owned(),
        settings: SettingsPatch::default(),
        start: StartPolicy::Earliest,
        member: MemberId::new(member),
        secret_hash: 1,
    })
}

/// How many commands a history has at most.
fn steps() -> u64 {
    from_environment("MORTARMQ_STEPS", 10)
}

/// Searches a world to its end, and tells how large it was.
fn search(name: &str, world: World, must_meet: &[&'static str]) {
    use stateright::Model as _;
    let (steps, deliveries) = (world.steps, world.deliveries);
    let checker = world.checker().threads(2).spawn_bfs().join();
    println!(
        "{name}: {} states, {} of them different, every history of {steps} steps and {deliveries} deliveries",
        checker.state_count(),
        checker.unique_state_count()
    );
    for (property, path) in checker.discoveries() {
        if let Some(text) = path.last_state().fault.as_ref().filter(|_| property == "the model agrees") {
            println!("{property}: {text}");
        }
    }
    checker.assert_properties();
    let met = checker.model().met.lock().expect("nobody panics with it");
    met.iter().for_each(|(what, times)| println!("{times:>8}  {what}"));
    let missed: Vec<_> = must_meet.iter().filter(|what| !met.contains_key(**what)).collect();
    assert!(missed.is_empty(), "never met, a search of nothing: {missed:?}");
}

#[test]
fn p3_to_p9_hold_in_every_history_of_three_messages_and_two_members() {
    let world = World {
        messages: &[(b"a", 0), (b"a", 0), (b"", 0)],
        settings: &[(Setting::LeaseMs, LEASE_MS), (Setting::MaxAttempts, 2), (Setting::RetryBackoffBaseMs, 0)],
        steps: steps(),
        deliveries: 5,
        words: &[Word::Ack, Word::Nack],
        asks: &[1, 2],
        also: &[],
        met: Mutex::default(),
    };
    let must_meet = [
        "a dead letter",
        "a message that is given back with its key",
        "a publish that was stored before",
        "a settle that is repeated",
        "a settle of an older delivery",
        "a settle that comes too late",
    ];
    search("three messages, two of one key", world, &must_meet);
}

#[test]
fn p8_holds_in_every_history_in_which_a_message_is_delayed() {
    let world = World {
        messages: &[(b"a", 500), (b"a", 0), (b"b", 0)],
        settings: &[(Setting::LeaseMs, LEASE_MS), (Setting::MaxAttempts, 0), (Setting::RetryBackoffBaseMs, 300)],
        steps: steps(),
        deliveries: 4,
        words: &[Word::Ack, Word::Nack],
        asks: &[1, 2],
        also: &[],
        met: Mutex::default(),
    };
    search("three messages, the first delayed", world, &["a message that is given back with its key"]);
}

#[test]
fn p4_to_p9_hold_in_every_history_in_which_an_operator_moves_the_path() {
    let world = World {
        messages: &[(b"a", 0), (b"a", 0), (b"", 0)],
        settings: &[(Setting::LeaseMs, LEASE_MS), (Setting::MaxAttempts, 2), (Setting::RetryBackoffBaseMs, 0)],
        steps: steps() - 2,
        deliveries: 3,
        words: &[Word::Ack, Word::Nack],
        asks: &[1, 2],
        also: &[Also::Move],
        met: Mutex::default(),
    };
    search("three messages, purged and moved", world, &["a dead letter", "a message that is owed once more"]);
}

#[test]
fn p4_to_p8_hold_in_every_history_in_which_deliveries_are_given_back_extended_and_unreadable() {
    // Of a key that is leased together, also the one in the middle is given back, held and tried again.
    let world = World {
        messages: &[(b"a", 0), (b"a", 0), (b"a", 0)],
        settings: &[(Setting::LeaseMs, LEASE_MS), (Setting::MaxAttempts, 2), (Setting::RetryBackoffBaseMs, 0)],
        steps: steps() - 1,
        deliveries: 5,
        words: &[Word::Ack, Word::Release, Word::Extend, Word::Hold, Word::Resume],
        asks: &[1, 3],
        also: &[],
        met: Mutex::default(),
    };
    let must_meet = [
        "a lease that is extended",
        "a message that cannot be read",
        "a message that is tried again",
        "a message that is given back from the middle of its key",
        "a settle of an older delivery",
    ];
    search("three messages of one key, given back, extended and unreadable", world, &must_meet);
}

#[test]
fn p4_p6_p7_p9_hold_in_every_history_in_which_dead_letters_come_back_or_are_dropped() {
    let world = World {
        messages: &[(b"a", 0), (b"a", 0)],
        settings: &[(Setting::LeaseMs, LEASE_MS), (Setting::MaxAttempts, 0), (Setting::RetryBackoffBaseMs, 0)],
        steps: steps(),
        deliveries: 4,
        words: &[Word::Ack, Word::Reject],
        asks: &[2],
        also: &[Also::Redrive],
        met: Mutex::default(),
    };
    let must_meet = ["a dead letter", "a dead letter that comes back", "a message that died twice"];
    search("two messages of one key, rejected and redriven", world, &must_meet);
}

#[test]
fn p4_p5_p9_p10_hold_in_every_history_in_which_retention_passes_the_path() {
    let world = World {
        messages: &[(b"a", 0), (b"a", 500)],
        settings: &[
            (Setting::RetentionMs, HOUR_MS),
            (Setting::LeaseMs, LEASE_MS),
            (Setting::MaxAttempts, 2),
            (Setting::RetryBackoffBaseMs, 0),
        ],
        steps: steps() - 1,
        deliveries: 4,
        words: &[Word::Ack, Word::Nack, Word::Extend],
        asks: &[1, 2],
        also: &[Also::Trim],
        met: Mutex::default(),
    };
    let must_meet = ["a message that retention drops", "a message that goes with its lease", "a dead letter"];
    search("two messages of one key, one delayed, and retention", world, &must_meet);
}
