//! The client: a connection, and what can be asked over it.

use std::sync::Arc;

use bytes::BytesMut;
use mortarmq_types::{Epoch, NodeId, TopicIncarnation};
use mortarmq_wire::ops::{self, Declare, DeclareOk, MetadataOk, TopicState};
use mortarmq_wire::{DecodeError, List, Op, Outcome};
use tokio::sync::oneshot;

use crate::connection::{self, Dialer};
use crate::consumer::Consumer;
use crate::engine::{CallAnswer, Settings, Shared};
use crate::errors::ClientError;
use crate::options::{ClientOptions, ConsumerOptions, ProducerOptions, TopicOptions};
use crate::producer::Producer;

/// A client of a broker: one connection, opened again whenever it is lost. Clones share it.
///
/// Whatever was asked over a lost connection is asked again over the next, until it is answered. When the last handle
/// of a client is dropped ([`Client`], [`Producer`], [`Consumer`]), what is under way is still seen
/// through, as long as the connection holds.
///
/// Must be used inside a tokio runtime.
#[derive(Clone, Debug)]
pub struct Client {
    handle: Arc<Handle>,
}

/// What every handle of a client holds.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.with(|engine| engine.close(true));
    }
}

/// A topic as DECLARE found or made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicInfo {
    /// The handle on the connection that answered; no use outside of it.
    pub topic_id: u16,
    /// Which life of the name this is.
    pub incarnation: TopicIncarnation,
    /// How many partitions it has.
    pub partitions: u16,
    /// Whether it existed before, with the same settings. Also set when a repeat finds what its first attempt made.
    pub existed: bool,
}

/// Nodes and topics of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The cluster's nodes.
    pub nodes: Vec<Node>,
    /// The topics that exist, of those that were asked for.
    pub topics: Vec<Topic>,
}

/// A node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The node.
    pub node_id: NodeId,
    /// Where it takes clients: host and port.
    pub client_address: String,
}

/// A topic of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Which life of the name this is.
    pub incarnation: TopicIncarnation,
    /// How many partitions it has.
    pub partitions: u16,
    /// Whether it is being deleted.
    pub state: TopicState,
    /// The leader's term in which it was created.
    pub created_epoch: Epoch,
    /// The node that leads it.
    pub leader: NodeId,
    /// That leader's term.
    pub leader_epoch: Epoch,
}

impl Client {
    /// Connects to the first server that answers.
    ///
    /// # Errors
    /// No server could be reached, or all of them refuse this client. Each is tried once, or again and again for
    /// [`give_up_after`](crate::ReconnectOptions::give_up_after) if that is set. With TLS also: its CAs cannot be used, or
    /// no server shows a certificate of theirs.
    pub async fn connect(options: ClientOptions) -> Result<Self, ClientError> {
        let shared = Arc::new(Shared::new(options.reconnect.clone(), options.observed()));
        let mut dialer = Dialer::new(options)?;
        let connected = dialer.connect().await?;
        let handle = Handle { shared: Arc::clone(&shared) };
        tokio::spawn(connection::run(shared, dialer, connected));
        Ok(Self { handle: Arc::new(handle) })
    }

    /// Creates a topic, or finds it.
    ///
    /// # Errors
    /// Among others a forbidden name, and a topic of that name with other settings.
    pub async fn declare_topic(&self, name: &str, options: TopicOptions) -> Result<TopicInfo, ClientError> {
        let TopicOptions { partitions, options_json } = &options;
        let request =
            Declare { topic: name, partition_count: *partitions, delete: false, options: options_json.as_bytes() };
        let answer = self.declare(&request).await?;
        let ok = DeclareOk::decode(&answer.result).map_err(bad_answer(Op::Declare))?;
        Ok(TopicInfo {
            topic_id: ok.topic_id,
            incarnation: ok.incarnation,
            partitions: ok.partition_count,
            existed: ok.existed,
        })
    }

