//! Which life of each node's data belongs to the cluster, as far as this node has applied the log: an earlier one is heard no more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mortarmq_node::Peer;
use mortarmq_types::NodeId;

/// Shared by the loop, which tells them, and by all links.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lives(Arc<Mutex<BTreeMap<NodeId, u32>>>);

impl Lives {
    /// The members are these from now on.
    pub(crate) fn tell(&self, members: &[Peer]) {
        let mut lives = self.lock();
        lives.clear();
        for Peer { node_id, data_incarnation } in members {
            let life = lives.entry(*node_id).or_default();
            *life = (*life).max(*data_incarnation);
        }
    }

    /// The life of a node that belongs to the cluster; 0 while that is not known.
    pub(crate) fn of(&self, node: NodeId) -> u32 {
        self.lock().get(&node).copied().unwrap_or_default()
    }

    /// Whether a life of a node was replaced by a later one. One that is later than what this node knows is heard: this node lags.
    pub(crate) fn is_over(&self, node: NodeId, life: u32) -> bool {
        self.of(node) > life
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
