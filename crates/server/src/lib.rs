//! Tokio driver: threads, TCP, admin listener, metrics
