//! Whose data a folder holds (failure rule 4).

use std::io;
use std::path::{Path, PathBuf};

use mortarmq_storage::{Disk, Identity, IdentityError, IdentityState, Journal, Repairing, has_data};
use mortarmq_types::NodeId;

/// Why the folder cannot be used as this node's.
#[derive(Debug, thiserror::Error)]
pub enum ForeignData {
    /// The identity file is damaged, or cannot be read or written.
    #[error("cannot use the identity of the data")]
    Identity(#[source] IdentityError),
    /// The folder cannot be looked at.
    #[error("cannot read {}", .path.display())]
    Read {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is data, and nothing says whose.
    #[error(
        "{} holds data but no identity file: it was removed, or the folder is of an earlier development version; \
         restore the file, or start with an empty folder", .path.display()
    )]
    Missing {
        /// The folder.
        path: PathBuf,
    },
    /// Nothing is left of what this node had.
    #[error(
        "this node's data is gone: {} says that it was node {node_id} of its cluster, and its journal is not there. \
         It must not vote with an empty log: put the data back, or start with an empty folder and have the node readmitted: \
         mortarmq members readmit {node_id}", .path.display()
    )]
    Gone {
        /// The folder.
        path: PathBuf,
        /// The node.
        node_id: NodeId,
    },
    /// The data belongs to another node, or to a cluster of other nodes.
    #[error(
        "{} belongs to node {} of a cluster of nodes {:?}, not to {}: \
         is this the right data_dir and node_id?",
        .path.display(), .found.node_id, numbers(&.found.peers), named(*.expected, .peers)
    )]
    OfAnother {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        found: Identity,
        /// Who starts.
        expected: NodeId,
        /// The nodes of its cluster: itself only, if it is alone.
        peers: Vec<NodeId>,
    },
}

/// The identity of a single node's data; a folder without any data gets one, of the cluster that `new_cluster` draws.
///
/// # Durability
/// The identity is durable before anything else is written.
/// # Errors
/// Whatever says that the data is not this node's. Nothing was changed then.
pub fn claim(
    disk: &dyn Disk,
    data_dir: &Path,
    node_id: NodeId,
    new_cluster: impl FnOnce() -> io::Result<[u8; 16]>,
) -> Result<Identity, ForeignData> {
    claim_for(disk, data_dir, node_id, &[node_id], None, new_cluster)
}

/// The identity of the data of one of several nodes; a folder without any data gets one. `peers` are all nodes of the
/// cluster, this one among them, in any order.
///
/// That an empty folder may be begun is for the caller to know: all nodes of the cluster have agreed on its number, and
/// none of them had data (failure rule 4).
///
/// # Durability
/// The identity is durable before anything else is written.
/// # Errors
/// Whatever says that the data is not this node's, in this cluster. Nothing was changed then.
pub fn claim_as_peer(
    disk: &dyn Disk,
    data_dir: &Path,
    node_id: NodeId,
    peers: &[NodeId],
    cluster_id: [u8; 16],
) -> Result<Identity, ForeignData> {
    claim_for(disk, data_dir, node_id, peers, Some(cluster_id), || Ok(cluster_id))
}

fn claim_for(
    disk: &dyn Disk,
    data_dir: &Path,
    node_id: NodeId,
    peers: &[NodeId],
    cluster_id: Option<[u8; 16]>,
    new_cluster: impl FnOnce() -> io::Result<[u8; 16]>,
) -> Result<Identity, ForeignData> {
    let (path, peers) = (data_dir.to_path_buf(), rising(peers));
    if let Some(found) = Identity::read(disk, data_dir).map_err(ForeignData::Identity)? {
        let is_of_cluster = found.peers == peers && cluster_id.is_none_or(|id| id == found.cluster_id);
        let is_mine = found.node_id == node_id && is_of_cluster;
        return if is_mine { Ok(found) } else { Err(ForeignData::OfAnother { path, found, expected: node_id, peers }) };
    }
    let is_there = has_data(disk, data_dir).map_err(|source| ForeignData::Read { path: path.clone(), source })?;
    if is_there {
        return Err(ForeignData::Missing { path });
    }
    let cluster_id = new_cluster().map_err(|source| ForeignData::Read { path, source })?;
    let incarnation = Identity::FIRST_INCARNATION;
    write(disk, data_dir, Identity { cluster_id, node_id, incarnation, peers, state: IdentityState::Made })
}

