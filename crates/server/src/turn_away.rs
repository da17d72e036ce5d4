//! What becomes of a connection for which there is no place: it is told why, and closed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::connection::linger;

/// Turns connections away with one answer.
pub(crate) struct TurnAway {
    answer: Bytes,
    places: Arc<Semaphore>,
}

impl TurnAway {
    pub(crate) fn new(answer: Bytes) -> Self {
        Self { answer, places: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Answers and closes. In a flood of connections most are closed without a word: the words cost a file handle.
    pub(crate) fn refuse(&self, mut stream: TcpStream) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else { return };
        let answer = self.answer.clone();
        tokio::spawn(async move {
            let written = tokio::time::timeout(WRITE_TIME, stream.write_all(&answer)).await;
            if matches!(written, Ok(Ok(()))) {
                linger(stream).await;
            }
            drop(place);
        });
    }
}

const AT_ONCE: usize = 32;
const WRITE_TIME: Duration = Duration::from_secs(1);
