use std::path::PathBuf;

use mortarmq_shard::DefaultKey;

use super::{Config, ConfigError, KEYS, Source, Status};

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn with_flags(flags: &[(&str, &str)]) -> Result<Config, ConfigError> {
    Config::load(None, [], pairs(flags)).map(|(config, _)| config)
}

fn file(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join(name);
    std::fs::write(&path, text).expect("a file in it");
    (folder, path)
}

#[test]
fn without_anything_the_defaults_hold_and_listen_on_this_machine() {
    let (config, origins) = Config::load(None, [], []).expect("the defaults");
    assert_eq!(config.listen_client, "127.0.0.1:7188".parse().unwrap());
    assert_eq!(config.listen_admin, "127.0.0.1:7190".parse().unwrap());
    assert_eq!((config.max_connections, config.receive_budget_bytes), (4096, 256 << 20));
    assert_eq!(origins.len(), KEYS.iter().filter(|key| matches!(key.status, Status::Ready)).count());
    assert!(origins.iter().all(|origin| origin.source == Source::Default));
}

#[test]
fn flags_win_over_environment_and_environment_over_file() {
    let (_folder, path) = file(
        "node.toml",
        "node_id = 1\npoll_max_wait_ms = 1\nmax_pending_bytes = \"2MiB\"\nlog_level = \"warn\"\nmetrics_enabled = false\n",
    );
    let environment = pairs(&[
        ("MORTARMQ_NODE_ID", "2"),
        ("MORTARMQ_POLL_MAX_WAIT_MS", "2"),
        ("MORTARMQ_SERVER", "127.0.0.1:1"),
        ("PATH", "/bin"),
    ]);
    let flags = pairs(&[("--node-id", "3")]);
    let (config, origins) = Config::load(Some(&path), environment, flags).expect("all of it is good");
    assert_eq!((config.node_id.get(), config.poll_max_wait_ms, config.max_pending_bytes), (3, 2, 2 << 20));
    assert_eq!((config.log_level, config.metrics_enabled), ("warn", false));
    let source = |key| origins.iter().find(|origin| origin.key == key).map(|origin| origin.source.clone());
    assert_eq!(source("node_id"), Some(Source::Flag("--node-id".to_owned())));
    assert_eq!(source("poll_max_wait_ms"), Some(Source::Environment("MORTARMQ_POLL_MAX_WAIT_MS".to_owned())));
    assert_eq!(source("log_level"), Some(Source::File(path)));
}

