//! Goal: P3 to P10 as `docs/contract.md` states them hold for every history. Method: the same random commands for the shard
//! (as the leader's encoded batches) and for the model; after every batch each answer, each delivery, each pair and each
//! counter is compared. Now and then the shard goes on from its own image. A history that fails is shrunk before it is told.
//!
//! `MORTARMQ_SEED=N` begins with another seed, `MORTARMQ_CASES=N` lives another number of histories.

use crate::compare::{compare, compare_files, compare_words};
use crate::model::Model;
use crate::op::{DELAYED_MAX, Op, WINDOW};
use crate::random::Random;
use bytes::{Bytes, BytesMut};
use mortarmq_delivery::{Entry, PathPartition};
use mortarmq_shard::command::{STEPS_MAX, batch::Batch};
use mortarmq_shard::{Applied, BatchBuilder, Command, Defaults, Shard, Stamp, State};
use mortarmq_types::{ClusterTime, Epoch, Seq, WallTime};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, Strategy, TestCaseError, any, prop_oneof};
use proptest::test_runner::{RngAlgorithm, TestError, TestRng, TestRunner};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Cases that a run has to meet, each at least [`LEAST`] times. Who adds a command adds what matters about it here.
const CASES_THAT_MATTER: &[&str] = &[
    "expiry and ack in one batch",
    "nack of a key's first with followers leased",
    "dead letter",
    "purge while leased",
    "deletion while leased",
    "settle of what lost its worth while leased",
    "delay due while its key is leased",
    "duplicate at the window's edge",
    "seek forwards that drops",
    "seek backwards that replays",
    "seek backwards while leased",
    "seek backwards with messages settled above",
    "resume with deliveries out",
    "redrive",
    "redrive while its key is leased",
    "redriven message that dies again",
    "dead letter that is dropped by itself",
    "image taken and gone on from",
    "a pull came again",
    "a pull came again, and nothing of it is live",
    "delivered alone",
    "nothing for who is to become empty, or holds what is alone",
    "packed",
    "trim",
    "trim while leased",
    "trimmed message that goes when its lease ends",
    "trim over a redriven message",
    "trim of what is delayed",
    "setting changed while leases are live",
    "setting changed while retries wait",
    "order changed while leases are live",
    "partition added under load",
    "initial values changed",
    "group that nobody uses expires",
    "key repeated inside its window",
    "key repeated at the edge of its window",
    "key repeated after its window",
    "key that another topic knows",
    "facts that go for room",
    "new producer refused at the bound",
    "new key refused at the bound",
    "new delay refused at the bound",
    "not passed over at the bound",
];

const LEAST: u64 = 100;

/// One batch: how time goes on, and what happens then.
#[derive(Clone, Debug)]
struct Step {
    advance: Advance,
    gap_ms: u64,
    image: bool,
    ops: Vec<Op>,
}

#[derive(Clone, Copy, Debug)]
enum Advance {
    Ms(u64),
    /// To when the shard wants to be woken, or that long before it.
    NextDue {
        before_ms: u64,
    },
}

/// A shard and its model.
#[derive(Default)]
struct Life {
    shard: Shard,
    model: Model,
    time: u64,
    /// Whether the shard may keep so little that it is often full: then every command stands in a batch of its own.
    is_tight: bool,
}

impl Life {
    /// Applies a batch to both and compares them.
    fn batch(&mut self, advance_ms: u64, gap_ms: u64, builder: &mut BatchBuilder) -> Result<(), String> {
        self.time += advance_ms;
        let stamp = Stamp { time: ClusterTime::new(self.time), gap_ms, wall: WallTime::ZERO };
        let bytes = builder.close(stamp);
        let commands = commands(bytes.clone());
        let (before, needed) = (self.shard.state().clone(), self.model.needed());
        let mut applied = self.shard.apply(bytes, Epoch::new(1)).map_err(|error| error.to_string())?;
        self.finish_moves(stamp, &mut applied)?;
        let expected = Stamp { gap_ms: gap_ms.min(advance_ms), ..stamp };
        if applied.stamp != expected {
            return Err(format!("the stamp {expected:?} took effect as {:?}", applied.stamp));
        }
        self.model.observe(self.shard.state());
        if self.is_tight {
            self.model.observe_bound(&before, self.shard.state());
        }
        self.model.apply(&commands, &applied).map_err(|text| format!("{text}\n{}", told(&before)))?;
        compare(&mut self.model, self.shard.state())?;
        compare_words(&before, self.shard.state(), &applied.effects)?;
        compare_files(&needed, &self.model, &applied.effects)?;
        self.shard.check();
        Ok(())
    }

