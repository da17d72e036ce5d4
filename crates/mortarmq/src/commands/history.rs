//! `history`: what `check` reads, made smaller, repacked and counted.

mod convert;
mod slice;
mod stats;

use std::path::PathBuf;

use mortarmq_history::{Limits, ReadError, ReadLine, Reader, RecordError};

use crate::errors::{Failure, chain};
use crate::output::{grouped, note};

/// Look at histories, repack them, cut out what matters
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Convert(convert::Args),
    Stats(stats::Args),
    Slice(slice::Args),
}

/// Carries out one of them.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Convert(args) => convert::run(args),
        Command::Stats(args) => stats::run(args),
        Command::Slice(args) => slice::run(args),
    }
}

/// Opens histories.
fn open(files: &[PathBuf]) -> Result<Reader, Failure> {
    Reader::open(files, Limits::default()).map_err(|error| unreadable(&error))
}

/// Hands over every line, names the first bad ones, and says at the end how many there were.
fn each_line(reader: &mut Reader, mut take: impl FnMut(&ReadLine<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut bad = Vec::new();
    while let Some(line) = reader.next_line().map_err(|error| unreadable(&error))? {
        if let Err(reason) = &line.content
            && bad.len() < BAD_LINES_SHOWN
        {
            bad.push((line.at, reason.to_string()));
        }
        take(&line)?;
    }
    for (at, reason) in &bad {
        note(format_args!("{}: {reason}", reader.name(*at)));
    }
    let counts = reader.counts();
    if counts.unreadable > bad.len() as u64 {
        note(format_args!("{} more lines are unreadable", grouped(counts.unreadable - bad.len() as u64)));
    }
    Ok(())
}

fn unreadable(error: &ReadError) -> Failure {
    Failure::local(chain(error), "check the name and the rights of the file")
}

fn unwritable(error: &RecordError) -> Failure {
    Failure::local(chain(error), "check the folder and its free space; what was written so far is no whole history")
}

/// Enough to see what is wrong with a file.
const BAD_LINES_SHOWN: usize = 10;
