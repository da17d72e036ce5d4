//! A pull that came twice, because its node sent it again or because somebody else passed it on: it gets the same leases, those
//! that are still live, and never new ones.

use crate::command::{Deliver, STEPS_MAX};
use crate::effect::{DeliverEffect, Effect};
use crate::outcome::Outcome;
use crate::state::State;
use mortarmq_delivery::Leased;
use mortarmq_types::{Partition, Position};

/// Tells the leases again that this command granted. Of a member that holds more than [`STEPS_MAX`] messages, it looks at so
/// many, in each partition the highest first; what it does not reach is told no more, and runs to its end.
///
/// # Source
/// DESIGN section 2: "a repeated pull gets the same leases, never new ones".
pub(super) fn apply(state: &State, deliver: &Deliver, granted_at: Position, effects: &mut Vec<Effect>) -> Outcome {
    let path = &state.paths[&deliver.path];
    let (mut steps, mut count) = (STEPS_MAX, 0);
    for (number, partition) in path.partitions.made() {
        let mut leases = Vec::new();
        for (seq, entry) in partition.held_by(deliver.member).rev() {
            if steps == 0 {
                break;
            }
            steps -= 1;
            let Some(lease) = entry.lease().filter(|lease| partition.granted(lease).granted_at == granted_at) else {
                continue;
            };
            let (attempt, cause, previous, size_bytes) = (entry.attempt, entry.cause, entry.previous, entry.size_bytes);
            let (delivery_id, deadline, source) = (lease.delivery_id, lease.deadline, partition.source_of(seq));
            leases.push(Leased { seq, delivery_id, attempt, cause, previous, size_bytes, deadline, source });
        }
        if leases.is_empty() {
            continue;
        }
        count += u32::try_from(leases.len()).expect("at most STEPS_MAX messages");
        leases.sort_unstable_by_key(|lease| lease.delivery_id);
        effects.push(Effect::Deliver(DeliverEffect {
            topic: path.topic,
            path: deliver.path,
            member: deliver.member,
            grant: deliver.grant,
            partition: Partition::from_index(number),
            commit_index: state.commit_index,
            granted_at,
            leases,
        }));
    }
    Outcome::Delivered { count, too_large: None }
}
