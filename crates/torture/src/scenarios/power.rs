//! Power that is lost: what a node had not synced is kept, dropped or torn at sectors, in no order.

use std::time::Duration;

use crate::failure::Outcome;
use crate::ground::Ground;
use crate::run::Run;
use crate::scenario::{Class, Scenario};

const POWER: Scenario = Scenario::plan(Class::Power, Ground::LOSSY);

pub(super) const ALL: &[Scenario] = &[
    Scenario {
        name: "power-one",
        what: "the leader, then a follower, loses its power and all that it had not synced",
        holds: "the others go on, and the node comes back (P1, failure rules 1, 3 and 5)",
        steps: power_one,
        ..POWER
    },
    Scenario {
        name: "power-all",
        what: "all nodes lose their power at once, three times",
        holds: "all that was confirmed is there (P1, P6)",
        is_short: true,
        steps: power_all,
        ..POWER
    },
    Scenario {
        name: "power-restarting",
        what: "all nodes lose their power, and one of them again and again while it recovers",
        holds: "what a recovery does can be done again",
        steps: power_restarting,
        ..POWER
    },
    Scenario {
        name: "power-staged-pause",
        what: "two nodes stand still while the leader writes; its power is cut; the two wake without seeing each other; it restarts",
        holds: "the three agree on one log: what was confirmed is there, and each message once (P1, P3)",
        ground: Ground::LOSSY_RELAYS,
        steps: staged_pause,
        ..POWER
    },
    Scenario {
        name: "power-staged-partition",
        what: "the leader is cut off from two and writes; its power is cut; the two elect without it; it restarts",
        holds: "as above, and what only it had stored is given up or stored once",
        ground: Ground::LOSSY_RELAYS,
        steps: staged_partition,
        ..POWER
    },
    Scenario {
        name: "power-staged-acknowledged",
        what: "a follower sleeps while two confirm; the other loses its power, and then these two make a majority without the leader",
        holds: "what was confirmed outlived the power loss: fsynced, then acknowledged (P1, failure rule 1)",
        steps: staged_acknowledged,
        ..POWER
    },
    Scenario {
        name: "power-staged-leader",
        what: "as above, with the leader in the place of the follower, and its disk slow, so that much of it is not synced",
        holds: "it counted itself only for what it had synced (P1, failure rule 1)",
        steps: staged_leader,
        ..POWER
    },
];

fn power_one(run: &mut Run) -> Outcome {
    let cast = run.cast()?;
    for node in [cast.leader, cast.followers[0], cast.followers[1]] {
        run.lose_power(&[node])?;
        run.goes_on()?;
        run.back(node)?;
        run.goes_on()?;
    }
    run.has_lost_something()
}

fn power_all(run: &mut Run) -> Outcome {
    for _ in 0..3 {
        run.goes_on()?;
        run.lose_power(&[0, 1, 2])?;
        run.back_together(&[0, 1, 2])?;
    }
    run.goes_on()?;
    run.has_lost_something()
}

fn power_restarting(run: &mut Run) -> Outcome {
    run.lose_power(&[0, 1, 2])?;
    for stage in ["recovery begun", "replaying the journal", "journal replayed", "connected"] {
        run.start(0)?;
        run.says(0, stage)?;
        run.lose_power(&[0])?;
    }
    run.back_together(&[0, 1, 2])?;
    run.goes_on()
}

fn staged_pause(run: &mut Run) -> Outcome {
    let cast = run.cast()?;
    let [one, other] = cast.followers;
    run.pause(one)?;
    run.pause(other)?;
    // It writes what nobody confirms.
    run.lasts(Duration::from_millis(300))?;
    run.lose_power(&[cast.leader])?;
    run.cut(&[(one, other), (other, one)])?;
    run.resume(one)?;
    run.resume(other)?;
    run.stands_still(Duration::from_secs(2))?;
    run.back(cast.leader)?;
    // The one that lost its power sees both, so there is a majority, though two do not see each other.
    run.goes_on()?;
    run.lasts(Duration::from_secs(2))?;
    run.heal()?;
    run.goes_on()
}

fn staged_partition(run: &mut Run) -> Outcome {
    let cast = run.cast()?;
    run.isolate(cast.leader)?;
    run.lasts(Duration::from_millis(300))?;
    run.lose_power(&[cast.leader])?;
    run.goes_on()?;
    run.start(cast.leader)?;
    run.lasts(Duration::from_secs(1))?;
    run.heal()?;
    run.until_ready(cast.leader)?;
    run.goes_on()
}

fn staged_acknowledged(run: &mut Run) -> Outcome {
    for _ in 0..2 {
        let cast = run.cast()?;
        let [crashing, sleeping] = cast.followers;
        run.pause(sleeping)?;
        run.goes_on()?;
        run.lose_power(&[crashing])?;
        run.pause(cast.leader)?;
        run.resume(sleeping)?;
        run.back(crashing)?;
        run.goes_on()?;
        run.resume(cast.leader)?;
        run.goes_on()?;
    }
    Ok(())
}

fn staged_leader(run: &mut Run) -> Outcome {
    for _ in 0..2 {
        let cast = run.cast()?;
        let [confirming, sleeping] = cast.followers;
        run.pause(sleeping)?;
        run.disk(cast.leader, "slow_disk", |disk| disk.set_sync_delay(Duration::from_millis(200)))?;
        run.goes_on()?;
        run.lose_power(&[cast.leader])?;
        run.mend_disk(cast.leader, |disk| disk.set_sync_delay(Duration::ZERO))?;
        run.pause(confirming)?;
        run.resume(sleeping)?;
        run.back(cast.leader)?;
        run.goes_on()?;
        run.resume(confirming)?;
        run.goes_on()?;
    }
    run.has_lost_something()
}
