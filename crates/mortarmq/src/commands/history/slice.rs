//! `history slice FILE…`.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

use mortarmq_history::{Extend, Nack, Options, Record, Recorder, write_line};

use super::{each_line, open, unwritable};
use crate::errors::Failure;
use crate::output::{grouped, note};

/// Cut a small history out of a large one
///
/// Conditions are combined; a repeated one means any of its values. The run and its faults always stay. Counters (scrapes, the
/// end) stay only when nothing but paths is chosen: of a part of a path they would not add up.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The files; read together
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Only this message
    #[arg(long, value_name = "ID")]
    msg: Vec<String>,
    /// Only this path, and what was published to its topic
    #[arg(long, value_name = "PATH")]
    path: Vec<String>,
    /// Only this client
    #[arg(long, value_name = "NAME")]
    client: Vec<String>,
    /// Only what had not returned before this time
    #[arg(long, value_name = "NS")]
    from: Option<u64>,
    /// Only what was called before this time
    #[arg(long, value_name = "NS")]
    to: Option<u64>,
    /// Write here instead of to stdout, packed as the name says (.zst, .gz, or plain)
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Reads all, writes what is chosen.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut reader = open(&args.files)?;
    let recorder = args.out.as_ref().map(|out| Recorder::create(out, Options::default())).transpose();
    let recorder = recorder.map_err(|error| unwritable(&error))?;
    let mut stdout = std::io::BufWriter::new(std::io::stdout().lock());
    let mut chosen = Chosen::new(args);
    let (mut kept, mut text) = (0_u64, Vec::new());
    each_line(&mut reader, |line| {
        let Ok(record) = &line.content else { return Ok(()) };
        let Some(record) = chosen.keep(record) else { return Ok(()) };
        kept += 1;
        match &recorder {
            Some(recorder) => recorder.record(&record),
            None => {
                text.clear();
                write_line(&mut text, &record);
                stdout.write_all(&text).map_err(Failure::from_stdout)?;
            }
        }
        Ok(())
    })?;
    stdout.flush().map_err(Failure::from_stdout)?;
    if let Some(recorder) = recorder {
        recorder.finish().map_err(|error| unwritable(&error))?;
    }
    note(format_args!("{} of {} records", grouped(kept), grouped(reader.counts().records)));
    Ok(())
}

/// What is chosen.
struct Chosen<'a> {
    args: &'a Args,
    /// Topics whose publishes belong to a chosen path, as far as runs have said.
    topics: BTreeSet<String>,
}

impl<'a> Chosen<'a> {
    fn new(args: &'a Args) -> Self {
        // Until a run says otherwise, a path is TOPIC/GROUP.
        let topic = |path: &String| path.rsplit_once('/').map_or(path.as_str(), |(topic, _)| topic).to_owned();
        Self { args, topics: args.path.iter().map(topic).collect() }
    }

    /// The record, or what is left of it.
    fn keep<'r>(&mut self, record: &'r Record<'r>) -> Option<Cow<'r, Record<'r>>> {
        let whole_paths = self.args.msg.is_empty() && self.args.client.is_empty() && !self.has_times();
        let is_kept = match record {
            Record::Run(run) => {
                for path in &run.paths {
                    if self.is_path(&path.path) {
                        self.topics.extend([&path.topic].into_iter().chain(&path.source).map(ToString::to_string));
                    }
                }
                true
            }
            Record::Fault(_) => true,
            Record::Publish(publish) => {
                (self.args.path.is_empty() || self.topics.contains(&*publish.topic))
                    && self.is_msg(&publish.msg)
                    && self.is_client(publish.client.as_deref())
                    && self.is_time(record)
            }
            Record::Deliver(deliver) => {
                self.is_path(&deliver.path)
                    && self.is_msg(&deliver.msg)
                    && self.is_client(deliver.client.as_deref())
                    && self.is_time(record)
            }
            Record::Pull(pull) => {
                self.args.msg.is_empty()
                    && pull.path.as_deref().is_some_and(|path| self.is_path(path))
                    && self.is_client(pull.client.as_deref())
                    && self.is_time(record)
            }
            Record::Ack(settle) | Record::Nack(Nack { settle, .. }) | Record::Extend(Extend { settle, .. }) => {
                self.is_path(&settle.path)
                    && self.is_msg(&settle.msg)
                    && self.is_client(settle.client.as_deref())
                    && self.is_time(record)
            }
            // One for the whole path concerns every message; a leave explains what others got back.
            Record::Operate(operate) => {
                self.is_path(&operate.path)
                    && operate.msg.as_deref().is_none_or(|msg| self.is_msg(msg))
                    && self.is_time(record)
            }
            Record::Scrape(scrape) => whole_paths && self.is_path(&scrape.path),
            Record::End(end) if whole_paths => {
                let mut end = end.clone();
                end.balance.retain(|balance| self.is_path(&balance.path));
                return Some(Cow::Owned(Record::End(end)));
            }
            Record::End(_) => false,
        };
        is_kept.then_some(Cow::Borrowed(record))
    }

    fn has_times(&self) -> bool {
        self.args.from.is_some() || self.args.to.is_some()
    }

    fn is_path(&self, path: &str) -> bool {
        is_any(&self.args.path, path)
    }

    fn is_msg(&self, msg: &str) -> bool {
        is_any(&self.args.msg, msg)
    }

    fn is_client(&self, client: Option<&str>) -> bool {
        self.args.client.is_empty() || client.is_some_and(|client| is_any(&self.args.client, client))
    }

    fn is_time(&self, record: &Record<'_>) -> bool {
        let Some((call, ret)) = record.interval() else { return true };
        let is_late = self.args.from.is_none_or(|from| ret.is_none_or(|ret| ret >= from));
        is_late && self.args.to.is_none_or(|to| call < to)
    }
}

fn is_any(values: &[String], value: &str) -> bool {
    values.is_empty() || values.iter().any(|known| known == value)
}
