//! Shrinking: a plan that breaks a promise is made as small as it stays broken in the same way.

use crate::judge::{Keep, play};
use crate::plan::{Anchor, Plan, Settings};

/// What a shrinking came to.
#[derive(Debug)]
pub struct Shrunk {
    /// The plan.
    pub plan: Plan,
    /// How it is broken.
    pub failure: String,
    /// How many plans were tried.
    pub tried: u64,
}

/// Makes a broken plan smaller, with at most so many tries; nothing if it is not broken. `told` hears of each step forward.
#[must_use]
pub fn shrink(plan: &Plan, tries: u64, told: &mut dyn FnMut(&Plan)) -> Option<Shrunk> {
    let failure = play(plan, Keep::default()).failure?;
    let mut shrinker = Shrinker { kind: kind_of(&failure), plan: plan.clone(), failure, tried: 1, tries };
    loop {
        let before = shrinker.plan.clone();
        shrinker.drop_faults();
        told(&shrinker.plan);
        shrinker.drop_steps();
        told(&shrinker.plan);
        shrinker.lower_settings();
        shrinker.end_early();
        told(&shrinker.plan);
        if shrinker.plan == before || shrinker.tried >= shrinker.tries {
            break;
        }
    }
    let Shrinker { plan, failure, tried, .. } = shrinker;
    Some(Shrunk { plan, failure, tried })
}

struct Shrinker {
    /// What tells this way of being broken from others.
    kind: String,
    plan: Plan,
    failure: String,
    tried: u64,
    tries: u64,
}

impl Shrinker {
    /// Takes a plan over if it is broken in the same way.
    fn takes(&mut self, plan: Plan) -> bool {
        if self.tried >= self.tries || plan == self.plan {
            return false;
        }
        self.tried += 1;
        let Some(failure) = play(&plan, Keep::default()).failure.filter(|failure| kind_of(failure) == self.kind) else {
            return false;
        };
        self.plan = plan;
        self.failure = failure;
        true
    }

    fn drop_faults(&mut self) {
        let mut place = self.plan.faults.len();
        while place > 0 {
            place -= 1;
            let mut plan = self.plan.clone();
            plan.faults.remove(place);
            self.takes(plan);
        }
    }

    /// Takes steps out, many at a time at first.
    fn drop_steps(&mut self) {
        let mut size = self.plan.steps.len().div_ceil(2).max(1);
        loop {
            let mut from = 0;
            while from < self.plan.steps.len() {
                let mut plan = self.plan.clone();
                let to = (from + size).min(plan.steps.len());
                plan.steps.drain(from..to);
                if !self.takes(plan) {
                    from = to;
                }
            }
            if size == 1 || self.tried >= self.tries {
                return;
            }
            size = size.div_ceil(2);
        }
    }

    /// Takes settings back to what is usual, and counts to what is little.
    fn lower_settings(&mut self) {
        let usual = Settings::default().rows();
        for (name, value) in self.plan.settings.rows() {
            let usual = usual.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value);
            for simpler in simpler(name, value, usual) {
                let mut plan = self.plan.clone();
                if plan.settings.set(name, simpler) && self.takes(plan) {
                    break;
                }
            }
        }
    }

    /// Ends the work right after the last step or fault.
    fn end_early(&mut self) {
        let steps = self.plan.steps.iter().map(|step| step.at_us);
        let faults = self.plan.faults.iter().filter_map(|fault| match fault.anchor {
            Anchor::At(at_us) => Some(at_us),
            Anchor::Nth { .. } => None,
        });
        let last_ms = steps.chain(faults).max().unwrap_or(0) / 1000;
        for after_ms in [1, 100, 1000, 5000] {
            let mut plan = self.plan.clone();
            plan.settings.work_ms = plan.settings.work_ms.min(last_ms + after_ms);
            if self.takes(plan) {
                return;
            }
        }
    }
}

/// The first words of a failure, without numbers: what was broken, not where.
fn kind_of(failure: &str) -> String {
    let text = match failure.split_once("reason: ") {
        Some((_, reason)) => reason.lines().next().unwrap_or(""),
        None => failure.lines().next().unwrap_or(""),
    };
    let words: String = text.chars().filter(|letter| !letter.is_ascii_digit()).collect();
    words.chars().take(60).collect()
}

/// What is tried in place of a setting's value, the simplest first.
fn simpler(name: &str, value: u64, usual: u64) -> Vec<u64> {
    let is_share = name.ends_with("_permille") || name.ends_with("_ppm");
    match name {
        // Of another seed everything is another; the time of work is made shorter by itself.
        "seed" | "work_ms" => Vec::new(),
        _ if COUNTS.contains(&name) => (1..value.min(4)).collect(),
        _ if is_share && value > 0 => vec![0],
        // What is usual is no line in a schedule.
        _ if !is_share && value != usual => vec![usual],
        _ => Vec::new(),
    }
}

/// Settings that say how many of something there are.
const COUNTS: &[&str] = &["nodes", "topics", "partitions", "groups", "consumers", "producers"];

#[cfg(test)]
mod tests {
    use super::simpler;
    use crate::plan::Settings;

    #[test]
    fn every_setting_but_the_seed_has_something_simpler() {
        let usual = Settings::default();
        for (name, value) in usual.rows() {
            let tried = simpler(name, value + 1, value);
            match name {
                "seed" | "work_ms" => assert!(tried.is_empty()),
                _ => assert!(!tried.is_empty() && !tried.contains(&(value + 1)), "{name}: {tried:?}"),
            }
        }
        assert_eq!(simpler("operations", 2000, 0), [0]);
        assert_eq!(simpler("nodes", 3, 1), [1, 2]);
        assert_eq!(simpler("partitions", 1, 3), [0; 0]);
        assert_eq!(simpler("nack_permille", 0, 80), [0; 0]);
    }
}
