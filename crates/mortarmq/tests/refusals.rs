//! Every refusal that a command can meet: its exit code, its two lines, nothing on stdout, and nothing stored. One row per
//! refusal; those of the protocol itself stand in `crates/server/tests/refusals`.

mod support;

use support::{Broker, Done, run_with};

/// One refusal.
struct Row {
    args: &'static [&'static str],
    exit: i32,
    /// What stands in the first line: what is wrong, and its code.
    what: &'static [&'static str],
    /// What stands in the second: what to do.
    remedy: &'static str,
    /// What is on stdout all the same.
    stdout: &'static str,
}

const fn refused(args: &'static [&'static str], what: &'static [&'static str], remedy: &'static str) -> Row {
    Row { args, exit: 4, what, remedy, stdout: "" }
}

const INVALID: &str = "(INVALID_TOPIC, nothing was stored)";
const NO_TOPIC: &str = "topic \"ordres\" does not exist (UNKNOWN_TOPIC, nothing was stored)";
const NO_GROUP: &str = "group \"none\" does not exist on \"orders\" (UNKNOWN_GROUP, nothing was stored)";
const NO_PARTITION: &str = "2 partitions, from 0; 9 is not one of them (UNKNOWN_PARTITION, nothing was stored)";
const NEAREST: &str = "create it: mortarmq topics create ordres      (did you mean \"orders\"?)";
const GROUPS: &str = "mortarmq groups list orders";
const DESCRIBE: &str = "mortarmq topics describe orders";
const RULE: &str = "the text says which rule";

const ROWS: &[Row] = &[
    refused(&["pub", "ordres", "x"], &[NO_TOPIC], NEAREST),
    refused(&["sub", "ordres", "--group", "g"], &[NO_TOPIC], NEAREST),
    refused(&["dlq", "redrive", "ordres"], &[NO_TOPIC], NEAREST),
    refused(&["topics", "set", "ordres", "ttl_ms=1"], &[NO_TOPIC], NEAREST),
    refused(&["groups", "set", "ordres/g", "lease_ms=1000"], &[NO_TOPIC], NEAREST),
    refused(&["pub", "$dlq.orders", "x"], &["does not exist (UNKNOWN_TOPIC,"], "only the broker's own names do"),
    refused(&["topics", "create", "no/name"], &["not allowed", INVALID], RULE),
    refused(&["topics", "create", ".."], &["is \"..\"", INVALID], RULE),
    refused(&["topics", "create", "$dlq.a"], &["starts with \"$\"", INVALID], RULE),
    refused(&["topics", "create", "a", "--partitions", "1025"], &["partitions = 1025", "1 to 1024", INVALID], RULE),
    refused(&["topics", "create", "a", "--set", "nope=1"], &["unknown setting \"nope\"", INVALID], RULE),
    Row {
        stdout: "mismatch\t0000000000000001\n",
        ..refused(
            &["topics", "create", "orders", "--partitions", "3"],
            &["partitions is 2, not 3 (TOPIC_EXISTS_MISMATCH, nothing was stored)"],
            "the settings that the text lists",
        )
    },
    Row {
        stdout: "mismatch\t0000000000000001\n",
        ..refused(
            &["topics", "create", "ORDERS"],
            &["without regard to case", "(TOPIC_EXISTS_MISMATCH,"],
            "another name",
        )
    },
    refused(&["topics", "set", "orders", "partitions=1"], &["only grows", INVALID], RULE),
    refused(&["topics", "set", "orders", "max_message_bytes=0"], &["from 1 to 16776192", INVALID], RULE),
    refused(&["topics", "purge", "orders", "--group", "none"], &[NO_GROUP], GROUPS),
    refused(&["sub", "orders", "--group", "a/b"], &["the group name has a character", INVALID], RULE),
    refused(&["groups", "seek", "orders/none", "--to", "latest"], &[NO_GROUP], GROUPS),
    refused(&["groups", "seek", "orders/billing", "--to", "9:1"], &[NO_PARTITION], DESCRIBE),
    refused(&["groups", "delete", "orders/none"], &[NO_GROUP], GROUPS),
    refused(&["groups", "describe", "orders/none"], &[NO_GROUP], GROUPS),
    refused(&["groups", "set", "orders/none", "lease_ms=1000"], &[NO_GROUP], GROUPS),
    refused(&["groups", "set", "orders/billing", "lease_ms=999"], &["from 1000 to 43200000", INVALID], RULE),
    refused(&["groups", "set", "orders/billing", "type=exclusive"], &["type is fixed", INVALID], RULE),
    refused(&["defaults", "set", "producer_window=1"], &["from 64 to 65536", INVALID], RULE),
    refused(&["peek", "orders", "--partition", "9"], &[NO_PARTITION], DESCRIBE),
    refused(&["trace", "orders", "9", "1"], &[NO_PARTITION], DESCRIBE),
    Row {
        exit: 2,
        ..refused(&["pub", "orders", "x", "--header", LONG_HEADER], &["the limit is 255", "nothing was sent"], "names")
    },
];

