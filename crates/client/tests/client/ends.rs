//! How clients end: asked to, dropped, or left alone.

use mortarmq_client::{Client, ClientOptions, ConsumerOptions, Message, Outcome, ProducerOptions};

use mortarmq_wire::ErrorCode;

use crate::fake::{Fake, Fault, Seen};
use crate::{connect, options, soon};

/// Waits until only so many tasks of this test's runtime are left.
async fn until_tasks(count: usize) {
    let metrics = tokio::runtime::Handle::current().metrics();
    let fewer = async {
        while metrics.num_alive_tasks() > count {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    };
    soon("the end of the client's tasks", fewer).await;
}

#[tokio::test]
async fn handles_that_are_dropped_leave_no_task_and_no_connection() {
    let fake = Fake::start(&["orders"]).await;
    fake.state().put("", "a");
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    for _ in 0..20 {
        let client = connect(&fake).await;
        let producer = client.producer("orders", ProducerOptions::default()).await.unwrap();
        drop(producer.send(Message::of(b"b")).await.unwrap());
        let mut consumer = client.consumer("orders", "billing", ConsumerOptions::default()).await.unwrap();
        let delivery = soon("a delivery", consumer.next()).await.unwrap().unwrap();
        drop((client, producer, consumer));
        assert!(delivery.is_lost(), "what is held was given back");
        delivery.ack().await.expect_err("it was given back");
    }
    // The fake's own task of each connection ends with it.
    until_tasks(before).await;
    assert_eq!(fake.state().stored.len(), 21, "what was sent is seen through");
    assert!(fake.seen().iter().filter(|seen| **seen == Seen::Heartbeat { is_leave: true }).count() >= 20);
}

#[tokio::test]
async fn a_close_that_nobody_waits_for_any_more_does_not_try_for_ever() {
    let fake = Fake::start(&["orders"]).await;
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let client = connect(&fake).await;
    let producer = client.producer("orders", ProducerOptions::default()).await.unwrap();
    fake.stop();
    let receipt = producer.send(Message::of(b"a")).await.unwrap();
    drop(producer);
    let closing = tokio::time::timeout(std::time::Duration::from_millis(50), client.close());
    assert!(closing.await.is_err(), "there is no broker to answer");
    assert_eq!(soon("an answer", receipt).await.unwrap_err().outcome(), Outcome::Unknown);
    until_tasks(before - 1).await;
}

#[tokio::test]
async fn a_client_goes_on_at_another_server_when_its_own_is_gone() {
    let (first, second) = (Fake::start(&["orders"]).await, Fake::start(&["orders"]).await);
    let servers = format!("{},{}", first.address, second.address);
    let client =
        Client::connect(ClientOptions { reconnect: options(&first).reconnect, ..ClientOptions::to(&servers) }).await;
    let client = client.unwrap();
    client.metadata(&[]).await.unwrap();
    assert!(second.seen().is_empty(), "the first one answers");
    first.stop();
    soon("the other server's answer", client.metadata(&[])).await.unwrap();
    assert!(second.seen().contains(&Seen::Metadata));
}

#[tokio::test]
async fn a_server_that_takes_nothing_is_left_for_another_and_nothing_is_stored_twice() {
    let first = Fake::start_with(&["orders"], |seen| match seen {
        Seen::Publish { .. } => Fault::Refuse(ErrorCode::ReadOnlyDegraded),
        _ => Fault::None,
    });
    let (first, second) = (first.await, Fake::start(&["orders"]).await);
    let servers = format!("{},{}", first.address, second.address);
    let client =
        Client::connect(ClientOptions { reconnect: options(&first).reconnect, ..ClientOptions::to(&servers) }).await;
    let client = client.unwrap();
    let producer = client.producer("orders", ProducerOptions::default()).await.unwrap();
    let receipts = [producer.send(Message::of(b"a")).await.unwrap(), producer.send(Message::of(b"b")).await.unwrap()];
    for receipt in receipts {
        soon("an answer", receipt).await.unwrap();
    }
    let stored: Vec<String> = second
        .seen()
        .into_iter()
        .filter_map(|seen| match seen {
            Seen::Publish { value, .. } => Some(value),
            _ => None,
        })
        .collect();
    assert_eq!(stored, ["a", "b"]);
}

#[tokio::test]
async fn a_broker_that_owes_an_answer_and_says_nothing_is_left_for_another() {
    // As after a cut cable: nobody closes the connection.
    let (first, second) = (Fake::start(&["orders"]).await, Fake::start(&["orders"]).await);
    let client = Client::connect(ClientOptions {
        reconnect: options(&first).reconnect,
        connect_timeout: std::time::Duration::from_millis(100),
        answer_timeout: std::time::Duration::from_millis(100),
        ..ClientOptions::to(&format!("{},{}", first.address, second.address))
    });
    let client = client.await.unwrap();
    client.metadata(&[]).await.unwrap();
    first.state().is_mute = true;
    soon("the other server's answer", client.metadata(&[])).await.unwrap();
    assert!(second.seen().contains(&Seen::Metadata));
}

#[tokio::test]
async fn closing_a_producer_waits_for_all_answers() {
    let mut is_cut = false;
    let fake = Fake::start_with(&["orders"], move |seen| match seen {
        Seen::Publish { value, .. } if value == "b" && !is_cut => {
            is_cut = true;
            Fault::CutAfter
        }
        _ => Fault::None,
    })
    .await;
    let client = connect(&fake).await;
    let producer = client.producer("orders", ProducerOptions::default()).await.unwrap();
    for value in [b"a", b"b", b"c"] {
        drop(producer.send(Message::of(value)).await.unwrap());
    }
    soon("the end", producer.close()).await;
    assert_eq!(fake.state().stored.len(), 3);
}
