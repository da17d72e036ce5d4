//! `history`: what is repacked is the same, what is counted is all, what is cut out is what was asked for.

mod support;

use std::path::Path;

use support::run;

const HISTORY: &str = r#"{"op":"run","v":1,"run":"r","paths":[{"path":"a/g","topic":"a"},{"path":"b/g","topic":"b"}]}
{"op":"publish","client":"p1","topic":"a","msg":"m1","call":1,"ret":2,"outcome":"ok"}
{"op":"publish","client":"p1","topic":"b","msg":"m2","call":3,"outcome":"unknown"}
{"op":"deliver","client":"c1","path":"a/g","msg":"m1","call":4,"ret":5,"attempt":1,"cause":"first"}
{"op":"ack","client":"c1","path":"a/g","msg":"m1","call":6,"ret":7,"outcome":"ok"}
{"op":"nack","client":"c1","path":"b/g","msg":"m2","call":8,"ret":9,"outcome":"refused","to":"dead"}
{"op":"fault","kind":"kill","node":0,"call":10,"ret":12}
{"op":"end","at":20,"drained":true,"balance":[{"path":"a/g","produced":1,"delivered":1,"dropped":0,"dlq":0,"depth":0},{"path":"b/g","produced":1,"delivered":0,"dropped":0,"dlq":0,"depth":1}]}
"#;

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain name")
}

#[test]
fn a_history_survives_every_packing_and_the_way_back() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let names = ["1.jsonl", "2.jsonl.zst", "3.jsonl.gz", "4.jsonl"].map(|name| folder.path().join(name));
    std::fs::write(&names[0], HISTORY).expect("the folder takes files");
    for pair in names.windows(2) {
        let done = run(&["history", "convert", text(&pair[0]), text(&pair[1])]);
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        assert!(done.stderr.starts_with("8 records in "), "{}", done.stderr);
    }
    assert_eq!(std::fs::read_to_string(&names[3]).expect("it was written"), HISTORY);
    let done = run(&["history", "convert", text(&names[0]), text(&names[0])]);
    assert_eq!(done.code, Some(2));
    assert_eq!(done.stderr.lines().count(), 2, "{}", done.stderr);
    let done = run(&["history", "stats", text(&folder.path().join("absent"))]);
    assert_eq!(done.code, Some(1));
    assert_eq!(done.stderr.lines().count(), 2, "{}", done.stderr);
}

#[test]
fn narads_files_become_ours() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (narad, ours) = (folder.path().join("narad.jsonl"), folder.path().join("ours.jsonl"));
    let lines = r#"{"op":"meta","call":1,"ret":1,"run_id":"r","paths":{"orders":["orders","audit"]},"visibility_timeout_ms":3000}
{"op":"produce","msg":"m","path":"orders","client":3,"call":2,"ret":3,"status":202,"outcome":"ambiguous"}
{"op":"ack","msg":"m","path":"audit","call":4,"ret":5,"status":410,"outcome":"rejected"}
{"op":"fault","kind":"kill","target":"narad-1","call":6,"ret":7}
"#;
    std::fs::write(&narad, lines).expect("the folder takes files");
    assert_eq!(run(&["history", "convert", text(&narad), text(&ours)]).code, Some(0));
    let expected = r#"{"op":"run","v":1,"run":"r","lease_ms":3000,"paths":[{"path":"orders","topic":"orders","lease_ms":3000},{"path":"audit","topic":"audit","lease_ms":3000,"source":"orders"}]}
{"op":"publish","client":"3","topic":"orders","msg":"m","call":2,"ret":3,"outcome":"ok"}
{"op":"ack","path":"audit","msg":"m","call":4,"ret":5,"outcome":"unknown"}
{"op":"fault","kind":"kill","node":"narad-1","call":6,"ret":7}
"#;
    assert_eq!(std::fs::read_to_string(&ours).expect("it was written"), expected);
}

#[test]
fn stats_count_everything_and_name_bad_lines() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("h.jsonl");
    std::fs::write(&file, format!("{HISTORY}what\n{{\"op\":\"ack")).expect("the folder takes files");
    let done = run(&["history", "stats", text(&file)]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let rows: Vec<&str> = done.stdout.lines().collect();
    let expected = [
        "ack\tok\t1",
        "cause\tfirst\t1",
        "client\tc1\t3",
        "client\tp1\t2",
        "declared_path\ta/g\t1",
        "end\tdrained\t1",
        "fault\tkill\t1",
        "lines\trecords\t8",
        "lines\ttorn\t1",
        "lines\tunreadable\t2",
        "nack\tdead refused\t1",
        "op\tpublish\t2",
        "path\ta/g\t2",
        "publish\tunknown\t1",
        "time_ns\tfirst\t1",
        "time_ns\tlast\t20",
        "topic\tb\t1",
    ];
    for row in expected {
        assert!(rows.contains(&row), "no {row:?} in {rows:?}");
    }
    let notes: Vec<&str> = done.stderr.lines().collect();
    assert!(notes[0].contains("h.jsonl:9: no JSON") && notes[1].contains("h.jsonl:10: torn"), "{notes:?}");
    assert!(
        run(&["history", "stats", "--json", text(&file)]).stdout.starts_with(r#"{"kind":"ack","name":"ok","count":1}"#)
    );
}

#[test]
fn a_slice_has_what_was_asked_for_and_counters_only_of_whole_paths() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("h.jsonl");
    std::fs::write(&file, HISTORY).expect("the folder takes files");
    let lines: Vec<&str> = HISTORY.lines().collect();
    let cut = |flags: &[&str]| {
        let done = run(&[&["history", "slice", text(&file)], flags].concat());
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        done.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let some = |numbers: &[usize]| numbers.iter().map(|number| lines[*number].to_owned()).collect::<Vec<_>>();
    assert_eq!(cut(&["--msg", "m1"]), some(&[0, 1, 3, 4, 6]));
    assert_eq!(cut(&["--client", "p1"]), some(&[0, 1, 2, 6]));
    assert_eq!(cut(&["--from", "6", "--to", "9"]), some(&[0, 2, 4, 5, 6]));
    let of_path = cut(&["--path", "b/g"]);
    assert_eq!(of_path[..4], some(&[0, 2, 5, 6]));
    assert!(of_path[4].contains("b/g") && !of_path[4].contains("a/g"), "{}", of_path[4]);
    assert_eq!(cut(&[]).len(), 8);
}
