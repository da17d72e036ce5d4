use bytes::Bytes;
use mortarmq_types::Epoch;

use super::{Recovery, RecoveryError};
use crate::config::ReplicaConfig;
use crate::entry::{Entry, EntryKind, HardState};
use crate::membership::{Change, Membership};

fn entry(log_index: u64, term: u64) -> Entry {
    let data = Bytes::from(format!("{log_index}/{term}"));
    Entry { log_index, term, kind: EntryKind::Normal, data }
}

fn empty(log_index: u64, term: u64) -> Entry {
    Entry { data: Bytes::new(), ..entry(log_index, term) }
}

fn hard(term: u64, commit: u64) -> HardState {
    HardState { term, vote: 1, commit }
}

/// One of three voters, so that the tail is kept and nothing campaigns.
fn recovery(applied: u64, epoch: u64) -> Recovery {
    let mut config = ReplicaConfig::new(1, vec![1, 2, 3], 0);
    (config.applied, config.applied_epoch) = (applied, Epoch::new(epoch));
    Recovery::begin(config).unwrap()
}

fn indexes(entries: &[Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.log_index).collect()
}

#[test]
fn committed_entries_are_handed_out_once_and_empty_ones_only_counted() {
    let mut recovery = recovery(0, 0);
    assert_eq!(indexes(&recovery.handle_batch(hard(1, 0), vec![empty(1, 1), entry(2, 1)]).unwrap()), []);
    assert_eq!(indexes(&recovery.handle_batch(hard(1, 2), vec![entry(3, 1)]).unwrap()), [2]);
    assert_eq!(indexes(&recovery.handle_batch(hard(1, 3), vec![]).unwrap()), [3]);
    let replica = recovery.finish().unwrap();
    assert_eq!((replica.applied_log_index(), replica.last_log_index(), replica.epoch()), (3, 3, Epoch::new(1)));
}

#[test]
fn a_later_entry_replaces_the_uncommitted_suffix() {
    let mut recovery = recovery(0, 0);
    let first = vec![entry(1, 1), entry(2, 1), entry(3, 1), entry(4, 1)];
    assert_eq!(indexes(&recovery.handle_batch(hard(1, 1), first).unwrap()), [1]);
    let committed = recovery.handle_batch(hard(2, 3), vec![entry(2, 2), entry(3, 2)]).unwrap();
    assert_eq!(committed, [entry(2, 2), entry(3, 2)]);
    assert_eq!(recovery.finish().unwrap().last_log_index(), 3);
}

#[test]
fn two_appends_in_one_batch_may_replace_each_other() {
    let mut recovery = recovery(0, 0);
    let batch = vec![entry(1, 1), entry(2, 1), entry(2, 2)];
    assert_eq!(recovery.handle_batch(hard(2, 2), batch).unwrap(), [entry(1, 1), entry(2, 2)]);
}

#[test]
fn the_checkpoint_covers_what_lies_below_it() {
    let mut recovery = recovery(3, 1);
    let batch = vec![entry(2, 1), entry(3, 1), entry(4, 1)];
    assert_eq!(indexes(&recovery.handle_batch(hard(1, 4), batch).unwrap()), [4]);
    let replica = recovery.finish().unwrap();
    assert_eq!((replica.applied_log_index(), replica.committed_log_index()), (4, 4));
}

#[test]
fn the_checkpoint_proves_as_committed_what_the_last_hard_state_did_not_record() {
    let mut recovery = recovery(3, 1);
    let batch = vec![entry(2, 1), entry(3, 1), entry(4, 1)];
    assert_eq!(indexes(&recovery.handle_batch(hard(1, 0), batch).unwrap()), []);
    let replica = recovery.finish().unwrap();
    assert_eq!((replica.applied_log_index(), replica.committed_log_index(), replica.last_log_index()), (3, 3, 4));
}

