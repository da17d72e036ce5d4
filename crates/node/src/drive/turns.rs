//! What a driver's loop keeps in mind from one turn to the next, and what it decides by it: when a tick is due, how long the
//! next batch is held back for more, who reads too slowly, when a stop is over.
//!
//! A turn: give the node what came in; [`Turns::relieve`]; [`Turns::before_outputs`]; carry out the outputs; if a
//! [tick is due](Turns::is_tick_due), [`Turns::tick`], and carry out the outputs once more; end if it
//! [is stopped](Turns::is_stopped), else rest for [`Turns::patience_ms`], or for [`Turns::gathering`] while the node
//! [waits for publishers](Turns::missing).

use std::collections::BTreeSet;
use std::time::Duration;

use mortarmq_types::{ConnectionId, MonotonicTime};

use crate::config::Now;
use crate::node::{Node, TICK_MS};

/// From when on a connection counts as slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowReader {
    /// With more waiting for it than that it gets nothing more.
    ///
    /// # Units
    /// Bytes.
    pub congested_bytes: usize,
    /// With less than that it does again.
    ///
    /// # Units
    /// Bytes.
    pub relieved_bytes: usize,
}

/// What is kept from turn to turn. A moment that is called `at` is counted from any beginning, by a clock that runs evenly.
#[derive(Debug)]
pub struct Turns {
    slow_reader: SlowReader,
    next_tick: MonotonicTime,
    journal_writes: u32,
    /// Until then the next batch may wait for more.
    gather_until: Duration,
    /// Whether the node was told so in this turn.
    gathers: bool,
    /// Connections that take messages slower than they come.
    congested: BTreeSet<ConnectionId>,
    /// When a stop was asked for, the moment from which on nothing is waited for any more.
    stop_by: Option<MonotonicTime>,
    /// How long a stop waits for another node to take the office.
    handing_over_until: Option<MonotonicTime>,
}

impl Turns {
    /// Before the first turn.
    #[must_use]
    pub const fn new(slow_reader: SlowReader) -> Self {
        Self {
            slow_reader,
            next_tick: MonotonicTime::ZERO,
            journal_writes: 0,
            gather_until: Duration::ZERO,
            gathers: false,
            congested: BTreeSet::new(),
            stop_by: None,
            handing_over_until: None,
        }
    }

    /// A batch goes to the journal.
    pub const fn journal_begun(&mut self) {
        self.journal_writes += 1;
    }

    /// A batch is durable, and took so long: it says for how long the next one may be held back.
    ///
    /// # Panics
    /// Without a batch under way.
    pub fn journal_written(&mut self, node: &mut Node, now: Now, at: Duration, took: Duration, ready_number: u64) {
        self.journal_writes = self.journal_writes.checked_sub(1).expect("a batch was under way");
        self.gather_until = at + (took * GATHER_WRITES).min(GATHER_MAX);
        node.handle_journal_written(now, ready_number);
    }

    /// Whether the journal writes.
    #[must_use]
    pub const fn is_journal_busy(&self) -> bool {
        self.journal_writes > 0
    }

    /// Says whether the next batch is held back for more. Whoever stops waits for nobody who may come.
    pub const fn before_outputs(&mut self, node: &mut Node, at: Duration) {
        self.gathers = self.stop_by.is_none() && !self.gathering(at).is_zero();
        node.handle_gathering(self.gathers);
    }

    /// How long the next batch waits for more.
    #[must_use]
    pub const fn gathering(&self, at: Duration) -> Duration {
        self.gather_until.saturating_sub(at)
    }

    /// For how many connections a batch is held back; 0 if none is. Also when the moment is past by now: the node was told that
    /// more is waited for, and is to be told otherwise.
    #[must_use]
    pub fn missing(&self, node: &Node) -> u64 {
        if self.gathers && !self.is_journal_busy() { node.missing() } else { 0 }
    }

    /// How long nothing needs to be done.
    ///
    /// # Units
    /// Milliseconds, at least one, the unit of the clock: what is due within it is not worth a turn that finds nothing.
    #[must_use]
    pub fn patience_ms(&self, node: &Node, now: MonotonicTime) -> u64 {
        let wake = node.next_wake().map_or(self.next_tick, |wake| wake.min(self.next_tick));
        wake.since_ms(now).clamp(1, TICK_MS)
    }

    /// Whether it is time to tick. What came in this turn has its outputs before: a pull that does not wait would otherwise be
    /// over before anything was looked for.
    #[must_use]
    pub fn is_tick_due(&self, node: &Node, now: Now) -> bool {
        now.monotonic >= self.next_tick || node.next_wake().is_some_and(|wake| wake <= now.monotonic)
    }

    /// Ticks.
    pub fn tick(&mut self, node: &mut Node, now: Now) {
        node.handle_tick(now);
        self.next_tick = now.monotonic.after_ms(TICK_MS);
    }

    /// A connection was given messages, and so much waits for it now; says whether it has become slow by that.
    pub fn congest(&mut self, node: &mut Node, now: Now, connection: ConnectionId, queued_bytes: usize) -> bool {
        let is_new = queued_bytes > self.slow_reader.congested_bytes && self.congested.insert(connection);
        if is_new {
            node.handle_congestion(now, connection, true);
        }
        is_new
    }

    /// Tells the node of slow connections that keep up again, by what waits for each; nothing of one that is gone.
    pub fn relieve(&mut self, node: &mut Node, now: Now, queued_bytes: impl Fn(ConnectionId) -> Option<usize>) {
        let bound = self.slow_reader.relieved_bytes;
        let keeps_up = |connection: &ConnectionId| queued_bytes(*connection).is_none_or(|queued| queued < bound);
        let relieved: Vec<_> = self.congested.iter().copied().filter(keeps_up).collect();
        for connection in relieved {
            self.congested.remove(&connection);
            node.handle_congestion(now, connection, false);
        }
    }

    /// A stop is asked for: nothing is waited for any more but what was begun.
    pub fn stop(&mut self, node: &mut Node, now: Now) {
        self.stop_by = Some(now.monotonic.after_ms(STOP_MS));
        // The others need not notice first that this node is gone. One that does not lead, or alone, has nothing to hand over.
        if node.handle_hand_over(now, None).is_ok() {
            self.handing_over_until = Some(now.monotonic.after_ms(HAND_OVER_MS));
        }
        // What is applied by now need not be replayed at the next start.
        node.handle_checkpoint_wanted(now);
    }

    /// Whether a stop was asked for and everything that was begun is written, or has taken too long.
    #[must_use]
    pub fn is_stopped(&self, node: &Node, now: Now) -> bool {
        let is_written = !self.is_journal_busy() && !node.is_collecting();
        let hands_over = self.handing_over_until.is_some_and(|until| now.monotonic < until) && node.is_ready();
        let is_idle = is_written && !node.is_writing_checkpoint() && !hands_over;
        self.stop_by.is_some_and(|stop_by| is_idle || now.monotonic >= stop_by)
    }
}

/// A batch waits for those who come back as long as so many writes take: about one write is saved for each that is waited for,
/// and with many connections it takes some to answer and to hear them all.
const GATHER_WRITES: u32 = 8;
/// It never waits longer for more, however long the disk takes.
const GATHER_MAX: Duration = Duration::from_millis(1);
/// How long a stop waits for the journal and its last checkpoint.
const STOP_MS: u64 = 5000;
/// The replica gives a hand-over up after 500 ms.
const HAND_OVER_MS: u64 = 600;
