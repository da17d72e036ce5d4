//! What can go wrong with TLS: in the files, and with the peer.

use std::io;
use std::path::PathBuf;

use rustls::{CertificateError, InvalidMessage};

/// Why TLS ended a connection. It is the inner error of an [`io::Error`] of kind `InvalidData`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsFault {
    /// The peer speaks something else. It was sent nothing.
    #[error("the peer does not speak TLS")]
    NotTls,
    /// The peer's certificate is not good for this side.
    #[error("its certificate is not accepted: {reason}")]
    Certificate {
        /// What is wrong with it.
        reason: String,
    },
    /// The peer broke the protocol, or ended it with an alert.
    #[error("TLS failed: {reason}")]
    Broken {
        /// What was wrong, or the alert.
        reason: String,
    },
}

impl TlsFault {
    /// The fault behind an error of a [`Stream`](crate::Stream), or of another that rustls is behind, if TLS is the
    /// reason of it.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<Self> {
        let inner = error.get_ref()?;
        let of_rustls = || inner.downcast_ref::<rustls::Error>().cloned().map(Self::from);
        inner.downcast_ref().cloned().or_else(of_rustls)
    }

    pub(crate) fn into_io(self) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, self)
    }
}

impl From<rustls::Error> for TlsFault {
    fn from(error: rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => Self::NotTls,
            rustls::Error::InvalidCertificate(error) => Self::Certificate { reason: told(&error) },
            other => Self::Broken { reason: other.to_string() },
        }
    }
}

/// In words that say what to change. The library's own are for those who know it.
fn told(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => "none of the given CAs issued it".to_owned(),
        // Two CAs with the same name and other keys.
        CertificateError::BadSignature => {
            "none of the given CAs issued it, though one has the issuer's name".to_owned()
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let names: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
            format!("it is not for {}, but for {}", expected.to_str(), names.join(", "))
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet, or a clock is wrong".to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its extended key usage does not allow this; it needs serverAuth to be dialled and clientAuth to dial"
                .to_owned()
        }
        other => other.to_string(),
    }
}

/// The library prints a name with its kind: `DnsName("localhost")`.
fn bare(name: &str) -> &str {
    name.split_once('(').map_or(name, |(_, rest)| rest.trim_end_matches(')').trim_matches('"'))
}

/// Why a certificate, a key or a list of CAs cannot be used. The text names the file and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum FileFault {
    /// The file cannot be read.
    #[error("cannot read {}; give a PEM file that this process may read", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The text is no PEM, or holds nothing of the kind.
    #[error("{origin} holds no {what} ({reason}); give one in PEM form, with its BEGIN and END lines")]
    NoPem {
        /// The file, or what else was read.
        origin: String,
        /// What was looked for.
        what: &'static str,
        /// What the parser said.
        reason: String,
    },
    /// A certificate or key is damaged, of a kind that is not supported, or they do not belong together.
    #[error("{origin} cannot be used: {reason}")]
    Unusable {
        /// The files, or what else was read.
        origin: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The system's certificates were asked for, and it has none.
    #[error(
        "this system has no CA certificates ({reason}); install them (package ca-certificates), or give a PEM file"
    )]
    NoSystemRoots {
        /// What was tried.
        reason: String,
    },
}
