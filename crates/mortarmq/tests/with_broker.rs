//! The commands against a real broker: rows, exit codes, errors, and what is on disk after a kill.

mod support;

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::Duration;

use support::{Broker, Done, wait_for};

/// A broker with data of its own.
fn broker() -> (tempfile::TempDir, Broker) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let broker = Broker::start(&folder.path().join("data"));
    (folder, broker)
}

fn columns(row: &str) -> Vec<&str> {
    row.split('\t').collect()
}

#[test]
fn serve_says_what_it_found_and_where_it_listens() {
    let (_folder, mut broker) = broker();
    assert_eq!(broker.found, "new");
    let banner = broker.banner.join("\n");
    for part in [
        env!("CARGO_PKG_VERSION"),
        "node 0",
        "mortarmq topics create orders",
        "mortarmq pub orders",
        "mortarmq sub orders",
    ] {
        assert!(banner.contains(part), "{part} is not in:\n{banner}");
    }
    assert!(broker.client_addr.starts_with("127.0.0.1:") && broker.admin_addr.starts_with("http://127.0.0.1:"));
    let second = support::run(&["serve", "--dev", "--listen-client", "127.0.0.1:0", "--data-dir", &broker.data_dir()]);
    assert_eq!((second.code, second.stdout.as_str()), (Some(1), ""), "one folder, one node: {}", second.stderr);
    assert!(second.stderr.contains("error: cannot use the data directory: "), "{}", second.stderr);
    assert_eq!(broker.stop(), Some(0), "SIGTERM is no failure");
    broker.restart();
    assert!(broker.found.starts_with("recovered 0 messages in "), "{}", broker.found);
}

#[test]
fn topics_are_created_listed_described_and_deleted() {
    let (_folder, broker) = broker();
    let created = broker.rows(&["topics", "create", "orders", "--partitions", "2"]);
    let created = columns(created.trim_end());
    assert_eq!(created[0], "created");
    assert!(created[1].len() == 16 && created[1].bytes().all(|byte| byte.is_ascii_hexdigit()), "{created:?}");
    let existed = broker.rows(&["topics", "create", "orders"]);
    assert_eq!(columns(existed.trim_end()), ["existed", created[1]]);

    let mismatch = broker.run(&["topics", "create", "orders", "--partitions", "3"]);
    assert_eq!(mismatch.code, Some(4), "{}", mismatch.stderr);
    assert_eq!(columns(mismatch.stdout.trim_end()), ["mismatch", created[1]]);
    assert!(mismatch.stderr.contains("(TOPIC_EXISTS_MISMATCH, nothing was stored)\n  "), "{}", mismatch.stderr);

    let list = broker.rows(&["topics", "list", "--header"]);
    let lines: Vec<_> = list.lines().map(columns).collect();
    assert_eq!(lines[0], ["name", "partitions", "state", "created_epoch"]);
    assert_eq!(lines[1][..3], ["orders", "2", "active"]);

    let described = broker.rows(&["topics", "describe", "orders"]);
    let lines: Vec<_> = described.lines().map(columns).collect();
    assert!(lines.contains(&vec!["max_message_bytes", "1048576"]), "{described}");
    assert!(
        lines.contains(&vec!["0", "0", "0", "0", "0"]) && lines.contains(&vec!["1", "0", "0", "0", "0"]),
        "{described}"
    );

    assert_eq!(broker.rows(&["topics", "delete", "orders"]), "deleted\n");
    assert_eq!(broker.rows(&["topics", "delete", "orders"]), "not_found\n");
    assert_eq!(broker.rows(&["topics", "list"]), "");
}

