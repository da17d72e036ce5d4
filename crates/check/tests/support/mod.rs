//! Histories of a broker that keeps its contract, made at random, and ways to judge them.
//!
//! The broker is a small model of its own: it shares nothing with the judge, so a misreading of the contract must be made
//! twice to stay hidden.

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod broker;
pub(crate) mod random;

use std::io::Cursor;
use std::path::Path;

use mortarmq_check::{AsText, Options, Report, check};
use mortarmq_history::{Limits, Reader, Source};
use serde_json::Value;

/// Judges records that lie in memory.
pub(crate) fn judge(records: &[Value], options: &Options) -> Report {
    let mut text = String::new();
    for record in records {
        text.push_str(&record.to_string());
        text.push('\n');
    }
    judge_text(&text, options)
}

/// Judges a text of records.
pub(crate) fn judge_text(text: &str, options: &Options) -> Report {
    let open = || {
        let bytes = Cursor::new(text.to_owned().into_bytes());
        let source = Source::from_reader(Path::new("history.jsonl"), bytes).expect("memory can be read");
        Ok(Reader::new(vec![source], Limits::default()))
    };
    check(&open, options, &mut |_| {}).expect("memory can be read")
}

/// The rules that found something.
pub(crate) fn found(report: &Report) -> Vec<&'static str> {
    report.rules.iter().filter(|line| line.found > 0).map(|line| line.rule.name()).collect()
}

/// Removes some fields from all records.
pub(crate) fn without(records: &[Value], fields: &[&str]) -> Vec<Value> {
    let mut stripped = records.to_vec();
    for record in &mut stripped {
        if let Some(object) = record.as_object_mut() {
            fields.iter().for_each(|field| {
                object.remove(*field);
            });
        }
    }
    stripped
}

/// Fails with the report and the history, unless the report says what is expected.
pub(crate) fn expect(is_right: bool, what: &str, report: &Report, records: &[Value]) {
    if !is_right {
        let lines: Vec<String> = records.iter().map(Value::to_string).collect();
        panic!("{what}\n{}\n{}", AsText(report), lines.join("\n"));
    }
}
