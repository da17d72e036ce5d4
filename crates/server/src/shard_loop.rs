//! The shard's loop: the one thread that owns the node. It takes events, gives them to the node with the clocks, and
//! hands out what the node asks for. It never blocks on anything but its own inbox.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, SyncSender};
use std::time::{Duration, Instant};

use mortarmq_node::drive::{SlowReader, Turns};
use mortarmq_node::{Node, Now, Output, PeerWord, QueryReply};
use mortarmq_types::{ConnectionId, Epoch, NodeId};
use tokio::sync::oneshot;

use crate::clock::NodeClock;
use crate::courier::Courier;
use crate::event::{Event, ToConnection};
use crate::inbox::{Inbox, Sleep};
use crate::journal_thread::JournalJob;
use crate::outlet::Outlet;
use crate::peers::PeerLinks;
use crate::read_pool::ReadTask;
use crate::recover::messages;
use crate::segment_thread::SegmentJob;
use crate::shared::{OfficeStatus, Status};

/// The loop's own end of every channel.
pub(crate) struct Channels {
    pub(crate) events: Inbox,
    pub(crate) journal: Sender<JournalJob>,
    pub(crate) segments: Sender<SegmentJob>,
    pub(crate) reads: Sender<ReadTask>,
    pub(crate) courier: Courier,
    pub(crate) peers: PeerLinks,
    /// Told once, when the node serves: how many messages there are. Only then is the end of the log applied.
    pub(crate) ready: SyncSender<u64>,
}

/// The node and everything it talks to.
pub(crate) struct ShardLoop {
    node: Node,
    channels: Channels,
    status: Arc<Status>,
    clock: NodeClock,
    outlets: HashMap<ConnectionId, Outlet>,
    turns: Turns,
    /// What moments of the turns are counted from.
    begun: Instant,
    questions: HashMap<u64, oneshot::Sender<QueryReply>>,
    last_question: u64,
    /// When the last journal write was begun.
    journal_since: Instant,
    is_ready_told: bool,
}

impl ShardLoop {
    pub(crate) fn new(node: Node, channels: Channels, status: Arc<Status>) -> Self {
        Self {
            node,
            channels,
            status,
            clock: NodeClock,
            outlets: HashMap::new(),
            turns: Turns::new(SLOW_READER),
            begun: Instant::now(),
            questions: HashMap::new(),
            last_question: 0,
            journal_since: Instant::now(),
            is_ready_told: false,
        }
    }

    /// Turns until a stop was asked for and everything that was begun is written.
    pub(crate) fn run(mut self) {
        while self.turn() {}
    }

    /// Waits for something to do and does it; says whether there will be more.
    fn turn(&mut self) -> bool {
        let (at_most, sleep) = self.rest();
        if !self.channels.events.wait(at_most, sleep) {
            return false;
        }
        let now = self.clock.now();
        for _ in 0..EVENTS_PER_TURN {
            let Some(event) = self.channels.events.pop() else { break };
            self.handle(now, event);
        }
        let outlets = &self.outlets;
        self.turns.relieve(&mut self.node, now, |connection| outlets.get(&connection).map(Outlet::queued_bytes));
        self.turns.before_outputs(&mut self.node, self.begun.elapsed());
        self.dispatch_outputs(now);
        if self.turns.is_tick_due(&self.node, now) {
            self.note_gone(now);
            self.turns.tick(&mut self.node, now);
            self.dispatch_outputs(now);
            self.tell_office();
        }
        self.channels.courier.go();
        self.tell_status();
        !self.turns.is_stopped(&self.node, now)
    }

    fn tell_role(&self, is_leader: bool, leader: Option<NodeId>, epoch: Epoch) {
        match leader {
            _ if !self.channels.peers.is_any() => tracing::debug!(is_leader, "the node's role"),
            _ if is_leader => tracing::info!(%epoch, "this node leads"),
            Some(leader) => tracing::info!(%leader, %epoch, "another node leads"),
            None => tracing::warn!(%epoch, "no leader is known; nothing is taken until there is one"),
        }
    }

