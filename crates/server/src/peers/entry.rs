//! A node's way into its cluster: it listens for the others, finds out whose data it has, and makes its links.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mortarmq_node::drive::Standing;
use mortarmq_storage::{Disk, Identity, IdentityError, IdentityState};
use mortarmq_transport::Mutual;
use mortarmq_types::NodeId;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::assembly::{AssemblyError, assemble};
use super::card::Card;
use super::handshake::OwnSide;
use super::incoming::{Gate, PeerListener};
use super::known::Known;
use super::lives::Lives;
use super::outgoing::{Dial, PeerLinks};
use super::tls::Threshold;
use super::waiting_room::Why;
use crate::config::{Cluster, PeerAddress};
use crate::inbox::EventSender;
use crate::relay::{Doors, Relay};
use crate::server::StartError;
use crate::shared::Status;

/// A node that listens for the others of its cluster.
pub(crate) struct Entry {
    own: OwnSide,
    others: Vec<Dial>,
    gate: Arc<Gate>,
    /// What operators are told of the links.
    pub(crate) known: Arc<Known>,
    /// Where it listens.
    pub(crate) address: SocketAddr,
}

impl Entry {
    /// Listens. Nothing that is said is heard yet, but who asks what this node's folder holds is told.
    pub(crate) fn begin(
        runtime: &Runtime,
        node: NodeId,
        cluster: &Cluster,
        data_dir: &Path,
        tls: Option<&Mutual>,
    ) -> Result<Self, StartError> {
        let failed = |source| StartError::Bind { key: "listen_peer", address: cluster.listen_peer, source };
        let listener = runtime.block_on(TcpListener::bind(cluster.listen_peer)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (nodes, secret, lives) = (cluster.nodes(), cluster.secret.clone(), Lives::default());
        let own = OwnSide { node, incarnation: 0, cluster: None, nodes, secret, lives };
        let others = cluster.peers.iter().filter(|peer| peer.id != node.get());
        let dial =
            |peer: &PeerAddress| Dial { node: NodeId::new(peer.id), address: peer.peer.clone(), tls: tls.cloned() };
        let others: Vec<Dial> = others.map(dial).collect();
        let known = Arc::new(Known::new(Card::own(&cluster.peers, data_dir), &others));
        // Until its folder was looked at, it is not said to be empty: whoever begins a cluster must not rely on that.
        let gate = Arc::new(Gate::new(own.clone(), Arc::clone(&known)));
        let threshold = Arc::new(Threshold::new(cluster, tls.cloned()));
        runtime.spawn(PeerListener { listener, gate: Arc::clone(&gate), threshold }.run());
        Ok(Self { own, others, gate, known, address })
    }

    /// Whose data the folder has; waits for the others where it has none.
    pub(crate) async fn identity(
        &mut self,
        disk: &dyn Disk,
        data_dir: &Path,
        why: &Why,
    ) -> Result<Identity, AssemblyError> {
        let identity = assemble((disk, data_dir), &self.own, &self.others, &self.gate, why).await?;
        (self.own.incarnation, self.own.cluster) = (identity.incarnation, Some(identity.cluster_id));
        Ok(identity)
    }

    /// Begins to dial the others.
    pub(crate) fn links(&self, runtime: &Runtime) -> PeerLinks {
        PeerLinks::begin(&self.own, &self.others, &self.known, runtime.handle())
    }

    /// From now on the others are heard.
    pub(crate) fn open(&self, events: EventSender) {
        self.gate.open(self.own.clone(), events);
    }

    /// This node serves: from now on it also serves those that came to another one.
    pub(crate) fn open_doors(&self, doors: Doors) {
        self.gate.open_doors(doors);
    }

    /// The way to whichever node leads, for those that come to this one.
    pub(crate) fn relay(&self, status: &Arc<Status>) -> Relay {
        Relay::new(self.own.clone(), self.others.clone(), Arc::clone(status))
    }

    /// What is to be done when the first batch is durable, if the folder holds a promise only.
    pub(crate) fn promise(&self, disk: &Arc<dyn Disk>, data_dir: &Path, identity: Identity) -> Option<Promise> {
        let (disk, data_dir, gate) = (Arc::clone(disk), data_dir.to_path_buf(), Arc::clone(&self.gate));
        (identity.state == IdentityState::Promise).then_some(Promise { disk, data_dir, identity, gate })
    }
}

/// The promise to be one of a cluster, until something is durable.
pub(crate) struct Promise {
    disk: Arc<dyn Disk>,
    data_dir: PathBuf,
    identity: Identity,
    gate: Arc<Gate>,
}

impl Promise {
    /// Something is durable, and nobody was told: from now on an empty journal is a loss.
    pub(crate) fn fulfil(mut self) -> Result<(), IdentityError> {
        self.identity.fulfil(&*self.disk, &self.data_dir)?;
        self.gate.show(Standing::Member(self.identity.cluster_id));
        Ok(())
    }
}
