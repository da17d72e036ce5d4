//! DECLARE and METADATA.

use mortarmq_http::Action;
use mortarmq_node::{Failure, Request};
use mortarmq_wire::ops::{Declare, Metadata};
use mortarmq_wire::{DecodeError, ErrorCode, Op};

use crate::connection::expected::ALONE_BYTES;
use crate::connection::intake::failure_of;
use crate::connection::session::Session;

/// DECLARE, of both kinds.
pub(crate) fn declare(session: &mut Session, frame_bytes: usize, declare: &Declare<'_>) {
    let op = Op::Declare.number();
    let name = declare.topic.to_owned();
    let action = if declare.delete { Action::Admin } else { Action::Create };
    if let Err(failure) = session.check(action, &name) {
        return session.refuse(op, frame_bytes, failure);
    }
    if declare.delete {
        return session.ask(op, frame_bytes, Request::Delete { name });
    }
    match options_text(declare.options) {
        Ok(options) => {
            session.ask(op, frame_bytes, Request::Declare { name, partitions: declare.partition_count, options });
        }
        Err(failure) => session.refuse(op, frame_bytes, failure),
    }
}

/// METADATA.
pub(crate) fn metadata(session: &mut Session, frame_bytes: usize, metadata: &Metadata<'_>) {
    // Bytes that are no text become a name that no topic has: dropped, they could turn a question for one into one for
    // all.
    if metadata.topics.len() > NAMES_MAX {
        let text = format!("METADATA takes at most {NAMES_MAX} names; ask for fewer, or for all with none");
        return session.refuse(Op::Metadata.number(), frame_bytes, Failure::new(ErrorCode::TooLarge, text));
    }
    let names = metadata.topics.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    // Thousands of topics make an answer a hundred thousand times as long as its question: a connection has one at a time.
    session.ask(Op::Metadata.number(), frame_bytes + ALONE_BYTES, Request::Metadata { names });
}

/// Options are JSON, so they are text; the node parses them.
pub(super) fn options_text(options: &[u8]) -> Result<String, Failure> {
    if options.len() > OPTIONS_MAX_BYTES {
        let (limit, found) = (OPTIONS_MAX_BYTES, options.len());
        return Err(failure_of(&DecodeError::TooLarge { field: "options in bytes", limit, found }));
    }
    let text = std::str::from_utf8(options).map_err(|_| failure_of(&DecodeError::NotText { field: "options" }))?;
    Ok(text.to_owned())
}

/// The shard's loop parses options, so they are kept short: every setting and the held deliveries of a resume fit well.
const OPTIONS_MAX_BYTES: usize = 256 << 10;
/// The shard's loop looks every name up, so a client cannot hold it up with one request.
const NAMES_MAX: usize = 1024;
