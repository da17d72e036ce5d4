//! Tokens and users as they are configured: `[{"name", "sha256" or "argon2", "grants": [{"action", "patterns"}]}]`.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::users::is_usable;
use super::{Action, Grant, Token, User};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenEntry {
    name: String,
    sha256: String,
    grants: Vec<GrantEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UserEntry {
    name: String,
    argon2: String,
    grants: Vec<GrantEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantEntry {
    action: Action,
    #[serde(default)]
    patterns: Vec<String>,
}

/// Reads tokens from JSON.
///
/// # Errors
/// What is wrong, in which token, and what to do. No error shows a digest.
pub fn read_tokens(json: &str) -> Result<Vec<Token>, String> {
    let entries: Vec<TokenEntry> = serde_json::from_str(json).map_err(|error| format!("{error}; give {SHAPE}"))?;
    check_names("token", entries.iter().map(|entry| entry.name.as_str()))?;
    let token = |entry: TokenEntry| {
        let name = entry.name.clone();
        token_of(entry).map_err(|reason| format!("token {name:?}: {reason}"))
    };
    entries.into_iter().map(token).collect()
}

/// Reads users from JSON.
///
/// # Errors
/// What is wrong, with which user, and what to do. No error shows a hash.
pub fn read_users(json: &str) -> Result<Vec<User>, String> {
    let entries: Vec<UserEntry> = serde_json::from_str(json).map_err(|error| format!("{error}; give {USERS_SHAPE}"))?;
    check_names("user", entries.iter().map(|entry| entry.name.as_str()))?;
    let user = |UserEntry { name, argon2, grants }: UserEntry| {
        let grants = grants_of(grants).map_err(|reason| format!("user {name:?}: {reason}"))?;
        if name.contains(':') {
            return Err(format!("user {name:?}: HTTP ends a name at its first colon: leave it out"));
        }
        if !is_usable(&argon2) {
            let text = "argon2 is no hash that can be used: take the line that `mortarmq hash-password` prints";
            return Err(format!("user {name:?}: {text}"));
        }
        Ok(User { name, hash: argon2, grants })
    };
    entries.into_iter().map(user).collect()
}

fn check_names<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for name in names {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(format!("a {what} needs a name of 1 to {NAME_BYTES_MAX} bytes, without control characters"));
        }
        if !seen.insert(name) {
            return Err(format!("two {what}s are named {name:?}: give each its own name"));
        }
    }
    Ok(())
}

fn token_of(entry: TokenEntry) -> Result<Token, String> {
    let digest = digest(&entry.sha256)
        .ok_or("sha256 is not 64 hexadecimal digits: take the line that `mortarmq hash-token` prints")?;
    Ok(Token { name: entry.name, digest, grants: grants_of(entry.grants)? })
}

fn grants_of(grants: Vec<GrantEntry>) -> Result<Vec<Grant>, String> {
    if grants.is_empty() {
        return Err("it has no grants, so its holder could do nothing: give at least one".to_owned());
    }
    grants.into_iter().map(grant_of).collect()
}

fn grant_of(GrantEntry { action, patterns }: GrantEntry) -> Result<Grant, String> {
    match action {
        Action::Admin if !patterns.is_empty() => return Err("admin takes no patterns: leave them out".to_owned()),
        Action::Produce | Action::Consume | Action::Create if patterns.is_empty() => {
            return Err("a grant needs patterns: topic names, or beginnings that end in *".to_owned());
        }
        Action::Produce | Action::Consume | Action::Create | Action::Admin => {}
    }
    match patterns.iter().find(|pattern| !is_pattern(pattern)) {
        Some(bad) => Err(format!(
            "the pattern {bad:?} names no topic: 1 to {PATTERN_BYTES_MAX} of A-Z a-z 0-9 . _ -, the last may be *"
        )),
        None => Ok(Grant { action, patterns }),
    }
}

