use std::collections::{BTreeMap, BTreeSet};

use mortarmq_client::{ConsumerOptions, ErrorCode, Message, Outcome, ProducerOptions};

use crate::fake::{Fake, Fault, Seen};
use crate::{connect, soon};

/// A small generator, so that a failing seed can be run again.
#[derive(Clone, Copy)]
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Cuts and refuses at random, also while a connection is set up.
fn faults(seed: u64) -> impl FnMut(&Seen) -> Fault + Send + 'static {
    let mut draw = Draw(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    move |seen| match (draw.below(60), seen) {
        (0, _) => Fault::CutBefore,
        (1, _) => Fault::CutAfter,
        (2, Seen::Publish { .. }) => Fault::Refuse(ErrorCode::TooLarge),
        (3, Seen::Publish { .. } | Seen::Settle { .. } | Seen::Metadata) => Fault::Refuse(ErrorCode::Backpressure),
        (4, Seen::Settle { .. }) => Fault::EndSessions,
        _ => Fault::None,
    }
}

/// Goal: no receipt is lost, and each tells the truth. Method: several producers and one consumer against a broker
/// that cuts at random frames.
async fn run(seed: u64) {
    let fake = Fake::start_with(&["orders"], faults(seed)).await;
    let client = connect(&fake).await;
    let mut sending = Vec::new();
    for name in ["a", "b", "c"] {
        let producer = client.producer("orders", ProducerOptions { max_outstanding: 16, ..ProducerOptions::default() });
        let producer = soon("a producer", producer).await.expect("the topic is there");
        sending.push(tokio::spawn(async move {
            let mut receipts = Vec::new();
            for number in 0..60 {
                let value = format!("{name}{number}");
                let message = Message { key: name.as_bytes(), value: value.as_bytes(), ..Message::default() };
                receipts.push((value.clone(), producer.send(message).await.expect("the client is open")));
            }
            receipts
        }));
    }
    let mut outcomes = BTreeMap::new();
    for sending in sending {
        for (value, receipt) in soon("room to send", sending).await.expect("no panic") {
            let result = soon("a receipt", receipt).await;
            outcomes.insert(value, result.map(|published| published.seq.get()).map_err(|error| error.outcome()));
        }
    }
    let stored: Vec<String> =
        fake.state().stored.iter().map(|body| String::from_utf8_lossy(&body[7..]).into_owned()).collect();
    assert_eq!(stored.iter().collect::<BTreeSet<_>>().len(), stored.len(), "P3: nothing is stored twice");
    for (value, outcome) in outcomes {
        match outcome {
            Ok(seq) => assert_eq!(stored[seq as usize - 1], value, "P1"),
            Err(Outcome::Refused) => assert!(!stored.contains(&value), "P2: {value} was refused"),
            Err(Outcome::Unknown) => {}
        }
    }
    consume(&fake, &client, stored.len()).await;
    soon("the end", client.close()).await;
}

/// Acks everything, and gets no message again whose ack was answered.
async fn consume(fake: &Fake, client: &mortarmq_client::Client, count: usize) {
    let consumer = client.consumer("orders", "billing", ConsumerOptions::default());
    let mut consumer = soon("a consumer", consumer).await.expect("the topic is there");
    let mut done = BTreeSet::new();
    while fake.state().settled.len() < count {
        fake.state().end_lost_sessions();
        let waiting = tokio::time::timeout(std::time::Duration::from_millis(20), consumer.next()).await;
        let Ok(delivery) = waiting else { continue };
        let delivery = delivery.expect("the consumer goes on").expect("and does not fail");
        assert!(!done.contains(&delivery.seq), "P6: {} came again after its ack", delivery.seq);
        if soon("a settle", delivery.ack()).await == Ok(()) {
            done.insert(delivery.seq);
        }
    }
    soon("the end of the consumer", consumer.close()).await.expect("it leaves");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_p2_p3_no_receipt_is_lost_under_random_cuts() {
    for seed in 0..25 {
        println!("seed {seed}: cuts::run({seed}) replays it");
        run(seed).await;
    }
}
