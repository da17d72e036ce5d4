//! The rules for topic and group names.

/// Why a name is refused. The text names the rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// No characters at all.
    #[error("a name must not be empty")]
    Empty,
    /// More characters than a name may have.
    #[error("a name has at most {NAME_MAX_BYTES} characters, this one has {found}")]
    TooLong {
        /// Characters it has.
        found: usize,
    },
    /// A character outside the allowed set.
    #[error("a name is made of A-Z a-z 0-9 . _ - only, this one has {character:?} at place {place}")]
    Character {
        /// The first character that is not allowed.
        character: char,
        /// Its place, from 1.
        place: usize,
    },
    /// A name that the file system and the HTTP paths give another meaning.
    #[error("the names . and .. are not allowed")]
    Dots,
    /// A name that only the broker makes.
    #[error("names that start with $ are made by the broker only")]
    Reserved,
}

/// The longest name.
pub const NAME_MAX_BYTES: usize = 200;

/// Checks the name of a topic or group that a client wants to make.
///
/// # Errors
/// The first rule that the name breaks.
pub fn check_name(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if is_reserved(name) {
        return Err(NameError::Reserved);
    }
    if name == "." || name == ".." {
        return Err(NameError::Dots);
    }
    if let Some((place, character)) = name
        .chars()
        .enumerate()
        .find(|(_, character)| !character.is_ascii_alphanumeric() && !"._-".contains(*character))
    {
        return Err(NameError::Character { character, place: place + 1 });
    }
    if name.len() > NAME_MAX_BYTES {
        return Err(NameError::TooLong { found: name.len() });
    }
    Ok(())
}

/// The name of a topic's dead-letter topic.
#[must_use]
pub fn dead_letter_name(topic: &str) -> String {
    format!("{DEAD_LETTER_PREFIX}{topic}")
}

/// The name of the topic whose dead letters a topic of this name holds; `None` for any other topic.
#[must_use]
pub fn source_name(name: &str) -> Option<&str> {
    name.strip_prefix(DEAD_LETTER_PREFIX)
}

/// Whether only the broker makes topics of this name.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    name.starts_with('$')
}

const DEAD_LETTER_PREFIX: &str = "$dlq.";

#[cfg(test)]
mod tests {
    use super::{NameError, check_name, dead_letter_name, source_name};

    #[test]
    fn a_dead_letter_topic_is_named_for_its_source_and_by_the_broker_only() {
        assert_eq!(dead_letter_name("orders"), "$dlq.orders");
        assert_eq!(source_name("$dlq.orders"), Some("orders"));
        assert_eq!(source_name("orders"), None);
        assert_eq!(check_name(&dead_letter_name("orders")), Err(NameError::Reserved));
    }

    #[test]
    fn names_follow_the_stated_rules() {
        assert_eq!(check_name("orders.eu-1_x"), Ok(()));
        assert_eq!(check_name(&"a".repeat(200)), Ok(()));
        assert_eq!(check_name(""), Err(NameError::Empty));
        assert_eq!(check_name(".."), Err(NameError::Dots));
        assert_eq!(check_name("$dlq.orders"), Err(NameError::Reserved));
        assert_eq!(check_name("a b"), Err(NameError::Character { character: ' ', place: 2 }));
        assert_eq!(check_name(&"a".repeat(201)), Err(NameError::TooLong { found: 201 }));
    }
}