/// What the folder of one of several nodes holds: nothing, the promise to be one of a cluster, or its data. What is not as it should be is
/// refused. `peers` are all nodes of the cluster, this one among them.
///
/// # Errors
/// As [`claim_as_peer`]; and [`ForeignData::Gone`] where there was data.
/// # Source
/// Failure rule 4.
pub fn find_as_peer(
    disk: &dyn Disk,
    data_dir: &Path,
    node_id: NodeId,
    peers: &[NodeId],
) -> Result<Option<Identity>, ForeignData> {
    let path = data_dir.to_path_buf();
    let has_data = has_data(disk, data_dir).map_err(|source| ForeignData::Read { path: path.clone(), source })?;
    let Some(found) = Identity::read(disk, data_dir).map_err(ForeignData::Identity)? else {
        return if has_data { Err(ForeignData::Missing { path }) } else { Ok(None) };
    };
    let peers = rising(peers);
    if found.node_id != node_id || found.peers != peers {
        return Err(ForeignData::OfAnother { path, found, expected: node_id, peers });
    }
    let read = |source| ForeignData::Read { path: path.clone(), source };
    // One that is brought up anew has no journal for a moment.
    let is_whole =
        Journal::exists(disk, data_dir).map_err(read)? || Repairing::is_begun(disk, data_dir).map_err(read)?;
    match found.state {
        // It asks because it has nothing.
        IdentityState::Asks if has_data => Err(ForeignData::Missing { path }),
        IdentityState::Made if !is_whole => Err(ForeignData::Gone { path, node_id }),
        IdentityState::Asks | IdentityState::Promise | IdentityState::Made => Ok(Some(found)),
    }
}

/// Promises that this node is one of a cluster.
///
/// # Durability
/// The promise.
/// # Errors
/// As [`claim_as_peer`].
/// # Source
/// Failure rule 4.
pub fn promise(
    disk: &dyn Disk,
    data_dir: &Path,
    node_id: NodeId,
    peers: &[NodeId],
    cluster_id: [u8; 16],
) -> Result<Identity, ForeignData> {
    let (peers, incarnation) = (rising(peers), Identity::FIRST_INCARNATION);
    write(disk, data_dir, Identity { cluster_id, node_id, incarnation, peers, state: IdentityState::Promise })
}

/// This node has nothing, and the others of its cluster have data: it asks to be readmitted, as this life.
///
/// # Durability
/// That it asks, and as which life: another folder asks as another one.
/// # Errors
/// As [`claim_as_peer`].
/// # Source
/// Failure rule 4; docs/decisions/019-readmission.md.
pub fn ask_to_return(
    disk: &dyn Disk,
    data_dir: &Path,
    node_id: NodeId,
    peers: &[NodeId],
    (cluster_id, incarnation): ([u8; 16], u32),
) -> Result<Identity, ForeignData> {
    let peers = rising(peers);
    write(disk, data_dir, Identity { cluster_id, node_id, incarnation, peers, state: IdentityState::Asks })
}

/// The life that a node asks as that has lost its data: later than every one that the others know of it, and one that no other empty folder
/// would draw at the same time. Some hundred of them fit one after the other.
#[must_use]
pub fn next_life(above: u32, random: u32) -> Option<u32> {
    above.checked_add(1)?.checked_add(random % LIVES_DRAWN_FROM)
}

fn write(disk: &dyn Disk, data_dir: &Path, identity: Identity) -> Result<Identity, ForeignData> {
    identity.write(disk, data_dir).map_err(ForeignData::Identity)?;
    Ok(identity)
}

fn rising(peers: &[NodeId]) -> Vec<NodeId> {
    let mut peers = peers.to_vec();
    peers.sort_unstable();
    peers
}

fn numbers(peers: &[NodeId]) -> Vec<u16> {
    peers.iter().map(|peer| peer.get()).collect()
}

fn named(node: NodeId, peers: &[NodeId]) -> String {
    if peers == [node] {
        return format!("the single node {node}");
    }
    format!("node {node} of this cluster of nodes {:?}", numbers(peers))
}

/// Two folders that ask at the same time draw the same life once in 16 million times.
const LIVES_DRAWN_FROM: u32 = 1 << 24;

#[cfg(test)]
mod tests {
    use super::{ForeignData, ask_to_return, claim, claim_as_peer, find_as_peer, next_life, promise};
    use mortarmq_storage::{Disk, Identity, MemoryDisk};
    use mortarmq_types::NodeId;
    use std::path::Path;

    const DATA_DIR: &str = "/data";

    fn claimed(disk: &MemoryDisk, node_id: u16) -> Result<Identity, ForeignData> {
        claim(disk, Path::new(DATA_DIR), NodeId::new(node_id), || Ok([5; 16]))
    }

    #[test]
    fn rule_4_an_empty_folder_gets_an_identity_and_keeps_it() {
        let disk = MemoryDisk::new();
        let first = claimed(&disk, 3).expect("an empty folder");
        assert_eq!((first.node_id, first.incarnation), (NodeId::new(3), Identity::FIRST_INCARNATION));
        let found = claimed(&disk.after_power_loss(1), 3).expect("its own folder");
        assert_eq!(found, first, "it was durable when it was told");
        let other = claim(&MemoryDisk::new(), Path::new(DATA_DIR), NodeId::new(3), || Ok([6; 16]));
        assert_ne!(other.expect("an empty folder").cluster_id, first.cluster_id);
    }

