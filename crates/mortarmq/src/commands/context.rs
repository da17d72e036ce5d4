//! `context add`, `use`, `list`, `remove`: brokers by name.

use std::io::Read;

use crate::contexts::{Context, Contexts};
use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows, note};
use crate::{admin, session};

/// Keep addresses and tokens of brokers under names
///
/// A context is the default of --server, --admin, --token and --tls-ca. A flag wins over the environment, that over the
/// context. They are kept in contexts.json in the folder mortarmq of $XDG_CONFIG_HOME (~/.config), which only you may read.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Add a context
    Add(AddArgs),
    /// Make a context the one that counts where none is named; without a name: none
    Use(UseArgs),
    /// List the contexts
    List(ListArgs),
    /// Remove a context
    Remove(RemoveArgs),
}

/// Arguments of `context add`.
#[derive(clap::Args)]
pub(crate) struct AddArgs {
    /// Its name
    name: String,
    /// Where the broker takes clients; several addresses with commas
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', value_parser = session::address)]
    server: Vec<String>,
    /// Where the broker answers operators
    #[arg(long, value_name = "URL", value_parser = admin::url)]
    admin: Option<String>,
    /// Token, where the broker asks for one. On a machine with other users take --token-stdin
    #[arg(long, value_name = "TOKEN", conflicts_with = "token_stdin")]
    token: Option<String>,
    /// Take the token from stdin (one line): so it stands in no list of processes and no history of a shell
    #[arg(long)]
    token_stdin: bool,
    /// Speak TLS, and trust the CAs of this PEM file alone; "system" takes those of the system
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<String>,
    /// Use it at once
    #[arg(long = "use")]
    is_used: bool,
}

/// Leaves the token out.
impl std::fmt::Debug for AddArgs {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("AddArgs").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Arguments of `context use`.
#[derive(Debug, clap::Args)]
pub(crate) struct UseArgs {
    /// Its name
    name: Option<String>,
}

/// Arguments of `context list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    rows: RowArgs,
}

/// Arguments of `context remove`.
#[derive(Debug, clap::Args)]
pub(crate) struct RemoveArgs {
    /// Its name
    name: String,
}

/// Carries out the subcommand.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Add(args) => add(args),
        Command::Use(args) => switch(args),
        Command::List(args) => list(&args),
        Command::Remove(args) => remove(&args),
    }
}

fn add(args: AddArgs) -> Result<(), Failure> {
    let AddArgs { name, server, admin, token, token_stdin, tls_ca, is_used } = args;
    let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if !is_name {
        let what = format!("\"{name}\" is no name of a context");
        return Err(Failure::arguments(what, format!("give 1 to {NAME_BYTES_MAX} of A-Z a-z 0-9 . _ -")));
    }
    let mut all = Contexts::read()?;
    if all.contexts.contains_key(&name) {
        let remedy = format!("take another name, or remove it first: mortarmq context remove {name}");
        return Err(Failure::arguments(format!("the context \"{name}\" is there already"), remedy));
    }
    let context = Context {
        server: (!server.is_empty()).then(|| server.join(",")),
        admin,
        token: if token_stdin { Some(token_of_stdin()?) } else { token },
        tls_ca: tls_ca.map(full_path).transpose()?,
    };
    if context == Context::default() {
        return Err(Failure::arguments("the context would say nothing", "give --server, --admin, --token or --tls-ca"));
    }
    all.contexts.insert(name.clone(), context);
    if is_used {
        all.current = Some(name.clone());
    }
    all.write()?;
    note(if is_used {
        format!("added and in use: {name}")
    } else {
        format!("added: {name}; use it: mortarmq context use {name}      (or once: --context {name})")
    });
    Ok(())
}

/// A command may be typed in any folder.
fn full_path(file: String) -> Result<String, Failure> {
    if file == "system" {
        return Ok(file);
    }
    let full = std::path::absolute(&file).ok().and_then(|path| Some(path.to_str()?.to_owned()));
    full.ok_or_else(|| Failure::arguments(format!("{file} is no path"), "give the CA of the broker"))
}

fn token_of_stdin() -> Result<String, Failure> {
    let mut text = String::new();
    let read = std::io::stdin().take(TOKEN_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| Failure::local(format!("cannot read stdin: {error}"), "give the token as one line of text"))?;
    let token = text.trim_end_matches(['\r', '\n']);
    if token.is_empty() || token.contains(char::is_whitespace) {
        return Err(Failure::arguments("stdin has no token", "give it as one line, one word"));
    }
    Ok(token.to_owned())
}

fn switch(args: UseArgs) -> Result<(), Failure> {
    let mut all = Contexts::read()?;
    all.pick(args.name.as_deref())?;
    note(args.name.as_deref().map_or_else(|| "no context is in use".to_owned(), |name| format!("in use: {name}")));
    all.current = args.name;
    all.write()
}

fn list(args: &ListArgs) -> Result<(), Failure> {
    let all = Contexts::read()?;
    let mut rows = Rows::listed(COLUMNS, args.rows);
    for (name, context) in &all.contexts {
        let is_current = all.current.as_ref() == Some(name);
        rows.push(vec![
            Cell::Text(name.clone()),
            Cell::Text(if is_current { "in use" } else { "" }.to_owned()),
            Cell::text(context.server.as_deref()),
            Cell::text(context.admin.as_deref()),
            // That there is one is all that is shown of it.
            Cell::Text(if context.token.is_some() { "set" } else { "none" }.to_owned()),
            Cell::text(context.tls_ca.as_deref()),
        ])?;
    }
    rows.finish()
}

fn remove(args: &RemoveArgs) -> Result<(), Failure> {
    let mut all = Contexts::read()?;
    if all.contexts.remove(&args.name).is_none() {
        return Err(all.unknown(&args.name));
    }
    let was_used = all.current.as_ref() == Some(&args.name);
    if was_used {
        all.current = None;
    }
    all.write()?;
    let rest = if was_used { "; no context is in use" } else { "" };
    note(format_args!("removed: {}{rest}", args.name));
    Ok(())
}

const COLUMNS: &[&str] = &["name", "current", "server", "admin", "token", "tls_ca"];
const NAME_BYTES_MAX: usize = 64;
const TOKEN_BYTES_MAX: u64 = 65_535;
