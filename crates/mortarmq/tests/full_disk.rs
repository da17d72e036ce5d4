//! Failure rule 8 on the real binary and a real full disk: a small file system in a file, mounted through a loop device.
//!
//! That needs root and loop devices. Without them the test says so and passes.

mod support;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mortarmq_client::{
    Client, ClientOptions, Consumer, ConsumerOptions, Message, ProducerOptions, PublishError, ReconnectOptions,
};
use mortarmq_wire::{ErrorCode, Outcome};
use support::{Broker, run, wait_for};
use tokio::runtime::Runtime;

const DISK_BYTES: u64 = 160 << 20;
const FLAGS: &[&str] = &[
    "--journal-file-bytes",
    "4MiB",
    "--snapshot-journal-bytes",
    "8MiB",
    "--journal-keep-bytes",
    "4MiB",
    "--disk-reserve-bytes",
    "24MiB",
    "--publish-timeout-ms",
    "1000",
];
const VALUE_BYTES: usize = 4096;
const BATCH: usize = 64;
const LONG: Duration = Duration::from_secs(60);
/// An ack that is not answered within this waits for room. The broker itself answers it as unknown after a second, and
/// the client repeats it.
const PATIENCE: Duration = Duration::from_millis(1500);

/// A file system of its own. It is unmounted, and its loop device detached, with this value at the latest.
struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    /// None if this machine does not let us have one.
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (image, disk) = (folder.path().join("image"), Self { folder });
        File::create(&image).and_then(|file| file.set_len(DISK_BYTES)).expect("a sparse file");
        std::fs::create_dir(disk.path()).expect("a folder");
        let made = sh("mkfs.ext4", &["-q", "-b", "4096", "-O", "^has_journal", "-m", "0", text(&image)]);
        let mounted = made.and_then(|()| sh("mount", &["-o", "loop", text(&image), text(&disk.path())]));
        match mounted {
            Ok(()) => Some(disk),
            Err(why) => {
                eprintln!("NOTICE: not run, as it needs root, mkfs.ext4 and loop devices: {why}");
                None
            }
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    fn free_bytes(&self) -> u64 {
        let found = rustix::fs::statvfs(self.path()).expect("it is mounted");
        found.f_bavail * found.f_frsize
    }

    /// Takes everything that is free, to the last block. A file that needs a block to list its blocks cannot take the
    /// last one, so a new one is begun then.
    fn fill(&self) {
        std::fs::create_dir_all(self.fillers()).expect("a folder");
        let mut fillers = std::fs::read_dir(self.fillers()).expect("listed").count();
        while self.free_bytes() > 0 {
            let path = self.fillers().join(fillers.to_string());
            if let Ok(mut filler) = File::create(path) {
                while filler.write_all(&[7; 4096]).is_ok() {}
            }
            fillers += 1;
            assert!(fillers < 10_000, "{} bytes stay free", self.free_bytes());
        }
    }

    /// Takes so much in one file.
    fn take(&self, bytes: usize) {
        std::fs::create_dir_all(self.fillers()).expect("a folder");
        std::fs::write(self.fillers().join("large"), vec![7; bytes]).expect("there is room");
    }

    /// Gives back what was taken.
    fn free(&self) {
        std::fs::remove_dir_all(self.fillers()).expect("it is there");
    }

    fn fillers(&self) -> PathBuf {
        self.path().join("fillers")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let path = self.path();
        // Not mounted if there was no permission. Lazily if something still holds it: it must not stay in any case.
        if sh("umount", &[text(&path)]).is_err() {
            let _ = sh("umount", &["-l", text(&path)]);
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have names of text")
}

fn sh(program: &str, args: &[&str]) -> Result<(), String> {
    let done = Command::new(program).args(args).output().map_err(|error| format!("{program}: {error}"))?;
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()) }
}

/// A client of a broker, and what it knows.
struct Load {
    runtime: Runtime,
    next_id: u64,
    confirmed: BTreeSet<u64>,
    refused: BTreeSet<u64>,
    acked: BTreeSet<u64>,
}

