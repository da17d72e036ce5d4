//! `Consumer::run`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use mortarmq_client::{Cause, Consumer, ConsumerOptions, Delivery, Verdict};
use mortarmq_wire::ops::SettleKind;
use tokio::sync::{Notify, Semaphore, oneshot};

use crate::consumer::settles;
use crate::fake::{Fake, Seen};
use crate::{connect, soon};

async fn consumer(fake: &Fake) -> Consumer {
    // The client goes with the consumer.
    connect(fake).await.consumer("orders", "billing", ConsumerOptions::default()).await.expect("it joins")
}

fn text(delivery: &Delivery) -> String {
    String::from_utf8(delivery.value.to_vec()).expect("tests publish text")
}

/// What handlers do at one time, and the most of it.
#[derive(Default)]
struct Log {
    running: Mutex<Vec<String>>,
    most: Mutex<usize>,
    done: Mutex<Vec<String>>,
}

impl Log {
    fn begins(&self, value: &str) {
        let mut running = self.running.lock().unwrap();
        let key = &value[..1];
        assert!(!running.iter().any(|other| other.starts_with(key)), "P8: {value} runs beside {running:?}");
        running.push(value.to_owned());
        let mut most = self.most.lock().unwrap();
        *most = running.len().max(*most);
    }

    fn ends(&self, value: &str) {
        self.running.lock().unwrap().retain(|other| other != value);
        self.done.lock().unwrap().push(value.to_owned());
    }

    fn done(&self) -> Vec<String> {
        self.done.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn p8_handlers_of_different_keys_run_at_once_and_of_one_key_never() {
    // Method: no handler ends before three run, so they have to be of three keys.
    let fake = Fake::start(&["orders"]).await;
    let values = ["a1", "a2", "b1", "a3", "c1", "b2", "d1"];
    values.iter().for_each(|value| fake.state().put(&value[..1], value));
    let (log, gate) = (Arc::new(Log::default()), Arc::new(Semaphore::new(0)));
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(consumer(&fake).await.run(3, async { drop(stopped.await) }, {
        let (log, gate) = (Arc::clone(&log), Arc::clone(&gate));
        move |delivery| {
            let (log, gate) = (Arc::clone(&log), Arc::clone(&gate));
            async move {
                let value = text(&delivery);
                log.begins(&value);
                gate.acquire().await.expect("it stays open").forget();
                log.ends(&value);
                Ok::<(), String>(())
            }
        }
    }));
    fake.until("three run", |_| *log.most.lock().unwrap() == 3).await;
    gate.add_permits(values.len());
    fake.until("all is acked", |state| state.settled.len() == values.len()).await;
    assert_eq!(*log.most.lock().unwrap(), 3, "never more than asked for");
    let by_key = log.done().into_iter().fold(BTreeMap::<String, Vec<String>>::new(), |mut by_key, value| {
        by_key.entry(value[..1].to_owned()).or_default().push(value);
        by_key
    });
    assert_eq!(by_key["a"], ["a1", "a2", "a3"]);
    assert_eq!(by_key["b"], ["b1", "b2"]);
    stop.send(()).unwrap();
    soon("the end", running).await.unwrap().expect("it leaves");
}

#[tokio::test]
async fn what_the_handler_says_is_what_becomes_of_the_message() {
    let fake = Fake::start(&["orders"]).await;
    for value in ["ok", "fail", "panic", "later", "dead", "back"] {
        fake.state().put("", value);
    }
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(consumer(&fake).await.run(8, async { drop(stopped.await) }, |delivery| async move {
        if delivery.cause != Cause::First {
            return Verdict::Ack;
        }
        match text(&delivery).as_str() {
            "ok" => Ok::<(), String>(()).into(),
            "fail" => Err("no such customer").into(),
            "panic" => panic!("a handler may be wrong"),
            "later" => Verdict::Nack { delay_ms: 5, error_text: String::new() },
            "dead" => Verdict::DeadLetter { error_text: "broken".to_owned() },
            _ => Verdict::Release,
        }
    }));
    fake.until("all is settled", |state| state.settled.len() == 6).await;
    let mut first: BTreeMap<u64, SettleKind> = BTreeMap::new();
    for (kind, delivery_id) in settles(&fake) {
        first.entry(delivery_id).or_insert(kind);
    }
    let kinds: Vec<SettleKind> = (1..=6).map(|delivery_id| first[&delivery_id]).collect();
    let nack = SettleKind::Nack;
    assert_eq!(kinds, [SettleKind::Ack, nack, nack, nack, SettleKind::DeadLetter, SettleKind::Release]);
    stop.send(()).unwrap();
    soon("the end", running).await.unwrap().expect("it leaves");
}

#[tokio::test]
async fn p8_a_message_whose_lease_was_lost_waits_for_its_first_handler() {
    let fake = Fake::start(&["orders"]).await;
    fake.state().put("a", "a1");
    let (log, gate) = (Arc::new(Log::default()), Arc::new(Notify::new()));
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(consumer(&fake).await.run(2, async { drop(stopped.await) }, {
        let (log, gate) = (Arc::clone(&log), Arc::clone(&gate));
        move |delivery| {
            let (log, gate) = (Arc::clone(&log), Arc::clone(&gate));
            async move {
                log.begins("a");
                if delivery.cause == Cause::First {
                    delivery.lost().await;
                    gate.notified().await;
                }
                log.ends("a");
                Verdict::Ack
            }
        }
    }));
    fake.until("the first handler runs", |_| log.running.lock().unwrap().len() == 1).await;
    fake.state().end_all_sessions();
    fake.cut();
    fake.until("it was delivered again", |state| state.deliveries() == 2).await;
    gate.notify_one();
    fake.until("the second delivery is acked", |state| state.settled.len() == 1).await;
    assert_eq!(log.done().len(), 2);
    stop.send(()).unwrap();
    soon("the end", running).await.unwrap().expect("it leaves");
}

#[tokio::test]
async fn a_stop_waits_for_handlers_gives_back_the_rest_and_leaves() {
    let fake = Fake::start(&["orders"]).await;
    ["a", "b", "c"].iter().for_each(|value| fake.state().put("", value));
    let (begun, gate) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(consumer(&fake).await.run(1, async { drop(stopped.await) }, {
        let (begun, gate) = (Arc::clone(&begun), Arc::clone(&gate));
        move |_| {
            let (begun, gate) = (Arc::clone(&begun), Arc::clone(&gate));
            async move {
                begun.notify_one();
                gate.notified().await;
                Verdict::Ack
            }
        }
    }));
    soon("the first handler", begun.notified()).await;
    stop.send(()).unwrap();
    tokio::task::yield_now().await;
    gate.notify_one();
    soon("the end", running).await.unwrap().expect("it leaves");
    let kinds: Vec<SettleKind> = settles(&fake).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [SettleKind::Ack, SettleKind::Release, SettleKind::Release]);
    assert!(fake.seen().contains(&Seen::Heartbeat { is_leave: true }));
}
