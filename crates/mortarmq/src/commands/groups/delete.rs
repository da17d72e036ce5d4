//! `groups delete TOPIC/GROUP`.

use super::{Moved, PathName, path_name};
use crate::admin::{Admin, AdminArgs, Route};
use crate::errors::Failure;
use crate::output::RowArgs;

/// Delete a group; what it has not settled is dropped
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The group
    #[arg(value_name = "TOPIC/GROUP", value_parser = path_name)]
    path: PathName,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    rows: RowArgs,
}

/// Prints how much was dropped.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let PathName { topic, group } = &args.path;
    let route = Route { path: &["v1", "topics", topic, "groups", group], query: &[] };
    let moved: Moved = Admin::new(&args.admin)?.delete_of_topic(topic, route)?;
    moved.print(args.rows)
}
