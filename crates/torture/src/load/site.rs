//! What all clients of a run share: where the cluster is, the topic and its groups, the history.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mortarmq_client::{
    Client, ClientError, ClientOptions, ConsumerOptions, Message, ProducerOptions, PullOptions, ReconnectOptions,
    Recording, TopicOptions,
};
use mortarmq_history::{Options, Order, PathInfo, Record, Recorder, Run, VERSION};
use tokio::sync::watch;

use super::tally::Tally;
use crate::failure::{Failure, Outcome};
use crate::network::Addresses;
use crate::operator::{GroupTold, TOKEN};

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Everything at once.
    Load,
    /// Nothing new is published, and every message is acked.
    Calm,
    /// Everything is empty.
    End,
}

/// A group and what it promises.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) name: &'static str,
    order: &'static str,
    max_attempts: u32,
    session_ms: u64,
}

/// What all clients share.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) nodes: Arc<[Addresses]>,
    pub(crate) recorder: Recorder,
    recording: Recording,
    pub(crate) tally: Arc<Tally>,
    phase: Arc<watch::Sender<Phase>>,
}

impl Site {
    /// Begins a history.
    pub(crate) fn new(nodes: Vec<Addresses>, history: &Path) -> Outcome<Self> {
        let recorder = Recorder::create(history, Options::default());
        let recorder = recorder.map_err(|error| Failure::History(format!("{error}: {}", error.source)))?;
        Ok(Self {
            nodes: nodes.into(),
            recording: Recording::by_value(recorder.clone(), id_of),
            recorder,
            tally: Arc::new(Tally::new()),
            phase: Arc::new(watch::Sender::new(Phase::Load)),
        })
    }

    /// Opens a connection whose work is recorded under a name, and goes on until there is one. `first` says which node is tried
    /// first.
    pub(crate) async fn connect(&self, name: &str, first: usize) -> Client {
        self.connect_with(self.options(name, first)).await
    }

    /// As [`Self::connect`], for one who notices at once when a node takes it again.
    pub(crate) async fn connect_eagerly(&self, name: &str, first: usize) -> Client {
        let reconnect = ReconnectOptions { initial_ms: 1, max_ms: 2, give_up_after: None };
        self.connect_with(ClientOptions { reconnect, ..self.options(name, first) }).await
    }

    async fn connect_with(&self, options: ClientOptions) -> Client {
        loop {
            if let Ok(client) = Client::connect(options.clone()).await {
                return client;
            }
            tokio::time::sleep(BETWEEN_CONNECTS).await;
        }
    }

