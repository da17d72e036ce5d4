//! How nodes with empty folders become a cluster, and why an emptied one does not become a voter (failure rule 4).
//!
//! Each node asks all others what they hold until it may begin. The one with the lowest id draws the cluster's number and promises; each
//! that sees a promise promises the same; who sees that all have promised begins. A promise is durable before anybody is told of it.

use std::collections::BTreeMap;

use mortarmq_types::NodeId;

/// What the folder of a node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing.
    Empty,
    /// The promise to be one of this cluster, and nothing that was ever durable.
    Promised([u8; 16]),
    /// The data of one of this cluster.
    Member([u8; 16]),
}

/// What a node does next on its way into its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is one of this cluster: it recovers, and votes.
    Begin([u8; 16]),
    /// It promises to be one of the cluster; with none, of one that it draws the number of.
    Promise(Option<[u8; 16]>),
    /// It asks these again, who have not answered or not promised.
    Wait(Vec<NodeId>),
    /// It can be none of the cluster.
    Stop(Outsider),
}

/// Why a node is none of its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Outsider {
    /// The cluster is there, and this node has nothing of it.
    #[error(
        "this node's data is gone: node {member} has the data of its cluster, and this node's folder is empty. It must not vote with an \
         empty log: put its data back"
    )]
    DataGone {
        /// A node that has data.
        member: NodeId,
    },
    /// Another node is one of another cluster.
    #[error(
        "node {other} belongs to another cluster: are the addresses in peers right, and has each node its own data_dir?"
    )]
    OtherCluster {
        /// The node.
        other: NodeId,
    },
}

/// What a node does next that has heard so much of the others. `others` are all nodes of the cluster but this one.
#[must_use]
pub fn next_step(node: NodeId, own: Standing, others: &[NodeId], heard: &BTreeMap<NodeId, Standing>) -> Step {
    let promised = match own {
        // Its log says all else; who has other data is found out by the links.
        Standing::Member(cluster) => return Step::Begin(cluster),
        Standing::Promised(cluster) => Some(cluster),
        Standing::Empty => None,
    };
    let of_others = || others.iter().filter_map(|other| heard.get(other).map(|standing| (*other, *standing)));
    for (other, standing) in of_others() {
        match (standing, promised) {
            (Standing::Member(cluster) | Standing::Promised(cluster), Some(mine)) if cluster != mine => {
                return Step::Stop(Outsider::OtherCluster { other });
            }
            (Standing::Member(_), None) => return Step::Stop(Outsider::DataGone { member: other }),
            // All had promised when it began.
            (Standing::Member(cluster), Some(_)) => return Step::Begin(cluster),
            (Standing::Promised(_) | Standing::Empty, _) => {}
        }
    }
    let silent: Vec<NodeId> = others.iter().filter(|other| !heard.contains_key(other)).copied().collect();
    if !silent.is_empty() {
        return Step::Wait(silent);
    }
    let mut promises = of_others().filter_map(|(other, standing)| match standing {
        Standing::Promised(cluster) => Some((other, cluster)),
        Standing::Empty | Standing::Member(_) => None,
    });
    let Some(mine) = promised else {
        // Nobody has data, so whoever promised before has had none either.
        return match promises.next() {
            Some((_, cluster)) => match promises.find(|(_, other)| *other != cluster) {
                Some((other, _)) => Step::Stop(Outsider::OtherCluster { other }),
                None => Step::Promise(Some(cluster)),
            },
            None if others.iter().all(|other| node < *other) => Step::Promise(None),
            None => Step::Wait(others.iter().min().copied().into_iter().collect()),
        };
    };
    let open: Vec<NodeId> =
        of_others().filter(|(_, standing)| *standing == Standing::Empty).map(|(other, _)| other).collect();
    if open.is_empty() { Step::Begin(mine) } else { Step::Wait(open) }
}

#[cfg(test)]
mod tests {
    use super::{Outsider, Standing, Step, next_step};
    use mortarmq_types::NodeId;
    use std::collections::BTreeMap;

