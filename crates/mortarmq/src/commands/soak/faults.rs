//! What goes wrong on purpose: the node is killed, consumers die.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mortarmq_history::Recorder;

use super::chance::Chance;
use super::consume::{Style, next};
use super::ground::{AUDIT, BILLING, Ground};
use crate::child_node::ChildNode;
use crate::errors::Failure;

/// Kills the node and starts it again, until it is told to stop.
pub(super) struct Killer {
    stop: Sender<()>,
    task: tokio::task::JoinHandle<Result<Killed, Failure>>,
}

/// The node, alive, and how often it was killed.
pub(super) struct Killed {
    pub(super) node: Option<ChildNode>,
    pub(super) kills: u32,
}

impl Killer {
    pub(super) fn start(is_killing: bool, node: Option<ChildNode>, ground: &Ground, mut chance: Chance) -> Self {
        let (stop, stopped) = mpsc::channel();
        let recorder = ground.recorder.clone();
        let task = tokio::task::spawn_blocking(move || {
            let mut killed = Killed { node, kills: 0 };
            while is_killing
                && let Some(node) = &mut killed.node
                && let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(chance.ms(600, 1_800))
            {
                kill(node, &recorder, &mut chance)?;
                killed.kills += 1;
            }
            Ok(killed)
        });
        Self { stop, task }
    }

    pub(super) async fn stop(self) -> Result<Killed, Failure> {
        // It has ended by itself if there is nobody to tell.
        let _ = self.stop.send(());
        self.task.await.map_err(|error| super::failed(&error))?
    }
}

fn kill(node: &mut ChildNode, recorder: &Recorder, chance: &mut Chance) -> Result<(), Failure> {
    let call = Ground::now_ns();
    node.kill()?;
    std::thread::sleep(chance.ms(1, 400));
    node.restart_in_place()?;
    recorder.record(&ChildNode::killed(0, call, Ground::now_ns()));
    Ok(())
}

/// How often, in words.
pub(super) fn told(kills: u32) -> String {
    match kills {
        0 => "no kill".to_owned(),
        1 => "1 kill".to_owned(),
        many => format!("{many} kills"),
    }
}

/// Consumers that die with what they hold, without a word, again and again.
pub(super) struct Mortal {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<(), Failure>>>,
}

impl Mortal {
    pub(super) fn start_all(ground: &Ground, mut chance: Chance) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let start = |group| {
            let (ground, stop) = (ground.clone(), Arc::clone(&stop));
            let chance = Chance::new(chance.below(u64::MAX));
            std::thread::spawn(move || live_and_die(&ground, group, &stop, chance))
        };
        let threads = [BILLING, AUDIT].map(start).into();
        Self { stop, threads }
    }

    /// After this none is alive, and what they held comes when their sessions have run out.
    pub(super) fn stop(self) -> Result<(), Failure> {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads {
            thread.join().map_err(|_| super::failed(&"a consumer panicked"))??;
        }
        Ok(())
    }
}

fn live_and_die(ground: &Ground, group: &'static str, stop: &AtomicBool, mut chance: Chance) -> Result<(), Failure> {
    while !stop.load(Ordering::Acquire) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| super::failed(&error))?;
        let life = chance.ms(300, 1_200);
        let held = runtime.block_on(live(ground, group, life, &mut chance));
        // Its connection is a task of this runtime, and closes with it: the node hears nothing more.
        drop(runtime);
        drop(held?);
        std::thread::sleep(chance.ms(100, 500));
    }
    Ok(())
}

/// Acks some and holds the others until its time is over; what it returns is all that it has.
async fn live(
    ground: &Ground,
    group: &'static str,
    life: Duration,
    chance: &mut Chance,
) -> Result<impl Sized + use<>, Failure> {
    let client = ground.connect("mortal").await?;
    let style = Style { group, is_pulling: false, is_renewing: true };
    let consumer = client.consumer(&ground.topic, group, style.options()).await;
    let mut consumer = consumer.map_err(|error| crate::session::failure(&error))?;
    let mut held = Vec::new();
    let end = Instant::now() + life;
    while let Ok(deliveries) =
        tokio::time::timeout(end.saturating_duration_since(Instant::now()), next(&mut consumer, false)).await
    {
        for delivery in deliveries? {
            if chance.below(3) > 0 {
                drop(delivery.ack());
            } else {
                held.push(delivery);
            }
        }
    }
    Ok((held, consumer, client))
}
