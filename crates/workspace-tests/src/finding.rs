//! One place where a rule is broken.

use std::fmt;

/// One place where a rule is broken, and what the rule says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, relative to the root of the repository.
    pub file: String,
    /// The line, from 1; 0 when the finding concerns the file as a whole.
    pub line: usize,
    /// What was found, and what the rule allows.
    pub text: String,
}

impl Finding {
    /// A finding at a line of a file.
    #[must_use]
    pub fn at(file: &str, line: usize, text: String) -> Self {
        Self { file: file.to_owned(), line, text }
    }

    /// A finding that concerns a whole file.
    #[must_use]
    pub fn in_file(file: &str, text: String) -> Self {
        Self::at(file, 0, text)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(formatter, "{}: {}", self.file, self.text),
            line => write!(formatter, "{}:{line}: {}", self.file, self.text),
        }
    }
}

/// All findings as lines of text, sorted by place; empty when there are none.
#[must_use]
pub fn report(mut findings: Vec<Finding>) -> String {
    findings.sort();
    findings.iter().map(|finding| format!("{finding}\n")).collect()
}
