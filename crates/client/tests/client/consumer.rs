use std::time::Duration;

use mortarmq_client::{Consumer, ConsumerOptions, Delivery, ErrorCode, PullOptions, SettleError};
use mortarmq_types::Cause;
use mortarmq_wire::ops::SettleKind;

use crate::fake::{Fake, Fault, Seen};
use crate::{connect, soon};

const PULL: PullOptions = PullOptions { max_messages: 10, max_bytes: 0, wait_ms: 0 };

async fn next(consumer: &mut Consumer) -> Delivery {
    soon("a delivery", consumer.next()).await.expect("the consumer goes on").expect("and has not failed")
}

async fn has_none(consumer: &mut Consumer) -> bool {
    tokio::time::timeout(Duration::from_millis(50), consumer.next()).await.is_err()
}

fn text(delivery: &Delivery) -> &str {
    std::str::from_utf8(&delivery.value).expect("tests publish text")
}

/// Every settle that arrived, but renewals, in order.
pub(crate) fn settles(fake: &Fake) -> Vec<(SettleKind, u64)> {
    let items = fake.seen().into_iter().filter_map(|seen| match seen {
        Seen::Settle { items } => Some(items),
        _ => None,
    });
    items.flatten().filter(|(kind, _)| *kind != SettleKind::Progress).collect()
}

#[tokio::test]
async fn p8_messages_of_a_key_are_handed_over_one_after_another_and_others_freely() {
    let fake = Fake::start(&["orders"]).await;
    for (key, value) in [("a", "a1"), ("a", "a2"), ("", "x"), ("b", "b1"), ("a", "a3")] {
        fake.state().put(key, value);
    }
    let client = connect(&fake).await;
    let mut consumer = client.consumer("orders", "billing", ConsumerOptions::default()).await.unwrap();
    let mut held = Vec::new();
    for expected in ["a1", "x", "b1"] {
        held.push(next(&mut consumer).await);
        assert_eq!(text(held.last().unwrap()), expected);
    }
    assert!(has_none(&mut consumer).await, "a2 waits for a1");
    assert_eq!(held[0].ack().await, Ok(()));
    let second = next(&mut consumer).await;
    assert_eq!((text(&second), &second.key[..]), ("a2", &b"a"[..]));
    assert_eq!(second.nack(0, "later").await, Ok(()));
    let again = next(&mut consumer).await;
    assert_eq!((text(&again), again.cause, again.previous), ("a2", Cause::Nacked, Some(second.delivery_id)));
    assert!(has_none(&mut consumer).await, "a3 waits for a2, also for its second delivery");
    again.ack().await.unwrap();
    assert_eq!(text(&next(&mut consumer).await), "a3");
}

#[tokio::test]
async fn p8_behind_a_dead_letter_its_key_goes_on_with_new_deliveries() {
    // The broker ends what left behind a dead message, so the handler must not get those deliveries any more.
    let fake = Fake::start(&["orders"]).await;
    for value in ["a1", "a2", "a3"] {
        fake.state().put("a", value);
    }
    let client = connect(&fake).await;
    let mut consumer = client.consumer("orders", "billing", ConsumerOptions::default()).await.unwrap();
    let first = next(&mut consumer).await;
    fake.state().is_paused = true;
    assert_eq!(first.dead_letter("broken").await, Ok(()));
    assert!(has_none(&mut consumer).await, "the first deliveries of a2 and a3 have ended");
    fake.state().is_paused = false;
    fake.state().deliver();
    for expected in ["a2", "a3"] {
        let delivery = next(&mut consumer).await;
        assert_eq!((text(&delivery), delivery.cause), (expected, Cause::Released));
        assert_eq!(delivery.ack().await, Ok(()), "its lease is live");
    }
}

