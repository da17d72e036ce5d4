//! The scrub: reads everything again in the background, at a bounded rate, and says what is damaged (P11).

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use mortarmq_storage::{Disk, Finding, Scrub, ScrubStep, Stretch};

use crate::config::Config;
use crate::event::Event;
use crate::inbox::EventSender;
use crate::metrics::Metrics;
use crate::threads::{chain, spawn};

/// Starts the scrub. It ends when the sender is dropped; a rate of 0 reads nothing. `on_damage` hears in every pass of what another node
/// may have sound, within bounds.
fn start(
    disk: Arc<dyn Disk>,
    data_dir: PathBuf,
    bytes_per_s: u64,
    metrics: Arc<Metrics>,
    on_damage: impl FnMut(Stretch) + Send + 'static,
) -> io::Result<(Sender<()>, JoinHandle<()>)> {
    let (sender, stopped) = mpsc::channel();
    let scrub = Scrub::new(disk, data_dir);
    let thread = spawn("scrub", move || {
        if bytes_per_s > 0 {
            Pace { stopped, bytes_per_s }.run(scrub, &metrics, on_damage);
        }
    })?;
    Ok((sender, thread))
}

/// Starts the scrub of a node; the loop hears of damage that another node may be asked for.
pub(crate) fn start_for(
    config: &Config,
    disk: Arc<dyn Disk>,
    metrics: Arc<Metrics>,
    events: EventSender,
) -> io::Result<(Sender<()>, JoinHandle<()>)> {
    let on_damage = move |stretch| events.send(Event::Damaged { stretch, is_waited_for: false });
    start(disk, config.data_dir.clone(), config.scrub_bytes_per_s, metrics, on_damage)
}

struct Pace {
    stopped: Receiver<()>,
    bytes_per_s: u64,
}

impl Pace {
    fn run(&self, mut scrub: Scrub, metrics: &Metrics, mut on_damage: impl FnMut(Stretch)) {
        let (mut told, mut named) = (BTreeSet::new(), 0);
        let step_bytes = STEP_BYTES.min(self.bytes_per_s);
        loop {
            let step = scrub.step(step_bytes, &mut |finding| {
                tell(&finding, &mut told);
                if let Some(stretch) = finding.stretch().filter(|_| named < TOLD_MAX) {
                    named += 1;
                    on_damage(stretch);
                }
            });
            let pause = match step {
                Ok(ScrubStep::Read { bytes }) => {
                    metrics.count_scrubbed(bytes);
                    self.worth(bytes)
                }
                Ok(ScrubStep::PassDone(pass)) => {
                    metrics.count_scrub_pass(pass.damaged);
                    named = 0;
                    tracing::debug!(pass.files, pass.bytes, pass.damaged, "scrubbed everything");
                    BETWEEN_PASSES
                }
                Err(error) => {
                    tracing::warn!("the scrub could not go on: {}", chain(&error));
                    BETWEEN_PASSES
                }
            };
            if self.stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    /// How long so many bytes may take.
    fn worth(&self, bytes: u64) -> Duration {
        Duration::from_micros(bytes.saturating_mul(1_000_000) / self.bytes_per_s)
    }
}

/// A damage is told once, not in every pass.
fn tell(finding: &Finding, told: &mut BTreeSet<(PathBuf, u64)>) {
    if !finding.is_damage || told.len() >= TOLD_MAX || !told.insert((finding.path.clone(), finding.offset)) {
        return;
    }
    let (path, offset, what) = (finding.path.display(), finding.offset, &finding.what);
    match &finding.at {
        Some(at) => {
            let (topic, partition) = (at.topic.to_hex(), at.partition);
            let seq = at.seq.map(mortarmq_types::Seq::get);
            tracing::error!(%path, offset, topic, %partition, seq, "the scrub found damage: {what}");
        }
        None => tracing::error!(%path, offset, "the scrub found damage: {what}"),
    }
}

/// Read at once: short enough that a disk hardly notices.
const STEP_BYTES: u64 = 256 << 10;
/// A small folder is read in no time; once a minute is often enough.
const BETWEEN_PASSES: Duration = Duration::from_secs(60);
/// Damages that are told one by one; the metric counts all.
const TOLD_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::start;
    use crate::metrics::Metrics;
    use mortarmq_storage::{Disk, Identity, MemoryDisk};
    use mortarmq_types::NodeId;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    #[test]
    fn p11_the_scrub_counts_what_it_finds_and_stops_when_it_is_told_to() {
        let (disk, metrics) = (Arc::new(MemoryDisk::new()), Arc::new(Metrics::new()));
        let identity = Identity {
            cluster_id: [7; 16],
            node_id: NodeId::ZERO,
            incarnation: 1,
            peers: vec![NodeId::ZERO],
            state: mortarmq_storage::IdentityState::Made,
        };
        identity.write(&*disk, Path::new("/data")).expect("an empty disk");
        let file = disk.open(Path::new("/data/identity")).expect("just written");
        file.write_all_at(&[0xFF], 9).expect("no crash");
        let (stop, thread) =
            start(disk, PathBuf::from("/data"), u64::MAX, Arc::clone(&metrics), drop).expect("a thread");
        while metrics.scrub_damaged() == 0 {
            std::thread::yield_now();
        }
        drop(stop);
        thread.join().expect("it ends in the pause between two passes");
        assert_eq!(metrics.scrub_damaged(), 1);
    }
}
