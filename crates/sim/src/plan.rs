//! What is to happen in a run: the settings of the world, what its clients do and when, and its faults. A plan and the
//! code decide everything.

/// Declares the settings, so that a schedule can name them.
macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident = $default:literal;)+) => {
        /// The settings of a world.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Settings {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Default for Settings {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        impl Settings {
            /// Names and values, in order.
            #[must_use]
            pub fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)+]
            }

            /// Changes one; says whether there is one of that name.
            pub fn set(&mut self, name: &str, value: u64) -> bool {
                match name {
                    $(stringify!($name) => self.$name = value,)+
                    _ => return false,
                }
                true
            }
        }
    };
}

settings! {
    /// What all chance follows from that the plan does not fix: latencies, what a power loss leaves, how consumers behave.
    seed = 1;
    /// Nodes: one, three or five.
    nodes = 1;
    /// Usual way between two nodes, in microseconds.
    peer_us = 200;
    /// Of a thousand messages between nodes, how many are lost.
    peer_lost_permille = 0;
    /// Of a thousand messages between nodes, how many come twice.
    peer_doubled_permille = 0;
    /// Of a thousand messages between nodes, how many take up to a hundred times as long.
    peer_late_permille = 0;
    /// Whether a message between nodes may overtake another.
    peer_overtakes = 0;
    /// Log that a leader has in memory for the others, in bytes: who lacks more fetches files.
    peer_lag_bytes = 67_108_864;
    /// Journal of several nodes behind a checkpoint, in bytes.
    journal_keep_bytes = 1_099_511_627_776;
    /// How long clients go on before everything is healed, in milliseconds.
    work_ms = 20_000;
    /// Topics.
    topics = 1;
    /// Partitions of each.
    partitions = 3;
    /// Groups of each.
    groups = 2;
    /// Consumers of each group.
    consumers = 2;
    /// Producers.
    producers = 3;
    /// Size of a journal file.
    journal_file_bytes = 262_144;
    /// Size of a segment.
    segment_bytes = 65_536;
    /// After how much a segment is synced.
    push_bytes = 65_536;
    /// Journal between two checkpoints.
    checkpoint_after_bytes = 262_144;
    /// Newest records in memory.
    recent_bytes = 1_048_576;
    /// Effects that may wait for the segment writer.
    unwritten_bytes = 67_108_864;
    /// Room held in reserve.
    reserve_bytes = 0;
    /// Usual time of a journal write, in microseconds.
    sync_us = 300;
    /// Usual time of a segment flush, in microseconds.
    flush_us = 2_000;
    /// Usual time of a read, in microseconds.
    read_us = 200;
    /// Usual way between a client and a node, in microseconds.
    link_us = 150;
    /// By how much the clock of the node is slow, in millionths.
    slow_clock_ppm = 0;
    /// Of a thousand deliveries, how many are refused.
    nack_permille = 80;
    /// Of a thousand deliveries, how many are left to run out.
    forget_permille = 20;
    /// Of a thousand deliveries, how many are given back.
    release_permille = 20;
    /// Of a thousand deliveries, how many go to the dead letters.
    dead_permille = 10;
    /// Of a thousand deliveries, how many are acked after their lease.
    late_permille = 20;
    /// Of a thousand deliveries, how many are acked twice.
    twice_permille = 30;
    /// Of a thousand deliveries, how many are renewed first.
    extend_permille = 40;
    /// Usual time that a consumer works, in microseconds.
    work_us = 3_000;
    /// Bytes that may wait for a slow reader before it gets nothing more.
    congested_bytes = 20_000;
    /// How long a request waits before it is answered that its result is not known, in milliseconds.
    timeout_ms = 5_000;
    /// Newest records in memory in every second life of a node; 0 for as many as in the others.
    recent_bytes_later = 0;
    /// What retention keeps of each partition; 0 for everything.
    retention_bytes = 0;
    /// Whether the books are asked for as soon as a node starts.
    scrape_at_start = 0;
    /// Whether what rotted and let the node start is mended at the end; if not, an operator drops what cannot be read.
    mends = 1;
    /// Operations of clients that there must have been: what is missing at the end is published then.
    operations = 0;
    /// How often the scrub reads on, in milliseconds; 0 for never.
    scrub_ms = 0;
}

/// All that is to happen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The world.
    pub settings: Settings,
    /// What clients and operators do, by time.
    pub steps: Vec<Step>,
    /// What fails.
    pub faults: Vec<Fault>,
}

/// Something that a client or operator does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// When.
    pub at_us: u64,
    /// What.
    pub what: Deed,
}