    /// A move of thousands goes on with the next stamps, in bounded steps, also from an image. The model makes it at once: it
    /// is judged by what all of it did.
    fn finish_moves(&mut self, stamp: Stamp, applied: &mut Applied) -> Result<(), String> {
        let partitions = |state: &State| {
            state.paths.values().flat_map(|path| path.partitions.made().map(|(_, it)| it.clone())).collect::<Vec<_>>()
        };
        while partitions(self.shard.state()).iter().any(PathPartition::is_moving) {
            let before = partitions(self.shard.state());
            self.go_on_from_image()?;
            let bytes = BatchBuilder::default().close(stamp);
            let went_on = self.shard.apply(bytes, Epoch::new(1)).map_err(|error| error.to_string())?;
            self.shard.check();
            applied.effects.extend(went_on.effects);
            let offered = |it: &PathPartition| it.passed_over() + it.packed();
            let gone = |(before, after): (&PathPartition, &PathPartition)| offered(before).abs_diff(offered(after));
            let steps: u64 = before.iter().zip(&partitions(self.shard.state())).map(gone).sum();
            if steps > u64::from(STEPS_MAX) {
                return Err(format!("a move took {steps} steps in one batch"));
            }
            self.model.reach("move that goes on with the next batch");
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        let advance_ms = match step.advance {
            Advance::Ms(ms) => ms,
            Advance::NextDue { before_ms } => {
                let due = self.shard.state().next_due().map_or(0, ClusterTime::get);
                due.saturating_sub(before_ms).saturating_sub(self.time).min(100_000)
            }
        };
        let mut builder = BatchBuilder::default();
        // The first batch moves the clock.
        let mut moves = Some((advance_ms, step.gap_ms));
        let mut alone = false;
        for (place, op) in step.ops.iter().enumerate() {
            if alone || self.is_tight || (op.stands_alone() && place > 0) {
                let (advance_ms, gap_ms) = moves.take().unwrap_or_default();
                self.batch(advance_ms, gap_ms, &mut builder)?;
            }
            alone = op.stands_alone();
            op.add(&self.model, &mut builder);
        }
        let (advance_ms, gap_ms) = moves.take().unwrap_or_default();
        self.batch(advance_ms, gap_ms, &mut builder)?;
        if step.image {
            self.go_on_from_image()?;
        }
        Ok(())
    }

    fn go_on_from_image(&mut self) -> Result<(), String> {
        let encoded = |shard: &Shard| {
            let mut bytes = BytesMut::new();
            shard.image().encode(&mut bytes);
            bytes.freeze()
        };
        let bytes = encoded(&self.shard);
        let twin = Shard::from_image(bytes.clone()).map_err(|error| format!("P10: the image: {error}"))?;
        if twin.state() != self.shard.state() || encoded(&twin) != bytes {
            return Err("P10: a shard from its image is another".to_owned());
        }
        self.shard = twin;
        self.model.reach("image taken and gone on from");
        Ok(())
    }
}

/// A state in few words, for a history that failed.
fn told(state: &State) -> String {
    let mut lines = vec![format!("before that, at {}:", state.time)];
    for (id, path) in &state.paths {
        for (number, partition) in path.partitions.made() {
            let (at, furthest) = (partition.position(), partition.replay_end());
            let (due_at, due_start) = (partition.due_position(), partition.due_start());
            lines.push(format!(
                "path {id} partition {number} at {at}, furthest {furthest}, {due_at:?} from {due_start}:"
            ));
            let schedule = &state.topics[&path.topic].partitions[number].schedule;
            lines.push(format!("  schedule {:?}", schedule.places().collect::<Vec<_>>()));
            let entry = |(seq, entry): (Seq, &Entry)| {
                let key = entry.key_hash.get() % 1000;
                let (attempt, cause, due) = (entry.attempt, entry.cause, entry.fell_due());
                format!("  {seq} key {key}: attempt {attempt}, {cause}, due {due}, {:?}", entry.state)
            };
            lines.extend(partition.unsettled().map(entry));
        }
    }
    lines.join("\n")
}

/// The commands of a batch, as the shard reads them.
pub(crate) fn commands(bytes: Bytes) -> Vec<Command> {
    let mut batch = Batch::open(bytes).expect("it was encoded just now");
    std::iter::from_fn(|| batch.next_command().expect("it was encoded just now")).collect()
}

/// The first batch of every history: small limits, so that they are met.
fn begin(seed: u64) -> Result<Life, String> {
    let mut life = Life::default();
    let mut builder = BatchBuilder::default();
    let is_tight = seed % 4 == 3;
    builder.add(&Command::SetDefaults(Defaults {
        producer_window: if is_tight { 64 } else { WINDOW },
        state_entries_max: if is_tight { 8 + seed / 4 % 40 } else { Defaults::BUILD.state_entries_max },
        max_delayed_per_partition: DELAYED_MAX,
        idempotency_window_ms: 60_000,
        ..Defaults::BUILD
    }));
    life.batch(5, 0, &mut builder)?;
    life.is_tight = is_tight;
    for op in Op::beginning(seed) {
        op.add(&life.model, &mut builder);
        life.batch(0, 0, &mut builder)?;
    }
    Ok(life)
}

/// One step, or several that lead to something rare.
fn steps(seed: u64, ops: &[u64]) -> Vec<Step> {
    let random = &mut Random::of(seed);
    let advance = match random.below(100) {
        0..62 => Advance::Ms(0),
        62..80 => Advance::Ms(random.one_of(&[1, 50, 300, 300, 600])),
        80..85 => Advance::Ms(random.one_of(&[999, 1000, 1001])),
        85..93 => Advance::NextDue { before_ms: 0 },
        93..96 => Advance::NextDue { before_ms: 1 },
        96..99 => Advance::Ms(random.one_of(&[1500, 59_000, 61_000, 75_000])),
        _ => Advance::Ms(random.one_of(&[1000, 1000, 700_000, 90_000_000])),
    };
    let gap_ms = if random.below(12) == 0 { random.below(1500) } else { 0 };
    let image = random.below(8) == 0;
    let at_once = |ops| Step { advance: Advance::Ms(0), gap_ms: 0, image: false, ops };
    match random.below(31) {
        24 => {
            // The key of the second may come at the last moment of the first's window, at the first one after, or wherever it ends.
            let [first, again] = Op::twice_under_a_key(random.next());
            let later = Step {
                advance: Advance::Ms(random.one_of(&[59_999, 60_000, 30_000])),
                gap_ms: 0,
                image,
                ops: vec![again],
            };
            vec![at_once(vec![first]), later]
        }
        29..31 => vec![at_once(Op::waits_at_the_bound(random.next()))],
        25..28 => vec![at_once(Op::trim_under_load(random.next()))],
        28 if random.below(3) == 0 => {
            let later = Step { advance: Advance::Ms(random.one_of(&[1999, 2000])), gap_ms: 0, image, ops: Vec::new() };
            let gone = Step { advance: Advance::NextDue { before_ms: 0 }, gap_ms: 0, image: false, ops: Vec::new() };
            vec![at_once(Op::abandon(random.next())), later, gone]
        }
        22 => {
            let [pull, again] = Op::pulled_twice(random.next());
            vec![at_once(vec![pull]), Step { advance, gap_ms, image, ops: vec![again] }]
        }
        0 | 23 => vec![Step { advance, gap_ms, image, ops: Op::back_twice(random.next()) }],
        1 => Op::back_from_death(random.next()).into_iter().map(at_once).collect(),
        _ => vec![Step { advance, gap_ms, image, ops: ops.iter().map(|seed| Op::of(*seed)).collect() }],
    }
}

fn history() -> impl Strategy<Value = (u64, Vec<Vec<Step>>)> {
    let ops = prop_oneof![3 => vec(any::<u64>(), 1..=1), 1 => vec(any::<u64>(), 0..=5)];
    let step = (any::<u64>(), ops).prop_map(|(seed, ops)| steps(seed, &ops));
    (any::<u64>(), vec(step, 0..=120))
}

fn live(seed: u64, steps: &[Vec<Step>]) -> Result<BTreeMap<&'static str, u64>, String> {
    let mut life = begin(seed)?;
    for (number, step) in steps.iter().flatten().enumerate() {
        life.step(step).map_err(|text| format!("step {number}: {text}"))?;
    }
    Ok(life.model.reached)
}

