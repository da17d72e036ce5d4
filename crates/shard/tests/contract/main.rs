//! The state machine against a model of its contract: [`model`] is the contract as maps and lists, [`compare`] holds the two
//! against one another after every batch, [`op`] says what may happen. [`histories`] lives random histories, [`small_scope`]
//! every history of a small world.

mod compare;
mod histories;
mod model;
mod op;
mod random;
mod small_scope;
