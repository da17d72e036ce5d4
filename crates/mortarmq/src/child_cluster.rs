//! Three nodes of this binary as child processes, as one cluster: started in folders of their own, killed and started again one
//! by one.

use std::net::TcpListener;
use std::path::Path;

use mortarmq_client::{Client, ClientOptions, ReconnectOptions};

use crate::admin::Admin;
use crate::child_node::{ChildNode, Launch, Starting};
use crate::commands::leader::Leader;
use crate::errors::Failure;
use crate::session;
use crate::tokens::random_text;

/// A cluster. Its processes end with this value at the latest.
pub(crate) struct ChildCluster {
    /// Its nodes, by id.
    pub(crate) nodes: Vec<ChildNode>,
    /// Whether each is to be alive.
    lives: Vec<bool>,
}

impl ChildCluster {
    /// Starts the nodes below a folder and waits until all of them listen.
    ///
    /// # Errors
    /// When one cannot be started or does not become ready.
    pub(crate) fn start(folder: &Path) -> Result<Self, Failure> {
        let secret = random_text::<24>()?;
        let mut ports = Ports::default();
        let mut address = || ports.free().map(|port| format!("127.0.0.1:{port}"));
        let mut places = Vec::new();
        for _ in 0..NODES {
            // Of the others, of clients and of operators; they stay the same when a node is started again.
            places.push([address()?, address()?, address()?]);
        }
        let peers: Vec<String> = places
            .iter()
            .enumerate()
            .map(|(id, [peer, client, _])| format!(r#"{{"id":{id},"peer":"{peer}","client":"{client}"}}"#))
            .collect();
        let peers = format!("[{}]", peers.join(","));
        let mut starting = Vec::new();
        for (id, [peer, client, admin]) in places.iter().enumerate() {
            let id = id.to_string();
            let flags = ["--node-id", &id, "--peers", &peers, "--listen-peer", peer].map(str::to_owned);
            let environment = vec![("MORTARMQ_PEER_SECRET", secret.clone())];
            let launch = Launch { flags: flags.into(), environment };
            starting.push(ChildNode::begin(&folder.join(format!("node{id}")), client, admin, launch)?);
        }
        // None is ready before all have found each other.
        let nodes = starting.into_iter().map(Starting::ready).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { lives: vec![true; nodes.len()], nodes })
    }

    /// A client that knows all nodes, whose work is recorded if `options` say so.
    ///
    /// # Errors
    /// When none answers.
    pub(crate) async fn connect(&self, options: ClientOptions) -> Result<Client, Failure> {
        let servers = self.nodes.iter().map(|node| node.client.clone()).collect();
        // The nodes are on this machine: the next one is tried soon.
        let reconnect = ReconnectOptions { initial_ms: 10, max_ms: 100, give_up_after: None };
        let options = ClientOptions { servers, reconnect, ..options };
        Client::connect(options).await.map_err(|error| session::failure(&error))
    }

    /// The node that leads and serves, if there is one among those that are to be alive, and its epoch.
    pub(crate) fn leader(&self) -> Option<(usize, u64)> {
        let alive = (0..self.nodes.len()).filter(|node| self.lives[*node]);
        let mut leads = alive.filter_map(|node| {
            // One that says so of itself has just heard a majority.
            let known = self.ask_leader(node)?;
            (known.leader_id.map(usize::from) == Some(node)).then_some((node, known.leader_epoch))
        });
        leads.next()
    }

    /// Kills a node as a crash does.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn kill(&mut self, node: usize) -> Result<(), Failure> {
        self.lives[node] = false;
        self.nodes[node].kill()
    }

    /// Starts a node again where the others and its clients know it.
    ///
    /// # Errors
    /// As [`ChildCluster::start`].
    pub(crate) fn restart(&mut self, node: usize) -> Result<(), Failure> {
        self.nodes[node].restart_in_place()?;
        self.lives[node] = true;
        Ok(())
    }

    fn ask_leader(&self, node: usize) -> Option<Leader> {
        // One that hears no majority answers too; whoever asks again and again is not to be told so each time.
        let (status, text) = Admin::new(&self.nodes[node].admin_args()).ok()?.text(Leader::ROUTE).ok()?;
        (status == 200).then(|| serde_json::from_str(&text).ok())?
    }
}

impl Drop for ChildCluster {
    fn drop(&mut self) {
        // All at once, so that they end at the same time.
        self.nodes.iter_mut().for_each(ChildNode::ask_to_end);
    }
}

/// Reads how many nodes there are to be.
///
/// # Errors
/// A text for the user when it is neither one nor three.
pub(crate) fn one_or_three(text: &str) -> Result<u16, String> {
    match text {
        "1" => Ok(1),
        "3" => Ok(3),
        _ => Err("one node or three: 1 or 3".to_owned()),
    }
}

/// Ports that nobody listens on.
#[derive(Default)]
struct Ports {
    taken: Vec<u16>,
}

impl Ports {
    /// One more. Not one of those that the system gives to whoever connects: it could be given away before its node listens, or
    /// while the node is down.
    fn free(&mut self) -> Result<u16, Failure> {
        for _ in 0..TRIES {
            let drawn = getrandom::u32().map_err(|error| {
                Failure::local(format!("no random numbers: {error}"), "try again on another machine")
            })?;
            let port = FIRST_PORT + u16::try_from(drawn % u32::from(PORTS)).expect("below a u16");
            if !self.taken.contains(&port) && TcpListener::bind(("127.0.0.1", port)).is_ok() {
                self.taken.push(port);
                return Ok(port);
            }
        }
        Err(Failure::local("no free ports on this machine", "end what listens on many ports, then repeat"))
    }
}

/// As many as keep a majority when one is gone.
pub(crate) const NODES: usize = 3;
/// Where most systems have neither services nor ports of their own.
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 10_000;
const TRIES: u32 = 200;
