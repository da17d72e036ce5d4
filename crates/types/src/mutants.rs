//! Planted bugs: each breaks one rule on purpose, so that it is known that the simulator and the judge would notice.
//!
//! They are there with the feature `mutants` only, and one at most is chosen, at run time. Without the feature
//! [`Mutant::is_on`] is `false` for the compiler, and nothing of a bug is in the binary.

#[cfg(feature = "mutants")]
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

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
    /// The journal goes on behind a torn batch, which stays (failure rule 3).
    TornTailKept = "torn-tail-kept";
    /// A node that has lost what it had votes and acknowledges (failure rule 3).
    RejoinVotes = "rejoin-votes";
    /// A node that has lost what it had is one as any other with the first checkpoint that it can get (failure rule 3).
    RejoinTooEarly = "rejoin-too-early";
    /// A node whose data is gone begins with nothing as the member that it was (failure rule 4).
    WipedNodeVotes = "wiped-node-votes";
    /// A path that was looked at before its publishes were applied is not looked at again.
    LookedEarlyForgotten = "looked-early-forgotten";
    /// A snapshot whose bytes are not what it lists is offered again and again.
    UnsoundOffered = "unsound-offered";
    /// A damaged batch at the end of the journal is taken for one that was never confirmed, and cut (failure rule 3).
    RottenCutAsTorn = "rotten-cut-as-torn";
    /// A torn batch is cut, and nothing says so meanwhile (failure rule 3).
    CutNotRecorded = "cut-not-recorded";
    /// A checkpoint says that it covers one entry less than its image holds.
    CheckpointIndexApart = "checkpoint-index-apart";
    /// A start leaves the files longer than its checkpoint lists them, and writes at their ends.
    SegmentNotTruncated = "segment-not-truncated";
    /// A retry is answered from a publish that is not committed (P1, P3).
    DedupBeforeCommit = "dedup-before-commit";
    /// The windows of producers are not in the image (P3).
    DedupNotInImage = "dedup-not-in-image";
    /// An ack is confirmed when it is proposed (P6).
    AckBeforeCommit = "ack-before-commit";
    /// A start from a checkpoint knows nothing of leases (P5).
    LeaseForgotten = "lease-forgotten";
    /// The time in which the node was down is no gap: leases run meanwhile (P5).
    LeaseShortened = "lease-shortened";
    /// A start from a checkpoint counts deliveries on from the live ones (P10).
    DeliveryIdReused = "delivery-id-reused";
    /// A dead letter is stored, and its message is owed still (P4).
    DeadNotSettled = "dead-not-settled";
    /// A message is dead, and has no dead letter (P4).
    DeadNotStored = "dead-not-stored";
    /// What was leased behind a message of its key goes on when that comes back (P8).
    KeyOrderLost = "key-order-lost";
    /// A delayed message that an operator or retention drops stays in the depth (P9).
    DepthKeptOnDrop = "depth-kept-on-drop";
    /// An ack that is said again is counted again (P9).
    DeliveredTwice = "delivered-twice";
    /// A publish that is refused goes into the batch all the same (P2).
    RefusedAppended = "refused-appended";
    /// A publish that may still commit is answered as refused when its time is over (P2).
    TimeoutRefused = "timeout-refused";
    /// How long the node was down is taken from the wall clock.
    DelayByWallClock = "delay-by-wall-clock";
    /// Retention takes a message from the consumer that holds it, and counts it nowhere (P4, P9).
    RetentionTakesLeased = "retention-takes-leased";
    /// How much a `Deliver` leases depends on the cache of the node that applies it.
    ConfigInApply = "config-in-apply";
    /// Files that retention frees go at once, and not with the next checkpoint.
    FileDeletedEarly = "file-deleted-early";
    /// A member that resumes is not sent what it has not got (P5, P7).
    ResumeSendsNothing = "resume-sends-nothing";
    /// A question is answered from the state as it is, without a read index of this epoch.
    StaleRead = "stale-read";
    /// What waits to be sent to a member that leaves goes to the next one of that subscription (P5).
    LeaveKeepsQueue = "leave-keeps-queue";
    /// A leader takes for committed what only itself has (P1).
    AckBeforeMajority = "ack-before-majority";
    /// A leader of several counts itself for an entry before it is synced (P1).
    OwnUnsyncedCounted = "own-unsynced-counted";
    /// A vote is not written down (P10).
    VoteNotPersisted = "vote-not-persisted";
    /// A new leader ends the sessions of all members (P7).
    MembersLostOnFailover = "members-lost-on-failover";
    /// A new leader lets cluster time jump, so that leases end early (P5).
    LeaseShortenedOnFailover = "lease-shortened-on-failover";
    /// What waited for a read is sent though its lease has ended meanwhile (P5, P8).
    EndedLeaseSent = "ended-lease-sent";
    /// A newest journal file that ends within its header is taken for one that a roll-over has not finished (P1).
    ShortFileForgotten = "short-file-forgotten";
    /// A start cuts a file to its checkpoint before it knows whether it will refuse that file (P11).
    CutBeforeRefusal = "cut-before-refusal";
    /// A leader answers a question without asking a majority whether it still leads (P10).
    ReadWithoutIndex = "read-without-index";
    /// A checkpoint that was fetched counts before the files that it lists are synced (failure rule 5).
    InstallBeforeFiles = "install-before-files";
    /// A snapshot that is installed knows nothing of producers (P3).
    DedupLostInSnapshot = "dedup-lost-in-snapshot";
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

/// What [`Mutant::ConfigInApply`] goes by: a setting of the node that apply must not know, put where anything can read it.
#[cfg_attr(not(feature = "mutants"), expect(unused_variables, reason = "there is none"))]
pub fn leak_config(bytes: u64) {
    #[cfg(feature = "mutants")]
    LEAKED.store(bytes, Ordering::Relaxed);
}

/// What was leaked last; 0 in a build that holds no bug.
#[must_use]
pub fn leaked_config() -> u64 {
    #[cfg(feature = "mutants")]
    return LEAKED.load(Ordering::Relaxed);
    #[cfg(not(feature = "mutants"))]
    0
}

#[cfg(feature = "mutants")]
static CHOSEN: AtomicU8 = AtomicU8::new(0);
#[cfg(feature = "mutants")]
static LEAKED: AtomicU64 = AtomicU64::new(0);
