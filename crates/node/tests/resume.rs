//! Goal: a member is a session and not a connection: what it holds stays its own through broken connections and restarts,
//! what did not reach it comes again unchanged, and nobody else can take it over (P5, P7, wire rule 6). Method: connections
//! that break at every stage of a delivery, and resumes that are right, late, wrong or doubled.

mod support;

use mortarmq_node::{Answer, Delivery, Failure, Output, Query, QueryAnswer, Request, Subscribe};
use mortarmq_shard::{SettleCode, SettleKind, StartPolicy};
use mortarmq_storage::MemoryDisk;
use mortarmq_types::{Cause, ConnectionId, DeliveryId, MemberId, TopicIncarnation};
use mortarmq_wire::ErrorCode;
use support::{CONNECTION, Rig, RigOptions, number_of, publish, settle, subscribe};

const SECOND: ConnectionId = ConnectionId::new(2);
const MEMBER: u64 = 70;

/// A topic, and a member with a window of 10 that holds what of 1 to 4 was delivered.
fn rig() -> (Rig, TopicIncarnation, Vec<Delivery>) {
    rig_on(&MemoryDisk::new(), RigOptions::default())
}

fn rig_on(disk: &MemoryDisk, options: RigOptions) -> (Rig, TopicIncarnation, Vec<Delivery>) {
    let mut rig = Rig::start(disk, options).expect("a fresh disk");
    rig.connect(CONNECTION);
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, MEMBER, 10)]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..5, b"")]).expect("no crash");
    let delivered = rig.take_deliveries();
    assert_eq!(delivered.len(), 4);
    (rig, topic, delivered)
}

fn resume(topic: TopicIncarnation, subscription: u16, secret: u64, held: &[&Delivery]) -> Request {
    let held: Vec<String> = held.iter().map(|delivery| delivery.delivery_id.to_string()).collect();
    let options =
        format!("{{\"resume\":{{\"member_id\":{MEMBER},\"secret\":{secret},\"held\":[{}]}}}}", held.join(","));
    Request::Subscribe(Subscribe {
        topic,
        group: "billing".to_owned(),
        start: StartPolicy::Earliest,
        credit_messages: 10,
        credit_bytes: u32::MAX,
        options,
        subscription,
        // Drawn by the driver for every SUB; a resume keeps those of the member.
        member: MemberId::new(999),
        secret: 998,
    })
}

/// Resumes on a connection as the member that it is; must be answered OK with the former member and secret.
fn resumed(rig: &mut Rig, connection: ConnectionId, topic: TopicIncarnation, held: &[&Delivery]) {
    let replies = rig.ask(connection, vec![resume(topic, 1, MEMBER, held)]).expect("no crash");
    let Ok(Answer::Subscribed { subscription: 1, member, secret: MEMBER }) = replies[0].result else {
        panic!("a resume repeats member and secret: {replies:?}")
    };
    assert_eq!(member, MemberId::new(MEMBER));
}

fn refused(rig: &mut Rig, connection: ConnectionId, request: Request) -> Failure {
    let replies = rig.ask(connection, vec![request]).expect("no crash");
    replies[0].result.clone().expect_err("it is refused")
}

fn acked(rig: &mut Rig, connection: ConnectionId, delivery: &Delivery) -> bool {
    let replies = rig.ask(connection, vec![settle(1, delivery, SettleKind::Ack)]).expect("no crash");
    matches!(&replies[0].result, Ok(Answer::Settled(codes)) if codes == &[SettleCode::Done])
}

/// What must be the same when a message is sent again: all but what is left of its lease.
fn identity(delivery: &Delivery) -> impl PartialEq + std::fmt::Debug + use<> {
    let Delivery { seq, delivery_id, attempt, cause, previous, position, published_at, lease_until, .. } = delivery;
    (*seq, *delivery_id, *attempt, *cause, *previous, *position, *published_at, *lease_until)
}

