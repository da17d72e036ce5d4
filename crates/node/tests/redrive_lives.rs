//! Goal: redrives and purges of dead letters keep every promise among everything else that can happen to a path. Method:
//! random lives on a disk in memory, with deaths and power losses at random operations; what clients said and saw is held
//! against every delivery, and a list names the rare states that the lives must meet.
//!
//! `MORTARMQ_LIVES=500` plays more of them; `MORTARMQ_SEED=N MORTARMQ_LIVES=1` plays one again.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use mortarmq_node::{Act, Answer, Delivery, LetterAction, LettersAct, Query, QueryAnswer, Request, SeekTarget};
use mortarmq_shard::{SettleCode, SettleKind};
use mortarmq_storage::MemoryDisk;
use mortarmq_types::{Cause, DeliveryId, Partition, Seq, TopicIncarnation};
use serde_json::Value;
use support::{CONNECTION, Crashed, Rig, RigOptions, number_of, publish, settle, subscribe};

/// What the default lives must meet, or they prove little.
const REACHED: &[&str] = &[
    "dead",
    "dead after its attempts",
    "dead again after a redrive",
    "redriven",
    "redriven and acked",
    "redriven and released",
    "redriven once more",
    "redriven above the position of its path",
    "redriven after a replay",
    "refused: unsettled",
    "refused: settled",
    "refused: unknown",
    "refused: group_gone",
    "refused: leased",
    "purged",
    "group deleted",
    "path purged",
    "start from a checkpoint",
    "death",
    "settings changed",
];

/// What the clients of one topic with one partition know; a message's number is its sequence.
#[derive(Default)]
struct Record {
    sent: u64,
    confirmed: u64,
    /// Acks that were confirmed and not taken back by an act that was sent.
    acked: BTreeSet<u64>,
    /// What may be settled for good: acks, purges and seeks that were sent, dead letters that may have been purged.
    excused: BTreeSet<u64>,
    /// What an operator may have brought back.
    redriven: BTreeSet<u64>,
    replayed: bool,
    keys: BTreeMap<u64, Vec<u8>>,
    last_delivery: DeliveryId,
    reached: BTreeMap<String, u64>,
}

impl Record {
    fn reach(&mut self, what: impl Into<String>) {
        *self.reached.entry(what.into()).or_default() += 1;
    }

    fn deliver(&mut self, delivery: &Delivery) -> u64 {
        let number = number_of(delivery);
        assert_eq!(delivery.seq.get(), number, "P11: the bytes of another message");
        let body = delivery.record.body();
        let key = &body[2..2 + usize::from(u16::from_be_bytes([body[0], body[1]]))];
        assert_eq!(self.keys[&number], key, "P11: the key of {number}");
        assert!(!delivery.record.has_headers, "what the broker added is not part of the message");
        assert!(delivery.delivery_id > self.last_delivery, "P10: delivery {}", delivery.delivery_id);
        self.last_delivery = delivery.delivery_id;
        match delivery.cause {
            Cause::First => assert_eq!(delivery.previous, DeliveryId::ZERO, "P7: {number}"),
            Cause::Replayed => {
                assert!(self.replayed && delivery.previous == DeliveryId::ZERO, "P7: {number} is replayed");
            }
            Cause::Redriven => {
                assert!(self.redriven.contains(&number), "P7: nobody redrove {number}");
                assert_eq!(delivery.attempt.get(), 1, "P7: {number}");
                assert!(delivery.previous > DeliveryId::ZERO, "P7: {number}");
                self.reach("redriven");
            }
            _ => assert!(delivery.previous > DeliveryId::ZERO, "P7: {number}"),
        }
        assert!(!self.acked.contains(&number), "P6: {number} is acked and comes as {}", delivery.cause);
        number
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

struct Life {
    random: Random,
    rig: Rig,
    record: Record,
    topic: TopicIncarnation,
    subscription: u16,
    options: RigOptions,
    /// Deliveries that were not settled yet.
    held: Vec<Delivery>,
    is_mild: bool,
    /// Whether anything but an ack may settle a message for good; if not, every one has to be acked in the end.
    drops: bool,
}

impl Life {
    fn new(seed: u64) -> Self {
        let options = RigOptions {
            journal_file_bytes: 1 << 18,
            recent_bytes: if seed.is_multiple_of(2) { 0 } else { 1 << 12 },
            ..RigOptions::default()
        };
        let mut rig = Rig::start(&MemoryDisk::new(), options).expect("a fresh disk");
        rig.connect(CONNECTION);
        let settings = "{\"max_attempts\":2,\"retry_backoff_base_ms\":0}";
        let topic = rig.declare_with("orders", 1, settings).expect("no crash yet");
        let (random, drops) = (Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)), !seed.is_multiple_of(3));
        let (record, held) = (Record::default(), Vec::new());
        let mut life = Self { random, rig, record, topic, subscription: 0, options, held, is_mild: false, drops };
        life.join().expect("no crash yet");
        life
    }