/// What a client or operator does. Clients, topics and groups are named by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A producer publishes.
    Publish {
        /// The producer.
        producer: u64,
        /// How many messages.
        count: u64,
        /// Their key; 0 for none.
        key: u64,
        /// Their delay.
        delay_ms: u64,
        /// Their life; 0 for the topic's.
        ttl_ms: u64,
        /// Whether they are one batch.
        is_batch: bool,
    },
    /// A producer publishes again what was confirmed.
    Repeat {
        /// The producer.
        producer: u64,
    },
    /// The connection of a producer breaks.
    ResetProducer {
        /// The producer.
        producer: u64,
        /// How it ends.
        end: LinkEnd,
    },
    /// The connection of a consumer breaks; it resumes.
    ResetConsumer {
        /// The consumer.
        consumer: u64,
        /// How it ends.
        end: LinkEnd,
    },
    /// A consumer dies and comes back as another member.
    Die {
        /// The consumer.
        consumer: u64,
    },
    /// A consumer leaves and joins again.
    Leave {
        /// The consumer.
        consumer: u64,
        /// Whether it joins in the same breath, before it is told that it has left.
        is_back_at_once: bool,
    },
    /// A consumer reads nothing for a while.
    Stall {
        /// The consumer.
        consumer: u64,
        /// How long.
        ms: u64,
    },
    /// An operator reads the books.
    Scrape,
    /// An operator brings dead letters back.
    Redrive {
        /// The topic.
        topic: u64,
        /// How many.
        count: u64,
    },
    /// An operator drops dead letters.
    PurgeLetters {
        /// The topic.
        topic: u64,
        /// How many.
        count: u64,
    },
    /// An operator empties a path.
    Purge {
        /// The topic.
        topic: u64,
        /// The group.
        group: u64,
    },
    /// An operator moves a path back to its beginning.
    Replay {
        /// The topic.
        topic: u64,
        /// The group.
        group: u64,
    },
    /// An operator moves a path to the end.
    Skip {
        /// The topic.
        topic: u64,
        /// The group.
        group: u64,
    },
    /// An operator deletes a topic; its clients make it again.
    Delete {
        /// The topic.
        topic: u64,
    },
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEnd {
    /// It breaks at once.
    Breaks,
    /// It breaks as soon as several frames are on their way to the node: some of them arrive.
    BetweenFrames,
    /// The client sends nothing more and waits for its answers; then the node closes it.
    HalfClosed,
}

/// Something that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The node, from 1; 0 is the one that leads at that moment.
    pub node: u64,
    /// When.
    pub anchor: Anchor,
    /// What.
    pub kind: FaultKind,
}

/// When a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// At a time, in microseconds.
    At(u64),
    /// At something that the node does for so many times, and at its operation of the disk with this number, from 0.
    Nth {
        /// What it does.
        site: Site,
        /// The how-manieth time, from 1.
        number: u64,
        /// The disk operation in it, from 0.
        operation: u64,
    },
}

/// What a node does with its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Site {
    /// Writes a batch to the journal.
    Journal,
    /// Writes segments.
    Segments,
    /// Makes a checkpoint.
    Checkpoint,
    /// Lets journal files go.
    Release,
    /// Starts.
    Recovery,
    /// Fetches what it lacks of a snapshot.
    Fetch,
    /// Installs a snapshot.
    Install,
}

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The process dies; what was written is there.
    Kill {
        /// How long it is down.
        down_ms: u64,
    },
    /// The power goes; what was not synced is lost in part.
    Power {
        /// How long it is down.
        down_ms: u64,
        /// Whether it comes back with another boot.
        is_new_boot: bool,
    },
    /// An operation of the disk fails, and the process ends.
    IoError {
        /// How long it is down.
        down_ms: u64,
        /// Whether the power goes too before it comes back.
        loses_power: bool,
    },
    /// A write ends early and fails, and the process ends.
    ShortWrite {
        /// Bytes that are written.
        bytes: u64,
        /// How long it is down.
        down_ms: u64,
        /// Whether the power goes too before it comes back.
        loses_power: bool,
    },
    /// The disk is full for a while.
    DiskFull {
        /// What can still be written.
        room_bytes: u64,
        /// How long.
        ms: u64,
    },
    /// The disk syncs slowly for a while.
    SlowSync {
        /// How long a sync takes, in microseconds.
        us: u64,
        /// How long.
        ms: u64,
    },
    /// The process stands still for a while.
    Pause {
        /// How long.
        ms: u64,
    },
    /// The wall clock jumps.
    ClockJump {
        /// To so many milliseconds after 1970.
        to_ms: u64,
    },
    /// The process is asked to stop, as by SIGTERM, and starts again.
    Stop {
        /// How long it is down.
        down_ms: u64,
    },
    /// Links between nodes carry nothing.
    Cut {
        /// Which.
        shape: Shape,
        /// How long.
        ms: u64,
        /// If they come back and go again meanwhile, how long each time.
        flap_ms: u64,
    },
    /// The office is handed to another node.
    HandOver,
    /// The disk is replaced by an empty one; an operator has the node readmitted.
    Wipe {
        /// How long it is down.
        down_ms: u64,
    },
    /// Bytes that were durable change or are gone.
    Rot {
        /// Of what.
        part: Part,
        /// How.
        way: Way,
        /// Where: what number of all places there are, counted around.
        place: u64,
        /// For how long the process is down meanwhile; 0 if it goes on, as it can with a flipped bit outside of the journal.
        down_ms: u64,
    },
}

/// What of a node's data rots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A journal file.
    Journal,
    /// A segment.
    Segment,
    /// The index of a segment.
    Index,
    /// A ledger file.
    Ledger,
    /// A checkpoint.
    Checkpoint,
    /// The identity file.
    Identity,
}

/// How bytes rot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// One bit is another.
    Flip,
    /// The file ends early.
    Cut,
    /// The file is as it was some time before.
    Old,
}

/// Which links between nodes carry nothing, as seen from the node of the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// The node hears nobody and is heard by nobody.
    Alone,
    /// The node and those after it up to a minority, and all others, hear only one another.
    Halves,
    /// Each hears only its neighbours in a ring; of three, the node and the next one do not hear each other.
    Ring,
    /// Two halves, and the node hears both.
    Bridge,
    /// The next node does not hear this one.
    OneWay,
    /// The node hears all and is heard by nobody.
    Mute,
    /// The node is heard by all and hears nobody.
    Deaf,
}
