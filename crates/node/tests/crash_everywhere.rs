//! Goal: no crash, at whatever disk operation, loses what was confirmed, repeats what was acked, reuses a number, gives a
//! false cause or leaves books that do not balance. Method: play one script with the power cut at each operation in turn,
//! recover from what the disk may have kept (everything that is possible where that is not too much, else what some seeds
//! say), and hold everything that comes against a record kept outside the broker.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use mortarmq_node::{Answer, Delivery, Outcome, Query, QueryAnswer, Reply, Request};
use mortarmq_shard::{SettleCode, SettleKind};
use mortarmq_storage::MemoryDisk;
use mortarmq_types::{Cause, DeliveryId, Partition, Seq, TopicIncarnation};
use support::{CONNECTION, Crashed, Doing, Rig, RigOptions, number_of, publish, settle, subscribe};

type Place = (Partition, Seq);

/// What the clients saw, kept outside the broker.
#[derive(Clone, Default)]
struct Record {
    topic: TopicIncarnation,
    /// Numbers that were sent, with their key.
    sent: BTreeMap<u64, &'static [u8]>,
    /// Where confirmed numbers are stored.
    confirmed: BTreeMap<u64, Place>,
    /// Deliveries by message, in the order of their arrival.
    delivered: BTreeMap<Place, Vec<Seen>>,
    /// Messages whose ack was sent, and those whose ack was confirmed.
    ack_sent: BTreeSet<Place>,
    ack_confirmed: BTreeSet<Place>,
    /// Deliveries that were refused, and whether anything was ever given back.
    nacked: BTreeSet<DeliveryId>,
    released: bool,
    highest_delivery: DeliveryId,
    restarted: bool,
}

#[derive(Clone, Copy)]
struct Seen {
    delivery_id: DeliveryId,
    attempt: u32,
}

impl Record {
    fn confirm(&mut self, numbers: impl Iterator<Item = u64>, replies: &[Reply]) {
        for (number, reply) in numbers.zip(replies) {
            match &reply.result {
                Ok(Answer::Published(published)) => {
                    let place = (published.partition, published.seq);
                    let before = self.confirmed.insert(number, place);
                    assert!(
                        before.is_none_or(|before| before == place),
                        "P3: number {number} was at {before:?}, now {place:?}"
                    );
                    let twins = self.confirmed.values().filter(|held| **held == place).count();
                    assert_eq!(twins, 1, "P10: {place:?} was given twice");
                }
                other => panic!("number {number} was answered {other:?}"),
            }
        }
    }

    fn deliver(&mut self, delivery: &Delivery) {
        let place = (delivery.partition, delivery.seq);
        let number = number_of(delivery);
        assert!(self.sent.contains_key(&number), "number {number} was never sent");
        if let Some(stored) = self.confirmed.get(&number) {
            assert_eq!(*stored, place, "number {number} comes from where it was stored");
        }
        assert!(!self.ack_confirmed.contains(&place), "P6: {place:?} was acked and comes again");
        assert!(delivery.delivery_id > self.highest_delivery, "P10: delivery {} was used", delivery.delivery_id);
        self.highest_delivery = delivery.delivery_id;
        self.judge_cause(place, delivery);
        let seen = Seen { delivery_id: delivery.delivery_id, attempt: delivery.attempt.get() };
        self.delivered.entry(place).or_default().push(seen);
    }

    /// P7: every delivery after the first names its cause and the delivery it follows; none lies.
    fn judge_cause(&self, place: Place, delivery: &Delivery) {
        let Some(last) = self.delivered.get(&place).and_then(|seen| seen.last()) else {
            // A delivery may have been granted by the process that died, and never have arrived.
            assert!(delivery.cause == Cause::First || self.restarted, "P7: {:?} before any delivery", delivery.cause);
            return;
        };
        assert_ne!(delivery.cause, Cause::First, "P7: {place:?} comes again without a cause");
        assert!(delivery.previous >= last.delivery_id, "P7: {place:?} follows {}", delivery.previous);
        if delivery.previous != last.delivery_id {
            assert!(self.restarted, "P7: only a delivery of a dead process is unknown");
            return;
        }
        match delivery.cause {
            Cause::Nacked => assert!(self.nacked.contains(&last.delivery_id), "P7: nobody nacked {place:?}"),
            Cause::Released => assert!(self.released || !self.nacked.is_empty(), "P7: nobody gave {place:?} back"),
            Cause::ConsumerLost => assert!(self.restarted, "P7: nobody was lost"),
            Cause::LeaseExpired => assert!(self.restarted, "P7: no lease ran out"),
            Cause::First | Cause::Redriven | Cause::Replayed => panic!("P7: {:?} cannot be", delivery.cause),
        }
        let counted = u32::from(delivery.cause.counts());
        assert_eq!(delivery.attempt.get(), last.attempt + counted, "{place:?} after {:?}", delivery.cause);
    }
}

