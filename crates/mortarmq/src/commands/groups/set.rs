//! `groups set TOPIC/GROUP KEY=VALUE …`.

use super::{PathName, path_name};
use crate::admin::{Admin, AdminArgs, Route};
use crate::errors::Failure;
use crate::output::RowArgs;
use crate::settings::{self, Changed, Setting};

/// Change settings of a group, for all that happens from then on
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The group
    #[arg(value_name = "TOPIC/GROUP", value_parser = path_name)]
    path: PathName,
    /// What to change
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = settings::parse)]
    settings: Vec<Setting>,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    rows: RowArgs,
}

/// Prints the settings that were given, as they are now.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let PathName { topic, group } = &args.path;
    let route = Route { path: &["v1", "topics", topic, "groups", group], query: &[] };
    let body = settings::to_object(&args.settings);
    let changed: Changed = Admin::new(&args.admin)?.patch_of_topic(topic, route, &body)?;
    changed.print(&args.settings, args.rows)
}