#[test]
fn json_and_toml_say_the_same() {
    let (_folder, json) = file("node.json", r#"{"data_dir":"/x","journal_file_bytes":2097152}"#);
    let (_other, toml) = file("node.toml", "data_dir = \"/x\"\njournal_file_bytes = \"2MiB\"\n");
    let (from_json, _) = Config::load(Some(&json), [], []).expect("JSON");
    let (from_toml, _) = Config::load(Some(&toml), [], []).expect("TOML");
    assert_eq!(from_json, from_toml);
    assert_eq!((from_json.data_dir, from_json.journal_file_bytes), (PathBuf::from("/x"), 2 << 20));
}

#[test]
fn a_file_of_another_kind_or_with_a_fault_is_refused_by_name() {
    for (name, text) in [("node.yaml", "a: 1"), ("node.json", "{"), ("node.toml", "= 1"), ("node.json", "[]")] {
        let (_folder, path) = file(name, text);
        let error = Config::load(Some(&path), [], []).expect_err(name);
        assert!(matches!(error, ConfigError::Syntax { .. }), "{name}: {error}");
        assert!(error.to_string().contains(name), "{error}");
    }
    assert!(matches!(Config::load(Some(&PathBuf::from("/no/such.json")), [], []), Err(ConfigError::Read { .. })));
}

#[test]
fn an_unknown_key_stops_the_start_with_the_nearest_valid_name() {
    let error = with_flags(&[("data-dri", "/x")]).expect_err("mistyped");
    assert_eq!(error.to_string(), "unknown key \"data_dri\" in the flags (--data-dri) (did you mean \"data_dir\"?)");
    let environment = pairs(&[("MORTARMQ_LISTEN_CLIEMT", "127.0.0.1:1")]);
    let error = Config::load(None, environment, []).expect_err("mistyped");
    assert!(error.to_string().contains("(MORTARMQ_LISTEN_CLIEMT) (did you mean \"listen_client\"?)"), "{error}");
}

#[test]
fn what_is_not_there_yet_is_refused_by_name_when_it_is_set() {
    for key in ["listen_http", "tls_ca"] {
        let error = with_flags(&[(key, "[]")]).expect_err(key);
        assert!(matches!(error, ConfigError::NotYet { .. }), "{error}");
        assert!(error.to_string().starts_with(key), "{error}");
    }
}

#[test]
fn a_cluster_is_read_from_a_file_and_its_secret_is_never_shown() {
    let peers = r#"[{"id":1,"peer":"a:7189","client":"a:7188"},{"id":2,"peer":"b:7189","client":"b:7188"}]"#;
    let text = format!(r#"{{"node_id":2,"peers":{peers},"peer_secret":"a secret of the cluster"}}"#);
    let (_folder, path) = file("node.json", &text);
    let (config, origins) = Config::load(Some(&path), [], []).expect("sound");
    let cluster = config.cluster.expect("of two nodes");
    assert_eq!((cluster.nodes().len(), cluster.listen_peer.port()), (2, 7189));
    let shown = |key: &str| origins.iter().find(|origin| origin.key == key).expect("shown").value.clone();
    assert_eq!((shown("peers").as_str(), shown("peer_secret").as_str()), ("[1 at a:7189, 2 at b:7189]", "[...]"));
    let error = with_flags(&[("peer-secret", "a short one")]).expect_err("guessed").to_string();
    assert!(error.starts_with("peer_secret = [...] in ") && error.contains("at least 16"), "{error}");
}

#[test]
fn an_address_that_others_can_reach_is_refused_without_credentials() {
    for address in ["0.0.0.0:7188", "192.168.1.1:7188", "[::]:7188"] {
        let error = with_flags(&[("listen-client", address)]).expect_err(address);
        assert!(matches!(error, ConfigError::NotLoopback { key: "listen_client", .. }), "{error}");
        assert!(error.to_string().contains("7188 without credentials"), "{error}");
    }
    for address in ["127.0.0.1:0", "127.8.8.8:1", "[::1]:7188", "localhost:7188", "[::ffff:127.0.0.1]:7188"] {
        with_flags(&[("listen-client", address)]).expect(address);
    }
    assert!(with_flags(&[("listen-admin", "0.0.0.0:7190")]).is_err());
    assert!(with_flags(&[("listen-ws", "0.0.0.0:7192")]).is_err());
}

const TOKENS: &str = r#"[{"name": "ops",
    "sha256": "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b", "grants": [{"action": "admin"}]}]"#;

#[test]
fn with_credentials_a_node_may_be_reached_and_without_it_is_on_this_machine_by_itself() {
    let (config, origins) = Config::load(None, [], pairs(&[("tokens", TOKENS)])).expect("right");
    assert_eq!((config.listen_client.to_string().as_str(), config.tokens.len()), ("0.0.0.0:7188", 1));
    assert_eq!(config.listen_admin.to_string(), "127.0.0.1:7190");
    let shown: Vec<&str> = origins.iter().filter(|at| at.key == "tokens").map(|at| at.value.as_str()).collect();
    assert_eq!(shown, ["[ops]"], "names, no digests");
    with_flags(&[("tokens", TOKENS), ("listen-client", "0.0.0.0:1"), ("listen-admin", "0.0.0.0:2")]).expect("right");
    let config = with_flags(&[]).expect("right");
    assert_eq!(config.listen_client.to_string(), "127.0.0.1:7188");
}

#[test]
fn tokens_that_are_wrong_are_refused_without_a_digest_in_the_text() {
    let (_folder, path) = file("node.json", &format!("{{\"tokens\": {}}}", TOKENS.replace("admin", "fly")));
    for error in [
        Config::load(Some(&path), [], []).expect_err("no such action"),
        with_flags(&[("tokens", &TOKENS.replace("25b", "25"))]).expect_err("a digit is missing"),
        with_flags(&[("tokens", "ops")]).expect_err("no JSON"),
    ] {
        let text = error.to_string();
        assert!(text.starts_with("tokens = [...] in ") && !text.contains("2bb80d"), "{text}");
    }
}

