//! A network namespace for each node, joined by a bridge; packets are dropped by `nft` where they come in.
//!
//! The namespaces stand in the room of the program ([`crate::room`]), whose end is theirs.

use std::process::Command;

use super::{Addresses, NODES};
use crate::failure::Outcome;
use crate::tools::sh;

/// The namespaces of a cluster. They are removed with this value.
pub(crate) struct Spaces;

impl Spaces {
    /// Makes the bridge and a namespace with one end of a pair for each node.
    pub(crate) fn make() -> Outcome<Self> {
        // From here on the drop puts away what there is.
        let spaces = Self;
        sh("ip", &["link", "add", BRIDGE, "type", "bridge"])?;
        sh("ip", &["address", "add", &format!("{NETWORK}.254/24"), "dev", BRIDGE])?;
        sh("ip", &["link", "set", BRIDGE, "up"])?;
        for node in 0..NODES {
            let (space, outer) = (space(node), format!("to-{node}"));
            sh("ip", &["netns", "add", &space])?;
            sh("ip", &["link", "add", &outer, "type", "veth", "peer", "name", "eth0", "netns", &space])?;
            sh("ip", &["link", "set", &outer, "master", BRIDGE, "up"])?;
            let address = format!("{}/24", address(node));
            sh("ip", &["-n", &space, "address", "add", &address, "dev", "eth0"])?;
            sh("ip", &["-n", &space, "link", "set", "eth0", "up"])?;
            sh("ip", &["-n", &space, "link", "set", "lo", "up"])?;
            nft(node, "add table inet torture")?;
            nft(node, "add chain inet torture in { type filter hook input priority 0; }")?;
        }
        Ok(spaces)
    }

    /// Where a node listens: the usual ports, on an address of its own.
    pub(crate) fn addresses(node: usize) -> Addresses {
        let at = |port: u16| format!("{}:{port}", address(node));
        Addresses { client: at(7188), admin: at(7190), peer: at(7189) }
    }

    /// A command in a node's namespace, in place of `nsenter`.
    pub(crate) fn command(node: usize, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", space(node))).arg("--").arg(program);
        command
    }

    pub(crate) fn cut(from: usize, to: usize) -> Outcome {
        nft(to, &format!("add rule inet torture in ip saddr {} drop", address(from)))
    }

    pub(crate) fn lose(from: usize, to: usize, percent: u32) -> Outcome {
        let saddr = address(from);
        nft(to, &format!("add rule inet torture in ip saddr {saddr} numgen random mod 100 < {percent} drop"))
    }

    pub(crate) fn heal() -> Outcome {
        (0..NODES).try_for_each(|node| nft(node, "flush chain inet torture in"))
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        // What was not made yet cannot be removed; what stays ends with the room.
        for node in 0..NODES {
            let _ = sh("ip", &["netns", "delete", &space(node)]);
            let _ = sh("ip", &["link", "delete", &format!("to-{node}")]);
        }
        let _ = sh("ip", &["link", "delete", BRIDGE]);
    }
}

/// A rule, where a node's packets come in.
fn nft(node: usize, rule: &str) -> Outcome {
    crate::tools::run(Spaces::command(node, "nft").arg(rule)).map(drop)
}

fn space(node: usize) -> String {
    format!("node{node}")
}

fn address(node: usize) -> String {
    format!("{NETWORK}.{}", node + 1)
}

const BRIDGE: &str = "nodes";
/// Any will do: nothing else is in the room.
const NETWORK: &str = "10.77.0";
