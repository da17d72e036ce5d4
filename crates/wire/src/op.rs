//! The numbers of the ops, and which side may send them.

/// Declares the ops once: number, name on the wire, and what they are for.
macro_rules! ops {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal;)+) => {
        /// What a frame is: the byte behind its length.
        ///
        /// # Source
        /// docs/reference/wire.md, "Ops". Numbers are never reused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Op {
            $($(#[$doc])* $variant = $number,)+
        }

        impl Op {
            /// Every op, in the order of its number.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The op with this number, if there is one.
            #[inline]
            #[must_use]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// The name used in texts, metrics and the documentation.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

ops! {
    /// Opens the session of a connection: version and token.
    Connect = 0x01, "CONNECT";
    /// Creates, finds or deletes a topic.
    Declare = 0x02, "DECLARE";
    /// Publishes one record.
    Publish = 0x03, "PUB";
    /// Joins a group.
    Subscribe = 0x04, "SUB";
    /// Confirms one delivery, or renews its lease.
    Ack = 0x05, "ACK";
    /// Refuses one delivery.
    Nack = 0x06, "NACK";
    /// Asks for a sign of life.
    Ping = 0x07, "PING";
    /// Answers a request with an error.
    Err = 0x08, "ERR";
    /// Answers a request with its result.
    Ok = 0x09, "OK";
    /// Delivers one message.
    Message = 0x0A, "MSG";
    /// Asks once for messages.
    Pull = 0x0B, "PULL";
    /// Renews or leaves a member's session.
    Heartbeat = 0x0C, "HEARTBEAT";
    /// Tells a member that a partition was assigned or revoked. No codec yet.
    Notice = 0x0D, "NOTICE";
    /// Answers a NOTICE. No codec yet.
    ControlAck = 0x0E, "CONTROL_ACK";
    /// Sets or raises a subscription's window.
    Credit = 0x0F, "CREDIT";
    /// Publishes several records, all or nothing.
    PublishBatch = 0x10, "PUB_BATCH";
    /// Settles several deliveries.
    Settle = 0x11, "SETTLE";
    /// Asks for nodes and topics.
    Metadata = 0x12, "METADATA";
    /// Settles and publishes, all or nothing. No codec yet.
    Transaction = 0x13, "TXN";
}

impl Op {
    /// The number on the wire.
    #[inline]
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Whether a connection takes this op before its CONNECT was answered OK; every other is `NOT_AUTHENTICATED`.
    #[must_use]
    pub const fn allowed_before_connect(self) -> bool {
        matches!(self, Self::Connect | Self::Ping | Self::Err)
    }
}

impl std::fmt::Display for Op {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Op;

    #[test]
    fn every_op_is_found_by_its_number_and_no_number_is_taken_twice() {
        for op in Op::ALL {
            assert_eq!(Op::from_number(op.number()), Some(*op));
        }
        let known = (0..=u8::MAX).filter(|number| Op::from_number(*number).is_some()).count();
        assert_eq!(known, Op::ALL.len());
        assert_eq!(Op::from_number(0x00), None);
        assert!((0x80..=0xFF).all(|number| Op::from_number(number).is_none()));
    }

    #[test]
    fn only_connect_ping_and_err_are_taken_before_connect() {
        let early: Vec<&str> = Op::ALL.iter().filter(|op| op.allowed_before_connect()).map(|op| op.name()).collect();
        assert_eq!(early, ["CONNECT", "PING", "ERR"]);
    }
}
