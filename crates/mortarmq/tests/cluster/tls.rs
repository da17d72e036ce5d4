//! Links over TLS: what goes through them, who is refused, and what both sides say.

use std::path::{Path, PathBuf};

use mortarmq_client::ConsumerOptions;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::support::{self, Broker, wait_for};
use super::{Cluster, LONG, SECRET, others, publish, take};

/// A CA whose key is there, to issue what a test wants.
struct Ca {
    params: CertificateParams,
    key: KeyPair,
}

impl Ca {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, "nodes");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { params, key: KeyPair::generate().expect("a key") }
    }

    /// Writes what a node shows, and the CA; gives the flags that name them.
    fn issue(&self, folder: &Path, name: &str) -> Vec<String> {
        let write = |file: &str, text: String| {
            let path: PathBuf = folder.join(format!("{name}-{file}"));
            std::fs::write(&path, text).expect("written");
            path.to_str().expect("text").to_owned()
        };
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &Issuer::from_params(&self.params, &self.key)).expect("signed");
        let ca = self.params.self_signed(&self.key).expect("signed");
        [
            ("--peer-tls-cert", write("cert.pem", certificate.pem())),
            ("--peer-tls-key", write("key.pem", key.serialize_pem())),
            ("--peer-tls-ca", write("ca.pem", ca.pem())),
        ]
        .into_iter()
        .flat_map(|(flag, path)| [flag.to_owned(), path])
        .collect()
    }
}

