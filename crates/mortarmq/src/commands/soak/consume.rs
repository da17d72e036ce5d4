//! Consumers of a soak, and what they do to their messages.

use std::time::Duration;

use mortarmq_client::{Consumer, ConsumerOptions, Delivery, PullOptions};
use tokio::task::JoinSet;

use super::chance::Chance;
use super::ground::{AUDIT, BILLING, GROUPS, Ground, Group, LEASE_MS, Phase, id_of};
use crate::errors::Failure;
use crate::session;

/// How a consumer gets its messages and keeps its leases.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    pub(super) group: &'static str,
    pub(super) is_pulling: bool,
    pub(super) is_renewing: bool,
}

/// The consumers that live as long as the soak. The last of each group lets its leases run out.
pub(super) const STYLES: &[Style] = &[
    Style { group: BILLING, is_pulling: false, is_renewing: true },
    Style { group: BILLING, is_pulling: true, is_renewing: true },
    Style { group: BILLING, is_pulling: true, is_renewing: false },
    Style { group: AUDIT, is_pulling: false, is_renewing: true },
    Style { group: AUDIT, is_pulling: true, is_renewing: false },
];

impl Style {
    pub(super) fn options(self) -> ConsumerOptions {
        let group = GROUPS.iter().find(|group| group.name == self.group);
        let options = group.copied().map(Group::options).unwrap_or_default();
        let credit_messages = if self.is_pulling { Some(0) } else { Some(PUSH_CREDIT) };
        ConsumerOptions { credit_messages, renew: self.is_renewing, ..options }
    }
}

/// Consumes until everything is empty.
pub(super) async fn run(ground: Ground, style: Style, mut chance: Chance) -> Result<(), Failure> {
    let client = ground.connect(style.group).await?;
    let consumer = client.consumer(&ground.topic, style.group, style.options()).await;
    let mut consumer = consumer.map_err(|error| session::failure(&error))?;
    let mut settles = JoinSet::new();
    loop {
        let deliveries = tokio::select! {
            () = ground.reached(Phase::End) => break,
            deliveries = next(&mut consumer, style.is_pulling) => deliveries?,
        };
        for delivery in deliveries {
            let is_calm = ground.phase() > Phase::Load;
            settles.spawn(treat(delivery, style, is_calm, chance.clone()));
            // Each message has choices of its own.
            chance.below(1);
        }
        while settles.try_join_next().is_some() {}
    }
    while settles.join_next().await.is_some() {}
    consumer.close().await.map_err(|error| session::failure(&error))?;
    client.close().await;
    Ok(())
}

pub(super) async fn next(consumer: &mut Consumer, is_pulling: bool) -> Result<Vec<Delivery>, Failure> {
    if is_pulling {
        let options = PullOptions { max_messages: 16, wait_ms: 200, ..PullOptions::default() };
        return consumer.pull(options).await.map_err(|error| session::failure(&error));
    }
    match consumer.next().await {
        Some(delivery) => Ok(vec![delivery.map_err(|error| session::failure(&error))?]),
        None => Err(super::failed(&"a consumer ended by itself")),
    }
}

/// What becomes of one message. How each settle is answered is in the history.
async fn treat(delivery: Delivery, style: Style, is_calm: bool, mut chance: Chance) {
    if is_calm {
        let _ = delivery.ack().await;
        return;
    }
    // Some messages fail wherever they come: their attempts run out.
    if style.group == BILLING && is_poison(&delivery) {
        let _ = delivery.nack(0, "poison").await;
        return;
    }
    match chance.below(100) {
        0..8 => {
            let _ = delivery.nack(0, "not now").await;
        }
        8..12 => {
            let _ = delivery.release().await;
        }
        12..14 => {
            let _ = delivery.dead_letter("no use").await;
        }
        14..20 => {
            tokio::time::sleep(chance.ms(5, 100)).await;
            let _ = delivery.extend().await;
            tokio::time::sleep(chance.ms(5, 100)).await;
            let _ = delivery.ack().await;
        }
        // Forgotten: its lease runs out.
        20 => drop(delivery),
        // Acked when the lease may have run out, and twice.
        21..24 if !style.is_renewing => {
            tokio::time::sleep(Duration::from_millis(LEASE_MS) + chance.ms(100, 600)).await;
            let _ = delivery.ack().await;
            let _ = delivery.ack().await;
        }
        24..30 => {
            tokio::time::sleep(chance.ms(1, 50)).await;
            let _ = delivery.ack().await;
        }
        _ => {
            let _ = delivery.ack().await;
        }
    }
}

fn is_poison(delivery: &Delivery) -> bool {
    id_of(&delivery.value).is_some_and(|id| id.ends_with("77"))
}

/// Few, so that what a consumer holds when it dies is few.
const PUSH_CREDIT: u16 = 64;
