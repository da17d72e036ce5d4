//! What came from the shard's loop and is not in the outbox yet, and which deliveries go back.

use std::collections::{BTreeMap, VecDeque};

use mortarmq_node::{Delivery, Failure, Reply, Unsent};
use mortarmq_types::{MonotonicTime, Position};

use super::answers::{self, Behind};
use super::outbox::Outbox;
use super::session::{Session, Stage};
use crate::clock::NodeClock;
use crate::event::ToConnection;

/// What waits for room in the outbox: usually one message of the channel at most, in the middle of being written.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    steps: VecDeque<Step>,
    /// Deliveries to give back now, by subscription.
    unsent: BTreeMap<u16, Vec<Unsent>>,
}

#[derive(Debug)]
enum Step {
    Replies(VecDeque<Reply>),
    Deliveries(u16, VecDeque<Delivery>),
    PullEnded(u16, Position, Result<u16, Failure>),
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Takes a message of the channel.
    pub(super) fn push(&mut self, message: ToConnection) {
        self.steps.push_back(match message {
            ToConnection::Replies(replies) => Step::Replies(replies.into()),
            ToConnection::Deliveries { subscription, messages } => Step::Deliveries(subscription, messages.into()),
            ToConnection::PullEnded { subscription, position, result } => {
                Step::PullEnded(subscription, position, result)
            }
        });
    }

    /// Writes of the oldest message what fits the outbox.
    pub(super) fn write_some(&mut self, session: &mut Session, outbox: &mut Outbox, clock: NodeClock) -> Behind {
        let Some(step) = self.steps.front_mut() else { return Behind::GoesOn };
        match step {
            Step::Replies(replies) => {
                // One sample for all of them: the oldest waited longest.
                if let (Some(read_at), Some(Reply { result: Ok(_), .. })) = (session.expected.oldest(), replies.front())
                {
                    session.metrics.count_commit(read_at.elapsed());
                }
                while let Some(reply) = replies.pop_front() {
                    if answers::write_reply(session, reply, outbox.answers()) == Behind::Closes {
                        return Behind::Closes;
                    }
                    if outbox.is_full() {
                        return Behind::GoesOn;
                    }
                }
            }
            Step::Deliveries(subscription, messages) => {
                let now = clock.monotonic();
                while let Some(delivery) = messages.pop_front() {
                    if session.stage == Stage::Ending && !session.expected.has_pulls() {
                        // Nobody settles it here any more. Its member is sent it when it resumes. What a pull asked for is
                        // owed all the same: its answer counts it.
                        continue;
                    }
                    if now >= delivery.send_before {
                        self.unsent.entry(*subscription).or_default().push(unsent(&delivery));
                    } else {
                        write_delivery(session, outbox, *subscription, &delivery, now);
                    }
                    if outbox.is_full() {
                        return Behind::GoesOn;
                    }
                }
            }
            Step::PullEnded(subscription, position, result) => {
                answers::write_pull_end(session, *subscription, *position, result, outbox.answers());
            }
        }
        self.steps.pop_front();
        Behind::GoesOn
    }

    /// Deliveries that were taken back from the outbox go back too.
    pub(super) fn add_unsent(&mut self, taken: Vec<(u16, Unsent)>) {
        for (subscription, unsent) in taken {
            self.unsent.entry(subscription).or_default().push(unsent);
        }
    }

    /// The connection is over: deliveries that wait are taken back, and answers that wait are written.
    pub(super) fn end(&mut self, session: &mut Session, outbox: &mut Outbox) {
        for step in self.steps.drain(..) {
            match step {
                Step::Deliveries(subscription, messages) => {
                    self.unsent.entry(subscription).or_default().extend(messages.iter().map(unsent));
                }
                Step::Replies(replies) => {
                    for reply in replies {
                        answers::write_reply(session, reply, outbox.answers());
                    }
                }
                Step::PullEnded(subscription, position, result) => {
                    answers::write_pull_end(session, subscription, position, &result, outbox.answers());
                }
            }
        }
    }

    /// What goes back to the node now.
    pub(super) fn take_unsent(&mut self) -> BTreeMap<u16, Vec<Unsent>> {
        std::mem::take(&mut self.unsent)
    }
}

fn write_delivery(
    session: &mut Session,
    outbox: &mut Outbox,
    subscription: u16,
    delivery: &Delivery,
    now: MonotonicTime,
) {
    session.ack_latency.handle_sent(delivery.delivery_id, delivery.published_at);
    let handle = session.handles.handle_of(delivery.topic).expect("SUB named the topic by its handle");
    outbox.push_message(subscription, unsent(delivery), delivery.send_before, |out| {
        answers::write_message(handle, subscription, delivery, now, out);
    });
}

/// A delivery as it goes back.
fn unsent(delivery: &Delivery) -> Unsent {
    Unsent { partition: delivery.partition, seq: delivery.seq, delivery_id: delivery.delivery_id }
}
