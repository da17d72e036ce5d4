//! A node whose folder was emptied waits until it is readmitted, is brought up by the others, and is as good as any from then on; what is left
//! of its former folder is of no use any more.

use std::path::{Path, PathBuf};

use mortarmq_client::ConsumerOptions;

use super::support::{Done, wait_for};
use super::{Cluster, LONG, others, publish, take};

impl Cluster {
    fn data(&self, node: usize) -> PathBuf {
        self.folder.path().join(format!("node{node}"))
    }

    /// Starts a node where it was, without waiting for it.
    fn start_again(&mut self, node: usize) {
        let flags = self.flags(node, super::SECRET);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        self.nodes[node].spawn_again_with(&flags);
    }

    /// Another folder takes the place of a node's, which is kept under a name.
    fn exchange(&mut self, node: usize, kept_as: &str, put: Option<&str>) {
        self.nodes[node].kill();
        let folder = self.folder.path();
        std::fs::rename(self.data(node), folder.join(kept_as)).expect("it is there");
        if let Some(put) = put {
            std::fs::rename(folder.join(put), self.data(node)).expect("it was kept");
        }
        self.start_again(node);
    }

    fn readiness(&self, node: usize) -> String {
        self.nodes[node].get("/readyz").unwrap_or_default()
    }

    fn readmit(&self, asked: usize, node: usize) -> Done {
        self.nodes[asked].run(&["members", "readmit", &node.to_string()])
    }

    /// Incarnation, role and whether it is reached, as a node lists another.
    fn member(&self, asked: usize, node: usize) -> Option<(u64, String, bool)> {
        let done = self.nodes[asked].run(&["members", "list"]);
        let cells: Vec<Vec<String>> =
            done.stdout.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect();
        let row = cells.into_iter().find(|cells| cells[0] == node.to_string())?;
        Some((row[1].parse().ok()?, row[2].clone(), row[3] == "yes"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_4_an_emptied_node_waits_is_readmitted_and_then_any_other_may_go() {
    let mut cluster = Cluster::start();
    let client = cluster.client().await;
    client.declare_topic("orders", Default::default()).await.expect("a majority is up");
    publish(&client, 0, 50).await;
    let leader = cluster.leader();
    let [node, third] = others(leader)[..] else { unreachable!("of three nodes two do not lead") };
    cluster.exchange(node, "old", None);
    let gone = "this node's data is gone";
    let readiness = wait_for(LONG, || Some(cluster.readiness(node)).filter(|said| said.contains(gone)));
    assert!(readiness.starts_with("HTTP/1.1 503"), "{readiness}");
    assert!(readiness.contains(&format!("mortarmq members readmit {node}")), "{readiness}");
    assert!(cluster.nodes[node].get("/healthz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")));
    let log = cluster.nodes[node].log_since_start();
    assert!(log.contains(gone) && log.contains("must not vote"), "{log}");
    assert!(!Path::new(&cluster.data(node)).join("journal").exists(), "it has not begun");
    // Any node lists it, and says what cannot be.
    wait_for(LONG, || {
        let done = cluster.nodes[third].run(&["members", "list"]);
        done.stderr.contains(&format!("node {node} has no data and waits")).then_some(())
    });
    wait_for(LONG, || cluster.member(third, node).filter(|(_, _, is_reached)| !is_reached));
    let role = |node: usize| cluster.member(third, node).map(|(life, role, _)| (life, role));
    assert_eq!(role(leader), Some((1, "leader".to_owned())));
    assert_eq!(role(node), Some((1, "voter".to_owned())));
    for (other, said) in [(7, "none of this cluster"), (third, "is up with its data"), (leader, "is up with its data")]
    {
        let refused = cluster.readmit(third, other);
        assert!(refused.code == Some(4) && refused.stderr.contains(said), "{} {}", refused.stdout, refused.stderr);
    }
    publish(&client, 50, 50).await;
    let done = cluster.readmit(third, node);
    assert_eq!(done.code, Some(0), "{} {}\n{}", done.stdout, done.stderr, cluster.nodes[node].log_since_start());
    assert!(done.stderr.contains("votes again"), "{}", done.stderr);
    cluster.nodes[node].wait_until_ready();
    let (life, role, is_reached) = cluster.member(node, node).expect("it is listed");
    assert!(life > 1 && is_reached && role == "voter", "{life} {role}");
    // Each of the two others goes in turn.
    cluster.nodes[third].kill();
    publish(&client, 100, 50).await;
    cluster.restart(third);
    wait_for(LONG, || cluster.member(leader, third).filter(|(_, _, is_reached)| *is_reached));
    cluster.nodes[leader].kill();
    publish(&client, 150, 50).await;
    cluster.restart(leader);
    old_life_returns(&mut cluster, node);
    publish(&client, 200, 50).await;
    let mut consumer =
        client.consumer("orders", "billing", ConsumerOptions::default()).await.expect("the topic exists");
    let mut seen = take(&mut consumer, 250).await;
    seen.sort_unstable();
    assert_eq!(seen, (0..250).collect::<Vec<u64>>(), "each came once");
    consumer.close().await.expect("a majority is up");
    client.close().await;
    cluster.nodes[node].kill();
    let verified = super::support::run(&["verify", &cluster.nodes[node].data_dir()]);
    assert_eq!(verified.code, Some(0), "{} {}", verified.stdout, verified.stderr);
}

/// The former folder of a readmitted node comes back, and goes again.
fn old_life_returns(cluster: &mut Cluster, node: usize) {
    cluster.exchange(node, "new", Some("old"));
    let replaced = "this node was replaced";
    let readiness = wait_for(LONG, || Some(cluster.readiness(node)).filter(|said| said.contains(replaced)));
    assert!(readiness.starts_with("HTTP/1.1 503"), "{readiness}");
    let log = cluster.nodes[node].log_since_start();
    assert!(log.contains(replaced) && !log.contains("this node leads"), "{log}");
    cluster.exchange(node, "old", Some("new"));
    cluster.nodes[node].wait_until_ready();
}