/// Its name is longer than the protocol has for one.
const LONG_HEADER: &str = "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\
    nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\
    nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn=v";

#[test]
fn every_refusal_of_a_command_is_two_lines_with_its_exit_code_and_stores_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let broker = Broker::start(&folder.path().join("data"));
    broker.rows(&["topics", "create", "orders", "--partitions", "2"]);
    broker.rows(&["pub", "orders", "hello"]);
    broker.rows(&["sub", "orders", "--group", "billing", "--count", "1"]);
    let before = books(&broker);
    for row in ROWS {
        judge(row, &broker.run(row.args));
        assert_eq!(books(&broker), before, "{:?}: nothing was stored", row.args);
    }
    let too_large = vec![b'x'; (1 << 20) + 1];
    let args = &["pub", "orders", "-"];
    let what = &["the value has 1048577 bytes, the topic accepts 1048576 (TOO_LARGE, nothing was stored)"];
    judge(&refused(args, what, "send less"), &broker.run_with_stdin(args, &too_large));
    assert_eq!(books(&broker), before, "nothing was stored");
}

#[test]
fn a_wrong_token_is_two_lines_and_exit_code_4_on_every_way_in() {
    let line = run_with(&["hash-token", "ops", "--stdin", "--json", "--admin"], &[], b"operator-secret-1");
    assert_eq!(line.code, Some(0), "{}", line.stderr);
    let folder = tempfile::tempdir().expect("a folder");
    let flags = ["--tokens", &format!("[{}]", line.stdout.trim())];
    let broker = Broker::start_with(&folder.path().join("data"), &flags);
    for args in [
        &["pub", "orders", "x"][..],
        &["sub", "orders", "--group", "g"],
        &["topics", "create", "orders"],
        &["topics", "list"],
        &["balance"],
        &["topics", "purge", "orders"],
    ] {
        for token in ["", "operator-secret-2"] {
            let environment = [
                ("MORTARMQ_SERVER", broker.client_addr.as_str()),
                ("MORTARMQ_ADMIN", broker.admin_addr.as_str()),
                ("MORTARMQ_TOKEN", token),
            ];
            let done = run_with(args, &environment, b"");
            let lines: Vec<&str> = done.stderr.lines().collect();
            assert_eq!((done.code, done.stdout.as_str()), (Some(4), ""), "{args:?} {token:?}: {}", done.stderr);
            assert_eq!(lines.len(), 2, "{args:?} {token:?}: {}", done.stderr);
            assert!(lines[0].starts_with("error: ") && lines[1].contains("token"), "{args:?}: {}", done.stderr);
        }
    }
}

fn judge(row: &Row, done: &Done) {
    let args = row.args;
    assert_eq!((done.code, done.stdout.as_str()), (Some(row.exit), row.stdout), "{args:?}: {}", done.stderr);
    let lines: Vec<&str> = done.stderr.lines().collect();
    let [first, second] = lines[..] else { panic!("{args:?}: two lines, not {:?}", done.stderr) };
    assert!(first.starts_with("error: ") && second.starts_with("  "), "{args:?}: {}", done.stderr);
    for part in row.what {
        assert!(first.contains(part), "{args:?}: {part:?} is not in {first:?}");
    }
    assert!(second.contains(row.remedy), "{args:?}: {:?} is not in {second:?}", row.remedy);
}

/// What is stored: every topic, its partitions' last sequences and settings, and every path's books.
fn books(broker: &Broker) -> [String; 4] {
    [
        broker.rows(&["topics", "list"]),
        broker.rows(&["topics", "describe", "orders"]),
        broker.rows(&["groups", "list"]),
        broker.run(&["balance"]).stdout,
    ]
}
