//! Wall clocks that jump: nothing but what is shown to people goes by them.

use std::time::Duration;

use crate::failure::Outcome;
use crate::ground::Ground;
use crate::run::{Run, broken};
use crate::scenario::{Class, Scenario};

pub(super) const ALL: &[Scenario] = &[Scenario {
    name: "clock-jumps",
    class: Class::Clock,
    what: "the wall clock of all nodes jumps an hour forth, two back, and strobes; the leader changes meanwhile",
    holds: "nothing changes: no lease ends, no delay falls due, nothing is dropped",
    ground: Ground::CLOCK,
    is_short: true,
    known: None,
    steps: clock_jumps,
}];

fn clock_jumps(run: &mut Run) -> Outcome {
    run.set_clock(HOUR_S)?;
    run.goes_on()?;
    run.set_clock(-HOUR_S)?;
    run.goes_on()?;
    let leader = run.cast()?.leader;
    run.kill(leader)?;
    run.goes_on()?;
    run.back(leader)?;
    for step in 0..20 {
        run.set_clock(if step % 2 == 0 { HOUR_S } else { -HOUR_S })?;
        run.lasts(Duration::from_millis(100))?;
    }
    run.set_clock(0)?;
    run.goes_on()?;
    // Otherwise the nodes saw none of it, and nothing was proved.
    if run.tally().clock_spread() < Duration::from_secs(HOUR_S.unsigned_abs()) {
        return Err(broken("no node saw the clock jump"));
    }
    Ok(())
}

const HOUR_S: i64 = 3_600;
