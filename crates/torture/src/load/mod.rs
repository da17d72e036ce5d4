//! The workload, one for all scenarios: producers with and without numbers, consumers of two groups, scrapes, all recorded.

mod consume;
mod drain;
mod mortal;
mod probe;
mod produce;
mod scrape;
mod site;
mod tally;
mod unnumbered;

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use mortarmq_history::{Balance, End, Fault, Record};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::chance::Chance;
use crate::failure::{Failure, Outcome, machine};
use crate::network::Addresses;
use crate::operator::{Books, GroupTold, Operator};
use crate::wait::wait_for;
use mortal::Mortals;
use probe::Probes;
pub(crate) use probe::{Answers, Failover};
pub(crate) use site::Phase;
use site::{GROUPS, Site, TOPIC};
pub use tally::Counts;
pub(crate) use tally::Tally;

/// All clients of a run. They end with this value.
pub(crate) struct Load {
    // Before the runtime: what is dropped first ends first.
    producers: JoinSet<Result<(), String>>,
    consumers: JoinSet<Result<(), String>>,
    mortals: Mortals,
    probes: Option<Probes>,
    scrapes: Option<JoinHandle<()>>,
    site: Site,
    runtime: Option<Runtime>,
    /// How often large messages were published.
    bulks: usize,
}

impl Load {
    /// How the names begin of consumers whose sessions outlive every failover, and who live as long as the load.
    pub(crate) const LASTING: &'static str = site::BILLING;

    /// Makes topic and groups, begins the history and starts everybody. `told` asks the leader what a group promises.
    pub(crate) fn start(
        name: &str,
        nodes: Vec<Addresses>,
        history: &Path,
        operator: &Operator,
        told: impl Fn(&str, &str) -> Option<GroupTold>,
        mut chance: Chance,
    ) -> Outcome<Self> {
        let site = Site::new(nodes, history)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(machine("no runtime for clients"))?;
        within(&runtime, "topic and groups are made", site.make_paths())?
            .map_err(|error| Failure::Broken(format!("topic and groups cannot be made: {error}")))?;
        site.record_run(name, told)?;
        let (mut producers, mut consumers) = (JoinSet::new(), JoinSet::new());
        {
            let _entered = runtime.enter();
            for (number, style) in consume::STYLES.iter().enumerate() {
                consumers.spawn(consume::run(site.clone(), *style, number, chance.apart()));
            }
            for number in 0..produce::PRODUCERS {
                producers.spawn(produce::run(site.clone(), number, chance.apart()));
            }
            for number in 0..unnumbered::PRODUCERS {
                producers.spawn(unnumbered::run(site.clone(), number));
            }
        }
        let mortals = Mortals::start(&site, &mut chance)?;
        let scrapes = std::thread::Builder::new().name("scrapes".to_owned()).spawn({
            let (site, operator) = (site.clone(), operator.clone());
            move || scrape::run(&site, &operator)
        });
        let scrapes = Some(scrapes.map_err(machine("no thread for scrapes"))?);
        let probes = None;
        Ok(Self { producers, consumers, mortals, probes, scrapes, site, runtime: Some(runtime), bulks: 0 })
    }

    /// What was seen so far.
    pub(crate) fn tally(&self) -> &Arc<Tally> {
        &self.site.tally
    }

    /// Writes a fault into the history.
    pub(crate) fn record_fault(&self, fault: Fault<'_>) {
        self.site.recorder.record(&Record::Fault(fault));
    }

    /// Fails as soon as a client has: it would have gone on if the broker had kept its word.
    pub(crate) fn check_alive(&mut self) -> Outcome {
        if let Some(ended) = self.consumers.try_join_next() {
            return Err(ended_early("a consumer", ended));
        }
        match self.producers.try_join_next() {
            Some(ended) if self.site.phase() == Phase::Load => Err(ended_early("a producer", ended)),
            Some(Ok(Err(why))) => Err(Failure::Broken(why)),
            Some(_) | None => Ok(()),
        }
    }

    /// Lets producers begin that wait for each answer, one at each node; what they were answered.
    pub(crate) fn begin_probes(&mut self) -> Arc<Answers> {
        let _entered = self.runtime.as_ref().expect("there until the drop").enter();
        let probes = Probes::begin(&self.site);
        let answers = Arc::clone(&probes.answers);
        self.probes = Some(probes);
        answers
    }

    /// Ends them, once each has its last answer.
    pub(crate) fn end_probes(&mut self) -> Outcome {
        let (Some(probes), Some(runtime)) = (self.probes.take(), &self.runtime) else { return Ok(()) };
        within(runtime, "every probe is answered", probes.end())?.map_err(Failure::Broken)
    }

