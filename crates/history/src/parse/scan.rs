//! The quick way from a line to its fields, for lines as nearly every writer writes them.
//!
//! It takes a line only if that is an object of texts without escapes, whole numbers, `true`, `false` and `null`; of
//! everything else, and of everything wrong, it says nothing: then the JSON reader is asked, which is the only one to refuse a
//! line. What it takes it reads as that one does, which a test compares. The ends of texts are
//! found by `memchr`, many bytes at a time.

use std::borrow::Cow;

use super::raw::Raw;
use super::text::Text;

/// Reads the fields of a line; nothing, if this way is not for it. Then what it set is of no use.
pub(super) fn scan<'a>(line: &'a [u8], raw: &mut Raw<'a>) -> Option<()> {
    let is_odd = |byte: &u8| *byte < b' ' || *byte == b'\\';
    // Looked at without a way out, so that many bytes are compared at once.
    if line.iter().fold(false, |odd, byte| odd | is_odd(byte)) {
        return None;
    }
    let text = std::str::from_utf8(line).ok()?;
    let mut seen = 0;
    let mut cursor = Cursor { text, at: 0 };
    cursor.expect(b'{')?;
    loop {
        let name = cursor.name()?;
        cursor.expect(b':')?;
        let value = cursor.value()?;
        set(raw, &mut seen, name.as_bytes(), value)?;
        cursor.skip_spaces();
        match line.get(cursor.at)? {
            b',' => cursor.at += 1,
            b'}' if cursor.at + 1 == line.len() => return Some(()),
            _ => return None,
        }
    }
}

/// What stands behind a name.
#[derive(Clone, Copy)]
enum Value<'a> {
    Text(&'a str),
    /// With its digits.
    Number(u64, &'a str),
    Truth(bool),
    Null,
}

struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn skip_spaces(&mut self) {
        while self.text.as_bytes().get(self.at) == Some(&b' ') {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.skip_spaces();
        (self.text.as_bytes().get(self.at) == Some(&byte)).then(|| self.at += 1)
    }

    fn name(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        // Names are short: a search that compares many bytes at once would only just have begun.
        let length = self.text.as_bytes()[self.at..].iter().position(|byte| *byte == b'"')?;
        self.up_to(length)
    }

    fn text(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        let length = memchr::memchr(b'"', &self.text.as_bytes()[self.at..])?;
        self.up_to(length)
    }

    /// So many bytes, which a quote follows.
    fn up_to(&mut self, length: usize) -> Option<&'a str> {
        let start = self.at;
        self.at += length + 1;
        self.text.get(start..start + length)
    }

    fn value(&mut self) -> Option<Value<'a>> {
        self.skip_spaces();
        match self.text.as_bytes().get(self.at)? {
            b'"' => self.text().map(Value::Text),
            b'0'..=b'9' => self.number(),
            b'n' => self.word("null", Value::Null),
            b't' => self.word("true", Value::Truth(true)),
            b'f' => self.word("false", Value::Truth(false)),
            _ => None,
        }
    }

    fn number(&mut self) -> Option<Value<'a>> {
        let start = self.at;
        let mut number: u64 = 0;
        while let Some(digit @ b'0'..=b'9') = self.text.as_bytes().get(self.at) {
            number = number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            self.at += 1;
        }
        let digits = &self.text[start..self.at];
        // What may not fit is left to the reader that knows, as is what no number begins with.
        let is_plain = digits.len() <= MOST_DIGITS && (digits.len() == 1 || !digits.starts_with('0'));
        is_plain.then_some(Value::Number(number, digits))
    }

    fn word(&mut self, word: &str, value: Value<'a>) -> Option<Value<'a>> {
        let is_it = self.text.as_bytes()[self.at..].starts_with(word.as_bytes());
        self.at += word.len();
        is_it.then_some(value)
    }
}

/// So many digits always fit 64 bits.
const MOST_DIGITS: usize = 19;

/// Sets the field of a name. A value of the wrong type, and a field that was there before, are not for this way.
fn set<'a>(raw: &mut Raw<'a>, seen: &mut u64, name: &[u8], value: Value<'a>) -> Option<()> {
    macro_rules! fields {
        ($($read:ident: $($field:ident $name:literal)+;)+) => {
            #[allow(non_camel_case_types, reason = "each field's place among all, by its name")]
            enum Place { $($($field,)+)+ }
            match name {
                $($($name => {
                    let bit = 1 << Place::$field as u64;
                    if *seen & bit != 0 {
                        return None;
                    }
                    *seen |= bit;
                    raw.$field = $read(value)?;
                })+)+
                // These are lists and maps, if they are there at all.
                b"balance" | b"paths" => return None,
                _ => {}
            }
        };
    }
    fields! {
        text: op b"op" msg b"msg" key b"key" client b"client" path b"path" topic b"topic" outcome b"outcome" hash b"hash" cause b"cause" origin b"origin" txn b"txn" to b"to" kind b"kind" node b"node" run b"run" run_id b"run_id" target b"target";
        number: call b"call" ret b"ret" seq b"seq" commit b"commit" epoch b"epoch" delivery_id b"delivery_id" prev b"prev" lease_ms b"lease_ms" producer_id b"producer_id" producer_seq b"producer_seq" delay_ms b"delay_ms" produced b"produced" delivered b"delivered" dropped b"dropped" dlq b"dlq" depth b"depth" at b"at" visibility_timeout_ms b"visibility_timeout_ms" status b"status";
        small_number: partition b"partition" attempt b"attempt" v b"v";
        truth: dedup b"dedup" stale b"stale" drained b"drained";
    }
    Some(())
}

