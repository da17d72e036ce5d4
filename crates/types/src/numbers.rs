//! The macro behind every number type: one definition of how they are made, read and printed.

/// Declares a newtype over an unsigned integer with the traits that all positions and quantities share.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name($inner);

        impl $name {
            /// The value 0.
            pub const ZERO: Self = Self(0);
            /// The largest value the type holds.
            pub const MAX: Self = Self(<$inner>::MAX);

            /// Wraps a plain number.
            pub const fn new(value: $inner) -> Self {
                Self(value)
            }

            /// The plain number.
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(formatter)
            }
        }

        impl From<$inner> for $name {
            fn from(value: $inner) -> Self {
                Self(value)
            }
        }
    };
}

/// Adds stepping to a number type whose values follow one another.
macro_rules! step {
    ($name:ident($inner:ty)) => {
        impl $name {
            /// The value after this one.
            ///
            /// # Panics
            /// When the type is exhausted: 64-bit positions never wrap (P10).
            #[must_use]
            pub const fn next(self) -> Self {
                Self::new(self.get().checked_add(1).expect("P10: a position never wraps"))
            }

            /// The value `count` after this one.
            ///
            /// # Panics
            /// As [`Self::next`].
            #[must_use]
            pub const fn plus(self, count: $inner) -> Self {
                Self::new(self.get().checked_add(count).expect("P10: a position never wraps"))
            }

            /// How far this value lies above `other`, 0 if it does not.
            #[must_use]
            pub const fn above(self, other: Self) -> $inner {
                self.get().saturating_sub(other.get())
            }
        }
    };
}

pub(crate) use number;
pub(crate) use step;