const ROUNDS: u64 = 8;
/// The script goes on in another process before this round.
const RESTART: u64 = 5;

/// Publishes, delivers, acks, refuses, gives back and extends, in small steps; every step may be the last.
fn script(rig: &mut Rig, record: &mut Record, rounds: Range<u64>) -> Result<(), Crashed> {
    rig.connect(CONNECTION);
    record.topic = rig.declare_with("orders", 2, NOTHING_DIES)?;
    rig.ask(CONNECTION, vec![subscribe(record.topic, "billing", 1, 70 + rounds.start, 6)])?;
    let keys: [&[u8]; 3] = [b"", b"anna", b"bert"];
    for round in rounds {
        let numbers = round * 5 + 1..round * 5 + 6;
        for number in numbers.clone() {
            let key = keys[usize::try_from(number % 3).expect("small")];
            record.sent.insert(number, key);
            let replies = rig.ask(CONNECTION, vec![publish(record.topic, 9, number..number + 1, key)])?;
            record.confirm(number..number + 1, &replies);
        }
        handle(rig, record, round)?;
        rig.pass(60)?;
        handle(rig, record, round + 1)?;
    }
    Ok(())
}

/// Looks at what came, and settles each delivery in one way or another.
fn handle(rig: &mut Rig, record: &mut Record, salt: u64) -> Result<(), Crashed> {
    for delivery in rig.take_deliveries() {
        record.deliver(&delivery);
        let place = (delivery.partition, delivery.seq);
        let kind = match (delivery.seq.get() + salt) % 5 {
            0 => SettleKind::Nack { delay_ms: 1, error: "later".to_owned() },
            1 if delivery.attempt.get() == 1 => SettleKind::Release,
            2 => SettleKind::Extend,
            _ => SettleKind::Ack,
        };
        match &kind {
            SettleKind::Ack => drop(record.ack_sent.insert(place)),
            SettleKind::Nack { .. } => drop(record.nacked.insert(delivery.delivery_id)),
            SettleKind::Release => record.released = true,
            SettleKind::Extend => {}
            SettleKind::DeadLetter { .. } => unreachable!("no message dies here"),
            SettleKind::Hold { .. } | SettleKind::Resume => unreachable!("what only the broker says"),
        }
        let is_ack = kind == SettleKind::Ack;
        let replies = rig.ask(CONNECTION, vec![settle(1, &delivery, kind)])?;
        match &replies[0].result {
            // A delivery ends with an earlier one of its key that is refused or given back.
            Ok(Answer::Settled(codes)) if codes[0] == SettleCode::Done => {
                if is_ack {
                    record.ack_confirmed.insert(place);
                }
            }
            Ok(Answer::Settled(_)) => {}
            other => panic!("a settle is answered with codes, not {other:?}"),
        }
    }
    Ok(())
}

/// After the crash: every promise of the record holds, and everything that is left can be consumed.
fn judge(rig: &mut Rig, record: &mut Record) -> Result<(), Crashed> {
    let connection = CONNECTION;
    rig.connect(connection);
    record.restarted = true;
    record.topic = rig.declare_with("orders", 2, NOTHING_DIES)?;
    // The producer repeats everything with the same numbers: what was confirmed is known, the rest is stored now.
    for (number, key) in record.sent.clone() {
        let replies = rig.ask(connection, vec![publish(record.topic, 9, number..number + 1, key)])?;
        if record.confirmed.contains_key(&number) {
            let known = matches!(&replies[0].result, Ok(Answer::Published(published)) if published.deduplicated);
            assert!(known, "P1: number {number} was confirmed and is gone: {:?}", replies[0].result);
        }
        record.confirm(number..number + 1, &replies);
    }
    rig.ask(connection, vec![subscribe(record.topic, "billing", 1, 99, 100)])?;
    for _ in 0..30 {
        for delivery in rig.take_deliveries() {
            record.deliver(&delivery);
            let place = (delivery.partition, delivery.seq);
            record.ack_sent.insert(place);
            let replies = rig.ask(connection, vec![settle(1, &delivery, SettleKind::Ack)])?;
            assert!(matches!(&replies[0].result, Ok(Answer::Settled(codes)) if codes[0] == SettleCode::Done));
            record.ack_confirmed.insert(place);
        }
        rig.pass(3000)?;
        rig.ask(connection, vec![Request::Heartbeat { subscription: 1, leave: false }])?;
    }
    for (number, place) in &record.confirmed {
        assert!(record.ack_sent.contains(place), "P4: number {number} at {place:?} was never delivered");
    }
    let Ok(QueryAnswer::Balance(balance)) = rig.query(Query::Balance { topic: None })?.result else {
        panic!("the books are told")
    };
    let books = &balance.paths[0];
    let stored = record.confirmed.len() as u64;
    assert_eq!((books.produced, books.delivered, books.depth), (stored, stored, 0), "P9: {books:?}");
    Ok(())
}

