//! Goal: whatever disk operation around an operator's act is the last one, an act that was answered holds, one that was not
//! may hold or not, and nothing else changes: what is acked or dropped stays so unless an act brings it back, and what is
//! owed comes. Method: play one script of seeks, a purge and a deletion with the power cut at each operation in turn,
//! recover, and hold everything that comes against a record kept outside the broker; then random scripts with deaths at
//! random moments.
//!
//! `MORTARMQ_LIVES=500` plays more of those; `MORTARMQ_SEED=N MORTARMQ_LIVES=1` plays one again.

mod support;

use std::collections::BTreeSet;

use mortarmq_node::{Act, Answer, Delivery, Query, QueryAnswer, Request, SeekTarget};
use mortarmq_shard::{SettleCode, SettleKind};
use mortarmq_storage::MemoryDisk;
use mortarmq_types::{Cause, CommitIndex, DeliveryId, Partition, Seq, TopicIncarnation};
use support::{CONNECTION, Crashed, Rig, RigOptions, number_of, publish, settle, subscribe};

/// What is settled is acked or dropped; messages that die have a test of their own.
const NOTHING_DIES: &str = "{\"max_attempts\":0}";

/// What the clients saw. The topic has one partition, so a message's number is its sequence.
#[derive(Default)]
struct Record {
    topic: TopicIncarnation,
    /// Numbers that were sent, and those that were confirmed.
    sent: u64,
    confirmed: u64,
    /// Acks that were confirmed, and drops of acts that were answered: these must not come.
    settled: BTreeSet<u64>,
    /// Acks that were sent, and drops of acts that were sent: these need not come.
    excused: BTreeSet<u64>,
    /// Whether a seek back, or a deletion, was ever sent.
    brought_back: bool,
    deleted: bool,
    held: BTreeSet<u64>,
    last_delivery: DeliveryId,
    commit_index: CommitIndex,
    answered: u32,
    restarted: bool,
}

impl Record {
    fn deliver(&mut self, delivery: &Delivery) {
        let number = number_of(delivery);
        assert_eq!(delivery.seq.get(), number, "P10: a sequence was given twice");
        assert!(number <= self.sent, "number {number} was never sent");
        assert!(!self.settled.contains(&number), "P6: {number} is settled and comes as {}", delivery.cause);
        assert!(delivery.delivery_id > self.last_delivery, "P10: delivery {} was used", delivery.delivery_id);
        self.last_delivery = delivery.delivery_id;
        if delivery.cause == Cause::Replayed {
            assert!(self.brought_back, "P7: nobody brought {number} back");
            assert_eq!((delivery.attempt.get(), delivery.previous), (1, DeliveryId::ZERO), "P7: {number}");
        }
        self.held.insert(number);
    }

    /// Acks what came, but for every fourth message.
    fn handle(&mut self, rig: &mut Rig, subscription: u16) -> Result<(), Crashed> {
        for delivery in rig.take_deliveries() {
            self.deliver(&delivery);
            if number_of(&delivery).is_multiple_of(4) && !self.restarted {
                continue;
            }
            self.excused.insert(number_of(&delivery));
            let replies = rig.ask(CONNECTION, vec![settle(subscription, &delivery, SettleKind::Ack)])?;
            match &replies[0].result {
                Ok(Answer::Settled(codes)) if codes[0] == SettleCode::Done => {
                    self.settled.insert(number_of(&delivery));
                    self.held.remove(&number_of(&delivery));
                }
                other => panic!("a live delivery is acked, not {other:?}: {delivery:?}"),
            }
        }
        Ok(())
    }

    fn publish(&mut self, rig: &mut Rig, to: u64) -> Result<(), Crashed> {
        let keys: [&[u8]; 3] = [b"", b"anna", b"bert"];
        while self.confirmed < to {
            let number = self.confirmed + 1;
            self.sent = self.sent.max(number);
            let key = keys[usize::try_from(number % 3).expect("small")];
            let replies = rig.ask(CONNECTION, vec![publish(self.topic, 9, number..number + 1, key)])?;
            assert!(
                matches!(&replies[0].result, Ok(Answer::Published(stored)) if stored.seq.get() == number),
                "{replies:?}"
            );
            self.confirmed = number;
        }
        Ok(())
    }

