//! The core takes time, randomness and configuration as arguments, and does no I/O.
//!
//! The crates' `clippy.toml` say the same where clippy can see it; this rule also sees what is only named.

use std::io;

use crate::source::{code_only, line_of, without_tests, words};
use crate::{Finding, RustFile, Workspace};

/// The crates that take inputs and return outputs.
pub const PURE_CRATES: &[&str] = &["delivery", "shard", "replica", "node"];

/// A word that may not stand in some code, and why.
type Ban = (&'static str, &'static str);

/// Checks every source file outside tests.
///
/// # Errors
/// When a file cannot be read.
pub fn check(workspace: &Workspace) -> io::Result<Vec<Finding>> {
    Ok(workspace.rust_files()?.iter().flat_map(check_file).collect())
}

/// Checks one file, if a rule applies to it.
#[must_use]
pub fn check_file(file: &RustFile) -> Vec<Finding> {
    let bans = bans_for(file);
    if bans.is_empty() {
        return Vec::new();
    }
    let code = without_tests(&code_only(&file.text));
    let mut findings: Vec<Finding> = Vec::new();
    for (word, reason) in bans.iter().flat_map(|bans| bans.iter()) {
        for at in words(&code, word) {
            let line = line_of(&code, at);
            // One line names one fault once, also when two words of the list stand in it (`std::fs::File::`).
            if !findings.iter().any(|finding| finding.line == line && finding.text.ends_with(reason)) {
                findings.push(Finding::at(&file.path, line, format!("`{word}` in {}: {reason}", file.crate_name)));
            }
        }
    }
    findings
}

fn bans_for(file: &RustFile) -> Vec<&'static [Ban]> {
    if file.is_test {
        return Vec::new();
    }
    if PURE_CRATES.contains(&file.crate_name.as_str()) {
        return vec![PURE_BANS, FILE_BANS];
    }
    let is_disk = file.path_in_crate == "src/disk.rs" || file.path_in_crate.starts_with("src/disk/");
    if file.crate_name == "storage" && !is_disk {
        return vec![FILE_BANS];
    }
    Vec::new()
}

const CLOCK: &str = "time is an argument: a clock would make replay differ";
const CHANCE: &str = "randomness is an argument: two replicas must compute the same";
const THREAD: &str = "the core has no threads: the driver owns them";
const NET: &str = "the core has no sockets: the driver sends what is returned";
const FILE: &str = "all I/O goes through a Disk, so that the simulator can fail it";
const ORDER: &str = "iteration order is not defined: use BTreeMap or BTreeSet";
const SETTING: &str = "configuration is an argument: the core reads no environment";
const PRINT: &str = "the core returns what is worth saying: the driver logs it";

const PURE_BANS: &[Ban] = &[
    ("Instant", CLOCK),
    ("SystemTime", CLOCK),
    ("UNIX_EPOCH", CLOCK),
    ("clock_gettime", CLOCK),
    ("chrono", CLOCK),
    ("rand::", CHANCE),
    ("thread_rng", CHANCE),
    ("getrandom", CHANCE),
    ("fastrand", CHANCE),
    ("RandomState", CHANCE),
    ("DefaultHasher", CHANCE),
    ("std::thread", THREAD),
    ("thread::", THREAD),
    ("thread_local!", THREAD),
    ("mpsc", THREAD),
    ("tokio", THREAD),
    ("rayon", THREAD),
    ("async", THREAD),
    ("std::net", NET),
    ("net::", NET),
    ("TcpStream", NET),
    ("TcpListener", NET),
    ("UdpSocket", NET),
    ("UnixStream", NET),
    ("HashMap", ORDER),
    ("HashSet", ORDER),
    ("std::env", SETTING),
    ("env::", SETTING),
    ("std::process", SETTING),
    ("println!", PRINT),
    ("eprintln!", PRINT),
    ("print!", PRINT),
    ("eprint!", PRINT),
];

const FILE_BANS: &[Ban] = &[
    ("std::fs", FILE),
    ("fs::", FILE),
    ("File::open", FILE),
    ("File::create", FILE),
    ("File::options", FILE),
    ("OpenOptions", FILE),
    ("FileExt", FILE),
    ("rustix", FILE),
    ("libc", FILE),
    ("stdin", FILE),
    ("stdout", FILE),
];