fn ids(deliveries: &[Delivery]) -> Vec<DeliveryId> {
    deliveries.iter().map(|delivery| delivery.delivery_id).collect()
}

fn reconnect(rig: &mut Rig) {
    rig.node.handle_disconnected(rig.now, CONNECTION);
    rig.pump().expect("no crash");
    rig.connect(SECOND);
}

/// How often the messages of the topic were delivered after their first time.
fn redeliveries(rig: &mut Rig) -> u64 {
    let query = Query::Stats { topic: Some("orders".to_owned()) };
    let Ok(QueryAnswer::Stats(view)) = rig.query(query).expect("no crash").result else { panic!("stats") };
    view.topics.iter().flat_map(|topic| &topic.groups).flat_map(|group| group.retries_by.values()).sum()
}

#[test]
fn p5_p7_after_a_broken_connection_comes_again_unchanged_what_the_member_does_not_hold() {
    let (mut rig, topic, first) = rig();
    reconnect(&mut rig);
    // Another member waits all the time and gets nothing of it.
    rig.ask(SECOND, vec![subscribe(topic, "billing", 2, 71, 10)]).expect("no crash");
    rig.pass(5000).expect("no crash");
    resumed(&mut rig, SECOND, topic, &[&first[0], &first[2]]);
    let again = rig.take_deliveries();
    let expected: Vec<_> = [&first[1], &first[3]].map(identity).into();
    assert_eq!(again.iter().map(identity).collect::<Vec<_>>(), expected, "unchanged, the deadline too");
    assert!(first.iter().all(|delivery| acked(&mut rig, SECOND, delivery)), "handles of the broken connection settle");
    rig.pass(60_000).expect("no crash");
    assert_eq!((ids(&rig.take_deliveries()), redeliveries(&mut rig)), (vec![], 0));
}

#[test]
fn p5_what_was_queued_for_a_broken_connection_waits_for_the_resume() {
    // Nothing is kept in memory and reads are slow: the connection breaks while the records are read for it.
    let options = RigOptions { recent_bytes: 0, ..RigOptions::default() };
    let (mut rig, topic, first) = rig_on(&MemoryDisk::new(), options);
    let credit = |messages| Request::Credit { subscription: 1, add: false, messages, bytes: u32::MAX };
    rig.ask(CONNECTION, vec![credit(4), publish(topic, 9, 5..9, b"key")]).expect("no crash");
    rig.slow = true;
    rig.ask(CONNECTION, vec![credit(10)]).expect("no crash");
    while rig.finish_journal().expect("no crash") {
        rig.pump().expect("no crash");
    }
    assert_eq!(rig.node.shard().state().paths.values().next().expect("a path").partitions[0].in_flight(), 8);
    assert!(rig.take_deliveries().is_empty(), "the records are not read yet");
    reconnect(&mut rig);
    rig.catch_up().expect("no crash");
    rig.slow = false;
    assert!(rig.take_deliveries().is_empty());
    resumed(&mut rig, SECOND, topic, &first.iter().collect::<Vec<_>>());
    let late = rig.take_deliveries();
    let told: Vec<_> = late.iter().map(|one| (number_of(one), one.cause, one.attempt.get())).collect();
    assert_eq!(told, [5, 6, 7, 8].map(|number| (number, Cause::First, 1)), "P8: in the order of their leases");
    assert_eq!(redeliveries(&mut rig), 0);
}

#[test]
fn p5_what_is_leased_while_the_connection_breaks_waits_for_the_resume() {
    let (mut rig, topic, first) = rig();
    rig.slow = true;
    rig.ask(CONNECTION, vec![publish(topic, 9, 5..7, b"")]).expect("no crash");
    // The batch with publish and Deliver is in the journal.
    reconnect(&mut rig);
    rig.slow = false;
    rig.catch_up().expect("no crash");
    assert!(rig.take_deliveries().is_empty());
    resumed(&mut rig, SECOND, topic, &first.iter().collect::<Vec<_>>());
    assert_eq!(rig.take_deliveries().iter().map(number_of).collect::<Vec<_>>(), [5, 6]);
    assert_eq!(redeliveries(&mut rig), 0);
}

