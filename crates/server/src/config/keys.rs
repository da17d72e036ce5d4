//! The keys: one row each, with what they take, their default, and whether this version has what they are about.

use super::value::Value;

/// One key of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The key in the file; in the environment it stands in capitals behind `MORTARMQ_`, as a flag with dashes.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// Its default, as it would be written.
    pub default: &'static str,
    /// Whether it can be set.
    pub status: Status,
}

/// What a key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number from the first to the second, both included.
    Number(u64, u64),
    /// Bytes, plain or as `64MiB`, from the first to the second, both included.
    Bytes(u64, u64),
    /// An IP address and a port; `localhost` is 127.0.0.1.
    Address,
    /// As `Address`, or `off`.
    AddressOrOff,
    /// A list of origins of pages, and of the word `loopback`.
    Origins,
    /// A folder.
    Path,
    /// A file, or `none`.
    File,
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Tokens, as `hash-token` prints them.
    Tokens,
    /// Users, as `hash-password` prints them.
    Users,
    /// The nodes of a cluster.
    Peers,
    /// A secret, or `none`.
    Secret,
}

/// Whether a key can be set.
#[derive(Clone, Copy, Debug)]
pub enum Status {
    /// It does what it says.
    Ready,
    /// What it is about is not in this version; the text says what that is.
    NotYet(&'static str),
}

const TLS_CA: &str = "this version asks no client for a certificate";
const QUEUE_API: &str = "this version has no HTTP queue API yet; the operator routes are on listen_admin";

/// Every key of a node, in the order in which they are shown.
pub const KEYS: &[Key] = &[
    ready("node_id", Kind::Number(0, 65_535), "0"),
    // With them, peer_secret: see peers.rs.
    ready("peers", Kind::Peers, "[]"),
    // Without credentials on this machine only: see addresses.rs.
    ready("listen_client", Kind::Address, "0.0.0.0:7188"),
    ready("listen_peer", Kind::Address, "0.0.0.0:7189"),
    ready("listen_admin", Kind::Address, "127.0.0.1:7190"),
    not_yet("listen_http", QUEUE_API),
    ready("listen_ws", Kind::AddressOrOff, "off"),
    ready("ws_origins", Kind::Origins, "[\"loopback\"]"),
    ready("data_dir", Kind::Path, "./data"),
    ready("journal_file_bytes", Kind::Bytes(1 << 20, 1 << 34), "64MiB"),
    ready("journal_keep_bytes", Kind::Bytes(0, 1 << 40), "0"),
    ready("snapshot_journal_bytes", Kind::Bytes(1 << 20, 1 << 40), "512MiB"),
    ready("disk_reserve_bytes", Kind::Bytes(0, 1 << 40), "256MiB"),
    ready("scrub_bytes_per_s", Kind::Bytes(0, 1 << 40), "8MiB"),
    ready("poll_max_wait_ms", Kind::Number(0, 65_535), "5000"),
    ready("publish_timeout_ms", Kind::Number(100, 600_000), "5000"),
    ready("max_pending_bytes", Kind::Bytes(1 << 20, 1 << 34), "64MiB"),
    ready("max_connections", Kind::Number(1, 1_000_000), "4096"),
    // One frame of the largest size must fit, else it could never be received.
    ready("receive_budget_bytes", Kind::Bytes(32 << 20, 1 << 38), "256MiB"),
    // Both or neither: see tls.rs.
    ready("tls_cert", Kind::File, "none"),
    ready("tls_key", Kind::File, "none"),
    not_yet("tls_ca", TLS_CA),
    ready("peer_secret", Kind::Secret, "none"),
    // All three or none: see tls.rs.
    ready("peer_tls_cert", Kind::File, "none"),
    ready("peer_tls_key", Kind::File, "none"),
    ready("peer_tls_ca", Kind::File, "none"),
    ready("tokens", Kind::Tokens, "[]"),
    ready("users", Kind::Users, "[]"),
    ready("metrics_enabled", Kind::Flag, "true"),
    ready("metrics_per_partition", Kind::Flag, "true"),
    ready("log_level", Kind::Word(&["error", "warn", "info", "debug", "trace"]), "info"),
    ready("log_format", Kind::Word(&["text", "json"]), "text"),
    // Initial values of the cluster: only the first start of one reads them. A test holds them to the catalog's own table;
    // those that are settings of topics and groups can stand in the file and the environment too.
    ready("partition_default_count", Kind::Number(1, 1024), "4"),
    ready("segment_max_bytes", Kind::Bytes(1 << 20, 1 << 30), "64MiB"),
    ready("producer_window", Kind::Number(64, 65_536), "1024"),
    ready("producer_idle_ms", Kind::Number(600_000, 3_153_600_000_000), "86400000"),
    ready("idempotency_window_ms", Kind::Number(60_000, 86_400_000), "300000"),
    ready("max_delayed_per_partition", Kind::Number(1, 100_000_000), "1000000"),
    ready("state_entries_max", Kind::Number(1000, 1_000_000_000), "8000000"),
];

const fn ready(name: &'static str, kind: Kind, default: &'static str) -> Key {
    Key { name, kind, default, status: Status::Ready }
}

const fn not_yet(name: &'static str, reason: &'static str) -> Key {
    Key { name, kind: Kind::Flag, default: "", status: Status::NotYet(reason) }
}

/// The default of a key that can be set.
pub(super) fn default_of(name: &'static str) -> Value {
    let key = KEYS.iter().find(|key| key.name == name).expect("the caller names a key of the table");
    Value::from_text(key.kind, key.default).expect("a test parses every default")
}

/// The valid key that is most like `name`, if one is like it at all.
pub(super) fn nearest(name: &str) -> Option<&'static str> {
    let likeness = |key: &Key| strsim::jaro_winkler(key.name, name);
    let settable = KEYS.iter().filter(|key| matches!(key.status, Status::Ready));
    let best = settable.max_by(|left, right| likeness(left).total_cmp(&likeness(right)))?;
    (likeness(best) >= NEAR_ENOUGH).then_some(best.name)
}

