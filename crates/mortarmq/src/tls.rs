//! `--tls-ca`: which broker a command believes to be the one it was told to talk to.

use std::path::PathBuf;
use std::sync::Arc;

use mortarmq_client::{Roots, TlsOptions};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::errors::{Failure, chain};

/// Whether TLS is spoken, and whom it trusts.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct TlsArgs {
    /// Speak TLS, and trust the CAs of this PEM file alone; "system" takes those of the system
    #[arg(long, env = "MORTARMQ_TLS_CA", value_name = "FILE")]
    tls_ca: Option<PathBuf>,
}

impl TlsArgs {
    /// Whether TLS is asked for.
    pub(crate) const fn is_given(&self) -> bool {
        self.tls_ca.is_some()
    }

    /// For the wire protocol.
    ///
    /// # Errors
    /// Bad arguments, when the CAs cannot be used.
    pub(crate) fn options(&self) -> Result<Option<TlsOptions>, Failure> {
        let Some(path) = &self.tls_ca else { return Ok(None) };
        let roots = Roots::from(path.as_path());
        // Here a file that is wrong is a bad argument, and not a broker that cannot be reached.
        mortarmq_transport::Connector::new(&roots).map_err(|error| Failure::arguments(chain(&error), REMEDY))?;
        Ok(Some(TlsOptions { roots }))
    }

    /// For the operator routes.
    ///
    /// # Errors
    /// As [`Self::options`].
    pub(crate) fn config(&self) -> Result<Option<TlsConfig>, Failure> {
        let Some(options) = self.options()? else { return Ok(None) };
        let certificates = options.roots.certificates();
        let certificates = certificates.map_err(|error| Failure::arguments(chain(&error), REMEDY))?;
        let certificates = certificates.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
        let config = TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(certificates)))
            .unversioned_rustls_crypto_provider(mortarmq_transport::provider());
        Ok(Some(config.build()))
    }
}

const REMEDY: &str = "give the CA of the broker: --tls-ca FILE      (mortarmq init writes mortarmq-ca.pem)";
