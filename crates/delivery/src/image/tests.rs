//! Bytes that survive, bytes that are refused, and the bytes of version 1.

use bytes::{Bytes, BytesMut};
use mortarmq_types::{
    Attempt, Cause, ClusterTime, CommitIndex, DeliveryId, DropReason, Epoch, KeyHash, LeaseTime, MemberId, Position,
    Seq,
};

use super::{IMAGE_VERSION, ImageError, NUMBER_MAX, PathPartition};
use crate::{
    crowd::Waiting,
    entry::{Lease, State},
    lease::{DuePosition, Fact, Facts, Handed, LeaseLimits, LeaseRequest},
    moves::{MoveKind, Moving},
    redrive::Redriven,
    rules::{Grant, Now, Order, PathRules},
    runs::Kind,
    settle::{Settle, Settled},
    tenure::Granted,
};

struct Keys;

impl Facts for Keys {
    fn fact(&self, seq: Seq) -> Option<Fact> {
        Some(Fact { key_hash: KeyHash::new(seq.get() % 3), size_bytes: 10, expires_at_ms: 0 })
    }
}

const RULES: PathRules = PathRules {
    order: Order::Key,
    lease_ms: 1000,
    backoff_base_ms: 100,
    backoff_max_ms: 100,
    max_passed_over: 100,
    max_acked_ahead: 0,
    max_in_flight: 0,
    max_attempts: 0,
};
const NOW: Now = Now { cluster: ClusterTime::new(50), lease: LeaseTime::new(40) };
const LAST_SEQ: Seq = Seq::new(10);
const GRANTED_AT: Position = Position { epoch: Epoch::new(3), commit_index: CommitIndex::new(77) };

/// 1 to 9 were leased together; 2 and 4 are acked, 3 given back, 5 (and with it 8) nacked, 9 cannot be read, the rest is
/// leased.
fn path() -> PathPartition {
    let limits = LeaseLimits { messages: 9, bytes: 100, steps: 100, first_may_exceed_bytes: false };
    let request = LeaseRequest {
        member: MemberId::new(1),
        grant: Grant::Push,
        limits,
        may_pass_over: true,
        last_seq: LAST_SEQ,
        now: NOW,
        granted_at: GRANTED_AT,
        alone: false,
    };
    let (mut path, mut last_delivery_id) = (PathPartition::new(Seq::FIRST), DeliveryId::ZERO);
    path.lease(&request, &RULES, &Keys, &mut last_delivery_id, &mut Handed::default());
    let nack = Settle::Nack { delay_ms: 0 };
    let settles = [(2, Settle::Ack), (3, Settle::Release), (4, Settle::Ack), (5, nack), (9, Settle::Hold)];
    for (seq, how) in settles {
        path.settle(Seq::new(seq), DeliveryId::new(seq), how, &RULES, NOW, &mut Vec::new()).expect("it is leased");
    }
    path.check(LAST_SEQ);
    path
}

/// The same path, set back to its start; 6 was acked since, and a purge has just begun.
fn moved() -> PathPartition {
    let (mut path, id) = (path(), DeliveryId::new(6));
    let (moved, ended) = (&mut Vec::new(), &mut Vec::new());
    path.seek(Seq::FIRST, LAST_SEQ, &Keys, &mut 100, moved, ended).expect("nothing moves");
    path.settle(Seq::new(6), id, Settle::Ack, &RULES, NOW, ended).expect("it is leased");
    path.purge(LAST_SEQ, &Keys, &mut 0, moved, ended);
    path.check(LAST_SEQ);
    path
}

