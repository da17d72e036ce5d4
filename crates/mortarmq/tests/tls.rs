//! TLS as a user meets it: what `init` writes and prints, and what a command says when one side has another idea.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use base64::Engine as _;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};

use support::{Broker, Done, mortarmq, run, run_with};

/// Runs `init` in a folder, as somebody does who stands in it.
fn init(folder: &Path, args: &[&str]) -> Done {
    let mut command = mortarmq();
    command.arg("init").args(args).current_dir(folder).stdin(Stdio::null());
    Done::of(command.output().expect("the binary runs"))
}

/// A broker of what `init` wrote, and what it printed.
struct Begun {
    broker: Broker,
    printed: String,
    folder: tempfile::TempDir,
}

impl Begun {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let done = init(folder.path(), &[]);
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        let config = folder.path().join("mortarmq.toml");
        let broker =
            Broker::start_with(&folder.path().join("data"), &["--config", config.to_str().expect("a path of text")]);
        Self { broker, printed: done.stdout, folder }
    }

    fn token(&self, name: &str) -> &str {
        let line = self.printed.lines().find(|line| line.starts_with(name)).expect("a line for each token");
        line.split_whitespace().nth(1).expect("the token")
    }

    /// The user that `init` made, and its password.
    fn user(&self) -> (&str, &str) {
        let line = self.printed.lines().find_map(|line| line.strip_prefix("user ")).expect("a line for the user");
        let mut words = line.split_whitespace();
        (words.next().expect("the name"), words.next().expect("the password"))
    }

    /// What the operator routes answer over HTTPS to somebody with a name and a password: the line of the status.
    fn status_for(&self, name: &str, password: &str, path: &str) -> String {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.ca()).expect("a certificate")).expect("a CA");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().expect("1.2, 1.3");
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let name_of_host = ServerName::try_from("localhost").expect("a name");
        let connection = rustls::ClientConnection::new(Arc::new(config), name_of_host).expect("a client");
        let socket = TcpStream::connect(self.broker.admin_addr.trim_start_matches("https://")).expect("it listens");
        let mut stream = rustls::StreamOwned::new(connection, socket);
        let basic = base64::engine::general_purpose::STANDARD.encode(format!("{name}:{password}"));
        let head = format!("host: localhost\r\nauthorization: Basic {basic}\r\nconnection: close\r\n\r\n");
        stream.write_all(format!("GET {path} HTTP/1.1\r\n{head}").as_bytes()).expect("written");
        let mut answer = Vec::new();
        // Whether the end is announced is no matter here.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
    }

    fn ca(&self) -> String {
        self.folder.path().join("mortarmq-ca.pem").to_str().expect("a path of text").to_owned()
    }

    /// Runs a command with an environment of its own.
    fn ask(&self, args: &[&str], more: &[(&str, &str)]) -> Done {
        let admin = self.broker.admin_addr.trim_start_matches("https://");
        let mut environment = vec![
            ("MORTARMQ_SERVER", self.broker.client_addr.as_str()),
            ("MORTARMQ_ADMIN", admin),
            ("MORTARMQ_TOKEN", self.token("admin")),
        ];
        environment.extend_from_slice(more);
        run_with(args, &environment, b"")
    }
}

#[test]
fn the_commands_that_init_prints_lead_to_a_first_message_over_tls() {
    let begun = Begun::new();
    assert!(begun.broker.admin_addr.starts_with("https://"), "{:?}", begun.broker.banner);
    assert!(begun.broker.banner.iter().any(|line| line.contains("over TLS")), "{:?}", begun.broker.banner);
    assert!(!begun.printed.contains("can be read"), "{}", begun.printed);
    let commands: Vec<&str> =
        begun.printed.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.is_empty()).collect();
    assert_eq!(commands[0], "mortarmq serve --config mortarmq.toml", "the broker above was started with it");
    assert_eq!(commands.len(), 4, "{commands:?}");
    // The rest as a shell runs it. The ports are others here, and the binary is not installed.
    let script = format!("mortarmq() {{ \"$BINARY\" \"$@\"; }}\nset -e\n{}\n", commands[1..].join("\n"));
    let shell = |script: &str| {
        let mut shell = Command::new("bash");
        shell.args(["-c", script]).current_dir(begun.folder.path()).stdin(Stdio::null());
        shell.env("BINARY", env!("CARGO_BIN_EXE_mortarmq")).env("MORTARMQ_SERVER", &begun.broker.client_addr);
        shell.env("MORTARMQ_ADMIN", begun.broker.admin_addr.trim_start_matches("https://"));
        Done::of(shell.output().expect("bash runs"))
    };
    let done = shell(&script);
    assert_eq!(done.code, Some(0), "{script}: {}", done.stderr);
    assert!(done.stdout.starts_with("created\t"), "{}", done.stdout);
    assert!(done.stderr.contains("books balance") || done.stderr.contains("no group yet"), "{}", done.stderr);
    // The system's CAs are those of a file, if somebody says so.
    let system = [("MORTARMQ_TLS_CA", "system"), ("SSL_CERT_FILE", &begun.ca())];
    for args in [&["topics", "list"][..], &["topics", "describe", "orders"]] {
        let done = begun.ask(args, &system);
        assert_eq!(done.code, Some(0), "{args:?}: {}", done.stderr);
    }
    // As the banner of `serve` says it.
    let export = begun.broker.banner.iter().find(|line| line.trim().starts_with("export MORTARMQ_TLS_CA="));
    let export = export.expect("it says where the CA is").trim();
    assert_eq!(export, format!("export MORTARMQ_TLS_CA={}", begun.ca()));
    let token = begun.token("app");
    let script = format!("{export}; export MORTARMQ_TOKEN={token}; \"$BINARY\" sub orders --group billing --count 1");
    let done = shell(&script);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stdout.trim_end().ends_with("hello"), "{}", done.stdout);
    let balance = begun.ask(&["balance", "orders", "--tls-ca", &begun.ca()], &[]);
    assert_eq!((balance.code, balance.stdout.split('\t').nth(3)), (Some(0), Some("1")), "{}", balance.stderr);
}

