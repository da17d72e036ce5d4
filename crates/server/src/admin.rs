//! The admin listener: what the operator routes ask of this process.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mortarmq_http::{Access, BrokerStatus, NodeHandle, Readiness};
use mortarmq_node::drive::Room;
use mortarmq_node::{Act, Gauges, Query, QueryAnswer, QueryReply};
use mortarmq_types::NodeId;
use tokio::sync::{Semaphore, oneshot, watch};

use crate::event::Event;
use crate::file_system::file_system;
use crate::machine;
use crate::metrics::Scrape;
use crate::open_files;
use crate::peers::Known;
use crate::shared::Shared;
use crate::standing::{self, role};

/// The node and its process, as the operator routes see them.
#[derive(Clone)]
pub(crate) struct AdminHandle {
    pub(crate) node_id: NodeId,
    /// The other nodes of its cluster.
    pub(crate) others: Vec<NodeId>,
    /// What is known of the links to them.
    pub(crate) links: Option<Arc<Known>>,
    pub(crate) shared: Arc<Shared>,
    /// An answer about thousands of topics is large, and so is the work: few are made at a time.
    pub(crate) questions: Arc<Semaphore>,
    /// A change waits for the journal, and must not keep questions waiting.
    pub(crate) acts: Arc<Semaphore>,
    pub(crate) metrics_enabled: bool,
    pub(crate) metrics_per_partition: bool,
    pub(crate) data_dir: PathBuf,
    pub(crate) room: Arc<Room>,
    pub(crate) stopping: watch::Receiver<bool>,
}

impl NodeHandle for AdminHandle {
    async fn query(&self, question: Query) -> Option<QueryReply> {
        let _place = self.questions.acquire().await.ok()?;
        let (answer, answered) = oneshot::channel();
        self.shared.send(Event::Query { question, answer });
        answered.await.ok()
    }

    async fn act(&self, act: Act) -> Option<QueryReply> {
        let _place = self.acts.acquire().await.ok()?;
        let (answer, answered) = oneshot::channel();
        self.shared.send(Event::Act { act, answer });
        answered.await.ok()
    }

    fn access(&self) -> &Access {
        &self.shared.access
    }

    fn broker(&self) -> BrokerStatus {
        let status = &self.shared.status;
        let office = status.office();
        BrokerStatus {
            node_id: self.node_id.get(),
            uptime_s: status.started.elapsed().as_secs(),
            connections: self.shared.metrics.connections(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            quorum_state: status.quorum_state.load(Ordering::Relaxed),
            role: role(self.node_id, office.leader),
            leader_id: office.leader.map(NodeId::get),
            peers: standing::peers(&self.others, &office, self.links.as_deref()),
        }
    }

    fn readiness(&self) -> Readiness {
        let stopping = *self.stopping.borrow();
        let status = &self.shared.status;
        let office = status.office();
        let role = role(self.node_id, office.leader);
        let rejoining = status.is_rejoining.load(Ordering::Relaxed).then(|| {
            "the journal or the checkpoint has rotted, and the other nodes bring this one up: it neither votes nor acknowledges".to_owned()
        });
        let replaced = self.links.as_ref().and_then(|links| links.why_replaced());
        let unready = replaced
            .or(rejoining)
            .or_else(|| standing::why_not_ready(role, status.is_ready.load(Ordering::Relaxed), &office));
        let damaged = self.shared.metrics.scrub_damaged();
        let rotten = (damaged > 0).then(|| format!("the scrub found {damaged} damaged places: see the log"));
        let room = [("disk_low", self.room.is_low()), ("disk_full", self.room.is_full())];
        let room = room.into_iter().filter(|(_, holds)| *holds).map(|(name, _)| name.to_owned());
        let degraded = room.chain(rotten).chain(standing::degraded(&office)).collect();
        Readiness { ready: unready.is_none() && !stopping, role, why: unready.unwrap_or_default(), degraded, stopping }
    }

    async fn metrics(&self) -> String {
        if !self.metrics_enabled {
            return "# metrics are switched off (metrics_enabled = false)\n".to_owned();
        }
        let gauges = self.gauges().await.unwrap_or_default();
        let stats = match self.query(Query::Stats { topic: None }).await.map(|reply| reply.result) {
            Some(Ok(QueryAnswer::Stats(stats))) => Some(stats),
            Some(_) | None => None,
        };
        let file_system = file_system(&self.data_dir).ok();
        let sent_to_peers = self.links.as_ref().map(|links| links.sent_bytes()).unwrap_or_default();
        self.shared.metrics.render(&Scrape {
            stats: stats.as_ref(),
            broker: &self.broker(),
            pending_bytes: gauges.pending_bytes,
            unwritten_bytes: gauges.unwritten_bytes,
            repairing: gauges.repairing,
            repaired: gauges.repaired,
            is_rejoining: self.shared.status.is_rejoining.load(Ordering::Relaxed),
            sent_to_peers: &sent_to_peers,
            journal_bytes: machine::folder_bytes(&self.data_dir.join("journal")),
            checkpoint_age: machine::newest_age(&self.data_dir.join("checkpoints")),
            reserve_bytes: self.room.reserve_bytes(),
            is_disk_low: self.room.is_low(),
            disk_free_bytes: machine::free_bytes(&self.data_dir),
            file_system: file_system.as_ref().map(|found| found.name.as_str()),
            open_files_limit: open_files::limit(),
            memory_bytes: machine::resident_bytes(),
            per_partition: self.metrics_per_partition,
        })
    }
}

impl AdminHandle {
    async fn gauges(&self) -> Option<Gauges> {
        let (answer, answered) = oneshot::channel();
        self.shared.send(Event::Gauges { answer });
        answered.await.ok()
    }
}

/// Questions of operators that the loop has in hand at a time.
pub(crate) const QUESTIONS_MAX: usize = 4;

/// Changes of operators that the loop has in hand at a time.
pub(crate) const ACTS_MAX: usize = 16;
