//! What a client writes down of itself.

use std::path::Path;

use mortarmq_client::{
    Client, ClientOptions, ConsumerOptions, ErrorCode, Message, ProducerOptions, PullOptions, Recording, SettleError,
};
use mortarmq_history::{Limits, Reader, Recorder};
use serde_json::Value;

use crate::fake::{Fake, Fault, Seen};
use crate::{options, soon};

/// A client whose messages carry their id in front of a colon.
async fn recorded(fake: &Fake, file: &Path) -> (Client, Recorder) {
    let recorder = Recorder::create(file, mortarmq_history::Options::default()).expect("a file of our own");
    let id = |value: &[u8]| Some(std::str::from_utf8(value).ok()?.split_once(':')?.0.to_owned());
    let recording = Some(Recording::by_value(recorder.clone(), id));
    let client = Client::connect(ClientOptions { recording, name: "test".to_owned(), ..options(fake) }).await;
    (client.expect("the fake broker takes everybody"), recorder)
}

/// The records of the file, once it is whole: by the reader that judges use, and as they stand there.
fn records(file: &Path, recorder: Recorder) -> Vec<Value> {
    recorder.finish().expect("the disk has room");
    let mut reader = Reader::open(&[file.to_owned()], Limits::default()).expect("it is there");
    while let Some(line) = reader.next_line().expect("it can be read") {
        assert!(line.content.is_ok(), "a judge cannot read {:?}", line.content);
    }
    let text = std::fs::read_to_string(file).expect("it is there");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn of<'a>(records: &'a [Value], op: &str, msg: &str) -> Vec<&'a Value> {
    records.iter().filter(|record| record["op"] == op && record["msg"] == msg).collect()
}

/// The fields named, in their order; null where there is none.
fn fields<'a, const N: usize>(record: &'a Value, names: [&str; N]) -> [&'a Value; N] {
    names.map(|name| &record[name])
}

fn number(record: &Value, field: &str) -> u64 {
    record[field].as_u64().unwrap_or_else(|| panic!("{field} of {record}"))
}

#[tokio::test]
async fn publishes_are_recorded_with_what_became_of_them() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("history.jsonl");
    let mut cuts = 0;
    let fake = Fake::start_with(&["orders"], move |seen| match seen {
        Seen::Publish { value, .. } if value == "m2:no" => Fault::Refuse(ErrorCode::TooLarge),
        Seen::Publish { value, .. } if value == "m3:again" && cuts == 0 => {
            cuts += 1;
            Fault::CutAfter
        }
        _ => Fault::None,
    })
    .await;
    let (client, recorder) = recorded(&fake, &file).await;
    let producer = client.producer("orders", ProducerOptions::default()).await.unwrap();
    let before = Recording::now_ns();
    producer.publish(Message::of(b"m1:yes").key(b"k").delay_ms(7)).await.unwrap();
    let between = Recording::now_ns();
    producer.publish(Message::of(b"m2:no")).await.unwrap_err();
    soon("the repeat", producer.publish(Message::of(b"m3:again"))).await.unwrap();
    soon("a batch", producer.publish_batch(&[Message::of(b"no id"), Message::of(b"m4:batch")])).await.unwrap();
    fake.stop();
    let receipt = producer.send(Message::of(b"m5:never")).await.unwrap();
    drop((producer, client));
    soon("the end", receipt).await.unwrap_err();

    let records = records(&file, recorder);
    assert!(records.iter().all(|record| record["msg"] != "no id"), "what has no id is left out: {records:?}");
    let [first] = of(&records, "publish", "m1")[..] else { panic!("{records:?}") };
    assert!(before <= number(first, "call") && number(first, "call") <= number(first, "ret"));
    assert!(number(first, "ret") <= between);
    let expected = serde_json::json!(["orders", "k", "ok", 0, 1, 1, 7, false, 1]);
    let names = ["topic", "key", "outcome", "partition", "seq", "producer_seq", "delay_ms", "dedup", "epoch"];
    assert_eq!(Value::from(fields(first, names).map(Value::clone).to_vec()), expected);
    assert!(number(first, "commit") > 0 && number(first, "producer_id") > 0);
    assert_eq!(first["hash"].as_str().map(str::len), Some(16));
    assert!(first["client"].as_str().is_some_and(|client| client.starts_with("test-")));
    let refused = of(&records, "publish", "m2")[0];
    assert_eq!(fields(refused, ["outcome", "seq", "commit"]), [&Value::from("refused"), &Value::Null, &Value::Null]);
    assert!(refused["ret"].is_u64(), "it is over");
    // The lost attempt may have been stored before the index that the answer to the repeat rests on.
    let [lost, repeated] = of(&records, "publish", "m3")[..] else { panic!("{records:?}") };
    assert_eq!(fields(lost, ["outcome", "ret"]), [&Value::from("unknown"), &Value::Null]);
    assert_eq!(fields(repeated, ["outcome", "dedup"]), [&Value::from("ok"), &Value::from(true)]);
    assert!(number(lost, "call") < number(repeated, "call"));
    let identity = ["producer_id", "producer_seq", "hash"];
    assert_eq!(fields(lost, identity), fields(repeated, identity));
    let batched = of(&records, "publish", "m4")[0];
    assert_eq!(number(batched, "producer_seq"), 4, "the refused one used up no number; it is the second of its batch");
    assert_eq!(number(batched, "seq"), 4, "and has the answer of the second");
    let never = of(&records, "publish", "m5")[0];
    assert_eq!(fields(never, ["outcome", "ret"]), [&Value::from("unknown"), &Value::Null]);
}

