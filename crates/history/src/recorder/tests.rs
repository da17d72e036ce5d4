//! Goal: what was recorded is in the file, whole, whatever the packing and however many record at once; and a disk that
//! fails is said.

use std::borrow::Cow;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::{Options, Recorder};
use crate::reader::{Limits, Reader};
use crate::record::{Fault, Record};

fn fault(call: u64) -> Record<'static> {
    Record::Fault(Fault { kind: Cow::Borrowed("kill"), node: None, call, ret: Some(call + 1) })
}

fn calls(path: &Path) -> Vec<u64> {
    let mut reader = Reader::open(&[path.to_owned()], Limits::default()).unwrap();
    let mut calls = Vec::new();
    while let Some(line) = reader.next_line().unwrap() {
        calls.push(line.content.unwrap().interval().unwrap().0);
    }
    calls
}

#[test]
fn everything_that_many_threads_record_is_in_the_file_in_each_threads_order() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["h.jsonl", "h.jsonl.zst", "h.jsonl.gz"] {
        let path = directory.path().join(name);
        // A buffer of a few lines: callers wait for the disk all the time.
        let options = Options { buffer_bytes: 200, ..Options::default() };
        let recorder = Recorder::create(&path, options).unwrap();
        thread::scope(|scope| {
            for thread in 0..4 {
                let recorder = recorder.clone();
                scope.spawn(move || (0..500).for_each(|number| recorder.record(&fault(thread * 1000 + number))));
            }
        });
        recorder.finish().unwrap();
        let all = calls(&path);
        assert_eq!(all.len(), 2000, "{name}");
        for thread in 0..4 {
            let own: Vec<u64> = all.iter().copied().filter(|call| call / 1000 == thread).collect();
            assert!(own.is_sorted(), "{name}: thread {thread}");
        }
    }
}

#[test]
fn what_was_flushed_is_whole_in_the_file_though_the_recorder_never_ends() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["h.jsonl", "h.jsonl.zst", "h.jsonl.gz"] {
        let path = directory.path().join(name);
        let recorder = Recorder::create(&path, Options { flush_every: Duration::MAX, ..Options::default() }).unwrap();
        for round in 0..3 {
            recorder.record(&fault(round));
            recorder.flush().unwrap();
            assert_eq!(calls(&path), (0..=round).collect::<Vec<_>>(), "{name}");
        }
        recorder.flush().unwrap();
        recorder.finish().unwrap();
    }
}

#[test]
fn what_is_recorded_reaches_the_file_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("h.jsonl");
    let recorder =
        Recorder::create(&path, Options { flush_every: Duration::from_millis(1), ..Options::default() }).unwrap();
    for round in 1..=3 {
        recorder.record(&fault(round));
        while calls(&path).len() < usize::try_from(round).unwrap() {
            thread::yield_now();
        }
    }
    drop(recorder);
    assert_eq!(calls(&path), [1, 2, 3]);
}

#[test]
fn a_dropped_recorder_leaves_nothing_behind_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("h.jsonl.zst");
    let recorder = Recorder::create(&path, Options { flush_every: Duration::MAX, ..Options::default() }).unwrap();
    recorder.record(&fault(1));
    drop(recorder);
    assert_eq!(calls(&path), [1]);
}

#[test]
fn a_full_disk_is_said_by_flush_and_finish_and_nobody_waits_for_ever() {
    // The device that is always full stands for the disk.
    let options = Options { buffer_bytes: 1000, ..Options::default() };
    let recorder = Recorder::create(Path::new("/dev/full"), options).unwrap();
    (0..1000).for_each(|number| recorder.record(&fault(number)));
    for _ in 0..2 {
        let error = recorder.flush().unwrap_err();
        assert_eq!(error.source.kind(), std::io::ErrorKind::StorageFull);
        assert_eq!(error.to_string(), "cannot write the history /dev/full");
    }
    assert!(recorder.finish().is_err());
}
