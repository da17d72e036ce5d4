//! A driver for tests: one node on a disk in memory, one thread, a clock that the test moves.
//!
//! It carries outputs out at once and in order, as the server's threads do one after another.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use mortarmq_node::{
    Act, Delivery, Failure, Node, NodeConfig, NodeError, NodeRecovery, Now, Output, Query, QueryReply, ReadJob,
    ReadResult, Reply, Request, SegmentWork, Subscribe,
};
use mortarmq_shard::record::NewRecord;
use mortarmq_shard::{Image, PublishRun, PublishRunBuilder, SettleItem, SettleKind, StartPolicy, Times};
use mortarmq_storage::{
    CheckpointMeta, Covered, Disk, Identity, IdentityState, Journal, JournalBatch, JournalOptions, MemoryDisk,
    RecoverStop, SegmentOptions, SegmentReader, SegmentWriter, has_data, load_checkpoint,
};
use mortarmq_types::{
    ConnectionId, DeliveryId, MemberId, MonotonicTime, NodeId, Partition, ProducerId, ProducerSeq, Seq, ShardId,
    TopicIncarnation, WallTime,
};

/// The disk failed: the process would end here.
#[derive(Debug)]
pub(crate) struct Crashed(pub(crate) String);

/// A node and all that it runs on.
pub(crate) struct Rig {
    pub(crate) disk: MemoryDisk,
    pub(crate) node: Node,
    pub(crate) now: Now,
    pub(crate) replies: BTreeMap<ConnectionId, Vec<Reply>>,
    pub(crate) deliveries: Vec<(ConnectionId, u16, Delivery)>,
    pub(crate) pulls: Vec<(ConnectionId, u16, Result<u16, Failure>)>,
    pub(crate) queries: BTreeMap<u64, QueryReply>,
    /// Groups that expired: topic, group, dropped.
    pub(crate) expired: Vec<(String, String, u64)>,
    /// Whether journal, segment writer and reads take their time: what they were given waits for [`Rig::finish_one`].
    pub(crate) slow: bool,
    /// Whether the segment writer finds no room: it keeps what it is given.
    pub(crate) no_room: bool,
    /// Checkpoints that found no room.
    pub(crate) put_off: u64,
    /// Bytes of effects that the recovery left to the segment writer.
    pub(crate) left_bytes: u64,
    /// What the journal was told to let go: up to which entry, bytes kept, whether spares go.
    pub(crate) releases: Vec<(u64, u64, bool)>,
    /// Whether also the bytes of segments come no earlier than the word that they are written. Without checkpoints only.
    pub(crate) writes_late: bool,
    /// Whether the start went on from a checkpoint.
    pub(crate) from_checkpoint: bool,
    /// Checkpoints taken since the start.
    pub(crate) checkpoints: u64,
    /// Reads of records and of index entries so far.
    pub(crate) record_reads: u64,
    pub(crate) index_reads: u64,
    /// Bytes of commands that were written to the journal since the start.
    pub(crate) journal_bytes: u64,
    /// Whether the recovery cut a torn batch.
    pub(crate) torn: bool,
    /// What each of the disk's operations since the start belonged to, if that is watched.
    pub(crate) doing: Option<BTreeMap<u64, Doing>>,
    under_way: UnderWay,
    journal: Journal,
    segments: SegmentWriter,
    reader: SegmentReader,
    last_query: u64,
    /// Outputs since the invariants were last checked.
    unchecked: u64,
}

/// How many messages a test about a large backlog has; `MORTARMQ_BACKLOG=1000000` tries more.
#[expect(clippy::disallowed_methods, reason = "the size of a test comes from outside")]
pub(crate) fn backlog() -> u64 {
    let given = std::env::var("MORTARMQ_BACKLOG").ok();
    given.map_or(300_000, |text| text.parse().expect("MORTARMQ_BACKLOG is a number, a multiple of 1000"))
}

/// Entries of the shard that a check may look at for each output.
const CHECKED_PER_OUTPUT: u64 = 2000;

/// What an operation of the disk belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Doing {
    Recovery,
    /// A batch, into the file at hand.
    Append,
    /// The next journal file is made.
    RollOver,
    /// The next journal file is made of one that was freed.
    Recycling,
    Segments,
    Checkpoint,
    Release,
}

