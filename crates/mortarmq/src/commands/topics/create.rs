//! `topics create NAME`.

use mortarmq_client::{Client, ErrorCode, TopicOptions};

use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows};
use crate::session::{self, ServerArgs};
use crate::settings::{self, Setting};

/// Make a topic
///
/// Making one that exists with the same settings is no error. Settings that are not given are not compared.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Its name
    name: String,
    /// How many partitions; the cluster's default if not given
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    partitions: u16,
    /// A setting of the topic, or a default of its groups
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = settings::parse)]
    settings: Vec<Setting>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    rows: RowArgs,
}

/// Prints what became of it, and the topic's id.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    session::block_on_question(async {
        let client = args.server.connect().await?;
        let options = TopicOptions { partitions: args.partitions, options_json: settings::to_json(&args.settings) };
        let declared = client.declare_topic(&args.name, options).await;
        let (word, id, failure) = match declared {
            Ok(topic) if topic.existed => ("existed", Some(topic.incarnation.to_hex()), None),
            Ok(topic) => ("created", Some(topic.incarnation.to_hex()), None),
            Err(error) if error.code() == Some(ErrorCode::TopicExistsMismatch) => {
                ("mismatch", id_of(&client, &args.name).await, Some(session::failure(&error)))
            }
            Err(error) => return Err(session::failure(&error)),
        };
        let mut rows = Rows::listed(&["result", "topic_id"], args.rows);
        rows.push(vec![Cell::Text(word.to_owned()), Cell::text(id.as_deref())])?;
        rows.finish()?;
        failure.map_or(Ok(()), Err)
    })
}

/// The id of the topic that is in the way. Names are compared as the server compares them, without regard to case.
async fn id_of(client: &Client, name: &str) -> Option<String> {
    let metadata = client.metadata(&[]).await.ok()?;
    let topic = metadata.topics.into_iter().find(|topic| topic.name.eq_ignore_ascii_case(name))?;
    Some(topic.incarnation.to_hex())
}