/// Starts a node again without waiting for it, with other files than it had.
fn start_again(cluster: &mut Cluster, node: usize, tls: Vec<String>) {
    let former = std::mem::replace(&mut cluster.tls[node], tls);
    let flags = cluster.flags(node, SECRET);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    cluster.nodes[node].kill();
    cluster.nodes[node].spawn_again_with(&flags);
    cluster.tls[node] = former;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_p6_p12_over_tls_nothing_is_lost_and_any_node_serves_whoever_leads() {
    let ca = Ca::new();
    let mut cluster = Cluster::start_over_tls(|folder, node| ca.issue(folder, node));
    assert!(cluster.nodes[0].banner.iter().any(|line| line.ends_with("(nodes 0, 1, 2, over TLS)")));
    let leader = cluster.leader();
    let client = cluster.client_of(&others(leader)).await;
    client.declare_topic("orders", Default::default()).await.expect("a majority is up");
    let mut consumer =
        client.consumer("orders", "billing", ConsumerOptions::default()).await.expect("the topic exists");
    publish(&client, 0, 50).await;
    let mut seen = take(&mut consumer, 50).await;
    let asked = others(leader)[0];
    let books = cluster.nodes[asked].rows(&["balance"]);
    assert!(books.contains("orders\tbilling\t50\t50\t0\t0\t0\t0"), "an operator is carried: {books}");
    cluster.nodes[leader].kill();
    publish(&client, 50, 50).await;
    seen.extend(take(&mut consumer, 50).await);
    seen.sort_unstable();
    assert_eq!(seen, (0..100).collect::<Vec<u64>>(), "each came and was acked once");
    cluster.restart(leader);
    // It follows: with it and without another one there is a majority.
    let heir = cluster.leader();
    cluster.nodes[others(heir).into_iter().find(|node| *node != leader).expect("of three")].kill();
    publish(&client, 100, 10).await;
    consumer.close().await.expect("a majority is up");
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_a_node_that_was_away_catches_up_by_files_over_tls() {
    let ca = Ca::new();
    super::catches_up_by_files(Cluster::begin(super::SMALL_FILES, |folder, node| ca.issue(folder, node))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_another_ca_or_without_tls_stays_out_and_both_sides_say_what_to_do() {
    let (ca, other) = (Ca::new(), Ca::new());
    let mut cluster = Cluster::start_over_tls(|folder, node| ca.issue(folder, node));
    let client = cluster.client().await;
    client.declare_topic("orders", Default::default()).await.expect("a majority is up");
    let leader = cluster.leader();
    let [stranger, third] = others(leader)[..] else { unreachable!("of three nodes two do not lead") };
    let logs = |cluster: &Cluster, node: usize, text: &str| {
        wait_for(LONG, || cluster.nodes[node].log_since_start().contains(text).then_some(()));
    };
    // Its own CA issued what it shows, and it trusts ours too: it would make links if the others did.
    let folder = cluster.folder.path().to_owned();
    let mut flags = other.issue(&folder, "stranger");
    let both = [&ca, &other].map(|ca| ca.params.self_signed(&ca.key).expect("signed").pem()).concat();
    std::fs::write(&flags[5], both).expect("written");
    start_again(&mut cluster, stranger, flags.clone());
    logs(&cluster, stranger, "the other node refuses TLS with this one");
    logs(&cluster, leader, "its certificate is refused: none of the given CAs issued it");
    // It trusts its own CA alone.
    flags = other.issue(&folder, "stranger");
    start_again(&mut cluster, stranger, flags);
    logs(&cluster, stranger, "the other node's certificate is refused: none of the given CAs issued it");
    // None at all: each says where something is to be set.
    start_again(&mut cluster, stranger, Vec::new());
    logs(&cluster, stranger, "the other node links over TLS only; set peer_tls_cert");
    logs(&cluster, stranger, "it speaks TLS; if it is a node, set peer_tls_cert");
    logs(&cluster, third, "it speaks no TLS; if it is a node, set peer_tls_cert");
    logs(&cluster, third, "the other node links without TLS; set peer_tls_cert");
    publish(&client, 0, 10).await;
    // With the right files it is back, and counts.
    cluster.nodes[stranger].kill();
    cluster.restart(stranger);
    cluster.nodes[third].kill();
    publish(&client, 10, 10).await;
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_take_a_new_ca_one_after_the_other_and_publishes_go_on() {
    let (ca, next) = (Ca::new(), Ca::new());
    let mut cluster = Cluster::start_over_tls(|folder, node| ca.issue(folder, node));
    let client = cluster.client().await;
    client.declare_topic("orders", Default::default()).await.expect("a majority is up");
    let folder = cluster.folder.path().to_owned();
    let reload = |cluster: &Cluster, node: usize, times: usize| {
        cluster.nodes[node].signal(rustix::process::Signal::HUP);
        let read = || cluster.nodes[node].log_since_start().matches("were read again").count() == times;
        wait_for(LONG, || read().then_some(()));
    };
    // First all trust both, then each shows the new one, then nobody trusts the old one.
    let pem = |ca: &Ca| ca.params.self_signed(&ca.key).expect("signed").pem();
    let (new, both) = (pem(&next), [pem(&ca), pem(&next)].concat());
    for node in 0..3 {
        std::fs::write(&cluster.tls[node][5], &both).expect("written");
        reload(&cluster, node, 1);
    }
    publish(&client, 0, 10).await;
    for node in 0..3 {
        next.issue(&folder, &format!("node{node}"));
        std::fs::write(&cluster.tls[node][5], &both).expect("written");
        reload(&cluster, node, 2);
    }
    publish(&client, 10, 10).await;
    for node in 0..3 {
        std::fs::write(&cluster.tls[node][5], &new).expect("written");
        reload(&cluster, node, 3);
    }
    // A link that is made now is of the new one.
    for node in 0..3 {
        cluster.nodes[node].kill();
        cluster.restart(node);
        publish(&client, 20 + 10 * node as u64, 10).await;
    }
    client.close().await;
}

/// What `init` printed behind a word.
fn printed<'a>(text: &'a str, word: &str) -> &'a str {
    let line = text.lines().find(|line| line.starts_with(word)).expect("a line for it");
    line.split_whitespace().nth(1).expect("a value")
}

#[test]
fn what_init_writes_for_three_machines_is_a_cluster_over_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let init = |hosts: &str| support::run(&["init", &path("mortarmq.toml"), "--nodes", hosts]);
    // Three addresses of this machine: each node is known by its own.
    let hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];
    for refused in ["127.0.0.1", "127.0.0.1,127.0.0.1", "127.0.0.1,a:7189"] {
        assert_eq!(init(refused).code, Some(2), "{refused}");
    }
    let done = init(&hosts.join(","));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let listeners = hosts.map(|host| std::net::TcpListener::bind((host, 0)).expect("a free port"));
    let addresses = listeners.each_ref().map(|listener| listener.local_addr().expect("bound").to_string());
    drop(listeners);
    let peers: Vec<String> =
        (0..3).map(|id| format!(r#"{{"id":{id},"peer":"{}","client":"{}:7188"}}"#, addresses[id], hosts[id])).collect();
    let peers = format!("[{}]", peers.join(","));
    let mut nodes: Vec<Broker> = (0..3)
        .map(|node| {
            let at = folder.path().join(format!("node{node}"));
            let flags = [
                "--config",
                "mortarmq.toml",
                "--peers",
                &peers,
                "--listen-peer",
                &addresses[node],
                "--disk-reserve-bytes",
                "0",
            ];
            Broker::spawn_in(&at, &at.join("data"), &flags)
        })
        .collect();
    nodes.iter_mut().for_each(Broker::wait_until_ready);
    assert!(nodes.iter().all(|node| node.banner.iter().any(|line| line.ends_with("over TLS)"))));
    let (ca, token) = (path("node0/mortarmq-ca.pem"), printed(&done.stdout, "admin").to_owned());
    let ask = |node: &Broker, args: &[&str]| {
        let admin = node.admin_addr.trim_start_matches("https://");
        let environment = [
            ("MORTARMQ_SERVER", node.client_addr.as_str()),
            ("MORTARMQ_ADMIN", admin),
            ("MORTARMQ_TLS_CA", &ca),
            ("MORTARMQ_TOKEN", &token),
        ];
        support::run_with(args, &environment, b"")
    };
    wait_for(LONG, || (ask(&nodes[2], &["topics", "create", "orders"]).code == Some(0)).then_some(()));
    let sent = ask(&nodes[1], &["pub", "orders", "hello"]);
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    let got = ask(&nodes[2], &["sub", "orders", "--group", "g", "--count", "1"]);
    assert!(got.code == Some(0) && got.stdout.trim_end().ends_with("hello"), "{} {}", got.stdout, got.stderr);
    // Nothing is written over, and nothing is left of what could not be written.
    std::fs::remove_dir_all(folder.path().join("node0")).expect("it is there");
    let again = init(&hosts.join(","));
    assert!(again.code == Some(1) && again.stderr.contains("node1/mortarmq.toml exists"), "{}", again.stderr);
    assert!(!folder.path().join("node0").exists(), "half of it was left");
}

#[test]
fn what_is_wrong_with_the_files_is_found_before_a_node_is_started() {
    let folder = tempfile::tempdir().expect("a folder");
    let (ca, other) = (Ca::new(), Ca::new());
    let config = folder.path().join("node.toml");
    let write = |flags: &[String], host: &str| {
        let keys: Vec<String> = flags
            .chunks(2)
            .map(|pair| format!("{} = {:?}\n", pair[0].trim_start_matches("--").replace('-', "_"), pair[1]))
            .collect();
        let peers = format!(
            "peers = [{{ id = 0, peer = \"{host}:1\", client = \"a:1\" }}, {{ id = 1, peer = \"b:1\", client = \"b:2\" }}]\n\
             peer_secret = \"{SECRET}\"\n"
        );
        std::fs::write(&config, peers + &keys.concat()).expect("written");
        let path = config.to_str().expect("text");
        let data = folder.path().to_str().expect("text");
        (support::run(&["config", "check", path]), support::run(&["doctor", "--config", path, "--data-dir", data]))
    };
    let right = ca.issue(folder.path(), "right");
    let wrong = other.issue(folder.path(), "wrong");
    let (checked, doctor) = write(&right, "127.0.0.1");
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    assert!(doctor.stdout.contains("peer_tls\tok\tthe other nodes accept"), "{}", doctor.stdout);
    let with = |place: usize, path: &str| {
        let mut flags = right.clone();
        path.clone_into(&mut flags[place]);
        flags
    };
    for (flags, host, told) in [
        (right.clone(), "10.0.0.1", "it is not for 10.0.0.1, but for"),
        (with(1, "/nonexistent.pem"), "127.0.0.1", "cannot read /nonexistent.pem"),
        (with(3, &wrong[3]), "127.0.0.1", "made together"),
        (with(5, &wrong[5]), "127.0.0.1", "none of the given CAs issued it"),
        (with(5, &right[3]), "127.0.0.1", "holds no certificate"),
    ] {
        let (checked, doctor) = write(&flags, host);
        assert!(checked.code == Some(2) && checked.stderr.contains(told), "{told}: {}", checked.stderr);
        assert!(checked.stderr.contains("put peer_tls_cert, peer_tls_key and peer_tls_ca right"), "{}", checked.stderr);
        let row = doctor.stdout.lines().find(|line| line.starts_with("peer_tls\tfinding")).expect("a finding");
        assert!(row.contains(told), "{told}: {row}");
    }
    let (checked, doctor) = write(&[], "127.0.0.1");
    assert_eq!(checked.code, Some(0), "TLS is not asked for: {}", checked.stderr);
    assert!(doctor.stdout.contains("peer_tls\tfinding\twhat the nodes say"), "{}", doctor.stdout);
}
