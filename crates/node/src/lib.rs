//! One shard on one node: admission, batches, waiters, sessions, credit, duties
