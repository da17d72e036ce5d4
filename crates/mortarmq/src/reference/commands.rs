//! docs/reference/commands.md: every command and flag.

use clap::{Arg, Command, CommandFactory};
use std::fmt::Write as _;

use crate::cli::Cli;

const HEAD: &str = "# Commands

`mortarmq COMMAND --help` tells the same at the terminal. `--json` prints one object per row, `--header` a heading above the rows on a
pipe. Exit codes: 0 done, 1 a check failed or this machine did, 2 bad arguments, 3 unreachable or outcome unknown, 4 refused by the
broker. Columns, and what each command does in detail, are in [operations](operations.md#command-line).

This page is printed from the code, and a test holds it to it. The flags of `serve` are the keys of
[configuration](configuration.md), with dashes.
";

fn describe(command: &Command, name: &str, page: &mut String) {
    let inner: Vec<&Command> = command.get_subcommands().filter(|inner| !inner.is_hide_set()).collect();
    let flags: Vec<&Arg> = command
        .get_arguments()
        .filter(|argument| argument.get_long().is_some() && !argument.is_hide_set())
        // The keys of a node have a page of their own.
        .filter(|argument| argument.get_help_heading() != Some("Configuration"))
        .filter(|argument| !["help", "version"].contains(&argument.get_id().as_str()))
        .collect();
    // Some do something by themselves and have commands below them.
    if inner.is_empty() || !flags.is_empty() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let positionals: Vec<&Arg> = command.get_positionals().collect();
        let shown = |argument: &Arg| {
            let value =
                argument.get_value_names().and_then(|names| names.first()).map_or("VALUE", |name| name.as_str());
            if argument.is_required_set() { value.to_owned() } else { format!("[{value}]") }
        };
        let usage: Vec<String> = positionals.iter().map(|argument| shown(argument)).collect();
        let _ = write!(page, "\n## {name}\n\n{about}.\n\n    mortarmq {name}");
        usage.iter().for_each(|word| *page += &format!(" {word}"));
        *page += if flags.is_empty() { "\n" } else { " [flags]\n\n| flag | environment | meaning |\n|---|---|---|\n" };
        for flag in flags {
            let takes = flag.get_action().takes_values();
            let value = flag.get_value_names().and_then(|names| names.first()).filter(|_| takes);
            let long = flag.get_long().expect("filtered");
            let text = value.map_or_else(|| format!("--{long}"), |value| format!("--{long} {value}"));
            let environment = flag.get_env().map_or_else(String::new, |name| format!("`{}`", name.display()));
            let default: Vec<String> =
                flag.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
            let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
            let default =
                if default.is_empty() || !takes { String::new() } else { format!(" (default: {})", default.join(",")) };
            let _ = writeln!(page, "| `{text}` | {environment} | {}{default} |", super::cell(&help));
        }
    }
    for inner in inner.into_iter().filter(|inner| inner.get_name() != "help") {
        describe(inner, format!("{name} {}", inner.get_name()).trim(), page);
    }
}

#[test]
fn every_command_and_flag_is_on_the_page_and_nothing_else() {
    let mut command = Cli::command();
    command.build();
    let mut page = HEAD.to_owned();
    describe(&command, "", &mut page);
    super::holds("docs/reference/commands.md", &page);
}
