//! P8 against its definition, pair by pair: the same messages are found in small random histories, most of them wrong.

mod support;

use std::collections::BTreeSet;

use mortarmq_check::{Options, Rule};
use serde_json::{Value, json};
use support::random::Random;
use support::{expect, judge, without};

/// One message of one key.
struct Message {
    name: String,
    seq: u64,
    publish: (u64, u64),
    /// Call, return, client and index of each delivery.
    deliveries: Vec<(u64, u64, u64, u64)>,
    /// Call, return and index of its ack, and whether it was answered ok.
    ack: Option<(u64, u64, u64, bool)>,
}

fn messages(random: &mut Random) -> Vec<Message> {
    (0..2 + random.below(5))
        .map(|number| {
            let publish = (number * 2, number * 2 + 1);
            let mut deliveries = Vec::new();
            for _ in 0..1 + random.below(2) {
                let call = 20 + random.below(30);
                deliveries.push((call, call + random.below(6), random.below(2), 20 + random.below(30)));
            }
            let ack = (random.below(4) > 0).then(|| {
                let call = 20 + random.below(40);
                (call, call + random.below(6), 20 + random.below(40), random.below(3) > 0)
            });
            Message { name: format!("m-{number}"), seq: number + 1, publish, deliveries, ack }
        })
        .collect()
}

fn records(messages: &[Message]) -> Vec<Value> {
    let mut records = vec![json!({"op":"run","v":1,"paths":[{"path":"p","topic":"t","lease_ms":1,"order":"key"}]})];
    for message in messages {
        let (call, ret) = message.publish;
        records
            .push(json!({"op":"publish","topic":"t","msg":message.name,"key":"k","call":call,"ret":ret,"outcome":"ok",
            "partition":0,"seq":message.seq,"commit":message.seq}));
        for (call, ret, client, commit) in &message.deliveries {
            records.push(json!({"op":"deliver","client":format!("c{client}"),"path":"p","msg":message.name,"key":"k",
                "call":call,"ret":ret,"partition":0,"seq":message.seq,"commit":commit}));
        }
        if let Some((call, ret, commit, is_ok)) = message.ack {
            let mut ack =
                json!({"op":"ack","path":"p","msg":message.name,"call":call,"ret":ret,"outcome":"ok","commit":commit});
            if !is_ok {
                ack["outcome"] = json!("unknown");
                ack.as_object_mut().expect("it is an object").remove("commit");
            }
            records.push(ack);
        }
    }
    records
}

/// Time and index of an operation.
#[derive(Clone, Copy)]
struct When(u64, u64, Option<u64>);

fn before(one: When, two: When) -> bool {
    let says = |one: When, two: When| one.1 < two.0 || matches!((one.2, two.2), (Some(one), Some(two)) if one < two);
    says(one, two) && !says(two, one)
}

/// The later messages that overtook an earlier one, by the words of the rule.
fn overtakers(messages: &[Message], has_index: bool) -> BTreeSet<String> {
    let index = |commit: u64| has_index.then_some(commit);
    let mut found = BTreeSet::new();
    for later in messages {
        for earlier in messages.iter().filter(|earlier| earlier.seq < later.seq) {
            for delivery in &later.deliveries {
                let given = When(delivery.0, delivery.1, index(delivery.3));
                let ok_ack = earlier.ack.filter(|ack| ack.3).map(|ack| When(ack.0, ack.1, index(ack.2)));
                let mut events = earlier.deliveries.iter().map(|one| When(one.0, one.1, index(one.3))).chain(ok_ack);
                let is_overtaken = events.any(|event| before(given, event));
                let is_together = earlier.deliveries.iter().any(|one| {
                    one.2 == delivery.2 && if has_index { one.3 == delivery.3 } else { one.0 == delivery.0 }
                });
                let is_done = earlier.ack.is_some_and(|ack| {
                    let when = When(ack.0, ack.1, if ack.3 { index(ack.2) } else { None });
                    !before(given, when)
                });
                if is_overtaken && !is_together && !is_done {
                    found.insert(later.name.clone());
                }
            }
        }
    }
    found
}

#[test]
fn p8_is_found_exactly_where_its_definition_says() {
    let cases = std::env::var("MORTARMQ_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(800);
    let mut sizes = [0_u64; 2];
    for seed in 0..cases {
        let messages = messages(&mut Random::new(seed));
        for has_index in [true, false] {
            let all = records(&messages);
            let all = if has_index { all } else { without(&all, &["commit"]) };
            let expected = overtakers(&messages, has_index);
            for options in [Options::default(), Options { keep_finished: 0, ..Options::default() }] {
                let report = judge(&all, &options);
                let of_rule = report.findings.iter().filter(|finding| finding.rule == Rule::Order);
                let found: BTreeSet<String> = of_rule.filter_map(|finding| finding.msg.clone()).collect();
                expect(
                    found == expected,
                    &format!("seed {seed}: {expected:?} expected, {found:?} found"),
                    &report,
                    &all,
                );
            }
            sizes[usize::from(expected.is_empty())] += 1;
        }
    }
    assert!(sizes.iter().all(|size| *size > cases / 20), "both kinds must be common: {sizes:?}");
}
