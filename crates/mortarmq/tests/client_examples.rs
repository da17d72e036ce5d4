//! The examples of the Rust client, each in a process of its own, against the binary: they do what they say, and a consumer that
//! keys its effects on a business id has one effect per order, also when it is killed between effect and ack (P4).
//!
//! Method: this file has the examples as modules. A process of one is this test binary started again, so that what runs is
//! always what stands there.

mod support;

#[path = "../../client/examples/delayed.rs"]
mod delayed;
#[path = "../../client/examples/idempotent_consumer.rs"]
mod idempotent_consumer;
#[path = "../../client/examples/producer.rs"]
mod producer;
#[path = "../../client/examples/pull.rs"]
mod pull;
#[path = "../../client/examples/worker.rs"]
mod worker;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rusqlite::Connection;
use support::{Broker, wait_for};

#[test]
#[ignore = "a process of the other tests"]
fn example() {
    match std::env::var("EXAMPLE").as_deref() {
        Ok("delayed") => delayed::main().expect("it ends well"),
        Ok("idempotent_consumer") => idempotent_consumer::main().expect("it ends well"),
        Ok("producer") => producer::main().expect("it ends well"),
        Ok("pull") => pull::main().expect("it ends well"),
        Ok("worker") => worker::main().expect("it ends well"),
        // Somebody runs ignored tests.
        _ => {}
    }
}

/// An example that runs. It is killed with this value at the latest.
struct Example {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Example {
    fn start(name: &str, broker: &Broker, environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this test runs"));
        command.args(["--exact", "example", "--ignored", "--nocapture"]);
        command.env("EXAMPLE", name).env("MORTARMQ_SERVER", &broker.client_addr).envs(environment.iter().copied());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it can be started");
        let (sender, lines) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines }
    }

    /// The next line that it prints with this in it.
    fn line_with(&self, text: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(LONG).unwrap_or_else(|_| panic!("no line with \"{text}\""));
            if line.contains(text) {
                return line;
            }
        }
    }

    fn kill(mut self) {
        self.child.kill().expect("it runs");
    }

    /// Ends it as Ctrl-C does.
    fn interrupt(self) -> Vec<String> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
        self.end()
    }

    /// Waits until it has ended well, and gives what else it printed.
    fn end(mut self) -> Vec<String> {
        let status = wait_for(LONG, || self.child.try_wait().expect("a child of ours"));
        assert!(status.success(), "{status}");
        self.lines.iter().collect()
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A broker with the orders of the producer example.
fn with_orders(folder: &Path) -> Broker {
    let broker = Broker::start(&folder.join("data"));
    let lines = Example::start("producer", &broker, &[]).end();
    assert_eq!(lines.iter().filter(|line| line.contains(": stored at ")).count(), 20, "{lines:?}");
    broker
}

/// Delivered, dead and unsettled messages of a group of the topic `orders`.
fn books(broker: &Broker, group: &str) -> [u64; 3] {
    let rows = broker.rows(&["balance", "orders"]);
    let row = rows.lines().map(|row| row.split('\t').collect::<Vec<_>>()).find(|row| row[1] == group);
    let row = row.unwrap_or_else(|| panic!("no group {group} in {rows}"));
    [3, 5, 6].map(|column| row[column].parse().expect("a number"))
}

#[test]
fn p3_the_producer_example_stores_each_order_once_however_often_it_runs() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let broker = with_orders(folder.path());
    let lines = Example::start("producer", &broker, &[]).end();
    assert_eq!(lines.iter().filter(|line| line.contains(": was stored before, at ")).count(), 20, "{lines:?}");
}

#[test]
fn p4_a_consumer_killed_between_effect_and_ack_has_one_effect_per_order() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let broker = with_orders(folder.path());
    let file = folder.path().join("effects.sqlite");
    let effects_file = [("EFFECTS", file.to_str().expect("a plain name"))];
    let [lingering, working] = ["600000", "0"].map(|linger_ms| [effects_file[0], ("LINGER_MS", linger_ms)]);
    let mut killed_at = Vec::new();
    for _ in 0..2 {
        let consumer = Example::start("idempotent_consumer", &broker, &lingering);
        let line = consumer.line_with(": booked (");
        consumer.kill();
        killed_at
            .push(line.split(": booked").next().expect("an order").trim_start_matches("test example ... ").to_owned());
        // The second time it goes on behind the first, so that another order is hit.
        if killed_at.len() == 1 {
            let consumer = Example::start("idempotent_consumer", &broker, &working);
            consumer.line_with(&format!("{}: was booked before (consumer_lost)", killed_at[0]));
            consumer.kill();
        }
    }
    let consumer = Example::start("idempotent_consumer", &broker, &working);
    let mut rest = vec![consumer.line_with(&format!("{}: was booked before (consumer_lost)", killed_at[1]))];
    wait_for(LONG, || (books(&broker, "bookkeeping") == [20, 0, 0]).then_some(()));
    rest.extend(consumer.interrupt());
    let effects = Connection::open(&file).expect("it is there");
    let orders: i64 = effects.query_row("SELECT count(*) FROM booked", (), |row| row.get(0)).expect("a count");
    assert_eq!(orders, 20);
    assert_eq!(balances(&file), one_each(), "one effect per order");
}

