//! Who may do what, over real sockets: tokens, grants, and the configuration that `init` writes.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use support::{Broker, run, run_with};

/// The lines of three tokens.
fn tokens() -> String {
    let line = |name: &str, token: &str, grants: &[&str]| {
        let mut args = vec!["hash-token", name, "--stdin", "--json"];
        args.extend_from_slice(grants);
        let done = run_with(&args, &[], token.as_bytes());
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        done.stdout.trim().to_owned()
    };
    let ops = line("ops", OPS, &["--admin"]);
    let shop = line("shop", SHOP, &["--produce", "orders*", "--create", "orders*"]);
    let reader = line("reader", READER, &["--consume", "orders"]);
    format!("[{ops},{shop},{reader}]")
}

const OPS: &str = "operator-secret-1";
const SHOP: &str = "shop-secret-000001";
const READER: &str = "reader-secret-0001";

struct Asker {
    broker: Broker,
    _folder: tempfile::TempDir,
}

impl Asker {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let broker = Broker::start_with(&folder.path().join("data"), &["--tokens", &tokens()]);
        Self { broker, _folder: folder }
    }

    /// Runs a command with a token, and gives its exit code and what it printed.
    fn ask(&self, token: &str, args: &[&str]) -> (Option<i32>, String, String) {
        let environment = [
            ("MORTARMQ_SERVER", self.broker.client_addr.as_str()),
            ("MORTARMQ_ADMIN", self.broker.admin_addr.as_str()),
            ("MORTARMQ_TOKEN", token),
        ];
        let done = run_with(args, &environment, b"");
        (done.code, done.stdout, done.stderr)
    }

    fn must(&self, token: &str, args: &[&str]) -> String {
        let (code, stdout, stderr) = self.ask(token, args);
        assert_eq!(code, Some(0), "{args:?} with {token}: {stderr}");
        stdout
    }
}

#[test]
fn each_action_asks_for_its_grant_and_a_refusal_names_it() {
    let asker = Asker::new();
    asker.must(SHOP, &["topics", "create", "orders", "--partitions", "1"]);
    asker.must(OPS, &["topics", "create", "audit"]);
    asker.must(SHOP, &["pub", "orders", "hello"]);
    asker.must(READER, &["sub", "orders", "--group", "g", "--count", "1"]);
    asker.must(READER, &["peek", "orders"]);
    asker.must(READER, &["trace", "orders", "0", "1"]);
    asker.must(READER, &["balance", "orders"]);
    asker.must(SHOP, &["topics", "describe", "orders"]);
    asker.must(SHOP, &["broker", "status"]);
    asker.must(OPS, &["balance"]);
    for (token, args, told) in [
        (READER, &["pub", "orders", "x"][..], "\"produce\""),
        (SHOP, &["sub", "orders", "--group", "g", "--count", "1"], "\"consume\""),
        (SHOP, &["topics", "create", "billing"], "\"create\""),
        (SHOP, &["topics", "delete", "orders"], "\"admin\""),
        (SHOP, &["peek", "orders"], "consume not allowed"),
        (SHOP, &["balance", "audit"], "no grant on this topic"),
        (SHOP, &["topics", "purge", "orders"], "admin privileges required"),
        (SHOP, &["topics", "describe", "audit"], "no grant on this topic"),
        (READER, &["groups", "seek", "orders/g", "--to", "earliest"], "admin privileges required"),
        (READER, &["groups", "delete", "orders/g"], "admin privileges required"),
    ] {
        let (code, stdout, stderr) = asker.ask(token, args);
        assert_eq!((code, stdout.as_str()), (Some(4), ""), "{args:?}: {stderr}");
        assert!(stderr.contains("FORBIDDEN") && stderr.contains(told), "{args:?}: {stderr}");
    }
    // What a token has no grant on is not there for it.
    let listed = asker.must(SHOP, &["topics", "list"]);
    assert!(listed.contains("orders") && !listed.contains("audit"), "{listed}");
    assert_eq!(asker.must(OPS, &["balance", "orders"]).split('\t').nth(2), Some("1"), "nothing refused was stored");
    let (code, _, stderr) = asker.ask(SHOP, &["pub", "audit", "x"]);
    assert_eq!(code, Some(4), "{stderr}");
    assert!(stderr.contains("UNKNOWN_TOPIC"), "{stderr}");
}

