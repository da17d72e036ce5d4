//! Goal: through leader, sessions and credit too, a message that kills its workers ends in the DLQ by itself, and what was
//! in the same hands is charged at most two attempts (P4, wire rule 6). Method: members that are lost with 256 messages in
//! their hands because of one, and a broker that crashes in between.

mod support;

use std::collections::BTreeMap;

use mortarmq_node::{Query, QueryAnswer, Request, Subscribe};
use mortarmq_shard::{SettleKind, StartPolicy};
use mortarmq_storage::MemoryDisk;
use mortarmq_types::{ConnectionId, MemberId, TopicIncarnation};
use support::{Rig, RigOptions, number_of, publish, settle};

const MESSAGES: u64 = 256;

/// One worker process: a connection with a member of its own.
struct Worker {
    connection: ConnectionId,
    window: u16,
}

fn subscribe(topic: TopicIncarnation, member: u64, window: u16, options: &str) -> Request {
    Request::Subscribe(Subscribe {
        topic,
        group: "billing".to_owned(),
        start: StartPolicy::Earliest,
        credit_messages: window,
        credit_bytes: u32::MAX,
        options: options.to_owned(),
        subscription: 1,
        member: MemberId::new(member),
        secret: member,
    })
}

struct Path {
    produced: u64,
    delivered: u64,
    dlq: u64,
}

fn books(rig: &mut Rig) -> Path {
    let query = Query::Stats { topic: Some("orders".to_owned()) };
    let Ok(QueryAnswer::Stats(view)) = rig.query(query).expect("no crash").result else { panic!("stats") };
    let books = &view.topics[0].groups[0];
    Path { produced: books.produced, delivered: books.delivered, dlq: books.dlq }
}

/// Fills the crew up with new workers.
fn hire(
    rig: &mut Rig,
    topic: TopicIncarnation,
    crew: &mut Vec<Worker>,
    next: &mut u64,
    (workers, window, options): (u64, u16, &str),
) {
    while (crew.len() as u64) < workers {
        *next += 1;
        let connection = ConnectionId::new(*next);
        rig.connect(connection);
        let replies = rig.ask(connection, vec![subscribe(topic, 100 + *next, window, options)]).expect("no crash");
        assert!(replies[0].result.is_ok(), "{replies:?}");
        crew.push(Worker { connection, window });
    }
}

/// Lets so many workers work until all is settled; who takes a poisoned message dies and another one comes. With a window of 0
/// they pull. Gives the highest attempt at which each message was delivered.
fn work(workers: u64, window: u16, options: &str, poison: &[u64], crashes: bool) -> (Rig, BTreeMap<u64, u32>) {
    let disk = MemoryDisk::new();
    let mut rig = Rig::start(&disk, RigOptions::default()).expect("a fresh disk");
    let mut next = 1;
    let mut crew: Vec<Worker> = Vec::new();
    rig.connect(ConnectionId::new(1));
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(ConnectionId::new(1), vec![publish(topic, 9, 1..MESSAGES + 1, b"")]).expect("no crash");
    let mut attempts = BTreeMap::new();
    let mut quiet = 0;
    for round in 0..4000 {
        hire(&mut rig, topic, &mut crew, &mut next, (workers, window, options));
        for worker in crew.iter().filter(|worker| worker.window == 0) {
            let (max_messages, wait_ms) = (256, 0);
            let pull = Request::Pull { subscription: 1, max_messages, max_bytes: 0, min_bytes: 0, wait_ms };
            rig.ask(worker.connection, vec![pull]).expect("no crash");
        }
        let all = std::mem::take(&mut rig.deliveries);
        quiet = if all.is_empty() { quiet + 1 } else { 0 };
        if quiet > 20 {
            break;
        }
        for (_, _, delivery) in &all {
            let most: &mut u32 = attempts.entry(number_of(delivery)).or_default();
            *most = (*most).max(delivery.attempt.get());
        }
        let is_dead = |worker: &Worker| {
            all.iter().any(|(connection, _, one)| *connection == worker.connection && poison.contains(&number_of(one)))
        };
        let (dead, alive): (Vec<Worker>, Vec<Worker>) = crew.into_iter().partition(is_dead);
        crew = alive;
        for worker in &crew {
            let mine = all.iter().filter(|(connection, ..)| *connection == worker.connection);
            let requests: Vec<_> = mine.map(|(_, _, one)| settle(1, one, SettleKind::Ack)).collect();
            if !requests.is_empty() {
                rig.ask(worker.connection, requests).expect("no crash");
            }
            rig.ask(worker.connection, vec![Request::Heartbeat { subscription: 1, leave: false }]).expect("no crash");
        }
        for worker in &dead {
            rig.node.handle_disconnected(rig.now, worker.connection);
            rig.pump().expect("no crash");
        }
        if crashes && round % 3 == 2 {
            // The living resume, and are sent again what they hold.
            rig = Rig::start(&disk, RigOptions { now: rig.now, ..RigOptions::default() }).expect("it recovers");
            for worker in &crew {
                rig.connect(worker.connection);
                let member = 100 + worker.connection.get();
                let options = format!("{{\"resume\":{{\"member_id\":{member},\"secret\":{member},\"held\":[]}}}}");
                let replies = rig.ask(worker.connection, vec![subscribe(topic, member, window, &options)]);
                assert!(replies.expect("no crash")[0].result.is_ok(), "a session outlives the broker");
            }
        }
        for _ in 0..6 {
            rig.pass(250).expect("no crash");
            for worker in &crew {
                let beat = Request::Heartbeat { subscription: 1, leave: false };
                rig.ask(worker.connection, vec![beat]).expect("no crash");
            }
        }
    }
    (rig, attempts)
}