/// Every message is owed until it is acked; those that die have a test of their own.
const NOTHING_DIES: &str = "{\"max_attempts\":0}";

/// Files and checkpoints so small that the script rolls over, recycles and goes on from checkpoints, too.
fn options() -> RigOptions {
    RigOptions {
        journal_file_bytes: 32 << 10,
        checkpoint_after_bytes: 16 << 10,
        is_watched: true,
        ..RigOptions::default()
    }
}

/// What came of a script.
struct Played {
    /// What the disk kept.
    disk: MemoryDisk,
    /// What was seen.
    record: Record,
    /// For the next start.
    after: RigOptions,
    /// What each operation belonged to, if the script came to its end.
    doing: BTreeMap<u64, Doing>,
}

/// Plays the script on a fresh disk, with the power cut at one operation if one is given.
fn play(options: RigOptions, crash_at: Option<u64>) -> Played {
    let disk = MemoryDisk::new();
    if let Some(operation) = crash_at {
        disk.crash_at(operation);
    }
    let (mut record, mut after) = (Record::default(), options);
    let mut doing = BTreeMap::new();
    let mut lives = || {
        for rounds in [0..RESTART, RESTART..ROUNDS] {
            let mut rig = Rig::start(&disk, after)?;
            let ended = script(&mut rig, &mut record, rounds);
            after.now = rig.now;
            after.now.monotonic = after.now.monotonic.after_ms(700);
            doing.append(rig.doing.as_mut().expect("it is watched"));
            ended?;
            record.restarted = true;
        }
        Ok(())
    };
    let ended: Result<(), Crashed> = lives();
    assert_eq!(ended.is_err(), crash_at.is_some(), "{ended:?}");
    Played { disk, record, after, doing }
}

/// What a survey of crashes went through.
#[derive(Default)]
struct Survey {
    /// Crashes by what they hit, and those of them of which every outcome was gone through.
    crashes: BTreeMap<Doing, (u64, u64)>,
    outcomes: u64,
    judged: u64,
}

impl Survey {
    /// A test that hits nothing proves nothing.
    fn must_have_hit(&self, least: &[(Doing, u64)]) {
        for (doing, least) in least {
            let crashes = self.crashes.get(doing).map_or(0, |(crashes, _)| *crashes);
            assert!(crashes >= *least, "{doing:?} is hardly hit: {:?}", self.crashes);
        }
    }

    /// Recovers from everything that a power loss may leave, and judges each state that a recovery came to.
    fn judge_all(
        &mut self,
        (disk, limit, seeds): (&MemoryDisk, usize, Range<u64>),
        played: &Played,
        story: &str,
    ) -> bool {
        let mut known = BTreeSet::new();
        let (is_exhaustive, outcomes) = disk.power_losses(limit, seeds);
        for (number, kept) in outcomes.enumerate() {
            let mut rig = Rig::start(&kept, RigOptions { is_watched: false, ..played.after })
                .unwrap_or_else(|error| panic!("{story}, outcome {number}: no recovery: {error:?}"));
            self.outcomes += 1;
            // Two recoveries that left the same bytes go on alike.
            if known.insert(kept.digest()) {
                judge(&mut rig, &mut played.record.clone()).expect("this disk does not fail");
                self.judged += 1;
            }
        }
        is_exhaustive
    }
}

/// Cuts the power at every operation of the script. With more outcomes than its limit, these seeds choose some.
fn survey(options: RigOptions, limit: &dyn Fn(Doing, u64) -> usize, seeds: Range<u64>) -> Survey {
    let Played { disk, mut record, after, doing } = play(options, None);
    let operations = disk.operations();
    assert_eq!(doing.len() as u64, operations, "it is known what each operation belongs to");
    let mut rig = Rig::start(&disk.after_process_kill(), after).expect("a kill loses nothing written");
    assert!(rig.from_checkpoint, "the script goes over a checkpoint");
    judge(&mut rig, &mut record).expect("this disk does not fail");
    assert!(record.confirmed.len() == 40 && !record.nacked.is_empty() && record.released, "the script does its work");
    let mut survey = Survey::default();
    for (operation, doing) in doing {
        let played = play(options, Some(operation));
        let seeds = operation * 31 + seeds.start..operation * 31 + seeds.end;
        let limit = limit(doing, operation);
        let is_exhaustive = survey.judge_all((&played.disk, limit, seeds), &played, &format!("operation {operation}"));
        let (crashes, exhaustive) = survey.crashes.entry(doing).or_default();
        *crashes += 1;
        *exhaustive += u64::from(is_exhaustive);
    }
    println!(
        "{operations} operations; crashes by what they hit, and those gone through in all outcomes: {:?}; {} outcomes, {} \
         judged",
        survey.crashes, survey.outcomes, survey.judged
    );
    survey
}

