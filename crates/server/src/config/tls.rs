//! The files of TLS: a certificate and its key, both or neither.

use std::path::PathBuf;

use super::ConfigError;

/// Where the certificate chain and the private key of a node are, both in PEM form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain, the node's own first.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Refuses one without the other: a node that falls back to no TLS would show what was to be hidden.
pub(super) fn check(certificate: Option<PathBuf>, key: Option<PathBuf>) -> Result<Option<TlsFiles>, ConfigError> {
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(TlsFiles { certificate, key })),
        (Some(_), None) => Err(ConfigError::HalfTls { set: "tls_cert", missing: "tls_key" }),
        (None, Some(_)) => Err(ConfigError::HalfTls { set: "tls_key", missing: "tls_cert" }),
    }
}
