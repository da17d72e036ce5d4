//! `doctor`: what about a machine or a running broker will hurt one day, each with the command that helps.

mod broker;
mod cluster;
mod here;
mod histogram;
mod limits;

use std::path::PathBuf;

use crate::admin::AdminArgs;
use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows, note};

/// Look for what will hurt one day: disk, limits, file system, credentials, versions; exit code 1 when something will
///
/// Without a folder it asks the broker that answers at --admin. With --config or --data-dir it looks at this machine and
/// needs no broker: before the first start, or when a node does not start.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Look at this machine, as a node with this configuration would find it
    #[arg(long, env = "MORTARMQ_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Look at this machine, as a node with its data in this folder would find it
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    rows: RowArgs,
}

/// What was looked at, and what was found.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    check: &'static str,
    state: State,
    detail: String,
    /// What to type; nothing where all is well.
    command: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ok,
    /// It will hurt.
    Finding,
    /// It could not be looked at.
    Unknown,
}

impl Row {
    fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self { check, state: State::Ok, detail: detail.into(), command: None }
    }

    fn finding(check: &'static str, detail: impl Into<String>, command: impl Into<String>) -> Self {
        Self { check, state: State::Finding, detail: detail.into(), command: Some(command.into()) }
    }

    fn unknown(check: &'static str, detail: impl Into<String>, command: impl Into<String>) -> Self {
        Self { check, state: State::Unknown, detail: detail.into(), command: Some(command.into()) }
    }

    fn cells(self) -> Vec<Cell> {
        let state = match self.state {
            State::Ok => "ok",
            State::Finding => "finding",
            State::Unknown => "unknown",
        };
        vec![
            Cell::Text(self.check.to_owned()),
            Cell::Text(state.to_owned()),
            Cell::Text(self.detail),
            Cell::text(self.command.as_deref()),
        ]
    }
}

/// Prints a row for each check on stdout, and how many findings there are on stderr.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let found = if args.config.is_some() || args.data_dir.is_some() {
        here::examine(args.config.as_deref(), args.data_dir.as_deref())?
    } else {
        broker::examine(&args.admin)?
    };
    let findings = found.iter().filter(|row| row.state == State::Finding).count();
    let mut rows = Rows::listed(COLUMNS, args.rows);
    for row in found {
        rows.push(row.cells())?;
    }
    rows.finish()?;
    note(match findings {
        0 => "nothing found".to_owned(),
        1 => "1 finding".to_owned(),
        more => format!("{more} findings"),
    });
    if findings == 0 { Ok(()) } else { Err(Failure::Verdict) }
}

const COLUMNS: &[&str] = &["check", "state", "detail", "command"];
