//! A producer without numbers: a publish whose answer is lost is never repeated, by nobody on the way either.
//!
//! The client library gives every producer numbers, so this one speaks the protocol itself: one connection, one publish at a time.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use mortarmq_history::{Outcome, Publish as PublishRecord, Record};
use mortarmq_types::{Partition, ProducerId, ProducerSeq};
use mortarmq_wire::ops::{Connect, Declare, DeclareOk, Publish, PublishOk, PublishOptions};
use mortarmq_wire::{Op, RecordBody, ServerFrame, Split, split_frame, write_body};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::site::{Phase, Site, TOPIC, value_of};
use crate::operator::TOKEN;

/// Publishes until the load is over. It goes to each node in turn, and on to the next after whatever goes wrong.
pub(crate) async fn run(site: Site, number: usize) -> Result<(), String> {
    let name = format!("unnumbered-{number}");
    let (mut count, mut node) = (0_u64, number);
    while site.phase() == Phase::Load {
        node += 1;
        let Some(mut line) = Line::open(&site.nodes[node % site.nodes.len()].client, &name).await else {
            tokio::time::sleep(AFTER_A_FAILURE).await;
            continue;
        };
        while site.phase() == Phase::Load {
            let id = format!("u{number}-{count}");
            count += 1;
            if !line.publish(&site, &name, &id).await {
                break;
            }
            tokio::time::sleep(BETWEEN_SENDS).await;
        }
    }
    Ok(())
}

/// A connection that has found the topic.
struct Line {
    stream: TcpStream,
    received: BytesMut,
    topic_id: u16,
}

/// What an answer said.
enum Answer<T> {
    Ok(T),
    Refused,
    /// Nothing that can be understood, or too late.
    None,
}

impl Line {
    async fn open(address: &str, name: &str) -> Option<Self> {
        let stream = tokio::time::timeout(ANSWER_LIMIT, TcpStream::connect(address)).await.ok()?.ok()?;
        let mut line = Self { stream, received: BytesMut::new(), topic_id: 0 };
        let mut frame = BytesMut::new();
        Connect { token: TOKEN.as_bytes(), client_name: name.as_bytes() }.encode(&mut frame).ok()?;
        let Answer::Ok(()) = line.ask(Op::Connect, &frame, |_| Some(())).await else { return None };
        // Found, not made: it exists, with the same settings.
        let mut frame = BytesMut::new();
        Declare { topic: TOPIC, partition_count: 0, delete: false, options: b"{}" }.encode(&mut frame).ok()?;
        let answer = line.ask(Op::Declare, &frame, |result| DeclareOk::decode(result).ok()).await;
        let Answer::Ok(declared) = answer else { return None };
        line.topic_id = declared.topic_id;
        Some(line)
    }

    /// Publishes and records it; whether the connection is still good.
    async fn publish(&mut self, site: &Site, client: &str, id: &str) -> bool {
        let value = value_of(id, 100);
        let (mut body, mut frame) = (BytesMut::new(), BytesMut::new());
        let is_made = write_body(&mut body, b"", None, &value).is_ok();
        let Some((body, _)) = RecordBody::parse(&body, false).ok().filter(|_| is_made) else { return false };
        let publish = Publish {
            topic_id: self.topic_id,
            partition: Partition::ANY,
            producer_id: ProducerId::ZERO,
            producer_seq: ProducerSeq::ZERO,
            body,
            options: PublishOptions::default(),
        };
        if publish.encode(&mut frame).is_err() {
            return false;
        }
        let (call, called) = (Site::now_ns(), Instant::now());
        let answer = self.ask(Op::Publish, &frame, |result| PublishOk::decode(result).ok()).await;
        let ret = Site::now_ns();
        let (outcome, stored) = match answer {
            Answer::Ok(stored) => (Outcome::Ok, Some(stored)),
            Answer::Refused => (Outcome::Refused, None),
            Answer::None => (Outcome::Unknown, None),
        };
        if stored.is_some() {
            site.tally.published(id, called);
        }
        site.recorder.record(&Record::Publish(PublishRecord {
            client: Some(Cow::Borrowed(client)),
            topic: Cow::Borrowed(TOPIC),
            msg: Cow::Borrowed(id),
            key: None,
            call,
            ret: (outcome != Outcome::Unknown).then_some(ret),
            outcome,
            partition: stored.map(|stored| u32::from(stored.partition.get())),
            seq: stored.map(|stored| stored.seq.get()),
            producer_id: None,
            producer_seq: None,
            delay_ms: None,
            dedup: stored.map(|stored| stored.deduplicated),
            hash: Some(format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&value)).into()),
            commit: stored.map(|stored| stored.position.commit_index.get()),
            epoch: stored.map(|stored| stored.position.epoch.get()),
            txn: None,
        }));
        // A refusal is mostly one of a node that does not know the way: another may.
        outcome == Outcome::Ok
    }

    /// Sends a request and waits for its answer.
    async fn ask<T>(&mut self, op: Op, frame: &[u8], read: impl Fn(&[u8]) -> Option<T>) -> Answer<T> {
        let asked = tokio::time::timeout(ANSWER_LIMIT, async {
            self.stream.write_all(frame).await.ok()?;
            loop {
                if let Some(answer) = self.take_answer(op, &read)? {
                    return Some(answer);
                }
                if self.stream.read_buf(&mut self.received).await.ok()? == 0 {
                    return None;
                }
            }
        });
        asked.await.ok().flatten().unwrap_or(Answer::None)
    }

    /// The answer, if it is there; nothing if what is there cannot be read.
    fn take_answer<T>(&mut self, op: Op, read: impl Fn(&[u8]) -> Option<T>) -> Option<Option<Answer<T>>> {
        loop {
            let Split::Frame { op: kind, payload, consumed } = split_frame(&self.received).ok()? else {
                return Some(None);
            };
            let answer = match (Op::from_number(kind)?, ServerFrame::decode(kind, payload)) {
                // The node asks whether somebody is here; whoever publishes is.
                (Op::Ping, _) => None,
                (_, Ok(ServerFrame::Ok(ok))) if ok.request_op == op => Some(read(ok.result).map(Answer::Ok)?),
                (_, Ok(ServerFrame::Error(error))) => Some(match error.outcome {
                    mortarmq_wire::Outcome::Refused => Answer::Refused,
                    mortarmq_wire::Outcome::Unknown => Answer::None,
                }),
                _ => return None,
            };
            let _ = self.received.split_to(consumed);
            if answer.is_some() {
                return Some(answer);
            }
        }
    }
}

/// How many there are.
pub(crate) const PRODUCERS: usize = 2;
const BETWEEN_SENDS: Duration = Duration::from_millis(20);
const AFTER_A_FAILURE: Duration = Duration::from_millis(50);
/// Longer than a node takes to say that it has no majority.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
