//! The groups of a life: few of them, with small limits, so that all of them are met. None has a limit of attempts: every
//! message is owed until it is acked, or until its consumer says that it is dead and nobody redrives it.

use crate::random::Random;

/// What a group is made with.
#[derive(Clone, Debug)]
pub(crate) struct GroupOptions {
    pub(crate) name: String,
    pub(crate) by_key: bool,
    pub(crate) lease_ms: u64,
    pub(crate) session_ms: u64,
    pub(crate) from_earliest: bool,
    /// Whether nobody ever gave it another order.
    pub(crate) keeps_order: bool,
    pub(crate) json: String,
}

impl GroupOptions {
    pub(crate) fn random(random: &mut Random, number: u64) -> Self {
        let by_key = number == 0 || random.one_in(2);
        let lease_ms = random.between(1000, 5000);
        let session_ms = random.between(1000, 4000);
        let max_passed_over = if random.one_in(2) { random.between(1, 12) } else { 65_536 };
        let max_in_flight = if random.one_in(3) { random.between(1, 6) } else { 0 };
        let from_earliest = number != 1 || random.one_in(2);
        let backoff_ms = *random.pick(&[0, 20, 300]);
        let order = if by_key { "key" } else { "none" };
        let start = if from_earliest { "earliest" } else { "latest" };
        let json = format!(
            "{{\"max_attempts\":0,\"order\":\"{order}\",\"lease_ms\":{lease_ms},\"session_ms\":{session_ms},\
             \"max_passed_over\":{max_passed_over},\"max_in_flight\":{max_in_flight},\
             \"retry_backoff_base_ms\":{backoff_ms},\"retry_backoff_max_ms\":1500,\"start\":\"{start}\"}}"
        );
        Self { name: format!("group-{number}"), by_key, lease_ms, session_ms, from_earliest, keeps_order: true, json }
    }

    /// What a join compares no more, as it may be another by now.
    pub(crate) fn forget(&mut self, key: &str) {
        let mut values: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(&self.json).expect("it was made here");
        values.remove(key);
        self.json = serde_json::to_string(&values).expect("it was read from text");
    }

    /// A group without small limits, for a flood.
    pub(crate) fn unlimited(random: &mut Random) -> Self {
        let (lease_ms, session_ms) = (30_000, random.between(1000, 3000));
        let json = format!(
            "{{\"max_attempts\":0,\"order\":\"none\",\"session_ms\":{session_ms},\"retry_backoff_base_ms\":100}}"
        );
        Self {
            name: "flooded".to_owned(),
            by_key: false,
            lease_ms,
            session_ms,
            from_earliest: true,
            keeps_order: true,
            json,
        }
    }
}
