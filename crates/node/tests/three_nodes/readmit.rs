//! A node whose data is gone is readmitted under load: it counts only once it is promoted, the change outlives its leader, and what is left of
//! an earlier life of it is heard no more.

use std::collections::BTreeMap;
use std::path::Path;

use mortarmq_node::drive::{Standing, Step, Told, ask_to_return, chain, find_as_peer, next_life, next_step};
use mortarmq_node::views::NodeView;
use mortarmq_node::{Act, ErrorCode, Node, Peer, QueryAnswer};
use mortarmq_storage::{Disk, Identity, IdentityState, MemoryDisk};
use mortarmq_types::NodeId;

use super::machine::{CLUSTER, DATA_DIR, NodeOptions, node_id};
use super::net::Shape;
use super::setup::{OPTIONS, loaded};
use super::world::{Event, World};

impl World {
    /// The machine gets an empty disk. What it had is given back.
    pub(crate) fn wipe(&mut self, node: usize) -> MemoryDisk {
        self.kill(node);
        self.machines[node].is_wiped = true;
        std::mem::replace(&mut self.machines[node].disk, MemoryDisk::new())
    }

    /// A node without data asks all that run and can be reached, and does what follows; begins once it is admitted.
    pub(crate) fn enter(&mut self, node: usize) {
        if self.machines[node].process.is_some() || !self.machines[node].is_wiped {
            return;
        }
        let entered = self.try_to_enter(node);
        match entered {
            Ok(true) => {
                self.machines[node].is_wiped = false;
                self.start(node);
            }
            Ok(false) => self.at(100_000, Event::Enter { node }),
            Err(error) => {
                let may_crash = std::mem::take(&mut self.machines[node].crash_anywhere);
                assert!(may_crash, "node {node}: {error}");
                self.lose_power(node);
                self.at(50_000, Event::Enter { node });
            }
        }
    }

    fn try_to_enter(&mut self, node: usize) -> Result<bool, String> {
        let (disk, dir) = (self.machines[node].disk.clone(), Path::new(DATA_DIR));
        let ids: Vec<NodeId> = (0..self.machines.len()).map(node_id).collect();
        let mut identity = find_as_peer(&disk, dir, node_id(node), &ids).map_err(|error| chain(&error))?;
        let own = match &identity {
            None => (Standing::Empty, 0),
            Some(Identity { state: IdentityState::Asks, incarnation, .. }) => (Standing::Asks(CLUSTER), *incarnation),
            Some(Identity { state: IdentityState::Promise, incarnation, .. }) => {
                (Standing::Promised(CLUSTER), *incarnation)
            }
            Some(Identity { incarnation, .. }) => (Standing::Member(CLUSTER), *incarnation),
        };
        let heard = self.told_to(node, own);
        let others: Vec<NodeId> = ids.iter().copied().filter(|id| *id != node_id(node)).collect();
        let failed = |error: &dyn std::error::Error| chain(error);
        match next_step(node_id(node), own, &others, &heard) {
            Step::Ask { cluster, above } => {
                let life = next_life(above, self.random.next() as u32).expect("far from the last");
                match &mut identity {
                    None => {
                        ask_to_return(&disk, dir, node_id(node), &ids, (cluster, life)).map_err(|e| failed(&e))?;
                    }
                    Some(identity) => identity.ask_as(&disk, dir, life).map_err(|error| failed(&error))?,
                }
                Ok(false)
            }
            Step::Admitted => {
                let identity = identity.as_mut().expect("it asks");
                identity.admit(&disk, dir).map_err(|error| failed(&error))?;
                Ok(false)
            }
            Step::Begin(_) => Ok(true),
            Step::Outside(_) | Step::Wait(_) => Ok(false),
            step @ (Step::Promise(_) | Step::Stop(_)) => panic!("node {node}: {step:?}"),
        }
    }

