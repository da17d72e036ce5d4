use std::time::Duration;

use bytes::BytesMut;
use mortarmq_types::{
    Attempt, Cause, CommitIndex, DeliveryId, Epoch, Partition, Position, ProducerId, ProducerSeq, Seq, WallTime,
};
use mortarmq_wire::ops::{Message, SettleKind};
use mortarmq_wire::{RecordBody, write_body};
use tokio::time::Instant;

use super::{HandOver, MessageId};
use crate::delivery::Delivery;
use crate::settle::Home;

/// A delivery of message `seq` with this key, leased by the command `commit_index` for 8 s.
fn delivery(seq: u64, delivery_id: u64, key: &str, commit_index: u64) -> Delivery {
    let mut body = BytesMut::new();
    write_body(&mut body, key.as_bytes(), None, b"value").unwrap();
    let message = Message {
        subscription_id: 1,
        topic_id: 1,
        partition: Partition::new(0),
        seq: Seq::new(seq),
        delivery_id: DeliveryId::new(delivery_id),
        attempt: Attempt::FIRST,
        ownership_epoch: 0,
        producer_id: ProducerId::ZERO,
        producer_seq: ProducerSeq::ZERO,
        body: RecordBody::parse(&body, false).unwrap().0,
        cause: Cause::First,
        previous_delivery_id: DeliveryId::ZERO,
        lease_ms: 8_000,
        published_at: WallTime::ZERO,
        position: Position { epoch: Epoch::new(1), commit_index: CommitIndex::new(commit_index) },
    };
    Delivery::of(&message, &Home::default())
}

fn id(seq: u64) -> MessageId {
    MessageId { partition: Partition::new(0), seq: Seq::new(seq) }
}

fn handed(hand_over: &mut HandOver) -> Vec<Delivery> {
    std::iter::from_fn(|| hand_over.pop_ready()).collect()
}

fn seqs(deliveries: &[Delivery]) -> Vec<u64> {
    deliveries.iter().map(|delivery| delivery.seq.get()).collect()
}

