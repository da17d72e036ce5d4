//! The trace: every event and every output of a run, as a digest, and as lines if somebody wants to read them.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::mem::take;
use std::rc::Rc;

use xxhash_rust::xxh3::Xxh3;

/// What happened, in order.
pub(crate) struct Trace {
    hash: Xxh3,
    events: u64,
    lines: Option<Lines>,
}

/// The lines of a trace. They are there when a world ends in a panic too.
#[derive(Clone, Default)]
pub(crate) struct Lines(Rc<RefCell<String>>);

impl Lines {
    /// All that there are.
    pub(crate) fn take(&self) -> String {
        take(&mut self.0.borrow_mut())
    }
}

impl Trace {
    /// Writes the lines too, if there is somewhere to write them.
    pub(crate) fn new(lines: Option<Lines>) -> Self {
        Self { hash: Xxh3::new(), events: 0, lines }
    }

    /// Notes something, with the numbers that tell it from others of its kind.
    pub(crate) fn note(&mut self, now_us: u64, what: &str, numbers: &[u64]) {
        self.events += 1;
        self.hash.update(&now_us.to_le_bytes());
        self.hash.update(what.as_bytes());
        for number in numbers {
            self.hash.update(&number.to_le_bytes());
        }
        if let Some(Lines(lines)) = &self.lines {
            let mut lines = lines.borrow_mut();
            let _ = write!(lines, "{} {now_us} {what}", self.events);
            for number in numbers {
                let _ = write!(lines, " {number}");
            }
            lines.push('\n');
        }
    }

    /// Adds words for a reader to the last line. They do not count for the digest.
    pub(crate) fn explain(&mut self, text: impl FnOnce() -> String) {
        if let Some(Lines(lines)) = &self.lines {
            let mut lines = lines.borrow_mut();
            lines.pop();
            let _ = writeln!(lines, " # {}", text());
        }
    }

    /// The digest of everything so far.
    pub(crate) fn digest(&self) -> u64 {
        self.hash.digest()
    }

    /// How much happened.
    pub(crate) fn events(&self) -> u64 {
        self.events
    }
}
