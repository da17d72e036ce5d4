//! Frames, ops and the error registry of the MortarMQ wire protocol, version 1 (docs/reference/wire.md).
//!
//! This crate turns bytes into typed values once, at the edge, and back. It does no I/O, keeps no state between calls
//! and allocates nothing per field: what it decodes borrows from the receive buffer, what it encodes is appended to the
//! caller's buffer. It knows nothing of topics, leases or sockets, only of `mortarmq-types`.
//!
//! How a connection is driven:
//!
//! 1. [`split_frame`] cuts one frame off the receive buffer, or says how many bytes are missing.
//! 2. A server gives op and payload to [`Request::decode`], a client to [`ServerFrame::decode`].
//! 3. Each op has a file in [`ops`] with its request, its OK result, and an `encode` that appends a whole frame.
//!
//! Read [`frame`] first (the limits), then [`body`] (key, headers and value, the same everywhere), then one op such as
//! [`ops::publish`]. [`errors`] is the registry of error codes, from which `explain` and the documentation are printed.

mod decode;
mod encode;

pub mod body;
pub mod errors;
pub mod faults;
pub mod frame;
pub mod list;
pub mod names;
pub mod op;
pub mod ops;

pub use body::{Headers, RecordBody, write_body, write_body_with};
pub use errors::{ErrorCode, Outcome, Standing};
pub use faults::{DecodeError, EncodeError, FrameError};
pub use frame::{Split, split_frame};
pub use list::List;
pub use op::Op;
pub use ops::{Request, ServerFrame};
