//! What is measured: a broker, and the floors beside it, each in a process of its own.

use std::path::Path;

use mortarmq_client::{Client, TopicOptions};

use crate::child_node::ChildNode;
use crate::errors::Failure;
use crate::session::{self, ServerArgs};

/// Which of those that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    /// The broker.
    Broker,
    /// A server that answers at once.
    Echo,
    /// A server that answers after write and fdatasync, and does nothing else.
    Commit,
}

/// A server that is measured.
pub(super) struct Target {
    pub(super) side: Side,
    server: ServerArgs,
    node: Option<ChildNode>,
}

impl Target {
    /// A broker that runs already.
    pub(super) const fn running(server: ServerArgs) -> Self {
        Self { side: Side::Broker, server, node: None }
    }

    /// One of our own, in a folder below this one.
    pub(super) fn start(side: Side, folder: &Path) -> Result<Self, Failure> {
        let node = match side {
            Side::Broker => ChildNode::start(&folder.join("data"))?,
            Side::Echo => ChildNode::start_floor("echo", &folder.join("echo"))?,
            Side::Commit => ChildNode::start_floor("commit", &folder.join("commit"))?,
        };
        Ok(Self { side, server: ServerArgs::at(&node.client), node: Some(node) })
    }

    /// Its process, where that is ours.
    pub(super) fn pid(&self) -> Option<u32> {
        self.node.as_ref().map(ChildNode::pid)
    }

    /// A connection.
    pub(super) async fn connect(&self) -> Result<Client, Failure> {
        self.server.connect().await
    }

    /// Several connections.
    pub(super) async fn connect_all(&self, count: u16) -> Result<Vec<Client>, Failure> {
        let mut clients = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            clients.push(self.connect().await?);
        }
        Ok(clients)
    }

    /// Makes a topic.
    pub(super) async fn make_topic(&self, topic: &str) -> Result<Client, Failure> {
        let client = self.connect().await?;
        client
            .declare_topic(topic, TopicOptions::partitions(PARTITIONS))
            .await
            .map_err(|error| session::failure(&error))?;
        Ok(client)
    }
}

/// As many as a topic has by default.
const PARTITIONS: u16 = 4;
