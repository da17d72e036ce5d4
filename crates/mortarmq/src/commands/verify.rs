//! `verify DATA_DIR`: reads all that a stopped node keeps, and names what is damaged (P11).

use std::path::PathBuf;

use mortarmq_server::{DirectoryLock, Finding, LockError, RealDisk, Summary, VerifyError};

use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows, grouped, note};

/// Read everything in a data folder that no node uses, and name what is damaged; exit code 1 when something is
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The data folder; nothing in it is changed
    data_dir: PathBuf,
    #[command(flatten)]
    rows: RowArgs,
}

/// Prints a row for each damage on stdout; what a crash leaves and a start puts right is told on stderr.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let _lock = DirectoryLock::acquire_existing(&args.data_dir).map_err(|error| not_locked(&error))?;
    let mut rows = Rows::streamed(COLUMNS, args.rows);
    let mut printed = Ok(());
    let mut on_finding = |finding: Finding| {
        if !finding.is_damage {
            note(format_args!("note: {} at offset {}: {}", finding.path.display(), finding.offset, finding.what));
        } else if printed.is_ok() {
            printed = rows.push(row(&finding));
        }
    };
    let summary = mortarmq_server::verify(&RealDisk, &args.data_dir, &mut on_finding).map_err(not_read)?;
    printed?;
    rows.finish()?;
    note(verdict(&summary));
    if summary.damages == 0 { Ok(()) } else { Err(Failure::Verdict) }
}

fn row(finding: &Finding) -> Vec<Cell> {
    vec![Cell::Text(finding.path.display().to_string()), Cell::Number(finding.offset), Cell::Text(finding.what.clone())]
}

fn verdict(summary: &Summary) -> String {
    let Summary { files, bytes, damages, notes } = *summary;
    let damages = match damages {
        0 => "no damage".to_owned(),
        1 => "1 damage".to_owned(),
        more => format!("{} damages", grouped(more)),
    };
    let notes = match notes {
        0 => String::new(),
        1 => ", 1 note".to_owned(),
        more => format!(", {} notes", grouped(more)),
    };
    format!("read {} files, {} bytes: {damages}{notes}", grouped(files), grouped(bytes))
}

fn not_locked(error: &LockError) -> Failure {
    match error {
        LockError::InUse { .. } => Failure::local(
            error.to_string(),
            "stop the node first, or verify a copy of the folder that was made while no node used it",
        ),
        LockError::Io { source, .. } => {
            Failure::local(format!("{error}: {source}"), "run it as the user that the node runs as")
        }
    }
}

fn not_read(error: VerifyError) -> Failure {
    match error {
        VerifyError::NoData { .. } => {
            Failure::arguments(error.to_string(), "give the folder that serve was given with --data-dir")
        }
        VerifyError::Io { ref source, .. } => {
            Failure::local(format!("{error}: {source}"), "run it as the user that the node runs as")
        }
    }
}

const COLUMNS: &[&str] = &["file", "offset", "what"];

#[cfg(test)]
mod tests {
    use mortarmq_server::Summary;

    use super::verdict;

    #[test]
    fn verdict_counts_damages_and_notes_apart() {
        let summary = |damages, notes| Summary { files: 12, bytes: 4_321_000, damages, notes };
        assert_eq!(verdict(&summary(0, 0)), "read 12 files, 4,321,000 bytes: no damage");
        assert_eq!(verdict(&summary(1, 2)), "read 12 files, 4,321,000 bytes: 1 damage, 2 notes");
        assert_eq!(verdict(&summary(3, 1)), "read 12 files, 4,321,000 bytes: 3 damages, 1 note");
    }
}
