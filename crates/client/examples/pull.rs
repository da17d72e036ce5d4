//! Asks for messages when it wants some, ten at a time, until there are none: a job that runs now and then.
//!
//!     cargo run -p mortarmq-client --example pull

use std::error::Error;

use mortarmq_client::{Client, ClientOptions, ConsumerOptions, PullOptions, TopicOptions};

/// Empties what the group `reports` has to do.
#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let server = std::env::var("MORTARMQ_SERVER").unwrap_or_else(|_| "127.0.0.1:7188".to_owned());
    let client = Client::connect(ClientOptions::to(&server)).await?;
    client.declare_topic("orders", TopicOptions::default()).await?;

    // Without credit nothing is pushed.
    let options = ConsumerOptions { credit_messages: Some(0), ..ConsumerOptions::default() };
    let consumer = client.consumer("orders", "reports", options).await?;
    let (mut count, mut total) = (0, 0);
    loop {
        let pull = PullOptions { max_messages: 10, wait_ms: 500, ..PullOptions::default() };
        let deliveries = consumer.pull(pull).await?;
        if deliveries.is_empty() {
            break;
        }
        // Asked for all at once, answered all at once.
        let mut acks = Vec::new();
        for delivery in &deliveries {
            let amount = std::str::from_utf8(&delivery.value).ok().and_then(|value| value.parse::<u64>().ok());
            acks.push(match amount {
                Some(amount) => {
                    count += 1;
                    total += amount;
                    delivery.ack()
                }
                None => delivery.dead_letter("the value is no amount"),
            });
        }
        for ack in acks {
            ack.await?;
        }
    }
    println!("{count} orders, {total} in all");
    consumer.close().await?;
    client.close().await;
    Ok(())
}