#[tokio::test]
async fn p6_settle_is_repeated_until_it_is_answered_also_over_a_new_connection() {
    for fault in [Fault::CutBefore, Fault::CutAfter, Fault::Refuse(ErrorCode::Backpressure)] {
        let mut settles_seen = 0;
        let fake = Fake::start_with(&["orders"], move |seen| {
            settles_seen += usize::from(matches!(seen, Seen::Settle { .. }));
            if settles_seen == 1 && matches!(seen, Seen::Settle { .. }) { fault } else { Fault::None }
        })
        .await;
        fake.state().put("", "a");
        let client = connect(&fake).await;
        let mut consumer = client.consumer("orders", "billing", ConsumerOptions::default()).await.unwrap();
        let delivery = next(&mut consumer).await;
        let outcome = soon("the settle", delivery.ack()).await;
        assert_eq!(outcome, Ok(()), "{fault:?}");
        let acks = settles(&fake);
        assert_eq!(acks, [(SettleKind::Ack, delivery.delivery_id.get()); 2], "{fault:?}");
        assert!(fake.state().settled.contains(&1));
    }
}

#[tokio::test]
async fn settles_gather_while_one_is_under_way() {
    let fake = Fake::start(&["orders"]).await;
    (0..100).for_each(|number| fake.state().put("", &number.to_string()));
    let client = connect(&fake).await;
    let mut consumer = client.consumer("orders", "billing", ConsumerOptions::default()).await.unwrap();
    let mut receipts = Vec::new();
    for _ in 0..100 {
        receipts.push(next(&mut consumer).await.ack());
    }
    for receipt in receipts {
        assert_eq!(soon("a settle", receipt).await, Ok(()));
    }
    let frames = fake.seen().into_iter().filter(|seen| matches!(seen, Seen::Settle { .. })).count();
    assert!(frames < 100, "{frames} frames for 100 settles");
    assert_eq!(fake.state().settled.len(), 100);
}

/// What each SUB named as held; none if it did not resume.
fn resumes(fake: &Fake) -> Vec<Option<Vec<u64>>> {
    let resumes = fake.seen().into_iter().filter_map(|seen| match seen {
        Seen::Subscribe { resumes, .. } => Some(resumes),
        _ => None,
    });
    resumes.collect()
}

async fn until_subscribed(fake: &Fake, times: usize) {
    fake.until("it has subscribed again", |state| {
        state.seen.iter().filter(|seen| matches!(seen, Seen::Subscribe { .. })).count() == times
    })
    .await;
}