#[expect(clippy::disallowed_methods, reason = "the seed and the number of cases of a test come from outside")]
pub(crate) fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

#[test]
fn p3_to_p10_the_shard_and_the_model_agree_on_every_answer_delivery_and_counter() {
    let seed = from_environment("MORTARMQ_SEED", 1);
    let cases = from_environment("MORTARMQ_CASES", 1500);
    let config = ProptestConfig {
        cases: u32::try_from(cases).expect("fewer than 2^32 cases"),
        failure_persistence: None,
        max_shrink_iters: 4000,
        ..ProptestConfig::default()
    };
    let mut seed_bytes = [0; 32];
    seed_bytes[..8].copy_from_slice(&seed.to_be_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed_bytes));
    let reached = RefCell::new(BTreeMap::new());
    let result = runner.run(&history(), |(seed, steps)| {
        for (what, times) in live(seed, &steps).map_err(TestCaseError::fail)? {
            *reached.borrow_mut().entry(what).or_insert(0) += times;
        }
        Ok(())
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, (begin, steps))) => {
            let steps: Vec<String> =
                steps.iter().flatten().enumerate().map(|(n, step)| format!("{n}: {step:?}")).collect();
            panic!("MORTARMQ_SEED={seed}: {reason}\nbegins with {begin}\n{}", steps.join("\n"));
        }
        Err(error) => panic!("MORTARMQ_SEED={seed}: {error}"),
    }
    let reached = reached.into_inner();
    println!("{cases} histories from seed {seed} reached:");
    for what in CASES_THAT_MATTER {
        println!("{:>8}  {what}", reached.get(what).copied().unwrap_or(0));
    }
    let missed = |what: &&&str| reached.get(**what).copied().unwrap_or(0) < LEAST;
    let missed: Vec<_> = CASES_THAT_MATTER.iter().filter(missed).collect();
    assert!(missed.is_empty(), "reached less than {LEAST} times, a test of nothing: {missed:?}");
}

