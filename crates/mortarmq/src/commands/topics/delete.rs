//! `topics delete NAME`.

use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows};
use crate::session::{self, ServerArgs};

/// Delete a topic with all its messages
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Its name
    name: String,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    rows: RowArgs,
}

/// Prints whether there was something to delete.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    session::block_on_question(async {
        let client = args.server.connect().await?;
        let is_deleted = client.delete_topic(&args.name).await.map_err(|error| session::failure(&error))?;
        let mut rows = Rows::listed(&["result"], args.rows);
        rows.push(vec![Cell::Text(if is_deleted { "deleted" } else { "not_found" }.to_owned())])?;
        rows.finish()
    })
}
