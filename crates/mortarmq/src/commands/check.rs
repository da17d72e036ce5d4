//! `check HISTORY…`: judges what clients of any broker recorded.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use mortarmq_check::{AsText, Contract, Options, Progress, Report, as_html, as_json, check};
use mortarmq_history::{Limits, ReadError, Reader};

use crate::errors::{Failure, chain};
use crate::output::grouped;

/// Judge recorded histories of any broker: `verdict: X` first; exit code 1 unless it is OK or OVERDUE
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Histories: JSON Lines, plain, gzip or zstd; several files of one run are merged
    #[arg(required = true, value_name = "HISTORY")]
    histories: Vec<PathBuf>,
    /// Let no fault explain anything
    #[arg(long)]
    strict: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Write a page that shows each finding on a timeline
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The contract to judge by
    #[arg(long, value_enum, default_value_t = Which::Mortarmq)]
    contract: Which,
    /// How long after a fault it still explains a redelivery (500ms, 2s); the path's lease and 20 s unless given
    #[arg(long, value_parser = duration)]
    grace: Option<Duration>,
    /// The share of unfinished pairs up to which a run is OVERDUE, and STALLED beyond
    #[arg(long, value_name = "F", default_value_t = 0.5, value_parser = share)]
    max_overdue: f64,
    /// UNKNOWN with fewer publishes, deliveries and settles
    #[arg(long, value_name = "N", default_value_t = 1)]
    min_operations: u64,
    /// UNKNOWN when fault windows explain something and cover more of the run
    #[arg(long, value_name = "F", default_value_t = 0.5, value_parser = share)]
    max_fault_coverage: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Which {
    /// Nothing but an operator brings a settled message back
    Mortarmq,
    /// A settled message may come back around a fault
    Narad,
}

/// Prints the report; the exit code is the verdict's.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let open = || Reader::open(&args.histories, Limits::default());
    let mut progress = Shown::new();
    let report = check(&open, &options(args), &mut |now| progress.show(now)).map_err(|error| not_read(&error));
    progress.clear();
    let report = report?;
    print(args, &report)?;
    if let Some(file) = &args.html {
        std::fs::write(file, as_html(&report)).map_err(|error| {
            Failure::local(format!("cannot write {}: {error}", file.display()), "name a file that can be written")
        })?;
    }
    if report.verdict.is_success() { Ok(()) } else { Err(Failure::Verdict) }
}

fn options(args: &Args) -> Options {
    Options {
        contract: match args.contract {
            Which::Mortarmq => Contract::Mortarmq,
            Which::Narad => Contract::Narad,
        },
        is_strict: args.strict,
        grace_ns: args.grace.map(|grace| u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX)),
        max_overdue: args.max_overdue,
        min_operations: args.min_operations,
        max_fault_coverage: args.max_fault_coverage,
        ..Options::default()
    }
}

fn print(args: &Args, report: &Report) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    let printed = if args.json {
        let json = as_json(report).map_err(|error| {
            let what = format!("a history changed while it was read: {error}");
            Failure::local(what, "check it again when nobody writes it")
        })?;
        writeln!(stdout, "{json}")
    } else {
        write!(stdout, "{}", AsText(report))
    };
    printed.map_err(Failure::from_stdout)
}

fn not_read(error: &ReadError) -> Failure {
    Failure::local(chain(error), "give files that can be read, and read twice: a pipe cannot")
}

/// A line on a terminal that says how far the reading is.
struct Shown {
    is_terminal: bool,
    is_shown: bool,
}

impl Shown {
    fn new() -> Self {
        Self { is_terminal: std::io::stderr().is_terminal(), is_shown: false }
    }

    fn show(&mut self, now: Progress) {
        if !self.is_terminal {
            return;
        }
        self.is_shown = true;
        let what = if now.is_again { "reading again" } else { "reading" };
        let share = now.bytes_total.filter(|total| *total > 0).map(|total| now.bytes_read.saturating_mul(100) / total);
        let share = share.map_or(String::new(), |share| format!(", {share} %"));
        eprint!("\r\x1b[K{what}: {} records{share}", grouped(now.records));
    }

    fn clear(&self) {
        if self.is_shown {
            eprint!("\r\x1b[K");
        }
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("a share is a number from 0 to 1".to_owned()),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| "a duration is a number and a unit: 500ms, 2s, 1m".to_owned())?;
    let milliseconds = match &text[digits.len()..] {
        "ms" => Some(number),
        "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        _ => return Err("a duration ends in ms, s, m or h: 500ms, 2s".to_owned()),
    };
    milliseconds.map(Duration::from_millis).ok_or_else(|| "that is too long".to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{duration, share};

    #[test]
    fn durations_have_a_unit_and_shares_are_between_0_and_1() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2s"), Ok(Duration::from_secs(2)));
        for text in ["", "2", "s", "2x", "-1s", "99999999999999999999s", "18446744073709551615h"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert_eq!(share("0.25"), Ok(0.25));
        for text in ["", "x", "-0.1", "1.5", "NaN"] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}
