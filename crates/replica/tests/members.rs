//! A member whose data is lost is replaced by a later life of it: who counts when, who is heard, and what is left when a leader goes in
//! the middle. Disks are at once here; who talks to whom is chosen.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use mortarmq_replica::{
    Change, ChangeError, Entry, HardState, MemberRole, Membership, Output, ProposeError, Replica, ReplicaConfig,
};
use raft::eraftpb::MessageType;

const A: u64 = 1 << 32 | 1;
const B: u64 = 2 << 32 | 1;
const OLD: u64 = 3 << 32 | 1;
const NEW: u64 = 3 << 32 | 900;

struct Member {
    replica: Replica,
    journal: Vec<(HardState, Vec<Entry>)>,
    applied: Vec<Bytes>,
    /// Whether what it appends gets to its disk.
    disk_works: bool,
}

#[derive(Default)]
struct Group {
    members: BTreeMap<u64, Member>,
    /// Between these nothing is carried, in this direction.
    cut: BTreeSet<(u64, u64)>,
    /// Kinds that are lost on the way, and from whom.
    lost: Vec<(u64, MessageType)>,
}

fn config(id: u64, members: Membership) -> ReplicaConfig {
    let place = (id >> 32) as usize - 1;
    ReplicaConfig { members, places: 3, ..ReplicaConfig::new(id, vec![A, B, OLD], place) }
}

fn first() -> Membership {
    Membership::new(vec![A, B, OLD], vec![])
}

/// What a later life of the third begins with.
fn of_new() -> Membership {
    Membership::new(vec![A, B], vec![NEW])
}

impl Group {
    fn three() -> Self {
        let mut group = Self::default();
        [A, B, OLD].into_iter().for_each(|id| group.start(id, first(), Vec::new()));
        group.ticks(60);
        group
    }

    fn start(&mut self, id: u64, members: Membership, journal: Vec<(HardState, Vec<Entry>)>) {
        let mut recovery = Replica::recover_begin(config(id, members)).unwrap();
        let mut applied = Vec::new();
        for (hard_state, entries) in &journal {
            applied.extend(recovery.handle_batch(*hard_state, entries.clone()).unwrap().into_iter().map(|e| e.data));
        }
        let replica = recovery.finish().unwrap();
        self.members.insert(id, Member { replica, journal, applied, disk_works: true });
    }

    /// The process dies, and begins again with what is on its disk.
    fn restart(&mut self, id: u64, members: Membership) {
        let journal = self.members.remove(&id).unwrap().journal;
        self.start(id, members, journal);
    }

    fn isolate(&mut self, id: u64) {
        for other in [A, B, OLD, NEW] {
            self.cut.extend([(id, other), (other, id)]);
        }
    }

    fn ticks(&mut self, count: usize) {
        for _ in 0..count {
            self.members.values_mut().for_each(|member| member.replica.handle_tick());
            self.settle();
        }
    }

    /// Carries everything until nobody has anything to say.
    fn settle(&mut self) {
        loop {
            let mut said = Vec::new();
            for (id, member) in &mut self.members {
                while let Some(output) = member.replica.poll_output() {
                    match output {
                        Output::Append { ready_number, hard_state, entries } if member.disk_works => {
                            member.journal.push((hard_state, entries));
                            member.replica.handle_persisted(ready_number);
                        }
                        Output::Committed { entries } => {
                            let last = entries.last().unwrap().log_index;
                            member.applied.extend(entries.into_iter().map(|entry| entry.data));
                            member.replica.handle_applied(last);
                        }
                        Output::Send { to, message } => said.push((*id, to, message)),
                        Output::Append { .. } | Output::ReadReady { .. } | Output::Role { .. } => {}
                    }
                    member.replica.check();
                }
            }
            if said.is_empty() {
                return;
            }
            for (from, to, message) in said {
                let is_lost =
                    self.cut.contains(&(from, to)) || self.lost.contains(&(from, message.as_raft().get_msg_type()));
                if let Some(member) = self.members.get_mut(&to).filter(|_| !is_lost) {
                    member.replica.handle_message(message);
                }
            }
        }
    }

