//! `version`: the version of this binary and of the protocol it speaks.

use std::io::Write;

use mortarmq_wire::frame::WIRE_VERSION;

use crate::errors::Failure;

/// Prints it.
pub(crate) fn run() -> Result<(), Failure> {
    let text = format!("mortarmq {} (wire protocol {WIRE_VERSION})\n", env!("CARGO_PKG_VERSION"));
    std::io::stdout().write_all(text.as_bytes()).map_err(Failure::from_stdout)
}
