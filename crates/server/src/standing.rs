//! How a node stands in its cluster, as its operators are told: its role, whether it is ready, how the others follow.

use mortarmq_http::{PeerStatus, Replication, Role};
use mortarmq_node::{PeerState, PeerView};
use mortarmq_types::NodeId;

use crate::peers::Known;
use crate::shared::OfficeStatus;

/// What this node is.
pub(crate) fn role(node: NodeId, leader: Option<NodeId>) -> Role {
    match leader {
        Some(leader) if leader == node => Role::Leader,
        Some(_) => Role::Follower,
        None => Role::None,
    }
}

/// Why a node serves nothing; `serves` is whether it leads and has applied the end of its log.
pub(crate) fn why_not_ready(role: Role, serves: bool, office: &OfficeStatus) -> Option<String> {
    match role {
        Role::Leader if serves => None,
        Role::Leader => Some("the node leads and is still applying the end of its log".to_owned()),
        Role::Follower if office.catches_up => {
            Some("the node is being brought up by files of the one that leads".to_owned())
        }
        Role::Follower => None,
        Role::None => Some("no leader is known to this node".to_owned()),
    }
}

/// The other nodes, by id.
pub(crate) fn peers(others: &[NodeId], office: &OfficeStatus, links: Option<&Known>) -> Vec<PeerStatus> {
    let status = |node: &NodeId| {
        let view = office.peers.iter().find(|view| view.node_id == *node);
        let link = links.and_then(|links| links.status(*node));
        PeerStatus { id: node.get(), link, replication: view.map(replication) }
    };
    others.iter().map(status).collect()
}

/// What is worse than it should be of how the others follow, one sentence each.
pub(crate) fn degraded(office: &OfficeStatus) -> impl Iterator<Item = String> {
    office.peers.iter().filter_map(|view| {
        let node = view.node_id;
        if view.learns {
            return Some(format!("node {node} is being readmitted: it does not vote yet"));
        }
        match view.state {
            PeerState::Current => None,
            PeerState::Lagging => {
                let lag_mib = view.lag_bytes.unwrap_or_default() >> 20;
                Some(format!("node {node} lags by {lag_mib} MiB"))
            }
            PeerState::CatchUpRequired => Some(format!("node {node} is being brought up by files")),
            PeerState::Silent => Some(match view.silent_ms {
                Some(ms) => format!("node {node} was not heard for {} s", ms.div_ceil(1000)),
                None => format!("node {node} was not heard since this node leads"),
            }),
        }
    })
}

fn replication(view: &PeerView) -> Replication {
    let PeerView { state, lag_entries, lag_bytes, silent_ms, .. } = *view;
    Replication { state: state.word(), lag_entries, lag_bytes, silent_ms }
}

#[cfg(test)]
mod tests {
    use super::{degraded, peers, role, why_not_ready};
    use crate::shared::OfficeStatus;
    use mortarmq_http::Role;
    use mortarmq_node::{PeerState, PeerView};
    use mortarmq_types::NodeId;

    fn view(node: u16, state: PeerState, lag_bytes: Option<u64>, silent_ms: Option<u64>) -> PeerView {
        PeerView { node_id: NodeId::new(node), learns: false, state, lag_bytes, lag_entries: 3, silent_ms }
    }

    #[test]
    fn a_follower_that_hears_a_leader_is_ready_and_one_that_is_brought_up_by_files_is_not() {
        let (node, other) = (NodeId::new(1), NodeId::new(2));
        assert_eq!(
            [None, Some(node), Some(other)].map(|leader| role(node, leader)),
            [Role::None, Role::Leader, Role::Follower]
        );
        let well = OfficeStatus::default();
        let behind = OfficeStatus { catches_up: true, ..OfficeStatus::default() };
        assert_eq!(why_not_ready(Role::Follower, false, &well), None);
        assert_eq!(why_not_ready(Role::Leader, true, &well), None);
        for (role, office) in [(Role::Follower, &behind), (Role::Leader, &well), (Role::None, &well)] {
            assert!(why_not_ready(role, false, office).is_some(), "{role:?}");
        }
    }

    #[test]
    fn what_is_worse_than_it_should_be_is_told_of_each_node() {
        let office = OfficeStatus {
            peers: vec![
                view(0, PeerState::Current, Some(0), Some(50)),
                view(1, PeerState::Lagging, Some(70 << 20), Some(0)),
                view(3, PeerState::CatchUpRequired, None, Some(0)),
                view(4, PeerState::Silent, Some(9), Some(1200)),
                view(5, PeerState::Silent, Some(9), None),
            ],
            ..OfficeStatus::default()
        };
        let told: Vec<String> = degraded(&office).collect();
        assert_eq!(
            told,
            [
                "node 1 lags by 70 MiB",
                "node 3 is being brought up by files",
                "node 4 was not heard for 2 s",
                "node 5 was not heard since this node leads",
            ]
        );
        let shown = peers(&[NodeId::new(1), NodeId::new(2)], &office, None);
        assert_eq!(shown[0].replication.map(|known| (known.state, known.lag_bytes)), Some(("lagging", Some(70 << 20))));
        assert_eq!((shown[1].id, shown[1].replication), (2, None), "it is not followed from here");
    }
}
