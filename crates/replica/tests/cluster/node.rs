//! One replica of the cluster with its disk and its state machine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use mortarmq_replica::{Entry, HardState, Output, PeerMessage, Proposed, Replica, ReplicaConfig};
use mortarmq_types::Epoch;

use super::hash;

pub(crate) struct Node {
    pub(crate) id: u64,
    /// The last log index with a payload that is applied, or the checkpoint's.
    pub(crate) height: u64,
    /// While true, no fsync returns.
    pub(crate) disk_hangs: bool,
    place: usize,
    replica: Option<Replica>,
    /// What survives a crash.
    journal: Vec<Batch>,
    checkpoint: Checkpoint,
    /// What does not.
    unsynced: VecDeque<(u64, Batch)>,
    syncing: usize,
    life: u64,
    state: u64,
    proposed: BTreeSet<(u64, Epoch)>,
    /// The highest epoch ever shown to anybody, over all lives.
    shown: Epoch,
}

type Batch = (HardState, Vec<Entry>);

#[derive(Clone, Copy, Default)]
struct Checkpoint {
    log_index: u64,
    epoch: Epoch,
    height: u64,
    state: u64,
}

impl Node {
    pub(crate) fn new(place: usize, voters: &[u64]) -> Self {
        let mut node = Self {
            id: voters[place],
            height: 0,
            disk_hangs: false,
            place,
            replica: None,
            journal: Vec::new(),
            checkpoint: Checkpoint::default(),
            unsynced: VecDeque::new(),
            syncing: 0,
            life: 0,
            state: 0,
            proposed: BTreeSet::new(),
            shown: Epoch::ZERO,
        };
        node.restart(voters);
        node
    }

    pub(crate) fn restart(&mut self, voters: &[u64]) {
        let config = ReplicaConfig {
            applied: self.checkpoint.log_index,
            applied_epoch: self.checkpoint.epoch,
            ..ReplicaConfig::new(self.id, voters.to_vec(), self.place)
        };
        let mut recovery = Replica::recover_begin(config).unwrap();
        (self.height, self.state) = (self.checkpoint.height, self.checkpoint.state);
        for (hard_state, entries) in &self.journal {
            for entry in recovery.handle_batch(*hard_state, entries.clone()).unwrap() {
                (self.height, self.state) = (entry.log_index, hash(&(self.state, entry.log_index, &entry.data)));
            }
        }
        let replica = recovery.finish().unwrap();
        assert!(replica.epoch() >= self.shown, "P10: epoch {} after {} was shown", replica.epoch(), self.shown);
        self.replica = Some(replica);
        self.life += 1;
    }

    /// Loses everything but the journal. The batch in flight may have reached the disk.
    pub(crate) fn crash(&mut self, batch_survives: bool) {
        if batch_survives && self.syncing > 0 {
            self.store_batch();
        }
        self.replica = None;
        self.unsynced.clear();
        self.syncing = 0;
        self.proposed.clear();
    }

    pub(crate) fn is_up(&self) -> bool {
        self.replica.is_some()
    }

    pub(crate) fn is_leader(&self) -> bool {
        self.replica.as_ref().is_some_and(Replica::is_leader)
    }

    pub(crate) fn stand_aside(&mut self) {
        self.replica().stand_aside();
    }

    pub(crate) fn tick(&mut self) {
        self.replica().handle_tick();
    }

    pub(crate) fn receive(&mut self, message: PeerMessage) {
        // Through the same check that a codec makes.
        let message = PeerMessage::new(message.as_raft().clone()).unwrap();
        self.replica().handle_message(message);
    }

    pub(crate) fn propose(&mut self, data: Bytes) {
        if let Ok(Proposed { log_index, epoch }) = self.replica().propose(data) {
            self.proposed.insert((log_index, epoch));
        }
    }

