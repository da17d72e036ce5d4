//! The identity file: which node of which cluster a data directory belongs to (failure rule 4).
//!
//! It is `data_dir/identity`, made once before anything else. One of several nodes begins with a promise, which its first
//! durable batch makes an identity; one whose data is gone asks first to be readmitted, and promises once it is. Nothing else ever changes. All of it is one header,
//! little-endian. Magic, version and length keep their places in every version, and the last field is the checksum of
//! the whole, so that an unknown version is told from damage:
//!
//! | at | field | meaning, and the fault it guards against |
//! |---|---|---|
//! | 0 | magic `MMQI`, version u16, header_bytes u16 | the file's exact length: one that was cut or went on is refused |
//! | 8 | cluster_id 16 bytes | a folder of another cluster |
//! | 24 | incarnation u32 | which of the node's folders it is, from 1: a new, empty one is not the old one |
//! | 28 | node_id u16 | a folder of another node |
//! | 30 | state u8, zero u8 | 1 identity, 2 promise: a node of a cluster that may have begun, whose journal is rightly empty, 3 asks: it has nothing, and asks to be readmitted as this incarnation |
//! | 32 | peer_count u16, then u16 each | node ids, rising: a folder made with another set of peers |
//! | end − 4 | crc u32 | CRC32C of all the above |

mod verify;

use std::io;
use std::path::{Path, PathBuf};

use bytes::{Buf, BufMut};
use mortarmq_types::NodeId;

use crate::checkpoint::CHECKPOINTS_DIR;
use crate::disk::Disk;
use crate::journal::JOURNAL_DIR;
use crate::segment::TOPICS_DIR;
pub(crate) use verify::{check, verify};

/// Which node of which cluster a data directory belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster, by the number drawn when it was made.
    pub cluster_id: [u8; 16],
    /// The node.
    pub node_id: NodeId,
    /// Which of the node's data directories it is: a wiped or replaced one gets the next number.
    pub incarnation: u32,
    /// The node ids of the configuration that it was made with, rising.
    pub peers: Vec<NodeId>,
    /// How far the node is on its way into this cluster.
    pub state: IdentityState,
}

/// How far a data directory is on its node's way into its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityState {
    /// Something was durable in it: without a journal, its data is gone.
    Made,
    /// The node has promised to be one of the cluster, and nothing was ever durable.
    Promise,
    /// The node asks to be readmitted, as this incarnation. It is none of the cluster.
    Asks,
}

/// Why an identity could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The disk failed.
    #[error("cannot {doing} {}", .path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The bytes are not what was written. Nothing was changed (failure rule 3, P11).
    #[error("{} is damaged at offset {offset}: {what}", .path.display())]
    Rotten {
        /// The identity file.
        path: PathBuf,
        /// Where the damaged piece begins.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// A sound identity in a format this build does not know (P11).
    #[error("{} has version {found}; this build reads version {supported}", .path.display())]
    UnknownVersion {
        /// The identity file.
        path: PathBuf,
        /// The version found.
        found: u16,
        /// The version this build reads and writes.
        supported: u16,
    },
    /// There is an identity already, and another one. It was left as it is.
    #[error("{} names another node, cluster or set of peers, and is not replaced", .path.display())]
    Another {
        /// The identity file.
        path: PathBuf,
    },
    /// What was to be written is no identity: the caller is wrong.
    #[error("no identity can be made of this: {what}")]
    Invalid {
        /// What is wrong with it.
        what: &'static str,
    },
}