fn after(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn p8_next_message_of_a_key_is_handed_over_only_when_the_one_before_is_settled() {
    let (mut hand_over, now) = (HandOver::default(), Instant::now());
    for (seq, key) in [(1, "a"), (2, "a"), (3, ""), (4, "b"), (5, "a"), (6, "")] {
        hand_over.arrived(delivery(seq, seq, key, 9), now);
    }
    assert_eq!(seqs(&handed(&mut hand_over)), [1, 3, 4, 6]);
    hand_over.settled(id(3), DeliveryId::new(3), false);
    hand_over.set_settling(id(1), DeliveryId::new(1), true);
    assert!(!hand_over.has_ready(), "asking for a settle is not its answer");
    hand_over.settled(id(1), DeliveryId::new(1), false);
    assert_eq!(seqs(&handed(&mut hand_over)), [2]);
    hand_over.settled(id(2), DeliveryId::new(2), false);
    assert_eq!(seqs(&handed(&mut hand_over)), [5]);
}

#[test]
fn p8_what_left_with_a_nacked_message_is_not_handed_over_and_given_back() {
    let (mut hand_over, now) = (HandOver::default(), Instant::now());
    for (seq, commit_index) in [(1, 9), (2, 9), (4, 12)] {
        hand_over.arrived(delivery(seq, seq, "a", commit_index), now);
    }
    let first = handed(&mut hand_over);
    hand_over.settled(id(1), DeliveryId::new(1), true);
    assert_eq!(seqs(&handed(&mut hand_over)), [4], "4 left with another command, so it is leased still");
    // 3 left with 1 and 2, and arrives late.
    hand_over.arrived(delivery(3, 3, "a", 9), now);
    let released = hand_over.take_releases();
    assert!(released.iter().all(|item| item.kind == SettleKind::Release));
    assert_eq!(released.iter().map(|item| item.message).collect::<Vec<_>>(), [id(2), id(3)]);
    assert!(!first[0].is_lost(), "a nacked delivery is settled, not lost");
}

#[test]
fn p5_later_delivery_of_a_message_takes_the_place_of_the_earlier_which_is_lost() {
    let (mut hand_over, now) = (HandOver::default(), Instant::now());
    (1..=3).for_each(|seq| hand_over.arrived(delivery(seq, seq, "a", 9), now));
    let first = handed(&mut hand_over);
    hand_over.arrived(delivery(1, 11, "a", 20), now);
    assert!(first[0].is_lost());
    assert_eq!(handed(&mut hand_over)[0].delivery_id, DeliveryId::new(11));
    hand_over.arrived(delivery(2, 12, "a", 20), now);
    hand_over.arrived(delivery(1, 1, "a", 9), now);
    hand_over.settled(id(1), DeliveryId::new(1), false);
    assert!(!hand_over.has_ready(), "a settle of the earlier delivery does not let the next one pass");
    hand_over.settled(id(1), DeliveryId::new(11), false);
    assert_eq!(handed(&mut hand_over)[0].delivery_id, DeliveryId::new(12));
}

#[test]
fn p8_line_of_a_key_that_starts_again_lower_down_drops_what_waited_from_there_on() {
    let (mut hand_over, now) = (HandOver::default(), Instant::now());
    (1..=3).for_each(|seq| hand_over.arrived(delivery(seq, seq, "a", 9), now));
    let _first = handed(&mut hand_over);
    // The nack of 1 is not answered yet, and the key goes on with 2 already: 1 went to the dead letters.
    hand_over.arrived(delivery(2, 12, "a", 20), now);
    hand_over.settled(id(1), DeliveryId::new(1), true);
    let next = handed(&mut hand_over);
    assert_eq!(next.iter().map(|next| next.delivery_id.get()).collect::<Vec<_>>(), [12]);
}

#[test]
fn leases_are_renewed_at_their_half_until_they_are_settled() {
    let (mut hand_over, start) = (HandOver::default(), Instant::now());
    for (seq, key) in [(1, "a"), (2, "a"), (3, "")] {
        hand_over.arrived(delivery(seq, seq, key, 9), start);
    }
    let mut held = handed(&mut hand_over);
    assert_eq!(hand_over.next_renewal(), Some(start + after(4_000)));
    assert!(hand_over.renewals(true, start + after(2_000)).is_empty());
    hand_over.set_settling(id(3), DeliveryId::new(3), true);
    let half = start + after(4_000);
    let mut renewed: Vec<MessageId> = hand_over.renewals(true, half).iter().map(|item| item.message).collect();
    renewed.sort();
    assert_eq!(renewed, [id(1), id(2)], "also the one that waits, but not the one that is being settled");
    assert!(hand_over.renewals(true, half).is_empty(), "not twice before the answer");
    hand_over.renewed(id(1), DeliveryId::new(1), true, half);
    assert_eq!(hand_over.next_renewal(), Some(half + after(4_000)));
    hand_over.lost(id(2), DeliveryId::new(2));
    hand_over.set_settling(id(3), DeliveryId::new(3), false);
    // The handler drops 1 without a word: its lease runs out, and the next of its key may come.
    held.remove(0);
    let again: Vec<MessageId> = hand_over.renewals(true, half + after(4_000)).iter().map(|item| item.message).collect();
    assert_eq!(again, [id(3)]);
    assert!(hand_over.renewals(true, half + after(8_000)).is_empty());
    hand_over.arrived(delivery(1, 21, "a", 30), half + after(9_000));
    assert_eq!(seqs(&handed(&mut hand_over)), [1]);
}

#[test]
fn without_renewal_nothing_is_sent_and_what_the_handler_dropped_is_still_forgotten() {
    let (mut hand_over, start) = (HandOver::default(), Instant::now());
    [(1, "a"), (2, "")].into_iter().for_each(|(seq, key)| hand_over.arrived(delivery(seq, seq, key, 9), start));
    let mut held = handed(&mut hand_over);
    drop(held.remove(0));
    assert!(hand_over.renewals(false, start + after(4_000)).is_empty());
    assert!(hand_over.renewals(false, start + after(8_000)).is_empty());
    hand_over.arrived(delivery(3, 3, "a", 30), start + after(8_000));
    assert_eq!(seqs(&handed(&mut hand_over)), [3], "the key is free again");
    assert!(!held[0].is_lost(), "only the broker says what is lost of what the handler has");
}

#[test]
fn closing_gives_back_all_but_what_is_being_settled() {
    let (mut hand_over, now) = (HandOver::default(), Instant::now());
    for (seq, key) in [(1, "a"), (2, "a"), (3, ""), (4, "")] {
        hand_over.arrived(delivery(seq, seq, key, 9), now);
    }
    let held = [hand_over.pop_ready().unwrap(), hand_over.pop_ready().unwrap()];
    assert_eq!(seqs(&held), [1, 3]);
    hand_over.set_settling(id(3), DeliveryId::new(3), true);
    let released: Vec<MessageId> = hand_over.release_all().iter().map(|item| item.message).collect();
    assert_eq!(released, [id(1), id(2), id(4)]);
    assert!(held[0].is_lost() && !held[1].is_lost() && !hand_over.has_ready());
}