#[test]
fn a_wrong_token_gets_one_answer_everywhere_and_not_at_once() {
    let asker = Asker::new();
    asker.must(OPS, &["topics", "create", "orders"]);
    let mut told = Vec::new();
    for token in ["", "operator-secret-", "operator-secret-12", "ops"] {
        let begun = Instant::now();
        let (code, _, stderr) = asker.ask(token, &["pub", "orders", "x"]);
        assert!(begun.elapsed() >= Duration::from_millis(100), "a guess is slow");
        assert_eq!(code, Some(4), "{stderr}");
        assert!(stderr.contains("AUTH_FAILED"), "{stderr}");
        told.push(stderr);
        let (code, _, stderr) = asker.ask(token, &["balance"]);
        assert_eq!(code, Some(4), "{stderr}");
        assert!(stderr.contains("NOT_AUTHENTICATED"), "{stderr}");
    }
    told.dedup();
    assert_eq!(told.len(), 1, "{told:?}");
    // Whoever watches the process has no token.
    let health = asker.broker.get("/healthz").expect("it listens and answers");
    assert!(health.starts_with("HTTP/1.1 200"), "{health}");
    let log = asker.broker.log_since_start();
    assert!(log.contains("its token is none of this node's"), "{log}");
    for secret in [OPS, "operator-secret-", "sha256"] {
        assert!(!log.contains(secret), "{log}");
    }
}

#[test]
fn init_writes_a_configuration_that_works_and_is_never_written_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mortarmq.toml");
    let file = path.to_str().expect("text");
    let done = run(&["init", file]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let token = |name: &str| {
        let line = done.stdout.lines().find(|line| line.starts_with(name)).expect("a line for each token");
        line.split_whitespace().nth(1).expect("the token").to_owned()
    };
    let written = std::fs::read_to_string(&path).expect("a file");
    assert!(!written.contains(&token("admin")) && !written.contains(&token("app")), "digests only");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    let checked = run(&["config", "check", file]);
    assert_eq!((checked.code, checked.stdout), (Some(0), format!("{file}: right, 7 keys are set\n")));
    let shown = run(&["config", "show", "--config", file]);
    assert!(shown.stdout.contains("tokens\t[admin, app]\t"), "{}", shown.stdout);
    assert!(shown.stdout.contains("users\t[admin]\t"), "{}", shown.stdout);
    assert!(!shown.stdout.contains("sha256") && !shown.stdout.contains("argon2"), "{}", shown.stdout);
    let again = run(&["init", file]);
    assert_eq!(again.code, Some(1), "{}", again.stdout);
    assert_eq!(std::fs::read_to_string(&path).expect("a file"), written, "it was left as it was");

    let broker = Broker::start_with(&folder.path().join("data"), &["--config", file]);
    let ca = folder.path().join("mortarmq-ca.pem");
    let ask = |token: &str, args: &[&str]| {
        let environment = [
            ("MORTARMQ_SERVER", broker.client_addr.as_str()),
            ("MORTARMQ_TOKEN", token),
            ("MORTARMQ_TLS_CA", ca.to_str().expect("text")),
        ];
        run_with(args, &environment, b"")
    };
    assert_eq!(ask(&token("app"), &["topics", "create", "orders"]).code, Some(0));
    assert_eq!(ask(&token("app"), &["pub", "orders", "hello"]).code, Some(0));
    assert_eq!(ask(&token("app"), &["topics", "delete", "orders"]).code, Some(4));
    assert_eq!(ask(&token("admin"), &["topics", "delete", "orders"]).code, Some(0));
}

#[test]
fn what_is_wrong_with_a_configuration_or_a_token_is_said_without_starting_a_node() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("node.toml");
    std::fs::write(&path, "listen_client = \"0.0.0.0:7188\"\n").expect("written");
    let done = run(&["config", "check", path.to_str().expect("text")]);
    assert_eq!(done.code, Some(2));
    assert!(done.stderr.contains("without credentials") && done.stderr.contains("mortarmq init"), "{}", done.stderr);
    for (args, told) in [
        (&["hash-token", "a"][..], "would be allowed nothing"),
        (&["hash-token", "a", "--produce", "a b"], "names no topic"),
        (&["hash-token", "", "--admin"], "needs a name"),
        (&["hash-token", "a", "--admin", "--stdin"], "must not be guessed"),
    ] {
        let done = run(args);
        assert_eq!((done.code, done.stdout.as_str()), (Some(2), ""), "{args:?}: {}", done.stderr);
        assert!(done.stderr.contains(told), "{args:?}: {}", done.stderr);
    }
}