#[test]
fn unknown_topic_is_two_lines_and_exit_code_4_on_every_way_in() {
    let (_folder, broker) = broker();
    broker.rows(&["topics", "create", "orders"]);
    let cases: &[&[&str]] = &[
        &["pub", "ordres", "x"],
        &["sub", "ordres", "--group", "g"],
        &["peek", "ordres"],
        &["trace", "ordres", "0", "1"],
        &["topics", "describe", "ordres"],
        &["balance", "ordres"],
        &["topics", "purge", "ordres"],
        &["groups", "list", "ordres"],
        &["groups", "describe", "ordres/g"],
        &["groups", "seek", "ordres/g", "--to", "latest"],
        &["groups", "delete", "ordres/g"],
    ];
    for args in cases {
        let done = broker.run(args);
        assert_eq!((done.code, done.stdout.as_str()), (Some(4), ""), "{args:?}: {}", done.stderr);
        assert_eq!(
            done.stderr,
            "error: topic \"ordres\" does not exist (UNKNOWN_TOPIC, nothing was stored)\n  \
             create it: mortarmq topics create ordres      (did you mean \"orders\"?)\n",
            "{args:?}"
        );
    }
    let done = broker.run(&["topics", "create", "no/name"]);
    assert_eq!(done.code, Some(4), "names are judged by the server: {}", done.stderr);
    assert!(done.stderr.contains("(INVALID_TOPIC, nothing was stored)\n  "), "{}", done.stderr);
}

#[test]
fn lines_of_stdin_come_out_as_they_went_in() {
    let (_folder, broker) = broker();
    broker.rows(&["topics", "create", "orders", "--partitions", "1"]);
    let published =
        broker.run_with_stdin(&["pub", "orders", "--lines", "--key", "k\t1"], b"one\n\ntab\there\\\n\xff\xfe\nlast");
    assert_eq!(published.code, Some(0), "{}", published.stderr);
    assert_eq!(published.stdout, "0\t1\n0\t2\n0\t3\n0\t4\n0\t5\n");

    let expected =
        "0\t1\tk\\t1\tone\n0\t2\tk\\t1\t\n0\t3\tk\\t1\ttab\\there\\\\\n0\t4\tk\\t1\t\\xff\\xfe\n0\t5\tk\\t1\tlast\n";
    assert_eq!(broker.rows(&["peek", "orders"]), expected);
    let consumed = broker.rows(&["sub", "orders", "--group", "g", "--count", "5"]);
    let without_delivery = |row: &str| {
        let row = columns(row);
        assert_eq!(row[3..5], ["1", "first"]);
        format!("{}\t{}\t{}\t{}\n", row[0], row[1], row[5], row[6])
    };
    assert_eq!(consumed.lines().map(without_delivery).collect::<String>(), expected);

    let json = broker.rows(&["peek", "orders", "--json", "--from", "3"]);
    let objects: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).expect("one object per line")).collect();
    assert_eq!(objects[0], serde_json::json!({"partition": 0, "sequence": 3, "key": "k\t1", "value": "tab\there\\"}));
    assert_eq!(objects[1], serde_json::json!({"partition": 0, "sequence": 4, "key": "k\t1", "value_base64": "//4="}));
}

#[test]
fn values_are_numbered_filled_and_taken_from_stdin() {
    let (_folder, broker) = broker();
    broker.rows(&["topics", "create", "orders", "--partitions", "1"]);
    broker.rows(&["pub", "orders", "n{n}", "--count", "2", "--size", "4", "--header", "a=b", "--rate", "1000"]);
    let whole = broker.run_with_stdin(&["pub", "orders", "-"], b"two\nlines\n");
    assert_eq!((whole.code, whole.stdout.as_str()), (Some(0), "0\t3\n"), "{}", whole.stderr);
    assert_eq!(broker.rows(&["peek", "orders"]), "0\t1\t\tn1..\n0\t2\t\tn2..\n0\t3\t\ttwo\\nlines\\n\n");
}

