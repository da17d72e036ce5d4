//! One message given to one process.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use mortarmq_client::Delivery;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, Command};
use tokio::sync::watch;

/// How a command ended, as far as its message is concerned.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Exit code 0.
    Succeeded,
    /// Exit code 65: it will never take this message.
    Rejected(String),
    /// Any other end, with the end of its stderr.
    Failed(String),
    /// It was told to end before it had done its work: no fault of the message.
    Stopped,
}

/// Runs the command with the message on stdin. When the lease is lost, or `is_stopped` becomes true, the command gets
/// SIGTERM, and is waited for.
pub(super) async fn run(
    command: &str,
    topic: &str,
    delivery: &Delivery,
    mut is_stopped: watch::Receiver<bool>,
) -> Ending {
    let mut child = match spawn(command, topic, delivery) {
        Ok(child) => child,
        Err(error) => return Ending::Failed(format!("the command cannot be started: {error}")),
    };
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let work = finish(&mut child, &delivery.value);
    tokio::pin!(work);
    let is_lost = tokio::select! {
        ending = &mut work => return ending,
        () = delivery.lost() => true,
        _ = is_stopped.wait_for(|is_stopped| *is_stopped) => false,
    };
    if let Some(group) = group {
        // An error means that it has ended by itself meanwhile.
        let _ = kill_process_group(group, Signal::TERM);
    }
    match work.await {
        Ending::Rejected(_) | Ending::Failed(_) if !is_lost => Ending::Stopped,
        ending => ending,
    }
}

/// Feeds the command and reads its stderr until it has ended. What it leaves running in the background may keep both
/// pipes open, so neither is waited for once it has ended.
async fn finish(child: &mut Child, value: &[u8]) -> Ending {
    let feeding = feed(child.stdin.take().expect("stdin is piped"), value);
    let mut end = Vec::new();
    let status = {
        let reading = tail(child.stderr.take().expect("stderr is piped"), &mut end);
        let waiting = child.wait();
        tokio::pin!(feeding, reading, waiting);
        let (mut is_fed, mut is_read) = (false, false);
        let status = loop {
            tokio::select! {
                status = &mut waiting => break status,
                () = &mut feeding, if !is_fed => is_fed = true,
                () = &mut reading, if !is_read => is_read = true,
            }
        };
        if !is_read {
            let _ = tokio::time::timeout(LAST_WORDS, reading).await;
        }
        status
    };
    ending(status, end)
}

fn spawn(command: &str, topic: &str, delivery: &Delivery) -> std::io::Result<Child> {
    Command::new("sh")
        .arg("-c")
        .arg(command)
        .env("MORTARMQ_TOPIC", topic)
        .env("MORTARMQ_PARTITION", delivery.partition.to_string())
        .env("MORTARMQ_SEQUENCE", delivery.seq.to_string())
        .env("MORTARMQ_KEY", OsStr::from_bytes(&delivery.key))
        .env("MORTARMQ_ATTEMPT", delivery.attempt.to_string())
        .env("MORTARMQ_CAUSE", delivery.cause.word())
        // A group of its own: SIGTERM reaches what the shell has started, and Ctrl-C leaves running commands to end.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::from(std::io::stderr()))
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
}

async fn feed(mut stdin: ChildStdin, value: &[u8]) {
    // A command that does not read its message is free to do so; only its exit code counts.
    let _ = stdin.write_all(value).await;
}

/// Passes stderr on and keeps its end.
async fn tail(mut stderr: ChildStderr, end: &mut Vec<u8>) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        let _ = std::io::Write::write_all(&mut std::io::stderr(), &buffer[..count]);
        end.extend_from_slice(&buffer[..count]);
        let surplus = end.len().saturating_sub(ERROR_TEXT_BYTES);
        end.drain(..surplus);
    }
}

fn ending(status: std::io::Result<ExitStatus>, end: Vec<u8>) -> Ending {
    let (code, told) = match status {
        Ok(status) => (status.code(), status.to_string()),
        Err(error) => (None, format!("the command cannot be waited for: {error}")),
    };
    let end = String::from_utf8_lossy(&end);
    let text = if end.trim_end().is_empty() { told } else { end.trim_end().to_owned() };
    match code {
        Some(0) => Ending::Succeeded,
        Some(REJECTED) => Ending::Rejected(text),
        _ => Ending::Failed(text),
    }
}

/// How long what is still in the pipe may take.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// EX_DATAERR.
///
/// # Source
/// sysexits(3).
const REJECTED: i32 = 65;
/// What of a command's stderr goes into a nack.
const ERROR_TEXT_BYTES: usize = 512;
