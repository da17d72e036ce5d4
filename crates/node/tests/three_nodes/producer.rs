//! A producer: one message after another. With a producer number it repeats until it is answered; without one it tells the
//! record what it knows and goes on.

use mortarmq_node::{Answer, Outcome, Reply};
use mortarmq_types::TopicIncarnation;

use super::clients::{Line, PATIENCE_US};
use super::support::publish_one;
use super::world::{Event, World};

pub(crate) struct Producer {
    pub(crate) line: Line,
    topic: TopicIncarnation,
    /// 0 publishes without numbers.
    id: u64,
    last_seq: u64,
    every_us: u64,
    under_way: Option<UnderWay>,
    pub(crate) stops: bool,
}

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    value: u64,
    seq: u64,
    key: u64,
    /// When it was sent last; `None` if it has to be sent.
    sent_us: Option<u64>,
}

impl Producer {
    pub(crate) fn new(me: usize, node: usize, topic: TopicIncarnation, id: u64, every_us: u64) -> Self {
        Self { line: Line::new(me, node), topic, id, last_seq: 0, every_us, under_way: None, stops: false }
    }

    /// Stands where another client is looked at.
    pub(crate) fn nobody() -> Self {
        Self::new(usize::MAX, 0, TopicIncarnation::ZERO, 0, 1)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.is_none()
    }

    pub(crate) fn wakes(&mut self, world: &mut World) {
        if let Some(sent_us) = self.under_way.and_then(|under_way| under_way.sent_us) {
            if world.now_us < sent_us + PATIENCE_US {
                return self.wake_in(world, sent_us + PATIENCE_US - world.now_us);
            }
            world.record.reach("publish without an answer");
            self.not_answered(world);
        }
        if self.under_way.is_none() {
            if self.stops {
                return;
            }
            self.last_seq += 1;
            let value = world.record.new_value();
            let key = world.random.below(6);
            self.under_way = Some(UnderWay { value, seq: self.last_seq, key, sent_us: None });
        }
        let Some(connection) = self.line.open(world) else { return self.wake_in(world, 10_000) };
        let Some(under_way) = &mut self.under_way else { return };
        under_way.sent_us = Some(world.now_us);
        let key = if under_way.key == 0 { String::new() } else { format!("key-{}", under_way.key) };
        world.record.sent(under_way.value, under_way.key);
        world.send(connection, publish_one(self.topic, self.id, under_way.seq, under_way.value, key.as_bytes()));
        self.wake_in(world, PATIENCE_US);
    }

    pub(crate) fn answered(&mut self, world: &mut World, reply: Reply) {
        let Some(UnderWay { value, sent_us: Some(_), .. }) = self.under_way else { return };
        match reply.result {
            Ok(Answer::Published(published)) => {
                let now_us = world.now_us;
                world.record.published(value, published.partition, published.seq, published.deduplicated, now_us);
                self.under_way = None;
                self.wake_in(world, self.every_us);
            }
            Ok(other) => panic!("a publish is answered by Published, not {other:?}"),
            Err(failure) => {
                world.record.reach(match failure.outcome {
                    Outcome::Refused => "publish refused",
                    Outcome::Unknown => "publish unknown",
                });
                world.record.reach_code(failure.code.name());
                if self.id == 0 {
                    if failure.outcome == Outcome::Refused {
                        world.record.refused(value);
                    }
                    self.under_way = None;
                } else if let Some(under_way) = &mut self.under_way {
                    under_way.sent_us = None;
                }
                self.line.leave(world);
                self.wake_in(world, 10_000);
            }
        }
    }

    pub(crate) fn broken(&mut self, world: &mut World) {
        self.not_answered(world);
        self.wake_in(world, 1000);
    }

    /// Whether it is stored nobody knows.
    fn not_answered(&mut self, world: &mut World) {
        if self.id == 0 {
            self.under_way = None;
        } else if let Some(under_way) = &mut self.under_way {
            under_way.sent_us = None;
        }
        self.line.leave(world);
    }

    fn wake_in(&self, world: &mut World, after_us: u64) {
        world.at(after_us, Event::Wake { client: self.line.me });
    }
}
