//! Everything that a node serves of its messages, one by one.

use std::collections::BTreeMap;

use mortarmq_node::{Query, QueryAnswer};
use mortarmq_types::{Partition, Seq};

use super::support::{CONNECTION, Crashed, Rig, subscribe};

/// A message: its topic's name, partition and sequence.
pub(crate) type Place = (String, u16, u64);

/// What came of reading everything: what was served as text, or why it was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) peeks: BTreeMap<Place, Result<String, String>>,
    /// Without what the record itself tells.
    pub(crate) traces: BTreeMap<Place, Result<String, String>>,
    /// What the record tells of a message's life.
    pub(crate) stored: BTreeMap<Place, Result<String, String>>,
    /// What a new group was delivered.
    pub(crate) deliveries: BTreeMap<Place, String>,
    pub(crate) books: String,
}

impl Served {
    /// Why reads failed.
    pub(crate) fn failures(&self) -> Vec<&String> {
        let reads = self.peeks.values().chain(self.traces.values()).chain(self.stored.values());
        reads.filter_map(|read| read.as_ref().err()).collect()
    }

    /// Asserts that all that was served is what `sound` served.
    pub(crate) fn must_be_part_of(&self, sound: &Self, story: &dyn Fn() -> String) {
        assert_eq!(self.books, sound.books, "{}: P9", story());
        assert_eq!(self.peeks.len(), sound.peeks.len(), "{}: a message is gone unnoticed", story());
        assert_eq!(self.traces.len(), sound.traces.len(), "{}: a life is gone unnoticed", story());
        let of_records = (&self.stored, &sound.stored);
        for (reads, expected) in [(&self.peeks, &sound.peeks), (&self.traces, &sound.traces), of_records] {
            for (place, read) in reads {
                assert!(
                    read.is_err() || read == &expected[place],
                    "{}: P11: {place:?} served {read:?}, not {:?}",
                    story(),
                    expected[place]
                );
            }
        }
        for (place, delivery) in &self.deliveries {
            assert_eq!(Some(delivery), sound.deliveries.get(place), "{}: P11: {place:?} delivered", story());
        }
    }
}

/// Asks for every message and its life.
pub(crate) fn look(rig: &mut Rig) -> Result<Served, Crashed> {
    let mut served = Served::default();
    let topics: Vec<(String, Vec<u64>)> = rig
        .node
        .shard()
        .state()
        .topics
        .values()
        .map(|topic| (topic.name.clone(), topic.partitions.iter().map(|partition| partition.last_seq.get()).collect()))
        .collect();
    for (topic, partitions) in topics {
        for (number, last) in partitions.into_iter().enumerate() {
            let number = u16::try_from(number).expect("few");
            let partition = Partition::new(number);
            for seq in 1..=last {
                let place = (topic.clone(), number, seq);
                let peek = Query::Peek { topic: topic.clone(), partition, from: Seq::new(seq), max: 1 };
                served.peeks.insert(place.clone(), peeked(rig, peek, seq)?);
                let trace = Query::Trace { topic: topic.clone(), partition, seq: Seq::new(seq) };
                let life = match rig.query(trace)?.result {
                    Ok(QueryAnswer::Trace(view)) => {
                        let (stored, others) = view.events.split_first().expect("it was stored");
                        let unreadable = stored.detail.strip_prefix("unreadable: ").map(str::to_owned);
                        served.stored.insert(place.clone(), unreadable.map_or_else(|| Ok(format!("{stored:?}")), Err));
                        Ok(format!("{others:?}"))
                    }
                    Ok(other) => panic!("a trace is answered with a life, not {other:?}"),
                    Err(failure) => Err(failure.message),
                };
                served.traces.insert(place, life);
            }
        }
    }
    served.books = match rig.query(Query::Balance { topic: None })?.result {
        Ok(QueryAnswer::Balance(view)) => format!("{view:?}"),
        other => panic!("the books are told, not {other:?}"),
    };
    Ok(served)
}

fn peeked(rig: &mut Rig, peek: Query, seq: u64) -> Result<Result<String, String>, Crashed> {
    Ok(match rig.query(peek)?.result {
        Ok(QueryAnswer::Peek(view)) => match &view.messages[..] {
            [message] if message.sequence == seq => Ok(format!("{message:?}")),
            other => panic!("P11: {seq} was asked for, and silently came {other:?}"),
        },
        Ok(other) => panic!("a peek is answered with messages, not {other:?}"),
        Err(failure) => Err(failure.message),
    })
}

/// Has everything delivered to a group that is new.
pub(crate) fn deliver(rig: &mut Rig, served: &mut Served) -> Result<(), Crashed> {
    rig.connect(CONNECTION);
    let topics: Vec<_> = rig.node.shard().state().topics.iter().map(|(id, topic)| (*id, topic.name.clone())).collect();
    for (number, (topic, name)) in topics.into_iter().enumerate() {
        let subscription = u16::try_from(number).expect("few") + 7;
        rig.ask(CONNECTION, vec![subscribe(topic, "everything", subscription, 700 + number as u64, 1000)])?;
        for delivery in rig.take_deliveries() {
            let place = (name.clone(), delivery.partition.get(), delivery.seq.get());
            let text = format!("{} {:?}", delivery.published_at, delivery.record);
            assert!(served.deliveries.insert(place, text).is_none(), "each message once");
        }
    }
    Ok(())
}
