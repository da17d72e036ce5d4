//! Tokens that are drawn here, and the lines that a configuration has of them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mortarmq_server::access::digest_of;
use serde::Serialize;

use crate::errors::Failure;

/// A permission, as it is configured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct GrantLine {
    action: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    patterns: Vec<String>,
}

impl GrantLine {
    /// An action on topics; none if there are no topics.
    pub(crate) fn on(action: &'static str, patterns: &[String]) -> Option<Self> {
        (!patterns.is_empty()).then(|| Self { action, patterns: patterns.to_vec() })
    }

    /// Everything.
    pub(crate) const fn admin() -> Self {
        Self { action: "admin", patterns: Vec::new() }
    }
}

/// What somebody may do, as flags.
#[derive(Debug, clap::Args)]
pub(crate) struct GrantArgs {
    /// Topics to publish to: a name, or a beginning that ends in *
    #[arg(long, value_name = "PATTERN")]
    produce: Vec<String>,
    /// Topics to consume from
    #[arg(long, value_name = "PATTERN")]
    consume: Vec<String>,
    /// Topics to create
    #[arg(long, value_name = "PATTERN")]
    create: Vec<String>,
    /// Everything
    #[arg(long)]
    admin: bool,
}

impl GrantArgs {
    /// The permissions that were given.
    ///
    /// # Errors
    /// Bad arguments, when there are none.
    pub(crate) fn lines(&self, whose: &str) -> Result<Vec<GrantLine>, Failure> {
        let grants = [("produce", &self.produce), ("consume", &self.consume), ("create", &self.create)];
        let grants = grants.into_iter().filter_map(|(action, patterns)| GrantLine::on(action, patterns));
        let grants: Vec<_> = grants.chain(self.admin.then(GrantLine::admin)).collect();
        if grants.is_empty() {
            return Err(Failure::arguments(
                format!("{whose} would be allowed nothing"),
                "give --produce, --consume or --create with a topic, or --admin",
            ));
        }
        Ok(grants)
    }
}

/// An entry of `users`.
#[derive(Serialize)]
pub(crate) struct UserLine {
    name: String,
    argon2: String,
    grants: Vec<GrantLine>,
}

impl UserLine {
    /// The entry of a user.
    pub(crate) fn new(name: &str, argon2: String, grants: Vec<GrantLine>) -> Self {
        Self { name: name.to_owned(), argon2, grants }
    }

    /// As JSON, in one line.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).expect("names and hashes are always JSON")
    }

    /// As TOML, in one line.
    pub(crate) fn toml(&self) -> String {
        let grants: Vec<String> = self.grants.iter().map(GrantLine::toml).collect();
        format!("{{ name = {:?}, argon2 = {:?}, grants = [{}] }}", self.name, self.argon2, grants.join(", "))
    }
}

/// A token with what a configuration has of it.
pub(crate) struct Drawn {
    /// What its holder shows.
    pub(crate) token: String,
    /// The entry of the configuration.
    pub(crate) line: TokenLine,
}

/// An entry of `tokens`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TokenLine {
    name: String,
    sha256: String,
    grants: Vec<GrantLine>,
}

impl TokenLine {
    /// The entry of a token.
    pub(crate) fn of(name: &str, token: &[u8], grants: Vec<GrantLine>) -> Self {
        let sha256 = digest_of(token).iter().map(|byte| format!("{byte:02x}")).collect();
        Self { name: name.to_owned(), sha256, grants }
    }

    /// As JSON, in one line.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).expect("names and digits are always JSON")
    }

    /// As TOML, in one line.
    pub(crate) fn toml(&self) -> String {
        let grants: Vec<String> = self.grants.iter().map(GrantLine::toml).collect();
        format!("{{ name = {:?}, sha256 = {:?}, grants = [{}] }}", self.name, self.sha256, grants.join(", "))
    }
}

impl GrantLine {
    fn toml(&self) -> String {
        if self.patterns.is_empty() {
            return format!("{{ action = {:?} }}", self.action);
        }
        format!("{{ action = {:?}, patterns = {:?} }}", self.action, self.patterns)
    }
}

/// Draws a token of 256 random bits.
///
/// # Errors
/// When this machine has no random numbers.
pub(crate) fn draw(name: &str, grants: Vec<GrantLine>) -> Result<Drawn, Failure> {
    let token = format!("mq_{}", random_text::<32>()?);
    let line = TokenLine::of(name, token.as_bytes(), grants);
    Ok(Drawn { token, line })
}

/// A user whose password was drawn here, with what a configuration has of both.
pub(crate) struct DrawnUser {
    /// What the user types.
    pub(crate) password: String,
    /// The entry of the configuration.
    pub(crate) line: UserLine,
}

/// Draws a password of 144 random bits, short enough to be typed once.
///
/// # Errors
/// When this machine has no random numbers.
pub(crate) fn draw_user(name: &str, grants: Vec<GrantLine>) -> Result<DrawnUser, Failure> {
    let password = random_text::<18>()?;
    let hash = mortarmq_server::access::hash_password(password.as_bytes())
        .map_err(|reason| Failure::local(reason, "try again on another machine"))?;
    Ok(DrawnUser { password, line: UserLine::new(name, hash, grants) })
}

/// So many random bytes, in letters that need no quotes in a shell or an address.
pub(crate) fn random_text<const BYTES: usize>() -> Result<String, Failure> {
    let mut bits = [0; BYTES];
    getrandom::fill(&mut bits)
        .map_err(|error| Failure::local(format!("no random numbers: {error}"), "try again on another machine"))?;
    Ok(URL_SAFE_NO_PAD.encode(bits))
}

#[cfg(test)]
mod tests {
    use super::{GrantLine, draw, draw_user};
    use mortarmq_server::access::{Access, Action, read_tokens, read_users};

    #[test]
    fn what_is_drawn_is_a_token_that_a_node_takes() {
        let grants = || {
            let patterns = ["orders".to_owned(), "log.*".to_owned()];
            vec![GrantLine::on("produce", &patterns).expect("two"), GrantLine::admin()]
        };
        let (first, second) = (draw("a", grants()).expect("drawn"), draw("b", grants()).expect("drawn"));
        assert_ne!(first.token, second.token);
        let json = format!("[{},{}]", first.line.json(), second.line.json());
        let access = Access::new(read_tokens(&json).expect("right"), Vec::new());
        let rights = access.rights_of(second.token.as_bytes()).expect("known");
        assert!(rights.name() == Some("b") && rights.may(Action::Produce, "log.x"));
        // The same in TOML.
        let toml: serde_json::Value =
            toml::from_str(&format!("tokens = [{},{}]", first.line.toml(), second.line.toml())).expect("TOML");
        assert_eq!(toml["tokens"], serde_json::from_str::<serde_json::Value>(&json).expect("JSON"));
    }

    #[test]
    fn what_is_drawn_is_a_user_that_a_node_takes_with_a_password_of_its_own() {
        let drawn = || draw_user("admin", vec![GrantLine::admin()]).expect("drawn");
        let (first, second) = (drawn(), drawn());
        assert!(first.password != second.password && first.password.len() == 24);
        assert!(!first.line.json().contains(&first.password), "a configuration has hashes only");
        let users = read_users(&format!("[{}]", first.line.json())).expect("right");
        assert_eq!((users.len(), users[0].grants[0].action), (1, Action::Admin));
        let toml: serde_json::Value = toml::from_str(&format!("users = [{}]", first.line.toml())).expect("TOML");
        assert_eq!(toml["users"][0], serde_json::from_str::<serde_json::Value>(&first.line.json()).expect("JSON"));
    }
}
