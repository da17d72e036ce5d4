//! `peek TOPIC`: stored messages, read without a lease. Nothing is delivered, nothing is changed.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;

use crate::admin::{Admin, AdminArgs, Route};
use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows};

/// Read stored messages without a lease
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Their topic
    topic: String,
    /// Only this partition
    #[arg(long, value_name = "N")]
    partition: Option<u16>,
    /// The first sequence to show, in every partition
    #[arg(long, value_name = "SEQ", default_value_t = 1)]
    from: u64,
    /// Go on with new messages until stopped
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    rows: RowArgs,
}

#[derive(Deserialize)]
struct Peek {
    messages: Vec<Message>,
}

/// A stored message as the operator routes tell it.
#[derive(Deserialize)]
pub(crate) struct Message {
    pub(crate) partition: u16,
    pub(crate) sequence: u64,
    #[serde(default)]
    key: String,
    key_encoding: Option<String>,
    /// The exact bytes; `payload` beside it is the same for readers and not read here.
    value_base64: String,
}

#[derive(Deserialize)]
struct Topic {
    partitions: u16,
}

/// Prints the messages, partition by partition; with `--follow` in the order in which they are found.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let admin = Admin::new(&args.admin)?;
    let mut rows = Rows::streamed(&["partition", "sequence", "key", "value"], args.rows);
    let mut next = BTreeMap::new();
    loop {
        for partition in partitions(&admin, &args.topic, args.partition)? {
            let from = next.entry(partition).or_insert(args.from.max(1));
            while read_some(&admin, &args.topic, partition, from, &mut rows)? {}
        }
        if !args.follow {
            return rows.finish();
        }
        std::thread::sleep(FOLLOW_PAUSE);
    }
}

/// The partitions to read: the one that was named, else all. Asked again in every round of `--follow`, because a topic may
/// grow.
pub(crate) fn partitions(admin: &Admin, topic: &str, only: Option<u16>) -> Result<Vec<u16>, Failure> {
    if let Some(partition) = only {
        return Ok(vec![partition]);
    }
    let topic: Topic = admin.get_of_topic(topic, Route { path: &["v1", "topics", topic], query: &[] })?;
    Ok((0..topic.partitions).collect())
}

/// Prints what one question gives. Says whether there may be more.
fn read_some(admin: &Admin, topic: &str, partition: u16, from: &mut u64, rows: &mut Rows) -> Result<bool, Failure> {
    let (number, first) = (partition.to_string(), from.to_string());
    let query = &[("partition", number.as_str()), ("from", first.as_str()), ("max", MAX_PER_QUESTION)];
    let peek: Peek = admin.get_of_topic(topic, Route { path: &["v1", "topics", topic, "peek"], query })?;
    for message in &peek.messages {
        *from = (*from).max(message.sequence.saturating_add(1));
        let mut cells = vec![Cell::Number(u64::from(partition)), Cell::Number(message.sequence)];
        cells.extend(message.cells()?);
        rows.push(cells)?;
    }
    Ok(!peek.messages.is_empty())
}

impl Message {
    /// Its key and its value.
    pub(crate) fn cells(&self) -> Result<[Cell; 2], Failure> {
        Ok([Cell::Bytes(self.key()?), Cell::Bytes(self.value()?)])
    }

    fn key(&self) -> Result<Bytes, Failure> {
        decoded(self.key.clone(), self.key_encoding.as_deref())
    }

    fn value(&self) -> Result<Bytes, Failure> {
        decoded(self.value_base64.clone(), Some("base64"))
    }
}

fn decoded(text: String, encoding: Option<&str>) -> Result<Bytes, Failure> {
    match encoding {
        None => Ok(Bytes::from(text)),
        Some("base64") => STANDARD.decode(text).map(Bytes::from).map_err(|error| not_understood(&error.to_string())),
        Some(other) => Err(not_understood(&format!("encoding {other}"))),
    }
}

fn not_understood(what: &str) -> Failure {
    let remedy = "check that --admin names the operator routes of a broker of this version";
    Failure::unreachable(format!("a message of the answer is not understood: {what}"), remedy)
}

/// Few enough that one answer stays small with messages of the default size.
const MAX_PER_QUESTION: &str = "100";
/// Short enough for a reader's eye, long enough to leave the broker alone.
const FOLLOW_PAUSE: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use super::Message;

    #[test]
    fn key_and_value_have_the_bytes_that_were_stored() {
        let message = |json: &str| serde_json::from_str::<Message>(json).expect("the test's JSON is right");
        let found = message(r#"{"partition":0,"sequence":1,"key":"k\u00e9","payload":"\u00ff","value_base64":"/wA="}"#);
        assert_eq!(found.value().expect("base64"), &b"\xff\x00"[..]);
        assert_eq!(found.key().expect("text"), "k\u{e9}".as_bytes());
        let found = message(r#"{"partition":0,"sequence":1,"key":"/w==","key_encoding":"base64","value_base64":""}"#);
        assert_eq!((found.key().expect("base64"), found.value().expect("base64")), (vec![0xff].into(), "".into()));
        assert!(message(r#"{"partition":0,"sequence":1,"value_base64":"?"}"#).value().is_err());
    }
}
