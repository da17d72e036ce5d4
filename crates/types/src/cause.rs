//! Why a message is delivered, and why it left a path: the words of promises P4 and P7.

/// Declares an enum whose variants have a stable number and a stable word.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $number:literal, $word:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$variant_doc])* $variant = $number,)+
        }

        impl $name {
            /// Every value, in the order of its number.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The number used on the wire and in files.
            #[must_use]
            pub const fn number(self) -> u8 {
                self as u8
            }

            /// The value with this number, if there is one.
            #[must_use]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// The word used in text, JSON and metric labels.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.pad(self.word())
            }
        }
    };
}

words! {
    /// Why a message is delivered (P7). `First` is the first delivery; every other names what ended the one before.
    Cause {
        /// The message was never delivered on this path before.
        First = 0, "first";
        /// The lease ran out. Counts an attempt.
        LeaseExpired = 1, "lease_expired";
        /// The consumer refused the message. Counts an attempt.
        Nacked = 2, "nacked";
        /// The consumer's session ended without a word. Counts an attempt.
        ConsumerLost = 3, "consumer_lost";
        /// The message was given back. Does not count.
        Released = 4, "released";
        /// An operator brought a dead letter back; attempts start again.
        Redriven = 5, "redriven";
        /// An operator moved the path back; attempts start again.
        Replayed = 6, "replayed";
    }
}

impl Cause {
    /// Whether a delivery that ends for this cause used up an attempt.
    #[must_use]
    pub const fn counts(self) -> bool {
        matches!(self, Self::LeaseExpired | Self::Nacked | Self::ConsumerLost)
    }
}

words! {
    /// Why a message left a path without being acked or dead-lettered (P4).
    DropReason {
        /// Older than the topic keeps messages.
        Retention = 0, "retention";
        /// Older than the message's own life.
        Ttl = 1, "ttl";
        /// An operator emptied the path.
        Purge = 2, "purge";
        /// An operator moved the path forward over it.
        Seek = 3, "seek";
        /// The group was deleted.
        GroupDeleted = 4, "group_deleted";
        /// The topic was deleted.
        TopicDeleted = 5, "topic_deleted";
        /// A dead letter that was redriven left its own path.
        Redriven = 6, "redriven";
    }
}

#[cfg(test)]
mod tests {
    use super::{Cause, DropReason};

    #[test]
    fn numbers_and_values_name_each_other() {
        for cause in Cause::ALL {
            assert_eq!(Cause::from_number(cause.number()), Some(*cause));
        }
        for reason in DropReason::ALL {
            assert_eq!(DropReason::from_number(reason.number()), Some(*reason));
        }
        assert_eq!(Cause::from_number(7), None);
    }

    #[test]
    fn only_expiry_nack_and_loss_count_an_attempt() {
        let counting: Vec<&str> = Cause::ALL.iter().filter(|cause| cause.counts()).map(|cause| cause.word()).collect();
        assert_eq!(counting, ["lease_expired", "nacked", "consumer_lost"]);
    }
}
