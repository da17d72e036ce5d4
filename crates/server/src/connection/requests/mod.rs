//! What each op asks of the node. One file per group of ops; none of them decides anything that the node could decide.

pub(crate) mod consume;
pub(crate) mod publish;
pub(crate) mod settle;
pub(crate) mod topics;

use mortarmq_node::{Failure, Request};
use mortarmq_types::TopicIncarnation;
use mortarmq_wire::ops::Connect;
use mortarmq_wire::{ErrorCode, Op};

use super::session::{Session, Stage};

/// CONNECT. Where there are no tokens any is taken; the place in the order of answers is held by a ping of the node.
pub(crate) fn connect(session: &mut Session, frame_bytes: usize, connect: &Connect<'_>) {
    let op = Op::Connect.number();
    if session.stage != Stage::BeforeConnect {
        let text = "CONNECT comes once on a connection; open another one";
        return session.refuse(op, frame_bytes, Failure::new(ErrorCode::MalformedPayload, text));
    }
    let client_name = connect.client_name.escape_ascii();
    let Some(rights) = session.access.rights_of(connect.token) else {
        tracing::warn!(%client_name, "a client was rejected: its token is none of this node's");
        session.stage = Stage::Rejected;
        return;
    };
    tracing::debug!(%client_name, token = rights.name().unwrap_or_default(), "client connected");
    session.rights = Some(rights);
    if let Some(moving) = &mut session.moving {
        moving.greet(connect);
    }
    session.stage = Stage::Open;
    session.ask(op, frame_bytes, Request::Ping);
}

/// The topic of a handle, or the refusal that says what to do.
fn topic_of(session: &Session, handle: u16) -> Result<TopicIncarnation, Failure> {
    session.handles.topic(handle).ok_or_else(|| {
        let text = format!(
            "topic_id {handle} was not given on this connection; \
             ask with METADATA, or declare the topic: mortarmq topics create NAME"
        );
        Failure::new(ErrorCode::UnknownTopic, text)
    })
}