    /// Sends an act. `may` are the messages that it may drop, `does` those that it has dropped once it is answered.
    fn act(&mut self, rig: &mut Rig, act: Act, may: &[u64], does: &[u64]) -> Result<(), Crashed> {
        self.excused.extend(may);
        let reply = rig.act(act)?;
        assert!(matches!(&reply.result, Ok(QueryAnswer::Moved(_))), "{reply:?}");
        assert!(reply.position.commit_index > self.commit_index, "P10: {reply:?}");
        self.commit_index = reply.position.commit_index;
        self.settled.extend(does);
        self.answered += 1;
        Ok(())
    }

    fn purge(&mut self, rig: &mut Rig) -> Result<(), Crashed> {
        // One that was sent and not confirmed may be stored, and gone with the others.
        let (may, all): (Vec<u64>, Vec<u64>) = ((1..=self.sent).collect(), (1..=self.confirmed).collect());
        self.act(rig, Act::Purge { topic: "orders".to_owned(), group: None }, &may, &all)?;
        self.held.clear();
        // What was on its way is nobody's now.
        rig.take_deliveries();
        Ok(())
    }

    fn seek(&mut self, rig: &mut Rig, to: u64, is_back: bool) -> Result<(), Crashed> {
        let at = SeekTarget::At(vec![(Partition::ZERO, Seq::new(to))]);
        let act = Act::Seek { topic: "orders".to_owned(), group: "billing".to_owned(), to: at };
        if !is_back {
            // What is leased by now goes on.
            rig.take_deliveries().iter().for_each(|delivery| self.deliver(delivery));
            let below: Vec<u64> = (1..to).collect();
            let dropped: Vec<u64> = below.iter().copied().filter(|number| !self.held.contains(number)).collect();
            return self.act(rig, act, &below, &dropped);
        }
        // Until it is answered these may come again or not; from then on they have to.
        self.brought_back = true;
        let back = |number: &u64| *number >= to;
        self.settled.retain(|number| !back(number));
        self.act(rig, act, &[], &[])?;
        self.excused.retain(|number| !back(number));
        Ok(())
    }

    fn delete(&mut self, rig: &mut Rig) -> Result<(), Crashed> {
        // What follows may be another group of the same name.
        self.deleted = true;
        self.settled.clear();
        let act = Act::DeleteGroup { topic: "orders".to_owned(), group: "billing".to_owned() };
        let all: Vec<u64> = (1..=self.sent).collect();
        self.act(rig, act, &all, &[])?;
        self.excused.clear();
        self.held.clear();
        rig.take_deliveries();
        Ok(())
    }
}

fn script(rig: &mut Rig, record: &mut Record) -> Result<(), Crashed> {
    rig.connect(CONNECTION);
    record.topic = rig.declare_with("orders", 1, NOTHING_DIES)?;
    rig.ask(CONNECTION, vec![subscribe(record.topic, "billing", 1, 70, 6)])?;
    record.publish(rig, 12)?;
    for _ in 0..6 {
        record.handle(rig, 1)?;
    }
    record.seek(rig, 3, true)?;
    record.handle(rig, 1)?;
    record.publish(rig, 16)?;
    rig.node.handle_checkpoint_wanted(rig.now);
    rig.pump()?;
    record.handle(rig, 1)?;
    record.purge(rig)?;
    record.publish(rig, 24)?;
    record.handle(rig, 1)?;
    record.seek(rig, 22, false)?;
    record.handle(rig, 1)?;
    record.seek(rig, 20, true)?;
    rig.node.handle_checkpoint_wanted(rig.now);
    rig.pump()?;
    record.handle(rig, 1)?;
    record.delete(rig)?;
    rig.ask(CONNECTION, vec![subscribe(record.topic, "billing", 2, 71, 4)])?;
    record.handle(rig, 2)?;
    record.seek(rig, 2, true)?;
    record.handle(rig, 2)
}