/// What journal, segment writer and read pool have to do.
#[derive(Default)]
struct UnderWay {
    journal: Option<(u64, JournalBatch)>,
    written: VecDeque<(u64, Vec<SegmentWork>)>,
    reads: VecDeque<(u64, ReadJob)>,
}

/// Small files, so that short scripts roll over too.
#[derive(Clone, Copy)]
pub(crate) struct RigOptions {
    pub(crate) boot: u8,
    pub(crate) now: Now,
    pub(crate) journal_file_bytes: u64,
    pub(crate) recent_bytes: u64,
    pub(crate) read_ahead_bytes: u64,
    pub(crate) checkpoint_after_bytes: u64,
    pub(crate) max_delayed_per_partition: u64,
    pub(crate) journal_keep_bytes: u64,
    pub(crate) unwritten_bytes_max: u64,
    /// Whether the segment writer finds no room from the start on.
    pub(crate) no_room: bool,
    /// In how many steps a journal file is filled with zeros.
    pub(crate) zero_steps: u64,
    pub(crate) spare_files: u32,
    pub(crate) segment_bytes: u64,
    /// After how many bytes a segment, index or ledger file is synced.
    pub(crate) push_bytes: u64,
    /// Whether [`Rig::doing`] is kept.
    pub(crate) is_watched: bool,
}

impl RigOptions {
    pub(crate) const DEFAULT: Self = Self {
        boot: 1,
        now: Now { monotonic: MonotonicTime::new(1_000_000), wall: WallTime::new(1_700_000_000_000) },
        journal_file_bytes: 1 << 20,
        recent_bytes: 64 << 20,
        read_ahead_bytes: 256 << 10,
        checkpoint_after_bytes: 1 << 30,
        max_delayed_per_partition: 1_000_000,
        journal_keep_bytes: 0,
        unwritten_bytes_max: 64 << 20,
        no_room: false,
        zero_steps: 4,
        spare_files: 1,
        segment_bytes: 1 << 16,
        push_bytes: 1 << 16,
        is_watched: false,
    };

    fn node(&self) -> NodeConfig {
        let mut config = NodeConfig::new(NodeId::ZERO, [self.boot; 16], 7);
        config.recent_bytes = self.recent_bytes;
        config.read_ahead_bytes = self.read_ahead_bytes;
        config.checkpoint_after_bytes = self.checkpoint_after_bytes;
        config.journal_keep_bytes = self.journal_keep_bytes;
        config.unwritten_bytes_max = self.unwritten_bytes_max;
        config.initial.segment_max_bytes = self.segment_bytes;
        config.initial.max_delayed_per_partition = self.max_delayed_per_partition;
        config
    }

    fn journal(&self) -> JournalOptions {
        JournalOptions {
            shard: ShardId::ZERO,
            file_bytes: self.journal_file_bytes,
            zero_step_bytes: self.journal_file_bytes / self.zero_steps,
            spare_files: self.spare_files,
        }
    }
}

impl Default for RigOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

pub(crate) const CONNECTION: ConnectionId = ConnectionId::new(1);

