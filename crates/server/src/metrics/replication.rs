//! The series about the other nodes: of a leader about those that follow it, and of any node about what it sent.

use mortarmq_http::BrokerStatus;
use mortarmq_types::NodeId;

use super::series::Series;

/// A row for each node that follows; none where this node does not lead.
pub(super) fn series(broker: &BrokerStatus) -> Vec<Series> {
    let mut entries = Series::gauge("mortarmq_replication_lag_entries", "Entries that a follower has not acknowledged");
    let mut bytes = Series::gauge("mortarmq_replication_lag_bytes", LAG_BYTES);
    let mut catching_up = Series::gauge("mortarmq_replication_catching_up", CATCHING_UP);
    let mut silent = Series::gauge("mortarmq_replication_silent_seconds", "Seconds since a follower was heard");
    for peer in &broker.peers {
        let Some(follower) = peer.replication else { continue };
        let node = peer.id.to_string();
        let labels = [("peer", node.as_str())];
        entries.add(&labels, follower.lag_entries);
        if let Some(lag_bytes) = follower.lag_bytes {
            bytes.add(&labels, lag_bytes);
        }
        catching_up.add(&labels, u64::from(follower.lag_bytes.is_none()));
        // One that was never heard is silent for as long as this process can tell.
        silent.add(&labels, follower.silent_ms.map_or(broker.uptime_s, |ms| ms / 1000));
    }
    vec![entries, bytes, catching_up, silent]
}

/// A row for each other node, also of a node that does not lead: it answers whoever does.
pub(super) fn sent(peers: &[(NodeId, u64)]) -> Series {
    let mut sent = Series::counter("mortarmq_peer_sent_bytes", SENT);
    for (node, bytes) in peers {
        sent.add(&[("peer", &node.to_string())], *bytes);
    }
    sent
}

const SENT: &str = "Bytes of the log, votes, heartbeats and answers sent to another node, with their frames and seals; not what is carried of clients and operators";
const LAG_BYTES: &str = "Bytes of the log that a follower lacks; no row where they are more than is in memory";
const CATCHING_UP: &str = "1 while a follower lacks more than is in memory and is brought up by files";
