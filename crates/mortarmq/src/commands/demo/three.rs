//! Three nodes: the one that leads is killed under load, the others go on, and it comes back.

mod findings;
mod tally;
mod work;

use std::time::{Duration, Instant};

use mortarmq_check::{AsText, Report, Verdict};
use mortarmq_client::{ConsumerOptions, PullOptions, Recording, TopicOptions};
use mortarmq_history::PathInfo;
use tempfile::TempDir;

use self::findings::Findings;
use self::tally::Tally;
use self::work::{RATE, Work, subscribe};
use super::failed;
use super::history::{History, path_info};
use crate::admin::Admin;
use crate::child_cluster::{ChildCluster, NODES};
use crate::commands::balance::Balance;
use crate::commands::broker::Broker;
use crate::commands::{balance, trace};
use crate::errors::Failure;
use crate::output::{RowArgs, grouped, note};
use crate::session;

/// The cluster, and those who watch it.
struct Stage {
    cluster: ChildCluster,
    history: History,
    tally: Tally,
}

/// Shows it.
pub(super) async fn demo(folder: &TempDir, rows: RowArgs) -> Result<(), Failure> {
    let begun = Instant::now();
    let cluster = ChildCluster::start(folder.path())?;
    note(format_args!(
        "started three nodes on this machine, each with a data folder of its own in {}:",
        folder.path().display()
    ));
    for (id, node) in cluster.nodes.iter().enumerate() {
        note(format_args!("  node {id}: process {}, clients at {}", node.pid(), node.client));
    }
    let paths = vec![path_info(TOPIC, BILLING, MAX_ATTEMPTS), path_info(TOPIC, SHIPPING, MAX_ATTEMPTS), dead_letters()];
    let mut stage = Stage { cluster, history: History::begin(folder.path(), paths)?, tally: Tally::default() };
    let (leader, epoch) = stage.leader().await?;
    note(format_args!("they have elected node {leader} (epoch {epoch}), {:.1} s after the start\n", seconds(begun)));

    let (producer, consumers) = stage.begin_load().await?;
    tokio::time::sleep(BEFORE_THE_KILL).await;
    stage.tell_progress();
    let silence = stage.kill_the_leader().await?;
    stage.bring_back().await?;
    producer.end().await?;
    stage.tell_progress();
    stage.work_off().await?;
    for consumer in consumers {
        consumer.end().await?;
    }
    stage.read_the_dead_letter(rows).await?;
    stage.conclude(silence, rows).await
}

impl Stage {
    /// Makes the topic and its groups, and lets everybody begin.
    async fn begin_load(&self) -> Result<(Work, Vec<Work>), Failure> {
        let client = self.cluster.connect(self.history.options("producer")).await?;
        let declared = client.declare_topic(TOPIC, TopicOptions::partitions(PARTITIONS)).await;
        declared.map_err(|error| session::failure(&error))?;
        let mut consumers = Vec::new();
        for group in [BILLING, BILLING, SHIPPING] {
            let client = self.cluster.connect(self.history.options(group)).await?;
            let consumer = subscribe(&client, group).await?;
            consumers.push(Work::consume(client, consumer, group, self.tally.clone()));
        }
        note(format_args!(
            "a producer sends {RATE} orders a second to the topic {TOPIC}; each is confirmed once two nodes have it on disk\n\
             two groups read them all: {BILLING} (two consumers; it refuses some the first time, and one always) and {SHIPPING} (one)"
        ));
        Ok((Work::produce(client, self.tally.clone()), consumers))
    }

    fn tell_progress(&self) {
        let counts = self.tally.counts();
        note(format_args!(
            "  {} orders sent, {} confirmed; {BILLING} has acked {}, {SHIPPING} {}",
            grouped(counts.sent),
            grouped(counts.confirmed.len() as u64),
            grouped(counts.acked(BILLING)),
            grouped(counts.acked(SHIPPING))
        ));
    }

