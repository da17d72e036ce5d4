//! `explain CODE`: what an error code means and what to do, from the registry.

use std::io::Write;

use mortarmq_wire::{ErrorCode, Outcome, Standing};

use crate::errors::{Failure, nearest};
use crate::output::{Cell, RowArgs, Rows};

/// Say what an error code means and what to do
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name or number: QUORUM_LOST, 0x6001, 24577
    code: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Prints the row of the registry.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let code = find(&args.code).ok_or_else(|| not_found(&args.code))?;
    if args.json {
        let mut rows = Rows::listed(COLUMNS, RowArgs { json: true, header: false });
        rows.push(row(code))?;
        return rows.finish();
    }
    std::io::stdout().write_all(prose(code).as_bytes()).map_err(Failure::from_stdout)
}

fn find(text: &str) -> Option<ErrorCode> {
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u16::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    number.and_then(ErrorCode::from_number).or_else(|| ErrorCode::from_name(text))
}

fn not_found(text: &str) -> Failure {
    let names: Vec<String> = ErrorCode::ALL.iter().map(|code| code.name().to_owned()).collect();
    let remedy = match nearest(text, &names) {
        Some(name) => format!("did you mean {name}?"),
        None => "give a name such as UNKNOWN_TOPIC or a number such as 0x0008".to_owned(),
    };
    Failure::arguments(format!("no error code \"{text}\""), remedy)
}

fn row(code: ErrorCode) -> Vec<Cell> {
    let text = |text: &str| Cell::Text(text.to_owned());
    vec![
        Cell::Number(u64::from(code.number())),
        text(code.name()),
        text(code.outcome().word()),
        text(yes_or_no(code.retry_helps())),
        text(yes_or_no(code.closes())),
        text(code.meaning()),
        text(code.remedy()),
    ]
}

fn prose(code: ErrorCode) -> String {
    let outcome = match code.outcome() {
        Outcome::Refused => "refused: nothing was stored or changed, and nothing will be",
        Outcome::Unknown => "unknown: it may have taken effect",
    };
    let standing = match code.standing() {
        Standing::Client => "",
        Standing::Peer => "  sent to      other nodes, logs and metrics; never to clients\n",
        Standing::Retired => "  sent to      nobody any more; the number is kept so that it is never used again\n",
    };
    format!(
        "{} (0x{:04X})\n  meaning      {}\n  outcome      {outcome}\n  retry helps  {}\n  connection   {}\n{standing}  what to do   {}\n",
        code.name(),
        code.number(),
        code.meaning(),
        yes_or_no(code.retry_helps()),
        if code.closes() { "is closed" } else { "stays open" },
        code.remedy(),
    )
}

const fn yes_or_no(answer: bool) -> &'static str {
    if answer { "yes" } else { "no" }
}

const COLUMNS: &[&str] = &["code", "name", "outcome", "retry_helps", "closes", "meaning", "remedy"];

#[cfg(test)]
mod tests {
    use mortarmq_wire::ErrorCode;

    use super::{find, prose};

    #[test]
    fn code_is_found_by_name_and_by_number_in_both_notations() {
        for text in ["QUORUM_LOST", "quorum_lost", "0x6001", "0X6001", "24577"] {
            assert_eq!(find(text), Some(ErrorCode::QuorumLost), "{text}");
        }
        for text in ["", "0x", "0x60011", "QUORUM", "99999999", "-1"] {
            assert_eq!(find(text), None, "{text}");
        }
    }

    #[test]
    fn prose_says_meaning_outcome_and_remedy_of_every_code() {
        for code in ErrorCode::ALL {
            let prose = prose(*code);
            for part in [code.name(), code.meaning(), code.outcome().word(), code.remedy()] {
                assert!(prose.contains(part), "{prose}");
            }
        }
    }
}
