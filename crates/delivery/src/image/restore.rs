//! From the facts that an image stores to a state: its indexes are made anew, and what contradicts itself is refused.

use std::collections::BTreeMap;

use mortarmq_types::{Cause, DeliveryId, KeyHash, Seq};

use super::ImageError;
use crate::{
    entry::{Entry, State},
    key_order::Ahead,
    path_partition::PathPartition,
    rules::Order,
    runs::Kind,
};

impl PathPartition {
    /// Takes in the entries, which come by rising sequence, and the marks of a replay.
    pub(super) fn restore(&mut self, entries: Vec<(Seq, Entry)>, marks: Vec<Seq>) -> Result<(), ImageError> {
        self.index(&entries)?;
        self.entries = entries.into_iter().collect();
        if let Some(owed) = marks.iter().find(|seq| self.entries.contains_key(*seq)) {
            return Err(ImageError::Field { field: "mark", found: owed.get() });
        }
        self.ahead = (marks.len() + self.entries.range(self.position..).count()) as u64;
        self.settled_ahead = marks.into_iter().collect();
        self.check_balance()?;
        self.check_settled()
    }

    /// Makes the indexes of these entries.
    fn index(&mut self, entries: &[(Seq, Entry)]) -> Result<(), ImageError> {
        let (mut keyed, mut heads, mut schedule) = (Vec::new(), Vec::new(), Vec::new());
        let (mut deadlines, mut holders, mut held) = (Vec::new(), Vec::new(), Vec::new());
        let mut leased_keys = Vec::new();
        let mut ahead: BTreeMap<KeyHash, Ahead<'_>> = BTreeMap::new();
        for (seq, entry) in entries {
            let key = entry.key_hash;
            let mut is_first = true;
            let has_queue = self.stands_in_queue(key, *seq);
            if has_queue {
                keyed.push((key, *seq));
                let before = ahead.entry(key).or_default();
                is_first = before.is_empty();
                if !before.leads(entry) {
                    return Err(ImageError::Field { field: "ordered", found: 1 });
                }
                before.push(entry);
            }
            match &entry.state {
                State::Waiting if is_first => heads.push((has_queue.then_some(key), (entry.due, *seq))),
                State::Waiting => {}
                State::Held => held.push(*seq),
                State::Scheduled { due } => schedule.push((*due, *seq)),
                State::Leased(lease) => {
                    // A message without a key stands in no queue; its lease is told as any other of its order.
                    if lease.ordered && !self.may_be_ordered(*seq) {
                        return Err(ImageError::Field { field: "ordered", found: 1 });
                    }
                    if lease.ordered && has_queue {
                        leased_keys.push((key, *seq));
                    }
                    deadlines.push((lease.deadline, *seq));
                    holders.push((lease.member, *seq));
                }
            }
        }
        self.keyed = keyed.into_iter().collect();
        self.leased_keys = leased_keys.into_iter().collect();
        // The head of a key is not ready while something behind it is leased, since before it came.
        heads.retain(|(key, _)| key.is_none_or(|key| self.leased_of_key(key).is_none()));
        self.ready = heads.into_iter().map(|(_, place)| place).collect();
        self.schedule = schedule.into_iter().collect();
        self.deadlines = deadlines.into_iter().collect();
        self.holders = holders.into_iter().collect();
        self.held = held.into_iter().collect();
        Ok(())
    }

    /// Whether a lease of this message can have been granted in key order: not once it was taken for none, nor, if the former
    /// order was none, while the order changes.
    fn may_be_ordered(&self, seq: Seq) -> bool {
        match (self.order, self.reordering) {
            (Order::Key, None) => true,
            (Order::Key, Some(_)) | (Order::None, None) => false,
            (Order::None, Some(from)) => seq >= from,
        }
    }

    /// Checks that every message up to what was offered is settled, unsettled, or to be replayed, and counted once (P9).
    fn check_balance(&self) -> Result<(), ImageError> {
        // Each is at most a quarter of what 64 bits hold, and `ahead` counts messages from the position on.
        let dropped = self.dropped_by.iter().sum::<u64>();
        let settled = u128::from(self.delivered) + u128::from(dropped) + u128::from(self.dlq);
        // What was settled before it was ever offered lies behind all that this counts.
        let beyond = self.settled_ahead.range(self.replay_end..).count() as u64;
        let owed = u128::from(self.replay_end.above(self.position) - (self.ahead - beyond))
            + self.entries.len() as u128
            + u128::from(self.delayed);
        let produced = u128::from(self.replay_end.above(self.start)) + u128::from(self.again) + u128::from(beyond);
        if settled + owed != produced {
            return Err(ImageError::Field { field: "delivered", found: self.delivered });
        }
        Ok(())
    }

    /// Checks that live deliveries are distinct and not settled, and that no acked message is owed but by a replay (P5, P6).
    fn check_settled(&self) -> Result<(), ImageError> {
        let mut live: Vec<DeliveryId> =
            self.entries.values().filter_map(Entry::lease).map(|lease| lease.delivery_id).collect();
        live.sort_unstable();
        let twice = live.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        if let Some(wrong) = twice.or_else(|| live.iter().copied().find(|id| self.runs.holds(*id))) {
            return Err(ImageError::Field { field: "delivery_id", found: wrong.get() });
        }
        for (first, run) in self.runs.iter().filter(|(_, run)| run.kind == Kind::Ack) {
            let of_run = self.entries.range(run.first_seq..run.first_seq.plus(run.count));
            for (seq, entry) in of_run {
                let acked = first.plus(seq.above(run.first_seq));
                if !came_back(entry, acked) {
                    return Err(ImageError::Field { field: "seq", found: seq.get() });
                }
            }
        }
        Ok(())
    }
}

/// Whether a message that was acked by this delivery is owed once more: nothing of its deliveries is older than that ack. One
/// that was redriven follows the delivery that it died by, and may have been replayed and acked since.
fn came_back(entry: &Entry, acked: DeliveryId) -> bool {
    let is_later = entry.lease().is_none_or(|lease| lease.delivery_id > acked);
    let past_is_later = match entry.cause {
        Cause::Replayed | Cause::Redriven => true,
        Cause::First | Cause::LeaseExpired | Cause::Nacked | Cause::ConsumerLost | Cause::Released => {
            entry.previous > acked
        }
    };
    is_later && past_is_later
}
