//! Who may do what: tokens and users, and the grants that each of them has. One rule for all listeners.
//!
//! Without a token or user nobody is asked for anything, and everybody may do everything: such a node listens on its own machine
//! only. As soon as there is one, every listener asks.
//!
//! # Source
//! docs/reference/operations.md, "Who may connect".

mod check;
mod read;
mod users;

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

pub(crate) use check::check;
pub use read::{read_tokens, read_users};
pub(crate) use users::Denied;
use users::{SharedUsers, Users};
pub use users::{User, hash_password};

/// How long whoever shows a wrong token waits for the answer, on every listener: guessing is slow for who guesses, and for
/// nobody else.
pub const WRONG_TOKEN_DELAY: Duration = Duration::from_millis(100);

/// What somebody may be allowed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Publish to a topic.
    Produce,
    /// Subscribe to a topic, settle and peek.
    Consume,
    /// Make a topic.
    Create,
    /// Everything.
    Admin,
}

impl Action {
    /// As it is configured.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Produce => "produce",
            Self::Consume => "consume",
            Self::Create => "create",
            Self::Admin => "admin",
        }
    }
}

/// One permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// What it allows.
    pub action: Action,
    /// On which topics: their names, or `beginning*`. None for `admin`.
    pub patterns: Vec<String>,
}

/// A token, as far as a node knows it: it never has the token itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// For logs and errors.
    pub name: String,
    /// SHA-256 of the token.
    pub digest: [u8; 32],
    /// What its holder may do.
    pub grants: Vec<Grant>,
}

/// Leaves the digest out: what is printed ends up in logs.
impl std::fmt::Debug for Token {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Token").field("name", &self.name).field("grants", &self.grants).finish_non_exhaustive()
    }
}

/// All tokens and users of a node.
#[derive(Clone)]
pub struct Access {
    tokens: Vec<([u8; 32], Arc<Holder>)>,
    users: SharedUsers,
    /// Of each user, in the order of `users`.
    holders: Vec<Arc<Holder>>,
}

/// Leaves digests and hashes out: what is printed ends up in logs.
impl std::fmt::Debug for Access {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tokens: Vec<&Holder> = self.tokens.iter().map(|(_, holder)| &**holder).collect();
        formatter.debug_struct("Access").field("tokens", &tokens).field("users", &self.holders).finish_non_exhaustive()
    }
}

/// Whoever has a token or a password, once it was shown.
#[derive(Debug)]
struct Holder {
    name: String,
    grants: Vec<Grant>,
}

impl Access {
    /// Asks for one of these tokens, or for the password of one of these users; without any, for nothing.
    #[must_use]
    pub fn new(tokens: Vec<Token>, users: Vec<User>) -> Self {
        let holder = |name: &str, grants: &[Grant]| Arc::new(Holder { name: name.to_owned(), grants: grants.to_vec() });
        Self {
            tokens: tokens.iter().map(|token| (token.digest, holder(&token.name, &token.grants))).collect(),
            holders: users.iter().map(|user| holder(&user.name, &user.grants)).collect(),
            users: Arc::new(Users::new(users)),
        }
    }

    /// Whether nobody is asked for anything.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.tokens.is_empty() && self.users.is_empty()
    }

    /// What the holder of a token may do; `None` if it is none of ours.
    ///
    /// The time it takes tells nothing of the tokens that there are: digests are compared, all of them and whole.
    #[must_use]
    pub fn rights_of(&self, token: &[u8]) -> Option<Rights> {
        if self.is_open() {
            return Some(Rights::all());
        }
        let digest = digest_of(token);
        let mut found = None;
        for (known, holder) in &self.tokens {
            if bool::from(known.ct_eq(&digest)) {
                found = Some(Rights { holder: Some(Arc::clone(holder)) });
            }
        }
        found
    }

    /// What a user may do who shows a password.
    pub(crate) async fn rights_of_user(&self, name: &str, password: &[u8]) -> Result<Rights, Denied> {
        let place = self.users.check(name, password).await?;
        Ok(Rights { holder: Some(Arc::clone(&self.holders[place])) })
    }
}

impl Default for Access {
    fn default() -> Self {
        Self::new(Vec::new(), Vec::new())
    }
}

