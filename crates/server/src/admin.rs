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
use crate::shared::Shared;

/// The node and its process, as the operator routes see them.
#[derive(Clone)]
pub(crate) struct AdminHandle {
    pub(crate) node_id: NodeId,
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
        BrokerStatus {
            node_id: self.node_id.get(),
            uptime_s: status.started.elapsed().as_secs(),
            connections: self.shared.metrics.connections(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            quorum_state: status.quorum_state.load(Ordering::Relaxed),
        }
    }

    fn readiness(&self) -> Readiness {
        let stopping = *self.stopping.borrow();
        let serves = self.shared.status.is_ready.load(Ordering::Relaxed);
        let why = match self.shared.status.is_rejoining.load(Ordering::Relaxed) {
            _ if stopping => "the node is stopping",
            true => {
                "the journal or the checkpoint has rotted, and the other nodes bring this one up: it neither votes nor acknowledges"
            }
            false => "the node does not lead",
        };
        let damaged = self.shared.metrics.scrub_damaged();
        let rotten = (damaged > 0).then(|| format!("the scrub found {damaged} damaged places: see the log"));
        let room = [("disk_low", self.room.is_low()), ("disk_full", self.room.is_full())];
        let room = room.into_iter().filter(|(_, holds)| *holds).map(|(name, _)| name.to_owned());
        let degraded = room.chain(rotten).collect();
        Readiness { ready: serves && !stopping, why: why.to_owned(), degraded, stopping }
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
        self.shared.metrics.render(&Scrape {
            stats: stats.as_ref(),
            broker: &self.broker(),
            pending_bytes: gauges.pending_bytes,
            unwritten_bytes: gauges.unwritten_bytes,
            repairing: gauges.repairing,
            repaired: gauges.repaired,
            is_rejoining: self.shared.status.is_rejoining.load(Ordering::Relaxed),
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
