//! Raft driving for one shard, without I/O
