//! Whether links are encrypted, and whose certificates make them: the same at both ends, or there is no link and both say why.
//!
//! With the files of TLS both ends show a certificate first, and everything else takes place inside: the handshake, whose proofs
//! then cover what only the two ends of this very session know, and the frames. A certificate names the host by which `peers` lists
//! its node; whoever dials looks at that before it says anything, whoever is dialled once it knows which node the other claims to be.
//!
//! An end that cannot go on says so with a notice, a message of `MMQN` and its number, where the answer to a hello is expected. Nobody
//! can prove it, so nothing but a line in a log follows from it.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mortarmq_transport::sealed::{Opener, Sealer};
use mortarmq_transport::{Mutual, Stream, TlsFault};
use mortarmq_types::NodeId;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::messages::write_message;
use super::outgoing::DialError;
use crate::config::{Cluster, host_of};
use crate::connection::linger;

/// Why the two ends of a link do not come together, as whoever dialled tells it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TlsRefusal {
    /// Only the other node has files.
    #[error("the other node links over TLS only; set peer_tls_cert, peer_tls_key and peer_tls_ca on this one too")]
    Wanted,
    /// Only this node has them.
    #[error("the other node links without TLS; set peer_tls_cert, peer_tls_key and peer_tls_ca on that one too")]
    NotThere,
    /// The other node does not know this one by that name.
    #[error(
        "the other node refuses this one's certificate: it must name the host of this node's address in peers, as the other has it"
    )]
    OtherName,
    /// The other node's certificate.
    #[error(
        "the other node's certificate is refused: {0}; it must be issued by peer_tls_ca for the host of its address in peers"
    )]
    Certificate(String),
    /// The other node's log says why.
    #[error("the other node refuses TLS with this one ({0}); its log says why")]
    Broken(String),
}

impl TlsRefusal {
    /// What an end that was dialled says.
    const NOTICES: [Self; 3] = [Self::Wanted, Self::NotThere, Self::OtherName];

    fn notice(&self) -> Vec<u8> {
        let number = Self::NOTICES.iter().position(|refusal| refusal == self);
        [NOTICE, &[number.map_or(u8::MAX, |number| number as u8)]].concat()
    }

    /// What was said instead of an answer to a hello, if it is a notice.
    pub(super) fn of_notice(message: &[u8]) -> Option<Self> {
        let [number] = message.strip_prefix(NOTICE)? else { return None };
        Self::NOTICES.get(usize::from(*number)).cloned()
    }
}

/// Begins a link to a node at an address of `peers`.
pub(super) async fn begin(socket: TcpStream, address: &str, tls: Option<&Mutual>) -> Result<Stream, DialError> {
    let Some(tls) = tls else { return Ok(Stream::plain(socket)) };
    let mut stream = tls.connect(socket, host_of(address)).map_err(failed)?;
    if let Err(error) = stream.handshake().await {
        // What is wrong is told by TLS itself. The other end is to read it, and nobody waits for that.
        tokio::spawn(linger(stream.finish()));
        return Err(failed(error));
    }
    Ok(stream)
}

/// Why whoever dialled got no answer: whoever was dialled judges a certificate last, when the other end believes to be through.
pub(super) fn failed(error: io::Error) -> DialError {
    DialError::Tls(match TlsFault::of(&error) {
        None => return DialError::Unreachable(error),
        Some(TlsFault::NotTls) => TlsRefusal::NotThere,
        Some(TlsFault::Certificate { reason }) => TlsRefusal::Certificate(reason),
        Some(TlsFault::Broken { reason }) => TlsRefusal::Broken(reason),
    })
}

/// What the proofs of a handshake cover: its first message, and what nobody but the two ends of this session knows.
pub(super) fn bound(mut hello: Vec<u8>, stream: &Stream) -> io::Result<Vec<u8>> {
    hello.extend(stream.binding()?.iter().flatten());
    Ok(hello)
}

/// What is carried for somebody: bytes in the stream's own TLS, else in sealed frames.
pub(crate) fn carried(stream: Stream, opener: Opener, sealer: Sealer) -> Stream {
    if stream.is_tls() { stream } else { Stream::sealed(stream.finish(), opener, sealer) }
}

