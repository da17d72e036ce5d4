//! `topics set NAME KEY=VALUE …`.

use crate::admin::{Admin, AdminArgs, Route};
use crate::errors::Failure;
use crate::output::RowArgs;
use crate::settings::{self, Changed, Setting};

/// Change settings of a topic, or the defaults of groups that it gets later
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Its name
    name: String,
    /// What to change; partitions only grows
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = settings::parse)]
    settings: Vec<Setting>,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    rows: RowArgs,
}

/// Prints the settings that were given, as they are now.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let route = Route { path: &["v1", "topics", &args.name], query: &[] };
    let body = settings::to_object(&args.settings);
    let changed: Changed = Admin::new(&args.admin)?.patch_of_topic(&args.name, route, &body)?;
    changed.print(&args.settings, args.rows)
}
