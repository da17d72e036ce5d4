//! Since when the broker may have ended a consumer's session: what a history tells of an end that nobody announced.

use std::collections::VecDeque;

use mortarmq_wire::Outcome;

use super::Subscription;
use crate::engine::effects::Effects;

/// The words by which a consumer keeps its session, and when the last of them was sent that the broker took.
///
/// # Units
/// Nanoseconds of the history's clock; without a history nothing is kept.
#[derive(Debug, Default)]
pub(super) struct Alive {
    /// When those were sent that are not answered, in their order.
    sent: VecDeque<u64>,
    known_ns: u64,
}

impl Alive {
    /// A SUB or a heartbeat is sent.
    pub(super) fn sends(&mut self, now_ns: u64) {
        self.sent.push_back(now_ns);
    }

    /// The oldest of them is answered. When it was sent the session had not ended; when the answer arrived it may have.
    pub(super) fn answered(&mut self, is_taken: bool) {
        if let Some(sent_ns) = self.sent.pop_front()
            && is_taken
        {
            self.known_ns = sent_ns;
        }
    }

    /// What was not answered never is.
    pub(super) fn disconnected(&mut self) {
        self.sent.clear();
    }

    /// The latest moment at which it was certainly there.
    pub(super) const fn known_ns(&self) -> u64 {
        self.known_ns
    }
}

impl Subscription {
    /// A SUB or a heartbeat is sent.
    pub(super) fn asks_to_live(&mut self) {
        if let Some(scribe) = &self.scribe {
            self.alive.sends(scribe.now_ns());
        }
    }

    /// A heartbeat was taken.
    pub(crate) fn heard(&mut self) {
        self.alive.answered(true);
    }

    /// The member is lost, or will be: its session has ended, or ends by itself, at some time since it was last known.
    ///
    /// # Source
    /// docs/reference/history.md: whoever writes operate records writes the end of every consumer, of one whose session was lost as a
    /// `leave` without `ret`.
    pub(super) fn lose_session(&mut self, effects: &mut Effects) {
        if self.identity.take().is_some()
            && let Some(scribe) = &self.scribe
        {
            effects.tell([scribe.left(self.alive.known_ns(), None, Err(Outcome::Unknown))]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Alive;

    #[test]
    fn a_session_is_known_from_when_the_last_word_that_was_taken_was_sent() {
        let mut alive = Alive::default();
        (1..=4).for_each(|now_ns| alive.sends(now_ns));
        alive.answered(true);
        alive.answered(true);
        alive.answered(false);
        assert_eq!(alive.known_ns(), 2);
        alive.disconnected();
        alive.sends(9);
        alive.answered(true);
        assert_eq!(alive.known_ns(), 9);
    }
}