#[test]
fn p5_a_member_resumes_after_a_restart_of_the_broker() {
    for has_checkpoint in [false, true] {
        let disk = MemoryDisk::new();
        let (mut rig, topic, first) = rig_on(&disk, RigOptions::default());
        if has_checkpoint {
            rig.node.handle_checkpoint_wanted(rig.now);
            rig.pump().expect("no crash");
        }
        let mut options = RigOptions::default();
        options.now.monotonic = rig.now.monotonic.after_ms(3_600_000);
        drop(rig);
        let mut rig = Rig::start(&disk, options).expect("the journal is sound");
        assert_eq!(rig.from_checkpoint, has_checkpoint);
        rig.connect(SECOND);
        rig.pass(9000).expect("no crash");
        resumed(&mut rig, SECOND, topic, &[&first[0]]);
        let again = rig.take_deliveries();
        let same = |delivery: &Delivery| (delivery.delivery_id, delivery.cause, delivery.position);
        assert_eq!(again.iter().map(same).collect::<Vec<_>>(), first[1..].iter().map(same).collect::<Vec<_>>());
        assert!(first.iter().all(|delivery| acked(&mut rig, SECOND, delivery)));
        assert_eq!(redeliveries(&mut rig), 0, "no outage, however long, ends a lease");
    }
}

#[test]
fn a_wrong_secret_is_answered_like_a_member_that_is_gone() {
    let (mut rig, topic, first) = rig();
    rig.connect(SECOND);
    let wrong = refused(&mut rig, SECOND, resume(topic, 1, MEMBER + 1, &[]));
    assert_eq!(wrong.code, ErrorCode::UnknownMember);
    assert!(rig.take_deliveries().is_empty());
    assert!(acked(&mut rig, CONNECTION, &first[0]), "the member goes on where it is");
    // Trying keeps nobody's session alive.
    rig.node.handle_disconnected(rig.now, CONNECTION);
    for _ in 0..12 {
        rig.pass(1000).expect("no crash");
        refused(&mut rig, SECOND, resume(topic, 1, MEMBER + 1, &[]));
    }
    let gone = refused(&mut rig, SECOND, resume(topic, 1, MEMBER, &[]));
    assert_eq!(gone, wrong, "one answer for both");
    rig.ask(SECOND, vec![subscribe(topic, "billing", 2, 71, 10)]).expect("no crash");
    rig.pass(2000).expect("no crash");
    let lost: Vec<_> = rig.take_deliveries().iter().map(|one| (one.cause, one.attempt.get())).collect();
    assert_eq!(lost, [(Cause::ConsumerLost, 2); 3], "P7");
}

#[test]
fn of_two_connections_that_resume_a_member_the_later_one_has_it() {
    let (mut rig, topic, first) = rig();
    rig.connect(SECOND);
    let pull = Request::Pull { subscription: 1, max_messages: 9, max_bytes: 0, min_bytes: 0, wait_ms: 60_000 };
    rig.ask(CONNECTION, vec![pull]).expect("no crash");
    resumed(&mut rig, SECOND, topic, &first.iter().collect::<Vec<_>>());
    let (connection, _, ended) = rig.pulls.pop().expect("the earlier one's pull ends");
    assert_eq!((connection, ended.map_err(|failure| failure.code)), (CONNECTION, Err(ErrorCode::UnknownMember)));
    rig.ask(SECOND, vec![publish(topic, 9, 5..7, b"")]).expect("no crash");
    let to: Vec<_> = rig.deliveries.iter().map(|(connection, ..)| *connection).collect();
    assert_eq!(to, [SECOND; 2], "pushes go to the later one only");
    let heartbeat = Request::Heartbeat { subscription: 1, leave: true };
    assert_eq!(refused(&mut rig, CONNECTION, heartbeat).code, ErrorCode::UnknownMember, "it cannot end the session");
    // Nor does the end of the earlier connection touch it.
    rig.node.handle_disconnected(rig.now, CONNECTION);
    rig.ask(SECOND, vec![publish(topic, 9, 7..8, b"")]).expect("no crash");
    assert_eq!(rig.take_deliveries().len(), 3);
    assert_eq!(redeliveries(&mut rig), 0);
}