    fn options(&self, name: &str, first: usize) -> ClientOptions {
        let mut servers: Vec<String> = self.nodes.iter().map(|node| node.client.clone()).collect();
        let count = servers.len();
        servers.rotate_left(first % count);
        ClientOptions {
            servers,
            token: TOKEN.as_bytes().to_vec(),
            name: name.to_owned(),
            recording: Some(self.recording.clone()),
            connect_timeout: Duration::from_secs(1),
            // A node that stands still is left before a session ends; longer than `--publish-timeout-ms` of the nodes.
            answer_timeout: Duration::from_secs(2),
            reconnect: ReconnectOptions { initial_ms: 20, max_ms: 200, give_up_after: None },
            ..ClientOptions::default()
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// Waits until it is this far.
    pub(crate) async fn reached(&self, phase: Phase) {
        // The sender is part of `self`, so it cannot be gone.
        let _ = self.phase.subscribe().wait_for(|reached| *reached >= phase).await;
    }

    /// Now, by the history's clock.
    ///
    /// # Units
    /// Nanoseconds.
    pub(crate) fn now_ns() -> u64 {
        Recording::now_ns()
    }

    /// Makes topic and groups. One message goes all the way to the dead letters, so that their topic exists and its path can be
    /// told.
    pub(crate) async fn make_paths(&self) -> Result<(), ClientError> {
        let client = self.connect("first", 0).await;
        client.declare_topic(TOPIC, TopicOptions::partitions(PARTITIONS)).await?;
        for group in GROUPS {
            let options = ConsumerOptions { credit_messages: Some(0), ..group.options() };
            let consumer = client.consumer(TOPIC, group.name, options).await?;
            if group.name == BILLING {
                let producer = client.producer(TOPIC, ProducerOptions::default()).await?;
                let value = value_of("first-0", 0);
                producer.publish(Message::of(&value)).await.map_err(|error| error.error)?;
                for delivery in consumer.pull(PullOptions::default()).await? {
                    // How it was answered is in the history.
                    let _ = delivery.dead_letter("the first dead letter").await;
                }
            }
            consumer.close().await?;
        }
        client.close().await;
        Ok(())
    }

    /// The run's record: what the broker says that the paths promise.
    pub(crate) fn record_run(&self, name: &str, told: impl Fn(&str, &str) -> Option<GroupTold>) -> Outcome {
        let mut paths = Vec::new();
        for (topic, group) in paths_of_all() {
            let told = told(topic, group)
                .ok_or_else(|| Failure::Broken(format!("the leader knows no group {group} of {topic}")))?;
            paths.push(PathInfo {
                path: format!("{topic}/{group}").into(),
                topic: Cow::Borrowed(topic),
                lease_ms: Some(told.settings.lease_ms),
                max_attempts: Some(told.settings.max_attempts),
                order: Some(Order::from_word(&told.settings.order).unwrap_or(Order::None)),
                dlq: (topic == TOPIC).then_some(Cow::Borrowed(DLQ)),
                source: None,
            });
        }
        self.recorder.record(&Record::Run(Run { v: VERSION, run: Some(Cow::Borrowed(name)), lease_ms: None, paths }));
        Ok(())
    }
}

impl Group {
    /// How every consumer of the group subscribes: the first one makes it.
    pub(crate) fn options(self) -> ConsumerOptions {
        ConsumerOptions::default()
            .set("lease_ms", LEASE_MS)
            .set("session_ms", self.session_ms)
            .set("max_attempts", self.max_attempts)
            .set("order", self.order)
            .set("retry_backoff_base_ms", 50)
            .set("retry_backoff_max_ms", 500)
    }
}

/// Topic and group of every path, dead letters included.
pub(crate) fn paths_of_all() -> impl Iterator<Item = (&'static str, &'static str)> {
    GROUPS.iter().map(|group| (TOPIC, group.name)).chain([(DLQ, DLQ_GROUP)])
}

/// A value with its message's own id in front.
pub(crate) fn value_of(id: &str, filler_bytes: usize) -> Vec<u8> {
    let mut value = format!("{id} ").into_bytes();
    value.resize(value.len() + filler_bytes, b'.');
    value
}

/// The id in front of a value.
pub(crate) fn id_of(value: &[u8]) -> Option<String> {
    let end = value.iter().position(|byte| *byte == b' ')?;
    String::from_utf8(value[..end].to_vec()).ok()
}

pub(crate) const TOPIC: &str = "orders";
pub(crate) const DLQ: &str = "$dlq.orders";
pub(crate) const BILLING: &str = "billing";
pub(crate) const AUDIT: &str = "audit";
/// One with order, a session that outlives a failover and few attempts; one without order, whose sessions end in one.
pub(crate) const GROUPS: &[Group] = &[
    Group { name: BILLING, order: "key", max_attempts: 6, session_ms: 5_000 },
    Group { name: AUDIT, order: "none", max_attempts: 0, session_ms: 1_000 },
];
/// The group that every dead-letter topic has.
pub(crate) const DLQ_GROUP: &str = "default";
/// Short, so that some run out; longer than an election.
pub(crate) const LEASE_MS: u64 = 2_000;
const PARTITIONS: u16 = 4;
const BETWEEN_CONNECTS: Duration = Duration::from_millis(50);
