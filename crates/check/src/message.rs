//! A message that is not judged yet, and when nothing more is expected of it.

use crate::context::Context;
use crate::operation::{MsgId, Name, Operation, Outcome, SettleKind};

/// A message with what was recorded of it so far.
#[derive(Debug)]
pub(crate) struct Message {
    pub msg: MsgId,
    /// In the order of answers.
    pub operations: Vec<Operation>,
    /// Whether it waits in the queue of finished messages.
    pub is_queued: bool,
    /// Whether its key's messages have been told of it.
    pub is_in_keys: bool,
}

impl Message {
    /// A message of which this is the first record.
    pub(crate) fn new(msg: MsgId) -> Self {
        Self { msg, operations: Vec::with_capacity(4), is_queued: false, is_in_keys: false }
    }

    /// Whether a record like this one, added last, can be what was missing.
    pub(crate) fn may_be_finished_by(operation: &Operation) -> bool {
        match operation {
            Operation::Publish(publish) => publish.outcome == Outcome::Ok,
            Operation::Settle(settle) => settle.is_ok_ack(),
            Operation::Delivery(_) => false,
        }
    }

    /// Whether nothing more is expected: it is published, and acked on every path it is owed on.
    ///
    /// What died, or may have, is kept until the end: its dead letters may come at any time.
    pub(crate) fn is_finished(&self, context: &Context) -> bool {
        let mut topic = None;
        for operation in &self.operations {
            match operation {
                Operation::Publish(publish) if publish.outcome == Outcome::Ok => topic = Some(publish.topic),
                Operation::Settle(settle) if settle.may_kill() => return false,
                Operation::Delivery(delivery) if delivery.origin.is_some() => return false,
                Operation::Delivery(delivery) if !self.is_acked(delivery.path) => return false,
                Operation::Publish(_) | Operation::Delivery(_) | Operation::Settle(_) => {}
            }
        }
        // Nobody knows where it is owed before it was seen somewhere, unless a run record says so.
        let is_seen = self.operations.iter().any(|operation| matches!(operation, Operation::Delivery(_)));
        is_seen && topic.is_some_and(|topic| context.paths_of(topic).all(|path| self.is_acked(path)))
    }

    fn is_acked(&self, path: Name) -> bool {
        self.operations.iter().any(|operation| match operation {
            Operation::Settle(settle) => {
                settle.path == path && settle.kind == SettleKind::Ack && settle.outcome == Outcome::Ok
            }
            Operation::Publish(_) | Operation::Delivery(_) => false,
        })
    }

    /// Whether a record before this one already says that it is at this place of a topic.
    pub(crate) fn publishes(&self) -> usize {
        self.operations.iter().filter(|operation| matches!(operation, Operation::Publish(_))).count()
    }
}
