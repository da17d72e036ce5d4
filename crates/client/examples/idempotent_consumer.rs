//! A consumer whose effects happen once each, though messages may come twice.
//!
//! A broker cannot promise that: it does not know whether a consumer that died had done its work. So the consumer writes
//! down, in the transaction of the effect itself, for which order it was. A message that comes again finds its order there.
//! The order's own id is the key, not the message's sequence: an order that somebody published twice has one effect too.
//!
//! Kill it with `kill -9` while it works, and start it again: the balance is right.
//!
//!     cargo run -p mortarmq-client --example producer
//!     EFFECTS=effects.sqlite cargo run -p mortarmq-client --example idempotent_consumer

use std::error::Error;
use std::time::Duration;

use mortarmq_client::{Client, ClientOptions, ConsumerOptions, Delivery, TopicOptions};
use rusqlite::Connection;

/// Books the orders of the topic `orders` into the SQLite file `EFFECTS` until Ctrl-C.
#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let server = std::env::var("MORTARMQ_SERVER").unwrap_or_else(|_| "127.0.0.1:7188".to_owned());
    let file = std::env::var("EFFECTS").unwrap_or_else(|_| "effects.sqlite".to_owned());
    // For trying it out: how long it lingers where a kill hurts most, between the effect and the ack.
    let linger_ms = std::env::var("LINGER_MS").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut effects = open(&file)?;
    let client = Client::connect(ClientOptions::to(&server)).await?;
    client.declare_topic("orders", TopicOptions::default()).await?;
    // A consumer that died is missed after a second, and what it held is delivered again.
    let options = ConsumerOptions::default().set("session_ms", 1_000).set("retry_backoff_base_ms", 100);
    let mut consumer = client.consumer("orders", "bookkeeping", options).await?;

    loop {
        let next = tokio::select! {
            _ = tokio::signal::ctrl_c() => break,
            next = consumer.next() => next,
        };
        let Some(delivery) = next else { break };
        let delivery = delivery?;
        let settled = match tokio::task::block_in_place(|| book(&mut effects, &delivery)) {
            Ok(booked) => {
                let (order, cause) = (booked.order, delivery.cause);
                println!("{order}: {} ({cause})", if booked.is_new { "booked" } else { "was booked before" });
                tokio::time::sleep(Duration::from_millis(linger_ms)).await;
                delivery.ack().await
            }
            Err(Failure::BadMessage(text)) => delivery.dead_letter(&text).await,
            Err(Failure::Database(error)) => delivery.nack(0, &error.to_string()).await,
        };
        match settled {
            Ok(()) => {}
            // The message has moved on. Whoever has it now finds what is booked here.
            Err(error) if error.has_moved_on() => eprintln!("{error}"),
            Err(error) => return Err(error.into()),
        }
    }
    consumer.close().await?;
    client.close().await;
    Ok(())
}

struct Booked {
    order: String,
    is_new: bool,
}

enum Failure {
    /// No attempt will do.
    BadMessage(String),
    Database(rusqlite::Error),
}

fn open(file: &str) -> rusqlite::Result<Connection> {
    let effects = Connection::open(file)?;
    effects.execute_batch(
        "CREATE TABLE IF NOT EXISTS booked (order_id TEXT PRIMARY KEY, amount INTEGER NOT NULL);
         CREATE TABLE IF NOT EXISTS balance (customer TEXT PRIMARY KEY, amount INTEGER NOT NULL);",
    )?;
    Ok(effects)
}

/// The effect, and that it is done, in one transaction: both are on disk before the ack, or neither.
fn book(effects: &mut Connection, delivery: &Delivery) -> Result<Booked, Failure> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let order = delivery.header("order-id").and_then(text);
    let amount = text(&delivery.value).and_then(|value| value.parse::<i64>().ok());
    let (Some(order), Some(amount), Some(customer)) = (order, amount, text(&delivery.key)) else {
        return Err(Failure::BadMessage("it needs a key, a header order-id and an amount".to_owned()));
    };
    let is_new = once(effects, &order, &customer, amount).map_err(Failure::Database)?;
    Ok(Booked { order, is_new })
}

fn once(effects: &mut Connection, order: &str, customer: &str, amount: i64) -> rusqlite::Result<bool> {
    let transaction = effects.transaction()?;
    let is_new = transaction.execute("INSERT OR IGNORE INTO booked VALUES (?1, ?2)", (order, amount))? == 1;
    if is_new {
        let add = "INSERT INTO balance VALUES (?1, ?2)
                   ON CONFLICT (customer) DO UPDATE SET amount = amount + excluded.amount";
        transaction.execute(add, (customer, amount))?;
    }
    transaction.commit()?;
    Ok(is_new)
}
