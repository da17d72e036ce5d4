//! The client listener: one task that accepts, one task per connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use mortarmq_node::ErrorCode;
use mortarmq_types::ConnectionId;
use mortarmq_wire::ops::ErrorAnswer;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};

use crate::connection::session::Identity;
use crate::connection::{intake::NO_OP, serve};
use crate::shared::Shared;
use crate::threads::AbortOnPanic;

/// What the client listener needs.
pub(crate) struct ClientListener {
    pub(crate) listener: TcpListener,
    pub(crate) identity: Identity,
    pub(crate) shared: Arc<Shared>,
    pub(crate) max_connections: u32,
    pub(crate) stopping: watch::Receiver<bool>,
    /// Cloned by each connection: when all clones are gone, all connections are closed.
    pub(crate) alive: mpsc::Sender<()>,
}

impl ClientListener {
    /// Accepts until a stop is asked for.
    pub(crate) async fn run(mut self) {
        let _guard = AbortOnPanic;
        let places = Arc::new(Semaphore::new(self.max_connections as usize));
        let mut id = ConnectionId::ZERO;
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = async { self.stopping.wait_for(|is_stopping| *is_stopping).await.is_ok() } => return,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    pause_after(&error).await;
                    continue;
                }
            };
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                self.shared.metrics.count_connection_refused();
                tokio::spawn(turn_away(stream, self.max_connections));
                continue;
            };
            // Answers are small and wanted at once.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "TCP_NODELAY");
            }
            id = id.next();
            let (identity, shared, stopping) = (self.identity.clone(), Arc::clone(&self.shared), self.stopping.clone());
            let alive = self.alive.clone();
            tokio::spawn(async move {
                let _guard = AbortOnPanic;
                serve(stream, id, identity, shared, stopping).await;
                drop((place, alive));
            });
        }
    }
}

/// A process that has no more file handles would otherwise ask for one as fast as it can.
async fn pause_after(error: &io::Error) {
    tracing::warn!(%error, "a connection could not be accepted");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// Says why and closes.
async fn turn_away(mut stream: TcpStream, max_connections: u32) {
    let text = format!("this node has its {max_connections} connections (max_connections); close some, or raise it");
    let mut out = BytesMut::new();
    ErrorAnswer::new(ErrorCode::QuotaExceeded, NO_OP, text.as_bytes()).encode(&mut out);
    // Whatever goes wrong, the connection closes.
    let _ = tokio::time::timeout(TURN_AWAY_TIME, stream.write_all(&out)).await;
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const TURN_AWAY_TIME: Duration = Duration::from_secs(1);
