//! What `dlq redrive` and `dlq purge` share: which dead letters are meant, and what became of them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use crate::admin::{Admin, AdminArgs, Route};
use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows, note};

/// Which dead letters are meant, and how fast it goes.
#[derive(Debug, clap::Args)]
pub(super) struct SettleArgs {
    /// The topic they come from
    topic: String,
    /// Only this partition
    #[arg(long, value_name = "N")]
    partition: Option<u16>,
    /// Only this one, by its sequence in the dead-letter topic; may be repeated
    #[arg(long = "sequence", value_name = "SEQ")]
    sequences: Vec<u64>,
    /// Only those that died for this reason: lease_expired, nacked, consumer_lost or rejected
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,
    /// At most so many
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// At most so many per second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Only count them
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    rows: RowArgs,
}

#[derive(Deserialize)]
struct Settled {
    matched: u64,
    done: u64,
    #[serde(default)]
    refused: BTreeMap<String, u64>,
}

impl SettleArgs {
    /// Asks for it, and prints how many were meant, how many are done, and how many stay. Fails if some stay.
    pub(super) fn run(&self, action: &str) -> Result<(), Failure> {
        let mut body = json!({ "action": action, "dry_run": self.dry_run });
        let mut add = |key: &str, value: Option<serde_json::Value>| {
            if let Some(value) = value {
                body[key] = value;
            }
        };
        add("partition", self.partition.map(Into::into));
        add("sequences", (!self.sequences.is_empty()).then(|| json!(self.sequences)));
        add("reason", self.reason.clone().map(Into::into));
        add("limit", self.limit.map(Into::into));
        add("rate", self.rate.map(Into::into));
        let route = Route { path: &["v1", "topics", &self.topic, "dlq"], query: &[] };
        let settled: Settled = Admin::patient(&self.admin)?.post_of_topic(&self.topic, route, &body)?;
        let stay: u64 = settled.refused.values().sum();
        let mut rows = Rows::listed(&["matched", "done", "refused"], self.rows);
        rows.push([settled.matched, settled.done, stay].map(Cell::Number).into())?;
        rows.finish()?;
        let Some(reason) = settled.refused.keys().next() else { return Ok(()) };
        let told: Vec<String> = settled.refused.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        let would = if self.dry_run { "would stay" } else { "stay" };
        let what = format!("{stay} of {} dead letters {would}: {}", settled.matched, told.join(", "));
        if self.dry_run {
            note(what);
            return Ok(());
        }
        Err(Failure::refused(what, remedy(reason, &self.topic)))
    }
}

/// What to do about dead letters that stay, by the first of the reasons.
fn remedy(reason: &str, topic: &str) -> String {
    match reason {
        "full" => "let its consumers settle some of what they have, then repeat".to_owned(),
        "group_gone" => format!("no group owes them any more; drop them: mortarmq dlq purge {topic} --sequence SEQ"),
        "leased" => format!("a consumer of $dlq.{topic} holds them: repeat when it is done"),
        "moving" => "a purge or seek goes on: repeat when it is done".to_owned(),
        "unreadable" => format!("their records are damaged; drop them: mortarmq dlq purge {topic} --sequence SEQ"),
        "unsettled" => "an earlier redrive of them is not settled yet: repeat when their consumers are done".to_owned(),
        // Settled, or never there.
        _ => format!("see what there is: mortarmq dlq list {topic}"),
    }
}
