//! The budget of large frames: a frame above 64 KiB takes its length from it before its bytes are read, so that many
//! clients with large frames cannot take all memory together (failure rule 9).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use mortarmq_wire::frame::MAX_FRAME_LEN;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// One connection's share of the budget.
pub(crate) struct Grant {
    budget: Arc<Semaphore>,
    /// What the frame that is being received takes; 0 if it needs nothing.
    frame_bytes: u32,
    permit: Option<OwnedSemaphorePermit>,
    waiting: Option<Waiting>,
}

type Waiting = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

impl Grant {
    pub(crate) fn new(budget: Arc<Semaphore>) -> Self {
        Self { budget, frame_bytes: 0, permit: None, waiting: None }
    }

    /// Says how long the frame is that is being received; 0 if there is none. What another frame took is given back.
    pub(crate) fn ask(&mut self, frame_bytes: usize) {
        let frame_bytes = if frame_bytes <= FREE_BYTES { 0 } else { frame_bytes };
        let frame_bytes = u32::try_from(frame_bytes).expect("a frame has at most 16 MiB");
        if frame_bytes == self.frame_bytes {
            return;
        }
        self.frame_bytes = frame_bytes;
        self.permit = None;
        self.waiting = None;
        if frame_bytes > 0 {
            match Arc::clone(&self.budget).try_acquire_many_owned(frame_bytes) {
                Ok(permit) => self.permit = Some(permit),
                Err(_) => self.waiting = Some(Box::pin(Arc::clone(&self.budget).acquire_many_owned(frame_bytes))),
            }
        }
    }

    /// Whether nothing may be read until the budget has room.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Whether it holds room that another large frame may be waiting for.
    pub(crate) fn is_contended(&self) -> bool {
        self.permit.is_some() && self.budget.available_permits() < MAX_FRAME_LEN
    }

    /// Waits for room. May be dropped and called again.
    pub(crate) async fn granted(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            self.permit = Some(waiting.await.expect("the budget is never closed"));
            self.waiting = None;
        }
    }
}

/// Frames up to here are received without asking.
const FREE_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::{FREE_BYTES, Grant};
    use std::sync::Arc;
    use tokio::sync::Semaphore;

    #[tokio::test]
    async fn rule_9_large_frames_wait_for_the_budget_and_small_ones_do_not() {
        let budget = Arc::new(Semaphore::new(1 << 20));
        let (mut first, mut second) = (Grant::new(Arc::clone(&budget)), Grant::new(Arc::clone(&budget)));
        first.ask(1 << 20);
        assert!(!first.is_waiting());
        second.ask(FREE_BYTES);
        assert!(!second.is_waiting());
        second.ask(FREE_BYTES + 1);
        assert!(second.is_waiting());
        assert!(first.is_contended() && !second.is_contended());
        // The first frame is complete, and a small one follows.
        first.ask(10);
        second.granted().await;
        assert!(!second.is_waiting());
        assert_eq!(budget.available_permits(), (1 << 20) - FREE_BYTES - 1);
        drop(second);
        assert_eq!(budget.available_permits(), 1 << 20);
    }
}
