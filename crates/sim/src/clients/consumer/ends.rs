//! How a member ends: it leaves, dies, is told that it is over, or its node serves it no more.

use mortarmq_history::Outcome;
use mortarmq_node::{ErrorCode, Failure, Request};
use mortarmq_types::TopicIncarnation;

use super::{Expect, SUBSCRIPTION};
use crate::world::World;

impl World {
    /// Nobody knows whether a member was made; it is never heard of again.
    pub(super) fn joined_in_vain(&mut self, number: usize, topic: Option<TopicIncarnation>) {
        let Some(topic) = topic else { return };
        let call = self.consumers[number].joined_call_ns;
        self.record_left_of(number, topic, call, None);
        self.be_another(number);
    }

    /// The member is over, and the consumer another one.
    pub(super) fn be_another(&mut self, number: usize) {
        let consumer = &mut self.consumers[number];
        consumer.member = None;
        consumer.is_joined = false;
        consumer.member_number += 1;
        consumer.held.clear();
        consumer.plans.clear();
        consumer.unanswered.clear();
        consumer.forgotten_pulls += u64::from(std::mem::take(&mut consumer.pull_is_open));
    }

    /// A consumer dies with what it holds.
    pub(crate) fn die(&mut self, number: usize) {
        let Some(connection) = self.consumers.get(number).and_then(|consumer| consumer.connection) else { return };
        let now_ns = self.now_ns();
        let expects = std::mem::take(&mut self.consumers[number].expects);
        for expect in expects {
            match expect {
                Expect::Settled(said) => {
                    for said in said {
                        self.record_settle(number, &said, None, Outcome::Unknown, None);
                    }
                }
                Expect::Left { call } => self.record_left(number, call, None),
                Expect::Joined { is_resume: false } => {
                    let topic = self.consumers[number].incarnation;
                    self.joined_in_vain(number, topic);
                }
                Expect::Found | Expect::Joined { is_resume: true } | Expect::Heartbeat { .. } => {}
            }
        }
        self.record_left(number, now_ns, None);
        self.be_another(number);
        self.break_link(connection);
    }

    /// A consumer leaves, and may take the number of its subscription again in the same breath.
    pub(crate) fn leave(&mut self, number: usize, is_back_at_once: bool) {
        let now_ns = self.now_ns();
        let Some(consumer) = self.consumers.get_mut(number).filter(|consumer| consumer.is_joined) else { return };
        let Some(connection) = consumer.connection else { return };
        consumer.is_joined = false;
        consumer.plans.clear();
        consumer.expects.push_back(Expect::Left { call: now_ns });
        self.send(connection, vec![Request::Heartbeat { subscription: SUBSCRIPTION, leave: true }]);
        if is_back_at_once {
            self.join_as(number, None);
        }
    }

    /// Leaves the node if that does not serve its member any more; says whether it did. Of several nodes, one whose office has
    /// ended knows nothing of its connections' members: they resume.
    pub(super) fn leave_if_not_served(&mut self, number: usize, failure: &Failure) -> Option<()> {
        let is_unknown = failure.code == ErrorCode::UnknownMember;
        if self.sends_elsewhere(failure) || (is_unknown && self.has_peers()) {
            let connection = self.consumers[number].connection;
            self.go_elsewhere(connection);
            return Some(());
        }
        is_unknown.then(|| self.member_is_gone(number))
    }

    /// Its session is over: it joins as another one.
    pub(super) fn member_is_gone(&mut self, number: usize) {
        if self.consumers[number].expects.iter().any(|expect| matches!(expect, Expect::Left { .. })) {
            // It is leaving, which is answered by itself.
            return;
        }
        if self.consumers[number].member.is_some() {
            self.tally.reach("session over");
            let heard_ns = self.consumers[number].heard_ns;
            self.expect_over(number);
            self.record_left(number, heard_ns, None);
            self.be_another(number);
        }
        self.find_later(number);
    }

    /// A session that is over has lasted its time since the node last answered its member, unless its topic is gone.
    pub(super) fn expect_over(&mut self, number: usize) {
        let consumer = &self.consumers[number];
        let (Some(_), Some(member)) = (consumer.group, consumer.member) else { return };
        let topic = self.topics.get(consumer.topic);
        let may_be_over = self.topics.incarnation(member.topic).is_none_or(|known| known.may_end);
        if topic.current != Some(member.topic) || may_be_over {
            return;
        }
        let end_ns = self.session_end_ns(number);
        if let Some(early_ns) = end_ns.checked_sub(self.now_ns()).filter(|early_ns| *early_ns > 0) {
            self.fail(format!("P7: the session of consumer {number} is over {} us too early", early_ns / 1000));
        }
    }

    /// Until when a member's session lasts at least: its time since the node last answered it.
    pub(super) fn session_end_ns(&self, number: usize) -> u64 {
        self.consumers[number].heard_ns + self.session_ms(number) * 1_000_000
    }

    /// A member that is silent to the end of the life is never told that its session is over, and another may have been given
    /// what it held: so the history says it, from the moment on at which the session has lasted its time.
    pub(crate) fn record_silent_members(&mut self) {
        for number in 0..self.consumers.len() {
            let end_ns = self.session_end_ns(number);
            if end_ns <= self.now_ns() {
                self.record_left(number, end_ns, None);
            }
        }
    }
}
