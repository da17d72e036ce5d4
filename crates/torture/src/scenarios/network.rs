//! Networks that lose packets between nodes: each node in a namespace of its own, rules of `nft` where packets come in.

use std::time::Duration;

use crate::failure::Outcome;
use crate::ground::Ground;
use crate::network::NODES;
use crate::run::{Run, all_ways, others};
use crate::scenario::{Class, Scenario};

const NETWORK: Scenario = Scenario::plan(Class::Network, Ground::SPACES);

pub(super) const ALL: &[Scenario] = &[
    Scenario {
        name: "net-halves",
        what: "each follower in turn is cut off from the two others",
        holds: "the two go on, and the one is back after the heal without disturbing them",
        steps: halves,
        ..NETWORK
    },
    Scenario {
        name: "net-leader-alone",
        what: "the leader is cut off from both others, and still sees its clients",
        holds: "the others elect and go on; the old one confirms nothing (P1, P12)",
        is_short: true,
        steps: leader_alone,
        ..NETWORK
    },
    Scenario {
        name: "net-leader-deaf",
        what: "the leader is heard and hears nobody",
        holds: "it gives its office up and the others go on",
        steps: leader_deaf,
        ..NETWORK
    },
    Scenario {
        name: "net-leader-mute",
        what: "the leader hears everybody and is not heard",
        holds: "the others elect and go on",
        steps: leader_mute,
        ..NETWORK
    },
    Scenario {
        name: "net-bridge",
        what: "the leader and a follower do not see each other, and both see the third",
        holds: "the cluster goes on: a majority is connected (P12)",
        steps: bridge,
        ..NETWORK
    },
    Scenario {
        name: "net-ring",
        what: "each node is heard by the next and not by the one before",
        holds: "nothing is lost, and the cluster goes on after the heal",
        steps: ring,
        ..NETWORK
    },
    Scenario {
        name: "net-all-alone",
        what: "no node sees another",
        holds: "nothing is confirmed until the heal (P1, P12)",
        steps: all_alone,
        ..NETWORK
    },
    Scenario {
        name: "net-flapping",
        what: "one node after the other is cut off and back, every few hundred milliseconds",
        holds: "nothing is lost, and the cluster goes on in the end",
        steps: flapping,
        ..NETWORK
    },
    Scenario {
        name: "net-loss",
        what: "one packet of seven between nodes is lost",
        holds: "the cluster goes on, slowly",
        steps: loss,
        ..NETWORK
    },
];

fn halves(run: &mut Run) -> Outcome {
    for place in [0, 1] {
        let follower = run.cast()?.followers[place];
        run.isolate(follower)?;
        run.goes_on()?;
        run.lasts(Duration::from_secs(3))?;
        run.heal()?;
        run.goes_on()?;
    }
    Ok(())
}

fn leader_alone(run: &mut Run) -> Outcome {
    for _ in 0..2 {
        let leader = run.cast()?.leader;
        run.isolate(leader)?;
        run.goes_on()?;
        run.lasts(Duration::from_secs(3))?;
        run.heal()?;
        run.goes_on()?;
    }
    Ok(())
}

fn leader_deaf(run: &mut Run) -> Outcome {
    let leader = run.cast()?.leader;
    run.cut(&others(leader).map(|other| (other, leader)))?;
    run.goes_on()?;
    run.lasts(Duration::from_secs(2))?;
    run.heal()?;
    run.goes_on()
}

fn leader_mute(run: &mut Run) -> Outcome {
    let leader = run.cast()?.leader;
    run.cut(&others(leader).map(|other| (leader, other)))?;
    run.goes_on()?;
    run.lasts(Duration::from_secs(2))?;
    run.heal()?;
    run.goes_on()
}

fn bridge(run: &mut Run) -> Outcome {
    let cast = run.cast()?;
    let cut = cast.followers[0];
    run.cut(&[(cast.leader, cut), (cut, cast.leader)])?;
    run.lasts(Duration::from_secs(4))?;
    run.goes_on()?;
    run.heal()?;
    run.goes_on()
}

fn ring(run: &mut Run) -> Outcome {
    let ways: Vec<(usize, usize)> = (0..NODES).map(|node| (node, (node + 2) % NODES)).collect();
    run.cut(&ways)?;
    run.lasts(Duration::from_secs(4))?;
    run.heal()?;
    run.goes_on()
}

fn all_alone(run: &mut Run) -> Outcome {
    let ways: Vec<(usize, usize)> = all_ways().collect();
    run.cut(&ways)?;
    run.stands_still(Duration::from_secs(3))?;
    run.heal()?;
    run.goes_on()
}

fn flapping(run: &mut Run) -> Outcome {
    for _ in 0..10 {
        let node = run.chance().below(NODES as u64) as usize;
        run.isolate(node)?;
        let cut = run.chance().ms(50, 900);
        run.lasts(cut)?;
        run.heal()?;
        let whole = run.chance().ms(50, 600);
        run.lasts(whole)?;
    }
    run.goes_on()
}

fn loss(run: &mut Run) -> Outcome {
    run.lose_packets(15)?;
    run.goes_on()?;
    run.lasts(Duration::from_secs(5))?;
    run.goes_on()?;
    run.heal()?;
    run.goes_on()
}