    pub(crate) fn request_read(&mut self, token: u64) -> bool {
        self.replica.as_mut().is_some_and(|replica| replica.request_read(token).is_ok())
    }

    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        self.replica().poll_output()
    }

    pub(crate) fn append(&mut self, ready_number: u64, hard_state: HardState, entries: Vec<Entry>) {
        self.unsynced.push_back((ready_number, (hard_state, entries)));
    }

    /// Starts an fsync of all that waits, unless one is running; returns the life it belongs to.
    pub(crate) fn start_sync(&mut self) -> Option<u64> {
        if self.syncing > 0 || self.unsynced.is_empty() || self.disk_hangs {
            return None;
        }
        self.syncing = self.unsynced.len();
        Some(self.life)
    }

    /// The fsync of this life returns.
    pub(crate) fn synced(&mut self, life: u64, was_claimed: bool) {
        if life != self.life {
            return;
        }
        let ready_number = self.store_batch();
        if !was_claimed {
            self.replica().handle_persisted(ready_number);
        }
    }

    /// The planted bug: say so before it is true.
    pub(crate) fn claim_persisted(&mut self, ready_number: u64) {
        self.replica().handle_persisted(ready_number);
    }

    /// Applies, compares with what others applied, and returns how many of its own proposals were acknowledged.
    pub(crate) fn apply(&mut self, entries: Vec<Entry>, history: &mut BTreeMap<u64, u64>) -> u64 {
        let mut acknowledged = 0;
        for entry in entries {
            assert!(!entry.data.is_empty());
            let log_index = entry.log_index;
            let followed = history.range(..log_index).next_back().map(|(index, state)| (*index, *state));
            assert_eq!(
                followed,
                Some((self.height, self.state)),
                "an entry before {log_index} is missing or different"
            );
            (self.height, self.state) = (log_index, hash(&(self.state, log_index, &entry.data)));
            let state = *history.entry(log_index).or_insert(self.state);
            assert_eq!(state, self.state, "P1: entry {log_index} differs between replicas");
            acknowledged += u64::from(self.proposed.remove(&(log_index, entry.epoch())));
        }
        let height = self.height;
        self.replica().handle_applied(height);
        acknowledged
    }

    pub(crate) fn show_epoch(&mut self, epoch: Epoch) {
        assert!(epoch >= self.shown, "P10: epoch {epoch} after {}", self.shown);
        self.shown = epoch;
    }

    pub(crate) fn take_checkpoint(&mut self) {
        let (height, state) = (self.height, self.state);
        let replica = self.replica();
        let (log_index, epoch) = (replica.applied_log_index(), replica.applied_epoch());
        self.checkpoint = Checkpoint { log_index, epoch, height, state };
    }

    pub(crate) fn checkpoint_index(&self) -> u64 {
        self.checkpoint.log_index
    }

    /// Drops whole batches up to a log index; what remains opens with the last hard state dropped.
    pub(crate) fn trim_journal(&mut self, log_index: u64) {
        let needed = |(_, entries): &Batch| entries.iter().any(|entry| entry.log_index > log_index);
        let count = self.journal.iter().position(needed).unwrap_or(self.journal.len());
        let head = self.journal.drain(..count).next_back();
        if let Some((head, _)) = head {
            self.journal.insert(0, (head, vec![]));
        }
    }

    pub(crate) fn check(&self) {
        if let Some(replica) = &self.replica {
            replica.check();
        }
    }

    /// One fsync, one batch: the entries of all appends in order, and the last hard state.
    fn store_batch(&mut self) -> u64 {
        let mut batch = (HardState::default(), Vec::new());
        let mut number = 0;
        for (ready_number, (hard_state, entries)) in self.unsynced.drain(..self.syncing) {
            (number, batch.0) = (ready_number, hard_state);
            batch.1.extend(entries);
        }
        self.syncing = 0;
        self.journal.push(batch);
        number
    }

    fn replica(&mut self) -> &mut Replica {
        self.replica.as_mut().expect("the cluster asks only replicas that are up")
    }
}
