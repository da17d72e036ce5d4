//! Hands what connections sent to the hub, and what the hub answers to connections.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use mortarmq_types::WallTime;
use mortarmq_wire::Request;
use mortarmq_wire::ops::ErrorAnswer;
use tokio::sync::mpsc::UnboundedSender;

use super::hub::Hub;

/// Which connection of a floor.
pub(super) type ConnectionNumber = u64;

/// A frame that was cut off a connection's bytes.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) op: u8,
    pub(super) payload: Bytes,
}

/// Where a connection takes what is to be sent on it. Not bounded itself: answers are bounded by the requests that were
/// read, of which a connection reads no more while it writes, and messages by credit.
pub(super) type Outlet = UnboundedSender<BytesMut>;

/// The hub and the ways to its connections.
#[derive(Debug, Default)]
pub(super) struct Desk {
    pub(super) hub: Hub,
    outlets: BTreeMap<ConnectionNumber, Outlet>,
}

/// Bytes for each connection.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    bytes: BTreeMap<ConnectionNumber, BytesMut>,
}

impl Desk {
    pub(super) fn connected(&mut self, connection: ConnectionNumber, outlet: Outlet) {
        self.outlets.insert(connection, outlet);
    }

    pub(super) fn disconnected(&mut self, connection: ConnectionNumber) {
        self.outlets.remove(&connection);
        self.hub.disconnected(connection);
    }

    /// Carries out a connection's requests, in their order.
    pub(super) fn handle(&mut self, connection: ConnectionNumber, frames: &[Frame], outgoing: &mut Outgoing) {
        let out = outgoing.of(connection);
        for frame in frames {
            match Request::decode(frame.op, &frame.payload) {
                Ok(request) => self.hub.handle(connection, &request, &frame.payload, out),
                Err(error) => ErrorAnswer::new(error.code(), frame.op, error.to_string().as_bytes()).encode(out),
            }
        }
    }

    /// Adds the messages that can be delivered.
    pub(super) fn deliver(&mut self, outgoing: &mut Outgoing) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        self.hub.deliver(outgoing, WallTime::new(u64::try_from(now.as_millis()).unwrap_or(u64::MAX)));
    }

    /// Gives each connection what is for it.
    pub(super) fn send(&self, outgoing: Outgoing) {
        for (connection, bytes) in outgoing.bytes {
            if let Some(outlet) = self.outlets.get(&connection).filter(|_| !bytes.is_empty()) {
                // One that has gone needs no answer.
                let _ = outlet.send(bytes);
            }
        }
    }
}

impl Outgoing {
    /// Where bytes for a connection are put.
    pub(super) fn of(&mut self, connection: ConnectionNumber) -> &mut BytesMut {
        self.bytes.entry(connection).or_default()
    }

    /// Takes what is for a connection.
    pub(super) fn take(&mut self, connection: ConnectionNumber) -> BytesMut {
        self.bytes.remove(&connection).unwrap_or_default()
    }
}
