//! One file per command.

pub(crate) mod balance;
pub(crate) mod bench;
pub(crate) mod bench_floor;
pub(crate) mod broker;
pub(crate) mod check;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod defaults;
pub(crate) mod demo;
pub(crate) mod dlq;
pub(crate) mod explain;
pub(crate) mod groups;
pub(crate) mod hash_token;
pub(crate) mod history;
pub(crate) mod init;
pub(crate) mod leader;
pub(crate) mod peek;
pub(crate) mod publish;
pub(crate) mod serve;
pub(crate) mod subscribe;
pub(crate) mod topics;
pub(crate) mod trace;
pub(crate) mod verify;
pub(crate) mod version;
