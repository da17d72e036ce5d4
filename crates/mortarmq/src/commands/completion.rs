//! `completion SHELL`: a script for the shell, to be sourced.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::errors::Failure;

/// Print completions for a shell
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which shell
    shell: Known,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Known {
    Bash,
    Zsh,
    Fish,
}

/// Prints the script.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    std::io::stdout().write_all(&script(args.shell)).map_err(Failure::from_stdout)
}

/// Into memory first: the generator panics where a closed pipe should end quietly.
fn script(shell: Known) -> Vec<u8> {
    let shell = match shell {
        Known::Bash => Shell::Bash,
        Known::Zsh => Shell::Zsh,
        Known::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "mortarmq", &mut script);
    script
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use super::{Known, script};
    use crate::cli::Cli;

    /// Every command and flag, as a shell's script must name it: in fish flags stand behind `-l`.
    fn names(command: &Command, flag: &str, found: &mut Vec<String>) {
        for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
            found.push(inner.get_name().to_owned());
            names(inner, flag, found);
        }
        let flags = command.get_arguments().filter(|argument| !argument.is_hide_set());
        found.extend(flags.filter_map(|argument| Some(format!("{flag}{}", argument.get_long()?))));
    }

    #[test]
    fn every_command_and_flag_is_in_every_script() {
        for (shell, flag) in [(Known::Bash, "--"), (Known::Zsh, "--"), (Known::Fish, "-l ")] {
            let script = String::from_utf8(script(shell)).expect("scripts are text");
            let mut wanted = Vec::new();
            let mut command = Cli::command();
            command.build();
            names(&command, flag, &mut wanted);
            assert!(wanted.len() > 100, "{}", wanted.len());
            let words: std::collections::BTreeSet<&str> =
                script.split(|letter: char| !(letter.is_ascii_alphanumeric() || "-_".contains(letter))).collect();
            for name in wanted {
                let is_in =
                    if name.starts_with("-l ") { script.contains(&name) } else { words.contains(name.as_str()) };
                assert!(is_in, "{shell:?} lacks {name:?}");
            }
        }
    }
}
