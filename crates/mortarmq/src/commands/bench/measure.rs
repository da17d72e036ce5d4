//! One phase on one target, once.

use std::path::Path;
use std::time::{Duration, Instant};

use super::phase::{Kind, Load, Phase};
use super::target::{Side, Target, sent_bytes};
use super::{consume, publish};
use crate::bench::{Latency, Recorder, Span, Usage};
use crate::errors::Failure;
use crate::output::note;
use crate::session;

/// What the tasks of a phase have to know.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) topic: String,
    pub(super) load: Load,
    pub(super) span: Span,
    /// What values count their time from.
    pub(super) epoch: Instant,
}

/// How long a phase is, and how much there is to consume.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) length: Duration,
    pub(super) backlog: u64,
}

/// What one phase did, once.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// Messages that were confirmed; where there are consumers, acked.
    pub(super) messages: u64,
    pub(super) elapsed: Duration,
    /// Each publish from call to answer; where nobody publishes, each ack.
    pub(super) latency: Latency,
    /// Each message from the call that published it to its delivery, where both are done at once.
    pub(super) delivery: Option<Latency>,
    /// Messages that were published, where that is not what is counted.
    pub(super) published: Option<u64>,
    /// The slowest second against the median one.
    pub(super) slowest_second: Option<f64>,
    /// What the target used, where that can be seen.
    pub(super) usage: Option<Usage>,
    /// Bytes that its nodes sent to each other, where there are several and they are ours.
    pub(super) peer_bytes: Option<u64>,
}

/// What a target used in a span.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    usage: Option<Usage>,
    peer_bytes: Option<u64>,
}

impl Sample {
    pub(super) fn per_s(&self) -> f64 {
        self.messages as f64 / self.elapsed.as_secs_f64().max(f64::EPSILON)
    }

    /// Time on a processor for each message.
    pub(super) fn cpu_us_per_message(&self) -> Option<f64> {
        let cpu = self.usage?.cpu;
        (self.messages > 0).then(|| cpu.as_secs_f64() * 1e6 / self.messages as f64)
    }

    fn of(recorder: &Recorder, elapsed: Duration, used: Used) -> Self {
        Self {
            messages: recorder.messages(),
            elapsed,
            latency: recorder.latency().clone(),
            delivery: None,
            published: None,
            slowest_second: recorder.slowest_second(elapsed),
            usage: used.usage,
            peer_bytes: used.peer_bytes,
        }
    }
}

/// Runs a phase on a topic of its own, which is deleted whatever comes of it.
pub(super) async fn run(target: &Target, topic: String, phase: &Phase, extent: Extent) -> Result<Sample, Failure> {
    let office = target.office().await?;
    let client = target.make_topic(&topic).await?;
    let limit = extent.length + WARM_UP + PATIENCE;
    let measured = tokio::time::timeout(limit, on_topic(target, topic.clone(), phase, extent)).await;
    let deleted = client.delete_topic(&topic).await;
    let sample = measured.unwrap_or_else(|_| {
        let what = format!("phase {}: not everything was answered within {} s", phase.name, limit.as_secs());
        Err(Failure::unreachable(what, "look at the broker's log and at what else the machine does"))
    })?;
    deleted.map_err(|error| session::failure(&error))?;
    let now = target.office().await?;
    if now != office {
        note(format_args!(
            "phase {}: the leader changed meanwhile ({office:?} to {now:?}): its figures hold a failover",
            phase.name
        ));
    }
    Ok(sample)
}

