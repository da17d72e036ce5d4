//! The tree of commands.

use crate::commands::{
    balance, bench, bench_floor, broker, check, completion, config, context, defaults, demo, dlq, doctor, explain,
    groups, hash_password, hash_token, history, init, leader, members, peek, publish, serve, sim, soak, subscribe,
    topics, trace, verify, version,
};
use crate::errors::Failure;

/// A durable message broker whose books balance
#[derive(Debug, clap::Parser)]
#[command(name = "mortarmq", version, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Serve(serve::Args),
    Init(init::Args),
    #[command(subcommand)]
    Config(config::Command),
    HashToken(hash_token::Args),
    HashPassword(hash_password::Args),
    #[command(subcommand)]
    Context(context::Command),
    #[command(subcommand)]
    Topics(topics::Command),
    #[command(subcommand)]
    Groups(groups::Command),
    Pub(publish::Args),
    Sub(subscribe::Args),
    Peek(peek::Args),
    #[command(subcommand)]
    Dlq(dlq::Command),
    Trace(trace::Args),
    Balance(balance::Args),
    #[command(subcommand)]
    Defaults(defaults::Command),
    #[command(subcommand)]
    Broker(broker::Command),
    #[command(subcommand)]
    Leader(leader::Command),
    #[command(subcommand)]
    Members(members::Command),
    Doctor(doctor::Args),
    Verify(verify::Args),
    #[command(subcommand)]
    History(history::Command),
    Check(check::Args),
    Sim(sim::Args),
    Explain(explain::Args),
    Bench(Box<bench::Args>),
    #[command(hide = true)]
    BenchFloor(bench_floor::Args),
    Soak(soak::Args),
    Demo(demo::Args),
    Completion(completion::Args),
    /// Print the version
    Version,
}

impl Cli {
    /// Carries out the command that was given.
    ///
    /// # Errors
    /// Whatever the command could not do.
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::Serve(args) => serve::run(args),
            Command::Init(args) => init::run(&args),
            Command::Config(command) => config::run(&command),
            Command::HashToken(args) => hash_token::run(&args),
            Command::HashPassword(args) => hash_password::run(&args),
            Command::Context(command) => context::run(command),
            Command::Topics(command) => topics::run(&command),
            Command::Groups(command) => groups::run(&command),
            Command::Pub(args) => publish::run(&args),
            Command::Sub(args) => subscribe::run(&args),
            Command::Peek(args) => peek::run(&args),
            Command::Dlq(command) => dlq::run(&command),
            Command::Trace(args) => trace::run(&args),
            Command::Balance(args) => balance::run(&args),
            Command::Defaults(command) => defaults::run(&command),
            Command::Broker(command) => broker::run(&command),
            Command::Leader(command) => leader::run(&command),
            Command::Members(command) => members::run(&command),
            Command::Doctor(args) => doctor::run(&args),
            Command::Verify(args) => verify::run(&args),
            Command::History(command) => history::run(&command),
            Command::Check(args) => check::run(&args),
            Command::Sim(args) => sim::run(&args),
            Command::Explain(args) => explain::run(&args),
            Command::Bench(args) => bench::run(&args),
            Command::BenchFloor(args) => bench_floor::run(&args),
            Command::Soak(args) => soak::run(&args),
            Command::Demo(args) => demo::run(&args),
            Command::Completion(args) => completion::run(&args),
            Command::Version => version::run(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn no_two_arguments_of_a_command_share_a_name() {
        Cli::command().debug_assert();
    }
}
