//! What the demonstration's clients saw, recorded, and judged at the end.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use mortarmq_check::{Report, check};
use mortarmq_client::{Client, ClientOptions, Recording};
use mortarmq_history::{Limits, Order, PathInfo, Reader, Record, Recorder, Run};

use super::{GROUP, TOPIC};
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
    /// Begins it with what the path promises: the initial values of every group.
    pub(super) fn begin(folder: &Path) -> Result<Self, Failure> {
        let file = folder.join("history.jsonl.zst");
        let recorder =
            Recorder::create(&file, mortarmq_history::Options::default()).map_err(|error| unwritten(&error))?;
        let path = PathInfo {
            path: path().into(),
            topic: Cow::Borrowed(TOPIC),
            lease_ms: Some(LEASE_MS),
            max_attempts: Some(MAX_ATTEMPTS),
            order: Some(Order::Key),
            dlq: Some(format!("$dlq.{TOPIC}").into()),
            source: None,
        };
        let run =
            Run { v: mortarmq_history::VERSION, run: Some(Cow::Borrowed("demo")), lease_ms: None, paths: vec![path] };
        recorder.record(&Record::Run(run));
        // Each value is there once, so it is the message's own id.
        let recording = Recording::by_value(recorder.clone(), |value| String::from_utf8(value.to_vec()).ok());
        Ok(Self { recorder, recording, file })
    }

    /// Opens a connection whose work is recorded under a name.
    pub(super) async fn connect(&self, node: &ChildNode, name: &str) -> Result<Client, Failure> {
        let options = ClientOptions {
            servers: vec![node.client.clone()],
            name: name.to_owned(),
            recording: Some(self.recording.clone()),
            ..ClientOptions::default()
        };
        Client::connect(options).await.map_err(|error| session::failure(&error))
    }

    /// Notes that the node was killed at one moment and back at another.
    pub(super) fn killed(&self, call_ns: u64, ret_ns: u64) {
        self.recorder.record(&ChildNode::killed(call_ns, ret_ns));
    }

    /// Ends it with the node's books, and judges it.
    pub(super) fn judge(self, balance: &Balance) -> Result<Report, Failure> {
        self.recorder.record(&balance.end(Recording::now_ns()));
        self.recorder.finish().map_err(|error| unwritten(&error))?;
        let files = [self.file.clone()];
        let open = || Reader::open(&files, Limits::default());
        let judged = check(&open, &mortarmq_check::Options::default(), &mut |_| {});
        judged.map_err(|error| super::failed(&chain(&error)))
    }
}

fn path() -> String {
    format!("{TOPIC}/{GROUP}")
}

fn unwritten(error: &dyn std::error::Error) -> Failure {
    Failure::local(format!("the history cannot be written: {}", chain(error)), "set TMPDIR to a folder with free space")
}

/// What a group has unless it is told otherwise.
const LEASE_MS: u64 = 30_000;
const MAX_ATTEMPTS: u32 = 5;
