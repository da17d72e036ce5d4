//! Operators change settings while everything goes on: of topics, of groups, of the cluster.

use mortarmq_node::{Act, ErrorCode, Settings};
use mortarmq_types::TopicIncarnation;
use serde_json::Value;

use crate::life::{Life, is_overdue};
use crate::support::Crashed;

/// A change that is not answered.
#[derive(Debug)]
pub(crate) struct Change {
    query: u64,
    topic: Option<TopicIncarnation>,
    /// How many partitions the topic is to have.
    partitions: Option<u16>,
    /// Whether it is a redrive, which may be told to come later.
    is_redrive: bool,
}

/// Most partitions of a topic of these lives.
const PARTITIONS_MAX: u16 = 6;

impl Life {
    pub(crate) fn change_something(&mut self) -> Result<(), Crashed> {
        match self.random.below(10) {
            0..3 => self.change_topic(),
            3 => {
                let window = *self.random.pick(&[60_000, 120_000, 300_000]);
                let value = [("idempotency_window_ms", window.into()), ("lease_ms", 2000.into())];
                self.begin_change(None, None, Act::ChangeDefaults { values: settings(&value) })
            }
            _ => self.change_group(),
        }
    }

    /// A topic grows, or keeps what is settled from now on, or does not.
    fn change_topic(&mut self) -> Result<(), Crashed> {
        let Some(topic) = self.random_topic() else { return Ok(()) };
        let record = self.record.topic_mut(topic);
        let (name, partitions) = (record.name.clone(), record.partitions);
        let more = (partitions < PARTITIONS_MAX && self.random.one_in(2)).then_some(partitions + 1);
        let mut values = vec![("keep_settled", self.random.one_in(2).into())];
        values.extend(more.map(|more| ("partitions", more.into())));
        self.begin_change(Some(topic), more, Act::ChangeTopic { topic: name, settings: settings(&values) })
    }

    /// A group gets other limits, leases, backoff or another order. Whether it has them when the broker dies before it
    /// answers nobody knows: what follows from a setting is judged by all that it may be.
    fn change_group(&mut self) -> Result<(), Crashed> {
        let Some(topic) = self.random_topic() else { return Ok(()) };
        let groups: Vec<String> = self.record.topics[&topic].paths.keys().cloned().collect();
        if groups.is_empty() {
            return Ok(());
        }
        let group = self.random.pick(&groups).clone();
        let (key, value): (&'static str, Value) = match self.random.below(6) {
            0 => ("max_passed_over", (*self.random.pick(&[1, 2, 8, 65_536])).into()),
            1 => ("max_in_flight", (*self.random.pick(&[0, 0, 1, 5])).into()),
            2 => ("max_acked_ahead", (*self.random.pick(&[0, 0, 2, 10])).into()),
            3 => ("retry_backoff_base_ms", (*self.random.pick(&[0, 50, 400])).into()),
            4 => ("lease_ms", self.random.between(1000, 5000).into()),
            _ => ("order", (*self.random.pick(&["key", "none"])).into()),
        };
        let name = self.record.topics[&topic].name.clone();
        let options = &mut self.record.path_mut(&(topic, group.clone())).options;
        options.forget(key);
        self.changed_groups.insert((topic, group.clone()));
        let options = &mut self.record.path_mut(&(topic, group.clone())).options;
        match key {
            "lease_ms" => options.lease_ms = options.lease_ms.min(value.as_u64().expect("it was made above")),
            "order" => options.keeps_order = false,
            _ => {}
        }
        self.record.reach("settings of a group changed");
        self.begin_change(
            Some(topic),
            None,
            Act::ChangeGroup { topic: name, group, settings: settings(&[(key, value)]) },
        )
    }

    pub(crate) fn begin_redrive(&mut self, topic: TopicIncarnation, act: Act) -> Result<(), Crashed> {
        let query = self.rig.begin_act(act)?;
        self.changes.push(Change { query, topic: Some(topic), partitions: None, is_redrive: true });
        Ok(())
    }

    fn begin_change(
        &mut self,
        topic: Option<TopicIncarnation>,
        partitions: Option<u16>,
        act: Act,
    ) -> Result<(), Crashed> {
        let query = self.rig.begin_act(act)?;
        self.changes.push(Change { query, topic, partitions, is_redrive: false });
        Ok(())
    }

    /// Takes what changes were answered.
    pub(crate) fn absorb_changes(&mut self) {
        for change in std::mem::take(&mut self.changes) {
            let Some(reply) = self.rig.queries.remove(&change.query) else {
                self.changes.push(change);
                continue;
            };
            self.record.note_position(reply.position, false);
            match reply.result {
                Ok(_) => {
                    if let (Some(topic), Some(partitions)) = (change.topic, change.partitions) {
                        let record = self.record.topic_mut(topic);
                        record.partitions = record.partitions.max(partitions);
                        self.record.reach("a topic grew");
                    }
                }
                Err(failure) if is_overdue(&failure) => {}
                Err(failure) if change.is_redrive && failure.code == ErrorCode::Backpressure => {}
                // A topic that is deleted, and a group whose first join was not carried out, are not there; a topic that was
                // made again or grew meanwhile has other partitions.
                Err(failure) => {
                    let codes = [ErrorCode::UnknownTopic, ErrorCode::UnknownGroup, ErrorCode::InvalidTopic];
                    assert!(codes.contains(&failure.code), "{change:?} was answered {failure:?}");
                }
            }
        }
    }
}

fn settings(values: &[(&str, Value)]) -> Settings {
    values.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
}