#[test]
fn a_journal_that_begins_in_the_middle_may_still_go_back_below_its_first_entry() {
    // Entry 5 of term 1 was replaced from 4 on before anything of it was committed; the older files are gone.
    let mut recovery = recovery(6, 2);
    recovery.handle_batch(hard(1, 3), vec![entry(5, 1), entry(6, 1)]).unwrap();
    recovery.handle_batch(hard(2, 3), vec![entry(4, 2), entry(5, 2), entry(6, 2)]).unwrap();
    assert_eq!(indexes(&recovery.handle_batch(hard(2, 7), vec![entry(7, 2)]).unwrap()), [7]);
    assert_eq!(recovery.finish().unwrap().applied_epoch(), Epoch::new(2));
}

#[test]
fn a_journal_may_begin_with_a_suffix_that_was_replaced_from_below_the_checkpoint() {
    // Found by the cluster test, seed 106: 209 of term 5 was written behind an entry 208 that was then replaced, and
    // the checkpoint stands at the new 208. The files before are gone. 210 is the same, one entry further.
    for stale in [209, 210] {
        let mut recovery = recovery(208, 6);
        recovery.handle_batch(hard(5, 200), vec![entry(stale, 5)]).unwrap();
        let batch = vec![entry(208, 6), entry(209, 6)];
        assert_eq!(recovery.handle_batch(hard(6, 209), batch).unwrap(), [entry(209, 6)]);
        assert_eq!(recovery.finish().unwrap().applied_log_index(), 209);
    }
    // What is never replaced has to meet the checkpoint.
    let mut stale = recovery(208, 6);
    stale.handle_batch(hard(6, 200), vec![entry(209, 5)]).unwrap();
    assert!(matches!(stale.finish(), Err(RecoveryError::Term { log_index: 209, term: 5 })));
    let mut gap = recovery(208, 6);
    gap.handle_batch(hard(6, 200), vec![entry(210, 6)]).unwrap();
    assert!(matches!(gap.finish(), Err(RecoveryError::Gap { expected: 209, found: 210 })));
    let mut gap = recovery(208, 6);
    let committed = gap.handle_batch(hard(6, 210), vec![entry(210, 6)]);
    assert!(matches!(committed, Err(RecoveryError::Gap { expected: 209, found: 210 })));
}

#[test]
fn an_empty_journal_behind_a_checkpoint_needs_only_its_hard_state() {
    let mut with_head = recovery(6, 2);
    with_head.handle_batch(hard(4, 6), vec![]).unwrap();
    let replica = with_head.finish().unwrap();
    assert_eq!((replica.epoch(), replica.last_log_index(), replica.applied_epoch().get()), (Epoch::new(4), 6, 2));
    // Without one it could vote a second time in a term it has voted in.
    assert!(matches!(recovery(6, 2).finish(), Err(RecoveryError::HardStateMissing { .. })));
}

#[test]
fn p11_a_journal_that_no_replica_wrote_is_refused() {
    let fed = |batches: &[(HardState, &[Entry])]| {
        let mut recovery = recovery(0, 0);
        batches.iter().find_map(|(state, entries)| recovery.handle_batch(*state, entries.to_vec()).err())
    };
    let two: &[Entry] = &[entry(1, 1), entry(2, 2)];
    for impossible in [0, u64::MAX] {
        assert!(matches!(fed(&[(hard(1, 0), &[entry(impossible, 1)])]), Some(RecoveryError::Gap { .. })));
    }
    assert!(matches!(
        fed(&[(hard(1, 0), &[entry(1, 1), entry(3, 1)])]),
        Some(RecoveryError::Gap { expected: 2, found: 3 })
    ));
    assert!(matches!(fed(&[(hard(1, 0), two)]), Some(RecoveryError::Term { log_index: 2, term: 2 })));
    assert!(matches!(
        fed(&[(hard(2, 0), two), (hard(2, 0), &[entry(3, 1)])]),
        Some(RecoveryError::Term { log_index: 3, term: 1 })
    ));
    assert!(matches!(
        fed(&[(hard(2, 2), two), (hard(3, 2), &[entry(2, 3)])]),
        Some(RecoveryError::OverwritesCommitted { log_index: 2 })
    ));
    assert!(matches!(fed(&[(hard(2, 3), two)]), Some(RecoveryError::CommitAhead { commit: 3, last: 2 })));
    for after in [hard(1, 2), hard(2, 1), HardState { vote: 3, ..hard(2, 2) }] {
        assert!(matches!(fed(&[(hard(2, 2), two), (after, &[])]), Some(RecoveryError::HardStateWentBack { .. })));
    }
    let change = Entry { kind: EntryKind::ConfChange, ..entry(1, 1) };
    assert!(matches!(fed(&[(hard(1, 0), &[change])]), Some(RecoveryError::MembershipChange { log_index: 1 })));
}

