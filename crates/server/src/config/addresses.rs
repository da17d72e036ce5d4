//! Who may connect: without credentials, this machine only.

use std::net::SocketAddr;

use super::ConfigError;

/// Refuses an address that others can reach. What nobody set is on this machine by its default.
///
/// # Source
/// docs/reference/operations.md, "Who may connect".
pub(super) fn check(key: &'static str, address: SocketAddr, is_set: bool) -> Result<SocketAddr, ConfigError> {
    // `::ffff:127.0.0.1` is this machine too.
    if address.ip().to_canonical().is_loopback() {
        return Ok(address);
    }
    assert!(is_set, "the default of {key} is on this machine");
    Err(ConfigError::NotLoopback { key, address })
}
