//! Whose data a folder holds (failure rule 4).

use std::io;
use std::path::{Path, PathBuf};

use mortarmq_storage::{Disk, Identity, IdentityError, has_data};
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
    /// The data belongs to another node, or to a cluster of other nodes.
    #[error(
        "{} belongs to node {} of a cluster of nodes {:?}, not to the single node {expected}: \
         is this the right data_dir and node_id?", .path.display(), .found.node_id, peers(.found)
    )]
    OfAnother {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        found: Identity,
        /// Who starts.
        expected: NodeId,
    },
}

/// The identity of a folder's data; a folder without any data gets one, of the cluster that `new_cluster` draws.
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
    let path = data_dir.to_path_buf();
    if let Some(found) = Identity::read(disk, data_dir).map_err(ForeignData::Identity)? {
        let is_mine = found.node_id == node_id && found.peers == [node_id];
        return if is_mine { Ok(found) } else { Err(ForeignData::OfAnother { path, found, expected: node_id }) };
    }
    let is_there = has_data(disk, data_dir).map_err(|source| ForeignData::Read { path: path.clone(), source })?;
    if is_there {
        return Err(ForeignData::Missing { path });
    }
    let cluster_id = new_cluster().map_err(|source| ForeignData::Read { path, source })?;
    let identity = Identity { cluster_id, node_id, incarnation: Identity::FIRST_INCARNATION, peers: vec![node_id] };
    identity.write(disk, data_dir).map_err(ForeignData::Identity)?;
    Ok(identity)
}

fn peers(identity: &Identity) -> Vec<u16> {
    identity.peers.iter().map(|peer| peer.get()).collect()
}

#[cfg(test)]
mod tests {
    use super::{ForeignData, claim};
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