    /// Deletes a topic with all its messages. Returns whether there was one; also when it is gone at a repeat, after
    /// a first attempt that was not answered.
    ///
    /// # Errors
    /// Among others a missing grant.
    pub async fn delete_topic(&self, name: &str) -> Result<bool, ClientError> {
        let request = Declare { topic: name, partition_count: 0, delete: true, options: b"" };
        let answer = self.declare(&request).await?;
        let ok = DeclareOk::decode(&answer.result).map_err(bad_answer(Op::Declare))?;
        Ok(ok.existed || answer.is_repeat)
    }

    /// The cluster's nodes, and the topics of these names; of none for all topics. Names that no topic has are left
    /// out.
    ///
    /// # Errors
    /// As any request.
    pub async fn metadata(&self, names: &[&str]) -> Result<Metadata, ClientError> {
        let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        let mut frame = BytesMut::new();
        ops::Metadata { topics: List::from(&names[..]) }.encode(&mut frame)?;
        let answer = self.call(Op::Metadata, frame).await?;
        let ok = MetadataOk::decode(&answer.result).map_err(bad_answer(Op::Metadata))?;
        Ok(Metadata::of(&ok))
    }

    /// Opens a producer.
    ///
    /// # Errors
    /// The topic does not exist.
    pub async fn producer(&self, topic: &str, options: ProducerOptions) -> Result<Producer, ClientError> {
        let (opened, open) = oneshot::channel();
        let (line, window) = self.handle.shared.with(|engine| engine.open_line(topic, &options, opened))?;
        // Made before the wait, so that the line goes when the wait is cancelled.
        let producer = Producer::new(Arc::clone(&self.handle), line, window);
        open.await.unwrap_or_else(|_| Err(closed(Outcome::Unknown)))?;
        Ok(producer)
    }

    /// Joins a group, which this creates if it is the first.
    ///
    /// # Errors
    /// Among others: the topic does not exist, or the group exists with other settings.
    pub async fn consumer(&self, topic: &str, group: &str, options: ConsumerOptions) -> Result<Consumer, ClientError> {
        let (opened, open) = oneshot::channel();
        let settings = Settings::new(group, options);
        let shared = Arc::downgrade(&self.handle.shared);
        let (id, ready) =
            self.handle.shared.with(|engine| engine.open_subscription(topic, settings, shared, opened))?;
        let consumer = Consumer::new(Arc::clone(&self.handle), id, ready);
        open.await.unwrap_or_else(|_| Err(closed(Outcome::Unknown)))?;
        Ok(consumer)
    }

    /// Ends the client for all its clones: nothing new is taken, consumers give back what they hold and leave, and
    /// everything that is not answered yet is seen through.
    ///
    /// Without a broker that answers this waits as long as the client tries to reconnect.
    pub async fn close(self) {
        self.handle.shared.with(|engine| engine.close(false));
        self.handle.shared.ended().await;
    }

    async fn declare(&self, request: &Declare<'_>) -> Result<CallAnswer, ClientError> {
        let mut frame = BytesMut::new();
        request.encode(&mut frame)?;
        self.call(Op::Declare, frame).await
    }

    async fn call(&self, op: Op, frame: BytesMut) -> Result<CallAnswer, ClientError> {
        let (reply, answer) = oneshot::channel();
        self.handle.shared.with(|engine| engine.call(op, frame.freeze(), reply))?;
        answer.await.unwrap_or_else(|_| Err(closed(Outcome::Unknown)))
    }
}

impl Metadata {
    fn of(ok: &MetadataOk<'_>) -> Self {
        let nodes = ok.nodes.iter();
        let nodes = nodes.map(|node| Node { node_id: node.node_id, client_address: node.client_address.to_owned() });
        let topics = ok.topics.iter().map(|topic| Topic {
            name: topic.name.to_owned(),
            incarnation: topic.incarnation,
            partitions: topic.partition_count,
            state: topic.state,
            created_epoch: topic.created_epoch,
            leader: topic.leader_id,
            leader_epoch: topic.leader_epoch,
        });
        Self { nodes: nodes.collect(), topics: topics.collect() }
    }
}

/// What is told when the connection task is gone without an answer, which its own end prevents.
pub(crate) const fn closed(outcome: Outcome) -> ClientError {
    ClientError::Closed { outcome }
}

fn bad_answer(op: Op) -> impl FnOnce(DecodeError) -> ClientError {
    move |reason| ClientError::BadAnswer { op, reason }
}
