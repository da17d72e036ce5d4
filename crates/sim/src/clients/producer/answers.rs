//! What a producer makes of its answers.

use mortarmq_history::Outcome;
use mortarmq_node::{Answer, ErrorCode, Failure, Reply};
use mortarmq_shard::Published;
use mortarmq_types::Position;

use super::{Confirmed, Identity, REMEMBERED, Sent};
use crate::world::World;

impl World {
    pub(super) fn producer_published(&mut self, number: usize, messages: &[u64], reply: Reply) {
        let position = reply.position;
        match reply.result {
            Ok(Answer::Published(published)) if messages.len() == 1 => {
                self.confirmed(number, messages[0], published, position);
            }
            Ok(Answer::PublishedBatch(all)) if all.len() == messages.len() => {
                for (message, published) in messages.iter().zip(all) {
                    self.confirmed(number, *message, published, position);
                }
            }
            Ok(other) => self.fail(format!("{} publishes were answered with {other:?}", messages.len())),
            Err(failure) => {
                for message in messages {
                    self.refused(number, *message, &failure);
                }
            }
        }
    }

    pub(super) fn confirmed(&mut self, number: usize, message: u64, published: Published, position: Position) {
        let life = self.era();
        self.note_confirmed(position);
        let producer = &mut self.producers[number];
        let Some(place) = producer.open.iter().position(|sent| sent.message == message) else { return };
        let sent = producer.open.remove(place).expect("just found");
        let is_across = published.deduplicated && sent.first_life != life + 1;
        if is_across {
            self.reach_across("dedup hit after a restart", "dedup hit after a failover");
        }
        // A node that forwarded it to a leader which was lost has repeated it; to the same one it never does.
        let was_repeated = is_across && self.has_peers();
        let producer = &mut self.producers[number];
        if published.deduplicated && !sent.may_be_stored && !was_repeated {
            return self.fail(format!("P3: message {message} was sent once and is called a duplicate"));
        }
        let Sent { message, seq, key, times, .. } = sent;
        producer.confirmed.push_back(Confirmed { message, seq, key, times, published });
        if producer.confirmed.len() > REMEMBERED {
            producer.confirmed.pop_front();
        }
        self.record_publish(number, &sent, Some((published, position)), Outcome::Ok);
    }

    pub(super) fn refused(&mut self, number: usize, message: u64, failure: &Failure) {
        let is_unknown = failure.outcome == mortarmq_node::Outcome::Unknown;
        let is_elsewhere = self.sends_elsewhere(failure);
        if is_elsewhere {
            let connection = self.producers[number].connection;
            self.go_elsewhere(connection);
        }
        let producer = &mut self.producers[number];
        let Some(place) = producer.open.iter().position(|sent| sent.message == message) else { return };
        producer.open[place].is_asked = false;
        producer.open[place].may_be_stored |= is_unknown;
        match failure.code {
            ErrorCode::UnknownTopic => {
                producer.incarnation = None;
            }
            // All before it was confirmed, and lately.
            ErrorCode::SeqGap | ErrorCode::SeqExpired if place == 0 => {
                return self
                    .fail(format!("P1, P3: numbers before message {message} are forgotten: {}", failure.message));
            }
            ErrorCode::SeqGap | ErrorCode::Backpressure | ErrorCode::StorageHighWatermark | ErrorCode::QuorumLost => {}
            _ if is_unknown || is_elsewhere => {}
            _ => return self.fail(format!("P3: message {message} of producer {number} was refused: {failure:?}")),
        }
        if failure.code == ErrorCode::StorageHighWatermark {
            self.tally.reach("a publish refused for want of room");
        }
        let outcome = if is_unknown { Outcome::Unknown } else { Outcome::Refused };
        let sent = self.producers[number].open[place].clone();
        self.record_publish(number, &sent, None, outcome);
        let producer = &mut self.producers[number];
        producer.open[place].call = None;
        let is_last = place + 1 == producer.open.len();
        let has_no_number = producer.identity != Identity::Numbered;
        // Some give up: what was refused is never stored (P2). A number that is given up is used for the next message.
        let gives_up = !sent.may_be_stored && (has_no_number || is_last) && producer.chance.one_in(3);
        if gives_up || producer.identity == Identity::Plain {
            producer.open.remove(place);
            if is_last && !has_no_number {
                producer.last_seq = sent.seq - 1;
            }
        }
    }

    pub(super) fn producer_repeated(&mut self, number: usize, message: u64, call: u64, reply: Reply) {
        match reply.result {
            Ok(Answer::Published(published)) => {
                let first = self.producers[number].confirmed.iter().find(|known| known.message == message);
                if let Some(first) = first
                    && (!published.deduplicated
                        || (published.partition, published.seq) != (first.published.partition, first.published.seq))
                {
                    let first = first.published;
                    return self.fail(format!("P3: {message} was stored at {first:?} and then at {published:?}"));
                }
                self.record_repeated(number, message, call, Some((published, reply.position)));
            }
            Ok(other) => self.fail(format!("a publish was answered with {other:?}")),
            Err(failure) => {
                let is_gone = failure.code == ErrorCode::UnknownTopic;
                if is_gone {
                    self.producers[number].incarnation = None;
                }
                let is_elsewhere = self.sends_elsewhere(&failure);
                if is_elsewhere {
                    let connection = self.producers[number].connection;
                    self.go_elsewhere(connection);
                }
                let is_fine = is_gone
                    || is_elsewhere
                    || failure.outcome == mortarmq_node::Outcome::Unknown
                    || matches!(failure.code, ErrorCode::Backpressure | ErrorCode::StorageHighWatermark);
                if !is_fine {
                    self.fail(format!("P3: the repeated message {message} was refused: {failure:?}"));
                }
            }
        }
    }
}
