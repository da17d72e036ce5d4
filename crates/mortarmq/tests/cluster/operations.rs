//! What operators do with a cluster that works: ask who leads, let another node lead, restart one after the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mortarmq_client::{Client, ConsumerOptions, Message, ProducerOptions};
use tokio::task::JoinHandle;

use super::support::wait_for;
use super::{Cluster, LONG, others};

/// Publishes numbers one after the other, each once the one before is confirmed, and notes when each was.
struct Publisher {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Vec<Instant>>,
}

impl Publisher {
    fn begin(client: Client) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn({
            let stop = Arc::clone(&stop);
            async move {
                let producer = client.producer("orders", ProducerOptions::default()).await.expect("the topic exists");
                let mut confirmed = Vec::new();
                while !stop.load(Ordering::Acquire) {
                    let value = confirmed.len().to_string();
                    let key = format!("key-{}", confirmed.len() % 20);
                    let message = Message { key: key.as_bytes(), ..Message::of(value.as_bytes()) };
                    producer.publish(message).await.expect("a majority is up");
                    confirmed.push(Instant::now());
                }
                producer.close().await;
                client.close().await;
                confirmed
            }
        });
        Self { stop, task }
    }

    async fn end(self) -> Vec<Instant> {
        self.stop.store(true, Ordering::Release);
        self.task.await.expect("it does not panic")
    }
}

/// The longest time between two confirmations, of which the second came after a moment and the first before an end.
fn silence(confirmed: &[Instant], from: Instant, until: Instant) -> Duration {
    let pairs = confirmed.windows(2).filter(|pair| pair[1] > from && pair[0] < until);
    pairs.map(|pair| pair[1] - pair[0]).max().expect("publishes went on")
}

