//! Parked pulls: one-shot grants of clients that poll.
//!
//! A pull that waits for more than the first messages is served by several commands. Each has a number of its own, as the
//! state gives whatever comes twice under one number the same leases and never new ones.

use mortarmq_types::{ConnectionId, MemberId, MonotonicTime, PathId};
use std::collections::BTreeMap;

/// Pulls that wait, by number.
#[derive(Debug, Default)]
pub(crate) struct Pulls {
    waiting: BTreeMap<u64, Pull>,
    /// The pulls that a `Deliver` is on its way for, by its number.
    proposed: BTreeMap<u64, u64>,
    /// The last number of a pull or of a `Deliver`.
    last_id: u64,
}

/// One pull.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pull {
    pub(crate) connection: ConnectionId,
    pub(crate) subscription: u16,
    pub(crate) path: PathId,
    pub(crate) member: MemberId,
    pub(crate) max_messages: u32,
    pub(crate) max_bytes: u64,
    pub(crate) min_bytes: u64,
    pub(crate) deadline: MonotonicTime,
    /// What it got so far.
    pub(crate) got_messages: u32,
    pub(crate) got_bytes: u64,
    /// The number of the `Deliver` that is on its way for it: it ends only after that one.
    pub(crate) proposed: Option<u64>,
    /// Whether its path was looked at since it came: an empty answer rests on a look, not on the clock alone.
    pub(crate) looked: bool,
    /// Whether a read index is asked for: an empty answer is no command's result.
    pub(crate) confirms: bool,
}

/// A pull whose wait is over may wait that much longer for a look, when the journal or the segment writer is slow.
const LOOK_WITHIN_MS: u64 = 1000;

impl Pull {
    /// Whether it has what it asked for.
    pub(crate) fn is_filled(&self) -> bool {
        let enough = self.got_messages > 0 && self.got_bytes >= self.min_bytes;
        let full = self.max_bytes != 0 && self.got_bytes >= self.max_bytes;
        self.got_messages >= self.max_messages || enough || full
    }
}

impl Pulls {
    /// Parks a pull; `None` if its subscription has one open already.
    pub(crate) fn park(&mut self, pull: Pull) -> Option<u64> {
        let twin = |other: &Pull| (other.connection, other.subscription) == (pull.connection, pull.subscription);
        if self.waiting.values().any(twin) {
            return None;
        }
        self.last_id += 1;
        self.waiting.insert(self.last_id, pull);
        Some(self.last_id)
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Pull> {
        self.waiting.get(&id)
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<Pull> {
        let pull = self.waiting.remove(&id)?;
        pull.proposed.map(|number| self.proposed.remove(&number));
        Some(pull)
    }

    /// Notes that a `Deliver` is on its way for a pull, and gives it a number.
    pub(crate) fn propose(&mut self, id: u64) -> Option<u64> {
        let pull = self.waiting.get_mut(&id)?;
        self.last_id += 1;
        pull.proposed = Some(self.last_id);
        self.proposed.insert(self.last_id, id);
        Some(self.last_id)
    }

    /// Notes that the `Deliver` that was on its way for a pull is applied.
    pub(crate) fn applied(&mut self, id: u64) {
        if let Some(number) = self.waiting.get_mut(&id).and_then(|pull| pull.proposed.take()) {
            self.proposed.remove(&number);
        }
    }

    /// The pull that a `Deliver` of this number is for.
    pub(crate) fn of_number(&mut self, number: u64) -> Option<&mut Pull> {
        self.waiting.get_mut(self.proposed.get(&number)?)
    }

    /// The pulls of a path that no `Deliver` is on its way for.
    pub(crate) fn of_path(&self, path: PathId) -> Vec<u64> {
        self.waiting
            .iter()
            .filter(|(_, pull)| pull.path == path && pull.proposed.is_none())
            .map(|(id, _)| *id)
            .collect()
    }

    /// Ends the wait of the pulls of a connection. What is there when they are looked for they still get.
    pub(crate) fn wait_no_longer(&mut self, connection: ConnectionId, now: MonotonicTime) {
        for pull in self.waiting.values_mut().filter(|pull| pull.connection == connection) {
            pull.deadline = pull.deadline.min(now);
        }
    }

    /// The pulls that were parked by a connection, or by a member.
    pub(crate) fn matching(&self, wanted: impl Fn(&Pull) -> bool) -> Vec<u64> {
        self.waiting.iter().filter(|(_, pull)| wanted(pull)).map(|(id, _)| *id).collect()
    }

    /// Notes that a path was looked at for whoever waits there.
    pub(crate) fn looked_at(&mut self, path: PathId) {
        for pull in self.waiting.values_mut().filter(|pull| pull.path == path) {
            pull.looked = true;
        }
    }

    /// Notes whether a read index is asked for a pull.
    pub(crate) fn confirms(&mut self, id: u64, confirms: bool) {
        if let Some(pull) = self.waiting.get_mut(&id) {
            pull.confirms = confirms;
        }
    }

    /// The pulls whose wait is over and that nothing is on its way for.
    pub(crate) fn expired(&self, now: MonotonicTime) -> Vec<u64> {
        self.matching(|pull| {
            pull.proposed.is_none()
                && !pull.confirms
                && (pull.looked || pull.deadline.after_ms(LOOK_WITHIN_MS) <= now)
                && pull.deadline <= now
        })
    }

    pub(crate) fn next_deadline(&self) -> Option<MonotonicTime> {
        self.waiting
            .values()
            .filter(|pull| pull.proposed.is_none() && pull.looked && !pull.confirms)
            .map(|pull| pull.deadline)
            .min()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}
