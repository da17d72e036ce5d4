//! One file per route.

pub(crate) mod absent;
pub(crate) mod balance;
pub(crate) mod broker;
pub(crate) mod change_defaults;
pub(crate) mod change_group;
pub(crate) mod change_topic;
pub(crate) mod defaults;
pub(crate) mod delete_group;
pub(crate) mod delete_topic;
pub(crate) mod dlq;
pub(crate) mod group;
pub(crate) mod groups;
pub(crate) mod hand_over;
pub(crate) mod healthz;
pub(crate) mod leader;
pub(crate) mod letters;
pub(crate) mod members;
pub(crate) mod metrics;
pub(crate) mod peek;
pub(crate) mod purge;
pub(crate) mod readyz;
pub(crate) mod seek;
pub(crate) mod stats;
pub(crate) mod topic;
pub(crate) mod topics;
pub(crate) mod trace;
