//! Wakes the connections for which the loop has something, all of a turn together.
//!
//! A wake-up from another thread costs a system call when the socket threads sleep, and a system that is busy runs the
//! woken at once and the waker later, once for each. So the loop wakes one task, and this one, on a thread of the sockets,
//! all others.

use std::mem::take;
use std::task::Waker;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The loop's end: who is to be woken when the turn is over.
pub(crate) struct Courier {
    wakers: Vec<Waker>,
    route: UnboundedSender<Vec<Waker>>,
}

/// What runs among the connections.
pub(crate) struct Round(UnboundedReceiver<Vec<Waker>>);

/// Both ends. Nobody waits longer than until [`Round::run`] runs.
pub(crate) fn courier() -> (Courier, Round) {
    // Not bounded itself: a connection that was not woken yet is in it once.
    let (route, rounds) = unbounded_channel();
    (Courier { wakers: Vec::new(), route }, Round(rounds))
}

impl Courier {
    /// Notes somebody to wake.
    pub(crate) fn note(&mut self, waker: Option<Waker>) {
        self.wakers.extend(waker);
    }

    /// Wakes all that were noted.
    pub(crate) fn go(&mut self) {
        if self.wakers.len() < WORTH_A_ROUND {
            self.wakers.drain(..).for_each(Waker::wake);
        } else if let Err(unsent) = self.route.send(take(&mut self.wakers)) {
            // The task ends with the runtime, and all connections with it.
            unsent.0.into_iter().for_each(Waker::wake);
        }
    }
}

impl Round {
    /// Wakes whom it is told to until the loop has ended.
    pub(crate) async fn run(mut self) {
        while let Some(wakers) = self.0.recv().await {
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

/// For fewer, the way over one more task costs more than it saves.
const WORTH_A_ROUND: usize = 3;

#[cfg(test)]
mod tests {
    use super::{WORTH_A_ROUND, courier};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn note(courier: &mut super::Courier, count: &Arc<Count>, wakers: usize) {
        (0..wakers).for_each(|_| courier.note(Some(Waker::from(Arc::clone(count)))));
        courier.note(None);
    }

    #[tokio::test]
    async fn whoever_was_noted_is_woken_once_by_whichever_way() {
        let (mut courier, round) = courier();
        let woken = Arc::new(Count(AtomicUsize::new(0)));
        let seen = || woken.0.load(Ordering::Relaxed);
        note(&mut courier, &woken, WORTH_A_ROUND - 1);
        assert_eq!(seen(), 0, "not before the turn is over");
        courier.go();
        assert_eq!(seen(), WORTH_A_ROUND - 1, "a few at once");
        note(&mut courier, &woken, 64);
        courier.go();
        courier.go();
        assert_eq!(seen(), WORTH_A_ROUND - 1, "many by the round");
        drop(courier);
        round.run().await;
        assert_eq!(seen(), WORTH_A_ROUND - 1 + 64);
    }

    #[test]
    fn without_a_round_they_are_woken_all_the_same() {
        let (mut courier, round) = courier();
        let woken = Arc::new(Count(AtomicUsize::new(0)));
        drop(round);
        note(&mut courier, &woken, 64);
        courier.go();
        assert_eq!(woken.0.load(Ordering::Relaxed), 64);
    }
}