/// 1 is leased, and 4, 7 and 10 wait behind it, packed; 3 is acked and owed once more, as the path went back.
fn crowded() -> PathPartition {
    let (mut path, mut last_delivery_id) = (PathPartition::new(Seq::FIRST), DeliveryId::ZERO);
    for (member, messages) in [(1, 1), (2, 100)] {
        let request = LeaseRequest {
            member: MemberId::new(member),
            grant: Grant::Push,
            limits: LeaseLimits { messages, bytes: 1000, steps: 100, first_may_exceed_bytes: false },
            may_pass_over: true,
            last_seq: LAST_SEQ,
            now: NOW,
            granted_at: GRANTED_AT,
            alone: false,
        };
        path.lease(&request, &RULES, &Keys, &mut last_delivery_id, &mut Handed::default());
    }
    path.settle(Seq::new(3), DeliveryId::new(3), Settle::Ack, &RULES, NOW, &mut Vec::new()).expect("it is leased");
    path.seek(Seq::FIRST, LAST_SEQ, &Keys, &mut 100, &mut Vec::new(), &mut Vec::new()).expect("nothing moves");
    for (seq, expires_at_ms, due, is_replay) in [(4, 0, 0, true), (7, 5000, 0, false), (10, 9000, 0, false)] {
        let waiting = path.packed.take(Seq::new(seq)).expect("it is packed");
        let fact = Fact { expires_at_ms, ..waiting.fact };
        path.packed.insert(Waiting { fact, due: ClusterTime::new(due), is_replay, ..waiting });
    }
    path.check(LAST_SEQ);
    assert_eq!(path.packed(), 3);
    path
}

/// The same path: 4, which was acked, is dead instead, and was brought back; 12 was dropped before it could be offered.
fn redriven() -> PathPartition {
    let mut path = path();
    (path.delivered, path.dlq) = (path.delivered - 1, 1);
    let (seq, previous, source) = (Seq::new(4), DeliveryId::new(4), Seq::new(2));
    let redriven = Redriven { seq, key_hash: KeyHash::new(1), size_bytes: 10, previous, source };
    path.redrive(&redriven, &RULES, &Keys).expect("it is settled");
    path.drop_single(Seq::new(12), DropReason::Purge, Seq::new(12), &Keys).expect("it is owed");
    path.check(Seq::new(12));
    path
}

/// That path, which retention has passed below 6: of what lies there only 1 is left, which is leased, and 4, which was
/// brought back.
fn trimmed() -> PathPartition {
    let mut path = redriven();
    path.trim(Seq::new(6), LAST_SEQ, &Keys, &mut 100, &mut Vec::new());
    path.check(Seq::new(12));
    assert_eq!((path.kept_from, path.entries.range(Seq::ZERO..Seq::new(6)).count()), (Seq::new(6), 2));
    path
}

fn encoded(path: &PathPartition) -> Bytes {
    let mut bytes = BytesMut::new();
    path.image().encode(&mut bytes);
    bytes.freeze()
}

/// Why a state with this damage is refused.
fn refused(damage: impl FnOnce(&mut PathPartition)) -> &'static str {
    refused_of(path(), damage)
}

fn refused_of(mut path: PathPartition, damage: impl FnOnce(&mut PathPartition)) -> &'static str {
    damage(&mut path);
    match PathPartition::decode(&mut encoded(&path)) {
        Err(ImageError::Field { field, .. }) => field,
        other => panic!("the damage is not seen: {other:?}"),
    }
}

fn lease_of(path: &mut PathPartition, seq: u64) -> &mut Lease {
    let State::Leased(lease) = &mut path.entry_mut(Seq::new(seq)).state else { panic!("{seq} is leased") };
    lease
}

/// Says of a message that it was delayed.
fn fell_due(path: &mut PathPartition, seq: u64) {
    path.entry_mut(Seq::new(seq)).state = State::Waiting { fell_due: ClusterTime::new(5) };
}

/// Gives a lease another holder.
fn hand_over(path: &mut PathPartition, seq: u64) {
    let granted = Granted { member: MemberId::new(2), grant: Grant::Push, granted_at: Position::default() };
    let (tenure, _) = path.entries.tenures_mut().begin(granted);
    lease_of(path, seq).tenure = tenure;
}

#[test]
fn p6_a_repeated_ack_is_ok_after_a_restart() {
    let mut restored = PathPartition::decode(&mut encoded(&path())).expect("just written");
    assert_eq!(restored, path());
    restored.check(LAST_SEQ);
    let (seq, id, now) = (Seq::new(4), DeliveryId::new(4), Now { cluster: ClusterTime::new(60_000), ..NOW });
    assert_eq!(restored.settle(seq, id, Settle::Ack, &RULES, now, &mut Vec::new()), Ok(Settled::Again));
    assert_eq!(restored.latest_delivery(), DeliveryId::new(9));
    assert_eq!(restored.latest_run(), NOW.cluster);
}

