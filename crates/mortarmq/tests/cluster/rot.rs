//! Bits that flip in the files of one of three nodes: what rots is repaired from the others, and no message is missed.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use mortarmq_client::{Client, ConsumerOptions};

use super::support::{Broker, wait_for};
use super::{Cluster, LONG, others, publish};

/// Files with this ending below a folder.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn flip(path: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("it is there");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("inside the file");
    file.write_all_at(&[byte[0] ^ 0x10], offset).expect("it can be written");
    file.sync_all().expect("it can be synced");
}

/// A metric without labels.
fn metric(node: &Broker, name: &str) -> u64 {
    let text = node.get("/metrics").unwrap_or_default();
    let row = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok());
    row.unwrap_or(0)
}

/// Consumes everything once.
async fn consume(client: &Client, count: u64) {
    let mut consumer =
        client.consumer("orders", "billing", ConsumerOptions::default()).await.expect("the topic exists");
    let mut seen = Vec::new();
    for _ in 0..count {
        let delivery =
            tokio::time::timeout(LONG, consumer.next()).await.expect("in time").expect("goes on").expect("sound");
        seen.push(String::from_utf8(delivery.value.to_vec()).expect("a number").parse::<u64>().expect("a number"));
        delivery.ack().await.expect("its lease is live");
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..count).collect::<Vec<u64>>(), "each came once");
    consumer.close().await.expect("a majority is up");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_3_a_record_that_rots_on_a_leader_or_a_follower_is_repaired_and_delivered() {
    // Of those that lead nothing but a delivery reads; of the others the scrub.
    let mut cluster = Cluster::start_with(&["--scrub-bytes-per-s", "0"]);
    let client = cluster.client().await;
    client.declare_topic("orders", Default::default()).await.expect("a majority is up");
    publish(&client, 0, 200).await;
    let [rotten, second] = [0, 1];
    let mut before = Vec::new();
    for node in [rotten, second] {
        // A stop makes a checkpoint, so that the next start writes nothing of it anew.
        assert_eq!(cluster.nodes[node].stop(), Some(0));
        let segments = files(&cluster.folder.path().join(format!("node{node}")), ".segment");
        let segment = segments.into_iter().find(|path| path.metadata().is_ok_and(|found| found.len() > 2000));
        let segment = segment.expect("it has records");
        before.push((segment.clone(), std::fs::read(&segment).expect("it is there")));
        // Two of the first records.
        flip(&segment, 32 + 60);
        flip(&segment, if node == rotten { 500 } else { 1200 });
        if node == second {
            cluster.more = &[];
        }
        cluster.restart(node);
        cluster.leader();
    }
    for _ in 0..20 {
        let leader = cluster.leader();
        if leader == rotten {
            break;
        }
        cluster.nodes[leader].kill();
        cluster.leader_among(&others(leader));
        cluster.restart(leader);
    }
    assert_eq!(cluster.leader(), rotten, "it leads at last");
    consume(&client, 200).await;
    for node in [rotten, second] {
        wait_for(LONG, || (metric(&cluster.nodes[node], "mortarmq_repaired_total") >= 2).then_some(()));
    }
    let books = cluster.nodes[rotten].rows(&["balance"]);
    assert!(books.contains("200"), "{books}");
    let log = cluster.nodes[rotten].log_since_start();
    assert!(log.contains("damage was repaired from another node"), "{log}");
    for (path, bytes) in before {
        let now = std::fs::read(&path).expect("it is there");
        assert_eq!(now[..bytes.len()], bytes[..], "{}", path.display());
    }
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_a_follower_whose_journal_rots_is_brought_up_and_is_as_good_as_any() {
    let mut cluster = Cluster::start();
    let client = cluster.client().await;
    client.declare_topic("orders", Default::default()).await.expect("a majority is up");
    publish(&client, 0, 100).await;
    let leader = cluster.leader();
    let [rotten, third] = others(leader)[..] else { unreachable!("of three nodes two do not lead") };
    cluster.nodes[rotten].kill();
    let journal = files(&cluster.folder.path().join(format!("node{rotten}")), ".journal").remove(0);
    flip(&journal, 5 * 4096 + 100);
    cluster.restart(rotten);
    let log = || cluster.nodes[rotten].log_since_start();
    wait_for(LONG, || log().contains("it votes and acknowledges again").then_some(()));
    assert!(log().contains("is damaged at offset") && log().contains("neither votes nor acknowledges"), "{}", log());
    assert_eq!(metric(&cluster.nodes[rotten], "mortarmq_rejoining"), 0);
    // Without the third a majority needs it, and without the leader it has to have everything.
    cluster.nodes[third].kill();
    publish(&client, 100, 50).await;
    cluster.nodes[leader].kill();
    cluster.restart(third);
    assert_eq!(cluster.leader_among(&others(leader)), rotten, "the third lacks what was published without it");
    consume(&client, 150).await;
    client.close().await;
    cluster.nodes[rotten].kill();
    let folder = cluster.nodes[rotten].data_dir();
    let verified = super::support::run(&["verify", &folder]);
    assert_eq!(verified.code, Some(0), "{} {}", verified.stdout, verified.stderr);
}
