//! `groups seek TOPIC/GROUP --to PLACE`.

use serde_json::{Value, json};

use super::{Moved, PathName, path_name};
use crate::admin::{Admin, AdminArgs, Route};
use crate::errors::Failure;
use crate::output::RowArgs;

/// Let a group go on from another place: backwards replays, forwards drops
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The group
    #[arg(value_name = "TOPIC/GROUP", value_parser = path_name)]
    path: PathName,
    /// Where to: earliest, latest, PARTITION:SEQ, or a time in milliseconds since 1970
    #[arg(long, value_name = "PLACE", value_parser = place)]
    to: Value,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    rows: RowArgs,
}

/// Prints how many messages come once more, and how many were dropped.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let PathName { topic, group } = &args.path;
    let route = Route { path: &["v1", "topics", topic, "groups", group, "seek"], query: &[] };
    let moved: Moved = Admin::new(&args.admin)?.post_of_topic(topic, route, &args.to)?;
    moved.print(args.rows)
}

/// Reads a place into the body of the request.
fn place(text: &str) -> Result<Value, String> {
    if matches!(text, "earliest" | "latest") {
        return Ok(json!({ "to": text }));
    }
    if let Some((partition, sequence)) = text.split_once(':')
        && let (Ok(partition), Ok(sequence)) = (partition.parse::<u16>(), sequence.parse::<u64>())
        && sequence > 0
    {
        return Ok(json!({ "partition": partition, "sequence": sequence }));
    }
    match text.parse::<u64>() {
        Ok(time_ms) => Ok(json!({ "time_ms": time_ms })),
        Err(_) => Err("write earliest, latest, PARTITION:SEQ (0:41), or milliseconds since 1970".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn a_place_is_a_word_a_message_or_a_time() {
        let text = |place_text: &str| place(place_text).expect("a place").to_string();
        assert_eq!(text("earliest"), r#"{"to":"earliest"}"#);
        assert_eq!(text("latest"), r#"{"to":"latest"}"#);
        assert_eq!(text("3:41"), r#"{"partition":3,"sequence":41}"#);
        assert_eq!(text("1700000000000"), r#"{"time_ms":1700000000000}"#);
        for wrong in ["", "first", "0:0", "0:", ":1", "65536:1", "-1", "1:2:3", "0:x"] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }
}
