//! `hash-token`: the line of a configuration for a token. A node knows digests only.

use std::io::{Read, Write};

use crate::errors::Failure;
use crate::output::note;
use crate::tokens::{GrantArgs, TokenLine, draw};

/// Draw a token and print the line of the configuration that lets it in
///
/// The line goes to stdout: put it into the list `tokens` of the configuration. The token itself is shown once, on stderr;
/// nothing keeps it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// For logs and errors
    name: String,
    /// Take the token from stdin (one line) instead of drawing one
    #[arg(long)]
    stdin: bool,
    #[command(flatten)]
    grants: GrantArgs,
    /// Print JSON instead of TOML
    #[arg(long)]
    json: bool,
}

/// Prints it.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let grants = args.grants.lines("the token")?;
    let line = if args.stdin {
        TokenLine::of(&args.name, token_of_stdin()?.as_bytes(), grants)
    } else {
        let drawn = draw(&args.name, grants)?;
        note(format!("token   {}   (shown this once: only its digest is kept)", drawn.token));
        drawn.line
    };
    // A pattern or a name that no node takes is refused here, not at the node's next start.
    mortarmq_server::access::read_tokens(&format!("[{}]", line.json()))
        .map_err(|reason| Failure::arguments(reason, "put it right and run this again"))?;
    let line = if args.json { line.json() } else { line.toml() };
    writeln!(std::io::stdout(), "{line}").map_err(Failure::from_stdout)
}

fn token_of_stdin() -> Result<String, Failure> {
    let mut text = String::new();
    let read = std::io::stdin().take(TOKEN_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| Failure::local(format!("cannot read stdin: {error}"), "give the token as one line of text"))?;
    let token = text.trim_end_matches(['\r', '\n']);
    if token.len() < TOKEN_BYTES_MIN || token.contains('\n') || token.contains(char::is_whitespace) {
        return Err(Failure::arguments(
            format!(
                "a token is one word of at least {TOKEN_BYTES_MIN} bytes; it is hashed once, so it must not be guessed"
            ),
            "leave --stdin out to have one drawn",
        ));
    }
    Ok(token.to_owned())
}

/// What is shorter can be found by trying.
const TOKEN_BYTES_MIN: usize = 16;
/// CONNECT has 16 bits for the length of a token.
const TOKEN_BYTES_MAX: u64 = 65_535;