    /// Kills the node that leads, and says how long it took until the next order was confirmed.
    async fn kill_the_leader(&mut self) -> Result<Duration, Failure> {
        let (leader, _) = self.leader().await?;
        note(format_args!("\nkill -9 {}: node {leader}, which leads, is gone", self.cluster.nodes[leader].pid()));
        let (killed, killed_ns) = (Instant::now(), Recording::now_ns());
        self.cluster.kill(leader)?;
        let silence = self.until(|stage| stage.tally.counts().confirmed_after(killed), "confirms an order").await?;
        let (heir, epoch) = self.leader().await?;
        note(format_args!(
            "the other two have elected node {heir} (epoch {epoch}); the next order was confirmed {:.2} s after the kill\n\
             \x20 producer and consumers found it by themselves; what was not answered was repeated under its own number",
            silence.as_secs_f64()
        ));
        tokio::time::sleep(ON_TWO_NODES).await;
        self.tell_progress();
        self.restart(leader, killed_ns)?;
        Ok(silence)
    }

    fn restart(&mut self, node: usize, killed_ns: u64) -> Result<(), Failure> {
        self.cluster.restart(node)?;
        let id = u16::try_from(node).expect("one of three");
        self.history.killed(id, killed_ns, Recording::now_ns());
        let again = &self.cluster.nodes[node];
        note(format_args!("\nstarted node {node} again (process {}): {}", again.pid(), again.found));
        Ok(())
    }

    /// Waits until all nodes have the log, while it grows.
    async fn bring_back(&self) -> Result<(), Failure> {
        let begun = Instant::now();
        self.until(|stage| stage.followers_within(UNDER_WAY), "has the whole log on three nodes").await?;
        note(format_args!(
            "it has fetched what it missed {:.1} s later, and counts for a majority again",
            seconds(begun)
        ));
        tokio::time::sleep(ON_THREE_NODES).await;
        Ok(())
    }

    /// Waits until nothing is owed.
    async fn work_off(&self) -> Result<(), Failure> {
        note("\nthe producer stops; the consumers work off what is left");
        let owed = |stage: &Self| {
            let books = stage.books().ok()?;
            (books.paths.iter().filter(|path| path.topic == TOPIC).all(|path| path.depth == 0)).then_some(())
        };
        self.until(owed, "has delivered everything").await?;
        // What should not come would come now.
        tokio::time::sleep(AFTERWARDS).await;
        self.until(|stage| stage.followers_within(0), "has the whole log on three nodes").await
    }

    /// Shows the life of the order that nobody could do, and settles its dead letter as somebody would who has looked at it.
    async fn read_the_dead_letter(&self, rows: RowArgs) -> Result<(), Failure> {
        let (partition, sequence) = self.tally.counts().dead.ok_or_else(|| failed("no order became a dead letter"))?;
        note(format_args!(
            "\norder {DEAD_ORDER} was refused {MAX_ATTEMPTS} times and is a dead letter now; its life says why:"
        ));
        trace::print(&trace::Trace::ask(&self.operator().await?, TOPIC, partition, sequence)?, rows)?;
        let client = self.cluster.connect(self.history.options("operator")).await?;
        let options = ConsumerOptions { credit_messages: Some(0), ..ConsumerOptions::default() };
        let failure = |error| session::failure(&error);
        let consumer = client.consumer(DEAD_LETTERS, DEAD_LETTERS_GROUP, options).await.map_err(failure)?;
        let mut found = 0;
        loop {
            let pull = PullOptions { max_messages: 16, wait_ms: 200, ..PullOptions::default() };
            let deliveries = consumer.pull(pull).await.map_err(failure)?;
            if deliveries.is_empty() {
                break;
            }
            for delivery in deliveries {
                let reason =
                    String::from_utf8_lossy(delivery.header("mortarmq-dlq-error").unwrap_or_default()).into_owned();
                session::is_settled(delivery.ack().await)?;
                note(format_args!("  {DEAD_LETTERS} keeps it with its reason ({reason}); read, and settled"));
                found += 1;
            }
        }
        consumer.close().await.map_err(failure)?;
        client.close().await;
        if found == 1 { Ok(()) } else { Err(failed(&format!("{found} dead letters in place of 1"))) }
    }

    /// Compares what was promised with what was seen.
    async fn conclude(self, silence: Duration, rows: RowArgs) -> Result<(), Failure> {
        let (leader, _) = self.leader().await?;
        note(format_args!("\nthe books, as node {leader} has them:"));
        let books = self.books()?;
        balance::print(&books, rows)?;
        let counts = self.tally.counts();
        let report = self.history.judge(&books, true)?;
        let findings = Findings { counts: &counts, balance: &books, silence };
        let mut faults = findings.faults();
        if report.verdict != Verdict::Ok {
            faults.push(format!("what the clients saw breaks the contract:\n{}", AsText(&report)));
        }
        if !faults.is_empty() {
            return Err(failed(&faults.join("; ")));
        }
        tell_the_end(&findings, &report);
        Ok(())
    }