#[test]
fn the_user_that_init_makes_is_let_in_over_https_with_the_password_and_nobody_else_is() {
    let begun = Begun::new();
    let (name, password) = begun.user();
    assert_eq!(name, "admin");
    assert!(begun.status_for(name, password, "/v1/balance").ends_with("200 OK"));
    // It may do everything: this asks for `admin`.
    assert!(begun.status_for(name, password, "/v1/defaults").ends_with("200 OK"));
    for (name, password) in [(name, "another-password-24-long"), ("root", password), (name, "")] {
        let status = begun.status_for(name, password, "/v1/balance");
        assert!(status.contains(" 401 "), "{name}: {status}");
    }
    let file = std::fs::read_to_string(begun.folder.path().join("mortarmq.toml")).expect("a file");
    assert!(file.contains("argon2id") && !file.contains(password), "a configuration has hashes only");
}

#[test]
fn a_command_that_trusts_another_ca_or_speaks_no_tls_is_told_what_to_do() {
    let begun = Begun::new();
    let other = tempfile::tempdir().expect("a folder");
    assert_eq!(init(other.path(), &[]).code, Some(0));
    let other_ca = other.path().join("mortarmq-ca.pem");
    let other_ca = other_ca.to_str().expect("a path of text");
    let https = begun.broker.admin_addr.as_str();
    let http = https.replace("https", "http");
    for (args, environment, told) in [
        (&["topics", "list"][..], &[("MORTARMQ_TLS_CA", other_ca)][..], "none of the given CAs issued it"),
        (&["broker", "status"], &[("MORTARMQ_TLS_CA", other_ca)], "none of the given CAs issued it"),
        (&["topics", "list"], &[], "--tls-ca"),
        (&["broker", "status"], &[], "speaks TLS only"),
        (&["broker", "status"], &[("MORTARMQ_ADMIN", &http), ("MORTARMQ_TLS_CA", &begun.ca())], "speaks TLS only"),
        (&["broker", "status"], &[("MORTARMQ_ADMIN", https)], "--tls-ca FILE"),
        (&["broker", "status"], &[("MORTARMQ_TLS_CA", "/no/such.pem")], "/no/such.pem"),
        (&["topics", "list"], &[("MORTARMQ_TLS_CA", "/no/such.pem")], "/no/such.pem"),
    ] {
        let done = begun.ask(args, environment);
        assert!(matches!(done.code, Some(2..=4)), "{args:?} {environment:?}: {:?} {}", done.code, done.stdout);
        assert!(done.stderr.contains(told), "{args:?} {environment:?}: {}", done.stderr);
    }
    // The certificate names the machine, and not this address of it.
    let elsewhere = begun.broker.client_addr.replace("127.0.0.1", "127.0.0.2");
    let all = begun.ask(&["topics", "list"], &[("MORTARMQ_TLS_CA", &begun.ca()), ("MORTARMQ_SERVER", &elsewhere)]);
    assert!(all.code == Some(3), "{}", all.stdout);
}

#[test]
fn a_broker_without_tls_tells_a_command_with_it_what_to_do() {
    let (folder, keys) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    assert_eq!(init(keys.path(), &[]).code, Some(0));
    let broker = Broker::start(&folder.path().join("data"));
    let ca = keys.path().join("mortarmq-ca.pem");
    for args in [&["topics", "list"][..], &["broker", "status"]] {
        let environment = [
            ("MORTARMQ_SERVER", broker.client_addr.as_str()),
            ("MORTARMQ_ADMIN", broker.admin_addr.trim_start_matches("http://")),
            ("MORTARMQ_TLS_CA", ca.to_str().expect("a path of text")),
        ];
        let done = run_with(args, &environment, b"");
        assert_eq!(done.code, Some(3), "{args:?}: {}", done.stderr);
        assert!(done.stderr.contains("does not speak TLS"), "{args:?}: {}", done.stderr);
    }
}

