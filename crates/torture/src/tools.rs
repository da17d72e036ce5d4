//! Programs of the system that a run uses, and whether they are there.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::{Failure, Outcome, machine};

/// Runs a program to its end.
///
/// # Errors
/// When it cannot be run or does not end with 0; the failure has what it printed.
pub(crate) fn sh(program: &str, args: &[&str]) -> Outcome {
    let mut command = Command::new(program);
    command.args(args);
    run(&mut command).map(drop)
}

/// Runs a command to its end, and returns its stdout.
///
/// # Errors
/// As [`sh`].
pub(crate) fn run(command: &mut Command) -> Outcome<String> {
    let shown = shown(command);
    let done = command.stdin(Stdio::null()).output().map_err(machine(shown.clone()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if done.status.success() {
        return Ok(text(&done.stdout));
    }
    let said = [text(&done.stdout), text(&done.stderr), done.status.to_string()].join(" ");
    Err(Failure::Tool { command: shown, said: said.trim().to_owned() })
}

/// A command as one would type it.
fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Where a program is, if the search path has it.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")]).find_map(|folder| {
        let file = folder.join(program);
        file.is_file().then_some(file)
    })
}

/// The library that lets a process see another wall clock, if it is installed.
pub(crate) fn find_faketime() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    let files = folders.chain([PathBuf::from("/usr/lib"), PathBuf::from("/usr/local/lib")]);
    files.map(|folder| folder.join(Path::new("faketime/libfaketime.so.1"))).find(|file| file.is_file())
}
