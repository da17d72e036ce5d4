//! One connection: one task, as in the broker. It reads, hands over what came, and writes what comes back.

use std::io;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};

use bytes::{Buf, BytesMut};
use mortarmq_wire::{Split, split_frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::unbounded_channel;

use super::desk::{ConnectionNumber, Desk, Frame, Outgoing, Outlet};
use super::journal::Event;

/// Who carries out requests.
#[derive(Clone, Debug)]
pub(super) enum Core {
    /// The connection's own task.
    Echo(Arc<Mutex<Desk>>),
    /// The writer.
    Commit(SyncSender<Event>),
}

/// Serves one connection until it ends.
pub(super) async fn serve(stream: TcpStream, number: ConnectionNumber, core: Core) {
    // However it ends, `bench` sees that at its own end of the connection.
    let _ = run(stream, number, &core).await;
    match &core {
        Core::Echo(desk) => locked(desk).disconnected(number),
        Core::Commit(writer) => drop(writer.send(Event::Disconnected(number))),
    }
}

async fn run(mut stream: TcpStream, number: ConnectionNumber, core: &Core) -> io::Result<()> {
    let (outlet, mut inlet) = unbounded_channel();
    core.connected(number, outlet);
    let mut input = BytesMut::with_capacity(READ_BYTES);
    let (mut reader, mut writer) = stream.split();
    loop {
        input.reserve(READ_BYTES);
        let mut out = tokio::select! {
            // One system call a read: behind one that left room, nothing more is there.
            read = reader.read_buf(&mut input) => {
                if read? == 0 {
                    return Ok(());
                }
                let frames = take_frames(&mut input)?;
                if frames.is_empty() { continue } else { core.requests(number, frames)? }
            }
            bytes = inlet.recv() => match bytes {
                Some(bytes) => bytes,
                None => return Ok(()),
            },
        };
        while let Ok(more) = inlet.try_recv() {
            out.extend_from_slice(&more);
        }
        writer.write_all_buf(&mut out).await?;
    }
}

impl Core {
    fn connected(&self, number: ConnectionNumber, outlet: Outlet) {
        match self {
            Self::Echo(desk) => locked(desk).connected(number, outlet),
            // A writer that has ended has said why; the connection ends with its first request.
            Self::Commit(writer) => drop(writer.send(Event::Connected(number, outlet))),
        }
    }

    /// Hands requests over. What is answered at once is returned.
    fn requests(&self, number: ConnectionNumber, frames: Vec<Frame>) -> io::Result<BytesMut> {
        match self {
            Self::Echo(desk) => {
                let mut outgoing = Outgoing::default();
                let mut desk = locked(desk);
                desk.handle(number, &frames, &mut outgoing);
                desk.deliver(&mut outgoing);
                let own = outgoing.take(number);
                desk.send(outgoing);
                Ok(own)
            }
            Self::Commit(writer) => {
                // Waits when the writer is far behind, and with it the sockets of this thread: that is the bound.
                writer.send(Event::Requests(number, frames)).map_err(|_| io::ErrorKind::BrokenPipe)?;
                Ok(BytesMut::new())
            }
        }
    }
}

/// Cuts whole frames off.
fn take_frames(input: &mut BytesMut) -> io::Result<Vec<Frame>> {
    let mut frames = Vec::new();
    loop {
        let split = split_frame(input).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let Split::Frame { op, payload, consumed } = split else { return Ok(frames) };
        let head = consumed - payload.len();
        let mut payload = input.split_to(consumed).freeze();
        payload.advance(head);
        frames.push(Frame { op, payload });
    }
}

fn locked(desk: &Mutex<Desk>) -> std::sync::MutexGuard<'_, Desk> {
    desk.lock().expect("nobody panicked with the desk")
}

/// As the broker reads.
const READ_BYTES: usize = 64 << 10;
