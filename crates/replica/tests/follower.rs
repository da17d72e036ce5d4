//! One of three voters, spoken to by hand: persist, then speak (failure rule 1), and what it does not listen to.

use bytes::Bytes;
use mortarmq_replica::{EntryKind, Limits, Membership, Output, PeerMessage, ProposeError, Replica, ReplicaConfig};
use mortarmq_types::Epoch;
use raft::eraftpb::{Entry, Message, MessageType};

fn three() -> Membership {
    Membership::new(vec![1, 2, 3], vec![])
}

fn follower(limits: Limits) -> Replica {
    let config = ReplicaConfig { limits, ..ReplicaConfig::new(2, vec![1, 2, 3], 1) };
    Replica::recover_begin(config).unwrap().finish().unwrap()
}

fn message(kind: MessageType, from: u64, to: u64) -> Message {
    let mut message = Message { from, to, term: 1, ..Message::default() };
    message.set_msg_type(kind);
    message
}

/// An append by leader 1 in epoch 1 of one entry behind `previous`.
fn append(previous: u64, bytes: usize) -> PeerMessage {
    let entry = Entry { index: previous + 1, term: 1, data: vec![b'x'; bytes].into(), ..Entry::default() };
    let log_term = u64::from(previous > 0);
    let mut append = Message { index: previous, log_term, ..message(MessageType::MsgAppend, 1, 2) };
    append.set_entries(vec![entry].into());
    PeerMessage::new(append).unwrap()
}

fn heartbeat(commit: u64) -> PeerMessage {
    PeerMessage::new(Message { commit, ..message(MessageType::MsgHeartbeat, 1, 2) }).unwrap()
}

/// Everything put out: what was said, the numbers of the appends, and how many entries came out as committed.
fn drain(replica: &mut Replica) -> (Vec<MessageType>, Vec<u64>, usize) {
    let (mut said, mut appends, mut committed) = (vec![], vec![], 0);
    while let Some(output) = replica.poll_output() {
        match output {
            Output::Send { to, message } => {
                assert_eq!(to, message.to());
                said.push(message.as_raft().get_msg_type());
            }
            Output::Append { ready_number, .. } => appends.push(ready_number),
            Output::Committed { entries } => {
                committed += entries.len();
                replica.handle_applied(entries.last().unwrap().log_index);
            }
            Output::ReadReady { .. } | Output::Role { .. } => {}
        }
    }
    replica.check();
    (said, appends, committed)
}

#[test]
fn rule_1_an_append_is_acknowledged_and_applied_only_once_it_is_persisted() {
    let mut replica = follower(Limits::default());
    replica.handle_message(append(0, 10));
    let (said, appends, _) = drain(&mut replica);
    assert_eq!((said, appends.len()), (vec![], 1));
    // Committed by the two others; the answer to the heartbeat waits too, for it comes after the append.
    replica.handle_message(heartbeat(1));
    assert_eq!(drain(&mut replica), (vec![], vec![], 0));
    replica.handle_persisted(appends[0]);
    let answers = vec![MessageType::MsgAppendResponse, MessageType::MsgHeartbeatResponse];
    assert_eq!(drain(&mut replica), (answers, vec![], 1));
}

#[test]
fn rule_1_a_vote_leaves_only_once_it_is_persisted() {
    let mut replica = follower(Limits::default());
    replica.handle_message(PeerMessage::new(message(MessageType::MsgRequestVote, 3, 2)).unwrap());
    let (said, appends, _) = drain(&mut replica);
    assert_eq!((said, appends.len()), (vec![], 1));
    assert_eq!(replica.epoch(), Epoch::ZERO, "P10: an epoch is shown when it is durable");
    replica.handle_persisted(appends[0]);
    assert_eq!(drain(&mut replica).0, [MessageType::MsgRequestVoteResponse]);
    assert_eq!(replica.epoch(), Epoch::new(1));
}