    fn join(&mut self) -> Result<(), Crashed> {
        self.subscription += 1;
        let window = u16::try_from(1 + self.random.below(9)).expect("small");
        let member = 100 + u64::from(self.subscription);
        self.rig.ask(CONNECTION, vec![subscribe(self.topic, "billing", self.subscription, member, window)])?;
        Ok(())
    }

    fn publish(&mut self) -> Result<(), Crashed> {
        let number = self.record.confirmed + 1;
        let key = [&b""[..], b"anna", b"bert"][usize::try_from(number % 3).expect("small")];
        self.record.keys.insert(number, key.to_vec());
        self.record.sent = self.record.sent.max(number);
        let replies = self.rig.ask(CONNECTION, vec![publish(self.topic, 9, number..number + 1, key)])?;
        let Ok(Answer::Published(stored)) = &replies[0].result else { panic!("it is stored, not {replies:?}") };
        assert_eq!(stored.seq.get(), number, "P3, P10");
        self.record.confirmed = number;
        Ok(())
    }

    fn take(&mut self) {
        for delivery in self.rig.take_deliveries() {
            self.record.deliver(&delivery);
            self.held.push(delivery);
        }
    }

    /// Says something of one delivery that is held; mostly what makes it die, as the others prove less here.
    fn settle_one(&mut self) -> Result<(), Crashed> {
        self.take();
        if self.held.is_empty() {
            return Ok(());
        }
        let place = self.random.below(self.held.len() as u64);
        let delivery = self.held.remove(usize::try_from(place).expect("small"));
        let (number, is_redriven) = (number_of(&delivery), delivery.cause == Cause::Redriven);
        let kind = match self.random.below(8) {
            _ if self.is_mild => SettleKind::Ack,
            0..2 => SettleKind::Ack,
            2 => SettleKind::Release,
            3..5 => SettleKind::Nack { delay_ms: 0, error: "not now".to_owned() },
            _ => SettleKind::DeadLetter { error: "never".to_owned() },
        };
        if kind == SettleKind::Ack {
            self.record.excused.insert(number);
        }
        let replies = self.rig.ask(CONNECTION, vec![settle(self.subscription, &delivery, kind.clone())])?;
        let Ok(Answer::Settled(codes)) = &replies[0].result else { return Ok(()) };
        if codes[0] != SettleCode::Done {
            return Ok(());
        }
        match kind {
            SettleKind::Ack => {
                self.record.acked.insert(number);
                if is_redriven {
                    self.record.reach("redriven and acked");
                }
            }
            SettleKind::DeadLetter { .. } => {
                self.record.reach(if is_redriven { "dead again after a redrive" } else { "dead" });
            }
            SettleKind::Nack { .. } if delivery.attempt.get() == 2 => self.record.reach("dead after its attempts"),
            SettleKind::Release if is_redriven => self.record.reach("redriven and released"),
            _ => {}
        }
        Ok(())
    }

    /// Redrives or purges some letters.
    fn letters(&mut self) -> Result<(), Crashed> {
        let state = self.rig.node.shard().state();
        let last = state.dead_letters_of(self.topic).map_or(0, |dead| state.topics[&dead].partitions[0].last_seq.get());
        let is_purge = self.random.below(6) == 0 && self.drops;
        let action = if is_purge { LetterAction::Purge } else { LetterAction::Redrive };
        let sequences = match self.random.below(3) {
            0 => Vec::new(),
            _ => (0..1 + self.random.below(3)).map(|_| Seq::new(self.random.below(last + 2))).collect(),
        };
        let limit = (self.random.below(2) == 0).then(|| 1 + self.random.below(3));
        let (partition, reason, rate, dry_run) = (None, None, None, false);
        let topic = "orders".to_owned();
        let act = LettersAct { topic, action, partition, sequences, reason, limit, rate, dry_run };
        // Which messages they are of, nobody knows before it is done: those that are dead, not those that are acked.
        match action {
            LetterAction::Purge => self.record.excused.extend(1..=self.record.sent),
            LetterAction::Redrive => {
                let many: Vec<u64> = (1..=self.record.sent).collect();
                if self.record.replayed {
                    // What died, was replayed and acked has a dead letter all the same.
                    self.record.acked.clear();
                }
                self.record.redriven.extend(many);
            }
        }
        let before = self.sources();
        let reply = self.rig.act(Act::Letters(act.clone()))?;
        let Ok(QueryAnswer::Letters(view)) = reply.result else { panic!("counts, not {reply:?}") };
        let refused: u64 = view.refused.values().sum();
        assert_eq!(view.matched, view.done + refused, "{act:?}: {view:?}");
        for reason in view.refused.keys() {
            self.record.reach(format!("refused: {reason}"));
        }
        assert!(!view.refused.contains_key("unreadable"), "{view:?}");
        if action == LetterAction::Purge && view.done > 0 {
            self.record.reach("purged");
        }
        self.note_redriven(&before, view.done, action);
        Ok(())
    }

