//! `leader get` and `leader transfer`: who leads, under which epoch, with which quorum; and another node instead.

use serde::Deserialize;

use crate::admin::{Admin, AdminArgs, Route};
use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows, note};

/// Ask who leads, or let another node lead
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show the leading node, its epoch and the state of the quorum; any node of a cluster can be asked
    Get(GetArgs),
    /// Let another node lead, and wait until it does; any node of a cluster can be asked
    Transfer(TransferArgs),
}

/// Arguments of `leader get`.
#[derive(Debug, clap::Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    rows: RowArgs,
}

/// Arguments of `leader transfer`.
#[derive(Debug, clap::Args)]
pub(crate) struct TransferArgs {
    /// The node that is to lead
    #[arg(value_name = "ID")]
    to: u16,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    rows: RowArgs,
}

/// Who leads.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Leader {
    /// The node; none if none is known.
    pub(crate) leader_id: Option<u16>,
    /// Its term.
    pub(crate) leader_epoch: u64,
    /// 0 healthy, 1 soft, 2 read-only.
    quorum_state: u8,
}

impl Leader {
    /// Where a node tells.
    pub(crate) const ROUTE: Route<'static> = Route { path: &["v1", "cluster", "leader"], query: &[] };

    fn print(self, rows: RowArgs) -> Result<(), Failure> {
        let mut rows = Rows::listed(&["leader_id", "leader_epoch", "quorum_state"], rows);
        rows.push(vec![
            Cell::number(self.leader_id.map(u64::from)),
            Cell::Number(self.leader_epoch),
            Cell::Number(u64::from(self.quorum_state)),
        ])?;
        rows.finish()
    }
}

/// Carries out the subcommand.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Get(args) => Admin::new(&args.admin)?.get::<Leader>(Leader::ROUTE)?.print(args.rows),
        Command::Transfer(args) => transfer(args),
    }
}

fn transfer(args: &TransferArgs) -> Result<(), Failure> {
    let route = Route { path: &["v1", "cluster", "leader", "transfer"], query: &[] };
    let body = serde_json::json!({ "to": args.to });
    let leader: Leader = Admin::new(&args.admin)?.post(route, &body, REMEDY)?;
    leader.print(args.rows)?;
    note(format_args!("node {} leads", args.to));
    Ok(())
}

const REMEDY: &str = "see who leads and how the others follow: mortarmq leader get, mortarmq broker status";
