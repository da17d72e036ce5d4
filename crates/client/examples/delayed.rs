//! Publishes messages for later, and shows when each comes.
//!
//!     cargo run -p mortarmq-client --example delayed

use std::error::Error;
use std::time::Instant;

use mortarmq_client::{Client, ClientOptions, ConsumerOptions, Message, ProducerOptions, TopicOptions};

/// Publishes three reminders and waits for them.
#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let server = std::env::var("MORTARMQ_SERVER").unwrap_or_else(|_| "127.0.0.1:7188".to_owned());
    let client = Client::connect(ClientOptions::to(&server)).await?;
    client.declare_topic("reminders", TopicOptions::default()).await?;
    let options = ConsumerOptions::default().set("lease_ms", 5_000);
    let mut consumer = client.consumer("reminders", "shown", options).await?;
    let producer = client.producer("reminders", ProducerOptions::default()).await?;

    let started = Instant::now();
    // Each is stored at once, and delivered no earlier than its delay says. One that nobody took within a minute is
    // dropped and counted.
    for delay_ms in [900, 600, 300] {
        let text = format!("after {delay_ms} ms");
        producer.publish(Message::of(text.as_bytes()).delay_ms(delay_ms).ttl_ms(60_000)).await?;
    }
    for _ in 0..3 {
        let Some(delivery) = consumer.next().await else { break };
        let delivery = delivery?;
        println!("{}: {} ms", String::from_utf8_lossy(&delivery.value), started.elapsed().as_millis());
        delivery.ack().await?;
    }
    consumer.close().await?;
    client.close().await;
    Ok(())
}
