//! `trace TOPIC PARTITION SEQ`: the life of one message, with the cause of every delivery (P7).

use serde::Deserialize;

use crate::admin::{Admin, AdminArgs, Route};
use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows, note, utc};

/// Tell the life of one message, with the cause of every delivery
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Its topic
    topic: String,
    /// Its partition
    partition: u16,
    /// Its sequence
    #[arg(value_name = "SEQ", value_parser = clap::value_parser!(u64).range(1..))]
    sequence: u64,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    rows: RowArgs,
}

/// What happened to a message, in the order of the log.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Trace {
    /// One row per event.
    pub(crate) events: Vec<Event>,
    /// Where it stands: one row per path.
    #[serde(default)]
    pub(crate) standing: Vec<Standing>,
}

/// One event.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Event {
    /// Wall-clock time, milliseconds since 1970.
    pub(crate) time_ms: u64,
    /// The command.
    pub(crate) commit_index: u64,
    /// `topic/group`, or `-`.
    pub(crate) path: String,
    /// What happened.
    pub(crate) stage: String,
    /// The delivery.
    pub(crate) delivery_id: Option<u64>,
    /// The attempt.
    pub(crate) attempt: Option<u64>,
    /// The member, 16 hex digits.
    pub(crate) member: Option<String>,
    /// Why.
    pub(crate) cause: Option<String>,
    /// More of it.
    #[serde(default)]
    pub(crate) detail: String,
}

/// Where a message stands on one path.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Standing {
    /// `topic/group`.
    pub(crate) path: String,
    /// `pending`, `leased`, `acked` and so on.
    pub(crate) standing: String,
}

impl Trace {
    /// Asks a broker.
    pub(crate) fn ask(admin: &Admin, topic: &str, partition: u16, sequence: u64) -> Result<Self, Failure> {
        let (partition, sequence) = (partition.to_string(), sequence.to_string());
        let query = &[("partition", partition.as_str()), ("sequence", sequence.as_str())];
        admin.get_of_topic(topic, Route { path: &["v1", "topics", topic, "trace"], query })
    }
}

/// Prints the events and where the message stands.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let trace = Trace::ask(&Admin::new(&args.admin)?, &args.topic, args.partition, args.sequence)?;
    print(&trace, args.rows)
}

/// Prints the events as rows, then one line per path that says where the message stands.
pub(crate) fn print(trace: &Trace, args: RowArgs) -> Result<(), Failure> {
    let mut rows = Rows::listed(COLUMNS, args);
    for event in &trace.events {
        rows.push(row(event))?;
    }
    rows.finish()?;
    // On stderr: stdout holds rows and nothing else, whoever reads it. A terminal shows both in this order.
    for standing in &trace.standing {
        note(format_args!("{}: {}", standing.path, standing.standing));
    }
    if trace.standing.is_empty() {
        note("no group owes this message yet");
    }
    Ok(())
}

fn row(event: &Event) -> Vec<Cell> {
    vec![
        // Without a time the record cannot be read, and what it knew is not known.
        if event.time_ms == 0 { Cell::Absent } else { Cell::Text(utc(event.time_ms)) },
        if event.time_ms == 0 { Cell::Absent } else { Cell::Number(event.commit_index) },
        Cell::Text(event.path.clone()),
        Cell::Text(event.stage.clone()),
        Cell::number(event.delivery_id),
        Cell::number(event.attempt),
        Cell::text(event.member.as_deref()),
        Cell::text(event.cause.as_deref()),
        Cell::Text(event.detail.clone()),
    ]
}

const COLUMNS: &[&str] =
    &["time", "commit_index", "path", "stage", "delivery_id", "attempt", "member", "cause", "detail"];