async fn on_topic(target: &Target, topic: String, phase: &Phase, extent: Extent) -> Result<Sample, Failure> {
    let load = phase.load;
    let epoch = Instant::now();
    let plan = |warm_up, topic| Plan { topic, load, span: Span::after(warm_up, extent.length), epoch };
    match phase.kind {
        Kind::Publish => {
            let clients = target.connect_all(load.producers).await?;
            let plan = plan(WARM_UP, topic);
            let (recorder, used) = watched(target, plan.span, publish::run(clients, &plan)).await?;
            Ok(Sample::of(&recorder, recorder.span(), used))
        }
        Kind::Consume => {
            let first = plan(Duration::ZERO, topic.clone());
            let client = target.connect().await?;
            consume::make_group(&client, &first).await?;
            publish::fill(&client, &first, extent.backlog).await?;
            let clients = target.connect_all(load.consumers).await?;
            // No warm-up: a window of messages is on its way as soon as somebody subscribes.
            let plan = plan(Duration::ZERO, topic);
            let consuming = async {
                let consumers = consume::subscribe(clients, &plan).await?;
                consume::run(consumers, &plan, Some(extent.backlog)).await
            };
            let (consumed, used) = watched(target, plan.span, consuming).await?;
            let is_drained = consumed.acked.messages() >= extent.backlog;
            let elapsed = if is_drained { consumed.acked.until_last() } else { consumed.acked.span() };
            Ok(Sample::of(&consumed.acked, elapsed, used))
        }
        Kind::AtOnce => {
            let producers = target.connect_all(load.producers).await?;
            let clients = target.connect_all(load.consumers).await?;
            let plan = plan(WARM_UP, topic);
            let consumers = consume::subscribe(clients, &plan).await?;
            let both = async { tokio::try_join!(publish::run(producers, &plan), consume::run(consumers, &plan, None)) };
            let ((published, consumed), used) = watched(target, plan.span, both).await?;
            Ok(Sample {
                latency: published.latency().clone(),
                delivery: Some(consumed.delivered.latency().clone()),
                published: Some(published.messages()),
                ..Sample::of(&consumed.acked, consumed.acked.span(), used)
            })
        }
        Kind::Idle => unreachable!("an idle node has no topic"),
    }
}

/// Lets a new node stand without work.
pub(super) async fn idle(folder: &Path, nodes: u16, extent: Extent) -> Result<Sample, Failure> {
    let target = Target::start(Side::Broker, folder, nodes)?;
    // What a start leaves to be done is done by then.
    let span = Span::after(IDLE_WARM_UP, extent.length);
    let standing = async {
        tokio::time::sleep_until(span.end.into()).await;
        Ok(())
    };
    let ((), used) = watched(&target, span, standing).await?;
    Ok(Sample::of(&Recorder::new(span), extent.length, used))
}

/// What a target uses in the span, or until the work is done if that is sooner.
async fn watched<T>(
    target: &Target,
    span: Span,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<(T, Used), Failure> {
    let watch = std::sync::Mutex::new((Used::default(), Used::default()));
    let looking = async {
        tokio::time::sleep_until(span.begin.into()).await;
        target.forget_peak();
        watch.lock().expect("one task").0.usage = target.usage();
        let sent = peer_bytes(target).await;
        watch.lock().expect("one task").0.peer_bytes = sent;
        tokio::time::sleep_until(span.end.into()).await;
        watch.lock().expect("one task").1.usage = target.usage();
        let sent = peer_bytes(target).await;
        watch.lock().expect("one task").1.peer_bytes = sent;
        // The work says when it is over.
        std::future::pending::<()>().await
    };
    let done = tokio::select! {
        done = work => done?,
        () = looking => unreachable!("it looks for ever"),
    };
    let (before, mut after) = watch.into_inner().expect("one task");
    after.usage = after.usage.or_else(|| target.usage());
    if after.peer_bytes.is_none() {
        after.peer_bytes = peer_bytes(target).await;
    }
    let usage = before.usage.zip(after.usage);
    let usage = usage.map(|(before, after)| Usage { cpu: after.cpu.saturating_sub(before.cpu), ..after });
    let sent = before.peer_bytes.zip(after.peer_bytes);
    Ok((done, Used { usage, peer_bytes: sent.map(|(before, after)| after.saturating_sub(before)) }))
}

async fn peer_bytes(target: &Target) -> Option<u64> {
    let tellers = target.tellers();
    if tellers.is_empty() {
        return None;
    }
    tokio::task::spawn_blocking(move || sent_bytes(&tellers)).await.expect("asking does not panic")
}

/// Connections, buffers and batches have found their size by then.
const WARM_UP: Duration = Duration::from_millis(200);
const IDLE_WARM_UP: Duration = Duration::from_secs(1);
/// How long what is under way, and a backlog to be made, may take beyond the span.
const PATIENCE: Duration = Duration::from_secs(120);
