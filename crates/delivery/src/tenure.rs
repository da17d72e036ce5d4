//! What the leases of a path have in common, kept once: who holds them, how they were asked for, and in which epoch.
//!
//! A path may have 65,536 live leases and more, but they are held by at most some thousands of members. Of what a lease says of
//! its holder, it keeps the number of a tenure, and the lower half of the commit index that granted it.
//!
//! # Invariants
//! 1. Each tenure has one number, and a number is free exactly if no live lease has it.

use std::collections::BTreeMap;

use mortarmq_types::{CommitIndex, Epoch, MemberId, Position};

use crate::{entry::Lease, rules::Grant};

/// To whom a lease was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Who holds the message.
    pub member: MemberId,
    /// How it was asked for.
    pub grant: Grant,
    /// The command that granted it. A message that is sent again carries it unchanged, so that whoever holds several of
    /// them can tell which were leased together.
    pub granted_at: Position,
}

/// The tenures of the live leases.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tenures {
    /// By number.
    slots: Vec<Slot>,
    numbers: BTreeMap<Tenure, u16>,
    /// Numbers of slots that can be taken again.
    free: Vec<u16>,
}

/// What many leases of one member have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Tenure {
    member: MemberId,
    grant: Grant,
    epoch: Epoch,
    /// The upper half of the commit index.
    era: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    tenure: Tenure,
    /// Live leases.
    leases: u32,
}

impl Tenures {
    /// Whether no further tenure can begin: nothing is leased then until one has ended. A group has at most 4,096 members,
    /// so this takes leases of many epochs.
    pub(crate) fn is_full(&self) -> bool {
        self.numbers.len() > usize::from(u16::MAX)
    }

    /// Notes a lease; gives the number of its tenure and the lower half of its commit index.
    ///
    /// # Panics
    /// When they are [full](Self::is_full).
    pub(crate) fn begin(&mut self, granted: Granted) -> (u16, u32) {
        let commit_index = granted.granted_at.commit_index.get();
        let (era, commit_low) = ((commit_index >> 32) as u32, commit_index as u32);
        let tenure = Tenure { member: granted.member, grant: granted.grant, epoch: granted.granted_at.epoch, era };
        let number = self.numbers.get(&tenure).copied().unwrap_or_else(|| self.add(tenure));
        self.slots[usize::from(number)].leases += 1;
        (number, commit_low)
    }

    fn add(&mut self, tenure: Tenure) -> u16 {
        let slot = Slot { tenure, leases: 0 };
        let number = if let Some(number) = self.free.pop() {
            self.slots[usize::from(number)] = slot;
            number
        } else {
            self.slots.push(slot);
            u16::try_from(self.slots.len() - 1).expect("the caller asked whether there is room")
        };
        self.numbers.insert(tenure, number);
        number
    }

    /// Notes that a lease is over.
    pub(crate) fn end(&mut self, lease: &Lease) {
        let slot = &mut self.slots[usize::from(lease.tenure)];
        slot.leases = slot.leases.checked_sub(1).expect("P5: a lease ends that nobody held");
        if slot.leases > 0 {
            return;
        }
        self.numbers.remove(&slot.tenure);
        self.free.push(lease.tenure);
        if self.numbers.is_empty() {
            *self = Self::default();
        }
    }

    /// To whom a live lease was granted.
    pub(crate) fn of(&self, lease: &Lease) -> Granted {
        let Tenure { member, grant, epoch, era } = self.slots[usize::from(lease.tenure)].tenure;
        let commit_index = CommitIndex::new(u64::from(era) << 32 | u64::from(lease.commit_low));
        Granted { member, grant, granted_at: Position { epoch, commit_index } }
    }

    /// Asserts the invariant, given every live lease.
    pub(crate) fn check<'a>(&self, leases: impl Iterator<Item = &'a Lease>) {
        let mut counts: BTreeMap<u16, u32> = BTreeMap::new();
        leases.for_each(|lease| *counts.entry(lease.tenure).or_default() += 1);
        let numbered = self.numbers.iter().map(|(tenure, number)| (*number, *tenure)).collect::<BTreeMap<_, _>>();
        assert_eq!(self.slots.len(), numbered.len() + self.free.len(), "invariant 1 of the tenures");
        for (number, tenure) in &numbered {
            let slot = self.slots[usize::from(*number)];
            let found = counts.remove(number).unwrap_or_default();
            assert_eq!((slot.tenure, slot.leases), (*tenure, found), "invariant 1 of the tenures: {number}");
            assert!(found > 0, "invariant 1 of the tenures: nobody has {number}");
        }
        assert!(counts.is_empty(), "invariant 1 of the tenures: leases of none: {counts:?}");
    }
}

#[cfg(test)]
mod tests {
    use mortarmq_types::{CommitIndex, DeliveryId, Epoch, LeaseTime, MemberId, Position};

    use super::{Granted, Tenures};
    use crate::{entry::Lease, rules::Grant};

    fn granted(member: u64, commit_index: u64) -> Granted {
        let granted_at = Position { epoch: Epoch::new(2), commit_index: CommitIndex::new(commit_index) };
        Granted { member: MemberId::new(member), grant: Grant::Pull, granted_at }
    }

    fn begin(tenures: &mut Tenures, granted: Granted) -> Lease {
        let (tenure, commit_low) = tenures.begin(granted);
        let (delivery_id, deadline) = (DeliveryId::ZERO, LeaseTime::ZERO);
        Lease { delivery_id, deadline, ordered: false, tenure, commit_low }
    }

    #[test]
    fn p7_a_lease_says_who_holds_it_and_since_which_command_whatever_ended_before() {
        let mut tenures = Tenures::default();
        let commands = [5, 6, u64::from(u32::MAX), 1 << 32, (7 << 32) + 5];
        let all: Vec<Granted> = (1..4).flat_map(|member| commands.map(|command| granted(member, command))).collect();
        let mut leases: Vec<Lease> = all.iter().map(|one| begin(&mut tenures, *one)).collect();
        assert_eq!(tenures.numbers.len(), 9, "three members, three eras");
        for number in (0..leases.len()).filter(|number| number % 3 != 2) {
            tenures.end(&leases[number]);
            leases[number] = begin(&mut tenures, all[number]);
            tenures.check(leases.iter());
            assert!(leases.iter().map(|lease| tenures.of(lease)).eq(all.iter().copied()));
        }
        leases.iter().for_each(|lease| tenures.end(lease));
        assert!(tenures.slots.is_empty() && tenures.free.is_empty());
    }

    #[test]
    fn they_are_full_when_no_number_is_left() {
        let mut tenures = Tenures::default();
        let leases: Vec<Lease> = (0..1 << 16).map(|member| begin(&mut tenures, granted(member, 1))).collect();
        assert!(tenures.is_full());
        tenures.end(&leases[7]);
        assert!(!tenures.is_full());
        assert_eq!(begin(&mut tenures, granted(1 << 20, 1)).tenure, leases[7].tenure);
    }
}
