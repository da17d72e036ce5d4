//! How long a message waits before it is delivered again.

use mortarmq_types::{DeliveryId, Seq};

use crate::rules::PathRules;

/// The wait before attempt `attempt` of a message whose delivery `ended` failed.
///
/// `min(max, base · 2^(attempt − 2)) · (0.5 + h/2)`, with h in [0, 1) from a hash of the sequence and the delivery: spread,
/// so that what failed together does not return together, yet equal on every replica. Rounded down.
///
/// # Units
/// Milliseconds.
pub(crate) fn backoff_ms(rules: &PathRules, attempt: u32, seq: Seq, ended: DeliveryId) -> u64 {
    let full_ms = doubled(rules.backoff_base_ms, attempt.saturating_sub(2)).min(rules.backoff_max_ms);
    let spread = mix(seq.get() ^ mix(ended.get())) >> 32;
    // h = spread / 2^32, so 0.5 + h/2 = (2^32 + spread) / 2^33; below 1, so the product fits the type it came from.
    let scaled = (u128::from(full_ms) * u128::from((1_u64 << 32) + spread)) >> 33;
    u64::try_from(scaled).unwrap_or(full_ms)
}

/// `base · 2^doublings`, at most the largest number.
const fn doubled(base: u64, doublings: u32) -> u64 {
    if base == 0 {
        0
    } else if doublings > base.leading_zeros() {
        u64::MAX
    } else {
        base << doublings
    }
}

/// One step of SplitMix64 (Steele, Lea and Flood, 2014): every input bit changes half of the output bits.
const fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::{backoff_ms, doubled, mix};
    use crate::rules::{Order, PathRules};
    use mortarmq_types::{DeliveryId, Seq};

    fn rules(base: u64, max: u64) -> PathRules {
        PathRules {
            order: Order::Key,
            lease_ms: 1,
            backoff_base_ms: base,
            backoff_max_ms: max,
            max_passed_over: 1,
            max_acked_ahead: 0,
            max_in_flight: 0,
            max_attempts: 0,
        }
    }

    #[test]
    fn mix_is_splitmix64() {
        // The first outputs of the published generator for seed 0.
        assert_eq!(mix(0), 0xE220_A839_7B1D_CDAF);
        assert_eq!(mix(0x9E37_79B9_7F4A_7C15), 0x6E78_9E6A_A1B9_65F4);
    }

    #[test]
    fn backoff_doubles_up_to_its_limit_and_spreads_over_half_of_it() {
        for (attempt, full) in [(0, 1000), (1, 1000), (2, 1000), (3, 2000), (6, 16000), (7, 30000), (u32::MAX, 30000)] {
            let waits: Vec<u64> = (0..2000)
                .map(|n| backoff_ms(&rules(1000, 30000), attempt, Seq::new(n), DeliveryId::new(n * 7)))
                .collect();
            let (lowest, highest) = (*waits.iter().min().unwrap(), *waits.iter().max().unwrap());
            assert!(lowest >= full / 2 && highest < full, "attempt {attempt}: {lowest}..={highest} of {full}");
            assert!(lowest < full * 52 / 100 && highest > full * 98 / 100, "attempt {attempt} is not spread");
        }
    }

    #[test]
    fn backoff_is_the_same_on_every_replica_and_in_every_version() {
        // Frozen: a changed value would make an upgraded replica differ from one that is not upgraded yet.
        let waits: Vec<u64> =
            (1..5).map(|n| backoff_ms(&rules(1000, 30000), 2, Seq::new(n), DeliveryId::new(10 + n))).collect();
        assert_eq!(waits, [522, 959, 569, 849]);
    }

    #[test]
    fn backoff_of_base_or_limit_zero_is_none_and_extremes_do_not_overflow() {
        assert_eq!(backoff_ms(&rules(0, 30000), 9, Seq::new(3), DeliveryId::new(3)), 0);
        assert_eq!(backoff_ms(&rules(1000, 0), 9, Seq::new(3), DeliveryId::new(3)), 0);
        let most = backoff_ms(&rules(u64::MAX, u64::MAX), u32::MAX, Seq::MAX, DeliveryId::MAX);
        assert!(most >= u64::MAX / 2);
        assert_eq!(doubled(1, 63), 1 << 63);
        assert_eq!(doubled(1, 64), u64::MAX);
        assert_eq!(doubled(3, 62), 3 << 62);
        assert_eq!(doubled(3, 63), u64::MAX);
    }
}
