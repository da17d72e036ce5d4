//! Goal: three nodes as processes keep the contract when the one that leads is killed, stopped or emptied, and whoever connects without
//! being one of them changes nothing. Method: the binary, three times, on ports of this machine.

#[path = "cluster/operations.rs"]
mod operations;
#[path = "cluster/readmit.rs"]
mod readmit;
#[path = "cluster/rot.rs"]
mod rot;
mod support;
#[path = "cluster/tls.rs"]
mod tls;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use mortarmq_client::{Client, ClientOptions, Consumer, ConsumerOptions, Message, ProducerOptions, ReconnectOptions};
use support::{Broker, wait_for};
use tempfile::TempDir;

const SECRET: &str = "a secret of these three nodes";
const LONG: Duration = Duration::from_secs(30);

/// Three nodes, and where each takes the links of the others.
struct Cluster {
    nodes: Vec<Broker>,
    ports: [u16; 3],
    folder: TempDir,
    /// More flags for each.
    more: &'static [&'static str],
    /// Flags of each for the files of TLS, if links are encrypted.
    tls: [Vec<String>; 3],
}

/// Ports for three nodes. None of those that the system gives to whoever asks for any: another process could have it before its node
/// listens, or while that is down.
fn free_ports() -> [u16; 3] {
    let begin = RandomState::new().build_hasher().finish() % 10_000;
    let drawn = (0..10_000).map(|step| u16::try_from(20_000 + (begin + step) % 10_000).expect("below 30,000"));
    let mut listeners = drawn.filter_map(|port| TcpListener::bind(("127.0.0.1", port)).ok());
    let held = [(); 3].map(|()| listeners.next().expect("a free port"));
    held.each_ref().map(|listener| listener.local_addr().expect("bound").port())
}

impl Cluster {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(more: &'static [&'static str]) -> Self {
        Self::begin(more, |_, _| Vec::new())
    }

    /// The flags of a node's files come from its name and the folder that they go to.
    fn start_over_tls(issue: impl Fn(&Path, &str) -> Vec<String>) -> Self {
        Self::begin(&[], issue)
    }

    fn begin(more: &'static [&'static str], issue: impl Fn(&Path, &str) -> Vec<String>) -> Self {
        let ports = free_ports();
        let folder = tempfile::tempdir().expect("a folder");
        let tls = [0, 1, 2].map(|node| issue(folder.path(), &format!("node{node}")));
        let mut cluster = Self { nodes: Vec::new(), ports, folder, more, tls };
        for node in 0..3 {
            let node = cluster.spawn(node, SECRET);
            cluster.nodes.push(node);
        }
        cluster.nodes.iter_mut().for_each(Broker::wait_until_ready);
        cluster
    }

    fn flags(&self, node: usize, secret: &str) -> Vec<String> {
        let peer =
            |(id, port): (usize, &u16)| format!(r#"{{"id":{id},"peer":"127.0.0.1:{port}","client":"127.0.0.1:7188"}}"#);
        let peers: Vec<String> = self.ports.iter().enumerate().map(peer).collect();
        let listen = format!("127.0.0.1:{}", self.ports[node]);
        let (id, peers) = (node.to_string(), format!("[{}]", peers.join(",")));
        let flags = ["--node-id", &id, "--peers", &peers, "--listen-peer", &listen, "--peer-secret", secret];
        flags
            .into_iter()
            .chain(["--disk-reserve-bytes", "0"])
            .chain(self.more.iter().copied())
            .map(str::to_owned)
            .chain(self.tls[node].iter().cloned())
            .collect()
    }

    fn spawn(&self, node: usize, secret: &str) -> Broker {
        let flags = self.flags(node, secret);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        Broker::spawn_with(&self.folder.path().join(format!("node{node}")), &flags)
    }

    fn restart(&mut self, node: usize) {
        let flags = self.flags(node, SECRET);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        self.nodes[node].restart_with(&flags);
    }

    /// The node that leads, once there is one among these.
    fn leader_among(&self, nodes: &[usize]) -> usize {
        let leads = "/readyz?role=leader";
        let serves =
            |node: &&usize| self.nodes[**node].get(leads).is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"));
        wait_for(LONG, || nodes.iter().find(serves).copied())
    }

    fn leader(&self) -> usize {
        self.leader_among(&[0, 1, 2])
    }

    async fn client(&self) -> Client {
        self.client_of(&[0, 1, 2]).await
    }

    /// A client that knows these nodes only.
    async fn client_of(&self, nodes: &[usize]) -> Client {
        let servers: Vec<&str> = nodes.iter().map(|node| self.nodes[*node].client_addr.as_str()).collect();
        let reconnect = ReconnectOptions { initial_ms: 10, max_ms: 50, give_up_after: Some(LONG) };
        let options = ClientOptions { reconnect, ..ClientOptions::to(&servers.join(",")) };
        Client::connect(options).await.expect("a node is up")
    }
}

fn others(node: usize) -> Vec<usize> {
    (0..3).filter(|other| *other != node).collect()
}

