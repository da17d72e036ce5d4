//! docs/reference/configuration.md: every key of a node.

use mortarmq_server::config::{KEYS, Kind, Status};
use std::fmt::Write as _;

const HEAD: &str = "# Configuration of a node

One file, JSON or TOML, given by `mortarmq serve --config FILE`; then the environment; then flags. Later wins. A key `data_dir` is
`MORTARMQ_DATA_DIR` in the environment and `--data-dir` as a flag. Sizes are bytes, or `64MiB`. A key that is not known stops the start and
names the nearest that is. `mortarmq config show` prints what is in force and where each value came from; `mortarmq config check
FILE` looks at a file without starting a node; `mortarmq init` writes one with credentials and TLS.

This page is printed from the code, and a test holds it to it. The finer points are in
[operations](operations.md#node-configuration).

| key | default | takes | meaning |
|---|---|---|---|
";

const NOT_YET: &str = "
## Known, and refused by name

This version knows these keys and has not what they are about. Setting one stops the start.

| key | why |
|---|---|
";

const TAIL: &str = "
## Initial values of a cluster

Every key of [settings](settings.md) can stand in the file and in the environment too. Those, and the keys above that say \"initial value\",
count for the first start of a data folder only. Afterwards they are changed by `mortarmq defaults set`.
";

fn meaning(key: &str) -> &'static str {
    match key {
        "node_id" => "The node's number. A data folder belongs to one",
        "peers" => {
            "All nodes of the cluster, the same on every node: `id`, `peer`, `client`, `http` of each; none: a single node"
        }
        "listen_peer" => "Links of the other nodes; only with peers",
        "peer_secret" => "What the nodes show each other; only with peers, and then the same on every node",
        "peer_tls_cert" => {
            "Certificate chain, PEM, for the other nodes: it names the host of this node's address in peers. With it links are encrypted, and none is made without; read again at SIGHUP"
        }
        "peer_tls_key" => "Its private key, PEM",
        "peer_tls_ca" => "The CA of all nodes, PEM: whom this node takes for one of them",
        "listen_client" => "The wire protocol. Without credentials, and not set: 127.0.0.1:7188",
        "listen_ws" => "The wire protocol over WebSocket",
        "ws_origins" => "Pages whose scripts may use it, as browsers name them; an empty list: none",
        "listen_admin" => "Metrics, health, and the operator routes behind most commands",
        "data_dir" => "Everything is kept here",
        "journal_file_bytes" => "Size at which a new journal file is begun",
        "journal_keep_bytes" => "Journal kept behind a checkpoint; with peers 0 means 1 GiB",
        "snapshot_journal_bytes" => "A checkpoint is taken after so much journal at the latest",
        "disk_reserve_bytes" => "Room held for a full disk, so that acks go on; 0 for none",
        "scrub_bytes_per_s" => "How fast everything is read again to find damage; 0 turns it off",
        "poll_max_wait_ms" => "The longest that a pull waits",
        "publish_timeout_ms" => "A publish that waits longer is answered QUORUM_LOST, outcome unknown",
        "max_pending_bytes" => "Requests that wait for their batch; beyond, BACKPRESSURE",
        "max_connections" => "Most connections of each listener",
        "receive_budget_bytes" => "What all large frames that are being received may take together",
        "tls_cert" => {
            "Certificate chain, PEM, the node's own first. With it every listener speaks TLS; read again at SIGHUP"
        }
        "tls_key" => "Its private key, PEM",
        "tokens" => "Who may do what with a token; lines of `mortarmq hash-token`",
        "users" => "Who may do what with a password, over HTTP; lines of `mortarmq hash-password`",
        "metrics_enabled" => "Whether /metrics is served",
        "metrics_per_partition" => "Whether it has a row per partition",
        "log_level" => "The least severe lines that are written to stderr",
        "log_format" => "`json`: every line one object with time, level, target, message, fields",
        "partition_default_count" => "Partitions of a topic that asks for no number (initial value)",
        "segment_max_bytes" => "Size at which a new segment file is begun (initial value)",
        "producer_window" => "Numbers of a producer that are remembered (initial value)",
        "producer_idle_ms" => "How long a silent producer is remembered (initial value)",
        "idempotency_window_ms" => "How long an idempotency key is remembered (initial value)",
        "max_delayed_per_partition" => "Delayed messages of a partition; beyond, BACKPRESSURE (initial value)",
        "state_entries_max" => "Entries of the state; beyond, new ones are refused (initial value)",
        _ => panic!("{key} is explained nowhere: say here what it is"),
    }
}

fn takes(kind: Kind) -> String {
    match kind {
        Kind::Number(low, high) => format!("number, {low} to {high}"),
        Kind::Bytes(low, high) => format!("bytes, {low} to {high}"),
        Kind::Address => "address and port".to_owned(),
        Kind::AddressOrOff => "address and port, or `off`".to_owned(),
        Kind::Path => "folder".to_owned(),
        Kind::File => "file, or `none`".to_owned(),
        Kind::Flag => "`true` or `false`".to_owned(),
        Kind::Word(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        Kind::Tokens | Kind::Users | Kind::Origins | Kind::Peers => "list".to_owned(),
        Kind::Secret => "secret, or `none`".to_owned(),
    }
}

#[test]
fn every_key_is_on_the_page_and_nothing_else() {
    let mut page = HEAD.to_owned();
    for key in KEYS.iter().filter(|key| matches!(key.status, Status::Ready)) {
        let (name, default) = (key.name, key.default);
        let _ = writeln!(page, "| `{name}` | `{default}` | {} | {} |", takes(key.kind), super::cell(meaning(name)));
    }
    page += NOT_YET;
    for key in KEYS {
        if let Status::NotYet(reason) = key.status {
            let _ = writeln!(page, "| `{}` | {} |", key.name, super::cell(reason));
        }
    }
    page += TAIL;
    super::holds("docs/reference/configuration.md", &page);
}
