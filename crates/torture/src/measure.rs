//! How long a cluster takes to go on when its leader is killed, again and again, under the load of the scenarios.

use std::time::Duration;

use crate::failure::Failure;
use crate::ground::Ground;
use crate::load::Failover;
use crate::runner::{Options, Play, play};
use crate::table::Ended;

/// What came of it.
#[derive(Debug)]
pub struct Failovers {
    /// The verdict on what the clients saw meanwhile.
    pub ended: Ended,
    measured: Vec<Failover>,
}

/// Kills the leader so many times, each time once the cluster is whole again.
///
/// # Errors
/// Only when somebody asked for the end; whatever else goes wrong is the verdict.
pub fn failovers(kills: u32, options: &Options) -> Result<Failovers, Failure> {
    let mut measured = Vec::new();
    let mut steps = |run: &mut crate::run::Run| {
        for kill in 1..=kills {
            let failover = run.kill_leader_measured()?;
            eprintln!("kill {kill} of {kills}: {} ms, all {} ms", failover.first.as_millis(), failover.all.as_millis());
            measured.push(failover);
        }
        Ok(())
    };
    let ended = play(Play { name: "failover", ground: Ground::PLAIN, round: 1, steps: &mut steps }, None, options)?;
    Ok(Failovers { ended, measured })
}

impl Failovers {
    /// Median, 99th percentile and worst, in milliseconds: of the first publish that was answered, and of that which waited longest.
    #[must_use]
    pub fn table(&self) -> String {
        let line = |what: &str, of: fn(&Failover) -> Duration| {
            let mut all: Vec<u128> = self.measured.iter().map(|failover| of(failover).as_millis()).collect();
            all.sort_unstable();
            let [median, p99, worst] = [50, 99, 100].map(|percent| percentile(&all, percent));
            format!("{what:<34}{median:>6} ms{p99:>6} ms{worst:>6} ms\n")
        };
        let kills = self.measured.len();
        let head = format!("{:<34}{:>9}{:>9}{:>9}\n", format!("{kills} kills of the leader"), "median", "p99", "worst");
        head + &line("until the first publish is answered", |failover| failover.first)
            + &line("until every producer is answered", |failover| failover.all)
    }
}

/// The smallest value that at least so many of a hundred do not exceed.
fn percentile(sorted: &[u128], percent: usize) -> u128 {
    let place = (sorted.len() * percent).div_ceil(100);
    sorted.get(place.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::percentile;

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let all: Vec<u128> = (1..=50).collect();
        assert_eq!([50, 99, 100].map(|percent| percentile(&all, percent)), [25, 50, 50]);
        assert_eq!(percentile(&[7], 50), 7);
        assert_eq!(percentile(&[], 50), 0);
    }
}
