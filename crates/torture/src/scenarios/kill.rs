//! Processes that are killed, of every role, one by one and together.

use std::time::Duration;

use crate::failure::Outcome;
use crate::ground::Ground;
use crate::network::NODES;
use crate::run::{Run, others};
use crate::scenario::{Class, Scenario};

const KILL: Scenario = Scenario::plan(Class::Kill, Ground::PLAIN);

pub(super) const ALL: &[Scenario] = &[
    Scenario {
        name: "kill-leader",
        what: "the node that leads is killed, and comes back, three times",
        holds: "the two others go on (P1, P5, P6, P12)",
        is_short: true,
        steps: kill_leader,
        ..KILL
    },
    Scenario {
        name: "kill-follower",
        what: "each follower is killed in turn, and comes back",
        holds: "the leader goes on with the other",
        steps: kill_follower,
        ..KILL
    },
    Scenario {
        name: "kill-followers",
        what: "both followers are killed together",
        holds: "nothing is confirmed until one is back, and nothing is lost then (P1, P12)",
        steps: kill_followers,
        ..KILL
    },
    Scenario {
        name: "kill-all",
        what: "all nodes are killed together, and come back, three times",
        holds: "all that was confirmed is there, leases and acks too (P1, P5, P6)",
        steps: kill_all,
        ..KILL
    },
    Scenario {
        name: "kill-rolling",
        what: "one node after the other is killed, and the next as soon as the one before takes clients, two rounds",
        holds: "the cluster goes on between any two",
        steps: kill_rolling,
        ..KILL
    },
    Scenario {
        name: "kill-restarting",
        what: "a follower, then the leader, is killed again and again while it starts: in each stage of its recovery",
        holds: "the two others go on, and the one recovers in the end",
        steps: kill_restarting,
        ..KILL
    },
    Scenario {
        name: "kill-catching-up",
        what: "a follower that lacks more than the leader keeps of the log is killed while it fetches files",
        holds: "it finishes at a later start, and its word counts then: the cluster goes on without one of the others",
        steps: kill_catching_up,
        ..KILL
    },
    Scenario {
        name: "stop-rolling",
        what: "one node after the other is stopped as an operator does it (SIGTERM), and started again",
        holds: "the office is handed over, and the cluster goes on between any two",
        steps: stop_rolling,
        ..KILL
    },
];

fn kill_leader(run: &mut Run) -> Outcome {
    for _ in 0..3 {
        let leader = run.cast()?.leader;
        run.kill(leader)?;
        run.goes_on()?;
        run.back(leader)?;
        run.goes_on()?;
    }
    Ok(())
}

fn kill_follower(run: &mut Run) -> Outcome {
    for place in [0, 1] {
        let follower = run.cast()?.followers[place];
        run.kill(follower)?;
        run.goes_on()?;
        run.back(follower)?;
        run.goes_on()?;
    }
    Ok(())
}

fn kill_followers(run: &mut Run) -> Outcome {
    let [one, other] = run.cast()?.followers;
    run.kill(one)?;
    run.kill(other)?;
    run.stands_still(Duration::from_secs(2))?;
    run.back(one)?;
    run.goes_on()?;
    run.back(other)
}

fn kill_all(run: &mut Run) -> Outcome {
    for _ in 0..3 {
        run.goes_on()?;
        (0..NODES).try_for_each(|node| run.kill(node))?;
        run.back_together(&[0, 1, 2])?;
    }
    run.goes_on()
}

fn kill_rolling(run: &mut Run) -> Outcome {
    for node in (0..NODES).chain(0..NODES) {
        run.kill(node)?;
        run.goes_on()?;
        run.back(node)?;
    }
    Ok(())
}

fn kill_restarting(run: &mut Run) -> Outcome {
    let cast = run.cast()?;
    for node in [cast.followers[0], cast.leader] {
        run.kill(node)?;
        for stage in ["recovery begun", "replaying the journal", "journal replayed", "connected"] {
            run.start(node)?;
            run.says(node, stage)?;
            run.kill(node)?;
        }
        run.goes_on()?;
        run.back(node)?;
        run.goes_on()?;
    }
    Ok(())
}

fn kill_catching_up(run: &mut Run) -> Outcome {
    let cast = run.cast()?;
    let [away, third] = cast.followers;
    run.kill(away)?;
    run.bulk(BULK_MESSAGES)?;
    for _ in 0..3 {
        run.start(away)?;
        run.says_itself(away, "it fetches the leader's checkpoint and files")?;
        let pause = run.chance().ms(0, 150);
        run.lasts(pause)?;
        run.kill(away)?;
    }
    run.back(away)?;
    run.says_itself(away, "the leader's checkpoint is installed")?;
    run.kill(third)?;
    run.goes_on()?;
    run.back(third)?;
    run.goes_on()
}

fn stop_rolling(run: &mut Run) -> Outcome {
    let first = run.cast()?.leader;
    let [second, third] = others(first);
    for node in [first, second, third] {
        run.stop(node)?;
        run.goes_on()?;
        run.back(node)?;
    }
    Ok(())
}

/// Together more than the 64 MiB of the log that a leader has in memory.
const BULK_MESSAGES: usize = 100;
