//! A follower of the commit floor: it takes the batches of the leader, writes all that is there with one write and one fdatasync,
//! and says how far it is. Its sockets are carried by as many threads as the leader's, and its file is written by one of its own.

use std::io;
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::journal::{BATCH_BYTES, Prepared};

/// What a leader sent at once, and where it is told that all up to this is on disk.
#[derive(Debug)]
pub(super) struct Batch {
    number: u64,
    records: Bytes,
    answer: UnboundedSender<u64>,
}

/// Puts a batch into one frame: its number, its length, its bytes.
pub(super) fn frame(number: u64, records: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(HEAD_BYTES + records.len());
    frame.put_u64(number);
    frame.put_u64(records.len() as u64);
    frame.put_slice(records);
    frame.freeze()
}

/// Cuts a whole frame off, if there is one.
pub(super) fn cut(input: &mut BytesMut) -> io::Result<Option<(u64, Bytes)>> {
    let Some((mut head, rest)) = input.split_at_checked(HEAD_BYTES) else { return Ok(None) };
    let (number, length) = (head.get_u64(), head.get_u64());
    let length = usize::try_from(length).ok().filter(|length| *length <= FRAME_BYTES_MAX);
    let length = length.ok_or(io::ErrorKind::InvalidData)?;
    if rest.len() < length {
        input.reserve(HEAD_BYTES + length);
        return Ok(None);
    }
    input.advance(HEAD_BYTES);
    Ok(Some((number, input.split_to(length).freeze())))
}

/// Starts the writer. It ends with the last connection that could send it anything, or when the disk fails.
pub(super) fn start(file: Prepared, failure: Sender<io::Error>) -> io::Result<SyncSender<Batch>> {
    let (sender, batches) = sync_channel(BATCHES);
    std::thread::Builder::new().name("floor-follower".to_owned()).spawn(move || {
        if let Err(error) = write_all(file, &batches) {
            // Whoever runs the floor ends it; if nobody does, nobody waits.
            let _ = failure.send(error);
        }
    })?;
    Ok(sender)
}

fn write_all(mut file: Prepared, batches: &Receiver<Batch>) -> io::Result<()> {
    let mut records = Vec::new();
    while let Ok(mut last) = batches.recv() {
        records.extend_from_slice(&last.records);
        while records.len() < BATCH_BYTES
            && let Ok(more) = batches.try_recv()
        {
            records.extend_from_slice(&more.records);
            last = more;
        }
        file.append(&mut records)?;
        // A leader that has gone needs no answer.
        let _ = last.answer.send(last.number);
    }
    Ok(())
}

/// Serves a leader until it goes.
pub(super) async fn serve(stream: TcpStream, writer: SyncSender<Batch>) {
    // However it ends, the leader sees that at its own end of the connection.
    let _ = run(stream, &writer).await;
}

async fn run(mut stream: TcpStream, writer: &SyncSender<Batch>) -> io::Result<()> {
    let (answer, mut answers) = unbounded_channel();
    let mut input = BytesMut::with_capacity(READ_BYTES);
    let (mut reader, mut out) = stream.split();
    loop {
        input.reserve(READ_BYTES);
        tokio::select! {
            read = reader.read_buf(&mut input) => {
                if read? == 0 {
                    return Ok(());
                }
                while let Some((number, records)) = cut(&mut input)? {
                    let batch = Batch { number, records, answer: answer.clone() };
                    writer.send(batch).map_err(|_| io::ErrorKind::BrokenPipe)?;
                }
            }
            Some(mut number) = answers.recv() => {
                while let Ok(later) = answers.try_recv() {
                    number = later;
                }
                out.write_u64(number).await?;
            }
        }
    }
}

/// Number and length.
const HEAD_BYTES: usize = 16;
/// Far more than a batch and the records of all deliveries in it.
const FRAME_BYTES_MAX: usize = 32 << 20;
/// As the leader reads.
const READ_BYTES: usize = 64 << 10;
/// Batches that wait for the writer. A leader has one under way; of a follower that is behind there are more.
const BATCHES: usize = 64;
