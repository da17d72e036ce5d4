//! A single voter: what it promises from an empty disk, through crashes, and at every point a crash can cut.

use bytes::Bytes;
use mortarmq_replica::{Entry, HardState, Output, ProposeError, Replica, ReplicaConfig};
use mortarmq_types::Epoch;

/// A disk that keeps what was persisted, and a state machine that keeps what was applied.
struct Node {
    replica: Replica,
    journal: Vec<(HardState, Vec<Entry>)>,
    unsynced: Vec<(u64, HardState, Vec<Entry>)>,
    applied: Vec<Bytes>,
    reads: Vec<(u64, u64)>,
    roles: Vec<(Option<u64>, Epoch, bool)>,
}

impl Node {
    fn start(journal: &[(HardState, Vec<Entry>)]) -> Self {
        Self::start_from_checkpoint(journal, 0, Epoch::ZERO)
    }

    fn start_from_checkpoint(journal: &[(HardState, Vec<Entry>)], applied_index: u64, epoch: Epoch) -> Self {
        let config =
            ReplicaConfig { applied: applied_index, applied_epoch: epoch, ..ReplicaConfig::new(7, vec![7], 0) };
        let mut recovery = Replica::recover_begin(config).unwrap();
        let mut applied = Vec::new();
        for (hard_state, entries) in journal {
            let committed = recovery.handle_batch(*hard_state, entries.clone()).unwrap();
            applied.extend(committed.into_iter().map(|entry| entry.data));
        }
        let (journal, unsynced, reads, roles) = (journal.to_vec(), vec![], vec![], vec![]);
        let mut node = Self { replica: recovery.finish().unwrap(), journal, unsynced, applied, reads, roles };
        node.drain();
        node
    }

    fn drain(&mut self) {
        while let Some(output) = self.replica.poll_output() {
            self.replica.check();
            match output {
                Output::Append { ready_number, hard_state, entries } => {
                    self.unsynced.push((ready_number, hard_state, entries));
                }
                Output::Committed { entries } => {
                    let last = entries.last().unwrap().log_index;
                    self.applied.extend(entries.into_iter().map(|entry| entry.data));
                    self.replica.handle_applied(last);
                }
                Output::Send { to, .. } => panic!("a single voter speaks to {to}"),
                Output::ReadReady { token, log_index } => self.reads.push((token, log_index)),
                Output::Role { leader, epoch, is_leader } => self.roles.push((leader, epoch, is_leader)),
            }
        }
    }

    /// Completes the oldest fsync.
    fn persist_one(&mut self) {
        let (ready_number, hard_state, entries) = self.unsynced.remove(0);
        self.journal.push((hard_state, entries));
        self.replica.handle_persisted(ready_number);
        self.drain();
    }

    fn persist_all(&mut self) {
        while !self.unsynced.is_empty() {
            self.persist_one();
        }
    }

    fn propose(&mut self, text: &str) {
        self.replica.propose(Bytes::copy_from_slice(text.as_bytes())).unwrap();
        self.drain();
    }

    fn applied(&self) -> Vec<&str> {
        self.applied.iter().map(|data| std::str::from_utf8(data).unwrap()).collect()
    }
}

fn leader() -> Node {
    let mut node = Node::start(&[]);
    node.persist_all();
    node
}

#[test]
fn a_single_voter_leads_without_a_tick_once_its_vote_is_durable() {
    let mut node = Node::start(&[]);
    assert!(!node.replica.is_leader() && node.roles.is_empty(), "its vote is not on disk yet");
    assert_eq!(node.replica.propose(Bytes::from_static(b"a")), Err(ProposeError::NotLeader { leader: None }));
    let (_, hard_state, entries) = &node.unsynced[0];
    assert_eq!(*hard_state, HardState { term: 1, vote: 7, commit: 0 });
    assert_eq!((entries.len(), entries[0].data.len()), (1, 0), "a leader begins with an empty entry");
    node.persist_all();
    assert!(node.replica.is_leader());
    assert_eq!(node.roles, [(Some(7), Epoch::new(1), true)]);
    // The empty entry is applied without being handed out.
    assert_eq!((node.applied.len(), node.replica.applied_log_index()), (0, 1));
}

#[test]
fn p1_nothing_is_committed_before_it_is_persisted() {
    let mut node = leader();
    node.propose("a");
    node.propose("b");
    for _ in 0..100 {
        node.replica.handle_tick();
        node.drain();
    }
    assert_eq!(node.applied(), [""; 0]);
    node.persist_one();
    assert_eq!(node.applied(), ["a"]);
    node.persist_one();
    assert_eq!(node.applied(), ["a", "b"]);
    assert_eq!(node.unsynced.len(), 0, "a new commit index alone is not worth an fsync");
}

