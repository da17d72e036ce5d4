//! `serve`: runs a node until SIGTERM or Ctrl-C.

mod flags;

use std::error::Error;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use mortarmq_server::{Addresses, Config, Running, Server};
use tracing_subscriber::EnvFilter;

use self::flags::Flags;
use crate::errors::Failure;
use crate::output::{grouped, note};
use crate::session::Stop;

/// Run a node
///
/// Settings come from the file, then from the environment (MORTARMQ_ and the key in capitals), then from the flags below;
/// later wins.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// For development: listen on this machine only, ask for no credentials, whatever the file says
    #[arg(long)]
    dev: bool,
    /// Read the configuration from this file, .toml or .json
    #[arg(long, env = "MORTARMQ_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
}

/// Runs the node.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let Args { dev, config: file, mut flags } = args;
    if dev {
        flags.set_default("listen_client", "127.0.0.1:7188");
        flags.set_default("listen_admin", "127.0.0.1:7190");
    }
    let config = load(file.as_deref(), flags)?;
    log_to_stderr(&config);
    // Before anything is started: whoever is told that the node is ready may end it at once.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::local(chain(&error), "raise the limit of open files"))?;
    let mut stop = {
        let _entered = runtime.enter();
        Stop::new()?
    };
    let running = Server::start(config.clone()).map_err(|error| {
        Failure::local(chain(&error), "nothing was changed; put this right, then start the node again")
    })?;
    print_banner(&config, &running)?;
    runtime.block_on(stop.wanted());
    running.stop();
    tracing::info!("stopped");
    Ok(())
}

fn load(file: Option<&Path>, flags: Flags) -> Result<Config, Failure> {
    // A variable whose name or value is no text is none of ours.
    let environment =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let loaded = Config::load(file, environment, flags.given);
    let (config, _) = loaded.map_err(|error| {
        Failure::arguments(chain(&error), "the keys, their values and defaults: mortarmq serve --help")
    })?;
    Ok(config)
}

fn log_to_stderr(config: &Config) {
    let filter = EnvFilter::new(format!("warn,mortarmq={}", config.log_level));
    let stderr = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    if config.log_format == "json" {
        stderr.json().init();
    } else {
        stderr.init();
    }
}

/// Says what runs where, and ends with a line that begins with `ready`.
fn print_banner(config: &Config, running: &Running) -> Result<(), Failure> {
    let written = std::io::stdout().write_all(banner(config, running).as_bytes());
    match written.map_err(Failure::from_stdout) {
        // A broker goes on when nobody reads its first words.
        Err(Failure::PipeClosed) => {
            note("stdout is closed; the node runs all the same");
            Ok(())
        }
        result => result,
    }
}

fn banner(config: &Config, running: &Running) -> String {
    let data = config.data_dir.display();
    let recovery = running.recovery();
    let found = if recovery.is_new {
        "new".to_owned()
    } else {
        format!("recovered {} messages in {:.1} s", grouped(recovery.messages), recovery.seconds)
    };
    let Addresses { client, admin } = running.addresses();
    let server = if client.port() == DEFAULT_CLIENT_PORT { String::new() } else { format!(" --server {client}") };
    format!(
        "mortarmq {version}, node {node}\n\
         data    {data} ({found})\n\
         client  {client}\n\
         admin   http://{admin}\n\
         access  this machine only; no credentials are asked for\n\
         \n\
         \x20 mortarmq topics create orders{server}\n\
         \x20 mortarmq pub orders hello{server}\n\
         \x20 mortarmq sub orders --group billing{server}\n\
         \n\
         ready\n",
        version = env!("CARGO_PKG_VERSION"),
        node = config.node_id,
    )
}

/// An error with its causes, in one line: only here, at the edge, the chain is printed.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    // A parser's error draws its place in the file over several lines.
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The port that commands take when they are told none.
const DEFAULT_CLIENT_PORT: u16 = 7188;
