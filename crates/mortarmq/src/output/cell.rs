//! One value of a row, and its text in each form.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::Value;

/// One value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    /// No value: `-` in text, `null` in JSON.
    Absent,
    /// A number that is never negative.
    Number(u64),
    /// A difference.
    Signed(i64),
    /// Text of ours.
    Text(String),
    /// Bytes of a user, not always UTF-8. Empty bytes are an empty cell.
    Bytes(Bytes),
}

impl Cell {
    /// The number, or nothing.
    pub(crate) fn number(value: Option<u64>) -> Self {
        value.map_or(Self::Absent, Self::Number)
    }

    /// The text, or nothing.
    pub(crate) fn text(value: Option<&str>) -> Self {
        value.map_or(Self::Absent, |text| Self::Text(text.to_owned()))
    }

    /// A JSON value as a cell: text without its quotes.
    pub(crate) fn json(value: &Value) -> Self {
        match value {
            Value::Null => Self::Absent,
            Value::String(text) => Self::Text(text.clone()),
            Value::Number(number) if number.is_u64() => Self::number(number.as_u64()),
            other => Self::Text(other.to_string()),
        }
    }

    /// The text between two tabs. Backslash, tab and newline are escaped, so that a row is always one line and a cell
    /// always one field; bytes that are not UTF-8 become `\xNN`.
    pub(crate) fn tsv(&self) -> String {
        match self {
            Self::Absent => "-".to_owned(),
            Self::Number(number) => number.to_string(),
            Self::Signed(number) => number.to_string(),
            Self::Text(text) => escaped(text.as_bytes(), |_| false),
            Self::Bytes(bytes) => escaped(bytes, |_| false),
        }
    }

    /// The text in a table. Control characters are escaped too: a message must not steer the reader's terminal.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Text(text) => escaped(text.as_bytes(), char::is_control),
            Self::Bytes(bytes) => escaped(bytes, char::is_control),
            Self::Absent | Self::Number(_) | Self::Signed(_) => self.tsv(),
        }
    }

    /// `"name":value`; bytes that are not UTF-8 become `"name_base64":"…"`.
    pub(crate) fn json_field(&self, name: &str) -> String {
        let quoted = |text: &str| Value::from(text).to_string();
        match self {
            Self::Absent => format!("{}:null", quoted(name)),
            Self::Number(number) => format!("{}:{number}", quoted(name)),
            Self::Signed(number) => format!("{}:{number}", quoted(name)),
            Self::Text(text) => format!("{}:{}", quoted(name), quoted(text)),
            Self::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => format!("{}:{}", quoted(name), quoted(text)),
                Err(_) => format!("{}:\"{}\"", quoted(&format!("{name}_base64")), STANDARD.encode(bytes)),
            },
        }
    }

    /// Whether a table sets it to the right.
    pub(crate) const fn is_number(&self) -> bool {
        matches!(self, Self::Number(_) | Self::Signed(_))
    }
}

/// Text that is no cell, with its control characters escaped: a message on stderr must stay one line, and must not steer
/// the reader's terminal.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() { line.extend(character.escape_default()) } else { line.push(character) }
    }
    line
}

fn escaped(bytes: &[u8], also: impl Fn(char) -> bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\t' => text.push_str("\\t"),
                '\n' => text.push_str("\\n"),
                '\\' => text.push_str("\\\\"),
                other if also(other) => {
                    let mut buffer = [0; 4];
                    other.encode_utf8(&mut buffer).bytes().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
                }
                other => text.push(other),
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{Cell, one_line};

    fn bytes(bytes: &'static [u8]) -> Cell {
        Cell::Bytes(Bytes::from_static(bytes))
    }

    #[test]
    fn tsv_cell_never_breaks_its_row_and_shows_every_byte() {
        assert_eq!(bytes(b"a\tb\nc\\d").tsv(), "a\\tb\\nc\\\\d");
        assert_eq!(bytes(b"\xff\xc3ok\xc3\xa9").tsv(), "\\xff\\xc3ok\u{e9}");
        assert_eq!(bytes(b"").tsv(), "");
        assert_eq!(Cell::Absent.tsv(), "-");
        assert_eq!(Cell::Signed(-3).tsv(), "-3");
        assert_eq!(bytes(b"a\rb").tsv(), "a\rb", "only tab, newline and backslash are escaped on a pipe");
    }

    #[test]
    fn table_cell_keeps_control_characters_from_the_terminal() {
        assert_eq!(bytes(b"\x1b[2Jred\r").shown(), "\\x1b[2Jred\\x0d");
        assert_eq!(bytes("\u{9b}1m".as_bytes()).shown(), "\\xc2\\x9b1m");
    }

    #[test]
    fn message_stays_one_line_and_keeps_its_letters() {
        assert_eq!(one_line("topic \"a\nb\x1b[31m\" \\ \u{e9}"), "topic \"a\\nb\\u{1b}[31m\" \\ \u{e9}");
    }

    #[test]
    fn json_field_is_base64_where_bytes_are_no_text() {
        assert_eq!(bytes(b"a\"b\n").json_field("value"), r#""value":"a\"b\n""#);
        assert_eq!(bytes(b"\xff\x00").json_field("value"), r#""value_base64":"/wA=""#);
        assert_eq!(Cell::Absent.json_field("cause"), r#""cause":null"#);
        assert_eq!(Cell::Number(u64::MAX).json_field("sequence"), r#""sequence":18446744073709551615"#);
    }
}
