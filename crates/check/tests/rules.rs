//! Each rule has a history that breaks it and at least two that nearly do. They are files a person can read; the first record says
//! what happened.

use std::path::PathBuf;

use mortarmq_check::{AsText, Options, Report, Rule, Verdict, check};
use mortarmq_history::{Limits, Reader};

fn file(rule: Rule, name: &str) -> PathBuf {
    PathBuf::from(format!("{}/tests/histories/{}/{name}.jsonl", env!("CARGO_MANIFEST_DIR"), rule.name()))
}

fn judge(rule: Rule, name: &str) -> Report {
    let files = [file(rule, name)];
    check(&|| Reader::open(&files, Limits::default()), &Options::default(), &mut |_| {}).expect("the file can be read")
}

/// The bad history is found by this rule and by no other; the near misses by none, and all that happened is finished or
/// overdue.
fn finds_only(rule: Rule) {
    let report = judge(rule, "bad");
    let found: Vec<&str> = report.rules.iter().filter(|line| line.found > 0).map(|line| line.rule.name()).collect();
    assert_eq!(found, [rule.name()], "{}", AsText(&report));
    let expected = if rule == Rule::RedeliveredAfterAck { Verdict::Anomaly } else { Verdict::Violation };
    assert_eq!(report.verdict, expected, "{}", AsText(&report));
    let finding = report.findings.iter().find(|finding| finding.rule == rule).expect("it is shown");
    assert!(!finding.records.is_empty(), "a finding is proven by records: {}", AsText(&report));
    let near_misses = (1..).map(|number| format!("near-{number}")).take_while(|name| file(rule, name).exists());
    let near_misses: Vec<String> = near_misses.collect();
    assert!(near_misses.len() >= 2, "{} has too few near misses", rule.name());
    for near in near_misses {
        let report = judge(rule, &near);
        let is_quiet = matches!(report.verdict, Verdict::Ok | Verdict::Overdue | Verdict::Stalled);
        assert!(is_quiet && report.findings.iter().all(|finding| finding.explained.is_some()), "{}", AsText(&report));
        assert_eq!(report.read.unreadable, 0, "{}", AsText(&report));
    }
}

macro_rules! rules {
    ($($name:ident: $rule:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                finds_only(Rule::$rule);
            }
        )*

        #[test]
        fn every_rule_has_its_histories() {
            let tested = [$(Rule::$rule),*];
            for rule in Rule::ALL {
                assert!(tested.contains(&rule), "{} has no test", rule.name());
            }
        }
    };
}

rules! {
    loss_is_found_and_near_misses_are_not: Loss,
    phantom_is_found_and_near_misses_are_not: Phantom,
    refused_delivered_is_found_and_near_misses_are_not: RefusedDelivered,
    misroute_is_found_and_near_misses_are_not: Misroute,
    corrupt_is_found_and_near_misses_are_not: Corrupt,
    stored_twice_is_found_and_near_misses_are_not: StoredTwice,
    redelivered_after_ack_is_found_and_near_misses_are_not: RedeliveredAfterAck,
    double_lease_is_found_and_near_misses_are_not: DoubleLease,
    unexplained_is_found_and_near_misses_are_not: Unexplained,
    false_cause_is_found_and_near_misses_are_not: FalseCause,
    order_is_found_and_near_misses_are_not: Order,
    attempts_is_found_and_near_misses_are_not: Attempts,
    delivery_id_is_found_and_near_misses_are_not: DeliveryId,
    sequence_is_found_and_near_misses_are_not: Sequence,
    balance_is_found_and_near_misses_are_not: Balance,
    going_back_is_found_and_near_misses_are_not: GoingBack,
    commit_order_is_found_and_near_misses_are_not: CommitOrder,
    dead_letter_is_found_and_near_misses_are_not: DeadLetter,
    stale_ack_is_found_and_near_misses_are_not: StaleAck,
    torn_transaction_is_found_and_near_misses_are_not: TornTransaction,
    no_linearization_is_found_and_near_misses_are_not: NoLinearization,
}
