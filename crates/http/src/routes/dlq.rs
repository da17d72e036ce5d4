//! `GET /v1/topics/{topic}/dlq[?partition=&from=&max=]`: dead letters of a topic, with what is known of them.
//!
//! Settled ones are told too, with their standing. An answer may hold fewer than `max` although more are there; a reader
//! goes on behind the last sequence until an answer holds none.

use axum::extract::State;
use axum::http::StatusCode;
use mortarmq_node::views::{DeadLetterView, DeadLettersView};
use mortarmq_node::{Query, QueryAnswer};
use mortarmq_types::{Partition, Seq};
use serde::Serialize;

use crate::answer::{Answer, ask, json_line};
use crate::handle::NodeHandle;
use crate::parameters::{Parameters, Segments};
use crate::payload::write_message;
use crate::refusal::Refusal;

const LETTERS_DEFAULT: u64 = 100;
const LETTERS_MAX: u64 = 1000;
/// An answer that holds so much takes no further dead letter.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What is told of a dead letter beside the message itself.
#[derive(Serialize)]
struct Told<'a> {
    reason: &'a str,
    attempts: u32,
    origin: Origin<'a>,
    error: &'a str,
    standing: &'a str,
}

#[derive(Serialize)]
struct Origin<'a> {
    path: &'a str,
    partition: u16,
    sequence: u64,
}

pub(crate) async fn answer<H: NodeHandle>(
    State(node): State<H>,
    Segments(topic): Segments<String>,
    parameters: Parameters,
) -> Answer {
    let partition = parameters.number("partition", 0..=u64::from(u16::MAX))?.unwrap_or(0);
    let from = parameters.number("from", 1..=u64::MAX)?.unwrap_or(1);
    let max = parameters.number("max", 1..=LETTERS_MAX)?.unwrap_or(LETTERS_DEFAULT);
    let question = Query::DeadLetters {
        topic,
        partition: Partition::new(u16::try_from(partition).expect("the range ends at 16 bits")),
        from: Seq::new(from),
        max: u32::try_from(max).expect("at most LETTERS_MAX"),
    };
    let QueryAnswer::DeadLetters(view) = ask(&node, question).await? else {
        return Err(Refusal::other_answer());
    };
    Ok(json_line(StatusCode::OK, letters(&view)))
}

fn letters(view: &DeadLettersView) -> Vec<u8> {
    let mut line = br#"{"dead_letters":["#.to_vec();
    for (number, letter) in view.letters.iter().enumerate() {
        if line.len() > ANSWER_BYTES_MAX {
            break;
        }
        if number > 0 {
            line.push(b',');
        }
        write_letter(&mut line, &view.topic, letter);
    }
    line.extend_from_slice(b"]}");
    line
}

fn write_letter(out: &mut Vec<u8>, topic: &str, letter: &DeadLetterView) {
    let origin =
        Origin { path: &letter.origin_path, partition: letter.origin_partition, sequence: letter.origin_sequence };
    let (reason, error, standing) = (&letter.reason, &letter.error, letter.standing);
    let told = Told { reason, attempts: letter.attempts, origin, error, standing };
    let mut json = serde_json::to_vec(&told).expect("numbers and strings are always JSON");
    // The message is written by hand, for its exact bytes; it becomes the last field.
    json.pop();
    out.extend_from_slice(&json);
    out.extend_from_slice(br#","message":"#);
    write_message(out, topic, &letter.message);
    out.push(b'}');
}
