//! Consumers, and what they do to their messages.

use std::time::{Duration, Instant};

use mortarmq_client::{Consumer, ConsumerOptions, Delivery, PullOptions};
use tokio::task::JoinSet;

use super::site::{AUDIT, BILLING, GROUPS, Group, LEASE_MS, Phase, Site, TOPIC, id_of};
use crate::chance::Chance;

/// How a consumer gets its messages and keeps its leases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) group: &'static str,
    is_pulling: bool,
    is_renewing: bool,
}

/// The consumers that live as long as the load. The last of each group lets its leases run out.
pub(crate) const STYLES: &[Style] = &[
    Style::pushed(BILLING),
    Style { group: BILLING, is_pulling: true, is_renewing: true },
    Style { group: BILLING, is_pulling: true, is_renewing: false },
    Style::pushed(AUDIT),
    Style { group: AUDIT, is_pulling: true, is_renewing: false },
];

impl Style {
    /// One that is pushed to, and renews what it holds.
    pub(crate) const fn pushed(group: &'static str) -> Self {
        Self { group, is_pulling: false, is_renewing: true }
    }

    pub(crate) fn options(self) -> ConsumerOptions {
        let group = GROUPS.iter().find(|group| group.name == self.group);
        let options = group.copied().map(Group::options).unwrap_or_default();
        let credit_messages = if self.is_pulling { Some(0) } else { Some(PUSH_CREDIT) };
        ConsumerOptions { credit_messages, renew: self.is_renewing, ..options }
    }
}

/// Consumes until everything is empty.
///
/// # Errors
/// When the consumer ends that nobody ended.
pub(crate) async fn run(site: Site, style: Style, number: usize, mut chance: Chance) -> Result<(), String> {
    let told = |error: &dyn std::fmt::Display| format!("a consumer of {}: {error}", style.group);
    let client = site.connect(style.group, number).await;
    let mut consumer = client.consumer(TOPIC, style.group, style.options()).await.map_err(|error| told(&error))?;
    let mut settles = JoinSet::new();
    loop {
        let deliveries = tokio::select! {
            () = site.reached(Phase::End) => break,
            deliveries = next(&site, &mut consumer, style) => deliveries.map_err(|error| told(&error))?,
        };
        for delivery in deliveries {
            settles.spawn(treat(site.clone(), delivery, style, chance.apart()));
        }
        while settles.try_join_next().is_some() {}
    }
    while settles.join_next().await.is_some() {}
    consumer.close().await.map_err(|error| told(&error))?;
    client.close().await;
    Ok(())
}

/// What comes next, counted.
pub(crate) async fn next(site: &Site, consumer: &mut Consumer, style: Style) -> Result<Vec<Delivery>, String> {
    let deliveries = if style.is_pulling {
        let options = PullOptions { max_messages: 16, wait_ms: 200, ..PullOptions::default() };
        consumer.pull(options).await.map_err(|error| error.to_string())?
    } else {
        let next = consumer.next().await.ok_or_else(|| "it ended by itself".to_owned())?;
        vec![next.map_err(|error| error.to_string())?]
    };
    for delivery in &deliveries {
        note(site, &format!("{TOPIC}/{}", style.group), delivery);
    }
    Ok(deliveries)
}

/// Counts a delivery for the path that owed it.
pub(crate) fn note(site: &Site, path: &str, delivery: &Delivery) {
    if let Some(id) = id_of(&delivery.value) {
        site.tally.delivered(path, &id);
    }
    site.tally.saw_clock(delivery.published_at.get());
}

/// Acks, and counts it if it was confirmed.
pub(crate) async fn ack(site: &Site, delivery: &Delivery) {
    if delivery.ack().await.is_ok() {
        site.tally.acked();
    }
}

/// What becomes of one message. How each settle is answered is in the history.
async fn treat(site: Site, delivery: Delivery, style: Style, mut chance: Chance) {
    if site.phase() > Phase::Load {
        return ack(&site, &delivery).await;
    }
    match chance.below(100) {
        0..6 => {
            let _ = delivery.nack(0, "not now").await;
        }
        6..9 => {
            let _ = delivery.release().await;
        }
        9 => {
            let _ = delivery.dead_letter("no use").await;
        }
        10..16 => {
            tokio::time::sleep(chance.ms(5, 100)).await;
            let _ = delivery.extend().await;
            tokio::time::sleep(chance.ms(5, 100)).await;
            ack(&site, &delivery).await;
        }
        // Forgotten: its lease runs out. It is not dropped, for what a consumer does not name at a resume the broker may give
        // back at once, and a history cannot tell that it was not named.
        16 if !style.is_renewing => {
            let _ = tokio::time::timeout(FORGOTTEN, site.reached(Phase::Calm)).await;
            ack(&site, &delivery).await;
        }
        // Held for longer than a lease: one that is renewed stays this consumer's, also over the end of a leader.
        17 if style.is_renewing => {
            tokio::time::sleep(Duration::from_millis(LEASE_MS) + chance.ms(100, 600)).await;
            ack(&site, &delivery).await;
        }
        // Acked when the lease may have run out, and twice.
        17..20 if !style.is_renewing => {
            tokio::time::sleep(Duration::from_millis(LEASE_MS) + chance.ms(100, 600)).await;
            ack(&site, &delivery).await;
            let _ = delivery.ack().await;
        }
        20..30 => {
            tokio::time::sleep(chance.ms(1, 50)).await;
            ack(&site, &delivery).await;
        }
        _ => ack(&site, &delivery).await,
    }
}

/// Acks some and holds the others until its time is over; what it returns is all that it has.
pub(crate) async fn live(
    site: &Site,
    group: &'static str,
    life: Duration,
    chance: &mut Chance,
) -> Option<impl Sized + use<>> {
    let style = Style::pushed(group);
    let end = Instant::now() + life;
    let left = || end.saturating_duration_since(Instant::now());
    let client = tokio::time::timeout(left(), site.connect("mortal", 0)).await.ok()?;
    let consumer = tokio::time::timeout(left(), client.consumer(TOPIC, group, style.options())).await;
    let mut consumer = consumer.ok()?.ok()?;
    let mut held = Vec::new();
    while let Ok(Ok(deliveries)) = tokio::time::timeout(left(), next(site, &mut consumer, style)).await {
        for delivery in deliveries {
            if chance.below(3) > 0 {
                drop(delivery.ack());
            } else {
                held.push(delivery);
            }
        }
    }
    Some((held, consumer, client))
}

/// Longer than a lease and most outages together, which no lease counts.
const FORGOTTEN: Duration = Duration::from_secs(8);
/// Few, so that what a consumer holds when it dies is few.
const PUSH_CREDIT: u16 = 64;
