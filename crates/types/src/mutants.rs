//! Planted bugs: each breaks one rule on purpose, so that it is known that the simulator and the judge would notice.
//!
//! They are there with the feature `mutants` only, and one at most is chosen, at run time. Without the feature
//! [`Mutant::is_on`] is `false` for the compiler, and nothing of a bug is in the binary.

#[cfg(feature = "mutants")]
use std::sync::atomic::{AtomicU8, Ordering};

/// Declares the bugs.
macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident = $word:literal;)+) => {
        /// A planted bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutant {
            $($(#[$doc])* $name,)+
        }

        impl Mutant {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }
        }
    };
}

mutants! {
    /// A batch is told to be durable without an fsync (P1).
    AckBeforeFsync = "ack-before-fsync";
    /// A failed fsync of the journal is tried again, and taken for good (failure rule 2).
    FsyncErrorRetried = "fsync-error-retried";
    /// A nack counts no attempt.
    NackCountsNoAttempt = "nack-counts-no-attempt";
    /// An ack of an older delivery settles a later one (P6).
    LateAckHonoured = "late-ack-honoured";
    /// Every redelivery says that its lease ran out (P7).
    CauseAlwaysExpired = "cause-always-expired";
    /// What was read ahead for a path is kept when an operator moves it back (P8).
    ReadAheadKept = "read-ahead-kept";
    /// A new journal file is used before its directory is synced (failure rule 5).
    DirectoryNotSynced = "directory-not-synced";
    /// A message that is dropped for its age is not counted as dropped (P9).
    DropNotCounted = "drop-not-counted";
}

impl Mutant {
    /// Whether this build holds them.
    pub const ARE_BUILT: bool = cfg!(feature = "mutants");

    /// The one with a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|mutant| mutant.name() == name)
    }

    /// Whether the code is to behave so.
    #[inline]
    #[must_use]
    pub fn is_on(self) -> bool {
        #[cfg(feature = "mutants")]
        return CHOSEN.load(Ordering::Relaxed) == self as u8 + 1;
        #[cfg(not(feature = "mutants"))]
        false
    }
}

/// Chooses a bug for the whole process, or none; says whether this build holds any.
#[cfg_attr(not(feature = "mutants"), expect(unused_variables, reason = "there is none"))]
pub fn choose(mutant: Option<Mutant>) -> bool {
    #[cfg(feature = "mutants")]
    CHOSEN.store(mutant.map_or(0, |mutant| mutant as u8 + 1), Ordering::Relaxed);
    Mutant::ARE_BUILT
}

#[cfg(feature = "mutants")]
static CHOSEN: AtomicU8 = AtomicU8::new(0);