#[test]
fn proposals_made_together_share_one_append_and_come_back_as_the_same_bytes() {
    let mut node = leader();
    let data = Bytes::from(vec![b'x'; 1000]);
    let first = node.replica.propose(data.clone()).unwrap();
    let second = node.replica.propose(data.slice(1..)).unwrap();
    assert_eq!((first.log_index, first.epoch, second.log_index), (2, Epoch::new(1), 3));
    node.drain();
    assert_eq!(node.unsynced.len(), 1);
    assert_eq!(node.unsynced[0].2[0].data.as_ptr(), data.as_ptr(), "no copy on the way to the journal");
    node.persist_all();
    assert_eq!(node.applied[0].as_ptr(), data.as_ptr(), "nor on the way to the state machine");
}

#[test]
fn p1_a_proposal_that_was_never_persisted_is_never_committed() {
    let mut node = leader();
    node.propose("kept");
    node.persist_all();
    node.propose("lost");
    let mut node = Node::start(&node.journal);
    node.persist_all();
    node.propose("later");
    node.persist_all();
    assert_eq!(node.applied(), ["kept", "later"]);
}

#[test]
fn every_cut_and_every_checkpoint_give_the_same_log_once() {
    // Three lives with a crash between them; every journal is then cut behind every batch and recovered from every
    // checkpoint it could have had. What was persisted is applied once, in order; the rest never.
    let mut journal = Vec::new();
    for life in 0..3 {
        let mut node = Node::start(&journal);
        node.persist_all();
        for n in 0..4 {
            node.propose(&format!("{life}.{n}"));
            if n % 2 == 1 {
                node.persist_all();
            }
        }
        node.propose("lost");
        journal = node.journal.clone();
    }
    assert!(journal.len() > 9);
    for cut in 0..=journal.len() {
        let journal = &journal[..cut];
        let log: Vec<&Entry> = journal.iter().flat_map(|(_, entries)| entries).collect();
        for applied in 0..=log.len() as u64 {
            let epoch = log.get((applied as usize).wrapping_sub(1)).map_or(Epoch::ZERO, |entry| entry.epoch());
            let mut node = Node::start_from_checkpoint(journal, applied, epoch);
            node.persist_all();
            let expected: Vec<&Bytes> =
                log.iter().filter(|e| e.log_index > applied && !e.data.is_empty()).map(|e| &e.data).collect();
            assert_eq!(node.applied.iter().collect::<Vec<_>>(), expected, "cut {cut}, checkpoint {applied}");
            assert_eq!(node.replica.applied_log_index(), log.len() as u64 + 1);
            let last = log.last().map_or(0, |entry| entry.term);
            assert_eq!(node.replica.epoch(), Epoch::new(last + 1), "P10: a new life has a new epoch");
        }
    }
}

#[test]
fn a_checkpoint_taken_by_the_replica_recovers_with_the_journal_behind_it() {
    let mut node = leader();
    node.propose("a");
    node.persist_all();
    let (applied, epoch) = (node.replica.applied_log_index(), node.replica.applied_epoch());
    let head = node.journal.last().unwrap().0;
    node.propose("b");
    node.persist_all();
    // The files before the checkpoint are gone; the next one opens with the hard state.
    let mut journal = vec![(head, vec![])];
    journal.push(node.journal.last().unwrap().clone());
    let mut node = Node::start_from_checkpoint(&journal, applied, epoch);
    node.persist_all();
    assert_eq!(node.applied(), ["b"]);
}

#[test]
fn a_read_is_answered_after_everything_committed_before_it_is_applied() {
    let mut node = leader();
    node.replica.request_read(1).unwrap();
    node.drain();
    assert_eq!(node.reads, [(1, 1)], "the leader's empty entry holds up no read");
    node.propose("a");
    let (ready_number, ..) = node.unsynced.remove(0);
    node.replica.handle_persisted(ready_number);
    let Some(Output::Committed { entries }) = node.replica.poll_output() else { panic!("a is committed") };
    node.replica.request_read(2).unwrap();
    node.drain();
    assert_eq!(node.reads.len(), 1, "a is committed and not applied");
    node.replica.handle_applied(entries[0].log_index);
    node.drain();
    assert_eq!(node.reads, [(1, 1), (2, 2)]);
}

#[test]
fn too_much_uncommitted_is_pushed_back_and_taken_again_later() {
    let mut node = leader();
    let large = Bytes::from(vec![0; 40 << 20]);
    node.replica.propose(large.clone()).unwrap();
    assert_eq!(node.replica.propose(large.clone()), Err(ProposeError::Dropped));
    node.drain();
    node.persist_all();
    assert!(node.replica.propose(large).is_ok());
}

#[test]
#[should_panic(expected = "is called persisted")]
fn an_fsync_that_nobody_asked_for_is_fatal() {
    leader().replica.handle_persisted(99);
}

#[test]
#[should_panic(expected = "passes delivered")]
fn applying_what_was_not_handed_out_is_fatal() {
    leader().replica.handle_applied(2);
}
