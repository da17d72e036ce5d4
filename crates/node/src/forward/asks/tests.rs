//! One side against the other, over a network that loses, doubles and turns round.

use mortarmq_shard::record::NewRecord;
use mortarmq_shard::{PublishRun, PublishRunBuilder, Published};
use mortarmq_types::{
    ConnectionId, MonotonicTime, Partition, Position, ProducerId, ProducerSeq, Seq, TopicIncarnation,
};
use proptest::prelude::*;

use super::{Asks, Told};
use crate::forward::message::{ForwardBody, forwardable};
use crate::forward::streams::Streams;
use crate::reply::{Answer, Reply};
use crate::request::Request;

const CLIENT: ConnectionId = ConnectionId::new(1);
const KEY: (u64, u64) = (1, 2);

fn run(producer: u64, number: u64, count: u32) -> PublishRun {
    let mut run = PublishRunBuilder::default();
    for place in 0..u64::from(count) {
        let seq = if producer == 0 { 0 } else { number + place };
        let (producer_id, producer_seq) = (ProducerId::new(producer), ProducerSeq::new(seq));
        let record = NewRecord { producer_id, producer_seq, key: b"", has_headers: false, body: b"\0\0\0\0\0\0" };
        run.add(TopicIncarnation::new(5), Partition::ANY, 0, 0, &record);
    }
    run.take().expect("some")
}

fn at(ms: u64) -> MonotonicTime {
    MonotonicTime::new(ms)
}

fn push(asks: &mut Asks, now: u64, slot: u64, request: Request) {
    let is_repeatable = forwardable(&request).expect("it is forwarded");
    asks.push(at(now), (CLIENT, slot), request, is_repeatable);
}

fn slots(told: &[Told]) -> Vec<(u64, bool)> {
    told.iter().map(|told| (told.slot, told.replies.is_some())).collect()
}

fn reply(seq: u64) -> Reply {
    let published = Published { partition: Partition::ZERO, seq: Seq::new(seq), deduplicated: false };
    Reply { position: Position::default(), result: Ok(Answer::Published(published)) }
}

#[test]
fn p3_what_has_an_identity_in_every_message_may_be_repeated_and_nothing_else_that_writes() {
    let publish = |producer| Request::Publish(run(producer, 1, 2));
    assert_eq!([forwardable(&publish(7)), forwardable(&publish(0))], [Some(true), Some(false)]);
    let mut mixed = run(7, 1, 1);
    let other = run(0, 1, 1);
    mixed.commands = [mixed.commands, other.commands].concat().into();
    mixed.count = 2;
    assert_eq!(forwardable(&Request::Publish(mixed)), Some(false));
    let name = || "orders".to_owned();
    assert_eq!(forwardable(&Request::Metadata { names: Vec::new() }), Some(true));
    assert_eq!(forwardable(&Request::Delete { name: name() }), Some(false));
    let declare = Request::Declare { name: name(), partitions: 0, options: String::new() };
    assert_eq!(forwardable(&declare), Some(false));
    assert_eq!(forwardable(&Request::Ping), None);
    assert_eq!(forwardable(&Request::Heartbeat { subscription: 1, leave: false }), None);
}

#[test]
fn p2_of_a_lost_office_only_what_may_have_left_is_unknown_and_the_rest_goes_to_the_next() {
    let mut asks = Asks::default();
    push(&mut asks, 0, 0, Request::Publish(run(0, 0, 1)));
    push(&mut asks, 0, 1, Request::Publish(run(7, 1, 1)));
    assert!(matches!(asks.poll(), Some(ForwardBody::Ask { first: 1, answered: 0, requests }) if requests.len() == 2));
    push(&mut asks, 0, 2, Request::Publish(run(0, 0, 1)));
    let (lost, kept) = asks.begin_anew(false);
    assert_eq!((slots(&lost), kept.len()), (vec![(0, false), (1, false)], 0), "with a number or without");
    asks.check();
    let Some(ForwardBody::Ask { first: 1, requests, .. }) = asks.poll() else { panic!("one is left") };
    assert_eq!(requests.len(), 1);
    push(&mut asks, 0, 3, Request::Metadata { names: Vec::new() });
    // This node leads itself now: what never left before has left by now.
    let (lost, kept) = asks.begin_anew(true);
    assert_eq!((slots(&lost), kept.iter().map(|kept| kept.slot).collect::<Vec<_>>()), (vec![(2, false)], vec![3]));
    assert!(asks.poll().is_none());
}