fn is_pattern(pattern: &str) -> bool {
    let name = pattern.strip_suffix('*').unwrap_or(pattern);
    (1..=PATTERN_BYTES_MAX).contains(&pattern.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

fn digest(hex: &str) -> Option<[u8; 32]> {
    if hex.len() != 64 || !hex.is_ascii() {
        return None;
    }
    let mut digest = [0; 32];
    for (place, byte) in digest.iter_mut().enumerate() {
        let digits = &hex[2 * place..2 * place + 2];
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(digest)
}

const SHAPE: &str = r#"[{"name": N, "sha256": H, "grants": [{"action": A, "patterns": [P, ...]}, ...]}, ...]"#;
const USERS_SHAPE: &str = r#"[{"name": N, "argon2": H, "grants": [{"action": A, "patterns": [P, ...]}, ...]}, ...]"#;
const NAME_BYTES_MAX: usize = 64;
const PATTERN_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::{read_tokens, read_users};
    use crate::access::{Action, digest_of, hash_password};

    fn entry(fields: &str) -> String {
        let hex: String = digest_of(b"secret").iter().map(|byte| format!("{byte:02x}")).collect();
        format!("[{}]", fields.replace("HEX", &hex))
    }

    #[test]
    fn tokens_are_read_as_they_are_documented() {
        let json = entry(
            r#"{"name":"a","sha256":"HEX","grants":[{"action":"produce","patterns":["orders","log.*","*"]}]},
               {"name":"b","sha256":"HEX","grants":[{"action":"admin"}]}"#,
        );
        let tokens = read_tokens(&json).expect("right");
        assert_eq!(
            (tokens.len(), tokens[0].digest, tokens[0].grants[0].action),
            (2, digest_of(b"secret"), Action::Produce)
        );
        assert_eq!(read_tokens("[]"), Ok(Vec::new()));
    }

    #[test]
    fn what_is_wrong_is_named_and_no_digest_is_shown() {
        for (fields, expected) in [
            (r#"{"name":"","sha256":"HEX","grants":[{"action":"admin"}]}"#, "needs a name"),
            (r#"{"name":"a","sha256":"12","grants":[{"action":"admin"}]}"#, "64 hexadecimal digits"),
            (r#"{"name":"a","sha256":"+HEX","grants":[{"action":"admin"}]}"#, "64 hexadecimal digits"),
            (r#"{"name":"a","sha256":"HEX","grants":[]}"#, "no grants"),
            (r#"{"name":"a","sha256":"HEX","grants":[{"action":"admin","patterns":["x"]}]}"#, "takes no patterns"),
            (r#"{"name":"a","sha256":"HEX","grants":[{"action":"consume"}]}"#, "needs patterns"),
            (r#"{"name":"a","sha256":"HEX","grants":[{"action":"consume","patterns":["a*b"]}]}"#, "\"a*b\""),
            (r#"{"name":"a","sha256":"HEX","grants":[{"action":"consume","patterns":[""]}]}"#, "\"\""),
            (r#"{"name":"a","sha256":"HEX","grants":[{"action":"fly","patterns":["a"]}]}"#, "fly"),
            (r#"{"name":"a","sha256":"HEX","grant":[]}"#, "grant"),
            (
                r#"{"name":"a","sha256":"HEX","grants":[{"action":"admin"}]},
                   {"name":"a","sha256":"HEX","grants":[{"action":"admin"}]}"#,
                "two tokens",
            ),
            ("7", "give [{"),
        ] {
            let json = entry(fields);
            let error = read_tokens(&json).expect_err(fields);
            assert!(error.contains(expected), "{fields}: {error}");
            let digest: String = digest_of(b"secret")[..4].iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(!error.contains(&digest), "{error}");
        }
    }

    #[test]
    fn users_are_read_and_no_error_shows_a_hash() {
        let hash = hash_password(b"secret").expect("hashed");
        let read = |entry: &str| read_users(&entry.replace("HASH", &hash));
        let users = read(r#"[{"name":"ada","argon2":"HASH","grants":[{"action":"admin"}]}]"#).expect("right");
        assert_eq!((users[0].name.as_str(), users[0].hash.as_str()), ("ada", hash.as_str()));
        assert!(!format!("{users:?}").contains("argon2id"));
        for (entry, told) in [
            (r#"[{"name":"a:b","argon2":"HASH","grants":[{"action":"admin"}]}]"#, "colon"),
            (r#"[{"name":"ada","argon2":"HASH","grants":[]}]"#, "no grants"),
            (r#"[{"name":"ada","argon2":"xHASH","grants":[{"action":"admin"}]}]"#, "hash-password"),
            (r#"[{"name":"ada","sha256":"HASH","grants":[{"action":"admin"}]}]"#, "sha256"),
        ] {
            let error = read(entry).expect_err(entry);
            assert!(error.contains(told) && !error.contains("argon2id"), "{error}");
        }
    }
}
