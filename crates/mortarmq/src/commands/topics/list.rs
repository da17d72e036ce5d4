//! `topics list`.

use mortarmq_client::TopicState;

use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows};
use crate::session::{self, ServerArgs};

/// List the topics
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    rows: RowArgs,
}

/// Prints one row per topic, by name.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    session::block_on_question(async {
        let client = args.server.connect().await?;
        let metadata = client.metadata(&[]).await.map_err(|error| session::failure(&error))?;
        let mut topics = metadata.topics;
        topics.sort_by(|left, right| left.name.cmp(&right.name));
        let mut rows = Rows::listed(&["name", "partitions", "state", "created_epoch"], args.rows);
        for topic in topics {
            let state = match topic.state {
                TopicState::Active => "active",
                TopicState::Deleting => "deleting",
            };
            rows.push(vec![
                Cell::Text(topic.name),
                Cell::Number(u64::from(topic.partitions)),
                Cell::Text(state.to_owned()),
                Cell::Number(topic.created_epoch.get()),
            ])?;
        }
        rows.finish()
    })
}
