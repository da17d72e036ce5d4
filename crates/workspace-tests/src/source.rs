//! A small scanner of Rust text: enough to count braces and find words in code, and nothing more.
//!
//! [`code_only`] blanks comments and the contents of strings and characters, so that what remains is code at the same
//! place. It does not parse: a rule that needs to know what a name means belongs in clippy.

use std::ops::Range;

/// A function with a body, found in blanked text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name; `$name` inside a macro definition.
    pub name: String,
    /// The line of its `fn`, from 1.
    pub first_line: usize,
    /// How many lines from its `fn` to its closing brace, both counted.
    pub lines: usize,
}

/// The text with comments, string contents and characters replaced by spaces. Lines and byte places stay.
#[must_use]
pub fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut blanked = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = hidden_end(bytes, at);
        let Some(end) = end else {
            at += 1;
            continue;
        };
        for byte in &mut blanked[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    // Blanked ranges start and end at ASCII bytes or at the end of the text, so what is left is whole characters.
    String::from_utf8_lossy(&blanked).into_owned()
}

/// The blanked text with every item that only tests compile blanked too.
#[must_use]
pub fn without_tests(code: &str) -> String {
    let mut bytes = code.as_bytes().to_vec();
    for range in test_items(code) {
        for byte in &mut bytes[range] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The places of items marked `#[cfg(test)]` in blanked text, attribute included.
#[must_use]
pub fn test_items(code: &str) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let mut from = 0;
    while let Some(found) = code[from..].find(TEST_ATTRIBUTE) {
        let start = from + found;
        let body = start + TEST_ATTRIBUTE.len();
        let end = item_end(code, body);
        ranges.push(start..end);
        from = end.max(body);
    }
    ranges
}

/// The names of modules declared as `#[cfg(test)] mod name;`, whose code stands in a file of its own.
#[must_use]
pub fn test_module_files(code: &str) -> Vec<String> {
    test_items(code)
        .into_iter()
        .filter_map(|range| {
            let item = code[range].trim_start_matches(TEST_ATTRIBUTE).trim();
            let (_, name) = item.strip_suffix(';')?.rsplit_once("mod ")?;
            Some(name.trim().to_owned())
        })
        .collect()
}

/// Every function with a body in blanked text, inner ones too, in the order of their `fn`.
#[must_use]
pub fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for at in words(code, "fn") {
        let rest = &code[at + 2..];
        let name: String = rest.trim_start().chars().take_while(|c| is_word(*c) || *c == '$').collect();
        // `fn(u32) -> u32` is a type and has no name.
        if name.is_empty() {
            continue;
        }
        let Some(open) = body_start(code, at) else { continue };
        let close = block_end(code, open);
        let first_line = line_of(code, at);
        found.push(Function { name, first_line, lines: line_of(code, close.saturating_sub(1)) - first_line + 1 });
    }
    found
}

/// The places where `word` stands in the text as a whole word. A word that ends in `:` or `!` may go on in anything.
#[must_use]
pub fn words(code: &str, word: &str) -> Vec<usize> {
    let ends_in_word = word.chars().next_back().is_some_and(is_word);
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(|at| !code[..*at].chars().next_back().is_some_and(is_word))
        .filter(|at| !ends_in_word || !code[at + word.len()..].chars().next().is_some_and(is_word))
        .collect()
}

/// The line, from 1, that a byte place stands on.
#[must_use]
pub fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Where the comment, string or character that starts at `at` ends, if one starts there.
fn hidden_end(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return Some(at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()));
    }
    if rest.starts_with(b"/*") {
        return Some(block_comment_end(bytes, at));
    }
    match rest[0] {
        b'"' => Some(string_end(bytes, at + 1)),
        b'\'' => character_end(bytes, at),
        b'r' if at == 0 || !is_continued(bytes, at) => raw_string_end(bytes, at),
        _ => None,
    }
}

/// Whether the `r` at `at` is part of a longer word, other than the prefixes `br` and `cr` of raw strings.
fn is_continued(bytes: &[u8], at: usize) -> bool {
    let is_word_byte = |at: usize| bytes[at].is_ascii_alphanumeric() || bytes[at] == b'_';
    if !is_word_byte(at - 1) {
        return false;
    }
    let is_prefix = matches!(bytes[at - 1], b'b' | b'c') && (at == 1 || !is_word_byte(at - 2));
    !is_prefix
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// Where the string whose first content byte is at `at` ends, closing quote included.
fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Where the character literal at `at` ends; `None` for a lifetime.
fn character_end(bytes: &[u8], at: usize) -> Option<usize> {
    let inside = std::str::from_utf8(&bytes[at + 1..]).ok()?;
    let first = inside.chars().next()?;
    if first == '\\' {
        // The escaped byte may itself be a quote; the next quote after it closes.
        let close = bytes.get(at + 3..)?.iter().position(|byte| *byte == b'\'')?;
        return Some(at + 3 + close + 1);
    }
    let close = at + 1 + first.len_utf8();
    (bytes.get(close) == Some(&b'\'')).then_some(close + 1)
}

/// Where the raw string whose `r` is at `at` ends; `None` for a name or a raw name such as `r#fn`.
fn raw_string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at + 1..].iter().take_while(|byte| **byte == b'#').count();
    let content = at + 1 + hashes;
    if bytes.get(content) != Some(&b'"') {
        return None;
    }
    let mut closing = vec![b'"'];
    closing.resize(1 + hashes, b'#');
    let found = bytes[content + 1..].windows(closing.len()).position(|window| window == closing);
    Some(found.map_or(bytes.len(), |found| content + 1 + found + closing.len()))
}

/// Where the item whose text starts at `from` ends: after its `;`, or after its block. A `use` ends at its `;` only.
fn item_end(code: &str, from: usize) -> usize {
    let is_use = code[from..].trim_start().trim_start_matches("pub ").starts_with("use ");
    let mut depth = 0_usize;
    for (offset, byte) in code.as_bytes()[from..].iter().enumerate() {
        match byte {
            b'{' if !is_use && depth == 0 => return block_end(code, from + offset),
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b';' if depth == 0 => return from + offset + 1,
            _ => {}
        }
    }
    code.len()
}

/// Where the body of the function whose `fn` is at `at` opens; `None` for a declaration without one.
fn body_start(code: &str, at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (offset, byte) in code.as_bytes()[at..].iter().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' if depth == 0 => return None,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(at + offset),
            b';' | b'}' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// The place after the brace that closes the one at `open`; the end of the text if none does.
fn block_end(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, byte) in code.as_bytes()[open..].iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return open + offset + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

const TEST_ATTRIBUTE: &str = "#[cfg(test)]";

#[cfg(test)]
mod tests;
