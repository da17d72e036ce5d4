//! How stored bytes become JSON: key, value and headers of a message.
//!
//! Storage is byte-exact, JSON is not. So a message tells its value twice: as `payload`, the way people want to read it,
//! and as `value_base64`, from which a tool gets the exact bytes back.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mortarmq_node::views::PeekedMessage;
use serde::Serialize;

/// A deeper JSON text is shown as a string: many readers recurse, and must not overflow on what somebody published.
const NESTING_MAX: usize = 9_000;

/// Appends one message as a JSON object.
///
/// The object is put together by hand because a value that is a JSON text goes out byte for byte, which no serializer
/// promises: numbers keep their digits, objects the order of their fields and their spaces.
///
/// # Source
/// docs/reference/operations.md, "Operator routes".
pub(crate) fn write_message(out: &mut Vec<u8>, topic: &str, message: &PeekedMessage) {
    out.push(b'{');
    field(out, "topic", topic);
    field(out, "partition", &message.partition);
    field(out, "offset", &message.sequence.saturating_sub(1));
    field(out, "sequence", &message.sequence);
    if !message.key.is_empty() {
        write_key(out, &message.key);
    }
    write_payload(out, &message.value);
    field(out, "value_base64", &STANDARD.encode(&message.value));
    field(out, "timestamp", &(message.published_at_ms / 1000));
    field(out, "commit_index", &message.commit_index);
    field(out, "epoch", &message.epoch);
    field(out, "producer_id", &message.record.producer_id.get());
    field(out, "producer_seq", &message.record.producer_seq.get());
    if !message.headers.is_empty() {
        let headers: Vec<Header> = message.headers.iter().map(|(name, value)| Header::new(name, value)).collect();
        field(out, "headers", &headers);
    }
    out.push(b'}');
}

/// One header. A list and no object: names may repeat, and their order means something.
#[derive(Serialize)]
struct Header {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_encoding: Option<&'static str>,
    value: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_encoding: Option<&'static str>,
}

impl Header {
    fn new(name: &[u8], value: &[u8]) -> Self {
        let (name, name_encoding) = text_or_base64(name);
        let (value, value_encoding) = text_or_base64(value);
        Self { name, name_encoding, value, value_encoding }
    }
}

fn write_key(out: &mut Vec<u8>, key: &[u8]) {
    let (text, encoding) = text_or_base64(key);
    field(out, "key", &text);
    if let Some(encoding) = encoding {
        field(out, "key_encoding", encoding);
    }
}

fn write_payload(out: &mut Vec<u8>, value: &[u8]) {
    if value.is_empty() {
        raw_field(out, "payload", b"null");
        return;
    }
    if std::str::from_utf8(value).is_ok_and(is_json) {
        raw_field(out, "payload", value);
        return;
    }
    let (text, encoding) = text_or_base64(value);
    field(out, "payload", &text);
    if let Some(encoding) = encoding {
        field(out, "payload_encoding", encoding);
    }
}

fn text_or_base64(bytes: &[u8]) -> (String, Option<&'static str>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => (STANDARD.encode(bytes), Some("base64")),
    }
}

/// Whether a text is exactly one JSON value, nested at most [`NESTING_MAX`] deep.
fn is_json(text: &str) -> bool {
    // The parser skips a value without recursion, so depth costs no stack here.
    nesting(text) <= NESTING_MAX && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// How deep a JSON text nests; of other texts it says nothing useful.
fn nesting(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_string, mut is_escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

fn field(out: &mut Vec<u8>, name: &str, value: &(impl Serialize + ?Sized)) {
    let json = serde_json::to_vec(value).expect("numbers, strings and lists of them are always JSON");
    raw_field(out, name, &json);
}

fn raw_field(out: &mut Vec<u8>, name: &str, json: &[u8]) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    out.extend_from_slice(json);
}

#[cfg(test)]
mod tests {
    use super::{NESTING_MAX, write_key, write_payload};

    fn payload(value: &[u8]) -> String {
        let mut out = b"{".to_vec();
        write_payload(&mut out, value);
        String::from_utf8(out).expect("JSON is UTF-8").split_off(1)
    }

    fn key(value: &[u8]) -> String {
        let mut out = b"{".to_vec();
        write_key(&mut out, value);
        out.push(b'}');
        String::from_utf8(out).expect("JSON is UTF-8")
    }

    #[test]
    fn a_json_value_goes_out_byte_for_byte() {
        for text in
            [r#"{"a": 1.0}"#, "[1,2]", r#""""#, "null", "true", "1e999", "-0", " {\"b\":1,\"a\":2} ", r#""\ud800""#]
        {
            assert_eq!(payload(text.as_bytes()), format!("\"payload\":{text}"));
        }
    }

    #[test]
    fn other_text_is_a_string_and_other_bytes_are_base64() {
        assert_eq!(payload(b"hello"), r#""payload":"hello""#);
        assert_eq!(payload(b"{not"), r#""payload":"{not""#);
        assert_eq!(payload(b"{} {}"), r#""payload":"{} {}""#);
        assert_eq!(payload(b"01"), r#""payload":"01""#);
        assert_eq!(payload(b"NaN"), r#""payload":"NaN""#);
        assert_eq!(payload(b"a\nb\x00"), r#""payload":"a\nb\u0000""#);
        assert_eq!(payload(b"\xff\xfe"), r#""payload":"//4=","payload_encoding":"base64""#);
        assert_eq!(payload(b""), r#""payload":null"#);
    }

    #[test]
    fn json_nested_too_deep_is_a_string() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let fits = nested(NESTING_MAX);
        assert_eq!(payload(fits.as_bytes()), format!("\"payload\":{fits}"));
        let deeper = nested(NESTING_MAX + 1);
        assert_eq!(payload(deeper.as_bytes()), format!("\"payload\":\"{deeper}\""));
        let brackets = format!("\"{}\"", "[\\\"".repeat(NESTING_MAX + 1));
        assert_eq!(payload(brackets.as_bytes()), format!("\"payload\":{brackets}"));
    }

    #[test]
    fn no_key_can_make_the_answer_something_else_than_json() {
        assert_eq!(key(b"a\"b\n"), r#"{"key":"a\"b\n"}"#);
        assert_eq!(key(&[0x00, 0x01, 0x83, 0xFF]), r#"{"key":"AAGD/w==","key_encoding":"base64"}"#);
        assert_eq!(key(b"\x01"), r#"{"key":"\u0001"}"#);
    }
}
