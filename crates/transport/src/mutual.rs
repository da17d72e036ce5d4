//! TLS between nodes: each shows a certificate of their CA, and each looks at the other's.
//!
//! A certificate names the host by which the others know its node, so that one that was stolen is good for no other place. Nothing
//! is resumed: whoever connects shows its certificate, each time.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::client::danger::ServerCertVerifier as _;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::pki_types::UnixTime;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use tokio::net::TcpStream;

use crate::acceptor::{Pair, pair_unusable};
use crate::connector::{Roots, provider, server_name};
use crate::fault::{FileFault, TlsFault};
use crate::stream::Stream;

/// Where a node has what it shows and whom it trusts, all in PEM form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MutualFiles {
    /// The certificate chain, the node's own first.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The CA of all nodes; more than one while it is exchanged for another.
    pub ca: PathBuf,
}

/// Makes streams between nodes. Clones share what was read, also when it is read again.
#[derive(Clone, Debug)]
pub struct Mutual(Arc<RwLock<Arc<Sides>>>);

#[derive(Debug)]
struct Sides {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl Mutual {
    /// Reads the files of a node that the others know by the name `host`.
    ///
    /// # Errors
    /// A file cannot be used, they do not belong together, or the others would not accept the certificate.
    pub fn from_files(files: &MutualFiles, host: &str) -> Result<Self, FileFault> {
        Sides::read(files, host, Duration::ZERO).map(|sides| Self(Arc::new(RwLock::new(Arc::new(sides)))))
    }

    /// Whether the files can be used, as [`from_files`](Self::from_files) would, some time from now.
    ///
    /// # Errors
    /// As there.
    pub fn check(files: &MutualFiles, host: &str, from_now: Duration) -> Result<(), FileFault> {
        Sides::read(files, host, from_now).map(|_| ())
    }

    /// Reads the files again. Connections that come from now on use them; those that are open go on as they are.
    ///
    /// # Errors
    /// As [`from_files`](Self::from_files); what was read before stays in use then.
    pub fn reload(&self, files: &MutualFiles, host: &str) -> Result<(), FileFault> {
        let read = Sides::read(files, host, Duration::ZERO)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(read);
        Ok(())
    }

    fn current(&self) -> Arc<Sides> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A stream over a connection that was accepted, of which the handshake is still to come. Whom the other side is,
    /// [`Stream::check_peer_name`] asks.
    ///
    /// # Errors
    /// None is known; those of the library.
    pub fn accept(&self, socket: TcpStream) -> io::Result<Stream> {
        let connection = ServerConnection::new(Arc::clone(&self.current().server));
        Ok(Stream::with_tls(socket, connection.map_err(|error| TlsFault::from(error).into_io())?.into()))
    }

    /// A stream to a node whose certificate has to name `host`: a name, or an IP address with or without brackets. The
    /// handshake is still to come.
    ///
    /// # Errors
    /// `host` can stand in no certificate.
    pub fn connect(&self, socket: TcpStream, host: &str) -> io::Result<Stream> {
        let connection = ClientConnection::new(Arc::clone(&self.current().client), server_name(host)?);
        Ok(Stream::with_tls(socket, connection.map_err(|error| TlsFault::from(error).into_io())?.into()))
    }
}

impl Sides {
    fn read(files: &MutualFiles, host: &str, from_now: Duration) -> Result<Self, FileFault> {
        let pair = Pair::read(&files.certificate, &files.key)?;
        let roots = Roots::File(files.ca.clone());
        let store = Arc::new(roots.store()?);
        let unusable = |error| pair_unusable(&files.certificate, &files.key, &error);
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&store), provider()).build();
        let verifier = verifier.map_err(|error| roots.unusable(&error.to_string()))?;
        let mut server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?
            .with_client_cert_verifier(Arc::clone(&verifier))
            .with_single_cert(pair.chain.clone(), pair.key.clone_key())
            .map_err(unusable)?;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let mut client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?
            .with_root_certificates(Arc::clone(&store))
            .with_client_auth_cert(pair.chain.clone(), pair.key.clone_key())
            .map_err(unusable)?;
        client.resumption = Resumption::disabled();
        check(&pair, store, &*verifier, host, from_now).map_err(|reason| FileFault::Unusable {
            origin: format!("{} with {}", files.certificate.display(), files.ca.display()),
            reason: format!("the other nodes would not accept the certificate: {reason}"),
        })?;
        Ok(Self { server: Arc::new(server), client: Arc::new(client) })
    }
}

/// Looks at a node's own certificate as the others do, whether they dial or are dialled.
fn check(
    pair: &Pair,
    store: Arc<RootCertStore>,
    as_client: &dyn ClientCertVerifier,
    host: &str,
    from_now: Duration,
) -> Result<(), String> {
    let said = |error: rustls::Error| match TlsFault::from(error) {
        TlsFault::Certificate { reason } => reason,
        other => other.to_string(),
    };
    let name = server_name(host).map_err(|error| error.to_string())?;
    let then = UnixTime::since_unix_epoch(Duration::from_secs(UnixTime::now().as_secs()).saturating_add(from_now));
    let Some((own, issuers)) = pair.chain.split_first() else { return Err("there is none".to_owned()) };
    let as_server = WebPkiServerVerifier::builder_with_provider(store, provider()).build();
    let as_server = as_server.map_err(|error| error.to_string())?;
    as_server.verify_server_cert(own, issuers, &name, &[], then).map_err(said)?;
    as_client.verify_client_cert(own, issuers, then).map_err(said)?;
    Ok(())
}

#[cfg(test)]
mod tests;
