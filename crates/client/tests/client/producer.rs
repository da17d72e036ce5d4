use mortarmq_client::{ErrorCode, Message, Outcome, ProducerOptions, Receipt};

use crate::fake::{Fake, Fault, Seen};
use crate::{connect, soon};

/// Number and value of every PUB that arrived, in order; and that all came from one producer.
fn publishes(fake: &Fake) -> Vec<(u64, String)> {
    let mut ids = std::collections::BTreeSet::new();
    let seen = fake.seen().into_iter().filter_map(|seen| match seen {
        Seen::Publish { producer_id, number, value } => {
            ids.insert(producer_id);
            Some((number, value))
        }
        _ => None,
    });
    let publishes = seen.collect();
    assert_eq!(ids.len(), 1, "one identity");
    publishes
}

fn values(fake: &Fake) -> Vec<String> {
    let stored = fake.state().stored.clone();
    stored.iter().map(|body| String::from_utf8_lossy(&body[6..]).into_owned()).collect()
}

/// The fault hits the first publish of this value only.
fn once(value: &'static str, fault: Fault) -> impl FnMut(&Seen) -> Fault + Send + 'static {
    let mut is_done = false;
    move |seen| match seen {
        Seen::Publish { value: found, .. } if found == value && !is_done => {
            is_done = true;
            fault
        }
        _ => Fault::None,
    }
}

#[tokio::test]
async fn p3_publish_whose_answer_was_lost_is_repeated_under_its_number_and_stored_once() {
    for fault in [Fault::CutBefore, Fault::CutAfter] {
        let fake = Fake::start_with(&["orders"], once("b", fault)).await;
        let client = connect(&fake).await;
        let producer = client.producer("orders", ProducerOptions::default()).await.unwrap();
        for (value, seq) in [("a", 1), ("b", 2), ("c", 3)] {
            let published = soon("the answer", producer.publish(Message::of(value.as_bytes()))).await.unwrap();
            assert_eq!(published.seq.get(), seq);
            assert_eq!(published.deduplicated, value == "b" && fault == Fault::CutAfter);
        }
        let expected = [(1, "a"), (2, "b"), (2, "b"), (3, "c")].map(|(number, value)| (number, value.to_owned()));
        assert_eq!(publishes(&fake), expected, "{fault:?}");
        assert_eq!(values(&fake), ["a", "b", "c"]);
    }
}

#[tokio::test]
async fn p3_after_a_refusal_in_a_pipeline_only_the_refused_publish_fails() {
    let fake = Fake::start_with(&["orders"], once("c", Fault::Refuse(ErrorCode::Forbidden))).await;
    let client = connect(&fake).await;
    let producer = client.producer("orders", ProducerOptions::default()).await.unwrap();
    let mut receipts: Vec<Receipt> = Vec::new();
    for value in ["a", "b", "c", "d", "e"] {
        receipts.push(producer.send(Message::of(value.as_bytes())).await.unwrap());
    }
    soon("all answers", producer.flush()).await;
    let mut results = Vec::new();
    for receipt in receipts {
        results.push(receipt.await);
    }
    let error = results.remove(2).expect_err("it was refused");
    assert_eq!(
        (error.code(), error.outcome(), error.producer_seq.get()),
        (Some(ErrorCode::Forbidden), Outcome::Refused, 3)
    );
    assert!(error.to_string().contains("the fake broker refuses (FORBIDDEN, nothing was stored"), "{error}");
    let seqs: Vec<u64> = results.into_iter().map(|result| result.unwrap().seq.get()).collect();
    assert_eq!(seqs, [1, 2, 3, 4]);
    let renumbered = &publishes(&fake)[5..];
    assert_eq!(renumbered, [(3, "d".to_owned()), (4, "e".to_owned())]);
}

#[tokio::test]
async fn p3_publish_refused_for_now_waits_and_keeps_its_number() {
    let fake = Fake::start_with(&["orders"], once("b", Fault::Refuse(ErrorCode::Backpressure))).await;
    let client = connect(&fake).await;
    let producer = client.producer("orders", ProducerOptions::default()).await.unwrap();
    producer.publish(Message::of(b"a")).await.unwrap();
    let published = soon("the second try", producer.publish(Message::of(b"b"))).await.unwrap();
    assert_eq!(published.seq.get(), 2);
    assert_eq!(publishes(&fake)[1..], [(2, "b".to_owned()), (2, "b".to_owned())]);
}

#[tokio::test]
async fn a_batch_is_one_request_and_its_numbers_follow_on() {
    let mut is_cut = false;
    let fake = Fake::start_with(&["orders"], move |seen| {
        let is_first = matches!(seen, Seen::Batch { .. }) && !std::mem::replace(&mut is_cut, true);
        if is_first { Fault::CutAfter } else { Fault::None }
    })
    .await;
    let client = connect(&fake).await;
    let producer = client.producer("orders", ProducerOptions::default()).await.unwrap();
    let batch = [Message::of(b"a"), Message::of(b"b"), Message::of(b"c")];
    let published = soon("the batch", producer.publish_batch(&batch)).await.unwrap();
    assert!(published.iter().all(|published| published.deduplicated));
    assert_eq!(published.iter().map(|published| published.seq.get()).collect::<Vec<_>>(), [1, 2, 3]);
    producer.publish(Message::of(b"d")).await.unwrap();
    let batches: Vec<Seen> = fake.seen().into_iter().filter(|seen| matches!(seen, Seen::Batch { .. })).collect();
    assert_eq!(batches, [Seen::Batch { number: 1, count: 3 }, Seen::Batch { number: 1, count: 3 }]);
    assert_eq!(publishes(&fake), [(4, "d".to_owned())]);
    producer.publish_batch(&[]).await.expect_err("an empty batch is not sent");
}

#[tokio::test]
async fn sends_wait_while_the_window_is_full() {
    let fake = Fake::start(&["orders"]).await;
    let client = connect(&fake).await;
    let options = ProducerOptions { max_outstanding: 2, ..ProducerOptions::default() };
    let producer = client.producer("orders", options).await.unwrap();
    fake.stop();
    let first = producer.send(Message::of(b"a")).await.unwrap();
    let _second = producer.send(Message::of(b"b")).await.unwrap();
    let third = tokio::time::timeout(std::time::Duration::from_millis(50), producer.send(Message::of(b"c"))).await;
    assert!(third.is_err(), "two are unanswered");
    drop((producer, client));
    let error = soon("the end of a client that nobody holds", first).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown);
}

#[tokio::test]
async fn p2_message_that_does_not_fit_is_refused_without_using_up_a_number() {
    let fake = Fake::start(&["orders"]).await;
    let client = connect(&fake).await;
    let producer = client.producer("orders", ProducerOptions::default()).await.unwrap();
    let long = Message { key: &[b'k'; 300], ..Message::default() };
    let error = producer.publish(long).await.unwrap_err();
    assert_eq!((error.outcome(), error.retry_helps(), error.code()), (Outcome::Refused, false, None));
    producer.publish(Message::of(b"a")).await.unwrap();
    assert_eq!(publishes(&fake), [(1, "a".to_owned())]);
}

#[tokio::test]
async fn closing_a_client_sees_through_what_was_sent() {
    let fake = Fake::start_with(&["orders"], once("a", Fault::CutBefore)).await;
    let client = connect(&fake).await;
    let producer = client.producer("orders", ProducerOptions::default()).await.unwrap();
    let receipt = producer.send(Message::of(b"a")).await.unwrap();
    soon("the end", client.close()).await;
    assert_eq!(receipt.await.unwrap().seq.get(), 1);
    let error = producer.publish(Message::of(b"b")).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Refused);
}