#[test]
fn p6_what_was_acked_stays_acked_over_a_kill_and_the_rest_comes() {
    // Publishes 10, acks 4, kills the broker, and takes the rest as another member.
    let (_folder, mut broker) = broker();
    broker.rows(&["topics", "create", "orders", "--partitions", "1"]);
    broker.rows(&["pub", "orders", "m{n}", "--count", "10"]);
    let first = broker.rows(&["sub", "orders", "--group", "g", "--count", "4"]);
    assert_eq!(first.lines().count(), 4);
    broker.kill();
    broker.restart();
    assert!(broker.found.starts_with("recovered 10 messages in "), "{}", broker.found);
    let second = broker.rows(&["sub", "orders", "--group", "g", "--count", "6"]);
    let mut values: Vec<_> = first.lines().chain(second.lines()).map(|row| columns(row)[6].to_owned()).collect();
    values.sort_by_key(|value| value[1..].parse::<u32>().expect("m and a number"));
    assert_eq!(values, (1..=10).map(|number| format!("m{number}")).collect::<Vec<_>>());

    let balance = broker.run(&["balance"]);
    assert_eq!(
        (balance.code, balance.stdout.as_str()),
        (Some(0), "orders\tg\t10\t10\t0\t0\t0\t0\n"),
        "{}",
        balance.stderr
    );
    assert!(balance.stderr.starts_with("books balance at commit index "), "{}", balance.stderr);
}

#[test]
fn p4_delayed_messages_come_in_time_over_a_kill_and_expired_ones_are_counted() {
    // Goal: from the command line to the disk and back, a delay holds over a kill, and what expired is told. Method: one
    // message for later, one for now, one that expires at once; a kill; then a consumer for two.
    let (_folder, mut broker) = broker();
    broker.rows(&["topics", "create", "orders", "--partitions", "1", "--set", "ttl_ms=600000"]);
    broker.rows(&["pub", "orders", "later", "--delay", "4000"]);
    let published = std::time::Instant::now();
    broker.rows(&["pub", "orders", "stale", "--ttl", "1"]);
    broker.rows(&["pub", "orders", "now"]);
    broker.kill();
    broker.restart();
    let rows = broker.rows(&["sub", "orders", "--group", "g", "--count", "1"]);
    assert!(rows.ends_with("\tnow\n"), "{rows}");
    let standing = broker.run(&["trace", "orders", "0", "1"]).stderr;
    let is_early = published.elapsed() < Duration::from_millis(3000);
    assert!(!is_early || standing.ends_with("orders/g: scheduled\n"), "{standing}");
    let rows = broker.rows(&["sub", "orders", "--group", "g", "--count", "1"]);
    assert!(rows.ends_with("\tlater\n"), "{rows}");
    assert!(published.elapsed() >= Duration::from_millis(3900), "it came after {:?}", published.elapsed());
    let trace = broker.run(&["trace", "orders", "0", "2"]);
    let dropped: Vec<_> =
        columns(trace.stdout.lines().last().expect("an event")).iter().map(|it| it.to_string()).collect();
    assert_eq!((dropped[3].as_str(), dropped[7].as_str()), ("dropped", "ttl"), "{}", trace.stdout);
    assert!(trace.stderr.ends_with("orders/g: dropped\n"), "{}", trace.stderr);
    assert_eq!(broker.rows(&["balance"]), "orders\tg\t3\t2\t1\t0\t0\t0\n");
}

