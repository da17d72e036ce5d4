//! The two commands that run a broker of their own: `demo` and `bench`.

mod support;

use support::run;

#[test]
fn demo_kills_a_node_and_its_books_balance() {
    let done = run(&["demo"]);
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    for part in
        ["published 2,000 messages", "kill -9", "recovered 2,000 messages", "2,000 confirmed, 2,000 acked once each"]
    {
        assert!(done.stderr.contains(part), "{part:?} is not in:\n{}", done.stderr);
    }
    assert!(done.stdout.contains("orders\tbilling\t2000\t2000\t0\t0\t0\t0\n"), "{}", done.stdout);
    assert!(done.stdout.contains("\tconsumer_lost\t"), "a message of the lost consumer is traced: {}", done.stdout);
}

#[test]
fn bench_prints_a_row_per_phase_next_to_the_floor() {
    let done = run(&["bench", "--seconds", "1", "--json"]);
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    let rows: Vec<serde_json::Value> =
        done.stdout.lines().map(|line| serde_json::from_str(line).expect("one object per line")).collect();
    let phases: Vec<_> = rows.iter().map(|row| row["phase"].as_str().expect("a name")).collect();
    assert_eq!(
        phases,
        [
            "floor: write 4 KiB + fdatasync",
            "publish, one at a time",
            "publish",
            "publish in batches",
            "consume and ack"
        ]
    );
    for row in &rows {
        assert!(row["messages"].as_u64() > Some(0) && row["per_s"].as_u64() > Some(0), "{row}");
        assert!(row["p50_us"].as_u64() <= row["p99_us"].as_u64(), "{row}");
    }
    assert!(done.stderr.contains("floor of this disk: ") && done.stderr.contains("broker: "), "{}", done.stderr);
}
