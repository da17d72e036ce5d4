//! `topics describe NAME`: its settings, then its partitions.

use serde::Deserialize;

use crate::admin::{Admin, AdminArgs, Route};
use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows};

/// Show a topic's settings and partitions
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Its name
    name: String,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    rows: RowArgs,
}

#[derive(Deserialize)]
struct Topic {
    settings: serde_json::Map<String, serde_json::Value>,
    partition_stats: Vec<Partition>,
}

#[derive(Deserialize)]
struct Partition {
    index: u64,
    leader: Option<u64>,
    last_seq: u64,
    depth: u64,
    size_bytes: u64,
}

/// Prints rows of two columns, setting and value, then rows of five columns, one per partition.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let route = Route { path: &["v1", "topics", &args.name], query: &[] };
    let topic: Topic = Admin::new(&args.admin)?.get_of_topic(&args.name, route)?;
    let mut rows = Rows::listed(&["setting", "value"], args.rows);
    for (key, value) in &topic.settings {
        rows.push(vec![Cell::Text(key.clone()), Cell::json(value)])?;
    }
    let is_table = rows.is_table();
    rows.finish()?;
    if is_table {
        println!();
    }
    let mut rows = Rows::listed(&["partition", "leader", "last_seq", "depth", "bytes"], args.rows);
    for partition in &topic.partition_stats {
        rows.push(vec![
            Cell::Number(partition.index),
            Cell::number(partition.leader),
            Cell::Number(partition.last_seq),
            Cell::Number(partition.depth),
            Cell::Number(partition.size_bytes),
        ])?;
    }
    rows.finish()
}
