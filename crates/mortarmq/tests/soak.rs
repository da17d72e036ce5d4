//! A real soak with kills: its history is whole, and its books and those of the broker agree.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use mortarmq_history::{Counters, Limits, Nack, OperateKind, Outcome, Reader, Record};

/// What the test looks for in a history.
#[derive(Default)]
struct Seen {
    ops: BTreeMap<String, u64>,
    published: BTreeSet<String>,
    delivered: BTreeMap<String, BTreeSet<String>>,
    /// Where a delivery's message stands on its path. One message stands among the dead letters as often as it died.
    places: BTreeMap<(String, u64), (u32, u64)>,
    /// Acks that were not refused: path, delivery, and whether it was confirmed.
    acks: Vec<(String, u64, bool)>,
    end: BTreeMap<String, Counters>,
}

impl Seen {
    fn of(file: PathBuf) -> Self {
        let mut seen = Self::default();
        let mut reader = Reader::open(&[file], Limits::default()).expect("the history is there");
        let mut first = None;
        while let Some(line) = reader.next_line().expect("the history is readable") {
            let record = line.content.unwrap_or_else(|reason| panic!("line {}: {reason}", line.at.line));
            first.get_or_insert_with(|| record.op());
            seen.add(&record);
        }
        assert_eq!(reader.counts().unreadable, 0);
        seen
    }

    fn add(&mut self, record: &Record<'_>) {
        let name = match record {
            Record::Publish(publish) => {
                if publish.outcome == Outcome::Ok {
                    assert!(
                        publish.commit.is_some() && publish.epoch.is_some() && publish.seq.is_some(),
                        "{publish:?}"
                    );
                    self.published.insert(publish.msg.to_string());
                }
                format!("publish {}", publish.outcome)
            }
            Record::Deliver(deliver) => {
                let given = [deliver.commit, deliver.epoch, deliver.seq, deliver.delivery_id, deliver.lease_ms];
                let is_whole = given.iter().all(Option::is_some) && deliver.hash.is_some() && deliver.attempt.is_some();
                assert!(is_whole, "{deliver:?}");
                let place = deliver.partition.zip(deliver.seq).expect("a delivery says where its message stands");
                self.places.insert((deliver.path.to_string(), deliver.delivery_id.expect("looked at above")), place);
                self.delivered.entry(deliver.path.to_string()).or_default().insert(deliver.msg.to_string());
                format!("deliver {}", deliver.cause.expect("the broker says why"))
            }
            Record::Ack(ack) => {
                assert!(ack.outcome != Outcome::Ok || ack.commit.is_some(), "{ack:?}");
                if ack.outcome != Outcome::Refused {
                    let delivery = ack.delivery_id.expect("an ack names its delivery");
                    self.acks.push((ack.path.to_string(), delivery, ack.outcome == Outcome::Ok));
                }
                format!("ack {}", ack.outcome)
            }
            Record::Nack(Nack { settle, to }) => format!("nack {to} {}", settle.outcome),
            Record::Extend(extend) => format!("extend {}", extend.settle.outcome),
            Record::Operate(operate) => {
                let is_answered = operate.outcome == Outcome::Ok && operate.kind != OperateKind::Leave;
                assert!(!is_answered || operate.commit.is_some(), "{operate:?}");
                format!("operate {} {}", operate.kind, operate.outcome)
            }
            Record::Scrape(scrape) => {
                assert!(scrape.counters.balances() && scrape.commit.is_some(), "P9: {scrape:?}");
                "scrape".to_owned()
            }
            Record::End(end) => {
                assert!(end.drained);
                self.end = end.balance.iter().map(|path| (path.path.to_string(), path.counters)).collect();
                "end".to_owned()
            }
            Record::Fault(fault) => {
                assert!(fault.ret.is_some(), "{fault:?}");
                "fault".to_owned()
            }
            Record::Run(_) | Record::Pull(_) => record.op().to_owned(),
        };
        *self.ops.entry(name).or_default() += 1;
    }

    /// How many messages of a path were acked, for certain or perhaps.
    fn acked(&self, path: &str, is_certain: bool) -> u64 {
        let acks = self.acks.iter().filter(|(on, _, is_confirmed)| on == path && (*is_confirmed || !is_certain));
        let places: BTreeSet<_> = acks.map(|(on, delivery, _)| self.places[&(on.clone(), *delivery)]).collect();
        places.len() as u64
    }
}

/// The judge finds nothing: with everything that is recorded, and without what few brokers give.
fn judge_with_and_without(file: &Path, bare: &Path) {
    let mut lines = String::new();
    let mut reader = Reader::open(&[file.to_owned()], Limits::default()).expect("the history is there");
    while let Some(line) = reader.next_line().expect("the history is readable") {
        let mut record: serde_json::Value = serde_json::from_slice(line.text).expect("a record is JSON");
        for field in ["commit", "epoch", "cause", "prev", "delivery_id", "attempt"] {
            record.as_object_mut().expect("a record is an object").remove(field);
        }
        lines.push_str(&record.to_string());
        lines.push('\n');
    }
    std::fs::write(bare, lines).expect("there is room");
    for (history, mode) in [(file, "mode: witnessed"), (bare, "mode: searched")] {
        let told = support::run(&["check", history.to_str().expect("a plain name")]);
        assert!(told.stdout.starts_with("verdict: OK\n"), "{mode}\n{}\n{}", told.stdout, told.stderr);
        assert!(told.stdout.contains(mode), "{}", told.stdout);
    }
}

#[test]
fn a_soak_with_kills_leaves_a_whole_history_whose_books_agree() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("soak.jsonl.zst");
    let args = ["soak", "--kill", "--seconds", "4", "--history", file.to_str().expect("a plain name")];
    let done = support::run(&args);
    assert_eq!(done.code, Some(0), "{}\n{}", done.stdout, done.stderr);

    judge_with_and_without(&file, &folder.path().join("bare.jsonl"));
    let seen = Seen::of(file);
    let always = [
        "run",
        "end",
        "fault",
        "scrape",
        "publish ok",
        "deliver first",
        "deliver nacked",
        "deliver released",
        "deliver consumer_lost",
        "deliver redriven",
        "ack ok",
        "nack retry ok",
        "nack dead ok",
        "nack release ok",
        "extend ok",
        "operate redrive ok",
        "operate leave ok",
        "operate leave unknown",
    ];
    for what in always {
        assert!(seen.ops.get(what).is_some_and(|count| *count > 0), "no {what} in {:?}", seen.ops);
    }
    assert!(seen.ops["publish ok"] > 300, "{:?}", seen.ops);
    let is_purged = |(name, count): (&String, &u64)| name.starts_with("operate purge") && *count == 1;
    assert!(seen.ops.iter().any(is_purged), "{:?}", seen.ops);

    assert_eq!(seen.end.len(), 3, "two groups and the dead letters");
    for (path, counters) in &seen.end {
        assert!(counters.balances() && counters.depth == 0, "P9: {path}: {counters:?}");
        let bounds = seen.acked(path, true)..=seen.acked(path, false);
        assert!(bounds.contains(&counters.delivered), "P6, P9: {path}: {counters:?}, acked {bounds:?}");
        if path.starts_with("$dlq.") {
            continue;
        }
        // P1: what was confirmed came, unless the purge took it before.
        let missing = seen.published.difference(&seen.delivered[path]).count() as u64;
        let purged = if path.ends_with("/audit") { counters.dropped } else { 0 };
        assert!(missing <= purged, "P1: {missing} messages never came on {path}, {purged} were purged");
    }
}
