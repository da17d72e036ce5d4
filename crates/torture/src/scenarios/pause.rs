//! Processes that stand still, for less and for more than an election and a lease take.

use std::time::Duration;

use crate::failure::Outcome;
use crate::ground::Ground;
use crate::network::NODES;
use crate::run::Run;
use crate::scenario::{Class, Scenario};

const PAUSE: Scenario = Scenario::plan(Class::Pause, Ground::PLAIN);

pub(super) const ALL: &[Scenario] = &[
    Scenario {
        name: "pause-leader-briefly",
        what: "the leader stands still for less than an election takes, five times",
        holds: "it goes on as if nothing had been",
        steps: pause_leader_briefly,
        ..PAUSE
    },
    Scenario {
        name: "pause-leader",
        what: "the leader stands still for longer than an election and a lease, and wakes up believing that it leads, twice",
        holds: "the others go on meanwhile, and it grants and confirms nothing new (P5, failure rule 7)",
        is_short: true,
        steps: pause_leader,
        ..PAUSE
    },
    Scenario {
        name: "pause-follower",
        what: "each follower stands still for longer than a lease",
        holds: "the others go on",
        steps: pause_follower,
        ..PAUSE
    },
    Scenario {
        name: "pause-followers",
        what: "both followers stand still for longer than a lease",
        holds: "nothing is confirmed meanwhile, and no lease ends that nobody could renew (P1, P5)",
        steps: pause_followers,
        ..PAUSE
    },
    Scenario {
        name: "pause-all",
        what: "all nodes stand still together, for less and for more than a lease",
        holds: "they go on, and time in which nobody could settle ended no lease",
        steps: pause_all,
        ..PAUSE
    },
    Scenario {
        name: "pause-rolling",
        what: "one node after the other stands still, the next before the one before is awake",
        holds: "nothing is lost, and the cluster goes on in the end",
        steps: pause_rolling,
        ..PAUSE
    },
];

fn pause_leader_briefly(run: &mut Run) -> Outcome {
    for _ in 0..5 {
        let leader = run.cast()?.leader;
        run.pause(leader)?;
        let pause = run.chance().ms(50, 300);
        run.lasts(pause)?;
        run.resume(leader)?;
        run.goes_on()?;
    }
    Ok(())
}

fn pause_leader(run: &mut Run) -> Outcome {
    for _ in 0..2 {
        let leader = run.cast()?.leader;
        run.pause(leader)?;
        run.goes_on()?;
        run.lasts(LONGER_THAN_A_LEASE)?;
        run.resume(leader)?;
        run.goes_on()?;
    }
    Ok(())
}

fn pause_follower(run: &mut Run) -> Outcome {
    for place in [0, 1] {
        let follower = run.cast()?.followers[place];
        run.pause(follower)?;
        run.goes_on()?;
        run.lasts(LONGER_THAN_A_LEASE)?;
        run.resume(follower)?;
    }
    run.goes_on()
}

fn pause_followers(run: &mut Run) -> Outcome {
    let followers = run.cast()?.followers;
    followers.iter().try_for_each(|node| run.pause(*node))?;
    run.stands_still(LONGER_THAN_A_LEASE)?;
    followers.iter().try_for_each(|node| run.resume(*node))?;
    run.goes_on()
}

fn pause_all(run: &mut Run) -> Outcome {
    for time in [Duration::from_millis(700), LONGER_THAN_A_LEASE] {
        (0..NODES).try_for_each(|node| run.pause(node))?;
        run.stands_still(time)?;
        (0..NODES).try_for_each(|node| run.resume(node))?;
        run.goes_on()?;
    }
    Ok(())
}

fn pause_rolling(run: &mut Run) -> Outcome {
    run.pause(0)?;
    for node in [1, 2, 0, 1, 2] {
        let pause = run.chance().ms(300, 1_500);
        run.lasts(pause)?;
        run.pause(node)?;
        let both = run.chance().ms(50, 500);
        run.lasts(both)?;
        run.resume((node + NODES - 1) % NODES)?;
    }
    run.resume(2)?;
    run.goes_on()
}

/// Leases of the load last 2 s.
const LONGER_THAN_A_LEASE: Duration = Duration::from_secs(3);
