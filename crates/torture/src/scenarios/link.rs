//! Links that are slow, that hang without being closed, and that are reset: a relay on each.

use std::time::Duration;

use crate::failure::Outcome;
use crate::ground::Ground;
use crate::run::{Run, all_ways, others};
use crate::scenario::{Class, Scenario};

const LINK: Scenario = Scenario::plan(Class::Link, Ground::RELAYS);

pub(super) const ALL: &[Scenario] = &[
    Scenario {
        name: "link-delay",
        what: "everything between nodes takes 50 ms, then the leader's words 200 ms",
        holds: "the cluster goes on, slowly",
        steps: delay,
        ..LINK
    },
    Scenario {
        name: "link-stall",
        what: "the links of a follower, then of the leader, hang, and nobody closes them",
        holds: "the others go on",
        steps: stall,
        ..LINK
    },
    Scenario {
        name: "link-reset",
        what: "connections between nodes are reset, forty times, also inside a frame",
        holds: "they are made again, and nothing is lost or stored twice (P3)",
        is_short: true,
        steps: reset,
        ..LINK
    },
];

fn delay(run: &mut Run) -> Outcome {
    let ways: Vec<(usize, usize)> = all_ways().collect();
    run.delay(&ways, Duration::from_millis(50))?;
    run.goes_on()?;
    run.lasts(Duration::from_secs(2))?;
    run.heal()?;
    let leader = run.cast()?.leader;
    run.delay(&others(leader).map(|other| (leader, other)), Duration::from_millis(200))?;
    run.goes_on()?;
    run.lasts(Duration::from_secs(2))?;
    run.heal()?;
    run.goes_on()
}

fn stall(run: &mut Run) -> Outcome {
    let cast = run.cast()?;
    for node in [cast.followers[0], cast.leader] {
        run.isolate(node)?;
        run.goes_on()?;
        run.lasts(Duration::from_secs(3))?;
        run.heal()?;
        run.goes_on()?;
    }
    Ok(())
}

fn reset(run: &mut Run) -> Outcome {
    for _ in 0..40 {
        let one = run.chance().below(3) as usize;
        run.reset(one, (one + 1) % 3)?;
        let pause = run.chance().ms(10, 200);
        run.lasts(pause)?;
    }
    run.goes_on()
}
