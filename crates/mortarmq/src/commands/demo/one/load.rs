//! Publishing and consuming of the demonstration.

use std::collections::VecDeque;
use std::time::Duration;

use mortarmq_client::{Client, Consumer, ConsumerOptions, Delivery, Message, ProducerOptions};

use super::books::{Books, MessageId};
use super::{GROUP, TOPIC};
use crate::errors::Failure;
use crate::session;

/// Publishes messages of [`KEYS`] keys and waits until each is confirmed.
pub(super) async fn publish(client: &Client, count: usize, books: &mut Books) -> Result<(), Failure> {
    let producer =
        client.producer(TOPIC, ProducerOptions::default()).await.map_err(|error| session::failure(&error))?;
    let mut receipts = Vec::with_capacity(count);
    for number in 0..count {
        let (key, value) = (format!("customer-{}", number % KEYS), format!("order {number}"));
        let message = Message { key: key.as_bytes(), ..Message::of(value.as_bytes()) };
        receipts.push(producer.send(message).await.map_err(|error| session::failure(&error))?);
    }
    for receipt in receipts {
        let published = receipt.await.map_err(|error| session::failure(&error.error))?;
        books.confirmed.insert((published.partition.get(), published.seq.get()));
    }
    Ok(())
}

/// A member of the group whose session ends soon after it is lost, so that the demonstration stays short.
pub(super) async fn subscribe(client: &Client) -> Result<Consumer, Failure> {
    let options = ConsumerOptions { options_json: GROUP_OPTIONS.to_owned(), ..ConsumerOptions::default() };
    client.consumer(TOPIC, GROUP, options).await.map_err(|error| session::failure(&error))
}

/// Takes and acks so many messages, and waits until each ack is answered.
pub(super) async fn ack(consumer: &mut Consumer, count: usize, books: &mut Books) -> Result<(), Failure> {
    let mut open = VecDeque::new();
    let (mut taken, mut settled) = (0, 0);
    while settled < count {
        if taken < count && open.len() < WINDOW {
            // With acks open, a key's next message comes only after the answer; so do not wait here for ever.
            match tokio::time::timeout(PAUSE, consumer.next()).await {
                Ok(Some(delivery)) => {
                    let delivery = delivery.map_err(|error| session::failure(&error))?;
                    let message = message_id(&delivery);
                    books.came(message, u64::from(delivery.attempt.get()));
                    open.push_back((message, delivery.ack()));
                    taken += 1;
                    continue;
                }
                Ok(None) => return Err(crate::commands::demo::failed("the subscription ended")),
                Err(_) => {}
            }
        }
        let Some((message, receipt)) = open.pop_front() else { continue };
        if session::is_settled(receipt.await)? {
            books.settled(message);
            settled += 1;
        } else {
            taken -= 1;
        }
    }
    Ok(())
}

/// Takes what is there without acking it.
pub(super) async fn hold(consumer: &mut Consumer) -> Result<Vec<Delivery>, Failure> {
    let mut held = Vec::new();
    while held.len() < HELD {
        match tokio::time::timeout(HOLD_PAUSE, consumer.next()).await {
            Ok(Some(delivery)) => held.push(delivery.map_err(|error| session::failure(&error))?),
            Ok(None) | Err(_) => break,
        }
    }
    Ok(held)
}

/// Its partition and sequence.
pub(super) fn message_id(delivery: &Delivery) -> MessageId {
    (delivery.partition.get(), delivery.seq.get())
}

const KEYS: usize = 50;
const GROUP_OPTIONS: &str = r#"{"session_ms":2000,"retry_backoff_base_ms":100,"retry_backoff_max_ms":1000}"#;
/// Acks that may be open.
const WINDOW: usize = 200;
/// What a consumer holds when it is lost.
const HELD: usize = 20;
const PAUSE: Duration = Duration::from_millis(5);
const HOLD_PAUSE: Duration = Duration::from_millis(500);
