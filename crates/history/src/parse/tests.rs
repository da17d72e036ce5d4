//! Goal: every record of the format's page reads as what it says, and what is no record says why.

use super::{Dialect, Unreadable, parse_line};
use crate::record::Record;
use crate::words::{Cause, NackTo, OperateKind, Order, Outcome};

fn parse(line: &str) -> Result<Record<'_>, Unreadable> {
    parse_line(line.as_bytes(), &mut Dialect::default())
}

#[test]
fn the_examples_of_the_format_are_read_in_full() {
    let run = r#"{"op":"run","v":1,"run":"r1","paths":[{"path":"orders/billing","topic":"orders","lease_ms":30000,"max_attempts":5,"order":"key","dlq":"$dlq.orders"}]}"#;
    let Record::Run(run) = parse(run).unwrap() else { panic!() };
    assert_eq!((run.paths[0].order, run.paths[0].dlq.as_deref()), (Some(Order::Key), Some("$dlq.orders")));

    let publish = r#"{"op":"publish","client":"p1","topic":"orders","msg":"m-1","key":"k7","call":100,"ret":180,"outcome":"ok","partition":2,"seq":41,"producer_id":9,"producer_seq":1,"delay_ms":0,"dedup":false,"hash":"9f86d081","commit":85,"epoch":3}"#;
    let Record::Publish(publish) = parse(publish).unwrap() else { panic!() };
    assert_eq!((publish.outcome, publish.commit, publish.producer_id), (Outcome::Ok, Some(85), Some(9)));

    let deliver = r#"{"op":"deliver","client":"c1","path":"orders/billing","msg":"m-1","key":"k7","call":150,"ret":260,"partition":2,"seq":41,"delivery_id":7,"attempt":1,"cause":"first","prev":null,"lease_ms":30000,"hash":"9f86d081","commit":86,"epoch":3}"#;
    let Record::Deliver(deliver) = parse(deliver).unwrap() else { panic!() };
    assert_eq!((deliver.cause, deliver.prev, deliver.delivery_id), (Some(Cause::First), None, Some(7)));

    let nack = r#"{"op":"nack","client":"c1","path":"orders/billing","msg":"m-2","delivery_id":8,"call":300,"ret":340,"outcome":"ok","to":"release"}"#;
    let Record::Nack(nack) = parse(nack).unwrap() else { panic!() };
    assert_eq!(nack.to, NackTo::Release);

    let operate = r#"{"op":"operate","client":"o1","kind":"redrive","path":"orders/billing","msg":"m-2","call":500,"ret":520,"outcome":"ok"}"#;
    let Record::Operate(operate) = parse(operate).unwrap() else { panic!() };
    assert_eq!(operate.kind, OperateKind::Redrive);

    let scrape = r#"{"op":"scrape","path":"orders/billing","node":1,"call":1,"ret":2,"commit":88,"epoch":3,"produced":5,"delivered":4,"dropped":0,"dlq":0,"depth":1}"#;
    let Record::Scrape(scrape) = parse(scrape).unwrap() else { panic!() };
    assert!(scrape.counters.balances());
    assert_eq!(scrape.node.as_deref(), Some("1"));

    let end = r#"{"op":"end","at":9000,"drained":true,"balance":[{"path":"orders/billing","produced":10,"delivered":9,"dropped":0,"dlq":1,"depth":0}]}"#;
    let Record::End(end) = parse(end).unwrap() else { panic!() };
    assert!(end.drained && end.balance[0].counters.balances());
}

#[test]
fn an_integer_of_64_bits_is_exact() {
    let line = r#"{"op":"fault","kind":"kill","node":1,"call":18446744073709551614,"ret":18446744073709551615}"#;
    assert_eq!(parse(line).unwrap().interval(), Some((u64::MAX - 1, Some(u64::MAX))));
}

#[test]
fn a_call_that_never_returned_is_unknown_whatever_else_it_says() {
    let line = r#"{"op":"ack","path":"p","msg":"m","call":1,"outcome":"ok"}"#;
    let Record::Ack(ack) = parse(line).unwrap() else { panic!() };
    assert_eq!(ack.outcome, Outcome::Unknown);
}