/// Looks at whoever connects before a word is heard.
pub(super) struct Threshold {
    tls: Option<Mutual>,
    /// By which names the nodes of the cluster are known.
    hosts: BTreeMap<NodeId, String>,
    /// What was said in the log of whom, and when: a node that is refused comes again several times a second.
    said: Mutex<BTreeMap<(IpAddr, String), Instant>>,
}

impl Threshold {
    pub(super) fn new(cluster: &Cluster, tls: Option<Mutual>) -> Self {
        let host = |peer: &crate::config::PeerAddress| (NodeId::new(peer.id), host_of(&peer.peer).to_owned());
        Self { tls, hosts: cluster.peers.iter().map(host).collect(), said: Mutex::default() }
    }

    /// The stream of a link, or nothing for somebody who was refused.
    pub(super) async fn accept(&self, socket: TcpStream) -> io::Result<Option<Stream>> {
        let from = socket.peer_addr()?.ip();
        let mut first = [0];
        if socket.peek(&mut first).await? == 0 {
            return Ok(None);
        }
        let refusal = match (&self.tls, first == [TLS_HANDSHAKE]) {
            (None, false) => return Ok(Some(Stream::plain(socket))),
            (Some(tls), true) => return self.greet(tls.accept(socket)?, from).await,
            (Some(_), false) => {
                self.say(
                    from,
                    "it speaks no TLS; if it is a node, set peer_tls_cert, peer_tls_key and peer_tls_ca there too",
                );
                TlsRefusal::Wanted
            }
            (None, true) => {
                self.say(
                    from,
                    "it speaks TLS; if it is a node, set peer_tls_cert, peer_tls_key and peer_tls_ca on this one too",
                );
                TlsRefusal::NotThere
            }
        };
        refuse(Stream::plain(socket), &refusal).await.map(|()| None)
    }

    async fn greet(&self, mut stream: Stream, from: IpAddr) -> io::Result<Option<Stream>> {
        let Err(error) = stream.handshake().await else { return Ok(Some(stream)) };
        match TlsFault::of(&error) {
            None => return Err(error),
            Some(TlsFault::Certificate { reason }) => self.say(from, &format!("its certificate is refused: {reason}")),
            Some(fault) => self.say(from, &fault.to_string()),
        }
        linger(stream.finish()).await;
        Ok(None)
    }

    /// The stream of a link again, if its certificate is that of the node that it claims to come from.
    pub(super) async fn recognise(&self, stream: Stream, node: NodeId) -> io::Result<Option<Stream>> {
        let Some(host) = self.hosts.get(&node).filter(|_| stream.is_tls()) else { return Ok(Some(stream)) };
        let Err(error) = stream.check_peer_name(host) else { return Ok(Some(stream)) };
        tracing::warn!(claims = %node, "a link was refused: {error}; it must name the host of that node's address in peers");
        refuse(stream, &TlsRefusal::OtherName).await.map(|()| None)
    }

    fn say(&self, from: IpAddr, text: &str) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|_, when| when.elapsed() < SAY_AGAIN);
        // Who comes from many addresses is no node of ours.
        if said.len() < SAID_MAX && said.insert((from, text.to_owned()), Instant::now()).is_none() {
            tracing::warn!(%from, "a link was refused: {text}");
        }
    }
}

async fn refuse(mut stream: Stream, refusal: &TlsRefusal) -> io::Result<()> {
    write_message(&mut stream, &refusal.notice()).await?;
    linger(stream.finish()).await;
    Ok(())
}

/// With its length it is long enough for an end that expects TLS to see that this is none.
const NOTICE: &[u8] = b"MMQN";
/// The first byte of TLS; that of a hello is the upper one of a short length.
const TLS_HANDSHAKE: u8 = 22;
/// How long nothing is said again.
const SAY_AGAIN: Duration = Duration::from_secs(60);
const SAID_MAX: usize = 64;

#[cfg(test)]
mod tests;
