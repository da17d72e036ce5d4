//! Where the values of `pub` come from.

use std::io::{BufRead, Read};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::Args;
use crate::errors::Failure;

/// Where values come from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The argument, so many times.
    Argument { template: String, count: u64, size: usize },
    /// Stdin as one message, so many times.
    Stdin { count: u64, size: usize },
    /// Stdin, one message per line.
    Lines,
}

impl Source {
    /// What the arguments say.
    ///
    /// # Errors
    /// When they say nothing, or two things.
    pub(super) fn new(args: &Args) -> Result<Self, Failure> {
        let size = args.size.unwrap_or(0);
        if size > mortarmq_wire::frame::MAX_VALUE_LEN {
            let limit = mortarmq_wire::frame::MAX_VALUE_LEN;
            return Err(Failure::arguments(
                format!("--size {size} is above {limit}, the most that a frame takes (nothing was sent)"),
                "give a smaller size",
            ));
        }
        match (args.value.as_deref(), args.lines) {
            (None | Some("-"), true) => Ok(Self::Lines),
            (Some("-"), false) => Ok(Self::Stdin { count: args.count, size }),
            (Some(template), false) => Ok(Self::Argument { template: template.to_owned(), count: args.count, size }),
            (None, false) if args.size.is_some() => {
                Ok(Self::Argument { template: String::new(), count: args.count, size })
            }
            (None, false) => {
                Err(Failure::arguments("no value to publish", "give a VALUE, - for stdin, --lines or --size BYTES"))
            }
            (Some(_), true) => {
                Err(Failure::arguments("--lines takes its values from stdin, not from VALUE", "leave one of them out"))
            }
        }
    }

    /// Gives the values, as fast as they are taken. On a thread of its own: stdin blocks.
    pub(super) fn start(self) -> mpsc::Receiver<Result<Bytes, Failure>> {
        let (sender, values) = mpsc::channel(AHEAD);
        // The thread is not waited for: it may sit in a read of stdin when the command is over.
        std::thread::spawn(move || self.give(&sender));
        values
    }

    fn give(self, sender: &mpsc::Sender<Result<Bytes, Failure>>) -> Option<()> {
        match self {
            Self::Argument { template, count, size } => {
                for number in 1..=count {
                    let text = template.replace("{n}", &number.to_string());
                    sender.blocking_send(Ok(filled(text.into_bytes(), size))).ok()?;
                }
            }
            Self::Stdin { count, size } => {
                let mut value = Vec::new();
                let read = std::io::stdin().lock().read_to_end(&mut value);
                if let Err(error) = read {
                    return sender.blocking_send(Err(unreadable(&error))).ok();
                }
                let value = filled(value, size);
                for _ in 0..count {
                    sender.blocking_send(Ok(value.clone())).ok()?;
                }
            }
            Self::Lines => {
                for line in std::io::stdin().lock().split(b'\n') {
                    sender.blocking_send(line.map(Bytes::from).map_err(|error| unreadable(&error))).ok()?;
                }
            }
        }
        Some(())
    }
}

fn filled(mut value: Vec<u8>, size: usize) -> Bytes {
    if value.len() < size {
        value.resize(size, b'.');
    }
    Bytes::from(value)
}

fn unreadable(error: &std::io::Error) -> Failure {
    Failure::local(format!("stdin cannot be read: {error}"), "look where it comes from; the rows tell what was stored")
}

/// Values that may wait to be sent.
const AHEAD: usize = 64;

#[cfg(test)]
mod tests {
    use super::{Source, filled};

    #[test]
    fn numbers_stand_in_the_value_and_short_values_are_filled_up() {
        let source = Source::Argument { template: "m{n}".to_owned(), count: 3, size: 4 };
        let mut values = source.start();
        let mut found = Vec::new();
        while let Some(value) = values.blocking_recv() {
            found.push(value.expect("no stdin is read"));
        }
        assert_eq!(found, ["m1..", "m2..", "m3.."]);
        assert_eq!(filled(b"longer".to_vec(), 3), "longer");
    }
}
