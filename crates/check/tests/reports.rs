//! Verdicts, their order, and how they are printed.

mod support;

use std::path::PathBuf;

use mortarmq_check::{AsText, Contract, Options, Report, Rule, Verdict, as_html, as_json, check};
use mortarmq_history::{Limits, Reader};
use serde_json::{Value, json};
use support::{judge, judge_text};

fn of_file(rule: Rule, name: &str) -> Report {
    let file = PathBuf::from(format!("{}/tests/histories/{}/{name}.jsonl", env!("CARGO_MANIFEST_DIR"), rule.name()));
    let files = [file];
    check(&|| Reader::open(&files, Limits::default()), &Options::default(), &mut |_| {}).expect("the file can be read")
}

const RUN: &str = r#"{"op":"run","v":1,"paths":[{"path":"p","topic":"t","lease_ms":1000}]}"#;

/// Acked at 6, delivered again at 1,000,000,010, in the second after a fault.
fn after_a_fault() -> Vec<Value> {
    let mut records: Vec<Value> = vec![serde_json::from_str(RUN).expect("JSON")];
    records.push(json!({"op":"publish","topic":"t","msg":"m","call":1,"ret":2,"outcome":"ok"}));
    records.push(json!({"op":"deliver","path":"p","msg":"m","call":3,"ret":4}));
    records.push(json!({"op":"ack","path":"p","msg":"m","call":5,"ret":6,"outcome":"ok"}));
    records.push(json!({"op":"fault","kind":"kill","node":1,"call":10,"ret":20}));
    records.push(json!({"op":"deliver","path":"p","msg":"m","call":1_000_000_010_u64,"ret":1_000_000_020_u64}));
    records
        .push(json!({"op":"ack","path":"p","msg":"m","call":1_000_000_030_u64,"ret":1_000_000_040_u64,"outcome":"ok"}));
    records.push(json!({"op":"end","at":1_000_000_000_000_u64,"drained":true,"balance":[]}));
    records
}

#[test]
fn a_redelivery_after_an_ack_is_an_anomaly_that_narad_explains_by_a_fault() {
    let records = after_a_fault();
    let narad = Options { contract: Contract::Narad, ..Options::default() };
    assert_eq!(judge(&records, &Options::default()).verdict, Verdict::Anomaly);
    let report = judge(&records, &narad);
    assert_eq!(report.verdict, Verdict::Ok, "{}", AsText(&report));
    assert_eq!(report.rules.iter().map(|line| line.explained).sum::<u64>(), 1, "{}", AsText(&report));
    // The grace ends before it, and strict lets no fault explain anything.
    let short = Options { grace_ns: Some(1_000_000), ..narad.clone() };
    assert_eq!(judge(&records, &short).verdict, Verdict::Anomaly);
    let strict = Options { is_strict: true, ..narad.clone() };
    assert_eq!(judge(&records, &strict).verdict, Verdict::Anomaly);
    // Windows that explain something must not cover the run.
    let covered = Options { max_fault_coverage: 0.000_001, ..narad };
    assert_eq!(judge(&records, &covered).verdict, Verdict::Unknown);
}

#[test]
fn a_violation_goes_before_an_anomaly_and_unreadable_input_before_both() {
    let mut records = after_a_fault();
    records.insert(1, json!({"op":"deliver","path":"p","msg":"nobody","call":3,"ret":4}));
    assert_eq!(judge(&records, &Options::default()).verdict, Verdict::Violation);
    records.insert(1, json!({"op":"nonsense"}));
    let report = judge(&records, &Options::default());
    assert_eq!(report.verdict, Verdict::Unknown);
    assert!(AsText(&report).to_string().contains("history.jsonl:2"), "{}", AsText(&report));
    assert_eq!(report.found(Rule::Phantom), 1, "what was found is told all the same");
}

#[test]
fn one_unreadable_line_in_a_thousand_is_told_and_two_are_too_many() {
    let mut text = format!("{RUN}\n");
    for number in 0..1_998 {
        text.push_str(&format!(
            "{{\"op\":\"fault\",\"kind\":\"stop\",\"node\":1,\"call\":{number},\"ret\":{number}}}\n"
        ));
    }
    text.push_str("{\"op\":\"publish\",\"topic\":\"t\",\"msg\":\"m\",\"call\":1,\"ret\":2,\"outcome\":\"refused\"}\n");
    let two = format!("{text}nonsense\n{{}}\n");
    assert_eq!(judge_text(&two, &Options::default()).verdict, Verdict::Ok);
    let three =
        format!("{two}{{\"op\":\"publish\",\"topic\":\"t\",\"msg\":\"m\",\"call\":2,\"ret\":1,\"outcome\":\"ok\"}}\n");
    let report = judge_text(&three, &Options::default());
    assert_eq!((report.verdict, report.read.unreadable), (Verdict::Unknown, 3));
}

