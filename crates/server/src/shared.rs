//! What all connections of a process share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

use mortarmq_http::Access;
use mortarmq_types::ConnectionId;
use tokio::sync::Semaphore;

use crate::clock::NodeClock;
use crate::config::Config;
use crate::connection::deadlines::Timeouts;
use crate::event::Event;
use crate::inbox::EventSender;
use crate::metrics::Metrics;
use crate::outlet::Piles;

/// What all connections of a process share.
pub(crate) struct Shared {
    events: EventSender,
    last_connection: AtomicU64,
    pub(crate) clock: NodeClock,
    /// Who may do what.
    pub(crate) access: Arc<Access>,
    pub(crate) receive_budget: Arc<Semaphore>,
    /// When a connection is given up.
    pub(crate) timeouts: Timeouts,
    /// What waits for consumers that take it slowly.
    pub(crate) piles: Arc<Piles>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) status: Arc<Status>,
}

/// What the shard's loop shows of itself without being asked.
pub(crate) struct Status {
    pub(crate) started: Instant,
    /// Whether the node serves.
    pub(crate) is_ready: AtomicBool,
    /// Whether the other nodes bring this one up, because its journal or checkpoint has rotted.
    pub(crate) is_rejoining: AtomicBool,
    /// Whether everything ends now.
    pub(crate) is_stopping: AtomicBool,
    /// 0 healthy, 1 soft, 2 read-only.
    pub(crate) quorum_state: AtomicU8,
}

impl Status {
    /// A node that does not serve yet.
    pub(crate) fn new() -> Self {
        let no = || AtomicBool::new(false);
        let (is_ready, is_rejoining, is_stopping) = (no(), no(), no());
        Self { started: Instant::now(), is_ready, is_rejoining, is_stopping, quorum_state: AtomicU8::new(READ_ONLY) }
    }
}

const READ_ONLY: u8 = 2;

impl Shared {
    pub(crate) fn new(events: EventSender, config: &Config, metrics: Arc<Metrics>, status: Arc<Status>) -> Self {
        let permits = usize::try_from(config.receive_budget_bytes).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let receive_budget = Arc::new(Semaphore::new(permits));
        let piles = Arc::new(Piles::new(usize::try_from(config.send_budget_bytes).unwrap_or(usize::MAX)));
        Self {
            events,
            last_connection: AtomicU64::new(0),
            clock: NodeClock,
            access: Arc::new(Access::new(config.tokens.clone(), config.users.clone())),
            receive_budget,
            timeouts: config.timeouts,
            piles,
            metrics,
            status,
        }
    }

    /// The number of a new connection, of whichever listener.
    pub(crate) fn next_connection(&self) -> ConnectionId {
        ConnectionId::new(self.last_connection.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Gives an event to the shard's loop. Once the loop has ended nobody is left to care.
    pub(crate) fn send(&self, event: Event) {
        self.events.send(event);
    }
}
