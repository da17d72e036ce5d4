//! A whole node as one process: lock, recover, lead, listen, and the way back.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc as std_mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use mortarmq_node::drive::{self, ForeignData, JournalKeeper, RecoverError, RecoveredNode, Room, STEP_BYTES};
use mortarmq_storage::Recovered as Found;
use mortarmq_storage::{DirectoryLock, Disk, Identity, LockError, RealDisk};
use mortarmq_transport::{Acceptor, FileFault};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, mpsc, watch};

use crate::admin::{self, AdminHandle};
use crate::admin_listener::{AdminListener, Patient, give_time};
use crate::certificates::Certificates;
use crate::config::Config;
use crate::connection::session::Identity as ShownIdentity;
use crate::courier::{Round, courier};
use crate::event::Event;
use crate::inbox::{EventSender, inbox};
use crate::journal_thread::JournalWriter;
use crate::listener::{ClientDoor, ClientListener};
use crate::metrics::Metrics;
use crate::open_files::{Places, TooFewFiles, places};
use crate::peers::{AssemblyError, Entry, WaitingRoom, Why};
use crate::recover::{Recovered, RecoverySummary, messages, recover};
use crate::relay::{Doors, OperatorDoor, at_leader};
use crate::shard_loop::{Channels, ShardLoop};
use crate::shared::{Shared, Status};
use crate::{journal_thread, read_pool, room, scrub_thread, segment_thread, threads};

/// Starts nodes.
#[derive(Clone, Copy, Debug)]
pub struct Server;

/// Where a node listens, with the ports it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The wire protocol.
    pub client: SocketAddr,
    /// The wire protocol over WebSocket, if it is on.
    pub ws: Option<SocketAddr>,
    /// Metrics, health and the operator routes.
    pub admin: SocketAddr,
    /// The other nodes of the cluster, if there are any.
    pub peer: Option<SocketAddr>,
}

/// A node that serves. Dropping it stops it.
pub struct Running {
    addresses: Addresses,
    recovery: RecoverySummary,
    process: Option<Process>,
    certificates: Certificates,
}

