//! Users with passwords, as HTTP's Basic authentication shows them.
//!
//! People choose passwords, so each is kept as an Argon2id hash, which takes tens of milliseconds and 19 MiB to try. Tries run
//! one at a time and off the runtime. What was right once is remembered as a digest in memory, so a client that shows its
//! password with every request does not pay again.
//!
//! # Source
//! The rules for wrong passwords: docs/reference/operations.md, "Who may connect".

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use argon2::{Algorithm, Argon2, Params, Version};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::sync::Semaphore;

use super::Grant;

/// A user, as far as a node knows it: it never has the password itself.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// Shown with the password.
    pub name: String,
    /// Argon2 hash of the password, in the PHC string format.
    pub hash: String,
    /// What the user may do.
    pub grants: Vec<Grant>,
}

/// Leaves the hash out: what is printed ends up in logs.
impl std::fmt::Debug for User {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("User").field("name", &self.name).field("grants", &self.grants).finish_non_exhaustive()
    }
}

/// Why a name and a password are not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// No such user, or not this password: which of them is not said, nor can it be told from the time.
    Wrong,
    /// Too many wrong passwords for this user.
    TooOften,
    /// Too many tries wait for their turn.
    Busy,
}

/// Makes the hash of a password, with a salt of its own.
///
/// # Errors
/// When the password is empty or longer than 72 bytes, or this machine has no random numbers.
pub fn hash_password(password: &[u8]) -> Result<String, String> {
    if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
        return Err(format!("a password has 1 to {PASSWORD_BYTES_MAX} bytes"));
    }
    let hash: PasswordHash = Argon2::default().hash_password(password).map_err(|error| error.to_string())?;
    Ok(hash.to_string())
}

/// Whether this is a hash that can be tried, at a cost that a node bears.
pub(super) fn is_usable(hash: &str) -> bool {
    let Ok(parsed) = PasswordHash::new(hash) else { return false };
    let Ok(params) = Params::try_from(&parsed) else { return false };
    let is_known_version = parsed.version.is_none_or(|version| Version::try_from(version).is_ok());
    parsed.hash.is_some()
        && is_known_version
        && Algorithm::try_from(parsed.algorithm.as_str()).is_ok()
        && params.m_cost() <= M_COST_MAX_KIB
        && params.t_cost() <= T_COST_MAX
}

/// All users of a node, and how their last tries went.
pub(super) struct Users {
    users: Vec<Account>,
    /// Tried in place of a user who is not there, so that this takes as long.
    nobody: String,
    turn: Semaphore,
}

struct Account {
    user: User,
    tries: Mutex<Tries>,
}

#[derive(Default)]
struct Tries {
    wrong: u32,
    /// No try before it counts.
    not_before: Option<Instant>,
    /// Digest of the password that was right.
    right: Option<[u8; 32]>,
}

