//! What operators are told while a node waits for its place in its cluster: it lives, it is not ready, and why.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::header::{CONNECTION, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use mortarmq_node::{ErrorCode, Failure};
use mortarmq_transport::Acceptor;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::admin_listener::AdminListener;
use crate::server::StartError;

/// Why the node waits, as its assembly last said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Why(Arc<Mutex<String>>);

impl Why {
    pub(crate) fn say(&self, why: &str) {
        why.clone_into(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn text(&self) -> String {
        let text = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if text.is_empty() { "the node is starting".to_owned() } else { text }
    }
}

/// The listener for operators until the node begins.
pub(crate) struct WaitingRoom {
    task: JoinHandle<()>,
}

impl WaitingRoom {
    /// Listens where the operator routes will be.
    pub(crate) fn open(
        runtime: &Runtime,
        address: SocketAddr,
        acceptor: Option<Acceptor>,
        why: Why,
    ) -> Result<Self, StartError> {
        let failed = |source| StartError::Bind { key: "listen_admin", address, source };
        let listener = runtime.block_on(TcpListener::bind(address)).map_err(failed)?;
        if let Ok(bound) = listener.local_addr() {
            tracing::debug!(admin = %bound, "operators are told here why the node waits");
        }
        let router = Router::new().route("/healthz", get(lives)).fallback(refuse).with_state(why);
        let task = runtime.spawn(async move {
            if let Err(error) = axum::serve(AdminListener::new(listener, acceptor, PLACES), router).await {
                tracing::error!(%error, "nobody is told why the node waits");
            }
        });
        Ok(Self { task })
    }

    /// The node begins: the address is free again.
    pub(crate) fn close(self, runtime: &Runtime) {
        self.task.abort();
        // Its socket goes with it.
        let _ = runtime.block_on(self.task);
    }
}

async fn lives() -> Response {
    closing((axum::http::StatusCode::OK, axum::Json(serde_json::json!({"status": "ok"}))).into_response())
}

async fn refuse(State(why): State<Why>) -> Response {
    closing(mortarmq_http::refused(Failure::new(ErrorCode::ReadOnlyDegraded, why.text())))
}

/// Nobody is kept on a connection that outlives the listener.
fn closing(mut response: Response) -> Response {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Whoever asks again and again needs no more.
const PLACES: u32 = 16;
