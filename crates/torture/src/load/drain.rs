//! The end of a run: every path is read until it is empty twice.

use mortarmq_client::{ClientError, ConsumerOptions, PullOptions};

use super::consume::note;
use super::site::{DLQ, DLQ_GROUP, GROUPS, Site, TOPIC};

/// Reads every path, dead letters last.
///
/// # Errors
/// What no repeat helps against.
pub(crate) async fn run(site: &Site) -> Result<(), ClientError> {
    for group in GROUPS {
        let options = ConsumerOptions { credit_messages: Some(0), ..group.options() };
        empty(site, TOPIC, group.name, options).await?;
    }
    let options = ConsumerOptions { credit_messages: Some(0), ..ConsumerOptions::default() };
    empty(site, DLQ, DLQ_GROUP, options).await
}

async fn empty(site: &Site, topic: &str, group: &str, options: ConsumerOptions) -> Result<(), ClientError> {
    let client = site.connect("last", 0).await;
    let consumer = client.consumer(topic, group, options).await?;
    let mut empty_times = 0;
    while empty_times < 2 {
        let pull = PullOptions { max_messages: 256, wait_ms: 300, ..PullOptions::default() };
        let deliveries = consumer.pull(pull).await?;
        empty_times = if deliveries.is_empty() { empty_times + 1 } else { 0 };
        for delivery in &deliveries {
            // A dead letter counts for the path it died on.
            let origin = delivery.headers.iter().rfind(|(name, _)| name == DIED_ON.as_bytes());
            let origin = origin.filter(|_| topic == DLQ).map(|(_, path)| String::from_utf8_lossy(path).into_owned());
            note(site, &origin.unwrap_or_else(|| format!("{topic}/{group}")), delivery);
        }
        // Asked for together, so that they travel together.
        let receipts: Vec<_> = deliveries.iter().map(|delivery| delivery.ack()).collect();
        for receipt in receipts {
            if receipt.await.is_ok() {
                site.tally.acked();
            }
        }
    }
    consumer.close().await?;
    client.close().await;
    Ok(())
}

/// The header with the path that a dead letter died on.
const DIED_ON: &str = "mortarmq-dlq-path";
