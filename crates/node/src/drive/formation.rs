//! How nodes with empty folders become a cluster, and why an emptied one does not become a voter (failure rule 4).
//!
//! Each node asks all others what they hold until it may begin. The one with the lowest id draws the cluster's number and promises; each
//! that sees a promise promises the same; who sees that all have promised begins. A promise is durable before anybody is told of it.

use std::collections::BTreeMap;

use mortarmq_types::{Mutant, NodeId};

/// What the folder of a node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing.
    Empty,
    /// The promise to be one of this cluster, and nothing that was ever durable.
    Promised([u8; 16]),
    /// That it has lost what it had, and asks to be readmitted to this cluster.
    Asks([u8; 16]),
    /// The data of one of this cluster.
    Member([u8; 16]),
}

/// What another node says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// What its own folder holds.
    pub standing: Standing,
    /// As which life the node that asks belongs to the cluster, as far as the other has applied the log; 0 where it does not know.
    pub life_of_asker: u32,
}

/// What a node does next on its way into its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is one of this cluster: it recovers, and votes if the log says so.
    Begin([u8; 16]),
    /// It promises to be one of the cluster; with none, of one that it draws the number of.
    Promise(Option<[u8; 16]>),
    /// It asks to be readmitted, as a life that is later than this one.
    Ask {
        /// The cluster.
        cluster: [u8; 16],
        /// The latest life that the others know of.
        above: u32,
    },
    /// The life that it asks as was admitted: it promises to be one of the cluster.
    Admitted,
    /// It has nothing while this node has data, and asks again until it is admitted.
    Outside(NodeId),
    /// It asks these again, who have not answered or not promised.
    Wait(Vec<NodeId>),
    /// It can be none of the cluster.
    Stop(Outsider),
}

/// Why a node is none of its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Outsider {
    /// Another node is one of another cluster.
    #[error(
        "node {other} belongs to another cluster: are the addresses in peers right, and has each node its own data_dir?"
    )]
    OtherCluster {
        /// The node.
        other: NodeId,
    },
    /// A later life of this node belongs to the cluster.
    #[error(
        "this node was replaced: node {other} says that a later life of it was admitted (incarnation {life}). What is in this folder is of \
         no use to the cluster any more; with an empty folder the node can be readmitted"
    )]
    Replaced {
        /// Who says so.
        other: NodeId,
        /// The later life.
        life: u32,
    },
}

/// What an operator is told of a node that has nothing while another has data.
#[must_use]
pub fn data_gone(node: NodeId, member: NodeId) -> String {
    format!(
        "this node's data is gone: node {member} has the data of its cluster, and this node's folder is empty. It must not vote with an empty \
         log; it waits to be readmitted: mortarmq members readmit {node}"
    )
}

/// What a node does next that has heard so much of the others. `own` is what its folder holds, with the life that it has, promised or asks
/// as; `others` are all nodes of the cluster but this one.
#[must_use]
pub fn next_step(node: NodeId, own: (Standing, u32), others: &[NodeId], heard: &BTreeMap<NodeId, Told>) -> Step {
    let (own, life) = own;
    // Its log says all else; who has other data is found out by the links.
    if let Standing::Member(cluster) = own {
        return Step::Begin(cluster);
    }
    if let Some(step) = beside_members(own, life, others, heard) {
        return step;
    }
    found(node, own, others, heard)
}

/// What a node does that hears of a member: the cluster is there.
fn beside_members(own: Standing, life: u32, others: &[NodeId], heard: &BTreeMap<NodeId, Told>) -> Option<Step> {
    let mine = match own {
        Standing::Member(cluster) | Standing::Promised(cluster) | Standing::Asks(cluster) => Some(cluster),
        Standing::Empty => None,
    };
    let (mut member, mut latest) = (None, (0, None));
    for (other, told) in others.iter().filter_map(|other| heard.get(other).map(|told| (*other, told))) {
        let (Standing::Member(cluster) | Standing::Promised(cluster) | Standing::Asks(cluster)) = told.standing else {
            continue;
        };
        if mine.is_some_and(|mine| mine != cluster) {
            return Some(Step::Stop(Outsider::OtherCluster { other }));
        }
        if matches!(told.standing, Standing::Member(_)) {
            member = member.or(Some((other, cluster)));
            latest = latest.max((told.life_of_asker, Some(other)));
        }
    }
    let ((other, cluster), (latest, teller)) = (member?, latest);
    Some(match own {
        Standing::Promised(_) | Standing::Member(_) if latest > life => {
            Step::Stop(Outsider::Replaced { other: teller.unwrap_or(other), life: latest })
        }
        // All had promised when it began, or it was admitted.
        Standing::Promised(cluster) | Standing::Member(cluster) => Step::Begin(cluster),
        Standing::Asks(_) if latest == life => Step::Admitted,
        Standing::Asks(cluster) if latest > life => Step::Ask { cluster, above: latest },
        Standing::Empty if Mutant::WipedNodeVotes.is_on() => Step::Promise(Some(cluster)),
        Standing::Empty if latest > 0 => Step::Ask { cluster, above: latest },
        // Nobody has said yet which life is the last.
        Standing::Empty | Standing::Asks(_) => Step::Outside(other),
    })
}