impl Rig {
    /// Recovers a node from a disk and waits until it leads.
    pub(crate) fn start(disk: &MemoryDisk, options: RigOptions) -> Result<Self, Crashed> {
        let (begun, data_dir) = (disk.operations(), PathBuf::from("data"));
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        claim(disk, &data_dir)?;
        let config = options.node();
        let segment_options = SegmentOptions { push_bytes: options.push_bytes, ..SegmentOptions::default() };
        let mut segments = SegmentWriter::open(shared.clone(), &data_dir, segment_options).map_err(crashed)?;
        let loaded = load_checkpoint(disk, &data_dir).map_err(crashed)?;
        let covered = loaded.as_ref().map(|loaded| Covered { log_index: loaded.meta.log_index });
        let mut recovery = match loaded {
            Some(loaded) => {
                segments.restore(&loaded.files).map_err(crashed)?;
                NodeRecovery::from_checkpoint(config, &loaded.meta, loaded.image).map_err(crashed)?
            }
            None => {
                segments.reset().map_err(crashed)?;
                NodeRecovery::new(config).map_err(crashed)?
            }
        };
        if let Some(bytes) = recovery.segment_max_bytes() {
            segments.set_segment_bytes(bytes);
        }
        let (membership, journal_options) = (recovery.membership(), options.journal());
        let mut on_batch = |batch| {
            let work = recovery.handle_batch(batch).map_err(|error| RecoverStop { reason: error.to_string() })?;
            let taken = take(&mut segments, work);
            let written = if options.no_room { taken } else { taken.and_then(|()| segments.flush().map_err(crashed)) };
            written.map_err(|crash| RecoverStop { reason: crash.0 })
        };
        let (journal, recovered) =
            Journal::recover(shared, &data_dir, journal_options, membership, covered, &mut on_batch)
                .map_err(crashed)?;
        let (node, left) = finish(recovery, &options).map_err(crashed)?;
        let under_way =
            UnderWay { written: left.into_iter().map(|ticket| (ticket, Vec::new())).collect(), ..UnderWay::default() };
        let reader = segments.reader();
        let mut rig = Self {
            disk: disk.clone(),
            left_bytes: node.gauges().unwritten_bytes,
            node,
            now: options.now,
            replies: BTreeMap::new(),
            deliveries: Vec::new(),
            pulls: Vec::new(),
            queries: BTreeMap::new(),
            expired: Vec::new(),
            slow: false,
            writes_late: false,
            checkpoints: 0,
            from_checkpoint: covered.is_some(),
            record_reads: 0,
            index_reads: 0,
            journal_bytes: 0,
            torn: recovered.torn.is_some(),
            doing: options.is_watched.then(BTreeMap::new),
            under_way,
            no_room: options.no_room,
            put_off: 0,
            releases: Vec::new(),
            journal,
            segments,
            reader,
            last_query: 0,
            unchecked: 0,
        };
        rig.note(begun, Doing::Recovery);
        rig.pump()?;
        assert!(rig.node.is_ready(), "a single voter leads at once");
        Ok(rig)
    }

    fn count_read(&mut self, job: &ReadJob) {
        match job {
            ReadJob::Records { .. } => self.record_reads += 1,
            ReadJob::Index { .. } => self.index_reads += 1,
            ReadJob::Life { .. } | ReadJob::Since { .. } | ReadJob::File { .. } | ReadJob::Stretch { .. } => {}
        }
    }

    /// Carries outputs out until there are none.
    pub(crate) fn pump(&mut self) -> Result<(), Crashed> {
        while let Some(output) = self.node.poll_output(self.now) {
            match output {
                Output::Journal { ready_number, batch } => {
                    let before = self.under_way.journal.replace((ready_number, batch));
                    assert!(before.is_none(), "one journal write is under way at a time");
                    self.unless_slow(Self::finish_journal)?;
                }
                Output::Segments { ticket, work } => {
                    // Mostly the bytes are written at once, and only the word that they are comes later.
                    let (now, later) = if self.writes_late { (Vec::new(), work) } else { (work, Vec::new()) };
                    let begun = self.disk.operations();
                    take(&mut self.segments, now)?;
                    if !self.no_room && !self.writes_late {
                        self.segments.flush().map_err(crashed)?;
                    }
                    self.note(begun, Doing::Segments);
                    self.under_way.written.push_back((ticket, later));
                    self.unless_slow(Self::finish_segments)?;
                }
                Output::Read { ticket, job } => {
                    self.count_read(&job);
                    self.under_way.reads.push_back((ticket, job));
                    self.unless_slow(Self::finish_read)?;
                }
                Output::Replies { connection, replies } => {
                    self.replies.entry(connection).or_default().extend(replies);
                }
                Output::Deliveries { connection, subscription, messages } => {
                    self.deliveries.extend(messages.into_iter().map(|message| (connection, subscription, message)));
                }
                Output::PullEnded { connection, subscription, result, .. } => {
                    self.pulls.push((connection, subscription, result));
                }
                Output::Query { query, reply } => {
                    self.queries.insert(query, *reply);
                }
                Output::Checkpoint { meta, .. } if self.no_room => {
                    self.put_off += 1;
                    self.node.handle_checkpoint_put_off(self.now, meta.log_index);
                }
                Output::Checkpoint { meta, image, .. } => self.write_checkpoint(&meta, &image)?,
                Output::ReleaseJournal { log_index, keep_bytes, frees_spares } => {
                    self.releases.push((log_index, keep_bytes, frees_spares));
                    let begun = self.disk.operations();
                    self.journal.release(log_index, keep_bytes).map_err(crashed)?;
                    if frees_spares {
                        self.journal.drop_spares(1).map_err(crashed)?;
                    }
                    self.note(begun, Doing::Release);
                }
                Output::GroupExpired { topic, group, dropped } => self.expired.push((topic, group, dropped)),
                Output::SendPeer { .. }
                | Output::SendForward { .. }
                | Output::SendCatchUp { .. }
                | Output::CatchUp { .. }
                | Output::Members { .. }
                | Output::Role { .. } => {}
            }
            self.check();
        }
        Ok(())
    }