/// Publishes so many, each waited for; the longest that one took.
async fn publish(client: &Client, from: u64, count: u64) -> Duration {
    let producer = client.producer("orders", ProducerOptions::default()).await.expect("the topic exists");
    let mut longest = Duration::ZERO;
    for number in from..from + count {
        let begun = Instant::now();
        producer.publish(Message::of(number.to_string().as_bytes())).await.expect("a majority is up");
        longest = longest.max(begun.elapsed());
    }
    producer.close().await;
    longest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_p6_a_killed_leader_loses_nothing_and_no_ack_is_forgotten() {
    let mut cluster = Cluster::start();
    let client = cluster.client().await;
    client.declare_topic("orders", Default::default()).await.expect("a majority is up");
    let mut consumer =
        client.consumer("orders", "billing", ConsumerOptions::default()).await.expect("the topic exists");
    let mut seen = Vec::new();
    for round in 0..2 {
        let leader = cluster.leader();
        publish(&client, round * 100, 50).await;
        cluster.nodes[leader].kill();
        publish(&client, round * 100 + 50, 50).await;
        for _ in 0..100 {
            let delivery =
                tokio::time::timeout(LONG, consumer.next()).await.expect("in time").expect("goes on").expect("sound");
            seen.push(String::from_utf8(delivery.value.to_vec()).expect("a number").parse::<u64>().expect("a number"));
            delivery.ack().await.expect("its lease is live");
        }
        assert!(cluster.leader_among(&others(leader)) != leader);
        cluster.restart(leader);
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..200).collect::<Vec<u64>>(), "each came and was acked once");
    // The books are the same on whoever leads next.
    let leader = cluster.leader();
    cluster.nodes[leader].kill();
    let leader = cluster.leader_among(&others(leader));
    let books = cluster.nodes[leader].rows(&["balance"]);
    assert!(books.contains("200"), "{books}");
    consumer.close().await.expect("a majority is up");
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_4_a_node_whose_journal_is_gone_stays_out_and_says_why() {
    let mut cluster = Cluster::start();
    let client = cluster.client().await;
    client.declare_topic("orders", Default::default()).await.expect("a majority is up");
    publish(&client, 0, 10).await;
    let emptied = others(cluster.leader())[0];
    cluster.nodes[emptied].kill();
    let folder = cluster.folder.path().join(format!("node{emptied}"));
    // It has forgotten what it said.
    std::fs::rename(folder.join("journal"), cluster.folder.path().join("journal")).expect("it is there");
    assert_stays_out(&cluster, emptied);
    assert!(!Path::new(&folder).join("journal").exists(), "it has not begun");
    publish(&client, 10, 10).await;
    client.close().await;
}

fn assert_stays_out(cluster: &Cluster, node: usize) {
    let mut emptied = cluster.spawn(node, SECRET);
    assert_ne!(emptied.wait_for_end(), Some(0));
    let log = emptied.log_since_start();
    assert!(log.contains("this node's data is gone") && log.contains("must not vote"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p2_a_graceful_stop_hands_the_office_over() {
    let mut cluster = Cluster::start();
    let client = cluster.client().await;
    client.declare_topic("orders", Default::default()).await.expect("a majority is up");
    publish(&client, 0, 10).await;
    let leader = cluster.leader();
    assert_eq!(cluster.nodes[leader].stop(), Some(0));
    let heir = cluster.leader_among(&others(leader));
    // Nobody had to notice first that it is gone.
    let log = cluster.nodes[heir].log_since_start();
    assert!(!log.contains("no leader is known") || log.matches("this node leads").count() == 1, "{log}");
    publish(&client, 10, 10).await;
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p10_strangers_change_nothing_and_a_node_with_another_secret_stays_out() {
    let mut cluster = Cluster::start();
    let client = cluster.client().await;
    client.declare_topic("orders", Default::default()).await.expect("a majority is up");
    let leader = cluster.leader();
    // Nonsense, and connections that say nothing, more than there are places for.
    let held: Vec<TcpStream> = (0..100)
        .map(|number| {
            let mut stream = TcpStream::connect(("127.0.0.1", cluster.ports[leader])).expect("it listens");
            if number % 2 == 0 {
                // It may be closed already.
                let _ = stream.write_all(&[number; 5000]);
            }
            stream
        })
        .collect();
    publish(&client, 0, 10).await;
    drop(held);
    let stranger = others(leader)[0];
    cluster.nodes[stranger].kill();
    let flags = cluster.flags(stranger, "another secret of one node");
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    cluster.nodes[stranger].restart_with(&flags);
    wait_for(LONG, || cluster.nodes[stranger].log_since_start().contains("another peer_secret").then_some(()));
    publish(&client, 10, 10).await;
    // With the right one it is back.
    cluster.nodes[stranger].kill();
    cluster.restart(stranger);
    let third = others(leader)[1];
    cluster.nodes[third].kill();
    publish(&client, 20, 10).await;
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p12_a_client_and_an_operator_of_one_node_are_served_whoever_leads() {
    let mut cluster = Cluster::start();
    let leader = cluster.leader();
    let [asked, third] = others(leader)[..] else { unreachable!("of three nodes two do not lead") };
    let client = cluster.client_of(&[asked]).await;
    // Handles in an order of their own, and one that is given before the leader is asked.
    for topic in ["payments", "orders", "refunds"] {
        client.declare_topic(topic, Default::default()).await.expect("a majority is up");
    }
    let mut consumer =
        client.consumer("orders", "billing", ConsumerOptions::default()).await.expect("the topic exists");
    publish(&client, 0, 50).await;
    let mut seen = take(&mut consumer, 50).await;
    // The books are the leader's, wherever they are asked for; what a node says of itself is its own.
    let books = cluster.nodes[asked].rows(&["balance"]);
    assert!(books.contains("orders\tbilling\t50\t50\t0\t0\t0\t0"), "{books}");
    assert_eq!(books, cluster.nodes[leader].rows(&["balance"]));
    assert!(cluster.nodes[asked].rows(&["broker", "status"]).starts_with(&format!("{asked}\t")));
    cluster.nodes[asked].rows(&["groups", "seek", "orders/billing", "--to", "earliest"]);
    seen.extend(take(&mut consumer, 50).await);
    // Another one leads: the same node serves on.
    cluster.nodes[leader].kill();
    publish(&client, 50, 50).await;
    seen.extend(take(&mut consumer, 50).await);
    seen.sort_unstable();
    let twice_then_once = (0..50).flat_map(|number| [number; 2]).chain(50..100);
    assert_eq!(
        seen,
        twice_then_once.collect::<Vec<u64>>(),
        "the seek brought the first ones back, nothing else came twice"
    );
    assert!([asked, third].contains(&cluster.leader_among(&[asked, third])));
    consumer.close().await.expect("a majority is up");
    client.close().await;
}

/// Takes and acks so many.
async fn take(consumer: &mut Consumer, count: u64) -> Vec<u64> {
    let mut seen = Vec::new();
    for _ in 0..count {
        let delivery =
            tokio::time::timeout(LONG, consumer.next()).await.expect("in time").expect("goes on").expect("sound");
        seen.push(String::from_utf8(delivery.value.to_vec()).expect("a number").parse().expect("a number"));
        delivery.ack().await.expect("its lease is live");
    }
    seen
}

/// So much is more than a leader has of the log in memory.
const LARGE: u64 = 90;
const LARGE_BYTES: usize = 800 << 10;

/// So that there is a checkpoint soon.
const SMALL_FILES: &[&str] = &["--snapshot-journal-bytes", "16MiB", "--journal-file-bytes", "16MiB"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_a_node_that_was_away_for_too_long_for_the_log_catches_up_by_files_and_is_as_good_as_any() {
    catches_up_by_files(Cluster::start_with(SMALL_FILES)).await;
}

async fn catches_up_by_files(mut cluster: Cluster) {
    let client = cluster.client().await;
    client.declare_topic("orders", Default::default()).await.expect("a majority is up");
    publish(&client, 0, 10).await;
    let leader = cluster.leader();
    let [away, third] = others(leader)[..] else { unreachable!("of three nodes two do not lead") };
    cluster.nodes[away].kill();
    let producer = client.producer("orders", ProducerOptions::default()).await.expect("the topic exists");
    for from in (10..10 + LARGE).step_by(10) {
        let padded = |number: u64| format!("{number}{}", " ".repeat(LARGE_BYTES));
        let values: Vec<Vec<u8>> = (from..from + 10).map(|number| padded(number).into_bytes()).collect();
        let messages: Vec<Message<'_>> = values.iter().map(|value| Message::of(value)).collect();
        producer.publish_batch(&messages).await.expect("a majority is up");
    }
    producer.close().await;
    cluster.restart(away);
    let log = || cluster.nodes[away].log_since_start();
    wait_for(LONG, || log().contains("the leader's checkpoint is installed").then_some(()));
    // Its word counts for a majority, so nothing is missed of what it fetched, nor of what follows.
    cluster.nodes[third].kill();
    publish(&client, 10 + LARGE, 10).await;
    let mut consumer =
        client.consumer("orders", "billing", ConsumerOptions::default()).await.expect("the topic exists");
    cluster.nodes[leader].kill();
    cluster.restart(third);
    assert_eq!(cluster.leader_among(&others(leader)), away, "the third lacks what was published without it");
    let mut seen = Vec::new();
    for _ in 0..LARGE + 20 {
        let delivery =
            tokio::time::timeout(LONG, consumer.next()).await.expect("in time").expect("goes on").expect("sound");
        let value = String::from_utf8(delivery.value.to_vec()).expect("a number");
        seen.push(value.trim().parse::<u64>().expect("a number"));
        delivery.ack().await.expect("its lease is live");
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..LARGE + 20).collect::<Vec<u64>>(), "each came once");
    consumer.close().await.expect("a majority is up");
    client.close().await;
    cluster.nodes[away].kill();
    let folder = cluster.nodes[away].data_dir();
    let verified = support::run(&["verify", &folder]);
    assert_eq!(verified.code, Some(0), "{} {}", verified.stdout, verified.stderr);
}
