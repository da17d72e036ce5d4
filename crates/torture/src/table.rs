//! What is printed: a line for each run, a table at the end, and the list of scenarios.

use std::fmt::Write as _;
use std::time::Duration;

use crate::load::Counts;
use crate::scenario::Scenario;

/// What came of one run.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The scenario.
    pub name: &'static str,
    /// Faults that were begun.
    pub faults: u64,
    /// What the clients saw.
    pub counts: Counts,
    /// The longest time without a confirmed publish.
    pub silence: Duration,
    /// How long it took.
    pub took: Duration,
    /// One word or more.
    pub verdict: Verdict,
}

/// What is said of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything held.
    Ok,
    /// Something did not: what.
    Failed(String),
    /// Something did not that is known: what is known, and what was seen.
    KnownFailure(&'static str, String),
    /// It was not run: what this machine lacks.
    Skipped(String),
}

impl Verdict {
    /// What the table shows.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Failed(_) => "FAILED",
            Self::KnownFailure(_, _) => "KNOWN FAILURE",
            Self::Skipped(_) => "skipped",
        }
    }

    /// Why, where there is something to say.
    #[must_use]
    pub fn why(&self) -> Option<String> {
        match self {
            Self::Ok => None,
            Self::Failed(why) | Self::Skipped(why) => Some(why.clone()),
            Self::KnownFailure(known, why) => Some(format!("{known}; seen: {why}")),
        }
    }
}

/// The line of one run.
#[must_use]
pub fn line(ended: &Ended, round: u32, rounds: u32) -> String {
    let mut line = format!("{} {round}/{rounds}: {}", ended.name, ended.verdict.word());
    if !matches!(ended.verdict, Verdict::Skipped(_)) {
        let Counts { publishes, deliveries, acks } = ended.counts;
        let _ = write!(
            line,
            ", {} faults, {} published, {} delivered, {} acked, longest silence {}, {:.0} s",
            ended.faults,
            grouped(publishes),
            grouped(deliveries),
            grouped(acks),
            seconds(ended.silence),
            ended.took.as_secs_f64()
        );
    }
    if let Some(why) = ended.verdict.why() {
        let _ = write!(line, ": {why}");
    }
    line
}

/// The table of all runs, a row for each scenario: counts are sums, the silence is the longest, the verdict is the worst.
#[must_use]
pub fn table(runs: &[Ended]) -> String {
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    let mut names: Vec<&str> = runs.iter().map(|run| run.name).collect();
    names.dedup();
    for name in names {
        let runs: Vec<&Ended> = runs.iter().filter(|run| run.name == name).collect();
        let sum = |of: fn(&Ended) -> u64| grouped(runs.iter().map(|run| of(run)).sum());
        let silence = runs.iter().map(|run| run.silence).max().unwrap_or_default();
        let worst = runs.iter().map(|run| &run.verdict).max_by_key(|verdict| rank(verdict));
        rows.push([
            name.to_owned(),
            runs.len().to_string(),
            sum(|run| run.faults),
            sum(|run| run.counts.publishes),
            sum(|run| run.counts.deliveries),
            sum(|run| run.counts.acks),
            seconds(silence),
            worst.map_or("", Verdict::word).to_owned(),
        ]);
    }
    aligned(&rows)
}

/// The scenarios as a table of Markdown, as docs/torture.md has it.
#[must_use]
pub fn markdown(scenarios: &[Scenario]) -> String {
    let mut text = "| scenario | class | what happens | what must hold |\n|---|---|---|---|\n".to_owned();
    for Scenario { name, class, what, holds, .. } in scenarios {
        let _ = writeln!(text, "| `{name}` | {} | {what} | {holds} |", class.word());
    }
    text
}

/// The scenarios for a reader at a terminal.
#[must_use]
pub fn list(scenarios: &[Scenario]) -> String {
    let mut text = String::new();
    for Scenario { name, class, what, holds, is_short, known, ground, .. } in scenarios {
        let short = if *is_short { ", short share" } else { "" };
        let _ = writeln!(text, "{name} ({}{short})\n    {what}\n    holds: {holds}", class.word());
        if let Some(known) = known {
            let _ = writeln!(text, "    known failure: {known}");
        }
        if let Some(missing) = ground.missing() {
            let _ = writeln!(text, "    not here: {missing}");
        }
    }
    text
}

fn rank(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Ok => 0,
        Verdict::Skipped(_) => 1,
        Verdict::KnownFailure(_, _) => 2,
        Verdict::Failed(_) => 3,
    }
}

/// The first column to the left, figures to the right.
fn aligned(rows: &[[String; COLUMNS.len()]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let mut text = String::new();
    for row in rows {
        let last = row.len() - 1;
        for (column, cell) in row.iter().enumerate() {
            let width = width(column);
            let _ = match column {
                0 => write!(text, "{cell:<width$}"),
                _ if column == last => write!(text, "  {cell}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.push('\n');
    }
    text
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// The columns of the table.
pub const COLUMNS: [&str; 8] =
    ["scenario", "rounds", "faults", "published", "delivered", "acked", "longest silence", "verdict"];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Ended, Verdict, grouped, line, table};
    use crate::load::Counts;

    fn ended(name: &'static str, publishes: u64, verdict: Verdict) -> Ended {
        let counts = Counts { publishes, deliveries: 2 * publishes, acks: 1 };
        let (silence, took) = (Duration::from_millis(1_240), Duration::from_secs(9));
        Ended { name, faults: 3, counts, silence, took, verdict }
    }

    #[test]
    fn a_row_sums_its_rounds_and_shows_the_worst_verdict() {
        let runs = [
            ended("kill-leader", 1_000, Verdict::Ok),
            ended("kill-leader", 234, Verdict::Failed("lost".to_owned())),
            ended("net-ring", 5, Verdict::Ok),
        ];
        let expected = "\
scenario     rounds  faults  published  delivered  acked  longest silence  verdict
kill-leader       2       6      1,234      2,468      2            1.2 s  FAILED
net-ring          1       3          5         10      1            1.2 s  OK
";
        assert_eq!(table(&runs), expected);
    }

    #[test]
    fn a_line_says_why_a_run_is_not_ok() {
        let failed = ended("kill-leader", 1_000, Verdict::Failed("P1: lost".to_owned()));
        assert_eq!(
            line(&failed, 2, 3),
            "kill-leader 2/3: FAILED, 3 faults, 1,000 published, 2,000 delivered, 1 acked, longest silence 1.2 s, 9 s: P1: lost"
        );
        let skipped = ended("net-ring", 0, Verdict::Skipped("needs nft".to_owned()));
        assert_eq!(line(&skipped, 1, 1), "net-ring 1/1: skipped: needs nft");
    }

    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
