//! SIGHUP: the files of TLS are read again.

use mortarmq_server::Running;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::errors::{Failure, chain};

/// The wish to have certificates read again.
pub(super) struct Wish(Signal);

impl Wish {
    /// Listens from now on.
    pub(super) fn new() -> Result<Self, Failure> {
        let listen = signal(SignalKind::hangup());
        listen.map(Self).map_err(|error| Failure::local(format!("no signals: {error}"), "look at the system's limits"))
    }

    /// Waits for it.
    pub(super) async fn wanted(&mut self) {
        let _ = self.0.recv().await;
    }
}

/// Reads them, and says in the log what came of it. A file that is wrong leaves the former certificate in use.
pub(super) fn certificates(running: &Running) {
    match running.reload_tls() {
        Ok(true) => tracing::info!("SIGHUP: certificates and keys were read again; new connections use them"),
        Ok(false) => tracing::info!("SIGHUP: there is no TLS, so there is nothing to read again"),
        Err(error) => {
            let reason = chain(&error);
            tracing::error!(reason, "SIGHUP: a file of TLS cannot be used; the former ones stay in use");
        }
    }
}
