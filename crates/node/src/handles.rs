//! The handles of one connection: small numbers that stand for topics and subscriptions.

use mortarmq_types::TopicIncarnation;
use std::collections::BTreeMap;

/// One connection's table. A handle stands for one incarnation for as long as the connection lives.
#[derive(Clone, Debug, Default)]
pub struct Handles {
    by_topic: BTreeMap<TopicIncarnation, u16>,
    topics: Vec<TopicIncarnation>,
    last_subscription: u16,
}

impl Handles {
    /// The handle of a topic, given now if it has none. `None` when all are used up.
    pub fn handle_of(&mut self, topic: TopicIncarnation) -> Option<u16> {
        if let Some(handle) = self.by_topic.get(&topic) {
            return Some(*handle);
        }
        let handle = u16::try_from(self.topics.len() + 1).ok()?;
        self.topics.push(topic);
        self.by_topic.insert(topic, handle);
        Some(handle)
    }

    /// The topic of a handle.
    #[must_use]
    pub fn topic(&self, handle: u16) -> Option<TopicIncarnation> {
        self.topics.get(usize::from(handle).checked_sub(1)?).copied()
    }

    /// The next subscription number. `None` when all are used up.
    pub fn next_subscription(&mut self) -> Option<u16> {
        self.last_subscription = self.last_subscription.checked_add(1)?;
        Some(self.last_subscription)
    }
}

#[cfg(test)]
mod tests {
    use super::Handles;
    use mortarmq_types::TopicIncarnation;

    #[test]
    fn a_handle_stands_for_one_incarnation_for_ever() {
        let mut handles = Handles::default();
        let (first, second) = (TopicIncarnation::new(9), TopicIncarnation::new(4));
        assert_eq!(handles.handle_of(first), Some(1));
        assert_eq!(handles.handle_of(second), Some(2));
        assert_eq!(handles.handle_of(first), Some(1));
        assert_eq!((handles.topic(2), handles.topic(3), handles.topic(0)), (Some(second), None, None));
        assert_eq!((handles.next_subscription(), handles.next_subscription()), (Some(1), Some(2)));
    }
}