    const A: [u8; 16] = [7; 16];
    const B: [u8; 16] = [8; 16];

    fn id(node: usize) -> NodeId {
        NodeId::new(node as u16)
    }

    /// What node `node` of three does that holds the first of these and has heard the others.
    fn step(node: usize, own: Standing, heard: &[(usize, Standing)]) -> Step {
        let others: Vec<NodeId> = (0..3).filter(|other| *other != node).map(id).collect();
        next_step(id(node), own, &others, &heard.iter().map(|(node, standing)| (id(*node), *standing)).collect())
    }

    #[test]
    fn rule_4_whatever_the_order_three_empty_nodes_become_one_cluster() {
        // Every order in which one of three looks at the others and acts, without a look back: 3^9 of them.
        for order in 0..3_usize.pow(9) {
            let mut standings = [Standing::Empty; 3];
            let mut has_begun = [false; 3];
            for turn in (0..9).map(|digit| order / 3_usize.pow(digit) % 3).chain([0, 1, 2, 0, 1, 2, 0, 1, 2]) {
                let heard: Vec<_> =
                    (0..3).filter(|other| *other != turn).map(|other| (other, standings[other])).collect();
                match step(turn, standings[turn], &heard) {
                    Step::Promise(cluster) => standings[turn] = Standing::Promised(cluster.unwrap_or(A)),
                    Step::Begin(cluster) => {
                        assert!(standings.iter().all(|standing| *standing != Standing::Empty), "all have promised");
                        (has_begun[turn], standings[turn]) = (true, Standing::Member(cluster));
                    }
                    Step::Wait(_) => {}
                    Step::Stop(why) => panic!("{why}"),
                }
            }
            assert_eq!((has_begun, standings), ([true; 3], [Standing::Member(A); 3]));
        }
    }

    #[test]
    fn rule_4_an_emptied_node_never_becomes_a_voter() {
        for other in [Standing::Member(A), Standing::Promised(A), Standing::Empty] {
            let gone = Step::Stop(Outsider::DataGone { member: id(1) });
            assert_eq!(step(0, Standing::Empty, &[(1, Standing::Member(A)), (2, other)]), gone);
        }
        // One who does not answer may be the one that has data.
        assert_eq!(step(0, Standing::Empty, &[(1, Standing::Promised(A))]), Step::Wait(vec![id(2)]));
        assert_eq!(step(0, Standing::Empty, &[(1, Standing::Empty)]), Step::Wait(vec![id(2)]));
        assert_eq!(step(0, Standing::Promised(A), &[(1, Standing::Promised(A))]), Step::Wait(vec![id(2)]));
    }

    #[test]
    fn rule_4_who_promised_goes_on_when_the_cluster_has_begun_without_it() {
        assert_eq!(step(0, Standing::Promised(A), &[(2, Standing::Member(A))]), Step::Begin(A));
        assert_eq!(step(0, Standing::Member(A), &[]), Step::Begin(A));
        // A promise is taken up where it was left.
        let heard = [(0, Standing::Empty), (2, Standing::Promised(A))];
        assert_eq!(step(1, Standing::Empty, &heard), Step::Promise(Some(A)));
        assert_eq!(step(1, Standing::Promised(A), &heard), Step::Wait(vec![id(0)]));
    }

    #[test]
    fn rule_4_nodes_of_two_clusters_do_not_become_one() {
        let stop = |other| Step::Stop(Outsider::OtherCluster { other: id(other) });
        assert_eq!(step(0, Standing::Promised(A), &[(1, Standing::Member(B))]), stop(1));
        assert_eq!(step(0, Standing::Promised(A), &[(1, Standing::Promised(B))]), stop(1));
        assert_eq!(step(0, Standing::Empty, &[(1, Standing::Promised(A)), (2, Standing::Promised(B))]), stop(2));
        let heard: BTreeMap<_, _> = [(id(1), Standing::Empty)].into();
        assert_eq!(next_step(id(0), Standing::Empty, &[id(1)], &heard), Step::Promise(None), "two nodes, none begun");
    }
}
