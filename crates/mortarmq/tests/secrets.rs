//! No secret is ever printed: a whole session with tokens, a password and a key in use, and every word of it looked through.

mod support;

use support::{Broker, Done, run_with};

const TOKEN: &str = "mq_operators-own-token-000000001";
const WRONG: &str = "mq_somebodys-wrong-token-0000001";
const PASSWORD: &str = "correct horse battery staple";

fn line_of(args: &[&str], secret: &str) -> String {
    let done = run_with(args, &[], secret.as_bytes());
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    done.stdout.trim().to_owned()
}

/// The text between quotes behind a key.
fn value<'a>(line: &'a str, key: &str) -> &'a str {
    line.split_once(&format!("\"{key}\":\"")).expect("it is there").1.split('"').next().expect("it ends")
}

/// The password that `init` has drawn and shown.
fn drawn_password(made: &Done) -> &str {
    let line = made.stdout.lines().find(|line| line.starts_with("user ")).expect("a line for the user");
    line.split_whitespace().nth(2).expect("its password")
}

#[test]
fn no_token_password_digest_or_key_is_printed_or_logged() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("mortarmq.toml");
    let path = config.to_str().expect("a path of text");
    let made = run_with(&["init", path], &[], b"");
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let token = line_of(&["hash-token", "ops", "--stdin", "--admin", "--json"], TOKEN);
    let user = line_of(&["hash-password", "ada", "--admin", "--json"], PASSWORD);
    let (tokens, users) = (format!("[{token}]"), format!("[{user}]"));
    let flags = ["--config", path, "--tokens", &tokens, "--users", &users, "--log-level", "trace"];
    let mut broker = Broker::start_with(&folder.path().join("data"), &flags);
    let ca = folder.path().join("mortarmq-ca.pem").to_str().expect("a path of text").to_owned();
    let admin = broker.admin_addr.trim_start_matches("https://").to_owned();
    let ask = |token: &str, args: &[&str]| {
        let server = broker.client_addr.as_str();
        let environment = [
            ("MORTARMQ_SERVER", server),
            ("MORTARMQ_ADMIN", &admin),
            ("MORTARMQ_TOKEN", token),
            ("MORTARMQ_TLS_CA", &ca),
        ];
        run_with(args, &environment, b"")
    };
    let mut shown = broker.banner.join("\n");
    let mut take = |done: Done| {
        shown += &format!("{}{}", done.stdout, done.stderr);
        done.code
    };
    assert_eq!(take(ask(TOKEN, &["topics", "create", "orders"])), Some(0));
    assert_eq!(take(ask(TOKEN, &["pub", "orders", "x"])), Some(0));
    assert_eq!(take(ask(WRONG, &["pub", "orders", "x"])), Some(4));
    assert_eq!(take(ask(WRONG, &["balance"])), Some(4));
    for args in [
        &["balance"][..],
        &["doctor"],
        &["broker", "status"],
        &["defaults", "show"],
        &["pub", "--help"],
        &["groups", "list"],
    ] {
        take(ask(TOKEN, args));
    }
    let node = [("MORTARMQ_TOKENS", tokens.as_str()), ("MORTARMQ_USERS", users.as_str())];
    assert_eq!(take(run_with(&["config", "show", "--config", path], &node, b"")), Some(0));
    assert_eq!(take(run_with(&["config", "show", "--json"], &node, b"")), Some(0));
    take(run_with(&["config", "check", path], &[], b""));
    take(run_with(&["doctor", "--config", path], &node, b""));
    // Values that are refused are not repeated either.
    let broken =
        [("MORTARMQ_TOKENS", tokens.replace("admin", "fly")), ("MORTARMQ_USERS", users.replace("$v=19", "$v=99"))];
    for (name, text) in &broken {
        assert_eq!(take(run_with(&["config", "show"], &[(name, text.as_str())], b"")), Some(2));
    }
    broker.signal(rustix::process::Signal::HUP);
    assert_eq!(broker.stop(), Some(0));
    shown += &broker.log_since_start();
    assert!(
        shown.contains("ops") && shown.contains("ada") && shown.contains("stopped"),
        "the session is all there: {shown}"
    );
    let key = std::fs::read_to_string(folder.path().join("mortarmq-key.pem")).expect("ours");
    let key = key.lines().nth(1).expect("a line of the key");
    let of_init = std::fs::read_to_string(&config).expect("ours");
    let digests: Vec<&str> = of_init.split("sha256 = \"").skip(1).map(|rest| &rest[..64]).collect();
    let ours = [TOKEN, WRONG, PASSWORD, value(&token, "sha256"), value(&user, "argon2")];
    let secrets = [drawn_password(&made), key, "$argon2"].into_iter().chain(ours);
    for secret in secrets.chain(digests) {
        assert!(!shown.contains(secret), "{secret:?} is shown in:\n{shown}");
    }
}
