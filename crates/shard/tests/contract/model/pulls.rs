//! Pulls that come again: they get the same leases, and never new ones.

use super::deliver::Hand;
use super::{Model, Path, Seen, Stands, Verdict, allowed};
use mortarmq_delivery::Leased;
use mortarmq_shard::command::Deliver;
use mortarmq_shard::{Effect, Grant, Outcome};
use mortarmq_types::{Attempt, DeliveryId, LeaseTime, Seq};

/// The last pull of a member that got something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pulled {
    node_incarnation: u64,
    pull_id: u64,
    granted_at: u64,
}

impl Model {
    /// Checks what a pull got that came before; says whether it is one.
    pub(super) fn pulled_again(
        &mut self,
        deliver: &Deliver,
        path: &Path,
        found: &Hand,
        seen: &Seen<'_>,
    ) -> Verdict<bool> {
        let Grant::Pull { node_incarnation, pull_id, .. } = deliver.grant else { return Ok(false) };
        let Some(last) = self.pulled.get(&(deliver.path, deliver.member)).copied() else { return Ok(false) };
        if last.node_incarnation != node_incarnation || last.pull_id < pull_id {
            return Ok(false);
        }
        let granted_at = (last.pull_id == pull_id).then_some(last.granted_at);
        let mut expected = Hand::new();
        for (number, obligation) in path.partitions.iter().enumerate() {
            let messages = &self.topics[&path.topic].partitions[number];
            let mut leased = Vec::new();
            for (seq, lease) in obligation.leases() {
                if lease.member != deliver.member || Some(lease.granted_at) != granted_at {
                    continue;
                }
                let open = obligation.open(seq).expect("it is leased");
                allowed!(matches!(open.stands, Stands::Leased(_)), "{seq} is leased");
                leased.push(Leased {
                    seq: Seq::new(seq),
                    delivery_id: DeliveryId::new(lease.delivery),
                    attempt: Attempt::new(open.attempt),
                    cause: open.cause,
                    previous: DeliveryId::new(open.previous),
                    size_bytes: messages.get(seq).size,
                    deadline: LeaseTime::new(lease.deadline),
                    source: open.source.map(Seq::new),
                });
            }
            leased.sort_by_key(|lease| lease.delivery_id);
            if !leased.is_empty() {
                expected.push((number, leased));
            }
        }
        allowed!(*found == expected, "P5: a pull that came again got {found:?}\n  expected {expected:?}");
        check_granted_at(seen, granted_at)?;
        let count = u32::try_from(expected.iter().map(|(_, leased)| leased.len()).sum::<usize>()).expect("few");
        self.reach(if count > 0 { "a pull came again" } else { "a pull came again, and nothing of it is live" });
        seen.expect(&Outcome::Delivered { count, too_large: None })?;
        Ok(true)
    }

    /// Notes a pull that got something.
    pub(super) fn note_pull(&mut self, deliver: &Deliver) {
        if let Grant::Pull { node_incarnation, pull_id, .. } = deliver.grant {
            let pulled = Pulled { node_incarnation, pull_id, granted_at: self.commit_index };
            self.pulled.insert((deliver.path, deliver.member), pulled);
        }
    }
}

/// Checks which command granted what was sent.
pub(super) fn check_granted_at(seen: &Seen<'_>, expected: Option<u64>) -> Verdict {
    for effect in &seen.effects {
        let Effect::Deliver(found) = effect else { continue };
        let granted_at = found.granted_at.commit_index.get();
        allowed!(Some(granted_at) == expected, "granted at {granted_at}, expected {expected:?}");
    }
    Ok(())
}
