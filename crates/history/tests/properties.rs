//! Goal: what is written is read back, and no bytes make the reader panic or lie about what it skipped.
//! Method: random records and random bytes.

use std::borrow::Cow;
use std::io::Cursor;
use std::path::Path;

use mortarmq_history::{
    Balance, Cause, Counters, Deliver, Dialect, End, Extend, Fault, Limits, Nack, NackTo, Operate, OperateKind, Order,
    Outcome, PathInfo, Publish, Pull, Reader, Record, Run, Scrape, Settle, Source, VERSION, parse_line, write_line,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

type Text = Cow<'static, str>;

fn text() -> impl Strategy<Value = Text> {
    prop_oneof!["[a-z]{0,8}", any::<String>()].prop_map(Cow::Owned)
}

/// A call and its return, with what the caller learnt of it.
fn call() -> impl Strategy<Value = (u64, Option<u64>, Outcome)> {
    (any::<u64>(), any::<u64>(), any::<bool>(), select(Outcome::ALL)).prop_map(|(one, other, returned, outcome)| {
        if returned { (one.min(other), Some(one.max(other)), outcome) } else { (one, None, Outcome::Unknown) }
    })
}

fn counters() -> impl Strategy<Value = Counters> {
    any::<[u64; 5]>().prop_map(|[produced, delivered, dropped, dlq, depth]| Counters {
        produced,
        delivered,
        dropped,
        dlq,
        depth,
    })
}

fn settle() -> impl Strategy<Value = Settle<'static>> {
    (option::of(text()), text(), text(), any::<[Option<u64>; 3]>(), call(), option::of(text())).prop_map(
        |(client, path, msg, [delivery_id, commit, epoch], (call, ret, outcome), txn)| Settle {
            client,
            path,
            msg,
            delivery_id,
            call,
            ret,
            outcome,
            commit,
            epoch,
            txn,
        },
    )
}

fn publish() -> impl Strategy<Value = Record<'static>> {
    let texts = (option::of(text()), text(), text(), option::of(text()), option::of(text()), option::of(text()));
    (texts, any::<[Option<u64>; 6]>(), call(), any::<(Option<u32>, Option<bool>)>()).prop_map(
        |((client, topic, msg, key, hash, txn), numbers, (call, ret, outcome), (partition, dedup))| {
            let [seq, producer_id, producer_seq, delay_ms, commit, epoch] = numbers;
            Record::Publish(Publish {
                client,
                topic,
                msg,
                key,
                call,
                ret,
                outcome,
                partition,
                seq,
                producer_id,
                producer_seq,
                delay_ms,
                dedup,
                hash,
                commit,
                epoch,
                txn,
            })
        },
    )
}

fn deliver() -> impl Strategy<Value = Record<'static>> {
    let texts = (option::of(text()), text(), text(), vec(option::of(text()), 4));
    let cause = option::of(select(Cause::ALL));
    (texts, any::<[Option<u64>; 6]>(), call(), any::<[Option<u32>; 2]>(), cause).prop_map(
        |((client, path, msg, mut texts), numbers, (call, ret, _), [partition, attempt], cause)| {
            let [seq, delivery_id, prev, lease_ms, commit, epoch] = numbers;
            Record::Deliver(Deliver {
                client,
                path,
                msg,
                key: texts.pop().flatten(),
                call,
                ret,
                partition,
                seq,
                delivery_id,
                attempt,
                cause,
                prev,
                lease_ms,
                hash: texts.pop().flatten(),
                commit,
                epoch,
                origin: texts.pop().flatten(),
                txn: texts.pop().flatten(),
            })
        },
    )
}

fn run() -> impl Strategy<Value = Record<'static>> {
    let path = (
        text(),
        text(),
        any::<(Option<u64>, Option<u32>)>(),
        option::of(select(Order::ALL)),
        vec(option::of(text()), 2),
    );
    let path = path.prop_map(|(path, topic, (lease_ms, max_attempts), order, mut texts)| PathInfo {
        path,
        topic,
        lease_ms,
        max_attempts,
        order,
        dlq: texts.pop().flatten(),
        source: texts.pop().flatten(),
    });
    (option::of(text()), any::<Option<u64>>(), vec(path, 0..4))
        .prop_map(|(run, lease_ms, paths)| Record::Run(Run { v: VERSION, run, lease_ms, paths }))
}