/// After the crash: consumes all that is left.
fn judge(rig: &mut Rig, record: &mut Record) -> Result<(), Crashed> {
    record.restarted = true;
    assert!(rig.node.position().commit_index >= record.commit_index, "P10: an answered act is gone");
    rig.node.shard().check();
    rig.connect(CONNECTION);
    record.topic = rig.declare_with("orders", 1, NOTHING_DIES)?;
    let sent = record.sent;
    record.publish(rig, sent)?;
    rig.ask(CONNECTION, vec![subscribe(record.topic, "billing", 1, 99, 100)])?;
    for _ in 0..20 {
        record.handle(rig, 1)?;
        rig.pass(3000)?;
        rig.ask(CONNECTION, vec![Request::Heartbeat { subscription: 1, leave: false }])?;
    }
    for number in 1..=record.confirmed {
        assert!(record.excused.contains(&number), "P4: {number} is owed and never came");
    }
    let Ok(QueryAnswer::Balance(balance)) = rig.query(Query::Balance { topic: None })?.result else {
        panic!("the books are told")
    };
    let books = &balance.paths[0];
    assert_eq!((books.depth, books.produced), (0, books.delivered + books.dropped), "P9: {books:?}");
    rig.node.shard().check();
    Ok(())
}

fn options() -> RigOptions {
    RigOptions { journal_file_bytes: 1 << 18, ..RigOptions::default() }
}

fn play(crash_at: Option<u64>) -> (MemoryDisk, Record, RigOptions) {
    let disk = MemoryDisk::new();
    if let Some(operation) = crash_at {
        disk.crash_at(operation);
    }
    let mut record = Record::default();
    let mut after = options();
    if let Ok(mut rig) = Rig::start(&disk, options()) {
        let ended = script(&mut rig, &mut record);
        assert_eq!(ended.is_err(), crash_at.is_some(), "{ended:?}");
        after.now = rig.now;
    }
    after.now.monotonic = after.now.monotonic.after_ms(700);
    (disk, record, after)
}

#[test]
fn p4_p6_p9_an_answered_act_holds_after_a_power_loss_at_every_disk_operation() {
    let (disk, mut record, after) = play(None);
    let operations = disk.operations();
    assert_eq!(record.answered, 6, "the script does its work");
    let mut rig = Rig::start(&disk.after_process_kill(), after).expect("a kill loses nothing written");
    assert!(rig.from_checkpoint);
    judge(&mut rig, &mut record).expect("this disk does not fail");
    for operation in 1..=operations {
        for seed in 0..2 {
            let (disk, mut record, after) = play(Some(operation));
            let mut rig = Rig::start(&disk.after_power_loss(operation * 31 + seed), after)
                .unwrap_or_else(|error| panic!("operation {operation}, seed {seed}: no recovery: {error:?}"));
            judge(&mut rig, &mut record).expect("this disk does not fail");
        }
    }
    println!("{operations} disk operations, each cut twice");
}

/// A stream of numbers that a seed decides.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A random life of a path: what was done to it, and to which effect.
struct Life {
    random: Random,
    rig: Rig,
    record: Record,
    subscription: u16,
    options: RigOptions,
    deaths: u32,
    replays: u32,
}

impl Life {
    fn join(&mut self) -> Result<(), Crashed> {
        self.subscription += 1;
        let member = 100 + u64::from(self.subscription);
        let window = u16::try_from(1 + self.random.below(9)).expect("small");
        self.rig.ask(CONNECTION, vec![subscribe(self.record.topic, "billing", self.subscription, member, window)])?;
        Ok(())
    }