/// What the effects say of each customer of the producer example.
fn balances(file: &Path) -> Vec<(String, i64)> {
    let effects = Connection::open(file).expect("it is there");
    let mut query = effects.prepare("SELECT customer, amount FROM balance ORDER BY customer").expect("a query");
    let rows = query.query_map((), |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
    rows.map(|row| row.expect("a row")).collect()
}

/// One effect for each of the orders of the producer example.
fn one_each() -> Vec<(String, i64)> {
    let of = |remainder| (1..=20).filter(|number| number % 4 == remainder).map(|number| number * 100).sum();
    (0..4).map(|remainder| (format!("customer-{remainder}"), of(remainder))).collect()
}

#[test]
fn p4_an_effect_that_fails_leaves_no_trace_of_its_order_and_is_tried_again() {
    // Goal: the effect and that it is done are in one transaction. Method: a database in which the effects of one customer fail,
    // after their orders were noted; once it works again each has its effect.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let broker = with_orders(folder.path());
    broker.rows(&["topics", "set", "orders", "max_attempts=0"]);
    let file = folder.path().join("effects.sqlite");
    let effects = Connection::open(&file).expect("it can be made");
    effects
        .execute_batch(
            "CREATE TABLE booked (order_id TEXT PRIMARY KEY, amount INTEGER NOT NULL);
             CREATE TABLE balance (customer TEXT PRIMARY KEY, amount INTEGER NOT NULL);
             CREATE TRIGGER fails BEFORE INSERT ON balance WHEN NEW.customer = 'customer-1'
             BEGIN SELECT RAISE(ABORT, 'no room'); END;",
        )
        .expect("tables");
    let environment = [("EFFECTS", file.to_str().expect("a plain name"))];
    let consumer = Example::start("idempotent_consumer", &broker, &environment);
    wait_for(LONG, || (books_if_there(&broker, "bookkeeping") == Some([15, 0, 5])).then_some(()));
    wait_for(LONG, || effects.execute_batch("DROP TRIGGER fails").ok());
    wait_for(LONG, || (books(&broker, "bookkeeping") == [20, 0, 0]).then_some(()));
    drop(consumer.interrupt());
    assert_eq!(balances(&file), one_each());
}

#[test]
fn p4_an_order_that_is_published_twice_has_one_effect_and_what_is_no_order_is_dead() {
    // Goal: effects are keyed on the order's own id, not on the message's. Method: the same order in another message.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let broker = with_orders(folder.path());
    let file = folder.path().join("effects.sqlite");
    let environment = [("EFFECTS", file.to_str().expect("a plain name"))];
    let consumer = Example::start("idempotent_consumer", &broker, &environment);
    wait_for(LONG, || (books_if_there(&broker, "bookkeeping") == Some([20, 0, 0])).then_some(()));
    let effects = Connection::open(&file).expect("it is there");
    let order: String = effects
        .query_row("SELECT order_id FROM booked WHERE amount = 500", (), |row| row.get(0))
        .expect("one of the orders");
    let header = format!("order-id={order}");
    broker.rows(&["pub", "orders", "500", "--key", "customer-1", "--header", &header]);
    consumer.line_with(&format!("{order}: was booked before (first)"));
    // No amount; no order id.
    broker.rows(&["pub", "orders", "much", "--key", "customer-1", "--header", "order-id=a"]);
    broker.rows(&["pub", "orders", "500", "--key", "customer-1"]);
    wait_for(LONG, || (books(&broker, "bookkeeping") == [21, 2, 0]).then_some(()));
    drop(consumer.interrupt());
    assert_eq!(balances(&file), one_each());
}

#[test]
fn the_worker_example_acks_retries_and_gives_up_as_its_command_says() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let broker = with_orders(folder.path());
    let out = folder.path().join("out");
    let command = r#"read amount
        [ "$amount" = 700 ] && exit 65
        [ "$amount" = 500 ] && [ "$MESSAGE_ATTEMPT" = 1 ] && exit 1
        echo "$amount $MESSAGE_KEY $MESSAGE_ATTEMPT" >> "$OUT""#;
    let environment = [("EXEC", command), ("OUT", out.to_str().expect("a plain name"))];
    let worker = Example::start("worker", &broker, &environment);
    wait_for(LONG, || (books_if_there(&broker, "billing") == Some([19, 1, 0])).then_some(()));
    drop(worker.interrupt());
    let done = std::fs::read_to_string(&out).expect("commands ran");
    assert_eq!(done.lines().count(), 19, "{done}");
    assert!(done.contains("500 customer-1 2\n"), "{done}");
    let of_one: Vec<&str> = done.lines().filter(|line| line.contains(" customer-3 ")).collect();
    assert_eq!(of_one, ["300 customer-3 1", "1100 customer-3 1", "1500 customer-3 1", "1900 customer-3 1"], "P8");
}

#[test]
fn the_pull_example_takes_all_there_is_and_ends() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let broker = with_orders(folder.path());
    let lines = Example::start("pull", &broker, &[]).end();
    assert!(lines.iter().any(|line| line.contains("20 orders, 21000 in all")), "{lines:?}");
    assert_eq!(books(&broker, "reports"), [20, 0, 0]);
}

#[test]
fn the_delayed_example_gets_each_message_when_it_is_due() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let broker = Broker::start(&folder.path().join("data"));
    let lines = Example::start("delayed", &broker, &[]).end();
    let mut due = Vec::new();
    for line in lines.iter().filter(|line| line.contains("after ")) {
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        assert!(numbers[1] >= numbers[0], "too early: {line}");
        due.push(numbers[0]);
    }
    assert_eq!(due, [300, 600, 900], "{lines:?}");
}

/// As [`books`], before the group is made too.
fn books_if_there(broker: &Broker, group: &str) -> Option<[u64; 3]> {
    broker.rows(&["balance", "orders"]).contains(&format!("\t{group}\t")).then(|| books(broker, group))
}

const LONG: Duration = Duration::from_secs(30);