fn check(rig: &mut Rig, attempts: &BTreeMap<u64, u32>, poison: &[u64], max_attempts: u32) {
    let books = books(rig);
    let dead = poison.len() as u64;
    assert_eq!((books.produced, books.delivered, books.dlq), (MESSAGES, MESSAGES - dead, dead));
    for (number, most) in attempts {
        // Charged twice, a message is delivered for the third time.
        let allowed = if poison.contains(number) { max_attempts } else { 3 };
        assert!(*most <= allowed, "message {number} came up to attempt {most}");
    }
    let letters = Query::DeadLetters {
        topic: "orders".to_owned(),
        partition: mortarmq_types::Partition::ZERO,
        from: mortarmq_types::Seq::FIRST,
        max: 10,
    };
    let Ok(QueryAnswer::DeadLetters(letters)) = rig.query(letters).expect("no crash").result else { panic!("letters") };
    let told: Vec<_> = letters.letters.iter().map(|letter| (letter.origin_sequence, letter.reason.as_str())).collect();
    let mut expected: Vec<_> = poison.iter().map(|number| (*number, "consumer_lost")).collect();
    let mut sorted = told.clone();
    sorted.sort_unstable();
    expected.sort_unstable();
    assert_eq!(sorted, expected);
}

const THREE: &str = r#"{"max_attempts":3,"session_ms":1000,"retry_backoff_base_ms":0}"#;
const DEFAULT: &str = r#"{"session_ms":1000,"retry_backoff_base_ms":100}"#;

#[test]
fn p4_one_worker_after_another_dies_of_one_message_and_of_nothing_else() {
    for (window, options, max_attempts) in [(256, THREE, 3), (256, DEFAULT, 5), (0, THREE, 3)] {
        let (mut rig, attempts) = work(1, window, options, &[1], false);
        check(&mut rig, &attempts, &[1], max_attempts);
        assert_eq!(attempts[&1], max_attempts);
        assert_eq!(attempts[&200], 3, "it was in the same hands twice");
    }
}

#[test]
fn p4_several_workers_die_of_several_messages_and_of_nothing_else() {
    let poison = [1, 2, 130, 256];
    for (window, options, max_attempts) in [(64, THREE, 3), (64, DEFAULT, 5), (0, DEFAULT, 5)] {
        let (mut rig, attempts) = work(3, window, options, &poison, false);
        check(&mut rig, &attempts, &poison, max_attempts);
    }
}

#[test]
fn p4_workers_and_the_broker_die_in_turn_and_only_the_poisoned_message_with_them() {
    let (mut rig, attempts) = work(1, 256, DEFAULT, &[7], true);
    check(&mut rig, &attempts, &[7], 5);
    let (mut rig, attempts) = work(2, 100, THREE, &[7, 8], true);
    check(&mut rig, &attempts, &[7, 8], 3);
}