#[test]
fn an_empty_history_says_nothing_and_unfinished_pairs_are_overdue_or_stalled() {
    assert_eq!(judge_text("", &Options::default()).verdict, Verdict::Unknown);
    let mut records: Vec<Value> = vec![serde_json::from_str(RUN).expect("JSON")];
    for number in 0..4 {
        let msg = format!("m-{number}");
        records.push(json!({"op":"publish","topic":"t","msg":msg,"call":1,"ret":2,"outcome":"ok"}));
        if number > 0 {
            records.push(json!({"op":"deliver","path":"p","msg":msg,"call":3,"ret":4}));
            records.push(json!({"op":"ack","path":"p","msg":msg,"call":5,"ret":6,"outcome":"ok"}));
        }
    }
    let report = judge(&records, &Options::default());
    assert_eq!((report.verdict, report.read.backlog, report.read.pairs), (Verdict::Overdue, 1, 4));
    let strict = Options { max_overdue: 0.2, ..Options::default() };
    assert_eq!(judge(&records, &strict).verdict, Verdict::Stalled);
    let few = Options { min_operations: 11, ..Options::default() };
    assert_eq!(judge(&records, &few).verdict, Verdict::Unknown);
    // The end record counts it as dropped.
    records.push(json!({"op":"end","at":10,"drained":false,"balance":[
        {"path":"p","produced":4,"delivered":3,"dropped":1,"dlq":0,"depth":0}]}));
    assert_eq!(judge(&records, &Options::default()).verdict, Verdict::Ok);
}

#[test]
fn without_a_run_record_the_paths_of_a_topic_are_those_its_messages_came_on() {
    let mut records: Vec<Value> = Vec::new();
    for msg in ["m-1", "m-2"] {
        records.push(json!({"op":"publish","topic":"t","msg":msg,"call":1,"ret":2,"outcome":"ok"}));
    }
    records.push(json!({"op":"deliver","path":"p","msg":"m-1","call":3,"ret":4}));
    records.push(json!({"op":"ack","path":"p","msg":"m-1","call":5,"ret":6,"outcome":"ok"}));
    assert_eq!(judge(&records, &Options::default()).verdict, Verdict::Overdue);
    records.push(json!({"op":"end","at":10,"drained":true,"balance":[]}));
    for keep_finished in [0, 10] {
        let report = judge(&records, &Options { keep_finished, ..Options::default() });
        assert_eq!(support::found(&report), ["loss"], "{}", AsText(&report));
    }
    records.push(json!({"op":"deliver","path":"q","msg":"m-2","call":3,"ret":4}));
    let report = judge(&records, &Options::default());
    assert_eq!(report.found(Rule::Loss), 2, "m-1 on q and m-2 on p: {}", AsText(&report));
}

#[test]
fn a_dead_letter_of_a_message_that_never_arrived_must_have_had_time_to_die() {
    let run = json!({"op":"run","v":1,"paths":[
        {"path":"p","topic":"t","lease_ms":1000,"max_attempts":2,"dlq":"d"},{"path":"d/x","topic":"d","lease_ms":1000}]});
    let left = json!({"op":"operate","kind":"leave","client":"c9","path":"other","call":1,"ret":2,"outcome":"ok"});
    let letter = |at: u64| {
        vec![
            run.clone(),
            left.clone(),
            json!({"op":"publish","topic":"t","msg":"m","call":1,"ret":2,"outcome":"ok"}),
            json!({"op":"deliver","path":"d/x","msg":"m","origin":"p","call":at,"ret":at,"partition":0,"seq":1}),
            json!({"op":"ack","path":"d/x","msg":"m","call":at + 1,"ret":at + 2,"outcome":"ok"}),
        ]
    };
    let early = judge(&letter(1_999_999_999), &Options::default());
    assert_eq!(support::found(&early), ["dead-letter"], "{}", AsText(&early));
    let late = judge(&letter(2_000_000_001), &Options::default());
    assert_eq!(late.verdict, Verdict::Ok, "{}", AsText(&late));
    // Where nobody writes down what became of consumers, those it was given to may have died.
    let mut early = letter(1_999_999_999);
    early.remove(1);
    let early = judge(&early, &Options::default());
    assert_eq!(early.verdict, Verdict::Ok, "{}", AsText(&early));
}