/// SHA-256 of a token. Tokens are drawn at random and long, so one round of a fast hash keeps them secret.
#[must_use]
pub fn digest_of(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// What somebody may do.
#[derive(Clone, Debug)]
pub struct Rights {
    /// Nobody was asked for one where there is none.
    holder: Option<Arc<Holder>>,
}

impl Rights {
    /// May do everything.
    #[must_use]
    pub const fn all() -> Self {
        Self { holder: None }
    }

    /// The name of the token or user; none where nobody is asked for one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.holder.as_ref().map(|holder| holder.name.as_str())
    }

    /// Whether everything is allowed.
    #[must_use]
    pub fn is_admin(&self) -> bool {
        self.holder.as_ref().is_none_or(|holder| holder.grants.iter().any(|grant| grant.action == Action::Admin))
    }

    /// Whether an action on a topic is allowed. A dead-letter topic is its source's: whoever may consume that may consume
    /// what died there.
    #[must_use]
    pub fn may(&self, action: Action, topic: &str) -> bool {
        self.is_admin() || self.grants_on(topic).any(|grant| grant.action == action)
    }

    /// Whether a topic may be seen: any grant that names it will do.
    #[must_use]
    pub fn may_see(&self, topic: &str) -> bool {
        self.is_admin() || self.grants_on(topic).next().is_some()
    }

    fn grants_on(&self, topic: &str) -> impl Iterator<Item = &Grant> {
        let topic = mortarmq_shard::names::source_name(topic).unwrap_or(topic);
        let grants = self.holder.as_ref().map_or(&[][..], |holder| &holder.grants);
        grants.iter().filter(move |grant| grant.patterns.iter().any(|pattern| matches(pattern, topic)))
    }
}

/// Whether a pattern names a topic: as it is, or by its beginning.
fn matches(pattern: &str, topic: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => topic.starts_with(beginning),
        None => pattern == topic,
    }
}

#[cfg(test)]
mod tests {
    use super::{Access, Action, Grant, Rights, Token, digest_of};

    fn token(name: &str, secret: &str, grants: &[(Action, &[&str])]) -> Token {
        let grant = |(action, patterns): &(Action, &[&str])| Grant {
            action: *action,
            patterns: patterns.iter().map(|pattern| (*pattern).to_owned()).collect(),
        };
        Token {
            name: name.to_owned(),
            digest: digest_of(secret.as_bytes()),
            grants: grants.iter().map(grant).collect(),
        }
    }

    fn access() -> Access {
        Access::new(
            vec![
                token("shop", "one", &[(Action::Produce, &["orders", "log.*"]), (Action::Consume, &["orders"])]),
                token("ops", "two", &[(Action::Admin, &[])]),
                token("all", "three", &[(Action::Consume, &["*"])]),
            ],
            Vec::new(),
        )
    }

    #[test]
    fn only_a_token_that_is_known_has_rights_and_without_tokens_everybody_has_all() {
        let name = |secret: &str| access().rights_of(secret.as_bytes()).map(|rights| rights.name().map(str::to_owned));
        assert_eq!(name("one"), Some(Some("shop".to_owned())));
        assert_eq!(name("two"), Some(Some("ops".to_owned())));
        for wrong in ["", "on", "one ", "One", "shop"] {
            assert_eq!(name(wrong), None, "{wrong:?}");
        }
        let open = Access::default();
        assert!(open.is_open() && !access().is_open());
        assert!(open.rights_of(b"whatever").is_some_and(|rights| rights.is_admin()));
    }

    #[test]
    fn a_grant_allows_its_action_on_the_topics_it_names_and_nothing_else() {
        let shop = access().rights_of(b"one").expect("known");
        let may = |action, topic| shop.may(action, topic);
        assert!(may(Action::Produce, "orders") && may(Action::Consume, "orders"));
        assert!(may(Action::Produce, "log.web") && may(Action::Produce, "log."));
        assert!(!may(Action::Consume, "log.web") && !may(Action::Create, "orders") && !may(Action::Admin, "orders"));
        for other in ["orders2", "order", "Orders", "log", "", "xlog.a"] {
            assert!(!may(Action::Produce, other), "{other:?}");
            assert!(!shop.may_see(other), "{other:?}");
        }
        assert!(shop.may_see("log.web") && !shop.is_admin());
        let ops = access().rights_of(b"two").expect("known");
        assert!(ops.is_admin() && ops.may(Action::Create, "anything") && ops.may_see("anything"));
        let all = access().rights_of(b"three").expect("known");
        assert!(all.may(Action::Consume, "anything") && !all.may(Action::Produce, "anything"));
        assert!(Rights::all().may(Action::Admin, ""));
    }

    #[test]
    fn dead_letters_belong_to_whom_their_source_does() {
        let shop = access().rights_of(b"one").expect("known");
        assert!(shop.may(Action::Consume, "$dlq.orders") && shop.may_see("$dlq.log.web"));
        assert!(!shop.may(Action::Consume, "$dlq.log.web") && !shop.may_see("$dlq.other"));
    }

    #[test]
    fn nothing_that_is_printed_has_a_digest() {
        let printed = format!("{:?} {:?}", access(), access().rights_of(b"one"));
        assert!(printed.contains("shop"));
        assert!(!printed.contains("digest") && !printed.contains("118, 146"), "{printed}");
    }
}
