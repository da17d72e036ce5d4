//! The life of one message, read from its record and the ledger.

use mortarmq_shard::State;
use mortarmq_shard::ledger::{LedgerEvent, LedgerKind};
use mortarmq_shard::record::open_record;
use mortarmq_storage::StoredRecord;
use mortarmq_types::{Partition, Seq, TopicIncarnation};
use mortarmq_wire::ErrorCode;

use crate::node::Node;
use crate::output::ReadJob;
use crate::queries::{Freshness, Reading, Wanted};
use crate::recent::Stored;
use crate::reply::{Failure, QueryAnswer};
use crate::views::{TraceEvent, TraceView, trace};

impl Node {
    /// The first message of a partition that is kept; the first of all if there is no such topic.
    fn kept_from(&self, topic: TopicIncarnation, partition: Partition) -> Seq {
        let topic = self.shard.state().topics.get(&topic);
        topic.map_or(Seq::FIRST, |topic| topic.partitions[partition.index()].kept.first_seq)
    }

    /// A trace reads the ledger once all that is applied is written to it.
    pub(crate) fn begin_trace(
        &mut self,
        (query, freshness): (u64, Freshness),
        (topic, name): (TopicIncarnation, String),
        partition: Partition,
        seq: Seq,
    ) {
        let ticket = self.read(self.last_ticket, ReadJob::Life { topic, partition, seq });
        let (position, wanted) = (self.position(), Wanted::Life(seq));
        let reading = Reading { query, position, freshness, topic, name, partition, wanted };
        self.queries.reading.insert(ticket, reading);
    }

    pub(crate) fn tell_life(
        &self,
        reading: &Reading,
        record: Result<Option<StoredRecord>, String>,
        payloads: Vec<bytes::Bytes>,
    ) -> Result<QueryAnswer, Failure> {
        let Wanted::Life(seq) = reading.wanted else {
            return Err(Failure::new(ErrorCode::Internal, "the read was answered with a life"));
        };
        let mut events = Vec::with_capacity(payloads.len() + 1);
        let kept_from = self.kept_from(reading.topic, reading.partition);
        match record {
            Ok(Some(record)) => events.push(stored_event(&Stored::from(record))),
            Ok(None) if seq < kept_from => events.push(gone_event(kept_from)),
            Ok(None) => {}
            Err(reason) => events.push(unreadable_event(&reason)),
        }
        for payload in payloads {
            let event = LedgerEvent::decode(payload)
                .map_err(|error| Failure::new(ErrorCode::Internal, format!("the ledger cannot be read: {error}")))?;
            let Some(event) = event.of_message(seq) else { continue };
            events.push(ledger_event(self.shard.state(), &reading.name, &event));
        }
        let mut standing = trace::standing(self.shard.state(), reading.topic, reading.partition, seq);
        for row in &mut standing {
            row.look_up(&events, seq >= kept_from);
        }
        Ok(QueryAnswer::Trace(TraceView { events, standing }))
    }
}

fn stored_event(stored: &Stored) -> TraceEvent {
    let detail = match open_record(&stored.record) {
        Ok(record) if record.producer_id.get() == 0 => String::new(),
        Ok(record) => format!("producer {:016x} number {}", record.producer_id.get(), record.producer_seq),
        Err(error) => format!("unreadable: {error}"),
    };
    let (time_ms, commit_index) = (stored.published_at.get(), stored.position.commit_index.get());
    TraceEvent { time_ms, commit_index, ..stored_somehow(detail) }
}

/// Retention has passed a message, and its record is gone.
fn gone_event(kept_from: Seq) -> TraceEvent {
    let text = "its record is gone: retention keeps this partition from sequence";
    stored_somehow(format!("{text} {kept_from} on"))
}

fn unreadable_event(reason: &str) -> TraceEvent {
    stored_somehow(format!("unreadable: {reason}"))
}

/// That a message was stored is known; when, and by whom, stands in the record.
fn stored_somehow(detail: String) -> TraceEvent {
    TraceEvent {
        time_ms: 0,
        commit_index: 0,
        path: "-".to_owned(),
        stage: "stored",
        delivery_id: None,
        attempt: None,
        member: None,
        cause: None,
        detail,
    }
}

fn ledger_event(state: &State, topic: &str, event: &LedgerEvent) -> TraceEvent {
    let group = state.paths.get(&event.path).map_or_else(|| format!("path-{}", event.path), |path| path.group.clone());
    let (stage, cause) = match event.kind {
        LedgerKind::Leased(cause) => ("leased", Some(cause.word())),
        LedgerKind::Extended => ("extended", None),
        LedgerKind::LeaseEnded(cause) => ("lease_ended", Some(cause.word())),
        LedgerKind::Acked => ("acked", None),
        LedgerKind::Dead(death) => ("dead", Some(death.word())),
        LedgerKind::Dropped(reason) => ("dropped", Some(reason.word())),
        LedgerKind::Redriven => ("redriven", None),
        LedgerKind::Replayed => ("replayed", None),
    };
    let detail = match (event.previous.get(), event.detail.as_str()) {
        (0, detail) => detail.to_owned(),
        (previous, "") => format!("follows delivery {previous}"),
        (previous, detail) => format!("follows delivery {previous}, {detail}"),
    };
    TraceEvent {
        time_ms: event.wall.get(),
        commit_index: event.commit_index.get(),
        path: format!("{topic}/{group}"),
        stage,
        delivery_id: (event.first_delivery.get() != 0).then(|| event.first_delivery.get()),
        attempt: (event.attempt.get() != 0).then(|| event.attempt.get()),
        member: (event.member.get() != 0).then(|| format!("{:016x}", event.member.get())),
        cause,
        detail,
    }
}
