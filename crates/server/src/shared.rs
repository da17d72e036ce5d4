//! What all connections of a process share.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use mortarmq_http::Access;
use mortarmq_node::PeerView;
use mortarmq_types::{ConnectionId, NodeId};
use tokio::sync::Semaphore;

use crate::clock::NodeClock;
use crate::config::Config;
use crate::connection::deadlines::Timeouts;
use crate::event::Event;
use crate::inbox::EventSender;
use crate::metrics::Metrics;
use crate::outlet::Piles;
use crate::relay::Relay;

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
    /// The way to the node that leads; none on a node that is alone.
    pub(crate) relay: Option<Arc<Relay>>,
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
    /// One more than the number of the node that leads, if that is another one; else 0.
    led_by: AtomicU32,
    office: Mutex<OfficeStatus>,
}

/// Who leads, and how the other nodes follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OfficeStatus {
    /// Whoever leads, if it is known.
    pub(crate) leader: Option<NodeId>,
    /// Whether this node is brought up by files of the one that leads.
    pub(crate) catches_up: bool,
    /// How the others follow, on the node that leads.
    pub(crate) peers: Vec<PeerView>,
}

impl Status {
    /// A node that does not serve yet.
    pub(crate) fn new() -> Self {
        let no = || AtomicBool::new(false);
        let (is_ready, is_rejoining, is_stopping) = (no(), no(), no());
        let (quorum_state, led_by) = (AtomicU8::new(READ_ONLY), AtomicU32::new(0));
        let office = Mutex::default();
        Self { started: Instant::now(), is_ready, is_rejoining, is_stopping, quorum_state, led_by, office }
    }

    /// Who leads, and how the others follow, as the loop last said.
    pub(crate) fn office(&self) -> OfficeStatus {
        self.office.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells who leads, and how the others follow.
    pub(crate) fn tell_office(&self, office: OfficeStatus, is_leader: bool) {
        let elsewhere = office.leader.filter(|_| !is_leader);
        self.led_by.store(elsewhere.map_or(0, |leader| u32::from(leader.get()) + 1), Ordering::Relaxed);
        *self.office.lock().unwrap_or_else(PoisonError::into_inner) = office;
    }

    /// The other node that leads, if one does.
    pub(crate) fn leader_elsewhere(&self) -> Option<NodeId> {
        let number = self.led_by.load(Ordering::Relaxed).checked_sub(1)?;
        u16::try_from(number).ok().map(NodeId::new)
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
            relay: None,
        }
    }

    /// The same on one of several nodes.
    pub(crate) fn with_relay(self, relay: Option<Relay>) -> Self {
        Self { relay: relay.map(Arc::new), ..self }
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
