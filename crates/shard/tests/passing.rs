//! Goal: nothing that waits for its time stops anything else (P4, P9): a million messages pass one that is delayed for a day,
//! one that was nacked with an hour's delay, and one that is leased for hours, and all three still come. Method: the state
//! machine under the commands of a leader, a thousand messages at a time.

use mortarmq_shard::command::{CreateTopic, Deliver, Settle};
use mortarmq_shard::record::NewRecord;
use mortarmq_shard::{
    Applied, BatchBuilder, Command, Defaults, DeliverEffect, Effect, Grant, JoinGroup, PublishRunBuilder, Setting,
    SettingsPatch, SettleItem, SettleKind, Shard, Stamp, StartPolicy, Times,
};
use mortarmq_types::{
    ClusterTime, DeliveryId, Epoch, MemberId, Partition, PathId, ProducerId, ProducerSeq, Seq, TopicIncarnation,
    WallTime,
};

const TOPIC: TopicIncarnation = TopicIncarnation::new(1);
const PATH: PathId = PathId::new(1);
const SLOW: MemberId = MemberId::new(70);
const FAST: MemberId = MemberId::new(71);
const HOUR_MS: u64 = 3_600_000;
const MILLION: u64 = 1_000_000;

struct Leader {
    shard: Shard,
    batch: BatchBuilder,
    time_ms: u64,
}

impl Leader {
    fn apply(&mut self) -> Applied {
        let stamp = Stamp { time: ClusterTime::new(self.time_ms), gap_ms: 0, wall: WallTime::ZERO };
        self.shard.apply(self.batch.close(stamp), Epoch::new(1)).expect("commands of this build")
    }

    fn join(&mut self, member: MemberId) {
        let settings = SettingsPatch { values: vec![(Setting::LeaseMs, 6 * HOUR_MS)] };
        let (group, start) = ("billing".to_owned(), StartPolicy::Earliest);
        self.batch.add(&Command::JoinGroup(JoinGroup { topic: TOPIC, group, settings, start, member, secret_hash: 1 }));
    }

    /// Publishes without key, and with this delay.
    fn publish(&mut self, count: u64, delay_ms: u64) {
        let mut run = PublishRunBuilder::default();
        for _ in 0..count {
            let (producer_id, producer_seq) = (ProducerId::ZERO, ProducerSeq::ZERO);
            let record = NewRecord { producer_id, producer_seq, key: b"", has_headers: false, body: b"value" };
            run.add_timed(TOPIC, Partition::ZERO, (5, 5), &record, Times { delay_ms, ttl_ms: 0 });
        }
        self.batch.add_run(&run.take().expect("at least one"));
    }

    /// What a member is given of at most so many, as sequence and delivery.
    fn deliver(&mut self, member: MemberId, max_messages: u32) -> Vec<(Seq, DeliveryId)> {
        let grant = Grant::Push { window_messages: 1024, window_bytes: u64::MAX };
        self.batch.add(&Command::Deliver(Deliver { path: PATH, member, grant, max_messages, stretch: None }));
        let of = |effect| if let Effect::Deliver(deliver) = effect { Some(deliver) } else { None };
        let given: Vec<DeliverEffect> = self.apply().effects.into_iter().filter_map(of).collect();
        given.iter().flat_map(|it| it.leases.iter().map(|lease| (lease.seq, lease.delivery_id))).collect()
    }

    fn settle(&mut self, first: (Seq, DeliveryId), count: usize, kind: SettleKind) {
        let (partition, (first_seq, first_delivery)) = (Partition::ZERO, first);
        let count = u32::try_from(count).expect("a thousand");
        let item = SettleItem { partition, first_seq, first_delivery, count, kind };
        self.batch.add(&Command::Settle(Settle { path: PATH, items: vec![item] }));
        self.apply();
    }
}

#[test]
fn p4_a_million_messages_pass_one_that_is_delayed_one_that_was_nacked_and_one_that_is_leased() {
    let mut leader = Leader { shard: Shard::default(), batch: BatchBuilder::default(), time_ms: 1 };
    let settings = SettingsPatch { values: vec![(Setting::Partitions, 1)] };
    leader.batch.add(&Command::SetDefaults(Defaults::BUILD));
    leader.batch.add(&Command::CreateTopic(CreateTopic { name: "orders".to_owned(), settings }));
    leader.join(SLOW);
    leader.join(FAST);
    leader.publish(1, 24 * HOUR_MS);
    leader.publish(2, 0);
    let held = leader.deliver(SLOW, 9);
    assert_eq!(held.iter().map(|(seq, _)| seq.get()).collect::<Vec<_>>(), [2, 3], "1 is not due");
    leader.settle(held[0], 1, SettleKind::Nack { delay_ms: 3_600_000, error: "later".to_owned() });
    let mut passed = 0;
    while passed < MILLION {
        leader.time_ms += 1;
        leader.publish(1000, 0);
        let given = leader.deliver(FAST, 1000);
        assert!(given.iter().map(|(seq, _)| seq.get()).eq(passed + 4..passed + 1004), "behind {passed}: {given:?}");
        leader.settle(given[0], given.len(), SettleKind::Ack);
        passed += 1000;
    }
    leader.shard.check();
    let partition = &leader.shard.state().paths[&PATH].partitions[0];
    assert_eq!((partition.in_flight(), partition.scheduled(), partition.delayed()), (1, 1, 1));
    assert_eq!(partition.passed_over(), 2, "the state knows of nothing that is done");
    assert_eq!(leader.shard.state().topics[&TOPIC].partitions[0].facts.len(), 0);
    let books = leader.shard.state().books(&leader.shard.state().paths[&PATH]);
    assert_eq!((books.produced, books.delivered, books.depth), (MILLION + 3, MILLION, 3), "P9");
    // Each of them comes at its time: the retry after an hour, the lease's end after six, the delay after a day.
    for (hours, expected) in [(1, 2), (7, 3), (25, 1)] {
        assert_eq!(leader.deliver(FAST, 9), []);
        leader.time_ms = hours * HOUR_MS + 2000;
        leader.apply();
        leader.time_ms += 60_000;
        let given = leader.deliver(FAST, 9);
        assert_eq!(given.iter().map(|(seq, _)| seq.get()).collect::<Vec<_>>(), [expected]);
        leader.settle(given[0], 1, SettleKind::Ack);
    }
    leader.shard.check();
    let books = leader.shard.state().books(&leader.shard.state().paths[&PATH]);
    assert_eq!((books.delivered, books.depth), (MILLION + 3, 0));
}
