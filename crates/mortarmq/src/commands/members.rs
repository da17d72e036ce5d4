//! `members list` and `members readmit`: who belongs to the cluster, and a node whose data is gone comes back.

use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::admin::{Admin, AdminArgs, Route};
use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows, note};

/// Look at the nodes of the cluster, or take one back whose data is gone
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show every member: which life of its data it is, its role, whether it is reached, how far it is behind; any node can be asked
    List(ListArgs),
    /// Take a node back that was started with an empty data folder, and wait until it votes; any node can be asked
    Readmit(ReadmitArgs),
}

/// Arguments of `members list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    rows: RowArgs,
}

/// Arguments of `members readmit`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReadmitArgs {
    /// The node
    #[arg(value_name = "ID")]
    id: u16,
    /// Do not wait until it votes: it is brought up all the same
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    rows: RowArgs,
}

/// The members of the cluster. A node of another version may not tell everything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Members {
    members: Vec<Member>,
    asking: Vec<Asking>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Member {
    id: u16,
    incarnation: u32,
    role: String,
    leader: bool,
    /// As the list of members says it, and as an answer to a readmission does.
    leads: bool,
    status: String,
    reached: bool,
    state: Option<String>,
    lag_entries: Option<u64>,
    lag_bytes: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
struct Asking {
    id: u16,
}

impl Members {
    const ROUTE: Route<'static> = Route { path: &["v1", "cluster", "members"], query: &[] };

    fn print(&self, args: RowArgs) -> Result<(), Failure> {
        let mut rows = Rows::listed(COLUMNS, args);
        for member in &self.members {
            let is_reached = member.reached || member.status == "alive";
            let role = if member.leader || member.leads { "leader" } else { &member.role };
            rows.push(vec![
                Cell::Number(u64::from(member.id)),
                Cell::Number(u64::from(member.incarnation)),
                Cell::Text(role.to_owned()),
                Cell::Text(if is_reached { "yes" } else { "no" }.to_owned()),
                Cell::text(member.state.as_deref()),
                Cell::number(member.lag_entries),
                Cell::number(member.lag_bytes),
            ])?;
        }
        rows.finish()?;
        for Asking { id } in &self.asking {
            note(format_args!("node {id} has no data and waits to be readmitted: mortarmq members readmit {id}"));
        }
        Ok(())
    }

    fn role(&self, id: u16) -> Option<&str> {
        self.members.iter().find(|member| member.id == id).map(|member| member.role.as_str())
    }
}

/// Carries out the subcommand.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::List(args) => Admin::new(&args.admin)?.get::<Members>(Members::ROUTE)?.print(args.rows),
        Command::Readmit(args) => readmit(args),
    }
}

fn readmit(args: &ReadmitArgs) -> Result<(), Failure> {
    let (id, admin) = (args.id.to_string(), Admin::new(&args.admin)?);
    let route = Route { path: &["v1", "cluster", "members", &id, "readmit"], query: &[] };
    let mut members: Members = admin.post(route, &serde_json::json!({}), REMEDY)?;
    if args.no_wait {
        members.print(args.rows)?;
        note(format_args!("node {id} was admitted; it votes once it has what the others have: mortarmq members list"));
        return Ok(());
    }
    note(format_args!("node {id} was admitted, and is brought up by the others"));
    let mut heard = Instant::now();
    // For as long as that takes: it goes on without this command.
    while members.role(args.id) != Some("voter") {
        std::thread::sleep(LOOK_PAUSE);
        match admin.get(Members::ROUTE) {
            Ok(found) => (members, heard) = (found, Instant::now()),
            // While the office changes hands nobody can tell.
            Err(failure) if heard.elapsed() > PATIENCE => return Err(failure),
            Err(_) => {}
        }
    }
    members.print(args.rows)?;
    note(format_args!("node {id} votes again, and every other voter knows it"));
    Ok(())
}

const COLUMNS: &[&str] = &["id", "incarnation", "role", "reached", "state", "lag_entries", "lag_bytes"];
const REMEDY: &str = "see the members and who asks to be readmitted: mortarmq members list";
const LOOK_PAUSE: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(15);
