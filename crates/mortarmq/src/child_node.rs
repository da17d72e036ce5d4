//! A server of this binary as a child process: a node, for `bench`, `soak` and `demo`, started in a folder, killed, started again;
//! and what `bench` measures it against. Several that make a cluster are in `child_cluster.rs`.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use mortarmq_history::{Fault, Record};
use rustix::process::{Pid, Signal, kill_process};

use crate::admin::AdminArgs;
use crate::contexts::ContextArg;
use crate::errors::Failure;
use crate::tls::TlsArgs;

/// A running node. It ends with this value at the latest.
pub(crate) struct ChildNode {
    child: Child,
    data_dir: PathBuf,
    launch: Launch,
    /// Where it takes clients.
    pub(crate) client: String,
    /// Where it answers operators.
    pub(crate) admin: String,
    /// What it says of its data folder: `new` or `recovered 2,000 messages in 0.1 s`.
    pub(crate) found: String,
}

/// What a node is started with beside its folder and addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Launch {
    /// Flags of `serve`.
    pub(crate) flags: Vec<String>,
    /// Settings that nobody is to read in a list of processes.
    pub(crate) environment: Vec<(&'static str, String)>,
}

/// A process that is not ready yet.
pub(crate) struct Starting {
    node: ChildNode,
    lines: mpsc::Receiver<String>,
}

impl ChildNode {
    /// Starts a node on free ports of this machine and waits until it is ready.
    ///
    /// # Errors
    /// When it cannot be started or does not become ready; the failure has the end of its log.
    pub(crate) fn start(data_dir: &Path) -> Result<Self, Failure> {
        Self::begin(data_dir, FREE_PORT, FREE_PORT, Launch::default())?.ready()
    }

    /// Starts a node at these addresses, and does not wait.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn begin(data_dir: &Path, client: &str, admin: &str, launch: Launch) -> Result<Starting, Failure> {
        let mut command = command()?;
        command.args(["serve", "--dev", "--listen-client", client, "--listen-admin", admin]);
        // Its folder is temporary and may lie in memory: nothing of it is worth a reserve.
        command.args(["--disk-reserve-bytes", "0"]).args(&launch.flags).arg("--data-dir").arg(data_dir);
        command.envs(launch.environment.iter().map(|(name, value)| (name, value)));
        Self::spawn(command, Stdio::null(), data_dir, launch)
    }

    /// Starts a floor in a folder, which it shares with nobody, and waits until it is ready. Its followers run already.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub(crate) fn start_floor(kind: &str, folder: &Path, followers: &[Self]) -> Result<Self, Failure> {
        std::fs::create_dir_all(folder).map_err(|error| failed(&error))?;
        let mut command = command()?;
        command.args(["bench-floor", "--kind", kind, "--folder"]).arg(folder);
        for follower in followers {
            command.args(["--follower", &follower.client]);
        }
        // It ends when nobody holds its stdin any more.
        Self::spawn(command, Stdio::piped(), folder, Launch::default())?.ready()
    }

    fn spawn(mut command: Command, stdin: Stdio, data_dir: &Path, launch: Launch) -> Result<Starting, Failure> {
        let log_file = File::create(log_path(data_dir)).map_err(|error| failed(&error))?;
        command.stdin(stdin).stdout(Stdio::piped()).stderr(log_file);
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let lines = lines_of(child.stdout.take().expect("stdout is piped"));
        let (client, admin, found) = (String::new(), String::new(), String::new());
        let node = Self { child, data_dir: data_dir.to_path_buf(), launch, client, admin, found };
        Ok(Starting { node, lines })
    }

    /// A kill as a history records it, from the signal to the node being back.
    ///
    /// # Units
    /// Nanoseconds of the history's clock.
    pub(crate) fn killed(node: u16, call_ns: u64, ret_ns: u64) -> Record<'static> {
        let (kind, node) = (Cow::Borrowed("kill"), Some(Cow::Owned(node.to_string())));
        Record::Fault(Fault { kind, node, call: call_ns, ret: Some(ret_ns) })
    }

    /// Ends it as a crash does: SIGKILL, no chance to write anything.
    pub(crate) fn kill(&mut self) -> Result<(), Failure> {
        self.child.kill().and_then(|()| self.child.wait()).map(drop).map_err(|error| failed(&error))
    }

    /// Starts it again in the same folder.
    pub(crate) fn restart(&mut self) -> Result<(), Failure> {
        *self = Self::start(&self.data_dir)?;
        Ok(())
    }

    /// Starts it again in the same folder, where its clients know it.
    pub(crate) fn restart_in_place(&mut self) -> Result<(), Failure> {
        let admin = self.admin.trim_start_matches("http://");
        *self = Self::begin(&self.data_dir, &self.client, admin, self.launch.clone())?.ready()?;
        Ok(())
    }

    /// Asks it to end, and does not wait: SIGTERM closes the journal, so a folder that is kept can be looked at.
    pub(crate) fn ask_to_end(&mut self) {
        if let Ok(None) = self.child.try_wait()
            && let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
        {
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How to ask its operator routes.
    pub(crate) fn admin_args(&self) -> AdminArgs {
        AdminArgs { admin: self.admin.clone(), token: None, tls: TlsArgs::default(), context: ContextArg::default() }
    }
}

impl Starting {
    /// Waits until it is ready.
    ///
    /// # Errors
    /// When it does not become ready; the failure has the end of its log.
    pub(crate) fn ready(self) -> Result<ChildNode, Failure> {
        let Self { mut node, lines } = self;
        loop {
            let Ok(line) = lines.recv_timeout(READY_LIMIT) else {
                let log = std::fs::read_to_string(log_path(&node.data_dir)).unwrap_or_default();
                let end = log.lines().rev().take(2).collect::<Vec<_>>().join(" | ");
                let what = format!("the node did not become ready: {end}");
                return Err(Failure::local(what, "look for a full disk or a machine without free ports, then repeat"));
            };
            let (word, rest) = line.split_once(' ').unwrap_or((line.as_str(), ""));
            let rest = rest.trim();
            match word {
                "client" => node.client = rest.to_owned(),
                "admin" => node.admin = rest.to_owned(),
                "data" => {
                    node.found = rest.rsplit_once(" (").map_or("", |(_, found)| found.trim_end_matches(')')).to_owned();
                }
                "ready" => return Ok(node),
                _ => {}
            }
        }
    }
}

/// Reads lines to their end, also when nobody listens any more: the node must never find its pipe full.
fn lines_of(stdout: impl std::io::Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    lines
}

impl Drop for ChildNode {
    fn drop(&mut self) {
        self.ask_to_end();
        for _ in 0..STOP_ROUNDS {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(STOP_PAUSE);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// This binary, without the user's settings: these are meant for the user's node.
fn command() -> Result<Command, Failure> {
    let binary = std::env::current_exe().map_err(|error| failed(&error))?;
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MORTARMQ_") {
            command.env_remove(name);
        }
    }
    Ok(command)
}

/// Beside the data folder, which is the node's alone.
fn log_path(data_dir: &Path) -> PathBuf {
    data_dir.with_extension("log")
}

fn failed(error: &std::io::Error) -> Failure {
    Failure::local(format!("cannot run a node of this binary: {error}"), "check the temporary folder and the binary")
}

/// Any port of this machine that is free.
const FREE_PORT: &str = "127.0.0.1:0";
/// A start that replays a large journal is still shorter.
const READY_LIMIT: Duration = Duration::from_secs(30);
const STOP_PAUSE: Duration = Duration::from_millis(20);
/// Three seconds in all: longer than any orderly end.
const STOP_ROUNDS: u32 = 150;
