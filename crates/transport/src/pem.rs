//! Reading PEM: certificates and keys.

use std::path::Path;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};

use crate::fault::FileFault;

/// The bytes of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, FileFault> {
    std::fs::read(path).map_err(|source| FileFault::Read { path: path.to_path_buf(), source })
}

/// Every certificate of a text, in its order; at least one.
pub(crate) fn certificates(text: &[u8], origin: &str) -> Result<Vec<CertificateDer<'static>>, FileFault> {
    let no_pem = |error: pem::Error| no_pem(origin, "certificate", &error);
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(text).collect::<Result<_, _>>().map_err(no_pem)?;
    if certificates.is_empty() { Err(no_pem(pem::Error::NoItemsFound)) } else { Ok(certificates) }
}

/// The first private key of a text.
pub(crate) fn private_key(text: &[u8], origin: &str) -> Result<PrivateKeyDer<'static>, FileFault> {
    PrivateKeyDer::from_pem_slice(text).map_err(|error| no_pem(origin, "private key", &error))
}

fn no_pem(origin: &str, what: &'static str, error: &pem::Error) -> FileFault {
    let reason = match error {
        pem::Error::NoItemsFound => "there is none in it".to_owned(),
        other => other.to_string(),
    };
    FileFault::NoPem { origin: origin.to_owned(), what, reason }
}
