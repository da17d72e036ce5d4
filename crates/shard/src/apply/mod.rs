//! Apply: a pure function of the state and one committed batch. One file per command; here is only the order.
//!
//! First the stamp moves the clock and ends what is due (a bounded number per batch, the rest in the next; every use
//! checks its own deadline too), then the commands run. Any command that decodes applies without panic.

mod alone;
mod change_defaults;
mod change_group;
mod change_topic;
mod create_topic;
mod dead_letter;
mod delayed;
mod delete_group;
mod delete_topic;
mod deliver;
mod drop_dead;
mod due;
mod end_member;
mod ends;
mod join_group;
mod moves;
mod publish;
mod pull_again;
mod purge_path;
mod record;
mod redrive;
mod resume_member;
mod room;
mod seek_path;
mod set_defaults;
mod settle;
mod trim;

use crate::command::{Batch, Command, CommandError, STEPS_MAX, Stamp};
use crate::effect::Effect;
use crate::outcome::Outcome;
use crate::state::State;
use crate::state::paths::Gone;
use bytes::Bytes;
use mortarmq_types::{CommitIndex, Epoch, TopicIncarnation};

/// The state machine. A driver calls [`Shard::apply`] with each committed batch, in order, and nothing else.
#[derive(Clone, Debug, Default)]
pub struct Shard {
    state: State,
}

/// What one batch did.
#[derive(Debug, Default)]
pub struct Applied {
    /// The commit index of the first outcome's command; the others follow one by one.
    pub first_index: CommitIndex,
    /// One outcome per command, in order.
    pub outcomes: Vec<Outcome>,
    /// What the driver has to do, in order.
    pub effects: Vec<Effect>,
    /// Members and paths that were deleted with their topic, and are gone from memory now. When that is, is no part of the
    /// state: another replica may say it at another time.
    pub gone: Vec<Gone>,
    /// The batch's stamp as it took effect.
    pub stamp: Stamp,
}

impl Shard {
    /// A shard that goes on from this state.
    pub(crate) fn of(state: State) -> Self {
        Self { state }
    }

    /// What the shard knows.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Applies one batch.
    ///
    /// # Errors
    /// When the bytes are not a batch of commands known to this build. The driver must stop: the log was written by
    /// another version, and going on without the command would make this replica differ (P11).
    pub fn apply(&mut self, batch: Bytes, epoch: Epoch) -> Result<Applied, CommandError> {
        let mut batch = Batch::open(batch)?;
        let mut applied = Applied { first_index: self.state.commit_index.next(), ..Applied::default() };
        applied.outcomes.reserve((batch.left as usize).min(64 * 1024));
        applied.stamp = due::advance(&mut self.state, batch.stamp);
        let newest = self.state.last_topic;
        due::end_due(&mut self.state, &mut applied.effects);
        self.free_for_topics(newest, &mut applied.gone);
        while let Some(command) = batch.next_command()? {
            // Together: a batch without commands takes no index, so it leaves the term of the last one as it is.
            self.state.commit_index = self.state.commit_index.next();
            self.state.epoch = epoch.max(self.state.epoch);
            if self.has_remains() {
                // What is deleted goes at least as fast as anything can be made in its place (failure rule 9).
                self.state.free(&mut command.pieces_max(), &mut applied.gone);
            }
            let newest = self.state.last_topic;
            let outcome = run(&mut self.state, command, &mut applied.effects);
            self.free_for_topics(newest, &mut applied.gone);
            applied.outcomes.push(outcome);
        }
        trim::let_unpinned_go(&mut self.state, &mut applied.effects);
        self.free(&mut applied.gone);
        Ok(applied)
    }

    /// Whether something of deleted topics is still in memory: [`Self::give_back`] gives it back.
    #[must_use]
    pub fn has_remains(&self) -> bool {
        self.state.paths.has_remains()
    }

    /// Gives back memory of deleted topics, in at most [`STEPS_MAX`] steps, and says of which paths and members nothing is
    /// left. Every batch does as much by itself, and every command in it as much as it may make; this is for a driver that has nothing to apply.
    ///
    /// [`STEPS_MAX`]: crate::command::STEPS_MAX
    pub fn give_back(&mut self) -> Vec<Gone> {
        let mut gone = Vec::new();
        self.free(&mut gone);
        gone
    }

    fn free(&mut self, gone: &mut Vec<Gone>) {
        self.state.free(&mut (STEPS_MAX as usize), gone);
    }

    /// Gives back as much as the topics take that were made since, for commands or for dead letters: their partitions, and those
    /// of the group that holds dead letters.
    fn free_for_topics(&mut self, newest: TopicIncarnation, gone: &mut Vec<Gone>) {
        if self.state.last_topic == newest || !self.has_remains() {
            return;
        }
        let made = self.state.topics.range(newest.next()..);
        let mut pieces = made.map(|(_, topic)| 2 * topic.partitions.len() + 4).sum();
        self.state.free(&mut pieces, gone);
    }

    /// Asserts every numbered invariant of the state.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self) {
        self.state.check();
    }
}

fn run(state: &mut State, command: Command, effects: &mut Vec<Effect>) -> Outcome {
    match command {
        Command::SetDefaults(defaults) => set_defaults::apply(state, defaults, effects),
        Command::CreateTopic(create) => create_topic::apply(state, create),
        Command::DeleteTopic { name } => delete_topic::apply(state, &name, effects),
        Command::Publish(publish) => publish::apply(state, publish, effects),
        Command::PublishBatch(batch) => publish::apply_batch(state, batch, effects),
        Command::JoinGroup(join) => join_group::apply(state, join),
        Command::EndMember(end) => end_member::apply(state, end, effects),
        Command::Deliver(deliver) => deliver::apply(state, &deliver, effects),
        Command::Settle(settle) => settle::apply(state, settle, effects),
        Command::PurgePath { path } => purge_path::apply(state, path, effects),
        Command::SeekPath { path, target } => seek_path::apply(state, path, &target, effects),
        Command::DeleteGroup { path } => delete_group::apply(state, path, effects),
        Command::ResumeMember(resume) => resume_member::apply(state, &resume),
        Command::Trim(trim) => trim::apply(state, trim, effects),
        Command::Redrive(redrive) => redrive::apply(state, &redrive, effects),
        Command::DropDead(drop) => drop_dead::apply(state, &drop, effects),
        Command::ChangeTopic(change) => change_topic::apply(state, &change),
        Command::ChangeGroup(change) => change_group::apply(state, &change, effects),
        Command::ChangeDefaults(patch) => change_defaults::apply(state, &patch, effects),
    }
}

#[cfg(test)]
mod tests;
