//! `broker status` and `broker ready`: which node answers, how it stands in its cluster, and whether it serves.

use serde::Deserialize;

use crate::admin::{Admin, AdminArgs, Route};
use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows, note};

/// Ask a node about itself
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show node, uptime, connections, version, role and quorum; and on stderr how the other nodes stand
    Status(AskArgs),
    /// Show in which role the node serves, and on stderr what is worse than it should be; asks for no token. Exit code 4 when it
    /// does not serve, with the reason
    Ready(AskArgs),
}

/// Arguments of both.
#[derive(Debug, clap::Args)]
pub(crate) struct AskArgs {
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    rows: RowArgs,
}

/// A node, as it tells of itself. One of another version may not tell everything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Broker {
    /// The node.
    pub(crate) node_id: u16,
    uptime_s: u64,
    connections: u64,
    /// The version of its binary.
    pub(crate) version: String,
    quorum_state: u8,
    role: String,
    leader_id: Option<u16>,
    /// The other nodes of its cluster.
    pub(crate) peers: Vec<Peer>,
}

/// Another node, as the one that was asked knows it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Peer {
    /// The node.
    pub(crate) id: u16,
    /// The link to it.
    pub(crate) link: Option<Link>,
    /// How it follows, if the one that was asked leads.
    pub(crate) replication: Option<Replication>,
}

/// The link to a node, and what that says of itself.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Link {
    /// Where it is dialled.
    pub(crate) address: String,
    /// Whether it is connected.
    pub(crate) up: bool,
    /// Why not.
    pub(crate) error: Option<String>,
    /// The version of its binary.
    pub(crate) version: Option<String>,
    /// How far its wall clock is ahead.
    pub(crate) clock_ahead_ms: Option<i64>,
    /// Whether it lists the same nodes.
    pub(crate) same_peers: Option<bool>,
    /// Whether its data lies on the same device.
    pub(crate) same_device: Option<bool>,
}

/// How a node follows.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Replication {
    /// `current`, `lagging`, `catching_up` or `silent`.
    pub(crate) state: String,
    /// Entries that it has not acknowledged.
    pub(crate) lag_entries: u64,
    lag_bytes: Option<u64>,
    silent_ms: Option<u64>,
}

impl Broker {
    /// Asks a node.
    pub(crate) fn ask(admin: &Admin) -> Result<Self, Failure> {
        admin.get(Route { path: &["v1", "broker"], query: &[] })
    }
}

impl Peer {
    /// How it stands, in words.
    pub(crate) fn told(&self) -> String {
        let Some(follower) = &self.replication else { return format!("node {}", self.id) };
        let lag = match follower.lag_bytes {
            Some(bytes) => format!("{} entries ({} KiB) behind", follower.lag_entries, bytes.div_ceil(1024)),
            None => "behind by more than is in memory".to_owned(),
        };
        let heard = follower.silent_ms.map_or_else(|| "never heard".to_owned(), |ms| format!("heard {ms} ms ago"));
        format!("node {} follows: {}, {lag}, {heard}", self.id, follower.state)
    }
}

/// Carries out the subcommand.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Status(args) => status(args),
        Command::Ready(args) => ready(args),
    }
}

/// A node that serves.
#[derive(Debug, Deserialize)]
struct Ready {
    role: String,
    #[serde(default)]
    degraded: Vec<String>,
}

fn ready(args: &AskArgs) -> Result<(), Failure> {
    let ready: Ready = Admin::new(&args.admin)?.get(Route { path: &["readyz"], query: &[] })?;
    let mut rows = Rows::listed(&["role"], args.rows);
    rows.push(vec![Cell::Text(ready.role)])?;
    rows.finish()?;
    ready.degraded.iter().for_each(note);
    Ok(())
}

fn status(args: &AskArgs) -> Result<(), Failure> {
    let broker = Broker::ask(&Admin::new(&args.admin)?)?;
    let mut rows = Rows::listed(COLUMNS, args.rows);
    rows.push(vec![
        Cell::Number(u64::from(broker.node_id)),
        Cell::Number(broker.uptime_s),
        Cell::Number(broker.connections),
        Cell::Text(broker.version),
        Cell::Text(broker.role),
        Cell::number(broker.leader_id.map(u64::from)),
        Cell::Number(u64::from(broker.quorum_state)),
    ])?;
    rows.finish()?;
    for peer in broker.peers.iter().filter(|peer| peer.replication.is_some()) {
        note(peer.told());
    }
    Ok(())
}

const COLUMNS: &[&str] = &["node_id", "uptime_s", "connections", "version", "role", "leader_id", "quorum_state"];