/// What has to be ended, in the order of its fields.
struct Process {
    runtime: Runtime,
    stop: watch::Sender<bool>,
    /// Says that all connections are closed.
    all_closed: mpsc::Receiver<()>,
    shared: Arc<Shared>,
    room: Arc<Room>,
    /// The watch of the disk ends with it.
    watch_disk: std_mpsc::Sender<()>,
    /// The scrub ends with it.
    scrub: std_mpsc::Sender<()>,
    threads: Vec<JoinHandle<()>>,
    _lock: DirectoryLock,
}

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory is in use, or cannot be locked.
    #[error("cannot use the data directory")]
    Lock(#[source] LockError),
    /// The file of the disk reserve cannot be used.
    #[error("cannot use the disk reserve in {}", .path.display())]
    Reserve {
        /// The data directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The disk is full and the reserve used up, and more than may stay in memory has to be written.
    #[error(
        "the disk is full: {} needs at least {} MiB more to start; make room there, then start again: nothing is lost",
        .path.display(), .bytes.div_ceil(1 << 20)
    )]
    NoRoom {
        /// The data directory.
        path: PathBuf,
        /// What had to be written when the start gave up, or one step of a journal file.
        bytes: u64,
    },
    /// The data is not this node's, or it cannot be told whose it is.
    #[error("the data cannot be used by this node")]
    ForeignData(#[source] ForeignData),
    /// The node is none of its cluster.
    #[error("this node cannot be one of its cluster")]
    Assembly(#[source] AssemblyError),
    /// The data cannot be made a node of.
    #[error(transparent)]
    Recover(RecoverError),
    /// The machine does not say which boot this is.
    #[error("cannot read the boot id")]
    Boot(#[source] io::Error),
    /// The system has no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(String),
    /// The system allows too few open files.
    #[error("cannot have the files and connections of a node")]
    OpenFiles(#[source] TooFewFiles),
    /// The system gives no thread.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// The node does not come to lead.
    #[error("the node did not become ready within {} s; see its log", READY_TIME.as_secs())]
    NotReady,
    /// The files of TLS cannot be used.
    #[error("cannot speak TLS (tls_cert, tls_key)")]
    Tls(#[source] FileFault),
    /// The same of the links between nodes.
    #[error("cannot speak TLS with the other nodes (peer_tls_cert, peer_tls_key, peer_tls_ca)")]
    PeerTls(#[source] FileFault),
    /// A listener cannot be opened.
    #[error("cannot listen on {address} ({key})")]
    Bind {
        /// The key of the address.
        key: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

impl Server {
    /// Starts a node: locks its data directory, recovers it, and listens once it leads.
    ///
    /// # Errors
    /// Whatever keeps it from serving; nothing of it is left running then.
    /// # Source
    /// Failure rules 3, 4 and 10.
    pub fn start(config: Config) -> Result<Running, StartError> {
        // Before anything is touched: a file that is wrong is found at once.
        let certificates = Certificates::read(&config)?;
        let lock = DirectoryLock::acquire(&config.data_dir).map_err(StartError::Lock)?;
        let places =
            places(config.max_connections, 1 + u32::from(config.listen_ws.is_some())).map_err(StartError::OpenFiles)?;
        let (metrics, status) = (Arc::new(Metrics::new()), Arc::new(Status::new()));
        let (events, inbox) = inbox();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let (courier, round) = courier();
        let runtime = runtime(round).map_err(StartError::Thread)?;
        // First whose folder it is, so that nothing of another node's is touched. Only a new one is written to by that.
        let (identity, entry) = identity(&config, &*disk, &runtime, &certificates)?;
        let room = room(&config, &disk, &events)?;
        let Recovered { drive, begun } = recover(&config, &identity, &disk, &room)?;
        let RecoveredNode { node, journal, segments, unwritten, is_new, found: Found { torn, .. }, .. } = drive;
        if torn.is_some() {
            metrics.count_torn_tail();
        }
        let (reads, mut threads) = read_pool::start(&segments.reader(), &events).map_err(StartError::Thread)?;
        let journal = JournalWriter {
            journal: JournalKeeper::new(journal, Arc::clone(&room)),
            events: events.clone(),
            metrics: Arc::clone(&metrics),
            room: Arc::clone(&room),
            status: Arc::clone(&status),
            promise: entry.as_ref().and_then(|entry| entry.promise(&disk, &config.data_dir, identity)),
        };
        let (journal, thread) = journal_thread::start(journal).map_err(StartError::Thread)?;
        threads.push(thread);
        let (segments, thread) = segment_thread::start(segments, unwritten, events.clone(), Arc::clone(&room))
            .map_err(StartError::Thread)?;
        threads.push(thread);
        let scrub = scrub_thread::start_for(&config, disk, Arc::clone(&metrics), events.clone());
        let (scrub, scrubs) = scrub.map_err(StartError::Thread)?;
        let (watch_disk, watches) = watch_disk(Arc::clone(&room)).map_err(StartError::Thread)?;
        threads.extend([scrubs, watches]);
        let ((ready, is_ready), found) = (std_mpsc::sync_channel(1), messages(&node));
        let peers = entry.as_ref().map(|entry| entry.links(&runtime)).unwrap_or_default();
        let channels = Channels { events: inbox, journal, segments, reads, courier, peers, ready };
        let shard_loop = ShardLoop::new(node, channels, Arc::clone(&status));
        // In front: the others end when its ends of their channels are gone.
        threads.insert(0, threads::spawn("shard-0", move || shard_loop.run()).map_err(StartError::Thread)?);
        if let Some(entry) = &entry {
            entry.open(events.clone());
        }
        let shared = shared(events, &config, metrics, status, entry.as_ref());
        let ((stop, stopping), (alive, all_closed)) = (watch::channel(false), mpsc::channel(1));
        let process = Process { runtime, stop, all_closed, shared, room, watch_disk, scrub, threads, _lock: lock };
        // One of several serves when there is a leader, and says so by itself.
        let counted = if entry.is_some() { Ok(found) } else { is_ready.recv_timeout(READY_TIME) };
        let listening = match counted {
            Ok(messages) => {
                let recovery = RecoverySummary { is_new, messages, seconds: begun.elapsed().as_secs_f64(), torn };
                process
                    .listen(&config, certificates.acceptor(), places, &stopping, alive, entry.as_ref())
                    .map(|addresses| (addresses, recovery))
            }
            Err(_) => Err(not_ready(&config, &process.room)),
        };
        let (mut addresses, recovery) = match listening {
            Ok(listening) => listening,
            Err(error) => return Err(process.end_with(error)),
        };
        addresses.peer = entry.map(|entry| entry.address);
        Ok(Running { addresses, recovery, process: Some(process), certificates })
    }
}

impl Running {
    /// Where the node listens.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// What the start found in the data directory.
    #[must_use]
    pub fn recovery(&self) -> &RecoverySummary {
        &self.recovery
    }

    /// Reads the files of TLS again, of clients and of links: connections that come from now on use them. `false` where there are
    /// none.
    ///
    /// # Errors
    /// A file cannot be used; all that was read before stays in use.
    pub fn reload_tls(&self) -> Result<bool, FileFault> {
        self.certificates.reload()
    }

    /// Serves until SIGTERM or SIGINT, then stops.
    ///
    /// # Errors
    /// When the signals cannot be waited for; the node is stopped then too.
    pub fn wait(mut self) -> io::Result<()> {
        let Some(process) = self.process.take() else { return Ok(()) };
        let signal = process.runtime.block_on(stop_signal());
        process.end();
        tracing::info!(signal = signal.as_ref().ok(), "stopped");
        signal.map(|_| ())
    }

    /// Stops: accepts nothing more, answers what is in flight, closes.
    pub fn stop(mut self) {
        if let Some(process) = self.process.take() {
            process.end();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.end();
        }
    }
}

impl Process {
    /// Ends a process that cannot serve; gives back why.
    fn end_with(self, error: StartError) -> StartError {
        self.end();
        error
    }

    fn listen(
        &self,
        config: &Config,
        acceptor: Option<Acceptor>,
        places: Places,
        stopping: &watch::Receiver<bool>,
        alive: mpsc::Sender<()>,
        entry: Option<&Entry>,
    ) -> Result<Addresses, StartError> {
        let (listener, client) = self.bind("listen_client", config.listen_client)?;
        let (admin_listener, admin) = self.bind("listen_admin", config.listen_admin)?;
        let identity = ShownIdentity {
            node_id: config.node_id,
            client_address: client,
            poll_max_wait_ms: u16::try_from(config.poll_max_wait_ms).unwrap_or(u16::MAX),
            is_carried: false,
        };
        let shared = Arc::clone(&self.shared);
        let door = ClientDoor::new(identity, Arc::clone(&shared), places.clients, stopping.clone(), &alive);
        let clients = ClientListener { listener, acceptor: acceptor.clone(), origins: None, door: door.clone(), alive };
        let mut ws = None;
        if let Some(address) = config.listen_ws {
            let (listener, bound) = self.bind("listen_ws", address)?;
            self.runtime.spawn(clients.beside(listener, &config.ws_origins).run());
            ws = Some(bound);
        }
        self.runtime.spawn(clients.run());
        let handle = AdminHandle {
            questions: Arc::new(Semaphore::new(admin::QUESTIONS_MAX)),
            acts: Arc::new(Semaphore::new(admin::ACTS_MAX)),
            node_id: config.node_id,
            links: entry.map(|entry| Arc::clone(&entry.known)),
            others: config.cluster.as_ref().map_or_else(Vec::new, |cluster| cluster.others(config.node_id)),
            shared,
            metrics_enabled: config.metrics_enabled,
            metrics_per_partition: config.metrics_per_partition,
            data_dir: config.data_dir.clone(),
            room: Arc::clone(&self.room),
            stopping: stopping.clone(),
        };
        let mut stopping = stopping.clone();
        let stopped = async move {
            // An error says that nobody is left who could ask.
            let _ = stopping.wait_for(|is_stopping| *is_stopping).await;
        };
        let mut router = mortarmq_http::router(handle).layer(axum::middleware::from_fn(give_time));
        if let Some((entry, relay)) = entry.zip(self.shared.relay.clone()) {
            let operators = OperatorDoor::new(router.clone(), places.admins);
            entry.open_doors(Doors { clients: door, operators });
            router = router.layer(axum::middleware::from_fn_with_state(relay, at_leader));
        }
        let service = router.into_make_service_with_connect_info::<Patient>();
        self.runtime.spawn(async move {
            let _guard = threads::AbortOnPanic;
            if let Err(error) = axum::serve(AdminListener::new(admin_listener, acceptor, places.admins), service)
                .with_graceful_shutdown(stopped)
                .await
            {
                tracing::error!(%error, "the admin listener ended");
            }
        });
        Ok(Addresses { client, ws, admin, peer: None })
    }

    fn bind(&self, key: &'static str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
        let failed = |source| StartError::Bind { key, address, source };
        let listener = self.runtime.block_on(TcpListener::bind(address)).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        Ok((listener, bound))
    }

    /// Ends everything in order: connections, loop, storage threads, runtime; the lock goes last.
    fn end(self) {
        let Self { runtime, stop, mut all_closed, shared, room: _, watch_disk, scrub, threads, _lock } = self;
        shared.send(Event::StandAside);
        stop.send_replace(true);
        let closed = runtime.block_on(async {
            // Nobody ever sends; the channel ends with the last connection.
            tokio::time::timeout(CLOSE_TIME, all_closed.recv()).await
        });
        if closed.is_err() {
            tracing::warn!("some connections did not close within {} s", CLOSE_TIME.as_secs());
        }
        shared.status.is_stopping.store(true, Ordering::Relaxed);
        shared.send(Event::Stop);
        drop(watch_disk);
        drop(scrub);
        for thread in threads {
            // A panic in one of them has ended the process already.
            let _ = thread.join();
        }
        runtime.shutdown_timeout(RUNTIME_TIME);
    }
}

/// What all connections share, with the way to the leader if there are other nodes.
fn shared(
    events: EventSender,
    config: &Config,
    metrics: Arc<Metrics>,
    status: Arc<Status>,
    entry: Option<&Entry>,
) -> Arc<Shared> {
    let relay = entry.map(|entry| entry.relay(&status));
    Arc::new(Shared::new(events, config, metrics, status).with_relay(relay))
}

/// Why the node did not serve in time.
fn not_ready(config: &Config, room: &Room) -> StartError {
    // The journal waits for room: the leader's first batch cannot be written.
    let is_full = room.is_full();
    if is_full { StartError::NoRoom { path: config.data_dir.clone(), bytes: STEP_BYTES } } else { StartError::NotReady }
}

/// Starts the watch of the disk; it ends when what it gives is dropped.
fn watch_disk(room: Arc<Room>) -> io::Result<(std_mpsc::Sender<()>, JoinHandle<()>)> {
    let (watch, ended) = std_mpsc::channel();
    let thread = threads::spawn("disk", move || room::watch(&room, &ended))?;
    Ok((watch, thread))
}

/// Whose data the folder has, and of several nodes the way to the others.
fn identity(
    config: &Config,
    disk: &dyn Disk,
    runtime: &Runtime,
    certificates: &Certificates,
) -> Result<(Identity, Option<Entry>), StartError> {
    let Some(cluster) = &config.cluster else {
        let identity = drive::claim(disk, &config.data_dir, config.node_id, new_cluster);
        return Ok((identity.map_err(StartError::ForeignData)?, None));
    };
    let mut entry = Entry::begin(runtime, config.node_id, cluster, &config.data_dir, certificates.peers())?;
    let why = Why::default();
    let room = WaitingRoom::open(runtime, config.listen_admin, certificates.acceptor(), why.clone())?;
    let identity = runtime.block_on(entry.identity(disk, &config.data_dir, &why));
    room.close(runtime);
    Ok((identity.map_err(StartError::Assembly)?, Some(entry)))
}

/// The id of a cluster that begins here.
fn new_cluster() -> io::Result<[u8; 16]> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(io::Error::other)?;
    Ok(id)
}

/// Holds room before anything else is written, and tells the loop first of all how the disk stands.
fn room(config: &Config, disk: &Arc<dyn Disk>, events: &EventSender) -> Result<Arc<Room>, StartError> {
    let (path, reserve_bytes) = (&config.data_dir, config.disk_reserve_bytes);
    let room = room::open(Arc::clone(disk), path, reserve_bytes, config.journal_file_bytes, events.clone())
        .map_err(|source| StartError::Reserve { path: path.clone(), source })?;
    room.check();
    Ok(Arc::new(room))
}

/// How many threads carry the sockets: one core is left to the shard's loop. Public so that what a broker is measured
/// against can run on as many.
#[must_use]
pub fn socket_threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    cores.saturating_sub(1).max(1)
}

/// What carries the sockets, and wakes them.
fn runtime(round: Round) -> io::Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(socket_threads())
        .thread_name("tokio")
        .enable_all()
        .build()?;
    runtime.spawn(round.run());
    Ok(runtime)
}

/// Waits for the first signal that asks for a stop.
async fn stop_signal() -> io::Result<&'static str> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => Ok("SIGTERM"),
        _ = interrupt.recv() => Ok("SIGINT"),
    }
}

/// A single node leads after a few fsyncs; what takes longer will not get better by waiting.
const READY_TIME: Duration = Duration::from_secs(30);
/// How long a stop waits for connections.
const CLOSE_TIME: Duration = Duration::from_secs(10);
const RUNTIME_TIME: Duration = Duration::from_secs(1);