#[test]
fn a_member_resumes_on_the_same_connection_too() {
    let (mut rig, topic, first) = rig();
    rig.ask(CONNECTION, vec![resume(topic, 2, MEMBER, &[&first[0]])]).expect("no crash");
    let again: Vec<_> = rig.deliveries.iter().map(|(_, subscription, one)| (*subscription, one.delivery_id)).collect();
    assert_eq!(again, [1, 2, 3].map(|place: usize| (2, first[place].delivery_id)));
    assert!(!acked(&mut rig, CONNECTION, &first[0]), "subscription 1 has ended");
}

#[test]
fn a_resume_renews_the_session_and_leaves_the_leases_as_they_are() {
    let (mut rig, topic, first) = rig();
    let lease_ms = first[0].lease_until.since_ms(rig.now.monotonic);
    rig.node.handle_disconnected(rig.now, CONNECTION);
    // Every 9 s another connection: the session of 10 s never ends, and the leases of 30 s run out when they did before.
    for number in 2..5 {
        rig.pass(9000).expect("no crash");
        let connection = ConnectionId::new(number);
        rig.connect(connection);
        resumed(&mut rig, connection, topic, &[]);
        let again = rig.take_deliveries();
        assert_eq!(again.iter().map(identity).collect::<Vec<_>>(), first.iter().map(identity).collect::<Vec<_>>());
        let left = again[0].lease_until.since_ms(rig.now.monotonic);
        assert_eq!(left, lease_ms - (number - 1) * 9000);
        assert!(again[0].send_before < again[0].lease_until && again[0].send_before > rig.now.monotonic, "rule 7");
        rig.node.handle_disconnected(rig.now, connection);
    }
    rig.connect(SECOND);
    rig.pass(3500).expect("no crash");
    resumed(&mut rig, SECOND, topic, &[]);
    assert_eq!(ids(&rig.take_deliveries()), [], "leases that are over are not sent again");
    rig.pass(3000).expect("no crash");
    let later: Vec<_> = rig.take_deliveries().iter().map(|one| one.cause).collect();
    assert_eq!(later, [Cause::LeaseExpired; 4], "P7");
}

#[test]
fn a_resume_in_time_is_not_overtaken_by_the_end_of_the_session() {
    // It comes with the last millisecond of the session, and before its batch is closed that is over.
    let (mut rig, topic, first) = rig();
    rig.node.handle_disconnected(rig.now, CONNECTION);
    rig.connect(SECOND);
    rig.pass(9500).expect("no crash");
    rig.slow = true;
    rig.ask(SECOND, vec![publish(topic, 9, 5..6, b"")]).expect("no crash");
    rig.now.monotonic = rig.now.monotonic.after_ms(499);
    rig.node.handle_requests(rig.now, SECOND, vec![resume(topic, 1, MEMBER, &[])]);
    rig.now.monotonic = rig.now.monotonic.after_ms(1);
    rig.slow = false;
    rig.catch_up().expect("no crash");
    rig.pass(5000).expect("no crash");
    let again = rig.take_deliveries();
    assert_eq!(ids(&again)[..4], ids(&first));
    rig.replies.clear();
    assert!(acked(&mut rig, SECOND, &first[0]));
}