#[test]
fn p11_a_version_that_is_not_known_is_refused() {
    let mut bytes = BytesMut::from(&encoded(&path())[..]);
    bytes[0] = IMAGE_VERSION + 1;
    assert_eq!(
        PathPartition::decode(&mut bytes.freeze()),
        Err(ImageError::UnknownVersion { found: IMAGE_VERSION + 1 })
    );
}

#[test]
fn damage_that_a_checksum_would_not_show_is_named_by_field() {
    assert_eq!(refused(|path| path.start = Seq::ZERO), "start");
    assert_eq!(refused(|path| path.position = Seq::ZERO), "position");
    assert_eq!(refused(|path| path.position = Seq::new(NUMBER_MAX + 1)), "position");
    assert_eq!(refused(|path| path.position = Seq::new(11)), "replay_end");
    assert_eq!(refused(|path| path.position = Seq::new(4)), "delivered");
    assert_eq!(refused(|path| path.replay_end = Seq::new(NUMBER_MAX + 1)), "replay_end");
    assert_eq!(refused(|path| path.delivered += 1), "delivered");
    assert_eq!(refused(|path| path.delayed = 1), "delivered");
    assert_eq!(refused(|path| path.delayed = 10), "delayed");
    assert_eq!(refused(|path| path.due_start = Seq::ZERO), "due_start");
    assert_eq!(refused(|path| path.due_start = Seq::new(11)), "due_start");
    assert_eq!(refused(|path| path.due_position.due = ClusterTime::new(5)), "due_seq");
    assert_eq!(refused(|path| path.due_position.seq = Seq::FIRST), "due_seq");
    assert_eq!(refused(|path| fell_due(path, 3)), "fell_due", "nothing did");
    let delivered_before = |path: &mut PathPartition| {
        path.due_position = DuePosition { due: ClusterTime::new(5), seq: Seq::FIRST };
        fell_due(path, 3);
    };
    assert_eq!(refused(delivered_before), "fell_due");
    assert_eq!(refused(|path| path.dropped_by[2] = 1), "delivered");
    assert_eq!(refused(|path| path.dropped_by[2] = u64::MAX), "dropped");
    assert_eq!(refused(|path| path.dlq = 1), "delivered");
    assert_eq!(refused(|path| path.again = 1), "delivered");
    assert_eq!(refused(|path| path.retries_by[0] = 1), "retries");
    assert_eq!(refused(|path| path.retries_by[2] = u64::MAX), "retries");
    assert_eq!(refused(|path| path.entry_mut(Seq::new(3)).attempt = Attempt::ZERO), "attempt");
    assert_eq!(refused(|path| path.entry_mut(Seq::new(1)).attempt = Attempt::new(2)), "attempt");
    assert_eq!(refused(|path| path.entry_mut(Seq::new(5)).attempt = Attempt::FIRST), "attempt");
    assert_eq!(refused(|path| path.entry_mut(Seq::new(3)).previous = DeliveryId::ZERO), "previous");
    assert_eq!(refused(|path| path.entry_mut(Seq::new(1)).previous = DeliveryId::new(1)), "previous");
    assert_eq!(refused(|path| path.entry_mut(Seq::new(5)).given_back = 1), "given_back");
    assert_eq!(refused(|path| path.entry_mut(Seq::new(3)).cause = Cause::First), "previous");
}

