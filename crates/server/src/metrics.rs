//! The metrics of the process, in the Prometheus text format 0.0.4.
//!
//! Two kinds. What threads count as they work lives in [`Metrics`] and grows from the start of the process. What the
//! state machine counts is not counted a second time: each scrape copies it from one snapshot, so that the balance holds
//! within the scrape (P9) and nothing falls after a restart (P10).

mod meters;
mod replication;
mod requests;
mod series;
mod snapshot;

#[cfg(test)]
mod tests;

use std::time::Duration;

/// What a scrape tells of the process.
pub use mortarmq_http::{BrokerStatus, PeerStatus, Replication};
use mortarmq_node::ErrorCode;
use mortarmq_node::views::StatsView;
use mortarmq_types::NodeId;
use mortarmq_wire::Op;
use prometheus_client::encoding::prometheus_text;
use prometheus_client::registry::Registry;

use self::meters::Meters;
use self::requests::Requests;
use self::series::Series;

/// What the threads of the process count. Shared by all of them; every method may be called from any.
#[derive(Debug)]
pub struct Metrics {
    meters: Meters,
    requests: Requests,
    /// Holds the meters, for encoding.
    registry: Registry,
}

/// What a scrape tells besides what [`Metrics`] counted: values of this moment.
#[derive(Clone, Copy, Debug)]
pub struct Scrape<'a> {
    /// Counters of the state machine from one snapshot; `None` while the node cannot answer.
    pub stats: Option<&'a StatsView>,
    /// The process.
    pub broker: &'a BrokerStatus,
    /// Bytes of proposals that wait for a commit.
    pub pending_bytes: u64,
    /// Bytes of effects that wait for the segment writer.
    pub unwritten_bytes: u64,
    /// Damaged places that other nodes are asked for.
    pub repairing: u64,
    /// Damaged places that were repaired from another node.
    pub repaired: u64,
    /// Whether the other nodes bring this one up, because its journal or checkpoint has rotted.
    pub is_rejoining: bool,
    /// Other nodes, and how many bytes each was sent.
    pub sent_to_peers: &'a [(NodeId, u64)],
    /// Bytes of all journal files.
    pub journal_bytes: u64,
    /// How old the newest checkpoint is; `None` before the first.
    pub checkpoint_age: Option<Duration>,
    /// Bytes that are held in reserve for a full disk.
    pub reserve_bytes: u64,
    /// Whether publishes are refused for lack of room.
    pub is_disk_low: bool,
    /// Free bytes of the device of the data folder; `None` where it cannot be told.
    pub disk_free_bytes: Option<u64>,
    /// The file system of the data folder; `None` where it cannot be told.
    pub file_system: Option<&'a str>,
    /// Files that the process may open; `None` where there is no limit.
    pub open_files_limit: Option<u64>,
    /// Resident bytes of the process; `None` where it cannot be told.
    pub memory_bytes: Option<u64>,
    /// Whether there is a row per partition. Many partitions make a large scrape.
    pub per_partition: bool,
}

