//! What a node shows to those who connect over TLS, and what to the other nodes: read at the start, and again when asked for.

use mortarmq_transport::{Acceptor, FileFault, Mutual, MutualFiles};

use crate::config::{Config, TlsFiles};
use crate::server::StartError;

/// Both, as far as they are configured.
pub(crate) struct Certificates {
    clients: Option<(Acceptor, TlsFiles)>,
    peers: Option<Peers>,
}

struct Peers {
    sides: Mutual,
    files: MutualFiles,
    /// By which the others know this node.
    host: String,
}

impl Certificates {
    /// Reads the files that the configuration names.
    ///
    /// # Errors
    /// One of them cannot be used.
    pub(crate) fn read(config: &Config) -> Result<Self, StartError> {
        let clients = config.tls.clone().map(|files| {
            let acceptor = Acceptor::from_files(&files.certificate, &files.key).map_err(StartError::Tls);
            acceptor.map(|acceptor| (acceptor, files))
        });
        let of_peers = config.cluster.as_ref().and_then(|cluster| cluster.tls_of(config.node_id));
        let peers = of_peers.map(|(files, host)| {
            let (files, host) = (files.clone(), host.to_owned());
            let sides = Mutual::from_files(&files, &host).map_err(StartError::PeerTls);
            sides.map(|sides| Peers { sides, files, host })
        });
        Ok(Self { clients: clients.transpose()?, peers: peers.transpose()? })
    }

    /// For the listeners of clients and operators.
    pub(crate) fn acceptor(&self) -> Option<Acceptor> {
        self.clients.as_ref().map(|(acceptor, _)| acceptor.clone())
    }

    /// For the links between nodes.
    pub(crate) fn peers(&self) -> Option<&Mutual> {
        self.peers.as_ref().map(|peers| &peers.sides)
    }

    /// Reads all of them again, or changes nothing; `false` where there are none.
    pub(crate) fn reload(&self) -> Result<bool, FileFault> {
        if let Some(Peers { files, host, .. }) = &self.peers {
            Mutual::check(files, host, std::time::Duration::ZERO)?;
        }
        if let Some((acceptor, files)) = &self.clients {
            acceptor.reload(&files.certificate, &files.key)?;
        }
        if let Some(Peers { sides, files, host }) = &self.peers {
            sides.reload(files, host)?;
        }
        Ok(self.clients.is_some() || self.peers.is_some())
    }
}