#[test]
fn p4_p9_groups_are_moved_purged_and_deleted_and_the_books_say_so_also_over_a_kill() {
    // Publishes 10 and acks them; goes back to 4 and takes those again, over a kill; skips, purges, deletes.
    let (_folder, mut broker) = broker();
    broker.rows(&["topics", "create", "orders", "--partitions", "1"]);
    broker.rows(&["pub", "orders", "m{n}", "--count", "10"]);
    broker.rows(&["sub", "orders", "--group", "g", "--count", "10"]);
    assert_eq!(broker.rows(&["groups", "list", "--header"]), "group\ttopic\tlag\tstate\ng\torders\t0\tempty\n");
    assert_eq!(broker.rows(&["groups", "seek", "orders/g", "--to", "0:4"]), "7\t0\n");
    assert_eq!(broker.rows(&["groups", "list", "orders"]), "g\torders\t7\tempty\n");
    let first = broker.rows(&["sub", "orders", "--group", "g", "--count", "3"]);
    broker.kill();
    broker.restart();
    let second = broker.rows(&["sub", "orders", "--group", "g", "--count", "4"]);
    let mut again: Vec<_> = first.lines().chain(second.lines()).map(|row| columns(row)[6].to_owned()).collect();
    again.sort_by_key(|value| value[1..].parse::<u32>().expect("m and a number"));
    assert_eq!(again, (4..=10).map(|number| format!("m{number}")).collect::<Vec<_>>(), "P6: each once");
    assert!(first.lines().all(|row| columns(row)[3..5] == ["1", "replayed"]), "{first}");
    assert_eq!(broker.rows(&["balance"]), "orders\tg\t17\t17\t0\t0\t0\t0\n");

    broker.rows(&["pub", "orders", "m{n}", "--count", "5"]);
    assert_eq!(broker.rows(&["groups", "seek", "orders/g", "--to", "0:13", "--header"]), "replayed\tdropped\n0\t2\n");
    assert_eq!(broker.rows(&["topics", "purge", "orders", "--group", "g", "--json"]), "{\"dropped\":3}\n");
    assert_eq!(broker.rows(&["topics", "purge", "orders"]), "0\n");
    assert_eq!(broker.rows(&["balance"]), "orders\tg\t22\t17\t5\t0\t0\t0\n");
    let trace = broker.run(&["trace", "orders", "0", "15"]);
    let stages: Vec<_> = trace.stdout.lines().map(|row| (columns(row)[3], columns(row)[7])).collect();
    assert_eq!(stages, [("stored", "-"), ("dropped", "purge")]);
    assert_eq!(trace.stderr, "orders/g: dropped\n");

    assert_eq!(broker.rows(&["groups", "seek", "orders/g", "--to", "earliest"]), "15\t0\n");
    assert_eq!(broker.rows(&["groups", "seek", "orders/g", "--to", "32503680000000"]), "0\t15\n", "the year 3000");
    assert_eq!(broker.rows(&["groups", "seek", "orders/g", "--to", "0"]), "15\t0\n", "the year 1970");
    assert_eq!(broker.rows(&["groups", "describe", "orders/g"]), "-\t-\t-\t15\n");
    assert_eq!(broker.rows(&["groups", "delete", "orders/g"]), "0\t15\n");
    let gone = broker.run(&["groups", "delete", "orders/g"]);
    assert_eq!((gone.code, gone.stdout.as_str()), (Some(4), ""));
    assert_eq!(
        gone.stderr,
        "error: group \"g\" does not exist on \"orders\" (UNKNOWN_GROUP, nothing was stored)\n  \
         see which there are: mortarmq groups list orders\n"
    );
    let wrong = broker.run(&["groups", "seek", "orders", "--to", "earliest"]);
    assert_eq!(wrong.code, Some(2), "{}", wrong.stderr);
    broker.rows(&["sub", "orders", "--group", "g", "--count", "15"]);
    assert_eq!(broker.rows(&["balance"]), "orders\tg\t15\t15\t0\t0\t0\t0\n", "a group of its own");
}

#[test]
fn balance_names_topics_without_a_group() {
    let (_folder, broker) = broker();
    broker.rows(&["topics", "create", "orders"]);
    broker.rows(&["pub", "orders", "x", "--count", "3"]);
    let done = broker.run(&["balance", "orders"]);
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), ""));
    assert!(
        done.stderr.starts_with("orders: 3 messages, no group yet\nbooks balance at commit index "),
        "{}",
        done.stderr
    );
}

