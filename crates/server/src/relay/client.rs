//! A client's connection goes on at the node that leads.
//!
//! It goes there with its first request that needs the leader, once everything before is answered. The leader is told what the client
//! had said (CONNECT), and asked for the topics that it has handles of, in their order, so that these are the same there. From then on
//! bytes are carried both ways, and neither end notices.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use mortarmq_transport::Stream;
use mortarmq_types::{NodeId, TopicIncarnation};
use mortarmq_wire::ops::{Connect, Metadata, MetadataOk, OkAnswer};
use mortarmq_wire::{List, Op, ServerFrame, Split, split_frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Duration, timeout};

use super::Relay;
use crate::connection::line::{Line, Moved, Wants};
use crate::peers::Lane;

/// What is told to the leader when a connection goes on there. Kept by every connection of one of several nodes.
pub(crate) struct Moving {
    relay: Arc<Relay>,
    /// CONNECT, as the client said it.
    greeting: BytesMut,
    /// The topics of its handles, in their order.
    topics: Vec<(TopicIncarnation, Box<str>)>,
}

impl Moving {
    pub(crate) fn new(relay: Arc<Relay>) -> Self {
        Self { relay, greeting: BytesMut::new(), topics: Vec::new() }
    }

    /// The node that a request with this op is for, if that is another one.
    pub(crate) fn target(&self, op: u8) -> Option<NodeId> {
        let needs_leader = matches!(
            Op::from_number(op)?,
            Op::Subscribe | Op::Credit | Op::Pull | Op::Settle | Op::Ack | Op::Nack | Op::Heartbeat
        );
        if needs_leader { self.relay.leader() } else { None }
    }

    /// The client said who it is.
    pub(crate) fn greet(&mut self, connect: &Connect<'_>) {
        // What was read from a frame fits into one.
        let _ = connect.encode(&mut self.greeting);
    }

    /// The client has a handle of a topic, which may be its next one.
    pub(crate) fn name(&mut self, handle: u16, topic: TopicIncarnation, name: &str) {
        if usize::from(handle) == self.topics.len() + 1 {
            self.topics.push((topic, name.into()));
        }
    }

    /// Makes the leader know what this node knows of the client; what it said behind that is left in `heard`.
    async fn introduce(&self, far: &mut Stream, heard: &mut BytesMut) -> io::Result<()> {
        far.write_all(&self.greeting).await?;
        far.flush().await?;
        expect(far, heard, Op::Connect, |_| Ok(())).await?;
        for (number, topics) in self.topics.chunks(NAMES_PER_QUESTION).enumerate() {
            let names: Vec<&[u8]> = topics.iter().map(|(_, name)| name.as_bytes()).collect();
            let mut question = BytesMut::new();
            let encoded = Metadata { topics: List::from(&names[..]) }.encode(&mut question);
            encoded.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            far.write_all(&question).await?;
            far.flush().await?;
            let first = number * NAMES_PER_QUESTION;
            expect(far, heard, Op::Metadata, |result| same_handles(result, first, topics)).await?;
        }
        Ok(())
    }
}

/// Whether the leader gave the topics the handles that they have here.
fn same_handles(result: &[u8], first: usize, topics: &[(TopicIncarnation, Box<str>)]) -> io::Result<()> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let ok = MetadataOk::decode(result).map_err(invalid)?;
    let theirs = ok.topics.iter().map(|topic| (usize::from(topic.topic_id), topic.incarnation));
    let ours = topics.iter().enumerate().map(|(place, (topic, _))| (first + place + 1, *topic));
    if theirs.eq(ours) {
        return Ok(());
    }
    Err(io::Error::other("a topic of which the client has a handle is gone; it asks again when it connects again"))
}

