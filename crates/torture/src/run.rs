//! One run of a scenario: the cluster under its load, and the verbs that scenarios are written in.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mortarmq_history::Fault;

use crate::chance::Chance;
use crate::cluster::{Cluster, PATIENCE};
use crate::disk::Disk;
use crate::failure::{Failure, Outcome, ensure};
use crate::load::{Answers, Failover, Load, Tally};
use crate::network::NODES;
use crate::wait::{pass, wait_for};

/// A cluster under load, to which a scenario does what it does.
pub struct Run {
    // Clients end before the cluster they talk to.
    load: Load,
    cluster: Cluster,
    chance: Chance,
    /// Faults that were begun.
    faults: u64,
    /// Those that last.
    open: Vec<Open>,
    /// Nodes that stay out until the end.
    out: Vec<usize>,
    /// Whether a power loss took anything.
    has_lost: bool,
}

/// A fault that lasts.
struct Open {
    kind: &'static str,
    node: Option<usize>,
    call: u64,
}

/// Who had which role when it was asked.
#[derive(Clone, Copy, Debug)]
pub struct Cast {
    /// The node that led.
    pub leader: usize,
    /// The others.
    pub followers: [usize; 2],
}

impl Run {
    pub(crate) const fn new(cluster: Cluster, load: Load, chance: Chance) -> Self {
        Self { load, cluster, chance, faults: 0, open: Vec::new(), out: Vec::new(), has_lost: false }
    }

    /// Who leads and who follows, once somebody leads.
    pub(crate) fn cast(&mut self) -> Outcome<Cast> {
        let leader = self.cluster.leader()?;
        Ok(Cast { leader, followers: [(leader + 1) % NODES, (leader + 2) % NODES] })
    }

    /// Waits until publishes that are called from now on are confirmed: the cluster takes work.
    pub(crate) fn goes_on(&mut self) -> Outcome {
        let from = Instant::now();
        let enough = self.tally().counts().publishes + WORK;
        wait_for("publishes are confirmed", PATIENCE, || {
            self.check_alive()?;
            let is_new = self.tally().latest_call().is_some_and(|call| call > from);
            Ok((is_new && self.tally().counts().publishes >= enough).then_some(()))
        })
    }

    /// Lets this time pass, in which no publish that is called may be confirmed: there is no majority.
    pub(crate) fn stands_still(&mut self, time: Duration) -> Outcome {
        let from = Instant::now();
        self.lasts(time)?;
        ensure(self.tally().latest_call().is_none_or(|call| call <= from), || {
            "P1: a publish was confirmed that no majority can have".to_owned()
        })
    }

    /// Lets a fault last.
    pub(crate) fn lasts(&mut self, time: Duration) -> Outcome {
        self.check_alive()?;
        pass(time)?;
        self.check_alive()
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self, node: usize) -> Outcome {
        self.begin("kill", Some(node));
        self.cluster.take(node)?.kill()
    }

    /// SIGTERM, and waits for the end.
    pub(crate) fn stop(&mut self, node: usize) -> Outcome {
        self.begin("stop", Some(node));
        self.cluster.take(node)?.stop()
    }

    /// Starts a node that is down, and does not wait.
    pub(crate) fn start(&mut self, node: usize) -> Outcome {
        self.cluster.spawn(node)
    }

    /// Starts a node that is down, and waits until it takes clients.
    pub(crate) fn back(&mut self, node: usize) -> Outcome {
        self.start(node)?;
        self.cluster.wait_until_ready(node)?;
        self.end(Some(node));
        Ok(())
    }

    /// Starts some nodes at once, and waits until all take clients.
    pub(crate) fn back_together(&mut self, nodes: &[usize]) -> Outcome {
        nodes.iter().try_for_each(|node| self.start(*node))?;
        for node in nodes {
            self.cluster.wait_until_ready(*node)?;
            self.end(Some(*node));
        }
        Ok(())
    }

    /// SIGSTOP.
    pub(crate) fn pause(&mut self, node: usize) -> Outcome {
        self.begin("pause", Some(node));
        self.cluster.node(node)?.pause()
    }

    /// SIGCONT.
    pub(crate) fn resume(&mut self, node: usize) -> Outcome {
        self.cluster.node(node)?.resume()?;
        self.end(Some(node));
        Ok(())
    }

    /// The power of some machines goes at the same moment: processes die, and what was not synced is kept, lost or torn.
    pub(crate) fn lose_power(&mut self, nodes: &[usize]) -> Outcome {
        for node in nodes {
            self.begin("power", Some(*node));
        }
        nodes.iter().try_for_each(|node| self.cluster.take(*node)?.kill())?;
        for node in nodes {
            let seed = self.chance.below(u64::MAX);
            self.has_lost |= self.cluster.disk(*node).lose_power(seed)?;
        }
        Ok(())
    }

    /// Fails if no power loss so far took anything: then it was a kill, and nothing was proved.
    pub(crate) fn has_lost_something(&self) -> Outcome {
        ensure(self.has_lost, || "no power loss took anything that was not synced".to_owned())
    }

