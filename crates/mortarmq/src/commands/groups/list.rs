//! `groups list [TOPIC]`.

use serde::Deserialize;

use crate::admin::{Admin, AdminArgs, Route};
use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows};

/// List groups with what they have not settled
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only those of this topic
    topic: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    rows: RowArgs,
}

#[derive(Deserialize)]
struct Stats {
    topics: Vec<Topic>,
}

#[derive(Deserialize)]
struct Topic {
    topic: String,
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    group: String,
    depth: u64,
    state: String,
}

/// Prints a row per group.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let (admin, path) = (Admin::new(&args.admin)?, &["stats"]);
    let stats: Stats = match &args.topic {
        Some(topic) => admin.get_of_topic(topic, Route { path, query: &[("topic", topic)] })?,
        None => admin.get(Route { path, query: &[] })?,
    };
    let mut rows = Rows::listed(&["group", "topic", "lag", "state"], args.rows);
    for topic in stats.topics {
        for group in topic.groups {
            rows.push(vec![
                Cell::Text(group.group),
                Cell::Text(topic.topic.clone()),
                Cell::Number(group.depth),
                Cell::Text(group.state),
            ])?;
        }
    }
    rows.finish()
}
