//! The other nodes of a cluster, as the node that is asked knows them.

use super::Row;
use crate::commands::broker::{Broker, Link, Peer};

/// A row for each thing that may be wrong between the nodes; none for a node that is alone.
pub(super) fn examine(broker: &Broker) -> Vec<Row> {
    if broker.peers.is_empty() {
        return Vec::new();
    }
    let mut rows: Vec<Row> = broker.peers.iter().map(reached).collect();
    let known: Vec<(u16, &Link)> =
        broker.peers.iter().filter_map(|peer| Some((peer.id, peer.link.as_ref()?))).collect();
    rows.push(peer_tables(&known));
    rows.push(clocks(&known));
    rows.push(devices(&known));
    rows.push(versions(&broker.version, &known));
    rows.extend(broker.peers.iter().filter_map(follows));
    rows
}

fn reached(peer: &Peer) -> Row {
    const CHECK: &str = "peer";
    let node = peer.id;
    let Some(link) = &peer.link else {
        return Row::unknown(CHECK, format!("nothing is known of node {node}"), "mortarmq broker status");
    };
    if link.up {
        return Row::ok(CHECK, format!("node {node} at {}: connected", link.address));
    }
    let why = link.error.as_deref().unwrap_or("it was not dialled yet");
    Row::finding(
        CHECK,
        format!("node {node} at {} is not reached: {why}", link.address),
        format!(
            "mortarmq serve      (start node {node}; if it runs: its listen_peer, its address in peers, the firewall)"
        ),
    )
}

fn peer_tables(known: &[(u16, &Link)]) -> Row {
    const CHECK: &str = "peer_tables";
    match nodes(known, |link| link.same_peers == Some(false)) {
        Some(other) => Row::finding(
            CHECK,
            format!("{other} lists other addresses or another order in peers: they dial and elect by different lists"),
            "mortarmq config show      (on each node; make peers the same everywhere, then restart one after the other)",
        ),
        None => said(known, Row::ok(CHECK, "peers is the same on every node that was heard")),
    }
}

fn clocks(known: &[(u16, &Link)]) -> Row {
    const CHECK: &str = "clocks";
    let apart = |link: &Link| link.clock_ahead_ms.unwrap_or(0).unsigned_abs();
    match nodes(known, |link| apart(link) > CLOCK_MS_MAX) {
        Some(_) => {
            let far = known.iter().filter(|(_, link)| apart(link) > CLOCK_MS_MAX);
            let told: Vec<String> = far
                .map(|(node, link)| {
                    let side = if link.clock_ahead_ms.unwrap_or(0) < 0 { "behind" } else { "ahead" };
                    format!("node {node} is {:.1} s {side}", seconds(apart(link)))
                })
                .collect();
            Row::finding(
                CHECK,
                format!("{} of this one: times of messages, traces and seek by time disagree", told.join(", ")),
                "timedatectl      (on each node; have NTP or chrony keep the clocks)",
            )
        }
        None => said(known, Row::ok(CHECK, format!("no node that was heard is over {} ms away", CLOCK_MS_MAX))),
    }
}

fn devices(known: &[(u16, &Link)]) -> Row {
    const CHECK: &str = "devices";
    match nodes(known, |link| link.same_device == Some(true)) {
        Some(other) => Row::finding(
            CHECK,
            format!("{other} {} on the same device as this node: one broken disk takes all", keeps(&other)),
            "mortarmq serve --data-dir DIR      (for each node a disk of its own, best a machine of its own)",
        ),
        None => said(known, Row::ok(CHECK, "no node that was heard shares this one's device")),
    }
}

fn versions(ours: &str, known: &[(u16, &Link)]) -> Row {
    const CHECK: &str = "versions";
    match nodes(known, |link| link.version.as_deref().is_some_and(|version| version != ours)) {
        Some(_) => {
            let others = known.iter().filter_map(|(node, link)| Some((node, link.version.as_ref()?)));
            let told: Vec<String> = others.map(|(node, version)| format!("node {node} {version}")).collect();
            Row::finding(
                CHECK,
                format!("this node is {ours}, {}: what is new is used once all have it", told.join(", ")),
                "mortarmq version      (upgrade the others, one after the other: docs/clusters.md)",
            )
        }
        None => said(known, Row::ok(CHECK, format!("{ours} on every node that was heard"))),
    }
}

fn follows(peer: &Peer) -> Option<Row> {
    const CHECK: &str = "replication";
    let follower = peer.replication.as_ref()?;
    Some(match follower.state.as_str() {
        "current" => Row::ok(CHECK, peer.told()),
        _ => Row::finding(CHECK, peer.told(), "mortarmq broker status      (what to do: docs/runbooks, RB-1 and RB-5)"),
    })
}

