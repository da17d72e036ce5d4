//! What [`Mutant::DedupBeforeCommit`] does: retries are looked up in the state that the proposed batches will make, so a retry
//! of what is under way is told that it is stored. Nobody calls it in a build without planted bugs.
//!
//! [`Mutant::DedupBeforeCommit`]: mortarmq_types::Mutant::DedupBeforeCommit

use bytes::Bytes;
use mortarmq_shard::{BatchBuilder, Outcome, PublishRun, Stamp};
use mortarmq_types::ConnectionId;

use crate::node::Node;
use crate::reply::Answer;

impl Node {
    /// Applies a batch that is proposed, ahead of its commit.
    pub(crate) fn stage(&mut self, data: &Bytes) {
        let mut staged = self.staged.take().unwrap_or_else(|| Box::new(self.shard.clone()));
        // What cannot be read is told where it is committed.
        let _ = staged.apply(data.clone(), self.replica.epoch());
        self.staged = Some(staged);
    }

    /// Answers publishes that are all known there; says whether they were.
    pub(crate) fn answers_staged(&mut self, connection: ConnectionId, slot: u64, run: &PublishRun) -> bool {
        let Some(staged) = self.staged.as_ref().filter(|_| !self.proposed.is_empty()) else { return false };
        let (mut trial, mut builder) = (staged.clone(), BatchBuilder::default());
        builder.add_run(run);
        let stamp = Stamp { time: trial.state().time, ..Stamp::default() };
        let Ok(applied) = trial.apply(builder.close(stamp), self.replica.epoch()) else { return false };
        let mut answers = Vec::with_capacity(applied.outcomes.len());
        for outcome in applied.outcomes {
            match outcome {
                Outcome::Published(published) if published.deduplicated => answers.push(Answer::Published(published)),
                Outcome::PublishedBatch(all) if all.iter().all(|published| published.deduplicated) => {
                    answers.push(Answer::PublishedBatch(all));
                }
                _ => return false,
            }
        }
        for (place, answer) in (slot..).zip(answers) {
            self.answer(connection, place, Ok(answer));
        }
        true
    }
}