#[test]
fn p8_one_key_with_ten_thousand_waiting_behind_a_lease_goes_on_as_the_model_says_in_bounded_steps() {
    // Goal: a hot key is counted and ordered like any other, and no command looks at more than 1,024 messages of it.
    // Method: its first message is leased; ten thousand pile up behind it; then deliveries, settles and
    // publishes go on, and no position moves further than the steps of its batch's commands.
    let mut life = begin(1).expect("the beginning of every history");
    let (mut builder, mut reached) = (BatchBuilder::default(), 0);
    for op in Op::hot_key(10) {
        op.add(&life.model, &mut builder);
        life.batch(0, 0, &mut builder).unwrap_or_else(|text| panic!("{text}"));
    }
    let waits = |life: &Life| {
        life.shard
            .state()
            .paths
            .values()
            .any(|path| path.partitions.made().any(|(_, it)| it.passed_over() + it.packed() >= 10_000))
    };
    let position =
        |life: &Life| life.shard.state().paths.values().next().map_or(0, |path| path.partitions[0].position().get());
    for number in 0..110 {
        let before = position(&life);
        Op::on_hot_key(number).add(&life.model, &mut builder);
        life.batch(number % 3, 0, &mut builder).unwrap_or_else(|text| panic!("{number}: {text}"));
        let moved = position(&life).saturating_sub(before);
        assert!(moved <= 1024, "one command moved the position by {moved}");
        reached += u64::from(waits(&life));
    }
    println!("{reached:>8}  one key with 10,000 waiting behind a lease");
    assert!(reached >= LEAST, "a test of nothing: {reached}");
}

#[test]
fn p4_p9_a_move_of_thousands_takes_bounded_steps_and_ends_as_the_model_says() {
    // Goal: purge, seeks and the end of a group cost no more than 1,024 steps a batch, whatever they go over, and what they
    // amount to is what the contract says. Method: thousands wait behind a lease; the path moves both ways and is purged.
    let mut life = begin(1).expect("the beginning of every history");
    let mut builder = BatchBuilder::default();
    let ops = Op::hot_key(3).into_iter().chain(Op::moves_of_thousands());
    for (number, op) in ops.enumerate() {
        op.add(&life.model, &mut builder);
        life.batch(0, 0, &mut builder).unwrap_or_else(|text| panic!("{number}: {op:?}: {text}"));
    }
    let reached = life.model.reached.get("move that goes on with the next batch").copied().unwrap_or(0);
    assert!(reached >= 4, "a test of nothing: {reached}");
}