#[test]
fn lists_show_what_their_reader_may_see() {
    let asker = Asker::new();
    asker.must(OPS, &["topics", "create", "orders", "--partitions", "1"]);
    asker.must(OPS, &["topics", "create", "secret-plans", "--partitions", "1"]);
    asker.must(OPS, &["pub", "orders", "x"]);
    asker.must(OPS, &["pub", "secret-plans", "x"]);
    asker.must(OPS, &["sub", "orders", "--group", "g", "--count", "1"]);
    asker.must(OPS, &["sub", "secret-plans", "--group", "g", "--count", "1"]);
    for path in ["/v1/topics", "/stats", "/v1/balance", "/stats?topic=orders&topic=secret-plans"] {
        let all = get(&asker.broker, path, &format!("Bearer {OPS}"));
        assert!(all.contains("\"orders\""), "{path}: {all}");
        assert!(all.contains("secret-plans") || path.contains('?'), "{path}: {all}");
        let some = get(&asker.broker, path, &format!("Bearer {READER}"));
        assert!(some.starts_with("HTTP/1.1 200") && some.contains("\"orders\""), "{path}: {some}");
        assert!(!some.contains("secret-plans"), "{path}: {some}");
    }
    // The command counts what it is shown.
    assert_eq!(asker.must(READER, &["balance"]), "orders\tg\t1\t1\t0\t0\t0\t0\n");
    let one = get(&asker.broker, "/v1/balance?topic=secret-plans", &format!("Bearer {READER}"));
    assert!(one.starts_with("HTTP/1.1 403"), "{one}");
}

#[test]
fn a_user_is_let_in_over_http_with_the_password_and_locked_after_five_wrong_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    let password = "correct horse battery";
    let hashed = run_with(&["hash-password", "ada", "--consume", "orders", "--json"], &[], password.as_bytes());
    assert_eq!(hashed.code, Some(0), "{}", hashed.stderr);
    assert!(!hashed.stdout.contains(password) && hashed.stderr.is_empty(), "{}{}", hashed.stdout, hashed.stderr);
    assert_eq!(run_with(&["hash-password", "ada", "--admin"], &[], b"short").code, Some(2));
    // With a user alone every listener asks.
    let users = format!("[{}]", hashed.stdout.trim());
    let broker = Broker::start_with(&folder.path().join("data"), &["--users", &users]);
    assert!(broker.banner.iter().any(|line| line.contains("every listener asks")), "{:?}", broker.banner);
    assert_eq!(broker.run(&["topics", "list"]).code, Some(4));
    let basic = |name: &str, password: &str| {
        use base64::Engine as _;
        format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("{name}:{password}")))
    };
    assert!(get(&broker, "/v1/broker", &basic("ada", password)).starts_with("HTTP/1.1 200"));
    assert!(get(&broker, "/v1/defaults", &basic("ada", password)).starts_with("HTTP/1.1 403"));
    assert!(get(&broker, "/v1/broker", &format!("Bearer {password}")).starts_with("HTTP/1.1 401"));
    for _ in 0..5 {
        assert!(get(&broker, "/v1/broker", &basic("ada", "wrong password")).starts_with("HTTP/1.1 401"));
    }
    let locked = get(&broker, "/v1/broker", &basic("ada", password));
    assert!(locked.starts_with("HTTP/1.1 429") && locked.contains("too many failed"), "{locked}");
    assert!(get(&broker, "/v1/broker", &basic("eve", password)).starts_with("HTTP/1.1 401"));
}

/// Status and body of a question.
fn get(broker: &Broker, path: &str, authorization: &str) -> String {
    let address = broker.admin_addr.trim_start_matches("http://");
    let mut connection = TcpStream::connect(address).expect("it listens");
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: a\r\nauthorization: {authorization}\r\nconnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("answered");
    answer
}
