//! What was promised, what was seen of it, and what does not agree.

use std::time::Duration;

use super::tally::Counts;
use super::{BILLING, SHIPPING};
use crate::commands::balance::{Balance, Books};
use crate::output::grouped;

/// All that is known at the end.
pub(super) struct Findings<'a> {
    pub(super) counts: &'a Counts,
    pub(super) balance: &'a Balance,
    /// From the kill to the first order that was sent after it and confirmed.
    pub(super) silence: Duration,
}

/// The promise, and what was seen of it.
pub(super) type Line = (&'static str, String);

impl Findings<'_> {
    /// One line for each promise.
    pub(super) fn lines(&self) -> Vec<Line> {
        let confirmed = grouped(self.counts.confirmed.len() as u64);
        let again = |group: &str| {
            let causes = self.counts.groups.get(group).map(|seen| &seen.again).into_iter().flatten();
            let told: Vec<String> = causes.map(|(cause, count)| format!("{} {cause}", grouped(*count))).collect();
            if told.is_empty() { "none".to_owned() } else { told.join(", ") }
        };
        vec![
            ("P1  a confirmed message outlives the node that took it", format!("{confirmed} confirmed, none lost")),
            (
                "P4  each group gets every message, or its dead letter",
                format!(
                    "{BILLING} {} + 1 dead letter, {SHIPPING} {}",
                    grouped(self.counts.acked(BILLING)),
                    grouped(self.counts.acked(SHIPPING))
                ),
            ),
            ("P6  a confirmed ack is final, whatever crashes", "nothing came again after its ack".to_owned()),
            (
                "P7  each repeated delivery says why",
                format!("{BILLING}: {}; {SHIPPING}: {}", again(BILLING), again(SHIPPING)),
            ),
            ("P9  the books balance", format!("{} paths, each with difference 0", self.balance.paths.len())),
            (
                "P12 a majority goes on by itself within 2 s",
                format!("the next order was confirmed {:.2} s after the kill", self.silence.as_secs_f64()),
            ),
        ]
    }

    /// What does not agree; nothing when all is as promised.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let confirmed = self.counts.confirmed.len() as u64;
        let mut check = |holds: bool, what: String| {
            if !holds {
                faults.push(what);
            }
        };
        let missing = self.counts.sent.saturating_sub(confirmed);
        check(missing == 0, format!("{missing} orders were sent and never confirmed (P12)"));
        check(
            self.silence <= SILENCE_MAX,
            format!("{:.2} s passed from the kill to the next confirmed order (P12)", self.silence.as_secs_f64()),
        );
        for (group, dead) in [(BILLING, 1), (SHIPPING, 0)] {
            let acked = self.counts.groups.get(group).map(|seen| &seen.acked);
            let once = acked.map_or(0, |acked| acked.len() as u64);
            let twice = acked.map_or(0, |acked| acked.values().filter(|count| **count > 1).count());
            check(once + dead == confirmed, format!("{group} acked {once} of {confirmed} orders (P1, P4)"));
            check(twice == 0, format!("{twice} orders were acked twice by {group} (P6)"));
            let books = self.balance.paths.iter().find(|books| books.group == group);
            let agree = |books: &Books| (books.produced, books.delivered, books.dlq, books.depth);
            let wanted = (confirmed, confirmed - dead.min(confirmed), dead, 0);
            check(books.map(agree) == Some(wanted), format!("the books of {group} say something else (P9)"));
        }
        let unbalanced = self.balance.unbalanced();
        check(unbalanced == 0, format!("{unbalanced} paths do not balance (P9)"));
        let left: u64 = self.balance.paths.iter().map(|books| books.depth).sum();
        check(left == 0, format!("{left} messages are left over (P4)"));
        faults
    }
}

/// What is promised of a failover.
const SILENCE_MAX: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Findings, SILENCE_MAX};
    use crate::commands::balance::Balance;
    use crate::commands::demo::three::tally::Counts;
    use crate::commands::demo::three::{BILLING, SHIPPING};

    fn counts() -> Counts {
        let now = Instant::now();
        let mut counts = Counts { sent: 3, confirmed: vec![(now, now); 3], ..Counts::default() };
        for (group, orders) in [(BILLING, &[0, 1][..]), (SHIPPING, &[0, 1, 2])] {
            counts.groups.entry(group).or_default().acked = orders.iter().map(|order| (*order, 1)).collect();
        }
        counts
    }

    fn balance(billing: [u64; 4]) -> Balance {
        let path = |topic: &str, group: &str, [produced, delivered, dlq, depth]: [u64; 4]| {
            serde_json::json!({"topic": topic, "group": group, "produced": produced, "delivered": delivered,
                "dropped": 0, "dlq": dlq, "depth": depth})
        };
        let paths =
            [path("orders", BILLING, billing), path("orders", SHIPPING, [3, 3, 0, 0]), path("$dlq", "d", [1, 1, 0, 0])];
        serde_json::from_value(serde_json::json!({"commit_index": 1, "epoch": 1, "paths": paths})).expect("whole")
    }

    fn faults(counts: &Counts, balance: &Balance, silence: Duration) -> Vec<String> {
        Findings { counts, balance, silence }.faults()
    }

    #[test]
    fn what_is_as_promised_has_no_fault() {
        assert_eq!(faults(&counts(), &balance([3, 2, 1, 0]), SILENCE_MAX), Vec::<String>::new());
    }

    #[test]
    fn every_fault_is_found() {
        let good = balance([3, 2, 1, 0]);
        let mut unconfirmed = counts();
        unconfirmed.sent += 1;
        let mut lost = counts();
        lost.groups.get_mut(SHIPPING).expect("it is there").acked.remove(&1);
        let mut twice = counts();
        *lost_entry(&mut twice) += 1;
        let short = Duration::from_secs(1);
        for (found, word) in [
            (faults(&unconfirmed, &good, short), "never confirmed"),
            (faults(&lost, &good, short), "acked 2 of 3"),
            (faults(&twice, &good, short), "acked twice"),
            (faults(&counts(), &good, SILENCE_MAX + Duration::from_millis(1)), "from the kill"),
            (faults(&counts(), &balance([3, 3, 0, 0]), short), "say something else"),
        ] {
            assert!(found.len() == 1 && found[0].contains(word), "{word}: {found:?}");
        }
        let broken = faults(&counts(), &balance([3, 2, 1, 1]), short);
        assert!(broken.iter().any(|fault| fault.contains("do not balance")), "{broken:?}");
        assert!(broken.iter().any(|fault| fault.contains("left over")), "{broken:?}");
    }

    fn lost_entry(counts: &mut Counts) -> &mut u32 {
        let acked = &mut counts.groups.get_mut(BILLING).expect("it is there").acked;
        acked.get_mut(&0).expect("it was acked")
    }
}
