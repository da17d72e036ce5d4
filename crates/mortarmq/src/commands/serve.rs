//! `serve`: runs a node until SIGTERM or Ctrl-C.

mod flags;
mod logs;
mod reload;

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use mortarmq_server::config::TlsFiles;
use mortarmq_server::{Addresses, Config, ConfigError, Origin, Running, Server, StartError};
use tokio::runtime::Runtime;

use self::flags::Flags;
use crate::commands::init::certificates::CA_FILE;
use crate::errors::{Failure, chain};
use crate::output::{grouped, shell_word};
use crate::session::{self, Stop};

/// Run a node
///
/// Settings come from the file, then from the environment (MORTARMQ_ and the key in capitals), then from the flags below;
/// later wins.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// For development: listen on this machine only, ask for no credentials, speak no TLS, whatever the file says
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
        flags.set_default("listen_ws", "off");
        flags.set_default("tokens", "[]");
        flags.set_default("users", "[]");
        flags.set_default("tls_cert", "none");
        flags.set_default("tls_key", "none");
    }
    let (config, _) = load(file.as_deref(), flags.given)?;
    logs::begin(&config);
    serve(&config).map_err(|failure| match config.log_format {
        // Whoever reads the log as JSON reads all of it as JSON.
        "json" => failure.logged(),
        _ => failure,
    })
}

fn serve(config: &Config) -> Result<(), Failure> {
    // Before anything is started: whoever is told that the node is ready may end it at once.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::local(chain(&error), "raise the limit of open files"))?;
    let (mut stop, mut reload) = {
        let _entered = runtime.enter();
        (Stop::new()?, reload::Wish::new()?)
    };
    let Some(started) = start(config, &runtime, &mut stop)? else {
        tracing::info!("stopped before it had started");
        return Ok(());
    };
    let running = started.map_err(|error| {
        Failure::local(chain(&error), "nothing was changed; put this right, then start the node again")
    })?;
    print_banner(config, &running)?;
    runtime.block_on(async {
        loop {
            tokio::select! {
                () = stop.wanted() => return,
                () = reload.wanted() => reload::certificates(&running),
            }
        }
    });
    tracing::info!("stopping: what is in flight is answered first; a second signal ends the node at once");
    std::thread::spawn(move || {
        runtime.block_on(stop.wanted());
        // Everything that was confirmed is on disk; the next start replays the journal.
        tracing::warn!("ended at once, as was asked for a second time");
        std::process::exit(EXIT_AT_ONCE);
    });
    running.stop();
    tracing::info!("stopped");
    Ok(())
}

/// Starts the node; none if a stop is asked for before it has: one of several may wait for the others.
fn start(config: &Config, runtime: &Runtime, stop: &mut Stop) -> Result<Option<Result<Running, StartError>>, Failure> {
    let (sender, started) = tokio::sync::oneshot::channel();
    let config = config.clone();
    let starting = std::thread::Builder::new().name("start".to_owned()).spawn(move || {
        // What was started for nobody is stopped again.
        drop(sender.send(Server::start(config)));
    });
    starting.map_err(|error| Failure::local(chain(&error), "raise the limit of threads"))?;
    runtime.block_on(async {
        tokio::select! {
            started = started => Ok(started.ok()),
            () = stop.wanted() => Ok(None),
        }
    })
}

/// What a node would start with: file, environment and flags.
pub(crate) fn load(file: Option<&Path>, flags: Vec<(String, String)>) -> Result<(Config, Vec<Origin>), Failure> {
    try_load(file, flags).map_err(|error| refused(&error))
}

/// As [`load`], with the reason why it is refused.
pub(crate) fn try_load(
    file: Option<&Path>,
    flags: Vec<(String, String)>,
) -> Result<(Config, Vec<Origin>), ConfigError> {
    // A variable whose name or value is no text is none of ours.
    let environment =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    Config::load(file, environment, flags)
}

/// What a file alone says.
pub(crate) fn load_file(file: &Path) -> Result<(Config, Vec<Origin>), Failure> {
    Config::load(Some(file), [], []).map_err(|error| refused(&error))
}

/// A configuration that is refused, as a failure of the command.
pub(crate) fn refused(error: &ConfigError) -> Failure {
    Failure::arguments(chain(error), "the keys, their values and defaults: mortarmq serve --help")
}

/// Says what runs where, and ends with a line that begins with `ready`.
fn print_banner(config: &Config, running: &Running) -> Result<(), Failure> {
    let written = std::io::stdout().write_all(banner(config, running).as_bytes());
    match written.map_err(Failure::from_stdout) {
        // A broker goes on when nobody reads its first words.
        Err(Failure::PipeClosed) => {
            tracing::warn!("stdout is closed; the node runs all the same");
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
    let Addresses { client, ws, admin, peer } = running.addresses();
    let port = client.port();
    let server = match client.ip() {
        _ if port == session::DEFAULT_CLIENT_PORT => String::new(),
        // Nobody can be told to connect to every address there is.
        ip if ip.is_unspecified() => format!(" --server localhost:{port}"),
        _ => format!(" --server {client}"),
    };
    let web = if config.tls.is_some() { "wss" } else { "ws" };
    let ws = ws.map_or_else(String::new, |address| format!("ws      {web}://{address}\n"));
    let peer = peer.zip(config.cluster.as_ref()).map_or_else(String::new, |(address, cluster)| {
        let nodes: Vec<String> = cluster.nodes().iter().map(ToString::to_string).collect();
        let tls = if cluster.tls.is_some() { ", over TLS" } else { "" };
        format!("peer    {address} (nodes {}{tls})\n", nodes.join(", "))
    });
    let (scheme, export) = match &config.tls {
        None => ("http", String::new()),
        Some(files) => ("https", format!("\x20 export MORTARMQ_TLS_CA={}\n", shell_word(&ca_of(files)))),
    };
    format!(
        "mortarmq {version}, node {node}\n\
         data    {data} ({found})\n\
         client  {client}\n\
         {ws}\
         {peer}\
         admin   {scheme}://{admin}\n\
         access  {access}\n\
         \n\
         {export}\
         \x20 mortarmq topics create orders{server}\n\
         \x20 mortarmq pub orders hello{server}\n\
         \x20 mortarmq sub orders --group billing{server}\n\
         \n\
         ready\n",
        version = env!("CARGO_PKG_VERSION"),
        node = config.node_id,
        access = access(config, client),
    )
}

/// The CA that `init` has put beside the certificate, else a name that says what is wanted.
fn ca_of(files: &TlsFiles) -> PathBuf {
    let beside = files.certificate.with_file_name(CA_FILE);
    if beside.exists() { beside } else { PathBuf::from("CA.pem") }
}

/// Who may connect.
fn access(config: &Config, client: SocketAddr) -> String {
    let asks = match config.tokens.len() + config.users.len() {
        0 if config.tls.is_some() => return "this machine only, over TLS; no credentials are asked for".to_owned(),
        0 => return "this machine only; no credentials are asked for".to_owned(),
        1 if config.users.is_empty() => "every listener asks for the token".to_owned(),
        count if config.users.is_empty() => format!("every listener asks for one of {count} tokens"),
        count => format!("every listener asks for one of {count} tokens and passwords"),
    };
    if config.tls.is_some() {
        return format!("{asks}, over TLS");
    }
    if client.ip().to_canonical().is_loopback() {
        return asks;
    }
    format!("{asks}; without TLS, tokens and messages can be read on their way")
}

/// As a shell tells an end by SIGTERM.
const EXIT_AT_ONCE: i32 = 143;
