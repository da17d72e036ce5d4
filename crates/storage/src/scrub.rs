//! The scrub: reads again, in the background, what was written long ago, and names what is damaged.
//!
//! A pass reads the identity file, the newest checkpoint, and of every file that it lists the listed bytes, by the code
//! of [`crate::verify()`] (`checkpoint/walk.rs`, `segment/verify/walk.rs`). It works while a node uses the directory,
//! and changes nothing. What stands behind the listed bytes is not looked at: it is being written, and the journal has
//! it. The journal itself is read at every start.
//!
//! # Invariants
//! 1. Listed bytes never change while they are listed (`checkpoint/mod.rs`), so what differs is damage.
//! 2. A file that is gone is damage only if the newest checkpoint lists it: it goes only after a checkpoint without it
//!    has its name.

mod pass;

use std::path::PathBuf;
use std::sync::Arc;

use crate::disk::{Disk, ReadOnly};
use crate::verify::{Finding, Report, VerifyError};
use pass::Pass;

/// Reads a data directory in steps, pass after pass. Its driver calls [`Scrub::step`], waits as long as the bytes that
/// were read are worth, and calls it again; it stops by not calling any more.
pub struct Scrub {
    disk: Arc<dyn Disk>,
    data_dir: PathBuf,
    /// The pass that was begun.
    pass: Option<Pass>,
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubStep {
    /// The pass goes on with the next step.
    Read {
        /// What it took from the budget.
        ///
        /// # Units
        /// Bytes.
        bytes: u64,
    },
    /// The pass is complete; the next step begins another, also when there was nothing to read.
    PassDone(PassDone),
}

/// What a pass read and found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassDone {
    /// How many files were read.
    pub files: u64,
    /// How many bytes of them.
    pub bytes: u64,
    /// How many damages were found.
    pub damaged: u64,
}

impl Scrub {
    /// A scrub of a data directory, before its first pass.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, data_dir: PathBuf) -> Self {
        Self { disk, data_dir, pass: None }
    }

    /// Reads on for about `budget_bytes`, and calls `on_finding` for every damage: it ends with the entry that uses the
    /// budget up. A record or ledger event is checked as a whole; opening a file counts as 4 KiB, so that a step is short
    /// also where there are many small files.
    ///
    /// The disk is read in pieces of 1 MiB, or of a record that is larger, ahead of what is checked: a piece of a segment
    /// and one of its index. That, and the checkpoint's list of files, is all that is in memory.
    ///
    /// # Errors
    /// [`VerifyError::Io`] if a directory cannot be listed: the pass is given up, and the next step begins another. A
    /// file that cannot be read is a finding.
    /// # Source
    /// DESIGN "Storage"; failure rule 3; P11.
    pub fn step(&mut self, budget_bytes: u64, on_finding: &mut dyn FnMut(Finding)) -> Result<ScrubStep, VerifyError> {
        let disk = ReadOnly(&*self.disk);
        let mut report = Report::new(on_finding);
        let mut pass = self.pass.take().unwrap_or_default();
        let mut bytes = 0;
        while bytes < budget_bytes.max(1) {
            match pass.turn(&disk, &self.data_dir, &mut report)? {
                Some(read) => bytes += read,
                None => return Ok(ScrubStep::PassDone(pass.add(report.summary()))),
            }
        }
        pass.add(report.summary());
        self.pass = Some(pass);
        Ok(ScrubStep::Read { bytes })
    }
}

#[cfg(test)]
mod tests;
