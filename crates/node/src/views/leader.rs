//! Who leads: `GET /v1/cluster/leader`.

use serde::Serialize;

/// Who leads the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LeaderView {
    /// The leading node; absent when none is known.
    pub leader_id: Option<u16>,
    /// Its term.
    pub leader_epoch: u64,
    /// 0 healthy, 1 soft, 2 read-only.
    pub quorum_state: u8,
}
