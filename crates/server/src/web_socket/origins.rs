//! Which pages may open a WebSocket: a browser says whose page asks, and sends it wherever that page wants.

use std::fmt;

/// The origins that are allowed. A client that is no browser names none, and is not asked for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origins {
    /// As they were given.
    listed: Vec<String>,
}

impl Origins {
    /// Reads a JSON list of origins such as `https://shop.example`, and of the word `loopback`; `None` if it is none.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let listed: Vec<String> = serde_json::from_str(text).ok()?;
        listed.iter().all(|entry| entry == LOOPBACK || is_origin(entry)).then_some(Self { listed })
    }

    /// Whether a page of this origin may connect.
    pub(crate) fn allows(&self, origin: &str) -> bool {
        self.listed.iter().any(|entry| match entry.as_str() {
            LOOPBACK => is_of_this_machine(origin),
            listed => listed.eq_ignore_ascii_case(origin),
        })
    }
}

impl fmt::Display for Origins {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted: Vec<String> = self.listed.iter().map(|entry| format!("{entry:?}")).collect();
        write!(formatter, "[{}]", quoted.join(","))
    }
}

/// Scheme, host and perhaps a port: a path or a blank would never be met in what a browser sends.
fn is_origin(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else { return false };
    let is_plain = |text: &str| !text.is_empty() && text.chars().all(|found| found.is_ascii_graphic());
    is_plain(scheme) && is_plain(host) && !host.contains('/')
}

fn is_of_this_machine(origin: &str) -> bool {
    let Some((_, host)) = origin.split_once("://") else { return false };
    LOOPBACK_HOSTS.iter().any(|name| {
        let rest = host.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port))
    })
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok() && text.bytes().all(|byte| byte.is_ascii_digit())
}

const LOOPBACK: &str = "loopback";
const LOOPBACK_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

#[cfg(test)]
mod tests {
    use super::Origins;

    #[test]
    fn only_pages_that_are_listed_may_connect() {
        let allows = |list: &str, origin: &str| Origins::read(list).expect(list).allows(origin);
        for origin in ["http://localhost", "https://localhost:3000", "http://127.0.0.1:7190", "http://[::1]:80"] {
            assert!(allows("[\"loopback\"]", origin), "{origin}");
            assert!(!allows("[]", origin), "an empty list refuses every origin");
        }
        for origin in [
            "null",
            "",
            "localhost",
            "http://localhost.evil.example",
            "http://evil.example/localhost",
            "http://localhost:",
            "http://localhost:80@evil.example",
            "http://127.0.0.1.evil.example",
            "http://localhost:+80",
        ] {
            assert!(!allows("[\"loopback\"]", origin), "{origin}");
        }
        assert!(allows("[\"https://Shop.example\"]", "https://shop.example"));
        assert!(!allows("[\"https://shop.example\"]", "http://shop.example"), "another scheme is another origin");
        assert!(!allows("[\"https://shop.example\"]", "https://shop.example:8443"));
    }

    #[test]
    fn what_no_browser_ever_sends_is_no_origin() {
        for bad in ["loopback", "[\"shop.example\"]", "[\"https://shop.example/\"]", "[\"*\"]", "[1]", "{}"] {
            assert_eq!(Origins::read(bad), None, "{bad}");
        }
        let shown = Origins::read("[ \"loopback\", \"https://a.example\" ]").expect("right").to_string();
        assert_eq!(shown, "[\"loopback\",\"https://a.example\"]");
        assert!(Origins::read(&shown).is_some());
    }
}
