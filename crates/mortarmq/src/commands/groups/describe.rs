//! `groups describe TOPIC/GROUP`: a row per member.

use serde::Deserialize;

use super::{PathName, path_name};
use crate::admin::{Admin, AdminArgs, Route};
use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows};

/// Show a group's members and what it has not settled
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

#[derive(Deserialize)]
struct Group {
    depth: u64,
    members: Vec<Member>,
}

#[derive(Deserialize)]
struct Member {
    member: String,
}

/// Prints a row per member; one without a member if there is none. The members of a shared group are assigned nothing, so the
/// epochs of an assignment are absent; the lag is the group's.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let PathName { topic, group } = &args.path;
    let route = Route { path: &["v1", "topics", topic, "groups", group], query: &[] };
    let found: Group = Admin::new(&args.admin)?.get_of_topic(topic, route)?;
    let mut rows = Rows::listed(&["member", "assignment_epoch", "ownership_epoch", "lag"], args.rows);
    let mut members: Vec<Cell> = found.members.into_iter().map(|member| Cell::Text(member.member)).collect();
    if members.is_empty() {
        members.push(Cell::Absent);
    }
    for member in members {
        rows.push(vec![member, Cell::Absent, Cell::Absent, Cell::Number(found.depth)])?;
    }
    rows.finish()
}