    /// What the others say to one that asks, which they take note of.
    fn told_to(&mut self, node: usize, (standing, life): (Standing, u32)) -> BTreeMap<NodeId, Told> {
        let mut heard = BTreeMap::new();
        for other in (0..self.machines.len()).filter(|other| *other != node) {
            if self.net.carry(node, other).is_empty() || self.net.carry(other, node).is_empty() {
                continue;
            }
            let now = self.now(other);
            let Some(found) = self.node_mut(other) else { continue };
            if matches!(standing, Standing::Asks(_)) {
                found.handle_asking(now, Peer { node_id: node_id(node), data_incarnation: life });
            }
            let life_of_asker = view(found, node).incarnation;
            heard.insert(node_id(other), Told { standing: Standing::Member(CLUSTER), life_of_asker });
            self.dispatch(other);
        }
        heard
    }

    /// Has a node readmitted by the one that leads, as soon as it asks.
    fn readmit(&mut self, node: usize) {
        for _ in 0..200 {
            self.run_for(100);
            let Some(leader) = self.leader() else { continue };
            let number = self.act(leader, Act::Readmit { node: node_id(node) });
            self.run_until(4000, |world| world.answers.contains_key(&number));
            match self.answers.get(&number).map(|answer| &answer.result) {
                Some(Ok(QueryAnswer::Members(_))) => return,
                Some(Ok(other)) => panic!("{other:?}"),
                Some(Err(_)) | None => {}
            }
        }
        panic!("P12: node {node} is not readmitted");
    }

    /// Waits until all nodes vote and know it.
    fn wait_for_voters(&mut self) {
        let all_vote = |world: &Self| {
            let Some(leader) = world.leader() else { return false };
            let members = world.node(leader).expect("it leads").cluster_view().members;
            members.len() == world.machines.len() && members.iter().all(|member| member.role == "voter")
        };
        assert!(self.run_until(20_000, all_vote), "P12: {:?}", self.leader().map(|leader| self.cluster(leader)));
    }

    fn cluster(&self, node: usize) -> Vec<NodeView> {
        self.node(node).expect("it runs").cluster_view().members
    }

    fn refusal(&mut self, node: usize, readmitted: usize) -> (ErrorCode, String) {
        let number = self.act(node, Act::Readmit { node: node_id(readmitted) });
        assert!(self.run_until(5000, |world| world.answers.contains_key(&number)));
        let failure = self.answers[&number].result.as_ref().expect_err("it cannot be readmitted");
        (failure.code, failure.message.clone())
    }
}

/// What a node says of another.
fn view(found: &Node, node: usize) -> NodeView {
    let members = found.cluster_view().members;
    members.into_iter().find(|member| usize::from(member.id) == node).expect("a member")
}

/// Little log in memory: whoever comes new is brought up by files.
const BY_FILES: NodeOptions =
    NodeOptions { peer_lag_bytes: 20_000, checkpoint_after_bytes: 1_500_000, journal_keep_bytes: 0, ..OPTIONS };

#[test]
fn rule_4_a_wiped_node_is_readmitted_under_load_and_then_any_other_may_go() {
    for (seed, options) in [(91, OPTIONS), (92, BY_FILES)] {
        let (mut world, leader, node) = loaded(seed, options);
        let third = 3 - leader - node;
        world.wipe(node);
        world.start(node);
        world.run_for(1000);
        assert!(world.node(node).is_none(), "it waits to be readmitted");
        let confirmed = world.record.published_us.len();
        world.readmit(node);
        world.wait_for_voters();
        assert!(world.record.published_us.len() > confirmed, "publishes went on meanwhile");
        let found = view(world.node(leader).expect("it leads"), node);
        assert!(found.incarnation > 1 && found.reached, "{found:?}");
        // Each of the other two goes in turn.
        for gone in [third, leader] {
            world.kill(gone);
            assert!(world.run_until(5000, |world| world.leader().is_some_and(|other| other != gone)), "{seed} {gone}");
            let confirmed = world.record.published_us.len();
            world.run_for(1500);
            assert!(world.record.published_us.len() > confirmed, "{seed}: without node {gone}");
            world.start(gone);
            world.run_for(1500);
        }
        world.end();
    }
}

