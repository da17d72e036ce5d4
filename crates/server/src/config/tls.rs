//! The files of TLS: a certificate and its key, both or neither; and those of links between nodes, all or none.

use std::path::PathBuf;

use mortarmq_transport::MutualFiles;

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

/// The same for the links between nodes: a certificate, its key, and the CA of all of them.
pub(super) fn check_peers([certificate, key, ca]: [Option<PathBuf>; 3]) -> Result<Option<MutualFiles>, ConfigError> {
    let names = ["peer_tls_cert", "peer_tls_key", "peer_tls_ca"];
    let given = [certificate.is_some(), key.is_some(), ca.is_some()];
    if let (Some(certificate), Some(key), Some(ca)) = (certificate, key, ca) {
        return Ok(Some(MutualFiles { certificate, key, ca }));
    }
    let first = |is_given| given.iter().position(|given| *given == is_given).map(|place| names[place]);
    match (first(true), first(false)) {
        (Some(set), Some(missing)) => Err(ConfigError::PartOfPeerTls { set, missing }),
        _ => Ok(None),
    }
}
