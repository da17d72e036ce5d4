//! The rules for names of topics and groups (docs/reference/operations.md).

use crate::faults::DecodeError;

/// The longest name that the rules allow. The wire carries more, so that the answer can say so.
///
/// # Units
/// Bytes.
pub const MAX_NAME_LEN: usize = 200;

/// Whose name is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// A topic's.
    Topic,
    /// A group's.
    Group,
}

impl std::fmt::Display for NameKind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.pad(match self {
            Self::Topic => "topic",
            Self::Group => "group",
        })
    }
}

/// Checks a name that a client chooses: `[A-Za-z0-9._-]{1,200}`, not `.` or `..`. Names starting with `$` are made by
/// the broker only, so they are forbidden here; METADATA, which only reads, takes any bytes.
///
/// # Errors
/// [`DecodeError::InvalidName`] with the rule that is broken.
pub fn check_name(kind: NameKind, bytes: &[u8]) -> Result<&str, DecodeError> {
    let invalid = |problem| Err(DecodeError::InvalidName { kind, problem });
    if bytes.is_empty() {
        return invalid("is empty");
    }
    if bytes.len() > MAX_NAME_LEN {
        return invalid("is too long");
    }
    if bytes[0] == b'$' {
        return invalid("starts with \"$\", which only the broker's own names do");
    }
    if !bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(byte)) {
        return invalid("has a character that is not allowed");
    }
    match std::str::from_utf8(bytes) {
        Ok(".") => invalid("is \".\""),
        Ok("..") => invalid("is \"..\""),
        Ok(name) => Ok(name),
        Err(_) => invalid("is not text"),
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_NAME_LEN, NameKind, check_name};
    use crate::errors::ErrorCode;

    #[test]
    fn names_within_the_rules_are_taken() {
        for name in ["a", "orders.eu-1_X", "...", "-", &"n".repeat(MAX_NAME_LEN)] {
            assert_eq!(check_name(NameKind::Topic, name.as_bytes()), Ok(name));
        }
    }

    #[test]
    fn names_against_the_rules_are_invalid_topic_and_close_nothing() {
        let long = "n".repeat(MAX_NAME_LEN + 1);
        for name in ["", ".", "..", "$dlq.a", "a/b", "a b", "ä", "a\0", &long] {
            let error = check_name(NameKind::Group, name.as_bytes()).expect_err(name);
            assert_eq!(error.code(), ErrorCode::InvalidTopic, "{name}");
            assert!(!error.code().closes());
        }
        check_name(NameKind::Topic, &[0xFF]).expect_err("not text");
    }

    #[test]
    fn answer_to_a_name_of_the_broker_says_whose_it_is() {
        let text = check_name(NameKind::Topic, b"$dlq.orders").expect_err("forbidden").to_string();
        assert!(text.contains("only the broker's own names do"), "{text}");
    }
}
