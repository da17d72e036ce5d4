//! Consumers that die with what they hold, without a word, again and again.

use std::thread::JoinHandle;

use super::consume::live;
use super::site::{AUDIT, BILLING, Phase, Site};
use crate::chance::Chance;
use crate::failure::{Failure, Outcome, machine};

/// Those that run now. None is alive after [`Mortals::join`], and what they held comes when their sessions have run out.
pub(crate) struct Mortals {
    threads: Vec<JoinHandle<()>>,
}

impl Mortals {
    /// Starts one of each group.
    pub(crate) fn start(site: &Site, chance: &mut Chance) -> Outcome<Self> {
        let start = |group| {
            let (site, chance) = (site.clone(), chance.apart());
            let thread = std::thread::Builder::new().name(format!("mortal-{group}"));
            thread.spawn(move || live_and_die(&site, group, chance)).map_err(machine("no thread for a consumer"))
        };
        Ok(Self { threads: [BILLING, AUDIT].into_iter().map(start).collect::<Outcome<_>>()? })
    }

    /// Waits for their ends, which come with the end of the load.
    pub(crate) fn join(&mut self) -> Outcome {
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| Failure::Broken("a consumer panicked".to_owned()))?;
        }
        Ok(())
    }
}

fn live_and_die(site: &Site, group: &'static str, mut chance: Chance) {
    while site.phase() == Phase::Load {
        // Without a runtime nobody lives, which is no fault of the broker.
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        let life = chance.ms(300, 1_200);
        let held = runtime.block_on(live(site, group, life, &mut chance));
        // Its connection is a task of this runtime, and closes with it: the node hears nothing more.
        drop(runtime);
        drop(held);
        std::thread::sleep(chance.ms(100, 500));
    }
}