#[test]
fn appends_beyond_what_the_disk_keeps_up_with_are_ignored_until_it_does() {
    let mut replica = follower(Limits { unsynced_bytes: 1000, ..Limits::default() });
    replica.handle_message(append(0, 2000));
    let (_, appends, _) = drain(&mut replica);
    replica.handle_message(append(1, 10));
    assert_eq!(drain(&mut replica).1, []);
    assert_eq!((replica.last_log_index(), replica.unsynced_bytes()), (1, 2000));
    replica.handle_persisted(appends[0]);
    drain(&mut replica);
    replica.handle_message(append(1, 10));
    assert_eq!((drain(&mut replica).1.len(), replica.last_log_index()), (1, 2));
}

#[test]
fn a_message_from_a_stranger_or_for_another_is_dropped() {
    let mut replica = follower(Limits::default());
    for (from, to) in [(4 << 32 | 1, 2), (1, 3), (2, 2)] {
        replica.handle_message(PeerMessage::new(message(MessageType::MsgHeartbeat, from, to)).unwrap());
    }
    assert_eq!(drain(&mut replica), (vec![], vec![], 0));
}

#[test]
fn a_follower_names_the_leader_and_takes_no_proposal() {
    let mut replica = follower(Limits::default());
    replica.handle_message(heartbeat(0));
    let (_, appends, _) = drain(&mut replica);
    replica.handle_persisted(appends[0]);
    assert_eq!(replica.propose(Bytes::from_static(b"a")), Err(ProposeError::NotLeader { leader: Some(1) }));
    assert_eq!(replica.request_read(1).unwrap_err().leader, Some(1));
    assert_eq!(drain(&mut replica).0, [MessageType::MsgHeartbeatResponse], "nothing is forwarded");
}

#[test]
fn a_voter_of_several_waits_for_its_time_out() {
    let mut replica = follower(Limits::default());
    // Place 1 of 3 in epoch 0: 650 ms.
    for _ in 0..12 {
        replica.handle_tick();
    }
    replica.campaign_now();
    assert_eq!(drain(&mut replica), (vec![], vec![], 0));
    replica.handle_tick();
    assert_eq!(drain(&mut replica).0, [MessageType::MsgRequestPreVote; 2]);
}

#[test]
fn rule_1_a_snapshot_is_applied_and_acknowledged_only_once_the_journal_knows() {
    let mut replica = follower(Limits::default());
    replica.handle_message(append(0, 10));
    let (_, appends, _) = drain(&mut replica);
    assert!(!replica.is_at_rest(), "an append is under way");
    replica.handle_persisted(appends[0]);
    replica.handle_message(heartbeat(1));
    assert_eq!(drain(&mut replica).2, 1);
    assert!(replica.is_at_rest() && replica.lacks(9, 1) && !replica.lacks(1, 1));
    assert!(replica.install(9, 1, &three()), "the log begins anew");
    let mut numbers = vec![];
    while let Some(output) = replica.poll_output() {
        match output {
            Output::Append { ready_number, hard_state, entries } => {
                assert_eq!(hard_state.commit, 9);
                assert_eq!(
                    entries.iter().map(|entry| (entry.log_index, entry.kind)).collect::<Vec<_>>(),
                    [(9, EntryKind::Snapshot)]
                );
                numbers.push(ready_number);
            }
            other => panic!("nothing is said or applied before: {other:?}"),
        }
    }
    assert_eq!((numbers.len(), replica.applied_log_index()), (1, 1));
    replica.handle_persisted(numbers[0]);
    assert_eq!(replica.applied_log_index(), 9);
    assert_eq!(drain(&mut replica).0, [MessageType::MsgAppendResponse], "now the leader knows");
    // What follows is appended behind it, and what is offered again is only acknowledged.
    replica.handle_message(append(9, 10));
    let (_, appends, _) = drain(&mut replica);
    replica.handle_persisted(appends[0]);
    assert_eq!((drain(&mut replica).0, replica.last_log_index()), (vec![MessageType::MsgAppendResponse], 10));
    assert!(!replica.install(9, 1, &three()));
    assert_eq!(drain(&mut replica).0, [MessageType::MsgAppendResponse]);
}
