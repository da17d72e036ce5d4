//! `balance [TOPIC]`: the books of every path, at one commit index (P9).

use mortarmq_history::{Balance as EndBalance, Counters, End, Record};
use serde::Deserialize;

use crate::admin::{Admin, AdminArgs, Route};
use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows, note};

/// Show the books of every path; exit code 1 when they do not balance
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this topic
    topic: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    rows: RowArgs,
}

/// The books of all paths that were asked for.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Balance {
    /// The last command the answer rests on.
    pub(crate) commit_index: u64,
    /// The leader's term.
    pub(crate) epoch: u64,
    /// One row per path.
    pub(crate) paths: Vec<Books>,
    /// Topics that no group reads yet.
    #[serde(default)]
    pub(crate) without_group: Vec<WithoutGroup>,
}

/// The books of one path.
///
/// # Units
/// Messages.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Books {
    /// The topic's name.
    pub(crate) topic: String,
    /// The group's name.
    pub(crate) group: String,
    /// Messages the path owes or owed.
    pub(crate) produced: u64,
    /// Messages that were acked.
    pub(crate) delivered: u64,
    /// Messages that left by a stated rule.
    pub(crate) dropped: u64,
    /// Messages in the dead-letter topic.
    pub(crate) dlq: u64,
    /// Messages that are not settled.
    pub(crate) depth: u64,
}

/// A topic without a group.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct WithoutGroup {
    /// The topic's name.
    pub(crate) topic: String,
    /// Its messages.
    pub(crate) messages: u64,
}

impl Books {
    /// What the books lack or have too much; 0 when they balance.
    pub(crate) fn difference(&self) -> i64 {
        let right: i128 =
            [self.delivered, self.dropped, self.dlq, self.depth].iter().map(|count| i128::from(*count)).sum();
        let difference = i128::from(self.produced) - right;
        // Counters of different paths cannot be so far apart; a broken answer must not look balanced.
        i64::try_from(difference).unwrap_or(i64::MAX)
    }

    /// As a history has them.
    pub(crate) const fn counters(&self) -> Counters {
        Counters {
            produced: self.produced,
            delivered: self.delivered,
            dropped: self.dropped,
            dlq: self.dlq,
            depth: self.depth,
        }
    }
}

impl Balance {
    /// Asks a broker.
    pub(crate) fn ask(admin: &Admin, topic: Option<&str>) -> Result<Self, Failure> {
        let path = &["v1", "balance"];
        match topic {
            Some(name) => admin.get_of_topic(name, Route { path, query: &[("topic", name)] }),
            None => admin.get(Route { path, query: &[] }),
        }
    }

    /// How many paths do not balance.
    pub(crate) fn unbalanced(&self) -> usize {
        self.paths.iter().filter(|books| books.difference() != 0).count()
    }

    /// The end of a history whose paths were all read until they were empty.
    ///
    /// # Units
    /// `at_ns` is of the history's clock.
    pub(crate) fn end(&self, at_ns: u64) -> Record<'static> {
        let balance = self.paths.iter().map(|books| EndBalance {
            path: format!("{}/{}", books.topic, books.group).into(),
            counters: books.counters(),
        });
        Record::End(End { at: at_ns, drained: true, balance: balance.collect() })
    }

    /// The line below the rows.
    pub(crate) fn verdict(&self) -> String {
        match self.unbalanced() {
            0 => format!("books balance at commit index {} (epoch {})", self.commit_index, self.epoch),
            count => format!("{count} paths do not balance"),
        }
    }
}

/// Prints the books and the verdict.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let balance = Balance::ask(&Admin::new(&args.admin)?, args.topic.as_deref())?;
    print(&balance, args.rows)?;
    if balance.unbalanced() == 0 { Ok(()) } else { Err(Failure::Verdict) }
}

/// Prints the rows on stdout, the rest on stderr.
pub(crate) fn print(balance: &Balance, rows: RowArgs) -> Result<(), Failure> {
    let mut rows = Rows::listed(COLUMNS, rows);
    for books in &balance.paths {
        rows.push(row(books))?;
    }
    rows.finish()?;
    for topic in &balance.without_group {
        note(format_args!("{}: {} messages, no group yet", topic.topic, topic.messages));
    }
    note(balance.verdict());
    Ok(())
}

fn row(books: &Books) -> Vec<Cell> {
    vec![
        Cell::Text(books.topic.clone()),
        Cell::Text(books.group.clone()),
        Cell::Number(books.produced),
        Cell::Number(books.delivered),
        Cell::Number(books.dropped),
        Cell::Number(books.dlq),
        Cell::Number(books.depth),
        Cell::Signed(books.difference()),
    ]
}

const COLUMNS: &[&str] = &["topic", "group", "produced", "delivered", "dropped", "dlq", "depth", "difference"];

#[cfg(test)]
mod tests {
    use super::Balance;

    fn balance(delivered: u64) -> Balance {
        let books = serde_json::json!({"topic": "orders", "group": "billing", "produced": 10, "delivered": delivered,
            "dropped": 1, "dlq": 2, "depth": 3});
        let answer = serde_json::json!({"commit_index": 8123, "epoch": 3, "paths": [books]});
        serde_json::from_value(answer).expect("has all fields")
    }

    #[test]
    fn p9_difference_is_seen_in_both_directions() {
        assert_eq!(balance(4).verdict(), "books balance at commit index 8123 (epoch 3)");
        for (delivered, difference) in [(3, 1), (5, -1)] {
            let balance = balance(delivered);
            assert_eq!(balance.paths[0].difference(), difference);
            assert_eq!(balance.verdict(), "1 paths do not balance");
        }
        assert_ne!(balance(u64::MAX).paths[0].difference(), 0);
    }
}
