//! What the pages show is what a node prints: every command of README.md and docs/concepts.md with its output, and every command of
//! the runbooks, against the binary.
//!
//! Method: a page is a story that was told out of order and with parts left out, so a test says in which order its commands ran, and
//! what ran between them. Each command of the page must have its turn once. Times, ids, commit indexes and durations are other
//! ones each time; all else must be the same, blanks between columns apart.

mod support;

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use support::{Broker, mortarmq};

/// A command of a page, and what the page shows below it.
#[derive(Debug)]
struct Shown {
    line: usize,
    command: String,
    output: Vec<String>,
}

/// The commands in the fences of a page, or, of one without fences, in its indented lines.
fn commands(page: &str) -> Vec<Shown> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let text = std::fs::read_to_string(path).expect("the page is there");
    let mut found: Vec<Shown> = Vec::new();
    let mut is_in_fence = false;
    for (index, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            is_in_fence = line == "```console";
            continue;
        }
        if let Some(command) = line.trim_start().strip_prefix("$ ").filter(|_| is_in_fence || line.starts_with("    "))
        {
            found.push(Shown { line: index + 1, command: command.to_owned(), output: Vec::new() });
        } else if let Some(shown) = found.last_mut().filter(|_| is_in_fence) {
            shown.output.push(line.to_owned());
        }
    }
    found
}

/// A line with what is another each time replaced, and one blank between its words.
fn same_each_time(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let is_time = word.len() == 24 && word.ends_with('Z') && word.as_bytes()[10] == b'T';
        let is_id = word.len() == 16 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
        let before = words.last().map_or("", String::as_str);
        let replaced = match before {
            _ if is_time => "TIME",
            _ if is_id => "ID",
            // The column behind the time of a trace, and `at commit index 38`.
            "TIME" | "index" if is_number => "N",
            "in" if word.contains('.') => "SECONDS",
            _ => word,
        };
        words.push(replaced.to_owned());
    }
    words.join(" ")
}

/// A page, a broker, and which of the page's commands had their turn.
struct Story {
    page: &'static str,
    shown: Vec<Shown>,
    was_told: Vec<bool>,
    broker: Broker,
    folder: tempfile::TempDir,
    last_code: i32,
}

impl Story {
    fn begin(page: &'static str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).expect("a folder");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_mortarmq"), bin.join("mortarmq")).expect("a link");
        let broker = Broker::start(&folder.path().join("data"));
        let shown = commands(page);
        let was_told = vec![false; shown.len()];
        Self { page, shown, was_told, broker, folder, last_code: 0 }
    }

    /// Runs a line as a shell on a terminal does; what it showed, and its exit code.
    fn shell(&self, line: &str) -> (String, i32) {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("it is ours");
        let name = ptsname(&ours, Vec::new()).expect("it has a name");
        let theirs = || File::options().write(true).open(name.to_str().expect("text")).expect("it can be opened");
        let clean = mortarmq();
        let mut command = Command::new("bash");
        for (key, value) in clean.get_envs() {
            match value {
                Some(value) => command.env(key, value),
                None => command.env_remove(key),
            };
        }
        let path = format!("{}:{}", self.folder.path().join("bin").display(), std::env::var("PATH").expect("a path"));
        command.args(["-c", line]).env("PATH", path).current_dir(self.folder.path());
        command.env("MORTARMQ_SERVER", &self.broker.client_addr).env("MORTARMQ_ADMIN", &self.broker.admin_addr);
        command.stdin(Stdio::null()).stdout(theirs()).stderr(theirs());
        let mut child = command.spawn().expect("bash runs");
        // Closes the last copies of their side here: reading ends, with an error, when the command has ended.
        drop(command);
        let mut shown = Vec::new();
        let _ = File::from(ours).read_to_end(&mut shown);
        let code = child.wait().expect("it ends").code().expect("it was not killed");
        (String::from_utf8(shown).expect("text").replace("\r\n", "\n"), code)
    }

    /// Something the page does not show.
    fn between(&self, line: &str) {
        let (shown, code) = self.shell(line);
        assert_eq!(code, 0, "{line}: {shown}");
    }

    /// The next command of the page that begins like this.
    fn turn_of(&mut self, begins: &str) -> usize {
        let next = (0..self.shown.len()).find(|at| !self.was_told[*at] && self.shown[*at].command.starts_with(begins));
        let next = next.unwrap_or_else(|| panic!("{} has no further command that begins {begins:?}", self.page));
        self.was_told[next] = true;
        next
    }

    /// Runs the next command of the page that begins like this, and compares. Where the page shows nothing, only its end is.
    fn tell(&mut self, begins: &str, code: i32) {
        let at = self.turn_of(begins);
        let Shown { line, command, output } = &self.shown[at];
        let (printed, ended) = self.shell(&format!("(exit {}); {command}", self.last_code));
        assert_eq!(ended, code, "{}:{line}: {command}: {printed}", self.page);
        let of = |text: &mut dyn Iterator<Item = &str>| -> Vec<String> {
            text.map(same_each_time).filter(|line| !line.is_empty()).collect()
        };
        let (expected, found) = (of(&mut output.iter().map(String::as_str)), of(&mut printed.lines()));
        assert!(
            expected.is_empty() || found == expected,
            "{}:{line}: {command}\nshows {expected:#?}\nprints {found:#?}",
            self.page
        );
        self.last_code = ended;
    }

