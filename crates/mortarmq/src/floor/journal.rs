//! The prepared file, and the thread that writes it: takes what is there, one write, one fdatasync, then the answers. Where there
//! are followers they are sent the batch first, so that they write while it does, and one of them must have it too.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};

use super::desk::{ConnectionNumber, Desk, Frame, Outgoing, Outlet};
use super::links::Links;

/// What a connection tells the writer.
#[derive(Debug)]
pub(super) enum Event {
    Connected(ConnectionNumber, Outlet),
    Requests(ConnectionNumber, Vec<Frame>),
    Disconnected(ConnectionNumber),
}

/// A file whose blocks were all written before, written over from its beginning again and again: the cheapest durable
/// write there is, and the way the journal writes.
#[derive(Debug)]
pub(super) struct Prepared {
    file: File,
    at: u64,
}

impl Prepared {
    /// Makes it in a folder.
    ///
    /// # Durability
    /// All of it is on disk.
    /// # Errors
    /// When it cannot be written.
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(folder.join("floor-journal"))?;
        let zeros = vec![0; 1 << 20];
        for _ in 0..FILE_BYTES / zeros.len() {
            file.write_all(&zeros)?;
        }
        file.sync_all()?;
        Ok(Self { file, at: 0 })
    }

    /// Writes a batch, filled up to whole blocks, and empties it.
    ///
    /// # Durability
    /// The batch is on disk.
    /// # Errors
    /// When it cannot be written.
    pub(super) fn append(&mut self, batch: &mut Vec<u8>) -> io::Result<()> {
        batch.resize(batch.len().next_multiple_of(BLOCK_BYTES), 0);
        if self.at + batch.len() as u64 > FILE_BYTES as u64 {
            self.at = 0;
        }
        self.file.write_all_at(batch, self.at)?;
        self.file.sync_data()?;
        self.at += batch.len() as u64;
        batch.clear();
        Ok(())
    }
}

/// Starts the writer. It ends when no connection is left that could send it anything, or when the disk fails.
pub(super) fn start(file: Prepared, links: Links, failure: Sender<io::Error>) -> io::Result<SyncSender<Event>> {
    let (sender, events) = sync_channel(EVENTS);
    std::thread::Builder::new().name("floor-journal".to_owned()).spawn(move || {
        if let Err(error) = write_all(file, links, &events) {
            // Whoever runs the floor ends it; if nobody does, nobody waits.
            let _ = failure.send(error);
        }
    })?;
    Ok(sender)
}

fn write_all(mut file: Prepared, mut links: Links, events: &Receiver<Event>) -> io::Result<()> {
    let mut desk = Desk::default();
    desk.hub.records = Some(Vec::new());
    while let Ok(first) = events.recv() {
        let mut outgoing = Outgoing::default();
        let mut next = Some(first);
        while let Some(event) = next {
            take(&mut desk, event, &mut outgoing);
            let is_full = desk.hub.records.as_ref().is_some_and(|records| records.len() >= BATCH_BYTES);
            next = if is_full { None } else { events.try_recv().ok() };
        }
        desk.deliver(&mut outgoing);
        if let Some(records) = desk.hub.records.as_mut().filter(|records| !records.is_empty()) {
            links.send(records)?;
            file.append(records)?;
            links.wait()?;
        }
        desk.send(outgoing);
    }
    Ok(())
}

fn take(desk: &mut Desk, event: Event, outgoing: &mut Outgoing) {
    match event {
        Event::Connected(connection, outlet) => desk.connected(connection, outlet),
        Event::Requests(connection, frames) => desk.handle(connection, &frames, outgoing),
        Event::Disconnected(connection) => desk.disconnected(connection),
    }
}

const BLOCK_BYTES: usize = 4096;
/// As much as a journal entry of the broker holds.
pub(super) const BATCH_BYTES: usize = 4 << 20;
/// As large as a journal file of the broker. A batch is smaller: at most [`BATCH_BYTES`], one read of a connection, and the
/// records of as many deliveries as there is credit.
const FILE_BYTES: usize = 64 << 20;
/// Reads of connections that wait for the writer.
const EVENTS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::{BLOCK_BYTES, FILE_BYTES, Prepared};

    #[test]
    fn batches_are_whole_blocks_and_the_file_never_grows() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut file = Prepared::create(folder.path()).expect("it can be written");
        let mut batch = vec![7; 5 * BLOCK_BYTES + 1];
        for _ in 0..FILE_BYTES / (6 * BLOCK_BYTES) + 1 {
            batch.resize(5 * BLOCK_BYTES + 1, 7);
            file.append(&mut batch).expect("it can be written");
            assert!(batch.is_empty());
            assert!(file.at.is_multiple_of(BLOCK_BYTES as u64));
        }
        assert_eq!(file.at, 6 * BLOCK_BYTES as u64, "it began again");
        assert_eq!(file.file.metadata().expect("is there").len(), FILE_BYTES as u64);
    }
}