#[test]
fn p1_p6_p7_p9_p10_hold_after_a_power_loss_at_every_disk_operation() {
    // Segments gather many writes between two syncs, as in earnest: most outcomes are too many to go through.
    let survey = survey(options(), &|_, _| 64, 0..3);
    survey.must_have_hit(&[
        (Doing::Recovery, 10),
        (Doing::Append, 100),
        (Doing::RollOver, 4),
        (Doing::Recycling, 8),
        (Doing::Segments, 50),
        (Doing::Checkpoint, 100),
        (Doing::Release, 4),
    ]);
}

#[test]
fn p1_p6_p7_p9_p10_hold_whatever_subset_of_what_was_under_way_survives_a_power_loss() {
    // Every write of a segment is synced, so that little is under way at any moment and all of it can be gone through. A
    // batch of a block has 256 outcomes, too many for each of them; storage goes through all of its own.
    let limit = |doing, operation: u64| match doing {
        Doing::Append if operation.is_multiple_of(9) => 1200,
        Doing::Append => 32,
        Doing::Recovery | Doing::RollOver | Doing::Recycling | Doing::Segments | Doing::Checkpoint | Doing::Release => {
            300
        }
    };
    let survey = survey(RigOptions { push_bytes: 1, ..options() }, &limit, 0..4);
    let all_outcomes = [
        (Doing::Recovery, 10),
        (Doing::Append, 10),
        (Doing::RollOver, 4),
        (Doing::Recycling, 8),
        (Doing::Segments, 100),
        (Doing::Checkpoint, 100),
        (Doing::Release, 4),
    ];
    survey.must_have_hit(&all_outcomes);
    for (doing, least) in all_outcomes {
        let (crashes, exhaustive) = survey.crashes[&doing];
        assert!(exhaustive >= least, "{doing:?}: only {exhaustive} of {crashes} gone through in all outcomes");
    }
}

#[test]
fn p1_p6_hold_when_recovery_itself_is_cut_at_every_operation() {
    let options = RigOptions { push_bytes: 1, ..options() };
    let Played { doing, .. } = play(options, None);
    let (mut cut, mut exhaustive) = (0, 0);
    let mut survey = Survey::default();
    let mut cut_at = BTreeMap::new();
    for (operation, doing) in doing.into_iter().filter(|(operation, _)| operation % 23 == 5) {
        let played = play(options, Some(operation));
        for step in 1.. {
            let kept = played.disk.after_power_loss(operation);
            kept.crash_at(step);
            if Rig::start(&kept, played.after).is_ok() {
                break;
            }
            let story = format!("operation {operation}, then recovery at {step}");
            exhaustive += u64::from(survey.judge_all((&kept, 40, 0..3), &played, &story));
            cut += 1;
            *cut_at.entry(doing).or_insert(0) += 1;
        }
    }
    let Survey { outcomes, judged, .. } = survey;
    println!(
        "{cut} recoveries cut, {exhaustive} of them gone through in all outcomes, after crashes that hit {cut_at:?}; \
         {outcomes} outcomes, {judged} judged"
    );
    assert!(cut > 200 && exhaustive > 50, "only {cut} recoveries were cut, {exhaustive} in all outcomes");
    assert!(cut_at.len() >= 5, "after crashes that hit {cut_at:?} only");
}

#[test]
fn a_failed_write_or_fsync_ends_the_node_and_what_was_confirmed_survives() {
    // Failure rule 2: the write is not repeated; the process ends, and recovery decides.
    for operation in (3..=play(options(), None).disk.operations()).step_by(11) {
        let disk = MemoryDisk::new();
        disk.fail_at(operation);
        let mut record = Record::default();
        let mut after = options();
        if let Ok(mut rig) = Rig::start(&disk, options()) {
            let _ = script(&mut rig, &mut record, 0..ROUNDS);
            after.now = rig.now;
        }
        let mut rig = Rig::start(&disk.after_power_loss(operation), after)
            .unwrap_or_else(|error| panic!("operation {operation}: no recovery: {error:?}"));
        judge(&mut rig, &mut record).expect("this disk does not fail");
    }
}

#[test]
fn a_refusal_before_the_proposal_is_final_and_says_so() {
    let mut rig = Rig::start(&MemoryDisk::new(), options()).expect("a fresh disk");
    rig.connect(CONNECTION);
    let replies = rig.ask(CONNECTION, vec![publish(TopicIncarnation::new(5), 9, 1..2, b"")]).expect("no crash");
    let failure = replies[0].result.as_ref().expect_err("there is no such topic");
    assert_eq!(failure.outcome, Outcome::Refused, "P2");
}