    fn leader(&self) -> Option<u64> {
        let leads = |(id, member): (&u64, &Member)| member.replica.is_leader().then_some(*id);
        // One that is cut off may think so for a while.
        let epoch = |id: &u64| self.members[id].replica.epoch();
        self.members.iter().filter_map(leads).max_by_key(epoch)
    }

    fn of(&mut self, id: u64) -> &mut Replica {
        &mut self.members.get_mut(&id).unwrap().replica
    }

    fn publish(&mut self, id: u64, text: &'static str) -> bool {
        let proposed = self.of(id).propose(Bytes::from_static(text.as_bytes()));
        self.settle();
        self.has(id, text) && proposed.is_ok()
    }

    fn has(&self, id: u64, text: &str) -> bool {
        self.members[&id].applied.iter().any(|data| data == text.as_bytes())
    }

    /// The third loses its data, and a later life of it is admitted; `A` leads.
    fn admitted(&mut self) {
        self.members.remove(&OLD);
        self.of(A).propose_change(Change::Replace { old: OLD, new: NEW }).unwrap();
        self.settle();
        self.ticks(3);
    }
}

#[test]
fn rule_4_a_new_life_is_brought_up_and_counts_only_once_it_is_promoted() {
    let mut group = Group::three();
    assert_eq!(group.leader(), Some(A));
    assert!(group.publish(A, "before"));
    group.admitted();
    assert_eq!(*group.of(A).members(), of_new());
    group.start(NEW, of_new(), Vec::new());
    group.ticks(5);
    assert!(group.has(NEW, "before"), "the log from its beginning");
    // Its acknowledgement is none: with one voter cut off nothing is committed.
    group.isolate(B);
    assert!(!group.publish(A, "with a learner"));
    assert!(group.of(A).ticks_without_majority() < 6);
    group.ticks(5);
    assert!(group.of(A).ticks_without_majority() >= 5, "a learner is no part of a majority");
    group.cut.clear();
    group.ticks(3);
    assert!(group.has(B, "with a learner") && group.has(NEW, "with a learner"));
    let leader = group.leader().unwrap();
    group.of(leader).propose_change(Change::Promote { id: NEW }).unwrap();
    group.settle();
    group.ticks(3);
    for id in [A, B, NEW] {
        assert_eq!(*group.of(id).members(), Membership::new(vec![A, B, NEW], vec![]));
    }
    let other = if leader == A { B } else { A };
    group.isolate(other);
    assert!(group.publish(leader, "with a voter"), "two of three");
}

#[test]
fn rule_4_a_learner_stands_for_no_election_and_nobody_asks_for_its_vote() {
    let mut group = Group::three();
    group.admitted();
    group.start(NEW, of_new(), Vec::new());
    group.ticks(5);
    group.isolate(A);
    group.ticks(100);
    assert!(group.members.values().all(|member| !member.replica.is_leader()), "one of two voters elects nobody");
    let epoch = group.of(B).epoch();
    assert_eq!(group.of(NEW).members().role(NEW), Some(MemberRole::Learner));
    assert!(group.of(NEW).epoch() <= epoch);
    group.cut.clear();
    group.ticks(60);
    assert!(group.leader().is_some_and(|leader| leader != NEW));
}

#[test]
fn rule_4_the_old_life_is_heard_no_more_when_its_disk_comes_back() {
    let mut group = Group::three();
    let old = group.members.remove(&OLD).unwrap().journal;
    group.of(A).propose_change(Change::Replace { old: OLD, new: NEW }).unwrap();
    group.settle();
    group.ticks(3);
    let (epoch, journal) = (group.of(A).epoch(), old.len());
    group.start(OLD, first(), old);
    group.ticks(200);
    assert_eq!((group.leader(), group.of(A).epoch()), (Some(A), epoch), "it disturbs nobody");
    assert!(group.members[&OLD].journal.len() <= journal + 1 && !group.members[&OLD].replica.is_leader());
    // Nor does its vote help one that is alone.
    group.isolate(A);
    group.ticks(100);
    assert!(!group.of(B).is_leader() && !group.of(OLD).is_leader());
}

