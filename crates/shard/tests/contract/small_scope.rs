//! Goal: P3 to P9 hold in every history of a small world, whatever the order of commands. Method: an exhaustive search
//! (crate `stateright`) over the real shard: from each state every command that could come, also repeated, late and out of
//! order, up to a number of steps. Two judges look at each step: the model of the contract, and a witness that knows only
//! what was answered, delivered and told, with each promise in a few lines.
//!
//! `MORTARMQ_STEPS=12` searches histories of 12 commands: each more takes about three times as long.
//!
//! Two states are one if their images are. A command that changes nothing is judged, and not followed.

use crate::compare::compare;
use crate::histories::{commands, from_environment};
use crate::model::Model;
use bytes::BytesMut;
use mortarmq_shard::command::{CreateTopic, Deliver, EndMember, Settle};
use mortarmq_shard::ledger::LedgerKind;
use mortarmq_shard::record::NewRecord;
use mortarmq_shard::{
    Applied, BatchBuilder, Command, Effect, Grant, JoinGroup, Outcome, PublishRunBuilder, SeekTarget, Setting,
    SettingsPatch, SettleCode, SettleItem, SettleKind, Shard, Stamp, StartPolicy, Times,
};
use mortarmq_types::{
    Cause, ClusterTime, DeliveryId, Epoch, KeyHash, MemberId, Partition, PathId, ProducerId, ProducerSeq, Seq,
    TopicIncarnation, WallTime,
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
    /// Whether an operator purges and moves the path.
    operator: bool,
    /// What happened somewhere: a search that never meets it proves little.
    met: Mutex<BTreeMap<&'static str, u64>>,
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Ack,
    Nack,
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
                let kind = match word {
                    Word::Ack => SettleKind::Ack,
                    Word::Nack => SettleKind::Nack { delay_ms: 0, error: String::new() },
                };
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
            _ => moment.shard.state().time,
        };
        let bytes = self.command(before, action).close(Stamp { time, gap_ms: 0, wall: WallTime::ZERO });
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
                        self.hear_event(
                            event.first_seq.get() + place,
                            event.first_delivery.get() + place,
                            event.kind,
                            world,
                        );
                    }
                }
                Effect::Deliver(deliver) => {
                    for lease in &deliver.leases {
                        self.judge_delivery(lease.seq.get(), lease, deliver.commit_index.get());
                    }
                }
                _ => {}
            }
        }
    }

    fn hear_event(&mut self, seq: u64, id: u64, kind: LedgerKind, world: &World) {
        let end = match kind {
            LedgerKind::LeaseEnded(cause) => End::Failed(cause),
            LedgerKind::Acked => End::Acked,
            LedgerKind::Dead(_) => End::Dead,
            LedgerKind::Dropped(_) => {
                self.dropped += 1;
                return self.end_life(seq);
            }
            LedgerKind::Replayed => return self.begin_life(seq, world),
            LedgerKind::Leased(_) | LedgerKind::Extended | LedgerKind::Redriven => return,
        };
        if self.live(seq).map(|seen| seen.id) != Some(id) {
            self.broken.insert("P6 settled is final");
        }
        match end {
            End::Acked => self.acked += 1,
            End::Dead => {
                world.meet("a dead letter");
                self.dead += 1;
            }
            End::Failed(Cause::Released) => world.meet("a message that is given back with its key"),
            End::Failed(_) | End::Replayed => {}
        }
        if matches!(end, End::Acked | End::Dead) {
            self.end_life(seq);
        }
        if let Some(seen) = self.deliveries.get_mut(&seq).and_then(|seen| seen.last_mut()) {
            seen.ended = Some(end);
        }
    }

    fn end_life(&mut self, seq: u64) {
        if !self.settled.insert(seq) {
            self.broken.insert("P6 settled is final");
        }
    }

    fn begin_life(&mut self, seq: u64, world: &World) {
        world.meet("a message that is owed once more");
        self.again += 1;
        if !self.settled.remove(&seq) {
            self.broken.insert("P9 balance");
        }
        // It follows no delivery: the marker has number 0.
        let marker = Seen { id: 0, command: 0, ended: Some(End::Replayed), settled: None };
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
        if self.is_settled(seq) {
            broken.push("P6 settled is final");
        }
        let before = self.deliveries.get(&seq).and_then(|seen| seen.last());
        let expected = match before.map(|seen| (seen.ended, seen.id)) {
            None => Some((Cause::First, 0)),
            Some((Some(End::Failed(cause)), id)) => Some((cause, id)),
            Some((Some(End::Replayed), _)) => Some((Cause::Replayed, 0)),
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

    /// The delivery is done now, or was settled by the same word before; else nothing is.
    fn judge_settle(&mut self, seq: u64, delivery: u64, word: Word, code: SettleCode, world: &World) {
        let seen = self.deliveries.get_mut(&seq).and_then(|all| all.iter_mut().find(|seen| seen.id == delivery));
        let Some(seen) = seen else { return };
        let ended_so = match word {
            Word::Ack => seen.ended == Some(End::Acked),
            Word::Nack => matches!(seen.ended, Some(End::Dead | End::Failed(Cause::Nacked))),
        };
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
        let partition = &state.topics[&TopicIncarnation::new(1)].partitions[0];
        let owes = |seq: u64| path.partitions[0].owes(Seq::new(seq), partition.schedule.due_of(Seq::new(seq)));
        if (1..=stored).any(|seq| owes(seq) == self.is_settled(seq)) {
            self.broken.insert("P4 delivery");
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
            let all = seen.iter().flat_map(|seen| [(seen.id, Word::Ack), (seen.id, Word::Nack)]);
            actions.extend(all.map(|(delivery, word)| Action::Settle { seq: *seq, delivery, word }));
        }
        if moment.shard.state().next_due().is_some() {
            actions.push(Action::Wait);
        }
        if self.operator {
            actions.push(Action::Purge);
            actions.extend((1..=stored as u64 + 1).map(|to| Action::Seek { to }));
        }
        for member in [1, 2] {
            if !moment.shard.state().paths[&PATH].members.contains_key(&MemberId::new(member)) {
                actions.push(Action::Join { member });
                continue;
            }
            actions.push(Action::Lose { member });
            if moment.witness.last_delivery < self.deliveries {
                actions.extend([1, 2].map(|messages| Action::Deliver { member, messages }));
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
            Property::<Self>::sometimes("both members hold something", |_, moment| {
                let partition = &moment.shard.state().paths[&PATH].partitions[0];
                partition.holds(MemberId::new(1)) && partition.holds(MemberId::new(2))
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
        settings: &[(Setting::LeaseMs, 1000), (Setting::MaxAttempts, 2), (Setting::RetryBackoffBaseMs, 0)],
        steps: steps(),
        deliveries: 5,
        operator: false,
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
        settings: &[(Setting::LeaseMs, 1000), (Setting::MaxAttempts, 0), (Setting::RetryBackoffBaseMs, 300)],
        steps: steps(),
        deliveries: 4,
        operator: false,
        met: Mutex::default(),
    };
    search("three messages, the first delayed", world, &["a message that is given back with its key"]);
}

#[test]
fn p4_to_p9_hold_in_every_history_in_which_an_operator_moves_the_path() {
    let world = World {
        messages: &[(b"a", 0), (b"a", 0), (b"", 0)],
        settings: &[(Setting::LeaseMs, 1000), (Setting::MaxAttempts, 2), (Setting::RetryBackoffBaseMs, 0)],
        steps: steps() - 2,
        deliveries: 3,
        operator: true,
        met: Mutex::default(),
    };
    search("three messages, purged and moved", world, &["a dead letter", "a message that is owed once more"]);
}
