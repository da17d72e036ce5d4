//! Dead letters, and operators that bring them back. A message dies only when its consumer says so; purges of dead letters,
//! deaths by attempts, and consumers of dead letters are met in the lives of `redrive_lives.rs`.

use mortarmq_node::views::BalanceView;
use mortarmq_node::{Act, LetterAction, LettersAct, QueryAnswer};
use mortarmq_types::TopicIncarnation;

use crate::life::Life;
use crate::support::Crashed;

impl Life {
    /// An operator redrives what is dead of a topic, or some of it.
    pub(crate) fn redrive_some(&mut self) -> Result<(), Crashed> {
        let Some(topic) = self.random_topic() else { return Ok(()) };
        let limit = self.random.one_in(2).then(|| self.random.between(1, 4));
        let act = self.redrive_of(topic, limit);
        self.begin_redrive(topic, Act::Letters(act))
    }

    /// Redrives everything that is dead of these topics, by a disk that does not fail; says how many came back.
    pub(crate) fn redrive_all(&mut self, topics: &[TopicIncarnation]) -> Result<u64, Crashed> {
        let mut done = 0;
        for topic in topics {
            let act = self.redrive_of(*topic, None);
            let reply = self.rig.act(Act::Letters(act))?;
            let Ok(QueryAnswer::Letters(view)) = reply.result else { panic!("a redrive was answered {reply:?}") };
            assert_eq!(view.matched, view.done + view.refused.values().sum::<u64>(), "{view:?}");
            let is_waiting = view.refused.keys().all(|reason| *reason == "full");
            assert!(is_waiting, "all of them can be redriven while nothing is unsettled: {view:?}");
            done += view.done;
        }
        Ok(done)
    }

    fn redrive_of(&mut self, topic: TopicIncarnation, limit: Option<u64>) -> LettersAct {
        let restarts = self.record.restarts;
        let record = self.record.topic_mut(topic);
        record.redriven_from.get_or_insert(restarts);
        LettersAct {
            topic: record.name.clone(),
            action: LetterAction::Redrive,
            partition: None,
            sequences: Vec::new(),
            reason: None,
            limit,
            rate: None,
            dry_run: false,
        }
    }
}

/// P4, P9: every death on a path of a topic is one dead letter in its book, and none of them leaves it here but by a redrive.
pub(crate) fn judge_letters(view: &BalanceView) {
    for book in view.paths.iter().filter(|path| path.topic.starts_with("$dlq.")) {
        let source = book.topic.trim_start_matches("$dlq.");
        let died: u64 = view.paths.iter().filter(|path| path.topic == source).map(|path| path.dlq).sum();
        assert_eq!(book.produced, died, "P9: deaths of {source}, and {book:?}");
        assert_eq!((book.delivered, book.dlq), (0, 0), "P9: {book:?}");
    }
}