#[test]
fn p11_a_checkpoint_of_another_history_is_refused() {
    let batch = || vec![entry(1, 1), entry(2, 1), entry(3, 1)];
    let mut other = recovery(2, 5);
    other.handle_batch(hard(5, 0), batch()).unwrap();
    assert!(matches!(other.finish(), Err(RecoveryError::NotTheCheckpoint { applied: 2, .. })));
    // Also where a single voter forgets the entry as soon as it is handed out.
    let config = ReplicaConfig { applied: 2, applied_epoch: Epoch::new(5), ..ReplicaConfig::new(1, vec![1], 0) };
    let mut single = Recovery::begin(config).unwrap();
    assert!(matches!(
        single.handle_batch(hard(5, 3), batch()),
        Err(RecoveryError::NotTheCheckpoint { applied: 2, .. })
    ));
    let mut short = recovery(4, 1);
    short.handle_batch(hard(1, 0), batch()).unwrap();
    assert!(matches!(short.finish(), Err(RecoveryError::EndsBeforeCheckpoint { applied: 4, last: 3 })));
    let mut behind = recovery(1, 1);
    behind.handle_batch(hard(1, 0), vec![entry(3, 1)]).unwrap();
    assert!(matches!(behind.finish(), Err(RecoveryError::Gap { expected: 2, found: 3 })));
}

fn snapshot(log_index: u64, term: u64) -> Entry {
    Entry { log_index, term, kind: EntryKind::Snapshot, data: Bytes::new() }
}

#[test]
fn the_log_begins_anew_behind_an_installed_checkpoint() {
    let mut recovery = recovery(10, 3);
    assert_eq!(recovery.handle_batch(hard(1, 2), vec![entry(1, 1), entry(2, 1), entry(3, 1)]).unwrap(), []);
    assert_eq!(recovery.handle_batch(hard(3, 10), vec![snapshot(10, 3)]).unwrap(), []);
    assert_eq!(indexes(&recovery.handle_batch(hard(3, 11), vec![entry(11, 3), entry(12, 3)]).unwrap()), [11]);
    assert_eq!(recovery.begin_at_checkpoint().unwrap(), None, "the journal says so");
    let replica = recovery.finish().unwrap();
    assert_eq!((replica.applied_log_index(), replica.last_log_index(), replica.base_log_index()), (11, 12, 10));
}

#[test]
fn an_install_that_was_cut_before_the_journal_knew_keeps_term_and_vote() {
    let mut recovery = recovery(10, 3);
    // What another leader's suffix left at and above the checkpoint is no part of the log.
    let former: Vec<Entry> = (1..=12).map(|index| entry(index, 2)).collect();
    recovery.handle_batch(hard(2, 2), former).unwrap();
    recovery.handle_batch(HardState { term: 4, vote: 2, commit: 2 }, vec![]).unwrap();
    let begun = recovery.begin_at_checkpoint().unwrap();
    assert_eq!(begun, Some((HardState { term: 4, vote: 2, commit: 10 }, snapshot(10, 3))));
    let replica = recovery.finish().unwrap();
    assert_eq!((replica.applied_log_index(), replica.last_log_index(), replica.epoch()), (10, 10, Epoch::new(4)));
}