#[test]
fn a_pull_that_brought_nothing_is_no_delivery() {
    for line in [
        r#"{"op":"deliver","client":"c","path":"p","call":1}"#,
        r#"{"op":"deliver","client":3,"path":"p","call":1,"ret":2,"status":204}"#,
    ] {
        assert!(matches!(parse(line), Ok(Record::Pull(_))), "{line}");
    }
}

#[test]
fn what_is_no_record_says_why() {
    let json = |reason: &str| Unreadable::Json { reason: reason.to_owned() };
    let cases = [
        ("{", json("EOF while parsing an object at column 1")),
        ("[]", json("not an object")),
        (r#"{"a":1}"#, Unreadable::NoOp),
        (r#"{"op":"jump","call":1}"#, Unreadable::UnknownOp { op: "jump".to_owned() }),
        (r#"{"op":"ack","path":"p","call":1}"#, Unreadable::Missing { op: "ack", field: "msg" }),
        (r#"{"op":"ack","path":"p","msg":"m","call":1,"ret":2}"#, Unreadable::Missing { op: "ack", field: "outcome" }),
        (
            r#"{"op":"ack","path":"p","msg":"m","call":1,"ret":2,"outcome":"maybe"}"#,
            Unreadable::UnknownWord { field: "outcome", word: "maybe".to_owned() },
        ),
        (r#"{"op":"fault","kind":"kill","call":5,"ret":4}"#, Unreadable::ReturnsBeforeCall { call: 5, ret: 4 }),
        (r#"{"op":"run","v":2}"#, Unreadable::Version { v: 2, known: 1 }),
    ];
    for (line, expected) in cases {
        assert_eq!(parse(line), Err(expected), "{line}");
    }
}

#[test]
fn an_unknown_field_and_an_escaped_text_are_no_trouble() {
    let line = r#"{"op":"ack","path":"p\"q","msg":"m\u00e4","call":1,"ret":2,"outcome":"ok","extra":{"a":[1,2]}}"#;
    let Record::Ack(ack) = parse(line).unwrap() else { panic!() };
    assert_eq!((&*ack.path, &*ack.msg), ("p\"q", "mä"));
}

#[test]
fn of_narads_records_the_status_decides() {
    let mut dialect = Dialect::default();
    let meta = br#"{"op":"meta","call":1,"ret":1,"run_id":"r1","topics":["orders"],"paths":{"orders":["orders","audit"]},"visibility_timeout_ms":3000}"#;
    let Record::Run(run) = parse_line(meta, &mut dialect).unwrap() else { panic!() };
    assert_eq!((run.lease_ms, run.paths.len()), (Some(3000), 2));
    assert_eq!((&*run.paths[1].topic, run.paths[1].source.as_deref()), ("audit", Some("orders")));

    let produce = |status: &str| {
        let line = format!(
            r#"{{"op":"produce","msg":"m","path":"orders","client":4,"call":1,"ret":2{status},"outcome":"ok"}}"#
        );
        let Record::Publish(publish) = parse(&line).unwrap() else { panic!() };
        assert_eq!((&*publish.topic, publish.client.as_deref()), ("orders", Some("4")));
        publish.outcome
    };
    assert_eq!(produce(r#","status":202"#), Outcome::Ok);
    assert_eq!(produce(r#","status":429"#), Outcome::Refused);
    assert_eq!(produce(r#","status":503"#), Outcome::Refused);
    assert_eq!(produce(r#","status":500"#), Outcome::Unknown);
    assert_eq!(produce(""), Outcome::Unknown);

    for (line, outcome) in [
        (r#"{"op":"ack","msg":"m","path":"orders","call":1,"ret":2,"status":204,"outcome":"rejected"}"#, Outcome::Ok),
        (r#"{"op":"ack","msg":"m","path":"orders","call":1,"ret":2,"status":410,"outcome":"ok"}"#, Outcome::Unknown),
        (r#"{"op":"ack","msg":"m","path":"orders","call":1,"ret":2,"outcome":"ambiguous"}"#, Outcome::Unknown),
    ] {
        let Record::Ack(ack) = parse_line(line.as_bytes(), &mut dialect).unwrap() else { panic!() };
        assert_eq!(ack.outcome, outcome, "{line}");
    }
    let fault = br#"{"op":"fault","kind":"kill","target":"narad-1","call":40,"ret":50}"#;
    let Record::Fault(fault) = parse_line(fault, &mut dialect).unwrap() else { panic!() };
    assert_eq!(fault.node.as_deref(), Some("narad-1"));
}