#[tokio::test]
async fn deliveries_settles_and_leaves_are_recorded_as_they_happened() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("history.jsonl");
    let fake = Fake::start(&["orders"]).await;
    ["m1:a", "m2:b", "m3:c", "m4:d"].iter().for_each(|value| fake.state().put("", value));
    let (client, recorder) = recorded(&fake, &file).await;
    let options = ConsumerOptions { credit_messages: Some(0), ..ConsumerOptions::default() };
    let consumer = client.consumer("orders", "billing", options).await.unwrap();
    let asked = Recording::now_ns();
    let pull = PullOptions { max_messages: 4, max_bytes: 0, wait_ms: 0 };
    let held = soon("messages", consumer.pull(pull)).await.unwrap();
    held[0].extend().await.unwrap();
    held[0].ack().await.unwrap();
    held[1].nack(0, "no").await.unwrap();
    held[2].dead_letter("no").await.unwrap();
    let again = soon("the second attempt", consumer.pull(pull)).await.unwrap();
    assert_eq!(held[1].ack().await, Err(SettleError::LeaseLost));
    soon("the end", consumer.close()).await.unwrap();
    soon("the end", client.close()).await;

    let records = records(&file, recorder);
    let [first, second] = of(&records, "deliver", "m2")[..] else { panic!("{records:?}") };
    let expected = serde_json::json!(["orders/billing", null, 0, 2, 2, 1, "first", null, 30_000]);
    let names = ["path", "key", "partition", "seq", "delivery_id", "attempt", "cause", "prev", "lease_ms"];
    assert_eq!(Value::from(fields(first, names).map(Value::clone).to_vec()), expected);
    // A pull asks once for all that it brings.
    assert!(number(first, "call") >= asked && number(first, "call") < number(first, "ret"), "it tells when it asked");
    let of_first_pull = ["m1", "m2", "m3", "m4"].map(|msg| number(of(&records, "deliver", msg)[0], "call"));
    assert_eq!(of_first_pull, [number(first, "call"); 4]);
    assert_eq!(of(&records, "extend", "m1")[0]["lease_ms"], 30_000, "as long as it is from now on");
    assert!(number(second, "call") > number(first, "ret"));
    assert_eq!(fields(second, ["cause", "prev"]), [&Value::from("nacked"), &Value::from(2)]);
    assert_eq!(number(second, "delivery_id"), again[0].delivery_id.get());
    for (op, msg, outcome, to) in [
        ("extend", "m1", "ok", Value::Null),
        ("ack", "m1", "ok", Value::Null),
        ("nack", "m2", "ok", "retry".into()),
        ("ack", "m2", "refused", Value::Null),
        ("nack", "m3", "ok", "dead".into()),
        ("nack", "m4", "ok", "release".into()),
    ] {
        let record = of(&records, op, msg)[0];
        assert_eq!(fields(record, ["outcome", "to"]), [&Value::from(outcome), &to], "{record}");
        assert!(number(record, "call") <= number(record, "ret") && number(record, "commit") > 0, "{record}");
    }
    let left: Vec<&Value> = records.iter().filter(|record| record["kind"] == "leave").collect();
    assert_eq!(
        fields(left[0], ["op", "outcome", "path"]),
        ["operate", "ok", "orders/billing"].map(Value::from).each_ref()
    );
    assert_eq!((left.len(), left[0]["client"] == first["client"]), (1, true));
}

#[tokio::test]
async fn a_consumer_whose_broker_is_gone_leaves_an_open_leave_and_open_settles() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("history.jsonl");
    let fake = Fake::start(&["orders"]).await;
    fake.state().put("", "m1:a");
    let (client, recorder) = recorded(&fake, &file).await;
    let mut consumer = client.consumer("orders", "billing", ConsumerOptions::default()).await.unwrap();
    let delivery = soon("a delivery", consumer.next()).await.unwrap().unwrap();
    fake.stop();
    let receipt = delivery.ack();
    drop((consumer, client));
    soon("an answer", receipt).await.unwrap_err();
    let records = records(&file, recorder);
    for record in records.iter().filter(|record| record["op"] != "deliver") {
        assert_eq!(fields(record, ["outcome", "ret"]), [&Value::from("unknown"), &Value::Null], "{record}");
    }
    let mut ops: Vec<&Value> = records.iter().map(|record| &record["op"]).collect();
    // Each attempt that was not answered is a call of its own.
    ops.dedup();
    assert_eq!(ops, ["deliver", "ack", "operate"]);
}