#[test]
fn leases_that_are_due_and_not_ended_yet_are_not_sent_again() {
    // A batch ends 1024 leases at most: behind the resume some are left whose time has come.
    let mut rig = Rig::start(&MemoryDisk::new(), RigOptions::default()).expect("a fresh disk");
    rig.connect(CONNECTION);
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..1501, b"")]).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, MEMBER, 2000)]).expect("no crash");
    let first = rig.take_deliveries();
    assert_eq!(first.len(), 1500);
    let until = first[0].lease_until;
    while rig.now.monotonic.after_ms(500) < until {
        rig.pass(500).expect("no crash");
        rig.ask(CONNECTION, vec![Request::Heartbeat { subscription: 1, leave: false }]).expect("no crash");
    }
    reconnect(&mut rig);
    rig.now.monotonic = until;
    resumed(&mut rig, SECOND, topic, &[]);
    assert_eq!(ids(&rig.take_deliveries()), []);
}

#[test]
fn a_member_that_leaves_is_sent_nothing_on_a_connection_that_is_gone() {
    let (mut rig, topic, _) = rig();
    rig.connect(SECOND);
    rig.slow = true;
    // The message is leased to the member in a batch that is in the journal when it leaves and its connection ends.
    rig.ask(SECOND, vec![publish(topic, 9, 5..6, b"")]).expect("no crash");
    rig.ask(CONNECTION, vec![Request::Heartbeat { subscription: 1, leave: true }]).expect("no crash");
    rig.node.handle_disconnected(rig.now, CONNECTION);
    rig.slow = false;
    rig.catch_up().expect("no crash");
    assert_eq!(ids(&rig.take_deliveries()), []);
    rig.ask(SECOND, vec![subscribe(topic, "billing", 1, 71, 10)]).expect("no crash");
    assert!(rig.take_deliveries().iter().all(|one| one.cause == Cause::Released), "LEAVE gives back");
}

#[test]
fn what_a_connection_refuses_goes_to_others_if_it_is_turned_out_and_stays_if_it_breaks() {
    for is_turned_out in [false, true] {
        let (mut rig, topic, first) = rig();
        rig.node.handle_refused(rig.now, CONNECTION, 1, &first[2..3]);
        if is_turned_out {
            rig.node.handle_turned_out(rig.now, CONNECTION);
        }
        rig.node.handle_refused(rig.now, CONNECTION, 1, &first[3..]);
        reconnect(&mut rig);
        rig.ask(SECOND, vec![subscribe(topic, "billing", 2, 71, 10)]).expect("no crash");
        let to_others: Vec<_> = rig.take_deliveries().iter().map(|one| (number_of(one), one.cause)).collect();
        let expected = [(3, Cause::Released), (4, Cause::Released)];
        assert_eq!(to_others, if is_turned_out { expected.to_vec() } else { vec![] });
        resumed(&mut rig, SECOND, topic, &[]);
        let kept = if is_turned_out { &first[..2] } else { &first[..] };
        assert_eq!(ids(&rig.take_deliveries()), ids(kept));
    }
}

#[test]
fn what_a_pull_got_on_a_broken_connection_comes_again_by_push() {
    let mut rig = Rig::start(&MemoryDisk::new(), RigOptions::default()).expect("a fresh disk");
    rig.connect(CONNECTION);
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, MEMBER, 0)]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..30, b"")]).expect("no crash");
    rig.slow = true;
    let pull = Request::Pull { subscription: 1, max_messages: 20, max_bytes: 0, min_bytes: 0, wait_ms: 0 };
    rig.ask(CONNECTION, vec![pull]).expect("no crash");
    reconnect(&mut rig);
    rig.slow = false;
    rig.catch_up().expect("no crash");
    assert!(rig.take_deliveries().is_empty());
    resumed(&mut rig, SECOND, topic, &[]);
    let numbers: Vec<_> = rig.take_deliveries().iter().map(number_of).collect();
    assert_eq!(numbers, (1..30).collect::<Vec<u64>>(), "those of the pull outside the window, and 9 more within it");
    assert_eq!(redeliveries(&mut rig), 0);
}

