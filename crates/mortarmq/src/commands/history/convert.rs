//! `history convert IN OUT`.

use std::path::{Path, PathBuf};

use mortarmq_history::{Options, Recorder};

use super::{each_line, open, unwritable};
use crate::errors::Failure;
use crate::output::{grouped, note};

/// Write a history in this format, packed as the name of the new file says (.zst, .gz, or plain)
///
/// Reads plain, zstd and gzip files, and Narad's. Lines that cannot be read are named and left out.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The history to read
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// The file to write; one that is there is replaced
    #[arg(value_name = "OUT")]
    output: PathBuf,
}

/// Reads, writes, and says how much.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if is_same_file(&args.input, &args.output) {
        let what = format!("{} would be replaced while it is read", args.input.display());
        return Err(Failure::arguments(what, "name another file to write"));
    }
    let mut reader = open(std::slice::from_ref(&args.input))?;
    let recorder = Recorder::create(&args.output, Options::default()).map_err(|error| unwritable(&error))?;
    each_line(&mut reader, |line| {
        if let Ok(record) = &line.content {
            recorder.record(record);
        }
        Ok(())
    })?;
    recorder.finish().map_err(|error| unwritable(&error))?;
    note(format_args!("{} records in {}", grouped(reader.counts().records), args.output.display()));
    Ok(())
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}