    /// Says which initial values of the configuration are not the cluster's: it has its own by now.
    fn tell_initial_values(&self) {
        for (key, configured, used) in self.node.initial_differences() {
            tracing::warn!(
                configured = %key.show(configured), used = %key.show(used),
                "{} is what the catalog says, not what the configuration does; change it: mortarmq defaults set", key.key()
            );
        }
    }

    /// How long nothing needs to be done, and what is worth to be woken for.
    fn rest(&self) -> (Duration, Sleep) {
        let patience = || Duration::from_millis(self.turns.patience_ms(&self.node, self.clock.now().monotonic));
        if self.turns.is_journal_busy() {
            // What is asked meanwhile joins the batch behind the one that is being written. A write that takes long, as on a
            // full disk, may take hours: looking every millisecond for what has come is then worth no more than being woken.
            let is_soon_over = self.journal_since.elapsed() < WRITE_SOON_OVER;
            return (patience(), if is_soon_over { Sleep::Writing } else { Sleep::Light });
        }
        match self.turns.missing(&self.node) {
            publishers @ 1.. => (self.turns.gathering(self.begun.elapsed()), Sleep::Gathering { publishers }),
            0 => (patience(), Sleep::Light),
        }
    }

    fn handle(&mut self, now: Now, event: Event) {
        match event {
            Event::Requests { connection, requests } => self.node.handle_requests(now, connection, requests),
            Event::Peer { word, place } => {
                self.node.handle_word(now, *word);
                drop(place);
            }
            Event::Asking { peer } => self.node.handle_asking(now, peer),
            Event::JournalWritten { ready_number, took } => {
                self.turns.journal_written(&mut self.node, now, self.begun.elapsed(), took, ready_number);
            }
            Event::SegmentsWritten { ticket } => self.node.handle_segments_written(now, ticket),
            Event::CheckpointWritten { log_index, bytes } => {
                self.node.handle_checkpoint_written(now, log_index, bytes);
            }
            Event::CheckpointPutOff { log_index } => self.node.handle_checkpoint_put_off(now, log_index),
            Event::CatchUpDone { done } => self.node.handle_catch_up_done(now, done),
            Event::Damaged { stretch, is_waited_for } => self.node.handle_damage(now, stretch, is_waited_for),
            Event::Disk { state } => self.node.handle_disk(now, state),
            Event::ReadDone { ticket, result } => self.node.handle_read(now, ticket, result),
            Event::NoMoreRequests { connection } => self.node.handle_no_more_requests(now, connection),
            Event::TurnedOut { connection } => self.node.handle_turned_out(now, connection),
            Event::Unsent { connection, subscription, unsent } => {
                self.node.handle_unsent(now, connection, subscription, unsent);
            }
            Event::Connected { connection, outlet } => {
                self.outlets.insert(connection, outlet);
                self.node.handle_connected(connection);
            }
            Event::Disconnected { connection } => {
                self.outlets.remove(&connection);
                self.node.handle_disconnected(now, connection);
            }
            Event::Query { question, answer } => {
                self.last_question += 1;
                self.questions.insert(self.last_question, answer);
                self.node.handle_query(now, self.last_question, question);
            }
            Event::Act { act, answer } => {
                self.last_question += 1;
                self.questions.insert(self.last_question, answer);
                self.node.handle_act(now, self.last_question, act);
            }
            Event::Gauges { answer } => {
                // Whoever asked may have gone.
                let _ = answer.send(self.node.gauges());
            }
            Event::StandAside if self.channels.peers.is_any() => self.node.handle_stand_aside(now),
            Event::StandAside => {}
            Event::Stop => self.turns.stop(&mut self.node, now),
        }
    }