fn text(value: Value<'_>) -> Option<Option<Text<'_>>> {
    match value {
        Value::Text(text) | Value::Number(_, text) => Some(Some(Text(Cow::Borrowed(text)))),
        Value::Null => Some(None),
        Value::Truth(_) => None,
    }
}

fn number(value: Value<'_>) -> Option<Option<u64>> {
    match value {
        Value::Number(number, _) => Some(Some(number)),
        Value::Null => Some(None),
        Value::Text(_) | Value::Truth(_) => None,
    }
}

fn small_number(value: Value<'_>) -> Option<Option<u32>> {
    match number(value)? {
        Some(number) => u32::try_from(number).ok().map(Some),
        None => Some(None),
    }
}

fn truth(value: Value<'_>) -> Option<Option<bool>> {
    match value {
        Value::Truth(truth) => Some(Some(truth)),
        Value::Null => Some(None),
        Value::Text(_) | Value::Number(..) => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::scan;
    use crate::parse::{Dialect, Raw, record};

    /// Both ways read a line as the same record, or as the same fault. Whether the quick way took it.
    fn compare(line: &[u8]) -> bool {
        let mut quick = Raw::default();
        if scan(line, &mut quick).is_none() {
            return false;
        }
        let shown = String::from_utf8_lossy(line);
        let mut slow: Raw<'_> = serde_json::from_slice(line).unwrap_or_else(|error| panic!("{shown}: {error}"));
        let both =
            [&mut quick, &mut slow].map(|raw| record(raw, &mut Dialect::default()).map_err(|why| why.to_string()));
        assert_eq!(both[0], both[1], "{shown}");
        true
    }

    const LINES: [&str; 7] = [
        r#"{"op":"publish","client":7,"topic":"orders","msg":"m-1","key":"k7","call":100,"ret":180,"outcome":"ok","partition":2,"seq":41,"producer_id":9,"producer_seq":1,"delay_ms":0,"dedup":false,"hash":"9f86d081","commit":85,"epoch":3}"#,
        r#"{"op": "deliver", "client": "c1", "path": "orders/billing", "msg": "mé", "call": 150, "ret": 260, "partition": 2, "seq": 18446744073709551615, "delivery_id": 7, "attempt": 1, "cause": "first", "prev": null, "origin":"p","txn":"t"}"#,
        r#"{"op": "nack", "client": "c1", "path": "orders/billing", "msg": "mé", "delivery_id": 8, "call": 300, "ret": 340, "outcome": "ok", "to": "retry"}"#,
        r#"{"op":"operate","client":"o1","kind":"redrive","path":"orders/billing","msg":"m-2","call":500,"ret":520,"outcome":"ok"}"#,
        r#"{"op":"scrape","path":"p","node":1,"call":1,"ret":2,"produced":5,"delivered":4,"dropped":0,"dlq":0,"depth":1,"stale":true}"#,
        r#"{"op":"produce","client":1,"path":"q","msg":"m\n2","call":1,"ret":2,"status":503,"target":"x"}"#,
        r#"{"op":"end","at":9000,"drained":true,"balance":[]}"#,
    ];

    #[test]
    fn the_lines_that_writers_write_go_the_quick_way() {
        let taken: Vec<bool> = LINES.iter().map(|line| compare(line.as_bytes())).collect();
        // A number of twenty digits, an escape and a list are for the other.
        assert_eq!(taken, [true, false, true, true, true, false, false]);
    }

    #[test]
    fn every_field_is_read_with_every_type_of_value() {
        let names = "op client topic path msg key call ret outcome partition seq producer_id producer_seq delay_ms dedup \
            hash commit epoch txn delivery_id attempt cause prev lease_ms origin to kind node produced delivered dropped \
            dlq depth stale at drained balance v run paths run_id visibility_timeout_ms status target";
        for name in names.split_whitespace() {
            for value in ["5", "\"ok\"", "true", "null", "4294967296"] {
                compare(format!(r#"{{"{name}":{value}}}"#).as_bytes());
                let rest = r#""op":"publish","call":1,"topic":"t","msg":"m","ret":9,"outcome":"ok""#;
                compare(format!(r#"{{"{name}":{value},{rest}}}"#).as_bytes());
                let twice = format!(r#"{{"{name}":{value},"{name}":null}}"#);
                assert!(!compare(twice.as_bytes()), "{twice}");
            }
        }
    }

    proptest! {
        #[test]
        fn what_the_quick_way_takes_it_reads_as_the_other_does(
            line in 0..LINES.len(),
            edits in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>(), 0..4_u8), 0..4),
        ) {
            let mut bytes = LINES[line].as_bytes().to_vec();
            for (at, byte, kind) in edits {
                let at = at.index(bytes.len());
                let odd = *b"\"{}[],: 0\\-.eEntr\t".get(usize::from(byte) % 32).unwrap_or(&byte);
                match kind {
                    0 => bytes[at] = odd,
                    1 => bytes.insert(at, odd),
                    2 => drop(bytes.remove(at)),
                    // A part twice: a field may come again.
                    _ => {
                        let part: Vec<u8> = bytes[at..].iter().copied().take(usize::from(byte)).collect();
                        bytes.splice(at..at, part);
                    }
                }
            }
            compare(&bytes);
        }
    }
}
