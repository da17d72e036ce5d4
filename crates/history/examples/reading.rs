//! How fast histories are read: `cargo run --release -p mortarmq-history --example reading -- FILE…`; without a file it
//! makes one of a million operations first.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Instant;

use mortarmq_history::{
    Cause, Deliver, Limits, Options, Outcome, Publish, ReadError, Reader, Record, Recorder, Settle,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if !files.is_empty() {
        return Ok(read(&files)?);
    }
    let directory = tempfile::tempdir()?;
    for name in ["plain.jsonl", "packed.jsonl.zst", "packed.jsonl.gz"] {
        let path = directory.path().join(name);
        let start = Instant::now();
        write(&path)?;
        println!("{name}: written in {:.2} s, {} bytes", start.elapsed().as_secs_f64(), path.metadata()?.len());
        read(&[path])?;
    }
    Ok(())
}

fn read(files: &[PathBuf]) -> Result<(), ReadError> {
    let start = Instant::now();
    let mut reader = Reader::open(files, Limits::default())?;
    let mut bytes = 0;
    while let Some(line) = reader.next_line()? {
        bytes += line.text.len();
    }
    let seconds = start.elapsed().as_secs_f64();
    let records = reader.counts().records;
    println!(
        "{records} records, {} unreadable, {seconds:.2} s: {:.0} records/s, {:.0} MB/s",
        reader.counts().unreadable,
        records as f64 / seconds,
        bytes as f64 / seconds / 1e6
    );
    Ok(())
}

fn write(path: &std::path::Path) -> Result<(), mortarmq_history::RecordError> {
    let recorder = Recorder::create(path, Options::default())?;
    let text = |text: &'static str| Some(Cow::Borrowed(text));
    for number in 0..333_334_u64 {
        let time = 1_726_000_000_000_000_000 + number * 1000;
        let msg = format!("r1-p1-{number}");
        let key = format!("k{}", number % 100);
        recorder.record(&Record::Publish(Publish {
            client: text("p1"),
            topic: Cow::Borrowed("orders"),
            msg: Cow::Borrowed(&msg),
            key: Some(Cow::Borrowed(&key)),
            call: time,
            ret: Some(time + 500),
            outcome: Outcome::Ok,
            partition: Some(2),
            seq: Some(number),
            producer_id: Some(9),
            producer_seq: Some(number + 1),
            delay_ms: Some(0),
            dedup: Some(false),
            hash: text("9f86d081884c7d65"),
            commit: Some(number),
            epoch: Some(3),
            txn: None,
        }));
        recorder.record(&Record::Deliver(Deliver {
            client: text("c1"),
            path: Cow::Borrowed("orders/billing"),
            msg: Cow::Borrowed(&msg),
            key: Some(Cow::Borrowed(&key)),
            call: time,
            ret: Some(time + 600),
            partition: Some(2),
            seq: Some(number),
            delivery_id: Some(number),
            attempt: Some(1),
            cause: Some(Cause::First),
            prev: None,
            lease_ms: Some(30000),
            hash: text("9f86d081884c7d65"),
            commit: Some(number),
            epoch: Some(3),
            origin: None,
            txn: None,
        }));
        recorder.record(&Record::Ack(Settle {
            client: text("c1"),
            path: Cow::Borrowed("orders/billing"),
            msg: Cow::Borrowed(&msg),
            delivery_id: Some(number),
            call: time + 700,
            ret: Some(time + 900),
            outcome: Outcome::Ok,
            commit: Some(number),
            epoch: Some(3),
            txn: None,
        }));
    }
    recorder.finish()
}
