//! The stamp of a batch: time goes on, and what is due ends.

use super::{Model, Stands, ends::Failure};
use mortarmq_shard::Applied;

impl Model {
    /// Moves both clocks, and ends every lease whose time has come: in the order in which they ran out.
    ///
    /// The stamp is taken as it took effect; that it never goes back is checked by whoever gave it.
    pub(super) fn stamp(&mut self, applied: &Applied) {
        let stamp = applied.stamp;
        self.time = stamp.time.get();
        self.gaps += stamp.gap_ms;
        self.expired_now.clear();
        self.group_went = false;
        let (now, lease_now) = (self.time, self.lease_time());
        let mut over = Vec::new();
        for (id, path) in &mut self.paths {
            for (number, obligation) in path.partitions.iter_mut().enumerate() {
                for (seq, pair) in &mut obligation.pairs {
                    let Some(open) = &mut pair.open else { continue };
                    match open.stands {
                        Stands::Scheduled { latest, .. } if latest <= now => open.stands = Stands::Waiting,
                        Stands::Leased(lease) if lease.deadline <= lease_now => {
                            over.push((lease.deadline, *id, number, *seq, lease.delivery));
                        }
                        Stands::Waiting | Stands::Scheduled { .. } | Stands::Leased(_) | Stands::Held => {}
                    }
                }
            }
        }
        over.sort_unstable();
        for (_, id, number, seq, delivery) in over {
            self.expired_now.insert(delivery);
            // It may have ended with an earlier one of its key.
            if self.paths[&id].partitions[number].pairs[&seq].lease().is_some_and(|lease| lease.delivery == delivery) {
                self.fail(id, number, seq, Failure::Expired, "");
            }
        }
    }
}
