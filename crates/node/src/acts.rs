//! What operators change: an act is looked up once a read index is confirmed, proposed, and answered when it is applied.

use mortarmq_shard::{Command, Outcome, Refusal, SeekTarget};
use mortarmq_types::{Partition, Position, WallTime};
use mortarmq_wire::ErrorCode;

use crate::config::Now;
use crate::node::Node;
use crate::open_batch::WaiterKind;
use crate::output::{ReadJob, ReadResult};
use crate::queries::{Asked, unknown_topic};
use crate::refusal::{failure, not_leading};
use crate::reply::{Failure, QueryAnswer};
use crate::request::Act;
use crate::views::MovedView;

impl Node {
    /// An operator asks for a change. It is answered like a query, under a number of the same series.
    ///
    /// # Errors
    /// The answer is a refusal when this node does not lead or what is named does not exist; nothing is changed then. It
    /// says `unknown` when the change was proposed and its result is not known here (failure rule 6).
    pub fn handle_act(&mut self, now: Now, query: u64, act: Act) {
        self.turn(now);
        if let Act::HandOver { to } = act {
            return self.begin_hand_over(now, query, to);
        }
        if let Act::Readmit { node } = act {
            return self.begin_readmission(now, query, node);
        }
        match self.refusal_to_serve() {
            None => self.queries.ask(Asked::Act { query, act }),
            Some(failure) => self.reply(query, Err(failure)),
        }
    }

    /// Proposes an act, as the state is now.
    pub(crate) fn propose_act(&mut self, query: u64, act: &Act) {
        if let Act::SeekTime { topic, group, time } = act {
            if let Err(failure) = self.begin_seek(query, topic, group, *time) {
                self.reply(query, Err(failure));
            }
            return;
        }
        if let Act::Letters(asked) = act {
            return self.begin_letters(query, asked);
        }
        if self.propose_change(query, act) {
            return;
        }
        match self.commands_of(act) {
            Err(failure) => self.reply(query, Err(failure)),
            // A topic without groups owes nothing.
            Ok(commands) if commands.is_empty() => self.reply(query, Ok(QueryAnswer::Moved(MovedView::default()))),
            Ok(commands) => self.open.add_all(&commands, WaiterKind::Operator { query }),
        }
    }

    /// The commands of an act: one for each path.
    fn commands_of(&self, act: &Act) -> Result<Vec<Command>, Failure> {
        let state = self.shard.state();
        let name = act.topic().unwrap_or_default();
        let (_, topic) = state.topic_by_name(name).ok_or_else(|| unknown_topic(name))?;
        let path = |group: &str| topic.paths.get(group).copied().ok_or_else(|| unknown_group(name, group));
        match act {
            Act::Purge { group: None, .. } => {
                Ok(topic.paths.values().map(|path| Command::PurgePath { path: *path }).collect())
            }
            Act::Purge { group: Some(group), .. } => Ok(vec![Command::PurgePath { path: path(group)? }]),
            Act::Seek { group, to, .. } => {
                let id = path(group)?;
                check_target(to, topic.partitions.len())?;
                Ok(vec![Command::SeekPath { path: id, target: to.clone() }])
            }
            Act::SeekTime { .. } => unreachable!("its places are read first, see the caller"),
            Act::Letters(_) => unreachable!("they are read first, see the caller"),
            Act::ChangeTopic { .. }
            | Act::ChangeGroup { .. }
            | Act::DeleteTopic { .. }
            | Act::ChangeDefaults { .. } => unreachable!("proposed as a change, see the caller"),
            Act::HandOver { .. } | Act::Readmit { .. } => unreachable!("it is no command, see `handle_act`"),
            Act::DeleteGroup { group, .. } => Ok(vec![Command::DeleteGroup { path: path(group)? }]),
        }
    }

    /// Looks for the messages of a time, off the loop. What is published meanwhile is behind all of them.
    fn begin_seek(&mut self, query: u64, name: &str, group: &str, time: WallTime) -> Result<(), Failure> {
        let state = self.shard.state();
        let (topic, found) = state.topic_by_name(name).ok_or_else(|| unknown_topic(name))?;
        let path = found.paths.get(group).copied().ok_or_else(|| unknown_group(name, group))?;
        let ends = found.partitions.iter().map(|partition| partition.last_seq.next()).collect();
        let ticket = self.read(self.last_ticket, ReadJob::Since { topic, ends, time });
        self.queries.seeking.insert(ticket, (query, path));
        Ok(())
    }

    /// The places of a time were found: the seek is proposed. Says whether this read was one of those.
    pub(crate) fn propose_seek(&mut self, ticket: u64, result: &ReadResult) -> bool {
        let Some((query, path)) = self.queries.seeking.remove(&ticket) else { return false };
        match result {
            _ if !self.leads => self.reply(query, Err(not_leading(self.office.leader))),
            ReadResult::Since(seqs) => {
                let places = seqs.iter().enumerate().map(|(number, seq)| (Partition::from_index(number), *seq));
                let command = Command::SeekPath { path, target: SeekTarget::At(places.collect()) };
                self.open.add_all(&[command], WaiterKind::Operator { query });
            }
            ReadResult::Failed(reason) => self.reply(query, Err(unreadable(reason))),
            ReadResult::Records(_)
            | ReadResult::Index(_)
            | ReadResult::Life { .. }
            | ReadResult::File(_)
            | ReadResult::Stretch(_) => {
                self.reply(query, Err(unreadable("the read was answered with something else")));
            }
        }
        true
    }

    /// The commands of an act are applied; `position` is the last one's.
    pub(crate) fn act_applied(&mut self, query: u64, outcomes: Vec<Outcome>, position: Position) {
        let is_one = outcomes.len() == 1;
        let mut sum = MovedView::default();
        for outcome in outcomes {
            match outcome {
                Outcome::Moved { replayed, dropped, is_partial } => {
                    sum.replayed += replayed;
                    sum.dropped += dropped;
                    sum.is_partial |= is_partial;
                }
                // Of several groups, one that is gone by now owes nothing; a purge is refused for no other reason.
                Outcome::Refused(Refusal::UnknownGroup) if !is_one => {}
                Outcome::Refused(refusal) => return self.reply_at(query, position, Err(failure(&refusal))),
                other => unreachable!("a move is answered by Moved or Refused, not {other:?}"),
            }
        }
        self.reply_at(query, position, Ok(QueryAnswer::Moved(sum)));
    }
}

/// Names the partition before it is proposed: the command would be refused, and its text knows no names.
fn check_target(to: &SeekTarget, count: usize) -> Result<(), Failure> {
    let SeekTarget::At(places) = to else { return Ok(()) };
    let Some((unknown, _)) = places.iter().find(|(partition, _)| partition.index() >= count) else { return Ok(()) };
    let partitions = u16::try_from(count).expect("at most 1024 partitions");
    Err(failure(&Refusal::UnknownPartition { requested: *unknown, partitions }))
}

/// Nothing was proposed, so nothing was moved.
fn unreadable(reason: &str) -> Failure {
    let text = format!("a message of that time cannot be looked for: {reason}; nothing was moved");
    Failure { outcome: mortarmq_wire::Outcome::Refused, ..Failure::new(ErrorCode::Internal, text) }
}

pub(crate) fn unknown_group(topic: &str, group: &str) -> Failure {
    Failure::new(ErrorCode::UnknownGroup, format!("group {group:?} does not exist on {topic:?}"))
}
