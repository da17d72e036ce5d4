//! A report for programs: one JSON object. `schema/report.json` describes it.

use serde::Serialize;
use serde_json::value::RawValue;

use super::{Finding, Mode, RecordLine, Report};

/// The object that is printed.
#[derive(Serialize)]
struct Object<'a> {
    verdict: &'static str,
    reason: &'a str,
    mode: &'static str,
    read: Read,
    unreadable: Vec<Unreadable<'a>>,
    rules: Vec<Rule>,
    findings: Vec<One<'a>>,
}

#[derive(Serialize)]
struct Read {
    records: u64,
    unreadable: u64,
    publishes: u64,
    deliveries: u64,
    settles: u64,
    pairs: u64,
    backlog: u64,
}

#[derive(Serialize)]
struct Unreadable<'a> {
    place: &'a str,
    reason: &'a str,
}

#[derive(Serialize)]
struct Rule {
    rule: &'static str,
    judged: u64,
    found: u64,
    explained: u64,
    not_judged: u64,
}

#[derive(Serialize)]
struct One<'a> {
    rule: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    msg: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    other: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explained: Option<&'a str>,
    text: &'a str,
    records: Vec<Record<'a>>,
}

#[derive(Serialize)]
struct Record<'a> {
    place: &'a str,
    record: &'a RawValue,
}

/// The report as one JSON object.
///
/// # Errors
/// When a record that was read as JSON is none: then a file changed meanwhile.
pub fn as_json(report: &Report) -> Result<String, serde_json::Error> {
    let read = report.read;
    let object = Object {
        verdict: report.verdict.word(),
        reason: &report.reason,
        mode: match report.mode {
            Mode::Witnessed => "witnessed",
            Mode::Searched => "searched",
        },
        read: Read {
            records: read.records,
            unreadable: read.unreadable,
            publishes: read.publishes,
            deliveries: read.deliveries,
            settles: read.settles,
            pairs: read.pairs,
            backlog: read.backlog,
        },
        unreadable: report
            .unreadable
            .iter()
            .map(|line| Unreadable { place: &line.place, reason: &line.reason })
            .collect(),
        rules: report
            .rules
            .iter()
            .map(|line| Rule {
                rule: line.rule.name(),
                judged: line.judged,
                found: line.found,
                explained: line.explained,
                not_judged: line.not_judged,
            })
            .collect(),
        findings: report.findings.iter().map(one).collect::<Result<_, _>>()?,
    };
    serde_json::to_string(&object)
}

fn one(finding: &Finding) -> Result<One<'_>, serde_json::Error> {
    Ok(One {
        rule: finding.rule.name(),
        path: finding.path.as_deref(),
        msg: finding.msg.as_deref(),
        other: finding.other.as_deref(),
        explained: finding.explained.as_deref(),
        text: &finding.text,
        records: finding.records.iter().map(record).collect::<Result<_, _>>()?,
    })
}

fn record(line: &RecordLine) -> Result<Record<'_>, serde_json::Error> {
    Ok(Record { place: &line.place, record: serde_json::from_str(line.text.trim())? })
}
