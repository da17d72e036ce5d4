//! Three nodes of the real binary, their disks and their network.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::disk::Disk;
use crate::failure::{Failure, Outcome, ensure};
use crate::ground::{Disks, Ground};
use crate::network::{Addresses, NODES, Network};
use crate::node::Node;
use crate::operator::{Books, Operator, TOKEN_SHA256};
use crate::tools;
use crate::wait::wait_for;

/// Three nodes. Everything ends with this value.
pub(crate) struct Cluster {
    // Nodes end before their disks are unmounted and their network goes.
    nodes: Vec<Option<Node>>,
    disks: Vec<Disk>,
    network: Network,
    operator: Operator,
    binary: PathBuf,
    folder: PathBuf,
    clock: Option<Clock>,
}

/// A wall clock of the nodes that can be set.
struct Clock {
    library: PathBuf,
    file: PathBuf,
}

impl Cluster {
    /// Makes disks and network, starts the nodes and waits until one of them leads.
    pub(crate) fn start(binary: &Path, folder: &Path, ground: Ground) -> Outcome<Self> {
        let disk = |node: usize| {
            let folder = folder.join(format!("node{node}"));
            match ground.disks {
                Disks::Folders => Disk::folder(folder),
                Disks::Lossy => Disk::lossy(folder),
            }
        };
        let library = tools::find_faketime().filter(|_| ground.has_own_clock);
        let mut cluster = Self {
            nodes: (0..NODES).map(|_| None).collect(),
            disks: (0..NODES).map(disk).collect::<Outcome<_>>()?,
            network: Network::make(ground.links)?,
            operator: Operator::new(),
            binary: binary.to_path_buf(),
            folder: folder.to_path_buf(),
            clock: library.map(|library| Clock { library, file: folder.join("clock") }),
        };
        cluster.set_clock(0)?;
        (0..NODES).try_for_each(|node| cluster.spawn(node))?;
        (0..NODES).try_for_each(|node| cluster.wait_until_ready(node))?;
        cluster.leader()?;
        Ok(cluster)
    }

    /// Starts a node; does not wait for it.
    pub(crate) fn spawn(&mut self, node: usize) -> Outcome {
        let command = self.serve(node);
        self.nodes[node] = Some(Node::start(command, &self.log(node))?);
        Ok(())
    }

