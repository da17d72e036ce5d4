//! A node: the real binary as a child process.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::failure::{Failure, Outcome, ensure, machine};
use crate::wait::wait_for;

/// A process that runs, and its log. It is killed with this value at the latest.
pub(crate) struct Node {
    child: Child,
    log: PathBuf,
    /// How long its log was when it was started.
    log_begin: u64,
    is_paused: bool,
}

impl Node {
    /// Starts it; does not wait. All that it prints goes to the end of the log.
    pub(crate) fn start(mut command: Command, log: &Path) -> Outcome<Self> {
        let failed = || machine("cannot start a node");
        let file = File::options().create(true).append(true).open(log).map_err(failed())?;
        let log_begin = file.metadata().map_err(failed())?.len();
        let same = file.try_clone().map_err(failed())?;
        let child = command.stdin(Stdio::null()).stdout(same).stderr(file).spawn().map_err(failed())?;
        Ok(Self { child, log: log.to_path_buf(), log_begin, is_paused: false })
    }

    /// What it has printed since it was started.
    pub(crate) fn log(&self) -> String {
        let read = || {
            let mut file = File::open(&self.log)?;
            file.seek(SeekFrom::Start(self.log_begin))?;
            let mut text = Vec::new();
            file.read_to_end(&mut text)?;
            Ok::<_, std::io::Error>(text)
        };
        // A log that cannot be read holds nothing that is looked for: the wait for it says so.
        String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
    }

    /// The end of its log, for whoever asks what happened.
    pub(crate) fn log_end(&self) -> String {
        let log = self.log();
        let mut last: Vec<&str> = log.lines().rev().take(3).collect();
        last.reverse();
        last.join(" | ")
    }

    /// Whether it says that it is ready for clients.
    pub(crate) fn is_ready(&self) -> bool {
        self.log().lines().any(|line| line == "ready")
    }

    /// Whether it stands still.
    pub(crate) const fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> Outcome<Option<ExitStatus>> {
        self.child.try_wait().map_err(machine("cannot ask for a child process"))
    }

    /// SIGKILL: no chance to write anything. Returns when it is dead.
    pub(crate) fn kill(&mut self) -> Outcome {
        self.child.kill().and_then(|()| self.child.wait()).map(drop).map_err(machine("cannot kill a node"))
    }

    /// SIGSTOP: all its threads stand where they are. Returns once they do.
    pub(crate) fn pause(&mut self) -> Outcome {
        self.signal(Signal::STOP)?;
        // One that has ended is not taken away from `child`, which would go on to use its id.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.pid()), options).map_err(|error| machine("waitid")(error.into()))?;
        ensure(status.is_some_and(|status| status.stopped()), || {
            format!("a node ended instead of pausing: {}", self.log_end())
        })?;
        self.is_paused = true;
        Ok(())
    }

    /// SIGCONT.
    pub(crate) fn resume(&mut self) -> Outcome {
        self.is_paused = false;
        self.signal(Signal::CONT)
    }

    /// Ends it as an operator does (SIGTERM), and waits for that.
    pub(crate) fn stop(&mut self) -> Outcome {
        self.signal(Signal::TERM)?;
        let status = wait_for("a node that was asked to stop ends", STOP_LIMIT, || self.ended())?;
        ensure(status.success(), || format!("a node that was asked to stop ended with {status}: {}", self.log_end()))
    }

    fn signal(&self, signal: Signal) -> Outcome {
        kill_process(self.pid(), signal)
            .map_err(|error| Failure::Machine { what: "cannot signal a node".to_owned(), source: error.into() })
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Everything that is in flight is answered first.
const STOP_LIMIT: Duration = Duration::from_secs(60);