#[test]
fn the_change_goes_on_under_another_leader_and_survives_restarts() {
    let mut group = Group::three();
    group.admitted();
    group.start(NEW, of_new(), Vec::new());
    group.ticks(5);
    group.of(A).hand_over(Some(B)).unwrap();
    group.ticks(10);
    assert_eq!(group.leader(), Some(B));
    assert!(group.of(B).followers().iter().any(|follower| follower.id == NEW && follower.learns));
    assert!(group.of(B).hand_over(Some(NEW)).is_err(), "a learner cannot lead");
    group.restart(A, first());
    group.restart(NEW, of_new());
    group.ticks(30);
    assert_eq!(*group.of(A).members(), of_new(), "from the journal");
    group.of(B).propose_change(Change::Promote { id: NEW }).unwrap();
    group.settle();
    group.ticks(3);
    [A, B].into_iter().for_each(|id| group.restart(id, first()));
    group.restart(NEW, of_new());
    group.ticks(60);
    assert_eq!(*group.of(NEW).members(), Membership::new(vec![A, B, NEW], vec![]));
    group.isolate(A);
    group.ticks(60);
    assert!(group.leader().is_some_and(|leader| leader != A), "without the one that admitted it");
}

#[test]
fn p12_a_promotion_is_called_known_only_once_the_others_could_elect_somebody_without_the_leader() {
    let mut group = Group::three();
    group.admitted();
    group.start(NEW, of_new(), Vec::new());
    group.ticks(5);
    assert!(group.of(A).is_change_known() || group.publish(A, "something"));
    // Both acknowledge the promotion, and then hear nothing more of it.
    group.of(A).propose_change(Change::Promote { id: NEW }).unwrap();
    while let Some(output) = group.of(A).poll_output() {
        match output {
            Output::Append { ready_number, hard_state, entries } => {
                group.members.get_mut(&A).unwrap().journal.push((hard_state, entries));
                group.of(A).handle_persisted(ready_number);
            }
            Output::Send { to, message } => {
                let found = group.members.get_mut(&to).unwrap();
                found.replica.handle_message(message);
            }
            _ => {}
        }
    }
    group.cut.extend([(A, B), (A, NEW)]);
    group.settle();
    assert_eq!(group.of(A).members().voters().len(), 3, "committed and applied by the leader");
    assert!(!group.of(A).is_change_known());
    let mut without = group;
    without.isolate(A);
    without.ticks(100);
    assert_eq!(without.leader().filter(|id| *id != A), None, "had its disk been lost now, nobody could be elected");
    // The same again, and the others hear of it.
    let mut group = without;
    group.cut.clear();
    group.ticks(60);
    let leader = group.leader().unwrap();
    assert!(group.publish(leader, "behind it"));
    group.ticks(3);
    assert!(group.of(leader).is_change_known());
    group.isolate(leader);
    let rest: Vec<u64> = [A, B, NEW].into_iter().filter(|id| *id != leader).collect();
    // Even if their processes die as well.
    for id in &rest {
        group.restart(*id, if *id == NEW { of_new() } else { first() });
    }
    group.ticks(100);
    assert!(rest.iter().any(|id| group.of(*id).is_leader()));
}

#[test]
fn a_change_that_does_not_fit_or_comes_too_early_enters_no_log() {
    let mut group = Group::three();
    let replace = Change::Replace { old: OLD, new: NEW };
    let not_leader = ChangeError::Propose(ProposeError::NotLeader { leader: Some(A) });
    assert_eq!(group.of(B).propose_change(replace), Err(not_leader));
    assert_eq!(group.of(A).propose_change(Change::Promote { id: NEW }), Err(ChangeError::Members));
    let itself = Change::Replace { old: A, new: A + 1 };
    assert_eq!(group.of(A).propose_change(itself), Err(ChangeError::Members));
    let earlier = Change::Replace { old: OLD, new: OLD - 1 };
    assert_eq!(group.of(A).propose_change(earlier), Err(ChangeError::Members));
    assert!(group.of(A).has_majority_without(OLD, 6));
    group.isolate(B);
    group.ticks(6);
    assert!(!group.of(A).has_majority_without(OLD, 6), "the two that would be left do not hear one another");
    group.of(A).propose_change(replace).unwrap();
    assert_eq!(group.of(A).propose_change(replace), Err(ChangeError::UnderWay));
}
