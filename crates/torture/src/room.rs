//! A room of its own for all that a run starts: namespaces of processes, mounts and network, made by `unshare`.
//!
//! What is inside ends with the program, however it ends: processes are killed, disks unmounted and networks gone when the
//! first process of the room is. Outside of it nothing is seen of them, and no port or firewall rule of the machine is touched.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::failure::{Failure, Outcome, machine};
use crate::tools;

/// Tells the program that it is inside.
const INSIDE: &str = "MORTARMQ_TORTURE_ROOM";

/// Whether this process is in a room of its own.
#[must_use]
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Why there can be no room here, if there cannot.
pub(crate) fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("needs root, for namespaces".to_owned());
    }
    if tools::find("unshare").is_none() || tools::find("ip").is_none() {
        return Some("needs unshare and ip (util-linux, iproute2)".to_owned());
    }
    // A container may be root and not be allowed to.
    let mut command = Command::new("unshare");
    command.args(NAMESPACES).arg("true");
    tools::run(&mut command).err().map(|why| format!("needs namespaces of its own: {why}"))
}

/// Starts this program again inside a room, in place of this process. Returns only if there can be none: why.
///
/// # Errors
/// When the room could be made and the program not started.
pub fn enter() -> Outcome<String> {
    if let Some(why) = missing() {
        return Ok(why);
    }
    let program = std::env::current_exe().map_err(machine("where is this program"))?;
    let mut command = Command::new("unshare");
    command.args(NAMESPACES).arg("--").arg(program).args(std::env::args_os().skip(1)).env(INSIDE, "1");
    Err(Failure::Machine { what: "cannot run unshare".to_owned(), source: command.exec() })
}

/// Makes the room usable; called first inside.
///
/// # Errors
/// When the system refuses.
pub fn furnish() -> Outcome {
    // Names of network namespaces are files below /run, and those of the machine are not ours.
    tools::sh("mount", &["-t", "tmpfs", "tmpfs", "/run"])?;
    tools::sh("ip", &["link", "set", "lo", "up"])
}

/// Killed with its parent, so that ending `unshare` ends everything.
const NAMESPACES: &[&str] =
    &["--net", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"];
