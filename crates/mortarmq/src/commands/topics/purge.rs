//! `topics purge TOPIC [--group G]`.

use serde::Deserialize;
use serde_json::json;

use crate::admin::{Admin, AdminArgs, Route};
use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows};

/// Drop all that the groups of a topic have not settled, or one of them
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Its name
    topic: String,
    /// Only this group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    rows: RowArgs,
}

#[derive(Deserialize)]
struct Purged {
    dropped: u64,
}

/// Prints how much was dropped.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let route = Route { path: &["v1", "topics", &args.topic, "purge"], query: &[] };
    let body = json!({ "group": args.group });
    let purged: Purged = Admin::new(&args.admin)?.post_of_topic(&args.topic, route, &body)?;
    let mut rows = Rows::listed(&["dropped"], args.rows);
    rows.push(vec![Cell::Number(purged.dropped)])?;
    rows.finish()
}
