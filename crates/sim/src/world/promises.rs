//! What a node told the others, which it never forgets: its vote, and how far it holds the log.

use mortarmq_replica::Promise;

use super::World;

/// The latest vote and the furthest acknowledgement of a node's highest epoch.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    vote: Option<Promise>,
    log: Option<Promise>,
}

impl Promises {
    /// Notes what the node says; returns what it said before, if that is broken by it.
    fn note(&mut self, promise: Promise) -> Option<Promise> {
        let epoch = self.all().map(|kept| kept.epoch()).max().unwrap_or_default();
        if promise.epoch() > epoch {
            *self = Self::default();
        } else if promise.epoch() < epoch {
            // It left the node before that epoch began.
            return None;
        }
        match promise {
            Promise::Vote { .. } => self.vote.replace(promise).filter(|before| *before != promise),
            Promise::Log { log_index, .. } => {
                let is_further =
                    |before: Promise| matches!(before, Promise::Log { log_index: held, .. } if held >= log_index);
                if !self.log.is_some_and(is_further) {
                    self.log = Some(promise);
                }
                None
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = Promise> {
        self.vote.into_iter().chain(self.log)
    }
}

impl World {
    /// A node promises something to another.
    pub(super) fn note_promise(&mut self, node: usize, promise: Promise) {
        if let Some(before) = self.nodes[node].promises.note(promise) {
            self.fail(format!("P1: node {} promised {before:?} and now says {promise:?}", node + 1));
        }
    }

    /// A node that starts keeps all that it promised in the lives before.
    pub(super) fn look_at_promises(&mut self, node: usize) {
        let machine = &self.nodes[node];
        let Some(process) = &machine.process else { return };
        let forgotten = machine.promises.all().find(|promise| !process.node.keeps(*promise));
        if let Some(promise) = forgotten {
            self.fail(format!("P1: node {} has forgotten what it promised: {promise:?}", node + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use mortarmq_types::Epoch;

    use super::*;

    #[test]
    fn a_second_vote_in_one_epoch_breaks_the_first() {
        let vote = |epoch, candidate| Promise::Vote { epoch: Epoch::new(epoch), candidate };
        let mut promises = Promises::default();
        assert_eq!(promises.note(vote(3, 1)), None);
        assert_eq!(promises.note(vote(3, 1)), None, "said again");
        assert_eq!(promises.note(vote(3, 2)), Some(vote(3, 1)));
        assert_eq!(promises.note(vote(4, 1)), None, "another epoch");
    }

    #[test]
    fn the_furthest_acknowledgement_of_the_highest_epoch_is_kept() {
        let log = |epoch, log_index| Promise::Log { epoch: Epoch::new(epoch), log_index };
        let mut promises = Promises::default();
        for said in [log(2, 90), log(3, 41), log(3, 40), log(2, 95)] {
            assert_eq!(promises.note(said), None);
        }
        assert_eq!(promises.all().collect::<Vec<_>>(), [log(3, 41)]);
    }
}
