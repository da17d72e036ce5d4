//! Times of four clocks that must never be mixed. All are milliseconds.

use crate::numbers::number;

number! {
    /// Time in the log: the leader stamps each batch with it, and it never goes back.
    ///
    /// # Units
    /// Milliseconds since the shard's first batch.
    ClusterTime(u64)
}

number! {
    /// Cluster time less the sum of all gaps: the clock of leases and sessions, which no outage moves.
    ///
    /// # Units
    /// Milliseconds.
    LeaseTime(u64)
}

number! {
    /// A node's own clock, which counts on through suspends and is unaffected by wall-clock jumps.
    ///
    /// # Units
    /// Milliseconds since the machine's boot.
    MonotonicTime(u64)
}

number! {
    /// Wall-clock time, for display and for seeking by time only: no rule of the contract reads it.
    ///
    /// # Units
    /// Milliseconds since 1970-01-01 UTC.
    WallTime(u64)
}

macro_rules! duration {
    ($name:ident) => {
        impl $name {
            /// The time `ms` milliseconds later; saturates at the end of the scale.
            #[must_use]
            pub const fn after_ms(self, ms: u64) -> Self {
                Self::new(self.get().saturating_add(ms))
            }

            /// Milliseconds from `earlier` to this time, 0 if that lies later.
            #[must_use]
            pub const fn since_ms(self, earlier: Self) -> u64 {
                self.get().saturating_sub(earlier.get())
            }
        }
    };
}

duration!(ClusterTime);
duration!(LeaseTime);
duration!(MonotonicTime);
duration!(WallTime);