#[tokio::test]
async fn an_attempt_of_which_nobody_knows_what_became_is_a_call_of_its_own() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("history.jsonl");
    let mut refused = Vec::new();
    // A leader that lost its majority after it had proposed them: they may be done by whoever leads next.
    let fake = Fake::start_with(&["orders"], move |seen| {
        let is_concerned = matches!(seen, Seen::Publish { .. } | Seen::Settle { .. });
        if is_concerned && !refused.contains(seen) {
            refused.push(seen.clone());
            return Fault::Refuse(ErrorCode::QuorumLost);
        }
        Fault::None
    })
    .await;
    let (client, recorder) = recorded(&fake, &file).await;
    let producer = client.producer("orders", ProducerOptions::default()).await.unwrap();
    soon("the repeat", producer.publish(Message::of(b"m1:a"))).await.unwrap();
    let mut consumer = client.consumer("orders", "billing", ConsumerOptions::default()).await.unwrap();
    let delivery = soon("a delivery", consumer.next()).await.unwrap().unwrap();
    soon("the repeat", delivery.ack()).await.unwrap();
    soon("the end", consumer.close()).await.unwrap();
    drop(producer);
    soon("the end", client.close()).await;

    let records = records(&file, recorder);
    for op in ["publish", "ack"] {
        let [lost, repeated] = of(&records, op, "m1")[..] else { panic!("{op}: {records:?}") };
        assert_eq!(fields(lost, ["outcome", "ret"]), [&Value::from("unknown"), &Value::Null], "{lost}");
        assert_eq!(repeated["outcome"], "ok", "{repeated}");
        assert!(number(lost, "call") < number(repeated, "call"));
    }
}

#[tokio::test]
async fn a_session_that_was_lost_is_a_leave_since_it_was_last_known() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("history.jsonl");
    let fake = Fake::start(&["orders"]).await;
    fake.state().put("", "m1:a");
    let (client, recorder) = recorded(&fake, &file).await;
    let before = Recording::now_ns();
    let mut consumer = client.consumer("orders", "billing", ConsumerOptions::default()).await.unwrap();
    let joined = Recording::now_ns();
    soon("a delivery", consumer.next()).await.unwrap().unwrap();
    fake.state().end_all_sessions();
    // Whatever it asks for now, it is told; then it joins anew, and the message comes again.
    consumer.set_credit(Some(7), None).unwrap();
    let again = soon("the message again", consumer.next()).await.unwrap().unwrap();
    again.ack().await.unwrap();
    soon("the end", consumer.close()).await.unwrap();
    soon("the end", client.close()).await;

    let records = records(&file, recorder);
    let left: Vec<&Value> = records.iter().filter(|record| record["kind"] == "leave").collect();
    let [lost, left] = left[..] else { panic!("{records:?}") };
    assert_eq!(fields(lost, ["outcome", "ret"]), [&Value::from("unknown"), &Value::Null]);
    assert!((before..joined).contains(&number(lost, "call")), "it may have ended as soon as it had begun: {lost}");
    assert_eq!(fields(left, ["outcome", "client"]), [&Value::from("ok"), &lost["client"]]);
}

#[tokio::test]
async fn a_consumer_that_leaves_while_its_pull_waits_has_left() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("history.jsonl");
    let fake = Fake::start(&["orders"]).await;
    fake.state().parks_pulls = true;
    let (client, recorder) = recorded(&fake, &file).await;
    let options = ConsumerOptions { credit_messages: Some(0), ..ConsumerOptions::default() };
    let consumer = client.consumer("orders", "billing", options).await.unwrap();
    {
        let mut pull = std::pin::pin!(consumer.pull(PullOptions::default()));
        tokio::select! {
            _ = &mut pull => panic!("there is nothing"),
            () = fake.until("the pull waits", |state| state.has_parked()) => {}
        }
    }
    // The pull is told first that there is no such member.
    soon("the end", consumer.close()).await.unwrap();
    soon("the end", client.close()).await;
    let records = records(&file, recorder);
    let leaves: Vec<&Value> = records.iter().filter(|record| record["kind"] == "leave").collect();
    let [left] = leaves[..] else { panic!("{records:?}") };
    assert_eq!(left["outcome"], "ok", "{left}");
}
