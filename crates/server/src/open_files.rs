//! How many connections there may be, so that they never take the file handles that storage needs: a segment file that
//! cannot be opened ends the process (failure rule 2), and no number of clients may bring that about.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Places for connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// Of each listener of clients.
    pub(crate) clients: u32,
    pub(crate) admins: u32,
}

/// The system lets this process open fewer files than a node needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{limit} open files are allowed and a node needs at least {LIMIT_MIN}: raise the limit (ulimit -n {FILES_WANTED})"
)]
pub struct TooFewFiles {
    /// The limit.
    pub limit: u64,
}

/// Raises the limit of open files as far as the system lets it, and divides what storage leaves.
pub(crate) fn places(max_connections: u32, client_listeners: u32) -> Result<Places, TooFewFiles> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_err() {
        tracing::debug!("the limit of open files stays as it is");
    }
    // No limit at all is more than any number of connections.
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let places = divide(limit, max_connections, client_listeners).ok_or(TooFewFiles { limit })?;
    if places.clients < max_connections {
        tracing::warn!(
            "{limit} open files are allowed: there is room for {} client connections instead of {max_connections} \
             (max_connections); raise the limit (ulimit -n {FILES_WANTED})",
            places.clients
        );
    }
    Ok(places)
}

/// How many client connections a node takes under a limit of open files; `None` if it does not start under it.
///
/// # Source
/// docs/reference/operations.md, `max_connections`.
#[must_use]
pub fn client_places(limit: u64, max_connections: u32, client_listeners: u32) -> Option<u32> {
    divide(limit, max_connections, client_listeners).map(|places| places.clients)
}

/// Files that this process may open; `None` where there is no limit.
pub(crate) fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Clients come before operators, whose part is never nothing.
fn divide(limit: u64, max_connections: u32, client_listeners: u32) -> Option<Places> {
    if limit < LIMIT_MIN {
        return None;
    }
    let room = u32::try_from(limit - RESERVED).unwrap_or(u32::MAX);
    let clients = max_connections.min((room - room / ADMIN_PART) / client_listeners);
    Some(Places { clients, admins: max_connections.min(room - clients * client_listeners) })
}

/// Storage keeps at most 256 segment files open, and 64 removed ones until their room is given back; journal, sockets that
/// listen or are turned away, and scrapes of folders come on top.
const RESERVED: u64 = 448;
const LIMIT_MIN: u64 = 512;
/// Of so many places one is kept for the admin listener.
const ADMIN_PART: u32 = 8;
/// Open files that are enough for the default of 4096 connections on both listeners.
pub const FILES_WANTED: u32 = 16_384;

#[cfg(test)]
mod tests {
    use super::{LIMIT_MIN, Places, RESERVED, divide};

    #[test]
    fn rule_9_connections_never_take_the_file_handles_of_storage() {
        for limit in [LIMIT_MIN, 1024, 4096, 65_536, u64::MAX] {
            for wanted in [1, 100, 4096, u32::MAX] {
                let Places { clients, admins } = divide(limit, wanted, 1).expect("enough");
                assert!(clients > 0 && admins > 0, "{limit} {wanted}");
                assert!(u64::from(clients) + u64::from(admins) + RESERVED <= limit, "{limit} {wanted}");
                assert!(clients <= wanted && admins <= wanted, "{limit} {wanted}");
            }
        }
        assert_eq!(divide(LIMIT_MIN - 1, 1, 1), None);
        assert_eq!(divide(16_384, 4096, 2), Some(Places { clients: 4096, admins: 4096 }));
        assert_eq!(divide(8192, 4096, 2), Some(Places { clients: 3388, admins: 968 }));
        assert_eq!(divide(16_384, 4096, 1), Some(Places { clients: 4096, admins: 4096 }));
    }
}
