//! `check` on files: what it prints, what it writes, and how it ends.

mod support;

use support::run;

/// One message, published, delivered and acked; `again` delivers it once more, after its ack.
fn history(again: bool) -> String {
    let mut text = String::from(
        r#"{"op":"run","v":1,"paths":[{"path":"orders/billing","topic":"orders","lease_ms":1000}]}
{"op":"publish","topic":"orders","msg":"m-1","call":1,"ret":2,"outcome":"ok"}
{"op":"deliver","path":"orders/billing","msg":"m-1","call":3,"ret":4}
{"op":"ack","path":"orders/billing","msg":"m-1","call":5,"ret":6,"outcome":"ok"}
"#,
    );
    if again {
        text.push_str("{\"op\":\"deliver\",\"path\":\"orders/billing\",\"msg\":\"m-1\",\"call\":7,\"ret\":8}\n");
    }
    text
}

#[test]
fn the_verdict_comes_first_and_decides_the_exit_code() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    std::fs::write(path("good.jsonl"), history(false)).expect("it can be written");
    std::fs::write(path("bad.jsonl"), history(true)).expect("it can be written");
    let good = run(&["check", &path("good.jsonl")]);
    assert_eq!((good.code, good.stdout.lines().next()), (Some(0), Some("verdict: OK")), "{}", good.stdout);
    let bad = run(&["check", &path("bad.jsonl"), "--html", &path("page.html")]);
    assert_eq!((bad.code, bad.stdout.lines().next()), (Some(1), Some("verdict: ANOMALY")), "{}", bad.stdout);
    assert!(bad.stdout.contains("bad.jsonl:5: {"), "{}", bad.stdout);
    let page = std::fs::read_to_string(path("page.html")).expect("the page is there");
    assert!(page.contains("<svg"), "{page}");
    let json = run(&["check", "--json", &path("bad.jsonl")]);
    let object: serde_json::Value = serde_json::from_str(&json.stdout).expect("one object");
    assert_eq!(object["verdict"], "ANOMALY");
    assert_eq!(object["findings"][0]["msg"], "m-1");
}

#[test]
fn wrong_arguments_and_missing_files_are_told() {
    let missing = run(&["check", "/nonexistent/history.jsonl"]);
    assert_eq!(missing.code, Some(1));
    assert!(missing.stderr.contains("/nonexistent/history.jsonl"), "{}", missing.stderr);
    for wrong in [["--grace", "2"], ["--max-overdue", "2"], ["--contract", "other"]] {
        assert_eq!(run(&["check", "x", wrong[0], wrong[1]]).code, Some(2), "{wrong:?}");
    }
}
