//! Runs scenarios, one after the other, and says what came of them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::chance::Chance;
use crate::cluster::Cluster;
use crate::conclude::{conclude, judge};
use crate::failure::{Failure, Outcome, machine};
use crate::ground::Ground;
use crate::load::{Counts, Load};
use crate::run::Run;
use crate::scenario::Scenario;
use crate::table::{Ended, Verdict};

/// How scenarios are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The broker.
    pub binary: PathBuf,
    /// What decides the choices of all runs.
    pub seed: u64,
    /// Where everything of every run is kept; without it only what failed is, in a temporary folder.
    pub keep: Option<PathBuf>,
}

/// What is played on a cluster under load.
pub(crate) struct Play<'a> {
    pub(crate) name: &'static str,
    pub(crate) ground: Ground,
    pub(crate) round: u32,
    /// What happens; then everything is healed, read until it is empty, and judged.
    pub(crate) steps: &'a mut dyn FnMut(&mut Run) -> Outcome,
}

/// Runs a scenario once.
///
/// # Errors
/// Only when somebody asked for the end; whatever else goes wrong is the verdict.
pub fn run(scenario: &Scenario, round: u32, options: &Options) -> Result<Ended, Failure> {
    let Scenario { name, ground, known, .. } = *scenario;
    let mut steps = scenario.steps;
    play(Play { name, ground, round, steps: &mut steps }, known, options)
}

/// Plays, and judges what the clients saw.
///
/// # Errors
/// As [`run`].
pub(crate) fn play(play: Play<'_>, known: Option<&'static str>, options: &Options) -> Result<Ended, Failure> {
    let begun = Instant::now();
    let mut ended = Ended {
        name: play.name,
        faults: 0,
        counts: Counts::default(),
        silence: Duration::ZERO,
        took: Duration::ZERO,
        verdict: Verdict::Ok,
    };
    if let Some(missing) = play.ground.missing() {
        ended.verdict = Verdict::Skipped(missing);
        return Ok(ended);
    }
    let outcome = in_folder(play, options, &mut ended);
    ended.took = begun.elapsed();
    ended.verdict = match (outcome, known) {
        (Ok(()), _) => Verdict::Ok,
        (Err(Failure::Stopped), _) => return Err(Failure::Stopped),
        (Err(failure), None) => Verdict::Failed(failure.to_string()),
        (Err(failure), Some(known)) => Verdict::KnownFailure(known, failure.to_string()),
    };
    Ok(ended)
}

/// The folder of a run, which stays if it failed or is to be kept.
fn in_folder(play: Play<'_>, options: &Options, ended: &mut Ended) -> Outcome {
    if let Some(keep) = &options.keep {
        let folder = keep.join(format!("{}-{}", play.name, play.round));
        std::fs::create_dir_all(&folder).map_err(machine("cannot make the folder of a run"))?;
        return in_cluster(play, options, &folder, ended);
    }
    let prefix = format!("mortarmq-torture-{}-", play.name);
    let folder = tempfile::Builder::new().prefix(&prefix).tempdir().map_err(machine("no temporary folder"))?;
    let outcome = in_cluster(play, options, folder.path(), ended);
    match outcome {
        Ok(()) | Err(Failure::Stopped) => outcome,
        Err(failure) => {
            let kept = folder.keep();
            Err(Failure::Broken(format!("{failure} (all is kept in {})", kept.display())))
        }
    }
}

fn in_cluster(play: Play<'_>, options: &Options, folder: &Path, ended: &mut Ended) -> Outcome {
    let mut chance = Chance::new(options.seed.wrapping_add(u64::from(play.round)));
    let history = folder.join("history.jsonl.zst");
    let mut cluster = Cluster::start(&options.binary, folder, play.ground)?;
    let leader = cluster.leader()?;
    let (operator, addresses) = (cluster.operator().clone(), cluster.addresses());
    let told = |topic: &str, group: &str| operator.group(&addresses[leader].admin, topic, group);
    let load = Load::start(play.name, addresses.clone(), &history, &operator, told, chance.apart())?;
    let mut run = Run::new(cluster, load, chance);
    let outcome = run.goes_on().and_then(|()| (play.steps)(&mut run)).and_then(|()| conclude(&mut run));
    ended.faults = run.faults();
    ended.counts = run.tally().counts();
    ended.silence = run.tally().longest_silence();
    drop(run);
    outcome.and_then(|()| judge(&history))
}
