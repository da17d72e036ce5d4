//! Disks that fail, stall and fill up, and become whole again.

use std::time::Duration;

use crate::failure::Outcome;
use crate::ground::Ground;
use crate::network::NODES;
use crate::run::Run;
use crate::scenario::{Class, Scenario};

const DISK: Scenario = Scenario::plan(Class::Disk, Ground::LOSSY);

pub(super) const ALL: &[Scenario] = &[
    Scenario {
        name: "fsync-error",
        what: "an fsync of a follower, then of the leader, fails, and what it covered is gone",
        holds: "the node says why and ends, it never tries again; the others go on (failure rule 2)",
        is_short: true,
        steps: fsync_error,
        ..DISK
    },
    Scenario {
        name: "fsync-slow-follower",
        what: "every fsync of a follower takes two seconds",
        holds: "the others go on without waiting for it",
        steps: slow_follower,
        ..DISK
    },
    Scenario {
        name: "fsync-slow-leader",
        what: "every fsync of the leader takes two seconds",
        holds: "it hands its office to one whose disk is faster (failure rule 2)",
        steps: slow_leader,
        ..DISK
    },
    Scenario {
        name: "fsync-slow-all",
        what: "every fsync of every node takes 0.3 s",
        holds: "the cluster goes on, slowly",
        steps: slow_all,
        ..DISK
    },
    Scenario {
        name: "disk-full-follower",
        what: "the disk of a follower fills up, and has room again",
        holds: "the others go on, and the follower does when it can (failure rule 8)",
        steps: full_follower,
        ..DISK
    },
    Scenario {
        name: "disk-full-leader",
        what: "the disk of the leader fills up, and has room again",
        holds: "another leads, and publishing goes on there; what was refused is never delivered (failure rule 8, P2)",
        steps: full_leader,
        ..DISK
    },
    Scenario {
        name: "disk-full-all",
        what: "the disks of all nodes fill up at once, and have room again",
        holds: "publishes are refused until there is room; no node ends",
        steps: full_all,
        ..DISK
    },
];

fn fsync_error(run: &mut Run) -> Outcome {
    let cast = run.cast()?;
    for node in [cast.followers[0], cast.leader] {
        run.disk(node, "io_error", |disk| disk.fail_next_sync())?;
        run.ends_saying(node, &["failed", "the process ends, recovery decides at the next start"])?;
        run.goes_on()?;
        // What the sync covered reads back until the machine starts again.
        run.mend_disk(node, |disk| disk.lose_power(0).map(drop))?;
        run.back(node)?;
        run.goes_on()?;
    }
    Ok(())
}

fn slow_follower(run: &mut Run) -> Outcome {
    let follower = run.cast()?.followers[0];
    run.disk(follower, "slow_disk", |disk| disk.set_sync_delay(Duration::from_secs(2)))?;
    run.goes_on()?;
    run.lasts(Duration::from_secs(5))?;
    run.goes_on()?;
    run.mend_disk(follower, |disk| disk.set_sync_delay(Duration::ZERO))?;
    run.goes_on()
}

fn slow_leader(run: &mut Run) -> Outcome {
    let leader = run.cast()?.leader;
    run.disk(leader, "slow_disk", |disk| disk.set_sync_delay(Duration::from_secs(2)))?;
    run.until_other_leads(leader)?;
    run.goes_on()?;
    run.mend_disk(leader, |disk| disk.set_sync_delay(Duration::ZERO))?;
    run.goes_on()
}

fn slow_all(run: &mut Run) -> Outcome {
    for node in 0..NODES {
        run.disk(node, "slow_disk", |disk| disk.set_sync_delay(Duration::from_millis(300)))?;
    }
    run.goes_on()?;
    run.lasts(Duration::from_secs(3))?;
    for node in 0..NODES {
        run.mend_disk(node, |disk| disk.set_sync_delay(Duration::ZERO))?;
    }
    run.goes_on()
}

fn full_follower(run: &mut Run) -> Outcome {
    let follower = run.cast()?.followers[0];
    run.disk(follower, "disk_full", |disk| disk.fill_up_to(0))?;
    run.goes_on()?;
    run.lasts(Duration::from_secs(6))?;
    run.goes_on()?;
    run.mend_disk(follower, |disk| disk.make_room())?;
    run.goes_on()
}

fn full_leader(run: &mut Run) -> Outcome {
    let leader = run.cast()?.leader;
    run.disk(leader, "disk_full", |disk| disk.fill_up_to(0))?;
    run.until_other_leads(leader)?;
    run.goes_on()?;
    run.lasts(Duration::from_secs(5))?;
    run.mend_disk(leader, |disk| disk.make_room())?;
    run.goes_on()
}

fn full_all(run: &mut Run) -> Outcome {
    for node in 0..NODES {
        run.disk(node, "disk_full", |disk| disk.fill_up_to(0))?;
    }
    run.goes_quiet()?;
    run.lasts(Duration::from_secs(3))?;
    for node in 0..NODES {
        run.mend_disk(node, |disk| disk.make_room())?;
    }
    run.goes_on()
}