/// Below this, a suggestion confuses more than it helps.
const NEAR_ENOUGH: f64 = 0.8;

#[cfg(test)]
mod tests {
    use super::{KEYS, Kind, Status, default_of, nearest};
    use mortarmq_shard::settings::{Range, Setting};
    use mortarmq_shard::{DefaultKey, Defaults};

    #[test]
    fn every_default_is_a_value_of_its_key() {
        for key in KEYS.iter().filter(|key| matches!(key.status, Status::Ready)) {
            assert!(!default_of(key.name).to_string().is_empty(), "{}", key.name);
        }
    }

    #[test]
    fn initial_values_of_the_cluster_have_the_ranges_and_defaults_of_the_catalog() {
        let found = |key: DefaultKey| KEYS.iter().find(|row| row.name == key.key());
        for key in DefaultKey::OF_THE_SHARD.into_iter().chain([DefaultKey::Setting(Setting::Partitions)]) {
            let row = found(key).unwrap_or_else(|| panic!("{} can be set", key.key()));
            let (Kind::Number(least, most) | Kind::Bytes(least, most)) = row.kind else { panic!("{row:?}") };
            assert_eq!(key.range(), Range::Between(least, most), "{}", row.name);
            assert_eq!(default_of(row.name).number(), Defaults::BUILD.get(key), "{}", row.name);
        }
    }

    #[test]
    fn no_key_stands_twice() {
        let mut names: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KEYS.len());
    }

    #[test]
    fn a_mistyped_key_is_found_and_a_strange_one_is_not() {
        assert_eq!(nearest("data_dri"), Some("data_dir"));
        assert_eq!(nearest("listen_clients"), Some("listen_client"));
        assert_eq!(nearest("qqq"), None);
    }
}
