//! From the facts that an image stores to a state: its indexes are made anew, and what contradicts itself is refused.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use mortarmq_types::{Cause, ClusterTime, DeliveryId, KeyHash, Position, Seq};

use super::ImageError;
use crate::{
    entries::Entries,
    entry::{Entry, State},
    key_order::Ahead,
    path_partition::PathPartition,
    rules::Order,
    runs::Kind,
    tenure::Tenures,
};

impl PathPartition {
    /// The highest delivery number that is remembered, 0 without any. Looks at every entry and run.
    #[must_use]
    pub fn latest_delivery(&self) -> DeliveryId {
        let of_entry = |entry: &Entry| entry.lease().map_or(entry.previous, |lease| lease.delivery_id);
        let entries = self.entries.values().map(of_entry).max();
        let runs = self.runs.iter().map(|(first, run)| first.plus(run.count - 1)).max();
        entries.max(runs).unwrap_or(DeliveryId::ZERO)
    }

    /// The latest command that granted a live lease, the default without any. Looks at every entry.
    #[must_use]
    pub fn latest_grant(&self) -> Position {
        let leases = self.entries.values().filter_map(Entry::lease);
        leases.map(|lease| self.granted(lease).granted_at).max().unwrap_or_default()
    }

    /// When the latest run of settles that is remembered began, 0 without any. Looks at every run.
    #[must_use]
    pub fn latest_run(&self) -> ClusterTime {
        self.runs.iter().map(|(_, run)| run.opened).max().unwrap_or(ClusterTime::ZERO)
    }

    /// Takes in the entries, which come by rising sequence, and the marks of a replay.
    pub(super) fn restore(
        &mut self,
        entries: Vec<(Seq, Entry)>,
        tenures: Tenures,
        marks: Vec<Seq>,
    ) -> Result<(), ImageError> {
        self.index(&entries, &tenures)?;
        self.entries = Entries::new(entries.into_iter().collect(), tenures);
        if let Some(owed) = marks.iter().find(|seq| self.entries.contains_key(seq)) {
            return Err(ImageError::Field { field: "mark", found: owed.get() });
        }
        self.ahead = marks.len() as u64 + self.count_passed(self.position..Seq::MAX);
        self.settled_ahead = marks.into_iter().collect();
        if let Some((field, seq)) = self.packed_fault() {
            return Err(ImageError::Field { field, found: seq.get() });
        }
        self.check_balance()?;
        self.check_settled()
    }

    /// Makes the indexes of these entries.
    fn index(&mut self, entries: &[(Seq, Entry)], tenures: &Tenures) -> Result<(), ImageError> {
        let (mut keyed, mut heads, mut schedule) = (Vec::new(), Vec::new(), Vec::new());
        let (mut deadlines, mut holders, mut held) = (Vec::new(), Vec::new(), Vec::new());
        let (mut leased_keys, mut lone_leases) = (Vec::new(), Vec::new());
        let mut ahead: BTreeMap<KeyHash, Ahead<'_>> = BTreeMap::new();
        for (seq, entry) in entries {
            let key = entry.key_hash;
            let mut is_first = true;
            let has_queue = self.stands_in_queue(key, *seq);
            if has_queue {
                let lease = entry.lease().filter(|lease| lease.ordered);
                if lease.is_some() { &mut leased_keys } else { &mut keyed }.push((key, *seq));
                let before = ahead.entry(key).or_default();
                is_first = before.is_empty();
                if !before.leads(entry, tenures) {
                    return Err(ImageError::Field { field: "ordered", found: 1 });
                }
                before.push(entry);
            }
            match &entry.state {
                State::Waiting { fell_due } if is_first => {
                    heads.push((has_queue.then_some(key), entry.alone, (*fell_due, *seq)));
                }
                State::Waiting { .. } => {}
                State::Held => held.push(*seq),
                State::Scheduled { due } => schedule.push((*due, *seq)),
                State::Leased(lease) => {
                    // A message without a key stands in no queue; its lease is told as any other of its order.
                    if lease.ordered && !self.may_be_ordered(*seq) {
                        return Err(ImageError::Field { field: "ordered", found: 1 });
                    }
                    deadlines.push((lease.deadline, *seq));
                    let member = tenures.of(lease).member;
                    holders.push((member, *seq));
                    if entry.alone {
                        lone_leases.push((member, *seq));
                    }
                }
            }
        }
        self.keyed = keyed.into_iter().collect();
        self.leased_keys = leased_keys.into_iter().collect();
        // The head of a key is not ready while something behind it is leased, since before it came.
        heads.retain(|(key, ..)| key.is_none_or(|key| self.leased_of_key(key).is_none()));
        let ready = |wanted: bool| heads.iter().filter(move |(_, alone, _)| *alone == wanted).map(|(.., place)| *place);
        self.ready = ready(false).collect();
        self.lone = ready(true).map(|(_, seq)| seq).collect();
        self.lone_leases = lone_leases.into_iter().collect();
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
            + u128::from(self.all_passed())
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
        let replayed: BTreeSet<Seq> = self.packed.iter().filter(|it| it.is_replay).map(|it| it.seq).collect();
        // What was acked and is packed all the same is owed once more.
        let first_packed_new = |mut among: Range<Seq>| {
            while let Some(seq) = self.packed.first(among.clone()) {
                if !replayed.contains(&seq) {
                    return Some(seq);
                }
                among.start = seq.next();
            }
            None
        };
        for (first, run) in self.runs.iter().filter(|(_, run)| run.kind == Kind::Ack) {
            let of_run = self.entries.range(run.first_seq..run.first_seq.plus(run.count));
            for (seq, entry) in of_run {
                let acked = first.plus(seq.above(run.first_seq));
                if !came_back(entry, acked) {
                    return Err(ImageError::Field { field: "seq", found: seq.get() });
                }
            }
            if let Some(seq) = first_packed_new(run.first_seq..run.first_seq.plus(run.count)) {
                return Err(ImageError::Field { field: "packed", found: seq.get() });
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