impl Load {
    fn new() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let none = BTreeSet::new;
        Self { runtime, next_id: 0, confirmed: none(), refused: none(), acked: none() }
    }

    /// Makes a topic with so many batches that nobody asks for.
    fn fill_topic(&self, broker: &Broker, topic: &str, batches: usize) {
        broker.rows(&["topics", "create", topic, "--partitions", "1"]);
        let client = self.connect(broker, LONG);
        let value = [7; VALUE_BYTES];
        self.runtime.block_on(async {
            let producer = client.producer(topic, ProducerOptions::default()).await.expect("the topic exists");
            for _ in 0..batches {
                producer.publish_batch(&vec![Message::of(&value); BATCH]).await.expect("there is room");
            }
            drop(producer);
            client.close().await;
        });
    }

    fn connect(&self, broker: &Broker, give_up_after: Duration) -> Client {
        let options = ClientOptions {
            servers: vec![broker.client_addr.clone()],
            reconnect: ReconnectOptions { give_up_after: Some(give_up_after), ..ReconnectOptions::default() },
            ..ClientOptions::default()
        };
        self.runtime.block_on(Client::connect(options)).expect("the broker runs")
    }

    /// Publishes one batch, and notes what became of it.
    fn publish(&mut self, broker: &Broker) -> Result<(), PublishError> {
        let client = self.connect(broker, Duration::from_millis(100));
        let done = self.publish_until_refused(&client, 1);
        self.runtime.block_on(client.close());
        done
    }

    fn publish_until_refused(&mut self, client: &Client, batches: u64) -> Result<(), PublishError> {
        let producer = self.runtime.block_on(client.producer("orders", ProducerOptions::default()));
        let producer = producer.expect("the topic exists");
        for _ in 0..batches {
            let ids: Vec<u64> = (self.next_id..).take(BATCH).collect();
            self.next_id += BATCH as u64;
            let values: Vec<String> = ids.iter().map(|id| format!("{id:>VALUE_BYTES$}")).collect();
            let messages: Vec<Message<'_>> = values.iter().map(|value| Message::of(value.as_bytes())).collect();
            match self.runtime.block_on(producer.publish_batch(&messages)) {
                Ok(_) => self.confirmed.extend(ids),
                Err(error) => {
                    assert_eq!(error.outcome(), Outcome::Refused, "P2: {error}");
                    self.refused.extend(ids);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Consumes and acks so many messages; each ack must be answered, and no acked message may come again.
    fn consume(&mut self, broker: &Broker, messages: usize) {
        let client = self.connect(broker, LONG);
        let mut consumer = self.consumer(&client);
        let mut left = messages;
        while left > 0 {
            left -= self.consume_some(&mut consumer, left.min(200));
        }
        self.runtime.block_on(consumer.close()).expect("the broker runs");
        self.runtime.block_on(client.close());
    }

    fn consumer(&self, client: &Client) -> Consumer {
        let options = ConsumerOptions {
            options_json: "{\"session_ms\":2000,\"retry_backoff_base_ms\":50}".to_owned(),
            ..ConsumerOptions::default()
        };
        self.runtime.block_on(client.consumer("orders", "billing", options)).expect("a group can be joined")
    }

    fn consume_some(&mut self, consumer: &mut Consumer, most: usize) -> usize {
        let (confirmed, refused, acked) = (&self.confirmed, &self.refused, &mut self.acked);
        self.runtime.block_on(async {
            let mut receipts = Vec::new();
            while receipts.len() < most {
                let next = tokio::time::timeout(LONG, consumer.next()).await.expect("deliveries go on");
                let delivery = next.expect("the consumer runs").expect("deliveries go on");
                let id = id_of(&delivery.value);
                assert!(!acked.contains(&id), "P6: {id} was acked and came again ({:?})", delivery.cause);
                assert!(!refused.contains(&id), "P2: {id} was refused and is delivered");
                assert!(confirmed.contains(&id), "{id} was never published");
                receipts.push((id, delivery.ack()));
            }
            let count = receipts.len();
            for (id, receipt) in receipts {
                let answer = tokio::time::timeout(LONG, receipt).await.expect("acks go on");
                assert_eq!(answer, Ok(()), "{id} is held");
                assert!(acked.insert(id), "P6: {id} was acked twice");
            }
            count
        })
    }
}

fn id_of(value: &[u8]) -> u64 {
    std::str::from_utf8(value).expect("digits").trim().parse().expect("an id")
}

fn metric(broker: &Broker, name: &str) -> u64 {
    let text = ureq::get(&format!("{}/metrics", broker.admin_addr))
        .call()
        .and_then(|mut answer| answer.body_mut().read_to_string())
        .expect("the metrics");
    let row = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    row.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().expect("a number")
}

fn readiness(broker: &Broker) -> String {
    ureq::get(&format!("{}/readyz", broker.admin_addr))
        .call()
        .and_then(|mut answer| answer.body_mut().read_to_string())
        .expect("it is ready")
}

fn is_refused_for_space(error: &PublishError) -> bool {
    error.code() == Some(ErrorCode::StorageHighWatermark)
}

#[test]
fn rule_8_a_full_disk_refuses_publishes_and_loses_nothing() {
    let Some(disk) = SmallDisk::mount() else { return };
    let mut load = Load::new();
    let mut broker = Broker::start_with(&disk.path(), FLAGS);
    broker.rows(&["topics", "create", "orders", "--partitions", "2"]);
    load.fill_topic(&broker, "old", 64);
    disk.take(40 << 20);

    // Full by what is published: refused before the last block is taken.
    let client = load.connect(&broker, Duration::from_millis(100));
    let error = load.publish_until_refused(&client, 10_000).expect_err("the disk is small");
    assert!(is_refused_for_space(&error), "{error}");
    load.runtime.block_on(client.close());
    assert!(load.confirmed.len() > 5000, "{} messages", load.confirmed.len());
    assert!(readiness(&broker).contains("disk_low"), "{}", readiness(&broker));
    assert!(metric(&broker, "mortarmq_publishes_refused_for_space_total") > 0);

    // Full to the last block by somebody else: acks and deliveries go on.
    disk.fill();
    load.consume(&broker, 2000);
    let error = load.publish(&broker).expect_err("publishes stay refused");
    assert!(is_refused_for_space(&error), "{error}");
    disk.fill();
    load.consume(&broker, 1000);
    assert!(metric(&broker, "mortarmq_disk_reserve_bytes") < 24 << 20, "the reserve was used");

    // Killed, and started with no room at all.
    broker.kill();
    disk.fill();
    assert_eq!(disk.free_bytes(), 0);
    broker.restart_with(FLAGS);
    assert!(readiness(&broker).contains("disk_low"), "{}", readiness(&broker));
    assert!(is_refused_for_space(&load.publish(&broker).expect_err("publishes stay refused")));
    load.consume(&broker, 1000);

    // What an operator deletes is freed, also on a full disk.
    disk.fill();
    let held = metric(&broker, "mortarmq_disk_reserve_bytes") + disk.free_bytes();
    broker.rows(&["topics", "delete", "old"]);
    let is_freed = |now: u64| now > held + (12 << 20);
    wait_for(LONG, || is_freed(metric(&broker, "mortarmq_disk_reserve_bytes") + disk.free_bytes()).then_some(()));

    // Room again: no restart is needed.
    disk.free();
    wait_for(LONG, || load.publish(&broker).ok());
    assert_eq!((metric(&broker, "mortarmq_disk_low"), metric(&broker, "mortarmq_disk_reserve_bytes")), (0, 24 << 20));
    assert!(!readiness(&broker).contains("disk"), "{}", readiness(&broker));
    all_is_there_in_the_end(&disk, &mut broker, &mut load);
}

#[test]
fn rule_8_with_the_reserve_used_up_acks_wait_and_go_on_when_there_is_room() {
    let Some(disk) = SmallDisk::mount() else { return };
    let mut load = Load::new();
    let mut broker = Broker::start_with(&disk.path(), FLAGS);
    broker.rows(&["topics", "create", "orders", "--partitions", "2"]);
    for _ in 0..150 {
        load.publish(&broker).expect("there is room");
    }
    // Somebody else takes every block, also each one that the reserve gives, until segments find none. A few acks at a time:
    // the journal goes on, and each file that it begins takes from what is kept for it.
    let client = load.connect(&broker, LONG);
    let mut consumer = load.consumer(&client);
    wait_for(LONG, || {
        disk.fill();
        load.consume_some(&mut consumer, 5);
        readiness(&broker).contains("disk_full").then_some(())
    });
    assert!(metric(&broker, "mortarmq_disk_reserve_bytes") > 0, "some is kept to confirm acks with");
    drop(consumer);
    load.runtime.block_on(client.close());

    // Killed and started without a block free: what was acked stays acked, and acks go on.
    broker.kill();
    disk.fill();
    broker.restart_with(FLAGS);
    assert!(readiness(&broker).contains("disk_low"), "{}", readiness(&broker));
    let client = load.connect(&broker, LONG);
    let mut consumer = load.consumer(&client);
    load.consume_some(&mut consumer, 20);

    // Until the last block of the reserve is used up, and what is left of the journal's file. Each ack is a batch.
    let (mut waiting, mut acks) = (None, 0);
    while waiting.is_none() {
        disk.fill();
        let next = load.runtime.block_on(async { tokio::time::timeout(LONG, consumer.next()).await });
        let delivery = next.expect("deliveries go on").expect("it runs").expect("deliveries go on");
        let mut receipt = delivery.ack();
        let answer = load.runtime.block_on(async { tokio::time::timeout(PATIENCE, &mut receipt).await });
        let id = id_of(&delivery.value);
        match answer {
            Ok(outcome) => {
                assert_eq!(outcome, Ok(()), "acks go on");
                assert!(load.acked.insert(id), "P6: {id} was acked twice");
            }
            Err(_) => waiting = Some((id, receipt)),
        }
        acks += 1;
        assert!(acks < 5000, "the journal needs room at last");
    }
    assert_eq!(metric(&broker, "mortarmq_disk_reserve_bytes"), 0);
    assert!(readiness(&broker).contains("\"ready\""), "it waits, and does not end");

    // Room again: the ack that waited is done, and so is everything else.
    disk.free();
    let (id, receipt) = waiting.expect("one waits");
    let outcome = load.runtime.block_on(async { tokio::time::timeout(LONG, receipt).await });
    assert_eq!(outcome.expect("answered"), Ok(()));
    assert!(load.acked.insert(id), "P6: {id} was acked twice");
    load.runtime.block_on(async {
        consumer.close().await.expect("the broker runs");
        client.close().await;
    });
    wait_for(LONG, || load.publish(&broker).ok());
    all_is_there_in_the_end(&disk, &mut broker, &mut load);
}

/// Everything that was confirmed is delivered or was acked, the books balance, and the folder is sound.
fn all_is_there_in_the_end(disk: &SmallDisk, broker: &mut Broker, load: &mut Load) {
    load.consume(broker, load.confirmed.len() - load.acked.len());
    assert_eq!(load.acked, load.confirmed, "P1, P4");
    let books = broker.run(&["balance", "orders"]);
    assert_eq!(books.code, Some(0), "P9: {}{}", books.stdout, books.stderr);
    let (produced, depth) = (load.confirmed.len().to_string(), "0".to_owned());
    let row: Vec<&str> = books.stdout.trim().split('\t').collect();
    assert_eq!((row[2], row[3], row[6]), (&*produced, &*produced, &*depth), "P9: {}", books.stdout);
    assert_eq!(broker.stop(), Some(0));
    let found = run(&["verify", text(&disk.path())]);
    assert_eq!(found.code, Some(0), "{}{}", found.stdout, found.stderr);
    assert_eq!(found.stdout, "", "no damage");
}
