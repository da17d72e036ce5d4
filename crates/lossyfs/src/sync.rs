//! The way of an fsync: it begins, it may take long, it ends.
//!
//! What it covers becomes durable when it ends, so a power loss meanwhile may take all of it. The kernel holds the file's
//! lock from its beginning to its end: nothing changes in the file meanwhile, and no two syncs of one file overlap.

use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

use fuser::{Errno, ReplyEmpty};

use crate::state::{Shared, State};

/// A sync that has begun.
struct Sync {
    inode: u64,
    fails: bool,
    losses: u64,
}

impl Shared {
    /// Syncs an open file or directory and answers, from a thread of its own if that takes long: reads and writes go on
    /// meanwhile.
    pub(crate) fn sync(self: &Arc<Self>, handle: u64, reply: ReplyEmpty) {
        let mut state = self.lock();
        let sync = match state.start_sync(handle) {
            Ok(sync) => sync,
            Err(error) => return reply.error(error),
        };
        let delay = state.faults.sync_delay;
        if delay.is_zero() {
            let answer = state.finish_sync(&sync);
            drop(state);
            return answer_with(reply, answer);
        }
        drop(state);
        let shared = Arc::clone(self);
        let finish = move || {
            let answer = shared.finish_sync_after(delay, &sync);
            answer_with(reply, answer);
        };
        // Without a thread the reply is dropped, which answers EIO.
        drop(Builder::new().name("lossyfs-sync".to_owned()).spawn(finish));
    }

    fn finish_sync_after(&self, delay: Duration, sync: &Sync) -> Result<(), Errno> {
        let end = Instant::now() + delay;
        let mut state = self.lock();
        while state.losses == sync.losses && !state.is_unmounted {
            let rest = end.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                break;
            }
            state = match self.woken.wait_timeout(state, rest) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        state.finish_sync(sync)
    }
}

impl State {
    fn start_sync(&mut self, handle: u64) -> Result<Sync, Errno> {
        let inode = self.handles.find(handle)?.inode;
        Ok(Sync { inode, fails: self.faults.next_sync_fails(), losses: self.losses })
    }

    fn finish_sync(&mut self, sync: &Sync) -> Result<(), Errno> {
        if self.losses != sync.losses {
            return Err(Errno::ESTALE);
        }
        if sync.fails {
            self.inodes.forget_pending(sync.inode);
            return Err(Errno::EIO);
        }
        self.inodes.sync(sync.inode)
    }
}

fn answer_with(reply: ReplyEmpty, answer: Result<(), Errno>) {
    match answer {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}
