//! What a scenario is.

use crate::failure::Failure;
use crate::ground::Ground;
use crate::run::Run;

/// A named way to make a cluster fail.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// What kind of fault it is about.
    pub class: Class,
    /// What happens, in one sentence.
    pub what: &'static str,
    /// What must hold beyond what must always hold: a green verdict, books that balance, nothing confirmed that never came.
    pub holds: &'static str,
    /// What it stands on.
    pub ground: Ground,
    /// Whether it stands for its class in the short share.
    pub is_short: bool,
    /// What is known to fail, if it is: then a failure is called a known one, and is one all the same.
    pub known: Option<&'static str>,
    /// The faults, one after the other, while the load goes on. Whatever it leaves broken is healed behind it.
    pub steps: fn(&mut Run) -> Result<(), Failure>,
}

impl Scenario {
    /// What all of a class have in common; the rest is each one's own.
    pub(crate) const fn plan(class: Class, ground: Ground) -> Self {
        Self { name: "", class, what: "", holds: "", ground, is_short: false, known: None, steps: |_| Ok(()) }
    }
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Class {
    /// Processes are killed (SIGKILL) and stopped (SIGTERM).
    Kill,
    /// Processes stand still (SIGSTOP).
    Pause,
    /// The power is lost, with all that was not synced.
    Power,
    /// Disks fail, stall and fill up.
    Disk,
    /// Packets are lost on their way.
    Network,
    /// Links are slow, hang and are reset.
    Link,
    /// Bytes on a disk rot, a disk is wiped.
    Rot,
    /// The wall clock jumps.
    Clock,
}

impl Class {
    /// Its word on the command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Pause => "pause",
            Self::Power => "power",
            Self::Disk => "disk",
            Self::Network => "network",
            Self::Link => "link",
            Self::Rot => "rot",
            Self::Clock => "clock",
        }
    }
}
