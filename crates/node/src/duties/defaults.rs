//! The first leader of a cluster writes its initial values to the catalog.

use mortarmq_shard::Command;

use crate::node::Node;
use crate::open_batch::WaiterKind;

impl Node {
    pub(super) fn add_defaults(&mut self) {
        if self.first_batch_due && self.shard.state().defaults.is_none() {
            self.open.add(&Command::SetDefaults(self.config.initial.clone()), WaiterKind::Nobody);
        }
    }
}