#[test]
fn p6_damage_that_would_replay_or_purge_something_else_is_named_by_field() {
    let refused = |damage: fn(&mut PathPartition)| refused_of(moved(), damage);
    assert_eq!(refused(|path| _ = path.settled_ahead.insert(Seq::new(1))), "mark", "1 is owed");
    assert_eq!(refused(|path| _ = path.settled_ahead.insert(Seq::new(10))), "delivered", "10 is not settled");
    assert_eq!(refused(|path| _ = path.settled_ahead.insert(Seq::ZERO)), "mark", "0 lies below the position");
    assert_eq!(refused(|path| _ = path.settled_ahead.insert(Seq::new(2))), "delivered", "2 is to be replayed");
    assert_eq!(refused(|path| path.settled_ahead.clear()), "delivered", "6 is not to be replayed");
    assert_eq!(refused(|path| path.replay_end = Seq::new(9)), "seq", "9 was offered");
    assert_eq!(refused(|path| _ = path.sources.insert(Seq::new(2), Seq::FIRST)), "source of", "2 is settled");
    assert_eq!(refused(|path| _ = path.sources.insert(Seq::new(3), Seq::ZERO)), "source", "0 is no dead letter");
    let set = |path: &mut PathPartition, kind, to, from| {
        path.moving = Some(Moving { kind, to: Seq::new(to), from: Seq::new(from) });
    };
    assert_eq!(refused_of(moved(), |path| set(path, MoveKind::Backwards, 1, 1)), "to", "it stands there already");
    assert_eq!(refused_of(moved(), |path| set(path, MoveKind::Forwards, 0, 1)), "to");
    assert_eq!(refused_of(moved(), |path| set(path, MoveKind::Purge, 5, 6)), "from");
    assert_eq!(refused_of(moved(), |path| set(path, MoveKind::Purge, 5, 0)), "from");
    // A message that was acked is owed once more only if nothing of it is older than that ack.
    let acked = |path: &mut PathPartition, delivery| {
        path.runs.remember(Seq::new(3), DeliveryId::new(delivery), Kind::Ack, NOW.cluster);
    };
    assert_eq!(refused_of(path(), |path| acked(path, 20)), "seq");
}

#[test]
fn p6_what_was_set_going_goes_on_after_a_restart() {
    let mut restored = PathPartition::decode(&mut encoded(&moved())).expect("just written");
    assert_eq!(restored, moved());
    assert_eq!(restored.reached(), Seq::new(11));
    let (mut moved, mut ended) = (Vec::new(), Vec::new());
    restored.go_on(&Keys, &mut 100, &mut moved, &mut ended);
    restored.check(LAST_SEQ);
    assert!(!restored.is_moving());
    let books = restored.books(LAST_SEQ);
    assert_eq!((books.produced, books.delivered, books.dropped, books.depth), (12, 3, 9, 0));
}

#[test]
fn p5_p6_p8_leases_that_cannot_be_are_refused() {
    assert_eq!(refused(|path| lease_of(path, 6).delivery_id = DeliveryId::ZERO), "delivery_id");
    assert_eq!(refused(|path| lease_of(path, 6).delivery_id = DeliveryId::new(7)), "delivery_id", "two leases");
    assert_eq!(refused(|path| lease_of(path, 6).delivery_id = DeliveryId::new(4)), "delivery_id", "settled");
    assert_eq!(refused(|path| hand_over(path, 7)), "ordered", "1 is held by another");
    assert_eq!(refused(|path| lease_of(path, 1).ordered = false), "ordered");
    assert_eq!(refused(|path| path.order = Order::None), "ordered");
    assert_eq!(refused(|path| path.runs.remember(Seq::new(1), DeliveryId::new(20), Kind::Ack, NOW.cluster)), "seq");
    let beyond = |path: &mut PathPartition| {
        path.runs.remember(Seq::new(10), DeliveryId::new(20), Kind::Ack, NOW.cluster);
    };
    assert_eq!(refused(beyond), "first_seq");
}

#[test]
fn p8_what_is_packed_where_it_cannot_be_is_refused() {
    let refused = |damage: fn(&mut PathPartition)| refused_of(crowded(), damage);
    let move_to = |path: &mut PathPartition, seq: u64, key: u64| {
        let waiting = path.packed.take(Seq::new(4)).expect("it is packed");
        let fact = Fact { key_hash: KeyHash::new(key), ..waiting.fact };
        path.packed.insert(Waiting { seq: Seq::new(seq), fact, ..waiting });
    };
    assert_eq!(
        refused_of(crowded(), |path| move_to(path, 4, 9)),
        "packed before the first entry of its key",
        "it has none"
    );
    assert_eq!(refused_of(crowded(), |path| move_to(path, 2, 1)), "packed twice", "it has an entry");
    assert_eq!(refused_of(crowded(), |path| move_to(path, 11, 1)), "packed", "it was never offered");
    assert_eq!(refused_of(crowded(), |path| move_to(path, 4, 0)), "packed key");
    assert_eq!(refused(|path| path.order = Order::None), "ordered");
    let lost = |path: &mut PathPartition| {
        // Below the position; above it, it would be owed once more.
        (path.position, path.again) = (Seq::new(11), 0);
        path.packed.take(Seq::new(7));
    };
    assert_eq!(refused(lost), "delivered", "P9");
    let acked = |path: &mut PathPartition| {
        path.runs.remember(Seq::new(7), DeliveryId::new(40), Kind::Ack, NOW.cluster);
    };
    assert_eq!(refused(acked), "packed", "P6");
    let late = |path: &mut PathPartition| {
        let waiting = path.packed.take(Seq::new(7)).expect("it is packed");
        path.packed.insert(Waiting { due: ClusterTime::new(60), ..waiting });
    };
    assert_eq!(refused(late), "fell_due", "nothing has fallen due so late");
}