fn others() -> impl Strategy<Value = Record<'static>> {
    let operate =
        (option::of(text()), select(OperateKind::ALL), text(), option::of(text()), call(), any::<[Option<u64>; 2]>())
            .prop_map(|(client, kind, path, msg, (call, ret, outcome), [commit, epoch])| {
                Record::Operate(Operate { client, kind, path, msg, call, ret, outcome, commit, epoch })
            });
    let node = option::of(prop_oneof![any::<u64>().prop_map(|node| Cow::Owned(node.to_string())), text()]).boxed();
    let scrape = (text(), node.clone(), call(), any::<[Option<u64>; 2]>(), counters(), any::<bool>()).prop_map(
        |(path, node, (call, ret, _), [commit, epoch], counters, stale)| {
            Record::Scrape(Scrape { path, node, call, ret, commit, epoch, counters, stale })
        },
    );
    let fault =
        (text(), node, call()).prop_map(|(kind, node, (call, ret, _))| Record::Fault(Fault { kind, node, call, ret }));
    let balance = (text(), counters()).prop_map(|(path, counters)| Balance { path, counters });
    let end = (any::<u64>(), any::<bool>(), vec(balance, 0..4))
        .prop_map(|(at, drained, balance)| Record::End(End { at, drained, balance }));
    let pull = (option::of(text()), option::of(text()), any::<u64>())
        .prop_map(|(client, path, call)| Record::Pull(Pull { client, path, call, ret: None }));
    prop_oneof![operate, scrape, fault, end, pull]
}

fn record() -> impl Strategy<Value = Record<'static>> {
    prop_oneof![
        publish(),
        deliver(),
        settle().prop_map(Record::Ack),
        (settle(), select(NackTo::ALL)).prop_map(|(settle, to)| Record::Nack(Nack { settle, to })),
        (settle(), any::<Option<u64>>()).prop_map(|(settle, lease_ms)| Record::Extend(Extend { settle, lease_ms })),
        run(),
        others(),
    ]
}

/// Records, unreadable lines and torn ends of one file.
fn read(bytes: Vec<u8>) -> (u64, u64) {
    let source = Source::from_reader(Path::new("random"), Cursor::new(bytes)).expect("memory can be read");
    let mut reader = Reader::new(vec![source], Limits { line_bytes: 4096 });
    let mut seen = (0, 0);
    while let Some(line) = reader.next_line().expect("memory can be read") {
        if line.content.is_ok() { seen.0 += 1 } else { seen.1 += 1 }
    }
    assert_eq!((reader.counts().records, reader.counts().unreadable), seen);
    seen
}

/// How packed files begin, and one that does not.
const STARTS: &[&[u8]] = &[b"", b"\x28\xb5\x2f\xfd", b"\x1f\x8b\x08"];

proptest! {
    #[test]
    fn what_is_written_is_read_back(record in record()) {
        let mut line = Vec::new();
        write_line(&mut line, &record);
        prop_assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        line.pop();
        prop_assert_eq!(parse_line(&line, &mut Dialect::Ours), Ok(record));
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in vec(any::<u8>(), 0..600), start in select(STARTS)) {
        read([start, &bytes].concat());
    }

    #[test]
    fn a_file_with_flipped_and_missing_bytes_never_has_more_records(
        records in vec(record(), 1..6),
        flips in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        is_packed in any::<bool>(),
    ) {
        let mut bytes = Vec::new();
        records.iter().for_each(|record| write_line(&mut bytes, record));
        let newlines_added = flips.iter().filter(|(_, byte)| *byte == b'\n').count();
        if is_packed {
            bytes = zstd::bulk::compress(&bytes, 1).expect("memory takes every byte");
        }
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        let (read, unreadable) = read(bytes);
        if !is_packed {
            let lines = records.len() + newlines_added;
            prop_assert!(read + unreadable <= lines as u64, "{read} and {unreadable} of {lines}");
        }
    }
}