#[test]
fn the_answer_to_sub_leaves_before_any_message_of_the_subscription() {
    for behind_another in [false, true] {
        let (mut rig, topic, _) = rig();
        reconnect(&mut rig);
        rig.slow = true;
        let mut requests = vec![resume(topic, 1, MEMBER, &[])];
        if behind_another {
            requests.insert(0, Request::Metadata { names: Vec::new() });
        }
        rig.node.handle_requests(rig.now, SECOND, requests);
        rig.pump().expect("no crash");
        assert!(rig.finish_journal().expect("no crash"));
        let (mut is_answered, mut messages) = (false, 0);
        while let Some(output) = rig.node.poll_output(rig.now) {
            match output {
                Output::Replies { replies, .. } => {
                    let is_sub = |reply: &mortarmq_node::Reply| matches!(reply.result, Ok(Answer::Subscribed { .. }));
                    is_answered |= replies.iter().any(is_sub);
                }
                Output::Deliveries { messages: sent, .. } => {
                    assert!(is_answered, "the client does not know the subscription yet");
                    messages += sent.len();
                }
                _ => {}
            }
        }
        assert_eq!(messages, 4);
    }
}

#[test]
fn a_member_that_is_ended_in_the_batch_that_finds_it_is_gone() {
    let (mut rig, topic, _) = rig();
    rig.connect(SECOND);
    rig.slow = true;
    rig.node.handle_requests(rig.now, SECOND, vec![publish(topic, 9, 5..6, b"")]);
    rig.pump().expect("no crash");
    // Both join the batch behind that publish.
    rig.node.handle_requests(rig.now, SECOND, vec![resume(topic, 1, MEMBER, &[])]);
    rig.node.handle_requests(rig.now, CONNECTION, vec![Request::Heartbeat { subscription: 1, leave: true }]);
    rig.slow = false;
    rig.catch_up().expect("no crash");
    let heartbeat = Request::Heartbeat { subscription: 1, leave: false };
    rig.replies.clear();
    assert_eq!(refused(&mut rig, SECOND, heartbeat).code, ErrorCode::UnknownMember);
    assert_eq!(rig.node.gauges().sessions, 0);
    rig.pass(60_000).expect("no crash");
}

#[test]
fn a_pull_whose_bytes_hold_no_message_is_told_so() {
    let mut rig = Rig::start(&MemoryDisk::new(), RigOptions::default()).expect("a fresh disk");
    rig.connect(CONNECTION);
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, MEMBER, 0)]).expect("no crash");
    let pull = |max_bytes| Request::Pull { subscription: 1, max_messages: 9, max_bytes, min_bytes: 0, wait_ms: 60_000 };
    // It waits while there is nothing, and is told as soon as the message is there.
    rig.ask(CONNECTION, vec![pull(5)]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..2, b"a key")]).expect("no crash");
    let (.., result) = rig.pulls.pop().expect("it is answered");
    let failure = result.expect_err("the message takes 6 bytes");
    assert_eq!(failure.code, ErrorCode::MessageExceedsCredit);
    assert!(failure.message.contains("takes 6 bytes, max_bytes is 5"), "{}", failure.message);
    rig.ask(CONNECTION, vec![pull(6)]).expect("no crash");
    assert_eq!((rig.pulls.pop().expect("answered").2, rig.take_deliveries().len()), (Ok(1), 1));
    // What fits is given, and the rest waits for the next pull.
    rig.ask(CONNECTION, vec![publish(topic, 9, 2..4, b""), publish(topic, 9, 4..5, b"a long key")]).expect("no crash");
    rig.ask(CONNECTION, vec![pull(4)]).expect("no crash");
    assert_eq!(rig.take_deliveries().iter().map(number_of).collect::<Vec<_>>(), [2, 3]);
}