    fn dispatch_outputs(&mut self, now: Now) {
        while let Some(output) = self.node.poll_output(now) {
            match output {
                Output::Journal { ready_number, batch } => {
                    self.turns.journal_begun();
                    self.journal_since = Instant::now();
                    let job = JournalJob::Append { ready_number, batch };
                    self.channels.journal.send(job).expect("the journal thread ends after this loop");
                }
                Output::Segments { ticket, work } => {
                    let job = SegmentJob::Work { ticket, work };
                    self.channels.segments.send(job).expect("the segment thread ends after this loop");
                }
                Output::CatchUp { work } => {
                    let job = SegmentJob::CatchUp { work };
                    self.channels.segments.send(job).expect("the segment thread ends after this loop");
                }
                Output::Checkpoint { meta, image, holds } => {
                    let job = SegmentJob::Checkpoint { meta, image, holds };
                    self.channels.segments.send(job).expect("the segment thread ends after this loop");
                }
                Output::Members { membership, members } => {
                    self.channels.peers.tell_lives(&members);
                    let job = JournalJob::Membership { membership };
                    self.channels.journal.send(job).expect("the journal thread ends after this loop");
                }
                Output::ReleaseJournal { log_index, keep_bytes, frees_spares } => {
                    let job = JournalJob::Release { log_index, keep_bytes, frees_spares };
                    self.channels.journal.send(job).expect("the journal thread ends after this loop");
                }
                Output::Read { ticket, job } => {
                    let task = ReadTask { ticket, job };
                    self.channels.reads.send(task).expect("the read pool ends after this loop");
                }
                Output::Replies { connection, replies } => self.tell(connection, ToConnection::Replies(replies)),
                Output::PullEnded { connection, subscription, position, result } => {
                    self.tell(connection, ToConnection::PullEnded { subscription, position, result });
                }
                Output::Deliveries { connection, subscription, messages } => {
                    let message = ToConnection::Deliveries { subscription, messages };
                    match self.outlets.get(&connection).map(|outlet| outlet.send(message)) {
                        Some(Ok(waker)) => self.channels.courier.note(waker),
                        Some(Err(ToConnection::Deliveries { messages, .. })) => {
                            self.node.handle_refused(now, connection, subscription, &messages);
                        }
                        Some(Err(_)) | None => {}
                    }
                    self.note_congestion(now, connection);
                }
                Output::Query { query, reply } => {
                    if let Some(answer) = self.questions.remove(&query) {
                        // Whoever asked may have gone.
                        let _ = answer.send(*reply);
                    }
                }
                Output::GroupExpired { topic, group, dropped } => {
                    tracing::info!(topic, group, dropped, "group deleted: nobody used it for its expire_idle_ms");
                }
                Output::SendPeer { to, message } => self.channels.peers.send(to, PeerWord::Log(message)),
                Output::SendCatchUp { to, message } => self.channels.peers.send(to, PeerWord::CatchUp(message)),
                Output::SendForward { to, message } => self.channels.peers.send(to, PeerWord::Forward(message)),
                Output::Role { is_leader, leader, epoch } => {
                    self.tell_office();
                    self.tell_role(is_leader, leader, epoch);
                }
            }
        }
    }

    /// Tells the node of a connection that takes messages slower than they come.
    fn note_congestion(&mut self, now: Now, connection: ConnectionId) {
        let queued_bytes = self.outlets.get(&connection).map_or(0, Outlet::queued_bytes);
        self.turns.congest(&mut self.node, now, connection, queued_bytes);
    }

    /// Tells the node of operators who wait for an answer no more: what takes long ends then.
    fn note_gone(&mut self, now: Now) {
        let gone: Vec<u64> =
            self.questions.iter().filter(|(_, answer)| answer.is_closed()).map(|(query, _)| *query).collect();
        for query in gone {
            self.questions.remove(&query);
            self.node.handle_query_gone(now, query);
        }
    }

    /// Sends to a connection. What is for one that is gone is dropped: nobody is left to read it.
    fn tell(&mut self, connection: ConnectionId, message: ToConnection) {
        if let Some(Ok(waker)) = self.outlets.get(&connection).map(|outlet| outlet.send(message)) {
            self.channels.courier.note(waker);
        }
    }