/// What a node does while nobody is known to have data.
fn found(node: NodeId, own: Standing, others: &[NodeId], heard: &BTreeMap<NodeId, Told>) -> Step {
    let promised = match own {
        Standing::Promised(cluster) | Standing::Member(cluster) => Some(cluster),
        Standing::Empty => None,
        // There was a cluster when it asked first: it does not begin another.
        Standing::Asks(_) => return Step::Wait(others.to_vec()),
    };
    let of_others = || others.iter().filter_map(|other| heard.get(other).map(|told| (*other, told.standing)));
    let silent: Vec<NodeId> = others.iter().filter(|other| !heard.contains_key(other)).copied().collect();
    if !silent.is_empty() {
        return Step::Wait(silent);
    }
    let mut promises = of_others().filter_map(|(other, standing)| match standing {
        Standing::Promised(cluster) => Some((other, cluster)),
        Standing::Empty | Standing::Asks(_) | Standing::Member(_) => None,
    });
    // One that asks has seen a cluster whose members may only be away.
    let asking: Vec<NodeId> =
        of_others().filter(|(_, standing)| matches!(standing, Standing::Asks(_))).map(|(other, _)| other).collect();
    if !asking.is_empty() {
        return Step::Wait(asking);
    }
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
    use super::{Outsider, Standing, Step, Told, data_gone, next_step};
    use mortarmq_types::NodeId;
    use std::collections::BTreeMap;

    const A: [u8; 16] = [7; 16];
    const B: [u8; 16] = [8; 16];

    fn id(node: usize) -> NodeId {
        NodeId::new(node as u16)
    }

    const LIFE: u32 = 1;

    fn told(standing: Standing, life: u32) -> Told {
        let life_of_asker = if matches!(standing, Standing::Member(_)) { life } else { 0 };
        Told { standing, life_of_asker }
    }

    /// What node `node` of three does that holds the first of these and has heard the others.
    fn step(node: usize, own: Standing, heard: &[(usize, Standing)]) -> Step {
        let others: Vec<NodeId> = (0..3).filter(|other| *other != node).map(id).collect();
        let told = |(node, standing): &(usize, Standing)| (id(*node), told(*standing, LIFE));
        next_step(id(node), (own, LIFE), &others, &heard.iter().map(told).collect())
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
                    step @ (Step::Ask { .. } | Step::Admitted | Step::Outside(_)) => panic!("{step:?}"),
                }
            }
            assert_eq!((has_begun, standings), ([true; 3], [Standing::Member(A); 3]));
        }
    }

    #[test]
    fn rule_4_an_emptied_node_never_becomes_a_voter() {
        for other in [Standing::Member(A), Standing::Promised(A), Standing::Empty] {
            let asks = Step::Ask { cluster: A, above: LIFE };
            assert_eq!(step(0, Standing::Empty, &[(1, Standing::Member(A)), (2, other)]), asks);
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
        let heard: BTreeMap<_, _> = [(id(1), told(Standing::Empty, 0))].into();
        let empty = (Standing::Empty, 0);
        assert_eq!(next_step(id(0), empty, &[id(1)], &heard), Step::Promise(None), "two nodes, none begun");
    }

    #[test]
    fn rule_4_an_emptied_node_asks_until_its_life_is_admitted_and_only_then_begins() {
        let others = [id(0), id(1)];
        let step = |own: Standing, life: u32, of_0: (Standing, u32), of_1: (Standing, u32)| {
            let heard = [(id(0), told(of_0.0, of_0.1)), (id(1), told(of_1.0, of_1.1))].into();
            next_step(id(2), (own, life), &others, &heard)
        };
        let member = |life| (Standing::Member(A), life);
        // A member that has not looked at its own log yet tells nothing.
        assert_eq!(step(Standing::Empty, 0, member(0), (Standing::Empty, 0)), Step::Outside(id(0)));
        assert_eq!(step(Standing::Empty, 0, member(0), member(5)), Step::Ask { cluster: A, above: 5 });
        let asks = Standing::Asks(A);
        assert_eq!(step(asks, 9, member(0), member(5)), Step::Outside(id(0)));
        assert_eq!(step(asks, 9, member(5), member(9)), Step::Admitted, "one has applied it, the other not yet");
        assert_eq!(step(asks, 9, member(5), member(12)), Step::Ask { cluster: A, above: 12 });
        let promised = Standing::Promised(A);
        assert_eq!(step(promised, 9, member(9), member(9)), Step::Begin(A));
        assert_eq!(step(promised, 9, member(5), member(0)), Step::Begin(A), "no other knows better");
        let replaced = Step::Stop(Outsider::Replaced { other: id(1), life: 12 });
        assert_eq!(step(promised, 9, member(9), member(12)), replaced);
        let stop = Step::Stop(Outsider::OtherCluster { other: id(1) });
        assert_eq!(step(asks, 9, member(5), (Standing::Member(B), 5)), stop);
        // While the members are away, nothing new begins.
        assert_eq!(step(asks, 9, (Standing::Empty, 0), (Standing::Empty, 0)), Step::Wait(others.to_vec()));
        let heard = [(id(1), told(Standing::Empty, 0)), (id(2), told(asks, 0))].into();
        let waits = next_step(id(0), (Standing::Empty, 0), &[id(1), id(2)], &heard);
        assert_eq!(waits, Step::Wait(vec![id(2)]));
        assert!(data_gone(id(2), id(0)).contains("mortarmq members readmit 2"));
    }
}
