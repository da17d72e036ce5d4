//! How the nodes reach each other, and how that is broken.

mod relays;
mod spaces;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use crate::failure::{Failure, Outcome, machine};
use relays::Relays;
use spaces::Spaces;

/// How many nodes a cluster has.
pub(crate) const NODES: usize = 3;

/// What the links of a scenario must be capable of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// Loopback; nothing of it is broken.
    Direct,
    /// Every link between two nodes goes through a relay, which delays, holds and resets.
    Relays,
    /// Every node has a network namespace of its own; packets are dropped on the way.
    Spaces,
}

/// Where one node listens.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    pub(crate) client: String,
    pub(crate) admin: String,
    pub(crate) peer: String,
}

/// The network of a cluster.
pub(crate) struct Network {
    addresses: Vec<Addresses>,
    kind: Kind,
}

enum Kind {
    Direct,
    Relays(Relays),
    Spaces(Spaces),
}

impl Network {
    /// Makes it.
    ///
    /// # Errors
    /// When the machine refuses.
    pub(crate) fn make(links: Links) -> Outcome<Self> {
        if links == Links::Spaces {
            let addresses = (0..NODES).map(Spaces::addresses).collect();
            return Ok(Self { addresses, kind: Kind::Spaces(Spaces::make()?) });
        }
        let addresses = free_addresses()?;
        let kind = match links {
            Links::Relays => Kind::Relays(Relays::make(&addresses)?),
            Links::Direct | Links::Spaces => Kind::Direct,
        };
        Ok(Self { addresses, kind })
    }

    /// Where a node listens.
    pub(crate) fn of(&self, node: usize) -> &Addresses {
        &self.addresses[node]
    }

    /// The peers as one node is told them, in JSON.
    pub(crate) fn peers(&self, node: usize) -> String {
        let peer = |other: usize| {
            let dialled = match &self.kind {
                Kind::Relays(relays) if other != node => relays.address(node, other),
                _ => self.addresses[other].peer.clone(),
            };
            serde_json::json!({"id": other, "peer": dialled, "client": self.addresses[other].client})
        };
        serde_json::Value::from((0..NODES).map(peer).collect::<Vec<_>>()).to_string()
    }

    /// A command that runs where a node lives.
    pub(crate) fn command(&self, node: usize, program: &str) -> Command {
        match &self.kind {
            Kind::Spaces(_) => Spaces::command(node, program),
            Kind::Direct | Kind::Relays(_) => Command::new(program),
        }
    }

    /// What `from` says does not reach `to` any more.
    pub(crate) fn cut(&self, from: usize, to: usize) -> Outcome {
        match &self.kind {
            Kind::Spaces(_) => Spaces::cut(from, to),
            Kind::Relays(relays) => {
                relays.hold(from, to);
                Ok(())
            }
            Kind::Direct => Err(unbreakable()),
        }
    }

    /// Of what `from` says to `to`, this share of packets is lost.
    ///
    /// # Units
    /// Per cent.
    pub(crate) fn lose(&self, from: usize, to: usize, percent: u32) -> Outcome {
        match &self.kind {
            Kind::Spaces(_) => Spaces::lose(from, to, percent),
            Kind::Direct | Kind::Relays(_) => Err(unbreakable()),
        }
    }

    /// What `from` says reaches `to` later.
    pub(crate) fn delay(&self, from: usize, to: usize, delay: Duration) -> Outcome {
        self.relays()?.delay(from, to, delay);
        Ok(())
    }

    /// Every connection between two nodes is reset, also inside a frame.
    pub(crate) fn reset(&self, one: usize, other: usize) -> Outcome {
        self.relays()?.reset(one, other);
        Ok(())
    }

    /// Everything reaches everybody again.
    pub(crate) fn heal(&self) -> Outcome {
        match &self.kind {
            Kind::Spaces(_) => Spaces::heal(),
            Kind::Relays(relays) => {
                relays.heal();
                Ok(())
            }
            Kind::Direct => Ok(()),
        }
    }

    fn relays(&self) -> Outcome<&Relays> {
        match &self.kind {
            Kind::Relays(relays) => Ok(relays),
            Kind::Direct | Kind::Spaces(_) => Err(unbreakable()),
        }
    }
}

fn unbreakable() -> Failure {
    Failure::Broken("the scenario breaks links of another kind than it asked for".to_owned())
}

/// Three free ports for each node. They stay the node's over its restarts, so none is one of those that the system gives to whoever
/// connects: a client could have it while the node is down.
fn free_addresses() -> Outcome<Vec<Addresses>> {
    let failed = || machine("no free port");
    let begin = RandomState::new().build_hasher().finish() % PORTS;
    let drawn = (0..PORTS).filter_map(|step| u16::try_from(FIRST_PORT + (begin + step) % PORTS).ok());
    // All are held until the last is found, so that none is given twice.
    let listeners: Vec<TcpListener> =
        drawn.filter_map(|port| TcpListener::bind(("127.0.0.1", port)).ok()).take(NODES * 3).collect();
    if listeners.len() < NODES * 3 {
        return Err(failed()(ErrorKind::AddrInUse.into()));
    }
    let found: Vec<String> = listeners
        .iter()
        .map(|listener| listener.local_addr().map(|address| address.to_string()))
        .collect::<Result<_, _>>()
        .map_err(failed())?;
    let addresses = found.chunks(3).filter_map(|chunk| match chunk {
        [client, admin, peer] => Some(Addresses { client: client.clone(), admin: admin.clone(), peer: peer.clone() }),
        _ => None,
    });
    Ok(addresses.collect())
}

/// Where most systems have neither services nor ports that they give to whoever connects.
const FIRST_PORT: u64 = 20_000;
const PORTS: u64 = 10_000;