    fn note_redriven(&mut self, before: &BTreeSet<u64>, done: u64, action: LetterAction) {
        if done == 0 || action == LetterAction::Purge {
            return;
        }
        let new: Vec<u64> = self.sources().difference(before).copied().collect();
        let state = self.rig.node.shard().state();
        let above = state.paths.values().any(|path| {
            let partition = &path.partitions[0];
            new.iter().any(|seq| path.topic == self.topic && Seq::new(*seq) >= partition.position())
        });
        if above {
            self.record.reach("redriven above the position of its path");
        }
        if self.record.replayed {
            self.record.reach("redriven after a replay");
        }
        for number in new {
            if !self.record.excused.insert(number + (1 << 40)) {
                self.record.reach("redriven once more");
            }
        }
    }

    /// Messages that are redriven and not settled.
    fn sources(&self) -> BTreeSet<u64> {
        let paths = self.rig.node.shard().state().paths.values();
        paths.flat_map(|path| path.partitions[0].sources().map(|(seq, _)| seq.get())).collect()
    }

    fn seek(&mut self) -> Result<(), Crashed> {
        let to = 1 + self.random.below(self.record.confirmed + 1);
        let (topic, group) = if self.random.below(3) == 0 { ("$dlq.orders", "default") } else { ("orders", "billing") };
        // Which messages the dead letters are of that a seek forwards drops, nobody knows before it is done.
        self.record.excused.extend(if group == "default" { 1..self.record.sent + 1 } else { 1..to });
        self.record.replayed = true;
        self.record.acked.clear();
        let at = SeekTarget::At(vec![(Partition::ZERO, Seq::new(to))]);
        let act = Act::Seek { topic: topic.to_owned(), group: group.to_owned(), to: at };
        self.rig.act(act)?;
        Ok(())
    }

    /// The group gets other settings: nothing of them settles a message or brings one back.
    fn change(&mut self) -> Result<(), Crashed> {
        let (key, value) = match self.random.below(5) {
            0 => ("order", Value::from(["key", "none"][usize::from(self.random.below(2) == 0)])),
            1 => {
                ("max_passed_over", Value::from([1, 3, 65_536][usize::try_from(self.random.below(3)).expect("small")]))
            }
            2 => ("max_in_flight", Value::from(self.random.below(4))),
            3 => ("lease_ms", Value::from(10_000 + self.random.below(20_000))),
            _ => ("retry_backoff_base_ms", Value::from(self.random.below(200))),
        };
        let settings = std::iter::once((key.to_owned(), value)).collect();
        let (topic, group) = ("orders".to_owned(), "billing".to_owned());
        self.rig.act(Act::ChangeGroup { topic, group, settings })?;
        self.record.reach("settings changed");
        Ok(())
    }

    fn step(&mut self) -> Result<(), Crashed> {
        match self.random.below(42) {
            40 | 41 => self.change()?,
            0..8 => self.publish()?,
            8..24 => self.settle_one()?,
            24..31 => self.letters()?,
            31 if self.drops => self.seek()?,
            32 if self.drops && self.random.below(4) == 0 => {
                self.record.excused.extend(1..=self.record.sent);
                self.rig.act(Act::Purge { topic: "orders".to_owned(), group: None })?;
                self.record.reach("path purged");
                self.rig.take_deliveries().iter().for_each(|delivery| _ = self.record.deliver(delivery));
                self.held.clear();
            }
            32 if self.drops && self.random.below(4) == 0 => {
                // What follows is another group of the same name.
                self.record.excused.extend(1..=self.record.sent);
                self.record.acked.clear();
                self.record.replayed = true;
                let (topic, group) = ("orders".to_owned(), "billing".to_owned());
                self.rig.act(Act::DeleteGroup { topic, group })?;
                self.record.reach("group deleted");
                self.take();
                self.held.clear();
                self.join()?;
            }
            33 => {
                // Somebody looks at the dead letters, holds some, and leaves.
                let state = self.rig.node.shard().state();
                let Some(dead) = state.dead_letters_of(self.topic) else { return Ok(()) };
                self.take();
                self.rig.ask(CONNECTION, vec![subscribe(dead, "default", 900, 900, 2)])?;
                self.rig.deliveries.retain(|(_, subscription, _)| *subscription != 900);
                self.letters()?;
                self.rig.deliveries.retain(|(_, subscription, _)| *subscription != 900);
                self.rig.ask(CONNECTION, vec![Request::Heartbeat { subscription: 900, leave: true }])?;
                self.rig.deliveries.retain(|(_, subscription, _)| *subscription != 900);
            }
            34 => {
                self.rig.node.handle_checkpoint_wanted(self.rig.now);
                self.rig.pump()?;
            }
            35 => self.rig.disk.crash_at(self.rig.disk.operations() + 1 + self.random.below(9)),
            _ => {
                self.rig.pass(1 + self.random.below(3000))?;
                self.rig.ask(CONNECTION, vec![Request::Heartbeat { subscription: self.subscription, leave: false }])?;
            }
        }
        self.take();
        Ok(())
    }

