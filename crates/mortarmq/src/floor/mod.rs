//! The floor of a broker on this machine: a server that speaks as much of the protocol as `bench` needs and holds none of
//! the promises. What it costs is what sockets, frames and the disk cost; what a broker costs beyond it is the broker.
//!
//! | kind | what it does with a publish or a settle |
//! |---|---|
//! | [`Kind::Echo`] | answers at once, from memory |
//! | [`Kind::Commit`] | one thread takes what is there, writes it with one write and one fdatasync, then answers |
//! | [`Kind::Follow`] | takes no clients, but the batches of a `Commit`: writes and syncs them as that does, and tells it |
//!
//! A `Commit` with followers is the floor of three nodes: it sends each batch to them before it writes its own file, and answers
//! when that and one of theirs is on disk. The next batch is taken after that, so there is one at a time here too.
//!
//! Both give a message to the next subscriber that has credit. With `Commit` that happens after the fsync that covers the
//! message and the record of its delivery, and a settle is confirmed after its own. Nothing else is done: no numbers of
//! producers are remembered, no leases end, nothing is delivered twice, and nothing is read back from disk.
//!
//! `hub.rs` has the topics and subscribers, `desk.rs` hands what a connection sent to them, `journal.rs` is the prepared
//! file and the thread that writes it, `connection.rs` the sockets; `links.rs` and `follow.rs` are the two ends between servers.

mod connection;
mod desk;
mod follow;
mod hub;
mod journal;
mod links;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};

use tokio::net::{TcpListener, TcpStream};

use self::connection::Core;
use self::desk::Desk;
use self::journal::Prepared;
use self::links::Links;

/// What a floor does before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Nothing.
    Echo,
    /// Writes and syncs, one batch at a time.
    Commit,
    /// Writes and syncs what the leader of a floor of three sends.
    Follow,
}

/// A floor that runs. Its sockets live as long as the runtime that it was started in.
pub(crate) struct Floor {
    /// Where it takes clients.
    pub(crate) address: SocketAddr,
    /// Tells when the disk failed; nothing is answered from then on.
    pub(crate) failed: mpsc::Receiver<io::Error>,
}

impl Floor {
    /// Starts one on a free port of this machine. The file is made in the folder, and filled, before it returns.
    ///
    /// # Errors
    /// When the file cannot be made, no port be had, or a follower does not listen.
    pub(crate) async fn start(kind: Kind, folder: &Path, followers: &[SocketAddr]) -> io::Result<Self> {
        let (failure, failed) = mpsc::channel();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let core = match kind {
            Kind::Echo => Core::Echo(Arc::new(Mutex::new(Desk::default()))),
            Kind::Commit => {
                let links = Links::connect(followers).await?;
                Core::Commit(journal::start(Prepared::create(folder)?, links, failure)?)
            }
            Kind::Follow => {
                let writer = follow::start(Prepared::create(folder)?, failure)?;
                tokio::spawn(accept(listener, move |stream, _| follow::serve(stream, writer.clone())));
                return Ok(Self { address, failed });
            }
        };
        tokio::spawn(accept(listener, move |stream, number| connection::serve(stream, number, core.clone())));
        Ok(Self { address, failed })
    }
}

async fn accept<F>(listener: TcpListener, serve: impl Fn(TcpStream, u64) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    for number in 0.. {
        // Only `bench` connects, with a number of connections that it was told; without one more there is no figure.
        let Ok((stream, _)) = listener.accept().await else { return };
        // As the broker does.
        let _ = stream.set_nodelay(true);
        tokio::spawn(serve(stream, number));
    }
}

#[cfg(test)]
mod tests;
