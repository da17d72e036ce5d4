//! The server's side of TLS: its certificate and key.

use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{InconsistentKeys, ServerConfig, ServerConnection};
use tokio::net::TcpStream;

use crate::connector::provider;
use crate::fault::{FileFault, TlsFault};
use crate::pem;
use crate::stream::Stream;

/// Makes streams of a server. Clones share one certificate, also when it is read again.
#[derive(Clone, Debug)]
pub struct Acceptor(Arc<RwLock<Arc<ServerConfig>>>);

impl Acceptor {
    /// Reads a certificate chain, the server's own first, and its private key, both in PEM form.
    ///
    /// # Errors
    /// A file cannot be read, is no PEM, or the two do not belong together.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self, FileFault> {
        let Pair { chain, key: private_key } = Pair::read(certificate, key)?;
        let unusable = |error| pair_unusable(certificate, key, &error);
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_no_client_auth()
            .with_single_cert(chain, private_key)
            .map_err(unusable)?;
        Ok(Self(Arc::new(RwLock::new(Arc::new(config)))))
    }

    /// Reads both files again. Connections that come from now on use them; those that are open go on as they are.
    ///
    /// # Errors
    /// As [`Acceptor::from_files`]; the former certificate stays in use then.
    pub fn reload(&self, certificate: &Path, key: &Path) -> Result<(), FileFault> {
        let read = Self::from_files(certificate, key)?.current();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }

    fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A stream over a connection that was accepted. The handshake takes place while it is read.
    ///
    /// # Errors
    /// None is known; those of the library.
    pub fn accept(&self, socket: TcpStream) -> io::Result<Stream> {
        let connection = ServerConnection::new(self.current()).map_err(|error| TlsFault::from(error).into_io())?;
        Ok(Stream::with_tls(socket, connection.into()))
    }
}

/// A certificate chain and the key of its first certificate.
pub(crate) struct Pair {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Pair {
    pub(crate) fn read(certificate: &Path, key: &Path) -> Result<Self, FileFault> {
        let chain = pem::certificates(&pem::read(certificate)?, &certificate.display().to_string())?;
        Ok(Self { chain, key: pem::private_key(&pem::read(key)?, &key.display().to_string())? })
    }
}

/// Why TLS cannot be spoken with these two files.
pub(crate) fn pair_unusable(certificate: &Path, key: &Path, error: &rustls::Error) -> FileFault {
    let reason = match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            "the key is not that of the first certificate; give the two that were made together".to_owned()
        }
        other => format!("{other}; give an X.509 certificate and its RSA, ECDSA or Ed25519 key"),
    };
    FileFault::Unusable { origin: format!("{} with {}", key.display(), certificate.display()), reason }
}