    /// The command of a node.
    fn serve(&self, node: usize) -> Command {
        let mut command = self.network.command(node, &self.binary.to_string_lossy());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("MORTARMQ_") {
                command.env_remove(name);
            }
        }
        let at = self.network.of(node);
        let (id, peers) = (node.to_string(), self.network.peers(node));
        let tokens = serde_json::json!([{"name": "torture", "sha256": TOKEN_SHA256, "grants": [{"action": "admin"}]}]);
        command.args(["serve", "--node-id", &id, "--peers", &peers, "--peer-secret", PEER_SECRET]);
        command.args(["--listen-client", &at.client, "--listen-admin", &at.admin, "--listen-peer", &at.peer]);
        command.args(["--tokens", &tokens.to_string()]).args(SETTINGS);
        command.arg("--data-dir").arg(self.disks[node].data_dir());
        if let Some(clock) = &self.clock {
            command.env("LD_PRELOAD", &clock.library).env("FAKETIME_TIMESTAMP_FILE", &clock.file);
            command.envs([("FAKETIME_NO_CACHE", "1"), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")]);
        }
        command
    }

    /// Sets the wall clock of all nodes so far from the right time.
    pub(crate) fn set_clock(&self, offset_s: i64) -> Outcome {
        let Some(clock) = &self.clock else { return Ok(()) };
        let failed = || crate::failure::machine("cannot set the nodes' clock");
        // Renamed, so that no node reads a half-written one.
        let aside = clock.file.with_extension("new");
        std::fs::write(&aside, format!("{offset_s:+}\n")).map_err(failed())?;
        std::fs::rename(&aside, &clock.file).map_err(failed())
    }

    /// Waits until a node takes clients.
    pub(crate) fn wait_until_ready(&mut self, node: usize) -> Outcome {
        wait_for(&format!("node {node} is ready"), PATIENCE, || {
            self.check_alive()?;
            Ok(self.node(node)?.is_ready().then_some(()))
        })
    }

    /// The node that leads, once there is one: it answers from what a majority confirms.
    pub(crate) fn leader(&mut self) -> Outcome<usize> {
        self.books().map(|(leader, _)| leader)
    }

    /// The books and who leads, once somebody does.
    pub(crate) fn books(&mut self) -> Outcome<(usize, Books)> {
        wait_for("a node leads", PATIENCE, || {
            self.check_alive()?;
            Ok(self.books_now())
        })
    }

    /// The books and who leads, if somebody does. Any node may answer for the leader; where answers differ, the later term is
    /// right.
    fn books_now(&self) -> Option<(usize, Books)> {
        let told = self.up().into_iter().filter_map(|node| {
            let admin = &self.network.of(node).admin;
            let books = self.operator.books(admin)?;
            let leader = self.operator.leader(admin)?;
            (!books.stale).then_some((leader, books))
        });
        told.max_by_key(|(_, books)| books.epoch)
    }

    /// Has a node readmitted that runs with an empty folder, and waits until it votes.
    pub(crate) fn readmit(&mut self, node: usize) -> Outcome {
        let others = |cluster: &Self| {
            let up = cluster.up().into_iter().filter(|other| *other != node);
            up.map(|other| cluster.network.of(other).admin.clone()).collect::<Vec<_>>()
        };
        wait_for(&format!("node {node} is readmitted"), PATIENCE, || {
            self.check_alive()?;
            Ok(others(self).iter().any(|admin| self.operator.readmit(admin, node)).then_some(()))
        })?;
        wait_for(&format!("node {node} votes"), PATIENCE, || {
            self.check_alive()?;
            Ok(others(self).iter().any(|admin| self.operator.votes(admin, node)).then_some(()))
        })
    }

    /// Waits until all nodes run, one of them leads, and it hears the others and lacks nothing of what they are to have. Who leads, and
    /// in which epoch.
    pub(crate) fn until_whole(&mut self) -> Outcome<(usize, u64)> {
        wait_for("all nodes follow the one that leads", PATIENCE, || {
            self.check_alive()?;
            let Some((leader, books)) = self.books_now() else { return Ok(None) };
            let followers = self.operator.followers(&self.network.of(leader).admin).unwrap_or_default();
            let is_whole = followers.len() == NODES - 1 && followers.iter().all(|follower| follower.is_near());
            Ok((is_whole && self.up().len() == NODES).then_some((leader, books.epoch)))
        })
    }

    /// The nodes that run and are not paused.
    pub(crate) fn up(&self) -> Vec<usize> {
        let is_up = |node: &usize| self.nodes[*node].as_ref().is_some_and(|node| !node.is_paused());
        (0..NODES).filter(is_up).collect()
    }

    /// The node, which must run.
    pub(crate) fn node(&mut self, node: usize) -> Outcome<&mut Node> {
        self.nodes[node].as_mut().ok_or_else(|| Failure::Broken(format!("node {node} does not run")))
    }

    /// Takes a node away, for it to be ended, or because it has.
    pub(crate) fn take(&mut self, node: usize) -> Outcome<Node> {
        self.nodes[node].take().ok_or_else(|| Failure::Broken(format!("node {node} does not run")))
    }

    /// Fails if a node has ended that nobody ended.
    pub(crate) fn check_alive(&mut self) -> Outcome {
        for (number, place) in self.nodes.iter_mut().enumerate() {
            let Some(node) = place else { continue };
            if let Some(status) = node.ended()? {
                let end = node.log_end();
                return Err(Failure::Broken(format!("node {number} ended by itself with {status}: {end}")));
            }
        }
        Ok(())
    }

    /// Where all nodes listen.
    pub(crate) fn addresses(&self) -> Vec<Addresses> {
        (0..NODES).map(|node| self.network.of(node).clone()).collect()
    }

    /// The disk of a node.
    pub(crate) fn disk(&self, node: usize) -> &Disk {
        &self.disks[node]
    }

    /// The network.
    pub(crate) fn network(&self) -> &Network {
        &self.network
    }

    /// Asks operators' questions.
    pub(crate) fn operator(&self) -> &Operator {
        &self.operator
    }

    /// Reads all that a stopped node keeps: nothing of it may be damaged.
    pub(crate) fn verify(&self, node: usize) -> Outcome {
        ensure(self.nodes[node].is_none(), || format!("node {node} runs"))?;
        let mut command = Command::new(&self.binary);
        command.arg("verify").arg(self.disks[node].data_dir());
        tools::run(&mut command).map(drop).map_err(|why| Failure::Broken(format!("node {node} is damaged: {why}")))
    }

    fn log(&self, node: usize) -> PathBuf {
        self.folder.join(format!("node{node}.log"))
    }
}

/// What the nodes show each other.
const PEER_SECRET: &str = "a secret of these three nodes";
/// Small files, so that minutes see checkpoints and roll-overs; answers that come soon also without a majority; the stages of a
/// start in the log.
const SETTINGS: &[&str] = &[
    "--journal-file-bytes",
    "4MiB",
    "--snapshot-journal-bytes",
    "4MiB",
    "--journal-keep-bytes",
    "4MiB",
    "--disk-reserve-bytes",
    "4MiB",
    "--publish-timeout-ms",
    "1000",
    "--log-level",
    "debug",
];
/// Longer than an election, a recovery and a catch-up together on a machine that is busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
