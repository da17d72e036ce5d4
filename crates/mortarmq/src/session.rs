//! The wire protocol as commands use it: options, a connection, and the client's errors as failures of a command.

use std::future::Future;
use std::time::Duration;

use mortarmq_client::{Client, ClientError, ClientOptions, ErrorCode, Outcome, SettleError};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::contexts::ContextArg;
use crate::errors::Failure;
use crate::tls::TlsArgs;

/// Where the broker takes clients.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServerArgs {
    /// Where the broker takes clients; several addresses with commas
    #[arg(
        long,
        env = "MORTARMQ_SERVER",
        default_value = "127.0.0.1:7188",
        value_name = "HOST:PORT",
        value_delimiter = ',',
        value_parser = address
    )]
    pub(crate) server: Vec<String>,
    /// Token, where the broker asks for one
    #[arg(long, env = "MORTARMQ_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    #[command(flatten)]
    pub(crate) context: ContextArg,
}

impl ServerArgs {
    /// The node at one address.
    pub(crate) fn at(address: &str) -> Self {
        Self { server: vec![address.to_owned()], token: None, tls: TlsArgs::default(), context: ContextArg::default() }
    }

    /// Opens a connection; each server is tried once. Over it, every request is repeated until it is answered, however long
    /// a broker is away (P3).
    ///
    /// # Errors
    /// Unreachable when no server answers, or none over TLS as it is asked for; refused when the token is not accepted.
    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        let options = ClientOptions {
            servers: self.server.clone(),
            token: self.token.clone().unwrap_or_default().into_bytes(),
            tls: self.tls.options()?,
            name: format!("mortarmq {}", env!("CARGO_PKG_VERSION")),
            ..ClientOptions::default()
        };
        Client::connect(options).await.map_err(|error| failure(&error))
    }
}

/// Reads `HOST:PORT`, or `HOST` for the usual port. Whether there is such a host only a look-up tells.
///
/// # Errors
/// A text for the user when it is something else.
pub(crate) fn address(text: &str) -> Result<String, String> {
    let is_host = |host: &str| !host.is_empty() && !host.contains('/') && !host.contains(char::is_whitespace);
    match text.rsplit_once(':') {
        Some((host, port)) if is_host(host) && port.parse::<u16>().is_ok() => Ok(text.to_owned()),
        None if is_host(text) => Ok(format!("{text}:{DEFAULT_CLIENT_PORT}")),
        Some(_) | None => Err("is not HOST:PORT, as in 127.0.0.1:7188".to_owned()),
    }
}

/// Runs a command that asks one thing: whoever asked wants an answer soon, or to know that there is none.
///
/// # Errors
/// Those of the command, and unreachable, outcome unknown, when the time is up.
pub(crate) fn block_on_question<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    block_on(async {
        let limited = tokio::time::timeout(QUESTION_LIMIT, command).await;
        limited.unwrap_or_else(|_| {
            let seconds = QUESTION_LIMIT.as_secs();
            let what = format!("no answer from the broker for {seconds} s (outcome unknown)");
            Err(Failure::unreachable(what, "repeat when it is back: repeating does no harm"))
        })
    })
}

/// Runs a command that waits for more than one thing.
///
/// # Errors
/// Those of the command, and when no runtime can be had.
pub(crate) fn block_on<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        Failure::local(format!("no threads for the command: {error}"), "raise the limit of threads, then repeat")
    })?;
    let result = runtime.block_on(command);
    // A thread that still waits for stdin must not keep the command.
    runtime.shutdown_background();
    result
}

/// Lets the client say on stderr that a connection was lost: a command that goes on until it is answered must not seem to
/// hang.
pub(crate) fn warn_on_stderr() {
    let stderr = tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::WARN);
    // It can be set once in a process; a second time changes nothing.
    let _ = stderr.without_time().with_target(false).with_ansi(false).try_init();
}

/// The wish to end: Ctrl-C or SIGTERM.
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Listens from now on.
    pub(crate) fn new() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::local(format!("no signals: {error}"), "look at the system's limits"))
        };
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits until somebody wants the command to end.
    pub(crate) async fn wanted(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Runs a command that owns other processes or folders, so that these go when it is told to end.
pub(crate) async fn until_stopped<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let mut stop = Stop::new()?;
    tokio::select! {
        result = command => result,
        () = stop.wanted() => Err(Failure::local("stopped before the end", "run it again")),
    }
}

/// A client's error as the failure of a command.
pub(crate) fn failure(error: &ClientError) -> Failure {
    if let Some(answer) = error.server() {
        return match answer.known_code() {
            Some(code) => Failure::answered(code, answer.outcome, &answer.message),
            None => by_outcome(answer.outcome, error.to_string(), "upgrade this command to know more"),
        };
    }
    match error {
        ClientError::Invalid(_) => Failure::arguments(error.to_string(), "change what the text names, then repeat"),
        ClientError::Unreachable { servers, reason } => {
            // The reason names the server that was tried last; of one there is no need to hear twice.
            let reason = reason.strip_prefix(servers).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(reason);
            Failure::unreachable(
                format!("no broker answers at {servers}: {reason}"),
                "start one: mortarmq serve --dev      (or say where it is: --server HOST:PORT)",
            )
        }
        ClientError::Tls { reason, remedy } => Failure::unreachable(reason.clone(), *remedy),
        ClientError::GaveUp { .. } => Failure::unreachable(error.to_string(), "repeat when the broker is back"),
        _ => by_outcome(error.outcome(), error.to_string(), "look at the state of the topic, then repeat"),
    }
}

/// Whether a delivery was settled as asked; not if its message has moved on, which is no failure.
///
/// # Errors
/// It could not be settled.
pub(crate) fn is_settled(answer: Result<(), SettleError>) -> Result<bool, Failure> {
    match answer {
        Ok(()) => Ok(true),
        Err(SettleError::LeaseLost | SettleError::UnknownDelivery) => Ok(false),
        Err(SettleError::Failed(error)) => Err(failure(&error)),
    }
}

/// The failure of a request about one topic: when that does not exist, the nearest that does is named.
pub(crate) async fn failure_of_topic(client: &Client, topic: &str, error: &ClientError) -> Failure {
    if error.code() != Some(ErrorCode::UnknownTopic) {
        return failure(error);
    }
    // The list only improves the text: without it the failure is told all the same.
    let known = client.metadata(&[]).await.map(|metadata| metadata.topics).unwrap_or_default();
    let known: Vec<String> = known.into_iter().map(|topic| topic.name).collect();
    Failure::unknown_topic(topic, &known)
}

fn by_outcome(outcome: Outcome, what: String, remedy: &str) -> Failure {
    match outcome {
        Outcome::Refused => Failure::refused(what, remedy),
        Outcome::Unknown => Failure::unreachable(what, remedy),
    }
}

/// A broker that restarts is back sooner.
const QUESTION_LIMIT: Duration = Duration::from_secs(10);

/// The port that commands take when they are told none.
pub(crate) const DEFAULT_CLIENT_PORT: u16 = 7188;

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn an_address_is_a_host_with_a_port_or_with_the_usual_one() {
        for text in ["127.0.0.1:7188", "localhost:1", "[::1]:7188", "broker-1.example.org:65535"] {
            assert_eq!(address(text).as_deref(), Ok(text));
        }
        assert_eq!(address("10.0.0.1").as_deref(), Ok("10.0.0.1:7188"));
        for text in ["", "a b", "a/b", ":7188", "host:", "host:65536", "host:-1", "http://host:7188", "a b:1"] {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
