//! Why a run is not OK.

use std::io;

use thiserror::Error;

/// Why a run was given up or judged as failed.
#[derive(Debug, Error)]
pub enum Failure {
    /// The broker did not keep what the scenario asks of it.
    #[error("{0}")]
    Broken(String),
    /// The machine did not let the run do what it has to.
    #[error("{what}: {source}")]
    Machine {
        /// What was to be done.
        what: String,
        /// What the system says.
        source: io::Error,
    },
    /// A program that the run needs did not do its work.
    #[error("{command}: {said}")]
    Tool {
        /// The program and its arguments.
        command: String,
        /// What it printed, or how it ended.
        said: String,
    },
    /// The history could not be written or read.
    #[error("the history: {0}")]
    History(String),
    /// Somebody asked for the end (Ctrl-C).
    #[error("stopped")]
    Stopped,
}

/// What most of this crate returns.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// A failure of the machine, for `map_err`.
pub(crate) fn machine(what: impl Into<String>) -> impl FnOnce(io::Error) -> Failure {
    let what = what.into();
    |source| Failure::Machine { what, source }
}

/// What is broken if a condition does not hold.
pub(crate) fn ensure(holds: bool, broken: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(Failure::Broken(broken())) }
}
