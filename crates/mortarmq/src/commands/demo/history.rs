//! What a demonstration's clients saw, recorded, and judged at the end.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use mortarmq_check::{Report, check};
use mortarmq_client::{Client, ClientOptions, Recording};
use mortarmq_history::{Limits, Order, PathInfo, Reader, Record, Recorder, Run};

use crate::child_node::ChildNode;
use crate::commands::balance::Balance;
use crate::errors::{Failure, chain};
use crate::session;

/// The history while it is written.
pub(super) struct History {
    recorder: Recorder,
    recording: Recording,
    file: PathBuf,
}

impl History {
    /// Begins it with what the paths promise.
    pub(super) fn begin(folder: &Path, paths: Vec<PathInfo<'static>>) -> Result<Self, Failure> {
        let file = folder.join("history.jsonl.zst");
        let recorder =
            Recorder::create(&file, mortarmq_history::Options::default()).map_err(|error| unwritten(&error))?;
        let run = Run { v: mortarmq_history::VERSION, run: Some(Cow::Borrowed("demo")), lease_ms: None, paths };
        recorder.record(&Record::Run(run));
        // Each value is there once, so it is the message's own id.
        let recording = Recording::by_value(recorder.clone(), |value| String::from_utf8(value.to_vec()).ok());
        Ok(Self { recorder, recording, file })
    }

    /// Opens a connection to a node whose work is recorded under a name.
    pub(super) async fn connect_to(&self, server: &str, name: &str) -> Result<Client, Failure> {
        let options = ClientOptions { servers: vec![server.to_owned()], ..self.options(name) };
        Client::connect(options).await.map_err(|error| session::failure(&error))
    }

    /// Has a client recorded under a name.
    pub(super) fn options(&self, name: &str) -> ClientOptions {
        let recording = Some(self.recording.clone());
        ClientOptions { name: name.to_owned(), recording, ..ClientOptions::default() }
    }

    /// Notes that a node was killed at one moment and back at another.
    pub(super) fn killed(&self, node: u16, call_ns: u64, ret_ns: u64) {
        self.recorder.record(&ChildNode::killed(node, call_ns, ret_ns));
    }

    /// Ends it with the books, and judges it; strictly, no fault excuses anything.
    pub(super) fn judge(self, balance: &Balance, is_strict: bool) -> Result<Report, Failure> {
        self.recorder.record(&balance.end(Recording::now_ns()));
        self.recorder.finish().map_err(|error| unwritten(&error))?;
        let files = [self.file.clone()];
        let open = || Reader::open(&files, Limits::default());
        let options = mortarmq_check::Options { is_strict, ..mortarmq_check::Options::default() };
        let judged = check(&open, &options, &mut |_| {});
        judged.map_err(|error| super::failed(&chain(&error)))
    }
}

/// What a path promises: the initial values of every group, but for its attempts.
pub(super) fn path_info(topic: &'static str, group: &str, max_attempts: u32) -> PathInfo<'static> {
    PathInfo {
        path: format!("{topic}/{group}").into(),
        topic: Cow::Borrowed(topic),
        lease_ms: Some(LEASE_MS),
        max_attempts: Some(max_attempts),
        order: Some(Order::Key),
        dlq: Some(format!("$dlq.{topic}").into()),
        source: None,
    }
}

fn unwritten(error: &dyn std::error::Error) -> Failure {
    Failure::local(format!("the history cannot be written: {}", chain(error)), "set TMPDIR to a folder with free space")
}

/// What a group has unless it is told otherwise.
const LEASE_MS: u64 = 30_000;
