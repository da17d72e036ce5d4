//! The example of `docs/checking.md` runs, and what it records is judged OK.

use std::process::Command;

use mortarmq_check::{AsText, Options, Verdict, check};
use mortarmq_history::{Limits, Reader};

#[test]
fn the_example_records_a_history_that_is_ok() {
    let page = include_str!("../../../docs/checking.md");
    let (_, rest) = page.split_once("```python\n").expect("the page has an example");
    let (program, _) = rest.split_once("```").expect("the example ends");
    assert!(program.lines().count() <= 25, "the example is short");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let history = folder.path().join("history.jsonl");
    let run = Command::new("python3").arg("-c").arg(program).arg(&history).output();
    let Ok(done) = run else {
        println!("skipped: there is no python3");
        return;
    };
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let files = [history];
    let report =
        check(&|| Reader::open(&files, Limits::default()), &Options::default(), &mut |_| {}).expect("it is read");
    assert_eq!(report.verdict, Verdict::Ok, "{}", AsText(&report));
    assert_eq!((report.read.publishes, report.read.deliveries, report.read.settles), (100, 100, 100));
}
