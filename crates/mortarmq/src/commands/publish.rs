//! `pub TOPIC VALUE`: publishes in a pipeline, in order, each message under its producer number until it is answered.

mod source;

use std::time::Duration;

use bytes::Bytes;
use mortarmq_client::{Client, Message, ProducerOptions, PublishError, Receipt};
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::source::Source;
use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows};
use crate::session::{self, ServerArgs};

/// Publish messages
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The topic
    topic: String,
    /// The value; - takes stdin as one message; {n} stands for the message's number
    value: Option<String>,
    /// Take stdin as one message per line
    #[arg(long, conflicts_with_all = ["count", "size"])]
    lines: bool,
    /// Messages with one key stay in order
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// How many messages
    #[arg(long, value_name = "N", default_value_t = 1)]
    count: u64,
    /// Messages per second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Fill each value up to this many bytes
    #[arg(long, value_name = "BYTES")]
    size: Option<usize>,
    /// A header of each message
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// Deliver each message only when it is that old, in milliseconds
    #[arg(long, value_name = "MS")]
    delay: Option<u64>,
    /// Drop each message that was not delivered when it is that old, in milliseconds
    #[arg(long, value_name = "MS")]
    ttl: Option<u64>,
    /// Store under this key once, whoever publishes it, within its window; {n} stands for the message's number
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Print one JSON object per row
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Publishes everything and prints where each message was stored.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let source = Source::new(args)?;
    session::warn_on_stderr();
    session::block_on(publish(args, source))
}

async fn publish(args: &Args, source: Source) -> Result<(), Failure> {
    let client = args.server.connect().await?;
    let (receipts, mut answers) = mpsc::channel(MAX_OUTSTANDING);
    let sending = send_all(&client, args, source.start(), receipts);
    // The channel is the printer's own: when it ends early, as after `| head`, the sender is told by that.
    let printing = async move {
        let mut rows = Rows::streamed(&["partition", "sequence"], RowArgs { json: args.json, header: false });
        let mut first_error: Option<PublishError> = None;
        while let Some(receipt) = answers.recv().await {
            let receipt: Receipt = receipt;
            match receipt.await {
                Ok(published) => rows.push(vec![
                    Cell::Number(u64::from(published.partition.get())),
                    Cell::Number(published.seq.get()),
                ])?,
                Err(error) => {
                    // What is under way is waited for: its rows tell what was stored all the same.
                    answers.close();
                    first_error.get_or_insert(error);
                }
            }
        }
        Ok::<_, Failure>((rows, first_error))
    };
    let (sent, printed) = tokio::join!(sending, printing);
    let (rows, first_error) = printed?;
    if let Some(error) = first_error {
        return Err(session::failure_of_topic(&client, &args.topic, &error.error).await);
    }
    sent?;
    // Only now: a heading without rows above an error would look like an answer.
    rows.finish()
}

/// Sends until the source ends or the printing side wants no more.
async fn send_all(
    client: &Client,
    args: &Args,
    mut values: mpsc::Receiver<Result<Bytes, Failure>>,
    receipts: mpsc::Sender<Receipt>,
) -> Result<(), Failure> {
    let options = ProducerOptions { max_outstanding: MAX_OUTSTANDING, ..ProducerOptions::default() };
    let producer = match client.producer(&args.topic, options).await {
        Ok(producer) => producer,
        Err(error) => return Err(session::failure_of_topic(client, &args.topic, &error).await),
    };
    let headers: Vec<(&[u8], &[u8])> =
        args.headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
    let key = args.key.as_deref().unwrap_or_default().as_bytes();
    let started = Instant::now();
    let mut sent: u64 = 0;
    while let Some(value) = values.recv().await {
        let value = value?;
        if let Some(rate) = args.rate {
            tokio::time::sleep_until(started + due(sent, rate)).await;
        }
        let once = args.idempotency_key.as_ref().map(|key| key.replace("{n}", &(sent + 1).to_string()));
        let idempotency_key = once.as_deref().map(str::as_bytes);
        let message = Message { key, headers: headers.clone(), value: &value, idempotency_key, ..options_of(args) };
        let receipt = match producer.send(message).await {
            Ok(receipt) => receipt,
            Err(error) => return Err(session::failure_of_topic(client, &args.topic, &error).await),
        };
        if receipts.send(receipt).await.is_err() {
            break;
        }
        sent += 1;
    }
    Ok(())
}

/// What all messages ask of time.
fn options_of(args: &Args) -> Message<'_> {
    Message { delay_ms: args.delay, ttl_ms: args.ttl, ..Message::default() }
}

/// When a message is due at this rate: by its number, so that what a slow answer held back is made up for.
fn due(number: u64, per_second: u32) -> Duration {
    Duration::from_secs_f64(number as f64 / f64::from(per_second))
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("is not NAME=VALUE")?;
    if name.is_empty() {
        return Err("has no name before =".to_owned());
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// Enough to keep a broker busy over one fsync; the broker remembers the last 1024 numbers of a producer.
const MAX_OUTSTANDING: usize = 512;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{due, header};

    #[test]
    fn header_is_cut_at_its_first_equals_sign() {
        assert_eq!(header("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(header("a="), Ok(("a".to_owned(), String::new())));
        assert!(header("a").is_err() && header("=b").is_err());
    }

    #[test]
    fn rate_is_kept_by_number() {
        assert_eq!(due(0, 10), Duration::ZERO);
        assert_eq!(due(25, 10), Duration::from_millis(2500));
    }
}
