//! What all parts of a soak share: the broker, the topic and its paths, the history.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mortarmq_client::{
    Client, ClientOptions, ConsumerOptions, Message, ProducerOptions, PullOptions, Recording, TopicOptions,
};
use mortarmq_history::{Options, Order, PathInfo, Record, Recorder, Run, VERSION};
use serde::Deserialize;
use tokio::sync::watch;

use crate::admin::{Admin, AdminArgs, Route};
use crate::errors::{Failure, chain};
use crate::session::{self, ServerArgs};

/// How far a soak is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Everything at once.
    Load,
    /// Nothing new is published, and every message is acked.
    Calm,
    /// Everything is empty.
    End,
}

/// A group and what it promises.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) name: &'static str,
    order: &'static str,
    max_attempts: u32,
}

/// What all parts share.
#[derive(Clone)]
pub(super) struct Ground {
    pub(super) server: ServerArgs,
    pub(super) admin: AdminArgs,
    pub(super) recorder: Recorder,
    recording: Recording,
    pub(super) topic: Arc<str>,
    /// The topic of its dead letters.
    pub(super) dlq: Arc<str>,
    phase: Arc<watch::Sender<Phase>>,
}

impl Ground {
    /// Makes the topic, its groups and its dead-letter topic, and begins the history with what they promise.
    pub(super) async fn prepare(
        server: ServerArgs,
        admin: AdminArgs,
        history: &Path,
        seed: u64,
    ) -> Result<Self, Failure> {
        let recorder = Recorder::create(history, Options::default())
            .map_err(|error| Failure::local(chain(&error), "name another file: --history FILE"))?;
        let recording = Recording::by_value(recorder.clone(), id_of);
        let topic = format!("soak-{seed}");
        let ground = Self {
            server,
            admin,
            recorder,
            recording,
            dlq: format!("$dlq.{topic}").into(),
            topic: topic.into(),
            phase: Arc::new(watch::Sender::new(Phase::Load)),
        };
        ground.make_paths().await?;
        ground.begin()?;
        Ok(ground)
    }

    /// Opens a connection whose work is recorded under a name.
    pub(super) async fn connect(&self, name: &str) -> Result<Client, Failure> {
        let options = ClientOptions {
            servers: self.server.server.clone(),
            token: self.server.token.clone().unwrap_or_default().into_bytes(),
            tls: self.server.tls.options()?,
            name: name.to_owned(),
            recording: Some(self.recording.clone()),
            // Whoever connects while the node is down waits for it.
            reconnect: mortarmq_client::ReconnectOptions {
                give_up_after: Some(CONNECT_LIMIT),
                ..mortarmq_client::ReconnectOptions::default()
            },
            ..ClientOptions::default()
        };
        Client::connect(options).await.map_err(|error| session::failure(&error))
    }

    pub(super) fn operator(&self) -> Result<Admin, Failure> {
        Admin::new(&self.admin)
    }

    pub(super) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    pub(super) fn set_phase(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// Waits until it is this far.
    pub(super) async fn reached(&self, phase: Phase) {
        // The sender is part of `self`, so it cannot be gone.
        let _ = self.phase.subscribe().wait_for(|reached| *reached >= phase).await;
    }

    pub(super) fn path(&self, group: &str) -> String {
        format!("{}/{group}", self.topic)
    }

    /// Now, by the history's clock.
    pub(super) fn now_ns() -> u64 {
        Recording::now_ns()
    }

    /// One message goes all the way to the dead letters, so that their topic exists and its path can be told.
    async fn make_paths(&self) -> Result<(), Failure> {
        let failure = |error| session::failure(&error);
        let client = self.connect("first").await?;
        client.declare_topic(&self.topic, TopicOptions::partitions(PARTITIONS)).await.map_err(failure)?;
        for group in GROUPS {
            let options = ConsumerOptions { credit_messages: Some(0), ..group.options() };
            let consumer = client.consumer(&self.topic, group.name, options).await.map_err(failure)?;
            if group.name == BILLING {
                let producer = client.producer(&self.topic, ProducerOptions::default()).await.map_err(failure)?;
                let value = value_of("first-0", 0);
                producer.publish(Message::of(&value)).await.map_err(|error| super::failed(&error))?;
                for delivery in consumer.pull(PullOptions::default()).await.map_err(failure)? {
                    delivery.dead_letter("the first dead letter").await.map_err(|error| super::failed(&error))?;
                }
            }
            consumer.close().await.map_err(failure)?;
        }
        client.close().await;
        Ok(())
    }

    /// The run's record: what the broker says that the paths promise.
    fn begin(&self) -> Result<(), Failure> {
        let admin = self.operator()?;
        let mut paths = Vec::new();
        for (topic, group) in GROUPS.iter().map(|group| (&self.topic, group.name)).chain([(&self.dlq, DLQ_GROUP)]) {
            let route = Route { path: &["v1", "topics", topic, "groups", group], query: &[] };
            let told: Told = admin.get_of_topic(topic, route)?;
            let is_dlq = group == DLQ_GROUP;
            paths.push(PathInfo {
                path: format!("{topic}/{group}").into(),
                topic: Cow::Borrowed(topic),
                lease_ms: Some(told.settings.lease_ms),
                max_attempts: Some(told.settings.max_attempts),
                order: Some(Order::from_word(&told.settings.order).unwrap_or(Order::None)),
                dlq: (!is_dlq).then(|| Cow::Borrowed(&*self.dlq)),
                source: None,
            });
        }
        let run = Run { v: VERSION, run: Some(Cow::Borrowed(&self.topic)), lease_ms: None, paths };
        self.recorder.record(&Record::Run(run));
        Ok(())
    }
}

impl Group {
    /// How every consumer of the group subscribes: the first one makes it.
    pub(super) fn options(self) -> ConsumerOptions {
        ConsumerOptions::default()
            .set("lease_ms", LEASE_MS)
            .set("session_ms", 1_000)
            .set("max_attempts", self.max_attempts)
            .set("order", self.order)
            .set("retry_backoff_base_ms", 50)
            .set("retry_backoff_max_ms", 500)
    }
}

#[derive(Deserialize)]
struct Told {
    settings: Settings,
}

#[derive(Deserialize)]
struct Settings {
    lease_ms: u64,
    max_attempts: u32,
    order: String,
}

/// A value with its message's own id in front.
pub(super) fn value_of(id: &str, filler_bytes: usize) -> Vec<u8> {
    let mut value = format!("{id} ").into_bytes();
    value.resize(value.len() + filler_bytes, b'.');
    value
}

/// The id in front of a value.
pub(super) fn id_of(value: &[u8]) -> Option<String> {
    let end = value.iter().position(|byte| *byte == b' ')?;
    String::from_utf8(value[..end].to_vec()).ok()
}

pub(super) const BILLING: &str = "billing";
pub(super) const AUDIT: &str = "audit";
/// One with order and few attempts, one without either.
pub(super) const GROUPS: &[Group] =
    &[Group { name: BILLING, order: "key", max_attempts: 3 }, Group { name: AUDIT, order: "none", max_attempts: 0 }];
/// The group that every dead-letter topic has.
pub(super) const DLQ_GROUP: &str = "default";
/// Short, so that some run out; longer than a session, so that the dead lose theirs with it.
pub(super) const LEASE_MS: u64 = 2_000;
const PARTITIONS: u16 = 4;
/// A node that starts again is back sooner.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);