    /// Compares the beginning of what the broker printed at its start with what the page shows of it.
    fn tell_banner(&mut self, begins: &str) {
        let at = self.turn_of(begins);
        let data = self.broker.data_dir();
        let as_shown = |line: &String| {
            let line = line.replace(&self.broker.client_addr, "127.0.0.1:7188");
            let line = line.replace(&self.broker.admin_addr, "http://127.0.0.1:7190").replace(&data, "./data");
            same_each_time(&line)
        };
        let lines =
            |lines: &[String]| -> Vec<String> { lines.iter().map(as_shown).filter(|line| !line.is_empty()).collect() };
        let (expected, found) = (lines(&self.shown[at].output), lines(&self.broker.banner));
        let is_same = expected.iter().zip(&found).all(|(expected, found)| {
            // With other ports than the usual ones the commands to copy name them.
            found == expected || found.starts_with(&format!("{expected} --"))
        });
        assert!(is_same && found.len() >= expected.len(), "{}: {expected:#?}\nprints {found:#?}", self.page);
    }

    fn end(self) {
        let left = self.shown.iter().zip(&self.was_told).filter(|(_, told)| !**told);
        let left: Vec<&String> = left.map(|(shown, _)| &shown.command).collect();
        assert!(left.is_empty(), "{} shows what no test runs: {left:#?}", self.page);
    }
}

#[test]
fn the_readme_shows_what_a_node_prints() {
    let mut story = Story::begin("README.md");
    // The binary is on the path of the shell below.
    story.turn_of("export PATH=");
    story.tell_banner("mortarmq serve");
    story.tell("mortarmq topics create orders", 0);
    story.tell("mortarmq pub orders 'order {n}'", 0);
    story.tell("mortarmq sub orders --group billing --count 2", 0);
    story.broker.kill();
    story.broker.restart();
    story.tell("mortarmq balance", 0);
    story.tell("mortarmq sub orders --group billing --count 1", 0);
    story.tell("mortarmq trace orders 3 3", 0);
    story.tell("mortarmq pub ordres hello", 4);
    story.tell("echo $?", 0);
    story.tell("mortarmq explain UNKNOWN_TOPIC", 0);
    story.end();
}

#[test]
fn the_concepts_show_what_a_node_prints() {
    let mut story = Story::begin("docs/concepts.md");
    story.between("mortarmq topics create orders --partitions 1");
    story.between("mortarmq pub orders 'order {n}' --count 4 --key anna");
    // The first consumer leaves with the second message in its hands, the second fails once.
    story.between("mortarmq sub orders --group billing --count 1");
    story.between("mortarmq sub orders --group billing --count 1 --exec '[ $MORTARMQ_ATTEMPT = 2 ]'");
    story.tell("mortarmq trace orders 0 2", 0);
    story.tell("mortarmq pub orders refund --key anna", 0);
    story.tell("mortarmq pub orders refund --key anna", 0);
    story.between("mortarmq pub orders bad --key bob");
    story.tell("mortarmq sub orders --group billing --count 4", 0);
    story.tell("mortarmq dlq list orders", 0);
    // The page shows the last balance first: the one after the kill.
    let after_the_kill = story.turn_of("mortarmq balance");
    story.tell("mortarmq balance", 0);
    story.tell("mortarmq dlq redrive orders", 0);
    story.tell("mortarmq balance", 0);
    story.tell("mortarmq groups seek orders/billing --to earliest", 0);
    story.tell("mortarmq topics purge orders --group billing", 0);
    story.tell("mortarmq balance", 0);
    story.broker.kill();
    story.broker.restart();
    story.tell_banner("mortarmq serve --dev");
    story.was_told[after_the_kill] = false;
    story.tell("mortarmq balance", 0);
    story.end();
}

#[test]
fn every_command_of_the_runbooks_does_what_the_runbook_needs() {
    for page in [
        "docs/runbooks/RB-1-quorum-lost.md",
        "docs/runbooks/RB-2-quarantine.md",
        "docs/runbooks/RB-3-crash.md",
        "docs/runbooks/RB-4-disk-full.md",
        "docs/runbooks/RB-5-lost-disk.md",
    ] {
        let mut story = Story::begin(page);
        story.between("mortarmq topics create orders --partitions 1 && mortarmq topics create NAME");
        story.between("mortarmq pub orders x --count 6 --key anna");
        story.between("mortarmq sub orders --group billing --count 2");
        let data = story.broker.data_dir();
        for at in 0..story.shown.len() {
            story.was_told[at] = true;
            let line = story.shown[at].command.replace("DATA_DIR", &data);
            if line.starts_with("mortarmq serve") {
                // It serves until it is stopped: the other tests do that.
                continue;
            }
            let needs_rest = line.starts_with("mortarmq verify");
            if needs_rest {
                assert_eq!(story.broker.stop(), Some(0), "{page}");
            }
            let (printed, code) = story.shell(&line);
            if needs_rest {
                assert!(printed.contains("no damage"), "{page}: {line}: {printed}");
                story.broker.restart();
            }
            // What `doctor` finds of this machine is none of the runbook's business; that it looks is.
            let is_fine = code == 0 || (line.starts_with("mortarmq doctor") && code == 1);
            assert!(is_fine, "{page}: {line}: {code} {printed}");
            for (command, says) in [("mortarmq balance", "books balance"), ("mortarmq leader get", "quorum_state")] {
                assert!(!line.starts_with(command) || printed.contains(says), "{page}: {line}: {printed}");
            }
        }
        story.end();
    }
}
