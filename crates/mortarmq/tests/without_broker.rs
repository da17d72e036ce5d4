//! What needs no broker: arguments, exit codes, errors when nobody answers, and the registry of errors.

mod support;

use support::run;

/// A port that nobody listens on: it was free a moment ago.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it has an address").port()
}

#[test]
fn arguments_that_cannot_be_sent_are_exit_code_2() {
    let cases: &[&[&str]] = &[
        &["no-such-command"],
        &["pub"],
        &["pub", "orders"],
        &["pub", "orders", "value", "--lines"],
        &["pub", "orders", "x", "--header", "novalue"],
        &["pub", "orders", "x", "--size", "99999999"],
        &["sub", "orders"],
        &["sub", "orders", "--group", "g", "--workers", "2"],
        &["pub", "orders", "x", "--server", "http://127.0.0.1:7188"],
        &["topics", "list", "--server", "127.0.0.1:none"],
        &["trace", "orders", "zero", "1"],
        &["trace", "orders", "0", "0"],
        &["balance", "--admin", "https://127.0.0.1:7190"],
        &["balance", "--admin", ""],
        &["topics", "create", "orders", "--set", "novalue"],
        &["explain", "NO_SUCH_CODE"],
        &["completion", "tcsh"],
    ];
    for args in cases {
        let done = run(args);
        assert_eq!((done.code, done.stdout.as_str()), (Some(2), ""), "{args:?}: {}", done.stderr);
        assert!(done.stderr.starts_with("error: "), "{args:?}: {}", done.stderr);
    }
}

#[test]
fn nobody_there_is_exit_code_3_and_says_how_to_start_a_broker() {
    let address = format!("127.0.0.1:{}", free_port());
    let by_wire: &[&[&str]] = &[
        &["pub", "orders", "x", "--server", &address],
        &["sub", "orders", "--group", "g", "--server", &address],
        &["topics", "list", "--server", &address],
    ];
    let by_http: &[&[&str]] = &[
        &["balance", "--admin", &address],
        &["peek", "orders", "--admin", &address],
        &["broker", "status", "--admin", &address],
    ];
    for args in by_wire.iter().chain(by_http) {
        let done = run(args);
        assert_eq!((done.code, done.stdout.as_str()), (Some(3), ""), "{args:?}: {}", done.stderr);
        let lines: Vec<_> = done.stderr.lines().collect();
        assert_eq!(lines.len(), 2, "{args:?}: {}", done.stderr);
        assert!(lines[0].starts_with("error: no "), "{}", done.stderr);
        assert_eq!(lines[0].matches(&address).count(), 1, "{}", done.stderr);
        assert!(lines[1].starts_with("  start") && lines[1].contains("mortarmq serve --dev"), "{}", done.stderr);
    }
}

#[test]
fn explain_finds_a_code_by_name_and_by_number() {
    let expected = "QUORUM_LOST (0x6001)\n  \
        meaning      no majority confirmed the write in time; it may still be stored\n  \
        outcome      unknown: it may have taken effect\n  \
        retry helps  yes\n  \
        connection   stays open\n  \
        what to do   repeat with the same producer number: it is stored at most once\n";
    for code in ["QUORUM_LOST", "quorum_lost", "0x6001", "24577"] {
        let done = run(&["explain", code]);
        assert_eq!((done.code, done.stdout.as_str()), (Some(0), expected));
    }
    let json = run(&["explain", "AUTH_FAILED", "--json"]);
    let object: serde_json::Value = serde_json::from_str(&json.stdout).expect("one JSON object");
    assert_eq!(object["code"], 6);
    assert_eq!(object["outcome"], "refused");
    let done = run(&["explain", "QUORUM_LOTS"]);
    assert_eq!(done.stderr, "error: no error code \"QUORUM_LOTS\"\n  did you mean QUORUM_LOST?\n");
}

#[test]
fn completions_name_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let done = run(&["completion", shell]);
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        for command in ["serve", "topics", "balance", "explain"] {
            assert!(done.stdout.contains(command), "{shell} lacks {command}");
        }
    }
}

#[test]
fn version_names_binary_and_protocol() {
    let done = run(&["version"]);
    assert_eq!(done.code, Some(0));
    assert_eq!(done.stdout, format!("mortarmq {} (wire protocol 1)\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn serve_refuses_settings_that_it_does_not_know_or_have() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let broken = folder.path().join("broken.toml");
    std::fs::write(&broken, "node_id =\n").expect("the folder can be written");
    let broken = broken.to_str().expect("temporary folders have names of text");
    let cases: &[(&[&str], &str)] = &[
        (&["serve", "--listen-client", "0.0.0.0:7188"], "without credentials"),
        (&["serve", "--node-id", "many"], "node_id"),
        (&["serve", "--peers", r#"[{"id":7,"peer":"a:1","client":"a:2"}]"#], "node_id is 0, which is none of them"),
        (&["serve", "--config", "no-such-file.toml"], "no-such-file.toml"),
        (&["serve", "--config", broken], "broken.toml is not a configuration: "),
    ];
    for (args, part) in cases {
        let done = run(args);
        assert_eq!((done.code, done.stdout.as_str()), (Some(2), ""), "{args:?}: {}", done.stderr);
        assert!(done.stderr.starts_with("error: ") && done.stderr.contains(part), "{args:?}: {}", done.stderr);
        assert_eq!(done.stderr.lines().count(), 2, "{args:?}: {}", done.stderr);
    }
}