fn leader_row(row: &str) -> (usize, u64) {
    let mut cells = row.trim_end().split('\t');
    let mut number = || cells.next().and_then(|cell| cell.parse::<u64>().ok()).expect("a number");
    (usize::try_from(number()).expect("an id"), number())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_node_says_who_leads_and_the_leader_hands_over_or_says_why_not() {
    let mut cluster = Cluster::start();
    let client = cluster.client().await;
    client.declare_topic("orders", Default::default()).await.expect("a majority is up");
    let leader = cluster.leader();
    let ask = |cluster: &Cluster, node: usize| leader_row(&cluster.nodes[node].rows(&["leader", "get"]));
    let (_, epoch) = ask(&cluster, leader);
    for node in 0..3 {
        wait_for(LONG, || (ask(&cluster, node) == (leader, epoch)).then_some(()));
    }
    // Of the three all take publishes, and one leads.
    for node in others(leader) {
        wait_for(LONG, || ready(&cluster, node, "/readyz").then_some(()));
        assert!(!ready(&cluster, node, "/readyz?role=leader"));
    }
    assert!(ready(&cluster, leader, "/readyz?role=leader"));
    let heir = others(leader)[0];
    let publisher = Publisher::begin(client);
    let done = cluster.nodes[leader].run(&["leader", "transfer", &heir.to_string()]);
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    let (now, next_epoch) = leader_row(&done.stdout);
    assert!(now == heir && next_epoch > epoch && done.stderr.contains(&format!("node {heir} leads")), "{done:?}");
    // Done already is done, wherever it is asked for.
    for node in 0..3 {
        wait_for(LONG, || (ask(&cluster, node).0 == heir).then_some(()));
        let again = cluster.nodes[node].run(&["leader", "transfer", &heir.to_string()]);
        assert_eq!(again.code, Some(0), "{}{}", again.stdout, again.stderr);
    }
    let unknown = cluster.nodes[leader].run(&["leader", "transfer", "7"]);
    assert_eq!(unknown.code, Some(4));
    assert!(unknown.stderr.contains("none of this cluster; its nodes are 0, 1, 2"), "{}", unknown.stderr);
    // A node that is down cannot lead.
    cluster.nodes[leader].kill();
    let metrics = || cluster.nodes[heir].get("/metrics").expect("it is up");
    let silent = format!("mortarmq_replication_silent_seconds{{peer=\"{leader}\"}} ");
    wait_for(LONG, || {
        let metrics = metrics();
        let seconds = metrics.lines().find_map(|line| line.strip_prefix(&silent)).map(str::to_owned);
        seconds.is_some_and(|seconds| seconds != "0").then_some(())
    });
    let down = cluster.nodes[heir].run(&["leader", "transfer", &leader.to_string()]);
    assert_eq!(down.code, Some(4));
    assert!(down.stderr.contains("it is down or cut off"), "{}", down.stderr);
    let ready = cluster.nodes[heir].get("/readyz").expect("it is up");
    assert!(ready.starts_with("HTTP/1.1 200") && ready.contains(&format!("node {leader} was not heard")), "{ready}");
    let status = cluster.nodes[heir].run(&["broker", "status"]);
    assert!(status.stderr.contains(&format!("node {leader} follows: silent")), "{}", status.stderr);
    publisher.end().await;
}

#[test]
fn a_health_check_is_told_whether_a_node_serves_and_why_not() {
    let mut cluster = Cluster::start();
    let leader = cluster.leader();
    let ask = |cluster: &Cluster, node: usize| cluster.nodes[node].run(&["broker", "ready"]);
    assert_eq!(ask(&cluster, leader).stdout, "leader\n");
    let [first, second] = others(leader)[..] else { unreachable!("of three nodes two do not lead") };
    wait_for(LONG, || (ask(&cluster, first).stdout == "follower\n").then_some(()));
    cluster.nodes[second].kill();
    assert_eq!(ask(&cluster, second).code, Some(3), "nobody answers");
    cluster.nodes[first].kill();
    let refused = wait_for(LONG, || {
        let done = ask(&cluster, leader);
        (done.code != Some(0)).then_some(done)
    });
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(4), ""));
    assert!(refused.stderr.contains("READ_ONLY_DEGRADED"), "{}", refused.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_names_what_is_wrong_between_the_nodes_and_what_to_type() {
    let mut cluster = Cluster::start();
    let leader = cluster.leader();
    let doctor = |cluster: &Cluster| cluster.nodes[leader].run(&["doctor"]);
    // What a node says of itself comes with its signs of life.
    let finds = |cluster: &Cluster, row: &str| {
        wait_for(LONG, || {
            let done = doctor(cluster);
            (done.code == Some(1) && done.stdout.contains(row)).then_some(done.stdout)
        })
    };
    let [first, second] = others(leader)[..] else { unreachable!("of three nodes two do not lead") };
    let rows =
        finds(&cluster, &format!("devices\tfinding\tnode {} and node {} keep", first.min(second), first.max(second)));
    for row in ["peer_tables\tok\t", "clocks\tok\t", "versions\tok\t", "replication\tok\t"] {
        assert!(rows.contains(row), "{row}: {rows}");
    }
    let log = cluster.nodes[leader].log_since_start();
    assert!(log.contains("keep their data on the same device"), "failure rule 10: {log}");
    cluster.nodes[first].kill();
    let address = format!("node {first} at 127.0.0.1:{} is not reached", cluster.ports[first]);
    finds(&cluster, &format!("peer\tfinding\t{address}"));
    finds(&cluster, &format!("replication\tfinding\tnode {first} follows: silent"));
    // Back with another address of a client in its list.
    let flags: Vec<String> =
        cluster.flags(first, super::SECRET).into_iter().map(|flag| flag.replace(":7188", ":7187")).collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    cluster.nodes[first].restart_with(&flags);
    let rows = finds(&cluster, &format!("peer_tables\tfinding\tnode {first} lists other addresses"));
    assert!(rows.contains(&format!("peer\tok\tnode {first} at ")), "{rows}");
}

fn ready(cluster: &Cluster, node: usize, path: &str) -> bool {
    cluster.nodes[node].get(path).is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// How often a leader is stopped.
const STOPS: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p12_a_leader_that_is_stopped_holds_up_publishes_for_less_than_an_election_takes() {
    let mut cluster = Cluster::start();
    let client = cluster.client().await;
    client.declare_topic("orders", Default::default()).await.expect("a majority is up");
    let publisher = Publisher::begin(client);
    let mut stops = Vec::new();
    for _ in 0..STOPS {
        let leader = cluster.leader();
        // Connections have stood for a while when a node is stopped.
        tokio::time::sleep(Duration::from_millis(2500)).await;
        let begun = Instant::now();
        assert_eq!(cluster.nodes[leader].stop(), Some(0));
        cluster.leader_among(&others(leader));
        tokio::time::sleep(Duration::from_millis(200)).await;
        stops.push((begun, Instant::now()));
        cluster.restart(leader);
    }
    let confirmed = publisher.end().await;
    let mut took: Vec<Duration> = stops.iter().map(|(from, until)| silence(&confirmed, *from, *until)).collect();
    println!("longest silence of a publisher around each stop of a leader: {took:?}");
    took.sort_unstable();
    assert!(took[STOPS / 2] < Duration::from_millis(500), "P12: {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p4_p9_a_rolling_restart_under_load_loses_nothing_and_no_ack_is_forgotten() {
    let mut cluster = Cluster::start();
    let client = cluster.client().await;
    client.declare_topic("orders", Default::default()).await.expect("a majority is up");
    let consuming = cluster.client().await;
    let mut consumer =
        consuming.consumer("orders", "billing", ConsumerOptions::default()).await.expect("the topic exists");
    let publisher = Publisher::begin(client);
    let consumed = tokio::spawn(async move {
        let mut seen: BTreeMap<u64, u32> = BTreeMap::new();
        let mut last = Instant::now();
        loop {
            match tokio::time::timeout(Duration::from_millis(100), consumer.next()).await {
                Ok(delivery) => {
                    let delivery = delivery.expect("goes on").expect("sound");
                    let number = std::str::from_utf8(&delivery.value).ok().and_then(|text| text.parse().ok());
                    *seen.entry(number.expect("a number")).or_default() += 1;
                    delivery.ack().await.expect("its lease is live");
                    last = Instant::now();
                }
                Err(_) if last.elapsed() > Duration::from_secs(3) => break,
                Err(_) => {}
            }
        }
        consumer.close().await.expect("a majority is up");
        consuming.close().await;
        seen
    });
    // Twice around: whoever leads is stopped like the others.
    for node in [0, 1, 2, 0, 1, 2] {
        // As docs/clusters.md says: one at a time, and the next when this one has all the others have.
        assert_eq!(cluster.nodes[node].stop(), Some(0));
        cluster.restart(node);
        wait_for(LONG, || cluster.is_whole().then_some(()));
    }
    let confirmed = publisher.end().await;
    let seen = consumed.await.expect("it does not panic");
    let wanted: BTreeMap<u64, u32> = (0..confirmed.len() as u64).map(|number| (number, 1)).collect();
    assert!(confirmed.len() > 100, "{} were confirmed", confirmed.len());
    assert_eq!(seen, wanted, "each came once");
    let longest = confirmed.windows(2).map(|pair| pair[1] - pair[0]).max();
    println!("{} confirmed during a rolling restart, longest silence {longest:?}", confirmed.len());
    let books = cluster.nodes[cluster.leader()].rows(&["balance"]);
    let count = confirmed.len();
    assert_eq!(books, format!("orders\tbilling\t{count}\t{count}\t0\t0\t0\t0\n"));
}

impl Cluster {
    /// Whether each node hears the one that leads, and both others have its log but for what is on its way.
    fn is_whole(&self) -> bool {
        let Ok(status) = self.nodes[self.leader()].get("/v1/broker") else { return false };
        let lags = status.split(r#""lag_entries":"#).skip(1).filter_map(|rest| rest.split([',', '}']).next());
        let lags: Vec<u64> = lags.filter_map(|lag| lag.parse().ok()).collect();
        (0..3).all(|node| ready(self, node, "/readyz")) && lags.len() == 2 && lags.iter().all(|lag| *lag <= 3)
    }
}