#[test]
fn init_keeps_its_key_secret_and_writes_over_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let done = init(folder.path(), &["node.toml", "--name", "broker.example.org", "--name", "10.1.2.3"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stdout.contains("broker.example.org, 10.1.2.3"), "{}", done.stdout);
    let mode = |name: &str| std::fs::metadata(folder.path().join(name)).expect("a file").permissions().mode() & 0o777;
    assert_eq!((mode("node.toml"), mode("mortarmq-key.pem")), (0o600, 0o600));
    let key = std::fs::read_to_string(folder.path().join("mortarmq-key.pem")).expect("a file");
    for name in ["node.toml", "mortarmq-ca.pem", "mortarmq-cert.pem"] {
        let text = std::fs::read_to_string(folder.path().join(name)).expect("a file");
        assert!(!text.contains("PRIVATE KEY") && !text.contains(key.lines().nth(1).expect("a line")), "{name}");
    }
    // Another configuration in the same folder would need other files, and those are in use.
    let again = init(folder.path(), &["other.toml"]);
    assert_eq!(again.code, Some(1), "{}", again.stdout);
    assert!(again.stderr.contains("mortarmq-ca.pem exists"), "{}", again.stderr);
    assert!(!folder.path().join("other.toml").exists(), "half of it was left");
    assert_eq!(std::fs::read_to_string(folder.path().join("mortarmq-key.pem")).expect("a file"), key);
    let bad = init(folder.path(), &["third.toml", "--name", "broker:7188"]);
    assert_eq!(bad.code, Some(2), "{}", bad.stderr);

    // A configuration whose files are gone is not right.
    std::fs::remove_file(folder.path().join("mortarmq-key.pem")).expect("it is there");
    let file = folder.path().join("node.toml");
    let checked = run(&["config", "check", file.to_str().expect("a path of text")]);
    assert_eq!(checked.code, Some(2), "{}", checked.stdout);
    assert!(checked.stderr.contains("mortarmq-key.pem"), "{}", checked.stderr);
}

#[test]
fn a_new_certificate_is_used_by_new_connections_and_open_ones_go_on() {
    let begun = Begun::new();
    let asked = |args: &[&str], ca: &str| begun.ask(args, &[("MORTARMQ_TLS_CA", ca)]);
    let (old_ca, other) = (begun.ca(), tempfile::tempdir().expect("a folder"));
    assert_eq!(asked(&["topics", "create", "orders"], &old_ca).code, Some(0));
    // A consumer that is connected before and gets its message afterwards.
    let mut consumer = mortarmq()
        .args(["sub", "orders", "--group", "g", "--count", "1", "--server", &begun.broker.client_addr])
        .args(["--token", begun.token("admin"), "--tls-ca", &old_ca])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    support::wait_for(std::time::Duration::from_secs(20), || {
        asked(&["groups", "list", "orders"], &old_ca).stdout.contains("g\torders").then_some(())
    });

    // What is wrong leaves the former one in use.
    let certificate = begun.folder.path().join("mortarmq-cert.pem");
    let former = std::fs::read(&certificate).expect("ours");
    std::fs::write(&certificate, "no certificate").expect("ours");
    begun.broker.signal(rustix::process::Signal::HUP);
    let has_logged = |text: &str| {
        let log = || begun.broker.log_since_start().contains(text).then_some(());
        support::wait_for(std::time::Duration::from_secs(20), log);
    };
    has_logged("the former ones stay in use");
    assert_eq!(asked(&["broker", "status"], &old_ca).code, Some(0));
    std::fs::write(&certificate, former).expect("ours");

    assert_eq!(init(other.path(), &[]).code, Some(0));
    for name in ["mortarmq-cert.pem", "mortarmq-key.pem"] {
        std::fs::copy(other.path().join(name), begun.folder.path().join(name)).expect("ours");
    }
    let new_ca = other.path().join("mortarmq-ca.pem").to_str().expect("a path of text").to_owned();
    // Nothing changes before the signal.
    assert_eq!(asked(&["broker", "status"], &old_ca).code, Some(0));
    begun.broker.signal(rustix::process::Signal::HUP);
    has_logged("were read again");
    for args in [&["broker", "status"][..], &["pub", "orders", "hello"]] {
        assert_eq!(asked(args, &new_ca).code, Some(0), "{args:?}");
        assert_eq!(asked(args, &old_ca).code, Some(3), "{args:?}");
    }
    let ended = support::wait_for(std::time::Duration::from_secs(20), || consumer.try_wait().expect("ours"));
    assert_eq!(ended.code(), Some(0));
}