    fn step(&mut self) -> Result<(), Crashed> {
        let confirmed = self.record.confirmed;
        match self.random.below(24) {
            0..7 => self.record.publish(&mut self.rig, confirmed + 1 + self.random.below(4))?,
            7..12 => {
                self.rig.pass(1 + self.random.below(3000))?;
                self.rig.ask(CONNECTION, vec![Request::Heartbeat { subscription: self.subscription, leave: false }])?;
            }
            12 => self.record.purge(&mut self.rig)?,
            13 => {
                self.record.delete(&mut self.rig)?;
                self.join()?;
            }
            14 => {
                // Its leases end, and what it held comes again.
                self.rig.ask(CONNECTION, vec![Request::Heartbeat { subscription: self.subscription, leave: true }])?;
                self.rig.take_deliveries();
                self.join()?;
            }
            15..20 => {
                let to = 1 + self.random.below(confirmed + 1);
                let path = self.rig.node.shard().state().paths.values().next().expect("somebody has joined");
                let is_back = Seq::new(to) < path.partitions[0].position();
                self.replays += u32::from(is_back);
                self.record.seek(&mut self.rig, to, is_back)?;
            }
            20 => {
                self.rig.node.handle_checkpoint_wanted(self.rig.now);
                self.rig.pump()?;
            }
            21 => self.rig.disk.crash_at(self.rig.disk.operations() + 1 + self.random.below(9)),
            _ => {}
        }
        self.record.handle(&mut self.rig, self.subscription)
    }

    /// The process dies, and another goes on with what the disk kept.
    fn die(&mut self) {
        self.deaths += 1;
        self.options.now = self.rig.now;
        self.options.now.monotonic = self.options.now.monotonic.after_ms(700);
        self.rig =
            Rig::start(&self.rig.disk.after_power_loss(self.random.below(1 << 20)), self.options).expect("a recovery");
        assert!(self.rig.node.position().commit_index >= self.record.commit_index, "P10: an answered act is gone");
        self.rig.node.shard().check();
    }

    /// Goes on as a consumer of the new process.
    fn resume(&mut self) {
        self.rig.connect(CONNECTION);
        let resume = |life: &mut Self| -> Result<(), Crashed> {
            life.join()?;
            // What the dead one leased, whether it arrived or not, comes to the new member.
            for _ in 0..8 {
                life.record.handle(&mut life.rig, life.subscription)?;
                life.rig.pass(5000)?;
                life.rig.ask(CONNECTION, vec![Request::Heartbeat { subscription: life.subscription, leave: false }])?;
            }
            let sent = life.record.sent;
            life.record.publish(&mut life.rig, sent)?;
            life.record.handle(&mut life.rig, life.subscription)
        };
        resume(self).expect("this disk does not fail yet");
    }
}

#[test]
fn p4_p6_p7_p9_acts_in_any_order_hold_over_deaths_at_any_moment() {
    let (first, lives) = (number("MORTARMQ_SEED", 1), number("MORTARMQ_LIVES", 60));
    let (mut deaths, mut answered, mut replays) = (0, 0, 0);
    for seed in first..first + lives {
        println!("seed {seed}");
        let rig = Rig::start(&MemoryDisk::new(), options()).expect("a fresh disk");
        let random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let record = Record::default();
        let mut life = Life { random, rig, record, subscription: 0, options: options(), deaths: 0, replays: 0 };
        life.rig.connect(CONNECTION);
        life.record.topic = life.rig.declare_with("orders", 1, NOTHING_DIES).expect("no crash yet");
        life.join().expect("no crash yet");
        for _ in 0..120 {
            if life.step().is_err() {
                life.die();
                life.resume();
            }
        }
        life.die();
        judge(&mut life.rig, &mut life.record).expect("this disk does not fail");
        (deaths, answered, replays) = (deaths + life.deaths, answered + life.record.answered, replays + life.replays);
    }
    println!("{lives} lives, {deaths} deaths, {answered} acts answered, {replays} seeks back");
    assert!(lives < 60 || (deaths > 200 && answered > 1500 && replays > 500), "the lives do little");
}

#[expect(clippy::disallowed_methods, reason = "the seed of a test comes from outside")]
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}
