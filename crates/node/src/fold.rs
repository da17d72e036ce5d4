//! Folding: the items of a SETTLE become runs, so that the log carries one item where a worker acked many in a row.

use mortarmq_shard::{SettleItem, SettleKind};
use mortarmq_types::{DeliveryId, Partition, Seq};

/// One delivery that a client settles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Single {
    /// The message's partition.
    pub partition: Partition,
    /// Its place there.
    pub seq: Seq,
    /// The delivery that is meant.
    pub delivery_id: DeliveryId,
    /// What becomes of it.
    pub kind: SettleKind,
}

/// Folds consecutive acks of consecutive sequences and deliveries of one partition. The order stays, so that the codes,
/// one for each delivery, are those of the items as they were sent.
#[must_use]
pub fn fold(singles: impl IntoIterator<Item = Single>) -> Vec<SettleItem> {
    let mut items: Vec<SettleItem> = Vec::new();
    for single in singles {
        if let Some(last) = items.last_mut()
            && follows(last, &single)
        {
            last.count += 1;
            continue;
        }
        items.push(SettleItem {
            partition: single.partition,
            first_seq: single.seq,
            first_delivery: single.delivery_id,
            count: 1,
            kind: single.kind,
        });
    }
    items
}

/// Whether a delivery is the next of a run. Numbers that would wrap follow nothing: they come from a client.
fn follows(run: &SettleItem, single: &Single) -> bool {
    let count = u64::from(run.count);
    run.kind == SettleKind::Ack
        && single.kind == SettleKind::Ack
        && run.partition == single.partition
        && run.first_seq.get().checked_add(count) == Some(single.seq.get())
        && run.first_delivery.get().checked_add(count) == Some(single.delivery_id.get())
}

#[cfg(test)]
mod tests {
    use super::{Single, fold};
    use mortarmq_shard::SettleKind;
    use mortarmq_types::{DeliveryId, Partition, Seq};

    fn single(partition: u16, seq: u64, delivery_id: u64, kind: SettleKind) -> Single {
        let (seq, delivery_id) = (Seq::new(seq), DeliveryId::new(delivery_id));
        Single { partition: Partition::new(partition), seq, delivery_id, kind }
    }

    /// Partition, first sequence, first delivery and count of each item.
    fn folded(singles: Vec<Single>) -> Vec<(u16, u64, u64, u32)> {
        let row = |item: mortarmq_shard::SettleItem| {
            (item.partition.get(), item.first_seq.get(), item.first_delivery.get(), item.count)
        };
        fold(singles).into_iter().map(row).collect()
    }

    #[test]
    fn acks_in_a_row_become_one_run() {
        let acks = (0..100).map(|step| single(3, 10 + step, 500 + step, SettleKind::Ack)).collect();
        assert_eq!(folded(acks), [(3, 10, 500, 100)]);
    }

    #[test]
    fn a_run_ends_where_partition_sequence_delivery_or_kind_breaks_it() {
        let ack = |partition, seq, delivery| single(partition, seq, delivery, SettleKind::Ack);
        assert_eq!(folded(vec![ack(0, 1, 1), ack(1, 2, 2)]), [(0, 1, 1, 1), (1, 2, 2, 1)]);
        assert_eq!(folded(vec![ack(0, 1, 1), ack(0, 3, 2)]), [(0, 1, 1, 1), (0, 3, 2, 1)]);
        assert_eq!(folded(vec![ack(0, 1, 1), ack(0, 2, 3)]), [(0, 1, 1, 1), (0, 2, 3, 1)]);
        assert_eq!(folded(vec![ack(0, 1, 1), ack(0, 1, 1)]), [(0, 1, 1, 1), (0, 1, 1, 1)]);
        let extend = single(0, 2, 2, SettleKind::Extend);
        assert_eq!(folded(vec![ack(0, 1, 1), extend, ack(0, 3, 3)]), [(0, 1, 1, 1), (0, 2, 2, 1), (0, 3, 3, 1)]);
    }

    #[test]
    fn only_acks_fold_so_that_each_nack_keeps_its_words() {
        let nack = |seq, error: &str| single(0, seq, seq, SettleKind::Nack { delay_ms: 0, error: error.to_owned() });
        assert_eq!(folded(vec![nack(1, "a"), nack(2, "a")]), [(0, 1, 1, 1), (0, 2, 2, 1)]);
        let release = |seq| single(0, seq, seq, SettleKind::Release);
        assert_eq!(folded(vec![release(1), release(2)]), [(0, 1, 1, 1), (0, 2, 2, 1)]);
    }

    #[test]
    fn numbers_at_the_end_of_the_scale_do_not_wrap() {
        let acks = vec![single(0, u64::MAX, u64::MAX, SettleKind::Ack), single(0, 0, 0, SettleKind::Ack)];
        assert_eq!(folded(acks), [(0, u64::MAX, u64::MAX, 1), (0, 0, 0, 1)]);
    }
}
