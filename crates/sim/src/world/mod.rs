//! The world: one thread, a queue of events, machines with nodes, connections, clients. One plan decides everything.
//!
//! Time is in microseconds. Nothing happens between events; what takes time is an event that comes later. `turn.rs` is the
//! shard's loop, `disk_work.rs` the threads behind it, `link.rs` the connections, `net.rs` the links between nodes, `cluster.rs`
//! what is true of all nodes together, `faults.rs` what fails.

mod cluster;
mod disk_work;
mod event;
mod expected;
mod faults;
mod link;
mod net;
mod node;
mod promises;
mod readmit;
mod rot;
mod run;
mod samples;
mod stop;
mod turn;

use std::collections::{BTreeMap, BinaryHeap};

use mortarmq_types::{ConnectionId, TopicIncarnation};

pub(crate) use event::{Client, Event, Input, ToClient};
pub(crate) use link::Link;
pub(crate) use node::{Machine, MachineClock};
pub(crate) use rot::NEWEST;
pub(crate) use samples::Samples;

use crate::clients::consumer::Consumer;
use crate::clients::operator::Operator;
use crate::clients::producer::Producer;
use crate::history::Histories;
use crate::plan::Settings;
use crate::random::Random;
use crate::tally::Tally;
use crate::topics::Topics;
use crate::trace::Trace;

/// Everything there is.
pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) now_us: u64,
    queue: BinaryHeap<Due>,
    last_serial: u64,
    pub(crate) nodes: Vec<Machine>,
    /// The links between nodes.
    pub(crate) peers: net::Net,
    pub(crate) cluster: cluster::Cluster,
    pub(crate) links: BTreeMap<ConnectionId, Link>,
    pub(crate) last_connection: u64,
    pub(crate) producers: Vec<Producer>,
    pub(crate) consumers: Vec<Consumer>,
    pub(crate) operator: Operator,
    pub(crate) topics: Topics,
    pub(crate) histories: Histories,
    pub(crate) samples: Samples,
    pub(crate) trace: Trace,
    pub(crate) tally: Tally,
    pub(crate) last_message: u64,
    /// The topic of each dead-letter topic that a consumer found.
    pub(crate) letters: BTreeMap<TopicIncarnation, TopicIncarnation>,
    /// The messages of dead letters that were made without their value, by place.
    pub(crate) lost_values: BTreeMap<(TopicIncarnation, u16, u64), String>,
    /// Which message stood where, of all that were delivered.
    pub(crate) delivered_from: BTreeMap<(TopicIncarnation, u16, u64), String>,
    /// Whether files are to become what they were.
    keeps_former: bool,
    /// Since when clients know of an incarnation.
    pub(crate) topic_since: BTreeMap<TopicIncarnation, u64>,
    /// When the first delivery of a delayed message may come, by message.
    pub(crate) not_before: BTreeMap<u64, u64>,
    /// Whether work is over: nothing fails, and everything is to be finished.
    pub(crate) is_healing: bool,
    pub(crate) drained_looks: u64,
    /// What was open at the look before.
    open_before: String,
    pub(crate) failure: Option<String>,
    pub(crate) is_over: bool,
    /// Chance of ways and reactions.
    pub(crate) net: Random,
    /// Chance of how long the disk takes.
    pub(crate) disk_chance: Random,
    /// Chance of what a power loss leaves.
    pub(crate) loss: Random,
}

/// An event and its moment. Of one moment, what was planned first comes first.
struct Due {
    at_us: u64,
    serial: u64,
    event: Event,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.at_us, self.serial) == (other.at_us, other.serial)
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    /// The earliest is the greatest, as the heap wants it.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at_us, other.serial).cmp(&(self.at_us, self.serial))
    }
}

impl World {
    /// Plans an event.
    pub(crate) fn at(&mut self, at_us: u64, event: Event) {
        self.last_serial += 1;
        self.queue.push(Due { at_us: at_us.max(self.now_us), serial: self.last_serial, event });
    }

    /// The next event, and its moment is now.
    fn next_event(&mut self) -> Option<Event> {
        let due = self.queue.pop()?;
        self.now_us = due.at_us;
        Some(due.event)
    }

    /// A promise is broken: the run ends here.
    pub(crate) fn fail(&mut self, text: String) {
        self.is_over = true;
        self.failure.get_or_insert(text);
    }

    /// The present moment as histories have it.
    pub(crate) fn now_ns(&self) -> u64 {
        // Nothing is at 0, where records would have no time before them.
        (self.now_us + 1) * 1000
    }
}
