//! One node: it is killed while its consumer holds messages, started again, and gives the rest.

mod books;
mod load;

use std::time::Instant;

use mortarmq_check::{AsText, Verdict};
use mortarmq_client::{Recording, TopicOptions};
use tempfile::TempDir;

use self::books::Books;
use super::failed;
use super::history::{History, path_info};
use crate::admin::Admin;
use crate::child_node::ChildNode;
use crate::commands::{balance, trace};
use crate::errors::Failure;
use crate::output::{RowArgs, grouped, note};
use crate::session;

/// Shows it.
pub(super) async fn demo(folder: &TempDir, rows: RowArgs) -> Result<(), Failure> {
    let mut node = ChildNode::start(&folder.path().join("data"))?;
    note(format_args!("started a node in {} (process {}, {})", folder.path().display(), node.pid(), node.client));
    let mut books = Books::default();
    let history = History::begin(folder.path(), vec![path_info(TOPIC, GROUP, MAX_ATTEMPTS)])?;
    before_the_kill(&mut node, &mut books, &history).await?;
    after_the_kill(&node, &mut books, &history).await?;
    conclude(&node, &books, history, rows)
}

/// Publishes everything, consumes half, and kills the node while the consumer holds messages.
async fn before_the_kill(node: &mut ChildNode, books: &mut Books, history: &History) -> Result<(), Failure> {
    let client = history.connect_to(&node.client, "first").await?;
    let declared = client.declare_topic(TOPIC, TopicOptions::partitions(PARTITIONS)).await;
    declared.map_err(|error| session::failure(&error))?;
    note(format_args!("created topic {TOPIC} with {PARTITIONS} partitions"));

    let started = Instant::now();
    load::publish(&client, MESSAGES, books).await?;
    let took = started.elapsed().as_secs_f64();
    let count = grouped(books.confirmed.len() as u64);
    note(format_args!("published {count} messages in {took:.1} s, each confirmed after its fsync"));

    let mut consumer = load::subscribe(&client).await?;
    load::ack(&mut consumer, MESSAGES / 2, books).await?;
    let held = load::hold(&mut consumer).await?;
    let acked = grouped(books.acked.len() as u64);
    note(format_args!("consumed and acked {acked}; the consumer holds {} more, not acked", held.len()));

    note(format_args!("kill -9 {}: the node and its consumer are gone", node.pid()));
    let killed = Recording::now_ns();
    node.kill()?;
    // Only now: while the node lives, a consumer that goes would give back what it holds.
    drop((held, consumer, client));
    node.restart()?;
    history.killed(0, killed, Recording::now_ns());
    note(format_args!("started it again (process {}): {}", node.pid(), node.found));
    Ok(())
}

/// Consumes what is left, also what the lost consumer held.
async fn after_the_kill(node: &ChildNode, books: &mut Books, history: &History) -> Result<(), Failure> {
    let client = history.connect_to(&node.client, "second").await?;
    let mut consumer = load::subscribe(&client).await?;
    note("consuming the rest; what the lost consumer held comes when its session has run out");
    let started = Instant::now();
    let left = books.confirmed.len() - books.acked.len();
    books.is_restarted = true;
    load::ack(&mut consumer, left, books).await?;
    let took = started.elapsed().as_secs_f64();
    note(format_args!("consumed and acked {} in {took:.1} s", grouped(left as u64)));
    // A message that should not come would come now. Empty twice, the path counts as drained.
    for _ in 0..2 {
        let surplus = load::hold(&mut consumer).await?;
        books.surplus.extend(surplus.iter().map(load::message_id));
    }
    consumer.close().await.map_err(|error| session::failure(&error))?;
    client.close().await;
    Ok(())
}

/// Compares what was confirmed with what came, asks the node for its own books, and judges what the clients saw.
fn conclude(node: &ChildNode, books: &Books, history: History, rows: RowArgs) -> Result<(), Failure> {
    let admin = Admin::new(&node.admin_args())?;
    if let Some((partition, sequence)) = books.redelivered {
        note(format_args!("\nmessage {sequence} of partition {partition} came twice; its life says why:"));
        trace::print(&trace::Trace::ask(&admin, TOPIC, partition, sequence)?, rows)?;
    }
    note("\nthe node's books:");
    let balance = balance::Balance::ask(&admin, Some(TOPIC))?;
    balance::print(&balance, rows)?;
    let report = history.judge(&balance, false)?;
    let mut faults = books.faults(&balance);
    if report.verdict != Verdict::Ok {
        faults.push(format!("what the clients saw breaks the contract:\n{}", AsText(&report)));
    }
    if faults.is_empty() {
        let count = grouped(books.confirmed.len() as u64);
        note(format_args!(
            "\n{count} confirmed, {count} acked once each: none lost, none acked before the kill came again"
        ));
        let judged = report.rules.iter().filter(|line| line.judged > 0).count();
        note(format_args!(
            "what the clients recorded, judged by {judged} rules (mortarmq check):\nverdict: {}",
            report.verdict.word()
        ));
        return Ok(());
    }
    Err(failed(&faults.join("; ")))
}

const TOPIC: &str = "orders";
const GROUP: &str = "billing";
const PARTITIONS: u16 = 4;
const MESSAGES: usize = 2_000;
/// What a group has unless it is told otherwise.
const MAX_ATTEMPTS: u32 = 5;
