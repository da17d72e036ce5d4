//! The client listener: one task that accepts, one task per connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use mortarmq_node::ErrorCode;
use mortarmq_transport::{Acceptor, Stream};
use mortarmq_wire::ops::ErrorAnswer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use crate::connection::line::Line;
use crate::connection::session::Identity;
use crate::connection::{intake::NO_OP, linger, serve};
use crate::shared::Shared;
use crate::threads::AbortOnPanic;
use crate::turn_away::TurnAway;
use crate::web_socket::{Origins, no_place};

/// What serves a client, whichever way it came.
#[derive(Clone)]
pub(crate) struct ClientDoor {
    identity: Identity,
    shared: Arc<Shared>,
    max_connections: u32,
    stopping: watch::Receiver<bool>,
    /// Held by each connection: when nobody holds it any more, all connections are closed.
    alive: mpsc::WeakSender<()>,
    /// The places of those that come from other nodes.
    carried_places: Arc<Semaphore>,
}

impl ClientDoor {
    pub(crate) fn new(
        identity: Identity,
        shared: Arc<Shared>,
        max_connections: u32,
        stopping: watch::Receiver<bool>,
        alive: &mpsc::Sender<()>,
    ) -> Self {
        let alive = alive.downgrade();
        let carried_places = Arc::new(Semaphore::new(max_connections as usize));
        Self { identity, shared, max_connections, stopping, alive, carried_places }
    }

    /// Serves a connection that has a place, until it ends.
    async fn serve(self, line: Line, identity: Identity, place: OwnedSemaphorePermit) {
        // Once the listener has ended, whoever comes has come too late.
        let Some(alive) = self.alive.upgrade() else { return };
        let id = self.shared.next_connection();
        serve(line, id, identity, self.shared, self.stopping).await;
        drop((place, alive));
    }

    /// Serves a client that came to another node.
    pub(crate) async fn serve_relayed(&self, mut stream: Stream) {
        let Ok(place) = Arc::clone(&self.carried_places).try_acquire_owned() else {
            self.shared.metrics.count_connection_refused();
            // What it does not take, nobody reads.
            let _ = stream.try_write(&refusal(self.max_connections, false));
            return linger(stream.finish()).await;
        };
        let identity = Identity { is_carried: true, ..self.identity.clone() };
        self.clone().serve(Line::plain(stream), identity, place).await;
    }
}

/// What the client listener needs.
pub(crate) struct ClientListener {
    pub(crate) listener: TcpListener,
    /// With it nothing but TLS is spoken.
    pub(crate) acceptor: Option<Acceptor>,
    /// With it frames travel in the messages of WebSockets, opened by pages of these origins.
    pub(crate) origins: Option<Arc<Origins>>,
    pub(crate) door: ClientDoor,
    pub(crate) alive: mpsc::Sender<()>,
}

impl ClientListener {
    /// The same over WebSocket, with as many places of its own.
    pub(crate) fn beside(&self, listener: TcpListener, origins: &Origins) -> Self {
        Self {
            listener,
            acceptor: self.acceptor.clone(),
            origins: Some(Arc::new(origins.clone())),
            door: self.door.clone(),
            alive: self.alive.clone(),
        }
    }

    /// Accepts until a stop is asked for.
    pub(crate) async fn run(mut self) {
        let _guard = AbortOnPanic;
        let most = self.door.max_connections;
        let places = Arc::new(Semaphore::new(most as usize));
        let turn_away = TurnAway::new(refusal(most, self.origins.is_some()));
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = async { self.door.stopping.wait_for(|is_stopping| *is_stopping).await.is_ok() } => return,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    pause_after(&error).await;
                    continue;
                }
            };
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                self.door.shared.metrics.count_connection_refused();
                // With TLS it is closed without a word: the words would cost a handshake.
                if self.acceptor.is_none() {
                    turn_away.refuse(stream);
                }
                continue;
            };
            // Answers are small and wanted at once.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "TCP_NODELAY");
            }
            let identity = self.door.identity.reached_at(stream.local_addr().ok().map(|address| address.ip()));
            let Some(stream) = with_tls(self.acceptor.as_ref(), stream) else { continue };
            let line = match &self.origins {
                None => Line::plain(stream),
                Some(origins) => Line::web(stream, Arc::clone(origins)),
            };
            let serving = self.door.clone().serve(line, identity, place);
            tokio::spawn(async move {
                let _guard = AbortOnPanic;
                serving.await;
            });
        }
    }
}

/// The stream as its listener speaks. The handshake takes place while it is read, so nobody waits for it here.
pub(crate) fn with_tls(acceptor: Option<&Acceptor>, socket: TcpStream) -> Option<Stream> {
    let Some(acceptor) = acceptor else { return Some(Stream::plain(socket)) };
    match acceptor.accept(socket) {
        Ok(stream) => Some(stream),
        Err(error) => {
            tracing::warn!(%error, "TLS cannot be begun");
            None
        }
    }
}

/// A process that has no more file handles would otherwise ask for one as fast as it can.
pub(crate) async fn pause_after(error: &io::Error) {
    tracing::warn!(%error, "a connection could not be accepted");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// Says why.
fn refusal(max_connections: u32, is_web: bool) -> Bytes {
    let text = format!("this node has its {max_connections} connections (max_connections); close some, or raise it");
    if is_web {
        return no_place(&text).into();
    }
    let mut out = BytesMut::new();
    ErrorAnswer::new(ErrorCode::QuotaExceeded, NO_OP, text.as_bytes()).encode(&mut out);
    out.freeze()
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