fn keeps(nodes: &str) -> &'static str {
    if nodes.contains(" and ") { "keep their data" } else { "keeps its data" }
}

/// What is right of nobody is not known.
fn said(known: &[(u16, &Link)], row: Row) -> Row {
    if known.iter().any(|(_, link)| link.version.is_some()) {
        return row;
    }
    Row::unknown(
        row.check,
        "no other node has said anything of itself yet",
        "mortarmq doctor      (again in a moment, of the node that leads)",
    )
}

/// Those of which something is true, by name.
fn nodes(known: &[(u16, &Link)], is: impl Fn(&Link) -> bool) -> Option<String> {
    let found: Vec<String> =
        known.iter().filter(|(_, link)| is(link)).map(|(node, _)| format!("node {node}")).collect();
    (!found.is_empty()).then(|| found.join(" and "))
}

#[expect(clippy::cast_precision_loss, reason = "one digit behind the point is shown")]
const fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

/// Clocks that anything keeps are closer; a sign of life is on its way for less.
const CLOCK_MS_MAX: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::examine;
    use crate::commands::broker::Broker;
    use crate::commands::doctor::State;

    fn broker(peers: serde_json::Value) -> Broker {
        let told = serde_json::json!({"node_id": 0, "uptime_s": 1, "connections": 0, "version": "1.0.0",
            "quorum_state": 0, "role": "leader", "leader_id": 0, "peers": peers});
        serde_json::from_value(told).expect("whole")
    }

    fn link(changes: &serde_json::Value) -> serde_json::Value {
        let mut link = serde_json::json!({"address": "b:7189", "up": true, "version": "1.0.0", "clock_ahead_ms": -900,
            "same_peers": true, "same_device": false});
        for (key, value) in changes.as_object().expect("an object") {
            link[key] = value.clone();
        }
        link
    }

    /// The findings of a cluster of two, with another link.
    fn findings(changes: &serde_json::Value, state: &str) -> Vec<(&'static str, String)> {
        let replication = serde_json::json!({"state": state, "lag_entries": 7, "lag_bytes": 2048, "silent_ms": 50});
        let peers = serde_json::json!([{"id": 1, "link": link(changes), "replication": replication}]);
        let rows = examine(&broker(peers)).into_iter().filter(|row| row.state == State::Finding);
        rows.map(|row| (row.check, format!("{} | {}", row.detail, row.command.expect("each says what to type"))))
            .collect()
    }

    #[test]
    fn a_node_that_is_alone_has_no_rows_and_a_cluster_that_is_well_no_findings() {
        assert_eq!(examine(&broker(serde_json::json!([]))), []);
        assert_eq!(findings(&serde_json::json!({}), "current"), []);
    }

    #[test]
    fn each_thing_that_will_hurt_is_one_finding_that_names_the_node_and_what_to_do() {
        let down = serde_json::json!({"up": false, "error": "nobody answers: refused"});
        for (changes, state, check, said) in [
            (down, "current", "peer", "node 1 at b:7189 is not reached: nobody answers: refused"),
            (serde_json::json!({"same_peers": false}), "current", "peer_tables", "node 1 lists other addresses"),
            (serde_json::json!({"clock_ahead_ms": -1001}), "current", "clocks", "node 1 is 1.0 s behind"),
            (serde_json::json!({"clock_ahead_ms": 7300}), "current", "clocks", "node 1 is 7.3 s ahead"),
            (
                serde_json::json!({"same_device": true}),
                "current",
                "devices",
                "node 1 keeps its data on the same device",
            ),
            (serde_json::json!({"version": "1.0.1"}), "current", "versions", "this node is 1.0.0, node 1 1.0.1"),
            (serde_json::json!({}), "silent", "replication", "node 1 follows: silent, 7 entries (2 KiB) behind"),
        ] {
            let found = findings(&changes, state);
            assert!(found.len() == 1 && found[0].0 == check && found[0].1.contains(said), "{check}: {found:?}");
        }
    }

    #[test]
    fn what_nobody_has_said_is_no_all_clear() {
        let nothing =
            serde_json::json!({"version": null, "clock_ahead_ms": null, "same_peers": null, "same_device": null});
        let rows = examine(&broker(serde_json::json!([{"id": 1, "link": link(&nothing)}])));
        let unknown: Vec<&str> = rows.iter().filter(|row| row.state == State::Unknown).map(|row| row.check).collect();
        assert_eq!(unknown, ["peer_tables", "clocks", "devices", "versions"]);
    }
}
