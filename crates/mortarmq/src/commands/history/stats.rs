//! `history stats FILE…`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use mortarmq_history::{Extend, Nack, Record};

use super::{each_line, open};
use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows};

/// Count what is in histories: records, outcomes, causes, clients, topics, paths, faults, the time they span
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The files; read together
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    rows: RowArgs,
}

/// Reads all, prints the counts.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut reader = open(&args.files)?;
    let mut stats = Stats::default();
    each_line(&mut reader, |line| {
        if let Ok(record) = &line.content {
            stats.add(record);
        }
        Ok(())
    })?;
    let counts = reader.counts();
    stats.set("lines", "records", counts.records);
    stats.set("lines", "unreadable", counts.unreadable);
    stats.set("lines", "torn", counts.torn);
    stats.set("lines", "damaged", counts.damaged);
    let mut rows = Rows::listed(COLUMNS, args.rows);
    for ((kind, name), count) in &stats.counts {
        rows.push(vec![Cell::Text((*kind).to_owned()), Cell::Text(name.clone()), Cell::Number(*count)])?;
    }
    rows.finish()
}

#[derive(Default)]
struct Stats {
    counts: BTreeMap<(&'static str, String), u64>,
}

impl Stats {
    fn add(&mut self, record: &Record<'_>) {
        self.count("op", record.op());
        if let Some((call, ret)) = record.interval() {
            self.least("time_ns", "first", call);
            self.most("time_ns", "last", ret.unwrap_or(call));
        }
        let (client, path) = match record {
            Record::Run(run) => {
                run.paths.iter().for_each(|path| self.count("declared_path", &path.path));
                (None, None)
            }
            Record::Publish(publish) => {
                self.count("topic", &publish.topic);
                self.count("publish", publish.outcome.word());
                (publish.client.as_deref(), None)
            }
            Record::Deliver(deliver) => {
                self.count("cause", deliver.cause.map_or("-", |cause| cause.word()));
                (deliver.client.as_deref(), Some(&*deliver.path))
            }
            Record::Pull(pull) => (pull.client.as_deref(), pull.path.as_deref()),
            Record::Ack(settle) => {
                self.count("ack", settle.outcome.word());
                (settle.client.as_deref(), Some(&*settle.path))
            }
            Record::Nack(Nack { settle, to }) => {
                self.count("nack", &format!("{to} {}", settle.outcome));
                (settle.client.as_deref(), Some(&*settle.path))
            }
            Record::Extend(Extend { settle, .. }) => {
                self.count("extend", settle.outcome.word());
                (settle.client.as_deref(), Some(&*settle.path))
            }
            Record::Operate(operate) => {
                self.count("operate", &format!("{} {}", operate.kind, operate.outcome));
                (operate.client.as_deref(), Some(&*operate.path))
            }
            Record::Scrape(scrape) => (None, Some(&*scrape.path)),
            Record::Fault(fault) => {
                self.count("fault", &fault.kind);
                (None, None)
            }
            Record::End(end) => {
                self.count("end", if end.drained { "drained" } else { "not drained" });
                (None, None)
            }
        };
        if let Some(client) = client {
            self.count("client", client);
        }
        if let Some(path) = path {
            self.count("path", path);
        }
    }

    fn count(&mut self, kind: &'static str, name: &str) {
        *self.entry(kind, name) += 1;
    }

    fn set(&mut self, kind: &'static str, name: &str, count: u64) {
        *self.entry(kind, name) = count;
    }

    fn least(&mut self, kind: &'static str, name: &str, value: u64) {
        let least = self.counts.entry((kind, name.to_owned())).or_insert(value);
        *least = value.min(*least);
    }

    fn most(&mut self, kind: &'static str, name: &str, value: u64) {
        let most = self.entry(kind, name);
        *most = value.max(*most);
    }

    /// Names come from the file, so there is a limit to how many are kept apart.
    fn entry(&mut self, kind: &'static str, name: &str) -> &mut u64 {
        let key = (kind, name.to_owned());
        let key = if self.counts.len() < NAMES_MAX || self.counts.contains_key(&key) {
            key
        } else {
            (kind, "(others)".to_owned())
        };
        self.counts.entry(key).or_default()
    }
}

const COLUMNS: &[&str] = &["kind", "name", "count"];

/// Names that are counted apart.
const NAMES_MAX: usize = 100_000;