impl Metrics {
    /// Everything at zero.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let meters = Meters::new(&mut registry);
        Self { meters, requests: Requests::new(), registry }
    }

    /// A batch is on disk.
    pub fn count_journal_write(&self, fsync: Duration, batch_bytes: u64, batch_commands: u64) {
        self.meters.fsync_seconds.observe(fsync.as_secs_f64());
        self.meters.batch_bytes.observe(meters::to_float(batch_bytes));
        self.meters.batch_commands.observe(meters::to_float(batch_commands));
    }

    /// A request was answered after its command was committed; `waited` began when the request was read.
    pub fn count_commit(&self, waited: Duration) {
        self.meters.commit_seconds.observe(waited.as_secs_f64());
    }

    /// A message was acked that long after it was published.
    pub fn count_ack(&self, after_publish: Duration) {
        self.meters.e2e_seconds.observe(after_publish.as_secs_f64());
    }

    /// A request was answered; without a code it was answered OK.
    pub fn count_request(&self, op: Op, code: Option<ErrorCode>) {
        self.requests.count(op, code);
    }

    /// A publish was found to be stored already (P3).
    pub fn count_deduplicated(&self) {
        self.meters.deduplicated.inc();
    }

    /// So many publishes came with neither a producer number nor an idempotency key: whoever repeats one may store it twice.
    pub fn count_not_idempotent(&self, publishes: u64) {
        self.meters.not_idempotent.inc_by(publishes);
    }

    /// A client connection was taken.
    pub fn count_connection_opened(&self) {
        self.meters.connections_opened.inc();
    }

    /// A client connection was closed, by either side.
    pub fn count_connection_closed(&self) {
        self.meters.connections_closed.inc();
    }

    /// A client was turned away because there are as many connections as there may be.
    pub fn count_connection_refused(&self) {
        self.meters.connections_refused.inc();
    }

    /// Client connections that are open now.
    #[must_use]
    pub fn connections(&self) -> u64 {
        // Read in this order, a connection that comes and goes meanwhile cannot make the difference negative.
        let closed = self.meters.connections_closed.get();
        self.meters.connections_opened.get().saturating_sub(closed)
    }

    /// Recovery found a torn batch at the end of the journal and cut it (failure rule 3).
    pub fn count_torn_tail(&self) {
        self.meters.torn_tails_cut.inc();
    }

    /// The scrub read so many bytes again.
    pub fn count_scrubbed(&self, bytes: u64) {
        self.meters.scrubbed_bytes.inc_by(bytes);
    }

    /// The scrub read everything, and found so many damages.
    pub fn count_scrub_pass(&self, damaged: u64) {
        self.meters.scrub_passes.inc();
        self.meters.scrub_damaged.set(i64::try_from(damaged).unwrap_or(i64::MAX));
    }

    /// Damages that the last whole pass of the scrub found.
    #[must_use]
    pub fn scrub_damaged(&self) -> u64 {
        u64::try_from(self.meters.scrub_damaged.get()).unwrap_or(0)
    }

    /// The text of one scrape.
    #[must_use]
    pub fn render(&self, scrape: &Scrape<'_>) -> String {
        // A registry of this scrape only: its rows are copies of one snapshot, and topics that are gone leave nothing.
        let mut of_scrape = Registry::default();
        let mut add = |series: Series| of_scrape.register_collector(Box::new(series));
        process_series(scrape).into_iter().for_each(&mut add);
        replication::series(scrape.broker).into_iter().for_each(&mut add);
        add(replication::sent(scrape.sent_to_peers));
        self.requests.series().into_iter().for_each(&mut add);
        if let Some(stats) = scrape.stats {
            snapshot::series(stats, scrape.per_partition).into_iter().for_each(&mut add);
        }
        let mut text = String::new();
        prometheus_text::encode(&mut text, &of_scrape).expect("a String takes whatever is written");
        prometheus_text::encode(&mut text, &self.registry).expect("a String takes whatever is written");
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

fn process_series(scrape: &Scrape<'_>) -> Vec<Series> {
    let gauge = |name, help, value: u64| Series::gauge(name, help).with(&[], value);
    let mut all = vec![
        Series::gauge("mortarmq_build_info", "The version of the binary, as a label")
            .with(&[("version", &scrape.broker.version)], 1),
        gauge("mortarmq_broker_uptime_seconds", "Seconds since the process began to serve", scrape.broker.uptime_s),
        gauge("mortarmq_connections", "Open client connections", scrape.broker.connections),
        gauge("mortarmq_pending_bytes", "Bytes of proposals that wait for a commit", scrape.pending_bytes),
        gauge("mortarmq_unwritten_bytes", "Bytes that wait for the segment writer", scrape.unwritten_bytes),
        gauge("mortarmq_repairing", "Damaged places that other nodes are asked for", scrape.repairing),
        Series::counter("mortarmq_repaired", "Damaged places that were repaired from another node")
            .with(&[], scrape.repaired),
        gauge(
            "mortarmq_rejoining",
            "1 while the other nodes bring this one up, as its journal or checkpoint has rotted",
            u64::from(scrape.is_rejoining),
        ),
        gauge("mortarmq_journal_bytes", "Bytes of all journal files", scrape.journal_bytes),
        gauge("mortarmq_disk_reserve_bytes", "Bytes held in reserve for a full disk", scrape.reserve_bytes),
        gauge("mortarmq_disk_low", "1 while publishes are refused for lack of room", u64::from(scrape.is_disk_low)),
    ];
    let help = "Seconds since the newest checkpoint was written";
    all.extend(scrape.checkpoint_age.map(|age| gauge("mortarmq_checkpoint_age_seconds", help, age.as_secs())));
    let help = "Free bytes of the device of the data folder";
    all.extend(scrape.disk_free_bytes.map(|bytes| gauge("mortarmq_disk_free_bytes", help, bytes)));
    let help = "The file system of the data folder, as a label";
    all.extend(
        scrape.file_system.map(|name| Series::gauge("mortarmq_data_file_system_info", help).with(&[("type", name)], 1)),
    );
    let help = "Files that the process may open";
    all.extend(scrape.open_files_limit.map(|limit| gauge("mortarmq_open_files_limit", help, limit)));
    let help = "Resident bytes of the process";
    all.extend(scrape.memory_bytes.map(|bytes| gauge("mortarmq_memory_bytes", help, bytes)));
    all
}
