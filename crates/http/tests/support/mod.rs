//! A node that answers from a table, a real server over it, and a client that shows the bytes of the answer.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use mortarmq_http::{Access, BrokerStatus, NodeHandle, Readiness, Role};
use mortarmq_node::views::MovedView;
use mortarmq_node::views::balance::TopicWithoutGroup;
use mortarmq_node::views::trace::{TraceEvent, TraceStanding};
use mortarmq_node::views::{
    BalanceView, ClusterView, DeadLetterView, DeadLettersView, DefaultsView, GroupPartitionStats, GroupStats,
    GroupView, GroupsView, LeaderView, LettersView, MemberView, NodeView, PartitionStats, PathBooks, PeekView,
    PeekedMessage, StatsView, TopicPartitionView, TopicStats, TopicSummary, TopicView, TopicsView, TraceView,
};
use mortarmq_node::{Act, ErrorCode, Failure, Query, QueryAnswer, QueryReply};
use mortarmq_shard::record::{NewRecord, open_record, write_record};
use mortarmq_types::{CommitIndex, Epoch, Position, ProducerId, ProducerSeq};

/// A node whose answers are fixed. Topic `orders` exists, `broken` fails as told, others do not exist.
#[derive(Clone)]
pub(crate) struct FakeNode {
    /// What was asked last.
    pub(crate) asked: Arc<Mutex<Option<Query>>>,
    pub(crate) acted: Arc<Mutex<Option<Act>>>,
    pub(crate) moved: MovedView,
    /// What `/readyz` and `/healthz` rest on.
    pub(crate) readiness: Readiness,
    /// Whether it hears no majority.
    pub(crate) is_stale: bool,
    /// How topic `broken` fails.
    pub(crate) failure: Failure,
    /// Who may do what.
    pub(crate) access: Access,
    /// What peek finds.
    pub(crate) messages: Vec<PeekedMessage>,
}

impl FakeNode {
    /// A node that is ready.
    pub(crate) fn new() -> Self {
        Self {
            asked: Arc::default(),
            acted: Arc::default(),
            moved: MovedView { replayed: 5, dropped: 7, is_partial: false },
            readiness: Readiness { ready: true, role: Role::Leader, ..Readiness::default() },
            is_stale: false,
            failure: Failure::new(ErrorCode::Internal, "told to fail"),
            access: Access::default(),
            messages: vec![message(42, b"k1", b"{\"n\": 1}")],
        }
    }
}

impl NodeHandle for FakeNode {
    async fn query(&self, question: Query) -> Option<QueryReply> {
        *self.asked.lock().expect("no test panics while it asks") = Some(question.clone());
        if self.readiness.stopping {
            return None;
        }
        let position = Position { epoch: Epoch::new(3), commit_index: CommitIndex::new(8123) };
        Some(QueryReply { position, is_stale: self.is_stale, result: self.answer(question) })
    }

    async fn act(&self, act: Act) -> Option<QueryReply> {
        *self.acted.lock().expect("no test panics while it asks") = Some(act.clone());
        if self.readiness.stopping {
            return None;
        }
        let result = act.topic().map_or(Ok(()), |topic| self.check(topic)).map(|()| match &act {
            Act::ChangeTopic { topic: name, .. } => QueryAnswer::Topic(topic(name)),
            Act::ChangeGroup { .. } => QueryAnswer::Group(groups().groups.remove(0)),
            Act::DeleteTopic { .. } => QueryAnswer::Done,
            Act::ChangeDefaults { .. } => QueryAnswer::Defaults(defaults()),
            Act::HandOver { to } => {
                QueryAnswer::Leader(LeaderView { leader_id: Some(to.get()), leader_epoch: 4, quorum_state: 0 })
            }
            Act::Readmit { node } => QueryAnswer::Members(cluster(node.get(), 77, "learner")),
            Act::Letters(_) => {
                let refused = [("leased", 1), ("unsettled", 2)].into();
                QueryAnswer::Letters(LettersView { matched: 9, done: 6, refused })
            }
            Act::Purge { .. } | Act::Seek { .. } | Act::SeekTime { .. } | Act::DeleteGroup { .. } => {
                QueryAnswer::Moved(self.moved)
            }
        });
        let position = Position { epoch: Epoch::new(3), commit_index: CommitIndex::new(8124) };
        Some(QueryReply { position, is_stale: false, result })
    }

    fn access(&self) -> &Access {
        &self.access
    }

    fn broker(&self) -> BrokerStatus {
        BrokerStatus { uptime_s: 61, connections: 2, ..BrokerStatus::alone(0, "0.1.0") }
    }

    fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    async fn metrics(&self) -> String {
        "mortarmq_connections 2\n".to_owned()
    }
}

impl FakeNode {
    fn answer(&self, question: Query) -> Result<QueryAnswer, Failure> {
        match &question {
            Query::Stats { topic: Some(name) }
            | Query::Balance { topic: Some(name) }
            | Query::Topic { name }
            | Query::Groups { topic: name }
            | Query::Peek { topic: name, .. }
            | Query::DeadLetters { topic: name, .. }
            | Query::Trace { topic: name, .. } => self.check(name)?,
            Query::Stats { topic: None }
            | Query::Balance { topic: None }
            | Query::Topics
            | Query::Leader
            | Query::Members
            | Query::Defaults => {}
        }
        Ok(match question {
            Query::Stats { .. } => QueryAnswer::Stats(stats()),
            Query::Balance { .. } => QueryAnswer::Balance(balance()),
            Query::Topics => {
                let topics = ["orders", "audit", "zoo"].map(summary).into();
                QueryAnswer::Topics(TopicsView { topics })
            }
            Query::Topic { name } => QueryAnswer::Topic(topic(&name)),
            Query::Groups { .. } => QueryAnswer::Groups(groups()),
            Query::Peek { topic, .. } => QueryAnswer::Peek(PeekView { topic, messages: self.messages.clone() }),
            Query::DeadLetters { topic, .. } => {
                let letters = self.messages.iter().cloned().map(dead_letter).collect();
                QueryAnswer::DeadLetters(DeadLettersView { topic: format!("$dlq.{topic}"), letters })
            }
            Query::Trace { .. } => QueryAnswer::Trace(trace()),
            Query::Defaults => QueryAnswer::Defaults(defaults()),
            Query::Members => QueryAnswer::Members(cluster(0, 1, "voter")),
            Query::Leader => QueryAnswer::Leader(LeaderView { leader_id: Some(0), leader_epoch: 3, quorum_state: 0 }),
        })
    }

    fn check(&self, name: &str) -> Result<(), Failure> {
        match name {
            "orders" => Ok(()),
            "broken" => Err(self.failure.clone()),
            _ => Err(Failure::new(ErrorCode::UnknownTopic, format!("topic \"{name}\" does not exist"))),
        }
    }
}

fn summary(name: &str) -> TopicSummary {
    TopicSummary {
        name: name.to_owned(),
        id: "00000000000000a1".to_owned(),
        partitions: 2,
        state: "active",
        created_epoch: 1,
        created_at: 1_700_000_000,
    }
}

fn topic(name: &str) -> TopicView {
    let partition = |index| TopicPartitionView {
        index,
        leader: Some(0),
        first_seq: 1,
        last_seq: 500,
        depth: 125,
        size_bytes: 140_000,
    };
    TopicView {
        summary: summary(name),
        settings: [("retention_ms".to_owned(), serde_json::json!(0))].into_iter().collect(),
        partition_stats: vec![partition(0), partition(1)],
    }
}

fn group_stats() -> GroupStats {
    GroupStats {
        group: "billing".to_owned(),
        produced: 2000,
        delivered: 1500,
        dropped: 0,
        dlq: 0,
        depth: 500,
        dropped_by: BTreeMap::new(),
        in_flight: 12,
        scheduled: 3,
        unreadable: 0,
        oldest_ready_s: 0,
        oldest_leased_s: 0,
        retries_by: BTreeMap::from([("nacked", 4)]),
        state: "active",
        partitions: vec![GroupPartitionStats { partition: 0, floor: 376, depth: 125 }],
    }
}

fn groups() -> GroupsView {
    let settings = [("lease_ms".to_owned(), serde_json::json!(30_000))].into_iter().collect();
    let members = vec![MemberView { member: "00000000000000b2".to_owned(), held_messages: 12, held_bytes: 3000 }];
    GroupsView { groups: vec![GroupView { stats: group_stats(), settings, members }] }
}

fn stats() -> StatsView {
    let partition = PartitionStats {
        partition: 0,
        leader: Some(0),
        first_seq: 1,
        last_seq: 500,
        bytes: 140_000,
        stored_bytes: 150_000,
    };
    let topic = TopicStats {
        topic: "orders".to_owned(),
        id: "00000000000000a1".to_owned(),
        produced: 2000,
        partitions: vec![partition],
        groups: vec![group_stats()],
    };
    StatsView {
        node: 0,
        shard: 0,
        epoch: 3,
        commit_index: 8123,
        quorum_state: 0,
        stale: false,
        groups_expired: 0,
        topics: vec![topic],
    }
}

