//! What the workspace promises about its own sources, as rules that a test can break.
//!
//! It knows nothing of the broker: it reads files. Each rule is a module with one `check` that takes the
//! [`Workspace`] and returns [`Finding`]s; the tests in `tests/` run it on this repository, where it must find
//! nothing, and on bad samples, where it must find something.
//!
//! - [`boundaries`]: arrows between crates only point down.
//! - [`purity`]: the core has no clock, randomness, thread, socket, file or unordered map.
//! - [`limits`]: the length of files and functions; `lib.rs` is only a map.
//! - [`evidence`]: each statement of the protocol's page is kept somewhere and proved by a test.
//! - [`deployment`]: what a node is deployed with names settings, ports and versions that there are.
//! - [`docs`]: links lead somewhere, and no file speaks of the machine it was written on.
//!
//! Start with [`source`]: it hides comments, strings and test code, so that the rules see code only.

mod finding;
mod workspace;

pub mod boundaries;
pub mod deployment;
pub mod docs;
pub mod evidence;
pub mod limits;
pub mod purity;
pub mod source;

pub use finding::{Finding, report};
pub use workspace::{RustFile, Workspace};
