//! Reading dead letters from the operator routes: what `list` and `peek` share.

use serde::Deserialize;

use crate::admin::{Admin, AdminArgs, Route};
use crate::commands::peek::{Message, partitions};
use crate::errors::Failure;
use crate::output::{Cell, RowArgs};

/// Which dead letters are read, and how they are shown.
#[derive(Debug, clap::Args)]
pub(super) struct LetterArgs {
    /// The topic they come from
    topic: String,
    /// Only this partition
    #[arg(long, value_name = "N")]
    partition: Option<u16>,
    /// The first sequence to show, in every partition of the dead-letter topic
    #[arg(long, value_name = "SEQ", default_value_t = 1)]
    from: u64,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    pub(super) rows: RowArgs,
}

/// What is told of a dead letter.
pub(super) const COLUMNS: [&str; 6] = ["partition", "sequence", "reason", "attempts", "origin", "error_text"];
/// As [`COLUMNS`], and its bytes.
pub(super) const COLUMNS_WITH_BYTES: [&str; 8] =
    ["partition", "sequence", "reason", "attempts", "origin", "error_text", "key", "value"];

#[derive(Deserialize)]
struct Letters {
    dead_letters: Vec<Letter>,
}

/// One dead letter.
#[derive(Deserialize)]
pub(super) struct Letter {
    reason: String,
    attempts: u64,
    origin: Origin,
    error: String,
    standing: String,
    pub(super) message: Message,
}

#[derive(Deserialize)]
struct Origin {
    path: String,
    partition: u16,
    sequence: u64,
}

impl LetterArgs {
    /// Hands over every dead letter that is not settled, partition by partition.
    pub(super) fn each(&self, mut take: impl FnMut(&Letter) -> Result<(), Failure>) -> Result<(), Failure> {
        let admin = Admin::new(&self.admin)?;
        for partition in partitions(&admin, &self.topic, self.partition)? {
            let number = partition.to_string();
            let mut next = self.from.max(1);
            loop {
                let from = next.to_string();
                let query = &[("partition", number.as_str()), ("from", from.as_str()), ("max", MAX_PER_QUESTION)];
                let route = Route { path: &["v1", "topics", &self.topic, "dlq"], query };
                let found: Letters = admin.get_of_topic(&self.topic, route)?;
                let Some(last) = found.dead_letters.last() else { break };
                next = last.message.sequence.saturating_add(1);
                for letter in found.dead_letters.iter().filter(|letter| letter.standing != SETTLED) {
                    take(letter)?;
                }
            }
        }
        Ok(())
    }
}

impl Letter {
    /// The cells of [`COLUMNS`]; the origin is told as the path and `PARTITION:SEQ`.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let origin = format!("{} {}:{}", self.origin.path, self.origin.partition, self.origin.sequence);
        vec![
            Cell::Number(u64::from(self.message.partition)),
            Cell::Number(self.message.sequence),
            Cell::Text(self.reason.clone()),
            Cell::Number(self.attempts),
            Cell::Text(origin),
            Cell::Text(self.error.clone()),
        ]
    }
}

/// How the broker tells of one that is acked, redriven or purged.
const SETTLED: &str = "settled";
/// Few enough that one answer stays small with messages of the default size.
const MAX_PER_QUESTION: &str = "100";
