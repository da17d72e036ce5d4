//! `hash-password`: the line of a configuration for a user. A node knows hashes only.

use std::io::{Read, Write};

use crate::errors::Failure;
use crate::tokens::{GrantArgs, UserLine};

/// Read a password from stdin and print the line of the configuration that lets its user in, over HTTP
///
/// The line goes to stdout: put it into the list `users` of the configuration. For the wire protocol and for programs take a
/// token: hash-token.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The user
    name: String,
    #[command(flatten)]
    grants: GrantArgs,
    /// Print JSON instead of TOML
    #[arg(long)]
    json: bool,
}

/// Prints it.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let grants = args.grants.lines("the user")?;
    let mut text = String::new();
    let read = std::io::stdin().take(LINE_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| {
        Failure::local(format!("cannot read stdin: {error}"), "give the password as one line of text")
    })?;
    let password = text.trim_end_matches(['\r', '\n']);
    if password.chars().count() < PASSWORD_CHARACTERS_MIN {
        let what = format!("a password has at least {PASSWORD_CHARACTERS_MIN} characters");
        return Err(Failure::arguments(what, "give a longer one as one line on stdin"));
    }
    let hash = mortarmq_server::access::hash_password(password.as_bytes())
        .map_err(|reason| Failure::arguments(reason, "give another one as one line on stdin"))?;
    let line = UserLine::new(&args.name, hash, grants);
    // A pattern or a name that no node takes is refused here, not at the node's next start.
    mortarmq_server::access::read_users(&format!("[{}]", line.json()))
        .map_err(|reason| Failure::arguments(reason, "put it right and run this again"))?;
    let line = if args.json { line.json() } else { line.toml() };
    writeln!(std::io::stdout(), "{line}").map_err(Failure::from_stdout)
}

const PASSWORD_CHARACTERS_MIN: usize = 8;
const LINE_BYTES_MAX: u64 = 4096;