    fn write_checkpoint(&mut self, meta: &CheckpointMeta, image: &Image) -> Result<(), Crashed> {
        let mut bytes = BytesMut::new();
        image.encode(&mut bytes);
        let begun = self.disk.operations();
        let written = self.segments.checkpoint(meta, &bytes).map_err(crashed)?;
        self.note(begun, Doing::Checkpoint);
        self.checkpoints += 1;
        self.node.handle_checkpoint_written(self.now, meta.log_index, written.bytes);
        Ok(())
    }

    /// Checks every invariant: after each output, or, where a look at all that the shard keeps takes long, after so many.
    fn check(&mut self) {
        self.unchecked += 1;
        let state = self.node.shard().state();
        // What is looked at: entries, and each path in each partition.
        let places: usize = state.topics.values().map(|topic| topic.paths.len() * topic.partitions.len()).sum();
        if self.unchecked >= (state.entries() + 50 * places as u64) / CHECKED_PER_OUTPUT {
            self.unchecked = 0;
            self.node.check();
        }
    }

    /// Finishes something that is under way, if anything is; `which` chooses. Says whether something was.
    pub(crate) fn finish_one(&mut self, which: u64) -> Result<bool, Crashed> {
        for place in 0..3 {
            let finished = match (which + place) % 3 {
                0 => self.finish_journal()?,
                1 => self.finish_segments()?,
                _ => self.finish_read()?,
            };
            if finished {
                self.pump()?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Finishes everything that is under way, and what follows from it.
    pub(crate) fn catch_up(&mut self) -> Result<(), Crashed> {
        while self.finish_one(0)? {}
        Ok(())
    }

    fn unless_slow(&mut self, finish: fn(&mut Self) -> Result<bool, Crashed>) -> Result<(), Crashed> {
        if self.slow { Ok(()) } else { finish(self).map(drop) }
    }

    pub(crate) fn finish_journal(&mut self) -> Result<bool, Crashed> {
        let Some((ready_number, batch)) = self.under_way.journal.take() else { return Ok(false) };
        let (begun, files) = (self.disk.operations(), self.journal_names());
        self.journal_bytes += batch.entries.iter().map(|entry| entry.data.len() as u64).sum::<u64>();
        self.journal.append(&batch).map_err(crashed)?;
        self.note(begun, Doing::Append);
        let is_new = |name: &String| name.ends_with(".journal") && !files.contains(name);
        let names = self.journal_names();
        if names.iter().any(is_new) {
            let doing = if names.len() == files.len() { Doing::Recycling } else { Doing::RollOver };
            self.note(begun, doing);
            // The batch itself is written and synced last.
            self.note(self.disk.operations() - 2, Doing::Append);
        }
        self.node.handle_journal_written(self.now, ready_number);
        Ok(true)
    }

    fn journal_names(&self) -> Vec<String> {
        if self.doing.is_none() {
            return Vec::new();
        }
        self.disk.list(Path::new("data/journal")).expect("the journal's folder")
    }

    /// Notes what the operations of the disk since `begun` belonged to.
    fn note(&mut self, begun: u64, doing: Doing) {
        if let Some(noted) = &mut self.doing {
            noted.extend((begun + 1..=self.disk.operations()).map(|operation| (operation, doing)));
        }
    }

    fn finish_segments(&mut self) -> Result<bool, Crashed> {
        if self.no_room {
            return Ok(false);
        }
        let Some((ticket, work)) = self.under_way.written.pop_front() else { return Ok(false) };
        take(&mut self.segments, work)?;
        self.segments.flush().map_err(crashed)?;
        self.node.handle_segments_written(self.now, ticket);
        Ok(true)
    }

    fn finish_read(&mut self) -> Result<bool, Crashed> {
        let Some((ticket, job)) = self.under_way.reads.pop_front() else { return Ok(false) };
        let result = self.read(job);
        self.node.handle_read(self.now, ticket, result);
        Ok(true)
    }

    fn read(&self, job: ReadJob) -> ReadResult {
        let failed = |error: mortarmq_storage::ReadError| ReadResult::Failed(error.to_string());
        match job {
            ReadJob::Records { topic, partition, from, to, max_bytes } => self
                .reader
                .read_records(topic, partition, from, to, usize::try_from(max_bytes).unwrap_or(usize::MAX))
                .map_or_else(failed, ReadResult::Records),
            ReadJob::Index { topic, partition, from, max } => {
                self.reader.read_index(topic, partition, from, max as usize).map_or_else(failed, ReadResult::Index)
            }
            ReadJob::Since { topic, ends, time } => {
                let since = |(number, end): (usize, &Seq)| {
                    self.reader.first_since(topic, Partition::from_index(number), Seq::FIRST, *end, time)
                };
                let seqs: Result<Vec<Seq>, _> = ends.iter().enumerate().map(since).collect();
                seqs.map_or_else(failed, ReadResult::Since)
            }
            ReadJob::Stretch { stretch } => {
                self.reader.read_stretch_for_repair(&stretch).map_or_else(failed, ReadResult::Stretch)
            }
            ReadJob::File { file, offset, bytes } => {
                self.reader.read_file(&file, offset, bytes).map_or_else(failed, ReadResult::File)
            }
            ReadJob::Life { topic, partition, seq } => {
                let record = self.reader.read_records(topic, partition, seq, seq.next(), usize::MAX);
                let events = self.reader.read_ledger(topic, partition, seq);
                let record = record.map(|mut records| records.pop()).map_err(|error| error.to_string());
                events.map_or_else(failed, |ledger| ReadResult::Life { record, ledger })
            }
        }
    }

    /// Moves the clock in steps that no loop would call a stall, ticking the node.
    pub(crate) fn pass(&mut self, ms: u64) -> Result<(), Crashed> {
        let end = self.now.monotonic.after_ms(ms);
        while self.now.monotonic < end {
            let step = end.since_ms(self.now.monotonic).min(500);
            self.now.monotonic = self.now.monotonic.after_ms(step);
            self.now.wall = self.now.wall.after_ms(step);
            self.node.handle_tick(self.now);
            self.pump()?;
        }
        Ok(())
    }

    pub(crate) fn connect(&mut self, connection: ConnectionId) {
        self.node.handle_connected(connection);
    }

    /// Sends requests and carries out what follows; the answers that came.
    pub(crate) fn ask(&mut self, connection: ConnectionId, requests: Vec<Request>) -> Result<Vec<Reply>, Crashed> {
        self.node.handle_requests(self.now, connection, requests);
        self.pump()?;
        Ok(self.replies.remove(&connection).unwrap_or_default())
    }

    pub(crate) fn query(&mut self, question: Query) -> Result<QueryReply, Crashed> {
        self.last_query += 1;
        self.node.handle_query(self.now, self.last_query, question);
        self.pump()?;
        self.catch_up()?;
        Ok(self.queries.remove(&self.last_query).expect("a query is answered"))
    }

    /// Asks for a change; the answer, once it is applied.
    pub(crate) fn act(&mut self, act: Act) -> Result<QueryReply, Crashed> {
        let query = self.begin_act(act)?;
        self.catch_up()?;
        Ok(self.queries.remove(&query).expect("an act is answered"))
    }

    /// Asks for a change and does not wait; the number of its answer.
    pub(crate) fn begin_act(&mut self, act: Act) -> Result<u64, Crashed> {
        self.last_query += 1;
        self.node.handle_act(self.now, self.last_query, act);
        self.pump()?;
        Ok(self.last_query)
    }

    pub(crate) fn declare(&mut self, name: &str, partitions: u16) -> Result<TopicIncarnation, Crashed> {
        self.declare_with(name, partitions, "")
    }

    pub(crate) fn declare_with(
        &mut self,
        name: &str,
        partitions: u16,
        options: &str,
    ) -> Result<TopicIncarnation, Crashed> {
        let request = Request::Declare { name: name.to_owned(), partitions, options: options.to_owned() };
        let replies = self.ask(CONNECTION, vec![request])?;
        match &replies[0].result {
            Ok(mortarmq_node::Answer::Declared { topic, .. }) => Ok(*topic),
            other => panic!("a declare is answered with a topic, not {other:?}"),
        }
    }

    /// The deliveries that came since the last call.
    pub(crate) fn take_deliveries(&mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.deliveries).into_iter().map(|(_, _, delivery)| delivery).collect()
    }
}

/// A request that joins a group with a window.
pub(crate) fn subscribe(topic: TopicIncarnation, group: &str, subscription: u16, member: u64, window: u16) -> Request {
    Request::Subscribe(Subscribe {
        topic,
        group: group.to_owned(),
        start: StartPolicy::Earliest,
        credit_messages: window,
        credit_bytes: u32::MAX,
        options: String::new(),
        subscription,
        member: MemberId::new(member),
        secret: member,
    })
}

/// Publishes of one producer; the value is the number in text.
pub(crate) fn publish(topic: TopicIncarnation, producer: u64, numbers: std::ops::Range<u64>, key: &[u8]) -> Request {
    publish_timed(topic, producer, numbers, key, Times::default())
}

/// As [`publish`], with a delay or a life.
pub(crate) fn publish_timed(
    topic: TopicIncarnation,
    producer: u64,
    numbers: std::ops::Range<u64>,
    key: &[u8],
    times: Times,
) -> Request {
    let mut run = PublishRunBuilder::default();
    for number in numbers {
        let value = number.to_string();
        let body = body(key, value.as_bytes());
        let record = NewRecord {
            producer_id: ProducerId::new(producer),
            producer_seq: if producer == 0 { ProducerSeq::ZERO } else { ProducerSeq::new(number) },
            key,
            has_headers: false,
            body: &body,
        };
        let value_bytes = u32::try_from(value.len()).expect("small");
        let payload_bytes = value_bytes + u32::try_from(key.len()).expect("small");
        run.add_timed(topic, Partition::ANY, (payload_bytes, value_bytes), &record, times);
    }
    Request::Publish(run.take().expect("at least one number"))
}

/// Publishes of one producer, numbered from `first`; the values are these numbers in text.
pub(crate) fn publish_values(
    topic: TopicIncarnation,
    producer: u64,
    first: u64,
    values: std::ops::Range<u64>,
) -> Request {
    let mut run = PublishRunBuilder::default();
    for (number, value) in (first..).zip(values) {
        let value = value.to_string();
        let body = body(b"", value.as_bytes());
        let number = if producer == 0 { 0 } else { number };
        let (producer_id, producer_seq) = (ProducerId::new(producer), ProducerSeq::new(number));
        let record = NewRecord { producer_id, producer_seq, key: b"", has_headers: false, body: &body };
        let bytes = u32::try_from(value.len()).expect("small");
        run.add(topic, Partition::ANY, bytes, bytes, &record);
    }
    Request::Publish(run.take().expect("at least one value"))
}

/// One publish of one producer; the value is in text.
pub(crate) fn publish_one(topic: TopicIncarnation, producer: u64, number: u64, value: u64, key: &[u8]) -> Request {
    Request::Publish(run_of(topic, producer, number, value.to_string().as_bytes(), key))
}

/// The command of one publish.
pub(crate) fn run_of(topic: TopicIncarnation, producer: u64, number: u64, value: &[u8], key: &[u8]) -> PublishRun {
    let mut run = PublishRunBuilder::default();
    let body = body(key, value);
    let number = if producer == 0 { 0 } else { number };
    let (producer_id, producer_seq) = (ProducerId::new(producer), ProducerSeq::new(number));
    let record = NewRecord { producer_id, producer_seq, key, has_headers: false, body: &body };
    let value_bytes = u32::try_from(value.len()).expect("small");
    let payload_bytes = value_bytes + u32::try_from(key.len()).expect("small");
    run.add(topic, Partition::ANY, payload_bytes, value_bytes, &record);
    run.take().expect("one value")
}

pub(crate) fn settle(subscription: u16, delivery: &Delivery, kind: SettleKind) -> Request {
    settle_named(subscription, delivery.partition, delivery.seq, delivery.delivery_id, kind)
}

pub(crate) fn settle_named(
    subscription: u16,
    partition: Partition,
    seq: Seq,
    delivery_id: DeliveryId,
    kind: SettleKind,
) -> Request {
    let item = SettleItem { partition, first_seq: seq, first_delivery: delivery_id, count: 1, kind };
    Request::Settle { subscription, items: vec![item] }
}

/// The value of a delivery, as the number it was published with.
pub(crate) fn number_of(delivery: &Delivery) -> u64 {
    let body = delivery.record.body();
    let key_bytes = usize::from(u16::from_be_bytes([body[0], body[1]]));
    let value = &body[2 + key_bytes + 4..];
    std::str::from_utf8(value).expect("digits").parse().expect("a number")
}

fn body(key: &[u8], value: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_u16(u16::try_from(key.len()).expect("short"));
    out.put_slice(key);
    out.put_u32(u32::try_from(value.len()).expect("short"));
    out.put_slice(value);
    out
}

fn take(segments: &mut SegmentWriter, work: Vec<SegmentWork>) -> Result<(), Crashed> {
    for work in work {
        match work {
            SegmentWork::Append(record) => segments.append(&[record]).map_err(crashed)?,
            SegmentWork::Copy(copy) => {
                let (from, reader) = (copy.from, segments.reader());
                if reader.end_seq(from.topic, from.partition) <= from.seq {
                    segments.flush().map_err(crashed)?;
                }
                let read = reader.read_records(from.topic, from.partition, from.seq, from.seq.next(), usize::MAX);
                let source = read.map(|mut records| records.pop().map(|found| found.record));
                let copied = copy.make(source.map_err(|error| error.to_string()));
                segments.append(&[copied.record]).map_err(crashed)?;
            }
            SegmentWork::Ledger(record) => segments.append_ledger(&[record]).map_err(crashed)?,
            SegmentWork::SegmentBytes(bytes) => segments.set_segment_bytes(bytes),
            SegmentWork::DropTopic(topic) => segments.drop_topic(topic),
            SegmentWork::Trim { topic, partition, below } => segments.trim(topic, partition, below),
        }
    }
    Ok(())
}

/// The node, and the ticket of what the segment writer has not written.
fn finish(recovery: NodeRecovery, options: &RigOptions) -> Result<(Node, Option<u64>), NodeError> {
    if options.no_room {
        return recovery.finish_unwritten(options.now).map(|(node, ticket)| (node, Some(ticket)));
    }
    Ok((recovery.finish(options.now)?, None))
}

/// As the server does before anything else: data has an identity, or there is none yet.
fn claim(disk: &MemoryDisk, data_dir: &Path) -> Result<(), Crashed> {
    if Identity::read(disk, data_dir).map_err(crashed)?.is_some() {
        return Ok(());
    }
    assert!(!has_data(disk, data_dir).map_err(crashed)?, "rule 4: data without an identity");
    let (node_id, incarnation) = (NodeId::ZERO, Identity::FIRST_INCARNATION);
    Identity { cluster_id: [9; 16], node_id, incarnation, peers: vec![node_id], state: IdentityState::Made }
        .write(disk, data_dir)
        .map_err(crashed)
}

fn crashed(error: impl std::error::Error) -> Crashed {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    Crashed(text)
}
