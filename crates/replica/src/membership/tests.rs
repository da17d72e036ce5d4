use super::{Change, MemberRole, Membership};
use proptest::prelude::*;

/// A life of a node's data.
fn id(node: u64, life: u64) -> u64 {
    (node << 32) | life
}

fn three() -> Membership {
    Membership::new(vec![id(0, 1), id(1, 1), id(2, 1)], vec![])
}

fn changes() -> Vec<Change> {
    vec![
        Change::Replace { old: id(2, 1), new: id(2, 77) },
        Change::Promote { id: id(2, 77) },
        Change::Replace { old: id(0, 1), new: id(0, u64::from(u32::MAX)) },
        Change::Promote { id: 1 },
    ]
}

#[test]
fn version_1_of_a_change_keeps_its_bytes_which_are_those_that_the_library_looks_into() {
    let hex = |change: Change| change.encode().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(
        hex(Change::Replace { old: id(2, 1), new: id(2, 77) }),
        "1208080110818080802012080802 10cd80808020".replace(' ', "")
    );
    assert_eq!(hex(Change::Promote { id: id(2, 77) }), "120610cd80808020");
    assert_eq!(hex(Change::Promote { id: 1 }), "12021001");
}

#[test]
fn p11_a_change_comes_back_as_it_was_and_one_that_was_cut_or_is_none_is_refused() {
    for change in changes() {
        let bytes = change.encode();
        assert_eq!(Change::decode(&bytes), Some(change));
        for length in 0..bytes.len() {
            assert_eq!(Change::decode(&bytes[..length]), None);
        }
        let longer: Vec<u8> = bytes.iter().copied().chain([0]).collect();
        assert_eq!(Change::decode(&longer), None);
    }
    // An earlier life, another node, nobody.
    for (old, new) in [(id(2, 2), id(2, 1)), (id(2, 1), id(1, 2)), (0, id(0, 1)), (id(2, 1), id(2, 1))] {
        assert_eq!(Change::decode(&Change::Replace { old, new }.encode()), None, "{old} {new}");
    }
    assert_eq!(Change::decode(&Change::Promote { id: 0 }.encode()), None);
}

#[test]
fn version_1_of_a_membership_keeps_its_bytes() {
    let hex = |members: &Membership| members.encode().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(&three()), "000000000000000100000001000000010000000200000001");
    let mut learns = three();
    learns.apply(Change::Replace { old: id(2, 1), new: id(2, 9) });
    assert_eq!(hex(&learns), "0000000000000001000000010000000100000000000000000000000200000009");
    for members in [three(), learns] {
        assert_eq!(Membership::decode(&members.encode()), Some(members));
    }
    for wrong in [&[][..], &[0; 8], &[1; 7], &[0; 16], &[1; 16]] {
        assert_eq!(Membership::decode(wrong), None, "{wrong:?}");
    }
}

#[test]
fn rule_4_a_replaced_life_is_heard_no_more_and_its_successor_votes_only_once_it_is_promoted() {
    let (old, new) = (id(2, 1), id(2, 77));
    let mut members = three();
    assert!(members.may_speak(old) && members.may_speak(new) && !members.may_speak(id(3, 1)));
    members.apply(Change::Replace { old, new });
    assert_eq!((members.role(old), members.role(new)), (None, Some(MemberRole::Learner)));
    assert!(!members.may_speak(old) && members.may_speak(new));
    members.apply(Change::Promote { id: new });
    assert_eq!(members, Membership::new(vec![id(0, 1), id(1, 1), new], vec![]));
    // One that comes again, or too late, changes nothing.
    members.apply(Change::Promote { id: old });
    members.apply(Change::Replace { old, new });
    assert_eq!(members.voters().len(), 3);
}

#[test]
fn a_log_that_is_told_from_its_beginning_to_a_node_that_learns_from_the_start_ends_the_same() {
    let (first, second, third) = (id(2, 1), id(2, 5), id(2, 9));
    let log = [
        Change::Replace { old: first, new: second },
        Change::Promote { id: second },
        Change::Replace { old: second, new: third },
        Change::Promote { id: third },
    ];
    let mut of_others = three();
    let mut own = Membership::new(vec![id(0, 1), id(1, 1)], vec![third]);
    for (place, change) in log.into_iter().enumerate() {
        of_others.apply(change);
        own.apply(change);
        assert!(place == 3 || own.role(third) == Some(MemberRole::Learner), "it never votes before");
    }
    assert_eq!(own, of_others);
}

proptest! {
    #[test]
    fn any_bytes_are_a_change_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        if let Some(change) = Change::decode(&bytes) {
            prop_assert_eq!(&change.encode()[..], &bytes[..]);
        }
        let _ = Membership::decode(&bytes);
    }

    #[test]
    fn every_change_moves_one_voter_at_most(
        picks in proptest::collection::vec((any::<bool>(), 0_u64..3, 1_u64..6, 1_u64..6), 0..30)
    ) {
        let mut members = three();
        for (is_replaced, node, first, second) in picks {
            let before = members.clone();
            members.apply(if is_replaced {
                Change::Replace { old: id(node, first), new: id(node, second) }
            } else {
                Change::Promote { id: id(node, first) }
            });
            let moved = |from: &Membership, to: &Membership| {
                from.voters().iter().filter(|id| !to.voters().contains(id)).count()
            };
            prop_assert!(moved(&before, &members) + moved(&members, &before) <= 1);
            prop_assert_eq!(members.find_fault(), None);
        }
    }
}