/// Reads the answer to an op.
async fn expect(
    far: &mut Stream,
    heard: &mut BytesMut,
    op: Op,
    take: impl FnOnce(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
    loop {
        match split_frame(heard).map_err(|error| invalid(error.to_string()))? {
            Split::Frame { op: number, payload, consumed } => {
                match ServerFrame::decode(number, payload).map_err(|error| invalid(error.to_string()))? {
                    ServerFrame::Ok(OkAnswer { request_op, result }) if request_op == op => take(result)?,
                    other => return Err(invalid(format!("the leader answered {other:?}"))),
                }
                heard.advance(consumed);
                return Ok(());
            }
            Split::Incomplete { needed } => heard.reserve(needed),
        }
        if far.read_buf(heard).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Carries a connection to the node that leads until one of both ends it; `said` is what the client said and nobody took. Gives back the
/// client's line, to be closed.
pub(crate) async fn go_on(
    mut near: Line,
    mut said: BytesMut,
    moving: &Moving,
    to: NodeId,
    mut stopping: watch::Receiver<bool>,
) -> (Line, io::Result<()>) {
    let reached = async {
        let (mut far, mut heard) =
            (moving.relay.dial(to, Lane::Clients).await.map_err(io::Error::other)?, BytesMut::new());
        moving.introduce(&mut far, &mut heard).await?;
        io::Result::Ok((Line::plain(far), heard))
    };
    let carried = async {
        let (mut far, mut heard) = timeout(INTRODUCTION_TIME, reached).await??;
        carry(&mut near, &mut far, &mut said, &mut heard).await
    };
    let ended = tokio::select! {
        ended = carried => ended,
        _ = stopping.wait_for(|is_stopping| *is_stopping) => Ok(()),
    };
    (near, ended)
}

/// Carries bytes both ways until the far end ends, or one of both breaks.
async fn carry(near: &mut Line, far: &mut Line, said: &mut BytesMut, heard: &mut BytesMut) -> io::Result<()> {
    let mut is_near_ended = false;
    let mut is_far_ended = false;
    loop {
        write(far, said)?;
        write(near, heard)?;
        if is_near_ended && said.is_empty() {
            far.announce_end();
            write(far, said)?;
        }
        if is_far_ended && heard.is_empty() && !near.wants_write() {
            return Ok(());
        }
        let near_wants = Wants {
            read: said.len() < CARRIED_BYTES && !is_near_ended,
            write: !heard.is_empty() || near.wants_write(),
        };
        let far_wants =
            Wants { read: heard.len() < CARRIED_BYTES && !is_far_ended, write: !said.is_empty() || far.wants_write() };
        tokio::select! {
            moved = poll_fn(|context| near.poll_moved(context, near_wants, said)) => is_near_ended |= is_end(moved)?,
            moved = poll_fn(|context| far.poll_moved(context, far_wants, heard)) => is_far_ended |= is_end(moved)?,
        }
    }
}

/// Whether nothing more comes.
fn is_end(moved: Moved) -> io::Result<bool> {
    match moved {
        Moved::Read(Ok(bytes)) => Ok(bytes == 0),
        Moved::Read(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Moved::Read(Err(error)) => Err(error),
        Moved::Writable(ready) => ready.map(|()| false),
    }
}

/// Writes what the line takes.
fn write(line: &mut Line, bytes: &mut BytesMut) -> io::Result<()> {
    let would_block = |error: io::Error| if error.kind() == io::ErrorKind::WouldBlock { Ok(()) } else { Err(error) };
    if line.wants_write()
        && let Err(error) = line.try_flush()
    {
        return would_block(error);
    }
    while !bytes.is_empty() {
        match line.try_write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes.advance(written),
            Err(error) => return would_block(error),
        }
    }
    Ok(())
}

/// A direction that holds so much is not read.
const CARRIED_BYTES: usize = 64 << 10;
/// METADATA takes no more.
const NAMES_PER_QUESTION: usize = 1024;
/// A leader that takes longer is none.
const INTRODUCTION_TIME: Duration = Duration::from_secs(5);
