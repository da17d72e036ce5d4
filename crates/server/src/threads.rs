//! Threads that must not die alone: a panic in one of them ends the process.

use std::io;
use std::thread::{Builder, JoinHandle};

pub(crate) use mortarmq_node::drive::chain;

/// Starts a thread whose panic ends the process.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.to_owned()).spawn(move || {
        let _guard = AbortOnPanic;
        body();
    })
}

/// Ends the process when it is dropped by a panic: a stopped node is better than one that goes on without a part of it.
pub(crate) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The panic's own message is already on stderr.
            tracing::error!("a fault of the broker itself: the process ends, recovery decides");
            std::process::abort();
        }
    }
}

/// The exit code of a process whose disk failed: `EX_IOERR` of sysexits(3).
///
/// # Source
/// Failure rule 2: a failed write or fsync is never retried on the same file; the process says why and ends.
pub const EXIT_DISK_FAILED: i32 = 74;

/// Says why and ends the process.
pub(crate) fn end_after_disk_failure(what: &str, error: &dyn std::error::Error) -> ! {
    let chain = chain(error);
    tracing::error!("{what} failed: {chain}; the process ends, recovery decides at the next start");
    std::process::exit(EXIT_DISK_FAILED);
}
