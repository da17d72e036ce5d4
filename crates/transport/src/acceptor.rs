//! The server's side of TLS: its certificate and key.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::{InconsistentKeys, ServerConfig, ServerConnection};
use tokio::net::TcpStream;

use crate::connector::provider;
use crate::fault::{FileFault, TlsFault};
use crate::pem;
use crate::stream::Stream;

/// Makes streams of a server. Clones share one certificate.
#[derive(Clone, Debug)]
pub struct Acceptor(Arc<ServerConfig>);

impl Acceptor {
    /// Reads a certificate chain, the server's own first, and its private key, both in PEM form.
    ///
    /// # Errors
    /// A file cannot be read, is no PEM, or the two do not belong together.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self, FileFault> {
        let (certificate_name, key_name) = (certificate.display().to_string(), key.display().to_string());
        let chain = pem::certificates(&pem::read(certificate)?, &certificate_name)?;
        let private_key = pem::private_key(&pem::read(key)?, &key_name)?;
        let unusable = |error: rustls::Error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => FileFault::Unusable {
                origin: format!("{key_name} with {certificate_name}"),
                reason: "the key is not that of the first certificate; give the two that were made together".to_owned(),
            },
            other => FileFault::Unusable {
                origin: format!("{key_name} with {certificate_name}"),
                reason: format!("{other}; give an X.509 certificate and its RSA, ECDSA or Ed25519 key"),
            },
        };
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_no_client_auth()
            .with_single_cert(chain, private_key)
            .map_err(unusable)?;
        Ok(Self(Arc::new(config)))
    }

    /// A stream over a connection that was accepted. The handshake takes place while it is read.
    ///
    /// # Errors
    /// None is known; those of the library.
    pub fn accept(&self, socket: TcpStream) -> io::Result<Stream> {
        let connection = ServerConnection::new(Arc::clone(&self.0)).map_err(|error| TlsFault::from(error).into_io())?;
        Ok(Stream::with_tls(socket, connection.into()))
    }
}
