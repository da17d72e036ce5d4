//! Goal: a pull that comes twice gets the same leases and never new ones, whatever happened between (P5). Method: `Deliver`
//! commands of one pull over a shard that restarts after each batch.

use super::*;
use bytes::BytesMut;

const OTHER: MemberId = MemberId::new(71);

fn pull(member: MemberId, node_incarnation: u64, pull_id: u64, max_messages: u32) -> Command {
    let grant = Grant::Pull { node_incarnation, pull_id, max_bytes: 0 };
    Command::Deliver(Deliver { path: PATH, member, grant, max_messages, stretch: None })
}

/// What a command gave, as (sequence, delivery, command that granted it).
fn given(bench: &mut Bench, command: Command) -> Vec<(u64, u64, u64)> {
    let applied = bench.run(&[command]);
    let ledger = applied.effects.iter().filter(|effect| matches!(effect, Effect::Ledger(_))).count();
    let outcome = applied.outcomes[0].clone();
    let commit_index = applied.first_index;
    let all = delivered(applied);
    let leases: Vec<_> = all
        .iter()
        .flat_map(|one| {
            assert_eq!(one.commit_index, commit_index);
            let granted_at = one.granted_at.commit_index.get();
            one.leases.iter().map(move |lease| (lease.seq.get(), lease.delivery_id.get(), granted_at))
        })
        .collect();
    let count = u32::try_from(leases.len()).expect("few");
    assert_eq!(outcome, Outcome::Delivered { count, too_large: None });
    let is_new = all.iter().all(|one| one.granted_at.commit_index == commit_index);
    assert!(is_new || ledger == 0, "nothing was delivered that the ledger would have to tell");
    let mut bytes = BytesMut::new();
    bench.shard.image().encode(&mut bytes);
    let restored = Shard::from_image(bytes.freeze()).expect("just written");
    assert_eq!(restored.state(), bench.shard.state());
    bench.shard = restored;
    bench.shard.check();
    leases
}

#[test]
fn p5_a_repeated_pull_gets_the_same_leases_and_never_new_ones() {
    let mut bench = Bench::ready();
    assert_eq!(given(&mut bench, pull(MEMBER, 1, 1, 3)), [], "nothing is there, and nothing is recorded");
    bench.publish(1..10, b"", b"value");
    let first = given(&mut bench, pull(MEMBER, 1, 1, 3));
    assert_eq!(first.len(), 3);
    assert_eq!(given(&mut bench, pull(MEMBER, 1, 1, 3)), first);
    let (seq, delivery) = (first[1].0, DeliveryId::new(first[1].1));
    assert_eq!(bench.settle(seq, delivery, SettleKind::Ack), SettleCode::Done);
    assert_eq!(given(&mut bench, pull(MEMBER, 1, 1, 9)), [first[0], first[2]], "those that are still live");
    let second = given(&mut bench, pull(MEMBER, 1, 2, 2));
    assert_eq!(second.iter().map(|one| one.0).collect::<Vec<_>>(), [4, 5]);
    assert_eq!(given(&mut bench, pull(MEMBER, 1, 1, 9)), [], "an older one gets nothing new either");
    assert_eq!(given(&mut bench, pull(MEMBER, 1, 2, 9)), second);
    for (seq, delivery, _) in &second {
        assert_eq!(bench.settle(*seq, DeliveryId::new(*delivery), SettleKind::Ack), SettleCode::Done);
    }
    assert_eq!(given(&mut bench, pull(MEMBER, 1, 2, 9)), [], "all of it is done");
    assert_eq!(given(&mut bench, pull(MEMBER, 2, 1, 9)).len(), 4, "another node's pull is another pull");
}

#[test]
fn p5_a_repeated_pull_gets_no_lease_of_another_pull_push_or_member() {
    let mut bench = Bench::ready();
    bench.run(&[join("billing", OTHER)]);
    bench.publish(1..10, b"", b"value");
    assert_eq!(bench.deliver(MEMBER, 2)[0].leases.len(), 2);
    let first = given(&mut bench, pull(MEMBER, 1, 1, 2));
    assert_eq!(given(&mut bench, pull(OTHER, 1, 1, 2)).len(), 2, "numbers are a member's");
    assert_eq!(given(&mut bench, pull(MEMBER, 1, 1, 9)), first);
    // A lease that ended and was granted again is not what the pull got.
    assert_eq!(bench.settle(first[0].0, DeliveryId::new(first[0].1), SettleKind::Release), SettleCode::Done);
    assert_eq!(given(&mut bench, pull(MEMBER, 1, 5, 1))[0].0, first[0].0);
    assert_eq!(given(&mut bench, pull(MEMBER, 1, 5, 9)).len(), 1);
    assert_eq!(given(&mut bench, pull(MEMBER, 1, 1, 9)), []);
}
