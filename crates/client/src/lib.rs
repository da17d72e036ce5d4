//! Rust client: idempotent producer, consumer with lease renewal, reconnect
