//! Who may connect: without credentials, this machine only.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::ConfigError;

/// Refuses an address that others can reach if nobody has to show who they are. Where nobody set it, it is on this machine
/// then.
///
/// # Source
/// docs/reference/operations.md, "Who may connect".
pub(super) fn check(
    key: &'static str,
    address: SocketAddr,
    is_set: bool,
    has_credentials: bool,
) -> Result<SocketAddr, ConfigError> {
    // `::ffff:127.0.0.1` is this machine too.
    if has_credentials || address.ip().to_canonical().is_loopback() {
        return Ok(address);
    }
    if !is_set {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), address.port()));
    }
    Err(ConfigError::NotLoopback { key, address })
}