#[test]
fn a_certificate_comes_with_its_key_or_not_at_all() {
    for (set, missing) in [("tls-cert", "tls_key"), ("tls-key", "tls_cert")] {
        let error = with_flags(&[(set, "/x.pem")]).expect_err("one of two");
        assert!(matches!(error, ConfigError::HalfTls { .. }) && error.to_string().contains(missing), "{error}");
        with_flags(&[(set, "none")]).expect("as if it was not given");
    }
    let (_folder, path) = file("node.toml", "tls_cert = \"/c.pem\"\ntls_key = \"/k.pem\"\n");
    let (config, _) = Config::load(Some(&path), pairs(&[("MORTARMQ_TLS_CA", "/ca.pem")]), []).expect("both");
    let files = config.tls.expect("both are set");
    assert_eq!((files.certificate, files.key), (PathBuf::from("/c.pem"), PathBuf::from("/k.pem")));
    let (config, _) = Config::load(Some(&path), [], pairs(&[("tls-cert", "none"), ("tls-key", "none")])).expect("off");
    assert_eq!(config.tls, None);
}

#[test]
fn the_files_of_tls_between_nodes_are_all_there_or_none_is() {
    let peers = r#"[{"id":0,"peer":"a:1","client":"a:2"},{"id":1,"peer":"b:1","client":"b:2"}]"#;
    let mut given = vec![("peers", peers), ("peer-secret", "sixteen letters!")];
    let files = |given: &[(&str, &str)]| with_flags(given).map(|config| config.cluster.expect("two nodes").tls);
    assert_eq!(files(&given).expect("none of them"), None);
    for (set, missing) in [("peer-tls-cert", "peer_tls_key"), ("peer-tls-ca", "peer_tls_key")] {
        given.push((set, "/some.pem"));
        let error = files(&given).expect_err("not all of them").to_string();
        assert!(error.contains(&format!("{missing} is not")), "{error}");
    }
    given.push(("peer-tls-key", "/key.pem"));
    let all = files(&given).expect("all of them").expect("all of them");
    assert_eq!((all.key, all.ca), (PathBuf::from("/key.pem"), PathBuf::from("/some.pem")));
    given.extend([("peer-tls-cert", "none"), ("peer-tls-key", "none"), ("peer-tls-ca", "none")]);
    assert_eq!(files(&given).expect("taken back"), None);
}

#[test]
fn a_value_that_the_key_does_not_take_is_refused_with_what_it_takes() {
    let cases = [
        ("node-id", "65536", "from 0 to 65535"),
        ("max-pending-bytes", "64MB", "64MiB"),
        ("log-level", "loud", "error, warn, info, debug, trace"),
        ("metrics-enabled", "yes", "true or false"),
        ("listen-client", "broker:7188", "IP address"),
        ("receive-budget-bytes", "1MiB", "from 33554432"),
        ("data-dir", "", "folder"),
        ("listen-ws", "on", "or off"),
        ("ws-origins", "[\"shop.example\"]", "https://shop.example"),
    ];
    for (key, value, expected) in cases {
        let error = with_flags(&[(key, value)]).expect_err(key);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn initial_values_of_the_cluster_can_be_set_and_which_were_is_known() {
    let (_folder, path) = file("node.toml", "lease_ms = 5000\norder = \"none\"\nstate_entries_max = 5000\n");
    let environment = pairs(&[("MORTARMQ_LEASE_MS", "6000"), ("MORTARMQ_PARTITION_DEFAULT_COUNT", "2")]);
    let flags = pairs(&[("--segment-max-bytes", "1MiB")]);
    let (config, _) = Config::load(Some(&path), environment, flags).expect("all of it is good");
    let get = |name: &str| config.initial.get(DefaultKey::named(name).expect(name));
    let names = ["lease_ms", "order", "state_entries_max", "partition_default_count", "segment_max_bytes"];
    assert_eq!(names.map(get), [6000, 0, 5000, 2, 1 << 20]);
    let mut set: Vec<_> = config.initial_set.iter().map(|key| key.key()).collect();
    set.sort_unstable();
    assert_eq!(set, ["lease_ms", "order", "partition_default_count", "segment_max_bytes", "state_entries_max"]);
    assert_eq!(with_flags(&[]).expect("nothing").initial_set, []);
    let (_folder, path) = file("node.toml", "lease_ms = 5\n");
    let error = Config::load(Some(&path), [], []).expect_err("too short").to_string();
    assert!(error.contains("lease_ms = 5") && error.contains("from 1000 to 43200000"), "{error}");
}
