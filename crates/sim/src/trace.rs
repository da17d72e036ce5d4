//! The trace: every event and every output of a run, as a digest, and as lines if somebody wants to read them.

use std::fmt::Write as _;

use xxhash_rust::xxh3::Xxh3;

/// What happened, in order.
pub(crate) struct Trace {
    hash: Xxh3,
    events: u64,
    lines: Option<String>,
}

impl Trace {
    /// Keeps the lines too if `is_kept`.
    pub(crate) fn new(is_kept: bool) -> Self {
        Self { hash: Xxh3::new(), events: 0, lines: is_kept.then(String::new) }
    }

    /// Notes something, with the numbers that tell it from others of its kind.
    pub(crate) fn note(&mut self, now_us: u64, what: &str, numbers: &[u64]) {
        self.events += 1;
        self.hash.update(&now_us.to_le_bytes());
        self.hash.update(what.as_bytes());
        for number in numbers {
            self.hash.update(&number.to_le_bytes());
        }
        if let Some(lines) = &mut self.lines {
            let _ = write!(lines, "{} {now_us} {what}", self.events);
            for number in numbers {
                let _ = write!(lines, " {number}");
            }
            lines.push('\n');
        }
    }

    /// Adds words for a reader to the last line. They do not count for the digest.
    pub(crate) fn explain(&mut self, text: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
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

    /// The lines, if they were kept.
    pub(crate) fn into_lines(self) -> Option<String> {
        self.lines
    }
}