    /// The process dies, and another goes on with what the disk kept.
    fn die(&mut self) {
        self.record.reach("death");
        self.options.now = self.rig.now;
        self.options.now.monotonic = self.options.now.monotonic.after_ms(700);
        let kept = self.rig.disk.after_power_loss(self.random.below(1 << 20));
        self.rig = Rig::start(&kept, self.options).expect("a recovery");
        if self.rig.from_checkpoint {
            self.record.reach("start from a checkpoint");
        }
        self.rig.node.shard().check();
        self.held.clear();
        self.rig.connect(CONNECTION);
        self.join().expect("this disk does not fail yet");
        self.record.confirmed = self.record.sent.saturating_sub(1).max(self.record.confirmed);
        while self.record.confirmed < self.record.sent {
            self.publish().expect("this disk does not fail yet");
        }
    }

    /// Everything is brought back and acked, by a disk that does not fail: then nothing is owed or pinned anywhere.
    fn end(&mut self) {
        self.die();
        self.is_mild = true;
        // With small limits only so many come back at a time.
        let settings = [("max_passed_over", 65_536), ("max_in_flight", 0)]
            .map(|(key, value)| (key.to_owned(), Value::from(value)));
        let (topic, group, settings) = ("orders".to_owned(), "billing".to_owned(), settings.into_iter().collect());
        self.rig.act(Act::ChangeGroup { topic, group, settings }).expect("no crash");
        for round in 0..60 {
            self.take();
            while !self.held.is_empty() {
                self.settle_one().expect("no crash");
                self.take();
            }
            if round % 4 == 3 {
                self.record.redriven.extend(1..=self.record.sent);
                if self.record.replayed {
                    self.record.acked.clear();
                }
                let (action, sequences) = (LetterAction::Redrive, Vec::new());
                let (partition, reason, limit, rate, dry_run) = (None, None, None, None, false);
                let topic = "orders".to_owned();
                let act = LettersAct { topic, action, partition, sequences, reason, limit, rate, dry_run };
                self.rig.act(Act::Letters(act)).expect("no crash");
            }
            self.rig.pass(3000).expect("no crash");
            let beat = Request::Heartbeat { subscription: self.subscription, leave: false };
            self.rig.ask(CONNECTION, vec![beat]).expect("no crash");
        }
        let lost: Vec<u64> =
            (1..=self.record.confirmed).filter(|number| !self.record.excused.contains(number)).collect();
        assert!(lost.is_empty(), "P4: {lost:?} are neither acked nor dropped");
        let question = Query::Balance { topic: Some("orders".to_owned()) };
        let Ok(QueryAnswer::Balance(view)) = self.rig.query(question).expect("no crash").result else {
            panic!("the books are told")
        };
        let books = &view.paths[0];
        assert_eq!(books.depth, 0, "P4: {books:?}");
        let state = self.rig.node.shard().state();
        if let Some(dead) = state.dead_letters_of(self.topic) {
            assert_eq!(state.topics[&dead].partitions[0].lowest_pin(), None, "a dead letter is kept for nobody");
        }
        assert_eq!(self.rig.node.gauges().unreadable, 0);
        state.check();
    }
}

#[test]
fn p4_p6_p7_p9_redrives_keep_every_promise_in_random_lives() {
    let (first, lives) = (number("MORTARMQ_SEED", 1), number("MORTARMQ_LIVES", 150));
    let mut reached: BTreeMap<String, u64> = BTreeMap::new();
    for seed in first..first + lives {
        println!("seed {seed}");
        let mut life = Life::new(seed);
        for _ in 0..260 {
            if life.step().is_err() {
                life.die();
            }
        }
        life.end();
        for (what, times) in life.record.reached {
            *reached.entry(what).or_default() += times;
        }
    }
    println!("{lives} lives: {reached:#?}");
    for what in REACHED.iter().filter(|_| lives >= 150) {
        assert!(reached.get(*what).is_some_and(|times| *times >= 5), "hardly any life met {what:?}: {reached:#?}");
    }
}

#[expect(clippy::disallowed_methods, reason = "the seed of a test comes from outside")]
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}
