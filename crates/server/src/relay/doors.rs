//! The leader's side: it serves those that came to another node as its own.

use std::sync::Arc;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use mortarmq_transport::Stream;
use tokio::sync::Semaphore;

use crate::admin_listener::AdminStream;
use crate::listener::ClientDoor;

/// What serves clients and operators, however they came.
pub(crate) struct Doors {
    pub(crate) clients: ClientDoor,
    pub(crate) operators: OperatorDoor,
}

/// Serves requests of operators that another node carried here.
pub(crate) struct OperatorDoor {
    router: Router,
    places: Arc<Semaphore>,
}

impl OperatorDoor {
    pub(crate) fn new(router: Router, most: u32) -> Self {
        Self { router, places: Arc::new(Semaphore::new(most as usize)) }
    }

    pub(crate) async fn serve(&self, stream: Stream) {
        // The other node says to its operator that nobody answers.
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else { return };
        let stream = AdminStream::carried(stream, place);
        let router = self.router.clone().layer(axum::Extension(ConnectInfo(stream.patience())));
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
            .await;
        if let Err(error) = served {
            tracing::debug!(%error, "a carried request of an operator ended");
        }
    }
}