#[test]
fn p7_trace_tells_why_a_message_came_again_and_where_it_stands() {
    // A command that fails once nacks with its stderr; the next attempt is told as its consequence.
    let (folder, broker) = broker();
    broker.rows(&["topics", "create", "orders", "--partitions", "1"]);
    broker.rows(&["pub", "orders", "x"]);
    let flag = folder.path().join("failed");
    let command = format!("test -e '{0}' || {{ touch '{0}'; echo no space >&2; exit 1; }}", flag.display());
    let set = "retry_backoff_base_ms=10";
    broker.rows(&["sub", "orders", "--group", "g", "--count", "1", "--exec", &command, "--set", set]);

    let done = broker.run(&["trace", "orders", "0", "1"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let events: Vec<_> = done.stdout.lines().map(columns).collect();
    let stages: Vec<_> = events.iter().map(|event| event[3]).collect();
    assert_eq!(stages, ["stored", "leased", "lease_ended", "leased", "acked"], "{}", done.stdout);
    assert_eq!((events[1][5], events[1][7]), ("1", "first"));
    assert_eq!(events[2][7], "nacked");
    assert_eq!(events[2][8], "no space", "the end of the command's stderr, without its newline");
    assert_eq!((events[3][5], events[3][7]), ("2", "nacked"));
    assert!(done.stderr.ends_with("orders/g: acked\n"), "{}", done.stderr);
}

#[test]
fn exec_gets_the_message_and_its_rows_are_those_of_acked_messages() {
    let (folder, broker) = broker();
    broker.rows(&["topics", "create", "orders", "--partitions", "1"]);
    broker.rows(&["pub", "orders", "a\tb", "--key", "k1"]);
    let out = folder.path().join("out");
    let command = format!(
        "{{ cat; echo \"|$MORTARMQ_TOPIC|$MORTARMQ_PARTITION|$MORTARMQ_SEQUENCE|$MORTARMQ_KEY|$MORTARMQ_ATTEMPT|$MORTARMQ_CAUSE\"; }} >'{}'; echo told",
        out.display()
    );
    let done = broker.run(&["sub", "orders", "--group", "g", "--count", "1", "--exec", &command]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(std::fs::read_to_string(out).expect("the command ran"), "a\tb|orders|0|1|k1|1|first\n");
    let row = columns(done.stdout.trim_end());
    assert_eq!((row[1], row[3..].to_vec()), ("1", vec!["1", "first", "k1", "a\\tb"]));
    assert_eq!(done.stderr, "told\n", "what a command prints is no row");
}

#[test]
fn p8_one_key_is_never_in_two_commands_at_once() {
    // Each command makes a folder named after its key, sleeps and removes it: a second one of the key finds it there.
    let (folder, broker) = broker();
    broker.rows(&["topics", "create", "orders", "--partitions", "1"]);
    for key in ["a", "b"] {
        broker.rows(&["pub", "orders", "{n}", "--key", key, "--count", "5"]);
    }
    let log = folder.path().join("log");
    let command = format!(
        "mkdir '{0}'/$MORTARMQ_KEY || exit 1; sleep 0.05; echo $MORTARMQ_KEY $(cat) >>'{1}'; rmdir '{0}'/$MORTARMQ_KEY",
        folder.path().display(),
        log.display()
    );
    let done = broker.run(&["sub", "orders", "--group", "g", "--count", "10", "--workers", "4", "--exec", &command]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stdout.lines().all(|row| columns(row)[3] == "1"), "no command failed: {}", done.stdout);
    let log = std::fs::read_to_string(log).expect("the commands ran");
    for key in ["a", "b"] {
        let of_key: Vec<_> = log.lines().filter(|line| line.starts_with(key)).collect();
        assert_eq!(of_key, (1..=5).map(|number| format!("{key} {number}")).collect::<Vec<_>>());
    }
}

#[test]
fn without_acks_messages_are_given_back_on_leaving() {
    let (_folder, broker) = broker();
    broker.rows(&["topics", "create", "orders", "--partitions", "1"]);
    broker.rows(&["pub", "orders", "x", "--count", "2"]);
    let shown = broker.rows(&["sub", "orders", "--group", "g", "--no-ack", "--count", "2"]);
    assert_eq!(shown.lines().count(), 2);
    let again = broker.rows(&["sub", "orders", "--group", "g", "--count", "2"]);
    for row in again.lines().map(columns) {
        assert_eq!(row[3..5], ["1", "released"], "giving back counts no attempt: {again}");
    }
}

#[test]
fn interrupt_gives_back_what_was_not_acked_and_is_no_failure() {
    let (_folder, broker) = broker();
    broker.rows(&["topics", "create", "orders", "--partitions", "1"]);
    broker.rows(&["pub", "orders", "x"]);
    let mut child = broker
        .command(&["sub", "orders", "--group", "g", "--no-ack"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a row, flushed");
    assert_eq!(columns(line.trim_end())[6], "x");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let status = wait_for(Duration::from_secs(10), || child.try_wait().expect("a child of ours"));
    assert_eq!(status.code(), Some(0));
    let again = broker.rows(&["sub", "orders", "--group", "g", "--count", "1"]);
    assert_eq!(columns(again.trim_end())[4], "released");
}

#[test]
fn closed_pipe_ends_a_command_quietly() {
    let (_folder, broker) = broker();
    broker.rows(&["topics", "create", "orders"]);
    let mut child = broker
        .command(&["pub", "orders", "{n}", "--count", "100000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut row = [0; 2];
    child.stdout.take().expect("piped").read_exact(&mut row).expect("a first row");
    let done = Done::of(child.wait_with_output().expect("it ends"));
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
}

#[test]
fn status_and_leader_are_one_row_each() {
    let (_folder, broker) = broker();
    let status = broker.rows(&["broker", "status"]);
    let status = columns(status.trim_end());
    assert_eq!((status[0], status[3]), ("0", env!("CARGO_PKG_VERSION")));
    let leader = broker.rows(&["leader", "get"]);
    let leader = columns(leader.trim_end());
    assert_eq!((leader[0], leader[2]), ("0", "0"));
    assert!(leader[1].parse::<u64>().expect("an epoch") >= 1);
}

#[test]
fn terminal_shows_a_table_whose_heading_comes_with_its_rows() {
    let (_folder, broker) = broker();
    broker.rows(&["topics", "create", "orders", "--partitions", "1"]);
    let published = broker.run_on_terminal(&["pub", "orders", "a\tb", "--count", "2"]);
    assert_eq!(published.stdout, "partition  sequence\n        0         1\n        0         2\n");
    let peeked = broker.run_on_terminal(&["peek", "orders", "--from", "2"]);
    assert_eq!(peeked.stdout, "partition  sequence  key  value\n        0         2       a\\tb\n");
    let empty = broker.run_on_terminal(&["peek", "orders", "--from", "3"]);
    assert_eq!(empty.stdout, "partition  sequence  key  value\n", "an empty result has its heading");
    for args in [&["pub", "ordres", "x"], &["sub", "ordres", "-gg"], &["topics", "describe", "ordres"]] {
        let refused = broker.run_on_terminal(args);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(4), ""), "{args:?}: {}", refused.stderr);
    }
}

#[test]
fn name_that_no_topic_can_have_is_told_its_rule_in_two_lines() {
    let (_folder, broker) = broker();
    for name in ["", "or ders", "..", "a\nb", "a\u{1b}[31mb", "a/b?c"] {
        for args in
            [vec!["pub", name, "x"], vec!["peek", name], vec!["topics", "describe", name], vec!["balance", name]]
        {
            let done = broker.run(&args);
            assert_eq!(done.code, Some(4), "{args:?}: {}", done.stderr);
            let lines: Vec<_> = done.stderr.lines().collect();
            assert_eq!(lines.len(), 2, "{args:?}: {}", done.stderr);
            assert!(lines[0].contains("UNKNOWN_TOPIC") && lines[1].starts_with("  the topic name "), "{}", done.stderr);
            assert!(!done.stderr.contains('\u{1b}'), "no name steers the terminal: {}", done.stderr.escape_debug());
        }
    }
}

#[test]
fn second_interrupt_ends_commands_and_gives_their_messages_back() {
    // A command that never ends by itself: the first interrupt waits for it, the second does not.
    let (folder, broker) = broker();
    broker.rows(&["topics", "create", "orders", "--partitions", "1"]);
    broker.rows(&["pub", "orders", "x"]);
    let started = folder.path().join("started");
    let command = format!("touch '{}'; sleep 1000", started.display());
    let mut child = broker
        .command(&["sub", "orders", "--group", "g", "--exec", &command])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let pid = rustix::process::Pid::from_child(&child);
    let interrupt = || rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    wait_for(Duration::from_secs(20), || started.exists().then_some(()));
    interrupt();
    let mut told = String::new();
    BufReader::new(child.stderr.as_mut().expect("piped")).read_line(&mut told).expect("a line");
    assert_eq!(told, "commands that still run: 1; waiting for them, once more stops them\n");
    interrupt();
    let status = wait_for(Duration::from_secs(10), || child.try_wait().expect("a child of ours"));
    assert_eq!(status.code(), Some(0));
    let again = broker.rows(&["sub", "orders", "--group", "g", "--count", "1"]);
    assert_eq!(columns(&again)[3..5], ["1", "released"], "to be stopped is no fault of the message");
}

#[test]
fn command_gets_sigterm_when_its_lease_is_lost() {
    // The topic is deleted under a running command: its lease is gone, and so is the reason to go on.
    let (folder, broker) = broker();
    broker.rows(&["topics", "create", "orders", "--partitions", "1"]);
    broker.rows(&["pub", "orders", "x"]);
    let [started, ended] = ["started", "ended"].map(|name| folder.path().join(name));
    let command = format!(
        "trap 'touch {1}; exit 1' TERM; touch {0}; for i in $(seq 1200); do sleep 0.05; done",
        started.display(),
        ended.display()
    );
    let child = broker
        .command(&["sub", "orders", "--group", "g", "--set", "lease_ms=1000", "--exec", &command])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    wait_for(Duration::from_secs(20), || started.exists().then_some(()));
    broker.rows(&["topics", "delete", "orders"]);
    let done = Done::of(child.wait_with_output().expect("it ends"));
    assert!(ended.exists(), "the command was told: {}", done.stderr);
    assert_ne!(done.code, Some(0), "the subscription ended: {}", done.stderr);
    assert_eq!(done.stdout, "");
}

#[test]
fn p1_p3_publishing_goes_on_over_a_kill_and_stores_each_message_once() {
    // Kills the broker while 300 messages are being published at a steady pace, and starts it again.
    let (_folder, mut broker) = broker();
    broker.rows(&["topics", "create", "orders", "--partitions", "1"]);
    let mut child = broker
        .command(&["pub", "orders", "m{n}", "--count", "300", "--rate", "200"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut rows = BufReader::new(child.stdout.take().expect("piped")).lines();
    for _ in 0..20 {
        rows.next().expect("a row").expect("text");
    }
    broker.kill();
    broker.restart();
    let confirmed = 20 + rows.map_while(Result::ok).count();
    let done = Done::of(child.wait_with_output().expect("it ends"));
    assert_eq!((done.code, confirmed), (Some(0), 300), "{}", done.stderr);
    assert!(done.stderr.contains("the connection is lost"), "whoever waits is told why: {}", done.stderr);
    let stored = broker.rows(&["peek", "orders"]);
    let values: Vec<_> = stored.lines().map(|row| columns(row)[3].to_owned()).collect();
    assert_eq!(values, (1..=300).map(|number| format!("m{number}")).collect::<Vec<_>>());
}