    fn tell_office(&self) {
        let (leader, catches_up, peers) = (self.node.leader(), self.node.is_catching_up(), self.node.peers());
        self.status.tell_office(OfficeStatus { leader, catches_up, peers }, self.node.is_leader());
    }

    fn tell_status(&mut self) {
        let is_ready = self.node.is_ready();
        self.status.is_ready.store(is_ready, Ordering::Relaxed);
        if self.status.is_rejoining.swap(self.node.is_rejoining(), Ordering::Relaxed) && !self.node.is_rejoining() {
            tracing::info!("the other nodes have brought this one up: it votes and acknowledges again");
        }
        self.status.quorum_state.store(self.node.quorum_state(), Ordering::Relaxed);
        if is_ready && !self.is_ready_told {
            self.is_ready_told = true;
            self.tell_initial_values();
            // Whoever waited for it may have given up.
            let _ = self.channels.ready.try_send(messages(&self.node));
        }
    }
}

/// Most events between two looks at the clock and the outputs.
const EVENTS_PER_TURN: usize = 512;
/// A connection with more than that in its channel gets nothing more until it has taken most of it: two default windows.
const SLOW_READER: SlowReader = SlowReader { congested_bytes: 4 << 20, relieved_bytes: 1 << 20 };
/// A journal write that takes longer is waited for as anything else is.
const WRITE_SOON_OVER: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::{Channels, ShardLoop, WRITE_SOON_OVER};
    use crate::clock::NodeClock;
    use crate::courier::{Round, courier};
    use crate::event::{Event, ToConnection};
    use crate::inbox::{EventSender, Sleep, inbox};
    use crate::journal_thread::JournalJob;
    use crate::outlet::{Inlet, Piles, outlet};
    use crate::peers::PeerLinks;
    use crate::read_pool::ReadTask;
    use crate::segment_thread::SegmentJob;
    use crate::shared::Status;
    use mortarmq_node::{Answer, NodeConfig, NodeRecovery, Reply, Request};
    use mortarmq_shard::PublishRunBuilder;
    use mortarmq_shard::record::NewRecord;
    use mortarmq_types::{ConnectionId, NodeId, Partition, ProducerId, ProducerSeq, TopicIncarnation};
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, channel, sync_channel};
    use std::time::{Duration, Instant};

    const CONNECTION: ConnectionId = ConnectionId::new(1);

    /// A loop that turns when it is told to, and what it talks to.
    struct Bench {
        shard_loop: ShardLoop,
        events: EventSender,
        journal: Receiver<JournalJob>,
        segments: Receiver<SegmentJob>,
        inlet: Inlet,
        _others: (Receiver<ReadTask>, Receiver<u64>, Round),
    }

    impl Bench {
        /// A node that leads, with one connection.
        fn new() -> Self {
            let recovery = NodeRecovery::new(NodeConfig::new(NodeId::ZERO, [1; 16], 1)).expect("a valid configuration");
            let node = recovery.finish(NodeClock.now()).expect("nothing to recover");
            let ((events, inbox), (journal, written)) = (inbox(), channel());
            let ((segments, worked), (reads, read)) = (channel(), channel());
            let ((courier, round), (ready, is_ready)) = (courier(), sync_channel(1));
            let peers = PeerLinks::default();
            let channels = Channels { events: inbox, journal, segments, reads, courier, peers, ready };
            let (outlet, inlet) = outlet(&Arc::new(Piles::new(usize::MAX)));
            events.send(Event::Connected { connection: CONNECTION, outlet });
            let shard_loop = ShardLoop::new(node, channels, Arc::new(Status::new()));
            let _others = (read, is_ready, round);
            let mut bench = Self { shard_loop, events, journal: written, segments: worked, inlet, _others };
            while !bench.shard_loop.node.is_ready() {
                bench.turn();
            }
            bench
        }

        /// A turn of the loop, then of those who write for it; whether the loop goes on.
        fn turn(&mut self) -> bool {
            let goes_on = self.shard_loop.turn();
            self.write();
            for job in self.segments.try_iter() {
                self.events.send(match job {
                    SegmentJob::Work { ticket, .. } => Event::SegmentsWritten { ticket },
                    SegmentJob::CatchUp { .. } => unreachable!("a node that is alone catches up with nobody"),
                    SegmentJob::Checkpoint { meta, .. } => {
                        Event::CheckpointWritten { log_index: meta.log_index, bytes: 1 }
                    }
                });
            }
            goes_on
        }

        /// Writes what the journal was given; how many batches that were.
        fn write(&self) -> usize {
            let appended = self.journal.try_iter().filter_map(|job| match job {
                JournalJob::Append { ready_number, .. } => Some(ready_number),
                JournalJob::Release { .. } | JournalJob::Membership { .. } => None,
            });
            let took = Duration::from_secs(1);
            appended.map(|ready_number| self.events.send(Event::JournalWritten { ready_number, took })).count()
        }

        fn ask(&self, request: Request) {
            self.events.send(Event::Requests { connection: CONNECTION, requests: vec![request] });
        }

        fn replies(&mut self) -> Vec<Reply> {
            let sent = std::iter::from_fn(|| self.inlet.try_recv());
            sent.flat_map(|sent| if let ToConnection::Replies(replies) = sent { replies } else { Vec::new() }).collect()
        }

        fn declare(&mut self) -> TopicIncarnation {
            self.ask(Request::Declare { name: "orders".to_owned(), partitions: 1, options: String::new() });
            loop {
                self.turn();
                if let Some(reply) = self.replies().pop() {
                    let Ok(Answer::Declared { topic, .. }) = reply.result else { panic!("{reply:?}") };
                    return topic;
                }
            }
        }
    }

    fn publishes(topic: TopicIncarnation, count: u64) -> Request {
        let mut run = PublishRunBuilder::default();
        let (producer_id, producer_seq) = (ProducerId::ZERO, ProducerSeq::ZERO);
        let record = NewRecord { producer_id, producer_seq, key: b"", has_headers: false, body: &[0; 6] };
        (0..count).for_each(|_| run.add(topic, Partition::ANY, 0, 0, &record));
        Request::Publish(run.take().expect("at least one"))
    }

    #[test]
    fn a_journal_write_that_takes_long_is_not_looked_after_every_millisecond() {
        let mut bench = Bench::new();
        let topic = bench.declare();
        bench.ask(publishes(topic, 1));
        while !bench.shard_loop.turns.is_journal_busy() {
            bench.shard_loop.turn();
        }
        bench.shard_loop.journal_since = Instant::now() + Duration::from_secs(3600);
        assert_eq!(bench.shard_loop.rest().1, Sleep::Writing, "it has only just begun");
        bench.shard_loop.journal_since = Instant::now();
        while bench.shard_loop.journal_since.elapsed() < WRITE_SOON_OVER {
            std::thread::yield_now();
        }
        assert_eq!(bench.shard_loop.rest().1, Sleep::Light);
    }

    #[test]
    fn at_a_stop_no_batch_is_held_back_and_all_that_was_asked_is_answered() {
        let mut bench = Bench::new();
        let topic = bench.declare();
        bench.ask(publishes(topic, 10));
        while !bench.shard_loop.turns.is_journal_busy() {
            bench.shard_loop.turn();
        }
        // In one turn: the journal is idle, and the next batch has fewer publishes than this one.
        assert_eq!(bench.write(), 1);
        bench.ask(publishes(topic, 3));
        bench.events.send(Event::Stop);
        assert!(bench.shard_loop.turn(), "three publishes are not answered yet");
        assert_eq!((bench.shard_loop.node.is_collecting(), bench.write()), (false, 1), "they wait for no others");
        while bench.turn() {}
        assert_eq!(bench.replies().iter().filter(|reply| reply.result.is_ok()).count(), 13);
    }
}