/// Whether a data directory holds anything that an identity is needed for: journal, checkpoints or topics.
///
/// # Errors
/// The disk's.
pub fn has_data(disk: &dyn Disk, data_dir: &Path) -> io::Result<bool> {
    for dir in [JOURNAL_DIR, CHECKPOINTS_DIR, TOPICS_DIR] {
        let dir = data_dir.join(dir);
        if disk.exists(&dir)? && !disk.list(&dir)?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Identity {
    /// The number of a node's first data directory.
    pub const FIRST_INCARNATION: u32 = 1;

    /// Reads the identity of a data directory; none only if there is no such name. Nothing is changed.
    ///
    /// # Errors
    /// [`IdentityError::Rotten`] and [`IdentityError::UnknownVersion`] with the file; never another answer for bytes
    /// that were not written by [`Identity::write`].
    /// # Source
    /// Failure rule 4; P11.
    pub fn read(disk: &dyn Disk, data_dir: &Path) -> Result<Option<Self>, IdentityError> {
        let path = data_dir.join(IDENTITY_FILE);
        let file = match disk.open_to_read(&path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            opened => opened.map_err(failed("open", &path))?,
        };
        let file_bytes = file.len().map_err(failed("read", &path))?;
        // What goes on behind the longest identity need not be read to be refused.
        let mut bytes = vec![0; file_bytes.min(MAX_BYTES as u64 + 1) as usize];
        file.read_exact_at(&mut bytes, 0).map_err(failed("read", &path))?;
        parse(&path, &bytes).map(Some)
    }

    /// Makes a data directory this node's. Fine if it is that already; the directory is made if it is not there. The
    /// caller holds the [`crate::DirectoryLock`].
    ///
    /// Written aside, synced and only then given its name: whatever happens, the name stands for the whole or is not
    /// there. What an interrupted call left aside is removed.
    ///
    /// # Durability
    /// The file, its name, and the name of the data directory.
    /// # Errors
    /// [`IdentityError::Another`] if there is another identity, and the errors of [`Identity::read`] if there is a
    /// damaged one: neither is touched. [`IdentityError::Invalid`] if the peers do not rise or are too many, or the
    /// incarnation is 0.
    /// # Source
    /// Failure rules 4 and 5.
    pub fn write(&self, disk: &dyn Disk, data_dir: &Path) -> Result<(), IdentityError> {
        self.check().map_err(|what| IdentityError::Invalid { what })?;
        let (path, aside) = (data_dir.join(IDENTITY_FILE), data_dir.join(UNFINISHED_FILE));
        disk.create_dir_all(data_dir).map_err(failed("create", data_dir))?;
        let found = Self::read(disk, data_dir)?;
        if disk.exists(&aside).map_err(failed("look for", &aside))? {
            disk.remove(&aside).map_err(failed("remove", &aside))?;
        }
        match found {
            Some(found) if found != *self => return Err(IdentityError::Another { path }),
            // The process that gave it its name may have died before it synced the directory.
            Some(_) => {}
            None => self.put(disk, &aside, &path)?,
        }
        for dir in [Some(data_dir), data_dir.parent()].into_iter().flatten() {
            disk.sync_dir(dir).map_err(failed("sync", dir))?;
        }
        Ok(())
    }

    /// Makes a promise the identity that it promised; fine if it is that already. To be called when the first batch of the journal is
    /// durable and before anybody is told so: from then on an empty journal is a loss.
    ///
    /// # Durability
    /// The file under its name, whole: the promise or the identity, whatever happens.
    /// # Errors
    /// As [`Identity::write`].
    /// # Source
    /// Failure rule 4.
    pub fn fulfil(&mut self, disk: &dyn Disk, data_dir: &Path) -> Result<(), IdentityError> {
        let made = Self { state: IdentityState::Made, ..self.clone() };
        self.become_next(disk, data_dir, made)
    }

    /// The others have admitted this incarnation: from now on the node is one of the cluster, with an empty journal.
    ///
    /// # Durability
    /// The file under its name: that it asks, or the promise, whatever happens.
    /// # Errors
    /// As [`Identity::write`].
    /// # Source
    /// Failure rule 4; docs/decisions/019-readmission.md.
    pub fn admit(&mut self, disk: &dyn Disk, data_dir: &Path) -> Result<(), IdentityError> {
        let promise = Self { state: IdentityState::Promise, ..self.clone() };
        self.become_next(disk, data_dir, promise)
    }

    /// Asks as another incarnation: the one that it asked as is not later than all before it.
    ///
    /// # Durability
    /// The file under its name: with the one or the other, whatever happens.
    /// # Errors
    /// As [`Identity::write`].
    pub fn ask_as(&mut self, disk: &dyn Disk, data_dir: &Path, incarnation: u32) -> Result<(), IdentityError> {
        if self.state != IdentityState::Asks || incarnation == 0 {
            return Err(IdentityError::Invalid { what: "only a node that asks may ask as another incarnation" });
        }
        let next = Self { incarnation, ..self.clone() };
        self.become_next(disk, data_dir, next)
    }

    /// Takes the place of what it was; fine if it has that already.
    fn become_next(&mut self, disk: &dyn Disk, data_dir: &Path, next: Self) -> Result<(), IdentityError> {
        let (path, aside) = (data_dir.join(IDENTITY_FILE), data_dir.join(UNFINISHED_FILE));
        match Self::read(disk, data_dir)? {
            Some(found) if found == next => {}
            Some(found) if found == *self => {
                if disk.exists(&aside).map_err(failed("look for", &aside))? {
                    disk.remove(&aside).map_err(failed("remove", &aside))?;
                }
                next.put(disk, &aside, &path)?;
            }
            _ => return Err(IdentityError::Another { path }),
        }
        disk.sync_dir(data_dir).map_err(failed("sync", data_dir))?;
        *self = next;
        Ok(())
    }

    /// Writes it aside, and gives it its name.
    fn put(&self, disk: &dyn Disk, aside: &Path, path: &Path) -> Result<(), IdentityError> {
        let file = disk.create_new(aside).map_err(failed("create", aside))?;
        file.write_all_at(&self.encode(), 0).map_err(failed("write", aside))?;
        file.sync_data().map_err(failed("sync", aside))?;
        disk.rename(aside, path).map_err(failed("rename", aside))
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.incarnation < Self::FIRST_INCARNATION {
            return Err("its incarnation is 0");
        }
        if self.peers.len() > MAX_PEERS {
            return Err("it has too many peers");
        }
        if !self.peers.is_sorted_by(|first, second| first < second) {
            return Err("its peers do not rise");
        }
        Ok(())
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LEAST_BYTES + self.peers.len() * PEER_BYTES);
        bytes.put_slice(MAGIC);
        bytes.put_u16_le(VERSION);
        // `check` keeps both within u16.
        bytes.put_u16_le((LEAST_BYTES + self.peers.len() * PEER_BYTES) as u16);
        bytes.put_slice(&self.cluster_id);
        bytes.put_u32_le(self.incarnation);
        bytes.put_u16_le(self.node_id.get());
        bytes.put_u8(self.state.number());
        bytes.put_u8(0);
        bytes.put_u16_le(self.peers.len() as u16);
        for peer in &self.peers {
            bytes.put_u16_le(peer.get());
        }
        let crc = crc32c::crc32c(&bytes);
        bytes.put_u32_le(crc);
        bytes
    }
}

impl IdentityState {
    const ALL: [(u8, Self); 3] = [(1, Self::Made), (2, Self::Promise), (3, Self::Asks)];

    fn number(self) -> u8 {
        Self::ALL.iter().find(|(_, state)| *state == self).map_or(0, |(number, _)| *number)
    }

    fn of(number: u8) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == number).map(|(_, state)| *state)
    }
}

