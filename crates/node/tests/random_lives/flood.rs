//! A member that holds more than one command may end: its leases end over several batches.

use mortarmq_node::Request;

use crate::groups::GroupOptions;
use crate::life::{Expect, Life};
use crate::support::Crashed;
use mortarmq_types::Partition;

/// More than the steps of one command and of one batch together.
const MESSAGES: u64 = 2200;
const BATCH: u64 = 550;

impl Life {
    /// Publishes much, lets one member take all of it, and lets it go, by its own will or not; another one takes it over.
    pub(crate) fn flood(&mut self) -> Result<(), Crashed> {
        let connection = self.connect();
        let (name, partitions) = ("flood".to_owned(), 2);
        let request = Request::Declare { name: name.clone(), partitions, options: crate::life::options_of(&name) };
        self.send(connection, request, vec![Expect::Declare { name, partitions }]);
        self.finish_all()?;
        let topic = *self.record.topics.keys().next().expect("it was just made");
        for _ in 0..MESSAGES / BATCH {
            let messages: Vec<(u64, u64)> = (0..BATCH).map(|_| (0, self.new_message(topic, Partition::ANY))).collect();
            for (_, message) in &messages {
                // All of them are to be held at once.
                self.record.sent.get_mut(message).expect("it was just made").delay_ms = 0;
            }
            self.send_batch(connection, (topic, Partition::ANY, 0), &messages);
        }
        let options = GroupOptions::unlimited(&mut self.random);
        let path = (topic, options.name.clone());
        let member = self.join(connection, path.clone(), 5000, &options);
        self.finish_all()?;
        self.pass(20)?;
        self.finish_all()?;
        let held = self.record.seen.keys().filter(|id| !self.record.can_have_ended(**id)).count();
        assert!(held > 2048, "a member with a large window holds {held}");
        self.record.reach("a member that held more than a batch ends is gone");
        let subscription = self.subscription_mut(member).expect("its connection is open").clone();
        if self.random.one_in(2) {
            self.leave_as(&subscription);
        } else {
            self.disconnect(connection);
            self.pass_in_turns(options.session_ms + 250)?;
        }
        let other = self.connect();
        self.join(other, path, 5000, &options);
        for _ in 0..16 {
            self.pass(250)?;
            self.finish_all()?;
            self.settle_all();
            self.finish_all()?;
        }
        let (settled, all) = (self.record.topics[&topic].paths[&options.name].acked.len() as u64, MESSAGES);
        assert_eq!(settled, all, "P4: the messages of a member that is gone go to another");
        self.record.topic_mut(topic).delete_sent = true;
        self.send(other, Request::Delete { name: "flood".to_owned() }, vec![Expect::Delete { topic }]);
        self.finish_all()
    }

    /// Carries out everything that is under way.
    pub(crate) fn finish_all(&mut self) -> Result<(), Crashed> {
        self.rig.pump()?;
        self.rig.catch_up()?;
        self.absorb();
        self.rig.pump()?;
        self.rig.catch_up()?;
        self.absorb();
        Ok(())
    }
}
