//! `sub TOPIC --group G`: prints messages and acks them, or gives each to a command.

mod exec;
mod print;

use mortarmq_client::{Client, Consumer, ConsumerOptions, Delivery};

use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows};
use crate::session::{self, ServerArgs, Stop};
use crate::settings::{self, Setting};

/// Consume messages
///
/// Prints each message and acks it. On leaving, what was not settled is given back.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The topic
    topic: String,
    /// The group; it is made if it does not exist, from the earliest message on
    #[arg(long, short, value_name = "NAME")]
    group: String,
    /// End after so many settled messages
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Print without acking: the messages are given back on leaving
    #[arg(long, conflicts_with = "exec")]
    no_ack: bool,
    /// Give each message to this command, on stdin; exit code 0 acks, any other nacks with the end of its stderr
    ///
    /// MORTARMQ_TOPIC, _PARTITION, _SEQUENCE, _KEY, _ATTEMPT and _CAUSE are set. Its output goes to stderr, as rows go to
    /// stdout. It gets SIGTERM when the lease is lost.
    #[arg(long, value_name = "CMD")]
    exec: Option<String>,
    /// How many commands run at once; never two for one key
    #[arg(long, value_name = "N", default_value_t = 1, requires = "exec",
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: u16,
    /// A setting of the group
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = settings::parse)]
    settings: Vec<Setting>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    rows: RowArgs,
}

/// Consumes until told to end, or until `--count` is reached.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    session::warn_on_stderr();
    session::block_on(async {
        let mut stop = Stop::new()?;
        tokio::select! {
            connected = subscribe(args) => {
                let (client, consumer) = connected?;
                consume(args, &client, consumer, &mut stop).await
            }
            () = stop.wanted() => Ok(()),
        }
    })
}

async fn subscribe(args: &Args) -> Result<(Client, Consumer), Failure> {
    let client = args.server.connect().await?;
    let options = ConsumerOptions {
        credit_messages: args.window(),
        options_json: settings::to_json(&args.settings),
        ..ConsumerOptions::default()
    };
    match client.consumer(&args.topic, &args.group, options).await {
        Ok(consumer) => Ok((client, consumer)),
        Err(error) => Err(session::failure_of_topic(&client, &args.topic, &error).await),
    }
}

async fn consume(args: &Args, client: &Client, mut consumer: Consumer, stop: &mut Stop) -> Result<(), Failure> {
    let mut rows = Rows::streamed(COLUMNS, args.rows);
    let result = match &args.exec {
        Some(command) => exec::consume(args, command, &mut consumer, &mut rows, stop).await,
        None => print::consume(args, &mut consumer, &mut rows, stop).await,
    };
    // Whatever has happened, what is held goes back at once instead of waiting for its leases to run out.
    let closed = consumer.close().await;
    result?;
    rows.finish()?;
    match closed {
        Ok(()) => Ok(()),
        Err(error) => Err(session::failure_of_topic(client, &args.topic, &error).await),
    }
}

impl Args {
    /// What may be held unsettled: no more than will be settled, and with commands no more than keeps them busy, since
    /// whatever waits behind a slow command is withheld from other members.
    fn window(&self) -> Option<u16> {
        let wanted = self.exec.as_ref().map(|_| self.workers.saturating_mul(2));
        let count = self.count.map(|count| u16::try_from(count).unwrap_or(GROUP_WINDOW));
        match (wanted, count) {
            (None, None) => None,
            (wanted, count) => Some(wanted.unwrap_or(GROUP_WINDOW).min(count.unwrap_or(GROUP_WINDOW)).max(1)),
        }
    }

    fn is_enough(&self, settled: u64) -> bool {
        self.count.is_some_and(|count| settled >= count)
    }
}

fn row(delivery: &Delivery) -> Vec<Cell> {
    vec![
        Cell::Number(u64::from(delivery.partition.get())),
        Cell::Number(delivery.seq.get()),
        Cell::Number(delivery.delivery_id.get()),
        Cell::Number(u64::from(delivery.attempt.get())),
        Cell::Text(delivery.cause.word().to_owned()),
        Cell::Bytes(delivery.key.clone()),
        Cell::Bytes(delivery.value.clone()),
    ]
}

const COLUMNS: &[&str] = &["partition", "sequence", "delivery_id", "attempt", "cause", "key", "value"];
/// The window of a group by default.
const GROUP_WINDOW: u16 = 256;
