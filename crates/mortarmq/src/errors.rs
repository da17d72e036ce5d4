//! How a command ends when it does not end well: two lines on stderr, what and what to do, and an exit code.

use std::process::ExitCode;

use mortarmq_wire::names::{NameKind, check_name};
use mortarmq_wire::{ErrorCode, Outcome};

use crate::output::{note, one_line};

/// Why a command did not end with exit code 0.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nobody reads stdout any more, as after `| head`. This is no error: nothing is said, exit code 0.
    PipeClosed,
    /// A check failed, and its rows have said so.
    Verdict,
    /// The log has told it.
    Logged(Exit),
    /// Something to tell.
    Told(Box<Told>),
}

/// What to tell, and with which exit code.
#[derive(Debug)]
pub(crate) struct Told {
    exit: Exit,
    what: String,
    remedy: String,
}

/// The exit codes other than 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// A check or verdict failed, or this machine did (a folder, a child process).
    Failed = 1,
    /// The arguments cannot be sent.
    Arguments = 2,
    /// The broker cannot be reached, or what it did is not known.
    Unknown = 3,
    /// The broker refused: nothing was stored.
    Refused = 4,
}

impl Failure {
    /// The arguments cannot be sent.
    pub(crate) fn arguments(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::told(Exit::Arguments, what, remedy)
    }

    /// No answer can be had.
    pub(crate) fn unreachable(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::told(Exit::Unknown, what, remedy)
    }

    /// The server refused without a code of ours.
    pub(crate) fn refused(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::told(Exit::Refused, what, remedy)
    }

    /// This machine failed: a folder, a child process, a check of a demonstration.
    pub(crate) fn local(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::told(Exit::Failed, what, remedy)
    }

    /// The broker answered with an error. The outcome is the answer's, not the registry's: the broker knows better
    /// (failure rule 6).
    pub(crate) fn answered(code: ErrorCode, outcome: Outcome, text: &str) -> Self {
        let text = if text.is_empty() { code.meaning() } else { text };
        let exit = match outcome {
            Outcome::Refused => Exit::Refused,
            Outcome::Unknown => Exit::Unknown,
        };
        let remedy = match code {
            // Commands send CONNECT by themselves: this is an operator route that was asked without a token.
            ErrorCode::NotAuthenticated => "give a token: --token TOKEN, or MORTARMQ_TOKEN",
            code => code.remedy(),
        };
        Self::told(exit, format!("{text} ({}, {})", code.name(), told_outcome(outcome)), remedy)
    }

    /// The topic does not exist; `known` are the topics that do. Where no topic can have that name, the rule is told in
    /// place of a command that would be refused.
    pub(crate) fn unknown_topic(topic: &str, known: &[String]) -> Self {
        let code = ErrorCode::UnknownTopic.name();
        let create = match check_name(NameKind::Topic, topic.as_bytes()) {
            Ok(name) => format!("create it: mortarmq topics create {name}"),
            Err(rule) => rule.to_string(),
        };
        let remedy = match nearest(topic, known) {
            Some(name) => format!("{create}      (did you mean \"{name}\"?)"),
            None => create,
        };
        let stored = told_outcome(Outcome::Refused);
        Self::told(Exit::Refused, format!("topic \"{topic}\" does not exist ({code}, {stored})"), remedy)
    }

    /// The same once it is told in the log: nothing more is said on stderr.
    pub(crate) fn logged(self) -> Self {
        match self {
            Self::Told(told) => {
                tracing::error!(remedy = told.remedy, "{}", told.what);
                Self::Logged(told.exit)
            }
            other @ (Self::PipeClosed | Self::Verdict | Self::Logged(_)) => other,
        }
    }