fn balance() -> BalanceView {
    let path = PathBooks {
        topic: "orders".to_owned(),
        group: "billing".to_owned(),
        produced: 2000,
        delivered: 1500,
        dropped: 0,
        dlq: 0,
        depth: 500,
    };
    let without_group = vec![TopicWithoutGroup { topic: "audit".to_owned(), messages: 7 }];
    BalanceView { commit_index: 8123, epoch: 3, paths: vec![path], without_group }
}

fn trace() -> TraceView {
    let event = TraceEvent {
        time_ms: 1_700_000_000_123,
        commit_index: 17,
        path: "-".to_owned(),
        stage: "stored",
        delivery_id: None,
        attempt: None,
        member: None,
        cause: None,
        detail: "producer 9".to_owned(),
    };
    TraceView {
        events: vec![event],
        standing: vec![TraceStanding { path: "orders/billing".to_owned(), standing: "acked" }],
    }
}

fn dead_letter(message: PeekedMessage) -> DeadLetterView {
    DeadLetterView {
        origin_path: "orders/billing".to_owned(),
        origin_partition: 1,
        origin_sequence: 40,
        attempts: 5,
        reason: "nacked".to_owned(),
        error: "no such \"customer\"".to_owned(),
        standing: "pending",
        message,
    }
}

/// A stored message of producer 7 with its own number as producer number.
pub(crate) fn message(sequence: u64, key: &[u8], value: &[u8]) -> PeekedMessage {
    let mut bytes = BytesMut::new();
    let new = NewRecord {
        producer_id: ProducerId::new(7),
        producer_seq: ProducerSeq::new(sequence),
        key,
        has_headers: false,
        body: value,
    };
    write_record(&mut bytes, &new);
    PeekedMessage {
        partition: 1,
        sequence,
        published_at_ms: 1_700_000_000_999,
        commit_index: 17,
        epoch: 3,
        record: open_record(&bytes.freeze()).expect("what was written can be opened"),
        key: Bytes::copy_from_slice(key),
        value: Bytes::copy_from_slice(value),
        headers: Vec::new(),
    }
}

/// A server of its own on a port of its own.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

impl Server {
    /// Serves a node until the server is dropped.
    pub(crate) fn of(node: FakeNode) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime can be made");
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind(("127.0.0.1", 0)))
            .expect("the loopback address has a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        runtime.spawn(async move { axum::serve(listener, mortarmq_http::router(node)).await });
        Self { address, _runtime: runtime }
    }

    /// Sends a GET.
    pub(crate) fn get(&self, target: &str) -> Answer {
        self.send("GET", target, "", b"")
    }

    /// Sends a request with more header lines, each with its line end, and a body.
    pub(crate) fn send(&self, method: &str, target: &str, headers: &str, body: &[u8]) -> Answer {
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let head =
            format!("{method} {target} HTTP/1.1\r\nHost: broker:7190\r\nConnection: close\r\n{length}{headers}\r\n");
        let mut stream = TcpStream::connect(self.address).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout can be set");
        stream.write_all(head.as_bytes()).expect("the server takes the head");
        stream.write_all(body).expect("the server takes the body");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("the server closes behind its answer");
        Answer::parse(&bytes)
    }
}

/// An answer, taken apart.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8(bytes.to_vec()).expect("the answer is UTF-8");
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no end of the head in {text:?}"));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status line");
        let headers = lines
            .map(|line| line.split_once(": ").expect("a header line"))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        Self { status: status.parse().expect("the status is a number"), headers, body: body.to_owned() }
    }

    /// A header's value, or nothing.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// The body, which has to be one line of JSON of the announced length.
    pub(crate) fn line(&self) -> &str {
        assert_eq!(self.header("content-type"), "application/json", "{self:?}");
        assert_eq!(self.header("content-length"), self.body.len().to_string(), "{self:?}");
        let line = self.body.strip_suffix('\n').unwrap_or_else(|| panic!("no line end: {self:?}"));
        assert!(!line.contains('\n'), "more than one line: {self:?}");
        line
    }
}

fn defaults() -> DefaultsView {
    DefaultsView { defaults: [("partition_default_count".to_owned(), 4.into())].into_iter().collect() }
}

/// A cluster of one node, which leads if it votes.
fn cluster(id: u16, incarnation: u32, role: &'static str) -> ClusterView {
    let leads = role == "voter";
    let lag = leads.then_some(0);
    let member = NodeView {
        id,
        incarnation,
        role,
        leads,
        reached: leads,
        state: leads.then_some("leading"),
        lag_bytes: lag,
        lag_entries: lag,
        silent_ms: None,
    };
    ClusterView { members: vec![member], asking: Vec::new() }
}