#[test]
fn a_journal_that_does_not_fit_an_install_is_refused() {
    let refused = recovery(10, 3).handle_batch(hard(3, 11), vec![snapshot(11, 3)]);
    assert!(matches!(refused, Err(RecoveryError::Gap { .. })), "its checkpoint is gone: {refused:?}");
    let mut behind = recovery(10, 3);
    behind.handle_batch(hard(3, 5), (1..=5).map(|index| entry(index, 3)).collect()).unwrap();
    let refused = behind.handle_batch(hard(3, 5), vec![snapshot(4, 3)]);
    assert!(matches!(refused, Err(RecoveryError::OverwritesCommitted { log_index: 4 })), "{refused:?}");
    let mut older = recovery(10, 3);
    older.handle_batch(hard(2, 0), vec![entry(1, 2)]).unwrap();
    assert!(matches!(older.begin_at_checkpoint(), Err(RecoveryError::HardStateMissing { term: 2, .. })));
    let mut other = recovery(10, 3);
    other.handle_batch(hard(3, 10), vec![snapshot(10, 2)]).unwrap_err();
}

/// Lives of the third node of three.
const OLD: u64 = 3 << 32 | 1;
const NEW: u64 = 3 << 32 | 9;

fn change(log_index: u64, term: u64, change: Change) -> Entry {
    Entry { kind: EntryKind::ConfChange, data: change.encode(), ..entry(log_index, term) }
}

fn replaced(log_index: u64, term: u64) -> Entry {
    change(log_index, term, Change::Replace { old: OLD, new: NEW })
}

fn with_lives(applied: u64, members: Membership) -> Recovery {
    let mut config = ReplicaConfig::new(1 << 32 | 1, vec![1 << 32 | 1, 2 << 32 | 1, OLD], 0);
    (config.applied, config.applied_epoch, config.members) = (applied, Epoch::new(u64::from(applied > 0)), members);
    Recovery::begin(config).unwrap()
}

fn first() -> Membership {
    Membership::new(vec![1 << 32 | 1, 2 << 32 | 1, OLD], vec![])
}

fn with_learner() -> Membership {
    Membership::new(vec![1 << 32 | 1, 2 << 32 | 1], vec![NEW])
}

#[test]
fn rule_4_a_start_takes_the_checkpoints_members_and_the_committed_changes_behind_it() {
    let mut recovery = with_lives(0, first());
    recovery.handle_batch(hard(1, 1), vec![entry(1, 1), replaced(2, 1), entry(3, 1)]).unwrap();
    assert_eq!(*recovery.members(), first(), "it is not known to be committed");
    let handed_out = recovery.handle_batch(hard(1, 2), vec![]).unwrap();
    assert_eq!((indexes(&handed_out), recovery.members()), (vec![2], &with_learner()));
    let replica = recovery.finish().unwrap();
    replica.check();
    assert_eq!((replica.members(), replica.changed_at()), (&with_learner(), 2));
    // From a checkpoint behind it, the entry that the journal still holds changes nothing more.
    let mut recovery = with_lives(2, with_learner());
    let promoted = change(4, 1, Change::Promote { id: NEW });
    let batch = vec![entry(1, 1), replaced(2, 1), entry(3, 1), promoted];
    assert_eq!(indexes(&recovery.handle_batch(hard(1, 4), batch).unwrap()), [3, 4]);
    let replica = recovery.finish().unwrap();
    assert_eq!((replica.members().voters().len(), replica.promoted()), (3, Some(NEW)));
}

#[test]
fn p1_a_change_that_another_leaders_entry_replaced_was_none() {
    let mut recovery = with_lives(0, first());
    recovery.handle_batch(hard(1, 0), vec![entry(1, 1), replaced(2, 1)]).unwrap();
    recovery.handle_batch(hard(2, 2), vec![entry(2, 2)]).unwrap();
    assert_eq!(*recovery.finish().unwrap().members(), first());
}

#[test]
fn p1_a_change_that_is_not_known_to_be_committed_is_in_the_log_and_takes_effect_once_it_is() {
    let mut recovery = with_lives(0, first());
    recovery.handle_batch(hard(1, 0), vec![entry(1, 1), replaced(2, 1)]).unwrap();
    let replica = recovery.finish().unwrap();
    assert_eq!((replica.members(), replica.last_log_index()), (&first(), 2));
    replica.check();
}