impl Users {
    pub(super) fn new(users: Vec<User>) -> Self {
        let nobody = users.first().map_or_else(String::new, |user| user.hash.clone());
        let users = users.into_iter().map(|user| Account { user, tries: Mutex::default() }).collect();
        Self { users, nobody, turn: Semaphore::new(1) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Looks whether there is such a user with this password; the place of the user if so.
    pub(super) async fn check(&self, name: &str, password: &[u8]) -> Result<usize, Denied> {
        if self.users.is_empty() || password.len() > PASSWORD_BYTES_MAX {
            return Err(Denied::Wrong);
        }
        let found = self.users.iter().position(|account| account.user.name == name);
        let account = found.map(|place| &self.users[place]);
        if let Some(account) = account {
            let mut tries = account.tries();
            let now = Instant::now();
            if tries.wrong >= WRONG_MAX {
                if tries.not_before.is_some_and(|not_before| now < not_before) {
                    return Err(Denied::TooOften);
                }
                // This is the one try; others that come meanwhile are not.
                tries.not_before = Some(now + ONE_TRY_IN);
            }
            let digest = digest(&account.user.hash, password);
            if tries.right.is_some_and(|right| bool::from(right.ct_eq(&digest))) {
                tries.wrong = 0;
                return found.ok_or(Denied::Wrong);
            }
        }
        let hash = account.map_or(&self.nobody, |account| &account.user.hash).clone();
        let is_right = self.try_hash(hash, password.to_vec()).await?;
        let (Some(account), Some(place)) = (account, found) else { return Err(Denied::Wrong) };
        let mut tries = account.tries();
        if is_right {
            tries.wrong = 0;
            tries.right = Some(digest(&account.user.hash, password));
            return Ok(place);
        }
        tries.wrong = tries.wrong.saturating_add(1);
        if tries.wrong >= WRONG_MAX {
            tries.not_before = Some(Instant::now() + ONE_TRY_IN);
        }
        Err(Denied::Wrong)
    }

    async fn try_hash(&self, hash: String, password: Vec<u8>) -> Result<bool, Denied> {
        let turn = tokio::time::timeout(TURN_LIMIT, self.turn.acquire()).await;
        let Ok(Ok(_turn)) = turn else { return Err(Denied::Busy) };
        let tried = tokio::task::spawn_blocking(move || {
            PasswordHash::new(&hash).is_ok_and(|hash| Argon2::default().verify_password(&password, &hash).is_ok())
        });
        tried.await.map_err(|_| Denied::Busy)
    }
}

impl Account {
    fn tries(&self) -> MutexGuard<'_, Tries> {
        self.tries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The hash brings in its salt.
fn digest(hash: &str, password: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(hash).chain_update([0]).chain_update(password).finalize().into()
}

pub(super) type SharedUsers = Arc<Users>;

const PASSWORD_BYTES_MAX: usize = 72;
/// 256 MiB: more would make a login a burden to the broker.
const M_COST_MAX_KIB: u32 = 256 * 1024;
const T_COST_MAX: u32 = 16;
const WRONG_MAX: u32 = 5;
const ONE_TRY_IN: Duration = Duration::from_secs(12);
/// Whoever floods a node with wrong passwords keeps others that long from their first login, and no request.
const TURN_LIMIT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::{Denied, User, Users, hash_password, is_usable};

    fn users() -> Users {
        let user = |name: &str, password: &[u8]| User {
            name: name.to_owned(),
            hash: hash_password(password).expect("hashed"),
            grants: Vec::new(),
        };
        Users::new(vec![user("ada", b"correct horse"), user("bob", b"battery staple")])
    }

    #[tokio::test]
    async fn only_the_right_password_of_the_right_user_is_let_in_again_and_again() {
        let users = users();
        for _ in 0..3 {
            assert_eq!(users.check("ada", b"correct horse").await, Ok(0));
            assert_eq!(users.check("bob", b"battery staple").await, Ok(1));
        }
        for (name, password) in [("ada", &b"battery staple"[..]), ("bob", b""), ("eve", b"correct horse"), ("", b"")] {
            assert_eq!(users.check(name, password).await, Err(Denied::Wrong), "{name}");
        }
        assert_eq!(Users::new(Vec::new()).check("ada", b"").await, Err(Denied::Wrong));
    }

    #[tokio::test]
    async fn five_wrong_passwords_lock_that_user_and_no_other() {
        let users = users();
        for _ in 0..5 {
            assert_eq!(users.check("ada", b"guess").await, Err(Denied::Wrong));
        }
        assert_eq!(users.check("ada", b"guess").await, Err(Denied::TooOften));
        // Not even the right one: else guessing would go on behind the lock.
        assert_eq!(users.check("ada", b"correct horse").await, Err(Denied::TooOften));
        assert_eq!(users.check("bob", b"battery staple").await, Ok(1));
        assert_eq!(users.check("eve", b"guess").await, Err(Denied::Wrong));
    }

    #[test]
    fn a_hash_that_is_none_or_too_dear_is_refused() {
        let hash = hash_password(b"x").expect("hashed");
        assert!(is_usable(&hash) && hash.starts_with("$argon2id$"), "{hash}");
        assert_ne!(hash, hash_password(b"x").expect("hashed"), "each has its own salt");
        for bad in [
            "",
            "x",
            "$argon2id$v=19$m=19456,t=2,p=1",
            &hash.replace("m=19456", "m=4194304"),
            &hash.replace("t=2", "t=999"),
        ] {
            assert!(!is_usable(bad), "{bad}");
        }
        assert!(hash_password(b"").is_err() && hash_password(&[b'x'; 73]).is_err());
    }
}