#[test]
fn what_has_no_answer_in_time_is_unknown_once_and_the_numbers_stay_whole() {
    let mut asks = Asks::default();
    push(&mut asks, 0, 0, Request::Publish(run(7, 1, 1)));
    push(&mut asks, 900, 1, Request::Publish(run(7, 2, 1)));
    assert!(asks.poll().is_some() && asks.poll().is_none());
    assert_eq!(slots(&asks.tick(at(1000), 1000)), [(0, false)]);
    let Some(ForwardBody::Ask { first: 1, requests, .. }) = asks.poll() else { panic!("it asks again") };
    assert_eq!(requests.len(), 2, "the second may be taken only behind the first");
    let told = asks.answered(at(1100), 2, vec![(1, vec![reply(1)]), (2, vec![reply(2)])]);
    assert_eq!(slots(&told), [(1, true)], "the first is answered already");
    assert!(asks.tick(at(5000), 1000).is_empty());
    assert!(matches!(asks.poll(), Some(ForwardBody::Ask { answered: 2, requests, .. }) if requests.is_empty()));
    assert!(asks.tick(at(9000), 1000).is_empty() && asks.poll().is_none(), "the leader knows that all is answered");
}

proptest! {
    #[test]
    fn p3_each_request_is_taken_once_and_in_order_and_answered_once_whatever_the_network_does(
        fates in prop::collection::vec((0_u8..5, 0_u8..4, 1_u32..3), 20..150),
    ) {
        let (mut asks, mut streams) = (Asks::default(), Streams::default());
        // What is on its way, to the leader and back; and what the leader has taken and not answered.
        let (mut there, mut back, mut open) = (Vec::new(), Vec::new(), Vec::new());
        let (mut pushed, mut taken, mut answered) = (0_u64, Vec::new(), Vec::new());
        let mut connection = None;
        let healing = std::iter::repeat_n((0, 0, 1), 200);
        for (step, (fate, which, count)) in (0_u64..).zip(fates.iter().copied().chain(healing)) {
            let is_healing = step >= fates.len() as u64;
            if !is_healing {
                // It waits for two places, or one.
                push(&mut asks, step * 50, pushed, Request::Publish(run(0, 0, count)));
                pushed += u64::from(count);
            }
            prop_assert!(asks.tick(at(step * 50), u64::MAX).is_empty());
            while let Some(body) = asks.poll() {
                // 1: lost; 2: doubled.
                (0..[1, 0, 2, 1, 1][usize::from(fate)]).for_each(|_| there.push(body.clone()));
            }
            if !there.is_empty() {
                let body = there.remove(usize::from(which) % there.len());
                let ForwardBody::Ask { first, answered, requests } = body else { panic!("requests only") };
                let new = streams.take(KEY, first, answered, requests).expect("one stream");
                connection = Some(new.connection);
                for request in new.requests {
                    taken.push(request.places());
                    open.extend((0..request.places()).map(|_| ()));
                }
            }
            if let (Some(connection), true) = (connection, fate != 3 && !open.is_empty()) {
                let some = open.len().min(1 + usize::from(which));
                let replies = open.drain(..some).map(|()| reply(1)).collect();
                streams.collect(connection, replies);
            }
            while let Some((_, body)) = streams.poll() {
                (0..[1, 1, 0, 2, 1][usize::from(fate)]).for_each(|_| back.push(body.clone()));
            }
            if !back.is_empty() {
                let body = back.remove(usize::from(which) % back.len());
                let ForwardBody::Answers { taken, answers } = body else { panic!("answers only") };
                for told in asks.answered(at(step * 50), taken, answers) {
                    prop_assert_eq!(told.replies.map_or(0, |replies| replies.len() as u64), told.places);
                    answered.push((told.slot, told.places));
                }
            }
            asks.check();
            streams.check();
        }
        answered.sort_unstable();
        prop_assert_eq!(taken.iter().sum::<u64>(), pushed, "each once");
        let mut slot = 0;
        for (told, places) in answered {
            prop_assert_eq!(told, slot, "each once");
            slot += places;
        }
        prop_assert_eq!(slot, pushed);
    }
}
