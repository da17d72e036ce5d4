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
    if name.starts_with('$') {
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

#[cfg(test)]
mod tests {
    use super::{NameError, check_name};

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
