//! What the leader of the commit floor says to its followers, and what they answer. Each link is a task of the threads that carry
//! the sockets, as in the broker.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::follow::frame;

/// The links to all followers; none for a floor of one server.
#[derive(Debug)]
pub(super) struct Links {
    followers: Vec<mpsc::Sender<Bytes>>,
    answers: Receiver<u64>,
    /// The number of the last batch.
    sent: u64,
    /// The last batch that a follower has on its disk, and with it all before.
    stored: u64,
}

impl Links {
    /// Connects to followers that listen.
    ///
    /// # Errors
    /// When one does not.
    pub(super) async fn connect(followers: &[SocketAddr]) -> io::Result<Self> {
        let (answer, answers) = channel();
        let mut links = Self { followers: Vec::new(), answers, sent: 0, stored: 0 };
        for address in followers {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let (sender, batches) = mpsc::channel(BATCHES);
            links.followers.push(sender);
            tokio::spawn(run(stream, batches, answer.clone()));
        }
        Ok(links)
    }

    /// Sends a batch to every follower, and does not wait for its way. Not for a task: it waits where a follower is far behind.
    ///
    /// # Errors
    /// When a follower is gone: what is measured then is no floor of three.
    pub(super) fn send(&mut self, records: &[u8]) -> io::Result<()> {
        if self.followers.is_empty() {
            return Ok(());
        }
        self.sent += 1;
        let batch = frame(self.sent, records);
        let mut all = self.followers.iter();
        all.try_for_each(|follower| follower.blocking_send(batch.clone())).map_err(|_| gone())
    }

    /// Waits until one follower has the last batch on its disk: with the leader, two of three.
    ///
    /// # Errors
    /// When all followers are gone.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        while self.stored < self.sent {
            self.stored = self.stored.max(self.answers.recv().map_err(|_| gone())?);
        }
        Ok(())
    }
}

async fn run(stream: TcpStream, mut batches: mpsc::Receiver<Bytes>, answer: Sender<u64>) -> io::Result<()> {
    let (mut reader, mut writer) = stream.into_split();
    let write = async {
        while let Some(batch) = batches.recv().await {
            writer.write_all(&batch).await?;
        }
        Ok(())
    };
    let read = async {
        // A leader that has gone needs no answer.
        while answer.send(reader.read_u64().await?).is_ok() {}
        Ok(())
    };
    tokio::select! {
        written = write => written,
        read = read => read,
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "a follower of the floor is gone")
}

/// Batches on their way to a follower that is behind.
const BATCHES: usize = 64;
