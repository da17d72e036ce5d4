//! The batch that is being collected, and who waits for it.

use mortarmq_shard::{BatchBuilder, Command, PublishRun, SettleItem, SettleKind};
use mortarmq_types::{ConnectionId, DeliveryId, MonotonicTime, PathId, TopicIncarnation};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::changes::Change;

/// A batch is closed at this size; what comes next waits for the next one.
///
/// # Units
/// Bytes.
pub(crate) const BATCH_MAX_BYTES: usize = 4 << 20;

/// Who waits for one command, or for several in a row.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    /// How many commands of the batch.
    pub(crate) commands: u32,
    /// What to do with their outcomes.
    pub(crate) kind: WaiterKind,
}

/// What to do with outcomes.
#[derive(Clone, Debug)]
pub(crate) enum WaiterKind {
    /// Nothing: a duty of the leader.
    Nobody,
    /// Answer a connection; the places follow one another from `slot`.
    Connection { connection: ConnectionId, slot: u64 },
    /// Answer a connection, and open the session of the member that a join made or a resume found.
    Join { connection: ConnectionId, slot: u64, session: NewSession },
    /// Answer an operator once all of the commands are applied.
    Operator { query: u64 },
    /// Go on with a redrive or purge of dead letters.
    Letters { query: u64 },
    /// Answer an operator with what a change has made.
    Change { query: u64, change: Box<Change> },
    /// Tell a parked pull how much it got.
    Pull { pull_id: u64 },
}

/// What a session needs to know beside what the join tells.
#[derive(Clone, Debug)]
pub(crate) struct NewSession {
    pub(crate) subscription: u16,
    pub(crate) secret: u64,
    pub(crate) credit_messages: u16,
    pub(crate) credit_bytes: u32,
    /// For a resume: the deliveries that the member holds. What else is leased to it is sent again.
    pub(crate) resumed: Option<Arc<BTreeSet<DeliveryId>>>,
}

/// The batch that is being collected.
#[derive(Debug, Default)]
pub(crate) struct OpenBatch {
    builder: BatchBuilder,
    waiters: Vec<Waiter>,
    /// Topics that it publishes to, with the number of commands.
    pub(crate) published: BTreeSet<TopicIncarnation>,
    /// Publishes in it.
    pub(crate) publishes: u64,
    /// Whether it has anything but publishes and acks.
    has_others: bool,
    /// Paths whose deliveries it settles, and how many: their credit may be free when it is applied.
    pub(crate) settled: BTreeMap<PathId, u64>,
    /// Since when somebody has been seen to wait for it.
    waited_since: Option<MonotonicTime>,
}

impl OpenBatch {
    /// Adds one command.
    pub(crate) fn add(&mut self, command: &Command, kind: WaiterKind) {
        let mut is_ack = false;
        if let Command::Settle(settle) = command {
            *self.settled.entry(settle.path).or_default() +=
                settle.items.iter().map(|item| u64::from(item.count)).sum::<u64>();
            is_ack = settle.items.iter().all(|item: &SettleItem| item.kind == SettleKind::Ack);
        }
        self.builder.add(command);
        self.has_others |= !is_ack;
        self.waiters.push(Waiter { commands: 1, kind });
    }

    /// Adds commands that are answered together.
    pub(crate) fn add_all(&mut self, commands: &[Command], kind: WaiterKind) {
        commands.iter().for_each(|command| self.builder.add(command));
        self.has_others = true;
        let commands = u32::try_from(commands.len()).expect("a topic has at most PATHS_MAX groups");
        self.waiters.push(Waiter { commands, kind });
    }

    /// Adds publishes.
    pub(crate) fn add_run(&mut self, run: &PublishRun, kind: WaiterKind) {
        self.builder.add_run(run);
        self.published.insert(run.topic);
        self.publishes += u64::from(run.count);
        self.waiters.push(Waiter { commands: run.count, kind });
    }

    /// Whether nothing more goes in.
    pub(crate) fn is_full(&self) -> bool {
        self.builder.len() >= BATCH_MAX_BYTES
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.builder.is_empty()
    }

    /// Whether it has anything but publishes and acks. Any other settle may bring a message back, and who asks anything else
    /// waits for the answer alone.
    pub(crate) const fn has_others(&self) -> bool {
        self.has_others
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.builder.len()
    }

    /// Stamps the batch and hands over its bytes and those who wait for it.
    pub(crate) fn close(&mut self, stamp: mortarmq_shard::Stamp) -> (bytes::Bytes, Vec<Waiter>) {
        self.published.clear();
        self.publishes = 0;
        self.has_others = false;
        self.settled.clear();
        self.waited_since = None;
        (self.builder.close(stamp), std::mem::take(&mut self.waiters))
    }

    /// Drops the batch because it can no longer be proposed, and hands over those who wait.
    pub(crate) fn abandon(&mut self) -> Vec<Waiter> {
        self.close(mortarmq_shard::Stamp::default()).1
    }

    /// Called with every tick. Takes those who wait for it once the first of them has waited for so long; their commands
    /// stay in the batch. Whoever came later waits up to twice as long.
    pub(crate) fn take_overdue(&mut self, now: MonotonicTime, timeout_ms: u64) -> Option<Vec<Waiter>> {
        if self.waiters.iter().all(|waiter| matches!(waiter.kind, WaiterKind::Nobody)) {
            return None;
        }
        let since = *self.waited_since.get_or_insert(now);
        if now.since_ms(since) < timeout_ms {
            return None;
        }
        self.waited_since = None;
        Some(orphan(&mut self.waiters))
    }
}

/// Takes those who wait for commands, and leaves nobody in their place.
pub(crate) fn orphan(waiters: &mut Vec<Waiter>) -> Vec<Waiter> {
    let commands = waiters.iter().map(|waiter| waiter.commands).sum();
    std::mem::replace(waiters, vec![Waiter { commands, kind: WaiterKind::Nobody }])
}