#[test]
fn p12_a_checkpoint_of_before_its_admission_is_of_no_use_to_a_node_and_a_quiet_leader_makes_a_newer_one() {
    let (mut world, leader, node) = loaded(102, BY_FILES);
    world.run_for(1000);
    world.wind_down();
    world.run_for(3000);
    let now = world.now(leader);
    world.node_mut(leader).expect("it leads").handle_checkpoint_wanted(now);
    world.dispatch(leader);
    world.run_for(200);
    world.wipe(node);
    world.start(node);
    world.readmit(node);
    world.wait_for_voters();
    assert!(world.node(node).expect("it runs").installed_snapshots() > 0, "by files");
    world.end();
}

#[test]
fn p1_what_a_learner_acknowledges_counts_only_once_it_is_promoted() {
    let (mut world, leader, node) = loaded(93, OPTIONS);
    let third = 3 - leader - node;
    world.wipe(node);
    world.start(node);
    world.readmit(node);
    // Before it has anything, the third goes: a learner and the leader are no majority.
    world.kill(third);
    world.run_for(700);
    let confirmed = world.record.published_us.len();
    world.run_for(1500);
    let role = view(world.node(leader).expect("it runs"), node).role;
    if role == "learner" {
        assert_eq!(world.record.published_us.len(), confirmed, "nothing is confirmed");
        world.record.reach("nothing by a learner");
    }
    world.start(third);
    world.wait_for_voters();
    assert!(world.record.reached.contains_key("nothing by a learner"), "{role}");
    world.end();
}

#[test]
fn p12_the_readmission_goes_on_when_the_leader_that_began_it_goes() {
    for seed in 94..97 {
        let (mut world, leader, node) = loaded(seed, BY_FILES);
        world.wipe(node);
        world.start(node);
        world.readmit(node);
        world.run_for(world_pause(seed));
        world.lose_power(leader);
        world.run_for(2000);
        world.start(leader);
        world.wait_for_voters();
        world.end();
    }
}

/// How long after the admission its leader goes.
const fn world_pause(seed: u64) -> u64 {
    [1, 40, 150][(seed % 3) as usize]
}

#[test]
fn rule_4_an_earlier_life_whose_disk_comes_back_is_heard_no_more() {
    let (mut world, leader, node) = loaded(98, OPTIONS);
    let old = world.wipe(node);
    world.start(node);
    world.readmit(node);
    world.wait_for_voters();
    world.kill(node);
    let new = std::mem::replace(&mut world.machines[node].disk, old.after_power_loss(1));
    // It starts as what it was; links would refuse it, and here its words alone must be enough.
    world.start(node);
    let epoch = world.node(leader).expect("it runs").position().epoch;
    world.run_for(3000);
    assert!(!world.node(node).expect("it runs").is_ready());
    assert_eq!(world.node(leader).expect("it runs").position().epoch, epoch, "it disturbs nobody");
    // Its vote helps nobody, either.
    world.net.cut(Shape::Alone(leader));
    world.run_for(3000);
    assert!(world.leader().is_none_or(|other| other == leader));
    world.net.heal();
    world.kill(node);
    world.machines[node].disk = new;
    world.start(node);
    world.end();
}

#[test]
fn rule_4_a_crash_at_any_operation_of_its_beginning_leaves_a_node_that_asks_or_is_brought_up() {
    let mut met = 0;
    for operation in (0..48).step_by(3) {
        let (mut world, _, node) = loaded(99, BY_FILES);
        world.wipe(node);
        let disk = world.machines[node].disk.clone();
        disk.crash_at(operation + 1);
        world.machines[node].crash_anywhere = true;
        world.start(node);
        world.readmit(node);
        world.wait_for_voters();
        met += u64::from(!std::mem::take(&mut world.machines[node].crash_anywhere));
        world.run_for(300);
        world.end();
    }
    assert!(met > 8, "{met}");
}

