//! A broker of the binary under test, as a child process, and the commands that talk to it.

#![allow(dead_code, unreachable_pub, reason = "every test file takes from here what it needs")]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A running broker. It is killed with this value at the latest.
pub struct Broker {
    child: Child,
    dir: PathBuf,
    /// Where it takes clients: `127.0.0.1:PORT`.
    pub client_addr: String,
    /// Where it answers operators: `http://127.0.0.1:PORT`.
    pub admin_addr: String,
    /// What it says of its data folder: `new` or `recovered 2,000 messages in 0.1 s`.
    pub found: String,
    /// Every line that it printed up to `ready`.
    pub banner: Vec<String>,
}

impl Broker {
    /// Starts a broker on free ports with its data in `dir`, and waits until it is ready. Its log is `dir` with the
    /// extension `log`.
    pub fn start(dir: &Path) -> Self {
        Self::start_at(dir, "127.0.0.1:0", "127.0.0.1:0", &[])
    }

    fn start_at(dir: &Path, client: &str, admin: &str, flags: &[&str]) -> Self {
        let log = dir.with_extension("log");
        let log_file = File::options().create(true).append(true).open(&log).expect("the log can be written");
        let mut command = mortarmq();
        command.args(["serve", "--dev", "--listen-client", client, "--listen-admin", admin]);
        command.args(flags).arg("--data-dir").arg(dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log_file);
        let mut child = command.spawn().expect("the binary runs");
        let stdout = child.stdout.take().expect("stdout is piped");
        let mut broker = Self {
            child,
            dir: dir.to_path_buf(),
            client_addr: String::new(),
            admin_addr: String::new(),
            found: String::new(),
            banner: Vec::new(),
        };
        broker.read_banner(stdout, &log);
        broker
    }

    /// Ends it as a crash does: SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().expect("the broker can be killed");
        self.child.wait().expect("and waited for");
    }

    /// Starts it again with the same data, at the same addresses.
    pub fn restart(&mut self) {
        self.restart_with(&[]);
    }

    /// As [`Self::restart`], with more flags for `serve`.
    pub fn restart_with(&mut self, flags: &[&str]) {
        let admin = self.admin_addr.trim_start_matches("http://").to_owned();
        *self = Self::start_at(&self.dir, &self.client_addr, &admin, flags);
    }

    /// Ends it as an operator does, and gives its exit code.
    pub fn stop(&mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("the broker runs");
        wait_for(Duration::from_secs(20), || self.child.try_wait().expect("a child of ours")).code()
    }

    /// Where it keeps everything.
    pub fn data_dir(&self) -> String {
        self.dir.to_str().expect("temporary folders have names of text").to_owned()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A command of the binary that talks to this broker.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = mortarmq();
        command.env("MORTARMQ_SERVER", &self.client_addr).env("MORTARMQ_ADMIN", &self.admin_addr);
        command.args(args).stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, args: &[&str]) -> Done {
        Done::of(self.command(args).output().expect("the binary runs"))
    }

    /// Runs a command to its end, with something on stdin.
    pub fn run_with_stdin(&self, args: &[&str], input: &[u8]) -> Done {
        let mut command = self.command(args);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        child.stdin.take().expect("stdin is piped").write_all(input).expect("it reads stdin");
        Done::of(child.wait_with_output().expect("it ends"))
    }

    /// Runs a command that must end with exit code 0, and gives its stdout.
    pub fn rows(&self, args: &[&str]) -> String {
        let done = self.run(args);
        assert_eq!(done.code, Some(0), "{args:?}: {}{}", done.stdout, done.stderr);
        done.stdout
    }

    /// Runs a command to its end with a terminal as its stdout.
    pub fn run_on_terminal(&self, args: &[&str]) -> Done {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("it is ours");
        let name = ptsname(&ours, Vec::new()).expect("it has a name");
        let theirs =
            File::options().write(true).open(name.to_str().expect("a path of text")).expect("it can be opened");
        let mut command = self.command(args);
        let child = command.stdout(theirs).stderr(Stdio::piped()).spawn().expect("the binary runs");
        // Closes the last copy of their side here: reading ends, with an error, when the command has ended.
        drop(command);
        let mut shown = Vec::new();
        let _ = File::from(ours).read_to_end(&mut shown);
        let mut done = Done::of(child.wait_with_output().expect("it ends"));
        done.stdout = String::from_utf8(shown).expect("output is text").replace("\r\n", "\n");
        done
    }

    fn read_banner(&mut self, stdout: impl std::io::Read + Send + 'static, log: &Path) {
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        while let Ok(line) = lines.recv_timeout(Duration::from_secs(60)) {
            let (word, rest) = line.split_once(' ').unwrap_or((line.as_str(), ""));
            let rest = rest.trim().to_owned();
            let is_ready = word == "ready";
            match word {
                "client" => self.client_addr = rest,
                "admin" => self.admin_addr = rest,
                "data" => {
                    self.found = rest.rsplit_once(" (").map_or("", |(_, found)| found.trim_end_matches(')')).to_owned();
                }
                _ => {}
            }
            self.banner.push(line);
            if is_ready {
                return;
            }
        }
        let log = std::fs::read_to_string(log).unwrap_or_default();
        panic!("the broker did not become ready; it printed {:?}; its log:\n{log}", self.banner);
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that has ended.
#[derive(Debug)]
pub struct Done {
    /// The exit code; none after a signal.
    pub code: Option<i32>,
    /// What it printed on stdout.
    pub stdout: String,
    /// What it printed on stderr.
    pub stderr: String,
}

impl Done {
    /// What a process left.
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("output is text"),
            stderr: String::from_utf8(output.stderr).expect("messages are text"),
        }
    }
}

/// The binary under test, without the settings of whoever runs the tests.
pub fn mortarmq() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mortarmq"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MORTARMQ_") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs the binary without a broker.
pub fn run(args: &[&str]) -> Done {
    Done::of(mortarmq().args(args).stdin(Stdio::null()).output().expect("the binary runs"))
}

/// Waits until a condition holds.
pub fn wait_for<T>(limit: Duration, mut condition: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(started.elapsed() < limit, "the condition did not hold within {limit:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
