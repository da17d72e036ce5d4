//! `defaults`: the initial values of the cluster, shown and changed.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::admin::{Admin, AdminArgs, Route};
use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows};
use crate::settings::{self, Setting};

/// Show and set what topics, groups and the cluster begin with
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show every initial value
    Show(ShowArgs),
    /// Change initial values, for what is made from then on
    Set(SetArgs),
}

/// Arguments of `defaults show`.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    rows: RowArgs,
}

/// Arguments of `defaults set`.
#[derive(Debug, clap::Args)]
pub(crate) struct SetArgs {
    /// What to change
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = settings::parse)]
    values: Vec<Setting>,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    rows: RowArgs,
}

#[derive(Deserialize)]
struct Defaults {
    defaults: Map<String, Value>,
}

const ROUTE: Route<'_> = Route { path: &["v1", "defaults"], query: &[] };

/// Carries out the subcommand: rows of two columns, setting and value.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Show(args) => {
            let found: Defaults = Admin::new(&args.admin)?.get(ROUTE)?;
            print(&found, |_| true, args.rows)
        }
        Command::Set(args) => {
            let body = settings::to_object(&args.values);
            let found: Defaults = Admin::new(&args.admin)?.patch(ROUTE, &body)?;
            print(&found, |key| body.get(key).is_some(), args.rows)
        }
    }
}

fn print(found: &Defaults, is_shown: impl Fn(&str) -> bool, args: RowArgs) -> Result<(), Failure> {
    let mut rows = Rows::listed(&["setting", "value"], args);
    for (key, value) in found.defaults.iter().filter(|(key, _)| is_shown(key)) {
        rows.push(vec![Cell::Text(key.clone()), Cell::json(value)])?;
    }
    rows.finish()
}
