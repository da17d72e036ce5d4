//! A broker of the binary under test, as a child process, and the commands that talk to it.

#![allow(dead_code, unreachable_pub, reason = "every test file takes from here what it needs")]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
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
    /// What it prints from here on.
    lines: mpsc::Receiver<String>,
    log: PathBuf,
    /// How long its log was when it was started.
    log_begin: u64,
}

impl Broker {
    /// Starts a broker on free ports with its data in `dir`, and waits until it is ready. Its log is `dir` with the
    /// extension `log`.
    pub fn start(dir: &Path) -> Self {
        Self::start_with(dir, &[])
    }

    /// As [`Self::start`], with more flags for `serve`.
    pub fn start_with(dir: &Path, flags: &[&str]) -> Self {
        Self::start_at(dir, "127.0.0.1:0", "127.0.0.1:0", flags)
    }

    /// As [`Self::start_with`], without waiting until it is ready.
    pub fn spawn_with(dir: &Path, flags: &[&str]) -> Self {
        Self::spawn_at(dir, "127.0.0.1:0", "127.0.0.1:0", flags)
    }

    fn start_at(dir: &Path, client: &str, admin: &str, flags: &[&str]) -> Self {
        let mut broker = Self::spawn_at(dir, client, admin, flags);
        broker.wait_until_ready();
        broker
    }

    /// As [`Self::spawn_with`], started in a folder of its own.
    pub fn spawn_in(folder: &Path, dir: &Path, flags: &[&str]) -> Self {
        Self::spawn_from(Some(folder), dir, ["127.0.0.1:0"; 2], flags)
    }

    fn spawn_at(dir: &Path, client: &str, admin: &str, flags: &[&str]) -> Self {
        Self::spawn_from(None, dir, [client, admin], flags)
    }

    fn spawn_from(folder: Option<&Path>, dir: &Path, [client, admin]: [&str; 2], flags: &[&str]) -> Self {
        let log = dir.with_extension("log");
        let log_file = File::options().create(true).append(true).open(&log).expect("the log can be written");
        let log_begin = log_file.metadata().expect("it is open").len();
        let mut command = mortarmq();
        if let Some(folder) = folder {
            command.current_dir(folder);
        }
        command.args(["serve", "--listen-client", client, "--listen-admin", admin]);
        // For development nothing of a file would count that this sets.
        if !flags.contains(&"--config") {
            command.arg("--dev");
        }
        command.args(flags).arg("--data-dir").arg(dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log_file);
        let mut child = command.spawn().expect("the binary runs");
        let lines = lines_of(child.stdout.take().expect("stdout is piped"));
        Self {
            child,
            dir: dir.to_path_buf(),
            client_addr: String::new(),
            admin_addr: String::new(),
            found: String::new(),
            banner: Vec::new(),
            lines,
            log,
            log_begin,
        }
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

    /// As [`Self::restart_with`], without waiting until it is ready; where it listens stays as it was known.
    pub fn spawn_again_with(&mut self, flags: &[&str]) {
        let (client, admin) = (self.client_addr.clone(), self.admin_addr.clone());
        *self = Self::spawn_at(&self.dir, &client, admin.trim_start_matches("http://"), flags);
        (self.client_addr, self.admin_addr) = (client, admin);
    }

    /// What its operator listener answers to a GET, head and body.
    ///
    /// # Errors
    /// The socket's: it may be down.
    pub fn get(&self, path: &str) -> std::io::Result<String> {
        let mut stream = std::net::TcpStream::connect(self.admin_addr.trim_start_matches("http://"))?;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }

    /// Whether it has printed `ready`. Once it was killed the answer is final.
    pub fn has_become_ready(&mut self) -> bool {
        let has_ended = self.child.try_wait().expect("a child of ours").is_some();
        while let Some(line) = if has_ended { self.lines.recv().ok() } else { self.lines.try_recv().ok() } {
            self.take_line(line);
        }
        self.banner.iter().any(|line| line == "ready")
    }

    /// What it has logged since it was started.
    pub fn log_since_start(&self) -> String {
        let mut file = File::open(&self.log).expect("the log is there");
        file.seek(SeekFrom::Start(self.log_begin)).expect("the log only grows");
        let mut text = Vec::new();
        file.read_to_end(&mut text).expect("the log can be read");
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Stops all its threads where they are, and returns once they stand still.
    pub fn pause(&self) {
        use rustix::process::{WaitId, WaitIdOptions};
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("the broker runs");
        // One that has ended is not taken away from `child`, which would go on to use its id.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = rustix::process::waitid(WaitId::Pid(pid), options).expect("a child of ours");
        let is_stopped = status.as_ref().is_some_and(|status| status.stopped());
        assert!(is_stopped, "the broker ended by itself: {status:?}; its log:\n{}", self.log_since_start());
    }

    /// Lets it go on after [`Self::pause`].
    pub fn resume(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("the broker is there");
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("the broker runs");
    }

    /// Ends it as an operator does, and gives its exit code.
    pub fn stop(&mut self) -> Option<i32> {
        self.signal(rustix::process::Signal::TERM);
        self.wait_for_end()
    }

    /// Waits until it has ended, and gives its exit code.
    pub fn wait_for_end(&mut self) -> Option<i32> {
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

    /// Waits until it has printed `ready`.
    pub fn wait_until_ready(&mut self) {
        while !self.has_become_ready() {
            let Ok(line) = self.lines.recv_timeout(Duration::from_secs(60)) else {
                panic!(
                    "the broker did not become ready; it printed {:?}; its log:\n{}",
                    self.banner,
                    self.log_since_start()
                );
            };
            self.take_line(line);
        }
    }

    fn take_line(&mut self, line: String) {
        let (word, rest) = line.split_once(' ').unwrap_or((line.as_str(), ""));
        let rest = rest.trim().to_owned();
        match word {
            "client" => self.client_addr = rest,
            "admin" => self.admin_addr = rest,
            "data" => {
                self.found = rest.rsplit_once(" (").map_or("", |(_, found)| found.trim_end_matches(')')).to_owned();
            }
            _ => {}
        }
        self.banner.push(line);
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines to their end, so that whoever prints them never waits.
fn lines_of(stdout: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    lines
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
    // Nor with their contexts: this folder is none.
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    command
}

/// Runs the binary without a broker.
pub fn run(args: &[&str]) -> Done {
    Done::of(mortarmq().args(args).stdin(Stdio::null()).output().expect("the binary runs"))
}

/// Runs the binary with some settings in its environment, and something on stdin.
pub fn run_with(args: &[&str], environment: &[(&str, &str)], input: &[u8]) -> Done {
    let mut command = mortarmq();
    command.args(args).envs(environment.iter().copied());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    // A command that is refused its arguments reads nothing.
    let _ = child.stdin.take().expect("stdin is piped").write_all(input);
    Done::of(child.wait_with_output().expect("it ends"))
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