#[test]
fn p6_a_bound_of_retention_that_cannot_be_is_refused() {
    assert_eq!(refused(|path| path.kept_from = Seq::ZERO), "kept_from");
    assert_eq!(refused(|path| path.kept_from = Seq::new(11)), "kept_from");
    let passed = |path: &mut PathPartition| (path.kept_from, path.due_start) = (Seq::new(9), Seq::new(9));
    assert_eq!(refused_of(trimmed(), passed), "state", "8 waits and would never leave");
    assert_eq!(refused_of(trimmed(), |path| path.sources.clear()), "state", "4 has no bytes any more");
    assert_eq!(refused_of(trimmed(), |path| path.due_start = Seq::new(5)), "kept_from");
}

#[test]
fn no_prefix_and_no_changed_byte_panics_and_what_is_accepted_is_consistent() {
    // Goal: decode stands on its own, also where no checksum has looked before. Method: every prefix, and every byte set to
    // each of some values; what is accepted passes check, says the same when it is encoded, and can be gone on with.
    let mut accepted = 0;
    for whole in [encoded(&path()), encoded(&moved()), encoded(&redriven()), encoded(&trimmed()), encoded(&crowded())] {
        accepted += damage_everywhere(&whole);
    }
    assert!(accepted > 200, "the loop hardly reaches states that differ: {accepted}");
}

/// Cuts and changes these bytes everywhere; says how often they were still accepted.
fn damage_everywhere(whole: &Bytes) -> u32 {
    let mut accepted = 0;
    for length in 0..whole.len() {
        assert!(PathPartition::decode(&mut whole.slice(..length)).is_err(), "{length} bytes");
    }
    for place in 0..whole.len() {
        for change in [1, 2, 3, 4, 8, 0x40, 0x80, 0xFF] {
            let mut bytes = BytesMut::from(&whole[..]);
            bytes[place] ^= change;
            let bytes = bytes.freeze();
            let mut rest = bytes.clone();
            let Ok(mut changed) = PathPartition::decode(&mut rest) else { continue };
            accepted += 1;
            assert_eq!(encoded(&changed), bytes[..bytes.len() - rest.len()], "byte {place} changed by {change}");
            let last_seq = Seq::new(changed.reached().get() - 1);
            changed.check(last_seq);
            changed.go_on(&Keys, &mut 3, &mut Vec::new(), &mut Vec::new());
            changed.check(last_seq);
            changed.go_on(&Keys, &mut 100, &mut Vec::new(), &mut Vec::new());
            changed.check(last_seq);
            let late = Now { cluster: ClusterTime::MAX, lease: LeaseTime::MAX };
            changed.end_due(late, &mut 100, &RULES, &mut Vec::new());
            changed.check(last_seq);
        }
    }
    accepted
}

#[test]
fn version_1_has_these_bytes() {
    // Frozen: these bytes stand in checkpoints. Another layout is another version.
    let all =
        [encoded(&path()), encoded(&moved()), encoded(&redriven()), encoded(&trimmed()), encoded(&crowded())].concat();
    let hex: String = all.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, include_str!("v1.hex").split_whitespace().collect::<String>());
    let mut bytes = Bytes::from(all);
    assert_eq!(PathPartition::decode(&mut bytes), Ok(path()));
    assert_eq!(PathPartition::decode(&mut bytes), Ok(moved()));
    assert_eq!(PathPartition::decode(&mut bytes), Ok(redriven()));
    assert_eq!(PathPartition::decode(&mut bytes), Ok(trimmed()));
    assert_eq!(PathPartition::decode(&mut bytes), Ok(crowded()));
}
