//! Waiting between attempts, and the randomness of a client.

use std::time::Duration;

use crate::options::ReconnectOptions;

/// Waits that double up to a limit, each drawn between its half and its whole.
#[derive(Debug)]
pub(crate) struct Backoff {
    initial_ms: u64,
    max_ms: u64,
    next_ms: u64,
}

impl Backoff {
    pub(crate) fn new(options: &ReconnectOptions) -> Self {
        let initial_ms = options.initial_ms.max(1);
        Self { initial_ms, max_ms: options.max_ms.max(initial_ms), next_ms: initial_ms }
    }

    /// How long to wait now.
    pub(crate) fn next_wait(&mut self) -> Duration {
        let whole_ms = self.next_ms;
        self.next_ms = whole_ms.saturating_mul(2).min(self.max_ms);
        let half_ms = whole_ms / 2;
        Duration::from_millis(half_ms + random_u64() % (whole_ms - half_ms + 1))
    }

    /// Begins from the first wait again, after a success.
    pub(crate) const fn reset(&mut self) {
        self.next_ms = self.initial_ms;
    }
}

/// A producer's identity: 63 random bits, never 0, which would mean "not idempotent".
pub(crate) fn random_producer_id() -> u64 {
    (random_u64() >> 1).max(1)
}

/// # Panics
/// When the operating system gives no random bytes: an identity that might be somebody else's could lose messages.
fn random_u64() -> u64 {
    getrandom::u64().expect("the operating system gives random bytes")
}

#[cfg(test)]
mod tests {
    use super::{Backoff, random_producer_id};
    use crate::options::ReconnectOptions;

    #[test]
    fn waits_double_up_to_the_limit_and_start_again_after_a_success() {
        let mut backoff = Backoff::new(&ReconnectOptions { initial_ms: 100, max_ms: 350, give_up_after: None });
        for whole_ms in [100, 200, 350, 350] {
            let wait_ms = backoff.next_wait().as_millis();
            assert!((whole_ms / 2..=whole_ms).contains(&wait_ms), "{wait_ms} of {whole_ms}");
        }
        backoff.reset();
        assert!(backoff.next_wait().as_millis() <= 100);
    }

    #[test]
    fn producer_ids_have_63_bits_and_are_never_0() {
        assert!((0..1000).all(|_| (1..1 << 63).contains(&random_producer_id())));
    }
}
