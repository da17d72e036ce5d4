//! `config check` and `config show`: what a node would start with, without starting it.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use mortarmq_server::{Origin, Source};

use crate::commands::serve;
use crate::errors::{Failure, chain};
use crate::output::{Cell, RowArgs, Rows};

/// Look at a configuration without starting a node
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Say whether a file is right; exit code 2 if it is not
    Check(CheckArgs),
    /// Show the effective values, and where each was set
    Show(ShowArgs),
}

/// Arguments of `config check`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// The file, .toml or .json
    file: PathBuf,
}

/// Arguments of `config show`.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Read the configuration from this file, .toml or .json
    #[arg(long, env = "MORTARMQ_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    rows: RowArgs,
}

/// Carries out the subcommand.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Check(args) => check(args),
        Command::Show(args) => show(args),
    }
}

fn check(args: &CheckArgs) -> Result<(), Failure> {
    let (config, origins) = serve::load_file(&args.file)?;
    if let Some(files) = &config.tls {
        let read = mortarmq_transport::Acceptor::from_files(&files.certificate, &files.key);
        read.map_err(|error| Failure::arguments(chain(&error), "put tls_cert and tls_key right"))?;
    }
    if let Some((files, host)) = config.cluster.as_ref().and_then(|cluster| cluster.tls_of(config.node_id)) {
        let right = mortarmq_transport::Mutual::check(files, host, Duration::ZERO);
        let remedy = "put peer_tls_cert, peer_tls_key and peer_tls_ca right";
        right.map_err(|error| Failure::arguments(chain(&error), remedy))?;
    }
    let set = origins.iter().filter(|origin| origin.source != Source::Default).count();
    let text = format!("{}: right, {set} keys are set\n", args.file.display());
    std::io::stdout().write_all(text.as_bytes()).map_err(Failure::from_stdout)
}

fn show(args: &ShowArgs) -> Result<(), Failure> {
    let (_, origins) = serve::load(args.config.as_deref(), Vec::new())?;
    let mut rows = Rows::listed(&["key", "value", "source"], args.rows);
    for Origin { key, value, source } in origins {
        rows.push(vec![Cell::Text(key.to_owned()), Cell::Text(value), Cell::Text(source.to_string())])?;
    }
    rows.finish()
}