#[tokio::test]
async fn p5_after_a_cut_a_consumer_goes_on_with_what_it_holds_and_gets_what_was_lost_on_the_way() {
    let fake = Fake::start(&["orders"]).await;
    ["a", "b"].into_iter().for_each(|value| fake.state().put("", value));
    let client = connect(&fake).await;
    let options = ConsumerOptions { options_json: r#"{"lease_ms":30000}"#.to_owned(), ..ConsumerOptions::default() };
    let mut consumer = client.consumer("orders", "billing", options).await.unwrap();
    let (first, second) = (next(&mut consumer).await, next(&mut consumer).await);
    fake.state().loses_messages = true;
    ["c", "d"].into_iter().for_each(|value| fake.state().put("", value));
    fake.state().loses_messages = false;
    assert!(has_none(&mut consumer).await);
    fake.cut();
    let lost = [next(&mut consumer).await, next(&mut consumer).await];
    let told = lost.each_ref().map(|delivery| (text(delivery), delivery.delivery_id.get(), delivery.cause));
    assert_eq!(told, [("c", 3, Cause::First), ("d", 4, Cause::First)]);
    assert_eq!(resumes(&fake), [None, Some(vec![1, 2])]);
    for delivery in [&first, &second, &lost[0], &lost[1]] {
        assert!(!delivery.is_lost());
        assert_eq!(soon("the settle", delivery.ack()).await, Ok(()));
    }
    assert!(has_none(&mut consumer).await, "nothing comes twice");
}

#[tokio::test]
async fn p5_a_delivery_that_comes_again_though_it_is_held_is_not_handed_out_twice() {
    let fake = Fake::start(&["orders"]).await;
    [("k", "a"), ("k", "b"), ("", "c")].into_iter().for_each(|(key, value)| fake.state().put(key, value));
    let client = connect(&fake).await;
    let mut consumer = client.consumer("orders", "billing", ConsumerOptions::default()).await.unwrap();
    let (first, third) = (next(&mut consumer).await, next(&mut consumer).await);
    assert_eq!((text(&first), text(&third)), ("a", "c"), "b waits for a");
    fake.state().send_everything_again();
    assert!(has_none(&mut consumer).await);
    for delivery in [&first, &third] {
        assert_eq!(soon("the settle", delivery.ack()).await, Ok(()));
    }
    assert_eq!(text(&next(&mut consumer).await), "b");
    assert!(has_none(&mut consumer).await);
}

#[tokio::test]
async fn what_is_being_settled_during_a_cut_is_held_and_does_not_come_again() {
    // Both an ack that was done and one that was not: the answer is lost with the connection.
    for fault in [Fault::CutBefore, Fault::CutAfter] {
        let mut is_cut = false;
        let fake = Fake::start_with(&["orders"], move |seen| {
            if is_cut || !matches!(seen, Seen::Settle { .. }) {
                return Fault::None;
            }
            is_cut = true;
            fault
        })
        .await;
        fake.state().put("", "a");
        let client = connect(&fake).await;
        let mut consumer = client.consumer("orders", "billing", ConsumerOptions::default()).await.unwrap();
        let delivery = next(&mut consumer).await;
        assert_eq!(soon("the settle", delivery.ack()).await, Ok(()), "{fault:?}");
        assert_eq!(resumes(&fake), [None, Some(vec![1])], "{fault:?}");
        assert!(has_none(&mut consumer).await, "{fault:?}");
    }
}

#[tokio::test]
async fn what_is_to_be_given_back_during_a_cut_does_not_come_again() {
    // A nack ends what left with its message, and the consumer gives that back in case the broker has not.
    let mut settles_seen = 0;
    let fake = Fake::start_with(&["orders"], move |seen| {
        settles_seen += usize::from(matches!(seen, Seen::Settle { .. }));
        if settles_seen == 2 && matches!(seen, Seen::Settle { .. }) { Fault::CutBefore } else { Fault::None }
    })
    .await;
    // All three are there before the consumer is, so they leave together.
    ["a1", "a2", "a3"].into_iter().for_each(|value| fake.state().put("k", value));
    let client = connect(&fake).await;
    let mut consumer = client.consumer("orders", "billing", ConsumerOptions::default()).await.unwrap();
    let first = next(&mut consumer).await;
    assert_eq!(soon("the settle", first.nack(0, "later")).await, Ok(()));
    until_subscribed(&fake, 2).await;
    let held = resumes(&fake)[1].clone().expect("it resumes");
    assert_eq!(held[..2], [2, 3], "those that wait to be given back");
}

#[tokio::test]
async fn p5_a_consumer_whose_member_is_lost_joins_anew_and_is_told_what_it_lost() {
    let mut subscribes = 0;
    let fake = Fake::start_with(&["orders"], move |seen| {
        subscribes += usize::from(matches!(seen, Seen::Subscribe { .. }));
        if subscribes == 2 && matches!(seen, Seen::Subscribe { .. }) { Fault::EndSessions } else { Fault::None }
    })
    .await;
    ["a", "b"].into_iter().for_each(|value| fake.state().put("", value));
    let client = connect(&fake).await;
    let mut consumer = client.consumer("orders", "billing", ConsumerOptions::default()).await.unwrap();
    let (first, second) = (next(&mut consumer).await, next(&mut consumer).await);
    fake.cut();
    until_subscribed(&fake, 3).await;
    assert_eq!(resumes(&fake), [None, Some(vec![1, 2]), None], "refused once, it does not try again");
    let again = [next(&mut consumer).await, next(&mut consumer).await];
    assert_eq!(again.each_ref().map(|one| (text(one), one.cause)), ["a", "b"].map(|text| (text, Cause::ConsumerLost)));
    soon("the loss", second.lost()).await;
    assert!(first.is_lost() && !again[0].is_lost());
    assert_eq!(second.ack().await, Err(SettleError::LeaseLost));
    assert_eq!(again[0].ack().await, Ok(()));
}

#[tokio::test]
async fn leases_are_renewed_while_the_handler_works_and_sessions_kept_alive() {
    let fake = Fake::start(&["orders"]).await;
    fake.state().lease_ms = 400;
    ["a", "b"].into_iter().for_each(|value| fake.state().put("k", value));
    let client = connect(&fake).await;
    let options = ConsumerOptions { options_json: r#"{"session_ms":600}"#.to_owned(), ..ConsumerOptions::default() };
    let mut consumer = client.consumer("orders", "billing", options).await.unwrap();
    let delivery = next(&mut consumer).await;
    fake.until("both leases are renewed, the one that waits too, twice", |state| {
        let renewed = |seen: &&Seen| match seen {
            Seen::Settle { items } => items.iter().all(|(kind, _)| *kind == SettleKind::Progress) && items.len() == 2,
            _ => false,
        };
        state.seen.iter().filter(renewed).count() >= 2
    })
    .await;
    fake.until("heartbeats come", |state| state.seen.contains(&Seen::Heartbeat { is_leave: false })).await;
    assert!(!delivery.is_lost());
    assert_eq!(delivery.extend().await, Ok(()));
}

#[tokio::test]
async fn p5_a_handler_hears_of_a_lost_lease_from_a_renewal_or_a_settle_whichever_is_first() {
    for lease_ms in [400, 600_000] {
        let fake = Fake::start(&["orders"]).await;
        fake.state().lease_ms = lease_ms;
        fake.state().put("k", "a");
        let client = connect(&fake).await;
        let mut consumer = client.consumer("orders", "billing", ConsumerOptions::default()).await.unwrap();
        let delivery = next(&mut consumer).await;
        fake.state().is_paused = true;
        fake.state().expire(delivery.delivery_id.get());
        if lease_ms == 400 {
            soon("the news", delivery.lost()).await;
        }
        assert_eq!(delivery.ack().await, Err(SettleError::UnknownDelivery));
        assert!(delivery.is_lost());
        // The handler still has the one that was lost, and that holds back nothing of its key.
        fake.state().is_paused = false;
        fake.state().deliver();
        let again = next(&mut consumer).await;
        assert_eq!((text(&again), again.cause), ("a", Cause::LeaseExpired));
    }
}

#[tokio::test]
async fn a_member_that_the_broker_forgot_joins_again() {
    let fake = Fake::start(&["orders"]).await;
    fake.state().put("", "a");
    let client = connect(&fake).await;
    let mut consumer = client.consumer("orders", "billing", ConsumerOptions::default()).await.unwrap();
    let delivery = next(&mut consumer).await;
    fake.state().end_all_sessions();
    assert_eq!(soon("the settle", delivery.ack()).await, Err(SettleError::LeaseLost));
    let again = next(&mut consumer).await;
    assert_eq!((text(&again), again.cause), ("a", Cause::ConsumerLost));
    assert_eq!(
        resumes(&fake),
        [None, Some(vec![1]), None],
        "only the subscription may have ended: the member is tried first"
    );
}

#[tokio::test]
async fn p7_a_subscription_that_ends_without_its_connection_costs_no_session() {
    // As when a node gives up its office and keeps its connections: the subscription is gone, the member lives.
    let mut is_refused = false;
    let fake = Fake::start_with(&["orders"], move |seen| match seen {
        Seen::Settle { .. } if !is_refused => {
            is_refused = true;
            Fault::Refuse(ErrorCode::UnknownMember)
        }
        _ => Fault::None,
    })
    .await;
    fake.state().put("", "a");
    let client = connect(&fake).await;
    let mut consumer = client.consumer("orders", "billing", ConsumerOptions::default()).await.unwrap();
    let delivery = next(&mut consumer).await;
    assert_eq!(soon("the settle", delivery.ack()).await, Ok(()), "under its first lease");
    assert_eq!(resumes(&fake), [None, Some(vec![1])], "as the member that it was");
    assert_eq!(fake.state().deliveries(), 1);
}

#[tokio::test]
async fn closing_gives_back_what_is_held_and_leaves() {
    let mut is_cut = false;
    let fake = Fake::start_with(&["orders"], move |seen| match seen {
        // The first LEAVE gets lost, so that the waiting is seen.
        Seen::Heartbeat { is_leave: true } if !is_cut => {
            is_cut = true;
            Fault::CutBefore
        }
        _ => Fault::None,
    })
    .await;
    ["a", "b", "c"].into_iter().for_each(|value| fake.state().put("k", value));
    let client = connect(&fake).await;
    let mut consumer = client.consumer("orders", "billing", ConsumerOptions::default()).await.unwrap();
    let delivery = next(&mut consumer).await;
    soon("the end", consumer.close()).await.unwrap();
    assert!(delivery.is_lost());
    let kinds: Vec<SettleKind> = settles(&fake).iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [SettleKind::Release; 3]);
    delivery.ack().await.expect_err("the consumer is closed");
    soon("the end", client.close()).await;
}

#[tokio::test]
async fn dropping_a_consumer_leaves_the_group() {
    let fake = Fake::start(&["orders"]).await;
    fake.state().put("", "a");
    let client = connect(&fake).await;
    let mut consumer = client.consumer("orders", "billing", ConsumerOptions::default()).await.unwrap();
    let _held = next(&mut consumer).await;
    drop(consumer);
    fake.until("it has left", |state| state.seen.contains(&Seen::Heartbeat { is_leave: true })).await;
    let mut other = client.consumer("orders", "billing", ConsumerOptions::default()).await.unwrap();
    assert_eq!(next(&mut other).await.cause, Cause::Released);
}

#[tokio::test]
async fn pulls_bring_what_was_asked_for_and_survive_a_cut() {
    let mut pulls = 0;
    let fake = Fake::start_with(&["orders"], move |seen| {
        pulls += usize::from(*seen == Seen::Pull);
        if pulls == 1 && *seen == Seen::Pull { Fault::CutBefore } else { Fault::None }
    })
    .await;
    for (key, value) in [("", "a"), ("k", "b"), ("k", "c")] {
        fake.state().put(key, value);
    }
    let client = connect(&fake).await;
    let options = ConsumerOptions { credit_messages: Some(0), ..ConsumerOptions::default() };
    let consumer = client.consumer("orders", "billing", options).await.unwrap();
    let pulled = soon("a pull", consumer.pull(PULL)).await.unwrap();
    assert_eq!(pulled.iter().map(text).collect::<Vec<_>>(), ["a", "b"], "c waits for b");
    pulled[1].ack().await.unwrap();
    let pulled = soon("a pull", consumer.pull(PULL)).await.unwrap();
    assert_eq!(pulled.iter().map(text).collect::<Vec<_>>(), ["c"]);
    assert!(soon("a pull", consumer.pull(PULL)).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_window_that_is_changed_counts_at_once_and_over_later_connections() {
    let fake = Fake::start(&["orders"]).await;
    let client = connect(&fake).await;
    let options = ConsumerOptions { credit_messages: Some(1), ..ConsumerOptions::default() };
    let mut consumer = client.consumer("orders", "billing", options).await.unwrap();
    ["a", "b", "c"].iter().for_each(|value| fake.state().put("", value));
    let first = next(&mut consumer).await;
    assert!(has_none(&mut consumer).await, "one at a time");
    consumer.set_credit(Some(2), None).unwrap();
    let second = next(&mut consumer).await;
    consumer.set_credit(Some(0), None).unwrap();
    for delivery in [first, second] {
        soon("the settle", delivery.ack()).await.unwrap();
    }
    assert!(has_none(&mut consumer).await, "nothing is pushed");
    fake.cut();
    until_subscribed(&fake, 2).await;
    assert!(has_none(&mut consumer).await, "nor after a reconnect");
    consumer.set_credit(None, None).unwrap();
    assert_eq!(text(&next(&mut consumer).await), "c");
}

#[tokio::test]
async fn a_consumer_of_a_deleted_topic_is_told_so() {
    let fake = Fake::start(&["orders"]).await;
    let client = connect(&fake).await;
    let mut consumer = client.consumer("orders", "billing", ConsumerOptions::default()).await.unwrap();
    assert!(fake.state().delete("orders"));
    fake.state().declare("orders");
    fake.cut();
    let error = soon("the news", consumer.next()).await.unwrap().unwrap_err();
    assert!(error.to_string().starts_with("topic \"orders\" was deleted"), "{error}");
    assert!(soon("the end", consumer.next()).await.is_none());
}
