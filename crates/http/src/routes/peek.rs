//! `GET /v1/topics/{topic}/peek[?partition=&from=&max=]`: messages, without leasing any.
//!
//! An answer may hold fewer messages than `max` although more are there; a reader goes on behind the last sequence until
//! an answer holds none.

use axum::extract::State;
use axum::http::StatusCode;
use mortarmq_node::views::PeekView;
use mortarmq_node::{Query, QueryAnswer};
use mortarmq_types::{Partition, Seq};

use crate::answer::{Answer, ask, json_line};
use crate::handle::NodeHandle;
use crate::parameters::{Parameters, Segments};
use crate::payload::write_message;
use crate::refusal::Refusal;

const MESSAGES_DEFAULT: u64 = 100;
const MESSAGES_MAX: u64 = 1000;
/// An answer that holds so much takes no further message: a peek must not cost the memory of a thousand large ones.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

pub(crate) async fn answer<H: NodeHandle>(
    State(node): State<H>,
    Segments(topic): Segments<String>,
    parameters: Parameters,
) -> Answer {
    let partition = parameters.number("partition", 0..=u64::from(u16::MAX))?.unwrap_or(0);
    let from = parameters.number("from", 1..=u64::MAX)?.unwrap_or(1);
    let max = parameters.number("max", 1..=MESSAGES_MAX)?.unwrap_or(MESSAGES_DEFAULT);
    let question = Query::Peek {
        topic,
        partition: Partition::new(u16::try_from(partition).expect("the range ends at 16 bits")),
        from: Seq::new(from),
        max: u32::try_from(max).expect("at most MESSAGES_MAX"),
    };
    let QueryAnswer::Peek(view) = ask(&node, question).await? else {
        return Err(Refusal::other_answer());
    };
    Ok(json_line(StatusCode::OK, messages(&view)))
}

fn messages(view: &PeekView) -> Vec<u8> {
    let mut line = br#"{"messages":["#.to_vec();
    for (number, message) in view.messages.iter().enumerate() {
        if line.len() > ANSWER_BYTES_MAX {
            break;
        }
        if number > 0 {
            line.push(b',');
        }
        write_message(&mut line, &view.topic, message);
    }
    line.extend_from_slice(b"]}");
    line
}
