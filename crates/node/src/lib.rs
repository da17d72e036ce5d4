//! One shard on one node: joins the replica, the state machine and the storage. [`Node`] does no I/O itself; [`drive`] has
//! the steps by which a driver carries out what it asks of the disk.
//!
//! It knows nothing of sockets, clocks or threads. A driver feeds inputs (`handle_*`) with its clocks as arguments, then
//! takes outputs ([`Node::poll_output`]) until there are none:
//!
//! 1. [`NodeRecovery`] takes the journal's batches, one by one, and becomes a [`Node`];
//! 2. requests of connections ([`Request`]), queries ([`Query`]) and acts ([`Act`]) of operators come in; commands are collected in one
//!    open batch while the journal writes the one before;
//! 3. with other voters, what they say comes in ([`Node::handle_peer`]), and goes out ([`Output::SendPeer`]); what is asked of a node that
//!    does not lead goes to the one that does ([`Node::handle_forward`], [`Output::SendForward`]);
//! 4. [`Output`]s go out: journal writes, segment work, reads, answers, deliveries.
//!
//! Reading order: `node.rs` (the order of things), `admit.rs` (what a request becomes), `commit.rs` (what an applied batch
//! sets off), `office.rs` (what begins and ends with the leadership), `peers.rs` (how this node stands with the others), `catch_up` (a follower that the log does not bring up), `repair.rs` (bytes that have rotted here), `rejoin.rs` (a node whose journal has), `readmission.rs` (a node whose data is gone), `forward` (what another node answers), `resume.rs` (how a member goes on elsewhere), `duties` (what the leader proposes by itself), `request.rs`, `reply.rs` and `output.rs`.

mod acts;
mod admit;
mod ages;
mod catch_up;
mod changes;
mod clock;
mod commit;
mod config;
mod connections;
mod copies;
mod deliveries;
pub mod drive;
mod duties;
mod fold;
mod forward;
mod hand_over;
mod handles;
mod inspect;
mod journal_queue;
mod letters;
mod node;
mod office;
mod open_batch;
mod options;
mod output;
mod peers;
mod pulls;
mod queries;
mod read_ahead;
mod readmission;
mod recent;
mod recovery;
mod redrives;
mod refusal;
mod rejoin;
mod repair;
mod reply;
mod request;
mod resume;
mod returns;
mod sends;
mod sessions;
mod staged;
mod stretches;
mod traces;
mod unreadable;
pub mod views;
mod word;

pub use catch_up::{CatchUpDone, CatchUpWork};
pub use config::{NodeConfig, Now, PEERS_MAX, Peer, PeersError};
pub use copies::{Copied, CopyWork};
pub use duties::room::DiskState;
pub use fold::{Single, fold};
pub use forward::codec::ForwardBytesError;
pub use forward::message::{ForwardBody, ForwardMessage, StreamId};
pub use handles::Handles;
pub use inspect::Gauges;
pub use mortarmq_replica::{CatchUpMessage, CatchUpWord, HandOverError, PeerMessage};
pub use mortarmq_shard::{DefaultKey, Defaults, SeekTarget};
pub use mortarmq_wire::{ErrorCode, Outcome};
pub use node::{Node, TICK_MS};
pub use options::Settings;
pub use output::{Delivery, Output, ReadJob, ReadResult, SegmentWork};
pub use peers::{PeerState, PeerView};
pub use recovery::{NodeError, NodeRecovery};
pub use refusal::settle_code;
pub use reply::{Answer, CreditGranted, Failure, QueryAnswer, QueryReply, Reply};
pub use request::{Act, LetterAction, LettersAct, Query, Request, Subscribe, Unsent};
pub use word::{PeerWord, PeerWordError};
