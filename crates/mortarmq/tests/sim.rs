//! The simulator as a command.

mod support;

use support::run;

#[test]
fn one_seed_prints_the_same_digest_in_every_process() {
    let [one, other] = [(); 2].map(|()| run(&["sim", "--seed", "2"]));
    assert_eq!(one.code, Some(0), "{}{}", one.stdout, one.stderr);
    assert!(
        one.stdout.starts_with("seed 2  digest ") && one.stdout.ends_with("every promise held\n"),
        "{}",
        one.stdout
    );
    assert_eq!(one.stdout, other.stdout);
    assert_ne!(run(&["sim", "--seed", "3"]).stdout.get(..31), one.stdout.get(..31));
}

#[test]
fn a_trace_is_written_and_explained_and_a_schedule_is_read() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    let (trace, history) = (path("trace"), path("history.jsonl"));
    let done = run(&["sim", "--seed", "2", "--trace", &trace, "--history", &history]);
    assert_eq!(done.code, Some(0), "{}", done.stdout);
    let done = run(&["sim", "explain", &trace, "--at", "100"]);
    assert!(done.stdout.lines().any(|line| line.starts_with("> 100 ")), "{}", done.stdout);
    let done = run(&["check", &history, "--strict"]);
    assert!(done.stdout.starts_with("verdict: OK\n"), "{}", done.stdout);
    let schedule = path("schedule");
    std::fs::write(&schedule, "mortarmq-schedule 1\nset work_ms 100\nat 50000 publish count=3\n").expect("written");
    let done = run(&["sim", "--replay", &schedule]);
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    std::fs::write(&schedule, "mortarmq-schedule 1\nfault 1 checkpoint 900 0 kill\n").expect("written");
    let done = run(&["sim", "--replay", &schedule]);
    assert_eq!(done.code, Some(1), "{}", done.stdout);
    assert!(done.stdout.contains("found no moment to strike"), "{}", done.stdout);
    std::fs::write(&schedule, "mortarmq-schedule 1\nat 5 dance\n").expect("written");
    let done = run(&["sim", "--replay", &schedule]);
    assert_eq!(done.code, Some(2), "{}", done.stderr);
    assert!(done.stderr.contains("line 2: nobody does dance"), "{}", done.stderr);
}

#[test]
fn a_build_that_is_not_made_for_it_holds_no_planted_bug() {
    let done = run(&["sim", "--mutant", "ack-before-fsync"]);
    assert_eq!(done.code, Some(2), "{}", done.stderr);
    assert!(done.stderr.starts_with("error: this build holds no planted bugs\n"), "{}", done.stderr);
}

#[test]
fn seeds_that_are_none_are_refused_rather_than_held() {
    for seeds in ["10..5", "3..3", "0"] {
        let done = run(&["sim", "--seeds", seeds]);
        assert_eq!(done.code, Some(2), "{seeds}: {}", done.stdout);
        assert!(done.stderr.contains("there is no seed in it"), "{}", done.stderr);
    }
}
