//! `mortarmq`: the broker and its tools in one binary.
//!
//! [`cli`] is the tree of commands; each command has a file of its own in [`commands`], with its arguments and its `run`.
//! Commands that publish and consume are clients of the wire protocol ([`session`]), the others that ask a broker are
//! clients of its operator routes ([`admin`]); where the broker is may stand in a context ([`contexts`]). Rows go to stdout through [`output`], everything else to stderr; how a
//! command ends is in [`errors`].

mod admin;
mod bench;
mod child_cluster;
mod child_node;
mod cli;
mod commands;
mod contexts;
mod errors;
mod floor;
mod output;
#[cfg(test)]
mod reference;
mod session;
mod settings;
mod tls;
mod tokens;

use std::process::ExitCode;

/// The system's allocator keeps what a burst of large messages took for as long as the process lives; this one gives it
/// back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match contexts::parse().and_then(cli::Cli::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
