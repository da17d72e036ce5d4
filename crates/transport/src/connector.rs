//! The client's side of TLS: whom it trusts.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::net::TcpStream;

use crate::fault::{FileFault, TlsFault};
use crate::pem;
use crate::stream::Stream;

/// The CAs that a client trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roots {
    /// Those of a PEM file.
    File(PathBuf),
    /// Those of a PEM text.
    Pem(Vec<u8>),
    /// Those of the operating system.
    System,
}

impl Roots {
    /// The certificates.
    ///
    /// # Errors
    /// A file or text that is no list of certificates; a system that has none.
    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, FileFault> {
        match self {
            Self::File(path) => pem::certificates(&pem::read(path)?, &path.display().to_string()),
            Self::Pem(text) => pem::certificates(text, GIVEN),
            Self::System => {
                let found = rustls_native_certs::load_native_certs();
                if found.certs.is_empty() {
                    let reason = found.errors.first().map_or_else(|| "none found".to_owned(), ToString::to_string);
                    return Err(FileFault::NoSystemRoots { reason });
                }
                Ok(found.certs)
            }
        }
    }

    /// As those who verify take them.
    pub(crate) fn store(&self) -> Result<RootCertStore, FileFault> {
        let mut store = RootCertStore::empty();
        let (usable, _) = store.add_parsable_certificates(self.certificates()?);
        if usable == 0 { Err(self.unusable("none of its certificates can be read")) } else { Ok(store) }
    }

    pub(crate) fn unusable(&self, reason: &str) -> FileFault {
        FileFault::Unusable { origin: self.origin(), reason: format!("{reason}; give a CA") }
    }

    fn origin(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Pem(_) => GIVEN.to_owned(),
            Self::System => "the system's list of CAs".to_owned(),
        }
    }
}

/// `system` for the certificates of the operating system, else a PEM file.
impl From<&Path> for Roots {
    fn from(path: &Path) -> Self {
        if path == Path::new("system") { Self::System } else { Self::File(path.to_path_buf()) }
    }
}

/// Makes streams of a client. Clones share what is known of servers, so that a second handshake is shorter.
#[derive(Clone, Debug)]
pub struct Connector(Arc<ClientConfig>);

impl Connector {
    /// Trusts these CAs and no others.
    ///
    /// # Errors
    /// Those of [`Roots::certificates`]; a certificate of which none can be used.
    pub fn new(roots: &Roots) -> Result<Self, FileFault> {
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| roots.unusable(&error.to_string()))?
            .with_root_certificates(roots.store()?)
            .with_no_client_auth();
        Ok(Self(Arc::new(config)))
    }

    /// A stream to a server whose certificate has to name `host`: a name, or an IP address with or without brackets. The
    /// handshake takes place while it is read.
    ///
    /// # Errors
    /// `host` can stand in no certificate.
    pub fn connect(&self, socket: TcpStream, host: &str) -> io::Result<Stream> {
        let name = server_name(host)?;
        let connection = ClientConnection::new(Arc::clone(&self.0), name);
        let connection = connection.map_err(|error| TlsFault::from(error).into_io())?;
        Ok(Stream::with_tls(socket, connection.into()))
    }
}

/// What a certificate has to name: a name, or an IP address with or without brackets.
pub(crate) fn server_name(host: &str) -> io::Result<ServerName<'static>> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(bare.to_owned()).map_err(|_| {
        let reason = format!("no certificate can name {host:?}");
        TlsFault::Certificate { reason }.into_io()
    })
}

/// Whether a certificate can name this: a host name, or an IP address without brackets.
#[must_use]
pub fn is_host(name: &str) -> bool {
    ServerName::try_from(name).is_ok()
}

/// The cryptography that both sides use. Named wherever TLS is set up: a default of the process could be another's.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

const GIVEN: &str = "the given text";