    /// The node that leads, and its epoch.
    async fn leader(&self) -> Result<(usize, u64), Failure> {
        self.until(|stage| stage.cluster.leader(), "leads").await
    }

    /// The operator routes of the node that leads.
    async fn operator(&self) -> Result<Admin, Failure> {
        let (leader, _) = self.leader().await?;
        Admin::new(&self.cluster.nodes[leader].admin_args())
    }

    /// Everybody's books, of the node that leads.
    fn books(&self) -> Result<Balance, Failure> {
        let (leader, _) = self.cluster.leader().ok_or_else(|| failed("nobody leads"))?;
        Balance::ask(&Admin::new(&self.cluster.nodes[leader].admin_args())?, None)
    }

    /// Whether all followers have acknowledged all but so many entries of the log.
    fn followers_within(&self, entries: u64) -> Option<()> {
        let (leader, _) = self.cluster.leader()?;
        let admin = Admin::new(&self.cluster.nodes[leader].admin_args()).ok()?;
        let known = Broker::ask(&admin).ok()?;
        let follows = known.peers.iter().filter_map(|peer| peer.replication.as_ref());
        let up_to_date = follows.filter(|follower| follower.state == "current" && follower.lag_entries <= entries);
        (up_to_date.count() + 1 == NODES).then_some(())
    }

    /// Looks again and again until there is something.
    async fn until<T>(&self, look: impl Fn(&Self) -> Option<T>, what: &str) -> Result<T, Failure> {
        let begun = Instant::now();
        loop {
            // The nodes are asked and answer at once; the others of this process go on meanwhile.
            if let Some(found) = tokio::task::block_in_place(|| look(self)) {
                return Ok(found);
            }
            if begun.elapsed() > LOOK_LIMIT {
                return Err(failed(&format!("nobody {what} within {} s", LOOK_LIMIT.as_secs())));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

fn tell_the_end(findings: &Findings<'_>, report: &Report) {
    note("\nwhat was promised, and what was seen:");
    for (promise, seen) in findings.lines() {
        note(format_args!("  {promise:<56}  {seen}"));
    }
    let judged = report.rules.iter().filter(|line| line.judged > 0).count();
    note(format_args!(
        "\nwhat the clients recorded, judged by {judged} rules; no fault excuses anything (mortarmq check --strict):\n\
         verdict: {}\n\n\
         what to type next:\n\
         \x20 mortarmq serve                 a node of your own, with its data in ./data\n\
         \x20 mortarmq bench                 how fast this machine is, next to what its disk can do\n\
         \x20 mortarmq sim --seed 7          the same code in a world of faults, bit for bit\n\
         three nodes of your own: docs/clusters.md",
        report.verdict.word()
    ));
}

fn seconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64()
}

/// The path of the dead letters. What it promises is its broker's own.
fn dead_letters() -> PathInfo<'static> {
    PathInfo {
        path: format!("{DEAD_LETTERS}/{DEAD_LETTERS_GROUP}").into(),
        topic: DEAD_LETTERS.into(),
        lease_ms: None,
        max_attempts: None,
        order: None,
        dlq: None,
        source: None,
    }
}

const TOPIC: &str = "orders";
const DEAD_LETTERS: &str = "$dlq.orders";
const DEAD_LETTERS_GROUP: &str = "default";
const BILLING: &str = "billing";
const SHIPPING: &str = "shipping";
const PARTITIONS: u16 = 4;
const MAX_ATTEMPTS: u32 = 3;
/// The order that billing always refuses.
const DEAD_ORDER: u64 = 77;
const BEFORE_THE_KILL: Duration = Duration::from_secs(2);
const ON_TWO_NODES: Duration = Duration::from_secs(1);
const ON_THREE_NODES: Duration = Duration::from_secs(1);
const AFTERWARDS: Duration = Duration::from_millis(300);
/// Entries that are on their way at any moment, under this load.
const UNDER_WAY: u64 = 3;
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Much longer than anything takes that is looked for.
const LOOK_LIMIT: Duration = Duration::from_secs(20);
