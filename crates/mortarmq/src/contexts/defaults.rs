//! A context as defaults of the arguments of a command: what the command line gives wins, then the environment.

use clap::{ArgMatches, Command, CommandFactory, FromArgMatches};

use super::{Context, Contexts};
use crate::cli::Cli;
use crate::errors::Failure;

/// Reads the command line, with the defaults of the context that counts where the command asks a broker.
///
/// # Errors
/// When there is no such context, or the contexts cannot be read. A wrong command line ends the process, as it says what is
/// wrong.
pub(crate) fn parse() -> Result<Cli, Failure> {
    let matches = Cli::command().get_matches();
    let (path, leaf) = leaf(&matches);
    if !asks_a_broker(leaf) {
        return Ok(typed(&matches));
    }
    let contexts = Contexts::read()?;
    match contexts.pick(wanted(leaf).as_deref())? {
        Some(context) => Ok(typed(&with_defaults(Cli::command(), &path, context).get_matches())),
        None => Ok(typed(&matches)),
    }
}

/// The context that is named on the command line or in the environment.
fn wanted(leaf: &ArgMatches) -> Option<String> {
    leaf.try_get_one::<String>("context").ok().flatten().cloned()
}

/// Only such commands have `--context`.
fn asks_a_broker(leaf: &ArgMatches) -> bool {
    leaf.try_contains_id("context").is_ok()
}

fn typed(matches: &ArgMatches) -> Cli {
    Cli::from_arg_matches(matches).unwrap_or_else(|error| error.exit())
}

/// The command that is carried out, and the names that lead to it.
fn leaf(matches: &ArgMatches) -> (Vec<String>, &ArgMatches) {
    let (mut path, mut leaf) = (Vec::new(), matches);
    while let Some((name, inner)) = leaf.subcommand() {
        path.push(name.to_owned());
        leaf = inner;
    }
    (path, leaf)
}

fn with_defaults(command: Command, path: &[String], context: &Context) -> Command {
    if let Some((name, rest)) = path.split_first() {
        return command.mut_subcommand(name, |inner| with_defaults(inner, rest, context));
    }
    command.mut_args(|argument| {
        let value = match argument.get_id().as_str() {
            "server" => &context.server,
            "admin" => &context.admin,
            "token" => &context.token,
            "tls_ca" => &context.tls_ca,
            _ => &None,
        };
        match value {
            Some(value) => argument.default_value(value.clone()).hide_default_value(true),
            None => argument,
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{asks_a_broker, leaf, with_defaults};
    use crate::cli::Cli;
    use crate::contexts::Context;

    #[test]
    fn a_context_fills_what_the_command_line_leaves_out() {
        let text = |text: &str| Some(text.to_owned());
        let context =
            Context { server: text("a:1,b:2"), admin: text("a:3"), token: text("t"), tls_ca: text("/ca.pem") };
        let value = |args: &[&str], name: &str| {
            let matches = Cli::command().get_matches_from(args);
            let (path, _) = leaf(&matches);
            let matches = with_defaults(Cli::command(), &path, &context).get_matches_from(args);
            let (_, leaf) = leaf(&matches);
            leaf.get_raw(name).map(|values| values.map(|value| value.to_string_lossy()).collect::<Vec<_>>().join("|"))
        };
        assert_eq!(value(&["mortarmq", "topics", "list"], "server").as_deref(), Some("a:1|b:2"));
        assert_eq!(value(&["mortarmq", "topics", "list", "--server", "c:1"], "server").as_deref(), Some("c:1"));
        assert_eq!(value(&["mortarmq", "balance"], "admin").as_deref(), Some("a:3"));
        assert_eq!(value(&["mortarmq", "balance"], "token").as_deref(), Some("t"));
        assert_eq!(value(&["mortarmq", "balance", "--token", "u"], "token").as_deref(), Some("u"));
        assert_eq!(value(&["mortarmq", "balance"], "tls_ca").as_deref(), Some("/ca.pem"));
    }

    #[test]
    fn only_commands_that_ask_a_broker_read_contexts() {
        let asks = |args: &[&str]| {
            let matches = Cli::command().get_matches_from(args);
            asks_a_broker(leaf(&matches).1)
        };
        for args in [&["mortarmq", "balance"][..], &["mortarmq", "pub", "a", "b"], &["mortarmq", "topics", "list"]] {
            assert!(asks(args), "{args:?}");
        }
        // A broker has `--tls-ca` too; a benchmark goes to no broker that was not named.
        for args in [&["mortarmq", "serve"][..], &["mortarmq", "version"], &["mortarmq", "bench"]] {
            assert!(!asks(args), "{args:?}");
        }
    }
}
