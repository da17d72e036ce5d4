//! What is measured: a broker of one node or three, and what stands beside it, each in processes of its own.

use std::path::Path;
use std::time::{Duration, Instant};

use mortarmq_client::{Client, TopicOptions};

use crate::admin::{Admin, AdminArgs, Route};
use crate::bench::Usage;
use crate::child_cluster::ChildCluster;
use crate::child_node::ChildNode;
use crate::errors::Failure;
use crate::session::{self, ServerArgs};

/// Which of those that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    /// The broker.
    Broker,
    /// A server that answers at once.
    Echo,
    /// A server that answers after write and fdatasync, and does nothing else; beside three nodes three of them, of which one more
    /// has written and synced before the first one answers.
    Commit,
    /// Beside three nodes: the broker of one.
    Single,
}

/// What is measured. Its processes end with it.
pub(super) struct Target {
    pub(super) side: Side,
    place: Place,
}

enum Place {
    /// It runs already.
    Elsewhere(ServerArgs),
    /// Servers of our own; clients come to the first.
    Servers(Vec<ChildNode>),
    /// Nodes of our own; clients come to the one that leads.
    Cluster(ChildCluster),
}

/// Who leads a cluster, and in which epoch.
pub(super) type Office = (usize, u64);

impl Target {
    /// A broker that runs already.
    pub(super) const fn running(server: ServerArgs) -> Self {
        Self { side: Side::Broker, place: Place::Elsewhere(server) }
    }

    /// One of our own beside a broker of so many nodes, or that broker, in a folder below this one.
    pub(super) fn start(side: Side, folder: &Path, nodes: u16) -> Result<Self, Failure> {
        let floor = |kind: &str, name: &str, followers: &[ChildNode]| {
            ChildNode::start_floor(kind, &folder.join(name), followers)
        };
        let place = match side {
            Side::Broker if nodes > 1 => Place::Cluster(ChildCluster::start(folder)?),
            Side::Broker => Place::Servers(vec![ChildNode::start(&folder.join("data"))?]),
            Side::Single => Place::Servers(vec![ChildNode::start(&folder.join("single"))?]),
            Side::Echo => Place::Servers(vec![floor("echo", "echo", &[])?]),
            Side::Commit => {
                let followers = (1..nodes).map(|number| floor("follow", &format!("commit-{number}"), &[]));
                let mut servers = followers.collect::<Result<Vec<_>, _>>()?;
                servers.insert(0, floor("commit", "commit", &servers)?);
                Place::Servers(servers)
            }
        };
        Ok(Self { side, place })
    }

    /// What its processes have used, all together, where they are ours.
    pub(super) fn usage(&self) -> Option<Usage> {
        self.processes().iter().map(|process| Usage::of(process.pid())).reduce(|sum, next| Some(sum? + next?))?
    }

    /// Lets the peaks of its processes begin anew.
    pub(super) fn forget_peak(&self) {
        self.processes().iter().for_each(|process| Usage::forget_peak(process.pid()));
    }

    /// Where its nodes tell what they sent to each other; nowhere where there is one alone.
    pub(super) fn tellers(&self) -> Vec<AdminArgs> {
        match &self.place {
            Place::Cluster(cluster) => cluster.nodes.iter().map(ChildNode::admin_args).collect(),
            Place::Servers(_) | Place::Elsewhere(_) => Vec::new(),
        }
    }

    /// Who leads, once somebody does; nothing where that is not ours to know.
    pub(super) async fn office(&self) -> Result<Option<Office>, Failure> {
        let Place::Cluster(cluster) = &self.place else { return Ok(None) };
        let begun = Instant::now();
        loop {
            if let Some(office) = cluster.leader() {
                return Ok(Some(office));
            }
            if begun.elapsed() > ELECTION_LIMIT {
                let seconds = ELECTION_LIMIT.as_secs();
                return Err(Failure::unreachable(
                    format!("no node leads for {seconds} s"),
                    "look at what else the machine does",
                ));
            }
            tokio::time::sleep(LOOK_PERIOD).await;
        }
    }

    /// A connection: to the node that leads, if there are several.
    pub(super) async fn connect(&self) -> Result<Client, Failure> {
        self.server().await?.connect().await
    }

    /// Several connections.
    pub(super) async fn connect_all(&self, count: u16) -> Result<Vec<Client>, Failure> {
        let server = self.server().await?;
        let mut clients = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            clients.push(server.connect().await?);
        }
        Ok(clients)
    }

    /// Makes a topic.
    pub(super) async fn make_topic(&self, topic: &str) -> Result<Client, Failure> {
        let client = self.connect().await?;
        client
            .declare_topic(topic, TopicOptions::partitions(PARTITIONS))
            .await
            .map_err(|error| session::failure(&error))?;
        Ok(client)
    }

    async fn server(&self) -> Result<ServerArgs, Failure> {
        Ok(match &self.place {
            Place::Elsewhere(server) => server.clone(),
            Place::Servers(servers) => ServerArgs::at(&servers[0].client),
            Place::Cluster(cluster) => {
                let (leader, _) = self.office().await?.expect("a cluster is ours to know");
                ServerArgs::at(&cluster.nodes[leader].client)
            }
        })
    }

    fn processes(&self) -> &[ChildNode] {
        match &self.place {
            Place::Elsewhere(_) => &[],
            Place::Servers(servers) => servers,
            Place::Cluster(cluster) => &cluster.nodes,
        }
    }
}

/// What these nodes have sent to each other since they started, all together. It blocks.
///
/// # Units
/// Bytes.
pub(super) fn sent_bytes(tellers: &[AdminArgs]) -> Option<u64> {
    let of_one = |teller: &AdminArgs| {
        let (status, text) = Admin::new(teller).ok()?.text(METRICS).ok()?;
        (status == 200).then(|| sent_by(&text))
    };
    tellers.iter().map(of_one).reduce(|sum, next| Some(sum? + next?))?
}

/// The sum of the rows of a scrape that say so.
fn sent_by(scrape: &str) -> u64 {
    let rows = scrape.lines().filter(|line| line.starts_with(SENT));
    rows.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
}

/// As many as a topic has by default.
const PARTITIONS: u16 = 4;
const METRICS: Route<'static> = Route { path: &["metrics"], query: &[] };
/// The row's name and the beginning of its label.
const SENT: &str = "mortarmq_peer_sent_bytes_total{";
/// Far longer than an election takes.
const ELECTION_LIMIT: Duration = Duration::from_secs(15);
const LOOK_PERIOD: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::sent_by;

    #[test]
    fn what_a_node_sent_is_the_sum_over_the_others() {
        let scrape = "# TYPE mortarmq_peer_sent_bytes_total counter\n\
mortarmq_peer_sent_bytes_total{peer=\"0\"} 4000\nmortarmq_peer_sent_bytes_total{peer=\"2\"} 321\n\
mortarmq_scrub_bytes_total 7\n";
        assert_eq!(sent_by(scrape), 4321);
        assert_eq!(sent_by("mortarmq_scrub_bytes_total 7\n"), 0);
    }
}