/// Reads the bytes of an identity file, as far as it can be one.
fn parse(path: &Path, bytes: &[u8]) -> Result<Identity, IdentityError> {
    let rotten = |offset, what| IdentityError::Rotten { path: path.to_path_buf(), offset, what };
    if bytes.len() < LEAST_HEADER_BYTES {
        return Err(rotten(bytes.len() as u64, "the identity was cut short"));
    }
    let (version, header_bytes) = ((&bytes[4..6]).get_u16_le(), usize::from((&bytes[6..8]).get_u16_le()));
    let header = bytes.get(..header_bytes).filter(|header| header.len() >= LEAST_HEADER_BYTES);
    let sound = header.and_then(|header| {
        let (fields, crc) = header.split_at(header_bytes - 4);
        (header.starts_with(MAGIC) && crc32c::crc32c(fields).to_le_bytes() == crc).then_some(fields)
    });
    let Some(fields) = sound else { return Err(rotten(0, "it fails its checksum or was cut short")) };
    if version != VERSION {
        return Err(IdentityError::UnknownVersion { path: path.to_path_buf(), found: version, supported: VERSION });
    }
    if bytes.len() > header_bytes {
        return Err(rotten(header_bytes as u64, "bytes that do not belong to the identity"));
    }
    if header_bytes < LEAST_BYTES {
        return Err(rotten(0, "it has another length than its version"));
    }
    let (mut fields, mut cluster_id) = (&fields[8..], [0; 16]);
    fields.copy_to_slice(&mut cluster_id);
    let (incarnation, node_id, state) = (fields.get_u32_le(), NodeId::new(fields.get_u16_le()), fields.get_u8());
    let state =
        IdentityState::of(state).ok_or_else(|| rotten(STATE_AT, "its state is none that this version knows"))?;
    fields.advance(3);
    let peers = fields.chunks_exact(PEER_BYTES).map(|mut peer| NodeId::new(peer.get_u16_le())).collect();
    let identity = Identity { cluster_id, node_id, incarnation, peers, state };
    identity.check().map_err(|what| rotten(0, what))?;
    // The fields that were passed over, and the length against the number of peers.
    if identity.encode() != bytes { Err(rotten(0, "its fields make no sense")) } else { Ok(identity) }
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> IdentityError {
    let path = path.to_path_buf();
    move |source| IdentityError::Io { doing, path, source }
}

/// The identity file's name in the data directory.
const IDENTITY_FILE: &str = "identity";
/// Its name while it is written.
const UNFINISHED_FILE: &str = "identity.new";
const MAGIC: &[u8; 4] = b"MMQI";
/// The version written, and the only one read.
const VERSION: u16 = 1;
const STATE_AT: u64 = 30;
const PEER_BYTES: usize = 2;
/// Far more than a cluster has, and the file's length fits its field.
const MAX_PEERS: usize = 1024;
/// Magic, version, length and checksum.
const LEAST_HEADER_BYTES: usize = 12;
/// The length of an identity without peers.
const LEAST_BYTES: usize = 8 + 16 + 4 + 2 + 2 + 2 + 4;
const MAX_BYTES: usize = LEAST_BYTES + MAX_PEERS * PEER_BYTES;
const _: () = assert!(MAX_BYTES <= u16::MAX as usize);

#[cfg(test)]
mod tests;
