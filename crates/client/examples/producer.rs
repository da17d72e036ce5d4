//! Publishes twenty orders, all under way at once, and tells of each what became of it.
//!
//! Run it twice: the second time nothing new is stored, because each order has an idempotency key.
//!
//!     mortarmq serve --dev
//!     cargo run -p mortarmq-client --example producer

use std::error::Error;

use mortarmq_client::{Client, ClientOptions, Message, Outcome, ProducerOptions, TopicOptions};

/// Publishes to the broker at `MORTARMQ_SERVER`.
#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let server = std::env::var("MORTARMQ_SERVER").unwrap_or_else(|_| "127.0.0.1:7188".to_owned());
    let client = Client::connect(ClientOptions::to(&server)).await?;
    client.declare_topic("orders", TopicOptions::default()).await?;
    let producer = client.producer("orders", ProducerOptions::default()).await?;

    let mut receipts = Vec::new();
    for number in 1..=20 {
        let (order, customer) = (format!("order-{number}"), format!("customer-{}", number % 4));
        let amount = (number * 100).to_string();
        let message = Message::of(amount.as_bytes())
            // The orders of one customer are delivered one after another.
            .key(customer.as_bytes())
            .header("order-id", order.as_bytes())
            .idempotency_key(order.as_bytes());
        // Waits only when too much is unanswered.
        receipts.push((order.clone(), producer.send(message).await?));
    }
    for (order, receipt) in receipts {
        match receipt.await {
            Ok(stored) if stored.deduplicated => println!("{order}: was stored before, at {}", stored.seq),
            Ok(stored) => println!("{order}: stored at {} of partition {}", stored.seq, stored.partition),
            Err(error) if error.outcome() == Outcome::Refused => eprintln!("{order}: not stored: {error}"),
            // The client has repeated it as long as it could. Here a second run is safe: see the idempotency key.
            Err(error) => eprintln!("{order}: stored or not, nobody knows: {error}"),
        }
    }
    producer.close().await;
    client.close().await;
    Ok(())
}