    /// A fault of a disk, by one of its own verbs.
    pub(crate) fn disk(&mut self, node: usize, kind: &'static str, act: impl FnOnce(&Disk) -> Outcome) -> Outcome {
        self.begin(kind, Some(node));
        act(self.cluster.disk(node))
    }

    /// The end of a fault of a disk.
    pub(crate) fn mend_disk(&mut self, node: usize, act: impl FnOnce(&Disk) -> Outcome) -> Outcome {
        act(self.cluster.disk(node))?;
        self.end(Some(node));
        Ok(())
    }

    /// The disk of a node, for a look at it.
    pub(crate) fn disk_of(&self, node: usize) -> &Disk {
        self.cluster.disk(node)
    }

    /// What each of these pairs says, one direction each, does not arrive any more.
    pub(crate) fn cut(&mut self, ways: &[(usize, usize)]) -> Outcome {
        self.begin("partition", None);
        ways.iter().try_for_each(|(from, to)| self.cluster.network().cut(*from, *to))
    }

    /// A node neither hears the others nor is heard.
    pub(crate) fn isolate(&mut self, node: usize) -> Outcome {
        let others = others(node);
        self.cut(&others.map(|other| (node, other)))?;
        others.iter().try_for_each(|other| self.cluster.network().cut(*other, node))
    }

    /// Of what every node says to every other, this share of packets is lost.
    pub(crate) fn lose_packets(&mut self, percent: u32) -> Outcome {
        self.begin("loss", None);
        all_ways().try_for_each(|(from, to)| self.cluster.network().lose(from, to, percent))
    }

    /// What these pairs say arrives later.
    pub(crate) fn delay(&mut self, ways: &[(usize, usize)], delay: Duration) -> Outcome {
        self.begin("delay", None);
        ways.iter().try_for_each(|(from, to)| self.cluster.network().delay(*from, *to, delay))
    }

    /// The connections between two nodes are reset.
    pub(crate) fn reset(&mut self, one: usize, other: usize) -> Outcome {
        self.begin("reset", None);
        self.cluster.network().reset(one, other)?;
        self.end(None);
        Ok(())
    }

    /// Everything reaches everybody again.
    pub(crate) fn heal(&mut self) -> Outcome {
        self.cluster.network().heal()?;
        self.end(None);
        Ok(())
    }

    /// Sets the wall clock of all nodes so far from the right time.
    pub(crate) fn set_clock(&mut self, offset_s: i64) -> Outcome {
        self.begin("clock", None);
        self.cluster.set_clock(offset_s)?;
        self.end(None);
        Ok(())
    }

    /// Waits until a node has ended by itself, and has said all these words. It is down then.
    pub(crate) fn ends_saying(&mut self, node: usize, words: &[&str]) -> Outcome {
        wait_for(&format!("node {node} refuses and ends"), PATIENCE, || {
            self.load.check_alive()?;
            Ok(self.cluster.node(node)?.ended()?.map(drop))
        })?;
        let ended = self.cluster.take(node)?;
        let log = ended.log();
        let missing: Vec<&&str> = words.iter().filter(|word| !log.contains(**word)).collect();
        ensure(missing.is_empty(), || format!("node {node} ended and did not say {missing:?}: {}", ended.log_end()))
    }

    /// Waits until a node that was just started has said one of these words, or is ready; the node may end by itself.
    pub(crate) fn says(&mut self, node: usize, word: &str) -> Outcome {
        wait_for(&format!("node {node} says {word:?}"), PATIENCE, || {
            self.load.check_alive()?;
            let node = self.cluster.node(node)?;
            Ok((node.log().contains(word) || node.is_ready() || node.ended()?.is_some()).then_some(()))
        })
    }

    /// As [`Self::says`], for a node that must stay alive until it does.
    pub(crate) fn says_itself(&mut self, node: usize, word: &str) -> Outcome {
        wait_for(&format!("node {node} says {word:?}"), PATIENCE, || {
            self.check_alive()?;
            Ok(self.cluster.node(node)?.log().contains(word).then_some(()))
        })
    }

    /// Waits until a node that was started takes clients.
    pub(crate) fn until_ready(&mut self, node: usize) -> Outcome {
        self.cluster.wait_until_ready(node)?;
        self.end(Some(node));
        Ok(())
    }

    /// An operator has a node readmitted whose data is gone; waits until it votes and takes clients.
    pub(crate) fn readmit(&mut self, node: usize) -> Outcome {
        self.cluster.readmit(node)?;
        self.until_ready(node)
    }

    /// Waits until another node leads than this one.
    pub(crate) fn until_other_leads(&mut self, node: usize) -> Outcome {
        wait_for(&format!("another node than {node} leads"), PATIENCE, || {
            self.check_alive()?;
            Ok((self.cluster.leader()? != node).then_some(()))
        })
    }

    /// Waits until no publish is confirmed any more.
    pub(crate) fn goes_quiet(&mut self) -> Outcome {
        wait_for("publishing comes to rest", PATIENCE, || {
            let before = self.tally().counts().publishes;
            self.lasts(QUIET)?;
            Ok((self.tally().counts().publishes == before).then_some(()))
        })
    }

