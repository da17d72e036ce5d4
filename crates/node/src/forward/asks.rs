//! The side that forwards: what is under way to the leader, and what of it has to be said again.
//!
//! # Invariants
//! 1. Requests are numbered from 1 in each epoch, in the order in which they came, without a gap: the front is the first that
//!    has no answer.
//! 2. `front - 1 <= taken <= sent <= last`.
//! 3. Each request is answered once.

use std::collections::VecDeque;

use mortarmq_types::{ConnectionId, MonotonicTime};

use crate::forward::message::ForwardBody;
use crate::reply::Reply;
use crate::request::Request;

/// What is under way.
#[derive(Debug)]
pub(crate) struct Asks {
    pending: VecDeque<Pending>,
    bytes: u64,
    /// The number of the first that is pending.
    front: u64,
    /// Up to here the leader has taken them.
    taken: u64,
    /// Up to here they were sent.
    sent: u64,
    /// The highest number that was ever sent in this epoch: what goes back to `taken` may have left all the same.
    left: u64,
    /// Up to here the leader knows that the answers came.
    told: u64,
    /// Whether the leader is to be asked although no request waits to be sent.
    asks_again: bool,
    /// When the leader was last asked, or answered.
    since: MonotonicTime,
}

#[derive(Debug)]
struct Pending {
    connection: ConnectionId,
    slot: u64,
    places: u64,
    request: Request,
    is_repeatable: bool,
    since: MonotonicTime,
    /// Whether its client was answered. It stays until all before it are, and as long as the leader has to take it.
    is_answered: bool,
    /// Whether the leader has answered.
    is_done: bool,
}

/// What became of a request.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) connection: ConnectionId,
    pub(crate) slot: u64,
    pub(crate) places: u64,
    /// The answers; `None` if it may have left and nobody says what became of it.
    pub(crate) replies: Option<Vec<Reply>>,
}

/// A request that this node answers itself now.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) connection: ConnectionId,
    pub(crate) slot: u64,
    pub(crate) request: Request,
}

impl Default for Asks {
    fn default() -> Self {
        Self {
            pending: VecDeque::new(),
            bytes: 0,
            front: 1,
            taken: 0,
            sent: 0,
            left: 0,
            told: 0,
            asks_again: false,
            since: MonotonicTime::ZERO,
        }
    }
}

impl Asks {
    /// Whether one more request has room.
    pub(crate) fn has_room(&self, request: &Request, most_bytes: u64) -> bool {
        let is_question = |request: &Request| matches!(request, Request::Metadata { .. });
        let questions = || self.pending.iter().filter(|pending| is_question(&pending.request)).count();
        let is_one_too_many = is_question(request) && questions() >= QUESTIONS_MAX;
        self.pending.len() < REQUESTS_MAX && self.bytes + held_bytes(request) <= most_bytes && !is_one_too_many
    }

    pub(crate) fn push(
        &mut self,
        now: MonotonicTime,
        (connection, slot): (ConnectionId, u64),
        request: Request,
        is_repeatable: bool,
    ) {
        let places = request.places();
        if self.pending.is_empty() {
            self.since = now;
        }
        self.bytes += held_bytes(&request);
        let (since, is_answered, is_done) = (now, false, false);
        self.pending.push_back(Pending {
            connection,
            slot,
            places,
            request,
            is_repeatable,
            since,
            is_answered,
            is_done,
        });
    }

    /// The next message to the leader.
    pub(crate) fn poll(&mut self) -> Option<ForwardBody> {
        let answered = self.front - 1;
        let first = self.sent + 1;
        let from = usize::try_from(first - self.front).expect("invariant 2: what is not sent is pending");
        let mut requests = Vec::new();
        let mut bytes = 0;
        for pending in self.pending.range(from..) {
            let more = held_bytes(&pending.request);
            if !requests.is_empty() && bytes + more > MESSAGE_BYTES {
                break;
            }
            bytes += more;
            requests.push(pending.request.clone());
        }
        if requests.is_empty() && !std::mem::take(&mut self.asks_again) {
            return None;
        }
        self.sent += requests.len() as u64;
        self.left = self.left.max(self.sent);
        self.told = answered;
        self.asks_again = false;
        Some(ForwardBody::Ask { first, answered, requests })
    }

