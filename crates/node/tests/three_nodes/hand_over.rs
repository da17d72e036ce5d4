//! An office that is given away: nobody who publishes is refused by it, and whoever asked for it is told what became of it.

use mortarmq_node::{Act, ErrorCode, Query, QueryAnswer};
use mortarmq_types::NodeId;

use super::clients::Client;
use super::net::Shape;
use super::producer::Producer;
use super::setup::OPTIONS;
use super::world::World;

/// A cluster with a publisher at its leader, which has always one publish under way, and that leader. One only: this network
/// changes the order of messages, and what is forwarded and overtaken waits until it is said again.
fn loaded(seed: u64) -> (World, usize) {
    let mut world = World::new(seed, OPTIONS);
    let topic = world.declare("orders", 2);
    let leader = world.wait_for_leader();
    world.add_client(|me| Client::Producer(Producer::new(me, leader, topic, 1, 10)));
    world.add_consumer(topic);
    world.run_for(300);
    (world, leader)
}

fn node(id: usize) -> NodeId {
    NodeId::new(u16::try_from(id).expect("a small id"))
}

/// Who leads, as a node answers.
fn leader_by(world: &World, number: u64) -> Option<u16> {
    let Ok(QueryAnswer::Leader(view)) = &world.answers[&number].result else { return None };
    view.leader_id
}

#[test]
fn p2_a_leader_that_gives_its_office_away_refuses_nobody_who_publishes_at_it() {
    for seed in 60..66 {
        let (mut world, leader) = loaded(seed);
        let confirmed = world.record.published_us.len();
        if seed % 2 == 0 {
            let now = world.now(leader);
            world.node_mut(leader).expect("it runs").handle_stand_aside(now);
            world.dispatch(leader);
        } else {
            let heir = node((leader + 1) % 3);
            let number = world.act(leader, Act::HandOver { to: heir });
            assert!(world.run_until(1000, |world| world.answers.contains_key(&number)), "seed {seed}");
            assert_eq!(leader_by(&world, number), Some(heir.get()), "seed {seed}");
            assert!(world.node(usize::from(heir.get())).expect("it runs").is_leader(), "seed {seed}");
        }
        world.run_for(1000);
        assert!(!world.node(leader).expect("it runs").is_leader(), "seed {seed}");
        assert!(world.record.published_us.len() > confirmed + 100, "seed {seed}: publishes go on");
        for what in ["publish refused", "publish unknown", "publish without an answer"] {
            let count = world.record.reached.get(what);
            assert_eq!(count, None, "seed {seed}: {what}");
        }
        world.end();
    }
}

#[test]
fn who_cannot_lead_is_told_and_publishes_go_on() {
    let (mut world, leader) = loaded(70);
    let (silent, other) = ((leader + 1) % 3, (leader + 2) % 3);
    world.net.cut(Shape::Alone(silent));
    world.run_for(1000);
    let asked = [node(silent), NodeId::new(7), node(leader)].map(|to| world.act(leader, Act::HandOver { to }));
    let elsewhere = world.act(other, Act::HandOver { to: node(other) });
    let known = world.ask(other, Query::Leader);
    world.run_for(100);
    let code = |number: u64| world.answers[&number].result.as_ref().err().map(|failure| failure.code);
    assert_eq!(code(asked[0]), Some(ErrorCode::MutationFenced), "it is silent");
    assert_eq!(code(asked[1]), Some(ErrorCode::MalformedPayload), "it is nobody");
    assert_eq!(leader_by(&world, asked[2]), Some(node(leader).get()), "it leads already");
    assert_eq!(code(elsewhere), Some(ErrorCode::ReadOnlyDegraded), "another one has to be asked");
    assert_eq!(leader_by(&world, known), Some(node(leader).get()), "any node knows");
    assert!(!world.answers[&known].is_stale);
    let confirmed = world.record.published_us.len();
    world.run_for(300);
    assert!(world.record.published_us.len() > confirmed, "nothing was given away");
    world.net.heal();
    world.end();
}

#[test]
fn an_heir_that_falls_silent_leaves_the_office_where_it_is_and_publishes_go_on() {
    let (mut world, leader) = loaded(80);
    let heir = (leader + 1) % 3;
    world.net.cut(Shape::Alone(heir));
    // It was heard a moment ago.
    let number = world.act(leader, Act::HandOver { to: node(heir) });
    let begun_us = world.now_us;
    assert!(world.run_until(2000, |world| world.answers.contains_key(&number)));
    let failure = world.answers[&number].result.as_ref().expect_err("it cannot have taken it");
    assert!(failure.message.contains("did not take the office in time"), "{failure:?}");
    assert!(world.now_us - begun_us < 1_000_000, "{} us", world.now_us - begun_us);
    let confirmed = world.record.published_us.len();
    world.run_for(300);
    assert!(world.node(leader).expect("it runs").is_leader());
    assert!(world.record.published_us.len() > confirmed, "what waited is served here");
    world.net.heal();
    world.end();
}
