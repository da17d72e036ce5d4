//! Dead letters with what is known of them: `GET /v1/topics/{topic}/dlq`.

use mortarmq_shard::dead_letter::DEAD_LETTER_GROUP;
use mortarmq_shard::{Path, State};
use mortarmq_types::{Seq, TopicIncarnation};

use super::peek::PeekedMessage;
use super::trace::standing_of;

/// The dead letters found in one partition, from the first sequence asked for on.
#[derive(Clone, Debug)]
pub struct DeadLettersView {
    /// The dead-letter topic's name.
    pub topic: String,
    /// The dead letters, ascending.
    pub letters: Vec<DeadLetterView>,
}

/// One dead letter.
#[derive(Clone, Debug)]
pub struct DeadLetterView {
    /// The path it died on: `topic/group`.
    pub origin_path: String,
    /// Its partition there.
    pub origin_partition: u16,
    /// Its sequence there.
    pub origin_sequence: u64,
    /// Attempts made.
    pub attempts: u32,
    /// The cause that ended the last one, or `rejected`.
    pub reason: String,
    /// What its consumer said; empty if it said nothing.
    pub error: String,
    /// Where it stands in the dead-letter topic's own book: the words of a trace, but `settled` for every settled one.
    pub standing: &'static str,
    /// Itself, in the dead-letter topic.
    pub message: PeekedMessage,
}

/// Dead letters that were read, with their standing now.
pub(crate) fn view(
    state: &State,
    topic: TopicIncarnation,
    name: String,
    messages: Vec<PeekedMessage>,
) -> DeadLettersView {
    let topic = state.topics.get(&topic);
    let path = topic.and_then(|topic| state.paths.get(topic.paths.get(DEAD_LETTER_GROUP)?));
    DeadLettersView { topic: name, letters: messages.into_iter().map(|message| letter(path, message)).collect() }
}

fn letter(path: Option<&Path>, message: PeekedMessage) -> DeadLetterView {
    // The last of a name is the broker's: a message may have died, been published again by a client, and died again.
    let header = |name: &str| {
        let found = message.headers.iter().rev().find(|(found, _)| found == name.as_bytes());
        found.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
    };
    let seq = Seq::new(message.sequence);
    let partition = path.map(|path| &path.partitions[usize::from(message.partition)]);
    DeadLetterView {
        origin_path: header("mortarmq-dlq-path"),
        origin_partition: header("mortarmq-dlq-partition").parse().unwrap_or_default(),
        origin_sequence: header("mortarmq-dlq-sequence").parse().unwrap_or_default(),
        attempts: header("mortarmq-dlq-attempts").parse().unwrap_or_default(),
        reason: header("mortarmq-dlq-reason"),
        error: header("mortarmq-dlq-error"),
        standing: match partition.map_or("pending", |partition| standing_of(partition, seq, None)) {
            // Acked, redriven or purged: only its history tells, which is not read for a list.
            "acked" => "settled",
            standing => standing,
        },
        message,
    }
}