#[test]
fn narads_own_files_are_judged() {
    let text = r#"{"op":"meta","paths":["q"],"visibility_timeout_ms":1000}
{"op":"produce","client":1,"path":"q","msg":"m-1","call":1,"ret":2,"status":202}
{"op":"produce","client":1,"path":"q","msg":"m-2","call":1,"ret":2,"status":503}
{"op":"deliver","client":2,"path":"q","msg":"m-1","call":3,"ret":4}
{"op":"ack","client":2,"path":"q","msg":"m-1","call":5,"ret":6,"status":204}
{"op":"deliver","client":2,"path":"q","msg":"m-2","call":7,"ret":8}
"#;
    let narad = Options { contract: Contract::Narad, ..Options::default() };
    let report = judge_text(text, &narad);
    assert_eq!(support::found(&report), ["refused-delivered"], "{}", AsText(&report));
}

#[test]
fn the_json_of_every_bad_history_keeps_the_schema() {
    let schema: Value = serde_json::from_str(include_str!("../schema/report.json")).expect("the schema is JSON");
    for rule in Rule::ALL {
        for name in ["bad", "near-1", "near-2"] {
            let report = of_file(rule, name);
            let json: Value = serde_json::from_str(&as_json(&report).expect("it is JSON")).expect("it is JSON");
            keeps(&schema, &schema, &json, rule.name());
            let told =
                json["findings"].as_array().expect("an array").iter().filter(|one| one.get("explained").is_none());
            let rules: Vec<&Value> = told.map(|one| &one["rule"]).collect();
            assert_eq!(rules.is_empty(), name != "bad", "{}/{name}: {json}", rule.name());
            assert!(rules.iter().all(|found| **found == rule.name()), "{json}");
        }
    }
}

/// The part of JSON Schema that the schema uses; a word it does not know fails.
fn keeps(root: &Value, schema: &Value, value: &Value, place: &str) {
    for (word, wanted) in schema.as_object().expect("a schema is an object") {
        match word.as_str() {
            "$schema" | "title" | "description" | "$defs" => {}
            "$ref" => {
                let name = wanted.as_str().and_then(|name| name.strip_prefix("#/$defs/")).expect("a local reference");
                keeps(root, &root["$defs"][name], value, place);
            }
            "type" => {
                let kinds: Vec<&str> = match wanted {
                    Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
                    other => other.as_str().into_iter().collect(),
                };
                assert!(kinds.contains(&kind(value)), "{place}: {value} is no {wanted}");
            }
            "enum" => assert!(wanted.as_array().expect("an array").contains(value), "{place}: {value}"),
            "minimum" => assert!(value.as_u64() >= wanted.as_u64(), "{place}: {value}"),
            "minItems" => assert!(value.as_array().map(Vec::len) >= Some(1), "{place} is empty"),
            "items" => value
                .as_array()
                .expect("an array")
                .iter()
                .for_each(|one| keeps(root, wanted, one, &format!("{place}[]"))),
            "required" => {
                for name in wanted.as_array().expect("an array").iter().filter_map(Value::as_str) {
                    assert!(value.get(name).is_some(), "{place} has no {name}: {value}");
                }
            }
            "properties" => {
                for (name, part) in wanted.as_object().expect("an object") {
                    if let Some(one) = value.get(name) {
                        keeps(root, part, one, &format!("{place}.{name}"));
                    }
                }
            }
            "additionalProperties" => {
                let known = |name: &str| schema["properties"].get(name).is_some();
                for (name, one) in value.as_object().expect("an object").iter().filter(|(name, _)| !known(name)) {
                    assert!(wanted.is_object(), "{place}.{name} is not in the schema");
                    keeps(root, wanted, one, &format!("{place}.{name}"));
                }
            }
            other => panic!("the schema uses {other}, which this test does not know"),
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[test]
fn the_text_begins_with_the_verdict_and_names_files_and_lines() {
    let report = of_file(Rule::DoubleLease, "bad");
    let text = AsText(&report).to_string();
    assert!(text.starts_with("verdict: VIOLATION\n"), "{text}");
    for rule in Rule::ALL {
        assert!(text.lines().any(|line| line.split_whitespace().next() == Some(rule.name())), "{text}");
    }
    assert!(text.contains("bad.jsonl:4: {"), "{text}");
}

#[test]
fn the_page_needs_no_network_and_draws_operations_leases_and_faults() {
    let mut records = after_a_fault();
    records[2]["client"] = json!("<script>alert(1)</script>");
    let report = judge(&records, &Options::default());
    let page = as_html(&report);
    for part in [
        "<svg",
        "class=\"legend\"",
        "class=\"lease\"",
        "class=\"fault\"",
        "class=\"deliver",
        "redelivered-after-ack",
        "ANOMALY",
    ] {
        assert!(page.contains(part), "{part} is missing: {page}");
    }
    for part in ["http:", "https:", "<script", "src=", "href=", "url("] {
        assert!(!page.contains(part), "{part} must not be there: {page}");
    }
}