    #[test]
    fn rule_4_the_data_of_another_node_is_refused() {
        let disk = MemoryDisk::new();
        claimed(&disk, 3).expect("an empty folder");
        let refused = claimed(&disk, 4).expect_err("of node 3").to_string();
        assert!(refused.contains("belongs to node 3") && refused.contains("single node 4"), "{refused}");
        let of_three = Identity { peers: [0, 1, 2].map(NodeId::new).to_vec(), ..claimed(&disk, 3).expect("its own") };
        let (disk, of_three) = (MemoryDisk::new(), Identity { node_id: NodeId::new(1), ..of_three });
        of_three.write(&disk, Path::new(DATA_DIR)).expect("an empty folder");
        assert!(matches!(claimed(&disk, 1), Err(ForeignData::OfAnother { .. })), "a member of a cluster of three");
    }

    #[test]
    fn rule_4_one_of_several_has_data_of_this_cluster_with_these_nodes() {
        let disk = MemoryDisk::new();
        let claimed = |node: u16, peers: [u16; 3], cluster: u8| {
            claim_as_peer(&disk, Path::new(DATA_DIR), NodeId::new(node), &peers.map(NodeId::new), [cluster; 16])
        };
        let first = claimed(1, [2, 0, 1], 5).expect("an empty folder");
        assert_eq!(claimed(1, [0, 1, 2], 5).expect("its own folder"), first, "in whatever order they are named");
        for (node, peers, cluster) in [(2, [0, 1, 2], 5), (1, [0, 1, 3], 5), (1, [0, 1, 2], 6)] {
            let refused = claimed(node, peers, cluster).expect_err("another's").to_string();
            assert!(refused.contains(&format!("not to node {node} of this cluster of nodes")), "{refused}");
        }
    }

    #[test]
    fn rule_4_a_member_whose_journal_is_gone_is_none() {
        let disk = MemoryDisk::new();
        let (dir, peers) = (Path::new(DATA_DIR), [0, 1, 2].map(NodeId::new));
        let found = || find_as_peer(&disk, dir, NodeId::new(1), &peers);
        assert_eq!(found().expect("empty"), None);
        let mut promised = promise(&disk, dir, NodeId::new(1), &peers, [5; 16]).expect("an empty folder");
        assert_eq!(found().expect("its journal is rightly empty"), Some(promised.clone()));
        promised.fulfil(&disk, dir).expect("promised");
        let refused = found().expect_err("something was durable here").to_string();
        assert!(refused.contains("data is gone") && refused.contains("must not vote"), "{refused}");
    }

    #[test]
    fn rule_4_a_node_that_asks_has_no_data_and_a_life_of_its_own() {
        let disk = MemoryDisk::new();
        let (dir, peers) = (Path::new(DATA_DIR), [0, 1, 2].map(NodeId::new));
        let found = || find_as_peer(&disk, dir, NodeId::new(1), &peers);
        let asks = ask_to_return(&disk, dir, NodeId::new(1), &peers, ([5; 16], 99)).expect("an empty folder");
        assert_eq!(found().expect("it asks"), Some(asks));
        let again = ask_to_return(&disk, dir, NodeId::new(1), &peers, ([5; 16], 100));
        assert!(matches!(again, Err(ForeignData::Identity(_))), "another process of this folder");
        disk.create_dir_all(&dir.join("topics")).expect("no crash");
        disk.create_new(&dir.join("topics/something")).expect("no crash");
        assert!(matches!(found(), Err(ForeignData::Missing { .. })));
        assert_eq!((next_life(1, 0), next_life(1, 1 << 24 | 5)), (Some(2), Some(7)));
        assert_eq!((next_life(u32::MAX, 0), next_life(u32::MAX - 1, 7)), (None, None));
    }

    #[test]
    fn rule_4_data_without_an_identity_is_left_alone() {
        for folder in ["journal", "checkpoints", "topics"] {
            let disk = MemoryDisk::new();
            let folder = Path::new(DATA_DIR).join(folder);
            disk.create_dir_all(&folder).expect("an empty disk");
            disk.create_new(&folder.join("something")).expect("an empty disk");
            assert!(matches!(claimed(&disk, 0), Err(ForeignData::Missing { .. })), "{}", folder.display());
            assert_eq!(disk.list(Path::new(DATA_DIR)).expect("it is there").len(), 1, "nothing was written");
        }
    }

    #[test]
    fn rule_3_a_damaged_identity_is_named_and_not_replaced() {
        let disk = MemoryDisk::new();
        claimed(&disk, 3).expect("an empty folder");
        let file = disk.open(&Path::new(DATA_DIR).join("identity")).expect("it was written");
        file.write_all_at(&[0xFF], 9).expect("no crash");
        let refused = claimed(&disk, 3).expect_err("damaged");
        let said = crate::drive::chain(&refused);
        assert!(said.contains("/data/identity is damaged at offset"), "{said}");
    }
}