    /// Writing to stdout failed.
    pub(crate) fn from_stdout(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::PipeClosed;
        }
        Self::local(format!("stdout takes nothing more: {error}"), "look where the output goes, then repeat")
    }

    /// The same with another second line.
    pub(crate) fn with_remedy(self, remedy: String) -> Self {
        match self {
            Self::Told(told) => Self::Told(Box::new(Told { remedy, ..*told })),
            other @ (Self::PipeClosed | Self::Verdict | Self::Logged(_)) => other,
        }
    }

    /// Says it on stderr and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        match self {
            Self::PipeClosed => ExitCode::SUCCESS,
            Self::Verdict => ExitCode::from(Exit::Failed as u8),
            Self::Logged(exit) => ExitCode::from(exit as u8),
            Self::Told(told) => {
                // Both may quote what a user typed or a server said.
                note(format_args!("error: {}", one_line(&told.what)));
                note(format_args!("  {}", one_line(&told.remedy)));
                ExitCode::from(told.exit as u8)
            }
        }
    }

    fn told(exit: Exit, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Told(Box::new(Told { exit, what: what.into(), remedy: remedy.into() }))
    }
}

/// The known name that a mistyped one most likely stands for.
pub(crate) fn nearest<'a>(name: &str, known: &'a [String]) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let distance = |candidate: &str| strsim::damerau_levenshtein(&lower, &candidate.to_lowercase());
    // A third of the letters may be wrong: a guess that is further off confuses more than it helps.
    let limit = (name.chars().count() / 3).max(1);
    let found = known.iter().map(|candidate| (distance(candidate), candidate)).min()?;
    (found.0 <= limit).then_some(found.1.as_str())
}

const fn told_outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Refused => "nothing was stored",
        Outcome::Unknown => "outcome unknown",
    }
}

/// An error with its causes, in one line: only here, at the edge, the chain is printed.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    // A parser's error draws its place in the file over several lines.
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use mortarmq_wire::{ErrorCode, Outcome};

    use super::{Exit, Failure, nearest};

    fn told(failure: Failure) -> (Exit, String, String) {
        let Failure::Told(told) = failure else { panic!("nothing is told: {failure:?}") };
        (told.exit, told.what, told.remedy)
    }

    #[test]
    fn unknown_topic_names_the_command_and_the_nearest_topic() {
        let known = ["orders".to_owned(), "invoices".to_owned()];
        let (exit, what, remedy) = told(Failure::unknown_topic("ordres", &known));
        assert_eq!(exit, Exit::Refused);
        assert_eq!(what, "topic \"ordres\" does not exist (UNKNOWN_TOPIC, nothing was stored)");
        assert_eq!(remedy, "create it: mortarmq topics create ordres      (did you mean \"orders\"?)");
        let (_, _, remedy) = told(Failure::unknown_topic("shipments", &known));
        assert_eq!(remedy, "create it: mortarmq topics create shipments");
        let (_, _, remedy) = told(Failure::unknown_topic("order s", &known));
        assert!(remedy.starts_with("the topic name has a character that is not allowed"), "{remedy}");
        assert!(remedy.ends_with("(did you mean \"orders\"?)"), "{remedy}");
    }

    #[test]
    fn p2_exit_code_follows_the_outcome_of_the_answer_not_of_the_code() {
        let (exit, what, remedy) =
            told(Failure::answered(ErrorCode::QuorumLost, Outcome::Unknown, "no answer from a majority for 5 s"));
        assert_eq!(exit, Exit::Unknown);
        assert_eq!(what, "no answer from a majority for 5 s (QUORUM_LOST, outcome unknown)");
        assert_eq!(remedy, "repeat with the same producer number: it is stored at most once");
        let (exit, what, _) = told(Failure::answered(ErrorCode::Backpressure, Outcome::Unknown, "stopped"));
        assert_eq!((exit, what.as_str()), (Exit::Unknown, "stopped (BACKPRESSURE, outcome unknown)"));
        let (exit, ..) = told(Failure::answered(ErrorCode::TooLarge, Outcome::Refused, ""));
        assert_eq!(exit, Exit::Refused);
    }

    #[test]
    fn nearest_name_is_near() {
        let known: Vec<String> = ["orders", "order-items", "a"].map(str::to_owned).into();
        assert_eq!(nearest("ordres", &known), Some("orders"));
        assert_eq!(nearest("ORDERS", &known), Some("orders"));
        assert_eq!(nearest("payments", &known), None);
        assert_eq!(nearest("orders", &[]), None);
    }
}
