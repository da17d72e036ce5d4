//! The nodes of a cluster: who they are, where they are reached, and the secret that they share.

use std::net::SocketAddr;

use mortarmq_transport::MutualFiles;
use mortarmq_types::NodeId;
use serde::Deserialize;

use super::{ConfigError, Source};
use crate::peers::Secret;

/// A node of the cluster, as each of them has it in `peers`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerAddress {
    /// The node's id.
    pub id: u16,
    /// Where the other nodes reach it: a host and a port.
    pub peer: String,
    /// Where clients reach it.
    pub client: String,
    /// Where clients of the HTTP queue API reach it.
    #[serde(default)]
    pub http: Option<String>,
}

/// The cluster that a node belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// All nodes, this one among them, in the order of the configuration.
    pub peers: Vec<PeerAddress>,
    /// Where this node takes the links of the others.
    pub listen_peer: SocketAddr,
    pub(crate) secret: Secret,
    /// With them the links are encrypted, and none is made without.
    pub tls: Option<MutualFiles>,
}

impl Cluster {
    /// The ids of all nodes, rising.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = self.peers.iter().map(|peer| NodeId::new(peer.id)).collect();
        nodes.sort_unstable();
        nodes
    }

    /// The ids of all nodes but one, rising.
    #[must_use]
    pub fn others(&self, node: NodeId) -> Vec<NodeId> {
        self.nodes().into_iter().filter(|other| *other != node).collect()
    }
}

impl Cluster {
    /// By which name the others know a node: the host of its address in `peers`. A certificate of it has this one.
    #[must_use]
    pub fn host(&self, node: NodeId) -> &str {
        let peer = self.peers.iter().find(|peer| peer.id == node.get());
        peer.map_or("", |peer| host_of(&peer.peer))
    }

    /// The files of TLS, and the name that the node's certificate has; none where links are not encrypted.
    #[must_use]
    pub fn tls_of(&self, node: NodeId) -> Option<(&MutualFiles, &str)> {
        Some((self.tls.as_ref()?, self.host(node)))
    }
}

/// The host of an address that has a port; an IPv6 address keeps its brackets.
pub(crate) fn host_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

/// Reads the list of nodes.
pub(super) fn read(text: &str) -> Result<Vec<PeerAddress>, String> {
    let peers: Vec<PeerAddress> = serde_json::from_str(text).map_err(|error| format!("{EXPECTED}: {error}"))?;
    let mut ids: Vec<u16> = peers.iter().map(|peer| peer.id).collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.len() != peers.len() {
        return Err("two of the nodes have the same id; give each node its own".to_owned());
    }
    if peers.len() > mortarmq_node::PEERS_MAX {
        return Err(format!("a cluster has at most {} nodes", mortarmq_node::PEERS_MAX));
    }
    for peer in &peers {
        for address in [Some(&peer.peer), Some(&peer.client), peer.http.as_ref()].into_iter().flatten() {
            let port =
                address.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
            if !matches!(port, Some(Ok(1..))) {
                return Err(format!(
                    "{address:?} of node {} is no address; give a host and a port, such as 10.0.0.1:7189",
                    peer.id
                ));
            }
        }
    }
    Ok(peers)
}

/// What of a cluster is configured: all that it needs, or nothing.
pub(super) fn check(
    node_id: NodeId,
    (peers, source): (Vec<PeerAddress>, Source),
    listen_peer: SocketAddr,
    secret: Option<Secret>,
    tls: Option<MutualFiles>,
) -> Result<Option<Cluster>, ConfigError> {
    let refused = |found: String, expected: &str| ConfigError::Value {
        key: "peers",
        found,
        source_place: source.clone(),
        expected: expected.to_owned(),
    };
    if peers.is_empty() {
        return Ok(None);
    }
    let ids: Vec<String> = peers.iter().map(|peer| peer.id.to_string()).collect();
    let named = format!("nodes {}", ids.join(", "));
    if !peers.iter().any(|peer| peer.id == node_id.get()) {
        return Err(refused(
            named,
            &format!("node_id is {node_id}, which is none of them; add this node, or set its node_id"),
        ));
    }
    if peers.len() == 1 {
        return Err(refused(named, "leave peers out for a single node"));
    }
    let Some(secret) = secret else {
        return Err(refused(
            named,
            "set peer_secret too, the same on every node: it keeps strangers out of the cluster",
        ));
    };
    Ok(Some(Cluster { peers, listen_peer, secret, tls }))
}

/// What the list looks like.
pub(super) const EXPECTED: &str =
    "give a list such as [{\"id\":0,\"peer\":\"10.0.0.1:7189\",\"client\":\"10.0.0.1:7188\"}]";

#[cfg(test)]
mod tests {
    use super::{Cluster, check, read};
    use crate::config::Source;
    use crate::peers::Secret;
    use mortarmq_types::NodeId;

    const TWO: &str =
        r#"[{"id":1,"peer":"a:7189","client":"a:7188"},{"id":0,"peer":"[::1]:1","client":"b:7188","http":"b:80"}]"#;

    fn checked(node: u16, peers: &str, secret: Option<&str>) -> Result<Option<Cluster>, String> {
        let secret = secret.and_then(Secret::new);
        let listen = "127.0.0.1:0".parse().expect("an address");
        check(NodeId::new(node), (read(peers)?, Source::Default), listen, secret, None)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_cluster_has_all_that_it_needs_or_is_refused_with_what_to_do() {
        let cluster = checked(1, TWO, Some("sixteen letters!")).expect("sound").expect("of two nodes");
        assert_eq!(cluster.nodes(), [0, 1].map(NodeId::new));
        assert_eq!([0, 1].map(|node| cluster.host(NodeId::new(node))), ["[::1]", "a"]);
        assert_eq!(checked(1, "[]", None), Ok(None), "a single node");
        for (node, peers, secret, said) in [
            (2, TWO, Some("sixteen letters!"), "node_id is 2, which is none of them"),
            (1, TWO, None, "set peer_secret too"),
            (1, &TWO[..TWO.find(",{").expect("two")].replace('}', "}]"), None, "leave peers out"),
            (1, r#"[{"id":1,"peer":"a","client":"a:1"}]"#, None, "give a host and a port"),
            (1, r#"[{"id":1,"peer":"a:0","client":"a:1"}]"#, None, "give a host and a port"),
            (1, r#"[{"id":1,"client":"a:1"}]"#, None, "missing field `peer`"),
            (1, r#"[{"id":1,"peer":"a:1","client":"a:1","htpp":"a:1"}]"#, None, "unknown field `htpp`"),
            (1, r#"[{"id":1,"peer":"a:1","client":"a:1"},{"id":1,"peer":"b:1","client":"b:1"}]"#, None, "the same id"),
        ] {
            let refused = checked(node, peers, secret).expect_err(said);
            assert!(refused.contains(said), "{refused}");
        }
    }
}
