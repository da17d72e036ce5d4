//! What a scenario stands on, and whether this machine has it.

use mortarmq_lossyfs::LossyFs;

pub use crate::network::Links;
use crate::{room, tools};

/// What keeps the data of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disks {
    /// Folders of this machine: what a killed process wrote is there.
    Folders,
    /// A FUSE file system each, which forgets what was not synced, fails, fills up and stalls.
    Lossy,
}

/// What a scenario stands on.
#[derive(Clone, Copy, Debug)]
pub struct Ground {
    /// The disks.
    pub disks: Disks,
    /// The links between the nodes.
    pub links: Links,
    /// Whether the nodes see a wall clock of their own.
    pub has_own_clock: bool,
}

impl Ground {
    /// Folders and loopback.
    pub(crate) const PLAIN: Self = Self { disks: Disks::Folders, links: Links::Direct, has_own_clock: false };
    /// Disks that lose what was not synced.
    pub(crate) const LOSSY: Self = Self { disks: Disks::Lossy, ..Self::PLAIN };
    /// A namespace for each node.
    pub(crate) const SPACES: Self = Self { links: Links::Spaces, ..Self::PLAIN };
    /// A relay on each link.
    pub(crate) const RELAYS: Self = Self { links: Links::Relays, ..Self::PLAIN };
    /// Disks that lose what was not synced, and a relay on each link.
    pub(crate) const LOSSY_RELAYS: Self = Self { links: Links::Relays, ..Self::LOSSY };
    /// A wall clock that can be set.
    pub(crate) const CLOCK: Self = Self { has_own_clock: true, ..Self::PLAIN };

    /// What this machine lacks for it, if it lacks something.
    #[must_use]
    pub fn missing(self) -> Option<String> {
        if self.disks == Disks::Lossy
            && let Err(why) = LossyFs::is_available()
        {
            return Some(why);
        }
        if self.links == Links::Spaces {
            if !room::is_inside() {
                return Some(room::missing().unwrap_or_else(|| "needs a room of its own (no --no-room)".to_owned()));
            }
            if let Some(program) = ["ip", "nft", "nsenter"].into_iter().find(|program| tools::find(program).is_none()) {
                return Some(format!("needs {program} (iproute2, nftables, util-linux)"));
            }
        }
        (self.has_own_clock && tools::find_faketime().is_none()).then(|| "needs libfaketime".to_owned())
    }
}
