//! The replicated state machine: catalog, partitions, producers, paths
