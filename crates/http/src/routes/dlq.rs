//! `GET /v1/topics/{topic}/dlq[?partition=&from=&max=]`: dead letters of a topic, with what is known of them.
//!
//! Settled ones are told too, with their standing. An answer may hold fewer than `max` although more are there; a reader
//! goes on behind the last sequence until an answer holds none.

use axum::extract::State;
use mortarmq_node::views::DeadLetterView;
use mortarmq_node::{Query, QueryAnswer};
use serde::Serialize;

use crate::answer::{Answer, ask};
use crate::handle::NodeHandle;
use crate::page::{Page, list};
use crate::parameters::{Parameters, Segments};
use crate::payload::write_message;
use crate::refusal::Refusal;

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
    let Page { partition, from, max } = Page::of(&parameters)?;
    let (mark, QueryAnswer::DeadLetters(view)) = ask(&node, Query::DeadLetters { topic, partition, from, max }).await?
    else {
        return Err(Refusal::other_answer());
    };
    let letters = list("dead_letters", &view.letters, |out, letter| write_letter(out, &view.topic, letter));
    Ok(mark.json_line(letters))
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
