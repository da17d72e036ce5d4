//! SUB, CREDIT, PULL and HEARTBEAT.

use bytes::BytesMut;
use mortarmq_http::Action;
use mortarmq_node::{Failure, Request, Subscribe as NodeSubscribe};
use mortarmq_shard::StartPolicy;
use mortarmq_types::MemberId;
use mortarmq_wire::ops::{
    Credit, CreditMode, ErrorAnswer, Heartbeat, HeartbeatState, Pull, StartPolicy as WireStart, Subscribe,
};
use mortarmq_wire::{ErrorCode, Op};

use super::topic_of;
use super::topics::options_text;
use crate::connection::session::{Session, Subscription};
use crate::random;

/// SUB. Its handle is given here, so that what a client sends behind it in one go can name it.
pub(crate) fn subscribe(session: &mut Session, frame_bytes: usize, subscribe: &Subscribe<'_>) {
    match join(session, subscribe) {
        Ok(join) => session.ask(Op::Subscribe.number(), frame_bytes, Request::Subscribe(join)),
        Err(failure) => session.refuse(Op::Subscribe.number(), frame_bytes, failure),
    }
}

fn join(session: &mut Session, subscribe: &Subscribe<'_>) -> Result<NodeSubscribe, Failure> {
    let topic = topic_of(session, subscribe.topic_id)?;
    session.check_topic(Action::Consume, topic)?;
    if !subscribe.is_shared {
        let text = "type exclusive is not in this version; set bit 0 of SUB's flags (shared)";
        return Err(Failure::new(ErrorCode::InvalidTopic, text));
    }
    let options = options_text(subscribe.options)?;
    let (member, secret) = (MemberId::new(random::bits_63()?), random::bits_63()?);
    let Some(subscription) = session.handles.next_subscription() else {
        let text = "this connection used up its 65535 subscriptions; open another one";
        return Err(Failure::new(ErrorCode::GroupAssignmentLimit, text));
    };
    session.subscriptions.insert(subscription, Subscription { topic, member: None });
    Ok(NodeSubscribe {
        topic,
        group: subscribe.group.to_owned(),
        start: match subscribe.start {
            WireStart::Earliest => StartPolicy::Earliest,
            WireStart::Latest => StartPolicy::Latest,
            // The sequences stand in the options, which the node parses.
            WireStart::FromSequence => StartPolicy::At(Vec::new()),
        },
        credit_messages: subscribe.credit_count,
        credit_bytes: subscribe.credit_bytes,
        options,
        subscription,
        member,
        secret,
    })
}

/// CREDIT.
pub(crate) fn credit(session: &mut Session, frame_bytes: usize, credit: &Credit) {
    let request = Request::Credit {
        subscription: credit.subscription_id,
        add: credit.mode == CreditMode::Add,
        messages: credit.credit_count,
        bytes: credit.credit_bytes,
    };
    session.ask(Op::Credit.number(), frame_bytes, request);
}

/// PULL. It takes no place in the order of answers, so its refusal is written at once.
pub(crate) fn pull(session: &mut Session, pull: &Pull<'_>, out: &mut BytesMut) {
    if let Err(failure) = check_member(session, pull.subscription_id, pull.member_id) {
        let mut answer = ErrorAnswer::new(failure.code, Op::Pull.number(), failure.message.as_bytes());
        answer.subscription_id = pull.subscription_id;
        session.metrics.count_request(Op::Pull, Some(failure.code));
        return answer.encode(out);
    }
    session.ask_unordered(Request::Pull {
        subscription: pull.subscription_id,
        max_messages: pull.max_msgs,
        max_bytes: pull.max_bytes,
        min_bytes: pull.min_bytes,
        wait_ms: pull.wait_ms.min(session.identity.poll_max_wait_ms),
    });
}

/// HEARTBEAT.
pub(crate) fn heartbeat(session: &mut Session, frame_bytes: usize, heartbeat: &Heartbeat) {
    let op = Op::Heartbeat.number();
    if let Err(failure) = check_member(session, heartbeat.subscription_id, heartbeat.member_id) {
        return session.refuse(op, frame_bytes, failure);
    }
    let request =
        Request::Heartbeat { subscription: heartbeat.subscription_id, leave: heartbeat.state == HeartbeatState::Leave };
    session.ask(op, frame_bytes, request);
}

/// A client that names another member than its subscription's is not the one that subscribed.
fn check_member(session: &Session, subscription: u16, named: MemberId) -> Result<(), Failure> {
    let member = session.subscriptions.get(&subscription).and_then(|known| known.member);
    match member {
        Some(member) if member != named => {
            let text = "the member_id is not the one of this subscription; use the one of SUB's OK";
            Err(Failure::new(ErrorCode::UnknownMember, text))
        }
        // Subscriptions that are not there, or have ended, are the node's to judge.
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mortarmq_node::Request;
    use mortarmq_types::{NodeId, TopicIncarnation};
    use mortarmq_wire::ErrorCode;
    use mortarmq_wire::ops::{StartPolicy, Subscribe};

    use super::subscribe;
    use crate::connection::session::{Identity, Session};
    use crate::metrics::Metrics;

    #[test]
    fn rule_9_a_connection_has_at_most_65535_subscriptions() {
        let client_address = ([127, 0, 0, 1], 7188).into();
        let identity = Identity { node_id: NodeId::new(0), client_address, poll_max_wait_ms: 0, is_carried: false };
        let mut session = Session::new(identity, Arc::default(), Arc::new(Metrics::new()));
        session.rights = session.access.rights_of(b"");
        let topic_id = session.handle_of(TopicIncarnation::new(1), "orders").expect("the first");
        let (credit_count, credit_bytes) = (0, Subscribe::GROUP_CREDIT_BYTES);
        let wanted = Subscribe {
            group: "g",
            topic_id,
            start: StartPolicy::Earliest,
            credit_count,
            credit_bytes,
            is_shared: true,
            options: b"",
        };
        let mut refused = Vec::new();
        for number in 1..=65_536_u32 {
            subscribe(&mut session, 0, &wanted);
            if let Some(Request::Refused(failure)) = session.take_requests().pop() {
                refused.push((number, failure.code));
            }
        }
        assert_eq!(refused, [(65_536, ErrorCode::GroupAssignmentLimit)]);
    }
}
