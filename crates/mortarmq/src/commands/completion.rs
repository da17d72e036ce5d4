//! `completion SHELL`: a script for the shell, to be sourced.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::errors::Failure;

/// Print completions for a shell
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which shell
    shell: Known,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Known {
    Bash,
    Zsh,
    Fish,
}

/// Prints the script.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let shell = match args.shell {
        Known::Bash => Shell::Bash,
        Known::Zsh => Shell::Zsh,
        Known::Fish => Shell::Fish,
    };
    // Into memory first: the generator panics where a closed pipe should end quietly.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "mortarmq", &mut script);
    std::io::stdout().write_all(&script).map_err(Failure::from_stdout)
}