#[test]
fn rule_4_what_cannot_be_readmitted_is_refused_by_name() {
    let (mut world, leader, node) = loaded(100, OPTIONS);
    let third = 3 - leader - node;
    let fenced = |(code, text): (ErrorCode, String), said: &str| {
        assert_eq!(code, ErrorCode::MutationFenced, "{text}");
        assert!(text.contains(said), "{text}");
    };
    let (code, text) = world.refusal(leader, 7);
    assert_eq!(code, ErrorCode::MalformedPayload);
    assert!(text.contains("its nodes are 0, 1, 2"), "{text}");
    fenced(world.refusal(leader, leader), "it is up with its data");
    fenced(world.refusal(leader, node), "up with its data");
    assert_eq!(world.refusal(third, node).0, ErrorCode::ReadOnlyDegraded, "another one has to be asked");
    world.wipe(node);
    world.run_for(1000);
    fenced(world.refusal(leader, node), "does not ask for it");
    // Two processes with empty folders: which one is meant cannot be told.
    let now = world.now(leader);
    for data_incarnation in [500, 600] {
        let peer = Peer { node_id: node_id(node), data_incarnation };
        world.node_mut(leader).expect("it runs").handle_asking(now, peer);
    }
    fenced(world.refusal(leader, node), "2 processes");
    world.run_for(4000);
    // In the name of a node that is up.
    let now = world.now(leader);
    let peer = Peer { node_id: node_id(third), data_incarnation: 500 };
    world.node_mut(leader).expect("it runs").handle_asking(now, peer);
    fenced(world.refusal(leader, third), "another process asks in its name");
    world.start(node);
    world.readmit(node);
    world.wait_for_voters();
    // Asked for again at once it is done already; later it is one as any other.
    world.readmit(node);
    world.run_for(4000);
    fenced(world.refusal(leader, node), "up with its data");
    world.end();
}

#[test]
fn rule_4_a_learner_whose_data_is_lost_again_is_replaced_by_a_third_life_without_a_vote_in_between() {
    let (mut world, leader, node) = loaded(103, OPTIONS);
    world.wipe(node);
    world.start(node);
    world.readmit(node);
    let second = view(world.node(leader).expect("it leads"), node);
    // It is down before it has anything.
    world.wipe(node);
    world.run_for(1000);
    let still = view(world.node(leader).expect("it leads"), node);
    assert_eq!((second.role, still.role, still.incarnation), ("learner", "learner", second.incarnation));
    let confirmed = world.record.published_us.len();
    world.start(node);
    world.readmit(node);
    world.wait_for_voters();
    assert!(view(world.node(leader).expect("it leads"), node).incarnation > second.incarnation);
    assert!(world.record.published_us.len() > confirmed, "the two others went on");
    world.end();
}

#[test]
fn rule_4_a_node_is_readmitted_again_and_its_journal_may_rot_after_it() {
    let (mut world, leader, node) = loaded(101, BY_FILES);
    let mut last = 1;
    for _ in 0..2 {
        world.wipe(node);
        world.start(node);
        world.readmit(node);
        world.wait_for_voters();
        let life = view(world.node(leader).expect("it leads"), node).incarnation;
        assert!(life > last);
        last = life;
        world.run_for(500);
    }
    world.kill(node);
    let dir = Path::new(DATA_DIR).join("journal");
    let disk = &world.machines[node].disk;
    let names = disk.list(&dir).expect("a folder");
    let newest = names.iter().rfind(|name| name.ends_with(".journal")).expect("a journal");
    disk.flip_bit(&dir.join(newest), 3 * 4096 + 100, 5).expect("inside the file");
    world.start(node);
    assert!(world.node(node).is_some_and(Node::is_rejoining));
    assert!(world.run_until(10_000, |world| !world.node(node).is_some_and(Node::is_rejoining)));
    world.run_for(1000);
    world.kill(leader);
    assert!(world.run_until(5000, |world| world.leader().is_some_and(|other| other != leader)));
    world.run_for(1000);
    world.end();
}
