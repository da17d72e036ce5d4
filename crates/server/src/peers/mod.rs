//! The links to the other nodes: what they say arrives at the shard's loop, and what it says to them leaves.
//!
//! A node dials each other one and only says something over the links that it dialled. So there are two pairs of them between any two
//! nodes, in each direction one for the log and one for all else: votes, heartbeats and answers never wait behind entries. Whoever
//! connects shows first that it knows the secret of the cluster and means this node; every frame is numbered and sealed. With the files of TLS all
//! of it is encrypted, and both ends show a certificate before anything else.
//! What is lost with a link is said again by whoever needs it.
//!
//! Reading order: `entry.rs` (a node's way into its cluster), `tls.rs` (whether they are encrypted), `handshake.rs` (who connects to whom, and with which keys), `mortarmq_transport::sealed` (frames), `outgoing.rs` and `incoming.rs` (the
//! links), `assembly.rs` (how the nodes of a new cluster find each other), `lives.rs` (whose data counts), `card.rs` and `known.rs` (what nodes say of themselves, for
//! their operators), `waiting_room.rs` (what operators are told before a node begins).

mod assembly;
mod card;
mod entry;
mod handshake;
mod incoming;
mod known;
mod lives;
mod messages;
mod outgoing;
mod tls;
mod waiting_room;

pub use assembly::AssemblyError;
pub(crate) use entry::{Entry, Promise};
pub(crate) use handshake::{Lane, OwnSide, Secret};
pub(crate) use known::Known;
pub(crate) use outgoing::{Dial, DialError, PeerLinks, connect};
pub(crate) use tls::carried;
pub(crate) use waiting_room::{WaitingRoom, Why};