    /// Publishes so many large messages, and waits until they are confirmed.
    pub(crate) fn bulk(&mut self, messages: usize) -> Outcome {
        self.load.bulk(messages)
    }

    /// A node that is down stays so: the end is judged without it.
    pub(crate) fn stays_out(&mut self, node: usize) {
        self.out.push(node);
    }

    /// Waits until all nodes follow the one that leads; it, and its epoch.
    pub(crate) fn until_whole(&mut self) -> Outcome<(usize, u64)> {
        self.load.check_alive()?;
        self.cluster.until_whole()
    }

    /// Kills the node that leads a whole cluster, some milliseconds after it was whole, and measures how long nobody is answered.
    pub(crate) fn kill_leader_measured(&mut self) -> Outcome<Failover> {
        self.until_whole()?;
        let answers: Arc<Answers> = self.load.begin_probes();
        self.until("every probe is answered", |_| answers.has_all())?;
        let wait = self.chance.ms(0, MOMENTS_MS);
        self.lasts(wait)?;
        let (leader, epoch) = self.until_whole()?;
        let killed = Instant::now();
        self.kill(leader)?;
        let failover = wait_for("every probe is answered again", PATIENCE, || {
            self.check_alive()?;
            Ok(answers.failover(epoch, killed))
        })?;
        self.back(leader)?;
        self.load.end_probes()?;
        Ok(failover)
    }

    /// Choices of the run.
    pub(crate) const fn chance(&mut self) -> &mut Chance {
        &mut self.chance
    }

    /// What the clients saw.
    pub(crate) fn tally(&self) -> &Tally {
        self.load.tally()
    }

    /// How many faults were begun.
    pub(crate) const fn faults(&self) -> u64 {
        self.faults
    }

    /// Waits until a condition holds, while everybody is alive.
    pub(crate) fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) -> Outcome {
        wait_for(what, PATIENCE, || {
            self.check_alive()?;
            Ok(holds(self).then_some(()))
        })
    }

    /// Fails if a node or a client has ended that nobody ended.
    pub(crate) fn check_alive(&mut self) -> Outcome {
        self.cluster.check_alive()?;
        self.load.check_alive()
    }

    /// Cluster and load, for the end of the run.
    pub(crate) const fn parts(&mut self) -> (&mut Cluster, &mut Load) {
        (&mut self.cluster, &mut self.load)
    }

    /// Ends every fault: links and disks are whole, and all nodes run but those that stay out.
    pub(crate) fn heal_all(&mut self) -> Outcome {
        self.cluster.network().heal()?;
        self.cluster.set_clock(0)?;
        let up = self.cluster.up();
        for node in self.standing().into_iter().filter(|node| !up.contains(node)) {
            match self.cluster.node(node) {
                Ok(paused) => paused.resume()?,
                Err(_) => self.start(node)?,
            }
        }
        for node in self.standing() {
            self.cluster.wait_until_ready(node)?;
        }
        while let Some(open) = self.open.pop() {
            self.record(open);
        }
        Ok(())
    }

    /// The nodes that do not stay out.
    pub(crate) fn standing(&self) -> Vec<usize> {
        (0..NODES).filter(|node| !self.out.contains(node)).collect()
    }

    fn begin(&mut self, kind: &'static str, node: Option<usize>) {
        self.faults += 1;
        self.open.push(Open { kind, node, call: Load::now_ns() });
    }

    /// Faults of this node, or of no node, are over.
    fn end(&mut self, node: Option<usize>) {
        let (ended, lasting) = std::mem::take(&mut self.open).into_iter().partition(|open| open.node == node);
        self.open = lasting;
        let ended: Vec<Open> = ended;
        ended.into_iter().for_each(|open| self.record(open));
    }

    fn record(&self, open: Open) {
        let node = open.node.map(|node| Cow::Owned(node.to_string()));
        self.load.record_fault(Fault {
            kind: Cow::Borrowed(open.kind),
            node,
            call: open.call,
            ret: Some(Load::now_ns()),
        });
    }
}

/// The two nodes that are not this one.
pub(crate) const fn others(node: usize) -> [usize; 2] {
    [(node + 1) % NODES, (node + 2) % NODES]
}

/// Every direction between two nodes.
pub(crate) fn all_ways() -> impl Iterator<Item = (usize, usize)> {
    (0..NODES).flat_map(|from| others(from).map(|to| (from, to)))
}

/// What a scenario says of a broker that did what it must not.
pub(crate) fn broken(what: impl Into<String>) -> Failure {
    Failure::Broken(what.into())
}

/// So many confirmed publishes are proof enough that the cluster goes on.
const WORK: u64 = 100;
/// So long after the cluster is whole a measured failure comes at the latest: at any moment of a heartbeat and a batch.
const MOMENTS_MS: u64 = 200;
/// Longer than a publish waits for a majority before it is answered.
const QUIET: Duration = Duration::from_millis(1_500);