    /// Publishes so many large messages, and waits until they are confirmed.
    pub(crate) fn bulk(&mut self, messages: usize) -> Outcome {
        let runtime = self.runtime.as_ref().expect("there until the drop");
        self.bulks += 1;
        within(runtime, "large messages are confirmed", produce::bulk(&self.site, self.bulks, messages))?
            .map_err(Failure::Broken)
    }

    /// Publishing ends once everything is answered; from now on every message is acked.
    pub(crate) fn calm(&mut self) -> Outcome {
        self.site.set_phase(Phase::Calm);
        self.site.tally.end_publishing();
        wait_for("every publish is answered", DRAIN_LIMIT, || {
            self.check_alive()?;
            Ok(self.producers.is_empty().then_some(()))
        })?;
        self.mortals.join()
    }

    /// Messages that the groups are owed by these books; dead letters are read last.
    pub(crate) fn owed(books: &Books) -> u64 {
        books.paths.iter().filter(|path| path.topic == TOPIC).map(|path| path.counters().depth).sum()
    }

    /// Ends the consumers and reads every path until it is empty twice.
    pub(crate) fn drain(&mut self) -> Outcome {
        self.site.set_phase(Phase::End);
        wait_for("every consumer closes", DRAIN_LIMIT, || match self.consumers.try_join_next() {
            Some(Ok(Ok(()))) => Ok(None),
            Some(ended) => Err(ended_early("a consumer", ended)),
            None => Ok(self.consumers.is_empty().then_some(())),
        })?;
        if let Some(scrapes) = self.scrapes.take() {
            scrapes.join().map_err(|_| Failure::Broken("the scrapes panicked".to_owned()))?;
        }
        let runtime = self.runtime.as_ref().expect("there until the drop");
        within(runtime, "every path is read until it is empty", drain::run(&self.site))?
            .map_err(|error| Failure::Broken(format!("a path cannot be read: {error}")))
    }

    /// Writes the books of the end; the history is whole after this.
    pub(crate) fn finish(&self, books: &Books, node: usize, call_ns: u64) -> Outcome {
        scrape::record(&self.site, books, node, call_ns, Self::now_ns());
        let balance = books.paths.iter().map(|path| Balance { path: path.path().into(), counters: path.counters() });
        let end = End { at: Self::now_ns(), drained: true, balance: balance.collect() };
        self.site.recorder.record(&Record::End(end));
        let finished = self.site.recorder.clone().finish();
        finished.map_err(|error| Failure::History(format!("{error}: {}", error.source)))
    }

    /// The groups' paths, on each of which every confirmed message must have come.
    pub(crate) fn paths() -> impl Iterator<Item = String> {
        GROUPS.iter().map(|group| format!("{TOPIC}/{}", group.name))
    }

    /// Now, by the history's clock.
    ///
    /// # Units
    /// Nanoseconds.
    pub(crate) fn now_ns() -> u64 {
        Site::now_ns()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.site.set_phase(Phase::End);
        if let Some(runtime) = self.runtime.take() {
            // A client that waits for a cluster which never comes back is given up.
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
        let _ = self.mortals.join();
        if let Some(scrapes) = self.scrapes.take() {
            let _ = scrapes.join();
        }
    }
}

fn ended_early(who: &str, ended: Result<Result<(), String>, tokio::task::JoinError>) -> Failure {
    Failure::Broken(match ended {
        Ok(Ok(())) => format!("{who} ended by itself"),
        Ok(Err(why)) => why,
        Err(panic) => format!("{who} panicked: {panic}"),
    })
}

/// Waits for something that clients do, but not for ever.
fn within<T>(runtime: &Runtime, what: &str, work: impl Future<Output = T>) -> Outcome<T> {
    runtime.block_on(async {
        let mut work = std::pin::pin!(work);
        let begun = std::time::Instant::now();
        loop {
            if let Ok(done) = tokio::time::timeout(LOOK_EVERY, &mut work).await {
                return Ok(done);
            }
            if crate::wait::is_stopped() {
                return Err(Failure::Stopped);
            }
            if begun.elapsed() > DRAIN_LIMIT {
                return Err(Failure::Broken(format!("{what}: not within {} s", DRAIN_LIMIT.as_secs())));
            }
        }
    })
}

/// Longer than leases, sessions and every backoff together, on a machine that is busy.
const DRAIN_LIMIT: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(50);