    /// Takes answers of the leader of this epoch.
    pub(crate) fn answered(&mut self, now: MonotonicTime, taken: u64, answers: Vec<(u64, Vec<Reply>)>) -> Vec<Told> {
        let last = self.front + self.pending.len() as u64 - 1;
        if taken > last {
            // Not of this stream, whatever it says.
            return Vec::new();
        }
        if taken > self.taken {
            self.since = now;
        }
        self.taken = self.taken.max(taken);
        self.sent = self.sent.max(self.taken);
        let mut told = Vec::new();
        for (number, replies) in answers {
            let place = number.checked_sub(self.front).and_then(|place| usize::try_from(place).ok());
            let Some(pending) = place.and_then(|place| self.pending.get_mut(place)) else { continue };
            if number > self.taken || std::mem::replace(&mut pending.is_done, true) {
                continue;
            }
            self.since = now;
            if !std::mem::replace(&mut pending.is_answered, true) {
                let Pending { connection, slot, places, .. } = *pending;
                let is_whole = replies.len() as u64 == places;
                told.push(Told { connection, slot, places, replies: Some(replies).filter(|_| is_whole) });
            }
        }
        while let Some(done) = self.pending.pop_front_if(|pending| pending.is_done) {
            self.bytes -= held_bytes(&done.request);
            self.front += 1;
        }
        told
    }

    /// Time passed: what has waited too long is answered, and the leader is asked again for what it did not answer.
    pub(crate) fn tick(&mut self, now: MonotonicTime, timeout_ms: u64) -> Vec<Told> {
        let is_due = now.since_ms(self.since) >= ASK_AGAIN_MS;
        if is_due && (!self.pending.is_empty() || self.told < self.front - 1) {
            (self.sent, self.asks_again, self.since) = (self.taken, true, now);
        }
        let mut told = Vec::new();
        for pending in &mut self.pending {
            if now.since_ms(pending.since) < timeout_ms {
                // They came one after the other.
                break;
            }
            if !std::mem::replace(&mut pending.is_answered, true) {
                let Pending { connection, slot, places, .. } = *pending;
                // What never left still may, while this leader is in office, to keep the numbers whole.
                told.push(Told { connection, slot, places, replies: None });
            }
        }
        told
    }

    /// Another epoch begins, or its leader became known: the numbers begin anew. Returns what is lost, and, if this node leads, what
    /// it has to answer itself.
    pub(crate) fn begin_anew(&mut self, leads: bool) -> (Vec<Told>, Vec<Kept>) {
        let (left, front) = (self.left, self.front);
        let (mut lost, mut kept) = (Vec::new(), Vec::new());
        for (number, pending) in (front..).zip(std::mem::take(self).pending) {
            let Pending { connection, slot, places, .. } = pending;
            if pending.is_answered {
                continue;
            }
            // Stored once, and refused when it is repeated, a publish would be told that nothing was stored (P2): its producer
            // repeats it under its number.
            let may_be_stored = number <= left && matches!(pending.request, Request::Publish(_));
            if may_be_stored || (number <= left && !pending.is_repeatable) {
                lost.push(Told { connection, slot, places, replies: None });
            } else if leads {
                kept.push(Kept { connection, slot, request: pending.request });
            } else {
                self.bytes += held_bytes(&pending.request);
                self.pending.push_back(Pending { is_done: false, ..pending });
            }
        }
        (lost, kept)
    }

    /// Asserts what can be seen of the invariants.
    pub(crate) fn check(&self) {
        let last = self.front + self.pending.len() as u64 - 1;
        assert!(self.front > 0 && self.taken <= self.sent && self.sent <= last, "invariant 2: {self:?}");
        assert!(self.front <= self.taken + 1, "invariant 2: {self:?}");
        assert_eq!(self.bytes, self.pending.iter().map(|pending| held_bytes(&pending.request)).sum::<u64>());
    }
}

fn held_bytes(request: &Request) -> u64 {
    (request.held_bytes() + size_of::<Pending>() - size_of::<Request>()) as u64
}

/// As many as a leader keeps answers for.
pub(crate) const REQUESTS_MAX: usize = 4096;
/// Their answers may be long, and wait at the leader until they are fetched.
const QUESTIONS_MAX: usize = 64;
/// One message carries about as much, or one request.
const MESSAGE_BYTES: u64 = 1 << 20;
/// Without a word of the leader it is asked again: twice what its heartbeats take.
const ASK_AGAIN_MS: u64 = 200;

#[cfg(test)]
mod tests;
