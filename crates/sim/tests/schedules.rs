//! Goal: what the simulator found once is found again if it comes back. Method: each schedule that is kept is played, and no
//! promise is broken; in a build with planted bugs, the one that its first line names is noticed by it.

use std::path::Path;

use mortarmq_sim::plan::Anchor;
use mortarmq_sim::{Keep, play, schedule};
use mortarmq_types::{Mutant, mutants};

#[test]
fn what_was_found_once_holds_and_would_be_found_again() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schedules");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let text = std::fs::read_to_string(&file).expect("readable");
        let plan = schedule::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let outcome = play(&plan, Keep::default());
        assert_eq!(outcome.failure, None, "{}", file.display());
        let is_anchored = |anchor: Anchor| matches!(anchor, Anchor::Nth { .. });
        let missed = outcome.unreached.iter().find(|fault| is_anchored(fault.anchor));
        assert_eq!(missed, None, "{}: a fault found no moment to strike", file.display());
        let name =
            text.lines().next().and_then(|line| line.strip_prefix("# planted: ")).expect("it names a planted bug");
        let mutant =
            Mutant::named(name).unwrap_or_else(|| panic!("{}: there is no planted bug {name}", file.display()));
        if mutants::choose(Some(mutant)) {
            assert!(play(&plan, Keep::default()).failure.is_some(), "{} does not notice {name}", file.display());
            mutants::choose(None);
        }
    }
}
